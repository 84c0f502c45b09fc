//! Pure: the checks of the Nodes and their VMs, and of the deletion of Nodes.

use super::catalogue::CheckId;
use super::{CheckResult, CheckStatus, IN_POD, read_only};
use crate::app::reports::status::{DeletionStatus, HeldObject};
use crate::app::reports::text::count;
use crate::cloud::Reason;
use crate::controllers::node::reason as node_reason;
use crate::controllers::node_lifecycle::reason as lifecycle_reason;
use crate::providers::vsphere::reason;
use std::collections::BTreeMap;

/// The checks of [`vms`].
pub const CHECKS: [CheckId; 6] = [CheckId::P02, CheckId::V01, CheckId::V02, CheckId::V05, CheckId::V06, CheckId::Z02];

/// Maximum number of findings of one check that are named.
const NAMED: usize = 50;

/// Maximum number of findings of one check that are named with `--deep`. Bounds the answer of the process.
const NAMED_DEEP: usize = 1000;

/// A Node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCheckFacts {
    /// The name.
    pub name: String,
    /// The cloud provider of the Node.
    pub owner: NodeOwner,
    /// Whether the Node has a provider ID and no taint, and no other VM may be behind it.
    pub is_initialized: bool,
    /// The UUID of the provider ID and that of the kubelet, if they differ.
    pub contradicting_uuids: Option<(String, ReportedUuid)>,
    /// The UUID by which the VM is searched, in both byte orders; empty without one.
    pub uuids: Vec<String>,
    /// The user name of the account in the vCenter of the VM, if it is known.
    pub user: Option<String>,
    /// The VM.
    pub vm: VmCheckFacts,
}

/// The UUID that a kubelet reports, in both byte orders: some guests report the first three groups in the other one.
pub type ReportedUuid = [String; 2];

/// The cloud provider of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOwner {
    /// vSphere, or no provider yet: the Node has the taint.
    Vsphere,
    /// Nobody: the Node has neither the taint nor a provider ID.
    Adoptable,
    /// Another cloud provider, with this provider ID.
    Foreign {
        /// The provider ID.
        provider_id: String,
    },
}

/// The VM of a Node, as the look-up knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum VmCheckFacts {
    /// The look-up has no result yet.
    Pending {
        /// The reason.
        message: String,
    },
    /// Every vCenter answered, and none has a VM of the Node.
    NoMatch {
        /// The text of the look-up.
        message: String,
    },
    /// The VM is not known, for another reason.
    Unresolved {
        /// The reason, as in the condition of the Node.
        reason: Reason,
        /// The text of the look-up.
        message: String,
    },
    /// The VM was found.
    Found(Box<FoundVm>),
}

/// A VM that is behind a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundVm {
    /// Name and id, such as `worker-7 (vm-142)`.
    pub name: String,
    /// Host and port of its vCenter.
    pub server: String,
    /// Whether the vCenter reports changes as they happen.
    pub is_current: bool,
    /// Whether the VM is powered on.
    pub is_powered_on: bool,
    /// Whether VMware Tools runs.
    pub has_running_tools: bool,
    /// The state of VMware Tools, as vCenter writes it.
    pub tools: String,
    /// Properties and objects that the account may not read.
    pub unreadable: Vec<String>,
    /// Number of addresses that the Node gets.
    pub addresses: usize,
    /// Whether these addresses agree with those of the Node.
    pub address_difference: AddressDifference,
    /// The zone; empty without one.
    pub zone: String,
    /// The region; empty without one.
    pub region: String,
    /// Reason and text why data of the VM is missing, if any.
    pub pending: Option<(Reason, String)>,
    /// Labels of the Node with another zone or region than that of the VM.
    pub differing_zone_labels: Vec<String>,
    /// The command that gives the VM zone and region, as `explain` shows it; empty without a problem of zones.
    pub zone_command: String,
    /// Remarks about the addresses.
    pub notes: Vec<String>,
}

