//! Changes in vCenter reach the Node through `WaitForUpdatesEx`, without a poll.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use support::nodes::NodeView;
use support::{Nic, Vcenter, Vm, eventually};

use crate::cluster::{Cluster, LIMIT, ip, uuid};

/// A change reaches the Node in less than 100 ms. Without the event the daemon would see the change only when
/// `WaitForUpdatesEx` times out after up to 20 s, or at the next poll after a minute or more. Less than half of such
/// changes would arrive within this second by chance.
const AT_ONCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn an_address_that_changes_in_vcenter_is_on_the_node_at_once_without_a_poll() {
    const CHANGES: usize = 7;
    const ROWS: usize = 3;
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let daemon = cluster.start_for(&vcenter, &[]).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &daemon).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let name = cluster.name(1);
    let mut times = Vec::new();
    // A read in flight would count as one of the reads that a change causes.
    let mut before = None;
    eventually("the daemon only waits for changes", LIMIT, async || {
        let counts = vcenter.counts().await;
        let is_quiet = counts.pending_waits == 1 && before.replace(counts.total) == Some(counts.total);
        if is_quiet { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    vcenter.reset_counts().await;
    for change in 0..CHANGES {
        let address = format!("10.9.0.{}", change + 1);
        times.push(change_address(&vcenter, &nodes, &name, &address).await);
    }
    let counts = vcenter.counts().await;
    times.sort();
    let median = times[CHANGES / 2];
    println!("{CHANGES} changes reached the Node after {times:?}, median {median:?}, with {:?}", counts.operations);
    assert!(median < AT_ONCE, "the median of {times:?}");
    // Each change ends one `WaitForUpdatesEx` call, or two if the simulator announces the change in two parts.
    let waits = counts.of("WaitForUpdatesEx");
    assert!(waits as usize <= 2 * CHANGES + 1, "{counts:?}");
    let others: Vec<_> = counts.operations.keys().filter(|name| *name != "WaitForUpdatesEx").collect();
    assert!(others.is_empty(), "nothing else is asked: {counts:?}");

    // The machine gets its addresses one after the other, faster than the daemon processes them.
    times.clear();
    for row in 1..=ROWS {
        for change in 0..5 {
            vcenter.set_ip(&name, &format!("10.9.{row}.{change}")).await;
        }
        times.push(change_address(&vcenter, &nodes, &name, &format!("10.9.{row}.99")).await);
    }
    times.sort();
    println!("the last of six changes in a row reached the Node after {times:?}");
    assert!(times[ROWS / 2] < AT_ONCE, "the median of {times:?}");
}

#[tokio::test]
async fn a_node_that_joins_waits_for_the_family_that_its_guest_reports_later() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1") + "ip-family = ipv4,ipv6\n"]);
    let mut daemon = cluster.start(&config, &[]);
    cluster.register(0..1).await;
    let name = cluster.name(0);
    let held = daemon.wait_for_line("cannot initialize node", LIMIT).await;
    assert!(held.contains("NoAddressOfFamily") && held.contains("IP family ipv6"), "{held}");
    let view = async || NodeView::of(&cluster.nodes().await[&name]);
    let waiting = view().await;
    assert!(waiting.uninitialized && waiting.addresses.is_empty(), "{waiting:?}");
    let nic = Nic::new("VM Network", &[&ip(0), "fd00::1"]);
    vcenter.change_vm(&uuid(0), &Vm::change().nic(nic)).await;
    eventually("the node is initialized", LIMIT, async || match view().await {
        view if !view.uninitialized => Ok(()),
        view => Err(format!("{view:?}\n{}", daemon.output().tail(10))),
    })
    .await;
    let of_family = |ip: &str| [format!("InternalIP={ip}"), format!("ExternalIP={ip}")];
    let expected = [vec![format!("Hostname={name}")], of_family(&ip(0)).into(), of_family("fd00::1").into()].concat();
    assert_eq!(view().await.addresses, expected);
    // Same format as the Events in the log of the Go program.
    let line = daemon.wait_for_line("Event occurred", LIMIT).await;
    let fields = format!(
        "object=\"{name}\" fieldPath=\"\" kind=\"Node\" apiVersion=\"v1\" type=\"Normal\" reason=\"Synced\" \
         message=\"Node synced successfully\""
    );
    assert!(line.contains(&fields), "{line}");
}

/// Changes the address in vCenter, and returns the time until the Node has the new address.
async fn change_address(vcenter: &Vcenter, nodes: &Api<Node>, name: &str, address: &str) -> Duration {
    vcenter.set_ip(name, address).await;
    let changed = Instant::now();
    let wanted = [format!("Hostname={name}"), format!("InternalIP={address}"), format!("ExternalIP={address}")];
    eventually("the new address is on the Node", LIMIT, async || {
        let view = NodeView::of(&nodes.get(name).await.unwrap());
        if view.addresses == wanted { Ok(()) } else { Err(format!("{:?}", view.addresses)) }
    })
    .await;
    changed.elapsed()
}
