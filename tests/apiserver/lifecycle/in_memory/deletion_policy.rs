//! The guard of deletions, from Nodes to deletions: blocked deletions, their reports, and the conditions that end the
//! block.

use super::world::{MOMENT, World, pass, seconds, settings};
use ccm::cloud::PowerState;
use ccm::controllers::node_lifecycle::plan::ANNOTATION_ALLOW_DELETION;
use ccm::controllers::node_lifecycle::{DeletionMode, LifecycleSettings, Limit};
use http::Method;
use serde_json::json;
use std::time::Duration;

/// Longer than the grace period and two proofs.
const GRACE_IS_OVER: Duration = Duration::from_secs(35);
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(36_000);
/// A limit that no test reaches.
const WIDE: Limit = Limit { nodes: 1000, percent: 100, window: Duration::from_secs(1) };

/// Starts a world with this many healthy nodes.
async fn world(well: usize, settings: LifecycleSettings) -> World {
    let world = World::start(settings).await;
    (0..well).for_each(|number| drop(world.create(&format!("well-{number}"), "True", PowerState::On)));
    pass(MOMENT).await;
    world
}

/// Creates nodes with absent machines.
fn lose_many(world: &World, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("gone-{number}")).collect();
    names.iter().for_each(|name| world.lose(name));
    names
}

