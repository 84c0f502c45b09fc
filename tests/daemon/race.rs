//! Random changes of machines, Nodes, vCenter and the daemon itself. Each version of each Node must meet the rules. At
//! the end the Nodes must be equal to those that a fresh daemon writes.
//!
//! `SOAK_SECONDS` is the duration. `SOAK_SEED` is `random` or a number that repeats the actions of a run.

mod action;
mod limits;
mod nodes;
mod pauses;
mod services;
mod world;

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::Api;
use kube::api::PostParams;
use support::nodes::UNINITIALIZED_TAINT;
use support::{ApiServer, Daemon, Heavy, KubeletNode, Vcenter, environment, eventually};
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{Admin, token_of};
use crate::cluster::Cluster;
use crate::invariants::daemons::{flags, until_looked};
use crate::invariants::machine::Power;
use crate::invariants::observations::Seen;
use crate::invariants::results::{assert_alike, assert_untouched};
use crate::invariants::rules::{Rules, has_taint, number as number_of};
use crate::invariants::versions::Versions;
use action::{Action, Script};
use world::World;

/// Number of machines and of nodes.
const NODES: usize = 24;
/// Duration of the actions if `SOAK_SECONDS` is not set.
const SECONDS: u64 = 20;
/// The default seed. Its actions have every kind of failure within [`SECONDS`], and labels follow the machines.
const SEED: u64 = 916_216;
/// Interval between two actions.
const PACE: Duration = Duration::from_millis(40);
/// Grace period for the deletion of a node that is not ready.
const GRACE: Duration = Duration::from_secs(2);
/// Longest pause between two reconciliations of a node.
const PERIOD: Duration = Duration::from_secs(2);
/// After this time without a write the world counts as stable. It includes several reconciliations of every node.
const QUIET: Duration = Duration::from_secs(6);
/// Number of machines that are destroyed at the end, when all nodes are initialized. It is the minimum number of
/// deleted Nodes.
const LOST: usize = 4;
/// Limit for the daemon's recovery. After a login without an answer the daemon waits up to 200 s.
const RECOVERY: Duration = Duration::from_secs(300);
/// Short periods and a high limit, so that many events happen in a minute.
const FLAGS: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--node-deletion-limit=100,100%,1s"];

#[tokio::test]
async fn whatever_happens_no_node_loses_what_it_has_and_all_end_as_a_fresh_daemon_writes_them() {
    let _alone = Heavy::alone();
    let seconds = environment::number("SOAK_SECONDS").unwrap_or(SECONDS);
    let seed = environment::seed("SOAK_SEED").unwrap_or(SEED);
    println!("SOAK_SEED={seed} SOAK_SECONDS={seconds}");
    // Concurrent, because both mostly wait.
    tokio::join!(all_that_happens(seed, seconds), limits::what_limits_allow(seed, seconds));
}

async fn all_that_happens(seed: u64, seconds: u64) {
    // The seed decides if labels follow the machines.
    let follows = seed.is_multiple_of(2);

    let server = ApiServer::audited().await;
    let cluster = Cluster::on(&server).await;
    let namespace = lease_namespace(&cluster).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    let versions = Versions::watch(cluster.client.clone(), &cluster.labels()).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let flags = flags(&FLAGS, PERIOD, GRACE, follows);
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let own = format!("--leader-elect-resource-namespace={namespace}");
    let start = || start(&cluster, &config, &flags, &["--leader-elect=true", &lease, &own]);
    let mut world = World::new(&cluster, vcenter, versions, Rules::new(GRACE, follows), start);
    world.populate(2, NODES).await;

    let mut script = Script::new(seed, NODES);
    let began = Instant::now();
    let until = began + Duration::from_secs(seconds);
    let churn = services::churn(&cluster.client, cluster.pool(), seed, until);
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), &namespace);
    let processes = world.processes.clone();
    let pauses = pauses::campaign(leases, &processes, seed, until);
    let ((), (), pauses) = tokio::join!(run(&mut world, PACE, until, || script.next()), churn, pauses);

    world.repair().await;
    settle(&mut world).await;
    for number in 0..NODES {
        let (power, ready) = match number % 4 {
            0 => (Power::On, "True"),
            1 => (Power::On, "Unknown"),
            2 => (Power::Off, "False"),
            _ => (Power::Suspended, "Unknown"),
        };
        world.act(Action::Power(number, power)).await;
        world.act(Action::Ready(number, ready)).await;
    }
    let there = (0..NODES).filter(|number| world.judged.machines[*number].is_there);
    for number in there.take(LOST).collect::<Vec<_>>() {
        world.act(Action::Lose(number)).await;
    }
    settle(&mut world).await;
    world.stop().await;
    println!(
        "{:.0?} after the start all was settled; in the end the daemon: {:?}",
        began.elapsed(),
        world.judged.rules.seen
    );
    assert_eq!(world.judged.rules.seen.lacks(&least(seconds)), [""; 0], "too little happened");
    let deletions = pauses.check(&server.audit());
    println!("{deletions} deletions were sent, none of them in {pauses:?}");
    assert!(deletions >= LOST, "{deletions} deletions are in the audit log");
    assert!(seconds < 60 || !pauses.windows.is_empty(), "no pause was acknowledged");

    // A fresh daemon writes nothing to these Nodes.
    let left = cluster.nodes().await;
    let daemon = look_afresh(&mut world, &server, &flags, "fresh-1").await;
    assert_untouched(&cluster.nodes().await, &left, daemon.output());
    drop(daemon);

    // The fresh daemon writes the same to new Nodes of the same machines.
    for (number, ready) in world.readiness().await {
        assert!(world.delete_node(number).await);
        assert!(world.judged.register(kubelet(&cluster, number, &ready)).await);
    }
    world.judged.check();
    let daemon = look_afresh(&mut world, &server, &flags, "fresh-2").await;
    assert_alike(&cluster.nodes().await, &left, follows, daemon.output());
}

