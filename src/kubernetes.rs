//! All code that talks to the API server, except the controllers.

pub mod access;
pub mod call;
pub mod client;
pub mod cluster;
mod dated_lease;
pub mod deletion_lease;
pub mod events;
pub mod leader_election;
pub mod leadership;
pub mod login_ledger;
pub mod patch;
pub mod permissions;
pub mod request_window;
pub mod secrets;
pub mod stores;
mod watch;
pub mod workloads;
