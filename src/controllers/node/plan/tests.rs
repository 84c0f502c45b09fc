//! Tests of the plan: the upstream vectors by id, then cases of this program, then properties.

mod adoption;
mod doubt;
mod labels;
mod laws;
mod record;
mod telling;

use super::*;
use crate::cloud::AbsenceProof;
use crate::cloud::node::TAINT_UNINITIALIZED;
use crate::controllers::node::observe::AllowedWrites;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

fn list(text: &str) -> Vec<NodeAddress> {
    text.split(", ")
        .filter_map(|part| part.split_once(' '))
        .map(|(type_, address)| NodeAddress { type_: type_.into(), address: address.into() })
        .collect()
}

const A3: &str = "Hostname node0.cloud.internal, InternalIP 10.0.0.1, ExternalIP 132.143.154.163";
const A2: &str = "InternalIP 10.0.0.1, ExternalIP 132.143.154.163";
const A2H: &str = "InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname node0.cloud.internal";
const A2K: &str = "InternalIP 10.0.0.1, ExternalIP 132.143.154.163, Hostname nodeoverriden";
const H: &str = "Hostname node0.cloud.internal";
const K: &str = "Hostname nodeoverriden";
const ZONES: &[(&str, &str)] = &[
    ("topology.kubernetes.io/zone", "us-west-1a"),
    ("failure-domain.beta.kubernetes.io/zone", "us-west-1a"),
    ("topology.kubernetes.io/region", "us-west"),
    ("failure-domain.beta.kubernetes.io/region", "us-west"),
];

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A Node in short form, as input or as expected result. `taints` has one letter for each taint: `U` for the
/// uninitialized taint, `X` for another taint.
#[derive(Clone, Debug, Default)]
struct Form {
    taints: &'static str,
    provider_id: &'static str,
    provided_node_ip: Option<&'static str>,
    addresses: &'static str,
    labels: BTreeMap<String, String>,
}

impl Form {
    fn node(&self) -> Node {
        let taint = |letter| Taint {
            key: if letter == 'U' { TAINT_UNINITIALIZED } else { "ImproveCoverageTaint" }.into(),
            value: Some("true".into()),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        let taints: Vec<_> = self.taints.chars().map(taint).collect();
        let annotation = |ip: &str| map(&[(ANNOTATION_PROVIDED_NODE_IP, ip)]);
        Node {
            metadata: ObjectMeta {
                name: Some("node0".into()),
                labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
                annotations: self.provided_node_ip.map(annotation),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: (!self.provider_id.is_empty()).then(|| self.provider_id.to_owned()),
                taints: (!taints.is_empty()).then_some(taints),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                addresses: (!self.addresses.is_empty()).then(|| list(self.addresses)),
                ..NodeStatus::default()
            }),
        }
    }
}

fn metadata(provider_id: &str, addresses: &str) -> InstanceMetadata {
    InstanceMetadata { provider_id: provider_id.into(), node_addresses: list(addresses), ..InstanceMetadata::default() }
}

fn zoned(metadata: InstanceMetadata) -> InstanceMetadata {
    InstanceMetadata { zone: "us-west-1a".into(), region: "us-west".into(), ..metadata }
}

/// Returns the observation of a Node that was seen for the first time now. The time is the beginning of 2026.
fn ours(node: Node, instance: Presence<InstanceMetadata>) -> OwnNode {
    let at = Timestamp::from_second(1_767_225_600).unwrap();
    OwnNode {
        node: Arc::new(node),
        instance: Box::new(instance),
        observed_at: at,
        waiting_time: Duration::ZERO,
        turn: AllowedWrites::default(),
    }
}

fn run(form: &Form, instance: Presence<InstanceMetadata>) -> (NodePlan, Node) {
    run_on(form.node(), instance, &Policy::default())
}

fn run_on(mut node: Node, instance: Presence<InstanceMetadata>, policy: &Policy) -> (NodePlan, Node) {
    let plan = plan(Some(&ours(node.clone(), instance)), policy);
    plan.actions.iter().for_each(|action| perform(action, &mut node));
    (plan, node)
}

