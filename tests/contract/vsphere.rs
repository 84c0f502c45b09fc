//! The suite over the vSphere provider, on the simulator and on the fake vCenter.

use async_trait::async_trait;
use ccm::cloud::{CloudProvider, ClusterReads as _, InstanceEvent};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use std::sync::Arc;
use std::time::Duration;
use support::vcenter::{Scenario, Vcenter, Vm};
use support::{FakeVcenter, Machine, Model};
use tempfile::TempDir;

use super::suite::{self, World};
use super::world::{Running, SOON, node};

/// More events than are kept for a subscriber.
const FLOOD: usize = 5_000;

struct SimulatorWorld {
    vcenter: Vcenter,
    running: Running,
}

#[async_trait]
impl World for SimulatorWorld {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.running.provider.clone()
    }

    async fn add(&self, name: &str, address: &str) -> String {
        let uuid = uuid::Uuid::new_v4().to_string();
        self.vcenter.create_vm(&Vm::new(name, &uuid).ip(address)).await;
        self.running.cluster.put(node(name, &uuid));
        uuid
    }

    async fn set_address(&self, name: &str, address: &str) {
        self.vcenter.set_ip(name, address).await;
    }

    async fn set_power(&self, name: &str, on: bool) {
        let change = if on { Vm::change().powered_on() } else { Vm::change().powered_off() };
        self.vcenter.change_vm(name, &change).await;
    }

    async fn destroy(&self, name: &str) -> bool {
        self.vcenter.destroy_vm(name).await;
        true
    }

    async fn set_unreachable(&self, _name: &str, unreachable: bool) {
        if unreachable {
            self.vcenter.stop_listening().await;
        } else {
            self.vcenter.resume_listening().await;
        }
    }

    async fn flood(&self, _name: &str) -> bool {
        flood(&self.running).await
    }
}

struct FakeWorld {
    fake: FakeVcenter,
    running: Running,
}

#[async_trait]
impl World for FakeWorld {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.running.provider.clone()
    }

    async fn add(&self, name: &str, address: &str) -> String {
        let uuid = uuid::Uuid::new_v4().to_string();
        self.fake.create_vm(Machine::new(name, &uuid).ip(address));
        self.running.cluster.put(node(name, &uuid));
        uuid
    }

    async fn set_address(&self, name: &str, address: &str) {
        self.fake.change_vm(name, |vm| vm.ip(address));
    }

    async fn set_power(&self, name: &str, on: bool) {
        self.fake.change_vm(name, |vm| vm.power(if on { "poweredOn" } else { "poweredOff" }));
    }

    async fn destroy(&self, name: &str) -> bool {
        self.fake.destroy_vm(name);
        true
    }

    async fn set_unreachable(&self, _name: &str, unreachable: bool) {
        if unreachable {
            self.fake.stop_listening().await;
        } else {
            self.fake.resume_listening().await;
        }
    }

    async fn flood(&self, _name: &str) -> bool {
        flood(&self.running).await
    }
}

/// Nodes come whose machine nobody can look for, each with an event of its own. Waits until all were announced.
async fn flood(running: &Running) -> bool {
    let mut events = running.provider.instance_events().unwrap().subscribe();
    let before: Vec<Node> = running.cluster.nodes().map(|node| Node::clone(&node)).collect();
    let strangers = (0..FLOOD).map(|number| {
        let mut node = node(&format!("stranger-{number}"), "");
        node.spec = Some(NodeSpec { provider_id: Some("vsphere://nobody".into()), ..NodeSpec::default() });
        node
    });
    running.cluster.put_all(before.iter().cloned().chain(strangers).collect());
    let last = InstanceEvent::Node(format!("stranger-{}", FLOOD - 1));
    let announced = async {
        while let Some(event) = events.next().await {
            if event == last {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, announced).await.expect("the last one is announced");
    running.cluster.put_all(before);
    true
}

#[tokio::test]
async fn the_vsphere_provider_keeps_the_contract() {
    support::api_server::install_crypto();
    let vcenter = Vcenter::start(&Scenario::small()).await;
    let running = Running::start(&[&vcenter], "");
    let world = SimulatorWorld { vcenter, running };
    suite::all(&world).await;
    world.running.cluster.clear();
    world.running.stop().await;
    let counts = world.vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "logged out");
}

#[tokio::test]
async fn the_fake_vcenter_lets_the_provider_keep_it() {
    support::api_server::install_crypto();
    let fake = FakeVcenter::start(Model::small()).await;
    let folder = TempDir::new().unwrap();
    let running = Running::start_with(&fake.ini_section("fake", "", folder.path()), Duration::from_secs(60));
    let world = FakeWorld { fake, running };
    suite::all(&world).await;
    world.running.cluster.clear();
    world.running.stop().await;
    let counts = world.fake.counts();
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "logged out");
}
