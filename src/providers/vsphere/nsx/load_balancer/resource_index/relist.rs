//! Pure: merges a new list of all objects into the previous state.
//!
//! A list may miss an object while other objects are deleted. A missing object therefore stays until the next list also
//! misses the object. Objects that this program read or wrote during the relist are newer than the list.

use std::collections::BTreeSet;

use super::{ResourceIndex, ResourceKey};
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;

/// A list of all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectListing {
    /// The listed objects.
    pub index: ResourceIndex,
    /// Whether groups and persistence profiles were listed.
    pub has_references: bool,
    /// The IP pools whose allocations could not be listed.
    pub unlistable_ip_pools: BTreeSet<Box<str>>,
}

/// Result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeResult {
    /// The objects after the merge.
    pub index: ResourceIndex,
    /// The paths of objects that this list missed for the first time. These objects stay.
    pub missed: BTreeSet<Box<str>>,
    /// The Services whose objects have changed; all Services if a load balancer service has changed.
    pub changed: BTreeSet<Box<str>>,
}

impl MergeResult {
    /// Whether groups or persistence profiles were missed.
    pub fn misses_references(&self) -> bool {
        let kinds = [ObjectKind::Group, ObjectKind::PersistenceProfile];
        self.missed.iter().any(|path| kinds.iter().any(|kind| path.starts_with(kind.parent())))
    }
}

