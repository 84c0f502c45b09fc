//! Tests of stored answers: when an answer is reused, when the provider is asked again, and which answers count.

use super::*;

/// A time that is shorter than all times under test.
const TICK: Duration = Duration::from_millis(1);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn silent(reason: Reason) -> Presence {
    Presence::Unknown(Unknown::new(reason, ""))
}

fn down() -> Presence {
    silent(reason::CloudUnavailable)
}

impl Case {
    /// Returns a case with these Nodes, which are not Ready. The provider gave so many unknown answers about them that
    /// the pause has its maximum.
    fn troubled(names: &[&str], reason: Reason) -> Self {
        let mut case = Self::settled(&settings());
        names.iter().for_each(|name| case.not_ready(name));
        for _ in 0..12 {
            names.iter().for_each(|name| case.answer(name, &silent(reason)));
        }
        case
    }

    /// Returns true if the last answer is still valid after this time. Does not move the clock.
    fn is_remembered_after(&mut self, name: &str, time: Duration) -> bool {
        let now = self.at;
        self.at += time;
        let is_remembered = self.remembered(name).is_some();
        self.at = now;
        is_remembered
    }
}

#[test]
fn many_answers_count_for_longer_so_that_all_together_cost_one_question_a_second() {
    let mut case = Case::settled(&settings());
    case.lose_many("n", 1_000);
    assert!(case.is_remembered_after("n-999", seconds(998)) && !case.is_remembered_after("n-999", seconds(1_000)));
    assert!(!case.is_remembered_after("n-0", seconds(60)), "alone it was a minute");
    // Deleted Nodes, Nodes with an event, and Nodes with a VM do not count any more.
    for number in 0..900 {
        let name = format!("n-{number}");
        match number % 3 {
            0 => case.gone(&name),
            1 => case.event(&name),
            _ => case.answer(&name, &Presence::Exists(())),
        }
    }
    case.lose("a");
    assert!(case.is_remembered_after("a", seconds(98)) && !case.is_remembered_after("a", seconds(102)));
    case.event_about_all();
    case.lose("b");
    assert!(!case.is_remembered_after("b", seconds(60)));
}

#[test]
fn answers_count_for_as_long_as_asking_again_would_cost_more_than_it_tells() {
    let unknown =
        |retry_after| Presence::Unknown(Unknown { retry_after, ..Unknown::new(reason::CloudUnavailable, "down") });
    for (case, presence, failures, expected) in [
        ("exists", Presence::Exists(()), 0, 0),
        ("absent", gone(), 0, 60),
        ("unknown", unknown(None), 0, 1),
        ("unknown for the fourth time", unknown(None), 3, 8),
        ("unknown for long", unknown(None), 90, 60),
        ("unknown with a time", unknown(Some(seconds(20))), 0, 20),
        ("unknown with a long time", unknown(Some(seconds(3600))), 0, 60),
    ] {
        let mut world = Case::settled(&settings());
        world.not_ready("n");
        (0..failures).for_each(|_| world.answer("n", &unknown(None)));
        world.answer("n", &presence);
        let before = seconds(expected).saturating_sub(TICK);
        assert_eq!(world.is_remembered_after("n", before), expected > 0, "{case}");
        assert!(!world.is_remembered_after("n", seconds(expected)), "{case}");
        world.chance = 1.0;
        world.answer("n", &presence);
        assert!(!world.is_remembered_after("n", seconds(60).mul_f64(0.75)), "{case}: by chance");
    }
}

