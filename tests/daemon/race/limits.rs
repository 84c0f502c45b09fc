//! A race with deletion limits as an operator would set them. The main race has no such limits. Many machines disappear
//! at once, including most of the control plane. Then random changes of machines and Nodes follow. One daemon leads all
//! the time, so that the test can compute the permitted deletions.

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

/// Number of nodes of the control plane, and number of them that may be deleted.
const CONTROL_PLANE: usize = 4;
const HALF: usize = 2;
/// Nodes whose machines disappear at once: more than half of the control plane, and more others than the limit permits
/// at once. The daemon treats more than five absent machines as a mass loss.
const LOST: std::ops::Range<usize> = HALF - 1..12;
/// Longer than the time to set all nodes to Ready=Unknown, so that the first deletion comes after the last of these
/// writes.
const GRACE: Duration = Duration::from_secs(4);
/// 20 % of 24 nodes are four, so the absolute number of the limit is used.
const LIMIT: usize = 5;
const WINDOW: Duration = Duration::from_secs(10);
const HOLD: Duration = Duration::from_secs(10);
/// JSON is the other form of the log.
const FLAGS: [&str; 3] = ["--node-deletion-limit=5,20%,10s", "--node-deletion-mass-hold=10s", "--logging-format=json"];
/// Longer than in the main race, so that nodes that wait for the limit are deleted and do not recover.
const PACE: Duration = Duration::from_millis(200);

/// Runs for this many seconds, or until the minimum counts are reached.
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
    until(&mut world, "every node is initialized", |nodes| {
        nodes.len() == NODES && !nodes.iter().any(|node| has_taint(node, UNINITIALIZED_TAINT))
    })
    .await;

    lose_many(&mut world).await;
    // One node of the control plane recovers. Then the other lost nodes of the control plane may be deleted.
    world.act(Action::Create(HALF)).await;
    world.act(Action::Ready(HALF, "True")).await;
    let is_half = |nodes: &[Node]| nodes.iter().filter(|node| is_control_plane(node)).count() == CONTROL_PLANE - HALF;
    until(&mut world, "half of the control plane is deleted", is_half).await;

    let mut script = Script::new(seed, NODES);
    run(&mut world, PACE, began + Duration::from_secs(seconds), || script.next_of_nodes()).await;
    world.stop().await;
    let seen = &world.judged.rules.seen;
    println!("with limits: {:.0?}; the daemon: {seen:?}", began.elapsed());
    // The events that the steps above await, with any seed.
    let least = Seen {
        initialized: NODES,
        deleted: LIMIT + HALF,
        control_plane: HALF,
        proofs: seen.deleted,
        ..Seen::default()
    };
    assert_eq!(seen.lacks(&least), [""; 0], "too little happened");
}

/// Makes many machines disappear at once. Deletion pauses for a while, and then the limit applies.
async fn lose_many(world: &mut World<'_>) {
    for (before, number) in LOST.enumerate() {
        if before == LIMIT {
            // With the next machine the daemon sees a mass loss.
            world.judged.rules.hold(Instant::now(), HOLD);
        }
        world.act(Action::Lose(number)).await;
    }
    eventually("the limit is reached", RECOVERY, async || {
        world.judged.check();
        world.story.has_logged("DeletionLimitReached").then_some(()).ok_or_else(|| world.story.output())
    })
    .await;
    for reason in ["DeletionMassHold", "DeletionControlPlaneMajority"] {
        assert!(world.story.has_logged(reason), "{reason} was never told:\n{}", world.story.output());
    }
}

async fn until(world: &mut World<'_>, what: &str, is_so: impl Fn(&[Node]) -> bool) {
    eventually(what, RECOVERY, async || {
        world.judged.check();
        let nodes: Vec<Node> = world.cluster.nodes().await.into_values().collect();
        is_so(&nodes).then_some(()).ok_or_else(|| format!("{} nodes\n{}", nodes.len(), world.story.output()))
    })
    .await;
}
