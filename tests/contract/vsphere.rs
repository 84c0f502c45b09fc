//! The suite over the vSphere provider on the simulator.

use async_trait::async_trait;
use ccm::cloud::CloudProvider;
use std::sync::Arc;
use support::vcenter::{Scenario, Vcenter, Vm};

use super::suite::{self, World};
use super::world::{Running, node};

struct VsphereWorld {
    vcenter: Vcenter,
    running: Running,
}

#[async_trait]
impl World for VsphereWorld {
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

    /// Every change is a call of the simulator; thousands of them prove nothing that the board's own test does not.
    async fn flood(&self, _name: &str) -> bool {
        false
    }
}

#[tokio::test]
async fn the_vsphere_provider_keeps_the_contract() {
    support::api_server::install_crypto();
    let vcenter = Vcenter::start(&Scenario::small()).await;
    let running = Running::start(&[&vcenter], "");
    let world = VsphereWorld { vcenter, running };
    suite::all(&world).await;
    world.running.cluster.clear();
    world.running.stop().await;
    let counts = world.vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "logged out");
}
