//! Evaluation of one Node: binds a VM if the rules allow it, updates the cache entry, and schedules the next search.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::Tracker;
use super::contest::owner_clause;
use super::facts::NodeFacts;
use super::instance_cache::{BoundVm, CachedInstance, LookupInputs};
use super::node_entry::{Binding, NextSearch, NodeEntry, RemovedVcenter};
use super::resolution::{
    LookupDecision, Question, SearchAnswer, SearchKey, VcenterAnswer, backs_another, is_renamed, resolve,
};
use super::vcenters::VcenterState;
use crate::base::backoff::Backoff;
use crate::cloud::{FoundBy, InstanceMetadata, Presence, Unknown};
use crate::providers::vsphere::nodes::absence::last_place::LastObservation;
use crate::providers::vsphere::nodes::absence::location::Location;
use crate::providers::vsphere::nodes::metadata::addresses::candidate_ips;
use crate::providers::vsphere::nodes::metadata::topology::labels::labels;
use crate::providers::vsphere::nodes::metadata::{AddressContext, describe};
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::snapshot::{Freshness, Snapshot, VmRecord};
use crate::providers::vsphere::vcenter::{VcenterId, VmKey, scope};

/// Time within which vCenter must report a watched match. Each report from the vCenter restarts this time.
const READING_LIMIT: Duration = Duration::from_secs(10);
/// Maximum wait for the report of a watched match, even if vCenter keeps reporting other VMs.
const LONGEST_READING: Duration = Duration::from_secs(60);
/// Pauses between searches for a VM that was not found. vCenter sends no event for an unwatched VM, so the search is
/// repeated at least once a minute.
const SEARCH_BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(2), Duration::from_secs(60)).shortened_by(0.5);

impl Tracker {
    /// Evaluates one Node and writes the outcome to the cache.
    pub(super) fn evaluate(&mut self, name: &str) {
        let Some(tracked) = self.nodes.get(name) else { return };
        let is_open = tracked.bound.is_none();
        if tracked
            .removed_vcenter
            .as_ref()
            .is_some_and(|lost| self.is_configured(lost, tracked.last_observation.as_ref()))
        {
            self.update(name, |tracked| tracked.removed_vcenter = None);
        }
        let mut next_search = if is_open { self.bind(name) } else { NextSearch::None };
        self.record_location(name);
        self.record_addresses(name);
        let Some(tracked) = self.nodes.get(name) else { return };
        let is_newly_bound = is_open && tracked.bound.is_some();
        let (mut has_left, mut is_running) = (false, false);
        let presence = match (tracked.vm(), &next_search) {
            (Some(vm), _) => match self.bound_vm(tracked) {
                Some(vm) => {
                    is_running = vm.is_running();
                    match self.backs_another(tracked) {
                        Some(unknown) => Presence::Unknown(unknown),
                        None => Presence::Exists(Arc::new(vm)),
                    }
                }
                None => {
                    let message = format!("VM {} left the inventory; a new search has started", vm.id);
                    debug!(node = name, message, "the lookup starts again");
                    has_left = true;
                    Presence::Unknown(Unknown::new(reason::VMNotFound, message))
                }
            },
            (None, NextSearch::Later(unknown) | NextSearch::NoMatch(unknown) | NextSearch::Waiting(unknown)) => {
                Presence::Unknown(
                    tracked.removed_vcenter.as_ref().map_or_else(|| unknown.clone(), |lost| lost.unknown(unknown)),
                )
            }
            (None, NextSearch::Now | NextSearch::None) => {
                Presence::Unknown(Unknown::transient(reason::LookupPending, "the search for the VM is under way"))
            }
        };
        let view = CachedInstance {
            uid: tracked.facts.uid.clone(),
            presence,
            has_no_match: matches!(next_search, NextSearch::NoMatch(_)) && tracked.removed_vcenter.is_none(),
            last_observation: tracked.last_observation.clone(),
            inputs: tracked.inputs.clone(),
            shared_addresses: self.shared_addresses.of(name).collect(),
        };
        self.cache.set(name, view);
        if has_left {
            next_search = NextSearch::Now;
            self.update(name, NodeEntry::unbind);
            self.record_addresses(name);
        }
        self.plan(name, &next_search, is_running);
        if is_newly_bound {
            self.searches.put_last(name);
            // The VM may have rejoined under this Node's name. Other Nodes that match the VM must be evaluated.
            self.changed_nodes.extend(self.nodes.waiting_for(name).into_iter().map(Arc::from));
            self.changed_nodes.extend(self.rivals(name));
        }
        if next_search == NextSearch::Now {
            self.search_everywhere(name);
        }
    }

