//! Reasons why the load balancer of a Service is missing or outdated, in addition to the shared reasons.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// `--node-selector` matches no Node, so the load balancer keeps its Nodes.
    NoSelectedNodes,
    /// The finalizer stays, because another program may have set it.
    FinalizerNotOurs,
    /// A Node changes too often for load balancers to follow each change.
    NodeFlapping,
    /// The provider has no load balancers.
    LoadBalancerNotConfigured,
}
