//! Pure: decides which VM backs a Node, from the answers of every vCenter.
//!
//! `docs/explanation/initialization.md` describes the rules. The Go program (`pkg/common/connectionmanager/search.go`)
//! uses the vCenter that answers first; see `docs/compatibility.md`.

mod not_found;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use self::not_found::{nothing_found, silence_reason, silent, unanswered, unheard_reason};
use super::facts::NodeFacts;
use crate::base::quoting::listed;
use crate::cloud::Unknown;
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::snapshot::{PowerState, Snapshot, VmRecord};
use crate::providers::vsphere::vcenter::{VcenterId, VmKey, scope};

/// Maximum wait for silent vCenters. After this wait, a VM that matches only by UUID is bound if it is powered on.
pub const SILENT_VCENTER_WAIT: Duration = Duration::from_secs(30);

/// Answer of one vCenter to the search for a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SearchAnswer {
    /// Not asked yet, or the answer is in flight.
    #[default]
    Pending,
    /// The vCenter could not answer, for this reason.
    Silent(String),
    /// The account lacks a permission, which the text names. This answer proves nothing about the VM.
    Denied(String),
    /// No match. The last VM of the Node, with this id, does not exist any more.
    Gone(Arc<str>),
    /// No match. The last VM of the Node exists under its id, but with another UUID.
    Changed {
        /// The VM's id.
        id: Arc<str>,
        /// The VM's present BIOS UUID.
        uuid: BiosUuid,
    },
    /// No match. VMs with these ids have the Node's system UUID, which differs from the UUID of its provider ID.
    Elsewhere(Vec<Arc<str>>),
    /// The matches. An empty list is also an answer.
    Matches {
        /// The search key.
        query: SearchKey,
        /// The managed object ids.
        ids: Vec<Arc<str>>,
    },
}

impl SearchAnswer {
    /// Returns true if the vCenter answered completely.
    pub fn is_answered(&self) -> bool {
        matches!(
            self,
            SearchAnswer::Gone(_)
                | SearchAnswer::Changed { .. }
                | SearchAnswer::Elsewhere(_)
                | SearchAnswer::Matches { .. }
        )
    }
}

/// Search key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchKey {
    /// The BIOS UUID, in either byte order.
    #[default]
    Uuid,
    /// The Node's name, searched as the guest's host name.
    Name,
}

/// One vCenter and its answer.
pub struct VcenterAnswer<'a> {
    /// The vCenter.
    pub vcenter: VcenterId,
    /// The server's name, for messages.
    pub server: &'a str,
    /// The configured datacenters; empty means all.
    pub datacenters: &'a [String],
    /// The vCenter's snapshot.
    pub snapshot: &'a Snapshot,
    /// The vCenter's answer.
    pub answer: &'a SearchAnswer,
}

/// The input of the decision.
pub struct Question<'a> {
    /// The Node.
    pub node: &'a NodeFacts,
    /// Whether the vCenters were also searched by name, because the Node has no UUID or the UUID gave no match.
    pub asked_by_name: bool,
    /// Every configured vCenter, in order.
    pub vcenters: &'a [VcenterAnswer<'a>],
    /// Reason why a configured vCenter, which may have the VM, is turned off and cannot be asked.
    pub unqueried: Option<Unknown>,
    /// Time since the first match.
    pub waiting_time: Duration,
    /// Returns a clause such as `already backs Node n` if a VM belongs to another Node; otherwise `None`.
    pub owner_clause: &'a dyn Fn(&VmKey) -> Option<String>,
    /// Whether a VM that matches only by name is accepted, as in the Go program.
    pub allow_name_match: bool,
}

/// The decision about a Node.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupDecision {
    /// This VM backs the Node.
    Bind {
        /// The VM.
        vm: VmKey,
        /// Messages about twins, for the log.
        duplicates: Vec<String>,
    },
    /// A match was found, but no snapshot contains it yet. Decide again with a later snapshot.
    Reading(Unknown),
    /// Decide again when the wait since the first match ends, or when the state changes.
    Wait(Unknown),
    /// Every vCenter answered without a match: search by name.
    SearchByName,
    /// No VM can be bound to this Node now, for this reason.
    Unresolved(Unknown),
    /// Every vCenter answered, and no VM matches the Node.
    NoMatch(Unknown),
}

struct VmCandidate<'a> {
    key: VmKey,
    instance_uuid: &'a str,
    server: &'a str,
    record: &'a VmRecord,
}

