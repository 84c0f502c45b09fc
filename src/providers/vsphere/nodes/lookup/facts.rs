//! Pure: the fields of a Node object that the look-up of its VM needs.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeAddress};

use crate::cloud::node::{self, ANNOTATION_PROVIDED_NODE_IP, Readiness, addresses};
use crate::providers::provider_id::{self, BiosUuid};
use crate::providers::vsphere::nodes::absence::location::Location;

/// Fields of a Node that its look-up needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: Arc<str>,
    /// `metadata.creationTimestamp`
    pub created: Option<jiff::Timestamp>,
    /// The UUID in `spec.providerID`, if well-formed.
    pub provider_id: Option<BiosUuid>,
    /// Whether `spec.providerID` is set to any text.
    pub has_provider_id: bool,
    /// Whether the Node has a valid provider ID and no taint, and is not disputed.
    pub is_initialized: bool,
    /// Whether the Node has a valid provider ID and no taint, but no record of this program, and its kubelet reports a
    /// UUID other than that of the provider ID. Such a Node may have been registered to get another VM's addresses.
    pub is_disputed: bool,
    /// Whether the condition Ready is present and not true.
    pub is_not_ready: bool,
    /// Whether the condition Ready is present and unknown, because the kubelet stopped reporting.
    pub is_unreachable: bool,
    /// Whether the Node can be adopted: it has neither the taint nor a provider ID.
    pub is_adoptable: bool,
    /// Whether the Node belongs to the control plane.
    pub is_control_plane: bool,
    /// `status.nodeInfo.systemUUID`, if well-formed.
    pub system_uuid: Option<BiosUuid>,
    /// The system UUID, if it is a machine id (32 digits without dashes), which may differ from the VM's UUID.
    pub machine_id: Option<BiosUuid>,
    /// The Node's addresses and the provided node IPs.
    pub addresses: Vec<IpAddr>,
    /// The kubelet's `--node-ip` (`alpha.kubernetes.io/provided-node-ip`): at most one of each family.
    pub provided: Vec<IpAddr>,
    /// The Node's present addresses, without the host name.
    pub current_addresses: Vec<NodeAddress>,
    /// The VM's location recorded on the Node, if any.
    pub recorded: Option<Arc<Location>>,
}

impl NodeFacts {
    /// Returns the UUID to search by: that of the provider ID or, without a provider ID, the reported UUID.
    pub fn search_uuid(&self) -> Option<&BiosUuid> {
        if self.has_provider_id { self.provider_id.as_ref() } else { self.reported_uuid() }
    }

    /// Returns the UUID that the kubelet reports.
    pub fn reported_uuid(&self) -> Option<&BiosUuid> {
        self.system_uuid.as_ref().or(self.machine_id.as_ref())
    }

    /// Returns the system UUID, if it differs from the UUID of the provider ID in both byte orders.
    pub fn contradicting_uuid(&self) -> Option<&BiosUuid> {
        let (provider_id, system_uuid) = (self.provider_id.as_ref()?, self.system_uuid.as_ref()?);
        (!provider_id.is_same(system_uuid)).then_some(system_uuid)
    }

    /// Returns the UUID of the VM that the Node claims; `None` while the Node is disputed.
    pub(super) fn claim(&self) -> Option<&BiosUuid> {
        self.search_uuid().filter(|_| !self.is_disputed)
    }

    /// Returns true if `host_name` is this Node's name, or has the same first label.
    pub(super) fn is_called(&self, host_name: &str) -> bool {
        let first_label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        !host_name.is_empty()
            && (host_name.eq_ignore_ascii_case(&self.name) || first_label(host_name) == first_label(&self.name))
    }
}

