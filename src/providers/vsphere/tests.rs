//! Tests from the bytes of an answer to the result for a Node: points 8.5, 8.8, 8.9 and 8.10 of the wire protocol
//! checklist, and that a broken answer never leaves a broken mirror.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::nodes::lookup::facts::NodeFacts;
use super::nodes::lookup::resolution::{LookupDecision, Question, SearchAnswer, SearchKey, VcenterAnswer, resolve};
use super::nodes::metadata::{AddressContext, MetadataRules, describe};
use super::vcenter::VmKey;
use super::vcenter::mirror::{Mirror, TouchedObjects};
use super::vcenter::snapshot::{Freshness, PowerState, Snapshot, TagSnapshot};
use super::vcenter::zone_tags::{ObjectTags, Tag, ZoneCategories};
use crate::clients::vim::tests::{mutated, read_updates, updates};
use crate::clients::vim::{MoRef, decode_name};
use crate::cloud::{InstanceMetadata, Unknown};
use crate::providers::vsphere::config::address_rules::IpFamily;

const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";
const SWAPPED: &str = "56492e42-22ad-3911-6d72-59cc8f26bc90";

fn change(name: &str, value: &str) -> String {
    format!("<changeSet><name>{name}</name><op>assign</op><val>{value}</val></changeSet>")
}

fn link(name: &str, kind: &str, id: &str) -> String {
    format!("<changeSet><name>{name}</name><op>assign</op><val type=\"{kind}\">{id}</val></changeSet>")
}

fn object(kind: &str, type_: &str, id: &str, changes: &[String]) -> String {
    format!("<objectSet><kind>{kind}</kind><obj type=\"{type_}\">{id}</obj>{}</objectSet>", changes.concat())
}

fn nic(network: Option<&str>, device: i32, addresses: &[&str]) -> String {
    let network = network.map(|network| format!("<network>{network}</network>")).unwrap_or_default();
    let addresses: String = addresses.iter().fold(String::new(), |mut text, address| {
        let _ = write!(text, "<ipAddress>{address}</ipAddress>");
        text
    });
    format!(
        "<GuestNicInfo>{network}{addresses}<connected>true</connected><deviceConfigId>{device}</deviceConfigId>\
         </GuestNicInfo>"
    )
}

/// Returns the reported properties of a VM without problems.
fn machine() -> Vec<String> {
    vec![
        change("name", "worker-1"),
        change("config.uuid", UUID),
        change("summary.config.uuid", UUID),
        link("parent", "Folder", "group-v3"),
        link("resourcePool", "ResourcePool", "resgroup-8"),
        link("runtime.host", "HostSystem", "host-9"),
        change("runtime.powerState", "poweredOn"),
        change("runtime.connectionState", "connected"),
        change("summary.config.template", "false"),
        change("summary.config.numCpu", "2"),
        change("summary.config.memorySizeMB", "4096"),
        change("summary.config.guestId", "ubuntu64Guest"),
        change("guest.hostName", "node-1"),
        change("guest.net", &nic(Some("prod"), 4000, &["10.0.0.1"])),
    ]
}

/// Returns [`machine`] with `added`, and without the paths that start with one of `left_out`.
fn machine_but(left_out: &[&str], added: &[String]) -> Vec<String> {
    let is_left_out = |change: &String| left_out.iter().any(|path| change.contains(&format!("<name>{path}")));
    machine().into_iter().filter(|change| !is_left_out(change)).chain(added.iter().cloned()).collect()
}

/// Returns host and pool in a cluster, and a folder, all in one datacenter.
fn ancestors() -> String {
    [
        ("HostSystem", "host-9", Some(("ClusterComputeResource", "domain-c8"))),
        ("ResourcePool", "resgroup-8", Some(("ClusterComputeResource", "domain-c8"))),
        ("ClusterComputeResource", "domain-c8", Some(("Datacenter", "datacenter-2"))),
        ("Folder", "group-v3", Some(("Datacenter", "datacenter-2"))),
        ("Datacenter", "datacenter-2", None),
    ]
    .into_iter()
    .map(|(kind, id, parent)| {
        let parent = parent.map(|(kind, id)| link("parent", kind, id)).unwrap_or_default();
        let connection = match kind {
            "HostSystem" => change("runtime.connectionState", "connected"),
            _ => String::new(),
        };
        object("enter", kind, id, &[change("name", id), parent, connection])
    })
    .collect()
}

