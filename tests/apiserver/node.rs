//! The node controller with the memory provider and a real API server. The ids are those of the upstream vectors.

mod adoption;
mod condition;
mod harness;
mod labels;
mod writes;

use ccm::cloud::node::{ANNOTATION_VM, TAINT_UNINITIALIZED};
use ccm::cloud::reason;
use ccm::cloud::{InstanceMetadata, Unknown};
use ccm::kubernetes::leader_election::{LeaderElector, LeaseConfig};
use doubles::memory::{Contract, Memory};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{ListParams, PostParams};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{ApiServer, eventually, unique};

use harness::{Form, Meddling, Panicking, Run, Start, addresses, instance, labels, lines, waiting};

const A3: &[&str] = &["Hostname node0.cloud.internal", "InternalIP 10.0.0.1", "ExternalIP 132.143.154.163"];
const A2: &[&str] = &["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163"];
const A2H: &[&str] = &["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname node0.cloud.internal"];
const A2K: &[&str] = &["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname nodeoverriden"];
const H: &[&str] = &["Hostname node0.cloud.internal"];
const K: &[&str] = &["Hostname nodeoverriden"];
const ZONES: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", "us-west-1a"),
    ("failure-domain.beta.kubernetes.io/zone", "us-west-1a"),
    ("topology.kubernetes.io/region", "us-west"),
    ("failure-domain.beta.kubernetes.io/region", "us-west"),
];

const LIMIT: Duration = Duration::from_secs(60);

fn metadata(provider_id: &str, list: &[&str]) -> InstanceMetadata {
    InstanceMetadata { provider_id: provider_id.into(), node_addresses: addresses(list), ..InstanceMetadata::default() }
}

fn zoned(metadata: InstanceMetadata) -> InstanceMetadata {
    InstanceMetadata { zone: "us-west-1a".into(), region: "us-west".into(), ..metadata }
}

/// Registers the node, waits until it is initialised, and compares it with the expected node.
async fn expect_initialised(run: &Run, id: &str, before: &Form, expected: &Form) {
    let created = run.register(before).await;
    let name = created.metadata.name.unwrap();
    let after = run.wait(&format!("{id} is initialised"), &name, |node| !harness::is_tainted(node)).await;
    assert_eq!(Form::of(&after), Form { name: name.clone(), ..expected.clone() }, "{id}");
}

// vectors: N-01–N-03, N-05, N-06, N-08, N-15–N-20
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_initialised_as_upstream() {
    for (provider, contract) in [("fake", Contract::Older), ("aws", Contract::Older), ("fake", Contract::Current)] {
        let cloud = Memory::new(provider, contract);
        let run = Start::on(&cloud).run().await;
        for (id, metadata, before, expected) in vectors(provider, contract) {
            let name = unique("n");
            cloud.put(instance(&name, metadata));
            expect_initialised(&run, id, &Form { name, ..before }, &expected).await;
        }
    }
}

