//! Tests which labels the controller writes, changes and removes.

use super::*;
use crate::cloud::node::{INSTANCE_TYPE, LabelPair, REGION, ZONE};
use crate::controllers::node::{LabelMode, NodeLabelsOn};

fn pairs(pair: LabelPair, value: &str) -> BTreeMap<String, String> {
    map(&[(pair.current, value), (pair.legacy, value)])
}

fn all(parts: &[BTreeMap<String, String>]) -> BTreeMap<String, String> {
    parts.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn machine(zone: &str, region: &str, instance_type: &str) -> InstanceMetadata {
    InstanceMetadata {
        zone: zone.into(),
        region: region.into(),
        instance_type: instance_type.into(),
        ..metadata("fake://1", A3)
    }
}

fn after(
    labels: BTreeMap<String, String>,
    machine: InstanceMetadata,
    policy: &Policy,
) -> (NodePlan, BTreeMap<String, String>) {
    let form = Form { labels, ..tainted("", "fake://1", A3) };
    let (plan, after) = run_on(form.node(), Presence::Exists(machine), policy);
    (plan, after.metadata.labels.unwrap_or_default())
}

/// A zone label on a Node in use changes where pods are scheduled, so it is not added later.
#[test]
fn zone_and_region_are_written_at_initialization_only() {
    let machine = || InstanceMetadata { instance_type: "large".into(), ..zoned(metadata("fake://1", A3)) };
    let (plan, labels) = after(map(&[]), machine(), &Policy::default());
    assert_eq!((plan.actions, labels), (vec![], map(&[])));
    assert_eq!(plan.differences, Some(vec![]), "a label that was never there does not differ");
}

/// Older releases of the Go program do not know the guests of RHEL 8 and later.
#[test]
fn an_instance_type_of_an_older_table_does_not_differ() {
    let typed = |text: &str| pairs(INSTANCE_TYPE, text);
    let differs = |present: &str, cloud: &str| {
        let (plan, _) = after(typed(present), machine("", "", cloud), &Policy::default());
        !plan.differences.unwrap().is_empty()
    };
    let old = "vsphere-vm.cpu-4.mem-8gb.os-unknown";
    assert!(!differs(old, "vsphere-vm.cpu-4.mem-8gb.os-rhel9"));
    assert!(differs(old, "vsphere-vm.cpu-8.mem-8gb.os-rhel9"), "another size");
    assert!(differs("vsphere-vm.cpu-4.mem-8gb.os-rhel9", old), "the other way round");
    assert!(differs("unknown", "large"), "no table of guests");
}

#[test]
fn zone_and_region_are_filled_in_on_an_initialized_node_that_has_neither_form() {
    let policy = Policy { zone_labels: LabelMode::Fill, ..Policy::default() };
    let zone_only = map(&[("topology.kubernetes.io/zone", "mine")]);
    let mut region_added = zone_only.clone();
    region_added.extend(map(&ZONES[2..]));
    for (id, before, expected) in [
        ("neither", map(&[]), map(ZONES)),
        ("zone is there", zone_only, region_added),
        ("both are there and differ", map(&CURRENT[..2]), map(&CURRENT[..2])),
    ] {
        let form = Form { labels: before, ..tainted("", "fake://1", A3) };
        let (_, after) = run_on(form.node(), Presence::Exists(zoned(metadata("fake://1", A3))), &policy);
        assert_eq!(after.metadata.labels.unwrap_or_default(), expected, "{id}");
    }
}

#[test]
fn labels_of_an_initialized_node_follow_the_cloud_where_they_are_asked_to() {
    let init = Policy::default();
    let zones = Policy { zone_labels: LabelMode::Follow, ..Policy::default() };
    let types = Policy { instance_type: LabelMode::Follow, ..Policy::default() };
    let old = || all(&[pairs(ZONE, "a"), pairs(REGION, "r"), pairs(INSTANCE_TYPE, "small")]);
    let moved = || machine("b", "s", "large");
    let only_current = || map(&[(ZONE.current, "a"), (INSTANCE_TYPE.current, "small")]);
    for (case, policy, before, machine, expected) in [
        ("init: volumes are pinned to zones", &init, old(), moved(), old()),
        (
            "zones follow",
            &zones,
            old(),
            moved(),
            all(&[pairs(ZONE, "b"), pairs(REGION, "s"), pairs(INSTANCE_TYPE, "small")]),
        ),
        (
            "types follow",
            &types,
            old(),
            moved(),
            all(&[pairs(ZONE, "a"), pairs(REGION, "r"), pairs(INSTANCE_TYPE, "large")]),
        ),
        ("no value removes nothing", &zones, old(), machine("", "", ""), old()),
        ("no value removes no type", &types, old(), machine("", "", ""), old()),
        ("init: no type is added", &init, map(&[]), machine("", "", "large"), map(&[])),
        ("following adds the type", &types, map(&[]), machine("", "", "large"), pairs(INSTANCE_TYPE, "large")),
        ("init: the older form is not added", &init, only_current(), machine("a", "", "small"), only_current()),
        (
            "following writes both forms",
            &zones,
            only_current(),
            machine("a", "", "small"),
            all(&[pairs(ZONE, "a"), map(&[(INSTANCE_TYPE.current, "small")])]),
        ),
    ] {
        assert_eq!(after(before, machine, policy).1, expected, "{case}");
    }
}

#[test]
fn a_label_that_stays_is_told_with_both_values() {
    let old = || all(&[pairs(ZONE, "a"), pairs(REGION, "r"), pairs(INSTANCE_TYPE, "small")]);
    let init = Policy::default();
    let follow = Policy { zone_labels: LabelMode::Follow, instance_type: LabelMode::Follow, ..Policy::default() };
    let reported = |labels, machine, policy: &Policy| -> Vec<String> {
        let (plan, _) = after(labels, machine, policy);
        let differences = plan.differences.unwrap();
        differences
            .iter()
            .map(|one| format!("{} {}: {} not {}", one.reason, one.label, one.present, one.cloud))
            .collect()
    };
    let type_differs = "InstanceTypeDiffers node.kubernetes.io/instance-type: small not large";
    let zone_differs = "ZoneLabelsDiffer topology.kubernetes.io/zone: a not b";
    let region_differs = "ZoneLabelsDiffer topology.kubernetes.io/region: r not s";
    let mixed = all(&[pairs(ZONE, "a"), map(&[(ZONE.current, "b")])]);
    for (case, labels, machine, policy, expected) in [
        ("all", old(), machine("b", "s", "large"), &init, vec![type_differs, zone_differs, region_differs]),
        ("equal", old(), machine("a", "r", "small"), &init, vec![]),
        ("no value says nothing", old(), machine("", "", ""), &init, vec![]),
        ("no label", map(&[]), machine("b", "s", "large"), &init, vec![]),
        ("the older form counts", mixed, machine("b", "", ""), &init, vec![zone_differs]),
        ("followed", old(), machine("b", "s", "large"), &follow, vec![]),
    ] {
        assert_eq!(reported(labels, machine, policy), expected, "{case}");
    }
    let (plan, _) = after(old(), machine("b", "r", "large"), &init);
    let texts: Vec<_> = plan.differences.iter().flatten().map(Difference::describe).collect();
    assert!(texts.iter().any(|text| text.contains("--zone-labels=follow")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("--instance-type=follow")), "{texts:?}");
    let form = Form { labels: old(), ..tainted("", "fake://1", A3) };
    let (plan, _) = run(&form, Presence::Unknown(Unknown::new(reason::CloudError, "away")));
    assert_eq!(plan.differences, None, "what was told stays so while the cloud says nothing");
}

#[test]
fn what_was_reported_is_remembered_until_the_cloud_says_all_again() {
    let form = Form { labels: all(&[pairs(ZONE, "a"), pairs(INSTANCE_TYPE, "small")]), ..tainted("", "fake://1", A3) };
    let machine = |zone: &str, instance_type: &str| machine(zone, "", instance_type);
    let (_, reported) = run(&form, Presence::Exists(machine("b", "large")));
    let annotation = |node: &Node| node::annotation(node, label_reports::ANNOTATION).map(str::to_owned);
    let (zone, both) = (
        r#""topology.kubernetes.io/zone":["a","b"]"#,
        r#"{"node.kubernetes.io/instance-type":["small","large"],"topology.kubernetes.io/zone":["a","b"]}"#,
    );
    assert_eq!(annotation(&reported).as_deref(), Some(both));
    let pending = || Some(Unknown::transient(reason::LookupPending, "tags are not read yet"));
    for (case, found, expected) in [
        (
            "the zone is not known yet",
            InstanceMetadata { pending: pending(), ..machine("", "large") },
            Some(both.to_owned()),
        ),
        ("it has none", machine("", "small"), None),
        ("only that", InstanceMetadata { pending: pending(), ..machine("", "small") }, Some(format!("{{{zone}}}"))),
        ("it is as the label", InstanceMetadata { pending: pending(), ..machine("a", "small") }, None),
    ] {
        let (_, after) = run_on(reported.clone(), Presence::Exists(found), &Policy::default());
        assert_eq!(annotation(&after), expected, "{case}");
    }
}

#[test]
fn at_initialization_the_cloud_overwrites_and_the_flag_adds() {
    let policy = Policy {
        node_labels: map(&[
            ("team", "storage"),
            ("mine/kept", "flag"),
            ("cloud/also", "flag"),
            ("k8s.io/reserved", "flag"),
            ("node-role.kubernetes.io/worker", ""),
        ]),
        ..Policy::default()
    };
    let machine = InstanceMetadata { additional_labels: map(&[("cloud/also", "cloud")]), ..machine("b", "", "large") };
    let before = all(&[pairs(ZONE, "a"), map(&[("mine/kept", "user"), (INSTANCE_TYPE.legacy, "small")])]);
    let form = Form { labels: before, ..tainted("U", "", "") };
    let (plan, after) = run_on(form.node(), Presence::Exists(machine), &policy);
    let own = map(&[("team", "storage"), ("mine/kept", "user"), ("cloud/also", "cloud")]);
    assert_eq!(after.metadata.labels, Some(all(&[pairs(ZONE, "b"), pairs(INSTANCE_TYPE, "large"), own])));
    for key in ["mine/kept", "cloud/also", "k8s.io/reserved", "node-role.kubernetes.io/worker"] {
        assert!(plan.messages.iter().any(|note| note.contains(key)), "{key} is not told: {:?}", plan.messages);
    }
    assert_eq!(plan.messages.len(), 4, "{:?}", plan.messages);
}

#[test]
fn node_labels_are_for_nodes_that_are_being_initialized() {
    let policy = Policy { node_labels: map(&[("team", "storage")]), ..Policy::default() };
    let (plan, labels) = after(map(&[]), machine("", "", ""), &policy);
    assert_eq!((plan.actions, labels), (vec![], map(&[])));
}

#[test]
fn labels_that_say_where_the_machine_is_are_always_so() {
    let key = |name: &str| format!("topology.vsphere-ccm.dev/{name}");
    let place = || BTreeMap::from([(key("esxi-host"), Some("host-2".to_owned())), (key("cluster"), None)]);
    let machine = || InstanceMetadata { topology_labels: place(), ..machine("", "", "") };
    let before = map(&[(&key("esxi-host"), "host-1"), (&key("cluster"), "c"), (&key("folder"), "not asked for")]);
    let expected = map(&[(&key("esxi-host"), "host-2"), (&key("folder"), "not asked for")]);
    let policy = Policy { node_labels: map(&[(&key("cluster"), "by flag")]), ..Policy::default() };
    for taints in ["", "U"] {
        let form = Form { labels: before.clone(), ..tainted(taints, "fake://1", A3) };
        let (plan, after) = run_on(form.node(), Presence::Exists(machine()), &policy);
        assert_eq!(after.metadata.labels.as_ref(), Some(&expected), "{taints:?}");
        assert_eq!(plan.actions.len(), 1, "one write: {:?}", plan.actions);
    }
}

#[test]
fn labels_that_are_not_set_are_told() {
    let refused = map(&[("k8s.io/a", "b"), ("mine/a", "b"), ("same/a", "b")]);
    let metadata = InstanceMetadata { additional_labels: refused, ..metadata("fake://1", A3) };
    let form = Form { labels: map(&[("mine/a", "c"), ("same/a", "b")]), ..tainted("U", "", "") };
    let (plan, _) = run(&form, Presence::Exists(metadata));
    assert_eq!(plan.messages.len(), 2, "{:?}", plan.messages);
}

/// Returns whether the Node lacks labels, and its labels after a plan. `is_turn` permits the plan to add them.
fn labelled(form: Form, machine: InstanceMetadata, policy: &Policy, is_turn: bool) -> (bool, BTreeMap<String, String>) {
    let mut node = form.node();
    let mut ours = ours(node.clone(), Presence::Exists(machine));
    ours.turn.of_labels = is_turn;
    let lacks = lacks_labels(&ours, policy);
    plan(Some(&ours), policy).actions.iter().for_each(|action| perform(action, &mut node));
    (lacks, node.metadata.labels.unwrap_or_default())
}

#[test]
fn an_initialized_node_gets_the_labels_it_lacks_only_when_all_are_asked_for_and_in_its_turn() {
    let node_labels = map(&[("a.b/c", "d"), ("pool", "blue"), ("node-role.kubernetes.io/worker", "")]);
    let join = Policy { node_labels, ..Policy::default() };
    let all = Policy { node_labels_on: NodeLabelsOn::All, ..join.clone() };
    let missing = map(&[("pool", "red")]);
    let added = map(&[("a.b/c", "d"), ("pool", "red")]);
    let machine = || metadata("fake://1", A3);
    let located = InstanceMetadata { topology_labels: [("a.b/c".to_owned(), None)].into(), ..machine() };
    let doubted = InstanceMetadata { stale: Some(Unknown::new(reason::LookupPending, "")), ..machine() };
    for (case, policy, form, machine, is_turn, lacks, expected) in [
        ("join", &join, tainted("", "fake://1", A3), machine(), true, false, &missing),
        ("all, not its turn", &all, tainted("", "fake://1", A3), machine(), false, true, &missing),
        ("all", &all, tainted("", "fake://1", A3), machine(), true, true, &added),
        ("no provider ID", &all, tainted("", "", A3), machine(), true, false, &missing),
        ("the label records the location of the VM", &all, tainted("", "fake://1", A3), located, true, false, &missing),
        ("in doubt", &all, tainted("", "fake://1", A3), doubted, true, false, &missing),
    ] {
        let form = Form { labels: missing.clone(), ..form };
        assert_eq!(labelled(form, machine, policy, is_turn), (lacks, expected.clone()), "{case}");
    }
    let full = Form { labels: added.clone(), ..tainted("", "fake://1", A3) };
    assert_eq!(labelled(full, machine(), &all, true), (false, added), "nothing is left to add");
}

#[test]
fn the_number_of_nodes_without_labels_is_one_line_in_either_mode() {
    let node_labels = map(&[("a.b/c", "d"), ("t/cluster", "x"), ("node-role.kubernetes.io/worker", "")]);
    let policy = Policy { node_labels, topology_labels: ["t/cluster".to_owned()].into(), ..Policy::default() };
    let node = |labels: &[(&str, &str)]| Arc::new(Form { labels: map(labels), ..Form::default() }.node());
    let front = "2 of 3 initialized Nodes lack labels of --node-labels: ";
    for (on, end) in [(NodeLabelsOn::Join, "--node-labels-on=all adds them"), (NodeLabelsOn::All, "10 Nodes a second")]
    {
        let policy = Policy { node_labels_on: on, ..policy.clone() };
        let described = |nodes: Vec<Arc<Node>>| describe_missing(nodes.into_iter(), &policy);
        let line = described(vec![node(&[]), node(&[("a.b/c", "x")]), node(&[("e", "f")])]).unwrap();
        assert!(line.starts_with(front) && line.ends_with(end), "{line}");
        assert_eq!(described(vec![node(&[("a.b/c", "x")])]), None);
    }
}
