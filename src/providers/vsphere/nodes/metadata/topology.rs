//! Pure: the parts of a VM's location that its Node shows as labels, and the names of these labels.

pub mod labels;

use std::collections::BTreeSet;

/// The default prefix of these labels.
pub const PREFIX: &str = "topology.vsphere-ccm.dev/";

/// One level of a VM's location in vCenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopologyPlace {
    /// The vCenter.
    Vcenter,
    /// The datacenter.
    Datacenter,
    /// The cluster of the VM's host; a standalone host has none.
    Cluster,
    /// The ESXi host.
    EsxiHost,
    /// The resource pool.
    ResourcePool,
    /// The folder.
    Folder,
    /// The datastore of the VM's home directory.
    Datastore,
}

impl TopologyPlace {
    /// All levels.
    pub const ALL: [TopologyPlace; 7] = [
        TopologyPlace::Vcenter,
        TopologyPlace::Datacenter,
        TopologyPlace::Cluster,
        TopologyPlace::EsxiHost,
        TopologyPlace::ResourcePool,
        TopologyPlace::Folder,
        TopologyPlace::Datastore,
    ];

    /// The name in `--topology-labels` and in the label key.
    pub fn word(self) -> &'static str {
        match self {
            TopologyPlace::Vcenter => "vcenter",
            TopologyPlace::Datacenter => "datacenter",
            TopologyPlace::Cluster => "cluster",
            TopologyPlace::EsxiHost => "esxi-host",
            TopologyPlace::ResourcePool => "resource-pool",
            TopologyPlace::Folder => "folder",
            TopologyPlace::Datastore => "datastore",
        }
    }
}

/// `--topology-labels` and `--topology-label-prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyLabels {
    /// The levels shown as labels; none by default.
    pub objects: BTreeSet<TopologyPlace>,
    /// The prefix of the keys: a DNS name and a slash.
    pub prefix: String,
}

impl TopologyLabels {
    /// The keys of all labels that Nodes get.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        self.objects.iter().map(|place| self.key(*place))
    }

    /// The key of the label for `place`.
    pub fn key(&self, place: TopologyPlace) -> String {
        format!("{}{}", self.prefix, place.word())
    }
}

/// No labels, with the default prefix.
impl Default for TopologyLabels {
    fn default() -> Self {
        Self { objects: BTreeSet::new(), prefix: PREFIX.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_prefix_and_the_word() {
        assert_eq!(TopologyLabels::default().key(TopologyPlace::EsxiHost), "topology.vsphere-ccm.dev/esxi-host");
    }
}
