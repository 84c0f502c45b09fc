//! Load balancers: an address for each Service, and the nodes behind it.
//!
//! As in real clouds, a load balancer consists of two objects: the address, and the forwarding rule. Each is written
//! separately, so that a call can be interrupted between both writes.

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::calls::Call;
use super::{Memory, stream_of};
use ccm::cloud::{Error, Handling, LeaderToken, LoadBalancer, ServiceEvent, UsableAddresses, node};

/// Prefix of the annotations that this provider reads.
pub const ANNOTATION_PREFIX: &str = "loadbalancer.vsphere-ccm.dev/memory-";
/// Annotation of a Service whose load balancer is made by another program.
pub const ANNOTATION_DECLINED: &str = "loadbalancer.vsphere-ccm.dev/memory-declined";

/// The first address that is handed out. RFC 2544 reserves the range for benchmarks.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// A load balancer as it exists.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryLoadBalancer {
    /// Its name, which is derived from the Service's UID.
    pub name: String,
    /// The cluster that it was created for.
    pub cluster_name: String,
    /// The Service of the last `ensure_load_balancer`.
    pub service: Service,
    /// The status that is reported to the Service.
    pub status: LoadBalancerStatus,
    /// The names of the nodes behind it, sorted.
    pub nodes: Vec<String>,
}

/// Cluster name and load balancer name.
type Key = (String, String);

/// All objects of load balancers.
#[derive(Default)]
pub(super) struct Balancers {
    by_key: BTreeMap<Key, MemoryLoadBalancer>,
    addresses: BTreeMap<Key, Ipv4Addr>,
    /// Number of addresses handed out so far. No address is handed out twice.
    handed_out: u32,
}

impl Balancers {
    fn address(&mut self, key: &Key) -> Ipv4Addr {
        *self.addresses.entry(key.clone()).or_insert_with(|| {
            self.handed_out += 1;
            Ipv4Addr::from(u32::from(FIRST_ADDRESS) + self.handed_out - 1)
        })
    }
}

impl Memory {
    /// Returns the complete load balancers.
    pub fn load_balancers(&self) -> Vec<MemoryLoadBalancer> {
        self.lock().balancers.by_key.values().cloned().collect()
    }

    /// Returns the number of load balancer objects, including those of load balancers that are only half created or
    /// half deleted.
    pub fn load_balancer_objects(&self) -> usize {
        let state = self.lock();
        state.balancers.by_key.len() + state.balancers.addresses.len()
    }

    /// Returns the number of load balancer objects of the Service with this UID.
    pub fn load_balancer_objects_of(&self, uid: &str) -> usize {
        let (name, state) = (name_of(uid), self.lock());
        let is_it = |key: &&Key| key.1 == name;
        state.balancers.by_key.keys().filter(is_it).count() + state.balancers.addresses.keys().filter(is_it).count()
    }

    /// Sets whether each deletion of a load balancer fails after the first of its two objects.
    pub fn set_deletes_by_half(&self, deletes_by_half: bool) {
        self.lock().deletes_by_half = deletes_by_half;
    }

    /// Sets whether deleting a load balancer needs its address in the status of the Service.
    pub fn set_needs_address(&self, needs_address: bool) {
        self.lock().needs_address = needs_address;
    }

    /// Sets the answer of `usable_addresses` for every Node. Announces nothing.
    pub fn set_usable_addresses(&self, usable: UsableAddresses) {
        self.lock().usable_addresses = usable;
    }

    /// Sets whether load balancers are offered, which a reload can change.
    pub fn set_has_load_balancers(&self, has_load_balancers: bool) {
        self.shared.capabilities.send_modify(|has| has.load_balancers = has_load_balancers);
    }

    /// Sets whether the Nodes of each load balancer are updated separately, as in `cloud.go`.
    pub fn set_updates_separately(&self, updates_separately: bool) {
        self.lock().updates_separately = updates_separately;
    }

    /// Announces that Services must be synced again.
    pub fn announce_service(&self, event: ServiceEvent) {
        // The send fails if there is no subscriber, which is no error.
        let _ = self.shared.service_events.send(event);
    }

    fn key(&self, cluster_name: &str, service: &Service) -> Key {
        (cluster_name.to_owned(), self.load_balancer_name(cluster_name, service))
    }

