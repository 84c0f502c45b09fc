//! Tests of the labels that show the place of a VM on its Node.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::providers::vsphere::vcenter::snapshot::{Entity, VcenterFailure};

fn object(kind: &str, id: &str) -> MoRef {
    MoRef::new(kind, id)
}

/// Returns a snapshot with a host in a cluster, a standalone host, a pool and a folder, all in one datacenter.
fn snapshot() -> Snapshot {
    let entities = [
        (("HostSystem", "host-1"), "esx 1.example.com", Some(("ClusterComputeResource", "domain-c1"))),
        (("HostSystem", "host-2"), "esx-2", Some(("ComputeResource", "domain-s2"))),
        (("ClusterComputeResource", "domain-c1"), "Cluster (A)", Some(("Folder", "group-h1"))),
        (("ComputeResource", "domain-s2"), "esx-2", Some(("Folder", "group-h1"))),
        (("ResourcePool", "resgroup-1"), "Resources", Some(("ClusterComputeResource", "domain-c1"))),
        (("VirtualApp", "resgroup-v1"), "vapp", Some(("ResourcePool", "resgroup-1"))),
        (("Folder", "group-v1"), "vm", Some(("Datacenter", "datacenter-1"))),
        (("Folder", "group-h1"), "host", Some(("Datacenter", "datacenter-1"))),
        (("Datacenter", "datacenter-1"), "dc-1", Some(("Folder", "group-d1"))),
        (("Folder", "group-d1"), "Datacenters", None),
    ];
    let entity = |(at, name, parent): ((&str, &str), &str, Option<(&str, &str)>)| {
        let parent = parent.map(|(kind, id)| object(kind, id));
        (object(at.0, at.1), Entity { name: name.into(), parent, ..Entity::default() })
    };
    let entities: HashMap<MoRef, Entity> = entities.into_iter().map(entity).collect();
    Snapshot { freshness: Freshness::Live, entities: Arc::new(entities), ..Snapshot::default() }
}

fn record() -> VmRecord {
    VmRecord {
        host: Some(object("HostSystem", "host-1")),
        parent: Some(object("Folder", "group-v1")),
        resource_pool: Some(object("ResourcePool", "resgroup-1")),
        path: "[datastore 1] web/web.vmx".into(),
        ..VmRecord::default()
    }
}

fn asked(places: &[TopologyPlace]) -> TopologyLabels {
    TopologyLabels { objects: places.iter().copied().collect(), prefix: "x/".into() }
}

/// Returns the value of the label for `place`. `-` means that the label is removed, `None` that it is not changed.
fn shown(place: TopologyPlace, snapshot: &Snapshot, record: &VmRecord) -> Option<String> {
    let labels = labels(&asked(&TopologyPlace::ALL), "vc.example.com", snapshot, record);
    labels.get(&format!("x/{}", place.word())).map(|value| value.clone().unwrap_or_else(|| "-".to_string()))
}

#[test]
fn every_place_has_its_label() {
    for (place, expected) in [
        (TopologyPlace::Vcenter, "vc.example.com"),
        (TopologyPlace::Datacenter, "dc-1"),
        (TopologyPlace::Cluster, "Cluster__A"),
        (TopologyPlace::EsxiHost, "esx_1.example.com"),
        (TopologyPlace::ResourcePool, "Resources"),
        (TopologyPlace::Folder, "vm"),
        (TopologyPlace::Datastore, "datastore_1"),
    ] {
        assert_eq!(shown(place, &snapshot(), &record()).as_deref(), Some(expected), "{place:?}");
    }
}