/// Merges a list into `index`, the objects in the cache at the end of the relist. `touched_paths` are the paths of
/// objects that this program read or wrote during the relist, and `missed_before` those that the previous list missed.
pub fn merge(
    listing: ObjectListing,
    index: &ResourceIndex,
    touched_paths: &BTreeSet<Box<str>>,
    missed_before: &BTreeSet<Box<str>>,
) -> MergeResult {
    let ObjectListing { index: ResourceIndex { resources: mut read, .. }, has_references, unlistable_ip_pools } =
        listing;
    let known = &index.resources;
    let mut missed = BTreeSet::new();
    read.retain(|(_, path), _| !touched_paths.contains(path));
    for (key, old) in known {
        if let Some(new) = read.get_mut(key) {
            // A list may lack the address of an allocation.
            if new.kind == ObjectKind::Allocation {
                new.address = new.address.or(old.address);
            }
            continue;
        }
        let is_unlisted = match old.kind {
            ObjectKind::Allocation => unlistable_ip_pools.contains(&old.address_pool),
            kind => kind.is_listed_rarely() && !has_references,
        };
        let path = &old.tags.path;
        if !is_unlisted && !touched_paths.contains(path) {
            let is_of_others = old.tags.service.is_empty() && old.kind != ObjectKind::LbService;
            if is_of_others || missed_before.contains(path) {
                continue;
            }
            missed.insert(path.clone());
        }
        read.insert(key.clone(), old.clone());
    }
    let all = || known.iter().chain(&read);
    let has_changed = |key: &ResourceKey| known.get(key) != read.get(key);
    let are_all_changed = all().any(|(key, one)| one.kind == ObjectKind::LbService && has_changed(key));
    let is_changed = |key: &ResourceKey| !key.0.is_empty() && (are_all_changed || has_changed(key));
    let changed = all().filter(|(key, _)| is_changed(key)).map(|((service, _), _)| service.clone()).collect();
    MergeResult { index: ResourceIndex::of(read), missed, changed }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clients::nsx::Object;
    use crate::providers::vsphere::nsx::load_balancer::layout::ClusterLayout;

    static NONE: BTreeSet<Box<str>> = BTreeSet::new();

    fn layout() -> ClusterLayout {
        ClusterLayout { cluster: "c".to_owned(), cluster_uid: None, configured: Default::default(), secondary: None }
    }

    fn monitor(id: &str, port: u16) -> Object {
        let tags = [("owner", "vsphere-cloud-controller-manager"), ("cluster", "c"), ("service", "ns/s")];
        let tags: Vec<_> = tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect();
        let value = json!({"id": id, "path": format!("/infra/lb-monitor-profiles/{id}"), "tags": tags,
                           "resource_type": "LBTcpMonitorProfile", "monitor_port": port});
        Object(serde_json::from_value(value).unwrap())
    }

    fn allocation(id: &str, address: Option<&str>) -> Object {
        let mut object = monitor(id, 1);
        object.0.insert("path".to_owned(), format!("/infra/ip-pools/p/ip-allocations/{id}").into());
        object.0.extend(address.map(|address| ("allocated_ip".to_owned(), address.into())));
        object
    }

    fn contents(objects: &[(ObjectKind, Object)]) -> ResourceIndex {
        let mut contents = ResourceIndex::default();
        objects.iter().for_each(|(kind, object)| contents.add(*kind, object, &layout()));
        contents
    }

    fn of(ids: &[(&str, u16)]) -> ResourceIndex {
        let monitors: Vec<_> = ids.iter().map(|(id, port)| (ObjectKind::Monitor, monitor(id, *port))).collect();
        contents(&monitors)
    }

    fn paths(ids: &[&str]) -> BTreeSet<Box<str>> {
        ids.iter().map(|id| format!("/infra/lb-monitor-profiles/{id}").into()).collect()
    }

    fn merged(read: ResourceIndex, known: &ResourceIndex, touched: &[&str], missed: &[&str]) -> MergeResult {
        let (touched, missed) = (paths(touched), paths(missed));
        let read = ObjectListing { index: read, ..ObjectListing::default() };
        merge(read, known, &touched, &missed)
    }

    #[test]
    fn groups_and_profiles_that_were_not_listed_stay_and_those_that_were_are_as_they_are_now() {
        let group = |id: &str, network: &str| {
            let mut object = monitor(id, 1);
            object.0.insert("path".to_owned(), format!("{}/{id}", ObjectKind::Group.parent()).into());
            let expression = json!([{"resource_type": "IPAddressExpression", "ip_addresses": [network]}]);
            object.0.insert("expression".to_owned(), expression);
            (ObjectKind::Group, object)
        };
        let known = contents(&[group("a", "10.0.0.0/8"), group("b", "10.0.0.0/8")]);
        assert_eq!(merged(ResourceIndex::default(), &known, &[], &[]).index, known);
        let read = contents(&[group("a", "10.9.0.0/16"), group("c", "10.0.0.0/8")]);
        let read = ObjectListing { index: read, has_references: true, ..ObjectListing::default() };
        let after = merge(read.clone(), &known, &NONE, &NONE);
        let expected = contents(&[group("a", "10.9.0.0/16"), group("b", "10.0.0.0/8"), group("c", "10.0.0.0/8")]);
        assert_eq!(after.index, expected);
        assert!(after.misses_references() && after.changed.len() == 1);
        assert_eq!(merge(read.clone(), &known, &NONE, &after.missed).index, read.index);
    }

    #[test]
    fn what_a_pool_had_stays_while_it_cannot_be_listed() {
        let known = contents(&[(ObjectKind::Allocation, allocation("x", Some("192.0.2.1")))]);
        for unlistable_ip_pools in [BTreeSet::new(), BTreeSet::from(["p".into()])] {
            let read = ObjectListing { unlistable_ip_pools: unlistable_ip_pools.clone(), ..ObjectListing::default() };
            let once = merge(read.clone(), &known, &NONE, &NONE);
            assert_eq!((&once.index, once.missed.len()), (&known, 1 - unlistable_ip_pools.len()));
            let twice = merge(read, &known, &NONE, &once.missed);
            assert_eq!(twice.index == known, !unlistable_ip_pools.is_empty());
        }
    }

    #[test]
    fn what_one_reading_misses_stays_until_the_next_one_misses_it_too() {
        let known = of(&[("a", 1), ("b", 1)]);
        let once = merged(of(&[("b", 1)]), &known, &[], &[]);
        assert_eq!((&once.index, &once.missed), (&known, &paths(&["a"])));
        assert!(once.changed.is_empty());
        let twice = merged(of(&[("b", 1)]), &once.index, &[], &["a"]);
        assert_eq!((twice.index, twice.missed), (of(&[("b", 1)]), BTreeSet::new()));
        assert_eq!(twice.changed, BTreeSet::from(["ns/s".into()]));
        let gone = merged(ResourceIndex::default(), &known, &[], &["a", "b"]);
        assert_eq!(gone.index, ResourceIndex::default());
    }

    #[test]
    fn what_was_written_during_a_reading_is_newer_than_it() {
        // During the list `a` was changed, `b` deleted and `c` created. The list shows the state before these writes.
        let known = of(&[("a", 2), ("c", 1)]);
        let after = merged(of(&[("a", 1), ("b", 1)]), &known, &["a", "b", "c"], &[]);
        assert_eq!((after.index, after.missed), (known, BTreeSet::new()));
        assert!(after.changed.is_empty());
    }

    #[test]
    fn a_virtual_server_that_went_to_another_owner_during_a_reading_counts() {
        let mut server = monitor("v", 1);
        server.0.insert("lb_service_path".to_owned(), "/l".into());
        let own = contents(&[(ObjectKind::VirtualServer, server.clone())]);
        server.set_tags([]);
        let foreign = contents(&[(ObjectKind::VirtualServer, server)]);
        let counts = |read: &ResourceIndex, known: &ResourceIndex, written: &[&str]| {
            merged(read.clone(), known, written, &[]).index.servers_on("/l")
        };
        assert_eq!(counts(&own, &foreign, &["v"]), 1, "the list is older");
        assert_eq!(counts(&foreign, &own, &["v"]), 1, "the list is older");
        assert_eq!(counts(&foreign, &foreign, &[]), 1);
        assert_eq!(counts(&ResourceIndex::default(), &foreign, &[]), 0);
    }

    #[test]
    fn a_change_by_another_client_is_seen_and_a_known_address_kept() {
        let known = contents(&[
            (ObjectKind::Monitor, monitor("a", 1)),
            (ObjectKind::Allocation, allocation("x", Some("192.0.2.1"))),
        ]);
        let read = contents(&[(ObjectKind::Monitor, monitor("a", 1)), (ObjectKind::Allocation, allocation("x", None))]);
        let same = merged(read, &known, &[], &[]);
        assert_eq!((&same.index, same.changed.len()), (&known, 0));
        let read = contents(&[(ObjectKind::Monitor, monitor("a", 7)), (ObjectKind::Allocation, allocation("x", None))]);
        assert_eq!(merged(read, &known, &[], &[]).changed, BTreeSet::from(["ns/s".into()]));
    }
}
