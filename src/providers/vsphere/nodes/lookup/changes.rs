//! Pure: finds the VMs that differ between two snapshots, so that a change of one VM causes work for one VM only.

use std::collections::HashSet;
use std::sync::Arc;

use crate::clients::vim::MoRef;
use crate::providers::vsphere::vcenter::snapshot::{Snapshot, VmRecord};

/// Returns the VMs whose data may differ between the snapshots; `None` if a change may concern every Node. If
/// intermediate snapshots were skipped, all VMs are compared.
pub fn changes(before: &Snapshot, after: &Snapshot) -> Option<HashSet<Arc<str>>> {
    let is_all = before.freshness != after.freshness
        || before.live_period != after.live_period
        || before.instance_uuid != after.instance_uuid
        || before.tags.error != after.tags.error;
    if is_all {
        return None;
    }
    let mut machines = HashSet::new();
    if let Some(changed) = after.changed.as_ref().filter(|_| after.number == before.number + 1) {
        machines.extend(changed.iter().cloned());
    } else {
        let is_same =
            |id: &str, record: &Arc<VmRecord>| before.vms.get(id).is_some_and(|known| Arc::ptr_eq(known, record));
        machines.extend(after.vms.iter().filter(|(id, record)| !is_same(id, record)).map(|(id, _)| id.clone()));
        machines.extend(before.vms.keys().filter(|id| !after.vms.contains_key(id)).cloned());
    }
    if !Arc::ptr_eq(&before.unresolved, &after.unresolved) {
        let (old, new): (HashSet<_>, HashSet<_>) =
            (before.unresolved.iter().collect(), after.unresolved.iter().collect());
        machines.extend(old.symmetric_difference(&new).map(|id| Arc::clone(id)));
    }
    let mut above: HashSet<&MoRef> = HashSet::new();
    if !Arc::ptr_eq(&before.entities, &after.entities) {
        above.extend(
            after.entities.iter().filter(|(at, entity)| before.entities.get(at) != Some(entity)).map(|(at, _)| at),
        );
        above.extend(before.entities.keys().filter(|at| !after.entities.contains_key(at)));
    }
    if !Arc::ptr_eq(&before.tags, &after.tags) {
        let (old, new) = (&before.tags.objects, &after.tags.objects);
        let changed = new.iter().filter(|(at, tags)| old.get(at) != Some(tags)).map(|(at, _)| at);
        for object in changed.chain(old.keys().filter(|at| !new.contains_key(at))) {
            if object.kind() == "VirtualMachine" {
                machines.insert(object.id().into());
            } else {
                above.insert(object);
            }
        }
    }
    if !above.is_empty() {
        let is_below = |record: &VmRecord| {
            let starts = [&record.host, &record.resource_pool, &record.parent, &record.parent_vapp];
            starts.into_iter().flatten().any(|start| after.is_below(start, &above))
        };
        machines.extend(after.vms.iter().filter(|(_, record)| is_below(record)).map(|(id, _)| id.clone()));
    }
    Some(machines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::vsphere::vcenter::snapshot::{Entity, Freshness, TagSnapshot, VcenterFailure};
    use crate::providers::vsphere::vcenter::zone_tags::{ObjectTags, Tag};
    use std::collections::HashMap;

    fn object(kind: &str, id: &str) -> MoRef {
        MoRef::new(kind, id)
    }

    fn entity(name: &str, parent: Option<MoRef>) -> Entity {
        Entity { name: name.into(), parent, ..Entity::default() }
    }

    fn record(host: &str) -> Arc<VmRecord> {
        Arc::new(VmRecord { host: Some(object("HostSystem", host)), ..VmRecord::default() })
    }

    /// Returns a snapshot with two hosts in one datacenter and a VM on each host.
    fn snapshot() -> Snapshot {
        let above = Some(object("Datacenter", "dc"));
        Snapshot {
            freshness: Freshness::Live,
            live_period: Some(1),
            vms: [("vm-1".into(), record("h1")), ("vm-2".into(), record("h2"))].into_iter().collect(),
            entities: Arc::new(HashMap::from([
                (object("HostSystem", "h1"), entity("h1", above.clone())),
                (object("HostSystem", "h2"), entity("h2", above)),
                (object("Datacenter", "dc"), entity("dc", None)),
            ])),
            ..Snapshot::default()
        }
    }

    fn tagged(at: MoRef) -> Arc<TagSnapshot> {
        let tag = Tag { name: "zone-a".into(), category: "k8s-zone".into() };
        Arc::new(TagSnapshot { objects: HashMap::from([(at, ObjectTags::Read(vec![tag]))]), error: None })
    }

    fn entities(change: impl FnOnce(&mut HashMap<MoRef, Entity>)) -> impl FnOnce(&mut Snapshot) {
        |after| change(Arc::make_mut(&mut after.entities))
    }

    type SnapshotChange = Box<dyn FnOnce(&mut Snapshot)>;

    #[test]
    fn a_change_concerns_the_machines_it_is_about_or_is_above_of() {
        let cases: Vec<(&str, SnapshotChange, &[&str])> = vec![
            ("nothing", Box::new(|_| {}), &[]),
            ("the same, copied", Box::new(|after| after.entities = Arc::new(HashMap::clone(&after.entities))), &[]),
            ("a machine", Box::new(|after| drop(after.vms.set(&"vm-1".into(), Some(record("h1"))))), &["vm-1"]),
            ("a machine came", Box::new(|after| drop(after.vms.set(&"vm-3".into(), Some(record("h1"))))), &["vm-3"]),
            ("a machine left", Box::new(|after| drop(after.vms.set(&"vm-2".into(), None))), &["vm-2"]),
            ("one is unknown there", Box::new(|after| after.unresolved = Arc::new(vec!["vm-9".into()])), &["vm-9"]),
            ("a machine's tag", Box::new(|after| after.tags = tagged(object("VirtualMachine", "vm-2"))), &["vm-2"]),
            ("a host's tag", Box::new(|after| after.tags = tagged(object("HostSystem", "h2"))), &["vm-2"]),
            (
                "the datacenter's tag",
                Box::new(|after| after.tags = tagged(object("Datacenter", "dc"))),
                &["vm-1", "vm-2"],
            ),
            (
                "a host's name",
                Box::new(entities(|all| drop(all.insert(object("HostSystem", "h1"), entity("new", None))))),
                &["vm-1"],
            ),
            ("a host is gone", Box::new(entities(|all| drop(all.remove(&object("HostSystem", "h2"))))), &["vm-2"]),
            (
                "a folder of nobody",
                Box::new(entities(|all| drop(all.insert(object("Folder", "f"), entity("f", None))))),
                &[],
            ),
        ];
        for (case, change, expected) in cases {
            let before = snapshot();
            let mut after = before.clone();
            change(&mut after);
            let expected: HashSet<Arc<str>> = expected.iter().map(|id| (*id).into()).collect();
            assert_eq!(changes(&before, &after), Some(expected), "{case}");
        }
    }

    #[test]
    fn a_reader_that_skips_a_snapshot_loses_no_machine() {
        let first = Snapshot { number: 7, ..snapshot() };
        let next = |before: &Snapshot, id: &str| {
            let mut after = Snapshot { number: before.number + 1, ..before.clone() };
            after.vms.set(&id.into(), Some(record("h3")));
            Snapshot { changed: Some([id.into()].into()), ..after }
        };
        let second = next(&first, "vm-1");
        let third = next(&second, "vm-2");
        let machines = |ids: &[&str]| Some(ids.iter().map(|id| (*id).into()).collect());
        assert_eq!(changes(&first, &second), machines(&["vm-1"]));
        assert_eq!(changes(&second, &third), machines(&["vm-2"]));
        assert_eq!(changes(&first, &third), machines(&["vm-1", "vm-2"]));
        let unsaid = Snapshot { changed: None, ..second };
        assert_eq!(changes(&first, &unsaid), machines(&["vm-1"]), "all may have changed");
    }

    #[test]
    fn what_every_node_depends_on_concerns_all() {
        let stale = Freshness::Unreachable(VcenterFailure::unavailable("down"));
        let cases: Vec<(&str, SnapshotChange)> = vec![
            ("stale", Box::new(|after| after.freshness = stale)),
            ("another vCenter", Box::new(|after| after.instance_uuid = "u".into())),
            ("a break in what is reported", Box::new(|after| after.live_period = Some(2))),
            ("a subscription begins", Box::new(|after| after.live_period = None)),
            (
                "tags",
                Box::new(|after| {
                    after.tags = Arc::new(TagSnapshot { error: Some("no".into()), ..TagSnapshot::default() })
                }),
            ),
        ];
        for (case, change) in cases {
            let before = snapshot();
            let mut after = before.clone();
            change(&mut after);
            assert_eq!(changes(&before, &after), None, "{case}");
        }
    }
}
