//! Properties of all plans, with random Nodes, VMs, settings and times.

use super::*;
use crate::controllers::node::{LabelMode, NodeLabelsOn};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

const PLACE: [&str; 2] = ["topology.vsphere-ccm.dev/esxi-host", "topology.vsphere-ccm.dev/cluster"];

fn any_addresses() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", H, K, A2, A3, A2H, "InternalIP fc01::1, InternalIP 10.0.0.1, InternalIP 10.0.0.2"])
}

fn any_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    let keys: Vec<_> =
        BETAS.iter().chain(&CURRENT).map(|(key, _)| *key).chain(["mine/a", "k8s.io/a"]).chain(PLACE).collect();
    prop::collection::btree_map(prop::sample::select(keys).prop_map(str::to_owned), "[ab]", 0..6)
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    (0..200_i64).prop_map(|second| Timestamp::from_second(1_767_225_600 + second).unwrap())
}

fn any_condition() -> impl Strategy<Value = Option<NodeCondition>> {
    let reasons = prop::sample::select(vec!["CloudError", "NoAddresses", "VMNotFound"]);
    let parts = (prop::sample::select(vec!["True", "False"]), reasons, "(of this)?", prop::option::of(any_time()));
    prop::option::of(parts.prop_map(|(status, reason, message, written)| NodeCondition {
        type_: CONDITION.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_heartbeat_time: written.map(Time),
        last_transition_time: written.map(Time),
    }))
}

fn any_node() -> impl Strategy<Value = Node> {
    let taints = prop::sample::select(vec!["", "U", "XU", "X", "UXU"]);
    let ips = prop::sample::select(vec![None, Some("10.0.0.1"), Some("10.0.0.2"), Some("10.0.0.2,fc01::1"), Some("x")]);
    let provider_id = prop::sample::select(vec!["", "fake://1"]);
    let form = (taints, provider_id, ips, any_addresses(), any_labels());
    let ready = prop::option::of(prop::sample::select(vec!["True", "False", "Unknown"]));
    (form, prop::option::of("vm-[12]"), any_condition(), ready).prop_map(
        |((taints, provider_id, provided_node_ip, addresses, labels), record, condition, ready)| {
            let mut node = Form { taints, provider_id, provided_node_ip, addresses, labels }.node();
            if let Some(record) = record {
                node.metadata.annotations.get_or_insert_default().insert(ANNOTATION_VM.to_owned(), record);
            }
            let ready = ready.map(|status| NodeCondition {
                type_: "Ready".into(),
                status: status.into(),
                ..NodeCondition::default()
            });
            node.status.get_or_insert_default().conditions = Some(condition.into_iter().chain(ready).collect());
            node
        },
    )
}