fn apply(mirror: &mut Mirror, objects: &str) -> TouchedObjects {
    mirror.apply(&[updates(objects)])
}

fn snapshot(mirror: &Mirror) -> Snapshot {
    let vms = mirror.vms.keys().map(|id| MoRef::new("VirtualMachine", id));
    let untagged = vms.chain(mirror.entities.keys().cloned()).map(|object| (object, ObjectTags::Read(Vec::new())));
    let mut tags = TagSnapshot { objects: untagged.collect(), error: None };
    let tag = |category: &str, name: &str| Tag { name: name.into(), category: category.into() };
    let zone = ObjectTags::Read(vec![tag("zone", "z"), tag("region", "r")]);
    tags.objects.insert(MoRef::new("Datacenter", "datacenter-2"), zone);
    Snapshot {
        freshness: Freshness::Live,
        instance_uuid: "vc".into(),
        vms: mirror.vms.clone().into_iter().collect(),
        entities: Arc::new(mirror.entities.clone()),
        tags: Arc::new(tags),
        ..Snapshot::default()
    }
}

fn rules(families: &[IpFamily]) -> MetadataRules {
    let categories = ZoneCategories { zone: "zone".into(), region: "region".into() };
    MetadataRules {
        families: [(0.into(), families.to_vec())].into(),
        categories: Some(categories),
        ..MetadataRules::default()
    }
}

fn described(mirror: &Mirror, families: &[IpFamily]) -> Result<InstanceMetadata, Unknown> {
    let snapshot = snapshot(mirror);
    let vm = VmKey { vcenter: 0.into(), id: "vm-1".into() };
    describe(
        &NodeFacts::default(),
        &snapshot,
        &vm,
        snapshot.vms.get("vm-1").unwrap(),
        &rules(families),
        AddressContext::default(),
    )
}

/// Point 8.5, result: after each order and kind of updates, the mirror is the same as the server.
#[test]
fn checklist_8_5_updates_of_every_kind_leave_what_the_server_has() {
    let mut mirror = Mirror::default();
    let vm = |kind: &str, changes: &[String]| object(kind, "VirtualMachine", "vm-1", changes);
    let touched = apply(&mut mirror, &vm("modify", &[change("name", "early")]));
    assert!(touched.vms.contains("vm-1") && mirror.vms["vm-1"].name == "early", "a modify of an unknown object");
    apply(&mut mirror, &vm("enter", &machine()));
    let before = Arc::clone(&mirror.vms["vm-1"]);
    assert_eq!(apply(&mut mirror, &vm("enter", &machine())), TouchedObjects::default(), "a repeated enter");
    assert!(Arc::ptr_eq(&before, &mirror.vms["vm-1"]));
    let gone = |op: &str, path: &str| format!("<changeSet><name>{path}</name><op>{op}</op></changeSet>");
    let removals =
        [gone("assign", "guest.hostName"), gone("remove", "guest.net"), gone("indirectRemove", "runtime.host")];
    apply(&mut mirror, &vm("modify", &removals));
    let record = &mirror.vms["vm-1"];
    assert_eq!((record.host_name.as_str(), record.nics.len(), &record.host), ("", 0, &None));
    assert_eq!(record.name, "worker-1", "what is not named stays");
    let twice = vm("modify", &[change("name", "one")]) + &vm("modify", &[change("name", "two")]);
    apply(&mut mirror, &twice);
    assert_eq!(mirror.vms["vm-1"].name, "two", "several updates of one object, in order");
    apply(&mut mirror, &vm("enter", &[change("name", "three")]));
    assert_eq!(mirror.vms["vm-1"].bios_uuid, None, "an enter of a known object replaces it");
    for expected in [true, false] {
        let touched = apply(&mut mirror, &vm("leave", &[]));
        assert_eq!(
            (touched.vms.contains("vm-1"), touched.removed.contains("vm-1")),
            (expected, true),
            "a leave, and one of an unknown object"
        );
    }
    assert!(mirror.vms.is_empty());
}