impl VmCandidate<'_> {
    fn is_recorded(&self, node: &NodeFacts) -> bool {
        node.recorded.as_ref().is_some_and(|location| location.is(self.instance_uuid, &self.key.id))
    }

    fn describe(&self) -> String {
        let power = match self.record.power_state {
            Some(PowerState::PoweredOn) => "powered on",
            Some(PowerState::PoweredOff) => "powered off",
            Some(PowerState::Suspended) => "suspended",
            None => "power state unknown",
        };
        let template = if self.record.is_template { ", template" } else { "" };
        format!("VM {} ({} on {}, {power}{template})", self.record.name, self.key.id, self.server)
    }
}

/// Decides which VM backs the Node.
pub fn resolve(question: &Question<'_>) -> LookupDecision {
    // A match by UUID anywhere overrides matches by name.
    let matches_by = |wanted: SearchKey| {
        question.vcenters.iter().any(
            |queried| matches!(queried.answer, SearchAnswer::Matches { query, ids } if *query == wanted && !ids.is_empty()),
        )
    };
    let by =
        if matches_by(SearchKey::Name) && !matches_by(SearchKey::Uuid) { SearchKey::Name } else { SearchKey::Uuid };
    let mut candidates = Vec::new();
    let mut set_aside = Vec::new();
    for asked in question.vcenters {
        if let SearchAnswer::Changed { id, uuid } = asked.answer {
            set_aside.push(format!("VM {id} on {}, which backed the Node, now has BIOS UUID {uuid}", asked.server));
        }
        let SearchAnswer::Matches { query: matched_by, ids } = asked.answer else { continue };
        for id in ids.iter().filter(|_| *matched_by == by) {
            let Some(record) = asked.snapshot.vms.get(id) else {
                if asked.snapshot.unresolved.contains(id) {
                    set_aside.push(format!("VM {id} on {} cannot be read by this account", asked.server));
                    continue;
                }
                if asked.snapshot.freshness.failure().is_some() {
                    // The vCenter stopped answering before it reported the match, so it counts as silent.
                    continue;
                }
                let message = format!("reading VM {id} on vCenter {}", asked.server);
                return LookupDecision::Reading(Unknown::transient(reason::LookupPending, message));
            };
            if let Some(why) = rejection_reason(question.node, asked, record, by) {
                set_aside.push(format!("VM {} ({id} on {}) {why}", record.name, asked.server));
                continue;
            }
            let key = VmKey { vcenter: asked.vcenter, id: id.clone() };
            let instance_uuid = &*asked.snapshot.instance_uuid;
            // Two entries may be the same vCenter. A VM that both entries report counts once.
            if !candidates.iter().any(|known: &VmCandidate<'_>| {
                known.key.id == key.id && known.instance_uuid == instance_uuid && !instance_uuid.is_empty()
            }) {
                candidates.push(VmCandidate { key, instance_uuid, server: asked.server, record });
            }
        }
    }
    if candidates.is_empty() {
        return nothing_found(question, set_aside);
    }
    match by {
        SearchKey::Uuid => choose(question, candidates),
        // A name identifies a VM only if no other VM has the name, so every vCenter must answer first.
        SearchKey::Name if !silent(question).is_empty() || question.unqueried.is_some() => {
            nothing_found(question, set_aside)
        }
        SearchKey::Name => match refusal(question, &candidates) {
            Some(refused) => LookupDecision::Unresolved(refused),
            None => choose(question, candidates),
        },
    }
}

/// Returns the reason why a match does not count.
fn rejection_reason(
    node: &NodeFacts,
    queried: &VcenterAnswer<'_>,
    record: &VmRecord,
    by: SearchKey,
) -> Option<&'static str> {
    // The id of the match may belong to another VM by now, for example because the vCenter was reinstalled.
    let is_another =
        record.bios_uuid.as_ref().zip(node.search_uuid()).is_some_and(|(own, wanted)| !own.is_same(wanted));
    if by == SearchKey::Uuid && is_another {
        return Some("now has another BIOS UUID");
    }
    let datacenter = queried.snapshot.datacenter_of(record);
    let is_covered =
        datacenter.map_or(queried.datacenters.is_empty(), |datacenter| scope::covers(queried.datacenters, &datacenter));
    (!is_covered).then_some("is outside the configured datacenters")
}

