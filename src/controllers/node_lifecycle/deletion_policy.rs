//! Pure: decides which Nodes with absent VMs may be deleted, and when.
//!
//! The policy observes every Node and every answer of the provider. Before a deletion, the policy counts the absent
//! VMs: the first of many absent VMs looks like a single case until the provider has answered about the other VMs. The
//! state lasts for one leadership term.

mod allowance;
mod answers;
mod explanation;
mod facts;
mod node_table;
mod reason;
mod record;
mod rule;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::deletion_pause::DeletionPause;
use super::{DeletionMode, LifecycleSettings, Limit};
use crate::cloud::Reason;
use allowance::{Allowance, Bounds};
use answers::ReasonEnd;
pub use explanation::DeletionChecks;
pub use facts::Facts;
use node_table::{NodeCategory, NodeTable};
pub use reason::HoldReason;
use record::NodeRecord;
pub use record::{DeletionDecision, LastAnswer};
pub use rule::DeletionRule;
use rule::Suspect;

/// Number of VMs whose simultaneous absence never causes a pause.
const MASS_NODES: usize = 5;
/// Maximum number of Nodes named in the message about a pause.
const NAMES_SHOWN: usize = 5;
/// Share of the Nodes of this provider, in percent. Replaces `MASS_NODES` if the share is the larger number.
const MASS_PERCENT: usize = 20;

/// The policy that permits or blocks deletions; see the module documentation.
#[derive(Debug)]
pub struct DeletionPolicy {
    settings: LifecycleSettings,
    nodes: NodeTable,
    /// By reason for unknown answers, the end of the reason. Has no entry for a reason that has not ended.
    ended: BTreeMap<Reason, ReasonEnd>,
    allowance: Allowance,
    mass_hold: Option<MassHold>,
    /// The pause that an operator has ordered, as last observed.
    pause: Option<DeletionPause>,
    recently_deleted: Vec<DeletedNode>,
    permits: u64,
}

/// A pause of deletions because many VMs are absent at the same time.
#[derive(Clone, Debug)]
struct MassHold {
    /// The end of the pause.
    until: Instant,
    /// The pause applies only to VMs that became absent at this time or later. For the other VMs, a previous pause has
    /// ended. `None` for the first pause, which applies to all VMs.
    from: Option<Instant>,
    /// Names of some Nodes that triggered the pause.
    names: Arc<[String]>,
}

/// A Node that was deleted recently or is being deleted, or whose deletion a dry run has reported.
#[derive(Debug)]
struct DeletedNode {
    permit: u64,
    name: String,
    uid: String,
    is_control_plane: bool,
    deleted_at: Instant,
}

/// The decision about a Node with `Ready=Unknown`.
#[derive(Debug)]
#[must_use]
pub enum DeletionVerdict {
    /// The policy has no record of the Node, or no proof that its VM is absent.
    NotSuspected,
    /// The Node must not be deleted now.
    Held(HoldReason),
    /// The Node may be deleted now. The deletion is charged to the allowance, unless a user has allowed it and the
    /// allowance is used up.
    Permitted(DeletionPermit),
}

/// Permission for one write. A permit that is dropped without a call of `settle` counts as used.
#[derive(Debug)]
#[must_use]
pub struct DeletionPermit {
    number: u64,
    name: String,
    since: Instant,
    /// Whether the permit is based on the annotation that allows the deletion.
    pub by_hand: bool,
    /// Whether this is the first attempt, which means that the API server has not refused this deletion before.
    pub is_first: bool,
}

/// The result of the write that a permit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitOutcome {
    /// The Node was deleted or tainted, or may have been.
    Deleted,
    /// The deletion was only reported.
    DryRun,
    /// Nothing was written.
    Unused,
    /// The API server refused the write.
    Rejected,
}

/// Values for metrics, and inputs of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of Nodes that may be deleted now within the limit.
    pub allowance: usize,
    /// Whether deletions pause because many VMs are absent.
    pub is_mass_held: bool,
    /// Number of Nodes with absent VMs, except VMs for which a previous pause has ended.
    pub absent: usize,
    /// Number of all Nodes of this provider.
    pub nodes: usize,
}

impl DeletionPolicy {
    /// Creates the policy of a leader whose term begins at `at`.
    pub fn new(settings: &LifecycleSettings, at: Instant) -> Self {
        Self {
            settings: settings.clone(),
            nodes: NodeTable::default(),
            ended: BTreeMap::new(),
            allowance: Allowance::new(at),
            mass_hold: None,
            pause: None,
            recently_deleted: Vec::new(),
            permits: 0,
        }
    }

