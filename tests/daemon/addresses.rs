//! Changes in vCenter reach the Node by event.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use support::nodes::NodeView;
use support::{Vcenter, eventually};

use crate::cluster::{Cluster, LIMIT};

/// A change that is seen only when a wait for changes ends by itself takes up to 20 s: seven in a row do not all come
/// sooner than this by chance. By a poll it takes a minute or more.
const AT_ONCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn an_address_that_changes_in_vcenter_is_on_the_node_at_once_without_a_poll() {
    const CHANGES: usize = 7;
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let daemon = cluster.start_for(&vcenter, &[]).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialised(0..3, &daemon).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let name = cluster.name(1);
    let mut times = Vec::new();
    // A read that is under way would count as one of those that a change leads to.
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
    assert!(times[CHANGES - 1] < AT_ONCE, "the slowest of {times:?}");
    // Each change ends one wait or, if the simulator announces it in two parts, two.
    let waits = counts.of("WaitForUpdatesEx");
    assert!(waits as usize <= 2 * CHANGES + 1, "{counts:?}");
    let others: Vec<_> = counts.operations.keys().filter(|name| *name != "WaitForUpdatesEx").collect();
    assert!(others.is_empty(), "nothing else is asked: {counts:?}");

    // A machine that gets its addresses one after the other, faster than they are taken in.
    for change in 0..5 {
        vcenter.set_ip(&name, &format!("10.9.1.{change}")).await;
    }
    let time = change_address(&vcenter, &nodes, &name, "10.9.1.99").await;
    println!("the last of six changes in a row reached the Node after {time:?}");
    assert!(time < AT_ONCE, "{time:?}");
}

/// How long it takes from the change in vCenter to the Node.
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
