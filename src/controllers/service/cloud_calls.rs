//! Time limits of the calls to the provider's load balancers, and the update of the Nodes of several load balancers.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Service};

use crate::cloud::{Error, LeaderToken, LoadBalancer};

/// Time limit of a cloud call about one Service.
pub(super) const CLOUD_LIMIT: Duration = Duration::from_secs(60);
/// Time limit of all calls of a round, if the Services are updated separately.
const ALL_LIMIT: Duration = Duration::from_secs(240);
/// Number of concurrent calls in a round, if the Services are updated separately.
const UPDATES_AT_ONCE: usize = 8;

/// Sets the same Nodes for all Services, with one call if the provider has [`LoadBalancer::update_nodes`], and with
/// concurrent calls otherwise. Returns one result for each Service, in the same order. The last results are missing if
/// the time limit of the concurrent calls ends.
pub async fn update_nodes(
    balancer: &dyn LoadBalancer,
    permit: &LeaderToken,
    cluster_name: &str,
    services: &[Arc<Service>],
    nodes: &[Arc<Node>],
) -> Vec<Result<(), Error>> {
    if let Some(results) = balancer.update_nodes(permit, cluster_name, services, nodes).await {
        return results;
    }
    let update = |service: Arc<Service>| async move {
        let call = balancer.update_load_balancer(permit, cluster_name, &service, nodes);
        within(CLOUD_LIMIT, call).await
    };
    let updates = futures::stream::iter(services.to_vec()).map(update).buffered(UPDATES_AT_ONCE);
    updates.take_until(tokio::time::sleep(ALL_LIMIT)).collect().await
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
    use crate::cloud::Handling;
    use async_trait::async_trait;
    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::LoadBalancerStatus;
    use serde_json::json;

    /// A cloud with the required methods only. It never answers for Services with the name prefix `slow`.
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
        let permit = LeaderToken::new(|| true, || std::future::pending().boxed());
        let update = async |services: &[Arc<Service>]| {
            let began = tokio::time::Instant::now();
            let results = update_nodes(&Cloud, &permit, "c", services, &[]).await;
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

    #[test]
    fn a_provider_with_the_required_methods_only_handles_every_service_and_reads_every_annotation() {
        assert_eq!(Cloud.handles(&services("a", 1)[0]), Handling::Handled);
        assert_eq!(Cloud.annotation_prefixes(), [""]);
        assert!(!Cloud.needs_address_before_deletion());
    }
}
