//! One round of node updates: sets the Nodes of all load balancers with one call to the provider.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::Instant;

use super::ServiceReconciler;
use crate::cloud::{Error, Handling, LoadBalancer, node, service};
use crate::controllers::record_event;
use crate::controllers::service::cloud_calls::{timed_out, update_nodes};
use crate::controllers::service::failure::{ServiceAction, ServiceBlocked};
use crate::controllers::service::outcome::{Round, ServiceOutcome, Update, WrittenNodes};
use crate::controllers::service::reason;
use crate::controllers::service::records::ServiceLock;
use crate::controllers::service::targets::TargetList;
use crate::kubernetes::events::EventType;
use crate::kubernetes::leadership::NotLeader;

/// Time limit of the cloud call for all Services.
const ROUND_LIMIT: Duration = Duration::from_secs(300);
/// Maximum pause before a round is repeated for a Service whose update is pending.
const PENDING_PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of Node names in an Event.
const NAMES_SHOWN: usize = 20;

impl ServiceReconciler {
    pub(in crate::controllers::service) async fn update_nodes(&self) -> ServiceOutcome {
        let Some(balancer) = self.balancer() else { return ServiceOutcome::Nothing };
        let began = Instant::now();
        if let Some(end) = self.targets.end_pauses() {
            self.rounds.again_at(end);
        }
        let set = self.targets.current();
        self.rounds.sync_soon(self.records.refused_with_others(&set));
        let due = self.records.due(&set);
        if let Some(next) = due.next {
            self.rounds.again_at(next);
        }
        let is_due = |claim: ServiceLock| Some((self.updatable(&*balancer, &claim.key)?, claim));
        let claimed: Vec<(Arc<Service>, ServiceLock)> = due.claims.into_iter().filter_map(is_due).collect();
        let mut round =
            Round { updates: Vec::new(), recovered: due.recovered, duration: Duration::ZERO, call_duration: None };
        if !claimed.is_empty() {
            // Checks the list that is sent, because it may be newer than the set.
            let targets = self.targets.list();
            match self.write_blocked(targets.nodes.is_empty()) {
                Some(blocked) => self.hold_all(claimed, &blocked, &mut round),
                None => {
                    if self.update_all(&*balancer, claimed, &targets, &mut round).await.is_err() {
                        return ServiceOutcome::Nothing;
                    }
                }
            }
        }
        round.duration = began.elapsed();
        ServiceOutcome::Round(round)
    }

    /// Reports a Node that changes too often. Called once per pause.
    pub(in crate::controllers::service) fn record_flapping(&self, name: &str, until: Instant) {
        let Some(node) = self.targets.store.get(name) else { return };
        let pause = until.saturating_duration_since(Instant::now()).as_secs();
        let message = format!(
            "an address of the Node, or whether load balancers send traffic to it, changed more than five times in a minute; load \
             balancers see it as it was for {pause} s"
        );
        tracing::warn!(node = name, reason = %reason::NodeFlapping, "{message}");
        record_event(&self.recorder, &*node, EventType::Warning, reason::NodeFlapping.as_str(), &message);
    }

    fn hold_all(&self, claimed: Vec<(Arc<Service>, ServiceLock)>, blocked: &ServiceBlocked, round: &mut Round) {
        let held = blocked.clone().with(ServiceAction::UpdateNodes);
        round.updates.extend(claimed.into_iter().map(|(service, claim)| {
            self.records.node_update_blocked(&claim.key, held.clone());
            Update { key: claim.key.clone(), service, result: WrittenNodes::Failed }
        }));
    }

