//! Tests of the condition that gives the reason why a Node is not initialized.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const AFTER: Duration = Duration::from_secs(30);

/// Returns the time this many seconds after the beginning of 2026.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn condition(status: &str, reason: &str, message: &str, written: i64, since: i64) -> NodeCondition {
    NodeCondition {
        type_: CONDITION.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_heartbeat_time: Some(Time(at(written))),
        last_transition_time: Some(Time(at(since))),
    }
}

fn with(mut node: Node, condition: Option<NodeCondition>) -> Node {
    node.status.get_or_insert_default().conditions = condition.map(|condition| vec![condition]);
    node
}

/// Returns the plan at second 100 for a Node that has waited for `waited` seconds because of `unknown` and has
/// `condition`.
fn told(waited: u64, unknown: Unknown, condition: Option<NodeCondition>) -> NodePlan {
    let node = with(tainted("U", "", "").node(), condition);
    let ours = OwnNode {
        observed_at: at(100),
        waiting_time: Duration::from_secs(waited),
        ..ours(node, Presence::Unknown(unknown))
    };
    plan(Some(&ours), &Policy::default())
}

#[test]
fn a_node_that_waits_says_why_after_a_while_and_not_again() {
    let unknown = || Unknown::new(reason::VMNotFound, "no machine");
    let passing = Unknown::transient(reason::LookupPending, "soon");
    let stands = |reason, message, written| Some(condition("False", reason, message, written, 10));
    let fresh = |written| Some(condition("False", "VMNotFound", "no machine", written, written));
    let same = || stands("VMNotFound", "no machine", 20);
    let pending = Some(condition("False", "LookupPending", "soon", 100, 100));
    let said = Some(condition("False", "LookupPending", "for long", 20, 10));
    let after = |seconds| Some(Duration::from_secs(seconds));
    let truth = Some(condition("True", "Initialized", "", 20, 20));
    let updated = |written| stands("VMNotFound", "no machine", written);
    for (case, waited, unknown, standing, written, is_news, again) in [
        ("too early", 29, unknown(), None, None, false, after(1)),
        ("at once", 0, unknown(), None, None, false, Some(AFTER)),
        ("now", 30, unknown(), None, fresh(100), true, None),
        ("said already", 500, unknown(), same(), None, false, None),
        (
            "another reason, since when stays",
            500,
            unknown(),
            stands("NoAddresses", "none", 99),
            updated(100),
            true,
            None,
        ),
        ("another message, too early", 500, unknown(), stands("VMNotFound", "none", 41), None, false, after(1)),
        ("another message", 500, unknown(), stands("VMNotFound", "none", 40), updated(100), false, None),
        (
            "a time to come is another clock's",
            500,
            unknown(),
            stands("VMNotFound", "none", 200),
            updated(100),
            false,
            None,
        ),
        ("by another process", 3, unknown(), stands("NoAddresses", "none", 20), None, false, after(27)),
        ("it was initialized once", 30, unknown(), truth, fresh(100), true, None),
        ("it may pass yet", 59, passing.clone(), None, None, false, after(1)),
        ("it does not pass", 60, passing.clone(), None, pending, true, None),
        ("it does not pass, and that is said", 500, passing.clone(), said, None, false, None),
        ("it passes, and something stands there", 500, passing, same(), None, false, None),
    ] {
        let plan = told(waited, unknown, standing);
        let expected: Vec<_> = written.map(NodeAction::SetCondition).into_iter().collect();
        assert_eq!(plan.actions, expected, "{case}");
        assert_eq!(plan.event.is_some(), is_news, "{case}");
        assert_eq!(held(&plan).and_then(|blocked| blocked.report_after), again, "{case}");
    }
}

#[test]
fn the_event_has_the_reason_and_the_whole_message() {
    let plan = told(30, Unknown::new(reason::NoAddresses, "none"), None);
    assert_eq!(plan.event, Some((reason::NoAddresses, "none".to_owned())));
    assert!(plan.only_reports_block());
}

