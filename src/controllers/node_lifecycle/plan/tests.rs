//! Tests of the plan, as tables: readiness, power and taints of a Node, and the resulting changes.

use super::*;
use serde_json::json;

const HOUR: Duration = Duration::from_secs(3600);

fn power(state: PowerState, lasting: Duration) -> Option<Power> {
    Some(Power { state, lasting })
}

fn on() -> Option<Power> {
    power(PowerState::On, HOUR)
}

fn off(minutes: u64) -> Option<Power> {
    power(PowerState::Off, Duration::from_secs(60 * minutes))
}

/// Returns a Node. Each taint is written as `key=value:effect`.
fn node(ready: &str, taints: &[&str], is_marked: bool) -> Node {
    let taints: Vec<_> = taints
        .iter()
        .map(|text| {
            let (key, effect) = text.split_once(':').unwrap();
            match key.split_once('=') {
                Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
                None => json!({"key": key, "effect": effect}),
            }
        })
        .collect();
    let annotations = if is_marked { json!({ANNOTATION_OUT_OF_SERVICE: "2026-01-01T00:00:00Z"}) } else { json!({}) };
    let conditions = if ready.is_empty() { json!([]) } else { json!([{"type": "Ready", "status": ready}]) };
    serde_json::from_value(json!({
        "metadata": {"name": "n", "annotations": annotations},
        "spec": {"taints": taints}, "status": {"conditions": conditions},
    }))
    .unwrap()
}

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule";
const OUT: &str = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";

#[test]
fn the_shutdown_taint_follows_what_is_proven() {
    use Change::{AddShutdown, RemoveShutdown};
    let with_value = "node.cloudprovider.kubernetes.io/shutdown=x:NoSchedule";
    let no_execute = "node.cloudprovider.kubernetes.io/shutdown:NoExecute";
    let suspended = power(PowerState::Suspended, HOUR);
    let not_running = power(PowerState::NotRunning, Duration::ZERO);
    type Case<'a> = (&'a str, &'a str, &'a [&'a str], Option<Power>, &'a [Change]);
    let cases: [Case<'_>; 17] = [
        ("not Ready and off", "False", &[], off(0), &[AddShutdown]),
        ("not Ready and suspended", "Unknown", &[], suspended, &[AddShutdown]),
        ("not Ready and not running", "Unknown", &[], not_running, &[AddShutdown]),
        ("without a condition and off", "", &[], off(0), &[AddShutdown]),
        ("off and tainted", "False", &["x:NoSchedule", SHUTDOWN], off(0), &[]),
        ("off and tainted with a value", "False", &[with_value], off(0), &[AddShutdown]),
        ("off and tainted with another effect", "False", &[no_execute], off(0), &[AddShutdown]),
        ("not Ready and on", "False", &[], on(), &[]),
        ("not Ready, on and tainted", "False", &[SHUTDOWN], on(), &[RemoveShutdown]),
        ("not Ready, on and tainted with a value", "False", &[with_value], on(), &[RemoveShutdown]),
        ("nothing is proven", "False", &[], None, &[]),
        ("nothing is proven, tainted", "Unknown", &[SHUTDOWN], None, &[]),
        ("Ready", "True", &[], None, &[]),
        ("Ready and tainted", "True", &[SHUTDOWN], None, &[RemoveShutdown]),
        ("Ready, tainted and said to be off", "True", &[SHUTDOWN], off(0), &[RemoveShutdown]),
        ("Ready and tainted with another effect", "True", &[no_execute], None, &[]),
        ("Ready and said to be off", "True", &[], off(0), &[]),
    ];
    for (case, ready, taints, power, expected) in cases {
        let node = node(ready, taints, false);
        let plan = plan(&node, power, HOUR, None);
        assert_eq!(plan.changes, expected, "{case}");
        assert_eq!(plan.requeue_after, None, "{case}");
        let mut after = node.clone();
        after.spec.as_mut().unwrap().taints = Some(taints_after(&node, expected));
        assert_eq!(super::plan(&after, power, HOUR, None), LifecyclePlan::default(), "{case}: nothing is left to do");
    }
}

