//! `vsphere-cloud-controller-manager`: connects a Kubernetes cluster to vSphere.
//!
//! The eight modules, and who may know whom (`tests/architecture.rs` checks it); all may use `base`, which uses none:
//!
//! ```text
//! main ─▶ app ─▶ controllers ─▶ cloud ◀─ providers ─▶ clients
//!           │         │           ▲
//!           │         ▼           │
//!           ├──▶ kubernetes ──────┘
//!           └──▶ runtime          (controllers and kubernetes may use runtime)
//! ```

pub mod app;
pub mod base;
pub mod clients;
pub mod cloud;
pub mod controllers;
pub mod kubernetes;
pub mod providers;
pub mod runtime;

// A test double that implements a trait of this crate is a module of the unit tests, and names the crate as other tests do.
#[cfg(test)]
extern crate self as ccm;
