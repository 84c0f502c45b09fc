//! Pure: decides which cluster owns a route of the configured router.
//!
//! | first row that matches | the route is |
//! |---|---|
//! | no or another cluster name, or the `cluster-uid` of another cluster | foreign: never changed |
//! | the `cluster-uid` of this cluster | ours |
//! | its id has the UID of a current or cached Node | ours; the next write for another reason adds the UID tag |
//! | its next hop is an address of the Node in its tag | ours; the next write for another reason adds the UID tag |
//! | anything else | ambiguous: never changed, and reported once |

use std::net::IpAddr;

use super::static_route::{CLUSTER_NAME, ListedRoute, name_hint};
use crate::clients::nsx::Object;
use crate::providers::vsphere::nsx::ownership::{CLUSTER_UID, OfCluster, by_cluster_uid};

/// Owner of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Another cluster or program owns the route.
    Foreign,
    /// This cluster owns the route.
    Ours,
    /// Ambiguous: the cluster name matches, but nothing else proves that the route belongs to this cluster.
    Ambiguous,
}

/// Facts about this cluster that decide about ownership.
pub struct Cluster<'a> {
    /// The name of the cluster.
    pub name: &'a str,
    /// The UID of the cluster, if known.
    pub uid: Option<&'a str>,
    /// Returns true for the UID of a current or cached Node.
    pub is_node: &'a dyn Fn(&str) -> bool,
    /// Returns the addresses of the Node with this name.
    pub addresses: &'a dyn Fn(&str) -> Vec<IpAddr>,
}

/// Decides which cluster owns `object`. `listed` is the parsed form of `object`.
pub fn ownership_of(object: &Object, listed: &ListedRoute, cluster: &Cluster<'_>) -> Ownership {
    if object.tag(CLUSTER_NAME) != Some(cluster.name) {
        return Ownership::Foreign;
    }
    match by_cluster_uid(cluster.uid, object.tag(CLUSTER_UID)) {
        OfCluster::This => return Ownership::Ours,
        OfCluster::Another => return Ownership::Foreign,
        OfCluster::Unknown => {}
    }
    let is_of_node = (cluster.is_node)(name_hint(&listed.id));
    let leads_to_node = || {
        let addresses = (cluster.addresses)(&listed.node);
        listed.next_hops.iter().any(|hop| addresses.contains(hop))
    };
    if is_of_node || (!listed.node.is_empty() && leads_to_node()) { Ownership::Ours } else { Ownership::Ambiguous }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::providers::vsphere::nsx::routes::static_route::NODE_NAME;

    const CLUSTER: &str = "prod";
    const HOP: &str = "10.0.1.1";

    /// Returns a route with this id, next hop and tags.
    fn route(id: &str, hop: &str, tags: &[(&str, &str)]) -> Object {
        let tags: Vec<Value> = tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect();
        let next_hops = json!([{"ip_address": hop}]);
        let route = json!({"id": id, "network": "10.244.1.0/24", "next_hops": next_hops, "tags": tags});
        Object(serde_json::from_value(route).unwrap())
    }

    #[test]
    fn the_first_row_that_fits_decides() {
        use Ownership::{Ambiguous, Foreign, Ours};
        let name = (CLUSTER_NAME, CLUSTER);
        let (this, another) = ((CLUSTER_UID, "uid"), (CLUSTER_UID, "other"));
        let (node, unknown) = ((NODE_NAME, "n1"), (NODE_NAME, "n2"));
        let (of_node, of_nobody) = ("u1_10.244.1.0_24", "u9_10.244.1.0_24");
        for (case, id, hop, tags, expected) in [
            ("no name", of_node, HOP, &[this, node][..], Foreign),
            ("another name", of_node, HOP, &[(CLUSTER_NAME, "test"), this, node], Foreign),
            ("the name in another case", of_node, HOP, &[(CLUSTER_NAME, "PROD"), this, node], Foreign),
            ("another cluster of the name", of_node, HOP, &[name, another, node], Foreign),
            ("this cluster, whatever its target", of_nobody, "192.0.2.1", &[name, this], Ours),
            ("the UID of a Node", of_node, "192.0.2.1", &[name], Ours),
            ("an address of the Node", of_nobody, HOP, &[name, node], Ours),
            ("an address of a Node, which is not named", of_nobody, HOP, &[name], Ambiguous),
            ("an address of another Node than the one that is named", of_nobody, HOP, &[name, unknown], Ambiguous),
            ("another address", of_nobody, "10.0.1.2", &[name, node], Ambiguous),
            ("an id of another form", "r1", "10.0.1.2", &[name, node], Ambiguous),
        ] {
            let object = route(id, hop, tags);
            let listed = ListedRoute::read(&object).unwrap();
            let judged = |uid| {
                let addresses = |node: &str| if node == "n1" { vec![HOP.parse().unwrap()] } else { Vec::new() };
                ownership_of(
                    &object,
                    &listed,
                    &Cluster { name: CLUSTER, uid, is_node: &|uid| uid == "u1", addresses: &addresses },
                )
            };
            assert_eq!(judged(Some("uid")), expected, "{case}");
            // While the UID of the cluster is unknown, the tag is not used.
            let without = match case {
                "another cluster of the name" => Ours,
                "this cluster, whatever its target" => Ambiguous,
                _ => expected,
            };
            assert_eq!(judged(None), without, "{case}, without a UID");
        }
    }
}