#[test]
fn an_answer_is_about_one_machine_of_one_node_in_one_state() {
    let base = || facts("n", Readiness::Unknown);
    type Change = fn(&mut Case);
    let table: [(&str, Change, bool); 8] = [
        ("nothing", |_| {}, true),
        ("seen again", |case| case.not_ready("n"), true),
        ("recreated", |case| case.saw("n", Facts { uid: "v".into(), ..facts("n", Readiness::Unknown) }), false),
        (
            "another machine",
            |case| case.saw("n", Facts { provider_id: "q".into(), ..facts("n", Readiness::Unknown) }),
            false,
        ),
        ("Ready changed", |case| case.ready("n"), false),
        ("somebody allowed it", |case| case.allow("n", true), false),
        ("something happened to the machine", |case| case.event("n"), false),
        ("something happened to any machine", Case::event_about_all, false),
    ];
    for (name, change, is_valid) in table {
        for presence in [gone(), down()] {
            let mut case = Case::settled(&settings());
            case.saw("n", base());
            case.answer("n", &presence);
            change(&mut case);
            assert_eq!(case.remembered("n"), is_valid.then_some(presence.clone()), "{name}");
            case.answer("n", &presence);
            assert_eq!(case.remembered("n"), Some(presence.clone()), "{name}: asked again");
        }
    }
}

#[test]
fn what_happens_while_the_provider_is_asked_makes_the_answer_late() {
    let overtakes: [fn(&mut Case); 2] = [|case| case.event("n"), Case::event_about_all];
    for overtake in overtakes {
        for presence in [gone(), down(), Presence::Exists(())] {
            let mut case = Case::settled(&settings());
            case.not_ready("n");
            case.ask("n");
            overtake(&mut case);
            case.receive("n", &presence);
            assert_eq!(case.remembered("n"), None, "{presence:?}");
            case.pass(GRACE);
            assert_eq!(case.judge("n"), "not suspected", "{presence:?}: no grace period has begun");
        }
    }
}

/// A change of a Node.
type Happening = fn(&mut Case);

/// Changes of a Node while the provider is asked about it.
const CHANGES: [(&str, Happening); 6] = [
    ("Ready for a moment", |case| {
        case.ready("n");
        case.not_ready("n");
    }),
    ("Ready for a moment that nobody saw", |case| {
        let transition = Some("2026-01-01T00:00:00Z".parse().unwrap());
        case.saw("n", Facts { transition, ..facts("n", Readiness::Unknown) });
    }),
    ("another machine", |case| case.saw("n", Facts { provider_id: "q".into(), ..facts("n", Readiness::Unknown) })),
    ("recreated", |case| case.saw("n", Facts { uid: "v".into(), ..facts("n", Readiness::Unknown) })),
    ("somebody allowed it for a moment", |case| {
        case.allow("n", true);
        case.allow("n", false);
    }),
    ("it was not initialized", |case| {
        case.saw("n", Facts { may_have_absent_vm: false, ..facts("n", Readiness::Unknown) });
        case.not_ready("n");
    }),
];

#[test]
fn an_answer_about_the_node_as_it_was_counts_for_nothing() {
    for (name, change) in CHANGES {
        for presence in [gone(), down(), Presence::Exists(())] {
            let mut case = Case::settled(&settings());
            case.not_ready("n");
            case.ask("n");
            change(&mut case);
            case.receive("n", &presence);
            assert_eq!(case.remembered("n"), None, "{name}, {presence:?}");
            case.pass(GRACE);
            assert_eq!(case.judge("n"), "not suspected", "{name}, {presence:?}");
            // The next request is about the state of the Node before the change.
            let before = facts("n", Readiness::True);
            case.guard.record_query("n", &before, case.at);
            case.receive("n", &presence);
            assert_eq!(case.judge("n"), "not suspected", "{name}, {presence:?}: before");
            case.answer("n", &gone());
            assert_eq!(case.judge("n"), "DeletionGracePeriod", "{name}, {presence:?}: asked again");
            assert_eq!(case.guard.last_answer("n", &before, case.at), None, "{name}: about the Node as it was before");
        }
    }
}

