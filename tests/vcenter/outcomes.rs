//! A node whose machine is in an unusual state, has moved, has a twin, or is not readable. Each case has one defined
//! result for the node's metadata and for the existence of its machine.

mod absence;
mod claims;
mod families;
mod last_place;
mod neighbours;
mod observations;
mod power;
mod refresh;
mod replacement;
mod rights;
mod virtual_ips;

use std::sync::Arc;
use std::time::Duration;

use ccm::cloud::{CloudProvider as _, InstanceMetadata, InstancesV2, Presence};
use ccm::providers::vsphere::Options;
use ccm::providers::vsphere::nodes::lookup::resolution::{SearchAnswer, SearchKey};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use support::api_server::install_crypto;
use support::{FakeVcenter, Log, Machine, Model, eventually};
use tempfile::TempDir;

use crate::world::{Running, SOON, node, until_told};

const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";
const SWAPPED: &str = "56492e42-22ad-3911-6d72-59cc8f26bc90";
const OTHER: &str = "01234567-89ab-cdef-4444-555555555555";

/// Fake vCenters with a provider.
struct Scene {
    fakes: Vec<FakeVcenter>,
    datacenters: &'static str,
    folder: TempDir,
    running: Running,
}

impl Scene {
    async fn start(models: Vec<Model>) -> Self {
        Self::covering("", models).await
    }

    async fn covering(datacenters: &'static str, models: Vec<Model>) -> Self {
        install_crypto();
        let fakes = join_all(models.into_iter().map(FakeVcenter::start)).await;
        let folder = TempDir::new().unwrap();
        let running = run(&fakes, datacenters, &folder);
        Self { fakes, datacenters, folder, running }
    }

    /// Starts fake vCenters with a provider that has this configuration of them and changed options.
    async fn configured(
        models: Vec<Model>,
        text: impl FnOnce(&[FakeVcenter], &TempDir) -> String,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        install_crypto();
        let fakes = join_all(models.into_iter().map(FakeVcenter::start)).await;
        let folder = TempDir::new().unwrap();
        let running = Running::start_changed(&text(&fakes, &folder), change);
        Self { fakes, datacenters: "", folder, running }
    }

    fn fake(&self) -> &FakeVcenter {
        &self.fakes[0]
    }

    fn instances(&self) -> Arc<dyn InstancesV2> {
        self.running.provider.instances_v2().unwrap()
    }

    /// Starts another process. Its only state is the data on the nodes.
    async fn restart(&mut self, node: &Node) {
        let next = run(&self.fakes, self.datacenters, &self.folder);
        next.cluster.put(node.clone());
        std::mem::replace(&mut self.running, next).stop().await;
    }

    /// Waits until the metadata of the node's machine meets `accept`.
    async fn found_with(&self, node: &Node, accept: impl Fn(&InstanceMetadata) -> bool) -> InstanceMetadata {
        let instances = self.instances();
        eventually("the node's machine is known", SOON, async || match instances.instance_metadata(node).await {
            Presence::Exists(metadata) if accept(&metadata) => Ok(metadata),
            other => Err(format!("{other:?}")),
        })
        .await
    }

    async fn found(&self, node: &Node) -> InstanceMetadata {
        self.running.cluster.put(node.clone());
        self.found_with(node, |metadata| metadata.pending.is_none()).await
    }

    /// Returns the node after its machine was found and it was initialized.
    async fn initialized(&self, name: &str) -> Node {
        let metadata = self.found(&node(name, UUID)).await;
        let node = with_record(with_provider_id(node(name, UUID), &metadata.provider_id), &metadata.record);
        self.running.cluster.put(node.clone());
        node
    }

    /// Waits until the guest is unknown for this reason, and returns the message. Fails if the machine is absent in the
    /// meantime.
    async fn unknown(&self, node: &Node, reason: &str) -> String {
        let instances = self.instances();
        eventually(reason, SOON, async || match instances.instance_metadata(node).await {
            Presence::Unknown(unknown) if unknown.reason == reason => Ok(unknown.message),
            Presence::Exists(InstanceMetadata { node_addresses, pending: Some(pending), .. })
                if node_addresses.is_empty() && pending.reason == reason =>
            {
                Ok(pending.message)
            }
            other => Err(format!("{other:?}")),
        })
        .await
    }