    /// Records the current state of a Node; `None` if the Node was deleted.
    pub fn observe(&mut self, name: &str, facts: Option<Facts>, at: Instant) {
        match facts {
            Some(facts) => self.note(name, facts),
            None => self.nodes.remove(name),
        }
        self.count_mass(at);
    }

    /// Records all existing Nodes. Returns the names of the Nodes that were deleted.
    pub fn observe_all(&mut self, all: Vec<(String, Facts)>, at: Instant) -> Vec<String> {
        let names: HashSet<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let vanished: Vec<String> = self.nodes.names().filter(|name| !names.contains(name.as_str())).cloned().collect();
        for name in &vanished {
            self.nodes.remove(name);
        }
        for (name, facts) in all {
            self.note(&name, facts);
        }
        self.count_mass(at);
        vanished
    }

    fn note(&mut self, name: &str, facts: Facts) {
        match self.nodes.get(name) {
            Some(_) => self.nodes.change(name, |record| record.update(facts)),
            None => self.nodes.put(name, NodeRecord::new(facts)),
        }
    }

    /// Records whether an operator has paused deletions. Right before a deletion, the caller records the result of a live
    /// read, and then calls [`DeletionPolicy::is_still_permitted`] without another record in between.
    pub fn observe_pause(&mut self, pause: Option<DeletionPause>) {
        self.pause = pause;
    }

    /// Decides about the deletion of a Node, and keeps the decision with its inputs in the record of the Node.
    /// [`Facts::is_allowed_by_hand`] overrides grace period, limit and mass pause.
    pub fn verdict(&mut self, name: &str, at: Instant) -> DeletionVerdict {
        self.count_mass(at);
        let inputs = self.nodes.get(name).and_then(|known| self.inputs(known, at));
        let verdict = self.decide(name, at);
        let hold = if let DeletionVerdict::Held(hold) = &verdict { Some(hold.clone()) } else { None };
        let decision = inputs.map(|inputs| Box::new(DeletionDecision { hold, ..inputs }));
        self.nodes.change(name, |record| record.last_decision = decision);
        verdict
    }

    /// Returns the inputs of a decision about a Node with an absent VM.
    fn inputs(&self, known: &NodeRecord, at: Instant) -> Option<DeletionDecision> {
        let since = known.absent_since()?;
        let Facts { is_control_plane, is_allowed_by_hand: by_hand, .. } = known.facts;
        let control_plane = is_control_plane.then(|| self.control_plane(at));
        Some(DeletionDecision { at, since, counts: self.counts(at), by_hand, control_plane, hold: None })
    }

    /// Returns the last decision about the current state of the Node; `None` without a proof that its VM is absent.
    pub fn last_decision(&self, name: &str) -> Option<&DeletionDecision> {
        self.nodes.get(name)?.last_decision.as_deref()
    }

    fn decide(&mut self, name: &str, at: Instant) -> DeletionVerdict {
        let Some(known) = self.nodes.get(name) else { return DeletionVerdict::NotSuspected };
        let Some(suspect) = Suspect::of(known) else { return DeletionVerdict::NotSuspected };
        if let Some((_, hold)) = self.first_hold(&DeletionRule::ALL, &suspect, at) {
            return DeletionVerdict::Held(hold);
        }
        let Suspect { since, by_hand, .. } = suspect;
        let is_first = known.retry.is_first();
        let Facts { is_control_plane, .. } = known.facts;
        let uid = known.facts.uid.clone();
        let taken = self.take(at);
        let number = taken.unwrap_or_else(|_| self.next_number());
        self.recently_deleted.push(DeletedNode {
            permit: number,
            name: name.to_owned(),
            uid,
            is_control_plane,
            deleted_at: at,
        });
        DeletionVerdict::Permitted(DeletionPermit { number, name: name.to_owned(), by_hand, since, is_first })
    }

    /// Whether the permit is still valid. Since the permit was given, a mass pause may have begun, or the kubelet may
    /// have reported.
    pub fn is_still_permitted(&self, permit: &DeletionPermit, at: Instant) -> bool {
        let Some(known) = self.nodes.get(&permit.name) else { return false };
        let suspect = Suspect { known, since: permit.since, by_hand: permit.by_hand };
        known.absent_since() == Some(permit.since) && self.first_hold(&DeletionRule::REPEATED, &suspect, at).is_none()
    }

