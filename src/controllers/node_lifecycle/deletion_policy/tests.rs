//! Tests of the deletion rules, as tables.

mod law;
mod memory;
mod pause;

use super::*;
use crate::cloud::node::Readiness;
use crate::cloud::{AbsenceProof, Presence, Reason, Unknown};
use crate::controllers::node_lifecycle::{Limit, reason};
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_secs(600);
const HOLD: Duration = Duration::from_secs(900);

fn settings() -> LifecycleSettings {
    LifecycleSettings {
        period: Duration::from_secs(5),
        deletion: DeletionMode::Enforce,
        grace: GRACE,
        limit: Limit { nodes: 5, percent: 10, window: WINDOW },
        mass_hold: HOLD,
        out_of_service_after: None,
    }
}

fn facts(name: &str, readiness: Readiness) -> Facts {
    Facts {
        uid: format!("uid-{name}"),
        provider_id: format!("p://{name}"),
        is_own: true,
        is_control_plane: name.starts_with("control"),
        is_leaving: false,
        may_have_absent_vm: readiness == Readiness::Unknown,
        is_allowed_by_hand: false,
        readiness,
        transition: None,
    }
}

fn gone() -> Presence {
    Presence::Absent(AbsenceProof::new("gone", []))
}

/// A deletion policy, as the controller uses it, with the observed Nodes and a clock.
struct Case {
    guard: DeletionPolicy,
    /// The last observed state of each Node.
    seen: BTreeMap<String, Facts>,
    /// Random part, from 0 to 1, that shortens the time for which answers are valid.
    chance: f64,
    start: Instant,
    at: Instant,
}

impl Case {
    fn new(settings: &LifecycleSettings) -> Self {
        let start = Instant::now();
        Self { guard: DeletionPolicy::new(settings, start), seen: BTreeMap::new(), chance: 0.0, start, at: start }
    }

    /// Returns a case in which the leader has led long enough to use the whole deletion limit.
    fn settled(settings: &LifecycleSettings) -> Self {
        let mut case = Self::new(settings);
        case.pass(WINDOW);
        case
    }

    fn pass(&mut self, time: Duration) {
        self.at += time;
    }

    fn saw(&mut self, name: &str, facts: Facts) {
        self.seen.insert(name.to_owned(), facts.clone());
        self.guard.observe(name, Some(facts), self.at);
    }

    /// An administrator allows the deletion of the Node, or withdraws the permission.
    fn allow(&mut self, name: &str, is_allowed_by_hand: bool) {
        self.saw(name, Facts { is_allowed_by_hand, ..self.seen[name].clone() });
    }

    /// The Node was deleted.
    fn gone(&mut self, name: &str) {
        self.seen.remove(name);
        self.guard.observe(name, None, self.at);
    }

    fn ready(&mut self, name: &str) {
        self.saw(name, facts(name, Readiness::True));
    }

    fn ready_many(&mut self, prefix: &str, count: usize) {
        (0..count).for_each(|number| self.ready(&format!("{prefix}-{number}")));
    }

    fn not_ready(&mut self, name: &str) {
        self.saw(name, facts(name, Readiness::Unknown));
    }

    /// Starts a request to the provider, about the last observed state of the Node.
    fn ask(&mut self, name: &str) {
        self.guard.record_query(name, &self.seen[name], self.at);
    }

    /// Delivers the answer to the last request about the Node.
    fn receive(&mut self, name: &str, presence: &Presence) {
        self.guard.record_answer(name, presence, self.at, self.chance);
    }

    fn answer(&mut self, name: &str, presence: &Presence) {
        self.ask(name);
        self.receive(name, presence);
    }

    /// Returns the last answer of the provider, if it is still valid for the last observed state of the Node.
    fn remembered(&mut self, name: &str) -> Option<Presence> {
        self.guard.last_answer(name, self.seen.get(name)?, self.at)
    }

    fn event(&mut self, name: &str) {
        self.guard.expire(name);
    }

    fn event_about_all(&mut self) {
        self.guard.expire_all();
    }

    /// The Node is not Ready, and its VM is absent.
    fn lose(&mut self, name: &str) {
        self.not_ready(name);
        self.answer(name, &gone());
    }

