//! The tracker's state for one Node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::facts::NodeFacts;
use super::instance_cache::LookupInputs;
use super::resolution::{SILENT_VCENTER_WAIT, SearchAnswer};
use crate::base::backoff::Failures;
use crate::cloud::{FoundBy, Unknown};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::nodes::absence::last_place::{LastObservation, LastPlaces, last_places};
use crate::providers::vsphere::nodes::absence::location::Location;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::snapshot::{Freshness, Snapshot};
use crate::providers::vsphere::vcenter::{VcenterId, VmKey};

/// Recheck period for the bound VM of a NotReady Node, unless the VM is proved to run.
const RECHECK_PERIOD: Duration = Duration::from_secs(60);
/// Recheck period while the VM runs. It is longer, because a removal goes unnoticed only if vCenter fails to report
/// both the stop and the removal of the VM.
const RUNNING_RECHECK_PERIOD: Duration = Duration::from_secs(600);
/// Minimum recheck period for each other Node that is rechecked. So all rechecked Nodes together cause about two
/// rechecks a second at most.
const RECHECK_SHARE: Duration = Duration::from_millis(500);
/// Minimum pause between rechecks of a Node that repeatedly becomes ready and NotReady.
const NEXT_RECHECK: Duration = Duration::from_secs(10);

/// The binding of a VM to its Node. `uuid` and `instance_uuid` are those at the time of binding.
pub(super) struct Binding {
    pub(super) vm: VmKey,
    pub(super) uuid: Option<BiosUuid>,
    pub(super) instance_uuid: Option<Arc<str>>,
    pub(super) found_by: FoundBy,
    /// vCenters that had not answered when the VM was bound, or were configured later. They are searched for twins once
    /// they are live.
    pub(super) unqueried: Vec<VcenterId>,
}

impl Binding {
    /// Returns how the VM was matched. While a vCenter has not answered, another VM may have the same UUID.
    pub(super) fn found_by(&self) -> FoundBy {
        match self.found_by {
            FoundBy::SystemUuid if !self.unqueried.is_empty() => FoundBy::SystemUuidAmongSeveral,
            known => known,
        }
    }
}

#[derive(Default)]
pub(super) struct NodeEntry {
    /// The processed `metadata.resourceVersion` of the Node. The Node itself is not stored, because it is several times
    /// as large as this entry.
    pub(super) version: Option<String>,
    pub(super) facts: NodeFacts,
    pub(super) asked_by_name: bool,
    /// Answers of the vCenters. A vCenter without an entry was not asked yet, or its answer is in flight.
    pub(super) answers: BTreeMap<VcenterId, SearchAnswer>,
    pub(super) first_match: Option<Instant>,
    /// Time since which a match is watched without a report from vCenter.
    pub(super) reading_since: Option<Instant>,
    pub(super) bound: Option<Binding>,
    /// The inputs of the last decision about the VM.
    pub(super) inputs: Option<Arc<LookupInputs>>,
    pub(super) pauses: Failures,
    pub(super) search_at: Option<Instant>,
    pub(super) decide_at: Option<Instant>,
    /// Time of the next recheck of the VM of a NotReady Node.
    pub(super) recheck_at: Option<Instant>,
    /// Time of the last recheck.
    pub(super) rechecked_at: Option<Instant>,
    /// The last reported twins, by vCenter.
    pub(super) duplicates: BTreeMap<VcenterId, Vec<String>>,
    pub(super) is_running: bool,
    /// The VM that was bound when its vCenter was removed from the configuration.
    pub(super) removed_vcenter: Option<Box<RemovedVcenter>>,
    /// The last observation of the VM by this process. Kept when the VM is gone.
    pub(super) last_observation: Option<LastObservation>,
    /// The live period of the snapshots in which the VM was last seen. `None` if the snapshot was not live, or if the
    /// VM may have moved since without a report.
    pub(super) live_period: Option<u64>,
    /// Time since which the guest has an address. Kept when the VM is gone.
    pub(super) addressed_since: Option<Instant>,
}

/// A VM in a vCenter that was removed from the configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RemovedVcenter {
    pub(super) vm: String,
    pub(super) server: String,
    /// The file that no longer names the vCenter.
    pub(super) file: String,
}

impl RemovedVcenter {
    /// Returns the reason why the existence of the VM is unknown: answers of other vCenters prove nothing about the VM.
    pub(super) fn unknown(&self, elsewhere: &Unknown) -> Unknown {
        let Self { vm, server, file } = self;
        let message = format!(
            "VM {vm} of the Node is on vCenter {server}, which {file} no longer names; elsewhere: {}",
            elsewhere.message
        );
        Unknown::new(reason::VCenterNotConfigured, message)
    }
}