    /// Updates all claimed Services with one call. Fails if this process lost leadership.
    async fn update_all(
        &self,
        balancer: &dyn LoadBalancer,
        claimed: Vec<(Arc<Service>, ServiceLock)>,
        targets: &TargetList,
        round: &mut Round,
    ) -> Result<(), NotLeader> {
        let services: Vec<Arc<Service>> = claimed.iter().map(|(service, _)| Arc::clone(service)).collect();
        claimed.iter().for_each(|(_, claim)| self.records.begin_node_update(&claim.key));
        let called = Instant::now();
        let call = update_nodes(balancer, &self.permit, self.cluster(), &services, &targets.nodes);
        let mut results = tokio::time::timeout(ROUND_LIMIT, call).await.unwrap_or_default();
        round.call_duration = Some(called.elapsed());
        // A Service without a result was not updated.
        results.resize_with(claimed.len(), || Err(timed_out(ROUND_LIMIT)));
        for ((service, claim), result) in claimed.into_iter().zip(results) {
            let key = claim.key.clone();
            // The record was dropped during the call.
            if !self.records.was_synced(&key) {
                continue;
            }
            let result = match result {
                Err(Error::NotLeader) => return Err(NotLeader),
                Err(Error::Pending { after, .. }) => {
                    self.rounds.again_at(Instant::now() + after.min(PENDING_PAUSE));
                    continue;
                }
                Ok(()) | Err(Error::ImplementedElsewhere) => match self.records.nodes_updated(&key, &targets.set) {
                    true => match balancer.without_nodes(&service, &targets.nodes) {
                        Some(message) => WrittenNodes::Empty(message),
                        None => WrittenNodes::Changed,
                    },
                    false => WrittenNodes::Unchanged,
                },
                Err(error) => {
                    let blocked = ServiceBlocked::by_cloud(&error).with(ServiceAction::UpdateNodes);
                    let held = ServiceBlocked { message: failure_message(&targets.nodes, &blocked.message), ..blocked };
                    if let Some(next) = self.records.node_update_failed(&key, &targets.set, held) {
                        self.rounds.again_at(next);
                    }
                    WrittenNodes::Failed
                }
            };
            round.updates.push(Update { key, service, result });
        }
        Ok(())
    }

    /// Returns the Service of this key if its load balancer exists and must stay.
    fn updatable(&self, balancer: &dyn LoadBalancer, key: &str) -> Option<Arc<Service>> {
        let service = self.services.get(key)?;
        let is_wanted = service::wants_load_balancer(&service)
            && service.metadata.deletion_timestamp.is_none()
            && !self.records.is_another(key, &service)
            && balancer.handles(&service) != Handling::Declined;
        let exists = !service::ingress(&service).is_empty() || self.records.was_ensured(key);
        (is_wanted && exists).then_some(service)
    }

    /// Records the Events and metrics of a round.
    pub(in crate::controllers::service) fn conclude_round(&self, round: &Round) {
        if let Some(call_took) = round.call_duration {
            self.metrics.node_update_seconds.observe(call_took.as_secs_f64());
            self.metrics.round_seconds.observe(round.duration.as_secs_f64());
        }
        round.recovered.iter().for_each(|key| self.show(key, None));
        for update in &round.updates {
            let service = &update.service;
            if round.call_duration.is_some() {
                self.metrics.node_updates.inc();
            }
            match &update.result {
                WrittenNodes::Unchanged => {}
                WrittenNodes::Empty(message) => self.record_no_nodes(service, message),
                WrittenNodes::Changed => {
                    let message = "Updated load balancer with new hosts";
                    self.record_event(service, EventType::Normal, "UpdatedLoadBalancer", message);
                }
                WrittenNodes::Failed => {
                    if round.call_duration.is_some() {
                        self.metrics.node_update_errors.inc();
                    }
                }
            }
            self.show(&update.key, Some(service));
        }
    }
}

/// Builds the message of a failed update, in the format of the Go program.
fn failure_message(nodes: &[Arc<Node>], reason: &str) -> String {
    let mut names: Vec<&str> = nodes.iter().map(|node| node::name(node)).collect();
    names.sort_unstable();
    let more = match names.len().saturating_sub(NAMES_SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    names.truncate(NAMES_SHOWN);
    let count = nodes.len();
    format!("Error updating load balancer with {count} hosts [{}{more}]: {reason}", names.join(", "))
}
