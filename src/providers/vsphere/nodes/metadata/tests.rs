//! Tests of the metadata that a Node gets from its VM, case by case.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeAddress;

use super::*;
use crate::clients::vim::GuestNic;
use crate::providers::vsphere::nodes::absence::location::Location;
use crate::providers::vsphere::vcenter::snapshot::{Entity, Freshness, PowerState as VmPower, TagSnapshot};
use crate::providers::vsphere::vcenter::zone_tags::Tag;

const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";

fn machine(addresses: &[&str]) -> VmRecord {
    VmRecord {
        name: "vm".into(),
        bios_uuid: Some(UUID.parse().unwrap()),
        parent: Some(MoRef::new("Folder", "group-v3")),
        host: Some(MoRef::new("HostSystem", "host-1")),
        power_state: Some(VmPower::PoweredOn),
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

fn rules() -> MetadataRules {
    MetadataRules { families: BTreeMap::from([(0.into(), vec![IpFamily::V4])]), ..MetadataRules::default() }
}

/// Returns rules with both families. A Node waits up to 120 s for the second family.
fn dual() -> MetadataRules {
    let family_wait = Duration::from_secs(120);
    MetadataRules { families: [(0.into(), vec![IpFamily::V4, IpFamily::V6])].into(), family_wait, ..rules() }
}

fn zoned() -> MetadataRules {
    let categories = ZoneCategories { zone: "k8s-zone".into(), region: "k8s-region".into() };
    MetadataRules { categories: Some(categories), ..rules() }
}

/// Type and id of an object, and its tags as category and name.
type Tagged<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// Returns a snapshot with a host, a VM folder and, if `has_cluster` is true, the cluster of the host.
fn snapshot(has_cluster: bool, tags: &[Tagged<'_>]) -> Snapshot {
    let entity = |parent: Option<MoRef>| Entity { name: "x".into(), parent, ..Entity::default() };
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
        tags: Arc::new(TagSnapshot { objects: of.collect(), error: None }),
        ..Snapshot::default()
    }
}

fn described(node: &NodeFacts, snapshot: &Snapshot, record: &VmRecord, rules: &MetadataRules) -> InstanceMetadata {
    describe(node, snapshot, &VmKey { vcenter: 0.into(), id: "vm-1".into() }, record, rules, AddressContext::default())
        .unwrap()
}

fn internal_ip(address: &str) -> NodeAddress {
    NodeAddress { type_: "InternalIP".into(), address: address.into() }
}

fn internal(metadata: &InstanceMetadata) -> &str {
    &metadata.node_addresses.iter().find(|address| address.type_ == "InternalIP").unwrap().address
}

#[test]
fn a_machine_gives_provider_id_type_addresses_and_its_record() {
    let (snapshot, machine) = (snapshot(true, &[]), machine(&["10.0.0.1"]));
    let metadata = described(&NodeFacts::default(), &snapshot, &machine, &rules());
    assert_eq!(metadata.provider_id, format!("vsphere://{UUID}"));
    assert_eq!(metadata.instance_type, "vsphere-vm.cpu-2.mem-4gb.os-ubuntu");
    assert_eq!(internal(&metadata), "10.0.0.1");
    let record = Location::of(&snapshot, &"vm-1".into(), &machine).to_record();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!((record["vcenter"].as_str(), record["vm"].as_str()), (Some("vc"), Some("vm-1")));
    assert_eq!((record["host"].as_str(), record["folder"].as_str()), (Some("host-1"), Some("group-v3")));
    assert_eq!(metadata.pending, None, "zones are off");
}

#[test]
fn an_address_on_the_node_stays_while_the_guest_has_it() {
    let node = |address: &str| NodeFacts { current_addresses: vec![internal_ip(address)], ..NodeFacts::default() };
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

/// Cases W45 and W48 of `docs/compatibility.md`. A problem that does not block the Node is reported as a note. The text
/// of the note does not change with each address of the guest.
#[test]
fn what_a_node_goes_on_without_is_noted() {
    let dual = dual();
    let node = NodeFacts { is_initialized: true, ..NodeFacts::default() };
    let notes =
        |record: &VmRecord, rules: &MetadataRules| described(&node, &snapshot(true, &[]), record, rules).messages;
    assert_eq!(notes(&machine(&["10.0.0.1", "fd00::1"]), &dual), Vec::<String>::new());
    let one = notes(&machine(&["10.0.0.1"]), &dual);
    assert!(matches!(one.as_slice(), [note] if note.contains("vm-1") && note.contains("no ipv6 address")), "{one:?}");
    assert_eq!(notes(&machine(&["10.0.0.1", "10.244.0.1", "10.244.0.2"]), &dual), one);
    let unreadable = VmRecord { metadata: "secret: [".into(), ..machine(&["10.0.0.1"]) };
    let reported = notes(&unreadable, &rules());
    assert!(matches!(reported.as_slice(), [note] if note.contains("guestinfo.metadata")), "{reported:?}");
    assert!(!reported.concat().contains("secret"), "metadata may hold secrets: {reported:?}");
}

#[test]
fn a_node_that_joins_waits_for_its_families_and_an_initialized_one_does_not() {
    let second = |seconds| Duration::from_secs(seconds);
    let without_limit = "is not initialized without it";
    for (case, address, is_initialized, addressed_for, expected) in [
        ("both", "10.0.0.1 fd00::1", false, second(0), None),
        ("the second is missing", "10.0.0.1", false, second(119), Some(("ipv6", "at most 120 s"))),
        ("it is late", "10.0.0.1", false, second(120), None),
        ("the first is missing", "fd00::1", false, second(900), Some(("ipv4", without_limit))),
        ("initialized", "10.0.0.1", true, second(0), None),
        ("initialized, without the first", "fd00::1", true, second(0), None),
    ] {
        let record = machine(&address.split(' ').collect::<Vec<_>>());
        let node = NodeFacts { is_initialized, ..NodeFacts::default() };
        let (vm, beside) = (
            VmKey { vcenter: 0.into(), id: "vm-1".into() },
            AddressContext { addressed_for, ..AddressContext::default() },
        );
        let metadata = describe(&node, &snapshot(true, &[]), &vm, &record, &dual(), beside).unwrap();
        let has_all = address.contains(' ');
        assert_eq!(metadata.messages.is_empty(), has_all || expected.is_some(), "{case}: {:?}", metadata.messages);
        let Some((family, part)) = expected else {
            assert_eq!(metadata.pending, None, "{case}");
            continue;
        };
        let pending = metadata.pending.unwrap();
        assert_eq!((pending.reason, pending.is_transient), (reason::NoAddressOfFamily, false), "{case}");
        let message = pending.message;
        assert!(message.contains(&format!("IP family {family}")) && message.contains(part), "{case}: {message}");
    }
}

#[test]
fn a_virtual_address_is_passed_over_with_a_note() {
    let record = machine(&["10.0.0.100", "10.0.0.1"]);
    let virtual_ip: IpAddr = "10.0.0.100".parse().unwrap();
    let mapped: IpAddr = "::ffff:10.0.0.100".parse().unwrap();
    let with = |demotes_virtual_ips, api_server: &[IpAddr]| MetadataRules {
        demotes_virtual_ips,
        api_server: api_server.to_vec(),
        ..rules()
    };
    for (case, rules, shared, expected, reported) in [
        ("nobody else has it", with(true, &[]), None, "10.0.0.100", None),
        ("others have it", with(true, &[]), Some(virtual_ip), "10.0.0.1", Some("VMs of other Nodes")),
        ("the API server's", with(true, &[mapped]), None, "10.0.0.1", Some("API server")),
        ("not asked for", with(false, &[virtual_ip]), Some(virtual_ip), "10.0.0.100", None),
    ] {
        let vm = VmKey { vcenter: 0.into(), id: "vm-1".into() };
        let facts = NodeFacts::default();
        let shared: Vec<IpAddr> = shared.into_iter().collect();
        let beside = AddressContext { shared_addresses: &shared, ..AddressContext::default() };
        let metadata = describe(&facts, &snapshot(true, &[]), &vm, &record, &rules, beside).unwrap();
        assert_eq!(internal(&metadata), expected, "{case}");
        assert_eq!(metadata.messages.len(), usize::from(reported.is_some()), "{case}: {:?}", metadata.messages);
        assert!(reported.is_none_or(|part| metadata.messages[0].contains(part)), "{case}: {:?}", metadata.messages);
    }
}

#[test]
fn a_provided_node_ip_that_is_excluded_is_noted() {
    let provided = NodeFacts { provided: vec!["10.0.0.2".parse().unwrap()], ..NodeFacts::default() };
    let record = machine(&["10.0.0.1", "10.0.0.2"]);
    let mut rules = rules();
    let metadata = described(&provided, &snapshot(true, &[]), &record, &rules);
    assert_eq!((internal(&metadata), metadata.messages.as_slice()), ("10.0.0.2", [].as_slice()));
    rules.addresses.internal.excluded = vec!["10.0.0.2/32".parse().unwrap()];
    let metadata = described(&provided, &snapshot(true, &[]), &record, &rules);
    assert_eq!(internal(&metadata), "10.0.0.1");
    assert!(metadata.messages[0].contains("10.0.0.2/32 is excluded for InternalIP"), "{:?}", metadata.messages);
}

#[test]
fn the_node_ip_on_an_interface_without_a_virtual_nic_is_taken_where_it_is_trusted_and_named_otherwise() {
    let facts = NodeFacts { provided: vec!["10.0.1.9".parse().unwrap()], ..NodeFacts::default() };
    let mut record = machine(&["10.0.0.1"]);
    let bond = GuestNic { network: None, ip_addresses: vec!["10.0.1.9".to_owned()], device_config_id: -1 };
    record.nics.push(bond);
    let trusting = MetadataRules { trusts_guest_interfaces: true, ..rules() };
    let metadata = described(&facts, &snapshot(true, &[]), &record, &trusting);
    assert_eq!((internal(&metadata), metadata.messages.len()), ("10.0.1.9", 0), "{:?}", metadata.messages);
    let mut excluding = trusting.clone();
    excluding.addresses.internal.excluded = vec!["10.0.1.0/24".parse().unwrap()];
    assert_eq!(internal(&described(&facts, &snapshot(true, &[]), &record, &excluding)), "10.0.0.1");
    for (facts, rules, notes) in [(&facts, rules(), 1), (&NodeFacts::default(), trusting, 0)] {
        let metadata = described(facts, &snapshot(true, &[]), &record, &rules);
        assert_eq!((internal(&metadata), metadata.messages.len()), ("10.0.0.1", notes), "{:?}", metadata.messages);
        let is_named = |note: &String| note.contains("10.0.1.9") && note.contains("no virtual NIC; --trust-guest");
        assert!(metadata.messages.iter().all(is_named), "{:?}", metadata.messages);
    }
}

#[test]
fn w48_a_family_that_the_guest_drops_stays_on_the_node() {
    let dual = dual();
    let held = ["10.0.0.1", "fd00::1"].map(internal_ip);
    let node = NodeFacts { current_addresses: held.to_vec(), ..NodeFacts::default() };
    let metadata = described(&node, &snapshot(true, &[]), &machine(&["10.0.0.1"]), &dual);
    assert!(metadata.node_addresses.contains(&held[1]), "{:?}", metadata.node_addresses);
}

/// Case W51 of `docs/compatibility.md`. If an ancestor is missing in the answer, the walk of the Go program never ends.
#[test]
fn w51_a_walk_over_a_circle_or_a_missing_ancestor_ends() {
    let tag = |zone: &'static str| [("k8s-zone", zone), ("k8s-region", "r")];
    let found = tag("z");
    let cluster = MoRef::new("ClusterComputeResource", "domain-c1");
    let host = MoRef::new("HostSystem", "host-1");
    let group = MoRef::new("Folder", "group-v3");
    let bare: [Tagged<'_>; 3] =
        [("HostSystem", "host-1", &[]), ("ClusterComputeResource", "domain-c1", &[]), ("Folder", "group-v3", &found)];
    let with = |links: &[(&MoRef, Option<&MoRef>)]| {
        let mut snapshot = snapshot(true, &bare);
        let entities = Arc::make_mut(&mut snapshot.entities);
        for (object, parent) in links {
            entities
                .insert((*object).clone(), Entity { name: "x".into(), parent: parent.cloned(), ..Entity::default() });
        }
        snapshot
    };
    let lost = MoRef::new("Folder", "group-lost");
    for (case, snapshot) in [
        ("a circle of two", with(&[(&cluster, Some(&host))])),
        ("its own parent", with(&[(&cluster, Some(&cluster))])),
        ("a missing ancestor", with(&[(&cluster, Some(&lost))])),
        ("the machine's folders in a circle", {
            let mut snapshot = with(&[(&group, Some(&group))]);
            Arc::make_mut(&mut snapshot.tags).objects.insert(group.clone(), ObjectTags::Read(Vec::new()));
            snapshot
        }),
    ] {
        let record =
            VmRecord { host: (!case.starts_with("the machine")).then(|| host.clone()), ..machine(&["10.0.0.1"]) };
        let of_vm = (MoRef::new("VirtualMachine", "vm-1"), ObjectTags::Read(Vec::new()));
        let mut snapshot = snapshot;
        Arc::make_mut(&mut snapshot.tags).objects.extend([of_vm]);
        let metadata = described(&NodeFacts::default(), &snapshot, &record, &zoned());
        let pending = metadata.pending.map(|unknown| unknown.reason.as_str());
        assert_eq!(pending, Some("ZoneUnknown"), "{case}: no other way up is taken");
        assert_eq!(metadata.zone, "", "{case}");
    }
    let long: Vec<MoRef> = (0..1_000).map(|number| MoRef::new("Folder", format!("group-{number}"))).collect();
    let links: Vec<_> = long.iter().zip(long.iter().skip(1)).map(|(child, parent)| (child, Some(parent))).collect();
    assert!(with(&links).chain(&long[0]).len() < 100, "a way up of any length is cut");
}

/// Without the permission to read tags, the lists of vCenter are empty and give no error.
#[test]
fn a_node_without_tags_is_told_that_the_account_may_lack_the_right_to_read_them() {
    let bare: [Tagged<'_>; 4] = [
        ("HostSystem", "host-1", &[]),
        ("ClusterComputeResource", "domain-c1", &[]),
        ("VirtualMachine", "vm-1", &[]),
        ("Folder", "group-v3", &[]),
    ];
    let mut snapshot = snapshot(true, &bare);
    Arc::make_mut(&mut snapshot.tags).objects.insert(MoRef::new("Folder", "group-d1"), ObjectTags::Read(Vec::new()));
    let pending = described(&NodeFacts::default(), &snapshot, &machine(&["10.0.0.1"]), &zoned()).pending.unwrap();
    assert!(pending.message.ends_with("it needs a global permission with the role Read-only"), "{}", pending.message);
    Arc::make_mut(&mut snapshot.tags).error = Some("check the global permission".into());
    let metadata = described(&NodeFacts::default(), &snapshot, &machine(&["10.0.0.1"]), &zoned());
    let pending = metadata.pending.unwrap();
    assert_eq!(pending.reason, "NoZoneTags");
    assert!(pending.message.contains("check the global permission; no tags for zone"), "{}", pending.message);
}

/// B41, differs: the Go program crashes if `config` of a VM is absent, as for an inaccessible VM. This program reads
/// the UUID from `summary.config`. The guest metadata is in `config`, so there is none.
// vectors: B41
#[test]
fn b41_a_machine_without_config_has_its_addresses() {
    let record = VmRecord { metadata: String::new(), metadata_encoding: String::new(), ..machine(&["10.0.0.1"]) };
    let metadata = described(&NodeFacts::default(), &snapshot(true, &[]), &record, &rules());
    assert_eq!(internal(&metadata), "10.0.0.1");
    assert_eq!(metadata.provider_id, format!("vsphere://{UUID}"));
    let nothing = VmRecord { bios_uuid: None, ..record };
    let vm = VmKey { vcenter: 0.into(), id: "vm-1".into() };
    let unknown =
        describe(&NodeFacts::default(), &snapshot(true, &[]), &vm, &nothing, &rules(), AddressContext::default())
            .unwrap_err();
    assert_eq!(unknown.reason, "ToolsNotRunning", "neither has one: nothing is concluded");
}

fn without_host_name() -> VmRecord {
    VmRecord { host_name: String::new(), ..machine(&["10.0.0.1"]) }
}

#[test]
fn what_the_guest_or_the_account_lacks_is_named_with_the_state_of_the_vm_first() {
    let vm = VmKey { vcenter: 0.into(), id: "vm-1".into() };
    for (case, record, reason, parts) in [
        (
            "no host name",
            VmRecord { host_name: String::new(), ..machine(&["10.0.0.1"]) },
            "ToolsNotRunning",
            vec!["VM vm (vm-1) reports no guest host name (guest.hostName)", "VMware Tools"],
        ),
        (
            "Tools do not run",
            VmRecord { tools: "guestToolsNotRunning".into(), ..without_host_name() },
            "ToolsNotRunning",
            vec!["VM vm (vm-1) is running, but VMware Tools is not running (guestToolsNotRunning)", "open-vm-tools"],
        ),
        (
            "Tools start",
            VmRecord { tools: "guestToolsExecutingScripts".into(), ..without_host_name() },
            "ToolsNotRunning",
            vec!["guest.hostName", "VMware Tools is starting"],
        ),
        (
            "Tools run, and do not know the name",
            VmRecord { tools: "guestToolsRunning".into(), ..without_host_name() },
            "ToolsNotRunning",
            vec!["guest.hostName", "although VMware Tools is running"],
        ),
        (
            "off, before the guest ever reported",
            VmRecord {
                power_state: Some(PowerState::PoweredOff),
                tools: "guestToolsNotRunning".into(),
                ..without_host_name()
            },
            "VMPoweredOff",
            vec!["VM vm (vm-1) is powered off and reports no guest host name"],
        ),
        (
            "off, with the name that vCenter remembers and no address",
            VmRecord { power_state: Some(PowerState::PoweredOff), ..machine(&[]) },
            "VMPoweredOff",
            vec!["VM vm (vm-1) is powered off; "],
        ),
        (
            "suspended",
            VmRecord { power_state: Some(PowerState::Suspended), ..without_host_name() },
            "ToolsNotRunning",
            vec!["VM vm (vm-1) is suspended"],
        ),
        (
            "disconnected, and off as far as vCenter knows",
            VmRecord {
                power_state: Some(PowerState::PoweredOff),
                connection_state: Some("disconnected".into()),
                ..without_host_name()
            },
            "ToolsNotRunning",
            vec!["VM vm (vm-1) is disconnected (its ESXi host is disconnected from vCenter)"],
        ),
        (
            "an orphaned machine",
            VmRecord { host_name: String::new(), connection_state: Some("orphaned".into()), ..machine(&["10.0.0.1"]) },
            "ToolsNotRunning",
            vec!["VM vm (vm-1) is orphaned (its ESXi host no longer has it)"],
        ),
        (
            "no right",
            VmRecord { bios_uuid: None, unreadable: vec!["config.uuid".into()], ..machine(&["10.0.0.1"]) },
            "ToolsNotRunning",
            vec!["VM vm (vm-1) has no BIOS UUID", "config.uuid", "System.Read"],
        ),
        ("no address", machine(&[]), "NoUsableAddress", vec!["vm-1"]),
    ] {
        let beside = AddressContext::default();
        let unknown = match describe(&NodeFacts::default(), &snapshot(true, &[]), &vm, &record, &rules(), beside) {
            Ok(metadata) => {
                assert!(metadata.node_addresses.is_empty() && !metadata.provider_id.is_empty(), "{case}");
                metadata.pending.expect(case)
            }
            Err(unknown) => unknown,
        };
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
        let pending = metadata.pending.as_ref().map(|unknown| (unknown.reason.as_str(), unknown.is_transient));
        assert_eq!(pending, expected, "{case}");
        assert_eq!(metadata.zone, if expected.is_none() { "z" } else { "" }, "{case}");
    }
}