/// The difference between the addresses that a Node has and those that it gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressDifference {
    /// None.
    #[default]
    None,
    /// The Node gets these addresses, such as `InternalIP 10.0.0.7`.
    Changed(Vec<String>),
    /// The node IP of the kubelet cannot be used, for this reason.
    RefusedNodeIp(String),
}

/// The Nodes and the settings about them.
#[derive(Clone, Copy, Debug)]
pub struct NodeChecksInput<'a> {
    /// The Nodes.
    pub nodes: &'a [NodeCheckFacts],
    /// Whether `vsphere.conf` has tag categories of zones and regions.
    pub has_zones: bool,
    /// Whether more findings are named.
    pub is_deep: bool,
}

/// Runs all checks of the VMs.
pub fn vms(facts: &NodeChecksInput<'_>) -> Vec<CheckResult> {
    let own: Vec<&NodeCheckFacts> = facts.nodes.iter().filter(|node| node.owner == NodeOwner::Vsphere).collect();
    let mut results = Vec::new();
    let checks: [(CheckId, NodeCheck, &str); 5] = [
        (CheckId::P02, readable, "with a VM that the account reads, and the objects above it"),
        (CheckId::V01, found, "with their VM"),
        (CheckId::V02, identity, "with the provider ID of their VM"),
        (CheckId::V05, tools, "with running VMware Tools"),
        (CheckId::V06, addresses, "with addresses of their VM"),
    ];
    for (id, check, passed) in checks {
        results.extend(each(id, check, passed, &own, facts));
    }
    results.extend(match facts.has_zones {
        true => each(CheckId::Z02, zone, "with the zone and region of their VM", &own, facts),
        false => {
            let reason = "vsphere.conf has no tag categories of zone and region";
            vec![CheckResult::skipped(CheckId::Z02, "", reason)]
        }
    });
    results
}

/// Checks one Node: `None` if the Node is as it should be, otherwise the result, without subject.
type NodeCheck = fn(&NodeCheckFacts) -> Option<CheckResult>;

/// Runs one check for each Node. Nodes with the same skipped or incomplete result have one line together.
fn each(
    id: CheckId,
    check: NodeCheck,
    passed: &str,
    nodes: &[&NodeCheckFacts],
    facts: &NodeChecksInput<'_>,
) -> Vec<CheckResult> {
    if nodes.is_empty() {
        return vec![CheckResult::skipped(id, "", "there is no Node of vSphere")];
    }
    let mut findings = Vec::new();
    let mut open: BTreeMap<String, (CheckResult, usize)> = BTreeMap::new();
    let mut passes = 0;
    for node in nodes {
        match check(node) {
            None => passes += 1,
            Some(result) if matches!(result.status, CheckStatus::Skipped | CheckStatus::Incomplete) => {
                open.entry(result.message.clone()).or_insert((result, 0)).1 += 1;
            }
            Some(result) => findings.push(CheckResult { subject: format!("Node {}", node.name), ..result }),
        }
    }
    let mut results = summarized(id, findings, &format!("{} {passed}", count(passes, "Node")), facts.is_deep);
    // Without a passed Node and without a finding, the line about passed Nodes says nothing.
    if passes == 0 && !open.is_empty() {
        results.retain(|result| result.status != CheckStatus::Passed);
    }
    let subject = |nodes: usize| count(nodes, "Node");
    results.extend(open.into_values().map(|(result, nodes)| CheckResult { subject: subject(nodes), ..result }));
    results
}

