//! Tests of the annotation that records which VM a Node has, and where.

use super::*;

fn machine(record: &str, is_recorded: bool) -> InstanceMetadata {
    InstanceMetadata { record: record.into(), is_recorded, ..metadata("fake://1", A3) }
}

fn node_with(taints: &'static str, provider_id: &'static str, record: Option<&str>, ready: Option<&str>) -> Node {
    let mut node = tainted(taints, provider_id, A3).node();
    node.metadata.annotations = record.map(|record| map(&[(ANNOTATION_VM, record)]));
    let condition =
        |status: &str| NodeCondition { type_: "Ready".into(), status: status.into(), ..NodeCondition::default() };
    node.status.get_or_insert_default().conditions = ready.map(|status| vec![condition(status)]);
    node
}

#[test]
fn the_record_is_written_when_it_is_needed_and_not_at_every_move() {
    let stale = InstanceMetadata { stale: Some(Unknown::new(reason::CloudUnavailable, "")), ..machine("vm-1 b", true) };
    let id = "fake://1";
    let (yes, no) = (Some("True"), Some("False"));
    for (case, node, machine, expected) in [
        ("at initialization", node_with("U", "", None, no), machine("vm-1 a", false), Some("vm-1 a")),
        (
            "at initialization, another is there",
            node_with("U", "", Some("x"), no),
            machine("vm-1 a", true),
            Some("vm-1 a"),
        ),
        ("at first sight", node_with("", id, None, yes), machine("vm-1 a", false), Some("vm-1 a")),
        ("at first sight, without provider ID", node_with("", "", None, yes), machine("vm-1 a", false), None),
        ("equal", node_with("", id, Some("vm-1 a"), no), machine("vm-1 a", true), Some("vm-1 a")),
        ("another machine", node_with("", id, Some("vm-1 a"), yes), machine("vm-2 a", false), Some("vm-2 a")),
        ("moved while Ready", node_with("", id, Some("vm-1 a"), yes), machine("vm-1 b", true), Some("vm-1 a")),
        (
            "moved while Ready, and the record is urgent",
            node_with("", id, Some("vm-1 a"), yes),
            InstanceMetadata { is_record_urgent: true, ..machine("vm-1 b", true) },
            Some("vm-1 b"),
        ),
        (
            "not moved, and the record is urgent",
            node_with("", id, Some("vm-1 a"), yes),
            InstanceMetadata { is_record_urgent: true, ..machine("vm-1 a", true) },
            Some("vm-1 a"),
        ),
        ("moved while not Ready", node_with("", id, Some("vm-1 a"), no), machine("vm-1 b", true), Some("vm-1 b")),
        (
            "moved, nobody heard from it",
            node_with("", id, Some("vm-1 a"), Some("Unknown")),
            machine("vm-1 b", true),
            Some("vm-1 b"),
        ),
        ("moved, never reported", node_with("", id, Some("vm-1 a"), None), machine("vm-1 b", true), Some("vm-1 b")),
        ("an old view while not Ready", node_with("", id, Some("vm-1 a"), no), stale, Some("vm-1 a")),
        ("nothing to record", node_with("", id, None, no), machine("", false), None),
        ("nothing to record any more", node_with("", id, Some("vm-1 a"), no), machine("", false), Some("vm-1 a")),
    ] {
        let (plan, after) = run_on(node.clone(), Presence::Exists(machine), &Policy::default());
        assert_eq!(node::annotation(&after, ANNOTATION_VM), expected, "{case}");
        let is_written = node::annotation(&node, ANNOTATION_VM) != expected;
        let is_initialized = node::is_uninitialized(&node);
        assert_eq!(plan.actions.len(), usize::from(is_written || is_initialized), "{case}: {:?}", plan.actions);
    }
}

