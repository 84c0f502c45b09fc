//! Address families that a guest reports late or never, and the time at which its node proceeds.

use std::time::Duration;

use ccm::cloud::{InstanceMetadata, Presence};
use k8s_openapi::api::core::v1::Node;
use support::{FakeVcenter, Machine, Model, eventually};
use tempfile::TempDir;

use super::{Scene, UUID, sections, with_provider_id};
use crate::world::{SOON, node};

async fn start(address: &str, family_wait: Duration) -> Scene {
    let model = Model::small().vm(Machine::new("n", UUID).ip(address));
    let text = |fakes: &[FakeVcenter], folder: &TempDir| sections(fakes, "", folder) + "ip-family = ipv4, ipv6\n";
    Scene::configured(vec![model], text, |options| options.family_wait = family_wait).await
}

/// Waits until the node waits for a family, and returns its message.
async fn waits(scene: &Scene, node: &Node) -> String {
    scene.running.cluster.put(node.clone());
    let instances = scene.instances();
    eventually("the node waits for a family", SOON, async || match instances.instance_metadata(node).await {
        Presence::Exists(InstanceMetadata { pending: Some(pending), .. }) if pending.reason == "NoAddressOfFamily" => {
            Ok(pending.message)
        }
        other => Err(format!("{other:?}")),
    })
    .await
}

fn addresses(metadata: &InstanceMetadata) -> Vec<&str> {
    let ips = metadata.node_addresses.iter().filter(|address| address.type_ == "InternalIP");
    ips.map(|address| address.address.as_str()).collect()
}

#[tokio::test]
async fn a_second_family_that_never_comes_is_waited_for_until_the_limit() {
    let node = node("n", UUID);
    let scene = start("10.0.0.1", Duration::from_secs(3600)).await;
    assert!(waits(&scene, &node).await.contains("IP family ipv6"));
    scene.running.stop().await;
    // Nothing changes in vCenter. The wait ends after its time limit.
    let scene = start("10.0.0.1", Duration::from_secs(1)).await;
    let metadata = scene.found(&node).await;
    assert_eq!(addresses(&metadata), ["10.0.0.1"]);
    assert!(metadata.messages.iter().any(|note| note.contains("no ipv6 address")), "{:?}", metadata.messages);
    scene.running.stop().await;
}

#[tokio::test]
async fn a_first_family_is_waited_for_beyond_the_limit() {
    let scene = start("fd00::1", Duration::ZERO).await;
    let node = node("n", UUID);
    assert!(waits(&scene, &node).await.contains("IP family ipv4"));
    // An initialized node uses the available addresses.
    let initialized = with_provider_id(node.clone(), &format!("vsphere://{UUID}"));
    assert_eq!(addresses(&scene.found(&initialized).await), ["fd00::1"]);
    scene.running.cluster.clear();
    assert!(waits(&scene, &node).await.contains("IP family ipv4"));
    scene.fake().change_vm("n", |vm| vm.ips(&["fd00::1", "10.0.0.1"]));
    assert_eq!(addresses(&scene.found(&node).await), ["10.0.0.1", "fd00::1"]);
    scene.running.stop().await;
}
