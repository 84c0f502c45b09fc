//! The last deletions on the Lease: they outlast the process, and never hold up a deletion.

use std::time::Duration;

use ccm::cloud::PowerState;
use ccm::controllers::node_lifecycle::{LifecycleSettings, Limit};
use http::Method;
use serde_json::json;

use super::server::Fate;
use super::world::{MOMENT, World, pass, seconds, settings};

/// Longer than the grace period and two proofs.
const GRACE_IS_OVER: Duration = Duration::from_secs(35);
/// Longer than the interval of the reads of the Lease.
const READ_AGAIN: Duration = Duration::from_secs(31);

async fn world() -> World {
    let limit = Limit { nodes: 1000, percent: 100, window: MOMENT };
    let world = World::start(LifecycleSettings { limit, ..settings() }).await;
    (0..10).for_each(|number| drop(world.create(&format!("well-{number}"), "True", PowerState::On)));
    pass(MOMENT).await;
    world
}

fn written(world: &World) -> String {
    world.server.with(|state| state.leases.annotation("vsphere-ccm.dev/deletions"))
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_on_the_lease_with_its_proof_time_and_replica() {
    let world = world().await;
    world.server.with(|state| state.leases.annotate(&json!({"other": "kept"})));
    world.lose("a");
    let uid = world.server.node("a").unwrap()["metadata"]["uid"].clone();
    pass(GRACE_IS_OVER).await;
    assert!(!world.is_there("a"));
    let deletions: serde_json::Value = serde_json::from_str(&written(&world)).unwrap();
    let deletion = &deletions[0];
    assert_eq!([&deletion["node"], &deletion["uid"], &deletion["replica"]], [&json!("a"), &uid, &json!("host")]);
    let events = world.server.events("DeletingNode");
    assert!(events[0].ends_with(deletion["proof"].as_str().unwrap()), "{deletion} {events:?}");
    assert_eq!(world.server.with(|state| state.leases.annotation("other")), "kept");
    pass(READ_AGAIN).await;
    let known: Vec<_> = world.pauses.past_deletions().into_iter().map(|deletion| deletion.node).collect();
    assert_eq!(known, ["a"], "each replica reads it");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_is_on_the_lease_until_another_request_is_answered() {
    for (case, fate, is_unanswered) in
        [("it was done", Fate::DoneAndLost, true), ("it was not done", Fate::Lost, false)]
    {
        let world = world().await;
        world.server.next(&Method::DELETE, &[fate]);
        world.lose("a");
        pass(seconds(300)).await;
        assert!(!world.is_there("a"), "{case}");
        let deletions: serde_json::Value = serde_json::from_str(&written(&world)).unwrap();
        assert_eq!(deletions.as_array().map(Vec::len), Some(1), "{case}: {deletions}");
        assert_eq!(deletions[0]["isUnanswered"] == true, is_unanswered, "{case}: {deletions}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_written_holds_up_no_deletion_and_conflicts_are_retried() {
    let world = world().await;
    world.lose("a");
    pass(seconds(25)).await;
    // The live read works, and the write is never answered.
    world.server.with(|state| state.leases.next.extend([Fate::Works, Fate::Works, Fate::Works, Fate::Lost]));
    pass(seconds(10)).await;
    assert!(!world.is_there("a"));
    world.lose("b");
    pass(GRACE_IS_OVER).await;
    assert!(!world.is_there("b"));
    pass(READ_AGAIN).await;
    let written = written(&world);
    assert!(written.contains("\"node\":\"a\"") && written.contains("\"node\":\"b\""), "{written}");
}