/// Returns the findings, of which only some are named, or the passed result if there is none.
pub(super) fn summarized(id: CheckId, mut findings: Vec<CheckResult>, passed: &str, is_deep: bool) -> Vec<CheckResult> {
    if findings.is_empty() {
        return vec![CheckResult::passed(id, "", passed)];
    }
    let limit = if is_deep { NAMED_DEEP } else { NAMED };
    if let Some(first) = findings.get(limit).cloned() {
        let omitted = findings.len() - limit;
        // Failures come first, so that a warning never hides a failure.
        findings.sort_by_key(|finding| finding.status != CheckStatus::Failed);
        let is_failure = findings.iter().skip(limit).any(|finding| finding.status == CheckStatus::Failed);
        let status = if is_failure { CheckStatus::Failed } else { CheckStatus::Warning };
        findings.truncate(limit);
        let message = if is_deep { "with findings" } else { "with findings, which --deep names" };
        findings.push(CheckResult {
            status,
            subject: format!("{omitted} more"),
            message: message.to_owned(),
            remedy: Vec::new(),
            ..first
        });
    }
    findings
}

/// Returns the VM, or the check that a check of the VM needs.
fn vm_of(node: &NodeCheckFacts) -> Result<&FoundVm, CheckId> {
    match &node.vm {
        VmCheckFacts::Found(vm) if vm.is_current => Ok(vm),
        VmCheckFacts::Found(_) => Err(CheckId::A03),
        VmCheckFacts::Pending { .. } | VmCheckFacts::NoMatch { .. } | VmCheckFacts::Unresolved { .. } => {
            Err(CheckId::V01)
        }
    }
}

fn found(node: &NodeCheckFacts) -> Option<CheckResult> {
    const ID: CheckId = CheckId::V01;
    match &node.vm {
        VmCheckFacts::Found(vm) if vm.is_current => None,
        VmCheckFacts::Found(_) => Some(CheckResult::needs(ID, "", CheckId::A03)),
        VmCheckFacts::Pending { .. } => Some(CheckResult::incomplete(ID, "", "the look-up of the VM is in progress")),
        VmCheckFacts::NoMatch { message } => {
            let result = CheckResult::failed(ID, "", message).with_remedy("as an administrator, search the VM:");
            let result = match node.uuids.is_empty() {
                true => result.with_command(format!("kubectl describe node {}", node.name)),
                false => with_search(result, &node.uuids),
            };
            let told = "if it is found in a configured datacenter, the account does not see it:";
            Some(result.with_remedy(told).with_command(read_only(node.user.as_deref())))
        }
        VmCheckFacts::Unresolved { reason, .. } if is_of_connection(*reason) => {
            Some(CheckResult::needs(ID, "", CheckId::A03))
        }
        VmCheckFacts::Unresolved { reason, .. } if is_of_identity(*reason) => {
            Some(CheckResult::needs(ID, "", CheckId::V02))
        }
        VmCheckFacts::Unresolved { reason, message } => {
            Some(with_explanation(CheckResult::failed(ID, "", format!("{reason}: {message}")), node, *reason))
        }
    }
}

/// Whether the connection to a vCenter is the reason, about which other checks report.
fn is_of_connection(reason: Reason) -> bool {
    let reasons = [
        reason::VCenterUnavailable,
        reason::VCenterCertificateRejected,
        reason::CredentialsRejected,
        reason::CredentialsMissing,
    ];
    reasons.contains(&reason)
}

fn is_of_identity(reason: Reason) -> bool {
    [reason::ProviderIDMismatch, reason::MalformedProviderID].contains(&reason)
}

fn readable(node: &NodeCheckFacts) -> Option<CheckResult> {
    const ID: CheckId = CheckId::P02;
    if let VmCheckFacts::Unresolved { reason: reason::VMNotReadable, message } = &node.vm {
        return Some(CheckResult::failed(ID, "", message).with_command(read_only(node.user.as_deref())));
    }
    let vm = match vm_of(node) {
        Ok(vm) => vm,
        Err(needed) => return Some(CheckResult::needs(ID, "", needed)),
    };
    if vm.unreadable.is_empty() {
        return None;
    }
    let message = format!("VM {}: the account cannot read {}", vm.name, vm.unreadable.join(", "));
    Some(CheckResult::failed(ID, "", message).with_command(read_only(node.user.as_deref())))
}

