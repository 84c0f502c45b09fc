//! Reads: what the provider says of a node's machine, within a limit.

use k8s_openapi::api::core::v1::Node;

use crate::cloud::{Power, PowerState, Presence, Reason, Unknown};
use crate::controllers::instances::{Instances, within_limit};

/// Whether the machine exists.
pub async fn presence(instances: &Instances, node: &Node) -> Presence {
    within_limit(instances.v2.instance_exists(node)).await
}

/// The machine's power state, where it is proven.
pub async fn power(instances: &Instances, node: &Node) -> Option<Power> {
    within_limit(instances.v2.instance_power(node)).await.found()
}

/// The machine's power state, asked of the cloud anew, or why it is not proven.
pub async fn fresh_power(instances: &Instances, node: &Node) -> Result<PowerState, Unknown> {
    match within_limit(instances.v2.read_instance_power(node)).await {
        Presence::Exists(state) => Ok(state),
        Presence::Unknown(unknown) => Err(unknown),
        Presence::Absent(proof) => Err(Unknown::passing(Reason::InstanceAbsent, proof.to_string())),
    }
}