impl NodeEntry {
    pub(super) fn new(version: Option<String>, facts: NodeFacts) -> Self {
        Self {
            asked_by_name: facts.search_uuid().is_none() && !facts.has_provider_id,
            version,
            facts,
            ..Self::default()
        }
    }

    pub(super) fn restart_lookup(&mut self) {
        let (version, facts) = (self.version.take(), std::mem::take(&mut self.facts));
        let (last_observation, addressed_since) = (self.last_observation.take(), self.addressed_since);
        *self = Self { last_observation, addressed_since, ..Self::new(version, facts) };
    }

    /// Restarts the search for a VM that left the inventory while it was watched. Keeps the live period for
    /// [`NodeEntry::record_end`].
    pub(super) fn unbind(&mut self) {
        let live_period = self.live_period;
        self.restart_lookup();
        self.live_period = live_period;
    }

    pub(super) fn bind(&mut self, binding: Binding) {
        self.bound = Some(binding);
        self.answers.clear();
        self.removed_vcenter = None;
        self.decide_at = None;
        self.pauses.reset();
    }

    pub(super) fn take_answer(&mut self, vcenter: VcenterId, snapshot: &Snapshot, answer: SearchAnswer) {
        self.record_end(snapshot, &answer);
        let known = self.answers.entry(vcenter).or_default();
        let before = std::mem::replace(known, answer);
        if let SearchAnswer::Matches { ids, .. } = known
            && !ids.is_empty()
        {
            let is_news = |id: &Arc<str>| !matches!(&before, SearchAnswer::Matches { ids, .. } if ids.contains(id));
            if self.first_match.is_none() || ids.iter().any(is_news) {
                self.first_match = Some(Instant::now());
            }
        }
    }

    pub(super) fn record_location(&mut self, location: Location, snapshot: &Snapshot) {
        let is_live = snapshot.freshness == Freshness::Live;
        self.live_period = snapshot.live_period.filter(|_| is_live);
        let before = self.last_observation.take();
        let recorded = match &before {
            _ if is_live => self.facts.recorded.clone(),
            // Without a live snapshot, the present record may be newer than this observation.
            before => before.as_ref().and_then(|before| before.recorded.clone()),
        };
        // Keeps the allocation if the location is the same.
        let same = before.map(|before| before.location).filter(|known| **known == location);
        let location = same.unwrap_or_else(|| Arc::new(location));
        self.last_observation = Some(LastObservation { location, recorded, is_watched_to_end: false });
    }

    /// Processes a vCenter's answer about a VM that left the inventory. A VM also leaves when the account cannot read
    /// it any more, and can then move without a report. So the VM was watched to its end only if the first answer is
    /// that the VM does not exist, and if this answer comes in the live period in which the VM was seen.
    pub(super) fn record_end(&mut self, snapshot: &Snapshot, answer: &SearchAnswer) {
        let Some(last_observation) =
            self.last_observation.as_mut().filter(|observed| *observed.location.vcenter == *snapshot.instance_uuid)
        else {
            return;
        };
        let is_there = match answer {
            SearchAnswer::Pending => return,
            SearchAnswer::Gone(id) if *id == last_observation.location.vm => {
                let is_watched = snapshot.freshness == Freshness::Live
                    && self.live_period.is_some()
                    && self.live_period == snapshot.live_period;
                last_observation.is_watched_to_end |= is_watched;
                return;
            }
            SearchAnswer::Denied(_) | SearchAnswer::Changed { .. } => true,
            SearchAnswer::Matches { ids, .. } => !ids.is_empty(),
            SearchAnswer::Silent(_) | SearchAnswer::Gone(_) | SearchAnswer::Elsewhere(_) => false,
        };
        last_observation.is_watched_to_end &= !is_there;
        self.live_period = None;
    }