/// Adds the commands that search a VM by its UUID, which print its path.
fn with_search(result: CheckResult, uuids: &[String]) -> CheckResult {
    let search = |uuid: &String| format!("govc find / -type m -config.uuid {uuid}");
    uuids.iter().fold(result, |result, uuid| result.with_command(search(uuid)))
}

fn identity(node: &NodeCheckFacts) -> Option<CheckResult> {
    const ID: CheckId = CheckId::V02;
    if let VmCheckFacts::Unresolved { reason, message } = &node.vm
        && is_of_identity(*reason)
    {
        let see = format!("see docs/reasons.md#{}; to register the Node again:", reason.as_str().to_lowercase());
        return Some(CheckResult::failed(ID, "", message).with_remedy(see).with_registration(&node.name));
    }
    if let Some((provider_id, reported)) = &node.contradicting_uuids {
        let [spelled, _] = reported;
        let message = format!(
            "the provider ID names the VM with UUID {provider_id}, and the kubelet reports {spelled}: the VM may have \
             been restored from a backup or copied"
        );
        let result = CheckResult::warning(ID, "", message);
        return Some(match &node.vm {
            VmCheckFacts::Found(vm) => with_two_vms(result, &node.name, vm, reported),
            // No VM has the UUID, so that the VM can get it back.
            VmCheckFacts::NoMatch { .. } => {
                with_search(result.with_remedy("search the VM on which the kubelet runs:"), reported)
                    .with_remedy("while that VM is off, give it the UUID of the provider ID back:")
                    .with_command(format!("govc vm.change -vm VM -uuid {provider_id}"))
            }
            VmCheckFacts::Pending { .. } | VmCheckFacts::Unresolved { .. } => {
                let result = with_search(result.with_remedy("search both VMs:"), std::slice::from_ref(provider_id));
                with_search(result, reported)
            }
        });
    }
    vm_of(node).err().map(|needed| CheckResult::needs(ID, "", needed))
}

/// Adds the remedies for a Node with the provider ID of a VM that exists. A second VM must not get the same UUID.
fn with_two_vms(result: CheckResult, node: &str, vm: &FoundVm, reported: &ReportedUuid) -> CheckResult {
    let FoundVm { name, server, .. } = vm;
    let result = result.with_remedy(format!(
        "check on which VM the kubelet runs: VM {name} in vCenter {server} has the UUID of the provider ID; the other \
         one is found by:"
    ));
    with_search(result, reported).with_remedy("if it runs on the other one:").with_registration(node)
}

fn tools(node: &NodeCheckFacts) -> Option<CheckResult> {
    const ID: CheckId = CheckId::V05;
    let vm = match vm_of(node) {
        Ok(vm) => vm,
        Err(needed) => return Some(CheckResult::needs(ID, "", needed)),
    };
    if !vm.is_powered_on {
        return Some(CheckResult::skipped(ID, "", "the VM is not powered on"));
    }
    if vm.has_running_tools {
        return None;
    }
    let FoundVm { name, tools, .. } = vm;
    let state = if tools.is_empty() { "no state".to_owned() } else { tools.clone() };
    let remedy = "in the guest: systemctl enable --now open-vm-tools (vmtoolsd)";
    Some(match node.is_initialized {
        true => {
            let message =
                format!("VM {name}: VMware Tools does not run ({state}), so the Node keeps its last addresses");
            CheckResult::warning(ID, "", message).with_remedy(remedy)
        }
        false => {
            let message = format!("VM {name}: VMware Tools does not run ({state}), so the Node is not initialized");
            CheckResult::failed(ID, "", message).with_remedy(remedy)
        }
    })
}