    fn lose_many(&mut self, prefix: &str, count: usize) {
        (0..count).for_each(|number| self.lose(&format!("{prefix}-{number}")));
    }

    /// Returns the reason that blocks the deletion, or `deleted`. Deletes the Node if that is permitted.
    fn judge(&mut self, name: &str) -> String {
        self.judge_as(name, PermitOutcome::Deleted)
    }

    fn judge_as(&mut self, name: &str, used: PermitOutcome) -> String {
        self.guard.count_mass(self.at);
        let checks = self.guard.checks(name, self.at);
        let (is_suspected, explained) = (checks.is_some(), checks.and_then(|checks| checks.hold));
        match self.guard.verdict(name, self.at) {
            DeletionVerdict::NotSuspected => {
                assert!(!is_suspected, "the explanation of {name}");
                "not suspected".into()
            }
            DeletionVerdict::Held(hold) => {
                let (rule, expected) = explained.unwrap();
                assert_eq!(hold, expected, "the explanation of {name}");
                let is_counting = matches!(hold, HoldReason::Counting { .. });
                let reason = if is_counting { reason::DeletionMassHold } else { hold.reason() };
                assert_eq!(rule.reason(), reason, "the explanation of {name}");
                hold.reason().to_string()
            }
            DeletionVerdict::Permitted(permit) => {
                assert!(is_suspected && explained.is_none(), "the explanation of {name}: {explained:?}");
                assert!(self.guard.is_still_permitted(&permit, self.at));
                self.guard.settle(permit, used, self.at);
                "deleted".into()
            }
        }
    }

    /// Like [`Case::judge_as`], after the annotation that allows the deletion was set.
    fn judge_allowed(&mut self, name: &str, used: PermitOutcome) -> String {
        self.allow(name, true);
        self.judge_as(name, used)
    }

    fn judge_many(&mut self, prefix: &str, count: usize) -> usize {
        (0..count).filter(|number| self.judge(&format!("{prefix}-{number}")) == "deleted").count()
    }
}

#[test]
fn the_grace_period_starts_when_both_hold_and_again_after_any_sign_of_life() {
    type Between = fn(&mut Case);
    let unknown = |case: &mut Case| {
        case.answer("a", &Presence::Unknown(Unknown::new(reason::CloudUnavailable, "down")));
    };
    let recreated = |case: &mut Case| {
        case.saw("a", Facts { uid: "uid-other".into(), ..facts("a", Readiness::Unknown) });
    };
    let unseen = |case: &mut Case| {
        let transition = Some("2026-01-01T00:00:00Z".parse().unwrap());
        case.saw("a", Facts { transition, ..facts("a", Readiness::Unknown) });
    };
    let other_machine = |case: &mut Case| {
        case.saw("a", Facts { provider_id: "p://b".into(), ..facts("a", Readiness::Unknown) });
    };
    let reports = |case: &mut Case| case.saw("a", facts("a", Readiness::False));
    let table: [(&str, Between, bool); 9] = [
        ("nothing", |_| {}, false),
        ("absent again", |case| case.answer("a", &gone()), false),
        ("False", reports, true),
        ("Ready", |case| case.ready("a"), true),
        ("exists", |case| case.answer("a", &Presence::Exists(())), true),
        ("unknown", unknown, true),
        ("recreated", recreated, true),
        ("Ready for a moment that nobody saw", unseen, true),
        ("another provider ID", other_machine, true),
    ];
    for (name, between, starts_again) in table {
        let mut case = Case::settled(&settings());
        case.ready_many("other", 20);
        case.lose("a");
        case.pass(GRACE - Duration::from_secs(1));
        assert_eq!(case.judge("a"), "DeletionGracePeriod", "{name}");
        between(&mut case);
        if starts_again {
            assert_eq!(case.judge("a"), "not suspected", "{name}");
        }
        let again = case.seen["a"].clone();
        case.saw("a", again);
        if name == "Ready" || name == "False" {
            case.not_ready("a");
        }
        case.answer("a", &gone());
        case.pass(Duration::from_secs(1));
        assert_eq!(case.judge("a"), if starts_again { "DeletionGracePeriod" } else { "deleted" }, "{name}");
        case.pass(GRACE);
        assert_eq!(case.judge("a"), if starts_again { "deleted" } else { "not suspected" }, "{name}");
    }
}

