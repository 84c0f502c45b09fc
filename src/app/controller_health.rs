//! Health checks of a controller: its task makes progress, and its caches are filled.

use crate::controllers::capability::Capability;
use crate::controllers::driver::Cache;
use crate::runtime::admin::{Checks, Health};
use crate::runtime::pulse::Pulse;
use std::sync::Arc;
use std::time::Duration;

/// Time without a beat after which a task counts as stuck. Beats are 5 s apart.
const STUCK: Duration = Duration::from_secs(60);

/// Adds the health checks of a controller under its name. The caller runs the controller with the returned pulse.
///
/// The check in `/healthz` fails while the task is stuck, since a restart helps then. The check in `/readyz` also fails
/// while a cache of the controller is not filled, see [`of_caches`]. A controller that waits for leadership or for work
/// is healthy. A controller that lacks a capability of the provider is healthy too; `/readyz?verbose` shows the reason.
pub fn watch(
    checks: &Checks,
    name: &'static str,
    caches: Vec<Arc<dyn Cache>>,
    capability: Option<Capability>,
) -> Pulse {
    let pulse = Pulse::default();
    let running = pulse.clone();
    checks.add_health(name, move || of_task(running.since_last_beat()));
    let running = pulse.clone();
    checks.add_readiness(name, move || match of_task(running.since_last_beat()) {
        Health::Ok => readiness(&caches, capability.as_ref()),
        health => health,
    });
    pulse
}

fn readiness(caches: &[Arc<dyn Cache>], capability: Option<&Capability>) -> Health {
    match (of_caches(caches), capability.and_then(Capability::idle)) {
        (Health::Ok, Some(idle)) => Health::Note(idle.into()),
        (health, _) => health,
    }
}

/// Returns a failure until all caches have been listed. A cache with a reason to stay empty (`idle`) does not fail the
/// check: a missing permission must not block a rollout.
pub fn of_caches(caches: &[Arc<dyn Cache>]) -> Health {
    let mut waiting = caches.iter().filter(|cache| !cache.is_synced());
    match waiting.clone().find(|cache| cache.idle().is_none()) {
        Some(cache) => Health::Failed(format!("the {} have not been listed yet", cache.kind())),
        None => waiting.find_map(|cache| cache.idle()).map_or(Health::Ok, |idle| Health::Note(idle.into())),
    }
}

fn of_task(silence: Option<Duration>) -> Health {
    match silence {
        // Omits the exact duration from the text, since each change of the text is logged.
        Some(silence) if silence > STUCK => Health::Failed("the controller loop made no progress for 60 s".to_owned()),
        _ => Health::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{CloudProvider, Error, LeaderToken, Route, Routes};
    use crate::controllers::driver::CacheKind;
    use crate::kubernetes::stores::Change;
    use futures::stream::BoxStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A cloud that supports routes if `has_routes` is true.
    struct Cloud {
        has_routes: AtomicBool,
    }

    impl CloudProvider for Cloud {
        fn provider_name(&self) -> &'static str {
            "cloud"
        }

        fn owns_provider_id(&self, _: &str) -> bool {
            true
        }

        fn routes(&self) -> Option<Arc<dyn Routes>> {
            self.has_routes.load(Ordering::SeqCst).then(|| Arc::new(NoRoutes) as Arc<dyn Routes>)
        }
    }

    struct NoRoutes;

    #[async_trait::async_trait]
    impl Routes for NoRoutes {
        async fn list_routes(&self, _: &str) -> Result<Vec<Route>, Error> {
            Ok(Vec::new())
        }

        async fn create_route(&self, _: &LeaderToken, _: &str, _: &str, _: &Route) -> Result<(), Error> {
            Err(Error::NotImplemented)
        }

        async fn delete_route(&self, _: &LeaderToken, _: &str, _: &Route) -> Result<(), Error> {
            Err(Error::NotImplemented)
        }
    }

    struct Filled(bool);

    /// A cache that never fills, as if the API server refused the list. Its `idle` gives the reason.
    struct Refused;

    impl Cache for Refused {
        fn kind(&self) -> CacheKind {
            CacheKind::Services
        }

        fn is_synced(&self) -> bool {
            false
        }

        fn idle(&self) -> Option<&'static str> {
            Some("idle: refused")
        }

        fn changes(&self) -> BoxStream<'static, Change> {
            Box::pin(futures::stream::pending())
        }
    }

    impl Cache for Filled {
        fn kind(&self) -> CacheKind {
            CacheKind::Nodes
        }

        fn is_synced(&self) -> bool {
            self.0
        }

        fn changes(&self) -> BoxStream<'static, Change> {
            Box::pin(futures::stream::pending())
        }
    }

    #[test]
    fn a_controller_without_its_capability_is_ready_and_says_so() {
        let cloud = Arc::new(Cloud { has_routes: AtomicBool::new(true) });
        let capability = Capability::routes(cloud.clone());
        let of = |is_filled| readiness(&[Arc::new(Filled(is_filled))], Some(&capability));
        assert_eq!(of(true), Health::Ok);
        cloud.has_routes.store(false, Ordering::SeqCst);
        assert_eq!(of(true), Health::Note("idle: the cloud provider has no routes".into()));
        assert_eq!(of(false), Health::Failed("the nodes have not been listed yet".to_owned()));
    }

    #[test]
    fn a_controller_whose_cache_may_not_be_filled_is_ready_and_says_so() {
        let of = |is_filled| of_caches(&[Arc::new(Filled(is_filled)), Arc::new(Refused)]);
        assert_eq!(of(true), Health::Note("idle: refused".into()));
        assert_eq!(of(false), Health::Failed("the nodes have not been listed yet".to_owned()));
    }

    #[test]
    fn w_83_a_task_that_is_stuck_fails_and_one_that_has_not_begun_does_not() {
        let failed = Health::Failed("the controller loop made no progress for 60 s".to_owned());
        for (silence, expected) in [(None, Health::Ok), (Some(60), Health::Ok), (Some(61), failed)] {
            assert_eq!(of_task(silence.map(Duration::from_secs)), expected, "{silence:?}");
        }
    }
}