    /// Records that the bound VM is in the snapshot.
    fn record_location(&mut self, name: &str) {
        let Some((vm, observed, record)) = self.nodes.get(name).and_then(|tracked| self.bound_machine(tracked)) else {
            return;
        };
        let location = Location::of(observed, &vm.id, record);
        let Some(tracked) = self.nodes.get(name) else { return };
        let is_addressed = candidate_ips(&self.rules.nics(&tracked.facts, record)).next().is_some();
        let seen = Arc::clone(observed);
        self.update(name, |tracked| {
            tracked.record_location(location, &seen);
            if is_addressed {
                tracked.addressed_since.get_or_insert_with(Instant::now);
            }
        });
    }

    fn plan(&mut self, name: &str, next_search: &NextSearch, is_running: bool) {
        let others = self.nodes.count_other_rechecks(name);
        let (family_wait, now) = (self.rules.family_wait, Instant::now());
        self.update(name, |tracked| {
            if tracked.bound.is_some() {
                tracked.decide_at = tracked.end_of_family_wait(family_wait, now);
            }
            match next_search {
                NextSearch::Later(_) | NextSearch::NoMatch(_) if tracked.search_at.is_none() => {
                    let pause = tracked.pauses.next_pause(&SEARCH_BACKOFF, fastrand::f64());
                    tracked.search_at = Some(now + pause);
                }
                NextSearch::Later(_) | NextSearch::NoMatch(_) | NextSearch::Waiting(_) | NextSearch::Now => {}
                NextSearch::None => tracked.search_at = None,
            }
            tracked.is_running = is_running;
            tracked.schedule_recheck(now, false, others);
        });
    }

    /// Returns true if the removed vCenter of `lost` is configured again, perhaps under another name.
    fn is_configured(&self, lost: &RemovedVcenter, last_observation: Option<&LastObservation>) -> bool {
        let is_home =
            |at: &Location, held: &VcenterState| !at.vcenter.is_empty() && at.vcenter == held.snapshot.instance_uuid;
        self.vcenters.values().any(|held| {
            held.source.vcenter.server() == lost.server
                || last_observation.is_some_and(|observed| is_home(&observed.location, held))
        })
    }

    fn bind(&mut self, name: &str) -> NextSearch {
        let Some(tracked) = self.nodes.get(name) else { return NextSearch::None };
        if tracked.facts.has_provider_id && tracked.facts.provider_id.is_none() {
            let message = "spec.providerID is not vsphere:// followed by a UUID".to_string();
            return NextSearch::Waiting(Unknown::new(reason::MalformedProviderID, message));
        }
        let waited = tracked.first_match.map_or(Duration::ZERO, |at| at.elapsed());
        let decision = self.decide(tracked, waited);
        let answer = |(vcenter, held): (&VcenterId, &VcenterState)| {
            (held.source.vcenter.server().to_owned(), tracked.answer_at(*vcenter).clone())
        };
        let inputs = LookupInputs {
            at: Instant::now(),
            uuid: tracked.facts.search_uuid().cloned(),
            asked_by_name: tracked.asked_by_name,
            answers: self.vcenters.iter().map(answer).collect(),
        };
        let is_reading = matches!(decision, LookupDecision::Reading(_));
        self.update(name, |tracked| {
            tracked.inputs = Some(Arc::new(inputs));
            tracked.reading_since = tracked.reading_since.filter(|_| is_reading);
        });
        match decision {
            LookupDecision::Bind { vm, duplicates: others } => {
                self.report_duplicates(name, vm.vcenter, &others);
                let Some(binding) = self.nodes.get(name).map(|tracked| self.binding(tracked, vm)) else {
                    return NextSearch::None;
                };
                let earlier = self.nodes.get(name).and_then(|tracked| self.earlier_name(&tracked.facts, &binding.vm));
                self.changed_nodes.extend(earlier.map(|earlier| Arc::from(earlier.as_str())));
                self.update(name, |tracked| tracked.bind(binding));
                NextSearch::None
            }
            LookupDecision::Wait(unknown) => {
                self.update(name, |tracked| tracked.decide_at = tracked.end_of_silent_wait(Instant::now()));
                NextSearch::Later(unknown)
            }
            LookupDecision::SearchByName => {
                self.update(name, |tracked| {
                    tracked.asked_by_name = true;
                    tracked.answers.clear();
                });
                NextSearch::Now
            }
            LookupDecision::Reading(unknown) => self.wait_for_reading(name, unknown),
            LookupDecision::Unresolved(unknown) if unknown.is_transient => NextSearch::Waiting(unknown),
            LookupDecision::Unresolved(unknown) => {
                self.suspect_datacenters(name);
                NextSearch::Later(unknown)
            }
            LookupDecision::NoMatch(unknown) => NextSearch::NoMatch(unknown),
        }
    }