/// Creates the namespace of the Leases, and returns its name. The Services have another one.
async fn lease_namespace(cluster: &Cluster) -> String {
    let name = format!("{}-leases", cluster.pool());
    let namespace: Namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap();
    Api::all(cluster.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    name
}

/// Returns the minimum counts for a run of this many seconds, with any seed. For deletions it is [`LOST`]. The other
/// counts are less than half of the counts that eight seeds gave in a minute.
fn least(seconds: u64) -> Seen {
    let in_a_minute = |count: u64| usize::try_from(count * seconds.min(60) / 60).unwrap_or_default();
    Seen {
        writes: in_a_minute(100),
        initialized: in_a_minute(25),
        deleted: LOST,
        proofs: LOST,
        readdressed: in_a_minute(12),
        shutdowns: in_a_minute(12),
        ..Seen::default()
    }
}

/// Executes an action at each interval of `pace`, until `until`.
async fn run(world: &mut World<'_>, pace: Duration, until: Instant, mut next: impl FnMut() -> Action) {
    let mut pace = interval(pace);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < until {
        pace.tick().await;
        world.act(next()).await;
    }
}

fn start(cluster: &Cluster, config: &str, flags: &[String], more: &[&str]) -> Daemon {
    let flags = flags.iter().map(String::as_str).chain(more.iter().copied());
    cluster.start(config, &flags.collect::<Vec<_>>())
}

/// Waits until every node with a machine is initialized, every other node is deleted, and writes have stopped.
async fn settle(world: &mut World<'_>) {
    eventually("all that happened is on the Nodes", RECOVERY, async || {
        world.judged.check();
        let nodes = world.cluster.nodes().await;
        let is_there = |node: &Node| world.judged.machines[number_of(node)].is_there;
        let strangers = nodes.values().filter(|node| !is_there(node)).map(name).collect::<Vec<_>>();
        let pending = nodes.values().filter(|node| has_taint(node, UNINITIALIZED_TAINT)).map(name).collect::<Vec<_>>();
        let missing =
            world.judged.machines.iter().filter(|machine| machine.is_there).count() + strangers.len() - nodes.len();
        match world.judged.last_version.elapsed() {
            quiet if quiet >= QUIET && missing == 0 && strangers.is_empty() && pending.is_empty() => Ok(()),
            quiet => Err(format!(
                "quiet for {quiet:?}, uninitialized {pending:?}, without a machine {strangers:?}, missing {missing}"
            )),
        }
    })
    .await;
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap()
}

/// Starts a fresh daemon with its own account, and waits until it has reconciled every node.
async fn look_afresh(world: &mut World<'_>, server: &ApiServer, flags: &[String], account: &str) -> Daemon {
    let vcenter = &world.vcenter;
    vcenter.set_login(account, vcenter.password()).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1").replace(vcenter.user(), account)]);
    let admin = Admin::new();
    let mut daemon = start(world.cluster, &config, flags, &[&admin.flag()]);
    world.judged.proofs.started(daemon.output());
    let token = token_of(server).await;
    let nodes = world.cluster.nodes().await.len();
    until_looked(&mut daemon, nodes, (&admin, &token), RECOVERY).await;
    settle(world).await;
    daemon
}

/// Returns a new node of this machine, with the readiness of the former node.
fn kubelet(cluster: &Cluster, number: usize, ready: &str) -> KubeletNode {
    let kubelet = cluster.kubelet(number);
    match ready {
        "True" => kubelet.ready(),
        "False" => kubelet,
        _ => kubelet.unheard(),
    }
}
