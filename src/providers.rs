//! The clouds.

pub mod provider_id;
pub mod vsphere;
