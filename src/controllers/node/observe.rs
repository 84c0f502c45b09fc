//! Reads: the node from the cache, and what the provider knows of its machine.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;
use std::time::Duration;

use crate::cloud::{InstanceMetadata, Presence};
use crate::controllers::instances::Instances;

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
pub async fn observe(node: Option<Arc<Node>>, waited: Duration, may_follow: bool, instances: &Instances) -> Observed {
    let Some(node) = node else { return Observed::Missing };
    if !instances.owns(&node) {
        return Observed::Foreign;
    }
    let instance = Box::new(instances.metadata(&node).await);
    Observed::Ours(Ours { node, instance, at: Timestamp::now(), waited, may_follow })
}
