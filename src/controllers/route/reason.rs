//! The reasons of the route controller, beside those that all controllers give.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// The network of a node's pods is not within `--cluster-cidr`.
    PodNetworkForeign,
    /// The network of a node's pods is that of an older node, or of a route to another node that is not to be deleted.
    PodNetworkInUse,
}
