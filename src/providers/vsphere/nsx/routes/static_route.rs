//! Pure: the NSX form of pod network routes, with the ids, names and tags of the Go program, so that routes
//! of the Go program are kept.
//!
//! Mirrors `generateStaticRoute` and `getNodeIPAddress` of `pkg/cloudprovider/vsphere/route/routeprovider.go`.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::NodeAddress;
use serde_json::{Map, Value, json};

use crate::base::addresses::{parse_ip, parse_network_sloppy};
use crate::clients::nsx::Object;
use crate::cloud::node::addresses::{EXTERNAL_IP, INTERNAL_IP};
use crate::providers::vsphere::nsx::names::{LONGEST_NAME, shortened};
use crate::providers::vsphere::nsx::ownership::{CLUSTER_UID, OWNER, PROGRAM};
use crate::providers::vsphere::nsx::tags::ScopedTags;

/// Scope of the tag with the name of the cluster.
pub const CLUSTER_NAME: &str = "vsphere.k8s.io/cluster-name";
/// Scope of the tag with the name of the Node.
pub const NODE_NAME: &str = "vsphere.k8s.io/node-name";

/// Desired state of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRoute<'a> {
    /// The name of the cluster.
    pub cluster_name: &'a str,
    /// The UID of the cluster, if known.
    pub cluster_uid: Option<&'a str>,
    /// The name of the Node.
    pub node: &'a str,
    /// The network of the pods on the Node, as text.
    pub network: &'a str,
    /// The address that receives the traffic.
    pub next_hop: IpAddr,
}

/// A route as listed by NSX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRoute {
    /// The id below the router.
    pub id: String,
    /// The name of the Node, from the tag of the route; empty without the tag.
    pub node: String,
    /// The network, as text.
    pub network: String,
    /// The addresses of the next hops.
    pub next_hops: Vec<IpAddr>,
}

/// Returns the id of the route of a Node to a network. `name_hint` is the UID of the Node.
pub fn id(name_hint: &str, network: &str) -> String {
    format!("{name_hint}_{network}").replace('/', "_")
}

/// Returns the UID of the Node in the id of a route; empty if the id has another form.
pub fn name_hint(id: &str) -> &str {
    id.split_once('_').map_or("", |(hint, _)| hint)
}

/// Returns the name of the Node in the display name (`cluster_node_network`) of a route of this cluster; `None` for a
/// display name of another form. Names of Nodes have no underscore.
pub fn node_of_display_name<'a>(object: &'a Object, cluster_name: &str) -> Option<&'a str> {
    let rest = object.text("display_name").strip_prefix(cluster_name)?.strip_prefix('_')?;
    let node = rest.strip_suffix(object.text("network"))?.strip_suffix('_')?;
    (!node.is_empty() && !node.contains('_')).then_some(node)
}

/// Returns the first routable address of the same family as the network. Internal addresses take precedence.
pub fn next_hop(addresses: &[NodeAddress], network: &IpNet) -> Option<IpAddr> {
    let is_usable = |ip: &IpAddr| {
        let is_link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        !is_link_local && !ip.is_loopback() && !ip.is_unspecified() && ip.is_ipv4() == network.addr().is_ipv4()
    };
    [INTERNAL_IP, EXTERNAL_IP].into_iter().find_map(|kind| {
        let of_kind = addresses.iter().filter(|address| address.type_ == kind);
        of_kind.filter_map(|address| parse_ip(&address.address)).find(is_usable)
    })
}

impl StaticRoute<'_> {
    /// Builds the object to create.
    pub fn object(&self) -> Object {
        let mut object = Object::default();
        object.0.insert("display_name".to_owned(), self.display_name().into());
        self.write_into(&mut object);
        object
    }

    /// Updates an existing object to this route. Keeps other fields, and tags of other scopes.
    pub fn write_into(&self, object: &mut Object) {
        // Another spelling of the same network stays, because the Go program compares texts.
        if parse_network_sloppy(object.text("network")) != parse_network_sloppy(self.network) {
            object.0.insert("network".to_owned(), self.network.into());
        }
        let first = object.0.get("next_hops").and_then(Value::as_array).and_then(|hops| hops.first());
        let mut hop: Map<String, Value> = first.and_then(Value::as_object).cloned().unwrap_or_default();
        hop.insert("ip_address".to_owned(), self.next_hop.to_string().into());
        object.0.insert("next_hops".to_owned(), json!([hop]));
        self.tags().write_into(object);
    }

    /// Whether a listed route has the network, next hop and Node of this route.
    pub fn is_led_by(&self, listed: &ListedRoute) -> bool {
        parse_network_sloppy(&listed.network) == parse_network_sloppy(self.network)
            && listed.next_hops == [self.next_hop]
            && listed.node == self.node
    }

    /// Returns the tags that this program writes on this route.
    pub fn tags(&self) -> ScopedTags {
        let tags = ScopedTags::default().with(CLUSTER_NAME, self.cluster_name).with(NODE_NAME, self.node);
        match self.cluster_uid {
            Some(uid) => tags.with(CLUSTER_UID, uid).with(OWNER, PROGRAM),
            None => tags,
        }
    }

    fn display_name(&self) -> String {
        let name = format!("{}_{}_{}", self.cluster_name, self.node, self.network);
        shortened(name, LONGEST_NAME)
    }
}

