//! The part of a bundle with the VMs behind Nodes, as the snapshots have them.

use crate::app::inquiries::Inquiries;
use crate::app::reports::bundle::{PartContent, PartPage};
use crate::providers::vsphere::vcenter::snapshot::{PowerState, Snapshot, VmRecord};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of VMs of one page.
const VMS: usize = 500;

/// Separates server and id in the place of a VM.
const SEPARATOR: char = ' ';

/// Returns the VMs from this place on, ordered by server and id.
pub(super) fn page(process: &Inquiries, from: Option<&str>) -> PartPage {
    let Some(provider) = process.vsphere.provider() else {
        return PartPage::only(PartContent::Unread("the process stops".to_owned()));
    };
    let snapshots: Vec<(String, Arc<Snapshot>)> =
        provider.inventories().iter().map(|vcenter| (vcenter.server().to_owned(), vcenter.snapshot())).collect();
    let mut vms: BTreeMap<String, ListedVm<'_>> = BTreeMap::new();
    for (server, snapshot) in &snapshots {
        for (id, vm) in snapshot.vms.iter() {
            vms.insert(format!("{server}{SEPARATOR}{id}"), ListedVm { server, snapshot, id, vm });
        }
    }
    let mut rest = vms.into_iter().filter(|(place, _)| from.is_none_or(|from| place.as_str() >= from));
    let page: Vec<Value> = rest.by_ref().take(VMS).map(|(_, listed)| of_vm(&listed)).collect();
    let next = rest.next().map(|(place, _)| place);
    PartPage { next, ..PartPage::only(PartContent::Document(Value::Array(page))) }
}

/// A VM with the snapshot that has it.
struct ListedVm<'a> {
    server: &'a str,
    snapshot: &'a Snapshot,
    id: &'a str,
    vm: &'a VmRecord,
}

fn of_vm(listed: &ListedVm<'_>) -> Value {
    let ListedVm { server, snapshot, id, vm } = listed;
    let host = vm.host.as_ref().map(|host| {
        let entity = snapshot.entities.get(host);
        json!({
            "id": host.id(),
            "name": entity.map(|entity| entity.name.as_str()),
            "path": snapshot.path_of(host),
            "connectionState": entity.and_then(|entity| entity.connection_state.as_deref()),
            "inMaintenanceMode": entity.map(|entity| entity.is_in_maintenance),
        })
    });
    let nics = vm.nics.iter().map(|nic| json!({"network": nic.network, "ipAddresses": nic.ip_addresses}));
    json!({
        "vcenter": server,
        "id": id,
        "name": vm.name,
        "path": snapshot.vm_path(vm),
        "biosUuid": vm.bios_uuid.as_ref().map(ToString::to_string),
        "powerState": vm.power_state.map(word),
        "connectionState": vm.connection_state,
        "template": vm.is_template,
        "cpus": vm.cpus,
        "memoryMiB": vm.memory_mib,
        "guestId": vm.guest_id,
        "guestHostName": vm.host_name,
        "toolsRunningStatus": vm.tools,
        "resourcePool": vm.resource_pool.as_ref().map(|pool| snapshot.path_of(pool)),
        "host": host,
        "nics": nics.collect::<Vec<_>>(),
        "unreadable": vm.unreadable,
    })
}

/// Returns the word of vCenter.
fn word(state: PowerState) -> &'static str {
    match state {
        PowerState::PoweredOn => "poweredOn",
        PowerState::PoweredOff => "poweredOff",
        PowerState::Suspended => "suspended",
    }
}