#[test]
fn a_place_that_does_not_apply_takes_its_label_away_and_one_that_cannot_be_told_leaves_it() {
    let without = |kind: &str, id: &str| {
        let mut snapshot = snapshot();
        Arc::make_mut(&mut snapshot.entities).remove(&object(kind, id));
        snapshot
    };
    let alone = VmRecord { host: Some(object("HostSystem", "host-2")), ..record() };
    let vapp = object("VirtualApp", "resgroup-v1");
    let in_vapp = VmRecord { parent: None, parent_vapp: Some(vapp.clone()), resource_pool: Some(vapp), ..record() };
    let template = VmRecord { resource_pool: None, is_template: true, ..record() };
    for (case, place, snapshot, record, expected) in [
        ("a host that stands alone", TopologyPlace::Cluster, snapshot(), alone, Some("-")),
        ("a machine in a vApp", TopologyPlace::Folder, snapshot(), in_vapp.clone(), Some("-")),
        ("a machine in a vApp", TopologyPlace::ResourcePool, snapshot(), in_vapp, Some("vapp")),
        ("a template", TopologyPlace::ResourcePool, snapshot(), template, Some("-")),
        (
            "no pool is told",
            TopologyPlace::ResourcePool,
            snapshot(),
            VmRecord { resource_pool: None, ..record() },
            None,
        ),
        ("no host is told", TopologyPlace::EsxiHost, snapshot(), VmRecord { host: None, ..record() }, None),
        ("no host is told", TopologyPlace::Cluster, snapshot(), VmRecord { host: None, ..record() }, None),
        ("no folder is told", TopologyPlace::Folder, snapshot(), VmRecord { parent: None, ..record() }, None),
        ("no path is told", TopologyPlace::Datastore, snapshot(), VmRecord { path: String::new(), ..record() }, None),
        (
            "a path of another form",
            TopologyPlace::Datastore,
            snapshot(),
            VmRecord { path: "web".into(), ..record() },
            None,
        ),
        ("the host may not be read", TopologyPlace::EsxiHost, without("HostSystem", "host-1"), record(), None),
        ("the host may not be read", TopologyPlace::Cluster, without("HostSystem", "host-1"), record(), None),
        (
            "the cluster may not be read",
            TopologyPlace::Cluster,
            without("ClusterComputeResource", "domain-c1"),
            record(),
            None,
        ),
        ("the folder may not be read", TopologyPlace::Folder, without("Folder", "group-v1"), record(), None),
        (
            "the datacenter may not be read",
            TopologyPlace::Datacenter,
            without("Datacenter", "datacenter-1"),
            record(),
            None,
        ),
    ] {
        assert_eq!(shown(place, &snapshot, &record).as_deref(), expected, "{case}: {place:?}");
    }
}

#[test]
fn nothing_is_touched_unless_asked_and_what_is_not_asked_for_any_more_goes() {
    let server = "vc";
    assert_eq!(labels(&asked(&[]), server, &snapshot(), &record()), BTreeMap::new());
    let some = labels(&asked(&[TopologyPlace::EsxiHost]), server, &snapshot(), &record());
    assert_eq!(some.len(), TopologyPlace::ALL.len());
    assert_eq!(some.values().flatten().collect::<Vec<_>>(), ["esx_1.example.com"]);
    let trouble = VcenterFailure::unavailable("down");
    let stale = Snapshot { freshness: Freshness::Unreachable(trouble), ..snapshot() };
    let some = labels(&asked(&[TopologyPlace::EsxiHost]), server, &stale, &record());
    assert!(!some.contains_key("x/esxi-host"), "what was true is left alone");
    assert_eq!(some.get("x/cluster"), Some(&None));
}

#[test]
fn a_name_becomes_a_valid_label_value_or_none() {
    let long = "a".repeat(62);
    for (name, expected) in [
        ("plain", Some("plain".to_string())),
        ("Büro 1", Some("B_ro_1".to_string())),
        ("-[x]-", Some("x".to_string())),
        ("a/b", Some("a_b".to_string())),
        ("機房", None),
        ("", None),
        (&format!("{long}--z"), Some(long.clone())),
        (&format!("_{long}bc"), Some(format!("{long}b"))),
    ] {
        assert_eq!(to_label_value(name), expected, "{name:?}");
    }
}
