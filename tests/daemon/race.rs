//! Everything changes at random: machines, Nodes, vCenter, the daemon itself. Each version of each Node is held to
//! what must never happen, and at the end the Nodes are what a fresh daemon would write.
//!
//! `SOAK_SECONDS` is for how long, `SOAK_SEED` repeats the actions of a run.

mod action;
mod machine;
mod rules;
mod versions;
mod world;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use support::nodes::UNINITIALIZED_TAINT;
use support::{Daemon, KubeletNode, Vcenter, eventually};
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, labels};
use action::{Action, Power, Script};
use rules::{Rules, SHUTDOWN_TAINT, VM, addresses, has_taint, provider_id};
use versions::Versions;
use world::World;

/// Machines, and as many nodes.
const NODES: usize = 24;
/// Between two actions.
const PACE: Duration = Duration::from_millis(40);
/// How long a node that is not ready waits for its deletion.
const GRACE: Duration = Duration::from_secs(2);
/// The longest pause between two looks of the daemon at a node.
const PERIOD: Duration = Duration::from_secs(2);
/// After this long without a write, nothing is left to be written: some looks at every node.
const QUIET: Duration = Duration::from_secs(6);
/// How long the daemon may take to get over all that was done to it. A login that was lost is awaited for 200 s.
const RECOVERY: Duration = Duration::from_secs(300);
/// Short times and a wide limit, so that much happens in a minute.
const FLAGS: [&str; 7] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
    "--tag-poll-interval=1s",
    "--node-monitor-period=1s",
    "--node-deletion-limit=100,100%,1s",
    "--node-deletion-mass-hold=1s",
];

#[tokio::test]
async fn whatever_happens_no_node_loses_what_it_has_and_all_end_as_a_fresh_daemon_writes_them() {
    let seconds = variable("SOAK_SECONDS").unwrap_or(60);
    let seed = variable("SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("SOAK_SEED={seed} SOAK_SECONDS={seconds}");
    // Whether labels follow their machines is up to the seed, too.
    let follows = seed.is_multiple_of(2);

    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    let versions = Versions::watch(cluster.client.clone(), &cluster.labels()).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let flags = flags(follows);
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let start = || start(&cluster, &config, &flags, &["--leader-elect=true", &lease]);
    let mut world = World::new(&cluster, vcenter, versions, Rules::new(GRACE, follows), start);
    for number in 0..NODES {
        world.appeared(number);
        world.act(Action::Register(number)).await;
    }

    let mut script = Script::new(seed, NODES);
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        pace.tick().await;
        world.act(script.next()).await;
    }

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
    settle(&mut world).await;
    world.stop().await;
    println!("{:.0?} after the start all was settled; in the end the daemon: {:?}", began.elapsed(), world.rules.seen);

    // A fresh daemon finds nothing to write on these Nodes.
    let left = cluster.nodes().await;
    let daemon = look_afresh(&mut world, &flags, "fresh-1").await;
    for (name, node) in cluster.nodes().await {
        assert_eq!(node, left[&name], "a fresh daemon wrote to {name}\n{}", daemon.output().tail(40));
    }
    drop(daemon);

    // On new Nodes of the same machines it writes the same.
    let expected = results(&left, follows);
    for (number, ready) in world.readiness().await {
        assert!(world.delete_node(number).await);
        assert!(world.register_as(kubelet(&cluster, number, &ready)).await);
    }
    world.check();
    let daemon = look_afresh(&mut world, &flags, "fresh-2").await;
    for (name, result) in results(&cluster.nodes().await, follows) {
        assert_eq!(result, expected[&name], "{name} would be another one; {}", daemon.output().tail(40));
    }
}

/// From the environment.
fn variable<T: FromStr<Err: std::fmt::Debug>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error:?}")))
}

fn flags(follows: bool) -> Vec<String> {
    let mut flags: Vec<String> = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
    flags.push(format!("--node-status-update-frequency={}s", PERIOD.as_secs()));
    flags.push(format!("--node-deletion-grace={}s", GRACE.as_secs()));
    if follows {
        flags.extend(["--zone-labels=follow".to_owned(), "--instance-type=follow".to_owned()]);
    }
    flags
}

fn start(cluster: &Cluster, config: &str, flags: &[String], more: &[&str]) -> Daemon {
    let flags = flags.iter().map(String::as_str).chain(more.iter().copied());
    cluster.start(config, &flags.collect::<Vec<_>>())
}

