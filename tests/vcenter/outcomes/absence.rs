//! The conditions for the absence of a machine, and the missing part of the proof otherwise.

use std::time::Duration;

use ccm::cloud::Presence;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Taint;
use support::{Fault, Log, Machine, Model, Trouble, eventually};

use super::{OTHER, SOON, SWAPPED, Scene, UUID, address, machine, one, with_provider_id, with_record, without_record};
use crate::world::node;

#[tokio::test]
async fn a_destroyed_machine_is_absent_and_the_proof_says_what_was_looked_at() {
    let mut scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    scene.told(&node, "exists").await;
    scene.fake().destroy_vm("n");
    let proof = scene.told(&node, "absent").await;
    let (one, two) = (scene.fakes[0].port(), scene.fakes[1].port());
    for part in [&format!("127.0.0.1:{one}, 127.0.0.1:{two}"), "vm-1", UUID, SWAPPED, &scene.fake().instance_uuid()] {
        assert!(proof.contains(part), "{part}: {proof}");
    }
    // After a restart only the record on the node is available.
    scene.restart(&node).await;
    scene.told(&node, "absent").await;
    scene.restart(&without_record(node.clone())).await;
    scene.told(&without_record(node), "NeverSeen").await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_node_that_is_not_initialized_or_says_no_uuid_has_no_absent_machine() {
    let scene = Scene::start(vec![one()]).await;
    let known = scene.initialized("n").await;
    scene.fake().destroy_vm("n");
    scene.told(&known, "absent").await;
    let mut tainted = known.clone();
    let taint = Taint { key: "node.cloudprovider.kubernetes.io/uninitialized".into(), ..Taint::default() };
    tainted.spec.as_mut().unwrap().taints = Some(vec![taint]);
    let bare = with_record(node("n", UUID), &known.metadata.annotations.clone().unwrap()["vsphere-ccm.dev/vm"]);
    for (case, node, expected) in [
        ("not initialized", tainted, "VMNotFound"),
        ("without a provider ID", bare, "VMNotFound"),
        ("malformed", with_provider_id(known.clone(), "vsphere://n"), "MalformedProviderID"),
        ("another provider's", with_provider_id(known.clone(), "aws:///zone/i-1"), "ForeignProviderID"),
    ] {
        let message = scene.told(&node, expected).await;
        assert!(!message.is_empty(), "{case}");
    }
    scene.running.stop().await;
}

#[tokio::test]
async fn a_destroyed_machine_is_held_while_a_piece_of_the_proof_is_missing() {
    type Break = fn(&Scene);
    let cases: [(&str, Break, &str, &str); 9] = [
        ("its host is gone", |scene| scene.fake().remove_object("HostSystem", "host-2"), "HostGone", "host-2"),
        (
            "its host may not be read",
            |scene| scene.fake().set_readable("HostSystem", "host-2", false),
            "NoPermission",
            "HostSystem:host-2",
        ),
        (
            "its folder may not be read",
            |scene| scene.fake().set_readable("Folder", "vm", false),
            "NoPermission",
            "Folder:group-v1",
        ),
        (
            "its pool may not be read",
            |scene| scene.fake().set_readable("ResourcePool", "Resources", false),
            "NoPermission",
            "ResourcePool:resgroup-1",
        ),
        (
            "folder and datacenter are gone",
            |scene| {
                scene.fake().remove_object("Folder", "vm");
                scene.fake().remove_object("Datacenter", "dc-1");
            },
            "LocationUnknown",
            "folder",
        ),
        (
            "the reads fail",
            |scene| scene.fake().every("RetrievePropertiesEx", Trouble::Fault(Fault::new("SystemError"))),
            "VCenterUnavailable",
            "SystemError",
        ),
        (
            "a collector is gone, and not the machine",
            |scene| {
                let fault = Fault::managed_object_not_found("PropertyCollector", "propertyCollector");
                scene.fake().every("RetrievePropertiesEx", Trouble::Fault(fault));
            },
            "VCenterUnavailable",
            "PropertyCollector",
        ),
        (
            "the search fails at another vCenter",
            |scene| scene.fakes[1].every("FindAllByUuid", Trouble::Fault(Fault::new("SystemError"))),
            "VCenterUnavailable",
            "SystemError",
        ),
        (
            "the search is refused",
            |scene| {
                let fault = Fault::no_permission("Folder", "group-d1");
                scene.fakes[1].every("FindAllByUuid", Trouble::Fault(fault));
            },
            "NoPermission",
            "Folder:group-d1",
        ),
    ];
    join_all(cases.map(|(case, break_it, reason, part)| async move {
        let scene = Scene::start(vec![one(), Model::small()]).await;
        let node = scene.initialized("n").await;
        break_it(&scene);
        scene.fake().destroy_vm("n");
        let message = scene.told(&node, reason).await;
        assert!(message.contains(part), "{case}: {message}");
    }))
    .await;
}

#[tokio::test]
async fn a_host_that_vcenter_does_not_hear_from_is_no_evidence() {
    for state in ["disconnected", "notResponding"] {
        let scene = Scene::start(vec![one()]).await;
        let node = scene.initialized("n").await;
        scene.fake().set_host_connection("host-2", state);
        scene.fake().destroy_vm("n");
        let message = scene.told(&node, "HostNotConnected").await;
        assert!(message.contains("HostSystem:host-2") && message.contains(state), "{message}");
        scene.fake().set_host_connection("host-2", "connected");
        scene.told(&node, "absent").await;
        scene.running.stop().await;
    }
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().set_path_readable("HostSystem", "host-2", "runtime.connectionState", false);
    scene.fake().destroy_vm("n");
    let message = scene.told(&node, "NoPermission").await;
    assert!(message.contains("host-2"), "{message}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_vcenter_restored_from_a_backup_proves_nothing_until_it_hears_from_the_host() {
    let mut scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().restore_from_backup(&["n"]).await;
    for _ in 0..2 {
        let message = scene.told(&node, "HostNotConnected").await;
        assert!(message.contains("host-2") && message.contains("disconnected"), "{message}");
        scene.restart(&node).await;
    }
    // The host comes back, and its machine is registered again.
    scene.fake().reconnect_host("host-2");
    scene.fake().create_vm(machine());
    scene.told(&node, "exists").await;
    assert_eq!(address(&scene.found(&node).await), "10.0.0.1");
    scene.running.stop().await;
}

#[tokio::test]
async fn an_id_that_a_restored_vcenter_gives_to_another_machine_is_told() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().restore_from_backup(&["n"]).await;
    scene.fake().reconnect_host("host-2");
    assert_eq!(scene.fake().create_vm(Machine::new("other", OTHER).ip("10.0.0.9")), "vm-1");
    let message = scene.told(&node, "ProviderIDMismatch").await;
    assert!(message.contains("vm-1") && message.contains(OTHER), "{message}");
    scene.fake().destroy_vm("other");
    scene.told(&node, "absent").await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_that_moved_with_its_host_is_proved_gone_at_its_new_place() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().move_host("host-2", "dc-2");
    scene.found_with(&node, |metadata| metadata.record.contains("datacenter-2")).await;
    scene.told(&node, "exists").await;
    scene.fake().destroy_vm("n");
    let proof = scene.told(&node, "absent").await;
    assert!(proof.contains("host-2") && proof.contains("Folder:group-v2"), "{proof}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_folder_that_is_gone_is_vouched_for_by_its_datacenter() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().destroy_vm("n");
    scene.fake().remove_object("Folder", "vm");
    let proof = scene.told(&node, "absent").await;
    assert!(proof.contains("Datacenter:datacenter-1"), "{proof}");
}

#[tokio::test]
async fn w35_one_silent_vcenter_holds_deletion_and_nothing_else() {
    let scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    scene.fakes[1].stop_listening().await;
    scene.told(&node, "exists").await;
    assert_eq!(address(&scene.found(&node).await), "10.0.0.1");
    scene.fake().destroy_vm("n");
    let message = scene.told(&node, "VCenterUnavailable").await;
    assert!(message.contains(&scene.fakes[1].port().to_string()), "{message}");
    scene.fakes[1].resume_listening().await;
    scene.told(&node, "absent").await;
    scene.running.stop().await;
}

#[tokio::test]
async fn w35_a_datacenter_that_does_not_exist_hides_no_machine_of_another() {
    let scene = Scene::covering("nowhere, dc-1", vec![one()]).await;
    assert_eq!(address(&scene.found(&node("n", SWAPPED)).await), "10.0.0.1");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_of_a_vcenter_that_is_not_configured_any_more_is_unknown() {
    let mut scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    let removed = scene.fakes.remove(0);
    scene.restart(&node).await;
    let message = scene.told(&node, "VCenterNotConfigured").await;
    assert!(message.contains("vm-1") && message.contains(&removed.instance_uuid()), "{message}");
    scene.running.stop().await;
}

#[tokio::test]
async fn proofs_are_few_at_a_time_and_none_waits_for_ever() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().destroy_vm("n");
    scene.told(&node, "absent").await;
    scene.fake().every("FindAllByUuid", Trouble::Hang);
    let before = scene.fake().counts().of("FindAllByUuid");
    let instances = scene.instances();
    let ask = async || {
        let presence = instances.instance_exists(&node).await;
        (presence, scene.fake().counts().of("FindAllByUuid") - before)
    };
    // The caller's time limit is 30 s.
    let asked = tokio::time::timeout(Duration::from_secs(30), join_all((0..20).map(|_| ask()))).await.unwrap();
    let fewest = asked.iter().map(|(_, calls)| *calls).min().unwrap();
    assert!(fewest < 20, "they had their turns one after the other: {fewest}");
    for (presence, _) in asked {
        let Presence::Unknown(unknown) = presence else { panic!("{presence:?}") };
        assert_eq!(unknown.reason, "VCenterUnavailable", "{unknown}");
    }
}

#[tokio::test]
async fn w33_no_answer_half_an_answer_and_a_wrong_answer_are_never_absence() {
    let fault = |name: &str| Trouble::Fault(Fault::new(name));
    let gone = |kind: &str, id: &str| Trouble::Fault(Fault::managed_object_not_found(kind, id));
    let troubles = [
        fault("SystemError"),
        fault("RuntimeFault"),
        fault("NotFound"),
        fault("InvalidArgument"),
        fault("HostNotConnected"),
        Trouble::Fault(Fault::not_authenticated()),
        Trouble::Fault(Fault::no_permission("VirtualMachine", "vm-1")),
        gone("VirtualMachine", "vm-2"),
        gone("Folder", "vm-1"),
        gone("PropertyFilter", "f"),
        gone("SearchIndex", "SearchIndex"),
        fault("ManagedObjectNotFound"),
        Trouble::unavailable(),
        Trouble::portal(),
        Trouble::empty(),
        Trouble::Drop,
        Trouble::Lose,
        Trouble::Cut(1),
        // The shortest complete answer, without a result, has 389 bytes.
        Trouble::Cut(330),
        Trouble::Cut(388),
    ];
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().destroy_vm("n");
    scene.told(&node, "absent").await;
    for operation in ["FindAllByUuid", "RetrievePropertiesEx"] {
        for trouble in &troubles {
            scene.fake().every(operation, trouble.clone());
            let presence = scene.instances().instance_exists(&node).await;
            assert!(matches!(presence, Presence::Unknown(_)), "{operation}, {trouble:?}: {presence:?}");
            scene.fake().clear();
            scene.told(&node, "absent").await;
        }
    }
    scene.running.stop().await;
}

#[tokio::test]
async fn an_account_that_may_not_read_the_root_folder_is_told_once() {
    let log = Log::keep();
    let told = || log.lines("the account has no System.Read on the root folder").len();
    let mut scene = Scene::start(vec![one()]).await;
    let asked = |scene: &Scene| scene.fake().counts().of("HasPrivilegeOnEntity");
    let node = scene.initialized("n").await;
    assert_eq!((asked(&scene), told()), (1, 0));
    scene.fake().set_readable("Folder", "Datacenters", false);
    // Without an answer the next session asks again. With an answer no other session asks.
    scene.fake().next("HasPrivilegeOnEntity", Trouble::unavailable());
    scene.restart(&node).await;
    scene.told(&node, "exists").await;
    assert_eq!((asked(&scene), told()), (2, 0));
    let end_session = async || {
        let logins = || scene.fake().counts().of("Login");
        let before = logins();
        scene.fake().kill_soap_sessions(Fault::not_authenticated());
        eventually("another session", SOON, async || if logins() > before { Ok(()) } else { Err(logins()) }).await;
    };
    end_session().await;
    eventually("it is told", SOON, async || match (asked(&scene), told()) {
        (3, 1) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // The second end of a session must not repeat the requests of the first.
    end_session().await;
    end_session().await;
    assert_eq!((asked(&scene), told()), (3, 1));
    scene.running.stop().await;
}