/// Point 8.8: VMs and inventories in unusual states. Each gives metadata or a reason, never a panic or a wrong zone.
#[test]
fn checklist_8_8_odd_machines_and_inventories_have_a_decided_outcome() {
    let no_guest = ["guest.hostName", "guest.net"];
    let no_config = ["config.uuid"];
    let in_vapp = [link("parentVApp", "VirtualApp", "resgroup-v7")];
    let vapp = object(
        "enter",
        "VirtualApp",
        "resgroup-v7",
        &[change("name", "app"), link("parent", "ResourcePool", "resgroup-8")],
    );
    let lost =
        object("modify", "ClusterComputeResource", "domain-c8", &[link("parent", "Datacenter", "datacenter-lost")]);
    let circle = object("modify", "ClusterComputeResource", "domain-c8", &[link("parent", "HostSystem", "host-9")]);
    let state = |text: &str| change("runtime.connectionState", text);
    // Case, VM, further updates, reason of the look-up or of the zone (`None` without a problem), and whether the VM is
    // shut down.
    type Case = (&'static str, Vec<String>, String, Option<&'static str>, Option<bool>);
    let cases: Vec<Case> = vec![
        ("in good order", machine(), String::new(), None, Some(false)),
        ("an ancestor that is missing", machine(), lost, Some("ZoneUnknown"), Some(false)),
        ("a circle of ancestors", machine(), circle, Some("ZoneUnknown"), Some(false)),
        ("without host", machine_but(&["runtime.host"], &[]), String::new(), None, None),
        ("without config", machine_but(&no_config, &[]), String::new(), None, Some(false)),
        (
            "without any UUID",
            machine_but(&["config.uuid", "summary.config.uuid"], &[]),
            String::new(),
            Some("ToolsNotRunning"),
            Some(false),
        ),
        ("without guest", machine_but(&no_guest, &[]), String::new(), Some("ToolsNotRunning"), Some(false)),
        ("without addresses", machine_but(&["guest.net"], &[]), String::new(), Some("NoGuestNics"), Some(false)),
        ("in a vApp", machine_but(&["parent"], &in_vapp), vapp, None, Some(false)),
        (
            "a template",
            machine_but(&["resourcePool", "summary.config.template"], &[change("summary.config.template", "true")]),
            String::new(),
            None,
            Some(false),
        ),
        ("orphaned", machine_but(&["runtime.connectionState"], &[state("orphaned")]), String::new(), None, None),
        (
            "inaccessible, and so without config and guest",
            machine_but(
                &["config.uuid", "guest.hostName", "guest.net", "runtime.connectionState"],
                &[state("inaccessible")],
            ),
            String::new(),
            Some("ToolsNotRunning"),
            None,
        ),
        (
            "disconnected",
            machine_but(&["runtime.connectionState"], &[state("disconnected")]),
            String::new(),
            None,
            None,
        ),
        ("invalid", machine_but(&["runtime.connectionState"], &[state("invalid")]), String::new(), None, None),
        (
            "off",
            machine_but(&["runtime.powerState"], &[change("runtime.powerState", "poweredOff")]),
            String::new(),
            None,
            Some(true),
        ),
        (
            "in a power state of the future",
            machine_but(&["runtime.powerState"], &[change("runtime.powerState", "hibernated")]),
            String::new(),
            None,
            None,
        ),
    ];
    for (case, changes, further, reason, is_off) in cases {
        let mut mirror = Mirror::default();
        apply(&mut mirror, &(object("enter", "VirtualMachine", "vm-1", &changes) + &ancestors()));
        if !further.is_empty() {
            apply(&mut mirror, &further);
        }
        let got = described(&mirror, &[IpFamily::V4]);
        let reported = match &got {
            Ok(metadata) => metadata.pending.as_ref().map(|unknown| unknown.reason.as_str()),
            Err(unknown) => Some(unknown.reason.as_str()),
        };
        assert_eq!(reported, reason, "{case}: {got:?}");
        if let Ok(metadata) = got {
            let has_zone = reason.is_none() || metadata.node_addresses.is_empty();
            let zone = if has_zone { "z" } else { "" };
            assert_eq!(metadata.zone, zone, "{case}: no zone but the right one");
            assert_eq!(metadata.provider_id, format!("vsphere://{UUID}"), "{case}");
        }
        let snapshot = snapshot(&mirror);
        let is_off_now = snapshot.proves(snapshot.vms.get("vm-1").unwrap()).map(|state| state != PowerState::PoweredOn);
        assert_eq!(is_off_now, is_off, "{case}");
    }
}

