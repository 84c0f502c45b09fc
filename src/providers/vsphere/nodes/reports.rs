//! Reports on watched VMs and on the VM of one Node, for readers. The snapshots and the instance cache have all data; the
//! functions that decide about addresses and zones are those of the look-up.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::lookup::facts::{NodeFacts, facts_of};
use super::lookup::instance_cache::CachedInstance;
use super::lookup::resolution::SearchAnswer;
use super::lookup::vcenters::{TrackerConfig, VcenterSource};
use super::metadata::addresses::decisions::AddressDecision;
use super::metadata::zones::ZoneProblem;
use super::metadata::{decide_addresses, find_zone};
use crate::base::addresses::parse_ip;
use crate::clients::vim::MoRef;
use crate::cloud::{InstanceMetadata, Presence};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::vcenter::snapshot::{Freshness, PowerState, Snapshot, VmRecord};
use crate::providers::vsphere::vcenter::zone_tags::ZoneCategories;
use crate::providers::vsphere::vcenter::{VcenterId, VmKey};

/// Maximum number of matches in the report on a Node.
const MAX_MATCHES: usize = 8;

/// Report on a watched VM. Texts are those of vCenter and of the guest.
#[derive(Clone, Debug, PartialEq)]
pub struct VmReport {
    /// The VM.
    pub key: VmKey,
    /// Host and port of its vCenter.
    pub server: String,
    /// The name in vCenter.
    pub name: String,
    /// The inventory path by names; `None` if the name of an object above the VM is unknown.
    pub path: Option<String>,
    /// The BIOS UUID in vCenter's byte order.
    pub uuid: Option<BiosUuid>,
    /// The power state.
    pub power_state: Option<PowerState>,
    /// The connection state, as vCenter spells it.
    pub connection_state: Option<String>,
    /// Whether the VM is a template.
    pub is_template: bool,
    /// `guest.toolsRunningStatus`, as vCenter spells it.
    pub tools: String,
    /// `guest.hostName`
    pub host_name: String,
    /// The ESXi host.
    pub host: Option<ObjectName>,
    /// Why the data may be outdated; `None` while the vCenter reports changes as they happen.
    pub lag: Option<InventoryLag>,
}

/// The state of the data of a vCenter that does not report changes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryLag {
    /// Time since the data were last known to be current; `None` if nothing was read yet.
    pub age: Option<Duration>,
    /// The reason why the data are not current.
    pub failure: String,
}

impl InventoryLag {
    fn of(freshness: &Freshness) -> Option<Self> {
        let failure = freshness.brief()?.to_owned();
        let age = match freshness {
            Freshness::Stale { since, .. } => Some(since.elapsed()),
            Freshness::Live | Freshness::Never | Freshness::Unreachable(_) => None,
        };
        Some(Self { age, failure })
    }
}

#[cfg(test)]
impl VmReport {
    /// Returns a report with nothing but the id, for tests.
    pub fn of_test(id: &str) -> Self {
        Self {
            key: VmKey { vcenter: 7.into(), id: id.into() },
            server: "vc.example.com:443".to_owned(),
            name: "worker-7".to_owned(),
            path: None,
            uuid: None,
            power_state: None,
            connection_state: None,
            is_template: false,
            tools: String::new(),
            host_name: String::new(),
            host: None,
            lag: None,
        }
    }
}

/// An object above a VM.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectName {
    /// The object.
    pub object: MoRef,
    /// The name in vCenter; empty if unknown.
    pub name: String,
    /// The inventory path by names; `None` if a name on the path is unknown.
    pub path: Option<String>,
}

/// Report on the VM of one Node, and on the decisions about it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeVmReport {
    /// The result of the look-up; `None` if the Node was not looked up yet.
    pub entry: Option<Arc<CachedInstance>>,
    /// The metadata that the controllers get.
    pub metadata: Presence<InstanceMetadata>,
    /// The fields of the Node that the look-up reads; `None` for a Node of another provider.
    pub facts: Option<NodeFacts>,
    /// The VM that backs the Node.
    pub vm: Option<VmReport>,
    /// The VMs that match the Node while none backs it; at most eight.
    pub matches: Vec<VmReport>,
    /// The decision about each address that the guest reports.
    pub addresses: Vec<AddressDecision>,
    /// Zone and region; `None` without a VM.
    pub zone: Option<ZoneReport>,
}

/// Report on zone and region of a VM.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneReport {
    /// The tag categories; `None` if zones are off.
    pub categories: Option<ZoneCategories>,
    /// Zone and region; `None` if zones are off.
    pub found: Result<Option<FoundZone>, ZoneProblem>,
    /// The object above the VM's host, to which a tag is usually attached.
    pub above_host: Option<ObjectName>,
}

/// Zone and region, each with the object that has the tag.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundZone {
    /// The zone.
    pub zone: String,
    /// The object with the tag of the zone.
    pub zone_object: ObjectName,
    /// The region.
    pub region: String,
    /// The object with the tag of the region.
    pub region_object: ObjectName,
}

/// Returns the reports on the watched VMs that `is_wanted` selects.
pub fn vm_reports(config: &TrackerConfig, is_wanted: impl Fn(&VmKey, &VmRecord) -> bool) -> Vec<VmReport> {
    let mut reports = Vec::new();
    for (vcenter, source) in &config.sources {
        let snapshot = source.vcenter.snapshot();
        for (id, record) in snapshot.vms.iter() {
            let key = VmKey { vcenter: *vcenter, id: Arc::clone(id) };
            if is_wanted(&key, record) {
                reports.push(vm_report(source.vcenter.server(), &snapshot, key, record));
            }
        }
    }
    reports
}

