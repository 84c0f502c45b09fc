//! Tests of the plan for a Node: its changes are exactly the fields in which the Node differs after the writes.

mod race;

use super::*;
use crate::cloud::node::Readiness;
use crate::cloud::{AbsenceProof, FoundBy};
use crate::controllers::BlockedObject;
use crate::controllers::node::observe::{AllowedWrites, OwnNode};
use crate::controllers::node::plan::plan;
use crate::controllers::node::{LabelMode, Policy};
use crate::controllers::node_lifecycle::candidacy::Exemption;
use crate::controllers::node_lifecycle::deletion_policy::{
    Counts, DeletionChecks, DeletionDecision, DeletionRule, Facts, LastAnswer,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PROVIDER_ID: &str = "vsphere://4211a1b2-c3d4-4e5f-8a9b-000000000007";
const RECORD: &str = "vc-uuid/vm-7/host-1/group-v3/resgroup-8/datacenter-2";

fn node(spec: Value, metadata: Value, status: Value) -> Node {
    let mut node = json!({"metadata": {"name": "worker-7", "uid": "u-7"}, "spec": spec, "status": status});
    for (key, value) in metadata.as_object().unwrap() {
        node["metadata"][key] = value.clone();
    }
    serde_json::from_value(node).unwrap()
}

fn tainted() -> Node {
    let taints = json!([
        {"key": "other", "effect": "NoExecute"},
        {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
    ]);
    let addresses = json!([{"type": "InternalIP", "address": "10.1.0.9"}, {"type": "Hostname", "address": "worker-7"}]);
    let condition = json!({"type": "VSphereInitialized", "status": "False", "reason": "NoZoneTags"});
    node(
        json!({"taints": taints}),
        json!({"labels": {"a": "b", "topology.kubernetes.io/zone": "old"}}),
        json!({"addresses": addresses, "conditions": [condition]}),
    )
}

fn initialized() -> Node {
    node(
        json!({"providerID": PROVIDER_ID}),
        json!({
            "labels": {
                "topology.kubernetes.io/zone": "zone-b",
                "failure-domain.beta.kubernetes.io/zone": "zone-b",
                "topology.vsphere-ccm.dev/host": "esx-1",
            },
            "annotations": {"vsphere-ccm.dev/vm": "an older location"},
        }),
        json!({
            "addresses": [{"type": "InternalIP", "address": "10.1.0.7"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }),
    )
}

fn metadata() -> InstanceMetadata {
    let address = |type_: &str, address: &str| NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
    InstanceMetadata {
        provider_id: PROVIDER_ID.to_owned(),
        instance_type: "vsphere-vm.cpu-2.mem-4gb.os-ubuntu".to_owned(),
        node_addresses: vec![address("InternalIP", "10.1.0.7"), address("ExternalIP", "10.1.0.7")],
        zone: "zone-a".to_owned(),
        region: "region-1".to_owned(),
        topology_labels: [("topology.vsphere-ccm.dev/host".to_owned(), None)].into(),
        found_by: FoundBy::SystemUuid,
        record: RECORD.to_owned(),
        is_recorded: true,
        ..InstanceMetadata::default()
    }
}

fn preview(node: &Node, answer: &Presence<InstanceMetadata>, policy: &Policy) -> NodePreview {
    let own = OwnNode {
        node: Arc::new(node.clone()),
        instance: Box::new(answer.clone()),
        observed_at: "2026-11-24T03:12:40Z".parse().unwrap(),
        waiting_time: Duration::from_secs(60),
        turn: AllowedWrites { of_record: true, of_labels: true },
    };
    NodePreview {
        blocked: None,
        is_settled: true,
        waiting_time: Duration::ZERO,
        plan: Some(plan(Some(&own), policy)),
        defers_record: false,
        defers_labels: false,
    }
}

fn planned(node: &Node, answer: &Presence<InstanceMetadata>, policy: &Policy) -> ObjectPlan {
    node_plan(&NodePlanFacts {
        node,
        unknown: unknown_answer(answer),
        preview: Some(preview(node, answer, policy)),
        lifecycle: None,
        has_term: true,
        end_of: &|_| None,
        network_condition: None,
    })
}

/// Returns the Node after the writes of a plan.
fn written(node: &Node, plan: &NodePlan) -> Node {
    let mut after = node.clone();
    for action in &plan.actions {
        match action {
            NodeAction::WriteAddresses(addresses) => {
                after.status.get_or_insert_default().addresses = Some(addresses.clone());
            }
            NodeAction::Initialize { provider_id, metadata } => {
                let spec = after.spec.get_or_insert_default();
                spec.provider_id = provider_id.clone().or(spec.provider_id.take());
                spec.taints.get_or_insert_default().retain(|taint| taint.key != TAINT_UNINITIALIZED);
                write_metadata(&mut after, metadata);
            }
            NodeAction::SetMetadata(metadata) => write_metadata(&mut after, metadata),
            NodeAction::SetCondition(condition) => {
                let conditions = after.status.get_or_insert_default().conditions.get_or_insert_default();
                conditions.retain(|other| other.type_ != condition.type_);
                conditions.push(condition.clone());
            }
        }
    }
    after
}

fn write_metadata(node: &mut Node, metadata: &Metadata) {
    let labels = node.metadata.labels.get_or_insert_default();
    for (key, value) in &metadata.labels {
        match value {
            Some(value) => drop(labels.insert(key.clone(), value.clone())),
            None => drop(labels.remove(key)),
        }
    }
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.extend(metadata.annotations.clone());
    annotations.retain(|key, _| !metadata.removed_annotations.contains(key.as_str()));
}

/// A field, its value before, and its value after the writes.
type Written = (String, Option<String>, Option<String>);

/// Returns all fields of a Node that controllers write, with their values.
fn fields(node: &Node) -> BTreeSet<(String, String)> {
    let mut fields = BTreeSet::new();
    let mut add = |field: String, value: &str| {
        fields.insert((field, value.to_owned()));
    };
    if !node::provider_id(node).is_empty() {
        add("provider ID".to_owned(), node::provider_id(node));
    }
    for address in addresses::of(node) {
        add(format!("address {}", address.type_), &address.address);
    }
    for (key, value) in node.metadata.labels.iter().flatten() {
        add(format!("label {key}"), value);
    }
    for (key, value) in node.metadata.annotations.iter().flatten() {
        add(format!("annotation {key}"), value);
    }
    for taint in node::taints(node) {
        add(format!("taint {}", taint.key), &taint_text(taint));
    }
    for condition in node.status.iter().flat_map(|status| status.conditions.iter().flatten()) {
        add(format!("condition {}", condition.type_), &condition_text(condition));
    }
    fields
}

/// Fields with their values.
type FieldValues = BTreeSet<(String, String)>;

/// Returns the values that are gone and new after the writes, one by one.
fn differences(before: &Node, after: &Node) -> (FieldValues, FieldValues) {
    let (before, after) = (fields(before), fields(after));
    (before.difference(&after).cloned().collect(), after.difference(&before).cloned().collect())
}

/// Returns the values that are gone and new according to the plan.
fn announced(object: &ObjectPlan) -> (FieldValues, FieldValues) {
    let is_write = |change: &&PlannedChange| matches!(change.kind, ChangeKind::Update | ChangeKind::Adopt);
    let writes = || object.changes.iter().filter(is_write);
    let gone = writes().filter_map(|change| Some((change.field.clone(), change.present.clone()?)));
    let new = writes().filter_map(|change| Some((change.field.clone(), change.planned.clone()?)));
    (gone.collect(), new.collect())
}

#[test]
fn what_is_announced_is_exactly_what_is_written() {
    let follow = Policy { zone_labels: LabelMode::Follow, instance_type: LabelMode::Fill, ..Policy::default() };
    let adopting = Policy { adopts_untainted_nodes: true, ..Policy::default() };
    let untainted = || node(json!({}), json!({"labels": {}}), json!({}));
    let without_addresses = InstanceMetadata { node_addresses: Vec::new(), ..metadata() };
    let unknown = Presence::Unknown(Unknown::new(reason::CloudUnavailable, "no answer"));
    let up_to_date = {
        let plan = preview(&tainted(), &Presence::Exists(metadata()), &follow).plan.unwrap();
        written(&tainted(), &plan)
    };
    let mut number = 0;
    for node in [tainted(), initialized(), untainted(), up_to_date.clone()] {
        for answer in [
            Presence::Exists(metadata()),
            Presence::Exists(without_addresses.clone()),
            Presence::Absent(AbsenceProof::new("gone", [])),
            unknown.clone(),
        ] {
            for policy in [&Policy::default(), &follow, &adopting] {
                let plan = preview(&node, &answer, policy).plan.unwrap();
                let object = planned(&node, &answer, policy);
                let expected = differences(&node, &written(&node, &plan));
                assert_eq!(announced(&object), expected, "{node:?} {answer:?}");
                number += usize::from(expected != Default::default());
            }
        }
    }
    assert!(number > 15, "only {number} cases write something");
    assert_eq!(planned(&up_to_date, &Presence::Exists(metadata()), &follow).changes, [], "nothing is left to write");
}

#[test]
fn each_field_of_a_joining_node_has_its_present_and_its_planned_value() {
    let object = planned(&tainted(), &Presence::Exists(metadata()), &Policy::default());
    let rows: Vec<Written> =
        object.changes.iter().map(|row| (row.field.clone(), row.present.clone(), row.planned.clone())).collect();
    let row = |field: &str, present: Option<&str>, planned: Option<&str>| {
        (field.to_owned(), present.map(str::to_owned), planned.map(str::to_owned))
    };
    for expected in [
        row("address InternalIP", None, Some("10.1.0.7")),
        row("provider ID", None, Some(PROVIDER_ID)),
        row("label topology.kubernetes.io/zone", Some("old"), Some("zone-a")),
        row("label node.kubernetes.io/instance-type", None, Some("vsphere-vm.cpu-2.mem-4gb.os-ubuntu")),
        row("annotation vsphere-ccm.dev/vm", None, Some(RECORD)),
        row("taint node.cloudprovider.kubernetes.io/uninitialized", Some("true:NoSchedule"), None),
        row("condition VSphereInitialized", Some("False (NoZoneTags)"), Some("True (Initialized)")),
    ] {
        assert!(rows.contains(&expected), "{expected:?} in {rows:#?}");
    }
    assert!(object.changes.iter().all(|change| change.kind == ChangeKind::Update), "{object:?}");
}

#[test]
fn a_node_without_the_taint_is_adopted() {
    let policy = Policy { adopts_untainted_nodes: true, ..Policy::default() };
    let node = node(json!({}), json!({}), json!({}));
    let object = planned(&node, &Presence::Exists(metadata()), &policy);
    let adopted = object.changes.iter().find(|change| change.kind == ChangeKind::Adopt).unwrap();
    assert_eq!((adopted.field.as_str(), adopted.planned.as_deref()), ("provider ID", Some(PROVIDER_ID)));
}

/// Returns kind, field and reason of the changes of these kinds.
fn of_kinds(object: &ObjectPlan, kinds: &[ChangeKind]) -> Vec<(ChangeKind, String, String)> {
    let changes = object.changes.iter().filter(|change| kinds.contains(&change.kind));
    changes.map(|one| (one.kind, one.field.clone(), one.reason.clone().unwrap_or_default())).collect()
}

#[test]
fn an_answer_that_is_not_known_is_never_unchanged() {
    let pending = Unknown::transient(reason::LookupPending, "searching");
    let stale = || Some(Unknown::new(reason::CloudUnavailable, "no answer"));
    let foreign = Presence::Unknown(Unknown::new(reason::ForeignProviderID, "of k3s"));
    let no_zone = Some(Unknown::new(reason::NoAddresses, "later"));
    let unknown = |reason: &str| vec![(ChangeKind::Unknown, "VM".to_owned(), reason.to_owned())];
    let held = |field: &str, reason: &str| vec![(ChangeKind::Hold, field.to_owned(), reason.to_owned())];
    for (case, node, answer, expected) in [
        ("new", tainted(), Presence::Unknown(pending.clone()), unknown("LookupPending")),
        ("in use", initialized(), Presence::Unknown(pending), unknown("LookupPending")),
        (
            "stale",
            initialized(),
            Presence::Exists(InstanceMetadata { stale: stale(), ..metadata() }),
            unknown("CloudUnavailable"),
        ),
        ("another provider", tainted(), foreign, held("initialization", "ForeignProviderID")),
        (
            "a part is missing",
            tainted(),
            Presence::Exists(InstanceMetadata { pending: no_zone, ..metadata() }),
            held("initialization", "NoAddresses"),
        ),
        (
            "absent",
            tainted(),
            Presence::Absent(AbsenceProof::new("gone", [])),
            held("initialization", "InstanceAbsent"),
        ),
    ] {
        let object = planned(&node, &answer, &Policy::default());
        assert_eq!(of_kinds(&object, &[ChangeKind::Unknown, ChangeKind::Hold]), expected, "{case}");
    }
}

#[test]
fn a_label_that_stays_and_a_refused_write_are_named() {
    let object = planned(&initialized(), &Presence::Exists(metadata()), &Policy::default());
    let kept = ("label topology.kubernetes.io/zone".to_owned(), "ZoneLabelsDiffer".to_owned());
    assert_eq!(of_kinds(&object, &[ChangeKind::Keep]), [(ChangeKind::Keep, kept.0, kept.1)]);

    let (node, answer) = (tainted(), Presence::Exists(metadata()));
    let blocked = BlockedObject {
        key: "worker-7".to_owned(),
        reason: reason::WriteRefused,
        blocked_for: Duration::ZERO,
        message: "a webhook denied it".to_owned(),
    };
    let preview =
        NodePreview { blocked: Some(blocked), defers_record: true, ..preview(&node, &answer, &Policy::default()) };
    let object = node_plan(&NodePlanFacts {
        node: &node,
        unknown: None,
        preview: Some(preview),
        lifecycle: None,
        has_term: true,
        end_of: &|_| None,
        network_condition: Some(("False", "RouteCreated")),
    });
    let hold = ("last attempt".to_owned(), "WriteRefused".to_owned());
    assert_eq!(of_kinds(&object, &[ChangeKind::Hold]), [(ChangeKind::Hold, hold.0, hold.1)]);
    let of = |field: &str| object.changes.iter().find(|change| change.field == field).unwrap();
    let record = of("annotation vsphere-ccm.dev/vm");
    assert_eq!(record.message.as_deref(), Some("at most one Node a second"));
    assert_eq!(of("condition NetworkUnavailable").planned.as_deref(), Some("False (RouteCreated)"));
}

#[test]
fn a_node_that_cannot_be_planned_is_unknown_and_not_unchanged() {
    let unknown = Unknown::new(reason::CloudUnavailable, "no answer");
    let superseded = NodePreview {
        plan: Some(NodePlan { outcome: NextStep::Superseded, ..NodePlan::default() }),
        ..preview(&initialized(), &Presence::Exists(metadata()), &Policy::default())
    };
    let lifecycle = LifecyclePreview {
        deletion: deletion(Some(Candidacy::VmExists), None),
        taints: Vec::new(),
        out_of_service_hold: None,
    };
    for (case, preview, lifecycle, unknown, expected) in [
        ("the cache is behind", Some(superseded), None, None, ("update", "")),
        ("no node controller", None, Some(lifecycle), Some(unknown), ("VM", "CloudUnavailable")),
    ] {
        let object = node_plan(&NodePlanFacts {
            node: &silent(),
            unknown,
            preview,
            lifecycle,
            has_term: true,
            end_of: &|_| None,
            network_condition: None,
        });
        let (field, reason) = expected;
        assert_eq!(
            of_kinds(&object, &[ChangeKind::Unknown]),
            [(ChangeKind::Unknown, field.to_owned(), reason.to_owned())],
            "{case}"
        );
    }
}

fn silent() -> Node {
    node(
        json!({"providerID": PROVIDER_ID, "taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}),
        json!({}),
        json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}),
    )
}

fn deletion(candidacy: Option<Candidacy>, checks: Option<DeletionChecks>) -> NodeDeletionFacts {
    let at = Instant::now();
    let presence = match &candidacy {
        Some(Candidacy::VmAbsent(proof)) => Presence::Absent(proof.clone()),
        Some(Candidacy::VmExists) => Presence::Exists(()),
        _ => Presence::Unknown(Unknown::new(reason::CloudUnavailable, "no answer")),
    };
    let answer = LastAnswer { presence, since: at, requested_at: at, due: None };
    NodeDeletionFacts {
        mode: DeletionMode::Enforce,
        facts: Facts::of(&silent(), true),
        unknown_for: Duration::ZERO,
        exemption: None,
        answer: candidacy.is_some().then_some(answer),
        candidacy,
        checks,
        reported: None,
    }
}

fn checks(hold: Option<(DeletionRule, HoldReason)>) -> DeletionChecks {
    let at = Instant::now();
    let counts = Counts { allowance: 4, is_mass_held: false, absent: 1, nodes: 12 };
    DeletionChecks {
        hold,
        inputs: DeletionDecision { at, since: at, counts, by_hand: false, control_plane: None, hold: None },
        last_decision: None,
        grace_until: at,
        mass_hold_until: None,
        capacity: 5,
        window: Duration::from_secs(600),
        refused_until: None,
        next_charge: None,
    }
}

fn with_lifecycle(deletion: NodeDeletionFacts, taints: Vec<Change>) -> ObjectPlan {
    of_lifecycle(deletion, taints, true)
}

fn of_lifecycle(deletion: NodeDeletionFacts, taints: Vec<Change>, has_term: bool) -> ObjectPlan {
    let at = Instant::now();
    let limit = HoldReason::Limit { capacity: 0, window: Duration::from_secs(600), until: Some(at) };
    let is_held = taints.is_empty();
    node_plan(&NodePlanFacts {
        node: &silent(),
        unknown: None,
        preview: None,
        lifecycle: Some(LifecyclePreview { deletion, taints, out_of_service_hold: is_held.then_some(limit) }),
        has_term,
        end_of: &|hold| hold.until().map(|_| "2026-11-24T03:13:10Z".to_owned()),
        network_condition: None,
    })
}

#[test]
fn the_deletion_of_a_node_is_announced_held_or_not_known() {
    let proof = || AbsenceProof::new("no VM with the UUID", ["host-3 is connected".to_owned()]);
    let absent = || Some(Candidacy::VmAbsent(proof()));
    let grace = Some((DeletionRule::Grace, HoldReason::Grace { until: Instant::now() }));
    let unknown =
        Candidacy::Held { reason: reason::CloudUnavailable, message: "no answer".to_owned(), is_quiet: false };
    let dry_run = NodeDeletionFacts { mode: DeletionMode::DryRun, ..deletion(absent(), Some(checks(None))) };
    let exempt = NodeDeletionFacts { exemption: Some(Exemption::NotReady), ..deletion(None, None) };
    for (case, facts, expected) in [
        ("permitted", deletion(absent(), Some(checks(None))), "delete Node "),
        ("grace", deletion(absent(), Some(checks(grace))), "hold deletion DeletionGracePeriod"),
        ("dry run", dry_run, "hold deletion DeletionDryRun"),
        ("outdated", deletion(absent(), None), "unknown deletion "),
        ("no answer yet", deletion(None, None), "unknown deletion "),
        ("no answer", deletion(Some(unknown), None), "unknown deletion CloudUnavailable"),
        ("exists", deletion(Some(Candidacy::VmExists), None), ""),
        ("its kubelet reports", exempt, ""),
    ] {
        let object = with_lifecycle(facts, vec![Change::AddShutdown]);
        let kinds = [ChangeKind::Delete, ChangeKind::Hold, ChangeKind::Unknown];
        let found = of_kinds(&object, &kinds);
        let found: Vec<String> =
            found.iter().map(|(kind, field, reason)| format!("{} {field} {reason}", kind.as_str())).collect();
        assert_eq!(found.join("; "), expected, "{case}");
        let has_taint = object.changes.iter().any(|change| change.field.starts_with("taint "));
        assert_eq!(has_taint, case != "permitted", "{case}: a Node that is deleted gets no taint");
    }
    let held = with_lifecycle(deletion(absent(), Some(checks(None))), vec![]);
    assert_eq!(held.changes.len(), 1, "{held:?}");
    let held = with_lifecycle(deletion(Some(Candidacy::VmExists), None), vec![]);
    assert_eq!(of_kinds(&held, &[ChangeKind::Hold])[0].1, "out-of-service taint");
    assert!(held.changes[0].message.as_ref().unwrap().ends_with("2026-11-24T03:13:10Z"), "{held:?}");
}

#[test]
fn without_a_term_a_deletion_is_announced_without_its_clocks() {
    let absent = |mode| {
        let proof = AbsenceProof::new("no VM with the UUID", []);
        NodeDeletionFacts { mode, ..deletion(Some(Candidacy::VmAbsent(proof)), None) }
    };
    for (mode, expected) in [
        (DeletionMode::Enforce, (ChangeKind::Delete, "Node", "")),
        (DeletionMode::DryRun, (ChangeKind::Hold, "deletion", "DeletionDryRun")),
        (DeletionMode::Off { reason: "a flag" }, (ChangeKind::Hold, "deletion", "DeletionOff")),
    ] {
        let object = of_lifecycle(absent(mode), vec![Change::AddShutdown], false);
        let (kind, field, reason) = expected;
        assert_eq!(
            of_kinds(&object, &[ChangeKind::Delete, ChangeKind::Hold, ChangeKind::Unknown]),
            [(kind, field.to_owned(), reason.to_owned())]
        );
    }
}

#[test]
fn the_taints_of_a_vm_that_is_off_are_announced() {
    let exists = || deletion(Some(Candidacy::VmExists), None);
    let object = with_lifecycle(exists(), vec![Change::AddShutdown, Change::AddOutOfService]);
    let rows: Vec<(&str, Option<&str>)> =
        object.changes.iter().map(|change| (change.field.as_str(), change.planned.as_deref())).collect();
    assert_eq!(
        rows,
        [
            ("taint node.cloudprovider.kubernetes.io/shutdown", Some("NoSchedule")),
            ("taint node.kubernetes.io/out-of-service", Some("nodeshutdown:NoExecute")),
            ("annotation vsphere-ccm.dev/out-of-service", Some("the time of the write")),
        ]
    );
    assert_eq!(node::readiness(&silent()), Readiness::Unknown);
}
