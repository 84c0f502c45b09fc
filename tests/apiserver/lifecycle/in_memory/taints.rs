//! Taints: when they are written, and how often where they are refused.

use super::world::{MOMENT, World, pass, seconds, settings};
use ccm::cloud::PowerState;
use ccm::controllers::node_lifecycle::Settings;
use ccm::controllers::node_lifecycle::plan::{ANNOTATION_OUT_OF_SERVICE, TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};
use http::Method;
use serde_json::json;
use std::time::Duration;

const AFTER: Duration = Duration::from_secs(300);

async fn world() -> World {
    World::start(Settings { out_of_service_after: Some(AFTER), ..settings() }).await
}

fn shutdown() -> String {
    format!("{TAINT_SHUTDOWN}:NoSchedule")
}

fn out_of_service() -> String {
    format!("{TAINT_OUT_OF_SERVICE}:NoExecute")
}

fn is_marked(world: &World) -> bool {
    world.server.node("a").unwrap()["metadata"]["annotations"][ANNOTATION_OUT_OF_SERVICE].is_string()
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_out_of_service_only_while_nobody_hears_from_the_node() {
    let world = world().await;
    world.create("a", "False", PowerState::Off);
    pass(seconds(1000)).await;
    assert_eq!(world.taints("a"), [shutdown()], "a kubelet that reports lives, perhaps on another machine");
    world.set_ready("a", "Unknown");
    pass(seconds(290)).await;
    assert_eq!(world.taints("a"), [shutdown()], "the time counts from when nobody heard of it");
    world.set_ready("a", "False");
    pass(MOMENT).await;
    world.set_ready("a", "Unknown");
    pass(seconds(290)).await;
    assert_eq!(world.taints("a"), [shutdown()], "without a break");
    pass(seconds(15)).await;
    assert_eq!(world.taints("a"), [shutdown(), out_of_service()]);
}

#[tokio::test(start_paused = true)]
async fn the_time_counts_from_when_the_machine_went_off_where_that_is_later() {
    let world = world().await;
    world.create("a", "Unknown", PowerState::On);
    pass(seconds(400)).await;
    world.set_power("a", PowerState::Off);
    pass(seconds(290)).await;
    assert_eq!(world.taints("a"), [shutdown()]);
    pass(seconds(15)).await;
    assert_eq!(world.taints("a"), [shutdown(), out_of_service()]);
}

#[tokio::test(start_paused = true)]
async fn our_taint_goes_when_the_node_is_ready_whichever_machine_it_runs_on() {
    let world = world().await;
    world.create("a", "Unknown", PowerState::Off);
    pass(seconds(310)).await;
    assert!(is_marked(&world), "{:?}", world.taints("a"));
    world.set_ready("a", "True");
    pass(seconds(1)).await;
    assert_eq!(world.taints("a"), [""; 0], "the machine that is known is off, and the kubelet lives");
    assert!(!is_marked(&world));

    // Somebody else's has no mark.
    let theirs = json!({"spec": {"taints": [
        {"key": TAINT_OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"},
    ]}});
    world.set_ready("a", "Unknown");
    world.server.with(|state| state.change("a", &theirs));
    pass(seconds(400)).await;
    world.set_ready("a", "True");
    pass(seconds(20)).await;
    assert_eq!(world.taints("a"), [out_of_service()]);
}

#[tokio::test(start_paused = true)]
async fn a_live_read_that_shows_a_kubelet_at_work_writes_no_taint() {
    let world = world().await;
    world.create("a", "Unknown", PowerState::Off);
    pass(seconds(290)).await;
    let before = world.server.sent(&Method::PATCH).len();
    // The cache hears nothing of it.
    world.server.hold_watch(true);
    world.set_ready("a", "True");
    pass(seconds(60)).await;
    assert!(world.server.sent(&Method::PATCH).len() > before, "it was tried");
    let live = world.server.node("a").unwrap();
    assert!(!live.to_string().contains(TAINT_OUT_OF_SERVICE), "{live}");
}