    fn set_nodes(&self, permit: &LeaderToken, key: &Key, nodes: &[Arc<Node>]) -> Result<(), Error> {
        match self.lock_for_write(permit)?.balancers.by_key.get_mut(key) {
            Some(balancer) => {
                balancer.nodes = names(nodes);
                Ok(())
            }
            None => Err(Error::other(format!("there is no load balancer {}", key.1))),
        }
    }
}

/// Returns the default name of `cloud.go`: `a` and the UID without hyphens, cut to 32 bytes.
fn name_of(uid: &str) -> String {
    std::iter::once('a').chain(uid.chars().filter(|c| *c != '-')).take(32).collect()
}

fn names(nodes: &[Arc<Node>]) -> Vec<String> {
    let mut names: Vec<_> = nodes.iter().map(|node| node::name(node).to_owned()).collect();
    names.sort();
    names
}

#[async_trait]
impl LoadBalancer for Memory {
    async fn get_load_balancer(
        &self,
        cluster_name: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, Error> {
        self.begin(Call::GetLoadBalancer).await?;
        let key = self.key(cluster_name, service);
        Ok(self.lock().balancers.by_key.get(&key).map(|balancer| balancer.status.clone()))
    }

    fn load_balancer_name(&self, _cluster_name: &str, service: &Service) -> String {
        name_of(service.metadata.uid.as_deref().unwrap_or_default())
    }

    async fn ensure_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error> {
        self.begin(Call::EnsureLoadBalancer).await?;
        let key = self.key(cluster_name, service);
        let address = self.lock_for_write(permit)?.balancers.address(&key);
        let ingress = LoadBalancerIngress { ip: Some(address.to_string()), ..LoadBalancerIngress::default() };
        let balancer = MemoryLoadBalancer {
            name: key.1.clone(),
            cluster_name: key.0.clone(),
            service: service.clone(),
            status: LoadBalancerStatus { ingress: Some(vec![ingress]) },
            nodes: names(nodes),
        };
        let status = balancer.status.clone();
        self.lock_for_write(permit)?.balancers.by_key.insert(key, balancer);
        Ok(status)
    }

    async fn update_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), Error> {
        self.begin(Call::UpdateLoadBalancer).await?;
        self.set_nodes(permit, &self.key(cluster_name, service), nodes)
    }

    async fn ensure_load_balancer_deleted(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
    ) -> Result<(), Error> {
        self.begin(Call::DeleteLoadBalancer).await?;
        let key = self.key(cluster_name, service);
        let deletes_by_half = {
            let mut state = self.lock_for_write(permit)?;
            state.balancers.by_key.remove(&key);
            state.deletes_by_half
        };
        if deletes_by_half {
            return Err(Error::other(format!("the address of load balancer {} cannot be given back", key.1)));
        }
        self.lock_for_write(permit)?.balancers.addresses.remove(&key);
        Ok(())
    }

    fn handles(&self, service: &Service) -> Handling {
        let annotations = service.metadata.annotations.as_ref();
        match annotations.is_some_and(|annotations| annotations.contains_key(ANNOTATION_DECLINED)) {
            true => Handling::Declined,
            false => Handling::Handled,
        }
    }

    async fn update_nodes(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        services: &[Arc<Service>],
        nodes: &[Arc<Node>],
    ) -> Option<Vec<Result<(), Error>>> {
        if self.lock().updates_separately {
            return None;
        }
        self.count_and_wait(Call::UpdateNodes).await;
        let result = |service: &Arc<Service>| {
            self.failure(Call::UpdateNodes)?;
            self.set_nodes(permit, &self.key(cluster_name, service), nodes)
        };
        Some(services.iter().map(result).collect())
    }

    fn annotation_prefixes(&self) -> &[&str] {
        &[ANNOTATION_PREFIX]
    }

    fn usable_addresses(&self, _node: &Node) -> UsableAddresses {
        self.lock().usable_addresses.clone()
    }

    fn needs_address_before_deletion(&self) -> bool {
        self.lock().needs_address
    }

    fn subscribe(&self) -> BoxStream<'static, ServiceEvent> {
        stream_of(self.shared.service_events.subscribe(), ServiceEvent::All)
    }
}