    /// Returns true if this version of the Node was processed. A Node without a version always counts as new.
    pub(super) fn has_seen(&self, node: &Node) -> bool {
        let is_same_version = self.version.is_some() && self.version == node.metadata.resource_version;
        is_same_version && *self.facts.uid == *node.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Shares one allocation of equal locations, because nearly every Node records the location that this process
    /// observes.
    pub(super) fn share_location(&mut self) {
        let Some(last_observation) = &mut self.last_observation else { return };
        if self.facts.recorded.as_ref() == Some(&last_observation.location) {
            self.facts.recorded = Some(Arc::clone(&last_observation.location));
        }
        if last_observation.recorded == self.facts.recorded {
            last_observation.recorded.clone_from(&self.facts.recorded);
        }
    }

    pub(super) fn last_places(&self) -> LastPlaces {
        last_places(self.last_observation.as_ref(), self.facts.recorded.clone())
    }

    pub(super) fn vm(&self) -> Option<&VmKey> {
        self.bound.as_ref().map(|bound| &bound.vm)
    }

    pub(super) fn answer_at(&self, vcenter: VcenterId) -> &SearchAnswer {
        self.answers.get(&vcenter).unwrap_or(&SearchAnswer::Pending)
    }

    /// Stores the twins of this vCenter. Returns true if there are twins, and they differ from the twins reported last.
    pub(super) fn record_duplicates(&mut self, vcenter: VcenterId, duplicates: &[String]) -> bool {
        let is_news =
            !duplicates.is_empty() && self.duplicates.get(&vcenter).is_none_or(|reported| reported != duplicates);
        if is_news {
            self.duplicates.insert(vcenter, duplicates.to_vec());
        }
        is_news
    }

    /// Returns the VMs in this vCenter: the bound VM or, without a bound VM, the matches.
    pub(super) fn ids_at(&self, vcenter: VcenterId) -> impl Iterator<Item = &Arc<str>> {
        let bound = self.vm().filter(|vm| vm.vcenter == vcenter).map(|vm| &vm.id);
        let matched = match (self.bound.is_none(), self.answers.get(&vcenter)) {
            (true, Some(SearchAnswer::Matches { ids, .. })) => ids.as_slice(),
            _ => &[],
        };
        bound.into_iter().chain(matched)
    }

    /// Returns the bound VM or, without a bound VM, the matches in all vCenters, sorted.
    pub(super) fn needs(&self) -> Vec<VmKey> {
        if let Some(vm) = self.vm() {
            return vec![vm.clone()];
        }
        let slots = self.answers.keys().copied();
        let mut needs: Vec<VmKey> =
            slots.flat_map(|vcenter| self.ids_at(vcenter).map(move |id| VmKey { vcenter, id: id.clone() })).collect();
        needs.sort();
        needs.dedup();
        needs
    }

    /// Schedules a recheck of the VM of a NotReady Node: a twin may run instead, and vCenter may have failed to report
    /// the removal of the VM. `has_changed` means that the Node may just have become NotReady. `others` is the number
    /// of other rechecked Nodes.
    pub(super) fn schedule_recheck(&mut self, now: Instant, has_changed: bool, others: u32) {
        self.recheck_at = match (self.bound.is_some() && self.facts.is_not_ready, self.recheck_at) {
            (false, _) => None,
            (true, None) if has_changed => Some(self.rechecked_at.map_or(now, |looked| now.max(looked + NEXT_RECHECK))),
            (true, None) => {
                let period = if self.is_running { RUNNING_RECHECK_PERIOD } else { RECHECK_PERIOD };
                Some(now + period.max(RECHECK_SHARE.saturating_mul(others)))
            }
            (true, planned) => planned,
        };
    }

    /// Returns the end of the wait for silent vCenters, when a decision is due; `None` after the wait or without a
    /// match.
    pub(super) fn end_of_silent_wait(&self, now: Instant) -> Option<Instant> {
        self.first_match.map(|at| at + SILENT_VCENTER_WAIT).filter(|end| *end > now)
    }

    /// Returns the end of an uninitialized Node's wait for address families that its guest does not report.
    pub(super) fn end_of_family_wait(&self, wait: Duration, now: Instant) -> Option<Instant> {
        self.addressed_since.filter(|_| !self.facts.is_initialized).map(|at| at + wait).filter(|end| *end > now)
    }
}

/// The next search after a decision.
#[derive(Debug, PartialEq)]
pub(super) enum NextSearch {
    /// No search is needed.
    None,
    /// Search in every vCenter now, without a pause.
    Now,
    /// Search after a pause. Until then, the VM is unknown for this reason.
    Later(Unknown),
    /// Search after a pause. Every vCenter answered, and none has a VM that matches the Node.
    NoMatch(Unknown),
    /// No search: an answer or report is in flight, or the Node has a malformed provider ID.
    Waiting(Unknown),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::vsphere::nodes::lookup::resolution::SearchKey;
    use crate::providers::vsphere::vcenter::snapshot::VcenterFailure;