fn allow(world: &World, name: &str, word: &str) {
    let annotated = json!({"metadata": {"annotations": {ANNOTATION_ALLOW_DELETION: word}}});
    world.server.with(|state| state.change(name, &annotated));
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_what_is_more_than_it_and_a_new_leader_starts_with_one() {
    let own = LifecycleSettings { mass_hold: Duration::ZERO, ..settings() };
    let limit = Limit { nodes: 5, percent: 10, window: NEVER };
    let first = world(10, LifecycleSettings { limit, ..own.clone() }).await;
    lose_many(&first, 4);
    pass(GRACE_IS_OVER).await;
    assert_eq!((first.deletions().len(), first.held("DeletionLimitReached")), (1, 3));
    pass(seconds(600)).await;
    assert_eq!(first.deletions().len(), 1);
    assert_eq!(first.metric("vsphere_ccm_node_deletion_allowance"), 0);
    assert_eq!(first.server.events("DeletionLimitReached").len(), 3, "one Event each");

    // Another leader does not have this state, and begins with a new hold.
    let second = world(0, own).await;
    lose_many(&second, 3);
    pass(GRACE_IS_OVER).await;
    assert_eq!(second.deletions().len(), 1);
    pass(seconds(1800)).await;
    assert_eq!(second.deletions().len(), 3, "under the limit all go");
}

#[tokio::test(start_paused = true)]
async fn many_at_once_are_held_told_and_then_deleted() {
    let world = world(4, LifecycleSettings { limit: WIDE, mass_hold: seconds(100), ..settings() }).await;
    let names = lose_many(&world, 8);
    pass(GRACE_IS_OVER).await;
    assert_eq!((world.held("DeletionMassHold"), world.metric("vsphere_ccm_node_deletion_mass_hold")), (8, 1));
    assert_eq!(world.deletions(), [""; 0], "not even the first ones");
    let told = world.server.events_with("DeletionMassHold");
    assert_eq!(told.len(), 8, "{told:?}");
    let message = told[0]["message"].as_str().unwrap();
    assert_eq!(told[0]["type"], "Warning");
    assert!(
        message.contains(
            "of 12 nodes are gone at once (gone-0, gone-1, gone-2, gone-3, gone-4, …); deletions begin at 20"
        ),
        "{message}"
    );
    assert!(message.contains("was removed"), "with the proof: {message}");
    pass(seconds(60)).await;
    assert_eq!(world.deletions(), [""; 0], "95 s");
    pass(seconds(20)).await;
    assert_eq!((world.held("DeletionMassHold"), world.metric("vsphere_ccm_node_deletion_mass_hold")), (0, 0));
    assert_eq!((world.deletions().len(), world.metric("vsphere_ccm_node_deletions_total")), (8, 8));
    assert!(!names.iter().any(|name| world.is_there(name)) && world.is_there("well-3"));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_it_would_do_and_off_says_that_it_does_nothing() {
    for (deletion, reason) in
        [(DeletionMode::DryRun, "DeletionDryRun"), (DeletionMode::Off { reason: "--node-deletion=off" }, "DeletionOff")]
    {
        let is_dry = deletion == DeletionMode::DryRun;
        let world =
            world(0, LifecycleSettings { deletion, limit: WIDE, mass_hold: Duration::ZERO, ..settings() }).await;
        world.lose("a");
        allow(&world, "a", "true");
        pass(seconds(300)).await;
        let told = world.server.events(reason);
        assert_eq!(told.len(), 1, "{reason}");
        assert!(told[0].contains(if is_dry { "was removed" } else { "--node-deletion=off" }), "{told:?}");
        assert_eq!(world.server.reasons(), [reason], "one Event");
        assert_eq!((world.held(reason), world.is_there("a"), world.deletions().len()), (1, true, 0), "{reason}");
        assert_eq!(world.metric("vsphere_ccm_node_deletions_total"), 0);
        assert_eq!(world.metric("vsphere_ccm_node_deletions_dry_run_total"), u64::from(is_dry), "said once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_human_may_let_one_node_go_at_once() {
    let limit = Limit { nodes: 0, percent: 0, window: NEVER };
    let world = world(0, LifecycleSettings { grace: NEVER, limit, mass_hold: NEVER, ..settings() }).await;
    let names = lose_many(&world, 7);
    pass(seconds(5)).await;
    assert_eq!(world.held("DeletionGracePeriod"), 7);
    allow(&world, &names[3], "yes");
    allow(&world, &names[4], "true");
    pass(seconds(60)).await;
    assert_eq!(world.deletions(), [names[4].as_str()]);

    // The guard blocks deletions without a proof, of Ready nodes, and of a majority of the control plane.
    world.create("unknown", "Unknown", PowerState::On);
    world.hide("unknown");
    world.create("ready", "True", PowerState::On);
    world.destroy("ready");
    world.lose("control");
    let control = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    world.server.with(|state| state.change("control", &control));
    for name in ["unknown", "ready", "control"] {
        allow(&world, name, "true");
    }
    pass(seconds(300)).await;
    assert_eq!((world.held("VCenterUnavailable"), world.held("DeletionControlPlaneMajority")), (1, 1));
    assert_eq!(world.deletions(), [names[4].as_str()]);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_machines_gone_at_once_pause_and_then_go_under_the_limit() {
    const NODES: usize = 1000;
    /// Permitted deletions in a window: a tenth of all nodes.
    const ALLOWED: usize = NODES / 10;
    // Shorter than the defaults, for a debug build. Each node is reconciled every 5 s.
    let (window, mass_hold) = (seconds(60), seconds(120));
    let limit = Limit { window, ..settings().limit };
    let world = world(NODES, LifecycleSettings { limit, mass_hold, ..settings() }).await;
    for number in 0..NODES {
        let name = format!("well-{number}");
        world.destroy(&name);
        world.set_ready(&name, "Unknown");
    }
    pass(mass_hold - seconds(10)).await;
    assert_eq!(world.metric("vsphere_ccm_node_deletion_mass_hold"), 1);
    assert_eq!(
        (world.held("DeletionMassHold"), world.deletions().len()),
        (NODES as u64, 0),
        "none before a human may look"
    );
    pass(seconds(20) + 3 * window).await;
    assert_eq!(world.metric("vsphere_ccm_node_deletion_mass_hold"), 0);
    let sent = world.server.sent(&Method::DELETE);
    assert!(sent.len() > 2 * ALLOWED, "{} deletions", sent.len());
    assert!(sent.windows(ALLOWED + 1).all(|some| some[ALLOWED].at - some[0].at >= window), "the limit holds");
    let gone = (0..NODES).filter(|number| !world.is_there(&format!("well-{number}"))).count();
    assert_eq!((gone, world.metric("vsphere_ccm_node_deletions_total")), (sent.len(), gone as u64));
}
