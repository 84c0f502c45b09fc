//! The node controller with the memory provider and a real API server: one test for each shape of write. The vectors
//! are in `src/controllers/node/plan/tests.rs`.

mod condition;
mod harness;
mod writes;

use ccm::cloud::node::{ANNOTATION_VM, TAINT_UNINITIALIZED};
use ccm::cloud::reason;
use ccm::cloud::{InstanceMetadata, Unknown};
use ccm::kubernetes::leader_election::{LeaderElector, LeaseConfig};
use doubles::memory::{Contract, Memory};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::ListParams;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{ApiServer, eventually, unique};

use harness::{Form, Meddling, Run, Start, addresses, instance, labels, lines, waiting};

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

const TYPES: [(&str, &str); 2] =
    [("beta.kubernetes.io/instance-type", "large"), ("node.kubernetes.io/instance-type", "large")];

const LIMIT: Duration = Duration::from_secs(60);

fn metadata(provider_id: &str, list: &[&str]) -> InstanceMetadata {
    InstanceMetadata { provider_id: provider_id.into(), node_addresses: addresses(list), ..InstanceMetadata::default() }
}

/// Returns a node that waits for initialization, with a taint of another program and with these addresses.
fn joining(list: &[&str]) -> Form {
    Form { taints: lines(&["X", TAINT_UNINITIALIZED]), addresses: lines(list), ..Form::default() }
}

/// Two writes for an initialization, one for labels alone, and none afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn each_shape_of_write_leaves_the_expected_node() {
    let own = [("my.custom.label/foo", "fizz")];
    let of_cloud = [("kubernetes.io/region", "elsewhere"), ("my.custom.label/foo", "bar"), ("k8snio/bar", "foo")];
    let labelled = InstanceMetadata {
        zone: "us-west-1a".into(),
        region: "us-west".into(),
        additional_labels: labels(&of_cloud),
        ..metadata("fake://2", A2)
    };
    let named = |form: Form| Form { provider_id: "fake://2".into(), provided_node_ip: "10.0.0.1".into(), ..form };
    let done = |list: &[&str]| Form { taints: lines(&["X"]), addresses: lines(list), ..Form::default() };
    let (older, both) = (&TYPES[..1], &TYPES[..]);
    let as_it_is = |pairs: &[(&str, &str)]| Form { addresses: lines(A3), labels: labels(pairs), ..Form::default() };
    let rows = [
        (
            "the older contract",
            Contract::Older,
            metadata("fake://1", A2),
            joining(K),
            Form { provider_id: "fake://1".into(), ..done(A2K) },
            2,
        ),
        (
            "labels of the cloud",
            Contract::Current,
            labelled,
            named(Form { labels: labels(&own), ..joining(H) }),
            named(Form { labels: labels(&[&ZONES[..], &own, &of_cloud[2..]].concat()), ..done(A2H) }),
            2,
        ),
        ("labels alone", Contract::Current, metadata("fake://3", A3), as_it_is(older), as_it_is(both), 1),
    ];
    for (case, contract, metadata, before, expected, writes) in rows {
        let cloud = Memory::new("fake", contract);
        let run = Start::on(&cloud).restless().run().await;
        let name = unique("n");
        cloud.put(instance(&name, metadata));
        run.register(&Form { name: name.clone(), ..before }).await;
        let expected = Form { name: name.clone(), ..expected };
        run.wait(case, &name, |node| Form::of(node) == expected).await;
        run.wait_for_looks("Settled", 5).await;
        assert_eq!(run.writes(&name).await.len(), writes, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_cannot_be_initialized_are_left_alone_and_counted_by_reason() {
    let cloud = Memory::default();
    let run = Start::on(&cloud).run().await;
    let unknown = Unknown::new(reason::CloudError, "the test says so");
    for (id, provided_node_ip, said, reason) in
        [("memory://10", "10.0.0.2", None, "ProvidedNodeIPNotOnVM"), ("memory://22", "", Some(unknown), "CloudError")]
    {
        let form = Form { provided_node_ip: provided_node_ip.into(), ..waiting(&unique("n")) };
        cloud.put(instance(&form.name, metadata(id, A2)));
        cloud.set_unknown(id, said);
        let created = run.register(&form).await;
        run.wait_for_nodes_held(id, reason, false, 1).await;
        let after = run.get(&form.name).await;
        assert_eq!(after.metadata.resource_version, created.metadata.resource_version, "{id}: nothing is written");
    }
    cloud.set_unknown("memory://22", None);
    run.wait_for_nodes_held("it is known", "CloudError", false, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_initialized_node_follows_its_address_by_event_and_has_one_event() {
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
    let node = run.wait("initialized", &name, |node| !harness::is_tainted(node)).await;
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
async fn a_node_that_another_initializes_meanwhile_is_left_to_it() {
    let cloud = Memory::default();
    let name = unique("n");
    cloud.put(instance(&name, metadata("memory://late", A3)));
    let initialize = |node: &mut Node, _: usize| {
        let spec = node.spec.as_mut().unwrap();
        spec.taints = None;
        spec.provider_id = Some("memory://by-another".into());
    };
    let provider = Meddling::new(cloud, 1, initialize).await;
    let run = Run::with_provider(Arc::new(provider)).await;
    run.register(&waiting(&name)).await;
    run.wait_for_nodes_held("looked at again", "InstanceNotFound", true, 1).await;
    let node = run.get(&name).await;
    let expected = Form { name, provider_id: "memory://by-another".into(), ..Form::default() };
    assert_eq!(Form::of(&node), expected);
    run.wait_for_metric("no second initialization", "node_controller_initial_node_sync_delay_seconds_count 0").await;
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
    let (cloud, name) = (Memory::default(), unique("n"));
    cloud.put(instance(&name, metadata("memory://panics", A3)));
    let is_armed = Arc::new(AtomicBool::new(true));
    let armed = Arc::clone(&is_armed);
    let panics = move |_: &mut Node, _| assert!(!armed.load(Ordering::SeqCst), "on purpose");
    let run = Run::with_provider(Arc::new(Meddling::new(cloud, usize::MAX, panics).await)).await;
    run.register(&waiting(&name)).await;
    run.wait_for_nodes_held("it panicked", "Panic", false, 1).await;
    is_armed.store(false, Ordering::SeqCst);
    run.wait("initialized all the same", &name, |node| !harness::is_tainted(node)).await;
    run.wait_for_nodes_held("it is over", "Panic", false, 0).await;
}
