//! Reads: what the provider says of a node's machine, within a limit.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use crate::cloud::{InstancesV2, Power, PowerState, Presence, Reason, Unknown};

/// A provider that takes longer than this hangs.
const PROVIDER_LIMIT: Duration = Duration::from_secs(30);

/// Whether the machine exists.
pub async fn presence(instances: &dyn InstancesV2, node: &Node) -> Presence {
    within_limit(instances.instance_exists(node)).await
}

/// The machine's power state, where it is proven.
pub async fn power(instances: &dyn InstancesV2, node: &Node) -> Option<Power> {
    within_limit(instances.instance_power(node)).await.found()
}

/// The machine's power state, asked of the cloud anew, or why it is not proven.
pub async fn fresh_power(instances: &dyn InstancesV2, node: &Node) -> Result<PowerState, Unknown> {
    match within_limit(instances.read_instance_power(node)).await {
        Presence::Exists(state) => Ok(state),
        Presence::Unknown(unknown) => Err(unknown),
        Presence::Absent(proof) => Err(Unknown::passing(Reason::InstanceAbsent, proof.to_string())),
    }
}

async fn within_limit<T>(answer: impl Future<Output = Presence<T>>) -> Presence<T> {
    match tokio::time::timeout(PROVIDER_LIMIT, answer).await {
        Ok(answer) => answer,
        Err(_) => Presence::Unknown(Unknown::new(
            Reason::ProviderTimeout,
            format!("the cloud provider gave no answer within {} s", PROVIDER_LIMIT.as_secs()),
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
        assert_eq!(unknown.reason, Reason::ProviderTimeout);
    }
}
