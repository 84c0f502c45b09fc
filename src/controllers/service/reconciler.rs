//! The sync of one Service: observes, plans and applies.

pub mod explanation;
mod node_update;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};

use super::api::{Live, ServiceApi};
use super::cloud_calls::{CLOUD_LIMIT, within};
use super::failure::{ServiceAction, ServiceBlocked, Stop};
use super::inputs::Inputs;
use super::metrics::ServiceMetrics;
use super::node_sync::NodeSyncSchedule;
use super::outcome::ServiceOutcome;
use super::plan::{self, Rejection, ServicePlan, plan};
use super::records::{Records, ServiceLock, SyncInput};
use super::targets::Targets;
use super::{LoadBalancersStatus, ServiceSettings, reason};
use crate::base::error_chain::chain;
use crate::cloud::service::cache_filter::{reduced, too_large, without_unread};
use crate::cloud::{CloudProvider, Error, Handling, LeaderToken, LoadBalancer, service};
use crate::controllers::decisions::{DecisionRecorder, SETTLED};
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::retry::Retry;
use crate::controllers::{record_event, reference, shown};
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::patch::permits_retry;
use crate::kubernetes::stores::Services;

/// Pause before a sync is repeated because another call for the Service is in flight, or the cache is stale.
const CLAIMED_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of the provider's remarks that one sync records as Events. The next sync records further remarks.
const MAX_MESSAGES: usize = 16;
/// Delay of the Event about a finalizer that another program may own and may still remove.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reconciler of one leadership term.
pub struct ServiceReconciler {
    pub(super) services: Services,
    pub(super) targets: Targets,
    pub(super) api: ServiceApi,
    pub(super) recorder: Recorder,
    pub(super) decisions: DecisionRecorder,
    pub(super) provider: Arc<dyn CloudProvider>,
    pub(super) permit: LeaderToken,
    pub(super) settings: ServiceSettings,
    pub(super) metrics: ServiceMetrics,
    pub(super) reasons: Arc<ReasonTracker>,
    pub(super) records: Arc<Records>,
    pub(super) rounds: NodeSyncSchedule,
}

/// Inputs and resulting addresses of an ensure in an earlier attempt of the same sync.
type EnsureResult = Option<(Inputs, Option<Vec<LoadBalancerIngress>>)>;

impl ServiceReconciler {
    /// Returns the state of the load balancers in this term.
    pub fn status(&self) -> LoadBalancersStatus {
        let blocked = self.reasons.list();
        let is_blocked = |key: &str| blocked.binary_search_by(|one| one.key.as_str().cmp(key)).is_ok();
        let is_wanted =
            |key: &str| self.services.get(key).is_some_and(|service| service::wants_load_balancer(&service));
        let is_waiting = |key: &&String| is_wanted(key) && !self.records.was_ensured(key) && !is_blocked(key);
        let waiting = self.services.keys().iter().filter(is_waiting).count();
        LoadBalancersStatus { ensured: self.records.count_ensured(), waiting, blocked }
    }

