//! Collects the facts about Nodes and their VMs.

use crate::app::inquiries::Inquiries;
use crate::app::inquiries::explain::zone_command;
use crate::app::reports::check::nodes::{AddressDifference, FoundVm, NodeCheckFacts, NodeOwner, VmCheckFacts};
use crate::clients::vim::MoRef;
use crate::cloud::node::addresses;
use crate::cloud::{InstanceMetadata, Presence, Unknown, node};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::Provider;
use crate::providers::vsphere::nodes::lookup::facts::facts_of;
use crate::providers::vsphere::nodes::lookup::instance_cache::BoundVm;
use crate::providers::vsphere::nodes::metadata::has_running_tools;
use crate::providers::vsphere::vcenter::snapshot::{Freshness, PowerState, Snapshot, VmRecord};
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Server and snapshot of each vCenter, by the instance UUID of the vCenter.
type Inventories = HashMap<Arc<str>, (String, Arc<Snapshot>)>;

/// The user name of the account of each vCenter, by host and port.
pub(super) type Users = BTreeMap<String, String>;

/// Returns the facts about all cached Nodes, or about the Node with this name.
pub(super) fn facts(process: &Inquiries, name: Option<&str>, users: &Users) -> Vec<NodeCheckFacts> {
    let Some(provider) = process.vsphere.provider() else { return Vec::new() };
    let mut inventories = Inventories::new();
    for vcenter in provider.inventories() {
        let snapshot = vcenter.snapshot();
        inventories.insert(Arc::clone(&snapshot.instance_uuid), (vcenter.server().to_owned(), snapshot));
    }
    let nodes = process.nodes.list().filter(|node| name.is_none_or(|name| node::name(node) == name));
    nodes.map(|node| of_node(&node, &provider, &inventories, users)).collect()
}

fn of_node(node: &Node, provider: &Provider, inventories: &Inventories, users: &Users) -> NodeCheckFacts {
    let name = node::name(node).to_owned();
    let Some(facts) = facts_of(node) else {
        return NodeCheckFacts {
            name,
            owner: NodeOwner::Foreign { provider_id: node::provider_id(node).to_owned() },
            is_initialized: true,
            contradicting_uuids: None,
            uuids: Vec::new(),
            user: None,
            vm: VmCheckFacts::Pending { message: String::new() },
        };
    };
    let spellings = |uuid: &BiosUuid| [uuid.to_string(), uuid.byte_swapped().to_string()];
    let uuids = facts.provider_id.as_ref().zip(facts.contradicting_uuid());
    let vm = of_vm(node, provider, inventories);
    let user = match (&vm, users.iter().next()) {
        (VmCheckFacts::Found(vm), _) => users.get(&vm.server).cloned(),
        // The VM may be in any vCenter.
        (_, Some((_, user))) if users.len() == 1 => Some(user.clone()),
        _ => None,
    };
    NodeCheckFacts {
        name,
        owner: if facts.is_adoptable { NodeOwner::Adoptable } else { NodeOwner::Vsphere },
        is_initialized: facts.is_initialized,
        contradicting_uuids: uuids.map(|(own, reported)| (own.to_string(), spellings(reported))),
        uuids: facts.search_uuid().map(|uuid| spellings(uuid).to_vec()).unwrap_or_default(),
        user,
        vm,
    }
}

fn of_vm(node: &Node, provider: &Provider, inventories: &Inventories) -> VmCheckFacts {
    let has_no_match = provider.instance(node).is_some_and(|instance| instance.has_no_match);
    match provider.vm_of(node) {
        Presence::Exists(vm) => VmCheckFacts::Found(Box::new(found(node, &vm, provider, inventories))),
        Presence::Absent(proof) => VmCheckFacts::NoMatch { message: proof.to_string() },
        Presence::Unknown(Unknown { message, .. }) if has_no_match => VmCheckFacts::NoMatch { message },
        Presence::Unknown(Unknown { message, is_transient: true, .. }) => VmCheckFacts::Pending { message },
        Presence::Unknown(Unknown { reason, message, .. }) => VmCheckFacts::Unresolved { reason, message },
    }
}