#[test]
fn a4_the_record_of_a_ready_node_follows_its_machine_when_it_is_its_turn() {
    let moved = || machine("vm-1 b", true);
    let stale = InstanceMetadata { stale: Some(Unknown::new(reason::CloudUnavailable, "")), ..moved() };
    let id = "fake://1";
    let (yes, no) = (Some("True"), Some("False"));
    let known = |ready| node_with("", id, Some("vm-1 a"), ready);
    for (case, node, machine, follows) in [
        ("moved while Ready", known(yes), moved(), true),
        ("moved while not Ready, which is written at once", known(no), moved(), false),
        ("another machine, which is written at once", known(yes), machine("vm-2 a", false), false),
        ("at the same place", known(yes), machine("vm-1 a", true), false),
        ("nothing is said of the place", known(yes), machine("", true), false),
        ("an old view", known(yes), stale, false),
        ("not recorded yet, which is written at once", node_with("", id, None, yes), moved(), false),
        ("not adopted yet", node_with("", "", Some("vm-1 a"), yes), moved(), false),
        ("not initialized yet", node_with("U", id, Some("vm-1 a"), yes), moved(), false),
    ] {
        let ours = ours(node, Presence::Exists(machine));
        assert_eq!(has_moved(&ours), follows, "{case}");
        let record = |may_follow| {
            let turn = AllowedWrites { of_record: may_follow, ..AllowedWrites::default() };
            plan(Some(&OwnNode { turn, ..ours.clone() }), &Policy::default()).actions
        };
        let (before, after) = (record(false), record(true));
        assert_eq!(before != after, follows, "{case}: a turn changes nothing else");
        if follows {
            let annotations = map(&[(ANNOTATION_VM, "vm-1 b")]);
            let expected = Metadata { annotations, ..Metadata::default() };
            assert_eq!(
                (before.as_slice(), after.as_slice()),
                (&[][..], &[NodeAction::SetMetadata(expected)][..]),
                "{case}"
            );
        }
    }
    let gone = ours(known(yes), Presence::Unknown(Unknown::new(reason::CloudUnavailable, "away")));
    assert!(!has_moved(&gone));
}

#[test]
fn labels_and_the_record_are_one_write() {
    let machine = zoned(machine("vm-1 a", false));
    let (plan, _) =
        run_on(node_with("", "fake://1", None, Some("True")), Presence::Exists(machine), &Policy::default());
    assert!(matches!(plan.actions.as_slice(), [NodeAction::SetMetadata(_)]), "{:?}", plan.actions);
}

#[test]
fn a_machine_that_is_unknown_or_gone_leaves_the_record() {
    for instance in [
        Presence::Absent(AbsenceProof::new("gone", [])),
        Presence::Unknown(Unknown::new(reason::CloudUnavailable, "away")),
    ] {
        let (plan, _) = run_on(node_with("", "fake://1", Some("vm-1 a"), None), instance, &Policy::default());
        assert_eq!(plan.actions, []);
    }
}

#[test]
fn the_record_follows_a_machine_to_the_place_that_it_was_seen_to_leave() {
    let left = |record: &str| {
        let unknown = Unknown::new(reason::CloudUnavailable, "left the inventory");
        Presence::Unknown(Unknown { last_record: Some(record.into()), ..unknown })
    };
    for (case, recorded, id, last, expected) in [
        ("elsewhere", Some("vm-1 a"), "fake://1", "vm-1 b", Some("vm-1 b")),
        ("at the same place", Some("vm-1 a"), "fake://1", "vm-1 a", Some("vm-1 a")),
        ("without a record", None, "fake://1", "vm-1 b", None),
        ("without a provider ID", Some("vm-1 a"), "", "vm-1 b", Some("vm-1 a")),
    ] {
        let (plan, after) = run_on(node_with("", id, recorded, Some("True")), left(last), &Policy::default());
        assert_eq!(node::annotation(&after, ANNOTATION_VM), expected, "{case}");
        assert_eq!(plan.actions.len(), usize::from(recorded != expected), "{case}: {:?}", plan.actions);
    }
}
