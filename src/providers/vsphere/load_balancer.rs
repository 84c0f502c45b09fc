//! Load balancers of Services on NSX, as pure parts: how the objects are written, whose they are, and what the next change
//! is. Nothing calls NSX for load balancers yet: a Service of type `LoadBalancer` gets none.
//!
//! ```text
//!   Service ──▶ wanted ──┐
//!                        ├──▶ plan ──▶ the next step
//!   contents ─▶ ownership┘
//! ```
//!
//! Mirrors `pkg/cloudprovider/vsphere/loadbalancer`.

pub mod contents;
pub mod layout;
pub mod members;
pub mod objects;
pub mod ownership;
pub mod plan;
pub mod wanted;
