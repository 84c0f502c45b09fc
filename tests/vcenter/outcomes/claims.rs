//! The assignment of machines to nodes: one node for each machine. A node with an unusable provider ID gets advice in
//! its message.

use super::observations::ready;
use super::{OTHER, SWAPPED, Scene, UUID, address, machine, one, vm_of, with_provider_id, with_record, without_record};
use crate::world::node;
use k8s_openapi::api::core::v1::Node;
use std::time::Duration;
use support::{Machine, Model, eventually};

const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_machine_that_backs_a_node_backs_no_second_one_until_that_node_is_gone() {
    let mut scene = Scene::start(vec![one()]).await;
    let old = scene.initialized("old").await;
    // The same machine, registered under another name, with the UUID in either byte order.
    for (index, uuid) in [UUID, SWAPPED].into_iter().enumerate() {
        let new = node(&format!("new-{index}"), uuid);
        scene.running.cluster.put(new.clone());
        for restarted in [false, true] {
            if restarted {
                // The order in which a new process sees the two nodes does not matter.
                scene.restart(&new).await;
                scene.running.cluster.put(old.clone());
            }
            let message = scene.unknown(&new, "VMBacksAnotherNode").await;
            assert!(message.contains("n (vm-1 on") && message.contains("backs Node old"), "{message}");
            assert_eq!(address(&scene.found(&old).await), "10.0.0.1", "the node that is initialized keeps it");
        }
        scene.running.cluster.put_all(vec![new.clone()]);
        assert_eq!(vm_of(&scene.found(&new).await), "vm-1");
        scene.running.cluster.put_all(vec![old.clone()]);
    }
    scene.running.stop().await;
}

/// A machine that was installed again under another host name.
#[tokio::test]
async fn a_machine_that_joins_again_under_its_new_name_is_initialized_while_the_old_node_is_unknown() {
    let scene = Scene::start(vec![one()]).await;
    let old = scene.initialized("old").await;
    let new = node("new", SWAPPED);
    let rename = |name: &str| scene.fake().change_vm("n", |vm| vm.text("guest.hostName", name));
    // The name of its guest is neither node's name.
    for status in ["True", "False"] {
        scene.running.cluster.put(ready(old.clone(), status));
        scene.running.cluster.put(new.clone());
        let message = scene.unknown(&new, "VMBacksAnotherNode").await;
        assert!(message.contains("backs Node old"), "{status}: {message}");
    }
    let silent = ready(old.clone(), "Unknown");
    scene.running.cluster.put(silent.clone());
    scene.unknown(&new, "VMBacksAnotherNode").await;
    // The node is reconciled immediately after the change of the guest and of the old Node.
    rename("new");
    let found = scene.found(&new).await;
    assert_eq!(
        (vm_of(&found), address(&found), found.earlier_name.as_deref()),
        ("vm-1".into(), "10.0.0.1", Some("old"))
    );
    let kept = scene.found(&silent).await;
    assert_eq!((vm_of(&kept), kept.earlier_name.as_deref()), ("vm-1".into(), None), "it keeps what it has");
    scene.told(&silent, "exists").await;
    let joined = with_record(with_provider_id(new.clone(), &found.provider_id), &found.record);
    scene.running.cluster.put(joined.clone());
    // After the initialization the metadata does not contain the earlier name any more.
    scene.found_with(&joined, |metadata| metadata.earlier_name.is_none()).await;
    scene.running.stop().await;
}

/// The kubelet of the old Node wrote this UUID.
#[tokio::test]
async fn the_uuid_that_the_old_node_reports_does_not_keep_a_machine_from_joining_again() {
    for system_uuid in [UUID, OTHER] {
        let scene = Scene::start(vec![one()]).await;
        let mut old = ready(scene.initialized("old").await, "Unknown");
        old.status.as_mut().unwrap().node_info.as_mut().unwrap().system_uuid = system_uuid.into();
        scene.running.cluster.put(old);
        scene.fake().change_vm("n", |vm| vm.text("guest.hostName", "new"));
        assert_eq!(vm_of(&scene.found(&node("new", UUID)).await), "vm-1", "{system_uuid}");
        scene.running.stop().await;
    }
}

