//! Network clients. The clients use only their own types, and do not depend on Nodes, Services or the cluster.

pub mod http;
pub mod nsx;
pub mod object;
pub mod session_manager;
pub mod sts;
pub mod timeouts;
pub mod token;
pub mod vapi;
pub mod vim;