type Vector = (&'static str, InstanceMetadata, Form, Form);

fn vectors(provider: &str, contract: Contract) -> Vec<Vector> {
    let id = |vector: &str| format!("{provider}://12345-{vector}");
    let metadata = |vector: &str, list: &[&str]| InstanceMetadata {
        provider_id: id(vector),
        node_addresses: addresses(list),
        ..InstanceMetadata::default()
    };
    let joining = |others: &[&str], status: &[&str]| Form {
        taints: others.iter().copied().chain([TAINT_UNINITIALIZED]).map(str::to_owned).collect(),
        addresses: lines(status),
        ..Form::default()
    };
    let done = |vector: &str, others: &[&str], status: &[&str]| Form {
        taints: others.iter().map(|key| (*key).to_owned()).collect(),
        addresses: lines(status),
        provider_id: id(vector),
        ..Form::default()
    };
    // The nodes with a provider ID and the kubelet's --node-ip.
    let named =
        |vector: &str, form: Form| Form { provider_id: id(vector), provided_node_ip: "10.0.0.1".into(), ..form };
    match (provider, contract) {
        ("aws", _) => vec![(
            "N-05",
            zoned(metadata("N-05", A3)),
            joining(&[], &[]),
            Form { labels: labels(&ZONES), ..done("N-05", &[], A3) },
        )],
        (_, Contract::Older) => vec![
            ("N-01", metadata("N-01", A3), joining(&[], K), done("N-01", &[], A3)),
            ("N-02", metadata("N-02", A2), joining(&[], K), done("N-02", &[], A2K)),
            ("N-03", metadata("N-03", A3), joining(&[], &[]), done("N-03", &[], A3)),
            ("N-06", metadata("N-06", A3), joining(&["X"], &[]), done("N-06", &["X"], A3)),
            ("N-08", metadata("N-08", A2), named("N-08", joining(&["X"], H)), named("N-08", done("N-08", &["X"], A2H))),
        ],
        (_, Contract::Current) => {
            let extra = |vector: &str, pairs: &[(&str, &str)]| InstanceMetadata {
                additional_labels: labels(pairs),
                ..zoned(metadata(vector, A2))
            };
            let n18 = [("my.custom.label/foo", "bar"), ("topology.k8s.cp/zone-id", "az1")];
            let n19 = [
                ("topology.kubernetes.io/region", "us-other-west"),
                ("topology.k8s.io/region", "us-other-west"),
                ("kubernetes.io/region", "us-other-west"),
                ("k8s.io/region", "us-other-west"),
                ("my.custom.label/foo", "bar"),
                ("my.custom.label/bar", "foo"),
                ("app.k8snio/bar", "foo"),
                ("k8snio/bar", "foo"),
            ];
            let n19_before = labels(&[("my.custom.label/foo", "fizz"), ("my.custom.label/bar", "foo")]);
            let mut n19_after = labels(&ZONES);
            n19_after.extend(n19_before.clone());
            n19_after.extend(labels(&[("app.k8snio/bar", "foo"), ("k8snio/bar", "foo")]));
            let mut n18_after = labels(&ZONES);
            n18_after.extend(labels(&n18));
            let with = |labels: BTreeMap<String, String>, form: Form| Form { labels, ..form };
            vec![
                ("N-15", zoned(metadata("N-15", A3)), joining(&[], &[]), with(labels(&ZONES), done("N-15", &[], A3))),
                ("N-16", metadata("N-16", A3), joining(&["X"], &[]), done("N-16", &["X"], A3)),
                (
                    "N-17",
                    metadata("N-17", A2),
                    named("N-17", joining(&["X"], H)),
                    named("N-17", done("N-17", &["X"], A2H)),
                ),
                (
                    "N-18",
                    extra("N-18", &n18),
                    named("N-18", joining(&["X"], H)),
                    with(n18_after, named("N-18", done("N-18", &["X"], A2H))),
                ),
                (
                    "N-19",
                    extra("N-19", &n19),
                    with(n19_before, named("N-19", joining(&["X"], H))),
                    with(n19_after, named("N-19", done("N-19", &["X"], A2H))),
                ),
                (
                    "N-20",
                    metadata("N-20", A3),
                    Form { provider_id: id("N-20"), ..joining(&["X"], &[]) },
                    done("N-20", &["X"], A3),
                ),
            ]
        }
    }
}

// vectors: N-07, N-09, N-10, N-21, N-22
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_cannot_be_initialised_are_left_alone_and_counted_by_reason() {
    for contract in [Contract::Older, Contract::Current] {
        let cloud = Memory::new("memory", contract);
        let run = Start::on(&cloud).run().await;
        let vectors: &[(&str, InstanceMetadata, &str, bool, &str)] = match contract {
            Contract::Older => &[
                ("N-09", metadata("memory://9", A2), "invalid-ip", false, "ProvidedNodeIPNotValid"),
                ("N-10", metadata("memory://10", A2), "10.0.0.2", false, "ProvidedNodeIPNotOnVM"),
                ("no address", metadata("memory://0", H), "", false, "NoAddresses"),
            ],
            Contract::Current => &[
                ("N-07, N-22", metadata("memory://22", A3), "", true, "CloudError"),
                ("N-21", metadata("", A3), "", false, "NoProviderID"),
                ("no address", metadata("memory://0", H), "", false, "NoAddresses"),
            ],
        };
        for (id, metadata, provided_node_ip, is_unknown, reason) in vectors {
            let form = Form { provided_node_ip: (*provided_node_ip).into(), ..waiting(&unique("n")) };
            if *is_unknown {
                let unknown = Unknown::new(reason::CloudError, "the test says so");
                cloud.set_unknown(&metadata.provider_id, Some(unknown));
            }
            cloud.put(instance(&form.name, metadata.clone()));
            let created = run.register(&form).await;
            run.wait_for_nodes_held(id, reason, false, 1).await;
            let after = run.get(&form.name).await;
            assert_eq!(after.metadata.resource_version, created.metadata.resource_version, "{id}: nothing is written");
        }
        if contract == Contract::Current {
            cloud.set_unknown("memory://22", None);
            run.wait_for_nodes_held("it is known", "CloudError", false, 0).await;
        }
    }
}

// vectors: N-12
#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_without_ids_leaves_the_taint() {
    let cloud = Memory::new("memory", Contract::Older);
    cloud.set_without_instance_ids();
    let run = Start::on(&cloud).run().await;
    let name = unique("n");
    cloud.put(instance(&name, metadata("memory://12", &[])));
    let created = run.register(&waiting(&name)).await;
    run.wait_for_nodes_held("N-12 differs: untainted there", "NoProviderID", false, 1).await;
    assert_eq!(run.get(&name).await.metadata.resource_version, created.metadata.resource_version);
}