/// Returns ids and names of the watched VMs.
pub fn vm_names(config: &TrackerConfig) -> Vec<String> {
    let mut names = Vec::new();
    for source in config.sources.values() {
        let snapshot = source.vcenter.snapshot();
        for (id, record) in snapshot.vms.iter() {
            names.push(id.to_string());
            names.push(record.name.clone());
        }
    }
    names
}

/// Returns whether the guest reports this address, in any spelling.
pub fn reports_address(record: &VmRecord, address: IpAddr) -> bool {
    let mut texts = record.nics.iter().flat_map(|nic| &nic.ip_addresses);
    texts.any(|text| parse_ip(text) == Some(address))
}

/// Returns the report on the VM of this Node. `entry` and `metadata` are the results of the look-up.
pub fn node_report(
    config: &TrackerConfig,
    node: &Node,
    entry: Option<Arc<CachedInstance>>,
    metadata: Presence<InstanceMetadata>,
) -> NodeVmReport {
    let facts = facts_of(node);
    let bound = match entry.as_ref().map(|entry| &entry.presence) {
        Some(Presence::Exists(vm)) => Some(VmKey { vcenter: vm.vcenter, id: Arc::clone(&vm.location.vm) }),
        _ => None,
    };
    let matches = match (&bound, &entry) {
        (None, Some(entry)) => matching(config, entry),
        _ => Vec::new(),
    };
    let mut report = NodeVmReport { entry, metadata, facts, vm: None, matches, addresses: Vec::new(), zone: None };
    let Some(key) = bound else { return report };
    let Some(source) = config.sources.get(&key.vcenter) else { return report };
    let snapshot = source.vcenter.snapshot();
    let Some(record) = snapshot.vms.get(&key.id) else { return report };
    if let Some(facts) = &report.facts {
        let shared = report.entry.as_ref().map(|entry| entry.shared_addresses.as_slice()).unwrap_or_default();
        report.addresses = decide_addresses(facts, &key, record, &config.rules, shared);
    }
    let found = find_zone(&snapshot, &key, record, &config.rules).map(|found| {
        found.map(|found| FoundZone {
            zone: found.zone.failure_domain,
            zone_object: object_name(&snapshot, &found.zone_object, record),
            region: found.zone.region,
            region_object: object_name(&snapshot, &found.region_object, record),
        })
    });
    let host = record.host.as_ref().and_then(|host| snapshot.entities.get(host));
    let above_host = host.and_then(|host| host.parent.as_ref());
    report.zone = Some(ZoneReport {
        categories: config.rules.categories.clone(),
        found,
        above_host: above_host.map(|object| object_name(&snapshot, object, record)),
    });
    report.vm = Some(vm_report(source.vcenter.server(), &snapshot, key, record));
    report
}

/// Returns the watched VMs that a search found for a Node.
fn matching(config: &TrackerConfig, entry: &CachedInstance) -> Vec<VmReport> {
    let mut reports = Vec::new();
    let answers = entry.inputs.iter().flat_map(|inputs| &inputs.answers);
    for (server, answer) in answers {
        let SearchAnswer::Matches { ids, .. } = answer else { continue };
        let Some((vcenter, source)) = find_source(config, server) else { continue };
        let snapshot = source.vcenter.snapshot();
        for id in ids {
            if let Some(record) = snapshot.vms.get(id) {
                let key = VmKey { vcenter, id: Arc::clone(id) };
                reports.push(vm_report(server, &snapshot, key, record));
            }
        }
    }
    reports.truncate(MAX_MATCHES);
    reports
}

fn find_source<'a>(config: &'a TrackerConfig, server: &str) -> Option<(VcenterId, &'a VcenterSource)> {
    let mut sources = config.sources.iter();
    let (vcenter, source) = sources.find(|(_, source)| source.vcenter.server() == server)?;
    Some((*vcenter, source))
}

fn vm_report(server: &str, snapshot: &Snapshot, key: VmKey, record: &VmRecord) -> VmReport {
    VmReport {
        key,
        server: server.to_owned(),
        name: record.name.clone(),
        path: snapshot.vm_path(record),
        uuid: record.bios_uuid.clone(),
        power_state: record.power_state,
        connection_state: record.connection_state.clone(),
        is_template: record.is_template,
        tools: record.tools.clone(),
        host_name: record.host_name.clone(),
        host: record.host.as_ref().map(|host| object_name(snapshot, host, record)),
        lag: InventoryLag::of(&snapshot.freshness),
    }
}

fn object_name(snapshot: &Snapshot, object: &MoRef, record: &VmRecord) -> ObjectName {
    let is_vm = object.kind() == "VirtualMachine";
    let name = match snapshot.entities.get(object) {
        Some(entity) => entity.name.clone(),
        None if is_vm => record.name.clone(),
        None => String::new(),
    };
    let path = if is_vm { snapshot.vm_path(record) } else { snapshot.path_of(object) };
    ObjectName { object: object.clone(), name, path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::vsphere::vcenter::snapshot::VcenterFailure;
    use std::time::Instant;

    #[test]
    fn data_that_are_not_live_have_their_age_and_the_failure() {
        let lag = |freshness| InventoryLag::of(&freshness).map(|lag| (lag.age.is_some(), lag.failure));
        let down = || VcenterFailure::unavailable("down");
        let stale = Freshness::Stale { since: Instant::now(), failure: down() };
        assert_eq!(lag(Freshness::Live), None);
        assert_eq!(lag(stale), Some((true, "down".to_owned())));
        assert_eq!(lag(Freshness::Unreachable(down())), Some((false, "down".to_owned())));
        assert_eq!(lag(Freshness::Never), Some((false, "not connected yet".to_owned())));
    }
}