/// Narrows several matches down to one, then checks whether this VM may be taken now.
fn choose(question: &Question<'_>, candidates: Vec<VmCandidate<'_>>) -> LookupDecision {
    let all: Vec<String> = candidates.iter().map(VmCandidate::describe).collect();
    let is_recorded = |candidate: &VmCandidate<'_>| candidate.is_recorded(question.node);
    let mut left: Vec<&VmCandidate<'_>> = candidates.iter().filter(|candidate| is_recorded(candidate)).collect();
    let recorded = !left.is_empty();
    if !recorded {
        left = candidates.iter().filter(|candidate| !candidate.record.is_template).collect();
        let is_on = |candidate: &&&VmCandidate<'_>| candidate.record.power_state == Some(PowerState::PoweredOn);
        if left.len() > 1 && left.iter().filter(is_on).count() == 1 {
            left.retain(|candidate| candidate.record.power_state == Some(PowerState::PoweredOn));
        }
        let is_named = |candidate: &&&VmCandidate<'_>| candidate.record.host_name == question.node.name;
        if left.len() > 1 && left.iter().filter(is_named).count() == 1 {
            left.retain(|candidate| candidate.record.host_name == question.node.name);
        }
    }
    match left.as_slice() {
        [] => LookupDecision::Unresolved(Unknown::new(
            reason::VMNotFound,
            format!("only templates match: {}; the node's own virtual machine was not found", listed(&all)),
        )),
        [only] => take(question, only, &all),
        _ => LookupDecision::Unresolved(Unknown::new(
            reason::SeveralVMsMatch,
            format!(
                "several virtual machines match: {}; give each its own BIOS UUID (uuid.bios), or power off the ones \
                 that are not this node",
                listed(&all)
            ),
        )),
    }
}

/// Decides whether this match is bound. Rejects the match if the Node is disputed or the VM belongs to another Node,
/// and waits for the recorded vCenter. Otherwise binds the VM if every vCenter answered or if the Node's record
/// confirms the match. A VM that is powered on and no template is also bound if its host name or an address confirms
/// the match, or if the wait for silent vCenters is over. While a vCenter is turned off, only a confirmed match is
/// bound.
fn take(question: &Question<'_>, candidate: &VmCandidate<'_>, all: &[String]) -> LookupDecision {
    if let Some(unknown) = disputed(question, candidate).or_else(|| taken_already(question, candidate)) {
        return LookupDecision::Unresolved(unknown);
    }
    if let Some(unknown) = recorded_vcenter_unanswered(question, candidate) {
        return LookupDecision::Wait(unknown);
    }
    let silent = silent(question);
    let node = question.node;
    let record = candidate.record;
    let is_plain = record.power_state == Some(PowerState::PoweredOn) && !record.is_template;
    let has_its_address = record
        .nics
        .iter()
        .flat_map(|nic| &nic.ip_addresses)
        .filter_map(|address| address.parse::<IpAddr>().ok())
        .any(|address| node.addresses.contains(&address));
    let is_vouched_for =
        candidate.is_recorded(node) || (is_plain && (node.is_called(&record.host_name) || has_its_address));
    if let Some(unqueried) = question.unqueried.as_ref().filter(|_| !is_vouched_for) {
        let message = format!("{} matches by UUID, but {}", candidate.describe(), unqueried.message);
        return LookupDecision::Unresolved(Unknown::new(unqueried.reason, message));
    }
    if silent.is_empty() || is_vouched_for || (is_plain && question.waiting_time >= SILENT_VCENTER_WAIT) {
        let others = if all.len() > 1 {
            vec![format!("taken: {}; all matches: {}", candidate.describe(), listed(all))]
        } else {
            Vec::new()
        };
        return LookupDecision::Bind { vm: candidate.key.clone(), duplicates: others };
    }
    LookupDecision::Wait(Unknown::new(
        silence_reason(question.vcenters),
        format!(
            "{} matches by UUID, but {} has not answered and may have a VM with the same UUID",
            candidate.describe(),
            listed(&silent)
        ),
    ))
}

