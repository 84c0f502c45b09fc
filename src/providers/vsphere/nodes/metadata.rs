//! Pure: derives the Node metadata from a VM's record.

pub mod addresses;
pub mod guest_metadata;
pub mod instance_type;
pub mod topology;
pub mod zones;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::NodeAddress;

use crate::base::error_chain::chain;
use crate::clients::vim::{GuestNic, MoRef};
use crate::cloud::{InstanceMetadata, Reason, Unknown};
use crate::providers::vsphere::config::address_rules::{AddressRules, IpFamily};
use crate::providers::vsphere::nodes::metadata::addresses::decisions::{AddressDecision, decisions};
use crate::providers::vsphere::nodes::metadata::addresses::{
    AddressError, AwaitedFamily, ChosenAddresses, Preferences, awaited, build_addresses, missing_family,
    with_guest_interfaces,
};
use crate::providers::vsphere::nodes::metadata::guest_metadata::parse_static_order;
use crate::providers::vsphere::nodes::metadata::instance_type::build_instance_type;
use crate::providers::vsphere::nodes::metadata::topology::TopologyLabels;
use crate::providers::vsphere::nodes::metadata::zones::{
    Chains, NOT_READ_YET, ResolvedZone, ZoneProblem, resolve_zone,
};
use crate::providers::vsphere::vcenter::snapshot::{CONNECTED, PowerState, Snapshot, VmRecord};
use crate::providers::vsphere::vcenter::zone_tags::{ObjectTags, ZoneCategories};

use super::lookup::facts::NodeFacts;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::{VcenterId, VmKey};

/// `guest.toolsRunningStatus` while VMware Tools reports.
const TOOLS_RUNNING: &str = "guestToolsRunning";
/// `guest.toolsRunningStatus` while VMware Tools starts and runs its scripts.
const TOOLS_STARTING: &str = "guestToolsExecutingScripts";

/// Hint for a missing zone or region. An account with a permission on single tags does not see other tags.
const SOME_TAGS_HIDDEN: &str = "if these objects do have such tags, the account cannot see them: it needs a global \
                                permission with the role Read-only";

/// Rules for every Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataRules {
    /// The rules for Node addresses.
    pub addresses: AddressRules,
    /// The address families of each vCenter.
    pub families: BTreeMap<VcenterId, Vec<IpFamily>>,
    /// The tag categories of zone and region; `None` if zones are off.
    pub categories: Option<ZoneCategories>,
    /// The configured host of each vCenter.
    pub servers: BTreeMap<VcenterId, String>,
    /// The location labels of Nodes.
    pub topology: TopologyLabels,
    /// Whether a VM that matches only by name is accepted, as in the Go program.
    pub allow_name_match: bool,
    /// Whether other addresses take precedence over possibly virtual addresses.
    pub demotes_virtual_ips: bool,
    /// Whether an address that the kubelet uses is accepted from a guest interface without a virtual NIC.
    pub trusts_guest_interfaces: bool,
    /// The addresses of the API server, as this program reaches it.
    pub api_server: Vec<IpAddr>,
    /// Maximum wait of a joining Node for each further address family.
    pub family_wait: Duration,
}

impl MetadataRules {
    /// Returns the interfaces of a Node's VM, from which addresses are chosen.
    pub fn nics<'a>(&self, facts: &NodeFacts, record: &'a VmRecord) -> Cow<'a, [GuestNic]> {
        match self.trusts_guest_interfaces {
            true => with_guest_interfaces(&record.nics, &facts.provided),
            false => Cow::Borrowed(&record.nics),
        }
    }
}

/// Data about a Node's VM that is not in its record.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressContext<'a> {
    /// Addresses that running VMs of other Nodes also report.
    pub shared_addresses: &'a [IpAddr],
    /// Time since this process first saw an address of the guest.
    pub addressed_for: Duration,
}

