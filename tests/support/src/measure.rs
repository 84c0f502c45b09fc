//! What measuring a cluster with many nodes needs; `tests/bench` is made of it.
//!
//! Nodes of real size without kubelets, when each of them was initialised, what was written, and the same writes by a
//! plain client.

pub mod floor;
pub mod initialisation;
pub mod kubelet;
pub mod steady_state;
pub mod writes;

use crate::Model;

/// A vCenter with this many machines, on tagged hosts.
#[must_use]
pub fn model(machines: usize) -> Model {
    let hosts = [("HostSystem", "host-1"), ("HostSystem", "host-2"), ("HostSystem", "host-3")];
    Model::small().vms(machines).tag("k8s-zone", "zone-a", &hosts).tag(
        "k8s-region",
        "region-1",
        &[("Datacenter", "dc-1")],
    )
}
