//! Tests of the rule about a pause that an operator has ordered.

use super::*;

fn paused() -> Option<DeletionPause> {
    Some(DeletionPause::Until { until: "2026-11-30T04:00:00Z".parse().unwrap(), cause: None })
}

#[test]
fn a_pause_holds_every_deletion_also_an_allowed_one_and_counts_no_time() {
    for pause in [paused(), Some(DeletionPause::Unreadable { fault: "odd".to_owned() })] {
        let mut case = Case::settled(&settings());
        case.ready_many("other", 20);
        case.lose("a");
        case.lose("b");
        case.guard.observe_pause(pause);
        assert_eq!(case.judge("a"), "DeletionPaused");
        assert_eq!(case.judge_allowed("b", PermitOutcome::Deleted), "DeletionPaused", "the pause is for all");
        case.pass(GRACE);
        assert_eq!(case.judge("a"), "DeletionPaused");
        assert_eq!(case.guard.counts(case.at).allowance, 5, "nothing is charged");
        case.guard.observe_pause(None);
        assert_eq!(case.judge("b"), "deleted");
        assert_eq!(case.judge("a"), "deleted", "the grace period went on");
    }
}

#[test]
fn a_pause_that_is_ordered_after_the_permit_withdraws_it() {
    for is_allowed_by_hand in [false, true] {
        let mut case = Case::settled(&settings());
        case.ready_many("other", 20);
        case.lose("a");
        case.allow("a", is_allowed_by_hand);
        case.pass(GRACE);
        case.lose("a");
        let DeletionVerdict::Permitted(permit) = case.guard.verdict("a", case.at) else { panic!("not permitted") };
        assert!(case.guard.is_still_permitted(&permit, case.at));
        case.guard.observe_pause(paused());
        assert!(!case.guard.is_still_permitted(&permit, case.at));
        case.guard.settle(permit, PermitOutcome::Unused, case.at);
        assert_eq!(case.judge("a"), "DeletionPaused");
    }
}

#[test]
fn a_pause_is_reported_after_the_mode_and_before_a_dry_run() {
    let off = DeletionMode::Off { reason: "the test" };
    for (deletion, expected) in
        [(off, "DeletionOff"), (DeletionMode::DryRun, "DeletionPaused"), (DeletionMode::Enforce, "DeletionPaused")]
    {
        let mut case = Case::settled(&LifecycleSettings { deletion, ..settings() });
        case.lose("a");
        case.guard.observe_pause(paused());
        case.pass(GRACE);
        assert_eq!(case.judge_as("a", PermitOutcome::DryRun), expected);
    }
}
