//! The Services of type LoadBalancer in a campaign, and what their load balancers have to be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use support::fake_nsx::{FakeNsx, Model};
use support::{Daemon, eventually};

use super::script::Action;
use super::world::World;
use super::{CLASS, MACHINES};
use crate::admin::Admin;
use crate::cluster::ip;
use crate::invariants::nsx::load_balancers::intents::intent;
use crate::invariants::nsx::load_balancers::results::addresses;
use crate::services::{exhaust, with_addresses};

/// The id of the pool of addresses.
pub const POOL: &str = "p9";
const NETWORK: &str = "198.51.100";
/// More than all Services need, also while released ones are kept for a while.
const ADDRESSES: usize = 100;
/// One node of so many is behind the load balancers.
const MEMBERS: usize = 5;
/// One machine of so many lasts: the first one of each vCenter.
const LASTING: usize = 100;

/// Whether a node is behind the load balancers.
pub fn is_member(number: usize) -> bool {
    number.is_multiple_of(MEMBERS)
}

/// Whether nothing happens to a machine and its node but faults.
pub fn is_lasting(number: usize) -> bool {
    number.is_multiple_of(LASTING)
}

/// The addresses of the machines that last.
pub fn lasting() -> impl Iterator<Item = String> {
    (0..MACHINES).filter(|number| is_lasting(*number)).map(ip)
}

/// A manager with the pool of addresses.
pub fn model(model: Model) -> Model {
    with_addresses(model, POOL, NETWORK, ADDRESSES)
}

/// Another program takes all addresses that are left, or gives them back.
pub fn exhaust_pool(nsx: &FakeNsx, user: &str, is_on: bool) {
    exhaust(nsx, user, (POOL, ADDRESSES), is_on);
}

impl World {
    /// Creates, changes or deletes a Service, and judges the addresses of all of them.
    pub async fn act_on_service(&mut self, action: Action) -> bool {
        let is_done = match action {
            Action::CreateService(number, ports, policies) => {
                self.balanced.create(number, ports, policies, CLASS).await
            }
            Action::ChangeService(number, change) => self.balanced.change(number, change).await,
            other => panic!("{other:?} is not of a Service"),
        };
        self.balanced.judge_addresses().await;
        is_done
    }

    /// Whether one waits for an address.
    pub async fn has_service_without_address(&self) -> bool {
        let services = self.balanced.list().await;
        services.iter().any(|service| intent(service).is_some() && addresses(service).is_empty())
    }

    /// Waits until NSX has the load balancers that Services ask for, and no others. How long that took.
    pub async fn until_load_balancers_are_as_services(&mut self, limit: Duration) -> Duration {
        let began = Instant::now();
        eventually("NSX has the load balancers of all Services", limit, async || {
            self.check();
            self.balanced.judge_addresses().await;
            let nodes = self.cluster.nodes().await;
            match self.balanced.differences(&self.site.nsx, nodes.values()).await {
                found if found.is_empty() => Ok(()),
                found => Err(format!("{} differences: {found:#?}", found.len())),
            }
        })
        .await;
        began.elapsed()
    }

    /// A fresh daemon has ensured all load balancers.
    pub async fn until_ensured(&self, daemon: &mut Daemon, (admin, token): (&Admin, &str), limit: Duration) {
        let wanted = self.balanced.list().await.iter().filter(|service| intent(service).is_some()).count() as f64;
        eventually("a fresh daemon has ensured every load balancer", limit, async || {
            match admin.sum("vsphere_ccm_load_balancers ", token, daemon).await {
                ensured if ensured >= wanted => Ok(()),
                ensured => Err(format!("{ensured} of {wanted}\n{}", daemon.output().tail(20))),
            }
        })
        .await;
    }

    /// The resource versions of the Services by name.
    pub async fn service_versions(&self) -> BTreeMap<String, Option<String>> {
        let services = self.balanced.list().await;
        services.iter().map(|service| (service.name_any(), service.resource_version())).collect()
    }
}