/// Returns the metadata of a Node. Mirrors `pkg/cloudprovider/vsphere/nodemanager.go:DiscoverNode`.
///
/// If the guest reports no host name or no address that the rules allow, the result has no addresses, and the Node
/// keeps its present addresses. A Node that is not initialized waits for the missing data, such as a missing address
/// family.
///
/// # Errors
/// Fails if the VM has no readable BIOS UUID. The Node then stays unchanged.
pub fn describe(
    facts: &NodeFacts,
    snapshot: &Snapshot,
    vm: &VmKey,
    record: &VmRecord,
    rules: &MetadataRules,
    beside: AddressContext<'_>,
) -> Result<InstanceMetadata, Unknown> {
    let Some(uuid) = &record.bios_uuid else {
        return Err(without_uuid(record, vm));
    };
    let about = |what: &dyn std::fmt::Display| format!("VM {} ({}){what}", record.name, vm.id);
    let of_guest = if record.host_name.is_empty() {
        Err(silent_guest(record, vm, "guest host name (guest.hostName)"))
    } else {
        addresses(facts, record, vm, rules, beside).map_err(|error| match record.power_state {
            Some(PowerState::PoweredOff) if disconnection(record).is_none() => {
                Unknown::new(reason::VMPoweredOff, about(&format!(" is powered off; {error}")))
            }
            _ => Unknown::new(error.reason(), about(&format!(": {error}"))),
        })
    };
    let (node_addresses, notes, silent) = match of_guest {
        Ok(GuestMetadata { addresses, messages: notes, awaited }) => {
            (addresses, notes, awaited.map(|(reason, message)| Unknown::new(reason, about(&format!(": {message}")))))
        }
        Err(unknown) => (Vec::new(), Vec::new(), Some(unknown)),
    };
    let (zone, region, zone_pending) = zone(snapshot, vm, record, rules);
    let of_node =
        |unknown: Unknown| Unknown { message: format!("Node {}: {}", facts.name, unknown.message), ..unknown };
    Ok(InstanceMetadata {
        provider_id: uuid.provider_id(),
        instance_type: build_instance_type(number(record.cpus), number(record.memory_mib), &record.guest_id),
        node_addresses,
        zone,
        region,
        is_recorded: facts.recorded.as_ref().is_some_and(|recorded| recorded.is(&snapshot.instance_uuid, &vm.id)),
        is_record_urgent: snapshot.may_host_be_removed(record),
        pending: silent.or(zone_pending.map(of_node)),
        messages: notes.iter().map(|note| about(note)).collect(),
        ..InstanceMetadata::default()
    })
}

/// The part of the metadata that the guest's report determines.
struct GuestMetadata {
    addresses: Vec<NodeAddress>,
    messages: Vec<String>,
    /// Reason why a joining Node waits for further addresses.
    awaited: Option<(Reason, String)>,
}

fn addresses(
    facts: &NodeFacts,
    record: &VmRecord,
    vm: &VmKey,
    rules: &MetadataRules,
    beside: AddressContext<'_>,
) -> Result<GuestMetadata, AddressError> {
    let families = rules.families.get(&vm.vcenter).map(Vec::as_slice).unwrap_or_default();
    let (preferences, note) = preferences(facts, record, rules, beside.shared_addresses);
    let mut notes: Vec<String> = note.into_iter().collect();
    let nics = rules.nics(facts, record);
    let chosen = build_addresses(&record.host_name, &nics, &preferences, families, &rules.addresses)?;
    let awaited = if facts.is_initialized {
        None
    } else {
        awaited(&chosen.missing, families, &facts.provided, beside.addressed_for, rules.family_wait)
    };
    // A note is logged whenever it changes, so it must not contain data that the guest changes often.
    notes.extend(chosen.missing.iter().filter(|_| awaited.is_none()).map(|family| {
        format!(
            "no {family} address that the rules allow, although ip-family requires it; the Node is initialized with \
             its other addresses"
        )
    }));
    notes.extend(
        chosen.refused_provided.iter().map(|(ip, reason)| format!("the provided node IP {ip} is not taken: {reason}")),
    );
    let is_endpoint = |ip: &IpAddr| rules.api_server.iter().any(|endpoint| endpoint.to_canonical() == *ip);
    notes.extend(chosen.passed_over.iter().map(|ip| {
        let why =
            if is_endpoint(ip) { "it is an address of the API server" } else { "VMs of other Nodes have it, too" };
        format!("another address takes precedence over {ip}, because {why} (--demote-virtual-ips)")
    }));
    let awaited = awaited.map(|AwaitedFamily { family, limit }| {
        let error = missing_family(family, &nics, families, &rules.addresses);
        let wait = limit.map_or_else(
            || "it is the first family of the node, which is not initialized without it".to_owned(),
            |limit| format!("the node waits for it for at most {} s from its first address", limit.as_secs()),
        );
        (error.reason(), format!("{error}; {wait}"))
    });
    Ok(GuestMetadata { addresses: chosen.addresses, messages: notes, awaited })
}

