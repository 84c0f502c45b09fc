//! The reasons of this controller, beside those of all controllers.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// The cloud reports no `InternalIP` or `ExternalIP`.
    NoAddresses,
    /// The annotation with the kubelet's `--node-ip` cannot be read.
    ProvidedNodeIPNotValid,
    /// The machine does not have the kubelet's `--node-ip`.
    ProvidedNodeIPNotOnVM,
    /// The zone or region of the machine is not that of the Node's labels, which stay.
    ZoneLabelsDiffer,
    /// The instance type of the machine is not that of the Node's labels, which stay.
    InstanceTypeDiffers,
}