    fn binding(&self, tracked: &NodeEntry, vm: VmKey) -> Binding {
        let is_open = |vcenter: &VcenterId| !tracked.answer_at(*vcenter).is_answered();
        Binding {
            uuid: self.record(&vm).and_then(|record| record.bios_uuid.clone()),
            instance_uuid: self.vcenters.get(&vm.vcenter).map(|held| held.snapshot.instance_uuid.clone()),
            found_by: self.found_by(tracked, &vm),
            unqueried: self.vcenters.keys().filter(|slot| is_open(slot)).copied().collect(),
            vm,
        }
    }

    /// Waits for vCenter's report of a match, which normally follows shortly after its watch begins. If the report is
    /// late, the match is searched and watched again. While a busy vCenter reports other VMs, the wait is longer,
    /// because a new search would add load.
    fn wait_for_reading(&mut self, name: &str, unknown: Unknown) -> NextSearch {
        let now = Instant::now();
        let since = self.nodes.get(name).and_then(|tracked| tracked.reading_since).unwrap_or(now);
        let reported = self.nodes.get(name).and_then(|tracked| self.last_report(tracked));
        let over = Some(end_of_reading(since, reported)).filter(|over| now < *over);
        self.update(name, |tracked| (tracked.reading_since, tracked.decide_at) = (Some(since), over));
        if over.is_some() {
            return NextSearch::Waiting(unknown);
        }
        // Rewatches only once per search, because each rewatch triggers an evaluation.
        let tracked = self.nodes.get(name).filter(|tracked| tracked.search_at.is_none());
        for (vcenter, held) in &self.vcenters {
            let is_known = |id: &str| held.snapshot.vms.contains_key(id);
            let ids = tracked.into_iter().flat_map(|tracked| tracked.ids_at(*vcenter));
            let unread: Vec<Arc<str>> = ids.filter(|id| !is_known(id)).cloned().collect();
            if !unread.is_empty() {
                held.source.vcenter.rewatch(&unread);
            }
        }
        let message = format!(
            "vCenter found a match and does not report it ({}); check that the account may read it (System.Read)",
            unknown.message
        );
        NextSearch::Later(Unknown::new(reason::VMNotReadable, message))
    }

    /// Returns the time of the last report from any vCenter that has a match of this Node.
    fn last_report(&self, tracked: &NodeEntry) -> Option<Instant> {
        let matching = self.vcenters.iter().filter(|(vcenter, _)| tracked.ids_at(**vcenter).next().is_some());
        matching.filter_map(|(_, held)| held.source.vcenter.last_report()).max()
    }

