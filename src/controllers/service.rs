//! The decisions of the service controller (`service-lb-controller`): load balancers for Services. What calls the cloud and
//! writes to Services is not built yet, and nothing runs them.

pub mod inputs;
pub mod node_set;
pub mod plan;