fn addresses(node: &NodeCheckFacts) -> Option<CheckResult> {
    const ID: CheckId = CheckId::V06;
    let vm = match vm_of(node) {
        Ok(vm) => vm,
        Err(needed) => return Some(CheckResult::needs(ID, "", needed)),
    };
    if !vm.is_powered_on {
        return Some(CheckResult::skipped(ID, "", "the VM is not powered on"));
    }
    let of_addresses = vm.pending.as_ref().filter(|(reason, _)| !is_of_zone(*reason));
    match of_addresses {
        Some(_) if !vm.has_running_tools && node.is_initialized => {
            let reason = "VMware Tools does not run, so the Node keeps its addresses";
            return Some(CheckResult::skipped(ID, "", reason));
        }
        Some(_) if !vm.has_running_tools => return Some(CheckResult::needs(ID, "", CheckId::V05)),
        Some((reason, message)) => {
            let see = format!("see docs/reasons.md#{}", reason.as_str().to_lowercase());
            let result = match node.is_initialized {
                true => CheckResult::warning(ID, "", message),
                false => CheckResult::failed(ID, "", message),
            };
            return Some(result.with_remedy(see));
        }
        None => {}
    }
    if vm.addresses == 0 {
        return Some(CheckResult::incomplete(ID, "", "the guest has not reported yet"));
    }
    if let Some(result) = address_difference(node, vm) {
        return Some(result);
    }
    let notes = vm.notes.join("; ");
    (!notes.is_empty()).then(|| CheckResult::warning(ID, "", notes).with_remedy("see docs/explanation/addresses.md"))
}

/// Compares the addresses with those of the Node. A Node that joins has none from the VM yet.
fn address_difference(node: &NodeCheckFacts, vm: &FoundVm) -> Option<CheckResult> {
    const ID: CheckId = CheckId::V06;
    match &vm.address_difference {
        AddressDifference::RefusedNodeIp(reason) => {
            let remedy = "--node-ip of the kubelet must be an address that the guest reports and the rules allow";
            let result = match node.is_initialized {
                true => CheckResult::warning(ID, "", reason),
                false => CheckResult::failed(ID, "", reason),
            };
            Some(result.with_remedy(remedy))
        }
        AddressDifference::Changed(addresses) if node.is_initialized => {
            let message = format!("the Node has other addresses than its VM, which has {}", addresses.join(", "));
            let command = format!("{IN_POD} explain node {}", node.name);
            let result = CheckResult::warning(ID, "", message).with_remedy("this shows when they are written:");
            Some(result.with_command(command))
        }
        AddressDifference::None | AddressDifference::Changed(_) => None,
    }
}

fn is_of_zone(reason: Reason) -> bool {
    [reason::NoZoneTags, reason::ZoneUnknown, reason::InvalidTagName].contains(&reason)
}

fn zone(node: &NodeCheckFacts) -> Option<CheckResult> {
    const ID: CheckId = CheckId::Z02;
    let vm = match vm_of(node) {
        Ok(vm) => vm,
        Err(needed) => return Some(CheckResult::needs(ID, "", needed)),
    };
    match &vm.pending {
        Some((reason, _)) if *reason == reason::ZoneUnknown => Some(CheckResult::needs(ID, "", CheckId::P04)),
        Some((reason, message)) if is_of_zone(*reason) => {
            let result = match node.is_initialized {
                true => CheckResult::warning(ID, "", message),
                false => CheckResult::failed(ID, "", message),
            };
            Some(match vm.zone_command.as_str() {
                "" => with_explanation(result, node, *reason),
                command => result.with_command(command),
            })
        }
        // The reason of the addresses hides that of the zone.
        Some(_) if vm.zone.is_empty() || vm.region.is_empty() => Some(CheckResult::needs(ID, "", CheckId::V06)),
        _ if vm.zone.is_empty() || vm.region.is_empty() => {
            Some(CheckResult::incomplete(ID, "", "the tags above the VM were not read yet"))
        }
        _ if node.is_initialized && !vm.differing_zone_labels.is_empty() => {
            let message = format!("VM {} is elsewhere: {}", vm.name, vm.differing_zone_labels.join(", "));
            Some(with_explanation(CheckResult::warning(ID, "", message), node, node_reason::ZoneLabelsDiffer))
        }
        _ => None,
    }
}

