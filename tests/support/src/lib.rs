//! Starts and stops the real components for tests and the demo.
//!
//! Nothing here is stubbed: [`ApiServer`] is etcd and kube-apiserver, [`Vcenter`] is govmomi's simulator behind an HTTP
//! layer that counts calls and injects faults, [`Daemon`] is the built binary. Each runs on its own loopback ports and
//! ends with the test, even if the test is killed. See `docs/testing.md`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of the harness is a failed test, and says what failed"
)]

pub mod api_proxy;
pub mod api_server;
pub mod clock;
pub mod command;
pub mod components;
pub mod connect_proxy;
pub mod controller_manager;
pub mod daemon;
pub mod demo;
pub mod environment;
pub mod eventually;
pub mod fake_nsx;
mod fake_server;
pub mod fake_vcenter;
pub mod file;
pub mod heavy;
pub mod log;
pub mod measure;
pub mod nodes;
pub mod pages;
pub mod process;
pub mod rbac;
pub mod real_node;
pub mod report;
pub mod sandbox;
pub mod sbom;
pub mod scheduler;
pub mod supervisor;
pub mod vcenter;
pub mod vcenter_server;
pub mod worker;

pub use api_proxy::{ApiProxy, ProxyCounts};
pub use api_server::{ApiServer, AuditEvent};
pub use clock::Clock;
pub use daemon::Daemon;
pub use eventually::{eventually, eventually_every, unique};
pub use fake_nsx::FakeNsx;
pub use fake_vcenter::{Denial, FakeVcenter, Fault, LoginAttempt, LoginOutcome, Machine, Model, Trouble, Unreadable};
pub use file::{copy_folder, replace_file};
pub use heavy::Heavy;
pub use log::Log;
pub use nodes::KubeletNode;
pub use vcenter::{Counts, Nic, Object, Rule, Scenario, Vcenter, Vm, VmChange};
pub use vcenter_server::VcenterServer;
