//! The search for a machine, the repeated checks for a node that is not ready, and the place of the machine on its
//! node.

use std::time::Duration;

use ccm::cloud::FoundBy;
use ccm::providers::vsphere::nodes::metadata::topology::{TopologyLabels, TopologyPlace};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use support::{FakeVcenter, Log, Machine, Model, eventually};
use tempfile::TempDir;

use super::{OTHER, SWAPPED, Scene, UUID, one, sections, with_provider_id};
use crate::world::{SOON, node, until_told};

fn is_found_by(expected: FoundBy) -> impl Fn(&ccm::cloud::InstanceMetadata) -> bool {
    move |metadata| metadata.found_by == expected
}

fn waiting(mut node: Node) -> Node {
    let taint = Taint { key: "node.cloudprovider.kubernetes.io/uninitialized".into(), ..Taint::default() };
    node.spec.get_or_insert_default().taints = Some(vec![taint]);
    node
}

pub fn ready(mut node: Node, status: &str) -> Node {
    let condition = NodeCondition { type_: "Ready".into(), status: status.into(), ..NodeCondition::default() };
    node.status.get_or_insert_default().conditions = Some(vec![condition]);
    node
}

// The search.

#[tokio::test]
async fn a_uuid_speaks_for_a_machine_only_where_no_other_one_anywhere_has_it_in_either_byte_order() {
    let twin = |uuid| Model::small().vm(Machine::new("twin", uuid).power("poweredOff"));
    let elsewhere = |uuid| Model::small().vm(Machine::new("other", uuid));
    for (case, models, expected) in [
        ("alone", vec![one(), elsewhere(OTHER)], FoundBy::SystemUuid),
        ("a twin elsewhere", vec![one(), twin(UUID)], FoundBy::SystemUuidAmongSeveral),
        ("a twin elsewhere in the other order", vec![one(), twin(SWAPPED)], FoundBy::SystemUuidAmongSeveral),
        (
            "a twin beside it in the other order",
            vec![one().vm(Machine::new("twin", SWAPPED).power("poweredOff")), Model::small()],
            FoundBy::SystemUuidAmongSeveral,
        ),
        (
            "a template beside it",
            vec![one().vm(Machine::new("template", UUID).set_template(true)), Model::small()],
            FoundBy::SystemUuidAmongSeveral,
        ),
    ] {
        for uuid in [UUID, SWAPPED] {
            let scene = Scene::start(models.clone()).await;
            let node = node("n", uuid);
            scene.running.cluster.put(node.clone());
            let metadata = scene.found_with(&node, is_found_by(expected)).await;
            assert_eq!(metadata.provider_id, format!("vsphere://{UUID}"), "{case}");
            scene.running.stop().await;
        }
    }
}

