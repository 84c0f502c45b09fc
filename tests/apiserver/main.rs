//! Controllers, clients and leader election with a real API server, and servers with real connections.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure of a test's own step is a failed test; what was measured is printed"
)]

mod access;
mod admin;
mod credentials;
mod driver;
mod events;
mod leader_election;
mod lifecycle;
mod login_ledger;
mod node;
mod route;
mod secrets;
mod service;
mod stores;
