//! Reads: the node from the cache, and what the provider knows of its machine.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;
use std::time::Duration;

use crate::cloud::{CloudProvider, InstanceMetadata, InstancesV2, Presence, Reason, Unknown, node};

/// A provider answers from what it knows; one that takes longer than this hangs.
const PROVIDER_LIMIT: Duration = Duration::from_secs(30);

/// All that a decision about one node rests on.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// There is no such node.
    Missing,
    /// Its provider ID belongs to another provider.
    Foreign,
    /// It is ours to look after.
    Ours(Ours),
}

/// A node that is ours to look after.
#[derive(Clone, Debug, PartialEq)]
pub struct Ours {
    /// The node.
    pub node: Arc<Node>,
    /// What is known of its machine.
    pub instance: Box<Presence<InstanceMetadata>>,
    /// When this was so, by the clock that others read, too.
    pub at: Timestamp,
    /// For how long this process knows that the node waits to be initialised; zero for one that does not.
    pub waited: Duration,
    /// Whether the record of a Ready node may follow its machine to another place now.
    pub may_follow: bool,
}

/// Gathers what is known about `node`, which waited for so long. Never takes longer than the provider's time limit.
pub async fn observe(
    node: Option<Arc<Node>>,
    waited: Duration,
    may_follow: bool,
    provider: &dyn CloudProvider,
    instances: &dyn InstancesV2,
) -> Observed {
    let Some(node) = node else { return Observed::Missing };
    let provider_id = node::provider_id(&node);
    if !provider_id.is_empty() && !provider.owns_provider_id(provider_id) {
        return Observed::Foreign;
    }
    let instance = match tokio::time::timeout(PROVIDER_LIMIT, instances.instance_metadata(&node)).await {
        Ok(instance) => instance,
        Err(_) => Presence::Unknown(Unknown::new(
            Reason::ProviderTimeout,
            format!("the cloud provider gave no answer within {} s", PROVIDER_LIMIT.as_secs()),
        )),
    };
    Observed::Ours(Ours { node, instance: Box::new(instance), at: Timestamp::now(), waited, may_follow })
}
