//! `vsphere-cloud-controller-manager`: connects a Kubernetes cluster to vSphere.
//!
//! The eight modules and their dependencies (`tests/architecture.rs` checks them); all may use `base`, which uses none:
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

// Unit tests include files of `tests/doubles` as modules, which name this crate as integration tests do.
#[cfg(test)]
extern crate self as ccm;