/// Applies the action to `node` as the API server does.
fn perform(action: &NodeAction, node: &mut Node) {
    match action {
        NodeAction::WriteAddresses(addresses) => {
            node.status.get_or_insert_default().addresses = Some(addresses.clone());
        }
        NodeAction::Initialize { provider_id, metadata } => {
            let taints = node::taints_without(node, TAINT_UNINITIALIZED, None);
            let spec = node.spec.get_or_insert_default();
            spec.taints = Some(taints).filter(|taints| !taints.is_empty());
            if let Some(provider_id) = provider_id {
                spec.provider_id = Some(provider_id.clone());
            }
            set_metadata(metadata, node);
        }
        NodeAction::SetMetadata(metadata) => set_metadata(metadata, node),
        NodeAction::SetCondition(condition) => {
            let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
            match conditions.iter_mut().find(|present| present.type_ == condition.type_) {
                Some(present) => present.clone_from(condition),
                None => conditions.push(condition.clone()),
            }
        }
    }
}

fn set_metadata(changes: &Metadata, node: &mut Node) {
    for (key, value) in &changes.labels {
        let labels = node.metadata.labels.get_or_insert_default();
        match value {
            Some(value) => labels.insert(key.clone(), value.clone()),
            None => labels.remove(key),
        };
    }
    if !changes.annotations.is_empty() {
        node.metadata.annotations.get_or_insert_default().extend(changes.annotations.clone());
    }
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|key, _| !changes.removed_annotations.contains(key.as_str()));
    }
}

fn held(plan: &NodePlan) -> Option<&NodeBlocked> {
    match &plan.outcome {
        NextStep::Blocked(blocked) => Some(blocked),
        NextStep::Done | NextStep::Superseded => None,
    }
}

fn tainted(taints: &'static str, provider_id: &'static str, addresses: &'static str) -> Form {
    Form { taints, provider_id, addresses, ..Form::default() }
}

/// Returns the Node of vector N-08 with this provided node IP.
fn n08(ip: &'static str) -> Form {
    Form { provided_node_ip: Some(ip), ..tainted("XU", "node0.aws.12345", H) }
}

// vectors: N-01–N-03, N-05, N-06, N-08, N-11, N-13, N-15–N-20, N-63, N-65
#[test]
fn nodes_are_initialized_as_upstream() {
    let fake = "fake://12345";
    let extra = |pairs: &[(&str, &str)]| InstanceMetadata {
        additional_labels: map(pairs),
        ..zoned(metadata("node0.cp.12345", A2))
    };
    let custom = [("my.custom.label/foo", "bar"), ("topology.k8s.cp/zone-id", "az1")];
    let n19_extra = [
        ("topology.kubernetes.io/region", "us-other-west"),
        ("topology.k8s.io/region", "us-other-west"),
        ("kubernetes.io/region", "us-other-west"),
        ("k8s.io/region", "us-other-west"),
        ("my.custom.label/foo", "bar"),
        ("my.custom.label/bar", "foo"),
        ("app.k8snio/bar", "foo"),
        ("k8snio/bar", "foo"),
    ];
    let n19_before = map(&[("my.custom.label/foo", "fizz"), ("my.custom.label/bar", "foo")]);
    let n19_after = map(&[
        ("my.custom.label/foo", "fizz"),
        ("my.custom.label/bar", "foo"),
        ("app.k8snio/bar", "foo"),
        ("k8snio/bar", "foo"),
    ]);
    let with = |labels: BTreeMap<String, String>, form: Form| Form { labels, ..form };
    let and = |more: &[(&str, &str)]| map(ZONES).into_iter().chain(map(more)).collect::<BTreeMap<_, _>>();
    let n08_after = || Form { addresses: A2H, taints: "X", ..n08("10.0.0.1") };
    let n18_node = || Form { provider_id: "node0.cp.12345", ..n08("10.0.0.1") };
    let n18_after = || Form { addresses: A2H, taints: "X", ..n18_node() };
    let typed = InstanceMetadata { instance_type: "t1.micro".into(), ..metadata(fake, A3) };
    let types =
        map(&[("node.kubernetes.io/instance-type", "t1.micro"), ("beta.kubernetes.io/instance-type", "t1.micro")]);
    let cases = [
        ("N-01", metadata(fake, A3), tainted("U", "", K), tainted("", fake, A3)),
        ("N-02", metadata(fake, A2), tainted("U", "", K), tainted("", fake, A2K)),
        ("N-03", metadata(fake, A3), tainted("U", "", ""), tainted("", fake, A3)),
        (
            "N-05",
            zoned(metadata("aws://12345", A3)),
            tainted("U", "", ""),
            with(map(ZONES), tainted("", "aws://12345", A3)),
        ),
        ("N-06", metadata(fake, A3), tainted("XU", "", ""), tainted("X", fake, A3)),
        ("N-08", metadata("node0.aws.12345", A2), n08("10.0.0.1"), n08_after()),
        (
            "N-11",
            metadata("test-provider-id", A3),
            tainted("XU", "test-provider-id", ""),
            tainted("X", "test-provider-id", A3),
        ),
        ("N-13, N-65", metadata("", A3), tainted("U", fake, ""), tainted("", fake, A3)),
        ("N-15, N-63", zoned(metadata(fake, A3)), tainted("U", "", ""), with(map(ZONES), tainted("", fake, A3))),
        ("N-16", metadata(fake, A3), tainted("XU", "", ""), tainted("X", fake, A3)),
        ("N-17", metadata("", A2), n08("10.0.0.1"), n08_after()),
        ("N-18", extra(&custom), n18_node(), with(and(&custom), n18_after())),
        (
            "N-19",
            extra(&n19_extra),
            with(n19_before, n18_node()),
            with(map(ZONES).into_iter().chain(n19_after).collect(), n18_after()),
        ),
        ("N-20", metadata("other", A3), tainted("XU", "test-provider-id", ""), tainted("X", "test-provider-id", A3)),
        ("instance type", typed, tainted("U", "", ""), with(types, tainted("", fake, A3))),
        ("every effect of the taint goes", metadata(fake, A3), tainted("UXU", "", ""), tainted("X", fake, A3)),
    ];
    for (id, metadata, before, expected) in cases {
        let (plan, after) = run(&before, Presence::Exists(metadata));
        assert_eq!(after, expected.node(), "{id}");
        assert_eq!(plan.outcome, NextStep::Done, "{id}");
    }
}

