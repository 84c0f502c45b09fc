//! Pure: which places of a virtual machine its node shows as labels, and how those labels are called.

pub mod labels;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The prefix of these labels where no other is asked for.
pub const PREFIX: &str = "topology.vsphere-ccm.dev/";

/// A place of a virtual machine in vCenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
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

impl Place {
    /// All there are.
    pub const ALL: [Place; 7] = [
        Place::Vcenter,
        Place::Datacenter,
        Place::Cluster,
        Place::EsxiHost,
        Place::ResourcePool,
        Place::Folder,
        Place::Datastore,
    ];

    /// What it is called in `--topology-labels`, and behind the prefix of its label.
    pub fn word(self) -> &'static str {
        match self {
            Place::Vcenter => "vcenter",
            Place::Datacenter => "datacenter",
            Place::Cluster => "cluster",
            Place::EsxiHost => "esxi-host",
            Place::ResourcePool => "resource-pool",
            Place::Folder => "folder",
            Place::Datastore => "datastore",
        }
    }
}

/// A word that names no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected vcenter, datacenter, cluster, esxi-host, resource-pool, folder or datastore")]
pub struct UnknownPlace;

impl FromStr for Place {
    type Err = UnknownPlace;

    fn from_str(word: &str) -> Result<Self, UnknownPlace> {
        Self::ALL.into_iter().find(|place| place.word() == word).ok_or(UnknownPlace)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// `--topology-labels` and `--topology-label-prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyLabels {
    /// The places that nodes show; none unless asked for.
    pub places: BTreeSet<Place>,
    /// What their labels begin with, a DNS name and a slash.
    pub prefix: String,
}

impl TopologyLabels {
    /// The name of the label for `place`.
    pub fn key(&self, place: Place) -> String {
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
    fn every_place_is_found_by_its_word_and_named_where_a_word_is_wrong() {
        let told = UnknownPlace.to_string();
        for place in Place::ALL {
            assert_eq!(place.word().parse(), Ok(place));
            assert!(told.contains(place.word()), "{place}: {told}");
        }
        for wrong in ["", "Cluster", "host", "esxi_host", " cluster"] {
            assert_eq!(wrong.parse::<Place>(), Err(UnknownPlace), "{wrong:?}");
        }
    }

    #[test]
    fn a_label_is_the_prefix_and_the_word() {
        assert_eq!(TopologyLabels::default().key(Place::EsxiHost), "topology.vsphere-ccm.dev/esxi-host");
    }
}