/// Returns a Node whose kubelet claims the machine with this UUID. It seems to be initialized.
fn forged(name: &str, system_uuid: &str, created: &str) -> Node {
    created_at(without_record(with_provider_id(node(name, system_uuid), &format!("vsphere://{UUID}"))), created)
}

fn created_at(mut node: Node, time: &str) -> Node {
    node.metadata.creation_timestamp = serde_json::from_value(serde_json::json!(time)).unwrap();
    node
}

/// Adds the taint of an uninitialized Node.
fn tainted(mut node: Node) -> Node {
    let taint = serde_json::json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
    node.spec.get_or_insert_default().taints = serde_json::from_value(taint).unwrap();
    node
}

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-02-01T00:00:00Z";

#[tokio::test]
async fn of_two_nodes_that_are_initialized_with_one_machine_the_older_one_has_it() {
    let mut scene = Scene::start(vec![one()]).await;
    let metadata = scene.found(&node("first", UUID)).await;
    // Fields that a kubelet may write do not change the result.
    let second = with_record(forged("a-second", UUID, LATE), &metadata.record);
    let first = forged("first", UUID, EARLY);
    for (one, other) in [(&first, &second), (&second, &first)] {
        scene.restart(one).await;
        scene.running.cluster.put(other.clone());
        assert_eq!(address(&scene.found(&first).await), "10.0.0.1");
        let message = scene.unknown(&second, "VMBacksAnotherNode").await;
        assert!(message.contains("VM n (vm-1) already backs Node first, which is older"), "{message}");
        scene.told(&second, "exists").await;
    }
    scene.running.cluster.put_all(vec![second.clone()]);
    assert_eq!(address(&scene.found(&second).await), "10.0.0.1", "nobody else claims it");
    scene.running.stop().await;
}

