//! No route of an existing Node is missing for long.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use support::fake_nsx::ObjectVersion;

use super::routes::{Destination, Route, destination};
use super::{Span, outside};

/// A time in which a Node needed one route.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// The route.
    pub wanted: Destination,
    /// Start of the need.
    pub since: Instant,
    /// End of the need; `None` while it lasts.
    pub until: Option<Instant>,
}

/// Routes that Nodes needed, in the order of their versions.
#[derive(Debug, Default)]
pub struct Needs {
    over: Vec<Need>,
    /// Current needs by UID of the Node.
    now: BTreeMap<String, Need>,
}

impl Needs {
    /// Takes the next version of a Node.
    pub fn take(&mut self, at: Instant, node: &Node, is_deletion: bool) {
        let uid = node.metadata.uid.clone().unwrap_or_default();
        let wanted = destination(node).filter(|_| !is_deletion);
        if self.now.get(&uid).map(|need| &need.wanted) == wanted.as_ref() {
            return;
        }
        self.over.extend(self.now.remove(&uid).map(|need| Need { until: Some(at), ..need }));
        if let Some(wanted) = wanted {
            self.now.insert(uid, Need { wanted, since: at, until: None });
        }
    }

    /// Returns all needs.
    pub fn all(&self) -> impl Iterator<Item = &Need> {
        self.over.iter().chain(self.now.values())
    }
}

/// A version of a route.
#[derive(Clone, Debug)]
pub struct RouteVersion {
    /// Time of the write.
    pub at: Instant,
    path: String,
    /// `None` once the route is deleted.
    route: Option<Route>,
}

impl RouteVersion {
    /// Reads this version of an object.
    pub fn of(version: &ObjectVersion) -> Self {
        let route = version.object.as_ref().and_then(Route::of);
        Self { at: version.at, path: version.path.clone(), route }
    }
}

/// Returns the longest time, without the time of these faults, in which the route was missing or had another next hop.
/// `versions` are in their order, and `end` is now.
pub fn longest_absence(need: &Need, versions: &[RouteVersion], faults: &[Span], end: Instant) -> Duration {
    let until = need.until.unwrap_or(end);
    let mut serving: Vec<&str> = Vec::new();
    let (mut absent_since, mut longest) = (Some(need.since), Duration::ZERO);
    for version in versions.iter().filter(|version| version.at < until) {
        let serves = version.route.as_ref().is_some_and(|route| route.serves(&need.wanted));
        serving.retain(|path| *path != version.path);
        serving.extend(serves.then_some(version.path.as_str()));
        let at = version.at.max(need.since);
        match (absent_since, serving.is_empty()) {
            (Some(since), false) => {
                longest = longest.max(outside(since, at, faults));
                absent_since = None;
            }
            (None, true) => absent_since = Some(at),
            _ => {}
        }
    }
    absent_since.map_or(longest, |since| longest.max(outside(since, until, faults)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::routes::NODE_NAME;
    use super::*;

    /// Time in seconds, path of the object, and its new content.
    type Step<'a> = (u64, &'a str, Option<Value>);

    fn wanted() -> Destination {
        Destination { node: "n-1".to_owned(), network: "10.244.1.0/24".to_owned(), hop: "10.1.0.1".to_owned() }
    }

    fn route(hop: &str) -> Option<Value> {
        let tags = json!([{"scope": NODE_NAME, "tag": "n-1"}]);
        Some(json!({"network": "10.244.1.0/24", "next_hops": [{"ip_address": hop}], "tags": tags}))
    }

    #[test]
    fn a_route_that_is_missing_for_long_is_reported() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let (good, old) = (route("10.1.0.1"), route("10.1.0.9"));
        let cases: [(&str, Vec<Step<'_>>, Vec<Span>, u64); 10] = [
            ("there before", vec![(5, "a", good.clone())], vec![], 0),
            ("never", vec![], vec![], 90),
            ("made later", vec![(30, "a", good.clone())], vec![], 20),
            (
                "deleted and made again",
                vec![(5, "a", good.clone()), (20, "a", None), (60, "a", good.clone())],
                vec![],
                40,
            ),
            ("deleted", vec![(5, "a", good.clone()), (20, "a", None)], vec![], 80),
            (
                "another one takes its place",
                vec![(5, "a", good.clone()), (20, "b", good.clone()), (21, "a", None)],
                vec![],
                0,
            ),
            ("it leads to an old address", vec![(5, "a", old), (70, "a", good.clone())], vec![], 60),
            ("a fault lasts as long", vec![(30, "a", good.clone())], vec![(at(10), Some(at(28)))], 2),
            ("a fault lasts still", vec![], vec![(at(11), None)], 1),
            ("a fault was before", vec![(30, "a", good)], vec![(at(0), Some(at(10)))], 20),
        ];
        let need = Need { wanted: wanted(), since: at(10), until: None };
        for (case, versions, faults, expected) in cases {
            let version = |(second, path, object): Step<'_>| {
                let (user, path) = ("a".to_owned(), path.to_owned());
                RouteVersion::of(&ObjectVersion { at: at(second), user, request: None, path, object })
            };
            let versions: Vec<RouteVersion> = versions.into_iter().map(version).collect();
            let found = longest_absence(&need, &versions, &faults, at(100));
            assert_eq!(found, Duration::from_secs(expected), "{case}");
        }
        let need = Need { until: Some(at(15)), ..need };
        assert_eq!(longest_absence(&need, &[], &[], at(100)), Duration::from_secs(5), "needed for a moment");
    }

    #[test]
    fn a_need_lasts_from_the_initialization_to_another_address_or_the_deletion() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let node = |address: Option<&str>| -> Node {
            let addresses: Vec<_> = address.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
            serde_json::from_value(json!({
                "metadata": {"name": "n-1", "uid": "u"},
                "spec": {"podCIDR": "10.244.1.0/24"},
                "status": {"addresses": addresses},
            }))
            .unwrap()
        };
        let mut needs = Needs::default();
        needs.take(at(0), &node(None), false);
        needs.take(at(1), &node(Some("10.1.0.1")), false);
        needs.take(at(2), &node(Some("10.1.0.1")), false);
        needs.take(at(3), &node(Some("10.1.0.2")), false);
        needs.take(at(4), &node(Some("10.1.0.2")), true);
        let other = Destination { hop: "10.1.0.2".to_owned(), ..wanted() };
        let expected = [
            Need { wanted: wanted(), since: at(1), until: Some(at(3)) },
            Need { wanted: other, since: at(3), until: Some(at(4)) },
        ];
        assert_eq!(needs.all().cloned().collect::<Vec<_>>(), expected);
    }
}
