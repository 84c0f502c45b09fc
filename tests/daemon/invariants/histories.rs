//! Tests the rules for Nodes with histories that break exactly one of them, and with others that break none.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use support::nodes::{UNINITIALIZED_TAINT, ready_condition, ready_of};

use super::limits::Limits;
use super::machine::{Machine, Power};
use super::proofs::{Logged, Proof};
use super::rules::{Rules, SHUTDOWN_TAINT, VM, ready};
use super::versions::Version;
use crate::cluster::labels;

const GRACE: Duration = Duration::from_secs(2);

/// Author of a version.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// The test, as a kubelet or an operator.
    Test,
    /// The daemon. For a deletion, the proof began at the same second.
    Daemon,
    /// The daemon deletes, and the proof began at this second.
    Proved(u64),
    /// The daemon deletes, and this is the content of the logs.
    Unproved(Logged),
    /// Unknown author, because versions since this second were missed.
    Missed(u64),
}
use By::{Daemon, Missed, Proved, Test, Unproved};

/// One version: its time in seconds, its author and its content. `None` is a deletion.
type Step = (u64, By, Option<Value>);

/// Returns a node that waits for initialization, ready or not.
fn waiting(ready: &str) -> Value {
    json!({
        "metadata": {"name": "n-0", "uid": "u", "labels": {"own": "1"}},
        "spec": {"taints": [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// Returns the node as the daemon leaves it.
fn done(ready: &str) -> Value {
    let mut node = waiting(ready);
    for (key, value) in labels("zone-a") {
        node["metadata"]["labels"][key] = value.into();
    }
    node["metadata"]["annotations"] = json!({VM: "{}"});
    node["spec"] = json!({"providerID": "vsphere://1", "taints": []});
    node["status"]["addresses"] =
        json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n-0"}]);
    node
}

fn with(mut node: Value, change: impl FnOnce(&mut Value)) -> Value {
    change(&mut node);
    node
}

/// Removes this label.
fn without(node: &mut Value, label: &str) {
    node["metadata"]["labels"].as_object_mut().unwrap().remove(label);
}

fn taint(node: Value, key: &str) -> Value {
    with(node, |node| node["spec"]["taints"].as_array_mut().unwrap().push(json!({"key": key, "effect": "NoSchedule"})))
}

fn address(node: Value, all: &[(&str, &str)]) -> Value {
    let all: Vec<Value> = all.iter().map(|(kind, address)| json!({"type": kind, "address": address})).collect();
    with(node, |node| node["status"]["addresses"] = all.into())
}

fn labelled(key: &'static str, value: &'static str) -> Value {
    with(done("True"), |node| node["metadata"]["labels"][key] = value.into())
}

/// State of the machine during the history.
#[derive(Clone, Copy, Debug)]
enum Truth {
    Runs,
    IsOff,
    IsGone,
    /// The machine did not exist between these seconds.
    WasGone(u64, u64),
}
use Truth::{IsGone, IsOff, Runs, WasGone};

impl Truth {
    /// Returns a machine in this state, since before the first second unless stated otherwise.
    fn machine(self, start: Instant) -> Machine {
        let mut machine = Machine::default();
        let power = if matches!(self, IsOff | IsGone) { Power::Off } else { Power::On };
        (machine.is_there, machine.power) = (!matches!(self, IsGone), Some(power));
        machine.note_at(start);
        if let WasGone(from, until) = self {
            for (is_there, at) in [(false, from), (true, until)] {
                machine.is_there = is_there;
                machine.note_at(start + Duration::from_secs(at));
            }
        }
        machine
    }
}

/// Applies the rules to these versions. Returns the first line of a violation.
fn judge(mut rules: Rules, truth: Truth, steps: &[Step]) -> Result<(), String> {
    let start = Instant::now();
    let machines = [truth.machine(start)];
    let second = |seconds: u64| start + Duration::from_secs(seconds);
    let mut last = Node::default();
    for (version, (at, by, value)) in steps.iter().enumerate() {
        let is_deletion = value.is_none();
        if let Some(value) = value {
            last = at_second(*at, serde_json::from_value(value.clone()).unwrap(), &last);
        }
        last.metadata.resource_version = Some((version + 1).to_string());
        match (by, is_deletion) {
            (Test, true) => rules.will_delete(&last),
            (Test, false) => rules.wrote(&last, second(*at)),
            _ => {}
        }
        let missed_since = if let Missed(since) = by { Some(second(*since)) } else { None };
        let logged = match by {
            Unproved(logged) => *logged,
            Proved(began) => Logged::Proof(Proof { began: second(*began), process: 0 }),
            _ => Logged::Proof(Proof { began: second(*at), process: 0 }),
        };
        let version = Version { at: second(*at), node: last.clone(), is_deletion, missed_since };
        let judged = rules.take(version, &machines[0]).and_then(|()| rules.conclude(&machines, |_, _, _| logged));
        judged.map_err(|told| told.lines().next().unwrap_or_default().replace(": node 0", ""))?;
    }
    Ok(())
}

/// Sets the times of the Node's condition Ready, as the successor of the version `before`.
fn at_second(at: u64, mut node: Node, before: &Node) -> Node {
    let now = Timestamp::from_second(i64::try_from(at).unwrap()).unwrap();
    let same = ready_of(before).filter(|condition| condition.status == ready(&node));
    let condition = same.cloned().unwrap_or_else(|| ready_condition(before, ready(&node), now));
    node.status.get_or_insert_default().conditions = Some(vec![condition]);
    node
}

/// Prepends the registration and the initialization by the daemon.
fn then(mut steps: Vec<Step>) -> Vec<Step> {
    let ready = if steps.iter().any(|step| matches!(step.1, Daemon | Proved(_) | Unproved(_)) && step.2.is_none()) {
        "Unknown"
    } else {
        "True"
    };
    let mut all = vec![(0, Test, Some(waiting(ready))), (1, Daemon, Some(done(ready)))];
    all.append(&mut steps);
    all
}

#[test]
fn each_rule_is_broken_by_a_history_of_its_own() {
    let some = |value: Value| Some(value);
    let zone = "topology.kubernetes.io/zone";
    let old_zone = "failure-domain.beta.kubernetes.io/zone";
    let lost_address = || address(done("True"), &[("Hostname", "n-0")]);
    let cases: Vec<(&str, Truth, Vec<Step>)> = vec![
        ("somebody else made a Node:", Runs, vec![(0, Daemon, some(waiting("True")))]),
        ("what is not the daemon's was changed", Runs, then(vec![(2, Daemon, some(labelled("own", "2")))])),
        (
            "what is not the daemon's was changed",
            Runs,
            then(vec![(2, Daemon, some(taint(done("True"), "somebody/else")))]),
        ),
        ("what is not the daemon's was changed", Runs, then(vec![(2, Daemon, some(done("False")))])),
        (
            "the provider ID was changed",
            Runs,
            then(vec![(2, Daemon, some(with(done("True"), |node| node["spec"]["providerID"] = "vsphere://2".into())))]),
        ),
        (
            "an initialized node was made uninitialized",
            Runs,
            then(vec![(2, Daemon, some(taint(done("True"), UNINITIALIZED_TAINT)))]),
        ),
        (
            "initialized without a provider ID",
            Runs,
            vec![
                (0, Test, some(waiting("True"))),
                (1, Daemon, some(with(done("True"), |node| node["spec"]["providerID"] = Value::Null))),
            ],
        ),
        (
            "initialized without an address",
            Runs,
            vec![(0, Test, some(waiting("True"))), (1, Daemon, some(lost_address()))],
        ),
        ("an initialized node lost its InternalIP", Runs, then(vec![(2, Daemon, some(lost_address()))])),
        (
            "an initialized node lost its Hostname",
            Runs,
            then(vec![(2, Daemon, some(address(done("True"), &[("InternalIP", "10.0.0.1")])))]),
        ),
        ("an initialized node has no address:", Runs, vec![(0, Test, some(lost_address()))]),
        ("an initialized node has no address:", Runs, then(vec![(9, Missed(2), some(lost_address()))])),
        (
            "the label topology.kubernetes.io/zone was removed",
            Runs,
            then(vec![(2, Daemon, some(with(done("True"), |node| without(node, zone))))]),
        ),
        (
            "the label failure-domain.beta.kubernetes.io/zone was changed",
            Runs,
            then(vec![(2, Daemon, some(labelled(old_zone, "zone-b")))]),
        ),
        (
            "a ready node was marked as shut down",
            IsOff,
            then(vec![(2, Daemon, some(taint(done("True"), SHUTDOWN_TAINT)))]),
        ),
        (
            "the node of a running machine was marked as shut down",
            Runs,
            then(vec![(2, Test, some(done("False"))), (3, Daemon, some(taint(done("False"), SHUTDOWN_TAINT)))]),
        ),
        (
            "a node was deleted whose kubelet reports",
            IsGone,
            then(vec![(2, Test, some(done("True"))), (9, Daemon, None)]),
        ),
        (
            "a node was deleted whose kubelet reports",
            IsGone,
            then(vec![(2, Test, some(done("False"))), (9, Daemon, None)]),
        ),
        ("an uninitialized node was deleted", IsGone, vec![(0, Test, some(waiting("Unknown"))), (9, Daemon, None)]),
        ("a node was deleted within the grace period", IsGone, then(vec![(1, Daemon, None)])),
        (
            "a node was deleted within the grace period",
            IsGone,
            then(vec![(5, Test, some(done("True"))), (8, Test, some(done("Unknown"))), (9, Daemon, None)]),
        ),
        (
            "a node was deleted within the grace period",
            IsGone,
            then(vec![(5, Test, some(done("False"))), (8, Test, some(done("Unknown"))), (9, Daemon, None)]),
        ),
        ("a node was deleted whose machine existed all the time", Runs, then(vec![(9, Daemon, None)])),
        ("a node was deleted whose machine existed all the time", IsOff, then(vec![(9, Daemon, None)])),
        ("a node was deleted whose machine existed all the time", Runs, then(vec![(99, Missed(50), None)])),
        // The machine was absent within the last 30 s, and existed again when the proof began.
        ("a node was deleted whose machine existed all the time", WasGone(19, 20), then(vec![(40, Proved(39), None)])),
        (
            "a node was deleted whose machine existed all the time",
            WasGone(8, 9),
            then(vec![(40, Unproved(Logged::Lost), None)]),
        ),
        ("a node was deleted within the grace period", IsGone, then(vec![(9, Proved(1), None)])),
        ("a node was deleted within the grace period", IsGone, then(vec![(1, Unproved(Logged::Lost), None)])),
        ("no daemon logged the proof that led to a deletion", IsGone, then(vec![(9, Unproved(Logged::Never), None)])),
        (
            "a node was deleted within the grace period",
            IsGone,
            then(vec![(5, Test, some(done("True"))), (6, Test, some(done("Unknown"))), (7, Daemon, None)]),
        ),
    ];
    for (expected, truth, steps) in cases {
        let found = judge(Rules::new(GRACE, false), truth, &steps);
        assert_eq!(found, Err(expected.to_owned()), "{truth:?} {steps:#?}");
    }
}

/// A version is missing, so the test itself or its watch is wrong.
#[test]
fn a_deletion_is_of_a_node_that_was_seen() {
    let node = serde_json::from_value(with(done("False"), |node| node["metadata"]["resourceVersion"] = "1".into()));
    let version = Version { at: Instant::now(), node: node.unwrap(), is_deletion: true, missed_since: None };
    let told = Rules::new(GRACE, false).take(version, &IsGone.machine(Instant::now()));
    assert_eq!(told, Err("a Node is deleted that never was".to_owned()));
}

#[test]
fn what_a_daemon_may_do_breaks_none() {
    let some = |value: Value| Some(value);
    let moved = || address(done("True"), &[("InternalIP", "10.0.0.2"), ("Hostname", "n-0")]);
    let old_zone = "failure-domain.beta.kubernetes.io/zone";
    let cases: Vec<(&str, bool, Truth, Vec<Step>)> = vec![
        ("initialized", false, Runs, then(Vec::new())),
        ("another address", false, Runs, then(vec![(2, Daemon, some(moved()))])),
        ("labels follow", true, Runs, then(vec![(2, Daemon, some(labelled(old_zone, "zone-b")))])),
        (
            "marked as shut down",
            false,
            IsOff,
            then(vec![(2, Test, some(done("False"))), (3, Daemon, some(taint(done("False"), SHUTDOWN_TAINT)))]),
        ),
        (
            "marked no more",
            false,
            Runs,
            then(vec![(2, Test, some(taint(done("True"), SHUTDOWN_TAINT))), (3, Daemon, some(done("True")))]),
        ),
        ("deleted after the grace period", false, IsGone, then(vec![(9, Daemon, None)])),
        ("gone when the proof began", false, WasGone(19, 20), then(vec![(40, Proved(20), None)])),
        ("the proof is lost", false, WasGone(19, 20), then(vec![(40, Unproved(Logged::Lost), None)])),
        ("the proof is still to be judged", false, Runs, then(vec![(9, Unproved(Logged::Awaited), None)])),
        ("deleted by the test", false, Runs, then(vec![(2, Test, None)])),
        ("what somebody writes", false, Runs, then(vec![(2, Test, some(labelled("own", "2")))])),
        ("made while nobody looked", false, Runs, vec![(9, Missed(2), some(waiting("True")))]),
        ("changed while nobody looked", false, Runs, then(vec![(9, Missed(2), some(labelled("own", "2")))])),
        ("deleted while nobody looked", false, IsGone, then(vec![(9, Missed(2), None)])),
    ];
    for (case, follows, truth, steps) in cases {
        assert_eq!(judge(Rules::new(GRACE, follows), truth, &steps), Ok(()), "{case}");
    }
}

/// The rules check the log again until they find the proof.
#[test]
fn a_deletion_is_judged_once_its_proof_is_logged() {
    let mut rules = Rules::new(GRACE, false);
    let start = Instant::now();
    let machines = [Runs.machine(start)];
    let mut node: Node = serde_json::from_value(done("Unknown")).unwrap();
    node.metadata.resource_version = Some("1".to_owned());
    rules.wrote(&node, start);
    let at = start + Duration::from_secs(9);
    for is_deletion in [false, true] {
        rules.take(Version { at, node: node.clone(), is_deletion, missed_since: None }, &machines[0]).unwrap();
    }
    rules.conclude(&machines, |_, _, _| Logged::Awaited).unwrap();
    assert_eq!((rules.pending(), rules.seen.proofs), (1, 0));
    let told = rules.conclude(&machines, |uid, since, until| {
        assert_eq!((uid, since, until), ("u", at, at));
        Logged::Proof(Proof { began: at, process: 0 })
    });
    assert!(told.unwrap_err().starts_with("a node was deleted whose machine existed all the time: node 0"));
    assert_eq!((rules.pending(), rules.seen.proofs, rules.seen.lost_proofs), (0, 1, 0));
}

/// Two of four nodes are deleted at second 20. The test may have deleted another one before.
#[test]
fn nodes_of_the_control_plane_are_counted_when_one_is_deleted() {
    let start = Instant::now();
    let machines: Vec<Machine> = (0..4).map(|_| IsGone.machine(start)).collect();
    let second = |seconds: u64| start + Duration::from_secs(seconds);
    let node = |number: usize| {
        let mut node = done("Unknown");
        (node["metadata"]["name"], node["metadata"]["uid"]) =
            (format!("n-{number}").into(), format!("u-{number}").into());
        node["metadata"]["resourceVersion"] = number.to_string().into();
        node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "".into();
        serde_json::from_value::<Node>(node).unwrap()
    };
    for (case, deleted_at, expected) in [
        ("of four", None, Ok(())),
        ("of four just now", Some(19), Ok(())),
        ("of three", Some(10), Err("2 of 3 nodes of the control plane were deleted")),
    ] {
        let mut rules = Rules::new(GRACE, false).limited(Limits::new(5, Duration::from_secs(10)));
        let version = |number, at, is_deletion| Version { at, node: node(number), is_deletion, missed_since: None };
        for number in 0..4 {
            rules.wrote(&node(number), start);
            rules.take(version(number, start, false), &machines[0]).unwrap();
        }
        if let Some(at) = deleted_at {
            rules.will_delete(&node(3));
            rules.take(version(3, second(at), true), &machines[0]).unwrap();
        }
        let judged = (0..2).try_for_each(|number| {
            rules.take(version(number, second(20), true), &machines[0])?;
            rules.conclude(&machines, |_, _, _| Logged::Proof(Proof { began: second(20), process: 0 }))
        });
        let judged = judged.map_err(|told| told.split(": node").next().unwrap().to_owned());
        assert_eq!(judged, expected.map_err(str::to_owned), "{case}");
        assert!(expected.is_err() || rules.seen.control_plane == 2, "{case}");
    }
}

#[test]
fn what_happened_is_counted() {
    let mut rules = Rules::new(GRACE, false);
    let start = Instant::now();
    let machine = IsOff.machine(start);
    let moved = address(done("False"), &[("InternalIP", "10.0.0.2"), ("Hostname", "n-0")]);
    for (version, (by, value)) in [
        (Test, waiting("False")),
        (Daemon, done("False")),
        (Daemon, moved.clone()),
        (Daemon, taint(moved, SHUTDOWN_TAINT)),
    ]
    .into_iter()
    .enumerate()
    {
        let mut node: Node = serde_json::from_value(value).unwrap();
        node.metadata.resource_version = Some(version.to_string());
        if by == Test {
            rules.wrote(&node, start);
        }
        rules.take(Version { at: start, node, is_deletion: false, missed_since: None }, &machine).unwrap();
    }
    let seen = &rules.seen;
    assert_eq!([seen.writes, seen.initialized, seen.readdressed, seen.shutdowns, seen.deleted], [3, 1, 1, 1, 0]);
}
