//! The chosen cloud provider and its settings. Each provider reads and checks its own flags and files here, and only
//! when it is chosen; `app` builds it from the result.

use super::{SettingsCheck, Vsphere};
use crate::app::catalogue::{VSPHERE, VSPHERE_PARAVIRTUAL};
use std::collections::BTreeSet;
use std::path::Path;

/// The settings of the chosen cloud provider.
#[derive(Debug)]
pub enum ProviderSettings {
    /// vCenter.
    Vsphere(Vsphere),
}

impl ProviderSettings {
    /// The name in `--cloud-provider`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Vsphere(_) => VSPHERE,
        }
    }

    /// The file of `--cloud-config`.
    pub fn cloud_config(&self) -> &Path {
        match self {
            Self::Vsphere(vsphere) => &vsphere.file.path,
        }
    }

    /// The topology labels of Nodes that the provider sets.
    pub fn topology_labels(&self) -> BTreeSet<String> {
        match self {
            Self::Vsphere(vsphere) => vsphere.options.topology.keys().collect(),
        }
    }

    /// Whether the provider compares addresses of Nodes with those of the API server.
    pub fn needs_api_server_addresses(&self) -> bool {
        match self {
            Self::Vsphere(vsphere) => vsphere.options.demotes_virtual_ips,
        }
    }
}

impl SettingsCheck<'_> {
    /// Parses and checks the settings of the provider of `--cloud-provider` only.
    pub(super) fn provider(&mut self) -> Option<ProviderSettings> {
        let name = self.options.text("cloud-provider");
        let reason = match name {
            VSPHERE => return self.vsphere().map(ProviderSettings::Vsphere),
            VSPHERE_PARAVIRTUAL => "this provider is not implemented; only \"vsphere\" is supported",
            "" => "required; only \"vsphere\" is supported",
            _ => "unknown provider; only \"vsphere\" is supported (vsphere-paravirtual is not implemented)",
        };
        self.wrong("cloud-provider", name, reason);
        None
    }
}