fn any_instance() -> impl Strategy<Value = Presence<InstanceMetadata>> {
    let place = prop::collection::btree_map(
        prop::sample::select(PLACE.to_vec()).prop_map(str::to_owned),
        prop::option::of("[ab]"),
        0..3,
    );
    let found_by = prop::sample::select(vec![
        FoundBy::ProviderId,
        FoundBy::SystemUuid,
        FoundBy::SystemUuidAmongSeveral,
        FoundBy::Name,
    ]);
    let said = (any_addresses(), "[zy]?", "[rs]?", "[tu]?", "(vm-[12])?", any_labels());
    let ours = (place, found_by, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let exists = (said, ours).prop_map(
        |(
            (addresses, zone, region, instance_type, record, additional_labels),
            (topology_labels, found_by, is_recorded, is_pending, has_id, is_doubted),
        )| {
            Presence::Exists(InstanceMetadata {
                zone,
                region,
                instance_type,
                record,
                additional_labels,
                topology_labels,
                found_by,
                is_recorded,
                pending: is_pending.then(|| Unknown::new(reason::NoPermission, "of this")),
                stale: is_doubted.then(|| Unknown::new(reason::CloudUnavailable, "of this")),
                ..metadata(if has_id { "fake://2" } else { "" }, addresses)
            })
        },
    );
    prop_oneof![
        6 => exists,
        1 => Just(Presence::Unknown(Unknown::new(reason::CloudError, "of this"))),
        1 => Just(Presence::Unknown(Unknown::transient(reason::LookupPending, "of this"))),
        1 => Just(Presence::Absent(AbsenceProof::new("gone", []))),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let mode = || prop::sample::select(vec![LabelMode::Init, LabelMode::Follow]);
    let on = prop::sample::select(vec![NodeLabelsOn::Join, NodeLabelsOn::All]);
    (any_labels(), on, mode(), mode(), any::<bool>()).prop_map(
        |(node_labels, node_labels_on, zone_labels, instance_type, adopts_untainted_nodes)| Policy {
            node_labels,
            node_labels_on,
            zone_labels,
            instance_type,
            adopts_untainted_nodes,
            ..Policy::default()
        },
    )
}

fn any_ours() -> impl Strategy<Value = OwnNode> {
    (any_node(), any_instance(), any_time(), 0..60_u64, any::<[bool; 2]>()).prop_map(
        |(node, instance, at, waited, [of_record, of_labels])| OwnNode {
            observed_at: at,
            waiting_time: Duration::from_secs(waited),
            turn: AllowedWrites { of_record, of_labels },
            ..ours(node, instance)
        },
    )
}

/// Returns the Node after the actions of the plan.
fn done(ours: &OwnNode, policy: &Policy) -> Node {
    let mut node = Node::clone(&ours.node);
    plan(Some(ours), policy).actions.iter().for_each(|action| perform(action, &mut node));
    node
}

proptest! {
    #[test]
    fn planning_again_on_what_was_asked_for_changes_nothing(
        ours in any_ours(),
        policy in any_policy(),
        seconds in 0..100_i64,
    ) {
        let first = plan(Some(&ours), &policy);
        let after = done(&ours, &policy);
        // The second plan is made before the time of an action that the first plan delays.
        let put_off = held(&first).and_then(|blocked| blocked.report_after).map(|rest| rest.as_secs() as i64 - 1);
        let later = Timestamp::from_second(ours.observed_at.as_second() + put_off.unwrap_or(seconds).clamp(0, seconds)).unwrap();
        let again = OwnNode { node: Arc::new(after), observed_at: later, ..ours };
        let again = plan(Some(&again), &policy);
        prop_assert!(again.actions.is_empty(), "{:?}", again);
        prop_assert!(again.event.is_none(), "{:?}", again);
    }

    #[test]
    fn what_is_refused_is_told_once(ours in any_ours(), policy in any_policy()) {
        let blocked = || NodeBlocked::new(reason::WriteRefused, "forbidden".into(), Requeue::BACKOFF);
        let mut node = Node::clone(&ours.node);
        blocked_plan(&ours, blocked(), &policy).actions.iter().for_each(|action| perform(action, &mut node));
        let again = blocked_plan(&OwnNode { node: Arc::new(node), ..ours }, blocked(), &policy);
        prop_assert!(again.actions.is_empty() && again.event.is_none(), "{:?}", again);
    }

    #[test]
    fn a_node_is_initialized_only_with_provider_id_and_address(ours in any_ours(), policy in any_policy()) {
        let before = &*ours.node;
        let after = done(&ours, &policy);
        let loses_taint = node::is_uninitialized(before) && !node::is_uninitialized(&after);
        let gets_id = node::provider_id(before).is_empty() && !node::provider_id(&after).is_empty();
        if loses_taint || gets_id {
            prop_assert!(!node::provider_id(&after).is_empty());
            prop_assert!(addresses::include_an_ip(addresses::of(&after)));
        }
        let had_ip = addresses::include_an_ip(addresses::of(before));
        prop_assert!(!had_ip || addresses::include_an_ip(addresses::of(&after)), "addresses are never replaced by none");
        prop_assert!(node::provider_id(before).is_empty() || node::provider_id(before) == node::provider_id(&after));
        let others = |node: &Node| node::taints_without(node, TAINT_UNINITIALIZED, None);
        prop_assert_eq!(others(before), others(&after), "taints of others stay");
    }

    #[test]
    fn a_condition_is_made_on_nodes_that_wait_and_taken_back_on_those_that_do_not(
        ours in any_ours(),
        policy in any_policy(),
    ) {
        let before = node::condition(&ours.node, CONDITION).map(|condition| condition.status.clone());
        let after_node = done(&ours, &policy);
        let after = node::condition(&after_node, CONDITION).map(|condition| condition.status.clone());
        if before != after {
            let expected = if waits(&after_node, &policy) { "False" } else { "True" };
            prop_assert_eq!(after.as_deref(), Some(expected));
            prop_assert!(expected == "False" || before.as_deref() == Some("False"), "made on a node that was fine");
        }
    }
}