/// Returns the facts of `node`; `None` if the Node belongs to another provider.
pub fn facts_of(node: &Node) -> Option<NodeFacts> {
    let provider_id = node::provider_id(node);
    if !provider_id.is_empty() && !provider_id::is_own(provider_id) {
        return None;
    }
    let parse = |text: &str| text.parse::<IpAddr>().ok();
    let held: Vec<NodeAddress> =
        addresses::of(node).iter().filter(|address| address.type_ != "Hostname").cloned().collect();
    let current: Vec<IpAddr> = held.iter().filter_map(|address| parse(&address.address)).collect();
    let provided = node::annotation(node, ANNOTATION_PROVIDED_NODE_IP)
        .and_then(|text| addresses::parse_provided_node_ips(text).ok())
        .unwrap_or_default();
    let parsed = provider_id::parse_provider_id(provider_id).ok();
    let recorded = Location::recorded_on(node);
    let is_settled = parsed.is_some() && !node::is_uninitialized(node);
    let facts = NodeFacts {
        name: node::name(node).to_string(),
        uid: node.metadata.uid.as_deref().unwrap_or_default().into(),
        created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
        provider_id: parsed,
        has_provider_id: !provider_id.is_empty(),
        is_not_ready: is_not_ready(node),
        is_unreachable: is_not_ready(node) && node::readiness(node) == Readiness::Unknown,
        is_adoptable: provider_id.is_empty() && !node::is_uninitialized(node),
        is_control_plane: node::is_control_plane(node),
        system_uuid: node::system_uuid(node).parse().ok(),
        machine_id: provider_id::parse_machine_id(node::system_uuid(node)),
        addresses: provided.iter().copied().chain(current).collect(),
        provided,
        current_addresses: held,
        recorded,
        ..NodeFacts::default()
    };
    let is_disputed = is_settled && facts.recorded.is_none() && facts.contradicting_uuid().is_some();
    Some(NodeFacts { is_initialized: is_settled && !is_disputed, is_disputed, ..facts })
}

