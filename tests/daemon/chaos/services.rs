//! The Services of type LoadBalancer in a campaign, and the checks of their load balancers.

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
/// More addresses than all Services need, also while released addresses are reserved for a while.
const ADDRESSES: usize = 100;
/// One of this many nodes is a member of the load balancers.
const MEMBERS: usize = 5;
/// One of this many machines lasts: the first machine of each vCenter.
const LASTING: usize = 100;

/// Whether a node is a member of the load balancers.
pub fn is_member(number: usize) -> bool {
    number.is_multiple_of(MEMBERS)
}

/// Whether only faults affect a machine and its node.
pub fn is_lasting(number: usize) -> bool {
    number.is_multiple_of(LASTING)
}

/// Returns the addresses of the machines that last.
pub fn lasting() -> impl Iterator<Item = String> {
    (0..MACHINES).filter(|number| is_lasting(*number)).map(ip)
}

/// Adds the pool of addresses to a manager.
pub fn model(model: Model) -> Model {
    with_addresses(model, POOL, NETWORK, ADDRESSES)
}

/// Makes another program take all free addresses, or release them.
pub fn exhaust_pool(nsx: &FakeNsx, user: &str, is_on: bool) {
    exhaust(nsx, user, (POOL, ADDRESSES), is_on);
}

impl World {
    /// Creates, changes or deletes a Service, and checks the addresses of all Services.
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

    /// Whether a Service waits for an address.
    pub async fn has_service_without_address(&self) -> bool {
        let services = self.balanced.list().await;
        services.iter().any(|service| intent(service).is_some() && addresses(service).is_empty())
    }

    /// Waits until NSX has exactly the load balancers that Services ask for. Returns the elapsed time.
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

    /// Waits until a fresh daemon has ensured all load balancers.
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

    /// Returns the resource versions of the Services by name.
    pub async fn service_versions(&self) -> BTreeMap<String, Option<String>> {
        let services = self.balanced.list().await;
        services.iter().map(|service| (service.name_any(), service.resource_version())).collect()
    }
}