    /// Permits the out-of-service taint under the limit of deletions, because a taint has the same consequences as a
    /// deletion.
    pub fn reserve(&mut self, at: Instant) -> Result<DeletionPermit, HoldReason> {
        self.take(at).map(|number| DeletionPermit {
            number,
            name: String::new(),
            by_hand: false,
            since: at,
            is_first: true,
        })
    }

    /// Ends a permit with the result of its write.
    pub fn settle(&mut self, permit: DeletionPermit, used: PermitOutcome, at: Instant) {
        if matches!(used, PermitOutcome::Unused | PermitOutcome::Rejected) {
            self.allowance.give_back(permit.number);
            self.recently_deleted.retain(|gone| gone.permit != permit.number);
        }
        match used {
            PermitOutcome::Deleted => self.nodes.remove(&permit.name),
            PermitOutcome::DryRun => self.nodes.change(&permit.name, |known| {
                // False if the kubelet has reported since the permit was given.
                known.is_dry_run_reported = known.absent_since() == Some(permit.since);
            }),
            PermitOutcome::Rejected => self.nodes.change(&permit.name, |known| {
                known.retry.failed(at, 0.0);
            }),
            PermitOutcome::Unused => {}
        }
        self.count_mass(at);
    }

    /// Returns the values for metrics, and the inputs of a decision at this time.
    pub fn counts(&self, at: Instant) -> Counts {
        let is_mass_held = self.mass_hold.as_ref().is_some_and(|mass| at < mass.until);
        Counts {
            allowance: self.allowance.available(self.bounds(), at),
            is_mass_held,
            absent: self.nodes.count(NodeCategory::NewlyAbsent),
            nodes: self.nodes.count(NodeCategory::Own),
        }
    }

    /// Returns the number of Nodes whose VM may be absent, and about which the provider has not answered yet.
    pub fn unanswered(&self) -> usize {
        self.nodes.count(NodeCategory::Unanswered(None))
    }

    /// Returns the limit: the maximum number of deletions within the window.
    pub fn capacity(&self) -> usize {
        self.bounds().capacity
    }

    /// Returns the first of these rules that holds the deletion at `at`, with the reason.
    fn first_hold(
        &self,
        rules: &[DeletionRule],
        suspect: &Suspect<'_>,
        at: Instant,
    ) -> Option<(DeletionRule, HoldReason)> {
        rules.iter().find_map(|rule| {
            let hold = self.check(*rule, suspect, at).err()?;
            Some((*rule, hold))
        })
    }

    fn check(&self, rule: DeletionRule, suspect: &Suspect<'_>, at: Instant) -> Result<(), HoldReason> {
        let Suspect { known, since, by_hand } = *suspect;
        if by_hand && rule.is_overridden_by_hand() {
            return Ok(());
        }
        match rule {
            DeletionRule::Mode => self.check_mode(),
            DeletionRule::Pause => match &self.pause {
                Some(pause) => Err(HoldReason::Paused(pause.clone())),
                None => Ok(()),
            },
            DeletionRule::DryRun if known.is_dry_run_reported => Err(HoldReason::DryRun),
            DeletionRule::DryRun => Ok(()),
            DeletionRule::Refusal => match known.retry.not_before(at) {
                Some(until) => Err(HoldReason::Refused { until }),
                None => Ok(()),
            },
            DeletionRule::Grace => {
                let until = self.grace_end(since);
                if at < until { Err(HoldReason::Grace { until }) } else { Ok(()) }
            }
            DeletionRule::ControlPlane => self.check_control_plane(known, at),
            DeletionRule::MassHold => self.check_absent_count(since, at),
            DeletionRule::Limit => self.check_limit(at),
        }
    }

    fn check_mode(&self) -> Result<(), HoldReason> {
        match self.settings.deletion {
            DeletionMode::Off { reason: because } => Err(HoldReason::Off { reason: because }),
            DeletionMode::Enforce | DeletionMode::DryRun => Ok(()),
        }
    }

    fn grace_end(&self, since: Instant) -> Instant {
        since + self.settings.grace
    }

    fn check_control_plane(&self, known: &NodeRecord, at: Instant) -> Result<(), HoldReason> {
        if known.facts.is_control_plane {
            let (lost, all) = self.control_plane(at);
            if lost * 2 > all {
                return Err(HoldReason::ControlPlane { not_ready: lost, all });
            }
        }
        Ok(())
    }

