//! The same with the limits that an operator would set, of which the rest of the race has none: many machines go at once,
//! most of the control plane among them, and then whatever happens to machines and Nodes. One daemon leads all the time,
//! so that what it may do shows from outside.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use support::nodes::UNINITIALIZED_TAINT;
use support::{Vcenter, eventually};

use super::action::{Action, Script};
use super::world::World;
use super::{NODES, PERIOD, RECOVERY, run, start};
use crate::cluster::Cluster;
use crate::invariants::daemons::flags;
use crate::invariants::limits::Limits;
use crate::invariants::observations::Seen;
use crate::invariants::rules::{Rules, has_taint, is_control_plane};
use crate::invariants::versions::Versions;

/// Nodes of the control plane, and of those as many as may be gone.
const CONTROL_PLANE: usize = 4;
const HALF: usize = 2;
/// The nodes whose machines go at once: more than half of the control plane, and more others than the limit lets go at
/// once. It takes more than five to be many.
const LOST: std::ops::Range<usize> = HALF - 1..12;
/// Longer than it takes to make them all Ready=Unknown, so that none is deleted before the last is.
const GRACE: Duration = Duration::from_secs(4);
/// 20 % of 24 nodes are four: the other number of the limit counts.
const LIMIT: usize = 5;
const WINDOW: Duration = Duration::from_secs(10);
const HOLD: Duration = Duration::from_secs(10);
/// JSON is the other form of the log.
const FLAGS: [&str; 3] = ["--node-deletion-limit=5,20%,10s", "--node-deletion-mass-hold=10s", "--logging-format=json"];
/// Fewer actions than in the rest of the race: nodes that wait for the limit are to be deleted, and not rescued.
const PACE: Duration = Duration::from_millis(200);

/// Runs for so long, or until that much was seen.
pub async fn what_limits_allow(seed: u64, seconds: u64) {
    let follows = seed.is_multiple_of(2);
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    let versions = Versions::watch(cluster.client.clone(), &cluster.labels()).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let flags = flags(&FLAGS, PERIOD, GRACE, follows);
    let rules = Rules::new(GRACE, follows).limited(Limits::new(LIMIT, WINDOW));
    let mut world = World::new(&cluster, vcenter, versions, rules, || start(&cluster, &config, &flags, &[]));
    world.control_plane = CONTROL_PLANE;
    let began = Instant::now();
    world.populate(1, NODES).await;
    until(&mut world, "every node is initialised", |nodes| {
        nodes.len() == NODES && !nodes.iter().any(|node| has_taint(node, UNINITIALIZED_TAINT))
    })
    .await;

    lose_many(&mut world).await;
    // One of the control plane comes back, and the rest of it that is lost may be deleted.
    world.act(Action::Create(HALF)).await;
    world.act(Action::Ready(HALF, "True")).await;
    let is_half = |nodes: &[Node]| nodes.iter().filter(|node| is_control_plane(node)).count() == CONTROL_PLANE - HALF;
    until(&mut world, "half of the control plane is deleted", is_half).await;

    let mut script = Script::new(seed, NODES);
    run(&mut world, PACE, began + Duration::from_secs(seconds), || script.next_of_nodes()).await;
    world.stop().await;
    let seen = &world.judged.rules.seen;
    println!("with limits: {:.0?}; the daemon: {seen:?}", began.elapsed());
    // What was waited for above, whatever the seed.
    let least = Seen {
        initialised: NODES,
        deleted: LIMIT + HALF,
        control_plane: HALF,
        proofs: seen.deleted,
        ..Seen::default()
    };
    assert_eq!(seen.lacks(&least), [""; 0], "too little happened");
}

/// Many machines go at once: nothing is deleted for a while, and then as many Nodes as the limit allows.
async fn lose_many(world: &mut World<'_>) {
    for (before, number) in LOST.enumerate() {
        if before == LIMIT {
            // With the next one they are many.
            world.judged.rules.hold(Instant::now(), HOLD);
        }
        world.act(Action::Lose(number)).await;
    }
    eventually("the limit is reached", RECOVERY, async || {
        world.judged.check();
        world.has_logged("DeletionLimitReached").then_some(()).ok_or_else(|| world.output())
    })
    .await;
    for reason in ["DeletionMassHold", "DeletionControlPlaneMajority"] {
        assert!(world.has_logged(reason), "{reason} was never told:\n{}", world.output());
    }
}

async fn until(world: &mut World<'_>, what: &str, is_so: impl Fn(&[Node]) -> bool) {
    eventually(what, RECOVERY, async || {
        world.judged.check();
        let nodes: Vec<Node> = world.cluster.nodes().await.into_values().collect();
        is_so(&nodes).then_some(()).ok_or_else(|| format!("{} nodes\n{}", nodes.len(), world.output()))
    })
    .await;
}
