//! The start times of passes: after relevant changes of Nodes, with pauses, and periodically.

use ccm::controllers::route::Trigger;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

use super::cloud::Cloud;
use super::harness::{Form, Run, settings};
use super::world::{World, address, go_by, moment, networks, watching};
use crate::lifecycle::in_memory::world::{pass, seconds};

/// R-54 differs: there is no resync here, and the period starts the pass.
// vectors
#[tokio::test(start_paused = true)]
async fn only_changes_that_routes_depend_on_begin_a_pass() {
    let world = World::start(watching()).await;
    world.put(&Form::new("node-1", &["10.120.0.0/24"], "10.0.1.1"));
    go_by(60).await;
    let images = json!({"status": {"images": [{"names": ["x"]}]}});
    let version = json!({"metadata": {"annotations": {"a": "b"}}});
    for (id, is_pass, change) in [
        ("R-50", true, address("10.0.1.2")),
        ("R-51", true, networks(&["10.120.7.0/24"])),
        ("R-52", false, version),
        ("R-53", false, images),
        ("a heartbeat", false, json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})),
    ] {
        let before = world.cloud.listings().len();
        world.change("node-1", &change);
        go_by(15).await;
        assert_eq!(world.cloud.listings().len() - before, usize::from(is_pass), "{id}");
    }
    let before = world.cloud.listings();
    go_by(300).await;
    let listings = world.cloud.listings();
    assert_eq!(listings.len(), before.len() + 1, "R-54");
    assert_eq!(listings[before.len()] - before[before.len() - 1], seconds(300));
}

#[tokio::test(start_paused = true)]
async fn in_the_loop_of_the_go_program_passes_follow_the_period_alone() {
    let world = World::start(settings(Trigger::Loop { period: seconds(10) })).await;
    world.put(&Form::new("node-1", &["10.120.0.0/24"], "10.0.1.1"));
    go_by(5).await;
    assert_eq!((world.cloud.listings().len(), world.cloud.routes()), (1, vec![]), "the first one begins at once");
    go_by(30).await;
    let listings = world.cloud.listings();
    assert_eq!(listings.len(), 4);
    for pair in listings.windows(2) {
        assert_eq!(pair[1] - pair[0], seconds(10));
    }
    assert_eq!(world.cloud.routes(), ["node-1 10.120.0.0/24 10.0.1.1"]);
}

#[tokio::test(start_paused = true)]
async fn many_nodes_that_join_within_a_minute_cost_few_listings() {
    let world = World::start(watching()).await;
    go_by(60).await;
    let before = world.cloud.listings().len();
    let began = Instant::now();
    for number in 0..500_u32 {
        let network = format!("10.120.{}.{}/27", number / 8, number % 8 * 32);
        world.put(&Form::new(&format!("n{number}"), &[&network], "10.0.1.1"));
        pass(Duration::from_millis(120)).await;
    }
    assert!(began.elapsed() <= seconds(61), "{:?}", began.elapsed());
    go_by(60).await;
    let listings = world.cloud.listings().len() - before;
    assert!(listings <= 8, "{listings} listings");
    assert_eq!(world.cloud.routes().len(), 500);
    assert_eq!((world.routes_in("Ready"), world.routes_in("Pending")), (500, 0));
    assert_eq!(world.writes(), 500, "one for the condition of each");
    go_by(600).await;
    assert_eq!(world.writes(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_while_routes_are_listed_waits_for_the_next_listing() {
    let world = World::start(watching()).await;
    go_by(30).await;
    world.cloud.memory.set_call_latency(seconds(5));
    world.put(&Form::new("first", &["10.120.0.0/24"], "10.0.1.1"));
    go_by(3).await;
    world.put(&Form::new("second", &["10.120.1.0/24"], "10.0.2.1"));
    moment().await;
    let listed = world.cloud.listings();
    go_by(7).await;
    assert_eq!(world.cloud.tries("10.120.0.0/24").len(), 1);
    assert_eq!((world.cloud.listings(), world.cloud.tries("10.120.1.0/24")), (listed.clone(), vec![]));
    go_by(30).await;
    assert_eq!(world.cloud.listings()[listed.len()] - listed[listed.len() - 1], seconds(10));
    assert_eq!(world.cloud.routes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_created_while_routes_were_listed_is_listed_once_more() {
    let world = World::start(watching()).await;
    go_by(30).await;
    world.cloud.set_delays(seconds(15), seconds(12));
    world.put(&Form::new("n", &["10.120.0.0/24"], "10.0.1.1"));
    // The creation begins after 16 s. The list at 18 s does not have the route, which exists 10 s later.
    go_by(17).await;
    world.change("n", &networks(&["10.120.1.0/24"]));
    go_by(100).await;
    assert_eq!(world.cloud.routes(), ["n 10.120.1.0/24 10.0.1.1"]);
    assert_eq!(world.condition("n").unwrap(), "False RouteCreated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_has_its_route_long_before_the_period_ends() {
    let cloud = Cloud::default();
    let run = Run::start(&cloud, settings(Trigger::Watch { period: seconds(3600) })).await;
    let form = Form::new(&support::unique("n"), &["10.120.0.0/24"], "10.0.1.1");
    run.register(&form).await;
    run.wait_for_routes("W-40", &cloud, &form.routes()).await;
    run.wait_for_condition("it has its route", &form.name, "False RouteCreated").await;
    run.delete(&form.name).await;
    run.wait_for_routes("it is gone", &cloud, &[]).await;
    assert!(cloud.listings().len() <= 4, "{:?}", cloud.listings());
}
