//! Tests of the proof of absence, piece by piece: with a missing, rejected or unanswered piece there is no proof.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::providers::vsphere::nodes::lookup::vcenters::TrackerConfig;

const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";
const SWAPPED: &str = "56492e42-22ad-3911-6d72-59cc8f26bc90";
const OTHER: &str = "01234567-89ab-cdef-4444-555555555555";

fn node(node: serde_json::Value) -> Node {
    serde_json::from_value(node).unwrap()
}

fn wanted() -> Vec<BiosUuid> {
    vec![UUID.parse().unwrap(), SWAPPED.parse().unwrap()]
}

fn location() -> Location {
    Location {
        vcenter: "vc-1".into(),
        vm: "vm-3".into(),
        host: Some(MoRef::new("HostSystem", "host-1")),
        folder: Some(MoRef::new("Folder", "group-v3")),
        pool: Some(MoRef::new("ResourcePool", "resgroup-8")),
        datacenter: Some(MoRef::new("Datacenter", "datacenter-2")),
    }
}

fn place() -> LocationReads {
    let found = Some(ReadAnswer::Found(()));
    LocationReads {
        location: Arc::new(location()),
        vm: ReadAnswer::Gone,
        host: Some(ReadAnswer::Found("connected".into())),
        folder: found.clone(),
        pool: found.clone(),
        datacenter: found,
    }
}

fn silent<T>() -> ReadAnswer<T> {
    ReadAnswer::Silent(VcenterFailure::unavailable("connection refused"))
}

fn refused<T>() -> ReadAnswer<T> {
    ReadAnswer::Denied(Denial { object: "Folder:group-v3".into(), privilege: "System.Read".into(), is_logged: true })
}

fn nowhere(server: &str, instance_uuid: &str) -> VcenterEvidence {
    VcenterEvidence {
        server: server.into(),
        instance_uuid: instance_uuid.into(),
        searches: wanted().into_iter().map(|uuid| (uuid, ReadAnswer::Found(Vec::new()))).collect(),
        locations: Vec::new(),
    }
}

/// Returns a complete proof: the evidence of the VM's vCenter, and of another vCenter.
fn proved() -> Vec<VcenterEvidence> {
    vec![VcenterEvidence { locations: vec![place()], ..nowhere("one:443", "vc-1") }, nowhere("two:443", "vc-2")]
}

fn judged(testimonies: &[VcenterEvidence], location: Option<&Location>, trusts_unseen: bool) -> Presence {
    let places: Vec<_> = location.into_iter().cloned().map(Arc::new).collect();
    let mut testimonies = testimonies.to_vec();
    for place in testimonies.iter_mut().flat_map(|answer| &mut answer.locations) {
        // All reads are about the location of the case.
        place.location = places.first().map_or_else(Default::default, Arc::clone);
    }
    let last = LastPlaces { locations: places, are_known: location.is_some() };
    presence_of(&AbsenceInput { uuids: &wanted(), last: &last, trusts_unseen, evidence: &testimonies, unqueried: None })
}

/// Returns `exists`, `absent`, or the reason.
fn word(presence: &Presence) -> &str {
    match presence {
        Presence::Exists(()) => "exists",
        Presence::Absent(_) => "absent",
        Presence::Unknown(unknown) => unknown.reason.as_str(),
    }
}

#[test]
fn what_two_vcenters_have_said_in_turn_under_one_address_proves_nothing() {
    for ((one, two), expected) in [
        (("vc-1", "vc-2"), "absent"),
        (("vc-9", "vc-2"), "VCenterUnavailable"),
        (("vc-1", "vc-9"), "VCenterUnavailable"),
    ] {
        let mut evidence = proved().into_iter();
        let now = [one, two].map(|uuid| evidence.next().unwrap().if_still(uuid));
        assert_eq!(word(&judged(&now, Some(&location()), false)), expected, "{one}, {two}");
    }
}