#[test]
fn a_machine_is_out_of_service_when_it_was_off_for_long_enough() {
    use Change::{AddOutOfService, RemoveOutOfService};
    let other = "node.kubernetes.io/out-of-service=manual:NoExecute";
    let after = Duration::from_secs(300);
    let suspended = power(PowerState::Suspended, HOUR);
    type Case<'a> = (&'a str, &'a str, &'a [&'a str], bool, Option<Power>, Option<Duration>, &'a [Change], Option<u64>);
    let cases: [Case<'_>; 21] = [
        ("off for long", "Unknown", &[SHUTDOWN], false, off(5), Some(after), &[AddOutOfService], None),
        ("off for long, and a kubelet reports", "False", &[SHUTDOWN], false, off(9), Some(after), &[], None),
        ("off for long, never reported", "", &[SHUTDOWN], false, off(9), Some(after), &[AddOutOfService], None),
        ("not for long enough", "Unknown", &[SHUTDOWN], false, off(4), Some(after), &[], Some(60)),
        ("the flag is off", "Unknown", &[SHUTDOWN], false, off(60), None, &[], None),
        ("Ready", "True", &[], false, off(60), Some(after), &[], None),
        ("suspended", "Unknown", &[SHUTDOWN], false, suspended, Some(after), &[], None),
        ("on", "Unknown", &[], false, on(), Some(after), &[], None),
        ("nothing is proven", "Unknown", &[SHUTDOWN], false, None, Some(after), &[], None),
        ("tainted by hand", "Unknown", &[SHUTDOWN, OUT], false, off(60), Some(after), &[], None),
        ("tainted otherwise", "Unknown", &[SHUTDOWN, other], false, off(60), Some(after), &[], None),
        ("tainted by hand, and it runs", "Unknown", &[OUT], false, on(), Some(after), &[], None),
        ("ours", "Unknown", &[SHUTDOWN, OUT], true, off(60), Some(after), &[], None),
        ("ours, and it runs", "Unknown", &[OUT], true, on(), Some(after), &[RemoveOutOfService], None),
        ("ours, it is Ready and runs", "True", &[OUT], true, on(), None, &[RemoveOutOfService], None),
        ("ours, it is Ready, nothing is proven", "True", &[OUT], true, None, Some(after), &[RemoveOutOfService], None),
        ("ours, it is Ready, its VM is off", "True", &[OUT], true, off(60), Some(after), &[RemoveOutOfService], None),
        ("ours, a kubelet reports, its VM is off", "False", &[SHUTDOWN, OUT], true, off(60), Some(after), &[], None),
        ("ours, nothing is proven", "Unknown", &[SHUTDOWN, OUT], true, None, Some(after), &[], None),
        ("ours, somebody took it off", "Unknown", &[SHUTDOWN], true, off(60), Some(after), &[], None),
        ("ours, somebody took it off, it runs", "Unknown", &[], true, on(), None, &[RemoveOutOfService], None),
    ];
    for (case, ready, taints, is_marked, power, flag, expected, look_again) in cases {
        let plan = plan(&node(ready, taints, is_marked), power, HOUR, flag);
        assert_eq!(plan.changes, expected, "{case}");
        assert_eq!(plan.requeue_after, look_again.map(Duration::from_secs), "{case}");
    }
    let silent = node("Unknown", &[SHUTDOWN], false);
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (off_for, unreachable_for, left) in [(60, 4, Some(1)), (4, 60, Some(1)), (60, 5, None), (5, 60, None)] {
        let plan = plan(&silent, off(off_for), minutes(unreachable_for), Some(after));
        let expected: &[Change] = if left.is_some() { &[] } else { &[AddOutOfService] };
        let found = (plan.changes.as_slice(), plan.requeue_after);
        assert_eq!(found, (expected, left.map(minutes)), "off for {off_for}, unreachable for {unreachable_for}");
    }
    let joining = node("Unknown", &[SHUTDOWN, "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"], false);
    assert_eq!(plan(&joining, off(60), HOUR, Some(after)).changes, [], "a node that is not initialized");
}

#[test]
fn taints_of_others_stay_as_and_where_they_are() {
    let node = node("False", &["a=1:NoSchedule", OUT, SHUTDOWN, "a=1:NoExecute"], true);
    let keys = |changes: &[Change]| -> Vec<String> {
        taints_after(&node, changes).iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
    };
    let expected = ["a:NoSchedule", "a:NoExecute"];
    assert_eq!(keys(&[Change::RemoveShutdown, Change::RemoveOutOfService]), expected);
    assert_eq!(keys(&[Change::AddShutdown, Change::AddOutOfService]).len(), 4);
    let others = super::tests::node("Unknown", &["node.kubernetes.io/out-of-service=mine:NoExecute"], true);
    assert_eq!(taints_after(&others, &[Change::RemoveOutOfService]), node::taints(&others));
}

#[test]
fn a_ready_node_without_a_taint_of_ours_costs_nothing() {
    for (case, node, look, needs) in [
        ("Ready", node("True", &["x:NoSchedule"], false), false, false),
        ("Ready and tainted", node("True", &[SHUTDOWN], false), true, false),
        ("Ready and marked", node("True", &[OUT], true), true, false),
        ("not Ready", node("False", &[], false), true, true),
        ("never reported", node("", &[], false), true, true),
    ] {
        assert_eq!((needs_reconcile(&node), needs_power(&node)), (look, needs), "{case}");
    }
}
