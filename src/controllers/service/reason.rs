//! The reasons of this controller, beside those of all controllers: why a Service has no load balancer, or none that is up
//! to date.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// `--node-selector` matches no Node, so that the load balancer keeps those that it has.
    NoSelectedNodes,
    /// Another program may have set the finalizer, so that it stays.
    FinalizerNotOurs,
    /// A Node changes so often that load balancers do not follow each change.
    NodeFlapping,
    /// The provider has no load balancers.
    LoadBalancerNotConfigured,
}