#[test]
fn nodes_that_may_not_be_gone_are_not_suspected() {
    let base = facts("a", Readiness::Unknown);
    for (name, facts) in [
        ("Ready", facts("a", Readiness::True)),
        ("a kubelet reports", facts("a", Readiness::False)),
        ("another provider's, or not initialized, or without provider ID", Facts { may_have_absent_vm: false, ..base }),
    ] {
        let mut case = Case::settled(&settings());
        case.saw("a", facts);
        case.answer("a", &gone());
        case.pass(GRACE * 2);
        assert_eq!(case.judge("a"), "not suspected", "{name}");
        assert_eq!(case.judge_allowed("a", PermitOutcome::Deleted), "not suspected", "{name}, by hand");
    }
}

#[test]
fn facts_are_read_from_the_node() {
    use serde_json::json;
    let node = |pid: &str, status: &str, taint: &str| -> k8s_openapi::api::core::v1::Node {
        let taints = if taint.is_empty() { json!([]) } else { json!([{"key": taint, "effect": "NoSchedule"}]) };
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"providerID": pid, "taints": taints},
            "status": {"conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        }))
        .unwrap()
    };
    let initializing = crate::cloud::node::TAINT_UNINITIALIZED;
    for (case, pid, status, taint, is_own, expected) in [
        ("not Ready", "p://1", "False", "", true, false),
        ("Unknown", "p://1", "Unknown", "", true, true),
        ("Ready", "p://1", "True", "", true, false),
        ("another provider's", "p://1", "Unknown", "", false, false),
        ("without provider ID", "", "Unknown", "", true, false),
        ("not initialized", "p://1", "Unknown", initializing, true, false),
    ] {
        let facts = Facts::of(&node(pid, status, taint), is_own);
        assert_eq!((facts.may_have_absent_vm, facts.is_leaving), (expected, false), "{case}");
        assert!(facts.is_control_plane && facts.transition.is_some() && facts.uid == "u", "{case}");
    }
    let mut deleted = node("p://1", "Unknown", "");
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    deleted.metadata.deletion_timestamp = Some(now);
    let facts = Facts::of(&deleted, true);
    assert!(facts.is_leaving && !facts.may_have_absent_vm, "it waits for its finalizers");
}

#[test]
fn the_limit_is_the_larger_of_nodes_and_share_within_the_window() {
    for (ready, absent, deleted) in [(16, 4, 4), (15, 5, 5), (40, 7, 5), (90, 10, 10), (100, 13, 11)] {
        let mut case = Case::settled(&settings());
        case.ready_many("other", ready);
        case.lose_many("a", absent);
        case.pass(GRACE);
        assert_eq!(case.judge_many("a", absent), deleted, "{ready} ready, {absent} absent");
        if deleted < absent {
            assert_eq!(case.judge(&format!("a-{}", absent - 1)), "DeletionLimitReached");
            case.pass(WINDOW - Duration::from_secs(1));
            assert_eq!(case.judge(&format!("a-{}", absent - 1)), "DeletionLimitReached");
            case.pass(Duration::from_secs(1));
            assert_eq!(case.judge(&format!("a-{}", absent - 1)), "deleted");
        }
    }
}

#[test]
fn a_new_leader_starts_with_an_allowance_of_one() {
    let mut case = Case::new(&settings());
    case.ready_many("other", 20);
    case.lose_many("a", 3);
    case.pass(GRACE);
    assert_eq!(case.judge_many("a", 3), 1);
    case.pass(WINDOW / 4 - GRACE);
    assert_eq!(case.judge_many("a", 3), 1);
    assert_eq!(case.judge("a-2"), "DeletionLimitReached");
    case.pass(WINDOW / 4);
    assert_eq!(case.judge("a-2"), "deleted");
}

#[test]
fn what_was_not_deleted_is_given_back_and_what_was_refused_waits() {
    let mut case = Case::new(&settings());
    case.ready_many("other", 20);
    case.lose("a");
    case.pass(GRACE);
    assert_eq!(case.judge_as("a", PermitOutcome::Unused), "deleted");
    assert_eq!(case.judge_as("a", PermitOutcome::Rejected), "deleted");
    assert_eq!(case.guard.counts(case.at).allowance, 1);
    for pause in [5, 10, 20, 40, 60, 60] {
        assert_eq!(case.judge("a"), "DeletionRefused");
        case.pass(Duration::from_secs(pause) - Duration::from_millis(1));
        assert_eq!(case.judge("a"), "DeletionRefused", "{pause}");
        case.pass(Duration::from_millis(1));
        assert_eq!(case.judge_as("a", PermitOutcome::Rejected), "deleted", "{pause}");
    }
}

