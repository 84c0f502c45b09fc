//! The cost of 5,000 nodes, and the equal cost of 20 nodes in small and large vCenters. Measured on the fake, which
//! runs in the test's process, with a delay of 10 ms for each call.

use std::time::{Duration, Instant};

use ccm::cloud::{CloudProvider as _, Presence};
use k8s_openapi::api::core::v1::{Node, Taint};
use support::api_server::install_crypto;
use support::fake_vcenter::FakeCounts;
use support::{FakeVcenter, Heavy, Model, eventually};

use crate::world::{Running, node};

/// The promised time is half a minute on a dedicated machine. Here everything is a debug build and runs beside other
/// tests. `make bench` measures a release build.
const LIMIT: Duration = Duration::from_secs(240);

const ZONES: &str = "[Labels]\nregion = k8s-region\nzone = k8s-zone\n";

/// Returns a vCenter with this many machines, on tagged hosts.
fn model(machines: usize) -> Model {
    Model::small()
        .vms(machines)
        .tag("k8s-zone", "zone-a", &[("HostSystem", "host-1"), ("HostSystem", "host-2"), ("HostSystem", "host-3")])
        .tag("k8s-region", "region-1", &[("Datacenter", "dc-1")])
}

/// Starts the provider on this vCenter, without a node.
fn start(fake: &FakeVcenter, folder: &std::path::Path) -> Running {
    let ca = folder.join(format!("{}.pem", fake.port()));
    std::fs::write(&ca, fake.ca_pem()).unwrap();
    let entry = format!(
        "[VirtualCenter \"vc\"]\nserver = 127.0.0.1\nport = {}\nuser = {}\npassword = {}\nca-file = {}\n{ZONES}",
        fake.port(),
        fake.user(),
        fake.password(),
        ca.display()
    );
    Running::start_with(&entry, Duration::from_secs(60))
}

/// Returns the UUID as most guests report it: the first three groups in the other byte order.
fn as_the_guest_says(number: usize) -> String {
    format!("56492e42-22ad-3911-6d72-{number:012x}")
}

/// Returns the node of this machine as its kubelet registers it. It waits for initialization.
fn joining(number: usize) -> Node {
    let mut node = node(&format!("n-{number}"), &as_the_guest_says(number));
    let taint = Taint { key: "node.cloudprovider.kubernetes.io/uninitialized".into(), ..Taint::default() };
    node.spec.get_or_insert_default().taints = Some(vec![taint]);
    node
}

/// Adds nodes for these machines at once, and waits until the provider has the metadata of each.
async fn join(running: &Running, numbers: std::ops::RangeInclusive<usize>) -> Duration {
    let begun = Instant::now();
    let nodes: Vec<_> = numbers.map(joining).collect();
    running.cluster.put_all(nodes.clone());
    let instances = running.provider.instances_v2().unwrap();
    let mut known = 0;
    eventually("every node's machine is known, with its zone", LIMIT, async || {
        while let Some(node) = nodes.get(known) {
            match instances.instance_metadata(node).await {
                Presence::Exists(metadata) if metadata.zone == "zone-a" && !metadata.node_addresses.is_empty() => {}
                other => return Err(format!("{:?}: {other:?}", node.metadata.name)),
            }
            known += 1;
        }
        Ok(())
    })
    .await;
    begun.elapsed()
}

fn total(counts: &FakeCounts) -> u32 {
    counts.operations.values().sum()
}

/// Waits until no call is in flight: the counts do not change between two checks, and a wait is pending.
async fn until_quiet(fake: &FakeVcenter) {
    let mut before = None;
    eventually("nothing is under way", LIMIT, async || {
        let counts = fake.counts();
        let now = (total(&counts), counts.bytes_sent);
        let is_quiet = before.replace(now) == Some(now) && counts.pending_waits == 1;
        if is_quiet { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_nodes_cost_a_search_each_and_a_change_costs_one_machine() {
    let _alone = Heavy::alone();
    install_crypto();
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeVcenter::start(model(5_000)).await;
    fake.delay_calls(Duration::from_millis(10));
    let running = start(&fake, folder.path());
    let took = join(&running, 1..=5_000).await;
    let counts = fake.counts();
    println!(
        "5,000 nodes took {took:?}, with {} searches, {} changes of the view, {} waits, {} MB down; the fake itself \
         worked {:?}, and its calls were delayed by {:?} together",
        counts.of("FindAllByUuid"),
        counts.of("ModifyListView"),
        counts.of("WaitForUpdatesEx"),
        counts.bytes_sent / 1_000_000,
        counts.busy,
        counts.delayed
    );
    assert!(counts.of("FindAllByUuid") < 5_200, "the byte order that hit is asked first: {counts:?}");
    assert_eq!((counts.most_soap_sessions, counts.most_rest_sessions), (1, 1));

    // From here on a change takes only the calls for one machine.
    until_quiet(&fake).await;
    fake.reset_counts();
    let begun = Instant::now();
    fake.change_vm("n-4321", |machine| machine.ip("10.9.9.9"));
    let instances = running.provider.instances_v2().unwrap();
    let changed = joining(4_321);
    eventually("the address of one machine", LIMIT, async || match instances.instance_metadata(&changed).await {
        Presence::Exists(metadata) if metadata.node_addresses.iter().any(|one| one.address == "10.9.9.9") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let counts = fake.counts();
    println!("a change of one of them was known after {:?}, with {} bytes down", begun.elapsed(), counts.bytes_sent);
    assert!(counts.bytes_sent < 20_000, "{counts:?}");
    running.stop().await;
}

/// Returns the cost of the nodes 1 to 20 in a vCenter with this many machines.
async fn cost_of_twenty(machines: usize) -> FakeCounts {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeVcenter::start(model(machines)).await;
    let running = start(&fake, folder.path());
    join(&running, 1..=20).await;
    // One change for each node, so that the steady state is included.
    for number in 1..=20 {
        fake.change_vm(&format!("n-{number}"), |machine| machine.ip(&format!("10.9.9.{number}")));
    }
    let instances = running.provider.instances_v2().unwrap();
    for number in 1..=20 {
        let changed = joining(number);
        let wanted = format!("10.9.9.{number}");
        eventually("the new address", LIMIT, async || match instances.instance_metadata(&changed).await {
            Presence::Exists(metadata) if metadata.node_addresses.iter().any(|one| one.address == wanted) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }
    let counts = fake.counts();
    running.stop().await;
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_nodes_cost_what_twenty_nodes_cost_however_large_the_vcenter_is() {
    let _alone = Heavy::alone();
    install_crypto();
    let (small, large) = (cost_of_twenty(20).await, cost_of_twenty(5_000).await);
    for (name, counts) in [("20", &small), ("5,000", &large)] {
        println!(
            "20 nodes in a vCenter of {name} machines: {} calls, {} bytes up, {} bytes down: {:?}",
            total(counts),
            counts.bytes_received,
            counts.bytes_sent,
            counts.operations
        );
    }
    assert_eq!(small.of("FindAllByUuid"), large.of("FindAllByUuid"));
    // The distribution of changes over answers depends on timing.
    let is_alike = |small: u64, large: u64| large <= small + small / 4 && small <= large + large / 4;
    assert!(is_alike(u64::from(total(&small)), u64::from(total(&large))), "{small:?} {large:?}");
    assert!(is_alike(small.bytes_sent, large.bytes_sent), "{small:?} {large:?}");
    assert!(is_alike(small.bytes_received, large.bytes_received), "{small:?} {large:?}");
}
