//! The record of a machine on its Node.

use super::harness::{Form, Start, instance, is_tainted, waiting};
use super::metadata;
use ccm::cloud::InstanceMetadata;
use ccm::cloud::node::ANNOTATION_VM;
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
    first.wait("initialised", &name, |node| !is_tainted(node) && is_recorded_at("a")(node)).await;
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
