//! What a machine means for its node, case by case.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::clients::vim::GuestNic;
use crate::providers::vsphere::inventory::snapshot::{Entity, Tags};
use crate::providers::vsphere::zones::Tag;

const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";

fn machine(addresses: &[&str]) -> VmRecord {
    VmRecord {
        name: "vm".into(),
        bios_uuid: Some(UUID.parse().unwrap()),
        parent: Some(MoRef::new("Folder", "group-v3")),
        host: Some(MoRef::new("HostSystem", "host-1")),
        power_state: Some(PowerState::PoweredOn),
        connection_state: Some("connected".into()),
        cpus: Some(2),
        memory_mib: Some(4096),
        guest_id: "ubuntu64Guest".into(),
        host_name: "node-1".into(),
        nics: vec![GuestNic {
            ip_addresses: addresses.iter().map(ToString::to_string).collect(),
            device_config_id: 4000,
            ..GuestNic::default()
        }],
        ..VmRecord::default()
    }
}

fn rules() -> Rules {
    Rules { families: BTreeMap::from([(0, vec![IpFamily::V4])]), ..Rules::default() }
}

fn zoned() -> Rules {
    let categories = ZoneCategories { zone: "k8s-zone".into(), region: "k8s-region".into() };
    Rules { categories: Some(categories), ..rules() }
}