/// Point 8.9: two VMs with the same UUID, the other byte order, and upper case.
#[test]
fn checklist_8_9_one_uuid_in_every_spelling_and_on_two_machines() {
    let reported = |node_uuid: &str, machines: &[(&str, &str, &str)]| {
        let mut mirror = Mirror::default();
        for (id, uuid, power) in machines {
            let own = [change("config.uuid", uuid), change("runtime.powerState", power), change("guest.hostName", "x")];
            let paths = ["config.uuid", "summary.config.uuid", "runtime.powerState", "guest.hostName"];
            apply(&mut mirror, &object("enter", "VirtualMachine", id, &machine_but(&paths, &own)));
        }
        apply(&mut mirror, &ancestors());
        let snapshot = snapshot(&mirror);
        let ids = machines.iter().map(|(id, ..)| (*id).into()).collect();
        let node = NodeFacts { system_uuid: node_uuid.parse().ok(), name: "node-1".into(), ..NodeFacts::default() };
        let decision = resolve(&Question {
            node: &node,
            asked_by_name: false,
            vcenters: &[VcenterAnswer {
                vcenter: 0.into(),
                server: "vc",
                datacenters: &[],
                snapshot: &snapshot,
                answer: &SearchAnswer::Matches { query: SearchKey::Uuid, ids },
            }],
            unqueried: None,
            waiting_time: Duration::ZERO,
            owner_clause: &|_| None,
            allow_name_match: false,
        });
        match decision {
            LookupDecision::Bind { vm, .. } => vm.id.to_string(),
            LookupDecision::Unresolved(unknown) | LookupDecision::NoMatch(unknown) => format!("!{}", unknown.reason),
            other => panic!("{other:?}"),
        }
    };
    let (on, off) = ("poweredOn", "poweredOff");
    let upper = UUID.to_uppercase();
    assert_eq!(reported(UUID, &[("vm-1", UUID, on)]), "vm-1");
    assert_eq!(reported(UUID, &[("vm-1", SWAPPED, on)]), "vm-1", "the other byte order");
    assert_eq!(reported(&upper, &[("vm-1", UUID, on)]), "vm-1", "upper case on the node");
    assert_eq!(reported(UUID, &[("vm-1", &upper, on)]), "vm-1", "upper case in vCenter");
    assert_eq!(reported(&SWAPPED.to_uppercase(), &[("vm-1", &upper, on)]), "vm-1", "all of it");
    assert_eq!(reported(UUID, &[("vm-1", UUID, off), ("vm-2", &upper, on)]), "vm-2", "the one that runs");
    assert_eq!(
        reported(UUID, &[("vm-1", UUID, on), ("vm-2", SWAPPED, on)]),
        "!SeveralVMsMatch",
        "no guess between two"
    );
    assert_eq!(reported(UUID, &[("vm-1", "11111111-2222-3333-4444-555555555555", on)]), "!VMNotFound");
}

