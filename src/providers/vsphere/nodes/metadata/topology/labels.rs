//! Pure: the topology labels of a Node.
//!
//! The name of an object in vCenter may contain characters that a label value must not contain. Each such character
//! becomes `_`, non-alphanumeric characters are cut from both ends, and 63 characters are kept. So two names may become
//! the same value. If no characters are left, there is no label.

use std::collections::BTreeMap;

use super::{TopologyLabels, TopologyPlace};
use crate::base::names::MAX_LABEL_VALUE;
use crate::clients::vim::{MoRef, decode_name};
use crate::providers::vsphere::vcenter::snapshot::{Freshness, Snapshot, VmRecord};

#[derive(Clone, Debug, PartialEq, Eq)]
enum PlaceName {
    Named(String),
    /// The level does not apply, such as the cluster of a standalone host.
    Nowhere,
    /// The snapshot does not contain the name.
    Unknown,
}

/// Returns the labels for a VM in the vCenter `server`. `None` removes a label: its level is not enabled, does not
/// apply, or has a name without valid characters. An enabled level has no entry if its name is unknown or the snapshot
/// is not live; its label then stays. Without enabled levels, the result is empty.
pub fn labels(
    queried: &TopologyLabels,
    server: &str,
    snapshot: &Snapshot,
    record: &VmRecord,
) -> BTreeMap<String, Option<String>> {
    if queried.objects.is_empty() {
        return BTreeMap::new();
    }
    let is_live = snapshot.freshness == Freshness::Live;
    let value = |place: TopologyPlace| match find(place, server, snapshot, record) {
        _ if !queried.objects.contains(&place) => Some(None),
        PlaceName::Named(_) | PlaceName::Nowhere if !is_live => None,
        PlaceName::Named(name) => Some(to_label_value(&name)),
        PlaceName::Nowhere => Some(None),
        PlaceName::Unknown => None,
    };
    TopologyPlace::ALL.into_iter().filter_map(|place| Some((queried.key(place), value(place)?))).collect()
}

fn find(place: TopologyPlace, server: &str, snapshot: &Snapshot, record: &VmRecord) -> PlaceName {
    let named = |object: &MoRef| match snapshot.entities.get(object) {
        Some(entity) if !entity.name.is_empty() => PlaceName::Named(entity.name.clone()),
        _ => PlaceName::Unknown,
    };
    match place {
        TopologyPlace::Vcenter => PlaceName::Named(server.to_string()),
        TopologyPlace::Datacenter => snapshot
            .datacenter_of(record)
            .and_then(|datacenter| datacenter.path.last().cloned())
            .map_or(PlaceName::Unknown, PlaceName::Named),
        TopologyPlace::Cluster => {
            let host = record.host.as_ref().and_then(|host| snapshot.entities.get(host));
            match host.and_then(|host| host.parent.as_ref()) {
                Some(above) if above.kind() == "ClusterComputeResource" => named(above),
                Some(above) if above.kind() == "ComputeResource" => PlaceName::Nowhere,
                _ => PlaceName::Unknown,
            }
        }
        TopologyPlace::EsxiHost => record.host.as_ref().map_or(PlaceName::Unknown, named),
        TopologyPlace::ResourcePool => match &record.resource_pool {
            Some(pool) => named(pool),
            None if record.is_template => PlaceName::Nowhere,
            None => PlaceName::Unknown,
        },
        TopologyPlace::Folder => match (&record.parent, &record.parent_vapp) {
            (Some(folder), _) => named(folder),
            (None, Some(_)) => PlaceName::Nowhere,
            (None, None) => PlaceName::Unknown,
        },
        TopologyPlace::Datastore => datastore_of(&record.path).map_or(PlaceName::Unknown, PlaceName::Named),
    }
}

/// Returns the datastore in `[datastore1] web/web.vmx`. The VM may have disks on other datastores.
fn datastore_of(path: &str) -> Option<String> {
    let (name, _) = path.strip_prefix('[')?.split_once(']')?;
    (!name.is_empty()).then(|| decode_name(name))
}

fn to_label_value(name: &str) -> Option<String> {
    let is_edge = |char: char| !char.is_ascii_alphanumeric();
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    let text: String = name.chars().map(|char| if fits(char) { char } else { '_' }).collect();
    let start = text.trim_start_matches(is_edge);
    let value = start.get(..MAX_LABEL_VALUE).unwrap_or(start).trim_end_matches(is_edge);
    (!value.is_empty()).then(|| value.to_string())
}

#[cfg(test)]
mod tests;