#[test]
fn nothing_is_absent_while_a_vcenter_of_the_configuration_is_turned_off() {
    let places = vec![Arc::new(location())];
    let mut testimonies = proved();
    testimonies[0].locations[0].location = Arc::clone(&places[0]);
    let last = LastPlaces { locations: places, are_known: true };
    let setup = TrackerConfig { rejected: vec!["VSPHERE_VCENTER_2".to_owned()], ..TrackerConfig::default() };
    for (setup, expected) in [(TrackerConfig::default(), "absent"), (setup, "VCenterNotConfigured")] {
        let unasked = setup.check_complete().err();
        let case = AbsenceInput {
            uuids: &wanted(),
            last: &last,
            trusts_unseen: true,
            evidence: &testimonies,
            unqueried: unasked,
        };
        assert_eq!(word(&presence_of(&case)), expected);
    }
}

#[test]
fn a_whole_proof_says_what_was_looked_at() {
    let Presence::Absent(proof) = judged(&proved(), Some(&location()), false) else { panic!("a whole proof") };
    assert_eq!(
        proof.evidence(),
        [
            "vCenter one:443 (vc-1) has no VM vm-3",
            "no VM has BIOS UUID 422e4956-ad22-1139-6d72-59cc8f26bc90 or \
             56492e42-22ad-3911-6d72-59cc8f26bc90 in one:443, two:443",
            "its last host HostSystem:host-1 is connected, and Folder:group-v3 and ResourcePool:resgroup-8 can be read",
        ]
    );
}

fn read_as(uuid: &str) -> VmRead {
    ReadAnswer::Found(VmIdentity { name: "n".into(), bios_uuid: Some(uuid.parse().unwrap()) })
}

fn in_state(state: &str) -> Option<HostRead> {
    Some(ReadAnswer::Found(state.to_owned()))
}

type CaseChange = fn(&mut Vec<VcenterEvidence>, &mut Location);

fn at_home(evidence: &mut [VcenterEvidence]) -> &mut LocationReads {
    &mut evidence[0].locations[0]
}

