//! Load balancers: one address for each Service, and the names of the nodes behind it.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::Memory;
use ccm::cloud::{Error, LoadBalancer, WritePermit, node};

/// The first address handed out; the range is reserved for documentation and benchmarks.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// A load balancer as it exists.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryLoadBalancer {
    /// Its name, made of the Service's UID.
    pub name: String,
    /// The cluster it was made for.
    pub cluster_name: String,
    /// What is reported to the Service.
    pub status: LoadBalancerStatus,
    /// The names of the nodes behind it, sorted.
    pub nodes: Vec<String>,
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
        let name = self.load_balancer_name(cluster_name, service);
        Ok(self.lock().load_balancers.get(&name).map(|balancer| balancer.status.clone()))
    }

    /// The default of `cloud.go`: `a`, then the UID without hyphens, 32 bytes in all.
    fn load_balancer_name(&self, _cluster_name: &str, service: &Service) -> String {
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        std::iter::once('a').chain(uid.chars().filter(|c| *c != '-')).take(32).collect()
    }

    async fn ensure_load_balancer(
        &self,
        permit: &WritePermit,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error> {
        let name = self.load_balancer_name(cluster_name, service);
        let mut state = self.lock_for_write(permit)?;
        if let Some(balancer) = state.load_balancers.get_mut(&name) {
            balancer.nodes = names(nodes);
            return Ok(balancer.status.clone());
        }
        let address = Ipv4Addr::from(u32::from(FIRST_ADDRESS) + state.load_balancer_addresses);
        state.load_balancer_addresses += 1;
        let ingress = LoadBalancerIngress { ip: Some(address.to_string()), ..LoadBalancerIngress::default() };
        let status = LoadBalancerStatus { ingress: Some(vec![ingress]) };
        let balancer = MemoryLoadBalancer {
            name: name.clone(),
            cluster_name: cluster_name.to_owned(),
            status: status.clone(),
            nodes: names(nodes),
        };
        state.load_balancers.insert(name, balancer);
        Ok(status)
    }

    async fn update_load_balancer(
        &self,
        permit: &WritePermit,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), Error> {
        let name = self.load_balancer_name(cluster_name, service);
        match self.lock_for_write(permit)?.load_balancers.get_mut(&name) {
            Some(balancer) => {
                balancer.nodes = names(nodes);
                Ok(())
            }
            None => Err(Error::other(format!("there is no load balancer {name}"))),
        }
    }

    async fn ensure_load_balancer_deleted(
        &self,
        permit: &WritePermit,
        cluster_name: &str,
        service: &Service,
    ) -> Result<(), Error> {
        let name = self.load_balancer_name(cluster_name, service);
        self.lock_for_write(permit)?.load_balancers.remove(&name);
        Ok(())
    }
}
