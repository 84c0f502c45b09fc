//! Access of the controllers to the cloud's instances: answers within a time limit.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::UnsupportedController;
use crate::cloud::{CloudProvider, InstanceMetadata, InstancesV2, Power, PowerState, Presence, Unknown, legacy};
use crate::controllers::reason;
use crate::runtime::tasks::contain;

/// Time limit of one provider call, except `refresh`. After this time, the answer is `Unknown` with the reason
/// `ProviderTimeout`.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Time limit of `InstancesV2::refresh`. A provider's own limit is shorter.
pub(super) const CONFIRM_LIMIT: Duration = Duration::from_secs(6);

/// The provider and its instances interface. Cheap to clone.
#[derive(Clone)]
pub struct BoundedInstances {
    pub(super) provider: Arc<dyn CloudProvider>,
    v2: Arc<dyn InstancesV2>,
}

impl BoundedInstances {
    /// Returns the instances of the provider, or an error if the provider has none.
    pub fn of(provider: Arc<dyn CloudProvider>) -> Result<Self, UnsupportedController> {
        let v2 = legacy::instances_v2_of(&*provider).ok_or(UnsupportedController(provider.provider_name()))?;
        Ok(Self { provider, v2 })
    }

    /// Returns whether the instance of the Node exists.
    pub async fn presence(&self, node: &Node) -> Presence {
        within_limit(self.v2.instance_exists(node)).await
    }

    /// Returns the metadata of the instance.
    pub async fn metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        within_limit(self.v2.instance_metadata(node)).await
    }

    /// Returns the power state, or `None` if the power state is not proven.
    pub async fn power(&self, node: &Node) -> Option<Power> {
        within_limit(self.v2.instance_power(node)).await.found()
    }

    /// Reads the power state from the cloud now. Returns the reason if the power state is not proven.
    pub async fn fresh_power(&self, node: &Node) -> Result<PowerState, Unknown> {
        match within_limit(self.v2.read_instance_power(node)).await {
            Presence::Exists(state) => Ok(state),
            Presence::Unknown(unknown) => Err(unknown),
            Presence::Absent(proof) => Err(Unknown::transient(reason::InstanceAbsent, proof.to_string())),
        }
    }

    /// Makes the provider confirm its cached data with the cloud, within `CONFIRM_LIMIT`. Runs at the beginning of a
    /// term, because the cached data may be older than the writes of the previous leader. The provider marks
    /// unconfirmed data as stale.
    pub(super) async fn refresh(&self) {
        let v2 = Arc::clone(&self.v2);
        let confirmed = contain(async move { v2.refresh().await });
        match tokio::time::timeout(CONFIRM_LIMIT, confirmed).await {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => tracing::error!("asking the cloud whether all is as known failed: {panic}"),
            Err(_) => {
                tracing::warn!("the cloud did not say within {} s whether all is as known", CONFIRM_LIMIT.as_secs());
            }
        }
    }
}

async fn within_limit<T>(answer: impl Future<Output = Presence<T>>) -> Presence<T> {
    match tokio::time::timeout(ANSWER_LIMIT, answer).await {
        Ok(answer) => answer,
        Err(_) => Presence::Unknown(Unknown::new(
            reason::ProviderTimeout,
            format!("the cloud provider gave no answer within {} s", ANSWER_LIMIT.as_secs()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_hangs_has_said_nothing() {
        let answer: Presence = within_limit(std::future::pending()).await;
        let Presence::Unknown(unknown) = answer else { panic!("{answer:?}") };
        assert_eq!(unknown.reason, reason::ProviderTimeout);
    }
}