    /// Returns the provider's load balancers. Returns `None` if the provider has none, or if the cache of Nodes or
    /// Services is not filled. The event of the filled cache enqueues the Services that were skipped.
    pub(super) fn balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        self.provider.load_balancer().filter(|_| self.targets.store.is_ready() && self.services.is_ready())
    }

    pub(super) async fn sync(&self, key: &str) -> ServiceOutcome {
        let Some(balancer) = self.balancer() else { return ServiceOutcome::Nothing };
        self.records.begin_sync(key);
        let synced = match self.services.get(key) {
            None => self.sync_vanished(&*balancer, key).await,
            Some(service) => self.sync_present(&*balancer, key, service).await,
        };
        match synced {
            Ok(()) => ServiceOutcome::Synced(None),
            Err(Stop::NotLeader) => ServiceOutcome::Nothing,
            Err(Stop::Wait(delay)) => ServiceOutcome::Wait(delay),
            Err(Stop::Held(blocked)) => ServiceOutcome::Synced(Some(*blocked)),
            Err(Stop::Conflict(error)) => {
                let blocked = ServiceBlocked::new(reason::WriteConflict, chain(&error), Retry::Backoff);
                ServiceOutcome::Synced(Some(blocked))
            }
        }
    }

    /// Syncs a cached Service. After a conflict, plans again with a live read, because the cached version may be
    /// outdated. While the cache still has that version, later syncs also begin with a live read. Without this live
    /// read, syncs would repeatedly create and delete the load balancer of a deleted Service while Services cannot be
    /// listed.
    async fn sync_present(&self, balancer: &dyn LoadBalancer, key: &str, cached: Arc<Service>) -> Result<(), Stop> {
        let mut ensured = None;
        let mut attempts = 0;
        let mut is_live = self.records.is_outdated(key, &cached);
        loop {
            let mut service = Arc::clone(&cached);
            if is_live {
                // If the Service is deleted or not selected, the event of the cache enqueues it.
                let Live::Selected(live) = self.api.read(&cached).await? else { return Ok(()) };
                service = Arc::new(reduced(*live));
            }
            match self.attempt(balancer, key, &service, &mut ensured).await {
                Err(Stop::Conflict(error)) => {
                    self.records.outdated(key, &cached);
                    if !permits_retry(&mut attempts, &error).await {
                        return Err(Stop::Conflict(error));
                    }
                }
                done => return done,
            }
            is_live = true;
        }
    }

    async fn attempt(
        &self,
        balancer: &dyn LoadBalancer,
        key: &str,
        service: &Service,
        ensured: &mut EnsureResult,
    ) -> Result<(), Stop> {
        if self.records.is_another(key, service) {
            self.sync_replaced(balancer, key, service).await?;
        }
        let (handling, inputs) = (balancer.handles(service), Inputs::of(service, balancer.annotation_prefixes()));
        let start = self.records.start(key, service);
        match plan(service, &handling, &inputs, &start.record) {
            ServicePlan::LeaveAlone => {
                if !service::wants_load_balancer(service) || handling == Handling::Declined {
                    self.records.forget(key);
                }
                Ok(())
            }
            ServicePlan::Hold { reason, message } => Err(ServiceBlocked::new(reason, message, Retry::OnChange).into()),
            ServicePlan::Ensure { adds_finalizer } => {
                let _claim = self.lock(key, Some(&inputs))?;
                self.ensure(balancer, key, service, EnsureRequest { adds_finalizer, inputs, start }, ensured).await
            }
            ServicePlan::Delete => {
                let _claim = self.lock(key, Some(&inputs))?;
                *ensured = None;
                self.delete(balancer, key, service, &start).await
            }
        }
    }

    fn lock(&self, key: &str, inputs: Option<&Inputs>) -> Result<ServiceLock, Stop> {
        self.records.lock(key, inputs, &self.targets.current()).map_err(Stop::Wait)?.ok_or(Stop::Wait(CLAIMED_PAUSE))
    }

    async fn ensure(
        &self,
        balancer: &dyn LoadBalancer,
        key: &str,
        service: &Service,
        ensure: EnsureRequest,
        ensured: &mut EnsureResult,
    ) -> Result<(), Stop> {
        let EnsureRequest { adds_finalizer, inputs, start } = ensure;
        let targets = self.targets.list();
        if let Some(blocked) = self.write_blocked(targets.nodes.is_empty()) {
            return Err(blocked.into());
        }
        // An ensure that adopts the load balancer of an earlier term is not a change.
        let is_change = start.ensured.as_ref().is_some_and(|ensured| *ensured != inputs);
        let is_news = is_change || service::ingress(service).is_empty();
        let guarded = match adds_finalizer {
            true => self.api.patch("add the finalizer to", service, plan::finalizer_patch(service)).await?.map(reduced),
            false => Some(service.clone()),
        };
        let Some(guarded) = guarded else { return Ok(()) };
        // The Service has become too large. The event of the cache enqueues the Service.
        if too_large(&guarded).is_some() {
            return Ok(());
        }
        let ingress = match ensured.take().filter(|(ensured, _)| *ensured == inputs) {
            Some((_, ingress)) => ingress,
            None => {
                if is_news && self.records.begin_attempt_event(key) {
                    self.record_event(&guarded, EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer");
                }
                self.records.begin_change(key, Some(&targets.set));
                let call = balancer.ensure_load_balancer(&self.permit, self.cluster(), &guarded, &targets.nodes);
                let ingress = match within(CLOUD_LIMIT, call).await {
                    Ok(status) => Some(status.ingress.unwrap_or_default()),
                    Err(Error::ImplementedElsewhere) => None,
                    Err(error) => {
                        self.records.ensure_failed(key, rejection(&error, inputs));
                        return Err(error.into());
                    }
                };
                self.records.nodes_updated(key, &targets.set);
                if let Some(message) = balancer.without_nodes(&guarded, &targets.nodes).filter(|_| is_news) {
                    self.record_no_nodes(&guarded, &message);
                }
                ingress
            }
        };
        *ensured = Some((inputs.clone(), ingress.clone()));
        if let Some(patch) = ingress.as_ref().and_then(|ingress| plan::status_patch(&guarded, ingress))
            && self.api.patch("write the load balancer status of", &guarded, patch).await?.is_none()
        {
            // The event of the deletion enqueues the Service. That sync deletes the load balancer.
            self.records.vanished(key, guarded);
            return Ok(());
        }
        self.records.ensured(key, inputs);
        self.record_messages(balancer, &guarded);
        if is_news && ingress.is_some() {
            self.record_event(&guarded, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
        }
        Ok(())
    }

    fn record_messages(&self, balancer: &dyn LoadBalancer, service: &Service) {
        for (reason, message) in std::iter::from_fn(|| balancer.remark(service)).take(MAX_MESSAGES) {
            self.record_event(service, EventType::Warning, reason.as_str(), &message);
        }
    }

    /// Deletes the load balancer of a Service that is being deleted or has another type, and removes the finalizer.
    async fn delete(
        &self,
        balancer: &dyn LoadBalancer,
        key: &str,
        cached: &Service,
        start: &SyncInput,
    ) -> Result<(), Stop> {
        // A stale cache must not cause a deletion.
        let live = match self.api.read(cached).await? {
            Live::Selected(live) if live.metadata.uid == cached.metadata.uid && service::needs_cleanup(&live) => live,
            _ => return Ok(()),
        };
        let handling = balancer.handles(&live);
        let mut had_objects = start.had_objects;
        if !plan::may_release(&live, &handling, had_objects) {
            had_objects = within(CLOUD_LIMIT, balancer.get_load_balancer(self.cluster(), &live)).await?.is_some();
        }
        if had_objects {
            // Recorded before the call, because after a partial deletion the provider may find no objects.
            self.records.had_objects(key);
        }
        let is_ours = plan::may_release(&live, &handling, had_objects);
        let live = self.with_address(balancer, without_unread(*live)).await?;
        let Some(live) = live else { return Ok(()) };
        if is_ours && self.records.begin_attempt_event(key) {
            self.record_event(&live, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer");
        }
        self.records.begin_change(key, None);
        self.delete_objects(balancer, &live).await?;
        if !is_ours {
            return Err(self.not_ours(key));
        }
        if let Some(patch) = plan::release_patch(&live) {
            self.api.patch("remove the finalizer of", &live, patch).await?;
        }
        self.records.forget(key);
        self.record_messages(balancer, &live);
        self.record_event(&live, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
        Ok(())
    }

    /// Before a deletion, writes the address of the load balancer to a Service without an address, if the provider
    /// needs it. After a crash, the address may be the only trace of the remaining objects. Returns `None` if the
    /// Service is deleted.
    async fn with_address(&self, balancer: &dyn LoadBalancer, live: Service) -> Result<Option<Service>, Stop> {
        let may_report = service::wants_load_balancer(&live) && service::ingress(&live).is_empty();
        if !may_report || !balancer.needs_address_before_deletion() {
            return Ok(Some(live));
        }
        let status = within(CLOUD_LIMIT, balancer.get_load_balancer(self.cluster(), &live)).await?;
        let ingress = status.and_then(|status| status.ingress).unwrap_or_default();
        match plan::status_patch(&live, &ingress) {
            Some(patch) => {
                let written = self.api.patch("write the load balancer status of", &live, patch).await?;
                Ok(written.map(without_unread))
            }
            None => Ok(Some(live)),
        }
    }

    /// Keeps a finalizer that another program may own. Returns a wait, or after `PATIENCE` a failure for an Event.
    fn not_ours(&self, key: &str) -> Stop {
        let lasting = self.records.not_ours_for(key);
        if lasting < PATIENCE {
            return Stop::Wait(PATIENCE - lasting);
        }
        let message = format!(
            "the finalizer {} stays: this program has no load balancer of the Service, and another program may have set the \
             finalizer. If no program uses it, remove it from metadata.finalizers",
            service::FINALIZER
        );
        ServiceBlocked::new(reason::FinalizerNotOurs, message, Retry::OnChange).into()
    }

    /// Handles a Service that left the cache because it was deleted, left the selection, or needs no load balancer.
    async fn sync_vanished(&self, balancer: &dyn LoadBalancer, key: &str) -> Result<(), Stop> {
        let Some(service) = self.records.unguarded(key) else {
            // The Service vanished with its finalizer, for example after a restore of etcd. The provider's orphan
            // cleanup handles its load balancer.
            self.records.forget(key);
            return Ok(());
        };
        let _claim = self.lock(key, None)?;
        let is_gone = match self.api.read(&service).await? {
            Live::Selected(live) => live.metadata.uid != service.metadata.uid,
            Live::NotSelected(uid) => uid != service.metadata.uid,
            Live::Absent => true,
        };
        if is_gone {
            return self.delete_afterwards(balancer, key, &service).await;
        }
        self.records.forget(key);
        Ok(())
    }

    /// Handles a Service that another Service with the same name has replaced. A live read confirms the new UID,
    /// because the cache may be stale.
    async fn sync_replaced(&self, balancer: &dyn LoadBalancer, key: &str, service: &Service) -> Result<(), Stop> {
        if let Some(old) = self.records.unguarded(key) {
            let _claim = self.lock(key, None)?;
            match self.api.read(service).await? {
                Live::Selected(live) if live.metadata.uid == service.metadata.uid => {
                    self.delete_afterwards(balancer, key, &old).await?;
                }
                _ => return Err(Stop::Wait(CLAIMED_PAUSE)),
            }
        }
        self.records.forget(key);
        Ok(())
    }

    /// Deletes the load balancer of a Service whose deletion is confirmed.
    async fn delete_afterwards(&self, balancer: &dyn LoadBalancer, key: &str, gone: &Service) -> Result<(), Stop> {
        if self.records.begin_attempt_event(key) {
            self.record_event(gone, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer");
        }
        self.delete_objects(balancer, gone).await.map_err(|error| match error {
            Error::NotLeader => Stop::NotLeader,
            Error::Pending { after, .. } => Stop::Wait(after),
            error => ServiceBlocked::by_cloud(&error).with(ServiceAction::DeleteAfterwards).into(),
        })?;
        self.records.forget(key);
        self.record_messages(balancer, gone);
        self.record_event(gone, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
        Ok(())
    }

    /// Deletes the objects of the load balancer in the cloud. `ImplementedElsewhere` is a success, because the provider
    /// then has no objects of the Service.
    async fn delete_objects(&self, balancer: &dyn LoadBalancer, service: &Service) -> Result<(), Error> {
        let call = balancer.ensure_load_balancer_deleted(&self.permit, self.cluster(), service);
        match within(CLOUD_LIMIT, call).await {
            Err(Error::ImplementedElsewhere) => Ok(()),
            deleted => deleted,
        }
    }

    /// Returns the failure that blocks the write of an empty list of Nodes, if `--node-selector` is set. A mistyped
    /// selector would otherwise empty every load balancer.
    pub(super) fn write_blocked(&self, is_empty: bool) -> Option<ServiceBlocked> {
        let message = "--node-selector matches no Node that load balancers may use; the load balancer stays as it is";
        let is_withheld = is_empty && self.settings.has_node_selector;
        is_withheld.then(|| ServiceBlocked::new(reason::NoSelectedNodes, message, Retry::OnChange))
    }

    /// Returns the keys of all Services, including Services whose deletion may have been missed.
    pub(super) fn all_keys(&self) -> Vec<String> {
        let mut keys = self.services.keys();
        let known = self.reasons.keys().into_iter().chain(self.records.keys());
        keys.extend(known.filter(|key| !self.services.contains(key)));
        keys.sort();
        keys.dedup();
        keys
    }

    /// Reports the reason why the Service is not up to date. Clears the report if the Service is up to date.
    pub(super) fn show(&self, key: &str, service: Option<&Service>) {
        let Some(blocked) = self.records.blocked(key) else {
            if let Some(before) = self.reasons.clear(key) {
                self.decisions.record(key, SETTLED, &format!("blocked before by {before}"));
            }
            return;
        };
        let (cached, unguarded) = (self.services.get(key), self.records.unguarded(key));
        // An Event about the deletion refers to the deleted Service, and not to a new Service with the same name.
        let gone = unguarded.as_deref().filter(|_| blocked.action == ServiceAction::DeleteAfterwards);
        self.hold(key, gone.or(service).or(cached.as_deref()).or(unguarded.as_deref()), &blocked);
    }

    /// Sets the reason in the gauge. If the reason changed, also logs the reason and records an Event.
    pub(super) fn hold(&self, key: &str, service: Option<&Service>, blocked: &ServiceBlocked) {
        if !self.reasons.set(key, blocked.reason, None) {
            return;
        }
        let (event, message) = blocked.event();
        tracing::warn!(service = key, reason = %blocked.reason, "{message}");
        self.decisions.record(key, blocked.reason.as_str(), &message);
        if let Some(service) = service {
            record_event(&self.recorder, service, EventType::Warning, event, &message);
        }
    }

    pub(super) fn cluster(&self) -> &str {
        &self.settings.cluster_name
    }

    pub(super) fn record_event(&self, service: &Service, event_type: EventType, reason: &'static str, message: &str) {
        // These Events report changes only, so each of them is a decision.
        self.decisions.record(&shown(&reference(service)), reason, message);
        record_event(&self.recorder, service, event_type, reason, message);
    }

    pub(super) fn record_no_nodes(&self, service: &Service, message: &str) {
        self.record_event(service, EventType::Warning, "UnAvailableLoadBalancer", message);
    }
}

struct EnsureRequest {
    adds_finalizer: bool,
    inputs: Inputs,
    start: SyncInput,
}

fn rejection(error: &Error, inputs: Inputs) -> Option<Rejection> {
    match error {
        Error::Invalid { reason, message } => Some(Rejection { inputs, reason: *reason, message: message.clone() }),
        _ => None,
    }
}