#[test]
fn many_at_once_pause_and_then_go_under_the_limit() {
    let mut case = Case::settled(&settings());
    case.ready_many("other", 80);
    case.lose_many("a", 20);
    case.pass(GRACE);
    assert_eq!(case.judge_many("a", 20), 10, "20 of 100 are not more than the threshold");

    let mut case = Case::settled(&settings());
    case.ready_many("other", 79);
    case.lose_many("a", 21);
    assert!(case.guard.counts(case.at).is_mass_held);
    case.pass(GRACE);
    assert_eq!(case.judge("a-0"), "DeletionMassHold");
    // Some VMs are found again. The hold continues, because more VMs may disappear.
    for number in 15..21 {
        case.ready(&format!("a-{number}"));
    }
    case.pass(HOLD - GRACE - Duration::from_secs(1));
    assert_eq!(case.judge("a-0"), "DeletionMassHold", "the pause lasts");
    for number in 15..21 {
        case.lose(&format!("a-{number}"));
    }
    case.pass(Duration::from_secs(1) + GRACE);
    assert!(!case.guard.counts(case.at).is_mass_held);
    assert_eq!(case.judge_many("a", 21), 10, "the limit alone");
    case.pass(WINDOW);
    // 11 of 90 VMs are absent, which is no mass. Ten more start another mass hold.
    case.ready("other-0");
    case.lose_many("b", 10);
    assert!(case.guard.counts(case.at).is_mass_held);
    assert_eq!(case.judge("a-20"), "DeletionMassHold");
}

/// The API server rejects every deletion, so the first group of absent VMs stays.
#[test]
fn another_mass_after_the_pause_is_held_and_the_first_one_goes_on_under_the_limit() {
    let mut case = Case::settled(&settings());
    case.ready_many("other", 79);
    case.lose_many("a", 21);
    case.pass(HOLD);
    assert!(!case.guard.counts(case.at).is_mass_held);
    assert_eq!(case.judge_as("a-0", PermitOutcome::Rejected), "deleted", "the limit alone");
    // 15 more are below the threshold, so they are deleted without another hold.
    case.lose_many("other", 15);
    case.pass(GRACE);
    assert_eq!(case.judge_as("other-0", PermitOutcome::Rejected), "deleted");
    for number in 15..20 {
        case.lose(&format!("other-{number}"));
    }
    assert!(!case.guard.counts(case.at).is_mass_held, "twenty of a hundred");
    case.lose("other-20");
    case.pass(GRACE);
    assert!(case.guard.counts(case.at).is_mass_held);
    assert_eq!(case.judge("other-20"), "DeletionMassHold");
    case.pass(Duration::from_secs(60));
    assert_eq!(case.judge("other-1"), "DeletionMassHold", "it came since, too");
    assert_eq!(case.judge_as("a-1", PermitOutcome::Rejected), "deleted", "its pause has ended");
    case.pass(HOLD);
    assert_eq!(case.judge_as("other-1", PermitOutcome::Rejected), "deleted");

    // One VM is absent while the provider is still asked about 24 others.
    case.lose("other-30");
    for number in 31..55 {
        case.not_ready(&format!("other-{number}"));
    }
    case.pass(GRACE);
    assert_eq!(case.judge("other-30"), "DeletionGracePeriod", "24 others may be gone, too");
    assert_eq!(case.judge_as("a-2", PermitOutcome::Rejected), "deleted");
    // After only a few are absent, the next mass counts all absent VMs, as the first one did.
    (0..21).for_each(|number| case.ready(&format!("a-{number}")));
    (0..21).for_each(|number| case.ready(&format!("other-{number}")));
    case.lose_many("a", 21);
    case.pass(GRACE);
    assert_eq!(case.judge("a-0"), "DeletionMassHold");
    assert_eq!(case.judge("other-30"), "DeletionMassHold", "all that are gone belong to it");
}