    #[test]
    fn the_machine_of_a_node_that_ceases_to_be_ready_is_looked_at_soon_and_then_once_a_minute() {
        let mut tracked = NodeEntry::new(None, NodeFacts::default());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        tracked.facts.is_not_ready = true;
        tracked.schedule_recheck(start, true, 0);
        assert_eq!(tracked.recheck_at, None, "no machine is known");
        let vm = VmKey { vcenter: 0.into(), id: "vm-1".into() };
        let (uuid, instance_uuid, found_by, unasked) = (None, None, FoundBy::Name, Vec::new());
        tracked.bound = Some(Binding { vm, uuid, instance_uuid, found_by, unqueried: unasked });
        tracked.schedule_recheck(start, false, 0);
        assert_eq!(tracked.recheck_at, Some(at(60)), "it was found just now");
        tracked.facts.is_not_ready = false;
        tracked.schedule_recheck(at(1), true, 0);
        assert_eq!(tracked.recheck_at, None, "a ready node is not looked after");
        tracked.facts.is_not_ready = true;
        tracked.schedule_recheck(at(2), true, 0);
        assert_eq!(tracked.recheck_at, Some(at(2)), "at once");
        tracked.schedule_recheck(at(2), false, 0);
        assert_eq!(tracked.recheck_at, Some(at(2)), "a plan stays");
        (tracked.recheck_at, tracked.rechecked_at) = (None, Some(at(3)));
        tracked.schedule_recheck(at(4), true, 0);
        assert_eq!(tracked.recheck_at, Some(at(13)), "a node that flaps is looked after less often");
        for (is_running, others, expected) in
            [(false, 119, 60), (false, 1_000, 500), (true, 0, 600), (true, 5_000, 2_500)]
        {
            (tracked.recheck_at, tracked.is_running) = (None, is_running);
            tracked.schedule_recheck(start, false, others);
            assert_eq!(tracked.recheck_at, Some(at(expected)), "running {is_running}, {others} others");
        }
    }

    /// Returns the entry of a Node. Its VM was seen in live period 3 and then left the inventory.
    fn left() -> NodeEntry {
        let mut tracked = NodeEntry::new(None, NodeFacts::default());
        tracked.record_location(location(), &snapshot(Freshness::Live, Some(3)));
        tracked.addressed_since = Some(Instant::now());
        tracked.unbind();
        tracked
    }

    fn location() -> Location {
        Location { vcenter: "vc".into(), vm: "vm-1".into(), ..Location::default() }
    }

    fn snapshot(freshness: Freshness, live_period: Option<u64>) -> Snapshot {
        Snapshot { freshness, live_period, instance_uuid: "vc".into(), ..Snapshot::default() }
    }

    #[test]
    fn a_vm_was_watched_to_its_end_if_the_first_answer_in_its_live_period_is_that_it_is_gone() {
        let gone = |id: &str| SearchAnswer::Gone(id.into());
        let denied = || SearchAnswer::Denied(String::new());
        let silent = || SearchAnswer::Silent(String::new());
        let matches = |ids: &[&str]| SearchAnswer::Matches {
            query: SearchKey::Uuid,
            ids: ids.iter().map(|id| (*id).into()).collect(),
        };
        let changed = || SearchAnswer::Changed {
            id: "vm-1".into(),
            uuid: "422e4956-ad22-1139-6d72-59cc8f26bc90".parse().unwrap(),
        };
        let elsewhere = || SearchAnswer::Elsewhere(vec!["vm-2".into()]);
        let live = |period| snapshot(Freshness::Live, Some(period));
        let stale = snapshot(
            Freshness::Stale { since: std::time::Instant::now(), failure: VcenterFailure::unavailable("down") },
            Some(3),
        );
        let other = Snapshot { instance_uuid: "other".into(), ..live(3) };
        let cases = [
            ("no answer", vec![], false),
            ("gone", vec![(live(3), gone("vm-1"))], true),
            ("under way, then gone", vec![(live(3), SearchAnswer::Pending), (live(3), gone("vm-1"))], true),
            ("gone, in another period", vec![(live(4), gone("vm-1"))], false),
            ("gone, while a subscription begins", vec![(snapshot(Freshness::Live, None), gone("vm-1"))], false),
            ("gone, and not live", vec![(stale, gone("vm-1"))], false),
            ("another VM is gone", vec![(live(3), gone("vm-2"))], false),
            ("another vCenter", vec![(other.clone(), gone("vm-1"))], false),
            ("another vCenter before", vec![(other, denied()), (live(3), gone("vm-1"))], true),
            ("denied", vec![(live(3), denied())], false),
            ("denied, then gone", vec![(live(3), denied()), (live(3), gone("vm-1"))], false),
            ("no answer, then gone", vec![(live(3), silent()), (live(3), gone("vm-1"))], false),
            ("there, then gone", vec![(live(3), matches(&["vm-1"])), (live(3), gone("vm-1"))], false),
            ("elsewhere, then gone", vec![(live(3), elsewhere()), (live(3), gone("vm-1"))], false),
            ("gone, then silent", vec![(live(3), gone("vm-1")), (live(4), silent())], true),
            ("gone, then no match", vec![(live(3), gone("vm-1")), (live(4), matches(&[]))], true),
            ("gone, then there", vec![(live(3), gone("vm-1")), (live(3), matches(&["vm-1"]))], false),
            ("gone, then denied", vec![(live(3), gone("vm-1")), (live(3), denied())], false),
            ("gone, then with another UUID", vec![(live(3), gone("vm-1")), (live(3), changed())], false),
        ];
        for (case, answers, expected) in cases {
            let mut tracked = left();
            for (snapshot, answer) in answers {
                tracked.record_end(&snapshot, &answer);
            }
            assert_eq!(tracked.last_observation.unwrap().is_watched_to_end, expected, "{case}");
        }
    }

