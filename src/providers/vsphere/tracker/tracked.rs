//! What the tracker holds for one node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::resolve::{Answer, NodeFacts, SILENT_VCENTER_WAIT, VmKey};
use super::slots::Slot;
use crate::cloud::node::is_control_plane;
use crate::cloud::{FoundBy, Reason, Unknown};
use crate::providers::vsphere::inventory::snapshot::{Freshness, Snapshot};
use crate::providers::vsphere::last_place::{LastPlaces, Sighting, last_places};
use crate::providers::vsphere::location::Location;
use crate::providers::vsphere::provider_id::BiosUuid;

/// How often the machine of a node that is not ready is looked for while it is known, and not known to run.
const LOOK_PERIOD: Duration = Duration::from_secs(60);
/// While it is known to run, vCenter would have to lose two announcements: that it stopped, and that it went.
const RUNNING_LOOK_PERIOD: Duration = Duration::from_secs(600);
/// What a look adds to the period of all, so that many nodes that are not ready together cost two looks a second.
const LOOK_SHARE: Duration = Duration::from_millis(500);
/// How soon it may be looked for again when the node was ready in between.
const NEXT_LOOK: Duration = Duration::from_secs(10);

/// What is known of one node.
pub(super) struct Tracked {
    pub(super) seen: Seen,
    pub(super) facts: NodeFacts,
    pub(super) asked_by_name: bool,
    /// What the vCenters answered; one that has no answer here was not asked yet, or its answer is under way.
    pub(super) answers: BTreeMap<Slot, Answer>,
    pub(super) first_match: Option<Instant>,
    /// Since when a match was waited for that is watched and not reported yet.
    pub(super) reading_since: Option<Instant>,
    pub(super) bound: Option<VmKey>,
    /// The BIOS UUID of the machine when it was bound.
    pub(super) bound_uuid: Option<BiosUuid>,
    /// The instance UUID of its vCenter then.
    pub(super) bound_at: Option<Arc<str>>,
    /// What spoke for the machine when it was bound.
    pub(super) found_by: FoundBy,
    pub(super) pauses: u32,
    pub(super) search_at: Option<Instant>,
    pub(super) decide_at: Option<Instant>,
    /// When the machine of a node that is not ready is looked at again, and when it was last.
    pub(super) look_at: Option<Instant>,
    pub(super) looked: Option<Instant>,
    /// The twins that were told of last, by the vCenter that has them.
    pub(super) twins: BTreeMap<Slot, Vec<String>>,
    /// Whether the bound machine is known to run.
    pub(super) is_running: bool,
    /// The vCenters that had not answered when the machine was bound. They are asked when they come back, so that a
    /// twin there is told of.
    pub(super) unasked: Vec<Slot>,
    /// The machine the node had when its vCenter was taken out of the configuration.
    pub(super) lost: Option<Box<Lost>>,
    /// Where this process saw the machine last; it outlives the machine.
    pub(super) sighting: Option<Sighting>,
    /// The period of its vCenter's snapshots in which it was seen; none if that was not live.
    pub(super) live_period: Option<u64>,
    /// Since when this process knows an address of the guest; it outlives the machine, too.
    pub(super) addressed_since: Option<Instant>,
}

/// Which version of a Node was looked at. Not the Node: it is several times as large as all that is held here.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    version: Option<String>,
    pub(super) is_control_plane: bool,
}

impl Seen {
    pub(super) fn of(node: &Node) -> Self {
        let Node { metadata, .. } = node;
        Self { version: metadata.resource_version.clone(), is_control_plane: is_control_plane(node) }
    }
}

/// A machine at a vCenter that is not configured any more.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lost {
    pub(super) vm: String,
    pub(super) server: String,
    /// The file that does not name the vCenter.
    pub(super) file: String,
}

impl Lost {
    /// Nothing may be concluded from what the other vCenters say.
    pub(super) fn unknown(&self, elsewhere: &Unknown) -> Unknown {
        let Self { vm, server, file } = self;
        let message = format!(
            "the node's virtual machine {vm} is on vCenter {server}, which {file} does not name any more; elsewhere: {}",
            elsewhere.message
        );
        Unknown::new(Reason::VCenterNotConfigured, message)
    }
}

impl Tracked {
    /// A node that was just seen.
    pub(super) fn new(seen: Seen, facts: NodeFacts) -> Self {
        Self {
            asked_by_name: facts.search_uuid().is_none() && !facts.has_provider_id,
            seen,
            facts,
            answers: BTreeMap::new(),
            first_match: None,
            reading_since: None,
            bound: None,
            bound_uuid: None,
            bound_at: None,
            found_by: FoundBy::default(),
            pauses: 0,
            search_at: None,
            decide_at: None,
            look_at: None,
            looked: None,
            twins: BTreeMap::new(),
            is_running: false,
            unasked: Vec::new(),
            lost: None,
            sighting: None,
            live_period: None,
            addressed_since: None,
        }
    }

