//! NSX: the configuration of the connection, of load balancers and of routes, by the vectors of the Go program. Logins
//! and calls on a fake NSX. Tests with a paused clock or with unusual answers use a transport in memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "these are tests; the table of a replay is printed"
)]

mod client;
mod config;
mod load_balancers;
mod login;
mod login_counts;
mod matrix;
mod memory;
mod permit;
mod recordings;
mod routes;
mod world;