impl ListedRoute {
    /// Parses an object; `None` if the object has no id, no valid network or no list of next hops.
    pub fn read(object: &Object) -> Option<Self> {
        let (id, network) = (object.id(), object.text("network"));
        let hops = object.0.get("next_hops")?.as_array()?;
        let next_hops = hops.iter().filter_map(|hop| hop.get("ip_address")?.as_str().and_then(parse_ip)).collect();
        let is_route = !id.is_empty() && parse_network_sloppy(network).is_some();
        is_route.then(|| Self {
            id: id.to_owned(),
            node: object.tag(NODE_NAME).unwrap_or_default().to_owned(),
            network: network.to_owned(),
            next_hops,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        Object(serde_json::from_value(value).unwrap())
    }

    fn wanted() -> StaticRoute<'static> {
        let next_hop = "172.50.0.13".parse().unwrap();
        StaticRoute { cluster_name: "c_1", cluster_uid: Some("uid"), node: "n1", network: "100.96.0.0/24", next_hop }
    }

    #[test]
    fn a_display_name_shows_the_node_only_as_this_program_writes_it() {
        let own = wanted().object();
        assert_eq!(node_of_display_name(&own, "c_1"), Some("n1"));
        for (name, cluster) in [
            ("c_1_n1_100.96.0.0/24", "c"),
            ("c_1_n1_100.96.1.0/24", "c_1"),
            ("c_1__100.96.0.0/24", "c_1"),
            ("c_1_100.96.0.0/24", "c_1"),
            ("n1", "c_1"),
            ("", "c_1"),
        ] {
            let object = object(json!({"display_name": name, "network": "100.96.0.0/24"}));
            assert_eq!(node_of_display_name(&object, cluster), None, "{name}");
        }
    }

    #[test]
    fn the_next_hop_is_the_first_address_of_the_family_that_others_can_reach() {
        let address =
            |(kind, address): &(&str, &str)| NodeAddress { type_: (*kind).to_owned(), address: (*address).to_owned() };
        let (v4, v6): (IpNet, IpNet) = ("10.244.0.0/24".parse().unwrap(), "fd00:244::/64".parse().unwrap());
        for (addresses, of_v4, of_v6) in [
            (&[("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2")][..], Some("10.0.0.1"), None),
            (&[("ExternalIP", "192.0.2.1"), ("InternalIP", "10.0.0.1")], Some("10.0.0.1"), None),
            (&[("ExternalIP", "192.0.2.1"), ("InternalIP", "fd00::1")], Some("192.0.2.1"), Some("fd00::1")),
            (&[("Hostname", "10.0.0.1"), ("InternalDNS", "10.0.0.2")], None, None),
            (&[("InternalIP", "169.254.1.1"), ("InternalIP", "127.0.0.1"), ("InternalIP", "0.0.0.0")], None, None),
            (&[("InternalIP", "fe80::1"), ("InternalIP", "::1"), ("InternalIP", "::")], None, None),
            (&[("InternalIP", "no address"), ("InternalIP", "10.0.0.3")], Some("10.0.0.3"), None),
            (&[], None, None),
        ] {
            let all: Vec<NodeAddress> = addresses.iter().map(address).collect();
            let found = |network: &IpNet| next_hop(&all, network).map(|hop| hop.to_string());
            assert_eq!((found(&v4).as_deref(), found(&v6).as_deref()), (of_v4, of_v6), "{addresses:?}");
        }
    }

    #[test]
    fn a_route_that_is_rewritten_keeps_what_is_not_known_and_its_spelling() {
        let before = json!({
            "id": "u_100.96.0.0_24", "display_name": "mine", "network": "100.096.0.0/24", "enabled_on_secondary": true, "_revision": 3,
            "next_hops": [{"ip_address": "172.50.0.9", "admin_distance": 2}, {"ip_address": "172.50.0.8"}],
            "tags": [{"scope": "owner", "tag": "somebody"}, {"scope": "other", "tag": "t"}],
        });
        let mut object = object(before);
        wanted().write_into(&mut object);
        let expected = json!([{"ip_address": "172.50.0.13", "admin_distance": 2}]);
        assert_eq!((&object.0["network"], &object.0["next_hops"]), (&json!("100.096.0.0/24"), &expected));
        assert_eq!((&object.0["display_name"], &object.0["enabled_on_secondary"]), (&json!("mine"), &json!(true)));
        assert_eq!(object.revision(), Some(3));
        let tags: std::collections::BTreeSet<(&str, &str)> = object.tags().map(|tag| (tag.scope, tag.tag)).collect();
        let own = [(CLUSTER_NAME, "c_1"), (NODE_NAME, "n1"), (CLUSTER_UID, "uid"), (OWNER, PROGRAM), ("other", "t")];
        assert_eq!(tags, own.into());
        let listed = ListedRoute::read(&object).unwrap();
        assert!(wanted().is_led_by(&listed));
        for other in [
            StaticRoute { node: "n2", ..wanted() },
            StaticRoute { network: "100.96.1.0/24", ..wanted() },
            StaticRoute { next_hop: "172.50.0.14".parse().unwrap(), ..wanted() },
        ] {
            assert!(!other.is_led_by(&listed), "{other:?}");
        }
    }

    #[test]
    fn what_has_no_id_no_network_or_no_next_hops_is_no_route() {
        let whole = json!({"id": "r", "network": "10.0.0.0/24", "next_hops": []});
        assert_eq!(
            ListedRoute::read(&object(whole.clone())).map(|listed| (listed.id, listed.node)),
            Some(("r".into(), String::new()))
        );
        for (member, value) in
            [("id", json!("")), ("network", json!("10.0.0.0")), ("network", json!(7)), ("next_hops", json!({}))]
        {
            let mut broken = whole.clone();
            broken[member] = value.clone();
            assert_eq!(ListedRoute::read(&object(broken)), None, "{member} {value}");
        }
    }
}