    /// Checks the number of absent VMs for a VM that is absent since `since`.
    fn check_absent_count(&self, since: Instant, at: Instant) -> Result<(), HoldReason> {
        let (absent, nodes) = (self.nodes.count(NodeCategory::NewlyAbsent), self.nodes.count(NodeCategory::Own));
        if let Some(mass) = &self.mass_hold {
            if mass.from.is_some_and(|from| since < from) {
                // The pause for this VM has ended, so only the limit applies.
                return Ok(());
            }
            if at < mass.until {
                let names = Arc::clone(&mass.names);
                return Err(HoldReason::Mass { absent, nodes, names, until: mass.until });
            }
            if since < mass.until {
                return Ok(());
            }
        }
        let unanswered = self.nodes.unanswered(since);
        if absent + unanswered > threshold(nodes) {
            return Err(HoldReason::Counting { unanswered });
        }
        Ok(())
    }

    /// Checks whether the limit allows one more write at `at`. Does not charge the allowance.
    pub fn check_limit(&self, at: Instant) -> Result<(), HoldReason> {
        let bounds @ Bounds { capacity, window } = self.bounds();
        if self.allowance.available(bounds, at) == 0 {
            return Err(HoldReason::Limit { capacity, window, until: self.allowance.next(bounds, at) });
        }
        Ok(())
    }

    fn take(&mut self, at: Instant) -> Result<u64, HoldReason> {
        self.check_limit(at)?;
        let number = self.next_number();
        self.allowance.take(number, self.bounds(), at);
        Ok(number)
    }

    fn next_number(&mut self) -> u64 {
        self.permits = self.permits.wrapping_add(1);
        self.permits
    }

    fn bounds(&self) -> Bounds {
        let Limit { nodes, percent, window } = self.settings.limit;
        // Includes recently deleted Nodes, so that deletions do not reduce the limit.
        let share = (self.nodes.count(NodeCategory::Own) + self.deleted()).saturating_mul(percent as usize) / 100;
        Bounds { capacity: share.max(nodes as usize), window }
    }

    /// Returns the number of recently deleted Nodes that `NodeCategory::Own` does not count.
    fn deleted(&self) -> usize {
        let is_there = |gone: &DeletedNode| {
            self.nodes.get(&gone.name).is_some_and(|known| known.facts.uid == gone.uid && !known.is_dry_run_reported)
        };
        self.recently_deleted.iter().filter(|gone| !is_there(gone)).count()
    }

    /// Returns the numbers of lost and of all control plane Nodes. A Node is lost if its VM is absent, if it is being
    /// deleted, or if it was deleted within the window.
    fn control_plane(&self, at: Instant) -> (usize, usize) {
        let lately = self.recently_deleted.iter().filter(|gone| {
            gone.is_control_plane && at.saturating_duration_since(gone.deleted_at) < self.settings.limit.window
        });
        let mut lost: BTreeSet<&str> = lately.map(|gone| gone.uid.as_str()).collect();
        let mut all = lost.clone();
        for known in self.nodes.all().filter(|known| known.facts.is_control_plane) {
            // A dry run counts through `recently_deleted`, for as long as a real deletion.
            if known.is_dry_run_reported {
                continue;
            }
            all.insert(&known.facts.uid);
            if known.facts.is_leaving || known.absent_since().is_some() {
                lost.insert(&known.facts.uid);
            }
        }
        (lost.len(), all.len())
    }

    /// Begins or ends the pause of deletions. Called after each change, and regularly, because a pause ends with time.
    pub fn count_mass(&mut self, at: Instant) {
        let window = self.settings.limit.window;
        self.recently_deleted.retain(|gone| at.saturating_duration_since(gone.deleted_at) < window);
        let threshold = threshold(self.nodes.count(NodeCategory::Own));
        // A pause runs to its end even if some VMs are found again, because the same cause may affect more VMs.
        if self.mass_hold.as_ref().is_some_and(|mass| at < mass.until) {
            return;
        }
        let ended = self.mass_hold.as_ref().map(|mass| mass.until);
        if self.nodes.count(NodeCategory::Absent) <= threshold {
            self.mass_hold = None;
            self.nodes.count_from(None);
            return;
        }
        // Only the limit applies to VMs whose pause has ended. Another pause begins if more than `threshold` further
        // VMs are absent.
        self.nodes.count_from(ended);
        if self.nodes.count(NodeCategory::NewlyAbsent) > threshold {
            let names = self.nodes.newly_absent(NAMES_SHOWN).into();
            self.mass_hold = Some(MassHold { until: at + self.settings.mass_hold, from: ended, names });
        }
    }
}

/// Returns the largest number of absent VMs that causes no pause, for this number of Nodes.
fn threshold(nodes: usize) -> usize {
    (nodes.saturating_mul(MASS_PERCENT) / 100).max(MASS_NODES)
}