/// Waits until every node whose machine is there is initialised, every other one is deleted, and nothing is written.
async fn settle(world: &mut World<'_>) {
    eventually("all that happened is on the Nodes", RECOVERY, async || {
        world.check();
        let nodes = world.cluster.nodes().await;
        let is_there = |node: &Node| world.machines[world.number(node)].is_there;
        let strangers = nodes.values().filter(|node| !is_there(node)).map(name).collect::<Vec<_>>();
        let pending = nodes.values().filter(|node| has_taint(node, UNINITIALIZED_TAINT)).map(name).collect::<Vec<_>>();
        let missing = world.machines.iter().filter(|machine| machine.is_there).count() + strangers.len() - nodes.len();
        match world.last_version.elapsed() {
            quiet if quiet >= QUIET && missing == 0 && strangers.is_empty() && pending.is_empty() => Ok(()),
            quiet => Err(format!(
                "quiet for {quiet:?}, uninitialised {pending:?}, without a machine {strangers:?}, missing {missing}"
            )),
        }
    })
    .await;
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap()
}

/// A daemon that knows nothing of what was, with an account of its own, once it has looked at every node and written
/// what it wants.
async fn look_afresh(world: &mut World<'_>, flags: &[String], account: &str) -> Daemon {
    let vcenter = &world.vcenter;
    vcenter.set_login(account, vcenter.password()).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1").replace(vcenter.user(), account)]);
    let admin = Admin::new();
    let mut daemon = start(world.cluster, &config, flags, &[&admin.flag()]);
    let token = token(world.cluster).await;
    let wanted = 2.0 * world.cluster.nodes().await.len() as f64;
    eventually("every node was looked at with its machine known", RECOVERY, async || {
        match admin.sum("vsphere_ccm_node_syncs_total{result=\"Settled\"}", &token, &mut daemon).await {
            settled if settled >= wanted => Ok(()),
            settled => Err(format!("{settled} of {wanted}\n{}", daemon.output().tail(20))),
        }
    })
    .await;
    settle(world).await;
    daemon
}

/// A new node of this machine, as ready as the one before.
fn kubelet(cluster: &Cluster, number: usize, ready: &str) -> KubeletNode {
    let kubelet = cluster.kubelet(number);
    match ready {
        "True" => kubelet.ready(),
        "False" => kubelet,
        _ => kubelet.unheard(),
    }
}

/// What of a Node is the daemon's.
#[derive(Debug, PartialEq)]
struct Result {
    provider_id: String,
    addresses: Vec<String>,
    labels: BTreeMap<&'static str, Option<String>>,
    is_initialised: bool,
    is_marked_as_shut_down: bool,
    /// vCenter and machine. Where the machine was is as of the last time that was written: never for a vMotion alone.
    vm: [String; 2],
}

/// Labels that do not follow the machine say where it was at the initialisation: then it only counts that they exist.
fn results(nodes: &BTreeMap<String, Node>, follows: bool) -> BTreeMap<String, Result> {
    let result = |node: &Node| {
        let label = |key: &str| node.metadata.labels.as_ref()?.get(key).cloned();
        let value = |value: String| if follows { value } else { "as it was".to_owned() };
        let record = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VM));
        let record: serde_json::Value =
            record.map_or_else(Default::default, |text| serde_json::from_str(text).unwrap());
        Result {
            provider_id: provider_id(node).to_owned(),
            addresses: by_type(node),
            labels: labels("").into_iter().map(|(key, _)| (key, label(key).map(value))).collect(),
            is_initialised: !has_taint(node, UNINITIALIZED_TAINT),
            is_marked_as_shut_down: has_taint(node, SHUTDOWN_TAINT),
            vm: ["vcenter", "vm"].map(|field| record[field].to_string()),
        }
    };
    nodes.iter().map(|(name, node)| (name.clone(), result(node))).collect()
}

/// The addresses in their order within a type. Between types it means nothing, and depends on what the node had before.
fn by_type(node: &Node) -> Vec<String> {
    let mut all = addresses(node).iter().collect::<Vec<_>>();
    all.sort_by(|left, right| left.type_.cmp(&right.type_));
    all.into_iter().map(|address| format!("{}={}", address.type_, address.address)).collect()
}