// vectors: N-07, N-09, N-10, N-12, N-21, N-22, N-50, N-51, N-64
#[test]
fn nodes_are_left_alone_with_a_reason() {
    let exists = Presence::Exists::<InstanceMetadata>;
    let unknown = || Unknown::new(reason::VMNotFound, "no such machine");
    let pending = InstanceMetadata { pending: Some(unknown()), ..metadata("fake://1", A3) };
    let soon = Unknown { retry_after: Some(Duration::from_secs(7)), ..unknown() };
    let gone = Presence::Absent(AbsenceProof::new("it was removed", []));
    let u = || tainted("U", "", "");
    let cases = [
        ("N-07: nothing known is no error there", Presence::Unknown(unknown()), n08("10.0.0.1"), reason::VMNotFound),
        ("N-09", exists(metadata("", A2)), n08("invalid-ip"), reason::ProvidedNodeIPNotValid),
        ("N-10", exists(metadata("", A2)), n08("10.0.0.2"), reason::ProvidedNodeIPNotOnVM),
        ("N-12 differs: untainted there", exists(metadata("", "")), u(), reason::NoProviderID),
        ("no addresses", exists(metadata("fake://1", "")), u(), reason::NoAddresses),
        ("names only", exists(metadata("fake://1", H)), u(), reason::NoAddresses),
        ("N-21, N-64", exists(metadata("", A3)), u(), reason::NoProviderID),
        ("N-22", Presence::Unknown(unknown()), u(), reason::VMNotFound),
        ("N-50, N-51: addresses come with the initialization", exists(pending), u(), reason::VMNotFound),
        ("absent", gone, u(), reason::InstanceAbsent),
    ];
    for (id, instance, before, reason) in cases {
        let (plan, after) = run(&before, instance);
        assert_eq!(after, before.node(), "{id}");
        let blocked = held(&plan).expect(id);
        assert_eq!((blocked.reason, blocked.next), (reason, Requeue::BACKOFF), "{id}");
        assert!(plan.actions.is_empty() && !blocked.message.is_empty(), "{id}");
    }
    let (plan, _) = run(&u(), Presence::Unknown(soon));
    assert_eq!(held(&plan).map(|held| held.next), Some(Requeue::after(Duration::from_secs(7))));
}