#[test]
fn one_changed_piece_of_evidence_decides() {
    let cases: &[(&str, CaseChange, &str)] = &[
        ("nothing", |_, _| {}, "absent"),
        // Evidence that the VM exists.
        ("W33: a match elsewhere", |all, _| all[1].searches[0].1 = ReadAnswer::Found(vec!["vm-9".into()]), "exists"),
        (
            "W40: a match in the other byte order",
            |all, _| all[0].searches[1].1 = ReadAnswer::Found(vec!["vm-9".into()]),
            "exists",
        ),
        (
            "a match, with the other vCenter silent",
            |all, _| {
                all[0].searches[0].1 = ReadAnswer::Found(vec!["vm-9".into()]);
                all[1].searches[0].1 = silent();
            },
            "exists",
        ),
        ("the id is there", |all, _| at_home(all).vm = ReadAnswer::Found(Default::default()), "exists"),
        ("the id is there with the UUID", |all, _| at_home(all).vm = read_as(SWAPPED), "exists"),
        ("A8: the id is there with another UUID", |all, _| at_home(all).vm = read_as(OTHER), "ProviderIDMismatch"),
        // Searches.
        ("W33: a search without answer", |all, _| all[1].searches[0].1 = silent(), "VCenterUnavailable"),
        ("a search that is refused", |all, _| all[1].searches[1].1 = refused(), "NoPermission"),
        ("a search that was not made", |all, _| drop(all[1].searches.pop()), "VCenterUnavailable"),
        ("one byte order only", |all, _| drop(all[0].searches.pop()), "VCenterUnavailable"),
        ("a search whose answer is no answer", |all, _| all[1].searches[0].1 = ReadAnswer::Gone, "VCenterUnavailable"),
        ("no vCenter at all", |all, _| all.clear(), "VCenterUnavailable"),
        // The vCenter of the VM.
        ("another vCenter's record", |_, at| at.vcenter = "vc-3".into(), "VCenterNotConfigured"),
        ("a vCenter without identity", |all, _| all[0].instance_uuid.clear(), "VCenterNotConfigured"),
        (
            "a record without identity",
            |all, at| {
                at.vcenter = Default::default();
                all[0].instance_uuid.clear();
            },
            "VCenterNotConfigured",
        ),
        (
            "the same vCenter twice, one silent about the machine",
            |all, _| {
                let again = VcenterEvidence {
                    locations: vec![LocationReads { vm: silent(), ..place() }],
                    ..nowhere("alias:443", "vc-1")
                };
                all.push(again);
            },
            "VCenterUnavailable",
        ),
        (
            "the same vCenter twice, one refusing",
            |all, _| {
                let again = VcenterEvidence {
                    locations: vec![LocationReads { vm: refused(), ..place() }],
                    ..nowhere("alias:443", "vc-1")
                };
                all.push(again);
            },
            "NoPermission",
        ),
        // The VM.
        ("the id was not read", |all, _| all[0].locations.clear(), "VCenterUnavailable"),
        ("the id is silent", |all, _| at_home(all).vm = silent(), "VCenterUnavailable"),
        ("the id is refused", |all, _| at_home(all).vm = refused(), "NoPermission"),
        // The host.
        ("the host is gone", |all, _| at_home(all).host = Some(ReadAnswer::Gone), "HostGone"),
        ("A2: the host is disconnected", |all, _| at_home(all).host = in_state("disconnected"), "HostNotConnected"),
        ("A2: the host does not respond", |all, _| at_home(all).host = in_state("notResponding"), "HostNotConnected"),
        ("A2: the host is in a state of the future", |all, _| at_home(all).host = in_state("new"), "HostNotConnected"),
        ("the host is refused", |all, _| at_home(all).host = Some(refused()), "NoPermission"),
        ("the host is silent", |all, _| at_home(all).host = Some(silent()), "VCenterUnavailable"),
        ("the host was not read", |all, _| at_home(all).host = None, "VCenterUnavailable"),
        ("the host is not known", |_, at| at.host = None, "LocationUnknown"),
        // Folder and pool.
        ("the folder is refused", |all, _| at_home(all).folder = Some(refused()), "NoPermission"),
        ("the folder is silent", |all, _| at_home(all).folder = Some(silent()), "VCenterUnavailable"),
        ("the folder was not read", |all, _| at_home(all).folder = None, "VCenterUnavailable"),
        ("the pool is refused", |all, _| at_home(all).pool = Some(refused()), "NoPermission"),
        ("the pool is silent", |all, _| at_home(all).pool = Some(silent()), "VCenterUnavailable"),
        (
            "the folder is gone, the datacenter is there",
            |all, _| at_home(all).folder = Some(ReadAnswer::Gone),
            "absent",
        ),
        ("the pool is gone, the datacenter is there", |all, _| at_home(all).pool = Some(ReadAnswer::Gone), "absent"),
        ("a machine that lay directly in a vApp", |_, at| at.folder = None, "absent"),
        ("a machine without a pool", |_, at| at.pool = None, "absent"),
        (
            "folder and datacenter are gone",
            |all, _| {
                at_home(all).folder = Some(ReadAnswer::Gone);
                at_home(all).datacenter = Some(ReadAnswer::Gone);
            },
            "LocationUnknown",
        ),
        (
            "the folder is gone, the datacenter is refused",
            |all, _| {
                at_home(all).folder = Some(ReadAnswer::Gone);
                at_home(all).datacenter = Some(refused());
            },
            "NoPermission",
        ),
        (
            "the pool is gone, the datacenter is silent",
            |all, _| {
                at_home(all).pool = Some(ReadAnswer::Gone);
                at_home(all).datacenter = Some(silent());
            },
            "VCenterUnavailable",
        ),
        (
            "the folder is gone, the datacenter is not known",
            |all, at| {
                at_home(all).folder = Some(ReadAnswer::Gone);
                at.datacenter = None;
            },
            "LocationUnknown",
        ),
        ("the datacenter alone is refused", |all, _| at_home(all).datacenter = Some(refused()), "absent"),
    ];
    for (case, change, expected) in cases {
        let (mut evidence, mut location) = (proved(), location());
        change(&mut evidence, &mut location);
        let presence = judged(&evidence, Some(&location), false);
        assert_eq!(word(&presence), *expected, "{case}: {presence:?}");
    }
}

