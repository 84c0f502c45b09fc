//! The selected cloud provider and its settings. The flags and files of a provider are checked only if it is selected.

use super::{SettingsCheck, Vsphere, flags};
use crate::app::catalogue::{VSPHERE, VSPHERE_PARAVIRTUAL};
use std::collections::BTreeSet;

/// The settings of the selected cloud provider.
#[derive(Debug)]
pub enum ProviderSettings {
    /// The provider for vCenter.
    Vsphere(Vsphere),
}

impl ProviderSettings {
    /// Returns the name in `--cloud-provider`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Vsphere(_) => VSPHERE,
        }
    }

    /// Returns the topology labels that the provider sets on Nodes.
    pub fn topology_labels(&self) -> BTreeSet<String> {
        match self {
            Self::Vsphere(vsphere) => vsphere.options.topology.keys().collect(),
        }
    }

    /// Returns true if the provider compares addresses of Nodes with addresses of the API server.
    pub fn needs_api_server_addresses(&self) -> bool {
        match self {
            Self::Vsphere(vsphere) => vsphere.options.demotes_virtual_ips,
        }
    }
}

impl SettingsCheck<'_> {
    /// Returns the settings of the provider; `None` if the provider is unknown or `--cloud-config` is invalid.
    pub(super) fn provider(&mut self) -> Option<ProviderSettings> {
        let name = self.options.text(flags::CLOUD_PROVIDER);
        let reason = match name {
            VSPHERE => return self.vsphere().map(ProviderSettings::Vsphere),
            VSPHERE_PARAVIRTUAL => "this provider is not implemented; only \"vsphere\" is supported",
            "" => "required; only \"vsphere\" is supported",
            _ => "unknown provider; only \"vsphere\" is supported (vsphere-paravirtual is not implemented)",
        };
        self.invalid(flags::CLOUD_PROVIDER, name, reason);
        None
    }
}