/// Point 8.10: all forms of `guest.net`.
#[test]
fn checklist_8_10_guest_interfaces_of_every_shape_give_the_right_addresses_or_a_reason() {
    use IpFamily::{V4, V6};
    let many: String = (0..16).map(|n| nic(Some("prod"), 4000 + n, &[&format!("10.0.{n}.1")])).collect();
    let bridges: String = (0..200).map(|n| nic(None, -1, &[&format!("10.244.0.{n}")])).collect();
    let assign = |value: &str| change("guest.net", value);
    let unset = "<changeSet><name>guest.net</name><op>assign</op></changeSet>".to_owned();
    let typed = "<changeSet><name>guest.net</name><op>assign</op><val xsi:type=\"ArrayOfGuestNicInfo\"/></changeSet>";
    let cases: Vec<(&str, String, &[IpFamily], &str)> = vec![
        ("null", unset, &[V4], "!NoGuestNics"),
        ("an empty list", typed.to_owned(), &[V4], "!NoGuestNics"),
        ("an empty element", assign(""), &[V4], "!NoGuestNics"),
        ("16 interfaces", assign(&many), &[V4], "10.0.0.1 10.0.0.1"),
        ("only the guest's own", assign(&bridges), &[V4], "!NoUsableAddress"),
        ("the guest's own first", assign(&(bridges.clone() + &many)), &[V4], "10.0.0.1 10.0.0.1"),
        ("no network", assign(&nic(None, 4000, &["10.0.0.1"])), &[V4], "10.0.0.1 10.0.0.1"),
        ("no address", assign(&nic(Some("prod"), 4000, &[])), &[V4], "!NoUsableAddress"),
        (
            "one address on several interfaces",
            assign(&(nic(Some("a"), 4000, &["10.0.0.1", "10.0.0.1"]) + &nic(Some("b"), 4001, &["10.0.0.1"]))),
            &[V4],
            "10.0.0.1 10.0.0.1",
        ),
        (
            "link-local first",
            assign(&nic(None, 4000, &["169.254.3.4", "fe80::1", "10.0.0.1"])),
            &[V4],
            "10.0.0.1 10.0.0.1",
        ),
        ("link-local only", assign(&nic(None, 4000, &["169.254.3.4", "fe80::1"])), &[V4, V6], "!NoUsableAddress"),
        ("zone ids", assign(&nic(None, 4000, &["fe80::1%eth0", "fd00::1%2", "fd00::2"])), &[V6], "fd00::2 fd00::2"),
        (
            "both families",
            assign(&nic(None, 4000, &["fd00::2", "10.0.0.1"])),
            &[V4, V6],
            "10.0.0.1 10.0.0.1 fd00::2 fd00::2",
        ),
        ("text that is no address", assign(&nic(None, 4000, &["", "unknown", "10.0.0.1"])), &[V4], "10.0.0.1 10.0.0.1"),
    ];
    for (case, guest_net, families, want) in cases {
        let mut mirror = Mirror::default();
        let vm = object("enter", "VirtualMachine", "vm-1", &machine_but(&["guest.net"], &[guest_net]));
        apply(&mut mirror, &(vm + &ancestors()));
        let reported = match described(&mirror, families) {
            Ok(InstanceMetadata { pending: Some(pending), .. }) => format!("!{}", pending.reason),
            Ok(metadata) => {
                let texts = metadata.node_addresses.into_iter().skip(1).map(|address| address.address);
                texts.collect::<Vec<_>>().join(" ")
            }
            Err(unknown) => format!("!{}", unknown.reason),
        };
        assert_eq!(reported, want, "{case}");
    }
}

proptest! {
    #[test]
    fn no_answer_breaks_what_is_built_from_it(texts in proptest::collection::vec(mutated(), 1..4)) {
        let mut mirror = Mirror::default();
        for text in texts {
            mirror.apply(&read_updates(&text).unwrap_or_default());
        }
        let snapshot = snapshot(&mirror);
        for (id, record) in &mirror.vms {
            let vm = VmKey { vcenter: 0.into(), id: id.clone() };
            let rules = rules(&[IpFamily::V4, IpFamily::V6]);
            let _ = describe(&NodeFacts::default(), &snapshot, &vm, record, &rules, AddressContext::default());
            prop_assert!(record.power_state != Some(PowerState::PoweredOff), "no seed has a machine that is off");
            prop_assert!(decode_name(&record.name).len() <= record.name.len());
        }
    }
}

#[test]
fn what_a_server_cannot_let_us_read_is_kept_within_bounds() {
    let missing = |number: usize| {
        format!("<missingSet><path>p{number}</path><fault><fault><NoPermission/></fault></fault></missingSet>")
    };
    let all: Vec<String> = (0..50_000).map(missing).collect();
    let mut mirror = Mirror::default();
    let began = Instant::now();
    apply(&mut mirror, &object("enter", "VirtualMachine", "vm-1", &all));
    assert!(mirror.vms["vm-1"].unreadable.len() <= 100, "{} paths", mirror.vms["vm-1"].unreadable.len());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
