//! At the beginning of a term: what this process knows of the cloud may be older than what the leader before it wrote.

use std::sync::Arc;
use std::time::Duration;

use crate::cloud::InstancesV2;
use crate::runtime::tasks::contain;

/// For how long a term waits for the cloud to say whether all is as known. A provider takes less.
pub(super) const CONFIRM_LIMIT: Duration = Duration::from_secs(6);

/// Has the provider ask whether all is as it knows it, before anything is written. Never longer than the limit: what is
/// not confirmed is in doubt.
pub(super) async fn confirm(instances: &Arc<dyn InstancesV2>) {
    let instances = Arc::clone(instances);
    let confirmed = contain(async move { instances.confirm().await });
    match tokio::time::timeout(CONFIRM_LIMIT, confirmed).await {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => tracing::error!("asking the cloud whether all is as known failed: {panic}"),
        Err(_) => tracing::warn!("the cloud did not say within {} s whether all is as known", CONFIRM_LIMIT.as_secs()),
    }
}