// vectors: N-04, N-14
#[tokio::test(flavor = "multi_thread")]
async fn nodes_without_the_taint_that_are_as_the_cloud_says_are_left_alone() {
    for (id, contract) in [("N-04", Contract::Older), ("N-14", Contract::Current)] {
        let cloud = Memory::new("memory", contract);
        let run = Start::on(&cloud).restless().run().await;
        let name = unique("n");
        cloud.put(instance(&name, metadata("memory://1", A3)));
        let form = Form { name: name.clone(), addresses: lines(A3), ..Form::default() };
        let created = run.register(&form).await;
        run.wait_for_looks("Settled", 5).await;
        assert_eq!(run.get(&name).await.metadata.resource_version, created.metadata.resource_version, "{id}");
    }
}

// vectors: N-30–N-32
#[tokio::test(flavor = "multi_thread")]
async fn labels_of_initialised_nodes_follow_their_older_form() {
    let betas = [
        ("failure-domain.beta.kubernetes.io/zone", "foo"),
        ("failure-domain.beta.kubernetes.io/region", "bar"),
        ("beta.kubernetes.io/instance-type", "the-best-type"),
    ];
    let current = [
        ("topology.kubernetes.io/zone", "foo"),
        ("topology.kubernetes.io/region", "bar"),
        ("node.kubernetes.io/instance-type", "the-best-type"),
    ];
    let wrong = current.map(|(key, _)| (key, "wrong"));
    let run = Start::on(&Memory::default()).run().await;
    for (id, more, is_written) in [("N-30", &[][..], true), ("N-31", &current[..], false), ("N-32", &wrong[..], true)] {
        let mut before = labels(&betas);
        before.extend(labels(more));
        let mut expected = labels(&betas);
        expected.extend(labels(&current));
        let form = Form { name: unique("n"), labels: before, ..Form::default() };
        let created = run.register(&form).await;
        let after = run.wait(id, &form.name, |node| Form::of(node).labels == expected).await;
        assert_eq!(after.metadata.resource_version != created.metadata.resource_version, is_written, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_initialised_node_follows_its_address_by_event_and_has_one_event() {
    let cloud = Memory::default();
    let run = Start::on(&cloud).run().await;
    let name = unique("n");
    let metadata = InstanceMetadata {
        provider_id: format!("memory://{name}"),
        node_addresses: addresses(&["InternalIP 10.0.0.1", "InternalIP fc01::1"]),
        record: "vm-7".into(),
        ..InstanceMetadata::default()
    };
    cloud.put(instance(&name, metadata));
    run.register(&waiting(&name)).await;
    let node = run.wait("initialised", &name, |node| !harness::is_tainted(node)).await;
    assert_eq!(Form::of(&node).addresses, ["InternalIP 10.0.0.1", "InternalIP fc01::1"]);
    assert_eq!(ccm::cloud::node::annotation(&node, ANNOTATION_VM), Some("vm-7"));

    let changed = ["InternalIP 10.0.0.2", "InternalIP fc01::1"];
    let id = format!("memory://{name}");
    assert!(cloud.update(&id, |instance| instance.metadata.node_addresses = addresses(&changed)));
    run.wait("the address changes", &name, |node| Form::of(node).addresses == changed).await;
    assert!(cloud.update(&id, |instance| instance.metadata.node_addresses = addresses(&["Hostname h"])));
    run.wait_for_nodes_held("no address left", "NoAddresses", true, 1).await;
    assert_eq!(Form::of(&run.get(&name).await).addresses, changed, "never replaced by none");

    let events: Api<Event> = Api::default_namespaced(run.client.clone());
    let about = ListParams::default().fields(&format!("involvedObject.name={name},reason=Synced"));
    let event = eventually("the Event", LIMIT, async || {
        let list = events.list(&about).await.map_err(|error| error.to_string())?;
        list.items.into_iter().next().ok_or_else(|| "no Event".to_owned())
    })
    .await;
    assert_eq!(event.message.as_deref(), Some("Node synced successfully"));
    assert_eq!(event.count, Some(1));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("cloud-node-controller"));
    run.wait_for_metric("counted", "node_controller_initial_node_sync_delay_seconds_count 1").await;
    run.wait_for_metric("counted", "node_controller_cloud_provider_taint_removal_delay_seconds_count 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn taints_that_others_add_meanwhile_survive() {
    let cloud = Memory::default();
    let name = unique("n");
    cloud.put(instance(&name, metadata("memory://taints", A3)));
    let add = |node: &mut Node, turn: usize| harness::add_taint(node, &format!("other-{turn}"));
    let provider = Meddling::new(cloud, 3, add).await;
    let run = Run::with_provider(Arc::new(provider)).await;
    run.register(&waiting(&name)).await;
    let node = run.wait("initialised", &name, |node| !harness::is_tainted(node)).await;
    assert_eq!(Form::of(&node).taints, ["other-0", "other-1", "other-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_another_initialises_meanwhile_is_left_to_it() {
    let cloud = Memory::default();
    let name = unique("n");
    cloud.put(instance(&name, metadata("memory://late", A3)));
    let initialise = |node: &mut Node, _: usize| {
        let spec = node.spec.as_mut().unwrap();
        spec.taints = None;
        spec.provider_id = Some("memory://by-another".into());
    };
    let provider = Meddling::new(cloud, 1, initialise).await;
    let run = Run::with_provider(Arc::new(provider)).await;
    run.register(&waiting(&name)).await;
    run.wait_for_nodes_held("looked at again", "InstanceNotFound", true, 1).await;
    let node = run.get(&name).await;
    let expected = Form { name, provider_id: "memory://by-another".into(), ..Form::default() };
    assert_eq!(Form::of(&node), expected);
    run.wait_for_metric("no second initialisation", "node_controller_initial_node_sync_delay_seconds_count 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_is_looked_at_first_when_many_wait() {
    let idle = Start::on(&Memory::default()).run().await;
    let tainted = Form { taints: vec![TAINT_UNINITIALIZED.into()], ..Form::default() };
    for _ in 0..10 {
        idle.register(&Form { name: unique("a-worker"), ..tainted.clone() }).await;
    }
    let name = unique("z-control-plane");
    let role = labels(&[("node-role.kubernetes.io/control-plane", "")]);
    idle.register(&Form { name: name.clone(), labels: role, ..tainted }).await;
    let mark = |node: &mut Node, turn: usize| harness::add_taint(node, &format!("turn-{turn}"));
    let busy = Run::beside(&idle, Arc::new(Meddling::new(Memory::default(), 1, mark).await)).await;
    let first = busy.wait("looked at", &name, |node| Form::of(node).taints.len() > 1).await;
    assert_eq!(Form::of(&first).taints, [TAINT_UNINITIALIZED, "turn-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_leader_writes_nothing() {
    let client = ApiServer::shared().await.client().await;
    let config = LeaseConfig {
        namespace: "kube-system".into(),
        name: unique("lease"),
        identity: "first".into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let (elector, leadership) = LeaderElector::new(client, config).unwrap();
    let elected = tokio::spawn(elector.run(tokio_util::sync::CancellationToken::new()));
    let cloud = Memory::default();
    let first = Run::start(&cloud, Duration::from_millis(200), leadership.clone()).await;
    let put = |cloud: &Memory, name: &str, provider_id: &str| {
        let provider_id = provider_id.to_owned();
        let node_addresses = addresses(A3);
        cloud.put(instance(name, InstanceMetadata { provider_id, node_addresses, ..InstanceMetadata::default() }));
    };
    let (before, after) = (unique("n"), unique("n"));
    put(&cloud, &before, "memory://before");
    first.register(&waiting(&before)).await;
    first.wait("the leader works", &before, |node| !harness::is_tainted(node)).await;

    elected.abort();
    leadership.wait_until_lost().await;
    let asked = cloud.calls();
    put(&cloud, &after, "memory://by-the-former-leader");
    first.register(&waiting(&after)).await;
    first.wait_for_cache(&after).await;

    let other_cloud = Memory::default();
    put(&other_cloud, &after, "memory://by-the-new-leader");
    let second = Run::beside(&first, Arc::new(other_cloud)).await;
    let node = second.wait("the new leader works", &after, |node| !harness::is_tainted(node)).await;
    assert_eq!(Form::of(&node).provider_id, "memory://by-the-new-leader");
    assert!(cloud.calls() <= asked + 1, "a standby does not ask; one question may have been on its way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_provider_is_counted_and_tried_again() {
    let cloud = Memory::default();
    let name = unique("n");
    let metadata = InstanceMetadata {
        provider_id: format!("memory://{name}"),
        node_addresses: addresses(A3),
        ..InstanceMetadata::default()
    };
    cloud.put(instance(&name, metadata));
    let provider = Panicking { cloud, is_armed: Arc::new(AtomicBool::new(true)) };
    let is_armed = provider.is_armed.clone();
    let run = Run::with_provider(Arc::new(provider)).await;
    run.register(&waiting(&name)).await;
    run.wait_for_nodes_held("it panicked", "Panic", false, 1).await;
    is_armed.store(false, Ordering::SeqCst);
    run.wait("initialised all the same", &name, |node| !harness::is_tainted(node)).await;
    run.wait_for_nodes_held("it is over", "Panic", false, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_provider_without_the_taint_is_never_touched() {
    let cloud = Memory::default();
    let run = Run::with_provider(Arc::new(harness::OwnsNothing(cloud.clone()))).await;
    let (foreign, ours) = (unique("n"), unique("n"));
    for name in [&foreign, &ours] {
        let metadata = InstanceMetadata {
            provider_id: format!("memory://{name}"),
            node_addresses: addresses(A3),
            ..InstanceMetadata::default()
        };
        cloud.put(instance(name, metadata));
    }
    let tainted = Form { taints: vec![TAINT_UNINITIALIZED.into()], ..Form::default() };
    let form = Form {
        name: foreign.clone(),
        provider_id: format!("memory://{foreign}"),
        labels: labels(&[("beta.kubernetes.io/instance-type", "theirs")]),
        ..Form::default()
    };
    run.register(&form).await;
    let left = serde_json::json!([{"type": "VSphereInitialized", "status": "False", "reason": "VMNotFound"}]);
    let created = run.patch_status(&foreign, serde_json::json!({"conditions": left})).await;
    run.register(&Form { name: ours.clone(), ..tainted }).await;
    run.wait("ours is initialised", &ours, |node| !harness::is_tainted(node)).await;
    let api: Api<Node> = Api::all(run.client.clone());
    let after = api.get(&foreign).await.unwrap();
    assert_eq!(after.metadata.resource_version, created.metadata.resource_version);
    let conflict = api.create(&PostParams::default(), &created).await;
    assert!(conflict.is_err(), "the node is still there");
}