#[test]
fn a1_of_two_places_each_has_to_be_proved() {
    let [observed, recorded] = ["host-1", "host-9"]
        .map(|host| Arc::new(Location { host: Some(MoRef::new("HostSystem", host)), ..location() }));
    let last = LastPlaces { locations: vec![Arc::clone(&observed), Arc::clone(&recorded)], are_known: true };
    let gone = |location: &Arc<Location>, host: Option<HostRead>| LocationReads {
        location: Arc::clone(location),
        host,
        ..place()
    };
    let connected = || in_state("connected");
    for (case, places, expected) in [
        ("both", vec![gone(&observed, connected()), gone(&recorded, connected())], "absent"),
        (
            "the host of one is gone",
            vec![gone(&observed, connected()), gone(&recorded, Some(ReadAnswer::Gone))],
            "HostGone",
        ),
        (
            "the host of the other is gone",
            vec![gone(&observed, Some(ReadAnswer::Gone)), gone(&recorded, connected())],
            "HostGone",
        ),
        ("one was not read", vec![gone(&observed, connected())], "VCenterUnavailable"),
    ] {
        let testimonies = [VcenterEvidence { locations: places, ..nowhere("one:443", "vc-1") }];
        for trusts_unseen in [false, true] {
            let all =
                AbsenceInput { uuids: &wanted(), last: &last, trusts_unseen, evidence: &testimonies, unqueried: None };
            assert_eq!(word(&presence_of(&all)), expected, "{case}, {trusts_unseen}");
        }
    }
    let elsewhere = Arc::new(Location { vcenter: "vc-2".into(), ..location() });
    let last = LastPlaces { locations: vec![Arc::clone(&observed), elsewhere], are_known: true };
    let testimonies = [VcenterEvidence { locations: vec![gone(&observed, connected())], ..nowhere("one:443", "vc-1") }];
    let case =
        AbsenceInput { uuids: &wanted(), last: &last, trusts_unseen: false, evidence: &testimonies, unqueried: None };
    assert_eq!(word(&presence_of(&case)), "VCenterNotConfigured", "one is at a vCenter that nobody asks");
}

#[test]
fn a_refusal_names_object_and_privilege() {
    let mut evidence = proved();
    at_home(&mut evidence).vm = refused();
    let Presence::Unknown(unknown) = judged(&evidence, Some(&location()), false) else { panic!("unknown") };
    for part in ["vm-3", "one:443", "Folder:group-v3", "System.Read"] {
        assert!(unknown.message.contains(part), "{part}: {unknown}");
    }
}

#[test]
fn a_machine_that_was_never_seen_is_unknown_unless_that_is_trusted() {
    let testimonies = [nowhere("one:443", "vc-1"), nowhere("two:443", "vc-2")];
    assert_eq!(word(&judged(&testimonies, None, false)), "NeverSeen");
    assert_eq!(word(&judged(&testimonies, None, true)), "absent");
    let mut silence = testimonies.clone();
    silence[1].searches[0].1 = silent();
    assert_eq!(word(&judged(&silence, None, true)), "VCenterUnavailable", "the remaining rules hold");
    let observed = LastPlaces { locations: vec![Arc::new(location())], are_known: false };
    let judged_by = |testimonies: &[VcenterEvidence], trusts_unseen| {
        presence_of(&AbsenceInput {
            uuids: &wanted(),
            last: &observed,
            trusts_unseen,
            evidence: testimonies,
            unqueried: None,
        })
    };
    assert_eq!(word(&judged_by(&proved(), false)), "NeverSeen", "it was seen, and left unseen");
    assert_eq!(word(&judged_by(&testimonies, true)), "VCenterUnavailable", "where it was seen counts");
    // `trusts_unseen` does not apply to a record with an unknown vCenter.
    let elsewhere = Location { vcenter: "vc-3".into(), ..location() };
    assert_eq!(word(&judged(&testimonies, Some(&elsewhere), true)), "VCenterNotConfigured");
}

