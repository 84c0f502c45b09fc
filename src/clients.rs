//! Network clients. They take and return values of their own types and know nothing of Nodes, Services or the cluster.

pub mod http;
pub mod nsx;
pub mod object;
pub mod session_manager;
pub mod sts;
pub mod token;
pub mod vapi;
pub mod vim;
