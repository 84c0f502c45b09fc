//! The daemon's binary between a real API server and a vCenter simulator: joins, changes, mistakes, restarts, leader
//! changes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure of a test's own step is a failed test; what was measured is printed"
)]

mod access;
mod addresses;
mod admin;
mod adoption;
mod chaos;
mod claims;
mod cluster;
mod commands;
mod crash;
mod credentials;
mod deletion;
mod dual_stack;
mod handover;
mod image;
mod invariants;
mod join;
mod labels;
mod leaks;
mod load_balancers;
mod logging;
mod manifests;
mod metrics;
mod migration;
mod mistakes;
mod nsx;
mod pages;
mod proxy;
mod race;
mod reload;
mod replicas;
mod restart;
mod rights;
mod secrets;
mod secure_port;
mod services;
mod silence;
mod start;
mod vcenters;
mod writes;
