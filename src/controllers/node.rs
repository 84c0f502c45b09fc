//! The node controller (`cloud-node-controller`): initialises nodes and keeps their addresses true.

pub mod metrics;
pub mod observe;
pub mod plan;
