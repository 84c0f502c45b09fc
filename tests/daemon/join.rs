//! Many nodes join at once. Counts the calls to vCenter during the join and afterwards.

use std::time::{Duration, Instant};

use futures::future::join_all;
use support::{KubeletNode, Vcenter, eventually};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, LIMIT, until_passed, uuid};

/// Time without changes, in which the daemon may make almost no calls.
const QUIET: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_hundred_nodes_join_at_once_with_two_calls_each_and_cost_nothing_afterwards() {
    const NODES: usize = 100;
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    vcenter.delay_calls(Duration::from_millis(10)).await;
    // Six passes over all nodes happen within [`QUIET`].
    let daemon = cluster.start_for(&vcenter, &["--node-status-update-frequency=5s"]).await;
    let joined = Instant::now();
    cluster.register(0..NODES).await;
    cluster.wait_until_initialized(0..NODES, &daemon).await;
    let took = joined.elapsed();
    let counts = vcenter.counts().await;
    println!("{NODES} nodes joined in {took:?} with {} calls from the start of the daemon: {counts:?}", counts.total);
    assert!(counts.total as usize <= 2 * NODES + 40, "{counts:?}");
    assert_eq!((counts.soap_sessions, counts.soap_logins, counts.of("Login")), (1, 1, 1), "{counts:?}");
    assert_eq!((counts.rest_sessions, counts.of("REST:session-login")), (1, 1), "{counts:?}");

    eventually("the daemon only waits for changes", LIMIT, async || match vcenter.counts().await {
        counts if counts.pending_waits == 1 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    vcenter.reset_counts().await;
    let before = cluster.versions().await;
    until_passed(Instant::now(), QUIET).await;
    let counts = vcenter.counts().await;
    println!("{} calls in {QUIET:?} with nothing changing: {:?}", counts.total, counts.operations);
    assert!(counts.total <= 10, "{counts:?}");
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (1, 1), "{counts:?}");
    assert_eq!(counts.of("Login") + counts.of("REST:session-login"), 0, "{counts:?}");
    assert_eq!(cluster.versions().await, before, "no Node was written");
}

/// Guests report their UUID in different byte orders, so the first search is wrong for many nodes.
#[tokio::test]
async fn a_hundred_nodes_in_both_byte_orders_join_a_daemon_that_starts_and_starts_again() {
    const NODES: usize = 100;
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    vcenter.delay_calls(Duration::from_millis(10)).await;
    let kubelet = |number| match number % 2 {
        0 => cluster.kubelet(number),
        _ => cluster.marked(KubeletNode::new(&cluster.name(number), &uuid(number))),
    };
    join_all((0..NODES).map(|number| kubelet(number).register(&cluster.client))).await;
    let mut daemon = cluster.start_for(&vcenter, &[]).await;
    cluster.wait_until_initialized(0..NODES, &daemon).await;
    let counts = vcenter.counts().await;
    println!("{NODES} nodes in both byte orders joined with {} calls: {:?}", counts.total, counts.operations);
    assert!(counts.total as usize <= 2 * NODES + 40, "{counts:?}");

    let before = cluster.versions().await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    vcenter.reset_counts().await;
    let admin = Admin::new();
    let mut daemon = cluster.start_for(&vcenter, &[&admin.flag()]).await;
    let token = token(&cluster).await;
    eventually("every node was looked at with its machine known", LIMIT, async || {
        let settled = admin.sum("vsphere_ccm_node_syncs_total{result=\"Settled\"}", &token, &mut daemon).await;
        if settled >= NODES as f64 { Ok(()) } else { Err(format!("{settled}")) }
    })
    .await;
    let counts = vcenter.counts().await;
    println!("a restart cost {} calls: {:?}", counts.total, counts.operations);
    // No machine is searched for twice, although no node is ready.
    assert!(counts.total as usize <= 3 * NODES / 2 + 40, "{counts:?}");
    assert_eq!(cluster.versions().await, before, "no Node was written");
}
