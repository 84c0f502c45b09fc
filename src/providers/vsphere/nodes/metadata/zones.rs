//! Pure: finds region and zone in the tags of a VM, of its host and pool, and of their ancestors.
//!
//! Mirrors `pkg/cloudprovider/vsphere/zones.go` and `pkg/common/connectionmanager/zones.go:LookupZoneByMoref`.

use std::fmt;

use crate::base::names::is_label_value;
use crate::clients::vim::MoRef;
use crate::cloud::{Reason, Zone};
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::zone_tags::{ObjectTags, Tag, ZoneCategories};

/// Text of the reason if the tags of an object have not been read yet.
pub const NOT_READ_YET: &str = "not read yet";

/// Maximum number of tags per object in a message.
const MAX_TAGS: usize = 5;

/// An object and its ancestors, in this order; empty if there is no such object, for example no pool because the VM is
/// a template. If the ancestors were not read, the reason.
pub type Chain = Result<Vec<MoRef>, String>;

/// The three chains, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chains {
    /// From the VM's host.
    pub host: Chain,
    /// From the VM's resource pool.
    pub pool: Chain,
    /// From the VM itself.
    pub vm: Chain,
}

/// Zone and region, and the objects that have their tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedZone {
    /// Zone and region.
    pub zone: Zone,
    /// The object with the tag of the zone.
    pub zone_object: MoRef,
    /// The object with the tag of the region.
    pub region_object: MoRef,
}

/// Reason why zone and region were not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneProblem {
    /// Everything was read, but no chain has both a zone and a region.
    #[error("no tags for zone and region: {}", join(.chains))]
    NoTags {
        /// The missing tags of each chain.
        chains: Vec<MissingTags>,
    },
    /// An object that could change the result was not read.
    #[error("zone and region are unknown: {problem} could not be read: {reason}")]
    Unknown {
        /// The object with unknown tags, or the chain with unknown objects.
        problem: String,
        /// The reason.
        reason: String,
    },
    /// A tag's name cannot be a label value.
    #[error(
        "tag {name:?} of category {category:?} cannot be a label value: expected at most 63 letters, digits, '-', '_' \
         and '.', with a letter or digit first and last"
    )]
    InvalidTagName {
        /// The category of the tag.
        category: String,
        /// The name of the tag.
        name: String,
    },
}

impl ZoneProblem {
    /// Adds the names of the objects.
    #[must_use]
    pub fn named(mut self, find_name: impl Fn(&MoRef) -> String) -> Self {
        if let Self::NoTags { chains } = &mut self {
            for looked in chains.iter_mut().flat_map(|chain| &mut chain.objects) {
                looked.name = find_name(&looked.object);
            }
        }
        self
    }

    /// Returns the reason for metrics, Events and conditions.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoTags { .. } => reason::NoZoneTags,
            Self::Unknown { .. } => reason::ZoneUnknown,
            Self::InvalidTagName { .. } => reason::InvalidTagName,
        }
    }
}

/// Reason why one chain does not have both a zone and a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingTags {
    /// The objects of the chain, the lowest first.
    pub objects: Vec<CheckedObject>,
    /// The categories without a tag.
    pub categories: Vec<String>,
}

/// An object whose tags were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedObject {
    /// The object.
    pub object: MoRef,
    /// The object's name; empty if unknown.
    pub name: String,
    /// The object's tags of both categories.
    pub tags: Vec<Tag>,
}

impl fmt::Display for CheckedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "{}", self.object)?,
            name => write!(f, "{name} ({})", self.object)?,
        }
        let tags: Vec<String> =
            self.tags.iter().map(|tag| format!("{:?} of {:?}", tag.name, tag.category)).take(MAX_TAGS).collect();
        if tags.is_empty() { Ok(()) } else { write!(f, " [{}]", tags.join(", ")) }
    }
}

impl fmt::Display for MissingTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects: Vec<_> = self.objects.iter().map(ToString::to_string).collect();
        let categories: Vec<_> = self.categories.iter().map(|category| format!("{category:?}")).collect();
        write!(f, "none of category {} on {}", categories.join(" and "), objects.join(", "))
    }
}