    /// Waits until the request for the existence of the machine has this answer: `exists`, `absent` or a reason.
    /// Returns the message. Fails on a wrong absence in the meantime.
    async fn told(&self, node: &Node, expected: &str) -> String {
        let instances = self.instances();
        eventually(expected, SOON, async || {
            let (word, message) = match instances.instance_exists(node).await {
                Presence::Exists(()) => ("exists", String::new()),
                Presence::Absent(proof) => ("absent", proof.to_string()),
                Presence::Unknown(unknown) => (unknown.reason.as_str(), unknown.message),
            };
            assert!(word != "absent" || expected == "absent", "wrong proof: {message}");
            if word == expected { Ok(message) } else { Err(format!("{word}: {message}")) }
        })
        .await
    }
}

/// Returns a `vsphere.conf` with an entry for each vCenter.
fn sections(fakes: &[FakeVcenter], datacenters: &str, folder: &TempDir) -> String {
    let section = |(at, fake): (usize, &FakeVcenter)| fake.ini_section(&format!("vc-{at}"), datacenters, folder.path());
    fakes.iter().enumerate().map(section).collect()
}

fn run(fakes: &[FakeVcenter], datacenters: &str, folder: &TempDir) -> Running {
    Running::start_with(&sections(fakes, datacenters, folder), Duration::from_secs(60))
}

fn with_provider_id(mut node: Node, provider_id: &str) -> Node {
    node.spec = Some(NodeSpec { provider_id: Some(provider_id.into()), ..NodeSpec::default() });
    node
}

fn with_record(mut node: Node, record: &str) -> Node {
    node.metadata.annotations = Some([("vsphere-ccm.dev/vm".to_string(), record.to_string())].into());
    node
}

fn without_record(mut node: Node) -> Node {
    node.metadata.annotations = None;
    node
}

fn machine() -> Machine {
    Machine::new("n", UUID).ip("10.0.0.1")
}

fn one() -> Model {
    Model::small().vm(machine())
}

fn address(metadata: &InstanceMetadata) -> &str {
    metadata.node_addresses.iter().find(|address| address.type_ == "InternalIP").map_or("", |found| &found.address)
}

fn vm_of(metadata: &InstanceMetadata) -> String {
    let record: serde_json::Value = serde_json::from_str(&metadata.record).unwrap();
    record["vm"].as_str().unwrap().to_string()
}

// States of the machine.