#[test]
fn an_answer_is_not_used_again_once_another_status_was_in_between() {
    for (name, change) in CHANGES {
        for presence in [gone(), down()] {
            let mut case = Case::settled(&settings());
            case.not_ready("n");
            case.answer("n", &presence);
            change(&mut case);
            assert_eq!(case.remembered("n"), None, "{name}, {presence:?}");
        }
    }
    // A kubelet that reports again does not reset the pause, because the provider still does not answer.
    let mut case = Case::troubled(&["n", "m"], reason::CloudUnavailable);
    case.ready("n");
    case.not_ready("n");
    case.answer("n", &down());
    assert!(case.is_remembered_after("n", seconds(60) - TICK));
    case.ready("n");
    case.not_ready("n");
    case.pass(seconds(20));
    case.answer("n", &gone());
    assert!(!case.is_remembered_after("m", TICK * 100), "the end of the outage shortens the pauses of others");
}

#[test]
fn a_node_about_which_an_answer_came_too_late_may_be_one_of_many_that_are_gone() {
    for presence in [gone(), down(), Presence::Exists(())] {
        let mut case = Case::settled(&LifecycleSettings { grace: Duration::ZERO, ..settings() });
        for number in 0..6 {
            case.not_ready(&format!("n-{number}"));
            case.ask(&format!("n-{number}"));
        }
        case.receive("n-0", &gone());
        for number in 1..6 {
            case.event(&format!("n-{number}"));
            case.receive(&format!("n-{number}"), &presence);
        }
        let verdict = case.guard.verdict("n-0", case.at);
        assert!(
            matches!(verdict, DeletionVerdict::Held(HoldReason::Counting { unanswered: 5 })),
            "{presence:?}: {verdict:?}"
        );
    }
}

#[test]
fn a_late_answer_goes_on_with_a_suspicion_only_if_it_says_the_same() {
    for (presence, expected) in
        [(gone(), "deleted"), (down(), "not suspected"), (Presence::Exists(()), "not suspected")]
    {
        let mut case = Case::settled(&settings());
        case.lose("n");
        case.pass(GRACE);
        case.ask("n");
        case.event("n");
        case.receive("n", &presence);
        assert_eq!(case.remembered("n"), None, "{presence:?}");
        assert_eq!(case.judge("n"), expected, "{presence:?}");
    }
}

#[test]
fn an_event_and_somebodys_word_have_the_provider_asked_and_end_no_suspicion() {
    let happenings: [fn(&mut Case); 2] = [
        |case| case.event("control-0"),
        |case| {
            case.allow("control-0", true);
            case.allow("control-0", false);
        },
    ];
    for happens in happenings {
        let mut case = Case::settled(&settings());
        case.ready_many("control", 3);
        case.lose_many("control", 2);
        case.pass(GRACE - seconds(1));
        happens(&mut case);
        assert_eq!(case.remembered("control-0"), None);
        assert_eq!(case.judge("control-0"), "DeletionGracePeriod");
        case.pass(seconds(1));
        assert_eq!(case.judge("control-1"), "DeletionControlPlaneMajority", "the other one is still gone");
        case.answer("control-0", &gone());
        assert_eq!(case.judge("control-0"), "DeletionControlPlaneMajority", "the grace period went on");
    }
}

#[test]
fn an_answer_about_a_node_that_may_not_be_suspected_is_remembered_and_counts_for_nothing() {
    let base = |name: &str| Facts { may_have_absent_vm: false, ..facts(name, Readiness::Unknown) };
    let mut case = Case::settled(&LifecycleSettings { grace: Duration::ZERO, ..settings() });
    case.ready_many("other", 20);
    for number in 0..8 {
        for (kind, presence) in [("gone", gone()), ("silent", down()), ("there", Presence::Exists(()))] {
            let name = format!("{kind}-{number}");
            case.saw(&name, base(&name));
            case.answer(&name, &presence);
            case.saw(&name, base(&name));
            let is_costly = presence != Presence::Exists(());
            assert_eq!(case.remembered(&name), Some(presence).filter(|_| is_costly), "{name}");
            assert_eq!(case.judge(&name), "not suspected", "{name}");
        }
    }
    case.pass(seconds(5));
    case.lose("other-0");
    assert_eq!(case.judge("other-0"), "deleted", "none of them is one of many that may be gone");
    // The Node can be suspected now, but older answers about it do not count.
    case.not_ready("gone-0");
    assert_eq!(case.judge("gone-0"), "not suspected");
}

