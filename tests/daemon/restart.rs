//! A daemon that is killed at any moment of a join and started again leaves the same Nodes. The daemon also survives a
//! restart of the API server.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Taint};
use support::nodes::NodeView;
use support::{ApiServer, Rule, Vcenter, eventually, unique};

use crate::cluster::{Cluster, LIMIT};

const NODES: usize = 8;
/// Attempts for a moment if the kill came after all writes. The last moment is half a second before the end.
const TRIES: usize = 5;
/// Number of moments that one cluster tests in sequence. The clusters run concurrently.
const AT_A_STRETCH: usize = 4;

/// Moment of the kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Before any call.
    Started,
    /// During this call, before its answer.
    During(&'static str),
    /// After this many writes. Each node takes two.
    Writes(usize),
}

#[tokio::test]
async fn a_daemon_killed_at_any_moment_of_a_join_ends_in_the_same_nodes() {
    let calls = ["Login", "FindAllByUuid", "ModifyListView", "WaitForUpdatesEx", "REST:list-attached-tags-on-objects"];
    let moments = std::iter::once(Moment::Started)
        .chain(calls.map(Moment::During))
        .chain([1, 2, 3, 4, 6, 9, 11].map(Moment::Writes));
    let moments: Vec<Moment> = moments.collect();
    join_all(moments.chunks(AT_A_STRETCH).map(all_end_in_the_same_nodes)).await;
}

/// Tests these moments in sequence, with a new cluster and a new vCenter.
async fn all_end_in_the_same_nodes(moments: &[Moment]) {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    cluster.register(0..NODES).await;
    let mut undisturbed = cluster.start(&config, &[]);
    cluster.wait_until_initialized(0..NODES, &undisturbed).await;
    let expected = results(&cluster).await;
    undisturbed.kill().await;

    for &moment in moments {
        let (config, writes) = killed_at(moment, &cluster, &vcenter).await;
        let config = match moment {
            Moment::During("Login") => config,
            _ => account(&vcenter).await,
        };
        let daemon = cluster.start(&config, &[]);
        cluster.wait_until_initialized(0..NODES, &daemon).await;
        println!("killed at {moment:?}, after {writes} writes");
        assert_eq!(results(&cluster).await, expected, "killed at {moment:?}, after {writes} writes");
    }
}

#[tokio::test]
async fn an_api_server_that_goes_away_is_waited_for_and_does_not_end_the_process() {
    let mut server = ApiServer::start().await;
    let cluster = Cluster::on(&server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let times =
        ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];
    let mut daemon = cluster.start_for(&vcenter, &[&["--leader-elect=true"], &times[..]].concat()).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    server.kill().await;
    daemon.wait_for_line("the Lease could not be renewed in time; this process is now a standby", LIMIT).await;
    vcenter.set_ip(&cluster.name(0), "10.9.9.9").await;
    server.restart().await;
    cluster.register(1..2).await;
    cluster.wait_until_initialized(1..2, &daemon).await;
    eventually("what changed meanwhile is on the Node", LIMIT, async || {
        let view = &cluster.views().await[&cluster.name(0)];
        if view.addresses[1] == "InternalIP=10.9.9.9" { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    assert!(daemon.ended().is_none());
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_logins, counts.rest_logins), (1, 1), "vCenter noticed nothing: {counts:?}");
}

/// Returns a configuration with another account, the only account that vCenter accepts from now on.
///
/// A login without an answer, because its process was killed, counts against its account. The next login waits, and
/// after three of them for minutes. One kill during a login tests that wait.
async fn account(vcenter: &Vcenter) -> String {
    let user = unique("account");
    vcenter.set_login(&user, vcenter.password()).await;
    Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1").replace(vcenter.user(), &user)])
}

/// Kills a daemon at this moment while new nodes join. Returns its configuration and the number of its writes, which is
/// less than the total.
async fn killed_at(moment: Moment, cluster: &Cluster, vcenter: &Vcenter) -> (String, usize) {
    for _ in 0..TRIES {
        cluster.delete_nodes().await;
        cluster.register(0..NODES).await;
        let config = account(vcenter).await;
        match kill_at(moment, cluster, vcenter, &config).await {
            made if made < 2 * NODES => return (config, made),
            made => println!("killed at {moment:?}, but after all {made} writes: once more"),
        }
    }
    panic!("killed too late to be a test, {TRIES} times: {moment:?}");
}

/// Starts the daemon and kills it at this moment. Returns the number of its writes.
async fn kill_at(moment: Moment, cluster: &Cluster, vcenter: &Vcenter, config: &str) -> usize {
    if let Moment::During(operation) = moment {
        vcenter.reset_counts().await;
        vcenter.add_rule(&Rule::hang(operation)).await;
    }
    // The rate limit is low, so that the test can hit the moment between two writes, and the last moment is half a
    // second before the end.
    let mut daemon = cluster.start(config, &["--kube-api-qps=10", "--kube-api-burst=1"]);
    match moment {
        Moment::Started => drop(daemon.wait_for_line(" starts", LIMIT).await),
        Moment::During(operation) => {
            eventually(&format!("{operation} arrives"), LIMIT, async || match vcenter.counts().await {
                counts if counts.of(operation) > 0 => Ok(()),
                counts => Err(format!("{counts:?}")),
            })
            .await;
        }
        Moment::Writes(wanted) => {
            eventually(&format!("{wanted} writes are made"), LIMIT, async || match writes(cluster).await {
                made if made >= wanted => Ok(()),
                made => Err(format!("{made}\n{}", daemon.output().tail(20))),
            })
            .await;
        }
    }
    daemon.kill().await;
    vcenter.clear_rules().await;
    writes(cluster).await
}

async fn writes(cluster: &Cluster) -> usize {
    let views = cluster.views().await;
    views.values().map(|view| usize::from(!view.addresses.is_empty()) + usize::from(!view.uninitialized)).sum()
}

/// All parts of a Node that the daemon writes.
type Result = (NodeView, Vec<Taint>, Option<BTreeMap<String, String>>);

async fn results(cluster: &Cluster) -> BTreeMap<String, Result> {
    let result = |node: &Node| {
        let taints = node.spec.clone().unwrap_or_default().taints.unwrap_or_default();
        (NodeView::of(node), taints, node.metadata.annotations.clone())
    };
    cluster.nodes().await.iter().map(|(name, node)| (name.clone(), result(node))).collect()
}
