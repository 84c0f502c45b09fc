//! The ports that each Service asks for, with their times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ccm::cloud::service::wants_load_balancer;
use k8s_openapi::api::core::v1::Service;

/// Maximum duration of a sync that began with an older version of a Service.
const LONGEST_SYNC: Duration = Duration::from_secs(90);

/// The request of a Service: ports in the form of tags, such as `TCP/80`, or no load balancer.
pub type Intent = Option<BTreeSet<String>>;

/// Returns the request of this version of a Service.
pub fn intent(service: &Service) -> Intent {
    let is_wanted = wants_load_balancer(service) && service.metadata.deletion_timestamp.is_none();
    is_wanted.then(|| ports(service).into_iter().map(|(port, _)| port).collect())
}

/// Returns the ports of a Service in the form of tags, with the node ports.
pub fn ports(service: &Service) -> Vec<(String, i32)> {
    let all = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        (format!("{protocol}/{}", port.port), port.node_port.unwrap_or_default())
    };
    all.map(port).collect()
}

/// Requests by namespace and name of the Service, in the order of time.
#[derive(Debug, Default)]
pub struct Intents(BTreeMap<String, Vec<(Instant, Intent)>>);

impl Intents {
    /// Records the request of a Service from `at` on.
    pub fn note(&mut self, at: Instant, service: &str, intent: Intent) {
        self.0.entry(service.to_owned()).or_default().push((at, intent));
    }

    /// Whether the Service has asked for this port for longer than any sync with an older version can last.
    pub fn is_wanted(&self, service: &str, port: &str, at: Instant) -> bool {
        let all = self.0.get(service).map(Vec::as_slice).unwrap_or_default();
        let begin = at.checked_sub(LONGEST_SYNC);
        let is_before = |(noted, _): &&(Instant, Intent)| begin.is_some_and(|begin| *noted <= begin);
        // The request that was valid at the start, and later ones.
        let first = all.iter().take_while(is_before).count().saturating_sub(1);
        let mut in_force = all.iter().skip(first).take_while(|(noted, _)| *noted <= at).peekable();
        in_force.peek().is_some()
            && in_force.all(|(_, intent)| intent.as_ref().is_some_and(|ports| ports.contains(port)))
    }
}

#[test]
fn a_port_is_wanted_if_no_version_of_late_was_without_it() {
    let start = Instant::now() + Duration::from_secs(1000);
    let at = |second| start + Duration::from_secs(second);
    let ports = |ports: &[&str]| Some(ports.iter().map(|port| (*port).to_owned()).collect());
    let mut intents = Intents::default();
    intents.note(at(0), "a", None);
    intents.note(at(10), "a", ports(&["TCP/80"]));
    intents.note(at(200), "a", ports(&["TCP/80", "TCP/443"]));
    intents.note(at(300), "a", ports(&["TCP/443"]));
    for (second, port, expected) in [
        (5, "TCP/80", false),
        (50, "TCP/80", false),
        (101, "TCP/80", true),
        (210, "TCP/80", true),
        (210, "TCP/443", false),
        (291, "TCP/443", true),
        (301, "TCP/80", false),
    ] {
        assert_eq!(intents.is_wanted("a", port, at(second)), expected, "{port} at {second}");
    }
    assert!(!intents.is_wanted("b", "TCP/80", at(500)), "no such Service");
}
