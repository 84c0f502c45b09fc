//! Tools to measure a cluster with many nodes, for `tests/bench`.
//!
//! They create nodes of real size without kubelets, measure when each of them is initialized and which writes were
//! made, and repeat the same writes with a plain client.

pub mod floor;
pub mod initialization;
pub mod kubelet;
pub mod steady_state;
pub mod writes;

use crate::Model;

/// Returns a vCenter with this many machines on tagged hosts.
#[must_use]
pub fn model(machines: usize) -> Model {
    let hosts = [("HostSystem", "host-1"), ("HostSystem", "host-2"), ("HostSystem", "host-3")];
    Model::small().vms(machines).tag("k8s-zone", "zone-a", &hosts).tag(
        "k8s-region",
        "region-1",
        &[("Datacenter", "dc-1")],
    )
}
