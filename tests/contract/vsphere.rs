//! The suite for the vSphere provider, on the simulator and on the fake vCenter.

use async_trait::async_trait;
use ccm::cloud::{CloudProvider, ClusterReads as _, InstanceEvent};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use std::sync::Arc;
use std::time::Duration;
use support::{FakeVcenter, Model, Scenario, Vcenter, VcenterServer};
use tempfile::TempDir;

use super::suite::{self, World};
use super::world::{Running, SOON, node};

/// More events than a subscriber's buffer has.
const FLOOD: usize = 5_000;

pub struct VsphereWorld {
    pub vcenter: Box<dyn VcenterServer>,
    pub running: Running,
}

#[async_trait]
impl World for VsphereWorld {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.running.provider.clone()
    }

    async fn add(&self, name: &str, address: &str) -> String {
        let uuid = uuid::Uuid::new_v4().to_string();
        self.vcenter.create_vm(name, &uuid, address).await;
        self.running.cluster.put(node(name, &uuid));
        uuid
    }

    async fn set_address(&self, name: &str, address: &str) {
        self.vcenter.set_ip(name, address).await;
    }

    async fn set_power(&self, name: &str, on: bool) {
        self.vcenter.set_power(name, on).await;
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

/// Adds nodes whose machines cannot be searched for, each with an event. Waits until all events were announced.
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

async fn keeps_the_contract(vcenter: Box<dyn VcenterServer>) {
    let folder = TempDir::new().unwrap();
    let running = Running::start_with(&vcenter.ini_section("vc", "", folder.path()), Duration::from_secs(60));
    let world = VsphereWorld { vcenter, running };
    suite::all(&world).await;
    world.running.cluster.clear();
    world.running.stop().await;
    let counts = world.vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "logged out");
}

#[tokio::test]
async fn the_vsphere_provider_keeps_the_contract() {
    support::api_server::install_crypto();
    keeps_the_contract(Box::new(Vcenter::start(&Scenario::small()).await)).await;
}

#[tokio::test]
async fn the_fake_vcenter_lets_the_provider_keep_it() {
    support::api_server::install_crypto();
    keeps_the_contract(Box::new(FakeVcenter::start(Model::small()).await)).await;
}