/// Adds the section about the reason, and the command that shows who acts.
fn with_explanation(result: CheckResult, node: &NodeCheckFacts, reason: Reason) -> CheckResult {
    result
        .with_remedy(format!("see docs/reasons.md#{}; the remedy for this Node:", reason.as_str().to_lowercase()))
        .with_command(format!("{IN_POD} explain node {}", node.name))
}

/// Checks the deletion of Nodes; `None` if this process does not run the node-lifecycle controller now. `is_paused` says
/// that an operator has paused deletions, so that the limit does not matter.
pub fn deletion(status: Option<&DeletionStatus>, is_paused: bool) -> CheckResult {
    const ID: CheckId = CheckId::D01;
    let Some(status) = status else {
        return CheckResult::incomplete(ID, "", "only the leader knows the deletions");
    };
    let DeletionStatus { mode, allowance, limit, is_mass_held, unanswered, pending, last: _ } = status;
    let within = match is_paused {
        true => format!("--node-deletion={mode}, deletions are paused"),
        false => format!("--node-deletion={mode}, {allowance} of {limit} deletions allowed now"),
    };
    if *is_mass_held {
        let message = format!("{within}: deletions pause, because many VMs are absent at the same time");
        return CheckResult::failed(ID, "", message)
            .with_remedy("check in vCenter whether these VMs were deleted on purpose; see docs/node-lifecycle.md");
    }
    // A Node that was never initialized is not deleted, whatever the state of its VM.
    let pending: Vec<&HeldObject> =
        pending.iter().filter(|held| held.reason != lifecycle_reason::Uninitialized.as_str()).collect();
    let named = |held: &&HeldObject| format!("{} ({})", held.name, held.reason);
    let names: Vec<String> = pending.iter().take(5).map(named).collect();
    let names = format!("{}{}", names.join(", "), if pending.len() > 5 { ", …" } else { "" });
    let waits = [lifecycle_reason::DeletionGracePeriod.as_str(), lifecycle_reason::DeletionPaused.as_str()];
    let blocked = pending.iter().find(|held| !waits.contains(&held.reason.as_str()));
    let is_blocked = blocked.is_some();
    let is_unknown = *unanswered > 0 && (mode != "enforce" || !is_blocked);
    match (mode.as_str(), pending.is_empty()) {
        ("off", _) => CheckResult::warning(ID, "", "--node-deletion=off: Nodes whose VMs are gone stay")
            .with_remedy("if this is not meant: --node-deletion=enforce"),
        _ if is_unknown => {
            let message = format!("{within}; vCenter has not answered yet about {}", count(*unanswered, "Node"));
            CheckResult::incomplete(ID, "", message)
        }
        ("dry-run", _) => CheckResult::warning(ID, "", format!("{within}: deletions are only reported"))
            .with_remedy("if this is not meant: --node-deletion=enforce"),
        (_, false) if is_blocked => {
            let message = format!("{within}; {} not deleted: {names}", count(pending.len(), "Node"));
            let result = CheckResult::failed(ID, "", message);
            match blocked {
                Some(held) => result
                    .with_remedy("this shows what holds a deletion:")
                    .with_command(format!("{IN_POD} explain deletion {}", held.name)),
                None => result,
            }
        }
        (_, false) if is_paused => {
            let message = format!("{within}; {} will be deleted afterwards: {names}", count(pending.len(), "Node"));
            CheckResult::warning(ID, "", message)
                .with_remedy("to end the pause:")
                .with_command(format!("{IN_POD} deletions resume"))
        }
        (_, false) => {
            let message = format!("{within}; {} will be deleted soon: {names}", count(pending.len(), "Node"));
            CheckResult::warning(ID, "", message).with_remedy("see docs/node-lifecycle.md")
        }
        (_, true) if *allowance == 0 && !is_paused => {
            CheckResult::warning(ID, "", format!("{within}: the limit is reached"))
                .with_remedy("see docs/node-lifecycle.md: the limit rises again with time")
        }
        (_, true) => CheckResult::passed(ID, "", format!("{within}, none pending")),
    }
}

#[cfg(test)]
pub(super) mod tests;
