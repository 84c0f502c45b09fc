//! Pure: which places of a virtual machine its node shows as labels, and how those labels are called.

pub mod labels;

use std::collections::BTreeSet;

/// The prefix of these labels where no other is asked for.
pub const PREFIX: &str = "topology.vsphere-ccm.dev/";

/// A place of a virtual machine in vCenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopologyPlace {
    /// The vCenter.
    Vcenter,
    /// The datacenter.
    Datacenter,
    /// The cluster of its host; a host may stand alone.
    Cluster,
    /// The ESXi host it runs on.
    EsxiHost,
    /// The resource pool.
    ResourcePool,
    /// The folder.
    Folder,
    /// The datastore of its home directory.
    Datastore,
}

impl TopologyPlace {
    /// All there are.
    pub const ALL: [TopologyPlace; 7] = [
        TopologyPlace::Vcenter,
        TopologyPlace::Datacenter,
        TopologyPlace::Cluster,
        TopologyPlace::EsxiHost,
        TopologyPlace::ResourcePool,
        TopologyPlace::Folder,
        TopologyPlace::Datastore,
    ];

    /// What it is called in `--topology-labels`, and behind the prefix of its label.
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
    /// The places that nodes show; none unless asked for.
    pub places: BTreeSet<TopologyPlace>,
    /// What their labels begin with, a DNS name and a slash.
    pub prefix: String,
}

impl TopologyLabels {
    /// The names of all labels that nodes get.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        self.places.iter().map(|place| self.key(*place))
    }

    /// The name of the label for `place`.
    pub fn key(&self, place: TopologyPlace) -> String {
        format!("{}{}", self.prefix, place.word())
    }
}

/// No label, under the prefix of this program.
impl Default for TopologyLabels {
    fn default() -> Self {
        Self { places: BTreeSet::new(), prefix: PREFIX.to_owned() }
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
