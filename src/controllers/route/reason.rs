//! Reasons of the route controller, in addition to the shared reasons.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// A pod network of a Node is not within `--cluster-cidr`.
    PodNetworkForeign,
    /// A pod network of a Node overlaps a network of an older Node, or the destination of another Node's route that
    /// must stay.
    PodNetworkInUse,
}
