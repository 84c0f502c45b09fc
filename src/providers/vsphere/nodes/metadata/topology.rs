//! Pure: the levels of a VM's location that its Node has as labels, and the keys of these labels.

pub mod labels;

use std::collections::BTreeSet;

/// The default prefix of the label keys.
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

    /// Returns the name in `--topology-labels` and in the label key.
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

/// The settings `--topology-labels` and `--topology-label-prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyLabels {
    /// The levels that become labels; none by default.
    pub objects: BTreeSet<TopologyPlace>,
    /// The prefix of the keys: a DNS name and a slash.
    pub prefix: String,
}

impl TopologyLabels {
    /// Returns the keys of all labels that Nodes get.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        self.objects.iter().map(|place| self.key(*place))
    }

    /// Returns the key of the label for `place`.
    pub fn key(&self, place: TopologyPlace) -> String {
        format!("{}{}", self.prefix, place.word())
    }
}

/// Gives no labels and the default prefix.
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
