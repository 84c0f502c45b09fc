//! One round of node updates: tells the cloud which Nodes stand behind the load balancers, in one call for all Services.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::Instant;

use super::Sync;
use crate::cloud::{Error, Handling, LoadBalancerFleet, node, service};
use crate::controllers::service::failure::{Action, Held};
use crate::controllers::service::fleet::timed_out;
use crate::controllers::service::outcome::{Outcome, Round, Update, Written};
use crate::controllers::service::records::Claim;
use crate::kubernetes::events::EventType;

/// How long a call to the cloud about all Services may take.
const ROUND_LIMIT: Duration = Duration::from_secs(300);
/// Names in an Event about Nodes.
const NAMES_SHOWN: usize = 20;

impl Sync {
    /// Tells the cloud of changed Nodes.
    pub(in crate::controllers::service) async fn update_nodes(&self) -> Outcome {
        let Some(fleet) = self.fleet() else { return Outcome::Nothing };
        let began = Instant::now();
        let set = self.targets.set();
        let due = self.records.due(&set);
        if let Some(next) = due.next {
            self.rounds.again_at(next);
        }
        let is_due = |claim: Claim| Some((self.updatable(&*fleet, &claim.key)?, claim));
        let claimed: Vec<(Arc<Service>, Claim)> = due.claims.into_iter().filter_map(is_due).collect();
        let mut round = Round { updates: Vec::new(), recovered: due.recovered, took: Duration::ZERO, call_took: None };
        if let Some(held) = self.withheld(set.is_empty()) {
            round.updates.extend(claimed.into_iter().map(|(service, claim)| {
                self.records.withheld(&claim.key);
                Update { key: claim.key.clone(), service, result: Err(held.clone().with(Action::UpdateNodes)) }
            }));
        } else if !claimed.is_empty() {
            let targets = self.targets.list();
            let services: Vec<Arc<Service>> = claimed.iter().map(|(service, _)| Arc::clone(service)).collect();
            claimed.iter().for_each(|(_, claim)| self.records.begin_to_tell(&claim.key));
            let called = Instant::now();
            let call = fleet.update_nodes(&self.permit, self.cluster(), &services, &targets.nodes);
            let mut results = tokio::time::timeout(ROUND_LIMIT, call).await.unwrap_or_default();
            round.call_took = Some(called.elapsed());
            // What has no result was not done.
            results.resize_with(claimed.len(), || Err(timed_out(ROUND_LIMIT)));
            for ((service, claim), result) in claimed.into_iter().zip(results) {
                let key = claim.key.clone();
                let result = match result {
                    Err(Error::NotLeader) => return Outcome::NotLeader,
                    Ok(()) | Err(Error::ImplementedElsewhere) => Ok(match self.records.told(&key, &targets.set) {
                        true if targets.nodes.is_empty() => Written::Empty,
                        true => Written::Changed,
                        false => Written::Unchanged,
                    }),
                    Err(error) => {
                        let held = Held::by_cloud(&error).with(Action::UpdateNodes);
                        if let Some(next) = self.records.not_told(&key, held.retry) {
                            self.rounds.again_at(next);
                        }
                        Err(Held { message: told_nodes(&targets.nodes, &held.message), ..held })
                    }
                };
                round.updates.push(Update { key, service, result });
            }
        }
        round.took = began.elapsed();
        Outcome::Round(round)
    }

    /// The Service of this key, if its load balancer exists and stays.
    fn updatable(&self, fleet: &dyn LoadBalancerFleet, key: &str) -> Option<Arc<Service>> {
        let service = self.services.get(key)?;
        let is_wanted = service::wants_load_balancer(&service)
            && service.metadata.deletion_timestamp.is_none()
            && !self.records.is_another(key, &service)
            && fleet.handles(&service) != Handling::Declined;
        let exists = !service::ingress(&service).is_empty() || self.records.was_ensured(key);
        (is_wanted && exists).then_some(service)
    }

    /// Events and series of a round.
    pub(in crate::controllers::service) fn conclude_round(&self, round: &Round) {
        if let Some(call_took) = round.call_took {
            self.metrics.node_update_seconds.observe(call_took.as_secs_f64());
            self.metrics.round_seconds.observe(round.took.as_secs_f64());
        }
        let recovered = round.recovered.iter();
        let updated = round.updates.iter().filter(|update| update.result.is_ok()).map(|update| &update.key);
        recovered.chain(updated).filter(|key| !self.records.is_held(key)).for_each(|key| self.reasons.clear(key));
        for update in &round.updates {
            let service = &update.service;
            if round.call_took.is_some() {
                self.metrics.node_updates.inc();
            }
            match &update.result {
                Ok(Written::Unchanged) => {}
                Ok(Written::Empty) => self.announce_no_nodes(service),
                Ok(Written::Changed) => {
                    let message = "Updated load balancer with new hosts";
                    self.announce(service, EventType::Normal, "UpdatedLoadBalancer", message);
                }
                Err(held) => {
                    if round.call_took.is_some() {
                        self.metrics.node_update_errors.inc();
                    }
                    self.hold(&update.key, Some(service), held);
                }
            }
        }
    }
}

/// The message of a failed update in the form of the Go program.
fn told_nodes(nodes: &[Arc<Node>], why: &str) -> String {
    let mut names: Vec<&str> = nodes.iter().map(|node| node::name(node)).collect();
    names.sort_unstable();
    let more = match names.len().saturating_sub(NAMES_SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    names.truncate(NAMES_SHOWN);
    let count = nodes.len();
    format!("Error updating load balancer with {count} hosts [{}{more}]: {why}", names.join(", "))
}