    /// Requests a check of the configured datacenters if a match is outside of them, because a configured datacenter
    /// may not exist.
    fn suspect_datacenters(&self, name: &str) {
        let Some(tracked) = self.nodes.get(name) else { return };
        for (vcenter, VcenterState { source, snapshot: observed }) in &self.vcenters {
            let SearchAnswer::Matches { ids, .. } = tracked.answer_at(*vcenter) else { continue };
            let datacenter = |id: &Arc<str>| observed.vms.get(id).and_then(|record| observed.datacenter_of(record));
            if ids.iter().filter_map(datacenter).any(|found| !scope::covers(&source.datacenters, &found)) {
                source.vcenter.suspect_datacenters(&source.datacenters);
            }
        }
    }

    fn decide(&self, tracked: &NodeEntry, waited: Duration) -> LookupDecision {
        let queried: Vec<VcenterAnswer<'_>> = self
            .vcenters
            .iter()
            .map(|(slot, held)| VcenterAnswer {
                vcenter: *slot,
                server: held.source.vcenter.server(),
                datacenters: &held.source.datacenters,
                snapshot: &held.snapshot,
                answer: tracked.answer_at(*slot),
            })
            .collect();
        let taken = |vm: &VmKey| self.taken(vm, &tracked.facts);
        resolve(&Question {
            node: &tracked.facts,
            asked_by_name: tracked.asked_by_name,
            vcenters: &queried,
            unqueried: self.setup.borrow().check_complete().err(),
            waiting_time: waited,
            owner_clause: &taken,
            allow_name_match: self.rules.allow_name_match,
        })
    }

    /// If this VM belongs to another Node, returns a clause about that Node. The result does not depend on restarts or
    /// on the order of Nodes.
    fn taken(&self, vm: &VmKey, node: &NodeFacts) -> Option<String> {
        let record = self.record(vm)?;
        let claiming = record.bios_uuid.iter().flat_map(|uuid| self.nodes.claiming(uuid));
        let others = claiming.chain(self.nodes.needing(vm).filter(|other| self.is_bound_to(other, vm)));
        others.filter(|other| **other != node.name).find_map(|other| self.taken_by(other, node, vm, record))
    }

    fn taken_by(&self, other: &str, node: &NodeFacts, vm: &VmKey, record: &VmRecord) -> Option<String> {
        let rival = self.nodes.get(other)?;
        if self.is_earlier_name(other, node, vm) || self.is_earlier_name(&node.name, &rival.facts, vm) {
            return None;
        }
        match rival.vm().filter(|own| !self.is_same(own, vm)) {
            // A provider ID belongs to one Node, even if two VMs have the UUID.
            Some(own) => (rival.facts.is_initialized && !node.is_initialized)
                .then(|| format!("has the BIOS UUID of Node {other}, whose VM is {}", own.id)),
            None => owner_clause(node, &rival.facts, record),
        }
    }

    /// Returns the reason why the Node gets no metadata of its VM, if the VM belongs to another Node.
    pub(super) fn backs_another(&self, tracked: &NodeEntry) -> Option<Unknown> {
        let vm = tracked.vm()?;
        let how = self.taken(vm, &tracked.facts)?;
        let name = self.record(vm).map(|record| &*record.name).unwrap_or_default();
        Some(backs_another(&format!("VM {name} ({})", vm.id), &how))
    }

    fn is_bound_to(&self, name: &str, vm: &VmKey) -> bool {
        self.nodes.get(name).is_some_and(|tracked| tracked.vm() == Some(vm))
    }

    /// Returns true if this VM backs the Node `other` and rejoined as `node`.
    pub(super) fn is_earlier_name(&self, other: &str, node: &NodeFacts, vm: &VmKey) -> bool {
        let (Some(other), Some(record)) = (self.nodes.get(other), self.record(vm)) else { return false };
        other.vm() == Some(vm) && is_renamed(&other.facts, node, record)
    }

    /// Returns the Node that this VM backs under an earlier name, if `node` is not initialized yet.
    fn earlier_name(&self, node: &NodeFacts, vm: &VmKey) -> Option<&String> {
        let is_earlier = |other: &&String| **other != node.name && self.is_earlier_name(other, node, vm);
        self.nodes.needing(vm).find(is_earlier).filter(|_| !node.is_initialized)
    }