#[test]
fn a_node_ip_that_the_machine_lacks_is_told_with_both_sides() {
    let (plan, _) = run(&n08("10.0.0.2"), Presence::Exists(metadata("", A2)));
    let message = &held(&plan).unwrap().message;
    for part in ["10.0.0.2", "InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "node0.aws.12345", "provided-node-ip"]
    {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
}

#[test]
fn what_is_not_ours_is_never_touched() {
    assert_eq!(plan(None, &Policy::default()), NodePlan::default());
}

const BETAS: [(&str, &str); 3] = [
    ("failure-domain.beta.kubernetes.io/zone", "foo"),
    ("failure-domain.beta.kubernetes.io/region", "bar"),
    ("beta.kubernetes.io/instance-type", "the-best-type"),
];
const CURRENT: [(&str, &str); 3] = [
    ("topology.kubernetes.io/zone", "foo"),
    ("topology.kubernetes.io/region", "bar"),
    ("node.kubernetes.io/instance-type", "the-best-type"),
];

// vectors: N-30–N-32
#[test]
fn labels_of_initialized_nodes_follow_their_older_form() {
    let wrong = map(&[
        ("topology.kubernetes.io/zone", "wrongfoo"),
        ("topology.kubernetes.io/region", "wrongbar"),
        ("node.kubernetes.io/instance-type", "the-wrong-type"),
    ]);
    let all: BTreeMap<_, _> = map(&BETAS).into_iter().chain(map(&CURRENT)).collect();
    for (id, before, expected, writes) in [
        ("N-30", map(&BETAS), all.clone(), 1),
        ("N-31", all.clone(), all.clone(), 0),
        ("N-32", map(&BETAS).into_iter().chain(wrong).collect(), all.clone(), 1),
        ("not copied back", map(&CURRENT), map(&CURRENT), 0),
        ("no labels", map(&[]), map(&[]), 0),
    ] {
        let form = Form { labels: before, ..Form::default() };
        for instance in [Presence::Unknown(Unknown::new(reason::CloudError, "b")), Presence::Exists(metadata("", ""))] {
            let (plan, after) = run(&form, instance);
            assert_eq!(after.metadata.labels.unwrap_or_default(), expected, "{id}");
            assert_eq!(plan.actions.len(), writes, "{id}");
        }
    }
}

// vectors: N-04, N-14
#[test]
fn only_addresses_of_initialized_nodes_follow_the_cloud() {
    let everything = InstanceMetadata {
        instance_type: "t".into(),
        additional_labels: map(&[("a/b", "c")]),
        ..metadata("other", A3)
    };
    let pending = InstanceMetadata { pending: Some(Unknown::new(reason::CloudError, "b")), ..everything.clone() };
    let exists = Presence::Exists::<InstanceMetadata>;
    let only_names = "InternalIP 10.0.0.9, Hostname h";
    for (id, instance, before, expected) in [
        ("N-04, N-14 differ: one pass", exists(everything.clone()), "", A3),
        ("pending holds nothing back", exists(pending), "InternalIP 10.0.0.9", A3),
        ("none reported", exists(metadata("", "")), A2, A2),
        ("unknown", Presence::Unknown(Unknown::new(reason::CloudError, "b")), A2, A2),
        ("absent", Presence::Absent(AbsenceProof::new("gone", [])), A2, A2),
        ("no address any more", exists(metadata("", H)), only_names, only_names),
        ("another order of types", exists(metadata("", A2H)), A3, A3),
    ] {
        let form = tainted("X", "fake://1", before);
        let (_, after) = run(&form, instance);
        assert_eq!(after, tainted("X", "fake://1", expected).node(), "{id}");
    }
}

#[test]
fn addresses_are_written_before_the_taint_goes() {
    let (plan, _) = run(&tainted("U", "", ""), Presence::Exists(metadata("fake://1", A3)));
    assert!(
        matches!(plan.actions.as_slice(), [NodeAction::WriteAddresses(_), NodeAction::Initialize { .. }]),
        "{plan:?}"
    );
    let (plan, _) = run(&tainted("U", "", A3), Presence::Exists(metadata("fake://1", A3)));
    assert!(matches!(plan.actions.as_slice(), [NodeAction::Initialize { .. }]), "{plan:?}");
}

#[test]
fn a_node_ip_that_is_not_followed_is_told_with_what_the_cloud_knows_of_it() {
    let form = Form { provided_node_ip: Some("10.0.1.9"), ..tainted("U", "fake://1", "") };
    let note = |ip: &str| {
        format!("vm (vm-1): the provided node IP {ip} is not taken: its interface (\"\") has no virtual NIC")
    };
    let machine = InstanceMetadata { messages: vec![note("10.0.1.9"), note("10.0.1.90")], ..metadata("fake://1", A2) };
    let (plan, _) = run(&form, Presence::Exists(machine));
    let blocked = held(&plan).unwrap();
    assert_eq!(blocked.reason, reason::ProvidedNodeIPNotOnVM);
    assert!(
        blocked.message.ends_with(&note("10.0.1.9")) && !blocked.message.contains("10.0.1.90"),
        "{}",
        blocked.message
    );
}