    #[test]
    fn a_vm_that_was_not_seen_live_or_is_seen_again_was_not_watched_to_its_end() {
        let gone = SearchAnswer::Gone("vm-1".into());
        let trouble = VcenterFailure::unavailable("down");
        let stale = Freshness::Stale { since: std::time::Instant::now(), failure: trouble };
        for (case, observed) in
            [("while a subscription began", snapshot(Freshness::Live, None)), ("stale", snapshot(stale, Some(3)))]
        {
            let mut tracked = left();
            tracked.record_location(location(), &observed);
            tracked.unbind();
            tracked.record_end(&snapshot(Freshness::Live, Some(3)), &gone);
            tracked.record_end(&snapshot(Freshness::Live, None), &gone);
            assert!(!tracked.last_observation.unwrap().is_watched_to_end, "{case}");
        }
        let mut tracked = left();
        tracked.record_end(&snapshot(Freshness::Live, Some(3)), &gone);
        tracked.record_location(location(), &snapshot(Freshness::Live, Some(4)));
        assert!(!tracked.last_observation.unwrap().is_watched_to_end, "it is there again");
    }

    #[test]
    fn what_is_known_of_where_a_vm_was_and_since_when_it_had_an_address_outlives_its_look_up() {
        let mut tracked = left();
        let last_observation = tracked.last_observation.clone().expect("where it was seen");
        assert_eq!((&*last_observation.location.vm, tracked.live_period), ("vm-1", Some(3)));
        assert!(tracked.addressed_since.is_some(), "the wait for further address families goes on");
        tracked.restart_lookup();
        assert!(tracked.last_observation.is_some() && tracked.addressed_since.is_some());
        assert_eq!(tracked.live_period, None, "a machine that is not watched any more may move without a report");
    }

    #[test]
    fn the_twins_at_each_vcenter_are_told_of_once() {
        let mut tracked = NodeEntry::new(None, NodeFacts::default());
        let mut is_news = |vcenter: u64, duplicates: &[&str]| {
            let twins: Vec<String> = duplicates.iter().map(ToString::to_string).collect();
            tracked.record_duplicates(vcenter.into(), &twins)
        };
        assert_eq!([is_news(0, &["a"]), is_news(1, &["b"])], [true, true]);
        assert_eq!([is_news(0, &["a"]), is_news(1, &["b"])], [false, false], "at the next look");
        assert_eq!([is_news(0, &[]), is_news(0, &["a", "c"])], [false, true]);
    }

    #[test]
    fn a_wait_that_is_over_is_not_waited_for_again() {
        let mut tracked = NodeEntry::new(None, NodeFacts::default());
        let start = Instant::now();
        assert_eq!(tracked.end_of_silent_wait(start), None, "nothing was found yet");
        tracked.first_match = Some(start);
        let end = start + SILENT_VCENTER_WAIT;
        assert_eq!(tracked.end_of_silent_wait(start), Some(end));
        assert_eq!(tracked.end_of_silent_wait(end), None);
    }
}