    pub(super) fn record(&self, vm: &VmKey) -> Option<&VmRecord> {
        self.vcenters.get(&vm.vcenter)?.snapshot.vms.get(&vm.id).map(Arc::as_ref)
    }

    /// Returns the bound VM; `None` if the VM left the inventory, or if its id now belongs to another VM. Ids are valid
    /// only in one vCenter, and another vCenter may answer at the same address.
    fn bound_machine<'a>(&'a self, tracked: &'a NodeEntry) -> Option<(&'a VmKey, &'a Arc<Snapshot>, &'a VmRecord)> {
        let Binding { vm, uuid, instance_uuid, .. } = tracked.bound.as_ref()?;
        let observed = &self.vcenters.get(&vm.vcenter)?.snapshot;
        let record = observed.vms.get(&vm.id)?;
        let is_same_vcenter = instance_uuid.as_ref() == Some(&observed.instance_uuid);
        let is_same_uuid = uuid.is_none() || record.bios_uuid.is_none() || *uuid == record.bios_uuid;
        (is_same_vcenter && is_same_uuid).then_some((vm, observed, record))
    }

    fn bound_vm(&self, tracked: &NodeEntry) -> Option<BoundVm> {
        let (vm, snapshot, record) = self.bound_machine(tracked)?;
        let found_by = tracked.bound.as_ref()?.found_by();
        let server = self.rules.servers.get(&vm.vcenter).map(String::as_str).unwrap_or_default();
        let topology_labels = labels(&self.rules.topology, server, snapshot, record);
        let earlier_name = self.earlier_name(&tracked.facts, vm).cloned();
        let shared: Vec<IpAddr> = self.shared_addresses.of(&tracked.facts.name).collect();
        let addressed_for = tracked.addressed_since.map_or(Duration::ZERO, |since| since.elapsed());
        let beside = AddressContext { shared_addresses: &shared, addressed_for };
        let power = snapshot.power.get(&vm.id).copied().ok_or_else(|| {
            let message = format!("vCenter does not hear from {} or from its host, or may not say", vm.id);
            Unknown::new(reason::PowerStateUnknown, message)
        });
        let addresses: BTreeSet<IpAddr> =
            candidate_ips(&self.rules.nics(&tracked.facts, record)).map(|ip| ip.to_canonical()).collect();
        Some(BoundVm {
            vcenter: vm.vcenter,
            location: Arc::clone(&tracked.last_observation.as_ref()?.location),
            uuid: record.bios_uuid.clone(),
            addresses: addresses.into_iter().collect(),
            metadata: describe(&tracked.facts, snapshot, vm, record, &self.rules, beside)
                .map(|metadata| InstanceMetadata { found_by, topology_labels, earlier_name, ..metadata })
                .into(),
            power: power.into(),
            is_live: snapshot.freshness == Freshness::Live,
        })
    }

    /// Returns how the VM was found. The UUID identifies the VM if there is no other match. A match by the recorded id
    /// counts as a match by UUID only if the VM reports the Node's UUID.
    fn found_by(&self, tracked: &NodeEntry, vm: &VmKey) -> FoundBy {
        if tracked.facts.has_provider_id {
            return FoundBy::ProviderId;
        }
        if matches!(tracked.answer_at(vm.vcenter), SearchAnswer::Matches { query: SearchKey::Name, .. }) {
            return FoundBy::Name;
        }
        let uuid = self.record(vm).and_then(|record| record.bios_uuid.as_ref());
        let has_uuid = tracked.facts.reported_uuid().zip(uuid).is_some_and(|(queried, own)| queried.is_same(own));
        let is_alone = tracked.needs().iter().all(|other| self.is_same(other, vm));
        if has_uuid && is_alone { FoundBy::SystemUuid } else { FoundBy::SystemUuidAmongSeveral }
    }

    /// Returns true if both keys are the same VM. Two keys of one VM exist if a vCenter is configured twice.
    fn is_same(&self, one: &VmKey, other: &VmKey) -> bool {
        let instance_uuid = |vm: &VmKey| self.vcenters.get(&vm.vcenter).map(|held| &*held.snapshot.instance_uuid);
        let (here, there) = (instance_uuid(one), instance_uuid(other));
        let is_same_vcenter =
            one.vcenter == other.vcenter || here == there && here.is_some_and(|uuid| !uuid.is_empty());
        one.id == other.id && is_same_vcenter
    }

    /// Watches the bound VM again if a search does not find it. vCenter may have failed to report the removal of the
    /// VM. Adding the VM to the ListView again makes vCenter report whether the VM exists.
    pub(super) fn rewatch_if_missed(&self, tracked: &NodeEntry, vcenter: VcenterId, answer: &SearchAnswer) {
        let Some(bound) = tracked.vm().filter(|bound| bound.vcenter == vcenter) else { return };
        let is_missed = match answer {
            SearchAnswer::Gone(id) => *id == bound.id,
            SearchAnswer::Elsewhere(_) => true,
            SearchAnswer::Matches { ids, .. } => !ids.contains(&bound.id),
            SearchAnswer::Pending
            | SearchAnswer::Silent(_)
            | SearchAnswer::Denied(_)
            | SearchAnswer::Changed { .. } => false,
        };
        if let Some(held) = self.vcenters.get(&vcenter).filter(|_| is_missed) {
            debug!(node = tracked.facts.name, vm = &*bound.id, "a search does not find the node's VM");
            held.source.vcenter.rewatch(std::slice::from_ref(&bound.id));
        }
    }

    /// Reports the twins that a search after the binding finds. Removes the vCenter from `unqueried` if it answered.
    pub(super) fn report_duplicate(&mut self, name: &str, vcenter: VcenterId, answer: &SearchAnswer) {
        let Some(held) = self.vcenters.get(&vcenter) else { return };
        let Some(bound) = self.nodes.get(name).and_then(|tracked| tracked.vm()) else { return };
        let is_bound = |id: &Arc<str>| self.is_same(&VmKey { vcenter, id: id.clone() }, bound);
        let ids = if let SearchAnswer::Matches { query: SearchKey::Uuid, ids } = answer { ids.as_slice() } else { &[] };
        let server = held.source.vcenter.server();
        let duplicates: Vec<String> = ids
            .iter()
            .filter(|id| !is_bound(id))
            .map(|id| format!("VM {id} on vCenter {server} has the Node's UUID, too; VM {} is used", bound.id))
            .collect();
        self.update(name, |tracked| {
            let Some(bound) = &mut tracked.bound else { return };
            bound.unqueried.retain(|unqueried| *unqueried != vcenter || !answer.is_answered());
            if !duplicates.is_empty() && bound.found_by == FoundBy::SystemUuid {
                bound.found_by = FoundBy::SystemUuidAmongSeveral;
            }
        });
        self.report_duplicates(name, vcenter, &duplicates);
    }

    /// Logs twins once, not at every recheck.
    fn report_duplicates(&mut self, name: &str, vcenter: VcenterId, duplicates: &[String]) {
        let mut is_news = false;
        self.update(name, |tracked| is_news = tracked.record_duplicates(vcenter, duplicates));
        for message in duplicates.iter().filter(|_| is_news) {
            warn!(node = name, message, "several virtual machines have the node's UUID");
        }
    }
}

/// Returns the deadline for the report of a match watched since `since`, if vCenter last reported at `reported`.
fn end_of_reading(since: Instant, reported: Option<Instant>) -> Instant {
    let from = reported.map_or(since, |reported| reported.max(since));
    (from + READING_LIMIT).min(since + LONGEST_READING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_has_longer_while_vcenter_reports_other_things() {
        let since = Instant::now();
        let at = |seconds| since + Duration::from_secs(seconds);
        let earlier = since - Duration::from_secs(5);
        for (reported, end) in [
            (None, 10),
            (Some(earlier), 10),
            (Some(at(4)), 14),
            (Some(at(49)), 59),
            (Some(at(51)), 60),
            (Some(at(90)), 60),
        ] {
            assert_eq!(end_of_reading(since, reported), at(end), "{reported:?}");
        }
    }
}
