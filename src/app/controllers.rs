//! Builds the selected controllers and starts them one after the other.

use super::catalogue::ControllerKind;
use super::election::hostname;
use super::reports::status::ControllerState;
use super::settings::Settings;
use super::shared_services::SharedServices;
use super::shutdown_order::{ShutdownStage, Stages};
use super::startup_log::deletion_mode;
use super::{Error, controller_health};
use crate::cloud::{CloudProvider, node};
use crate::controllers::capability::Capability;
use crate::controllers::driver::{Cache, Controller, CurrentTerm, Reconciler};
use crate::controllers::node::NodeReconciler;
use crate::controllers::node_lifecycle::NodeLifecycleReconciler;
use crate::controllers::node_lifecycle::pause_monitor::PauseMonitor;
use crate::controllers::route::RouteReconciler;
use crate::controllers::route::withdrawal::{self, Off};
use crate::controllers::service::{ServiceReconciler, no_load_balancers};
use crate::controllers::{Context, node as node_controller, node_lifecycle, route, service};
use crate::kubernetes::deletion_lease::DeletionLease;
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::stores::Services;
use crate::runtime::tasks::BoxError;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

type ControllerFuture = BoxFuture<'static, Result<(), BoxError>>;

/// Access to the controllers that run in this process.
#[derive(Default)]
pub struct ControllerTerms {
    /// Each controller, for its state.
    pub sources: Vec<ControllerSource>,
    /// The node controller.
    pub node: Option<CurrentTerm<NodeReconciler>>,
    /// The node-lifecycle controller.
    pub lifecycle: Option<CurrentTerm<NodeLifecycleReconciler>>,
    /// The pause of deletions; `None` if this process does not run the node-lifecycle controller.
    pub deletion_pauses: Option<Arc<PauseMonitor>>,
    /// The route controller.
    pub route: Option<CurrentTerm<RouteReconciler>>,
    /// The service controller.
    pub service: Option<CurrentTerm<ServiceReconciler>>,
}

/// Access to the state of one controller.
pub struct ControllerSource {
    /// The name of the controller.
    pub name: &'static str,
    /// The leadership under which the controller works.
    pub leadership: Leadership,
    caches: Vec<Arc<dyn Cache>>,
    capability: Option<Capability>,
    has_term: Box<dyn Fn() -> bool + Send + Sync>,
}

impl ControllerSource {
    /// Returns the state of the controller, with the reason if it does not work.
    pub fn state(&self) -> (ControllerState, Option<&'static str>) {
        let refused = self.caches.iter().find_map(|cache| cache.idle());
        let idle = self.capability.as_ref().and_then(Capability::idle);
        match (refused, idle) {
            _ if !self.leadership.is_leader() => (ControllerState::Standby, None),
            (_, Some(idle)) => (ControllerState::Idle, Some(idle)),
            (Some(refused), _) => (ControllerState::Refused, Some(refused)),
            _ if (self.has_term)() => (ControllerState::Working, None),
            _ => (ControllerState::Starting, None),
        }
    }
}

struct ReadyController {
    has_term: Box<dyn Fn() -> bool + Send + Sync>,
    caches: Vec<Arc<dyn Cache>>,
    capability: Option<Capability>,
    run: Box<dyn FnOnce(CancellationToken) -> ControllerFuture>,
}

impl ReadyController {
    /// Registers the controller's metrics, and stores the access to its terms in `term`.
    fn new<R: Reconciler>(
        mut controller: Controller<R>,
        parts: &SharedServices,
        term: &mut Option<CurrentTerm<R>>,
    ) -> Result<Self, Error> {
        controller.register(parts.metrics.registry())?;
        let current = controller.current_term();
        *term = Some(current.clone());
        let has_term = Box::new(move || current.get().is_some());
        let (caches, capability) = (controller.spec.caches.clone(), controller.spec.capability.clone());
        Ok(Self { has_term, caches, capability, run: Box::new(|stop| controller.run(stop).boxed()) })
    }
}

