//! All code that talks to the API server, except the controllers.

pub mod access;
pub mod call;
pub mod client;
pub mod cluster;
pub mod events;
pub mod leader_election;
pub mod leadership;
pub mod login_ledger;
pub mod patch;
pub mod permissions;
pub mod secrets;
pub mod stores;
mod watch;