#[test]
fn an_event_makes_the_next_answer_that_says_nothing_the_first() {
    let mut case = Case::troubled(&["a"], reason::CloudUnavailable);
    assert!(case.is_remembered_after("a", seconds(59)));
    case.event("a");
    case.answer("a", &down());
    assert!(case.is_remembered_after("a", seconds(1) - TICK));
    assert!(!case.is_remembered_after("a", seconds(1)), "and not after a minute");
}

#[test]
fn the_pauses_restart_after_an_answer_and_with_another_node_of_the_name() {
    type Between = fn(&mut Case);
    let table: [(&str, Between, u64); 5] = [
        ("nothing", |_| {}, 60),
        ("absent", |case| case.answer("a", &gone()), 1),
        ("exists", |case| case.answer("a", &Presence::Exists(())), 1),
        ("recreated", |case| case.saw("a", Facts { uid: "v".into(), ..facts("a", Readiness::Unknown) }), 1),
        (
            "it was gone for a moment",
            |case| {
                case.gone("a");
                case.not_ready("a");
            },
            1,
        ),
    ];
    for (name, between, expected) in table {
        let mut case = Case::troubled(&["a"], reason::CloudUnavailable);
        between(&mut case);
        case.answer("a", &down());
        assert!(case.is_remembered_after("a", seconds(expected) - TICK), "{name}");
        assert!(!case.is_remembered_after("a", seconds(expected)), "{name}");
    }
}

#[test]
fn an_answer_that_ends_the_silence_shortens_the_pause_of_those_who_wait_for_the_same() {
    let passing = || Presence::Unknown(Unknown::transient(reason::LookupPending, "asked"));
    let denied = || silent(reason::NoPermission);
    // Name, answers about `a`, whether an event comes before the last answer, and validity of the answer about `b` in
    // seconds.
    for (name, said, is_announced, until) in [
        ("its machine is gone", vec![gone()], false, 20),
        ("its machine exists", vec![Presence::Exists(())], false, 20),
        ("it is gone, after an event and a look-up", vec![passing(), gone()], true, 20),
        ("still nothing", vec![passing()], false, 60),
        ("something else stands in the way", vec![denied()], false, 60),
        ("that has ended, and is not what b waits for", vec![denied(), gone()], false, 60),
    ] {
        let mut case = Case::troubled(&["a", "b"], reason::CloudUnavailable);
        case.not_ready("c");
        case.answer("c", &denied());
        case.pass(seconds(20));
        let last = said.len() - 1;
        for (number, presence) in said.iter().enumerate() {
            if is_announced && number == last {
                case.event("a");
            }
            case.answer("a", presence);
        }
        assert!(until == 20 || case.is_remembered_after("b", seconds(until - 20) - TICK), "{name}");
        assert!(!case.is_remembered_after("b", seconds(until - 20) + TICK * 100), "{name}");
    }
}

#[test]
fn those_who_wait_are_asked_about_one_after_the_other_and_not_again_and_again() {
    let names: Vec<String> = (0..1_000).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut case = Case::troubled(&names, reason::CloudUnavailable);
    let due = |case: &mut Case, after| names.iter().filter(|name| !case.is_remembered_after(name, after)).count();
    case.pass(seconds(55));
    case.answer(names[0], &gone());
    assert!(due(&mut case, seconds(10)) <= 201 && due(&mut case, seconds(51)) >= 999);
    // The provider gives an unknown answer about `b` just before the answer about `a`.
    let mut case = Case::troubled(&["a", "b", "c"], reason::CloudUnavailable);
    case.pass(seconds(55));
    case.answer("b", &down());
    case.answer("a", &gone());
    assert!(case.is_remembered_after("b", seconds(5) - TICK), "it was asked about just now");
    assert!(!case.is_remembered_after("b", seconds(5)));
}

