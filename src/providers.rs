//! The clouds.

pub mod vsphere;
