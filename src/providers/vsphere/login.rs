//! Logging in to vCenter and NSX: which credentials there are, which one is tried next, and when.

pub mod credentials;
pub mod policy;
pub mod retry;
pub(in crate::providers::vsphere) mod schedule;