/// An object's type and id, and its tags as category and name.
type Tagged<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// A host below a cluster below the root; of the cluster only what is asked for is known.
fn snapshot(has_cluster: bool, tags: &[Tagged<'_>]) -> Snapshot {
    let entity = |parent: Option<MoRef>| Entity { name: "x".into(), parent };
    let cluster = MoRef::new("ClusterComputeResource", "domain-c1");
    let root = MoRef::new("Folder", "group-d1");
    let mut entities = HashMap::from([
        (MoRef::new("HostSystem", "host-1"), entity(Some(cluster.clone()))),
        (MoRef::new("Folder", "group-v3"), entity(Some(root.clone()))),
        (root, entity(None)),
    ]);
    if has_cluster {
        entities.insert(cluster, entity(None));
    }
    let of = tags.iter().map(|(kind, id, tags)| {
        let tags = tags.iter().map(|(category, name)| Tag { name: (*name).into(), category: (*category).into() });
        (MoRef::new(*kind, *id), ObjectTags::Read(tags.collect()))
    });
    Snapshot {
        freshness: Freshness::Live,
        instance_uuid: "vc".into(),
        entities: Arc::new(entities),
        tags: Arc::new(Tags { of: of.collect(), trouble: None }),
        ..Snapshot::default()
    }
}

fn described(node: &NodeFacts, snapshot: &Snapshot, record: &VmRecord, rules: &Rules) -> InstanceMetadata {
    describe(node, snapshot, &VmKey { vcenter: 0, id: "vm-1".into() }, record, rules).unwrap()
}

fn internal(metadata: &InstanceMetadata) -> &str {
    &metadata.node_addresses.iter().find(|address| address.type_ == "InternalIP").unwrap().address
}

#[test]
fn a_machine_gives_provider_id_type_addresses_and_its_record() {
    let metadata = described(&NodeFacts::default(), &snapshot(true, &[]), &machine(&["10.0.0.1"]), &rules());
    assert_eq!(metadata.provider_id, format!("vsphere://{UUID}"));
    assert_eq!(metadata.instance_type, "vsphere-vm.cpu-2.mem-4gb.os-ubuntu");
    assert_eq!(internal(&metadata), "10.0.0.1");
    let record: serde_json::Value = serde_json::from_str(&metadata.record).unwrap();
    assert_eq!((record["vcenter"].as_str(), record["vm"].as_str()), (Some("vc"), Some("vm-1")));
    assert_eq!((record["host"].as_str(), record["folder"].as_str()), (Some("host-1"), Some("group-v3")));
    assert_eq!(metadata.pending, None, "zones are off");
}

#[test]
fn an_address_on_the_node_stays_while_the_guest_has_it() {
    let node = |address: &str| NodeFacts { addresses: vec![address.parse().unwrap()], ..NodeFacts::default() };
    let record = machine(&["10.0.0.1", "10.0.0.2"]);
    for (on_the_node, expected) in [("10.0.0.2", "10.0.0.2"), ("10.0.0.9", "10.0.0.1")] {
        let metadata = described(&node(on_the_node), &snapshot(true, &[]), &record, &rules());
        assert_eq!(internal(&metadata), expected, "{on_the_node}");
    }
}

#[test]
fn metadata_that_cannot_be_read_costs_its_order_only() {
    let record =
        VmRecord { metadata: "@@@".into(), metadata_encoding: "base64".into(), ..machine(&["10.0.0.1", "10.0.0.2"]) };
    assert_eq!(internal(&described(&NodeFacts::default(), &snapshot(true, &[]), &record, &rules())), "10.0.0.1");
}

/// B41, differs: the Go program crashes on a machine whose `config` is absent, as while it is inaccessible. Here
/// `summary.config` gives the UUID, and the guest metadata, which is in `config`, is none.
#[test]
fn b41_a_machine_without_config_has_its_addresses() {
    let record = VmRecord { metadata: String::new(), metadata_encoding: String::new(), ..machine(&["10.0.0.1"]) };
    let metadata = described(&NodeFacts::default(), &snapshot(true, &[]), &record, &rules());
    assert_eq!(internal(&metadata), "10.0.0.1");
    assert_eq!(metadata.provider_id, format!("vsphere://{UUID}"));
    let nothing = VmRecord { bios_uuid: None, ..record };
    let vm = VmKey { vcenter: 0, id: "vm-1".into() };
    let unknown = describe(&NodeFacts::default(), &snapshot(true, &[]), &vm, &nothing, &rules()).unwrap_err();
    assert_eq!(unknown.reason, "GuestInfoMissing", "neither has one: nothing is concluded");
}

#[test]
fn what_the_guest_or_the_account_lacks_is_named() {
    let vm = VmKey { vcenter: 0, id: "vm-1".into() };
    for (case, record, reason, parts) in [
        (
            "no host name",
            VmRecord { host_name: String::new(), ..machine(&["10.0.0.1"]) },
            "GuestInfoMissing",
            vec!["guest.hostName", "VMware Tools"],
        ),
        (
            "an orphaned machine",
            VmRecord { host_name: String::new(), connection_state: Some("orphaned".into()), ..machine(&["10.0.0.1"]) },
            "GuestInfoMissing",
            vec!["orphaned"],
        ),
        (
            "no right",
            VmRecord { bios_uuid: None, unreadable: vec!["config.uuid".into()], ..machine(&["10.0.0.1"]) },
            "GuestInfoMissing",
            vec!["BIOS UUID", "config.uuid", "System.Read"],
        ),
        ("no address", machine(&[]), "NoUsableAddress", vec!["vm-1"]),
    ] {
        let unknown = describe(&NodeFacts::default(), &snapshot(true, &[]), &vm, &record, &rules()).unwrap_err();
        assert_eq!(unknown.reason, reason, "{case}");
        for part in parts {
            assert!(unknown.message.contains(part), "{case}: {part:?} is missing in {:?}", unknown.message);
        }
    }
}

#[test]
fn a_zone_is_waited_for_quietly_only_while_its_tags_are_being_read() {
    let host: Tagged<'_> = ("HostSystem", "host-1", &[]);
    let cluster: Tagged<'_> = ("ClusterComputeResource", "domain-c1", &[("k8s-zone", "z"), ("k8s-region", "r")]);
    for (case, has_cluster, tags, expected) in [
        ("found", true, vec![host, cluster], None),
        ("the cluster's tags are being read", true, vec![host], Some(("ZoneUnknown", true))),
        ("the cluster may not be read", false, vec![host], Some(("ZoneUnknown", false))),
    ] {
        let metadata =
            described(&NodeFacts::default(), &snapshot(has_cluster, &tags), &machine(&["10.0.0.1"]), &zoned());
        let pending = metadata.pending.as_ref().map(|unknown| (unknown.reason, unknown.is_passing));
        assert_eq!(pending, expected, "{case}");
        assert_eq!(metadata.zone, if expected.is_none() { "z" } else { "" }, "{case}");
    }
}

#[test]
fn only_a_fresh_and_connected_machine_is_shut_down() {
    let off = VmRecord { power_state: Some(PowerState::PoweredOff), ..machine(&[]) };
    let suspended = VmRecord { power_state: Some(PowerState::Suspended), ..machine(&[]) };
    let unheard = VmRecord { connection_state: Some("disconnected".into()), ..off.clone() };
    let live = snapshot(true, &[]);
    let stale = Snapshot { freshness: Freshness::Unreachable { reason: "down".into() }, ..live.clone() };
    for (case, snapshot, record, expected) in [
        ("on", &live, &machine(&[]), Some(false)),
        ("off", &live, &off, Some(true)),
        ("suspended", &live, &suspended, Some(true)),
        ("its host is not heard from", &live, &unheard, None),
        ("vCenter does not answer", &stale, &off, None),
    ] {
        assert_eq!(is_shut_down(snapshot, record), expected, "{case}");
    }
}