#[test]
fn nothing_is_deleted_before_it_is_known_whether_there_are_many() {
    let mut case = Case::settled(&LifecycleSettings { grace: Duration::ZERO, ..settings() });
    case.ready_many("other", 10);
    for number in 0..6 {
        case.not_ready(&format!("a-{number}"));
    }
    case.answer("a-0", &gone());
    assert_eq!(case.judge("a-0"), "DeletionGracePeriod", "five others may be gone, too");
    case.answer("a-1", &Presence::Exists(()));
    case.answer("a-2", &Presence::Exists(()));
    assert_eq!(case.judge("a-0"), "deleted", "and two are there");

    let mut case = Case::settled(&LifecycleSettings { grace: Duration::ZERO, ..settings() });
    case.ready_many("other", 10);
    for number in 1..6 {
        case.not_ready(&format!("a-{number}"));
        case.answer(&format!("a-{number}"), &Presence::Exists(()));
    }
    case.pass(Duration::from_secs(5));
    case.lose("a-0");
    assert_eq!(case.judge("a-0"), "DeletionGracePeriod", "what they were before says nothing of this moment");
}

#[test]
fn a_mass_that_shows_itself_withdraws_what_was_permitted() {
    let mut case = Case::settled(&settings());
    case.ready_many("other", 20);
    case.lose("a");
    case.pass(GRACE);
    let DeletionVerdict::Permitted(permit) = case.guard.verdict("a", case.at) else { panic!("not permitted") };
    assert!(case.guard.is_still_permitted(&permit, case.at));
    case.lose_many("other", 6);
    assert!(!case.guard.is_still_permitted(&permit, case.at));
    case.guard.settle(permit, PermitOutcome::Unused, case.at);
    assert_eq!(case.judge("a"), "DeletionMassHold");

    let mut case = Case::settled(&settings());
    case.lose("a");
    case.pass(GRACE);
    let DeletionVerdict::Permitted(permit) = case.guard.verdict("a", case.at) else { panic!("not permitted") };
    case.ready("a");
    assert!(!case.guard.is_still_permitted(&permit, case.at));
}

#[test]
fn an_answer_about_another_node_of_the_name_says_nothing() {
    let mut case = Case::settled(&settings());
    case.ready_many("other", 20);
    case.saw("a", Facts { uid: "uid-of-the-one-before".into(), ..facts("a", Readiness::Unknown) });
    case.ask("a");
    case.not_ready("a");
    case.receive("a", &gone());
    case.pass(GRACE);
    assert_eq!(case.judge("a"), "not suspected");
    case.answer("a", &gone());
    case.pass(GRACE);
    assert_eq!(case.judge("a"), "deleted");
}

#[test]
fn what_was_permitted_is_not_for_a_later_absence() {
    let mut case = Case::settled(&settings());
    case.ready_many("n", 10);
    case.lose("n-0");
    case.pass(GRACE);
    let DeletionVerdict::Permitted(permit) = case.guard.verdict("n-0", case.at) else { panic!("held") };
    assert!(case.guard.is_still_permitted(&permit, case.at));
    case.ready("n-0");
    case.lose("n-0");
    case.pass(GRACE);
    assert!(!case.guard.is_still_permitted(&permit, case.at), "its grace period has ended, but that was not judged");
}

#[test]
fn a_deletion_that_did_not_happen_is_no_loss_of_the_control_plane() {
    let mut case = Case::settled(&settings());
    case.ready_many("control", 3);
    case.lose("control-0");
    case.pass(GRACE);
    assert_eq!(case.judge_as("control-0", PermitOutcome::Unused), "deleted");
    case.ready("control-0");
    case.lose("control-1");
    case.pass(GRACE);
    assert_eq!(case.judge("control-1"), "deleted");
}