/// Returns the reason why an initialized Node must wait for the recorded vCenter. The Node keeps its VM until this
/// vCenter reports that the VM is gone, because a copy elsewhere, as after a fail-over test, is not the Node's VM. A
/// vCenter that was never reached may be the recorded one.
fn recorded_vcenter_unanswered(question: &Question<'_>, candidate: &VmCandidate<'_>) -> Option<Unknown> {
    let node = question.node;
    let recorded = node.recorded.as_ref().filter(|_| node.is_initialized && !candidate.is_recorded(node))?;
    let (mut unheard, mut is_known) = (Vec::new(), false);
    for queried in question.vcenters.iter().filter(|asked| *asked.snapshot.instance_uuid == *recorded.vcenter) {
        is_known = true;
        if !queried.answer.is_answered() || queried.snapshot.freshness.failure().is_some() {
            unheard.push(queried);
        }
    }
    if let Some(unqueried) = question.unqueried.as_ref().filter(|_| !is_known) {
        let message = format!(
            "{} has the Node's UUID, but the Node records VM {} in the vCenter with instance UUID {}; {}",
            candidate.describe(),
            recorded.vm,
            recorded.vcenter,
            unqueried.message
        );
        return Some(Unknown::new(unqueried.reason, message));
    }
    if !is_known {
        unheard.extend(question.vcenters.iter().filter(|asked| asked.snapshot.instance_uuid.is_empty()));
    }
    let all: Vec<String> = unheard.iter().map(|asked| unheard_reason(asked)).collect();
    if all.is_empty() {
        return None;
    }
    let message = format!(
        "{} has the Node's UUID, but the Node records VM {} in the vCenter with instance UUID {}; no answer from {}",
        candidate.describe(),
        recorded.vm,
        recorded.vcenter,
        listed(&all)
    );
    Some(unanswered(unheard, message))
}

/// Rejects another Node's VM for a Node that is not initialized. For an initialized Node, the check follows binding.
fn taken_already(question: &Question<'_>, candidate: &VmCandidate<'_>) -> Option<Unknown> {
    if question.node.is_initialized {
        return None;
    }
    let taken = (question.owner_clause)(&candidate.key)?;
    Some(backs_another(&candidate.describe(), &taken))
}

/// Returns the reason why a Node gets no metadata of another Node's VM. `how` comes from [`Question::owner_clause`].
pub fn backs_another(vm: &str, how: &str) -> Unknown {
    let message = format!(
        "{vm} {how}; if that Node is an earlier name of this VM, delete it; if it has a VM of its own, give each VM \
         its own BIOS UUID (uuid.bios)"
    );
    Unknown::disputed(reason::VMBacksAnotherNode, message)
}

/// Rejects a match for a Node that was registered with this VM's provider ID but reports another UUID.
fn disputed(question: &Question<'_>, candidate: &VmCandidate<'_>) -> Option<Unknown> {
    let node = question.node;
    let (own, system_uuid) = node.provider_id.as_ref().zip(node.system_uuid.as_ref()).filter(|_| node.is_disputed)?;
    let message = format!(
        "{} has the UUID {own} of the provider ID, but the Node reports systemUUID {system_uuid}; if the provider ID is \
         wrong, delete the Node and restart its kubelet without --provider-id; if it is right, add the taint \
         node.cloudprovider.kubernetes.io/uninitialized once",
        candidate.describe()
    );
    Some(Unknown::disputed(reason::ProviderIDMismatch, message))
}

/// Returns true if the VM of `old` rejoined as `new`: `old` is initialized and its kubelet is silent, both Nodes report
/// the VM's UUID, and the guest's host name is that of `new` and not that of `old`.
pub fn is_renamed(old: &NodeFacts, new: &NodeFacts, vm: &VmRecord) -> bool {
    let uuid = vm.bios_uuid.as_ref();
    let reports = |node: &NodeFacts| node.reported_uuid().zip(uuid).is_some_and(|(own, uuid)| own.is_same(uuid));
    let is_silent = old.is_initialized && old.is_unreachable;
    is_silent && reports(old) && reports(new) && new.is_called(&vm.host_name) && !old.is_called(&vm.host_name)
}

/// Returns the reason why a match by name may not be taken.
fn refusal(question: &Question<'_>, candidates: &[VmCandidate<'_>]) -> Option<Unknown> {
    if question.allow_name_match {
        return None;
    }
    candidates.iter().find_map(|candidate| {
        let uuids = question.node.system_uuid.as_ref().zip(candidate.record.bios_uuid.as_ref());
        let why = if uuids.is_some_and(|(node, vm)| !node.is_same(vm)) {
            "has another BIOS UUID than the node's systemUUID".to_string()
        } else {
            (question.owner_clause)(&candidate.key)?
        };
        Some(Unknown::new(
            reason::NameMatchRefused,
            format!(
                "no virtual machine has the node's UUID; {} has its name but {why}; --allow-name-match takes it anyway",
                candidate.describe()
            ),
        ))
    })
}

#[cfg(test)]
mod tests;
