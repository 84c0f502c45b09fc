//! Addresses that several machines on two vCenters report, and the node that gets each of them.

use ccm::providers::vsphere::Options;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use support::{Machine, Model};

use super::{OTHER, Scene, UUID, address, sections};
use crate::world::node;

const VIRTUAL: &str = "10.0.0.100";

/// Returns the machines `a` and `b`, each on its own vCenter, both with the virtual address first.
fn models() -> Vec<Model> {
    let machine = |name: &str, uuid: &str, own: &str| Machine::new(name, uuid).ips(&[VIRTUAL, own]);
    [machine("a", UUID, "10.0.0.1"), machine("b", OTHER, "10.0.0.2")].map(|vm| Model::small().vm(vm)).into()
}

async fn start(change: impl FnOnce(&mut Options)) -> Scene {
    Scene::configured(models(), |fakes, folder| sections(fakes, "", folder), change).await
}

fn with_internal_ip(mut node: Node, address: &str) -> Node {
    let held = NodeAddress { type_: "InternalIP".into(), address: address.into() };
    node.status.as_mut().unwrap().addresses = Some(vec![held]);
    node
}

#[tokio::test]
async fn of_two_machines_with_one_address_the_second_gets_its_other_one() {
    let scene = start(|_| {}).await;
    let (a, b) = (node("a", UUID), node("b", OTHER));
    assert_eq!(address(&scene.found(&a).await), VIRTUAL, "alone, it has it for its own");
    assert_eq!(address(&scene.found(&b).await), "10.0.0.2");
    // The first node has no address yet. It gets an event without a change of its own machine.
    scene.found_with(&a, |metadata| address(metadata) == "10.0.0.1").await;
    scene.fakes[1].change_vm("b", |vm| vm.power("poweredOff"));
    scene.found_with(&a, |metadata| address(metadata) == VIRTUAL).await;
    // From now on the address is on the node, and stays.
    let a = with_internal_ip(a, VIRTUAL);
    scene.running.cluster.put(a.clone());
    scene.fakes[1].change_vm("b", |vm| vm.power("poweredOn"));
    scene.found_with(&b, |metadata| address(metadata) == "10.0.0.2").await;
    assert_eq!(address(&scene.found(&a).await), VIRTUAL);
    // A deleted node reports no address.
    scene.running.cluster.put_all(vec![b.clone()]);
    scene.found_with(&b, |metadata| address(metadata) == VIRTUAL).await;
    scene.running.stop().await;
}

#[tokio::test]
async fn without_demotion_both_get_the_address_that_they_report_first() {
    let scene = start(|options| options.demotes_virtual_ips = false).await;
    let (a, b) = (node("a", UUID), node("b", OTHER));
    for node in [&a, &b, &a] {
        assert_eq!(address(&scene.found(node).await), VIRTUAL);
    }
    scene.running.stop().await;
}

#[tokio::test]
async fn the_address_of_the_api_server_is_no_nodes_while_it_has_another() {
    let scene = start(|options| options.api_server = vec![VIRTUAL.parse().unwrap()]).await;
    let a = node("a", UUID);
    assert_eq!(address(&scene.found(&a).await), "10.0.0.1");
    scene.fake().change_vm("a", |vm| vm.ip(VIRTUAL));
    scene.found_with(&a, |metadata| address(metadata) == VIRTUAL).await;
    scene.running.stop().await;
}
