//! The last known place of a machine: from this process, or from the Node's record, whichever is newer.

use ccm::cloud::{InstanceMetadata, Presence};
use ccm::providers::vsphere::config::{self, Config};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use support::{Machine, Model, Trouble, eventually};

use super::{OTHER, SOON, Scene, one, with_record, without_record};

/// A host that no vCenter here has.
const GONE: &str = "host-9";

fn record_of(node: &Node) -> String {
    node.metadata.annotations.as_ref().unwrap()["vsphere-ccm.dev/vm"].clone()
}

impl Scene {
    /// Returns the node with a record for another host.
    fn recorded_on(&self, node: &Node, host: &str) -> Node {
        let record = record_of(node).replace("host-2", host);
        assert!(record.contains(host), "{record}");
        self.recorded(node, &record)
    }

    fn recorded(&self, node: &Node, record: &str) -> Node {
        let node = with_record(node.clone(), record);
        self.running.cluster.put(node.clone());
        node
    }

    async fn lose_vcenter(&self, node: &Node) {
        self.fake().stop_listening().await;
        self.told(node, "VCenterUnavailable").await;
    }

    /// Removes all vCenters from the configuration, as a cold standby does after the loss of leadership.
    async fn leave_vcenters(&self, node: &Node) {
        let none = Config { vcenters: Vec::new(), ..self.config() };
        assert!(self.running.provider.apply(&none).unwrap().is_empty());
        let message = self.unknown(node, "LookupPending").await;
        assert!(message.contains("cold standby"), "{message}");
    }

    fn use_vcenters(&self) {
        for task in self.running.provider.apply(&self.config()).unwrap() {
            tokio::spawn(task.run);
        }
    }

    fn config(&self) -> Config {
        let sections: Vec<String> = self
            .fakes
            .iter()
            .enumerate()
            .map(|(at, fake)| fake.ini_section(&format!("vc-{at}"), "", self.folder.path()))
            .collect();
        config::parse(&sections.concat(), "vsphere.conf").unwrap().config
    }
}