fn found(node: &Node, vm: &BoundVm, provider: &Provider, inventories: &Inventories) -> FoundVm {
    let inventory = inventories.get(&vm.location.vcenter);
    let record = inventory.and_then(|(_, snapshot)| snapshot.vms.get(&vm.location.vm));
    let is_live = inventory.is_some_and(|(_, snapshot)| snapshot.freshness == Freshness::Live);
    let (metadata, pending) = match &vm.metadata {
        Presence::Exists(metadata) => (metadata.clone(), metadata.pending.clone()),
        Presence::Unknown(unknown) => (InstanceMetadata::default(), Some(unknown.clone())),
        Presence::Absent(_) => (InstanceMetadata::default(), None),
    };
    FoundVm {
        name: record
            .map_or_else(|| vm.location.vm.to_string(), |record| format!("{} ({})", record.name, vm.location.vm)),
        server: inventory.map(|(server, _)| server.clone()).unwrap_or_default(),
        is_current: vm.is_live && is_live && record.is_some(),
        is_powered_on: record.is_some_and(|record| record.power_state == Some(PowerState::PoweredOn)),
        has_running_tools: record.is_some_and(|record| has_running_tools(record)),
        tools: record.map(|record| record.tools.clone()).unwrap_or_default(),
        unreadable: inventory
            .zip(record)
            .map(|((_, snapshot), record)| unreadable(snapshot, record))
            .unwrap_or_default(),
        addresses: metadata.node_addresses.len(),
        address_difference: address_difference(node, &metadata.node_addresses),
        differing_zone_labels: differing_zone_labels(node, &metadata.zone, &metadata.region),
        zone: metadata.zone,
        region: metadata.region,
        zone_command: pending.as_ref().map(|unknown| zone_command(node, provider, unknown.reason)).unwrap_or_default(),
        pending: pending.map(|unknown| (unknown.reason, unknown.message)),
        notes: metadata.messages,
    }
}

/// Returns the properties of the VM that the account may not read, and such objects above it. The deletion of the Node
/// is proved with host, folder, pool and datacenter.
fn unreadable(snapshot: &Snapshot, record: &VmRecord) -> Vec<String> {
    let near = [record.host.as_ref(), record.parent.as_ref(), record.resource_pool.as_ref()];
    let mut above: Vec<MoRef> = near.into_iter().flatten().cloned().collect();
    match snapshot.datacenter_above(record) {
        Some(datacenter) => above.push(datacenter),
        // The way up ends at an object that the account cannot read, or has no datacenter at its end.
        None => above.extend(above_folder(snapshot, record)),
    }
    above.retain(|object| !snapshot.entities.contains_key(object));
    above.dedup();
    let objects = above.iter().map(|object| format!("{} {}", object.kind(), object.id()));
    record.unreadable.iter().cloned().chain(objects).collect()
}

/// Returns the last object on the way from the folder or vApp of the VM up to the root folder.
fn above_folder(snapshot: &Snapshot, record: &VmRecord) -> Option<MoRef> {
    let parent = record.parent.as_ref().or(record.parent_vapp.as_ref())?;
    snapshot.chain(parent).pop()
}

/// Compares the addresses of the Node with those that it would get, as the node controller does.
fn address_difference(node: &Node, reported: &[NodeAddress]) -> AddressDifference {
    match addresses::merge(node, reported) {
        Err(error) => AddressDifference::RefusedNodeIp(error.to_string()),
        Ok(merged) if merged == addresses::of(node) => AddressDifference::None,
        Ok(merged) => {
            let text = |address: &NodeAddress| format!("{} {}", address.type_, address.address);
            AddressDifference::Changed(merged.iter().map(text).collect())
        }
    }
}

/// Returns the labels of the Node with another zone or region than that of its VM, such as `topology.kubernetes.io/zone
/// is "a", and the VM has "b"`.
fn differing_zone_labels(node: &Node, zone: &str, region: &str) -> Vec<String> {
    let differing = [(node::ZONE, zone), (node::REGION, region)].into_iter().filter_map(|(pair, value)| {
        let label = node::label(node, pair.current).filter(|label| !value.is_empty() && *label != value)?;
        Some(format!("{} is {label:?}, and the VM has {value:?}", pair.current))
    });
    differing.collect()
}

