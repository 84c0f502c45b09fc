//! Writes to initialized Nodes that wait for a turn: the record of a machine, and missing labels of `--node-labels`.

use super::harness::{Form, Start, instance, is_tainted, labels, lines, waiting};
use super::{A3, metadata};
use ccm::cloud::InstanceMetadata;
use ccm::cloud::node::ANNOTATION_VM;
use ccm::controllers::node::{NodeLabelsOn, Policy};
use doubles::memory::Memory;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use support::unique;

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_ready_node_follows_its_machine_once_and_not_again_soon() {
    let cloud = Memory::default();
    let name = unique("n");
    let at = |place: &str, address: &str| {
        let list = format!("InternalIP {address}");
        let record = format!("vm-1 {place}");
        cloud.put(instance(&name, InstanceMetadata { record, ..metadata(&format!("memory://{name}"), &[&list]) }));
    };
    let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
    let is_recorded_at = |place: &'static str| {
        move |node: &Node| ccm::cloud::node::annotation(node, ANNOTATION_VM) == Some(&format!("vm-1 {place}"))
    };
    at("a", "10.0.0.1");
    let first = Start::on(&cloud).run().await;
    first.register(&waiting(&name)).await;
    first.patch_status(&name, ready("True")).await;
    first.wait("initialized", &name, |node| !is_tainted(node) && is_recorded_at("a")(node)).await;
    at("b", "10.0.0.1");
    first.wait("it followed", &name, is_recorded_at("b")).await;
    // Moved again, and later changed in another field, which is written immediately.
    at("c", "10.0.0.1");
    at("c", "10.0.0.2");
    let has_changed = |node: &Node| Form::of(node).addresses.iter().any(|line| line.ends_with("10.0.0.2"));
    let node = first.wait("the address", &name, has_changed).await;
    assert!(is_recorded_at("b")(&node), "it rests: {:?}", node.metadata.annotations);
    // The next leader compares all fields again.
    let next = Start::on(&cloud).beside(&first).run().await;
    drop(first);
    next.wait("it followed", &name, is_recorded_at("c")).await;
    at("d", "10.0.0.2");
    next.patch_status(&name, ready("Unknown")).await;
    next.wait("it followed at once", &name, is_recorded_at("d")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_the_flag_are_set_at_a_join_and_on_initialized_nodes_only_where_all_are_asked_for() {
    let (before, after) = (labels(&[("rack", "7")]), labels(&[("rack", "7"), ("team", "storage")]));
    for (on, expected) in [(NodeLabelsOn::Join, &before), (NodeLabelsOn::All, &after)] {
        let cloud = Memory::default();
        let node_labels = labels(&[("team", "storage"), ("rack", "of the flag"), ("k8s.io/reserved", "x")]);
        let policy = Policy { node_labels, node_labels_on: on, ..Policy::default() };
        let run = Start::on(&cloud).restless().policy(policy).run().await;
        let (old, new) = (unique("n"), unique("n"));
        let id = |name: &str| format!("memory://{name}");
        for name in [&old, &new] {
            cloud.put(instance(name, metadata(&id(name), A3)));
        }
        let initialized = Form { name: old.clone(), provider_id: id(&old), addresses: lines(A3), ..Form::default() };
        run.register(&Form { labels: before.clone(), ..initialized }).await;
        run.register(&Form { labels: before.clone(), ..waiting(&new) }).await;
        let node = run.wait("initialized", &new, |node| !is_tainted(node)).await;
        assert_eq!(Form::of(&node).labels, after, "{on:?}");
        run.wait("labelled", &old, |node| Form::of(node).labels == *expected).await;
        run.wait_for_looks("Settled", 10).await;
        assert_eq!(Form::of(&run.get(&old).await).labels, *expected, "{on:?}");
        assert_eq!(run.writes(&old).await.len(), usize::from(on == NodeLabelsOn::All), "{on:?}");
    }
}