#[tokio::test]
async fn the_node_that_the_guest_is_named_as_has_the_machine_whoever_came_first() {
    let mut scene = Scene::start(vec![one()]).await;
    // Registered without the taint while the Node of the machine did not exist.
    let mallory = forged("mallory", UUID, EARLY);
    assert_eq!(address(&scene.found(&mallory).await), "10.0.0.1", "nobody else claims it");
    let own = tainted(created_at(node("n", UUID), LATE));
    for restarted in [false, true] {
        if restarted {
            scene.restart(&mallory).await;
        }
        let found = scene.found(&own).await;
        assert_eq!((address(&found), found.node_addresses.len()), ("10.0.0.1", 3));
        let message = scene.unknown(&mallory, "VMBacksAnotherNode").await;
        assert!(message.contains("backs Node n, which has the name of its guest"), "{message}");
    }
    // vCenter reports another guest name, and then none.
    let rename = |name: &str| scene.fake().change_vm("n", |vm| vm.text("guest.hostName", name));
    rename("mallory");
    scene.unknown(&own, "VMBacksAnotherNode").await;
    assert_eq!(address(&scene.found(&mallory).await), "10.0.0.1");
    rename("somebody");
    eventually("the one that is initialized has it", LIMIT, async || {
        let message = scene.unknown(&own, "VMBacksAnotherNode").await;
        if message.contains("already backs Node mallory;") { Ok(()) } else { Err(message) }
    })
    .await;
    scene.running.cluster.put_all(vec![own.clone()]);
    assert_eq!(address(&scene.found(&own).await), "10.0.0.1");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_node_that_is_born_with_the_provider_id_of_another_machine_gets_nothing_of_it() {
    let scene = Scene::start(vec![Model::small().vm(machine()).vm(Machine::new("other", OTHER).ip("10.0.0.2"))]).await;
    let mallory = forged("n", OTHER, EARLY);
    scene.running.cluster.put(mallory.clone());
    let message = scene.unknown(&mallory, "ProviderIDMismatch").await;
    for part in [UUID, OTHER, "n (vm-1 on", "delete the Node and restart its kubelet", "uninitialized"] {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
    scene.told(&mallory, "exists").await;
    // This Node does not block any other Node from the machine.
    let own = tainted(created_at(node("own", UUID), LATE));
    assert_eq!(address(&scene.found(&own).await), "10.0.0.1");
    // A user with the right to change taints confirms the Node.
    let accepted = tainted(mallory);
    scene.running.cluster.put_all(vec![accepted.clone()]);
    assert_eq!(address(&scene.found(&accepted).await), "10.0.0.1");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_copy_with_the_uuid_of_anothers_machine_is_held_with_that_machine_named() {
    let scene = Scene::start(vec![one()]).await;
    let old = scene.initialized("old").await;
    scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
    scene.fake().create_vm(Machine::new("copy", UUID).ip("10.0.0.2"));
    let new = node("new", UUID);
    scene.running.cluster.put(new.clone());
    let message = scene.unknown(&new, "VMBacksAnotherNode").await;
    assert!(message.contains("copy (") && message.contains("of Node old, whose VM is vm-1"), "{message}");
    assert_eq!(vm_of(&scene.found(&old).await), "vm-1");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_provider_id_that_names_no_machine_is_told_with_the_machine_of_the_system_uuid() {
    let another = Model::small().vm(Machine::new("elsewhere", "11111111-2222-3333-4444-555555555555"));
    let scene = Scene::start(vec![Model::small().vm(Machine::new("n", OTHER).ip("10.0.0.1")), another]).await;
    let record = r#"{"vcenter":"another","vm":"vm-99","host":null}"#;
    let moved = with_record(with_provider_id(node("n", OTHER), &format!("vsphere://{UUID}")), record);
    scene.running.cluster.put(moved.clone());
    let message = scene.unknown(&moved, "ProviderIDMismatch").await;
    for part in [UUID, OTHER, "vm-1 on", "restart its kubelet", "uuid.bios"] {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
    // The machine exists, with any provider ID.
    scene.told(&moved, "exists").await;
    scene.fake().change_vm("n", |vm| vm.text("config.uuid", UUID).text("summary.config.uuid", UUID));
    assert_eq!(vm_of(&scene.found(&moved).await), "vm-1", "the repair");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_provider_id_that_this_program_recorded_is_right_whatever_the_system_uuid_says() {
    let scene = Scene::start(vec![Model::small().vm(machine()).vm(Machine::new("other", OTHER).ip("10.0.0.2"))]).await;
    let metadata = scene.found(&node("n", UUID)).await;
    let node = with_record(with_provider_id(node("n", OTHER), &format!("vsphere://{UUID}")), &metadata.record);
    assert_eq!(address(&scene.found(&node).await), "10.0.0.1");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_node_whose_recorded_vcenter_is_silent_gets_no_copy_from_another() {
    let mut scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    // As after a fail-over test: the copy runs, with the name of the node.
    scene.fakes[1].create_vm(Machine::new("n", UUID).ip("10.0.0.2"));
    scene.fake().stop_listening().await;
    scene.restart(&node).await;
    let message = scene.unknown(&node, "VCenterUnavailable").await;
    assert!(message.contains(&format!("127.0.0.1:{}", scene.fake().port())), "{message}");
    // The other vCenter has answered, so its state is used.
    scene.told(&node, "exists").await;
    scene.unknown(&node, "VCenterUnavailable").await;
    scene.fake().resume_listening().await;
    let metadata = scene.found(&node).await;
    assert_eq!(address(&metadata), "10.0.0.1");
    scene.running.stop().await;
}
