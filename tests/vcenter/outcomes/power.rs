//! Power states that are proven, their durations, and the result of a fresh read.

use std::time::Duration;

use ccm::cloud::{Power, PowerState, Presence};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use support::{Denial, Fault, Machine, Model, Trouble, eventually};

use super::{Scene, one};
use crate::world::SOON;

impl Scene {
    /// Waits for this power state, or for an unproven state if `None`. Returns the state.
    async fn power(&self, node: &Node, expected: Option<PowerState>) -> Option<Power> {
        let instances = self.instances();
        eventually("the power state", SOON, async || match instances.instance_power(node).await {
            Presence::Exists(power) if expected == Some(power.state) => Ok(Some(power)),
            Presence::Unknown(_) if expected.is_none() => Ok(None),
            other => Err(format!("{other:?}, not {expected:?}")),
        })
        .await
    }

    async fn read_power(&self, node: &Node) -> Result<PowerState, (String, String)> {
        match self.instances().read_instance_power(node).await {
            Presence::Exists(state) => Ok(state),
            Presence::Unknown(unknown) => Err((unknown.reason.to_string(), unknown.message)),
            Presence::Absent(proof) => panic!("a read of power proves no absence: {proof}"),
        }
    }
}

/// A change of the fake.
type Change = fn(&Scene);

/// Faults that hide the power state of `n`, which may continue to run. Each has its start and its end.
const HIDDEN: [(&str, Change, Change); 7] = [
    (
        "the machine is disconnected",
        |scene| scene.fake().set_connection("n", "disconnected"),
        |scene| scene.fake().set_connection("n", "connected"),
    ),
    (
        "the machine is orphaned",
        |scene| scene.fake().set_connection("n", "orphaned"),
        |scene| scene.fake().set_connection("n", "connected"),
    ),
    (
        "its host does not respond, and vCenter has not said so of the machine",
        |scene| scene.fake().set_host_connection("host-2", "notResponding"),
        |scene| scene.fake().set_host_connection("host-2", "connected"),
    ),
    (
        "its host is disconnected with all on it",
        |scene| scene.fake().disconnect_host("host-2"),
        |scene| scene.fake().reconnect_host("host-2"),
    ),
    (
        "its host may not be read",
        |scene| scene.fake().set_readable("HostSystem", "host-2", false),
        |scene| scene.fake().set_readable("HostSystem", "host-2", true),
    ),
    (
        "its host's connection may not be read",
        |scene| scene.fake().set_path_readable("HostSystem", "host-2", "runtime.connectionState", false),
        |scene| scene.fake().set_path_readable("HostSystem", "host-2", "runtime.connectionState", true),
    ),
    (
        "its power state may not be read",
        |scene| scene.fake().set_path_readable("VirtualMachine", "n", "runtime.powerState", false),
        |scene| scene.fake().set_path_readable("VirtualMachine", "n", "runtime.powerState", true),
    ),
];

#[tokio::test]
async fn a_power_state_is_proven_only_while_machine_and_host_are_connected_and_begins_anew_after_a_break() {
    join_all(HIDDEN.map(|(case, hide, show)| async move {
        let scene = Scene::start(vec![one()]).await;
        let node = scene.initialized("n").await;
        scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
        scene.power(&node, Some(PowerState::Off)).await;
        assert_eq!(scene.read_power(&node).await, Ok(PowerState::Off), "{case}");
        hide(&scene);
        scene.power(&node, None).await;
        scene.read_power(&node).await.expect_err(case);
        show(&scene);
        let shown = std::time::Instant::now();
        let power = scene.power(&node, Some(PowerState::Off)).await.unwrap();
        assert!(power.lasting <= shown.elapsed(), "{case}: {power:?}");
        assert_eq!(scene.read_power(&node).await, Ok(PowerState::Off), "{case}");
        scene.running.stop().await;
    }))
    .await;
}