#[test]
fn answers_that_end_the_silence_one_after_the_other_go_through_all_others_once_in_a_while() {
    let mut case = Case::troubled(&["a", "b", "c", "d"], reason::CloudUnavailable);
    case.pass(seconds(20));
    case.answer("a", &Presence::Exists(()));
    assert!(!case.is_remembered_after("d", seconds(5)));
    // The provider gives one more unknown answer about `d`.
    case.pass(seconds(1));
    case.answer("d", &down());
    case.pass(seconds(1));
    case.answer("b", &Presence::Exists(()));
    assert!(case.is_remembered_after("d", seconds(58)), "the others were gone through just now");
    case.pass(seconds(3));
    case.answer("c", &Presence::Exists(()));
    assert!(!case.is_remembered_after("d", seconds(1)), "and now again");
}

#[test]
fn an_answer_that_was_asked_for_before_the_silence_ended_is_not_kept_for_long() {
    let mut case = Case::troubled(&["a", "b"], reason::CloudUnavailable);
    case.pass(seconds(60));
    case.ask("b");
    case.pass(seconds(10));
    case.answer("a", &Presence::Exists(()));
    case.pass(seconds(15));
    case.receive("b", &down());
    assert!(!case.is_remembered_after("b", seconds(5)));
    case.pass(seconds(5));
    case.answer("b", &down());
    assert!(case.is_remembered_after("b", seconds(59)), "asked since then, it is kept for the usual time");
}

#[test]
fn a_refusal_and_what_a_dry_run_said_end_with_the_suspicion() {
    for used in [PermitOutcome::Rejected, PermitOutcome::DryRun] {
        for presence in [Presence::Exists(()), down()] {
            let mut case = Case::settled(&settings());
            case.ready_many("other", 20);
            case.lose("n");
            case.pass(GRACE);
            assert_eq!(case.judge_as("n", used), "deleted");
            case.answer("n", &presence);
            case.answer("n", &gone());
            case.pass(GRACE - TICK);
            assert_eq!(case.judge("n"), "DeletionGracePeriod", "{used:?}, {presence:?}");
            case.pass(TICK);
            assert_eq!(case.judge("n"), "deleted", "{used:?}, {presence:?}");
        }
    }
}

#[test]
fn what_a_dry_run_said_of_a_node_that_reported_meanwhile_does_not_count() {
    let mut case = Case::settled(&settings());
    case.lose("n");
    case.pass(GRACE);
    let DeletionVerdict::Permitted(permit) = case.guard.verdict("n", case.at) else { panic!("held") };
    case.ready("n");
    case.guard.settle(permit, PermitOutcome::DryRun, case.at);
    case.ready("n");
    assert_eq!(case.guard.nodes.count(NodeCategory::Own), 1, "it is there");
}

#[test]
fn a_node_that_may_be_deleted_or_is_gone_is_asked_about_before_it_is_suspected_again() {
    let mut case = Case::settled(&settings());
    case.ready_many("other", 20);
    case.lose_many("n", 2);
    case.pass(GRACE);
    assert_eq!(case.judge_as("n-0", PermitOutcome::Deleted), "deleted");
    case.not_ready("n-0");
    assert_eq!(case.judge("n-0"), "not suspected", "it is there after all");
    assert_eq!(case.remembered("n-0"), None);
    case.gone("n-1");
    case.not_ready("n-1");
    assert_eq!((case.remembered("n-1"), case.judge("n-1").as_str()), (None, "not suspected"));
}