fn is_not_ready(node: &Node) -> bool {
    node::condition(node, "Ready").is_some_and(|condition| condition.status != "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(node: serde_json::Value) -> Option<NodeFacts> {
        facts_of(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn a_node_says_where_to_look() {
        let facts = facts(json!({
            "metadata": {"name": "n", "uid": "u", "annotations": {
                "alpha.kubernetes.io/provided-node-ip": "10.0.0.7",
                "vsphere-ccm.dev/vm": "{\"vcenter\":\"vc\",\"vm\":\"vm-3\",\"host\":null}"}},
            "spec": {"providerID": "vsphere://422E4956-ad22-1139-6d72-59cc8f26bc90"},
            "status": {
                "addresses": [{"type": "Hostname", "address": "10.9.9.9"}, {"type": "InternalIP", "address": "10.0.0.5"}],
                "nodeInfo": {"systemUUID": "56492E42-22AD-3911-6D72-59CC8F26BC90", "architecture": "", "bootID": "",
                    "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
                    "machineID": "", "operatingSystem": "", "osImage": ""}}
        }))
        .unwrap();
        assert_eq!(facts.search_uuid().unwrap().to_string(), "422e4956-ad22-1139-6d72-59cc8f26bc90");
        assert_eq!(facts.system_uuid.unwrap().to_string(), "56492e42-22ad-3911-6d72-59cc8f26bc90");
        let addresses: Vec<String> = facts.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.7", "10.0.0.5"]);
        let held: Vec<_> =
            facts.current_addresses.iter().map(|held| (held.type_.as_str(), held.address.as_str())).collect();
        assert_eq!(held, [("InternalIP", "10.0.0.5")]);
        assert_eq!(facts.provided, ["10.0.0.7".parse::<IpAddr>().unwrap()]);
        assert!(facts.recorded.unwrap().is("vc", "vm-3"));
        assert!(facts.is_initialized);
    }

    #[test]
    fn a_node_is_initialized_with_a_provider_id_and_without_the_taint() {
        let taint = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
        let id = "vsphere://422e4956-ad22-1139-6d72-59cc8f26bc90";
        for (spec, expected) in [
            (json!({}), false),
            (json!({"providerID": id}), true),
            (json!({"providerID": id, "taints": taint}), false),
            (json!({"taints": taint}), false),
            (json!({"providerID": "vsphere://not-a-uuid"}), false),
        ] {
            let facts = facts(json!({"metadata": {"name": "n"}, "spec": spec})).unwrap();
            assert_eq!(facts.is_initialized, expected, "{facts:?}");
        }
    }

    #[test]
    fn a_node_that_nobody_recorded_with_the_provider_id_of_another_machine_is_not_taken_as_initialized() {
        let taint = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
        let record = "{\"vcenter\":\"vc\",\"vm\":\"vm-3\",\"host\":null}";
        for (system_uuid, annotations, taints, expected) in [
            ("422e4956-ad22-1139-6d72-59cc8f26bc90", json!({}), json!([]), (true, false, true)),
            ("56492e42-22ad-3911-6d72-59cc8f26bc90", json!({}), json!([]), (true, false, true)),
            ("11111111-2222-3333-4444-555555555555", json!({}), json!([]), (false, true, false)),
            (
                "11111111-2222-3333-4444-555555555555",
                json!({"vsphere-ccm.dev/vm": "?"}),
                json!([]),
                (false, true, false),
            ),
            (
                "11111111-2222-3333-4444-555555555555",
                json!({"vsphere-ccm.dev/vm": record}),
                json!([]),
                (true, false, true),
            ),
            ("11111111-2222-3333-4444-555555555555", json!({}), taint, (false, false, true)),
            ("", json!({}), json!([]), (true, false, true)),
        ] {
            let facts = facts(json!({
                "metadata": {"name": "n", "annotations": annotations},
                "spec": {"providerID": "vsphere://422e4956-ad22-1139-6d72-59cc8f26bc90", "taints": taints},
                "status": {"nodeInfo": {"systemUUID": system_uuid, "architecture": "", "bootID": "",
                    "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
                    "machineID": "", "operatingSystem": "", "osImage": ""}}
            }))
            .unwrap();
            let found = (facts.is_initialized, facts.is_disputed, facts.claim().is_some());
            assert_eq!(found, expected, "{system_uuid} {annotations}");
        }
    }

    #[test]
    fn a_system_uuid_contradicts_when_it_is_the_provider_ids_in_no_byte_order() {
        let own = "422e4956-ad22-1139-6d72-59cc8f26bc90";
        for (provider_id, system_uuid, expected) in [
            (own, own, None),
            (own, "56492e42-22ad-3911-6d72-59cc8f26bc90", None),
            (own, "11111111-2222-3333-4444-555555555555", Some("11111111-2222-3333-4444-555555555555")),
            (own, "", None),
            ("", own, None),
        ] {
            let facts = NodeFacts {
                provider_id: provider_id.parse().ok(),
                system_uuid: system_uuid.parse().ok(),
                ..NodeFacts::default()
            };
            let found = facts.contradicting_uuid().map(ToString::to_string);
            assert_eq!(found.as_deref(), expected, "{provider_id} {system_uuid}");
        }
    }

    #[test]
    fn a_machine_id_is_searched_by_and_contradicts_nothing() {
        let machine_id = |spec: serde_json::Value| {
            facts(json!({
                "metadata": {"name": "n"},
                "spec": spec,
                "status": {"nodeInfo": {"systemUUID": "11111111222233334444555555555555", "architecture": "", "bootID": "",
                    "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
                    "machineID": "", "operatingSystem": "", "osImage": ""}}
            }))
            .unwrap()
        };
        let joins = machine_id(json!({}));
        assert_eq!(joins.search_uuid().unwrap().to_string(), "11111111-2222-3333-4444-555555555555");
        assert_eq!(joins.system_uuid, None, "no match by name is refused for it");
        let own = "422e4956-ad22-1139-6d72-59cc8f26bc90";
        let has_joined = machine_id(json!({"providerID": format!("vsphere://{own}")}));
        assert_eq!(has_joined.search_uuid().unwrap().to_string(), own);
        assert_eq!((has_joined.is_initialized, has_joined.contradicting_uuid()), (true, None));
    }

    #[test]
    fn a_node_of_another_provider_is_not_looked_up() {
        assert_eq!(facts(json!({"metadata": {"name": "n"}, "spec": {"providerID": "aws:///zone/i-1"}})), None);
    }

    #[test]
    fn a_malformed_provider_id_is_never_searched_by_another_uuid() {
        let facts = facts(json!({
            "metadata": {"name": "n"}, "spec": {"providerID": "vsphere://not-a-uuid"}
        }))
        .unwrap();
        assert!(facts.has_provider_id);
        assert_eq!(facts.search_uuid(), None);
    }
}