/// Returns the VMs of Nodes at the vCenters that report changes as they happen.
pub(super) fn live_vms(process: &Inquiries) -> Vec<Arc<VmRecord>> {
    let Some(provider) = process.vsphere.provider() else { return Vec::new() };
    let snapshots = provider.inventories().into_iter().map(|vcenter| vcenter.snapshot());
    let live = snapshots.filter(|snapshot| snapshot.freshness == Freshness::Live);
    live.flat_map(|snapshot| snapshot.vms.values().cloned().collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::vsphere::vcenter::snapshot::Entity;
    use serde_json::json;

    fn object(kind: &str, id: &str) -> MoRef {
        MoRef::new(kind, id)
    }

    /// Returns a snapshot without the object with this id, and the record of a VM below a datacenter.
    fn without(hidden: &str) -> (Snapshot, VmRecord) {
        let parents = [
            (object("HostSystem", "host-1"), Some(object("Folder", "group-h"))),
            (object("ResourcePool", "pool-1"), Some(object("Folder", "group-h"))),
            (object("Folder", "group-h"), Some(object("Datacenter", "dc-1"))),
            (object("Folder", "group-v2"), Some(object("Folder", "group-v1"))),
            (object("Folder", "group-v1"), Some(object("Datacenter", "dc-1"))),
            (object("Datacenter", "dc-1"), Some(object("Folder", "group-d1"))),
        ];
        let shown = parents.into_iter().filter(|(object, _)| object.id() != hidden);
        let entities = shown.map(|(object, parent)| (object, Entity { parent, ..Entity::default() })).collect();
        let record = VmRecord {
            host: Some(object("HostSystem", "host-1")),
            parent: Some(object("Folder", "group-v2")),
            resource_pool: Some(object("ResourcePool", "pool-1")),
            ..VmRecord::default()
        };
        (Snapshot { entities: Arc::new(entities), ..Snapshot::default() }, record)
    }

    #[test]
    fn only_labels_with_another_zone_or_region_differ() {
        let labels = json!({"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"});
        let node: Node = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        assert_eq!(differing_zone_labels(&node, "a", "r"), [] as [String; 0]);
        assert_eq!(differing_zone_labels(&node, "", ""), [] as [String; 0]);
        assert_eq!(differing_zone_labels(&Node::default(), "a", "r"), [] as [String; 0]);
        let expected = ["topology.kubernetes.io/zone is \"a\", and the VM has \"b\""];
        assert_eq!(differing_zone_labels(&node, "b", "r"), expected);
    }

    #[test]
    fn the_objects_that_prove_an_absence_are_readable_or_named() {
        let hidden = |id: &str| {
            let (snapshot, record) = without(id);
            unreadable(&snapshot, &record)
        };
        assert_eq!(hidden("none"), [] as [String; 0]);
        for (id, expected) in [
            ("host-1", "HostSystem host-1"),
            ("group-v2", "Folder group-v2"),
            ("pool-1", "ResourcePool pool-1"),
            ("dc-1", "Datacenter dc-1"),
        ] {
            assert_eq!(hidden(id), [expected], "{id}");
        }
        let (mut snapshot, record) = without("group-v1");
        Arc::make_mut(&mut snapshot.entities).remove(&object("Folder", "group-h"));
        assert_eq!(unreadable(&snapshot, &record), ["Folder group-v1"], "no datacenter is found");
    }

    #[test]
    fn the_addresses_of_a_node_are_those_of_its_vm_or_differ() {
        let node = |annotations: serde_json::Value| -> Node {
            let addresses = [("Hostname", "n-1"), ("InternalIP", "10.0.0.5")]
                .map(|(kind, address)| json!({"type": kind, "address": address}));
            let node = json!({"metadata": {"annotations": annotations}, "status": {"addresses": addresses}});
            serde_json::from_value(node).unwrap()
        };
        let reported =
            |address: &str| vec![NodeAddress { type_: "InternalIP".to_owned(), address: address.to_owned() }];
        let plain = || node(json!({}));
        assert_eq!(address_difference(&plain(), &reported("10.0.0.5")), AddressDifference::None);
        assert_eq!(address_difference(&plain(), &[]), AddressDifference::None, "the Node keeps its addresses");
        let AddressDifference::Changed(changed) = address_difference(&plain(), &reported("10.0.0.6")) else {
            panic!("the address has changed")
        };
        assert!(changed.contains(&"InternalIP 10.0.0.6".to_owned()), "{changed:?}");
        let refused = node(json!({"alpha.kubernetes.io/provided-node-ip": "10.0.0.9"}));
        let difference = address_difference(&refused, &reported("10.0.0.5"));
        assert!(matches!(difference, AddressDifference::RefusedNodeIp(_)), "{difference:?}");
    }
}
