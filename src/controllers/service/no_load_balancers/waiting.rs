//! Pure: selects the Services that have waited for a load balancer long enough to get an Event.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;

use crate::cloud::service;

/// Time without an address after which a Service gets the Event.
const WITHOUT_ADDRESS: Duration = Duration::from_secs(600);
/// Time that a Service waits for the removal of its finalizer before it gets the Event.
const DELETED: Duration = Duration::from_secs(60);
/// Maximum number of Events within `WINDOW`.
const MAX_EVENTS: usize = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// The change that a Service waits for: its address, or the removal of its finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AwaitedEvent {
    Address,
    End,
}

/// The waiting Services, by UID.
#[derive(Debug, Default)]
pub(super) struct WaitingServices {
    since: HashMap<String, (AwaitedEvent, Instant)>,
    reported: HashSet<String>,
    /// Times of the Events within the last `WINDOW`.
    lately: VecDeque<Instant>,
}

impl WaitingServices {
    /// Returns the Services that get the Event at `at`. `services` must contain all Services.
    pub(super) fn update(&mut self, services: impl Iterator<Item = Arc<Service>>, at: Instant) -> Vec<Arc<Service>> {
        while self.lately.front().is_some_and(|said| *said + WINDOW <= at) {
            self.lately.pop_front();
        }
        let mut due = Vec::new();
        let mut seen = HashSet::new();
        let mut waiting = HashMap::new();
        for service in services {
            let Some(uid) = service.metadata.uid.clone() else { continue };
            seen.insert(uid.clone());
            let Some(wish) = wish(&service) else { continue };
            let before = self.since.get(&uid).filter(|(before, _)| *before == wish);
            let since = before.map_or(at, |(_, since)| *since);
            waiting.insert(uid.clone(), (wish, since));
            let limit = if wish == AwaitedEvent::Address { WITHOUT_ADDRESS } else { DELETED };
            let is_due = at.saturating_duration_since(since) >= limit && self.lately.len() < MAX_EVENTS;
            if is_due && self.reported.insert(uid) {
                self.lately.push_back(at);
                due.push(service);
            }
        }
        self.reported.retain(|uid| seen.contains(uid));
        self.since = waiting;
        due
    }

    /// Restarts all waiting times. A Service that got the Event gets no second Event.
    pub(super) fn forget(&mut self) {
        self.since.clear();
    }
}

/// Returns the change that the Service waits for; `None` if it waits for no change, or has a load balancer class.
fn wish(service: &Service) -> Option<AwaitedEvent> {
    let is_deleted = service.metadata.deletion_timestamp.is_some();
    match service::wants_load_balancer(service) {
        true if is_deleted => service::has_finalizer(service).then_some(AwaitedEvent::End),
        true => service::ingress(service).is_empty().then_some(AwaitedEvent::Address),
        // A Service with a class belongs to another program.
        false if service::is_load_balancer(service) => None,
        // The type of the Service has changed, but the Service may still have a load balancer.
        false => service::has_finalizer(service).then_some(AwaitedEvent::End),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::service::FINALIZER;
    use serde_json::{Value, json};

    fn service(uid: &str, metadata: Value, spec: Value, ingress: Value) -> Arc<Service> {
        let mut all = json!({"name": uid, "uid": uid});
        all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let status = json!({"loadBalancer": {"ingress": ingress}});
        Arc::new(serde_json::from_value(json!({"metadata": all, "spec": spec, "status": status})).unwrap())
    }

    fn balanced(uid: &str, metadata: Value) -> Arc<Service> {
        service(uid, metadata, json!({"type": "LoadBalancer"}), json!([]))
    }

    #[test]
    fn only_who_waits_in_vain_is_told_and_once() {
        let (gone, fin) = ("2025-01-01T00:00:00Z", json!([FINALIZER]));
        let class = json!({"type": "LoadBalancer", "loadBalancerClass": "x"});
        let all = || {
            vec![
                balanced("new", json!({})),
                balanced("deleted", json!({"deletionTimestamp": gone, "finalizers": fin})),
                balanced("held by others", json!({"deletionTimestamp": gone, "finalizers": ["a"]})),
                service("served", json!({}), json!({"type": "LoadBalancer"}), json!([{"ip": "192.0.2.1"}])),
                service("class", json!({"finalizers": fin}), class.clone(), json!([])),
                service("ip", json!({"finalizers": fin}), json!({"type": "ClusterIP"}), json!([])),
            ]
        };
        let start = Instant::now();
        let mut waiting = WaitingServices::default();
        let mut reported = |seconds: u64| -> Vec<String> {
            let due = waiting.update(all().into_iter(), start + Duration::from_secs(seconds));
            due.into_iter().map(|service| service.metadata.uid.clone().unwrap()).collect()
        };
        assert_eq!(reported(0), Vec::<String>::new());
        assert_eq!(reported(59), Vec::<String>::new());
        assert_eq!(reported(60), ["deleted", "ip"]);
        assert_eq!(reported(599), Vec::<String>::new());
        assert_eq!(reported(600), ["new"]);
        assert_eq!(reported(10_000), Vec::<String>::new());
    }

    #[test]
    fn many_are_told_one_after_the_other_and_the_time_counts_without_a_break() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let all = || (0..50).map(|number| balanced(&format!("{number}"), json!({})));
        let mut waiting = WaitingServices::default();
        assert_eq!(waiting.update(all(), at(0)).len(), 0);
        waiting.forget();
        assert_eq!(waiting.update(all(), at(600)).len(), 0, "from the beginning");
        let counts = [1200, 1215, 1259, 1260, 1320].map(|seconds| waiting.update(all(), at(seconds)).len());
        assert_eq!(counts, [20, 0, 0, 20, 10]);
        assert_eq!(waiting.update(std::iter::empty(), at(1335)).len(), 0);
        assert!(waiting.since.is_empty() && waiting.reported.is_empty(), "what is gone is forgotten");
    }
}