    /// The same node, whose machine has to be looked for anew.
    pub(super) fn anew(self) -> Self {
        let Self { sighting, addressed_since, .. } = self;
        Self { sighting, addressed_since, ..Self::new(self.seen, self.facts) }
    }

    /// The machine is here, as this snapshot says.
    pub(super) fn see(&mut self, location: Location, snapshot: &Snapshot) {
        let is_live = snapshot.freshness == Freshness::Live;
        self.live_period = is_live.then_some(snapshot.live_period);
        let before = self.sighting.take();
        let recorded = match &before {
            _ if is_live => self.facts.recorded.clone(),
            // What was recorded since then may be newer.
            before => before.as_ref().and_then(|before| before.recorded.clone()),
        };
        // The same place stays the same allocation.
        let same = before.map(|before| before.location).filter(|known| **known == location);
        let location = same.unwrap_or_else(|| Arc::new(location));
        self.sighting = Some(Sighting { location, recorded, is_watched_to_end: false });
    }

    /// The bound machine is not in this snapshot any more: whether everything was told until it left.
    pub(super) fn was_watched_to_end(&self, snapshot: &Snapshot) -> bool {
        let Some(bound) = &self.bound else { return false };
        snapshot.freshness == Freshness::Live
            && self.live_period == Some(snapshot.live_period)
            && !snapshot.vms.contains_key(&bound.id)
    }

    /// A vCenter with this instance UUID said this of the machine. What may not be seen any more has left without an end,
    /// and so has what is there in another form.
    pub(super) fn note_end(&mut self, instance_uuid: &str, answer: &Answer) {
        let is_there = match answer {
            Answer::Denied { .. } | Answer::Changed { .. } => true,
            Answer::Matches { ids, .. } => !ids.is_empty(),
            Answer::Pending | Answer::Silent { .. } | Answer::Gone { .. } | Answer::Elsewhere { .. } => false,
        };
        if let Some(sighting) =
            self.sighting.as_mut().filter(|seen| *seen.location.vcenter == *instance_uuid && is_there)
        {
            sighting.is_watched_to_end = false;
        }
    }

    /// Whether this version of the node was looked at. One without a version is always another.
    pub(super) fn has_seen(&self, node: &Node) -> bool {
        let is_same_version = self.seen.version.is_some() && self.seen.version == node.metadata.resource_version;
        is_same_version && *self.facts.uid == *node.metadata.uid.as_deref().unwrap_or_default()
    }

    /// A node nearly always records its machine where this process sees it: that is held once.
    pub(super) fn share_location(&mut self) {
        let Some(sighting) = &mut self.sighting else { return };
        if self.facts.recorded.as_ref() == Some(&sighting.location) {
            self.facts.recorded = Some(Arc::clone(&sighting.location));
        }
        if sighting.recorded == self.facts.recorded {
            sighting.recorded.clone_from(&self.facts.recorded);
        }
    }

    /// Where the machine was last known to be.
    pub(super) fn last_places(&self) -> LastPlaces {
        last_places(self.sighting.as_ref(), self.facts.recorded.clone())
    }

    /// What spoke for the bound machine, as far as it is known by now. Where a vCenter has not answered yet, another
    /// machine may have the UUID, too.
    pub(super) fn found_by(&self) -> FoundBy {
        match self.found_by {
            FoundBy::SystemUuid if !self.unasked.is_empty() => FoundBy::SystemUuidAmongSeveral,
            known => known,
        }
    }

    /// What this vCenter answered.
    pub(super) fn answer_at(&self, vcenter: Slot) -> &Answer {
        self.answers.get(&vcenter).unwrap_or(&Answer::Pending)
    }

    /// Takes down what is told of the twins at this vCenter. True if that is news: each vCenter has its own.
    pub(super) fn note_twins(&mut self, vcenter: Slot, twins: &[String]) -> bool {
        let is_news = !twins.is_empty() && self.twins.get(&vcenter).is_none_or(|told| told != twins);
        if is_news {
            self.twins.insert(vcenter, twins.to_vec());
        }
        is_news
    }

    /// The machines that answers name, or that is bound, at this vCenter.
    pub(super) fn ids_at(&self, vcenter: Slot) -> impl Iterator<Item = &Arc<str>> {
        let bound = self.bound.as_ref().filter(|vm| vm.vcenter == vcenter).map(|vm| &vm.id);
        let matched = match (self.bound.is_none(), self.answers.get(&vcenter)) {
            (true, Some(Answer::Matches { ids, .. })) => ids.as_slice(),
            _ => &[],
        };
        bound.into_iter().chain(matched)
    }

    /// All of them, at every vCenter, in order.
    pub(super) fn needs(&self) -> Vec<VmKey> {
        if let Some(vm) = &self.bound {
            return vec![vm.clone()];
        }
        let slots = self.answers.keys().copied();
        let mut needs: Vec<VmKey> =
            slots.flat_map(|vcenter| self.ids_at(vcenter).map(move |id| VmKey { vcenter, id: id.clone() })).collect();
        needs.sort();
        needs.dedup();
        needs
    }