#[test]
fn a_majority_of_the_control_plane_is_never_deleted() {
    for (all, absent, deleted) in [(1, 1, 0), (2, 1, 1), (2, 2, 0), (3, 1, 1), (3, 2, 0), (5, 2, 2), (5, 3, 0)] {
        let mut case = Case::settled(&settings());
        case.ready_many("other", 30);
        case.ready_many("control", all);
        case.lose_many("control", absent);
        case.pass(GRACE);
        assert_eq!(case.judge_many("control", absent), deleted, "{absent} of {all}");
        if deleted < absent {
            assert_eq!(case.judge("control-0"), "DeletionControlPlaneMajority");
            assert_eq!(
                case.judge_allowed("control-0", PermitOutcome::Deleted),
                "DeletionControlPlaneMajority",
                "by hand"
            );
        }
    }
    // A control plane Node that waits for its finalizers counts as deleted.
    let mut case = Case::settled(&settings());
    case.ready_many("control", 3);
    let leaving = Facts { is_leaving: true, may_have_absent_vm: false, ..facts("control-0", Readiness::Unknown) };
    case.saw("control-0", leaving);
    case.lose("control-1");
    case.pass(GRACE);
    assert_eq!(case.judge("control-1"), "DeletionControlPlaneMajority");
    // A control plane Node that was deleted within the window still counts.
    let mut case = Case::settled(&settings());
    case.ready_many("control", 3);
    case.lose("control-0");
    case.pass(GRACE);
    assert_eq!(case.judge("control-0"), "deleted");
    case.lose("control-1");
    case.pass(GRACE);
    assert_eq!(case.judge("control-1"), "DeletionControlPlaneMajority");
    case.pass(WINDOW);
    assert_eq!(case.judge("control-1"), "deleted", "one of the two that are left");
}

#[test]
fn a_human_may_let_one_go_at_once() {
    let mut case = Case::new(&settings());
    case.ready_many("other", 20);
    case.lose_many("a", 8);
    assert_eq!(case.judge("a-0"), "DeletionGracePeriod");
    assert_eq!(case.judge_allowed("a-0", PermitOutcome::Deleted), "deleted", "within grace and mass hold");
    assert_eq!(case.guard.counts(case.at).allowance, 0, "it takes what there is");
    assert_eq!(case.judge_allowed("a-1", PermitOutcome::Deleted), "deleted", "and more than there is");
    case.not_ready("b");
    assert_eq!(case.judge_allowed("b", PermitOutcome::Deleted), "not suspected", "without a proof");
    for (deletion, expected) in
        [(DeletionMode::Off { reason: "the test" }, "DeletionOff"), (DeletionMode::DryRun, "deleted")]
    {
        let mut case = Case::new(&LifecycleSettings { deletion, ..settings() });
        case.lose("a");
        assert_eq!(case.judge_allowed("a", PermitOutcome::DryRun), expected);
    }
}

#[test]
fn a_dry_run_goes_by_the_same_rules() {
    let mut case = Case::settled(&LifecycleSettings { deletion: DeletionMode::DryRun, ..settings() });
    case.ready_many("other", 40);
    case.lose_many("a", 7);
    case.pass(GRACE);
    let judged: Vec<_> = (0..7).map(|number| case.judge_as(&format!("a-{number}"), PermitOutcome::DryRun)).collect();
    assert_eq!(judged.iter().filter(|word| *word == "deleted").count(), 5);
    assert_eq!(judged[6], "DeletionLimitReached");
    assert_eq!(case.judge("a-0"), "DeletionDryRun", "it is said once");
    case.pass(WINDOW);
    assert_eq!(case.judge_as("a-6", PermitOutcome::DryRun), "deleted");
    case.answer("a-0", &Presence::Exists(()));
    assert_eq!(case.judge("a-0"), "not suspected");
    case.answer("a-0", &gone());
    assert_eq!(case.judge("a-0"), "DeletionGracePeriod", "and from the beginning");

    let mut case =
        Case::settled(&LifecycleSettings { deletion: DeletionMode::Off { reason: "the test" }, ..settings() });
    case.lose("a");
    assert_eq!(case.judge("a"), "DeletionOff");
}

#[test]
fn what_a_dry_run_told_counts_no_more_than_what_was_deleted() {
    for used in [PermitOutcome::Deleted, PermitOutcome::DryRun] {
        let mut case = Case::settled(&settings());
        case.ready_many("other", 20);
        for prefix in ["first", "second"] {
            case.pass(WINDOW);
            case.lose_many(prefix, 4);
            case.pass(GRACE);
            for number in 0..4 {
                assert_eq!(case.judge_as(&format!("{prefix}-{number}"), used), "deleted", "{used:?}");
            }
        }
    }
}