#[tokio::test]
async fn what_was_watched_to_its_end_is_proved_where_it_was_seen() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    // The record has a former host, which was removed from vCenter since then.
    let node = scene.recorded_on(&node, GONE);
    scene.told(&node, "exists").await;
    scene.fake().destroy_vm("n");
    let proof = scene.told(&node, "absent").await;
    assert!(proof.contains("host-2"), "{proof}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_seen_again_after_a_break_is_watched_anew() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.lose_vcenter(&node).await;
    let node = scene.recorded_on(&node, GONE);
    scene.fake().resume_listening().await;
    scene.told(&node, "exists").await;
    scene.fake().destroy_vm("n");
    scene.told(&node, "absent").await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_record_that_is_rewritten_while_nobody_watches_is_newer_than_what_was_seen() {
    let moved = |host| async move {
        let scene = Scene::start(vec![one()]).await;
        let node = scene.initialized("n").await;
        scene.lose_vcenter(&node).await;
        let node = scene.recorded_on(&node, host);
        // The place where this process saw the machine does not exist any more.
        scene.fake().remove_host("host-2");
        scene.fake().resume_listening().await;
        let expected = if host == GONE { "HostGone" } else { "absent" };
        let message = scene.told(&node, expected).await;
        assert!(message.contains(host), "{message}");
        scene.running.stop().await;
    };
    join_all([GONE, "host-3"].map(moved)).await;
}

#[tokio::test]
async fn after_a_break_the_machine_is_gone_only_where_it_was_seen_and_where_the_record_says() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let old = scene.recorded_on(&node, GONE);
    scene.told(&old, "exists").await;
    scene.lose_vcenter(&old).await;
    scene.fake().destroy_vm("n");
    scene.fake().resume_listening().await;
    let message = scene.told(&old, "HostGone").await;
    assert!(message.contains(GONE), "{message}");
    scene.running.stop().await;

    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let old = scene.recorded_on(&node, "host-3");
    scene.told(&old, "exists").await;
    scene.lose_vcenter(&old).await;
    scene.fake().remove_host("host-2");
    scene.fake().resume_listening().await;
    let message = scene.told(&old, "HostGone").await;
    assert!(message.contains("host-2"), "{message}");
    scene.running.stop().await;

    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.lose_vcenter(&node).await;
    scene.fake().destroy_vm("n");
    scene.fake().resume_listening().await;
    scene.told(&node, "absent").await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_vm_that_may_not_be_read_any_more_was_not_watched_to_its_end() {
    // vCenter reports the loss of the right, and then the destruction.
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let node = scene.recorded_on(&node, GONE);
    scene.told(&node, "exists").await;
    scene.fake().set_readable("VirtualMachine", "n", false);
    scene.unknown(&node, "NoPermission").await;
    scene.fake().destroy_vm("n");
    let message = scene.unknown(&node, "VMNotFound").await;
    assert!(message.contains("VM vm-1, which backed the Node, no longer exists"), "{message}");
    let message = scene.told(&node, "HostGone").await;
    assert!(message.contains(GONE), "{message}");
    scene.running.stop().await;

    // vCenter becomes unavailable before it reports the destruction.
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let node = scene.recorded_on(&node, GONE);
    scene.told(&node, "exists").await;
    scene.fake().every("FindAllByUuid", Trouble::Hang);
    scene.fake().set_readable("VirtualMachine", "n", false);
    let message = scene.unknown(&node, "VMNotFound").await;
    assert!(message.contains("left the inventory"), "{message}");
    scene.fake().stop_listening().await;
    scene.unknown(&node, "VCenterUnavailable").await;
    scene.fake().clear();
    scene.fake().destroy_vm("n");
    scene.fake().resume_listening().await;
    let message = scene.unknown(&node, "VMNotFound").await;
    assert!(message.contains("VM vm-1, which backed the Node, no longer exists"), "{message}");
    let message = scene.told(&node, "HostGone").await;
    assert!(message.contains(GONE), "{message}");
    scene.running.stop().await;
}

#[tokio::test]
async fn without_a_record_a_machine_that_was_not_watched_to_its_end_is_not_absent() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.lose_vcenter(&node).await;
    let bare = without_record(node);
    scene.running.cluster.put(bare.clone());
    scene.fake().destroy_vm("n");
    scene.fake().resume_listening().await;
    let message = scene.told(&bare, "NeverSeen").await;
    assert!(message.contains("vm-1"), "{message}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_record_of_another_vcenter_is_newer_after_a_break_and_proved_there() {
    let other = Model::small().vm(Machine::new("o", OTHER));
    let scene = Scene::start(vec![one(), other]).await;
    let node = scene.initialized("n").await;
    let there = record_of(&node).replace(&scene.fake().instance_uuid(), &scene.fakes[1].instance_uuid());
    scene.fakes[1].set_readable("VirtualMachine", "o", false);
    scene.lose_vcenter(&node).await;
    let node = scene.recorded(&node, &there);
    scene.fake().destroy_vm("n");
    scene.fake().resume_listening().await;
    let message = scene.told(&node, "NoPermission").await;
    assert!(message.contains(&scene.fakes[1].port().to_string()), "{message}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_cold_standby_that_leads_again_believes_what_was_recorded_meanwhile() {
    for watched in [false, true] {
        let scene = Scene::start(vec![one()]).await;
        let node = scene.initialized("n").await;
        if watched {
            scene.fake().destroy_vm("n");
            scene.told(&node, "absent").await;
        }
        scene.leave_vcenters(&node).await;
        // Another process leads, sees the machine elsewhere, and writes that to the Node.
        let node = scene.recorded_on(&node, GONE);
        if !watched {
            scene.fake().destroy_vm("n");
        }
        scene.use_vcenters();
        let message = scene.told(&node, "HostGone").await;
        assert!(message.contains(GONE), "{message}");
        scene.running.stop().await;
    }
}

#[tokio::test]
async fn after_a_restart_the_recorded_place_counts_and_what_left_with_its_host_is_not_absent() {
    let mut scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().migrate_vm("n", "host-3");
    let moved = scene.found_with(&node, |metadata| metadata.record.contains("host-3")).await;
    let node = scene.recorded(&node, &moved.record);
    scene.restart(&node).await;
    scene.told(&node, "exists").await;
    scene.fake().stop_listening().await;
    scene.fake().remove_host("host-3");
    scene.restart(&node).await;
    scene.fake().resume_listening().await;
    let message = scene.told(&node, "HostGone").await;
    assert!(message.contains("host-3"), "{message}");
    scene.running.stop().await;
}

#[tokio::test]
async fn the_record_is_urgent_while_the_host_is_in_maintenance_mode_or_not_connected() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let (fake, is_urgent) =
        (scene.fake(), |expected| move |found: &InstanceMetadata| found.is_record_urgent == expected);
    scene.found_with(&node, is_urgent(false)).await;
    fake.set_maintenance("host-2", true);
    scene.found_with(&node, is_urgent(true)).await;
    fake.set_maintenance("host-2", false);
    scene.found_with(&node, is_urgent(false)).await;
    fake.set_host_connection("host-2", "notResponding");
    scene.found_with(&node, is_urgent(true)).await;
    // The state of a host that the account may not read is unknown.
    fake.set_path_readable("HostSystem", "host-2", "runtime.connectionState", false);
    scene.found_with(&node, is_urgent(false)).await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_that_was_seen_to_leave_is_recorded_where_it_was_last() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let instances = scene.instances();
    let last_record_of = async |node: &Node| match instances.instance_metadata(node).await {
        Presence::Unknown(unknown) => Ok(unknown.last_record),
        other => Err(format!("{other:?}")),
    };
    scene.fake().migrate_vm("n", "host-3");
    scene.found_with(&node, |metadata| metadata.record.contains("host-3")).await;
    scene.fake().remove_host("host-3");
    eventually("the last place is told", SOON, async || match last_record_of(&node).await? {
        Some(record) if record.contains("host-3") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // Since then another leader has recorded a different place of the machine.
    let elsewhere = scene.recorded_on(&node, "host-1");
    assert_eq!(last_record_of(&elsewhere).await, Ok(None));
    scene.running.stop().await;

    // Changes without a watch are unknown.
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.lose_vcenter(&node).await;
    scene.fake().remove_host("host-2");
    scene.fake().resume_listening().await;
    scene.unknown(&node, "VMNotFound").await;
    let told = scene.instances().instance_metadata(&node).await;
    assert!(matches!(&told, Presence::Unknown(unknown) if unknown.last_record.is_none()), "{told:?}");
    scene.running.stop().await;
}
