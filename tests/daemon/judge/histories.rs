//! The rules for Nodes held to histories that break exactly one of them, and to others that break none.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use support::nodes::UNINITIALIZED_TAINT;

use super::machine::{Machine, Power};
use super::rules::{Rules, SHUTDOWN_TAINT, VM};
use super::versions::Version;
use crate::cluster::labels;

const GRACE: Duration = Duration::from_secs(2);

/// Who made a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The test, as a kubelet or an operator.
    Test,
    /// Somebody else: the daemon.
    Daemon,
    /// Nobody can tell: versions before it were missed, those since this second.
    Missed(u64),
}
use By::{Daemon, Missed, Test};

/// One version: when it came, in seconds, from whom, and what it is; a deletion if it is nothing.
type Step = (u64, By, Option<Value>);

/// A node that waits to be initialised, ready or not.
fn waiting(ready: &str) -> Value {
    json!({
        "metadata": {"name": "n-0", "uid": "u", "labels": {"own": "1"}},
        "spec": {"taints": [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// The same as the daemon leaves it.
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

/// Takes this label off.
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

/// What has become of the machine all along.
#[derive(Clone, Copy, Debug)]
enum Truth {
    Runs,
    IsOff,
    IsGone,
}
use Truth::{IsGone, IsOff, Runs};

impl Truth {
    /// Such a machine. It is as it is since before the first second.
    fn machine(self) -> Machine {
        let mut machine = Machine::default();
        let power = if matches!(self, Runs) { Power::On } else { Power::Off };
        (machine.is_there, machine.power) = (!matches!(self, IsGone), Some(power));
        machine.note();
        machine
    }
}

/// What the rules say of these versions; the first line of it.
fn judge(mut rules: Rules, truth: Truth, steps: &[Step]) -> Result<(), String> {
    let machine = truth.machine();
    let start = Instant::now();
    let second = |seconds: u64| start + Duration::from_secs(seconds);
    let mut last = Node::default();
    for (version, (at, by, value)) in steps.iter().enumerate() {
        let is_deletion = value.is_none();
        if let Some(value) = value {
            last = serde_json::from_value(value.clone()).unwrap();
        }
        last.metadata.resource_version = Some((version + 1).to_string());
        match (by, is_deletion) {
            (Test, true) => rules.will_delete(&last),
            (Test, false) => rules.wrote(&last),
            (Daemon | Missed(_), _) => {}
        }
        let missed_since = if let Missed(since) = by { Some(second(*since)) } else { None };
        let version = Version { at: second(*at), node: last.clone(), is_deletion, missed_since };
        let judged = rules.take(version, &machine);
        judged.map_err(|told| told.lines().next().unwrap_or_default().to_owned())?;
    }
    Ok(())
}

/// Registered, and initialised by the daemon; then this.
fn then(mut steps: Vec<Step>) -> Vec<Step> {
    let ready = if steps.iter().any(|step| step.1 == Daemon && step.2.is_none()) { "Unknown" } else { "True" };
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
            "an initialised node was made uninitialised",
            Runs,
            then(vec![(2, Daemon, some(taint(done("True"), UNINITIALIZED_TAINT)))]),
        ),
        (
            "initialised without a provider ID",
            Runs,
            vec![
                (0, Test, some(waiting("True"))),
                (1, Daemon, some(with(done("True"), |node| node["spec"]["providerID"] = Value::Null))),
            ],
        ),
        (
            "initialised without an address",
            Runs,
            vec![(0, Test, some(waiting("True"))), (1, Daemon, some(lost_address()))],
        ),
        ("an initialised node lost its InternalIP", Runs, then(vec![(2, Daemon, some(lost_address()))])),
        (
            "an initialised node lost its Hostname",
            Runs,
            then(vec![(2, Daemon, some(address(done("True"), &[("InternalIP", "10.0.0.1")])))]),
        ),
        ("an initialised node has no address:", Runs, vec![(0, Test, some(lost_address()))]),
        ("an initialised node has no address:", Runs, then(vec![(9, Missed(2), some(lost_address()))])),
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
        ("an uninitialised node was deleted", IsGone, vec![(0, Test, some(waiting("Unknown"))), (9, Daemon, None)]),
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
    ];
    for (expected, truth, steps) in cases {
        let found = judge(Rules::new(GRACE, false), truth, &steps);
        assert_eq!(found, Err(expected.to_owned()), "{truth:?} {steps:#?}");
    }
}

/// A version is missing: the test itself is wrong, or its watch.
#[test]
fn a_deletion_is_of_a_node_that_was_seen() {
    let node = serde_json::from_value(with(done("False"), |node| node["metadata"]["resourceVersion"] = "1".into()));
    let version = Version { at: Instant::now(), node: node.unwrap(), is_deletion: true, missed_since: None };
    let told = Rules::new(GRACE, false).take(version, &IsGone.machine());
    assert_eq!(told, Err("a Node is deleted that never was".to_owned()));
}

#[test]
fn what_a_daemon_may_do_breaks_none() {
    let some = |value: Value| Some(value);
    let moved = || address(done("True"), &[("InternalIP", "10.0.0.2"), ("Hostname", "n-0")]);
    let old_zone = "failure-domain.beta.kubernetes.io/zone";
    let cases: Vec<(&str, bool, Truth, Vec<Step>)> = vec![
        ("initialised", false, Runs, then(Vec::new())),
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
        (
            "ready for too short a time to be noticed",
            false,
            IsGone,
            then(vec![(5, Test, some(done("True"))), (5, Test, some(done("Unknown"))), (6, Daemon, None)]),
        ),
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

/// A daemon that may have been deaf when a node was ready for that long is not held to what it did not hear.
#[test]
fn a_deaf_daemon_is_held_to_longer_times_only() {
    let ready_for = |seconds: u64| {
        let back = 5 + seconds;
        then(vec![(5, Test, Some(done("True"))), (back, Test, Some(done("Unknown"))), (back + 1, Daemon, None)])
    };
    let judge =
        |seconds| judge(Rules::new(GRACE, false).deaf_for(Duration::from_secs(60)), IsGone, &ready_for(seconds));
    assert_eq!(judge(59), Ok(()));
    assert_eq!(judge(60), Err("a node was deleted within the grace period".to_owned()));
}

#[test]
fn what_happened_is_counted() {
    let mut rules = Rules::new(GRACE, false);
    let machine = IsOff.machine();
    let start = Instant::now();
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
            rules.wrote(&node);
        }
        rules.take(Version { at: start, node, is_deletion: false, missed_since: None }, &machine).unwrap();
    }
    let seen = &rules.seen;
    assert_eq!([seen.writes, seen.initialised, seen.readdressed, seen.shutdowns, seen.deleted], [3, 1, 1, 1, 0]);
}
