//! The suite over the memory provider, with both instance contracts, and what only this provider has to offer.

use async_trait::async_trait;
use ccm::cloud::node::addresses::INTERNAL_IP;
use ccm::cloud::{
    CloudProvider, InstanceEvent, InstanceMetadata, LoadBalancer, PowerState, Route, Routes, Unknown, WritePermit,
};
use doubles::memory::{Contract, Instance, Memory};
use k8s_openapi::api::core::v1::{NodeAddress, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;

use super::suite::{self, World};
use ccm::cloud::reason;

struct MemoryWorld(Memory);

fn provider_id(name: &str) -> String {
    format!("memory://{name}")
}

fn internal(address: &str) -> Vec<NodeAddress> {
    vec![NodeAddress { type_: INTERNAL_IP.into(), address: address.into() }]
}

#[async_trait]
impl World for MemoryWorld {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        Arc::new(self.0.clone())
    }

    async fn add(&self, name: &str, address: &str) -> String {
        let system_uuid = format!("uuid-of-{name}");
        self.0.put(Instance {
            node_name: name.into(),
            system_uuid: system_uuid.clone(),
            metadata: InstanceMetadata {
                provider_id: provider_id(name),
                node_addresses: internal(address),
                ..InstanceMetadata::default()
            },
            ..Instance::default()
        });
        system_uuid
    }

    async fn set_address(&self, name: &str, address: &str) {
        assert!(self.0.update(&provider_id(name), |instance| instance.metadata.node_addresses = internal(address)));
    }

    async fn set_power(&self, name: &str, on: bool) {
        assert!(
            self.0.update(&provider_id(name), |instance| instance.power =
                if on { PowerState::On } else { PowerState::Off })
        );
    }

    async fn destroy(&self, name: &str) -> bool {
        assert!(self.0.remove(&provider_id(name)));
        true
    }

    async fn set_unreachable(&self, name: &str, unreachable: bool) {
        let why = unreachable.then(|| Unknown::new(reason::CloudUnavailable, "the suite says so"));
        self.0.set_unknown(&provider_id(name), why);
    }

    async fn flood(&self, name: &str) -> bool {
        for _ in 0..1000 {
            self.0.announce(InstanceEvent::Node(name.into()));
        }
        true
    }
}

#[tokio::test]
async fn the_memory_provider_keeps_the_contract() {
    suite::all(&MemoryWorld(Memory::default())).await;
}

#[tokio::test]
async fn the_memory_provider_keeps_the_contract_through_the_adapter() {
    suite::all(&MemoryWorld(Memory::new("memory", Contract::Older))).await;
}

fn permit() -> WritePermit {
    WritePermit::new(|| true)
}

fn service(uid: &str) -> Service {
    Service { metadata: ObjectMeta { uid: Some(uid.into()), ..ObjectMeta::default() }, ..Service::default() }
}

#[tokio::test]
async fn load_balancers_are_ensured_updated_and_deleted() {
    let cloud = Memory::default();
    let service = service("123e4567-e89b-12d3-a456-426614174000");
    let node = |name: &str| Arc::new(suite::node(name, "", ""));
    assert_eq!(cloud.load_balancer_name("c", &service), "a123e4567e89b12d3a45642661417400");
    assert_eq!(cloud.get_load_balancer("c", &service).await.unwrap(), None);
    assert!(cloud.update_load_balancer(&permit(), "c", &service, &[]).await.is_err());

    let status = cloud.ensure_load_balancer(&permit(), "c", &service, &[node("b"), node("a")]).await.unwrap();
    assert!(status.ingress.as_ref().unwrap()[0].ip.is_some());
    assert_eq!(cloud.ensure_load_balancer(&permit(), "c", &service, &[node("a"), node("b")]).await.unwrap(), status);
    assert_eq!(cloud.get_load_balancer("c", &service).await.unwrap(), Some(status.clone()));
    assert_eq!(cloud.load_balancers()[0].nodes, ["a", "b"]);
    let other = cloud.ensure_load_balancer(&permit(), "c", &self::service("other"), &[]).await.unwrap();
    assert_ne!(other, status, "no two have the same address");

    cloud.update_load_balancer(&permit(), "c", &service, &[node("c")]).await.unwrap();
    assert!(cloud.load_balancers().iter().any(|balancer| balancer.nodes == ["c"]));
    for _ in 0..2 {
        cloud.ensure_load_balancer_deleted(&permit(), "c", &service).await.unwrap();
        assert_eq!(cloud.get_load_balancer("c", &service).await.unwrap(), None);
    }
    assert_eq!(cloud.load_balancers().len(), 1);
}

#[tokio::test]
async fn routes_are_created_listed_by_cluster_and_deleted() {
    let cloud = Memory::default();
    let route = Route { target_node: "a".into(), destination_cidr: "10.1.0.0/24".into(), ..Route::default() };
    cloud.create_route(&permit(), "c", "uid", &route).await.unwrap();
    assert!(cloud.create_route(&permit(), "c", "uid", &route).await.is_err(), "it exists already");
    cloud.create_route(&permit(), "d", "uid", &route).await.unwrap();
    let listed = cloud.list_routes("c").await.unwrap();
    assert_eq!(listed, [Route { name: "c-uid-10.1.0.0/24".into(), ..route }]);
    cloud.delete_route(&permit(), "c", &listed[0]).await.unwrap();
    assert!(cloud.list_routes("c").await.unwrap().is_empty());
    assert_eq!(cloud.list_routes("d").await.unwrap().len(), 1);
}

#[tokio::test]
async fn clusters_are_listed_with_their_control_plane() {
    let cloud = Memory::default();
    cloud.put_cluster("c", "192.0.2.1");
    let clusters = cloud.clusters().unwrap();
    assert_eq!(clusters.list_clusters().await.unwrap(), ["c"]);
    assert_eq!(clusters.master("c").await.unwrap(), "192.0.2.1");
    assert!(clusters.master("d").await.is_err());
}
