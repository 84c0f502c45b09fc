//! Tests of proven power states and their times.

use std::time::Duration;

use super::*;

fn host() -> MoRef {
    MoRef::new("HostSystem", "host-1")
}

fn machine(state: PowerState) -> VmRecord {
    VmRecord {
        host: Some(host()),
        power_state: Some(state),
        connection_state: Some(CONNECTED.into()),
        ..VmRecord::default()
    }
}

fn snapshot(host_state: Option<&str>) -> Snapshot {
    let entity = Entity { connection_state: host_state.map(String::from), ..Entity::default() };
    Snapshot {
        freshness: Freshness::Live,
        entities: Arc::new(HashMap::from([(host(), entity)])),
        ..Snapshot::default()
    }
}

#[test]
fn a_power_state_is_proven_by_a_live_snapshot_and_a_connected_machine_and_host() {
    let off = || machine(PowerState::PoweredOff);
    let live = || snapshot(Some(CONNECTED));
    let trouble = || VcenterFailure::unavailable("down");
    let stale = Freshness::Stale { since: Instant::now(), failure: trouble() };
    for (case, snapshot, record, expected) in [
        ("on", live(), machine(PowerState::PoweredOn), Some(PowerState::PoweredOn)),
        ("off", live(), off(), Some(PowerState::PoweredOff)),
        ("suspended", live(), machine(PowerState::Suspended), Some(PowerState::Suspended)),
        ("no state", live(), VmRecord { power_state: None, ..off() }, None),
        ("disconnected", live(), VmRecord { connection_state: Some("disconnected".into()), ..off() }, None),
        ("no connection state", live(), VmRecord { connection_state: None, ..off() }, None),
        ("on no host", live(), VmRecord { host: None, ..off() }, None),
        ("its host does not respond", snapshot(Some("notResponding")), off(), None),
        ("its host is disconnected", snapshot(Some("disconnected")), off(), None),
        ("its host's connection may not be read", snapshot(None), off(), None),
        ("its host may not be read", Snapshot { entities: Arc::default(), ..live() }, off(), None),
        ("stale", Snapshot { freshness: stale, ..live() }, off(), None),
        ("unreachable", Snapshot { freshness: Freshness::Unreachable(trouble()), ..live() }, off(), None),
        ("nothing was read", Snapshot { freshness: Freshness::Never, ..live() }, off(), None),
    ] {
        assert_eq!(snapshot.proves(&record), expected, "{case}");
    }
}

/// A change of a snapshot.
type Step = fn(&mut Snapshot);

fn put(snapshot: &mut Snapshot, record: VmRecord) {
    snapshot.vms.set(&"vm-1".into(), Some(Arc::new(record)));
}

