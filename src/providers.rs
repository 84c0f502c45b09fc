//! The clouds.

pub mod memory;
pub mod vsphere;