/// Returns the preferences among the addresses of the VM, and a note if its guest metadata cannot be read. Then only the
/// order of the addresses is lost.
fn preferences(
    facts: &NodeFacts,
    record: &VmRecord,
    rules: &MetadataRules,
    shared: &[IpAddr],
) -> (Preferences, Option<String>) {
    let mut preferences = Preferences {
        provided: facts.provided.clone(),
        current: facts.current_addresses.clone(),
        ..Preferences::default()
    };
    if rules.demotes_virtual_ips {
        preferences.demoted.extend(shared.iter().chain(&rules.api_server).map(IpAddr::to_canonical));
    }
    let note = match parse_static_order(set(&record.metadata), set(&record.metadata_encoding)) {
        Ok(order) => {
            preferences.listed = order;
            None
        }
        Err(error) => Some(format!(
            "the order of its addresses is the guest's, because the guest metadata cannot be read: {}",
            chain(&error)
        )),
    };
    (preferences, note)
}

/// Returns the decision about each address that the guest reports, for readers. `shared` are the addresses that running
/// VMs of other Nodes also report.
pub fn decide_addresses(
    facts: &NodeFacts,
    vm: &VmKey,
    record: &VmRecord,
    rules: &MetadataRules,
    shared: &[IpAddr],
) -> Vec<AddressDecision> {
    let families = rules.families.get(&vm.vcenter).map(Vec::as_slice).unwrap_or_default();
    let (preferences, _) = preferences(facts, record, rules, shared);
    let nics = rules.nics(facts, record);
    let chosen: Option<ChosenAddresses> =
        build_addresses(&record.host_name, &nics, &preferences, families, &rules.addresses).ok();
    decisions(&nics, chosen.as_ref(), families, &rules.addresses)
}

fn number(value: Option<i64>) -> i32 {
    value.and_then(|value| i32::try_from(value).ok()).unwrap_or_default()
}

/// Whether VMware Tools runs or starts in the guest.
pub fn has_running_tools(record: &VmRecord) -> bool {
    [TOOLS_RUNNING, TOOLS_STARTING].contains(&record.tools.as_str())
}

/// Returns the reason why the guest does not report `what`. The state of the VM takes precedence over that of VMware
/// Tools.
fn silent_guest(record: &VmRecord, vm: &VmKey, what: &str) -> Unknown {
    let subject = format!("VM {} ({})", record.name, vm.id);
    if let Some(state) = disconnection(record) {
        let message = format!("{subject} is {state}, so vCenter has no current guest data: {what} is missing");
        return Unknown::new(reason::ToolsNotRunning, message + &unreadable(record));
    }
    let (reason, why) = match (record.power_state, record.tools.as_str()) {
        (Some(PowerState::PoweredOff), _) => (reason::VMPoweredOff, format!("is powered off and reports no {what}")),
        (Some(PowerState::Suspended), _) => (reason::ToolsNotRunning, format!("is suspended and reports no {what}")),
        (_, "") => {
            let why = format!("reports no {what}; check that VMware Tools (open-vm-tools) is running in the guest");
            (reason::ToolsNotRunning, why)
        }
        (_, tools @ TOOLS_RUNNING) => {
            (reason::ToolsNotRunning, format!("reports no {what}, although VMware Tools is running ({tools})"))
        }
        (_, tools @ TOOLS_STARTING) => {
            (reason::ToolsNotRunning, format!("reports no {what} yet: VMware Tools is starting ({tools})"))
        }
        (power, tools) => {
            let running = if power == Some(PowerState::PoweredOn) { "is running, but" } else { "reports that" };
            let why = format!(
                "{running} VMware Tools is not running ({tools}): it reports no {what}. Install or start open-vm-tools in \
                 the guest"
            );
            (reason::ToolsNotRunning, why)
        }
    };
    Unknown::new(reason, format!("{subject} {why}{}", unreadable(record)))
}

