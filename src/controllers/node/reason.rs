//! Reasons of the node controller, in addition to the shared reasons.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// The cloud reports no `InternalIP` or `ExternalIP`.
    NoAddresses,
    /// The annotation with the kubelet's `--node-ip` is not valid.
    ProvidedNodeIPNotValid,
    /// The VM does not have the IP address of the kubelet's `--node-ip`.
    ProvidedNodeIPNotOnVM,
    /// The zone or region of the VM differs from the labels of the Node. The labels stay.
    ZoneLabelsDiffer,
    /// The instance type of the VM differs from the labels of the Node. The labels stay.
    InstanceTypeDiffers,
}
