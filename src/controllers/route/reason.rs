//! The reasons of the route controller, beside those that all controllers give.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// A route to another node, which is not to be deleted, has the network of a node's pods.
    PodNetworkInUse,
}