/// Builds and starts the controllers. Controllers write nothing before this process leads. Returns the access to their
/// terms.
pub fn start(
    settings: &Settings,
    parts: &SharedServices,
    provider: &Arc<dyn CloudProvider>,
    stages: &mut Stages,
) -> Result<ControllerTerms, Error> {
    let mut terms = ControllerTerms::default();
    let mut delay = Duration::ZERO;
    for controller in &settings.controllers {
        let Some(leadership) = parts.elections.leadership_of(controller.name).cloned() else {
            tracing::info!("{} does not run here: the leader migration gives it to another program", controller.name);
            continue;
        };
        let context = parts.context(controller, leadership.clone(), Arc::clone(provider))?;
        let ReadyController { has_term, caches, capability, run } = match controller.kind {
            ControllerKind::Node => build_node(settings, parts, context, &mut terms)?,
            ControllerKind::NodeLifecycle => build_node_lifecycle(settings, parts, context, (&mut terms, stages))?,
            ControllerKind::Route => match build_route(settings, parts, context, (&mut terms, stages))? {
                Some(runnable) => runnable,
                None => continue,
            },
            ControllerKind::Service => match &parts.caches.services {
                Some(services) => {
                    let terms = (&mut terms, &mut *stages);
                    build_service(settings, parts, context, services.clone(), terms)?
                }
                None => continue,
            },
        };
        terms.sources.push(ControllerSource {
            name: controller.name,
            leadership: leadership.clone(),
            caches: caches.clone(),
            capability: capability.clone(),
            has_term,
        });
        let pulse = controller_health::watch(&parts.checks, controller.name, caches, capability);
        let stop = stages.stop_signal(ShutdownStage::Controllers);
        let run = run(stop.clone());
        let work = async move { pulse.beating(run).await }.boxed();
        stages.spawn(ShutdownStage::Controllers, controller.name, delayed(work, delay, leadership, stop));
        delay += pause(settings.generic.controller_start_interval, fastrand::f64());
    }
    Ok(terms)
}

fn build_node(
    settings: &Settings,
    parts: &SharedServices,
    context: Context,
    terms: &mut ControllerTerms,
) -> Result<ReadyController, Error> {
    let mut settings = settings.nodes.clone();
    // Warns once at the start; the Go program warns for every Node.
    settings.policy.node_labels.retain(|key, _| {
        let is_reserved = node::is_reserved_label(key);
        if is_reserved {
            tracing::warn!(
                "--node-labels: {key} is not set on any node, because its prefix is reserved for Kubernetes"
            );
        }
        !is_reserved
    });
    let controller = node_controller::controller(context, parts.caches.nodes.clone(), settings)?;
    ReadyController::new(controller, parts, &mut terms.node)
}

/// Builds the node-lifecycle controller, and starts the reads of the pause of deletions, which standbys show, too.
fn build_node_lifecycle(
    settings: &Settings,
    parts: &SharedServices,
    context: Context,
    (terms, stages): (&mut ControllerTerms, &mut Stages),
) -> Result<ReadyController, Error> {
    let host = hostname().unwrap_or_else(|| "unknown-host".to_owned());
    let client = parts.api_server.clients.auxiliary.clone();
    let lease = DeletionLease::new(client, settings.lease_namespace());
    let recorder = parts.events.for_component("cloud-node-lifecycle-controller");
    let pauses = Arc::new(PauseMonitor::new(lease, recorder, context.leadership.clone(), &host));
    stages.spawn_until_stop(ShutdownStage::Services, "deletion-pause", Arc::clone(&pauses).run());
    terms.deletion_pauses = Some(Arc::clone(&pauses));
    let settings = settings.node_lifecycle.clone();
    tracing::info!("{}", deletion_mode(&settings.deletion));
    let controller = node_lifecycle::controller(context, parts.caches.nodes.clone(), pauses, settings)?;
    ReadyController::new(controller, parts, &mut terms.lifecycle)
}

/// Builds the route controller, and starts the controller that removes conditions of the route controller from Nodes
/// while routes are off. With `--configure-cloud-routes=false`, starts only the latter.
fn build_route(
    settings: &Settings,
    parts: &SharedServices,
    context: Context,
    (terms, stages): (&mut ControllerTerms, &mut Stages),
) -> Result<Option<ReadyController>, Error> {
    let nodes = parts.caches.nodes.clone();
    let off = if settings.routes.is_some() { Off::ByConfiguration } else { Off::ByFlag };
    start_part(withdrawal::controller(context.clone(), nodes.clone(), off), stages);
    let Some(routes) = settings.routes.clone() else {
        tracing::info!("no routes are made: --configure-cloud-routes=false");
        return Ok(None);
    };
    check_networks(&routes, context.provider.routes().is_some())?;
    ReadyController::new(route::controller(context, nodes, routes), parts, &mut terms.route).map(Some)
}

