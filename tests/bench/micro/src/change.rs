//! A change of one VM in vCenters of two sizes: from the update of the property collector to the list of VMs whose
//! nodes must be reconciled.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use ccm::clients::vim::{FilterUpdate, MoRef, ObjectUpdate, PropertyChange, UpdateKind, UpdateSet, Value};
use ccm::providers::vsphere::nodes::lookup::changes::changes;
use ccm::providers::vsphere::vcenter::mirror::Mirror;
use ccm::providers::vsphere::vcenter::snapshot::{CONNECTED, Entity, Freshness, Snapshot};
use criterion::Criterion;

/// Numbers of machines. A change in the larger vCenter may take twice as long as in the smaller one.
const MACHINES: [usize; 2] = [50, 5_000];

/// Measures a change of one VM.
pub fn measure(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("inventory");
    for count in MACHINES {
        let mut vcenter = Vcenter::with(count);
        // The same number of machines changes in both, so that the CPU cache has the same amount of data.
        let updates: Vec<UpdateSet> = (0..2 * MACHINES[0]).map(|turn| renamed(turn, count)).collect();
        let mut turns = updates.iter().cycle();
        group.bench_function(format!("change-{count}"), |bencher| {
            bencher.iter(|| vcenter.change(black_box(turns.next().expect("without an end"))));
        });
    }
    group.finish();
}

/// Cached state of a vCenter.
struct Vcenter {
    mirror: Mirror,
    published: Arc<Snapshot>,
}

impl Vcenter {
    /// Creates a vCenter with this many machines, all on one host and powered on.
    fn with(count: usize) -> Self {
        let mut mirror = Mirror::default();
        for number in 0..count {
            mirror.apply(&[entered(number)]);
        }
        let host = Entity { connection_state: Some(CONNECTED.into()), ..Entity::default() };
        let mut published = Snapshot {
            freshness: Freshness::Live,
            vms: mirror.vms.iter().map(|(id, vm)| (id.clone(), vm.clone())).collect(),
            entities: Arc::new(HashMap::from([(MoRef::new("HostSystem", "host-1"), host)])),
            ..Snapshot::default()
        };
        published.prove_power(&Snapshot::default(), Instant::now());
        assert_eq!(published.power.len(), count, "each is proved to run");
        Self { mirror, published: Arc::new(published) }
    }

    /// Publishes the update as the inventory does, and reads it as the tracker does.
    fn change(&mut self, update: &UpdateSet) {
        let touched = self.mirror.apply(std::slice::from_ref(update));
        let before = Arc::clone(&self.published);
        let mut now = Snapshot { number: before.number + 1, ..Snapshot::clone(&before) };
        for id in &touched.vms {
            now.vms.set(id, self.mirror.vms.get(id).cloned());
        }
        now.changed = Some(touched.vms);
        now.prove_power(&before, Instant::now());
        self.published = Arc::new(now);
        let changes = changes(&before, &self.published);
        assert!(matches!(changes, Some(machines) if machines.len() == 1), "one machine changed");
    }
}

/// Returns the update with which a machine enters the view.
fn entered(number: usize) -> UpdateSet {
    let text = |text: &str| Value::Text(text.to_owned());
    let host = Value::Ref(MoRef::new("HostSystem", "host-1"));
    let changes = [
        ("name", text(&format!("cluster-a-md-0-{number:05}-x7k2p"))),
        ("config.uuid", text(&format!("4213c3b6-1f0e-6a7d-92c4-{number:012x}"))),
        ("guest.hostName", text(&format!("cluster-a-md-0-{number:05}-x7k2p"))),
        ("runtime.host", host),
        ("runtime.connectionState", text(CONNECTED)),
        ("runtime.powerState", text("poweredOn")),
        ("summary.config.guestId", text("ubuntu64Guest")),
        ("summary.config.vmPathName", text(&format!("[vsanDatastore] {number}/{number}.vmx"))),
    ];
    update(number, UpdateKind::Enter, changes.into())
}

/// Returns an update with a new host name of one machine. Each turn has another machine or name.
fn renamed(turn: usize, count: usize) -> UpdateSet {
    let number = turn % MACHINES[0] * (count / MACHINES[0]);
    let name = format!("cluster-a-md-0-{number:05}-renamed-{}", turn / MACHINES[0]);
    update(number, UpdateKind::Modify, vec![("guest.hostName", Value::Text(name))])
}

fn update(number: usize, kind: UpdateKind, changes: Vec<(&str, Value)>) -> UpdateSet {
    let assign = |(name, value): (&str, Value)| PropertyChange { name: name.to_owned(), value: Some(value) };
    let changes = changes.into_iter().map(assign).collect();
    let object = ObjectUpdate {
        kind,
        object: MoRef::new("VirtualMachine", format!("vm-{number}")),
        changes,
        missing: Vec::new(),
    };
    let filter = FilterUpdate { filter: MoRef::new("PropertyFilter", "f"), objects: vec![object] };
    UpdateSet { version: "1".into(), filters: vec![filter], truncated: false }
}