#[test]
fn holds_say_until_when() {
    let mut case = Case::new(&settings());
    case.ready_many("other", 20);
    case.lose_many("a", 2);
    let until = |case: &mut Case, name: &str| match case.guard.verdict(name, case.at) {
        DeletionVerdict::Held(hold) => hold.until().map(|until| until.duration_since(case.start).as_secs()),
        other => panic!("{other:?}"),
    };
    assert_eq!(until(&mut case, "a-0"), Some(30));
    case.pass(GRACE);
    assert_eq!(case.judge("a-0"), "deleted");
    assert_eq!(until(&mut case, "a-1"), Some(150));
    case.lose_many("b", 6);
    assert_eq!(until(&mut case, "a-1"), Some(30 + 900));
}

#[test]
fn vanished_nodes_are_told_and_forgotten() {
    let mut case = Case::new(&settings());
    case.lose_many("a", 2);
    let vanished = case.guard.observe_all(vec![("a-1".into(), facts("a-1", Readiness::Unknown))], case.at);
    assert_eq!(vanished, ["a-0"]);
    assert_eq!(case.judge("a-0"), "not suspected");
    assert_eq!(case.judge("a-1"), "DeletionGracePeriod");
}

#[test]
fn a_node_whose_answer_was_overtaken_may_be_one_of_many_that_are_gone() {
    let mut case = Case::settled(&settings());
    let silent = Presence::Unknown(Unknown::new(reason::CloudUnavailable, "down"));
    let names: Vec<String> = (0..20).map(|number| format!("n-{number}")).collect();
    for name in &names {
        case.not_ready(name);
        case.answer(name, &silent);
    }
    case.answer("n-0", &gone());
    case.pass(GRACE);
    let permit = |case: &mut Case| case.guard.verdict("n-0", case.at);
    let DeletionVerdict::Permitted(permitted) = permit(&mut case) else {
        panic!("the provider says nothing of the others")
    };
    case.guard.settle(permitted, PermitOutcome::Unused, case.at);
    for name in &names {
        case.ask(name);
        case.event(name);
        case.receive(name, &gone());
    }
    let verdict = permit(&mut case);
    assert!(matches!(verdict, DeletionVerdict::Held(HoldReason::Counting { unanswered: 19 })), "{verdict:?}");
}

#[test]
fn the_last_decision_is_kept_with_its_inputs_while_the_node_is_in_the_same_state() {
    let mut case = Case::settled(&settings());
    case.ready_many("other", 20);
    assert_eq!(case.judge("other-0"), "not suspected");
    assert_eq!(case.guard.last_decision("other-0"), None, "without a proof there is nothing to decide");
    case.lose("a");
    let since = case.at;
    case.pass(Duration::from_secs(10));
    case.lose("b");
    assert_eq!(case.judge("a"), "DeletionGracePeriod");
    let counts = Counts { allowance: 5, is_mass_held: false, absent: 2, nodes: 22 };
    let hold = Some(HoldReason::Grace { until: since + GRACE });
    let expected = DeletionDecision { at: case.at, since, counts, by_hand: false, control_plane: None, hold };
    assert_eq!(case.guard.last_decision("a"), Some(&expected));
    assert_eq!(case.guard.last_decision("b"), None, "nothing was decided about it");
    case.pass(GRACE);
    let DeletionVerdict::Permitted(permit) = case.guard.verdict("a", case.at) else { panic!("it is permitted") };
    let expected = DeletionDecision { at: case.at, hold: None, ..expected };
    assert_eq!(case.guard.last_decision("a"), Some(&expected), "with the allowance before the decision");
    case.guard.settle(permit, PermitOutcome::Unused, case.at);
    assert_eq!(case.guard.last_decision("a"), Some(&expected));
    case.ready("a");
    assert_eq!(case.guard.last_decision("a"), None, "the kubelet reports again");
    assert_eq!(case.judge("b"), "deleted");
    assert_eq!(case.guard.last_decision("b"), None, "the Node is gone");
}

#[test]
fn the_last_decision_ends_with_the_proof() {
    let down = Presence::Unknown(Unknown::new(reason::CloudUnavailable, "down"));
    for presence in [Presence::Exists(()), down] {
        let mut case = Case::settled(&settings());
        case.lose("a");
        assert_eq!(case.judge("a"), "DeletionGracePeriod");
        case.answer("a", &gone());
        assert!(case.guard.last_decision("a").is_some(), "the VM is still absent");
        case.answer("a", &presence);
        assert_eq!(case.guard.last_decision("a"), None, "{presence:?}");
    }
}