#[tokio::test]
async fn what_spoke_for_a_machine_stays_when_its_provider_id_is_written_and_is_another_for_the_next_process() {
    let mut scene = Scene::start(vec![one()]).await;
    let fresh = node("n", UUID);
    scene.running.cluster.put(fresh.clone());
    let metadata = scene.found_with(&fresh, is_found_by(FoundBy::SystemUuid)).await;
    let written = with_provider_id(fresh, &metadata.provider_id);
    scene.running.cluster.put(written.clone());
    scene.fake().change_vm("n", |vm| vm.ip("10.0.0.9"));
    let is_seen = |metadata: &ccm::cloud::InstanceMetadata| super::address(metadata) == "10.0.0.9";
    assert_eq!(scene.found_with(&written, is_seen).await.found_by, FoundBy::SystemUuid);
    scene.restart(&written).await;
    scene.found_with(&written, is_found_by(FoundBy::ProviderId)).await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_that_only_its_name_speaks_for_says_so() {
    let scene = Scene::start(vec![Model::small().vm(Machine::new("n", OTHER))]).await;
    let bare = node("n", "");
    scene.running.cluster.put(bare.clone());
    scene.fake().change_vm("n", |vm| vm.ip("10.0.0.1"));
    scene.found_with(&bare, is_found_by(FoundBy::Name)).await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_uuid_is_not_a_machines_alone_while_a_vcenter_is_silent() {
    let scene = Scene::start(vec![one(), Model::small()]).await;
    scene.fakes[1].stop_listening().await;
    let node = node("n", UUID);
    scene.running.cluster.put(node.clone());
    scene.found_with(&node, is_found_by(FoundBy::SystemUuidAmongSeveral)).await;
    scene.fakes[1].resume_listening().await;
    scene.found_with(&node, is_found_by(FoundBy::SystemUuid)).await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_node_whose_taint_somebody_takes_off_is_looked_for_again_in_both_byte_orders() {
    let model = one().vm(Machine::new("twin", SWAPPED).power("poweredOff"));
    let scene = Scene::start(vec![model]).await;
    // The byte order that finds `n` is tried first.
    let fresh = waiting(node("n", SWAPPED));
    scene.found(&fresh).await;
    let bare = node("n", SWAPPED);
    scene.running.cluster.put(bare.clone());
    scene.found_with(&bare, is_found_by(FoundBy::SystemUuidAmongSeveral)).await;
    scene.running.stop().await;
}

// Nodes that are not ready.

#[tokio::test]
async fn a_machine_that_went_without_a_word_is_absent_soon_after_its_node_is_not_ready() {
    for status in ["False", "Unknown"] {
        let scene = Scene::start(vec![one(), Model::small()]).await;
        let node = scene.initialized("n").await;
        scene.running.cluster.put(ready(node.clone(), "True"));
        let before = scene.fake().counts().of("FindAllByUuid");
        scene.fake().destroy_vm_unnoticed("n");
        scene.fake().create_vm(Machine::new("next", OTHER));
        // The inventory still has the machine. A ready node is not checked.
        scene.told(&ready(node.clone(), "True"), "exists").await;
        let asked = scene.fake().counts().of("FindAllByUuid") - before;
        assert_eq!(asked, 0, "nothing is asked while the node is ready");
        let not_ready = ready(node, status);
        scene.running.cluster.put(not_ready.clone());
        let since = std::time::Instant::now();
        scene.told(&not_ready, "absent").await;
        assert!(since.elapsed() < Duration::from_secs(10), "{status}: {:?}", since.elapsed());
        scene.running.stop().await;
    }
}

#[tokio::test]
async fn a_twin_that_is_switched_on_later_is_told_of_when_the_node_is_not_ready() {
    let log = Log::keep();
    let scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    scene.running.cluster.put(ready(node.clone(), "True"));
    let port = scene.fakes[1].port();
    scene.fakes[1].create_vm(Machine::new("copy", UUID).ip("10.0.0.2"));
    let before = scene.fakes[1].counts().of("FindAllByUuid");
    scene.running.cluster.put(ready(node.clone(), "Unknown"));
    until_told(&log, &format!("VM vm-1 on vCenter 127.0.0.1:{port} has the Node's UUID, too")).await;
    // Repeated updates of the node's status do not matter.
    for status in ["False", "Unknown", "False"] {
        scene.running.cluster.put(ready(node.clone(), status));
        scene.found(&ready(node.clone(), status)).await;
    }
    let looked = scene.fakes[1].counts().of("FindAllByUuid") - before;
    assert!(looked <= 2, "one look, in both byte orders: {looked}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_that_is_there_is_left_in_the_view_when_its_node_is_not_ready() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    // Searches do not return the machine, as for an account without the right to see it.
    scene.fake().set_inaccessible("n");
    scene.running.cluster.put(ready(node.clone(), "True"));
    let before = scene.fake().counts();
    scene.running.cluster.put(ready(node.clone(), "Unknown"));
    eventually("it is looked at", SOON, async || match scene.fake().counts().of("RetrievePropertiesEx") {
        reads if reads > before.of("RetrievePropertiesEx") => Ok(()),
        reads => Err(reads),
    })
    .await;
    scene.told(&node, "exists").await;
    assert_eq!(scene.fake().counts().of("ModifyListView"), before.of("ModifyListView"));
    scene.running.stop().await;
}

// The place.

#[tokio::test]
async fn a_node_shows_where_its_machine_is_when_it_moves_and_not_at_the_next_poll() {
    let topology = TopologyLabels { objects: TopologyPlace::ALL.into_iter().collect(), prefix: "x/".into() };
    let text = |fakes: &[FakeVcenter], folder: &TempDir| sections(fakes, "", folder);
    let scene = Scene::configured(vec![one()], text, |options| options.topology = topology).await;
    let node = scene.initialized("n").await;
    let labels = scene.found(&node).await.topology_labels;
    let expected = [
        ("cluster", "cluster-1"),
        ("datacenter", "dc-1"),
        ("datastore", "datastore1"),
        ("esxi-host", "host-2"),
        ("folder", "vm"),
        ("resource-pool", "Resources"),
        ("vcenter", "127.0.0.1"),
    ];
    let expected = expected.map(|(place, value)| (format!("x/{place}"), Some(value.to_string())));
    assert_eq!(labels, expected.into());
    let shows = |place: &'static str, value: &'static str| {
        move |metadata: &ccm::cloud::InstanceMetadata| {
            metadata.topology_labels.get(&format!("x/{place}")) == Some(&Some(value.to_string()))
        }
    };
    let moved = std::time::Instant::now();
    scene.fake().migrate_vm("n", "host-3");
    scene.found_with(&node, shows("esxi-host", "host-3")).await;
    let took = moved.elapsed();
    println!("a move was known after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}; what only a poll tells comes every minute");
    scene.fake().move_vm("n", "dc-2");
    scene.found_with(&node, shows("datacenter", "dc-2")).await;
    scene.fake().change_vm("n", |vm| vm.text("summary.config.vmPathName", "[data store (2)] n/n.vmx"));
    scene.found_with(&node, shows("datastore", "data_store__2")).await;
    // Labels that cannot be read any more stay unchanged.
    scene.fake().set_readable("HostSystem", "host-3", false);
    let is_left = |metadata: &ccm::cloud::InstanceMetadata| !metadata.topology_labels.contains_key("x/esxi-host");
    scene.found_with(&node, is_left).await;
    scene.running.stop().await;
}
