//! A real node: kubelet, containerd and the released image, with a real control plane and the vCenter simulator.
//!
//! Each test runs in its own sandbox (`support::sandbox`), which needs Linux, root, and the packages that `make
//! node-tools` installs. `make node-test` runs them; `make test` does not.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure of a test's own step is a failed test; what was measured is printed"
)]

mod addresses;
mod changes;
mod cluster;
mod control_group;
mod demo;
mod first_pod;
mod images;
mod install_forms;
mod journey;
mod leftovers;
mod lifecycle;
mod local_socket;
mod memory;
mod nodes;
mod placement;
mod pod;
mod probes;
mod replacement;
mod two_nodes;
