//! Reasons of the node controller, in addition to the shared ones.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// The cloud reports no `InternalIP` or `ExternalIP`.
    NoAddresses,
    /// The annotation with the kubelet's `--node-ip` cannot be parsed.
    ProvidedNodeIPNotValid,
    /// The VM does not have the kubelet's `--node-ip`.
    ProvidedNodeIPNotOnVM,
    /// The VM's zone or region differs from the Node's labels, which stay.
    ZoneLabelsDiffer,
    /// The VM's instance type differs from the Node's labels, which stay.
    InstanceTypeDiffers,
}
