//! The controller between a cloud and an API server in memory, on a paused clock: what happens between one step and the
//! next, which the pure parts do not see.

mod counting;
mod deletion;
mod deletion_policy;
pub mod server;
mod taints;
pub mod world;
