//! The vSphere provider.

pub mod addresses;
pub mod config;
pub mod guest_metadata;
pub mod instance_type;
pub mod provider_id;
mod yaml;
pub mod zones;
