//! Tests with Nodes that were registered without the uninitialized taint.

use super::*;

fn adopts() -> Policy {
    Policy { adopts_untainted_nodes: true, ..Policy::default() }
}

fn machine(found_by: FoundBy, addresses: &str) -> InstanceMetadata {
    InstanceMetadata { found_by, record: "vm-1".into(), ..zoned(metadata("fake://1", addresses)) }
}

#[test]
fn a_node_without_taint_is_adopted_by_its_uuid_alone() {
    let before = || tainted("X", "", H);
    let reason = |plan: &NodePlan| held(plan).map(|blocked| (blocked.reason, blocked.is_quiet));
    let absent = Presence::Absent(AbsenceProof::new("gone", []));
    let unknown = Presence::Unknown(Unknown::new(reason::VMNotFound, "no such machine"));
    let exists = |found_by| Presence::Exists(machine(found_by, A3));
    let quiet = |reason| Some((reason, true));
    for (case, policy, instance, is_adopted, expected) in [
        ("by UUID", adopts(), exists(FoundBy::SystemUuid), true, None),
        ("not asked to", Policy::default(), exists(FoundBy::SystemUuid), false, None),
        ("one of several", adopts(), exists(FoundBy::SystemUuidAmongSeveral), false, quiet(reason::SeveralVMsMatch)),
        ("by name", adopts(), exists(FoundBy::Name), false, quiet(reason::NameMatchRefused)),
        ("nobody says how", adopts(), exists(FoundBy::ProviderId), false, quiet(reason::NameMatchRefused)),
        ("gone", adopts(), absent, false, quiet(reason::InstanceAbsent)),
        ("not known", adopts(), unknown, false, quiet(reason::VMNotFound)),
    ] {
        let (plan, after) = run_on(before().node(), instance, &policy);
        assert_eq!(node::provider_id(&after), if is_adopted { "fake://1" } else { "" }, "{case}");
        assert_eq!(node::annotation(&after, ANNOTATION_VM), is_adopted.then_some("vm-1"), "{case}");
        assert_eq!(node::taints(&after), node::taints(&before().node()), "{case}");
        assert_eq!(reason(&plan), expected, "{case}");
    }
}

#[test]
fn addresses_of_an_adopted_node_come_before_the_rest() {
    let (plan, after) =
        run_on(tainted("", "", H).node(), Presence::Exists(machine(FoundBy::SystemUuid, A3)), &adopts());
    assert!(
        matches!(plan.actions.as_slice(), [NodeAction::WriteAddresses(_), NodeAction::Initialize { .. }]),
        "{plan:?}"
    );
    assert_eq!(after.metadata.labels, Some(map(ZONES)));
}

#[test]
fn a_provider_id_is_never_changed_and_such_a_node_not_adopted() {
    let (plan, after) =
        run_on(tainted("", "other://1", A3).node(), Presence::Exists(machine(FoundBy::SystemUuid, A3)), &adopts());
    assert_eq!(node::provider_id(&after), "other://1");
    assert!(!plan.actions.iter().any(|action| matches!(action, NodeAction::Initialize { .. })), "{plan:?}");
}

#[test]
fn a_node_that_cannot_be_adopted_yet_says_why_and_is_kept_up_to_date() {
    let pending = Unknown::new(reason::NoPermission, "no tag");
    let machine = InstanceMetadata { pending: Some(pending), ..machine(FoundBy::SystemUuid, A3) };
    let ours =
        OwnNode { waiting_time: Duration::from_secs(30), ..ours(tainted("", "", H).node(), Presence::Exists(machine)) };
    let plan = plan(Some(&ours), &adopts());
    assert_eq!(held(&plan).map(|blocked| (blocked.reason, blocked.is_quiet)), Some((reason::NoPermission, false)));
    let [NodeAction::WriteAddresses(_), NodeAction::SetCondition(condition)] = plan.actions.as_slice() else {
        panic!("{plan:?}")
    };
    assert_eq!(condition.status, "False");
}
