//! Pure: selects the pod networks that get routes.
//!
//! The client that registers a Node chooses its `spec.podCIDRs`. Neither the API server nor its admission plugin
//! NodeRestriction checks these networks. A route to a network of another Node, or to a network outside of the cluster,
//! diverts traffic. Such a route is not created, although the Go program creates it.

use std::collections::BTreeMap;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use super::reason;
use crate::base::addresses::parse_network_sloppy;
use crate::cloud::{Reason, node};

/// Returns the Node's pod networks. A network that cannot be parsed is an `Err` with its text.
pub fn wanted(node: &Node) -> impl Iterator<Item = Result<IpNet, &str>> {
    wanted_texts(node).map(|text| parse_network_sloppy(text).ok_or(text))
}

/// Returns the Node's pod networks as text.
pub fn wanted_texts(node: &Node) -> impl Iterator<Item = &str> {
    let networks = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default();
    networks.iter().map(String::as_str)
}

/// Whether one of `networks` contains the whole `network`.
pub fn is_ours(network: &IpNet, networks: &[IpNet]) -> bool {
    networks.iter().any(|own| own.contains(network))
}

/// The pod networks that get routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodNetworks {
    /// Networks within `--cluster-cidr`.
    #[default]
    ClusterCidr,
    /// All networks, as in the Go program.
    Any,
}

/// The reason why a network of a Node gets no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The network is not within `--cluster-cidr`.
    Foreign,
    /// The network overlaps a network of an older Node.
    InUse {
        /// The network of the older Node.
        network: IpNet,
        /// The name of the older Node.
        node: String,
    },
}

/// The refused networks, by the name of the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedNetworks(BTreeMap<String, BTreeMap<IpNet, Refusal>>);

/// Checks the networks of all Nodes. `networks` come from `--cluster-cidr`. If networks of two Nodes overlap, only the
/// older Node gets its route. The older Node has the earlier `creationTimestamp`, which the API server sets, or the
/// lower UID if the timestamps are equal. A refused network does not block networks of other Nodes.
pub fn refused<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    networks: &[IpNet],
    allowed: PodNetworks,
) -> RefusedNetworks {
    let age = |node: &&Node| {
        let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
        // A Node without a timestamp counts as the youngest.
        (created.is_none(), created, node.metadata.uid.clone())
    };
    let mut by_age: Vec<&Node> = nodes.into_iter().collect();
    by_age.sort_by_cached_key(age);
    // The networks that get routes. Networks of different Nodes never overlap.
    let mut granted = BTreeMap::new();
    let mut refused = RefusedNetworks::default();
    for node in by_age {
        for network in wanted(node).flatten() {
            let is_foreign = allowed == PodNetworks::ClusterCidr && !is_ours(&network, networks);
            let refusal = match overlapping(&granted, network, node::name(node)) {
                _ if is_foreign => Some(Refusal::Foreign),
                Some((network, node)) => Some(Refusal::InUse { network, node: node.to_owned() }),
                None => None,
            };
            match refusal {
                Some(refusal) => {
                    drop(refused.0.entry(node::name(node).to_owned()).or_default().insert(network, refusal))
                }
                None => drop(granted.insert(network, node::name(node))),
            }
        }
    }
    refused
}

impl RefusedNetworks {
    /// Returns the reason why this network of the Node gets no route; `None` if the network is not refused.
    pub fn of(&self, node: &Node, network: IpNet) -> Option<&Refusal> {
        self.0.get(node::name(node))?.get(&network)
    }
}

impl Refusal {
    /// Returns the reason for metrics and Events.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Foreign => reason::PodNetworkForeign,
            Self::InUse { .. } => reason::PodNetworkInUse,
        }
    }

    /// Builds the message about `network` of the Node `node`, with the problem and the expected value.
    pub fn message(&self, network: IpNet, node: &str) -> String {
        match self {
            Self::Foreign => format!(
                "the network {network} in spec.podCIDRs of Node {node} is not within --cluster-cidr; expected a \
                 network of the cluster's pods, or --route-pod-networks=any"
            ),
            Self::InUse { network: other, node: owner } => format!(
                "the network {network} in spec.podCIDRs of Node {node} overlaps {other} of Node {owner}, which is \
                 older; expected a network of its own for each Node"
            ),
        }
    }
}