#[test]
fn the_last_decision_has_the_permission_by_hand_and_the_control_plane() {
    let mut case = Case::settled(&settings());
    ["control-a", "control-b", "control-c"].iter().for_each(|name| case.ready(name));
    case.lose("control-a");
    case.allow("control-a", true);
    let DeletionVerdict::Permitted(_permit) = case.guard.verdict("control-a", case.at) else {
        panic!("it is permitted")
    };
    let decision = case.guard.last_decision("control-a").unwrap();
    assert_eq!((decision.by_hand, decision.control_plane, &decision.hold), (true, Some((1, 3)), &None));
    let text = decision.to_string();
    let expected = "permitted, VM absent for 0s, allowed by annotation, allowance 5, VMs of 1 of 3 Nodes absent, \
                    1 of 3 control plane Nodes lost";
    assert_eq!(text, expected);
}

#[test]
fn an_explanation_has_the_clocks_and_limits_of_the_decision() {
    let mut case = Case::settled(&settings());
    ["control-a", "control-b", "control-c"].iter().for_each(|name| case.ready(name));
    case.ready_many("other", 20);
    assert_eq!(case.guard.checks("control-a", case.at), None, "without a proof");
    assert_eq!(case.guard.stored_answer("control-a", &case.seen["control-a"]), None);
    case.lose("control-a");
    let since = case.at;
    case.pass(Duration::from_secs(10));
    let checks = case.guard.checks("control-a", case.at).unwrap();
    let until = since + GRACE;
    let hold = HoldReason::Grace { until };
    assert_eq!(checks.hold, Some((DeletionRule::Grace, hold.clone())));
    assert_eq!((checks.inputs.hold, checks.inputs.control_plane), (Some(hold), Some((1, 3))));
    assert_eq!((checks.grace_until, checks.refused_until, checks.mass_hold_until), (until, None, None));
    assert_eq!((checks.capacity, checks.window, checks.next_charge), (5, WINDOW, Some(case.at)));
    assert_eq!(checks.last_decision, None);
    let answer = case.guard.stored_answer("control-a", &case.seen["control-a"]).unwrap();
    assert_eq!((answer.presence, answer.since, answer.requested_at), (gone(), since, since));
    let changed = Facts { transition: Some(jiff::Timestamp::UNIX_EPOCH), ..case.seen["control-a"].clone() };
    assert_eq!(case.guard.stored_answer("control-a", &changed), None, "it is about another state of the Node");

    case.pass(GRACE);
    assert_eq!(case.judge_as("control-a", PermitOutcome::Rejected), "deleted");
    let refused_until = case.at + Duration::from_secs(5);
    let checks = case.guard.checks("control-a", case.at).unwrap();
    assert_eq!(checks.hold, Some((DeletionRule::Refusal, HoldReason::Refused { until: refused_until })));
    assert_eq!(checks.refused_until, Some(refused_until));
    assert!(checks.last_decision.is_some_and(|decision| decision.hold.is_none()), "it was permitted");
    case.lose_many("other", 20);
    let checks = case.guard.checks("other-0", case.at).unwrap();
    assert_eq!(checks.mass_hold_until, Some(case.at + HOLD));
    case.pass(HOLD);
    assert_eq!(case.guard.checks("other-0", case.at).unwrap().mass_hold_until, None);
}

#[test]
fn the_limit_does_not_hold_the_deletion_that_has_used_it_up() {
    let mut case =
        Case::settled(&LifecycleSettings { limit: Limit { nodes: 1, percent: 0, window: WINDOW }, ..settings() });
    case.ready_many("other", 20);
    case.lose_many("a", 2);
    case.pass(GRACE);
    let DeletionVerdict::Permitted(_under_way) = case.guard.verdict("a-0", case.at) else { panic!("it is held") };
    assert_eq!(case.guard.checks("a-0", case.at).unwrap().hold, None);
    let hold = case.guard.checks("a-1", case.at).unwrap().hold;
    assert!(matches!(hold, Some((DeletionRule::Limit, _))), "{hold:?}");
}