#[test]
fn a_proven_state_lasts_until_anything_breaks_the_proof() {
    let off: Step = |snapshot| put(snapshot, machine(PowerState::PoweredOff));
    let changes_that_break: [(&str, Step, Step); 5] = [
        ("another state", |snapshot| put(snapshot, machine(PowerState::PoweredOn)), off),
        (
            "the machine is disconnected",
            |snapshot| put(snapshot, VmRecord { connection_state: None, ..machine(PowerState::PoweredOff) }),
            off,
        ),
        (
            "the host is disconnected",
            |snapshot| snapshot.entities = super::tests::snapshot(Some("disconnected")).entities,
            |snapshot| snapshot.entities = super::tests::snapshot(Some(CONNECTED)).entities,
        ),
        (
            "the snapshot is stale",
            |snapshot| snapshot.freshness = Freshness::Unreachable(VcenterFailure::unavailable("down")),
            |snapshot| snapshot.freshness = Freshness::Live,
        ),
        ("the machine left", |snapshot| drop(snapshot.vms.set(&"vm-1".into(), None)), off),
    ];
    for (case, breaks, mends) in changes_that_break {
        for changed in [None, Some(BTreeSet::from(["vm-1".into()]))] {
            let start = Instant::now();
            let at = |seconds| start + Duration::from_secs(seconds);
            let case = format!("{case}, changed {changed:?}");
            let mut snapshot = Snapshot { changed, ..snapshot(Some(CONNECTED)) };
            let after = |snapshot: &mut Snapshot, step: &dyn Fn(&mut Snapshot), seconds| {
                let before = snapshot.clone();
                step(snapshot);
                snapshot.prove_power(&before, at(seconds));
                snapshot.power.get("vm-1").map(|proven| (proven.state, proven.since))
            };
            assert_eq!(after(&mut snapshot, &off, 1), Some((PowerState::PoweredOff, at(1))), "{case}");
            // A change of another property does not break the proof.
            let renamed = || VmRecord { name: "renamed".into(), ..machine(PowerState::PoweredOff) };
            let before = snapshot.power.clone();
            let known = after(&mut snapshot, &|snapshot| put(snapshot, renamed()), 2);
            assert_eq!(known, Some((PowerState::PoweredOff, at(1))), "{case}");
            assert!(snapshot.power.shares_all(&before), "{case}: the same states are the same allocation");
            let broken = after(&mut snapshot, &breaks, 3);
            assert_ne!(broken.map(|(state, _)| state), Some(PowerState::PoweredOff), "{case}");
            assert_eq!(after(&mut snapshot, &mends, 4), Some((PowerState::PoweredOff, at(4))), "{case}");
        }
    }
}

#[test]
fn what_is_above_the_vms_is_looked_at_for_all_of_them() {
    let breaks: [(&str, Step); 2] = [
        ("the host is disconnected", |snapshot| {
            snapshot.entities = super::tests::snapshot(Some("disconnected")).entities
        }),
        ("the snapshot is stale", |snapshot| snapshot.freshness = Freshness::Never),
    ];
    for (case, breaks) in breaks {
        let mut before = snapshot(Some(CONNECTED));
        put(&mut before, machine(PowerState::PoweredOff));
        before.prove_power(&Snapshot::default(), Instant::now());
        assert!(before.power.contains_key("vm-1"), "{case}");
        let mut after = Snapshot { changed: Some(BTreeSet::new()), ..before.clone() };
        breaks(&mut after);
        after.prove_power(&before, Instant::now());
        assert!(after.power.is_empty(), "{case}: no VM changed");
    }
}

#[test]
fn paths_have_the_names_below_the_root_folder_and_need_all_of_them() {
    let entity = |name: &str, parent: Option<(&str, &str)>| Entity {
        name: name.to_owned(),
        parent: parent.map(|(kind, id)| MoRef::new(kind, id)),
        ..Entity::default()
    };
    let entities = HashMap::from([
        (MoRef::new("Folder", "group-d1"), entity("Datacenters", None)),
        (MoRef::new("Datacenter", "datacenter-2"), entity("dc-1", Some(("Folder", "group-d1")))),
        (MoRef::new("Folder", "group-v3"), entity("vm", Some(("Datacenter", "datacenter-2")))),
        (MoRef::new("Folder", "group-v9"), entity("orphans", Some(("Folder", "group-v8")))),
    ]);
    let snapshot = Snapshot { entities: Arc::new(entities), ..Snapshot::default() };
    let path = |parent: Option<&str>| {
        let parent = parent.map(|id| MoRef::new("Folder", id));
        snapshot.vm_path(&VmRecord { name: "a/b".to_owned(), parent, ..VmRecord::default() })
    };
    assert_eq!(path(Some("group-v3")).as_deref(), Some("/dc-1/vm/a%2fb"));
    assert_eq!((path(Some("group-v9")), path(None)), (None, None), "a name is not known");
    assert_eq!(snapshot.path_of(&MoRef::new("Datacenter", "datacenter-2")).as_deref(), Some("/dc-1"));
}