#[test]
fn only_an_initialized_node_with_a_well_formed_provider_id_may_have_an_absent_machine() {
    let with = |provider_id: &str, system_uuid: &str, taint: &str| {
        node(json!({
            "metadata": {"name": "n"},
            "spec": {"providerID": provider_id, "taints": [{"key": taint, "effect": "NoSchedule"}]},
            "status": {"nodeInfo": {"systemUUID": system_uuid, "architecture": "", "bootID": "",
                "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
                "machineID": "", "operatingSystem": "", "osImage": ""}}
        }))
    };
    let id = format!("vsphere://{UUID}");
    let both = [UUID, SWAPPED].as_slice();
    for (case, node, expected) in [
        ("plain", with(&id, "", "other"), Ok(both)),
        ("bare UUID, upper case", with(&UUID.to_uppercase(), "", "other"), Ok(both)),
        ("system UUID in the other order", with(&id, SWAPPED, "other"), Ok(both)),
        ("rubbish as system UUID", with(&id, "none", "other"), Ok(both)),
        ("no provider ID", with("", SWAPPED, "other"), Err("NoProviderID")),
        ("malformed", with("vsphere://node-1", SWAPPED, "other"), Err("MalformedProviderID")),
        ("half a UUID", with("vsphere://422e4956", SWAPPED, "other"), Err("MalformedProviderID")),
        ("not initialized", with(&id, SWAPPED, node::TAINT_UNINITIALIZED), Err("Uninitialized")),
    ] {
        let uuids = uuids(&node);
        let reported = uuids.as_ref().map(|uuids| uuids.iter().map(BiosUuid::to_string).collect::<Vec<_>>());
        assert_eq!(
            reported.map_err(|unknown| unknown.reason.as_str()),
            expected.map(|uuids| uuids.iter().map(ToString::to_string).collect()),
            "{case}"
        );
    }
    let other = with(&id, "01234567-89ab-cdef-4444-555555555555", "other");
    let told: Vec<String> = uuids(&other).unwrap().iter().map(ToString::to_string).collect();
    let system = ["67452301-ab89-efcd-4444-555555555555", "01234567-89ab-cdef-4444-555555555555"];
    assert_eq!(
        told,
        [UUID, SWAPPED, system[0], system[1]],
        "the UUID that the firmware has by now is searched for, too"
    );
}

fn any_read<T: Clone + std::fmt::Debug + 'static>(found: T) -> impl Strategy<Value = ReadAnswer<T>> {
    prop_oneof![Just(ReadAnswer::Found(found)), Just(ReadAnswer::Gone), Just(refused()), Just(silent())]
}

fn any_search() -> impl Strategy<Value = SearchRead> {
    prop_oneof![6 => Just(ReadAnswer::Found(Vec::new())), 1 => Just(ReadAnswer::Found(vec!["vm-9".into()])), 1 => Just(refused()),
        1 => Just(silent())]
}

fn any_place() -> impl Strategy<Value = Vec<LocationReads>> {
    let object = || prop_oneof![5 => any_read(()).prop_map(Some), 1 => Just(None)];
    let uuid = prop::sample::select(vec![None, Some(UUID), Some(OTHER)]);
    let found =
        uuid.prop_map(|uuid| VmIdentity { bios_uuid: uuid.map(|uuid| uuid.parse().unwrap()), ..Default::default() });
    let vm = prop_oneof![5 => Just(ReadAnswer::Gone), 1 => found.prop_flat_map(any_read)];
    let state = prop_oneof![5 => Just("connected"), 1 => Just("notResponding")].prop_map(str::to_owned);
    let host = prop_oneof![5 => state.prop_flat_map(any_read).prop_map(Some), 1 => Just(None)];
    let place = (vm, host, object(), object(), object()).prop_map(|(vm, host, folder, pool, datacenter)| {
        LocationReads { location: Arc::new(location()), vm, host, folder, pool, datacenter }
    });
    prop_oneof![5 => place.prop_map(|place| vec![place]), 1 => Just(Vec::new())]
}