#[tokio::test]
async fn a_power_state_lasts_through_changes_of_other_things_and_through_a_move_to_another_host() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
    scene.power(&node, Some(PowerState::Off)).await;
    let known = std::time::Instant::now();
    scene.fake().migrate_vm("n", "host-3");
    scene.found_with(&node, |metadata| metadata.record.contains("host-3")).await;
    // The Node object changes, as when its provider ID is written.
    scene.running.cluster.put(node.clone());
    scene.fake().change_vm("n", |vm| vm.ip("10.0.0.7"));
    scene.found_with(&node, |metadata| super::address(metadata) == "10.0.0.7").await;
    let power = scene.power(&node, Some(PowerState::Off)).await.unwrap();
    assert!(power.lasting >= known.elapsed() / 2 && power.lasting >= Duration::from_millis(50), "{power:?}");
    // A different state in the meantime interrupts the duration, even if the first state comes back.
    scene.fake().change_vm("n", |vm| vm.power("suspended"));
    scene.power(&node, Some(PowerState::Suspended)).await;
    let back = std::time::Instant::now();
    scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
    let power = scene.power(&node, Some(PowerState::Off)).await.unwrap();
    assert!(power.lasting <= back.elapsed(), "{power:?}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_silent_vcenter_breaks_what_was_proven() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
    scene.power(&node, Some(PowerState::Off)).await;
    scene.fake().stop_listening().await;
    scene.power(&node, None).await;
    let (reason, message) = scene.read_power(&node).await.unwrap_err();
    assert_eq!(reason, "VCenterUnavailable", "{message}");
    let back = std::time::Instant::now();
    scene.fake().resume_listening().await;
    let power = scene.power(&node, Some(PowerState::Off)).await.unwrap();
    assert!(power.lasting <= back.elapsed(), "{power:?}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_fresh_read_says_why_it_proves_nothing() {
    let gone = || Trouble::Fault(Fault::managed_object_not_found("VirtualMachine", "vm-1"));
    let troubles: [(&str, Trouble, &str); 4] = [
        ("busy", Trouble::unavailable(), "VCenterUnavailable"),
        ("a fault", Trouble::Fault(Fault::new("SystemError")), "VCenterUnavailable"),
        ("no right", Trouble::Fault(Fault::no_permission("VirtualMachine", "vm-1")), "NoPermission"),
        ("gone", gone(), "PowerStateUnknown"),
    ];
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    for (case, trouble, expected) in troubles {
        scene.fake().every("RetrievePropertiesEx", trouble);
        let (reason, message) = scene.read_power(&node).await.unwrap_err();
        assert_eq!(reason, expected, "{case}: {message}");
        scene.fake().clear();
        assert_eq!(scene.read_power(&node).await, Ok(PowerState::On), "{case}");
    }
    // The second call is the read of the host.
    scene.fake().next_after("RetrievePropertiesEx", 1, Trouble::Fault(Fault::new("SystemError")));
    let (reason, message) = scene.read_power(&node).await.unwrap_err();
    assert!(reason == "VCenterUnavailable" && message.contains("HostSystem:host-2"), "{message}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_fresh_read_needs_no_change_to_be_told_and_names_object_and_privilege() {
    for denial in [Denial::LeftOut, Denial::MissingSet, Denial::Fault, Denial::FaultOf8] {
        let scene = Scene::start(vec![one().denial(denial)]).await;
        let node = scene.initialized("n").await;
        scene.fake().set_readable("HostSystem", "host-2", false);
        let (reason, message) = scene.read_power(&node).await.unwrap_err();
        let names_it = message.contains("HostSystem:host-2") && message.contains("System.Read");
        assert!(reason == "NoPermission" && names_it, "{denial:?}: {reason}: {message}");
        scene.running.stop().await;
    }
    // The current state in vCenter is used, and not the last received update.
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().every("WaitForUpdatesEx", Trouble::Hang);
    scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
    assert_eq!(scene.read_power(&node).await, Ok(PowerState::Off));
}

#[tokio::test]
async fn a_machine_is_off_only_if_no_other_with_its_uuid_may_run() {
    let copy = |power: &str| Machine::new("copy", super::UUID).ip("10.0.0.2").power(power);
    let swapped = |power: &str| Machine::new("copy", super::SWAPPED).ip("10.0.0.2").power(power);
    type Twin = (&'static str, Machine, fn(&Scene), Result<PowerState, &'static str>);
    let cases: [Twin; 8] = [
        ("no connection is lost", copy("poweredOff"), |_| {}, Ok(PowerState::Off)),
        ("it runs", copy("poweredOn"), |_| {}, Err("SeveralVMsMatch")),
        ("its UUID is in the other byte order", swapped("poweredOn"), |_| {}, Err("SeveralVMsMatch")),
        ("it is suspended", copy("suspended"), |_| {}, Err("SeveralVMsMatch")),
        (
            "vCenter does not hear from its host",
            copy("poweredOff"),
            |scene| scene.fakes[1].set_host_connection("host-2", "notResponding"),
            Err("SeveralVMsMatch"),
        ),
        (
            "it may not be read",
            copy("poweredOff"),
            |scene| {
                scene.fakes[1]
                    .every("RetrievePropertiesEx", Trouble::Fault(Fault::no_permission("VirtualMachine", "vm-1")))
            },
            Err("SeveralVMsMatch"),
        ),
        (
            "a search is refused",
            copy("poweredOff"),
            |scene| scene.fakes[1].every("FindAllByUuid", Trouble::Fault(Fault::no_permission("Folder", "group-d1"))),
            Err("NoPermission"),
        ),
        (
            "a search fails",
            copy("poweredOff"),
            |scene| scene.fakes[1].every("FindAllByUuid", Trouble::Fault(Fault::new("SystemError"))),
            Err("VCenterUnavailable"),
        ),
    ];
    for (case, twin, change, expected) in cases {
        let scene = Scene::start(vec![one(), Model::small()]).await;
        let node = scene.initialized("n").await;
        scene.fakes[1].create_vm(twin);
        scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
        scene.power(&node, Some(PowerState::Off)).await;
        change(&scene);
        match (scene.read_power(&node).await, expected) {
            (Ok(state), expected) => assert_eq!(Ok(state), expected, "{case}"),
            (Err((reason, message)), expected) => {
                assert_eq!(Err(reason.as_str()), expected, "{case}: {message}");
                assert!(message.contains(&scene.fakes[1].port().to_string()), "{case}: {message}");
            }
        }
        scene.fakes[1].clear();
        // A running machine is on, with any other machines.
        scene.fake().change_vm("n", |vm| vm.power("poweredOn"));
        assert_eq!(scene.read_power(&node).await, Ok(PowerState::On), "{case}");
        scene.running.stop().await;
    }
}

#[tokio::test]
async fn while_a_vcenter_is_silent_no_machine_is_read_as_off() {
    let scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
    scene.power(&node, Some(PowerState::Off)).await;
    scene.fakes[1].stop_listening().await;
    let (reason, message) =
        eventually("it is noticed", SOON, async || scene.read_power(&node).await.err().ok_or_else(|| "off".to_owned()))
            .await;
    assert_eq!(reason, "VCenterUnavailable", "{message}");
    assert!(message.contains(&scene.fakes[1].port().to_string()), "{message}");
    scene.running.stop().await;
}

#[tokio::test]
async fn reads_that_hang_are_few_at_a_time_and_end() {
    let scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    scene.fake().every("RetrievePropertiesEx", Trouble::Hang);
    let reads = join_all((0..6).map(|_| scene.read_power(&node)));
    let all = tokio::time::timeout(Duration::from_secs(30), reads).await.expect("the caller waits for 30 s");
    for read in all {
        let (reason, message) = read.unwrap_err();
        assert_eq!(reason, "VCenterUnavailable", "{message}");
    }
}
