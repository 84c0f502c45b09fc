//! The decisions of the route controller (`node-route-controller`): routes of the pod network. What calls the cloud and writes
//! to Nodes is not built yet, and nothing runs them.

pub mod condition;
pub mod plan;
