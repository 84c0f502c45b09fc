//! The controller between a cloud and an API server in memory, with a paused clock. Tests the interleaving of steps,
//! which tests of the pure parts cannot cover.

mod counting;
mod deletion;
mod deletion_policy;
mod history;
pub mod leases;
mod pause;
mod pause_race;
pub mod server;
mod taints;
pub mod world;