/// Returns a granted network of another Node than `node` that overlaps `network`, with the name of that Node.
fn overlapping<'a>(granted: &BTreeMap<IpNet, &'a str>, network: IpNet, node: &str) -> Option<(IpNet, &'a str)> {
    // The map is sorted by address, then by length, so the range has the networks within this network.
    let within = granted.range(network..=IpNet::from(network.broadcast()));
    let around = std::iter::successors(network.supernet(), IpNet::supernet);
    let around = around.filter_map(|wider| granted.get_key_value(&wider));
    within.chain(around).map(|(network, owner)| (*network, *owner)).find(|(_, owner)| *owner != node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn node(name: &str, created: &str, networks: &[&str]) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("u-{name}"), "creationTimestamp": created},
            "spec": {"podCIDRs": networks},
        }))
        .unwrap()
    }

    fn cluster() -> Vec<IpNet> {
        ["10.120.0.0/16", "fd00:120::/48"].map(|network| network.parse().unwrap()).into()
    }

    /// Returns the refused networks as `node network reason`. The reason may name the network and Node that overlap.
    fn shown(nodes: &[Node], allowed: PodNetworks) -> Vec<String> {
        let refused = refused(nodes, &cluster(), allowed);
        let each = refused.0.iter().flat_map(|(node, networks)| networks.iter().map(move |one| (node, one)));
        each.map(|(node, (network, refusal))| match refusal {
            Refusal::Foreign => format!("{node} {network} foreign"),
            Refusal::InUse { network: other, node: owner } => format!("{node} {network} {other} of {owner}"),
        })
        .collect()
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T00:00:01Z";

    #[test]
    fn a_network_is_refused_outside_of_the_cluster_and_where_an_older_node_has_it() {
        let usual = || node("a", EARLY, &["10.120.1.0/24", "fd00:120:0:1::/64"]);
        for (case, other, expected, with_any) in [
            ("its own", node("b", LATE, &["10.120.2.0/24", "fd00:120:0:2::/64"]), vec![], vec![]),
            (
                "everything",
                node("b", LATE, &["0.0.0.0/0"]),
                vec!["b 0.0.0.0/0 foreign"],
                vec!["b 0.0.0.0/0 10.120.1.0/24 of a"],
            ),
            (
                "everything, first",
                node("0", EARLY, &["0.0.0.0/0"]),
                vec!["0 0.0.0.0/0 foreign"],
                vec!["a 10.120.1.0/24 0.0.0.0/0 of 0"],
            ),
            ("elsewhere", node("b", LATE, &["10.20.0.0/16"]), vec!["b 10.20.0.0/16 foreign"], vec![]),
            (
                "all of the cluster",
                node("b", LATE, &["10.120.0.0/16"]),
                vec!["b 10.120.0.0/16 10.120.1.0/24 of a"; 1],
                vec!["b 10.120.0.0/16 10.120.1.0/24 of a"],
            ),
            (
                "more than the cluster",
                node("b", LATE, &["10.120.0.0/15"]),
                vec!["b 10.120.0.0/15 foreign"],
                vec!["b 10.120.0.0/15 10.120.1.0/24 of a"],
            ),
            (
                "the same",
                node("b", LATE, &["10.120.1.0/24"]),
                vec!["b 10.120.1.0/24 10.120.1.0/24 of a"],
                vec!["b 10.120.1.0/24 10.120.1.0/24 of a"],
            ),
            (
                "a part",
                node("b", LATE, &["10.120.1.7/32"]),
                vec!["b 10.120.1.7/32 10.120.1.0/24 of a"],
                vec!["b 10.120.1.7/32 10.120.1.0/24 of a"],
            ),
            (
                "a part of IPv6",
                node("b", LATE, &["fd00:120:0:1:8::/80"]),
                vec!["b fd00:120:0:1:8::/80 fd00:120:0:1::/64 of a"],
                vec!["b fd00:120:0:1:8::/80 fd00:120:0:1::/64 of a"],
            ),
            (
                "a part, of the same age",
                node("b", EARLY, &["10.120.1.7/32"]),
                vec!["b 10.120.1.7/32 10.120.1.0/24 of a"],
                vec!["b 10.120.1.7/32 10.120.1.0/24 of a"],
            ),
            (
                "older",
                node("b", "2025-01-01T00:00:00Z", &["10.120.1.0/25"]),
                vec!["a 10.120.1.0/24 10.120.1.0/25 of b"],
                vec!["a 10.120.1.0/24 10.120.1.0/25 of b"],
            ),
        ] {
            for nodes in [[usual(), other.clone()], [other.clone(), usual()]] {
                assert_eq!(shown(&nodes, PodNetworks::ClusterCidr), expected, "{case}");
                assert_eq!(shown(&nodes, PodNetworks::Any), with_any, "{case}, any");
            }
        }
    }

    #[test]
    fn networks_of_one_node_may_overlap_and_one_that_is_refused_is_in_nobodys_way() {
        let double = node("a", EARLY, &["10.120.1.0/24", "10.120.1.0/25", "garbage"]);
        assert_eq!(shown(&[double], PodNetworks::ClusterCidr), Vec::<String>::new());
        let nodes = [
            node("a", EARLY, &["10.120.1.0/24"]),
            node("b", LATE, &["10.120.0.0/16"]),
            node("c", "2026-01-01T00:00:02Z", &["10.120.2.0/24"]),
        ];
        assert_eq!(shown(&nodes, PodNetworks::ClusterCidr), ["b 10.120.0.0/16 10.120.1.0/24 of a"]);
        let mut timeless = node("0", EARLY, &["10.120.1.0/24"]);
        timeless.metadata.creation_timestamp = None;
        assert_eq!(
            shown(&[timeless, nodes[0].clone()], PodNetworks::ClusterCidr),
            ["0 10.120.1.0/24 10.120.1.0/24 of a"]
        );
    }

    prop_compose! {
        fn any_node()(
            name in 0..6_u8,
            second in 0..3_u8,
            networks in prop::collection::vec((prop::sample::select(vec![0x0a78_0000_u32, 0x0a78_0100, 0x0a14_0000]), 0..256_u32, 8..=32_u8), 0..3),
        ) -> Node {
            let network = |(base, host, length)| format!("{}/{length}", std::net::Ipv4Addr::from(base + host));
            let networks: Vec<String> = networks.into_iter().map(network).collect();
            let networks: Vec<&str> = networks.iter().map(String::as_str).collect();
            node(&format!("n{name}"), &format!("2026-01-01T00:00:0{second}Z"), &networks)
        }
    }

    proptest! {
        /// Granted networks are within the networks of the cluster. The networks of two Nodes never overlap.
        #[test]
        fn what_is_granted_is_within_the_cluster_and_overlaps_nothing(nodes in prop::collection::vec(any_node(), 0..7)) {
            let mut nodes = nodes;
            nodes.sort_by(|one, other| node::name(one).cmp(node::name(other)));
            nodes.dedup_by(|one, other| node::name(one) == node::name(other));
            for allowed in [PodNetworks::ClusterCidr, PodNetworks::Any] {
                let refused = refused(&nodes, &cluster(), allowed);
                let of = |node: &Node| wanted(node).flatten().filter(|network| refused.of(node, *network).is_none()).collect();
                let granted: Vec<(&str, Vec<IpNet>)> = nodes.iter().map(|node| (node::name(node), of(node))).collect();
                for (name, networks) in &granted {
                    for network in networks {
                        prop_assert!(allowed == PodNetworks::Any || is_ours(network, &cluster()));
                        let overlaps = |other: &IpNet| other.contains(network) || network.contains(other);
                        let others = granted.iter().filter(|(other, _)| other != name).flat_map(|(_, networks)| networks);
                        prop_assert!(!others.into_iter().any(overlaps), "{name} {network}");
                    }
                }
                // Each network that is refused because of an overlap overlaps a granted network.
                for (name, networks) in &refused.0 {
                    for (network, refusal) in networks {
                        if let Refusal::InUse { network: other, node } = refusal {
                            prop_assert!(other.contains(network) || network.contains(other));
                            prop_assert!(node != name && granted.iter().any(|(one, all)| one == node && all.contains(other)));
                        }
                    }
                }
            }
        }
    }
}