fn join(chains: &[MissingTags]) -> String {
    if chains.is_empty() {
        return "the VM has no host, pool or folder".to_owned();
    }
    chains.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Finds zone and region in the three chains: host, pool, VM. One chain must give both; the zone of one chain is never
/// combined with the region of another chain. `find_tags` returns an object's tags, or `None` if they have not been
/// read yet. Returns `None` if no categories are configured. The result consists of valid label values.
///
/// A chain is read upwards. At each object, the region is read before the zone. Each value replaces a value from below,
/// and the search ends when both values are found. So a zone higher up replaces a lower zone while the region is
/// missing. The Go program does the same, and volumes are pinned to such zones. If the object with the region also has
/// a zone, the lower zone stays. If an object has several tags of a category, the first by name counts. In the Go
/// program, the last two cases depend on the order in which vCenter lists the tags.
///
/// Unlike the Go program, the search ends at an object whose tags could not be read. Otherwise the Node could get the
/// zone of another level, and a zone that is written to a Node stays.
///
/// # Errors
/// Returns the reason why zone and region were not found.
pub fn resolve_zone<'a>(
    categories: Option<&ZoneCategories>,
    chains: &Chains,
    find_tags: impl Fn(&MoRef) -> Option<&'a ObjectTags>,
) -> Result<Option<ResolvedZone>, ZoneProblem> {
    let Some(categories) = categories else { return Ok(None) };
    let mut missing = Vec::new();
    for (name, chain) in [("host", &chains.host), ("resource pool", &chains.pool), ("VM", &chains.vm)] {
        let objects = chain.as_ref().map_err(|reason| unknown(format!("the ancestors of the {name}"), reason))?;
        if objects.is_empty() {
            continue;
        }
        match walk_up(categories, objects, &find_tags)? {
            Ok(found) => return checked(categories, found).map(Some),
            Err(lacking) => missing.push(lacking),
        }
    }
    Err(ZoneProblem::NoTags { chains: missing })
}

fn walk_up<'a>(
    categories: &ZoneCategories,
    objects: &[MoRef],
    find_tags: &impl Fn(&MoRef) -> Option<&'a ObjectTags>,
) -> Result<Result<ResolvedZone, MissingTags>, ZoneProblem> {
    let (mut zone, mut region) = (None, None);
    for object in objects {
        let tags = match find_tags(object) {
            Some(ObjectTags::Read(tags)) => tags,
            Some(ObjectTags::Unreadable(reason)) => return Err(unknown(format!("the tags of {object}"), reason)),
            None => return Err(unknown(format!("the tags of {object}"), NOT_READ_YET)),
        };
        region = categories.regions(tags).next().map(|name| (name, object)).or(region);
        if zone.is_none() || region.is_none() {
            zone = categories.zones(tags).next().map(|name| (name, object)).or(zone);
        }
        if let (Some((zone, zone_object)), Some((region, region_object))) = (zone, region) {
            return Ok(Ok(ResolvedZone {
                zone: Zone { failure_domain: zone.to_owned(), region: region.to_owned() },
                zone_object: zone_object.clone(),
                region_object: region_object.clone(),
            }));
        }
    }
    let lacking = [(&categories.region, region.is_none()), (&categories.zone, zone.is_none())];
    let missing = lacking.into_iter().filter(|(_, lacks)| *lacks).map(|(name, _)| name.clone()).collect();
    let looked_at = |object: &MoRef| {
        let tags = match find_tags(object) {
            Some(ObjectTags::Read(tags)) => categories.among(tags),
            _ => Vec::new(),
        };
        CheckedObject { object: object.clone(), name: String::new(), tags }
    };
    Ok(Err(MissingTags { objects: objects.iter().map(looked_at).collect(), categories: missing }))
}

fn unknown(what: String, why: &str) -> ZoneProblem {
    ZoneProblem::Unknown { problem: what, reason: why.to_owned() }
}

/// Requires that both names are label values. Otherwise the API server rejects the whole Node update, every time.
fn checked(categories: &ZoneCategories, found: ResolvedZone) -> Result<ResolvedZone, ZoneProblem> {
    for (category, name) in [(&categories.zone, &found.zone.failure_domain), (&categories.region, &found.zone.region)] {
        // An empty text is a valid label value but carries no information.
        if name.is_empty() || !is_label_value(name) {
            return Err(ZoneProblem::InvalidTagName { category: category.clone(), name: name.clone() });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