fn any_testimony() -> impl Strategy<Value = VcenterEvidence> {
    let searches = prop_oneof![5 => Just(2), 1 => 0..2usize];
    (prop::sample::select(vec!["vc-1", "vc-2", ""]), any_search(), any_search(), searches, any_place()).prop_map(
        |(instance_uuid, one, two, searches, places)| {
            let both = wanted().into_iter().zip([one, two]).take(searches).collect();
            VcenterEvidence { searches: both, locations: places, ..nowhere("any:443", instance_uuid) }
        },
    )
}

proptest! {
    /// Only a complete proof gives absence. The test has its own implementation of the rules.
    #[test]
    fn nothing_but_the_whole_proof_is_absence(
        evidence in prop::collection::vec(any_testimony(), 0..4),
        (has_host, has_folder, has_pool, has_datacenter) in any::<(bool, bool, bool, bool)>(),
    ) {
        let whole = location();
        let at = Location {
            host: whole.host.filter(|_| has_host),
            folder: whole.folder.filter(|_| has_folder),
            pool: whole.pool.filter(|_| has_pool),
            datacenter: whole.datacenter.filter(|_| has_datacenter),
            ..whole
        };
        let found = |read: &Option<ObjectRead>| *read == Some(ReadAnswer::Found(()));
        let everyone_knows_nothing = !evidence.is_empty() && evidence.iter().all(|one| {
            one.searches.len() == 2 && one.searches.iter().all(|(_, read)| *read == ReadAnswer::Found(Vec::new()))
        });
        let home: Vec<&VcenterEvidence> = evidence.iter().filter(|one| one.instance_uuid == "vc-1").collect();
        let is_gone = |one: &&VcenterEvidence| one.locations.first().is_some_and(|place| {
            let above = |is_known: bool, read: &Option<ObjectRead>| {
                (is_known && found(read))
                    || ((!is_known || *read == Some(ReadAnswer::Gone)) && has_datacenter && found(&place.datacenter))
            };
            place.vm == ReadAnswer::Gone && has_host && place.host == in_state("connected")
                && above(has_folder, &place.folder) && above(has_pool, &place.pool)
        });
        let is_present = evidence.iter().any(|one| matches!(one.locations.first(), Some(LocationReads { vm: ReadAnswer::Found(vm), .. })
            if vm.bios_uuid != Some(OTHER.parse().unwrap())));
        let is_proved = everyone_knows_nothing && !home.is_empty() && home.iter().all(is_gone) && !is_present;
        let presence = judged(&evidence, Some(&at), false);
        prop_assert_eq!(matches!(presence, Presence::Absent(_)), is_proved, "{:?}", presence);
    }

    /// Without any one piece, the proof is incomplete.
    #[test]
    fn any_piece_that_is_missing_refused_or_silent_makes_it_unknown(
        piece in 0..8usize,
        how in 0..3usize,
    ) {
        fn break_read<T>(how: usize) -> Option<ReadAnswer<T>> {
            match how {
                0 => None,
                1 => Some(refused()),
                _ => Some(silent()),
            }
        }
        let mut testimonies = proved();
        match piece {
            0..4 => {
                let searches = &mut testimonies[piece / 2].searches;
                match break_read(how) {
                    Some(read) => searches[piece % 2].1 = read,
                    None => drop(searches.remove(piece % 2)),
                }
            }
            4 => match break_read(how) {
                Some(read) => at_home(&mut testimonies).vm = read,
                None => testimonies[0].locations.clear(),
            },
            5 => at_home(&mut testimonies).host = break_read(how),
            6 => at_home(&mut testimonies).folder = break_read(how),
            _ => at_home(&mut testimonies).pool = break_read(how),
        }
        let presence = judged(&testimonies, Some(&location()), false);
        prop_assert!(matches!(presence, Presence::Unknown(_)), "piece {}, {}: {:?}", piece, how, presence);
    }
}