    /// The machine of a node that is not ready is looked for again, now and then: another one may run in its place, and
    /// vCenter may have kept to itself that it is gone. `now` is when the node may just have ceased to be ready; `others`
    /// are looked for as well.
    pub(super) fn plan_look(&mut self, now: Instant, has_changed: bool, others: impl FnOnce() -> u32) {
        self.look_at = match (self.bound.is_some() && self.facts.is_not_ready, self.look_at) {
            (false, _) => None,
            (true, None) if has_changed => Some(self.looked.map_or(now, |looked| now.max(looked + NEXT_LOOK))),
            (true, None) => {
                let period = if self.is_running { RUNNING_LOOK_PERIOD } else { LOOK_PERIOD };
                Some(now + period.max(LOOK_SHARE.saturating_mul(others())))
            }
            (true, planned) => planned,
        };
    }

    /// When the wait for silent vCenters is over and a decision is due. None once it was: then only a change, or the
    /// next search, can bring another one.
    pub(super) fn end_of_silent_wait(&self, now: Instant) -> Option<Instant> {
        self.first_match.map(|at| at + SILENT_VCENTER_WAIT).filter(|end| *end > now)
    }

    /// When the node, which is not initialised, waits no longer for the address families that its guest does not report.
    pub(super) fn end_of_family_wait(&self, wait: Duration, now: Instant) -> Option<Instant> {
        self.addressed_since.filter(|_| !self.facts.is_initialized).map(|at| at + wait).filter(|end| *end > now)
    }
}

/// What a decision means for the next search.
#[derive(Debug, PartialEq)]
pub(super) enum NextSearch {
    /// Nothing to search.
    None,
    /// At once, everywhere.
    Now,
    /// After a pause; this is what is known until then.
    Later(Unknown),
    /// An answer is under way.
    Waiting(Unknown),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_of_a_node_that_ceases_to_be_ready_is_looked_at_soon_and_then_once_a_minute() {
        let mut tracked = Tracked::new(Seen::default(), NodeFacts::default());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        tracked.facts.is_not_ready = true;
        tracked.plan_look(start, true, || 0);
        assert_eq!(tracked.look_at, None, "no machine is known");
        tracked.bound = Some(VmKey { vcenter: 0, id: "vm-1".into() });
        tracked.plan_look(start, false, || 0);
        assert_eq!(tracked.look_at, Some(at(60)), "it was found just now");
        tracked.facts.is_not_ready = false;
        tracked.plan_look(at(1), true, || 0);
        assert_eq!(tracked.look_at, None, "a ready node is not looked after");
        tracked.facts.is_not_ready = true;
        tracked.plan_look(at(2), true, || 0);
        assert_eq!(tracked.look_at, Some(at(2)), "at once");
        tracked.plan_look(at(2), false, || 0);
        assert_eq!(tracked.look_at, Some(at(2)), "a plan stays");
        (tracked.look_at, tracked.looked) = (None, Some(at(3)));
        tracked.plan_look(at(4), true, || 0);
        assert_eq!(tracked.look_at, Some(at(13)), "a node that flaps is looked after less often");
        for (is_running, others, expected) in
            [(false, 119, 60), (false, 1_000, 500), (true, 0, 600), (true, 5_000, 2_500)]
        {
            (tracked.look_at, tracked.is_running) = (None, is_running);
            tracked.plan_look(start, false, || others);
            assert_eq!(tracked.look_at, Some(at(expected)), "running {is_running}, {others} others");
        }
    }

    #[test]
    fn the_twins_at_each_vcenter_are_told_of_once() {
        let mut tracked = Tracked::new(Seen::default(), NodeFacts::default());
        let mut is_news = |vcenter: Slot, twins: &[&str]| {
            let twins: Vec<String> = twins.iter().map(ToString::to_string).collect();
            tracked.note_twins(vcenter, &twins)
        };
        assert_eq!([is_news(0, &["a"]), is_news(1, &["b"])], [true, true]);
        assert_eq!([is_news(0, &["a"]), is_news(1, &["b"])], [false, false], "at the next look");
        assert_eq!([is_news(0, &[]), is_news(0, &["a", "c"])], [false, true]);
    }

    #[test]
    fn a_wait_that_is_over_is_not_waited_for_again() {
        let mut tracked = Tracked::new(Seen::default(), NodeFacts::default());
        let start = Instant::now();
        assert_eq!(tracked.end_of_silent_wait(start), None, "nothing was found yet");
        tracked.first_match = Some(start);
        let end = start + SILENT_VCENTER_WAIT;
        assert_eq!(tracked.end_of_silent_wait(start), Some(end));
        assert_eq!(tracked.end_of_silent_wait(end), None);
    }
}
