//! Who may have a machine: one node each, and a node whose provider ID names none is told how that is mended.

use super::{OTHER, SWAPPED, Scene, UUID, address, machine, one, vm_of, with_provider_id, without_record};
use crate::world::node;
use support::{Machine, Model};

#[tokio::test]
async fn a_machine_that_backs_a_node_backs_no_second_one_until_that_node_is_gone() {
    let mut scene = Scene::start(vec![one()]).await;
    let old = scene.initialised("old").await;
    // The same machine, registered under another name, in whatever byte order its firmware says its UUID.
    for (index, uuid) in [UUID, SWAPPED].into_iter().enumerate() {
        let new = node(&format!("new-{index}"), uuid);
        scene.running.cluster.put(new.clone());
        for restarted in [false, true] {
            if restarted {
                // Which of the two a new process sees first makes no difference.
                scene.restart(&new).await;
                scene.running.cluster.put(old.clone());
            }
            let message = scene.unknown(&new, "VMBacksAnotherNode").await;
            assert!(message.contains("n (vm-1 on") && message.contains("backs node old"), "{message}");
            assert_eq!(address(&scene.found(&old).await), "10.0.0.1", "the node that is initialised keeps it");
        }
        scene.running.cluster.put_all(vec![new.clone()]);
        assert_eq!(vm_of(&scene.found(&new).await), "vm-1");
        scene.running.cluster.put_all(vec![old.clone()]);
    }
    scene.running.stop().await;
}

#[tokio::test]
async fn two_nodes_that_are_initialised_with_one_machine_keep_it() {
    let scene = Scene::start(vec![one()]).await;
    let old = scene.initialised("old").await;
    let second = without_record(with_provider_id(node("second", UUID), &format!("vsphere://{UUID}")));
    for node in [&second, &old] {
        assert_eq!(address(&scene.found(node).await), "10.0.0.1");
    }
    scene.running.stop().await;
}

#[tokio::test]
async fn a_copy_with_the_uuid_of_anothers_machine_is_held_with_that_machine_named() {
    let scene = Scene::start(vec![one()]).await;
    let old = scene.initialised("old").await;
    scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
    scene.fake().create_vm(Machine::new("copy", UUID).ip("10.0.0.2"));
    let new = node("new", UUID);
    scene.running.cluster.put(new.clone());
    let message = scene.unknown(&new, "VMBacksAnotherNode").await;
    assert!(message.contains("copy (") && message.contains("of node old, whose machine is vm-1"), "{message}");
    assert_eq!(vm_of(&scene.found(&old).await), "vm-1");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_provider_id_that_names_no_machine_is_told_with_the_machine_of_the_system_uuid() {
    let another = Model::small().vm(Machine::new("elsewhere", "11111111-2222-3333-4444-555555555555"));
    let scene = Scene::start(vec![Model::small().vm(Machine::new("n", OTHER).ip("10.0.0.1")), another]).await;
    let moved = with_provider_id(node("n", OTHER), &format!("vsphere://{UUID}"));
    scene.running.cluster.put(moved.clone());
    let message = scene.unknown(&moved, "ProviderIDMismatch").await;
    for part in [UUID, OTHER, "vm-1 on", "restart its kubelet", "uuid.bios"] {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
    // Its machine is there, whatever the provider ID says.
    scene.told(&moved, "exists").await;
    scene.fake().change_vm("n", |vm| vm.text("config.uuid", UUID).text("summary.config.uuid", UUID));
    assert_eq!(vm_of(&scene.found(&moved).await), "vm-1", "the repair");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_provider_id_whose_machine_is_found_is_right_whatever_the_system_uuid_says() {
    let scene = Scene::start(vec![Model::small().vm(machine()).vm(Machine::new("other", OTHER).ip("10.0.0.2"))]).await;
    let node = with_provider_id(node("n", OTHER), &format!("vsphere://{UUID}"));
    assert_eq!(address(&scene.found(&node).await), "10.0.0.1");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_node_whose_recorded_vcenter_is_silent_gets_no_copy_from_another() {
    let mut scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialised("n").await;
    // As after a test of a fail-over: the copy runs, and is called as the node.
    scene.fakes[1].create_vm(Machine::new("n", UUID).ip("10.0.0.2"));
    scene.fake().stop_listening().await;
    scene.restart(&node).await;
    let message = scene.unknown(&node, "VCenterUnavailable").await;
    assert!(message.contains(&format!("127.0.0.1:{}", scene.fake().port())), "{message}");
    // The other vCenter has answered, and has not been asked for nothing.
    scene.told(&node, "exists").await;
    scene.unknown(&node, "VCenterUnavailable").await;
    scene.fake().resume_listening().await;
    let metadata = scene.found(&node).await;
    assert_eq!(address(&metadata), "10.0.0.1");
    scene.running.stop().await;
}
