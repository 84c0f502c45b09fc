//! One test suite for all providers. Each provider has a `World`, with which the suite prepares machines, and one test
//! function that runs [`suite::all`].

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

mod load_balancers;
mod memory;
mod nsx;
mod suite;
mod vsphere;
#[expect(dead_code, reason = "the vCenter suite starts simulators with it, too")]
#[path = "../vcenter/world.rs"]
mod world;