/// Requires `--cluster-cidr` if the provider has routes: only routes within these networks are deleted.
fn check_networks(settings: &route::RouteSettings, has_routes: bool) -> Result<(), Error> {
    if has_routes && settings.networks.is_empty() { Err(Error::NoClusterCidr) } else { Ok(()) }
}

/// Builds the service controller, and starts the controller that reports if the provider has no load balancers.
fn build_service(
    settings: &Settings,
    parts: &SharedServices,
    context: Context,
    services: Services,
    (terms, stages): (&mut ControllerTerms, &mut Stages),
) -> Result<ReadyController, Error> {
    start_part(no_load_balancers::controller(context.clone(), services.clone()), stages);
    let controller = service::controller(context, services, parts.caches.nodes.clone(), settings.services.clone());
    ReadyController::new(controller, parts, &mut terms.service)
}

/// Starts a controller that is a part of another controller, so it has neither metrics nor health checks.
fn start_part(controller: Controller<impl Reconciler>, stages: &mut Stages) {
    let stop = stages.stop_signal(ShutdownStage::Controllers);
    stages.spawn(ShutdownStage::Controllers, controller.spec.name, controller.run(stop));
}

/// Returns the pause between the starts of two controllers: `interval` × (1 + `chance`), with `chance` from 0 to 1.
fn pause(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(1.0 + chance)
}

/// Starts the work once this process has led for `delay`. If `delay` is zero, starts immediately, since the work itself
/// waits for leadership. Only the first term of leadership has delays; later, all controllers start at the same time.
async fn delayed(
    work: ControllerFuture,
    delay: Duration,
    leadership: Leadership,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    if !delay.is_zero() {
        let wait = async {
            leadership.wait_until_leader().await;
            tokio::time::sleep(delay).await;
        };
        if stop.run_until_cancelled(wait).await.is_none() {
            return Ok(());
        }
    }
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::settings::tests::settled;
    use tokio::time::Instant;

    #[test]
    fn the_pause_is_from_one_interval_up_to_two() {
        let interval = Duration::from_secs(10);
        for (chance, expected) in [(0.0, 10), (0.5, 15), (0.999_999_999_99, 20)] {
            assert_eq!(pause(interval, chance).as_secs_f64().round() as u64, expected, "{chance}");
        }
        assert_eq!(pause(Duration::ZERO, 0.7), Duration::ZERO);
    }

    #[test]
    fn w_47_a_provider_with_routes_needs_the_pod_networks() {
        let routes = |arguments: &[&str]| settled(arguments).unwrap().routes.unwrap();
        let reported = check_networks(&routes(&[]), true).unwrap_err().to_string();
        assert!(
            reported.contains("--cluster-cidr is empty") && reported.contains("--configure-cloud-routes=false"),
            "{reported}"
        );
        assert!(check_networks(&routes(&[]), false).is_ok(), "a provider without routes needs none");
        assert!(check_networks(&routes(&["--cluster-cidr=10.0.0.0/8"]), true).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn work_begins_after_its_delay_and_not_at_all_after_the_end() {
        let begun = Instant::now();
        let work = || async move { Ok::<_, BoxError>(()) }.boxed();
        let delay = Duration::from_secs(7);
        delayed(work(), delay, Leadership::always(), CancellationToken::new()).await.unwrap();
        assert_eq!(begun.elapsed(), delay);
        delayed(work(), Duration::ZERO, Leadership::always(), CancellationToken::new()).await.unwrap();
        assert_eq!(begun.elapsed(), delay);
        let stopped = CancellationToken::new();
        stopped.cancel();
        let never = async { panic!("it has begun") }.boxed();
        delayed(never, delay, Leadership::always(), stopped).await.unwrap();
        assert_eq!(begun.elapsed(), delay);
    }
}
