//! The suite for the memory provider, with both instance contracts, and tests of features that only this provider has.

use async_trait::async_trait;
use ccm::cloud::node::addresses::INTERNAL_IP;
use ccm::cloud::{
    CloudProvider, Error, InstanceEvent, InstanceMetadata, LoadBalancer as _, PowerState, ServiceEvent, Unknown,
};
use ccm::controllers::service::cloud_calls::update_nodes;
use doubles::memory::{ANNOTATION_DECLINED, Call, Contract, Instance, Memory};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{NodeAddress, Service};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use super::load_balancers;
use super::suite::{self, World, permit};
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

    async fn set_network_fails(&self, fails: bool) -> bool {
        for call in [Call::GetLoadBalancer, Call::DeleteLoadBalancer, Call::ListRoutes] {
            match fails {
                true => self.0.fail(call, || Error::other("the suite says so")),
                false => self.0.end_failures(call),
            }
        }
        true
    }

    async fn load_balancer_objects(&self) -> usize {
        self.0.load_balancer_objects()
    }

    async fn nodes_behind(&self, service: &Service) -> Option<Vec<String>> {
        let balancers = self.0.load_balancers();
        let behind = balancers.into_iter().find(|balancer| balancer.service.metadata.uid == service.metadata.uid);
        Some(behind.map(|balancer| balancer.nodes).unwrap_or_default())
    }

    fn declined_service(&self) -> Option<Service> {
        let mut service = load_balancers::service("elsewhere");
        service.metadata.annotations = Some([(ANNOTATION_DECLINED.to_owned(), String::new())].into());
        Some(service)
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

#[tokio::test]
async fn a_load_balancer_is_what_was_ensured_last() {
    let cloud = Memory::default();
    let mut service = load_balancers::service("123e4567-e89b-12d3-a456-426614174000");
    assert_eq!(cloud.load_balancer_name("c", &service), "a123e4567e89b12d3a45642661417400");
    let nodes = ["b", "a"].map(|name| Arc::new(suite::node(name, "", "")));
    cloud.ensure_load_balancer(&permit(), "c", &service, &nodes).await.unwrap();
    service.spec.as_mut().unwrap().external_ips = Some(vec!["192.0.2.1".into()]);
    cloud.ensure_load_balancer(&permit(), "c", &service, &nodes).await.unwrap();
    let balancers = cloud.load_balancers();
    let [balancer] = balancers.as_slice() else { panic!("{balancers:?}") };
    assert_eq!((&balancer.service, balancer.nodes.as_slice()), (&service, ["a".to_owned(), "b".to_owned()].as_slice()));
}

#[tokio::test(start_paused = true)]
async fn calls_fail_take_time_and_are_counted_as_the_test_says() {
    let cloud = Memory::default();
    let service = load_balancers::service("1");
    let ensure = async || cloud.ensure_load_balancer(&permit(), "c", &service, &[]).await;
    cloud.fail(Call::EnsureLoadBalancer, || Error::ImplementedElsewhere);
    assert!(matches!(ensure().await, Err(Error::ImplementedElsewhere)));
    assert_eq!(cloud.load_balancer_objects(), 0);
    cloud.end_failures(Call::EnsureLoadBalancer);
    cloud.set_call_latency(Duration::from_secs(3));
    let began = Instant::now();
    ensure().await.unwrap();
    assert_eq!((began.elapsed(), cloud.count(Call::EnsureLoadBalancer)), (Duration::from_secs(3), 2));

    cloud.set_deletes_by_half(true);
    assert!(cloud.ensure_load_balancer_deleted(&permit(), "c", &service).await.is_err());
    assert_eq!(cloud.get_load_balancer("c", &service).await.unwrap(), None);
    assert_eq!(cloud.load_balancer_objects(), 1, "what is left is not seen by who asks for the load balancer");
    cloud.set_deletes_by_half(false);
    cloud.ensure_load_balancer_deleted(&permit(), "c", &service).await.unwrap();
    assert_eq!(cloud.load_balancer_objects(), 0);
}

#[tokio::test]
async fn capabilities_go_and_come_back() {
    let cloud = Memory::default();
    let mut changes = cloud.capability_changes();
    cloud.set_has_load_balancers(false);
    assert_eq!(changes.next().await, Some(()));
    assert!(cloud.load_balancer().is_none() && cloud.routes().is_some());
    cloud.set_has_load_balancers(true);
    assert!(cloud.load_balancer().is_some());
}

#[tokio::test]
async fn without_a_call_for_all_services_each_is_called() {
    let cloud = Memory::default();
    cloud.set_updates_separately(true);
    let services = [Arc::new(load_balancers::service("1")), Arc::new(load_balancers::service("2"))];
    let results = update_nodes(&cloud, &permit(), "c", &services, &[]).await;
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert_eq!((cloud.count(Call::UpdateLoadBalancer), cloud.count(Call::UpdateNodes)), (2, 0));
}

#[tokio::test]
async fn who_falls_behind_syncs_all_services_again() {
    let cloud = Memory::default();
    let mut events = cloud.load_balancer().unwrap().subscribe();
    let event = || ServiceEvent::Service { namespace: "default".into(), name: "a".into() };
    cloud.announce_service(event());
    assert_eq!(events.next().await, Some(event()));
    (0..1000).for_each(|_| cloud.announce_service(event()));
    assert_eq!(events.next().await, Some(ServiceEvent::All));
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
