//! Collects the facts about Nodes and their VMs.

use crate::app::inquiries::Inquiries;
use crate::app::reports::check::nodes::{FoundVm, NodeCheckFacts, NodeOwner, VmCheckFacts};
use crate::cloud::{InstanceMetadata, Presence, Unknown, node};
use crate::providers::vsphere::Provider;
use crate::providers::vsphere::nodes::lookup::facts::facts_of;
use crate::providers::vsphere::nodes::lookup::instance_cache::BoundVm;
use crate::providers::vsphere::nodes::metadata::has_running_tools;
use crate::providers::vsphere::vcenter::snapshot::{Freshness, PowerState, Snapshot, VmRecord};
use k8s_openapi::api::core::v1::Node;
use std::collections::HashMap;
use std::sync::Arc;

/// Server and snapshot of each vCenter, by the instance UUID of the vCenter.
type Inventories = HashMap<Arc<str>, (String, Arc<Snapshot>)>;

/// Returns the facts about all cached Nodes, or about the Node with this name.
pub(super) fn facts(process: &Inquiries, name: Option<&str>) -> Vec<NodeCheckFacts> {
    let Some(provider) = process.vsphere.provider() else { return Vec::new() };
    let mut inventories = Inventories::new();
    for vcenter in provider.inventories() {
        let snapshot = vcenter.snapshot();
        inventories.insert(Arc::clone(&snapshot.instance_uuid), (vcenter.server().to_owned(), snapshot));
    }
    let nodes = process.nodes.list().filter(|node| name.is_none_or(|name| node::name(node) == name));
    nodes.map(|node| of_node(&node, &provider, &inventories)).collect()
}

fn of_node(node: &Node, provider: &Provider, inventories: &Inventories) -> NodeCheckFacts {
    let name = node::name(node).to_owned();
    let Some(facts) = facts_of(node) else {
        return NodeCheckFacts {
            name,
            owner: NodeOwner::Foreign { provider_id: node::provider_id(node).to_owned() },
            is_initialized: true,
            contradicting_uuids: None,
            vm: VmCheckFacts::Pending { message: String::new() },
        };
    };
    let uuids = facts.provider_id.as_ref().zip(facts.contradicting_uuid());
    NodeCheckFacts {
        name,
        owner: if facts.is_adoptable { NodeOwner::Adoptable } else { NodeOwner::Vsphere },
        is_initialized: facts.is_initialized,
        contradicting_uuids: uuids.map(|(own, reported)| (own.to_string(), reported.to_string())),
        vm: of_vm(node, provider, inventories),
    }
}

fn of_vm(node: &Node, provider: &Provider, inventories: &Inventories) -> VmCheckFacts {
    let has_no_match = provider.instance(node).is_some_and(|instance| instance.has_no_match);
    match provider.vm_of(node) {
        Presence::Exists(vm) => VmCheckFacts::Found(Box::new(found(&vm, inventories))),
        Presence::Absent(proof) => VmCheckFacts::NoMatch { message: proof.to_string() },
        Presence::Unknown(Unknown { message, .. }) if has_no_match => VmCheckFacts::NoMatch { message },
        Presence::Unknown(Unknown { message, is_transient: true, .. }) => VmCheckFacts::Pending { message },
        Presence::Unknown(Unknown { reason, message, .. }) => VmCheckFacts::Unresolved { reason, message },
    }
}

fn found(vm: &BoundVm, inventories: &Inventories) -> FoundVm {
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
        zone: metadata.zone,
        region: metadata.region,
        pending: pending.map(|unknown| (unknown.reason, unknown.message)),
        notes: metadata.messages,
    }
}

/// Returns the properties of the VM, and the objects above it, that the account may not read.
fn unreadable(snapshot: &Snapshot, record: &VmRecord) -> Vec<String> {
    let above = [record.host.as_ref(), record.parent.as_ref()];
    let hidden = above.into_iter().flatten().filter(|object| !snapshot.entities.contains_key(*object));
    let objects = hidden.map(|object| format!("{} {}", object.kind(), object.id()));
    record.unreadable.iter().cloned().chain(objects).collect()
}

/// Returns the VMs of Nodes at the vCenters that report changes as they happen.
pub(super) fn live_vms(process: &Inquiries) -> Vec<Arc<VmRecord>> {
    let Some(provider) = process.vsphere.provider() else { return Vec::new() };
    let snapshots = provider.inventories().into_iter().map(|vcenter| vcenter.snapshot());
    let live = snapshots.filter(|snapshot| snapshot.freshness == Freshness::Live);
    live.flat_map(|snapshot| snapshot.vms.values().cloned().collect::<Vec<_>>()).collect()
}
