//! Load balancers of any provider, including providers without bulk calls, and the time limits of the calls.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};

use crate::cloud::{CloudProvider, Error, LeaderToken, LoadBalancer, LoadBalancerFleet};

/// Time limit of a cloud call about one Service.
pub(super) const CLOUD_LIMIT: Duration = Duration::from_secs(60);
/// Time limit of all calls of a round, for a provider without a fleet.
const ALL_LIMIT: Duration = Duration::from_secs(240);
/// Number of concurrent calls in a round, for a provider without a fleet.
const UPDATES_AT_ONCE: usize = 8;

/// Returns the provider's fleet; `None` if the provider has no load balancers. For load balancers without a fleet,
/// returns an adapter that updates the Services with concurrent calls.
pub fn fleet_of(provider: &dyn CloudProvider) -> Option<Arc<dyn LoadBalancerFleet>> {
    provider.load_balancer_fleet().or_else(|| Some(Arc::new(OneByOne(provider.load_balancer()?))))
}

/// Adapts a [`LoadBalancer`] to a fleet. Uses the default methods of [`LoadBalancerFleet`] for all other calls.
struct OneByOne(Arc<dyn LoadBalancer>);

#[async_trait]
impl LoadBalancerFleet for OneByOne {
    async fn update_nodes(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        services: &[Arc<Service>],
        nodes: &[Arc<Node>],
    ) -> Vec<Result<(), Error>> {
        let update = |service: Arc<Service>| async move {
            within(CLOUD_LIMIT, self.0.update_load_balancer(permit, cluster_name, &service, nodes)).await
        };
        let updates = futures::stream::iter(services.to_vec()).map(update).buffered(UPDATES_AT_ONCE);
        // At the time limit, the results so far are returned.
        updates.take_until(tokio::time::sleep(ALL_LIMIT)).collect().await
    }
}

#[async_trait]
impl LoadBalancer for OneByOne {
    async fn get_load_balancer(
        &self,
        cluster_name: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, Error> {
        self.0.get_load_balancer(cluster_name, service).await
    }

    fn load_balancer_name(&self, cluster_name: &str, service: &Service) -> String {
        self.0.load_balancer_name(cluster_name, service)
    }

    async fn ensure_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error> {
        self.0.ensure_load_balancer(permit, cluster_name, service, nodes).await
    }

    async fn update_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), Error> {
        self.0.update_load_balancer(permit, cluster_name, service, nodes).await
    }

    async fn ensure_load_balancer_deleted(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
    ) -> Result<(), Error> {
        self.0.ensure_load_balancer_deleted(permit, cluster_name, service).await
    }
}

pub(super) async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(timed_out(limit)))
}

pub(super) fn timed_out(limit: Duration) -> Error {
    let message = format!("the cloud provider gave no answer within {} s", limit.as_secs());
    Error::Unavailable { message, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::LeaderToken;
    use futures::FutureExt as _;
    use serde_json::json;

    /// A cloud that never answers for Services with the name prefix `slow`.
    struct Cloud;

    #[async_trait]
    impl LoadBalancer for Cloud {
        async fn get_load_balancer(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, Error> {
            Ok(None)
        }

        fn load_balancer_name(&self, _: &str, _: &Service) -> String {
            String::new()
        }

        async fn ensure_load_balancer(
            &self,
            _: &LeaderToken,
            _: &str,
            _: &Service,
            _: &[Arc<Node>],
        ) -> Result<LoadBalancerStatus, Error> {
            Err(Error::NotImplemented)
        }

        async fn update_load_balancer(
            &self,
            _: &LeaderToken,
            _: &str,
            service: &Service,
            _: &[Arc<Node>],
        ) -> Result<(), Error> {
            match service.metadata.name.as_deref().is_some_and(|name| name.starts_with("slow")) {
                true => std::future::pending().await,
                false => Ok(()),
            }
        }

        async fn ensure_load_balancer_deleted(&self, _: &LeaderToken, _: &str, _: &Service) -> Result<(), Error> {
            Err(Error::NotImplemented)
        }
    }

    fn services(name: &str, count: usize) -> Vec<Arc<Service>> {
        let service = |number| json!({"metadata": {"name": format!("{name}-{number}")}});
        (0..count).map(|number| Arc::new(serde_json::from_value(service(number)).unwrap())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_hold_up_neither_the_others_nor_the_round() {
        let (fleet, permit) = (OneByOne(Arc::new(Cloud)), LeaderToken::new(|| true, || std::future::pending().boxed()));
        let update = async |services: &[Arc<Service>]| {
            let began = tokio::time::Instant::now();
            let results = fleet.update_nodes(&permit, "c", services, &[]).await;
            (results.iter().map(Result::is_ok).collect::<Vec<_>>(), began.elapsed())
        };
        let few = [services("slow", 2), services("quick", 20)].concat();
        assert_eq!(update(&few).await, ([vec![false; 2], vec![true; 20]].concat(), CLOUD_LIMIT));
        // When the time limit of the round ends, the results so far are kept.
        let many = [services("quick", 20), services("slow", 100)].concat();
        let (results, took) = update(&many).await;
        assert!(results.len() < many.len() && results.iter().take(20).all(|is_ok| *is_ok), "{results:?}");
        assert_eq!(took, ALL_LIMIT);
    }
}