#[tokio::test]
async fn a_machine_that_vcenter_does_not_hear_from_exists_and_keeps_its_addresses() {
    for state in ["disconnected", "inaccessible", "orphaned", "invalid"] {
        let mut scene = Scene::start(vec![one()]).await;
        let node = scene.initialized("n").await;
        scene.fake().change_vm("n", |vm| vm.text("runtime.connectionState", state));
        let instances = scene.instances();
        eventually("the power state is not proven", SOON, async || match instances.instance_shutdown(&node).await {
            Presence::Unknown(unknown) if unknown.reason == "PowerStateUnknown" => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        assert_eq!(address(&scene.found(&node).await), "10.0.0.1", "{state}: what the guest said last is kept");
        scene.told(&node, "exists").await;
        // vCenter drops the guest and the configuration of such a machine.
        let forgotten = ["guest.net", "guest.hostName", "config.uuid", "summary.config.uuid"];
        scene.fake().change_vm("n", |vm| forgotten.into_iter().fold(vm, Machine::without));
        let message = scene.unknown(&node, "ToolsNotRunning").await;
        assert!(message.contains(state), "{message}");
        scene.told(&node, "exists").await;
        // The record alone leads to the machine, which exists.
        scene.restart(&node).await;
        scene.unknown(&node, "ToolsNotRunning").await;
        scene.told(&node, "exists").await;
        scene.running.stop().await;
    }
}

#[tokio::test]
async fn w34_a_machine_without_guest_and_config_stops_nothing() {
    let odd = ["config.uuid", "guest.hostName", "guest.net"].into_iter().fold(machine(), Machine::without);
    let scene = Scene::start(vec![Model::small().vm(odd)]).await;
    // The fake searches by `config.uuid`, as the simulator does, so the search does not find such a machine.
    scene.running.cluster.put(node("n", UUID));
    scene.unknown(&node("n", UUID), "VMNotFound").await;
    scene.fake().change_vm("n", |vm| vm.text("config.uuid", UUID));
    let message = scene.unknown(&node("n", UUID), "ToolsNotRunning").await;
    assert!(message.contains("guest.hostName"), "{message}");
    scene.fake().change_vm("n", |vm| vm.text("guest.hostName", "n").ip("10.0.0.2"));
    assert_eq!(address(&scene.found(&node("n", UUID)).await), "10.0.0.2");
    scene.running.stop().await;
}

#[tokio::test]
async fn w39_a_machine_that_is_off_and_says_nothing_exists_and_is_shut_down() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let silent = |vm: Machine| vm.power("poweredOff").without("guest.net").without("guest.hostName");
    scene.fake().change_vm("n", silent);
    let instances = scene.instances();
    eventually("it is shut down", SOON, async || match instances.instance_shutdown(&node).await {
        Presence::Exists(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    scene.told(&node, "exists").await;
    // The guest reports nothing. The metadata is unknown, so the data on the node stays.
    scene.unknown(&node, "VMPoweredOff").await;
    scene.fake().change_vm("n", |vm| vm.power("poweredOn"));
    scene.fake().change_vm("n", |vm| vm.text("guest.hostName", "n").ip("10.0.0.1"));
    assert_eq!(address(&scene.found(&node).await), "10.0.0.1");
    scene.running.stop().await;
}

#[tokio::test]
async fn what_is_known_stays_while_vcenter_is_away_and_is_made_true_when_it_is_back() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().stop_listening().await;
    let stale = scene.found_with(&node, |metadata| metadata.stale.is_some()).await;
    assert_eq!(address(&stale), "10.0.0.1");
    scene.fake().change_vm("n", |vm| vm.ip("10.0.0.2"));
    scene.fake().resume_listening().await;
    scene.found_with(&node, |metadata| metadata.stale.is_none() && address(metadata) == "10.0.0.2").await;
    scene.running.stop().await;
}

// Identity.

#[tokio::test]
async fn w40_a_provider_id_in_the_other_byte_order_or_in_upper_case_is_the_same_machine() {
    for id in [SWAPPED.to_string(), UUID.to_uppercase(), SWAPPED.to_uppercase()] {
        let scene = Scene::start(vec![one()]).await;
        let plain = with_provider_id(node("n", SWAPPED), &format!("vsphere://{id}"));
        let metadata = scene.found(&plain).await;
        assert_eq!(address(&metadata), "10.0.0.1", "{id}");
        scene.told(&plain, "exists").await;
        assert_eq!(scene.instances().instance_shutdown(&plain).await, Presence::Exists(false), "{id}");
        scene.fake().destroy_vm("n");
        scene.told(&plain, "absent").await;
        scene.running.stop().await;
    }
}

#[tokio::test]
async fn w38_a_guest_that_is_called_otherwise_than_its_node_is_found_by_its_uuid() {
    for host_name in ["N", "n.example.com", "somebody-else"] {
        let model = Model::small().vm(machine().text("guest.hostName", host_name));
        let scene = Scene::start(vec![model]).await;
        assert_eq!(address(&scene.found(&node("n", UUID)).await), "10.0.0.1", "{host_name}");
        scene.running.stop().await;
    }
}

#[tokio::test]
async fn the_inputs_of_the_last_look_up_are_kept() {
    let scene = Scene::start(vec![one()]).await;
    let node = node("n", UUID);
    let answers = || {
        let inputs = scene.running.provider.instance(&node)?.inputs.clone()?;
        assert_eq!(inputs.uuid, UUID.parse().ok());
        Some((inputs.at, inputs.asked_by_name, inputs.answers.clone()))
    };
    assert_eq!(answers(), None, "the node is not known yet");
    scene.found(&node).await;
    let matches = |query, ids: &[&str]| {
        let ids = ids.iter().map(|id| Arc::from(*id)).collect();
        let server = scene.running.provider.inventories()[0].server().to_owned();
        vec![(server, SearchAnswer::Matches { query, ids })]
    };
    let (bound, asked_by_name, of_binding) = answers().unwrap();
    assert_eq!((asked_by_name, of_binding), (false, matches(SearchKey::Uuid, &["vm-1"])));
    scene.fake().change_vm("n", |vm| vm.ip("10.0.0.2"));
    scene.found_with(&node, |metadata| address(metadata) == "10.0.0.2").await;
    assert_eq!(answers().unwrap().0, bound, "a change of the machine is no new look-up");
    scene.fake().destroy_vm("n");
    eventually("the search by name finds nothing", SOON, async || match answers() {
        Some((at, true, of_name)) if at > bound && of_name == matches(SearchKey::Name, &[]) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    scene.running.stop().await;
}

#[tokio::test]
async fn w43_a_node_that_is_made_anew_under_an_old_name_gets_no_machine_of_the_old_one() {
    let scene = Scene::start(vec![one()]).await;
    let mut first = scene.initialized("n").await;
    first.metadata.uid = Some("first".into());
    scene.found(&first).await;
    let mut second = node("n", OTHER);
    second.metadata.uid = Some("second".into());
    scene.running.cluster.put(second.clone());
    let message = scene.unknown(&second, "NameMatchRefused").await;
    assert!(message.contains("another BIOS UUID"), "{message}");
    scene.fake().create_vm(Machine::new("n", OTHER).ip("10.0.0.2"));
    let metadata = scene.found_with(&second, |metadata| address(metadata) == "10.0.0.2").await;
    assert_eq!(metadata.provider_id, format!("vsphere://{OTHER}"));
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_made_anew_under_the_old_name_is_not_the_nodes() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().destroy_vm("n");
    scene.fake().create_vm(Machine::new("n", OTHER).ip("10.0.0.2"));
    scene.unknown(&node, "VMNotFound").await;
    scene.told(&node, "absent").await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_with_another_uuid_under_its_old_id_is_told_and_never_absent() {
    let mut scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().change_vm("n", |vm| vm.text("config.uuid", OTHER).text("summary.config.uuid", OTHER));
    for _ in 0..2 {
        let message = scene.unknown(&node, "ProviderIDMismatch").await;
        for part in [UUID, OTHER, "vm-1 on", "which backed the Node"] {
            assert!(message.contains(part), "{part:?} is missing in {message}");
        }
        let message = scene.told(&node, "ProviderIDMismatch").await;
        assert!(message.contains("vm-1") && message.contains(OTHER), "{message}");
        scene.restart(&node).await;
    }
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_that_is_registered_anew_is_found_under_its_new_id() {
    let mut scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let id = scene.fake().reregister_vm("n");
    scene.found_with(&node, |metadata| vm_of(metadata) == id).await;
    scene.told(&node, "exists").await;
    // The record on the node still has the old id.
    scene.restart(&node).await;
    scene.found_with(&node, |metadata| vm_of(metadata) == id).await;
    scene.told(&node, "exists").await;
    scene.running.stop().await;
}

// Twins and templates.

#[tokio::test]
async fn a_template_or_clone_with_the_uuid_is_existence_and_backs_no_node_that_had_another() {
    let template = || Machine::new("template", UUID).set_template(true).power("poweredOff");
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().create_vm(template());
    scene.fake().destroy_vm("n");
    let message = scene.unknown(&node, "VMNotFound").await;
    assert!(message.contains("template") || message.contains("left the inventory"), "{message}");
    scene.told(&node, "exists").await;
    scene.fake().destroy_vm("template");
    scene.told(&node, "absent").await;
    scene.running.stop().await;
}

#[tokio::test]
async fn w42_a_clone_beside_the_recorded_machine_changes_nothing_also_after_a_restart() {
    let mut scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().create_vm(Machine::new("clone", UUID).ip("10.0.0.2"));
    scene.restart(&node).await;
    let metadata = scene.found(&node).await;
    assert_eq!((vm_of(&metadata).as_str(), address(&metadata)), ("vm-1", "10.0.0.1"));
    scene.running.stop().await;
}

#[tokio::test]
async fn a_twin_that_runs_in_place_of_the_machine_that_is_off_is_told_of_and_the_machine_stays() {
    let log = Log::keep();
    let scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    let before = scene.fakes[1].counts().of("FindAllByUuid");
    scene.fakes[1].create_vm(Machine::new("copy", UUID).ip("10.0.0.2"));
    scene.fake().change_vm("n", |vm| vm.power("poweredOff"));
    until_told(&log, &format!("VM vm-1 on vCenter 127.0.0.1:{} has the Node's UUID, too", scene.fakes[1].port())).await;
    let looked = scene.fakes[1].counts().of("FindAllByUuid") - before;
    assert!(looked <= 2, "one look for one change of power: {looked}");
    let metadata = scene.found(&node).await;
    assert_eq!(address(&metadata), "10.0.0.1", "the machine that was taken stays");
    assert_eq!(scene.instances().instance_shutdown(&node).await, Presence::Exists(true));
    scene.running.stop().await;
}

#[tokio::test]
async fn one_vcenter_configured_twice_has_one_machine() {
    // Entries that differ have a session each.
    let text = |fakes: &[FakeVcenter], folder: &TempDir| {
        let entry = |key| fakes[0].ini_section(key, "", folder.path());
        format!("{}{}ip-family = ipv4, ipv6\n", entry("a"), entry("b"))
    };
    let scene = Scene::configured(vec![one()], text, |_| {}).await;
    assert_eq!(scene.running.provider.inventories().len(), 2);
    let node = scene.initialized("n").await;
    assert_eq!(address(&scene.found(&node).await), "10.0.0.1");
    scene.told(&node, "exists").await;
    scene.fake().destroy_vm("n");
    scene.told(&node, "absent").await;
    scene.running.stop().await;
}

// Moves.

#[tokio::test]
async fn a_machine_that_moved_to_another_datacenter_is_kept_and_outside_of_the_covered_ones_it_exists() {
    let mut scene = Scene::covering("dc-1", vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().move_vm("n", "dc-2");
    let is_in = |datacenter: &'static str| move |metadata: &InstanceMetadata| metadata.record.contains(datacenter);
    let moved = scene.found_with(&node, is_in("datacenter-2")).await;
    assert_eq!(address(&moved), "10.0.0.1", "a machine that is known stays known");
    scene.told(&node, "exists").await;
    scene.restart(&node).await;
    let message = scene.unknown(&node, "VMNotFound").await;
    assert!(message.contains("outside the configured datacenters"), "{message}");
    scene.told(&node, "exists").await;
    scene.fake().move_vm("n", "dc-1");
    scene.found_with(&node, is_in("datacenter-1")).await;
    // If both datacenters are covered, a move changes nothing.
    scene.datacenters = "dc-1, dc-2";
    scene.fake().move_vm("n", "dc-2");
    scene.restart(&node).await;
    assert_eq!(address(&scene.found(&node).await), "10.0.0.1");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_that_moved_to_another_vcenter_is_found_there_and_exists() {
    let mut scene = Scene::start(vec![one(), Model::small()]).await;
    let node = scene.initialized("n").await;
    scene.fakes[1].create_vm(machine().ip("10.0.0.2"));
    scene.fake().destroy_vm("n");
    let there = scene.fakes[1].instance_uuid();
    scene.found_with(&node, |metadata| metadata.record.contains(&there)).await;
    scene.told(&node, "exists").await;
    scene.restart(&node).await;
    assert_eq!(address(&scene.found(&node).await), "10.0.0.2");
    scene.told(&node, "exists").await;
    // The machine counts as absent only at its last place.
    scene.fakes[1].destroy_vm("n");
    let proof = scene.told(&node, "absent").await;
    assert!(proof.contains(&there), "{proof}");
    scene.running.stop().await;
}