fn without_uuid(record: &VmRecord, vm: &VmKey) -> Unknown {
    let state = disconnection(record).map(|state| format!("; it is {state}")).unwrap_or_default();
    let message = format!(
        "VM {} ({}) has no BIOS UUID (summary.config.uuid) in vCenter{state}{}",
        record.name,
        vm.id,
        unreadable(record)
    );
    Unknown::new(reason::ToolsNotRunning, message)
}

/// Returns the connection state of a VM without current data in vCenter, with its meaning.
fn disconnection(record: &VmRecord) -> Option<String> {
    let state = record.connection_state.as_deref().filter(|state| *state != CONNECTED)?;
    let meaning = match state {
        "disconnected" => " (its ESXi host is disconnected from vCenter)",
        "inaccessible" => " (vCenter cannot read its files)",
        "orphaned" => " (its ESXi host no longer has it)",
        _ => "",
    };
    Some(format!("{state}{meaning}"))
}

fn unreadable(record: &VmRecord) -> String {
    match record.unreadable.as_slice() {
        [] => String::new(),
        paths => format!("; the account may not read {} (System.Read is needed)", paths.join(", ")),
    }
}

/// Returns zone and region of a VM with the objects that have the tags; `None` if zones are off.
///
/// # Errors
/// Returns the reason why there is no zone or no region.
pub fn find_zone(
    snapshot: &Snapshot,
    vm: &VmKey,
    record: &VmRecord,
    rules: &MetadataRules,
) -> Result<Option<ResolvedZone>, ZoneProblem> {
    // A complete chain ends at an object that has no parent or is not readable. Any other chain was cut because it is a
    // circle, as while an object is being moved. The tags of such a chain prove nothing.
    let checked = |objects: Vec<MoRef>| {
        let last = objects.last().and_then(|object| snapshot.entities.get(object));
        match last.and_then(|entity| entity.parent.as_ref()) {
            Some(parent) => Err(format!("they lead in a circle or on without end, at {parent}")),
            None => Ok(objects),
        }
    };
    let way_up = |start: Option<&MoRef>| start.map_or(Ok(Vec::new()), |start| checked(snapshot.chain(start)));
    let chains = Chains {
        host: way_up(record.host.as_ref()),
        pool: way_up(record.resource_pool.as_ref()),
        vm: checked(snapshot.vm_chain(&vm.id, record)),
    };
    let unreadable = ObjectTags::Unreadable("it may not be read by this account (System.Read)".to_string());
    let is_read = |object: &MoRef| object.kind() == "VirtualMachine" || snapshot.entities.contains_key(object);
    let find_tags = |object: &MoRef| match snapshot.tags.objects.get(object) {
        None if !is_read(object) => Some(&unreadable),
        tags => tags,
    };
    resolve_zone(rules.categories.as_ref(), &chains, find_tags).map_err(|problem| {
        problem.named(|object| match snapshot.entities.get(object) {
            Some(entity) => entity.name.clone(),
            None if object.kind() == "VirtualMachine" => record.name.clone(),
            None => String::new(),
        })
    })
}

/// Returns zone and region, or the reason why initialization waits for them.
fn zone(
    snapshot: &Snapshot,
    vm: &VmKey,
    record: &VmRecord,
    rules: &MetadataRules,
) -> (String, String, Option<Unknown>) {
    match find_zone(snapshot, vm, record, rules) {
        Ok(None) => (String::new(), String::new(), None),
        Ok(Some(found)) => (found.zone.failure_domain, found.zone.region, None),
        Err(problem) => {
            let message = match (&snapshot.tags.error, &problem) {
                // The reason why no tags can be read comes first, because it explains the rest.
                (Some(trouble), _) => format!("{trouble}; {problem}"),
                (None, ZoneProblem::NoTags { .. }) => format!("{problem}; {SOME_TAGS_HIDDEN}"),
                (None, _) => problem.to_string(),
            };
            // Tags of a new object are read within moments, unless tags cannot be read at all.
            let is_transient = matches!(&problem, ZoneProblem::Unknown { reason, .. } if reason == NOT_READ_YET)
                && snapshot.tags.error.is_none();
            let unknown = Unknown { is_transient, ..Unknown::new(problem.reason(), message) };
            (String::new(), String::new(), Some(unknown))
        }
    }
}

fn set(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
