//! Reasons why a Service has no load balancer, or an outdated one, in addition to the shared reasons.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// `--node-selector` matches no Node, so the load balancer keeps its Nodes.
    NoSelectedNodes,
    /// Another program may have set the finalizer, so it stays.
    FinalizerNotOurs,
    /// A Node changes too often for load balancers to follow each change.
    NodeFlapping,
    /// The provider has no load balancers.
    LoadBalancerNotConfigured,
}
