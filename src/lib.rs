//! `vsphere-cloud-controller-manager`: connects a Kubernetes cluster to vSphere.
//!
//! The modules and their dependencies, checked by `tests/architecture.rs`. All modules may use `base`, which uses none:
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

// Unit tests include files of `tests/doubles` as modules. These files import this crate as `ccm`.
#[cfg(test)]
extern crate self as ccm;