#[test]
fn the_message_is_bounded_and_then_is_still_the_same() {
    let unknown = || Unknown::new(reason::VMNotFound, "ä".repeat(2000));
    let first = told(30, unknown(), None);
    let [NodeAction::SetCondition(condition)] = first.actions.as_slice() else { panic!("{first:?}") };
    let message = condition.message.as_deref().unwrap();
    assert_eq!(message, format!("{}…", "ä".repeat(299)));
    assert_eq!(told(30, unknown(), Some(condition.clone())).actions, []);
}

#[test]
fn a_condition_that_says_no_is_taken_back_where_the_node_is_initialized() {
    let no = || Some(condition("False", "VMNotFound", "none", 20, 10));
    let yes = || Some(condition("True", "Initialized", "", 20, 10));
    let exists = || Presence::Exists(metadata("fake://1", A3));
    let unknown = || Presence::Unknown(Unknown::new(reason::CloudError, "away"));
    let absent = || Presence::Absent(AbsenceProof::new("gone", []));
    for (case, taints, provider_id, condition, instance, expected) in [
        ("being initialized", "U", "", no(), exists(), vec!["initialized", "True"]),
        ("being initialized, nothing stands", "U", "", None, exists(), vec!["initialized"]),
        ("being initialized, yes stands", "U", "", yes(), exists(), vec!["initialized"]),
        ("another process died before", "", "fake://1", no(), exists(), vec!["True"]),
        ("also while the cloud is away", "", "fake://1", no(), unknown(), vec!["True"]),
        ("also when the machine is gone", "", "fake://1", no(), absent(), vec!["True"]),
        ("it was fine", "", "fake://1", None, exists(), vec![]),
        ("said already", "", "fake://1", yes(), exists(), vec![]),
        ("somebody took the taint away, and that is all", "", "", no(), exists(), vec![]),
    ] {
        let node = with(tainted(taints, provider_id, A3).node(), condition);
        let (plan, after) = run_on(node, instance, &Policy::default());
        let word = |action: &NodeAction| match action {
            NodeAction::SetCondition(condition) => condition.status.clone(),
            other => other.describe(),
        };
        assert_eq!(plan.actions.iter().map(word).collect::<Vec<_>>(), expected, "{case}");
        assert!(plan.event.is_none(), "{case}");
        assert_eq!(super::condition::is_false(&after), case.starts_with("somebody"), "{case}");
    }
}

#[test]
fn an_initialized_node_never_gets_a_condition() {
    let unknown = Presence::Unknown(Unknown::new(reason::CloudError, "away"));
    for node in [tainted("", "fake://1", A3).node(), tainted("X", "", A3).node()] {
        let ours = OwnNode { waiting_time: AFTER * 10, ..ours(node, unknown.clone()) };
        assert_eq!(plan(Some(&ours), &Policy::default()).actions, []);
    }
}

#[test]
fn what_the_api_server_refuses_is_told_like_any_other_reason() {
    let refused = || NodeBlocked::new(reason::WriteRefused, "forbidden".into(), Requeue::BACKOFF);
    let exists = Presence::Exists(metadata("fake://1", A3));
    let waiting = OwnNode { waiting_time: AFTER, ..ours(tainted("U", "", "").node(), exists.clone()) };
    let plan = blocked_plan(&waiting, refused(), &Policy::default());
    let [NodeAction::SetCondition(condition)] = plan.actions.as_slice() else { panic!("{plan:?}") };
    assert_eq!(condition.reason.as_deref(), Some("WriteRefused"));
    assert_eq!(plan.event, Some((reason::WriteRefused, "forbidden".to_owned())));
    let initialized = OwnNode { waiting_time: AFTER, ..ours(tainted("", "fake://1", A3).node(), exists) };
    let plan = blocked_plan(&initialized, refused(), &Policy::default());
    assert_eq!((plan.actions, plan.outcome), (vec![], NextStep::Blocked(refused())));
}
