//! Routes that cannot be created or deleted. Each one waits independently, and has one Event for each reason.

use ccm::cloud::{Error, Route};
use ccm::controllers::reason;
use doubles::memory::Call;
use std::time::Duration;
use tokio::time::Instant;

use super::cloud::{CLUSTER, route};
use super::harness::Form;
use super::world::{World, address, go_by, moment, networks, watching};
use crate::lifecycle::in_memory::world::seconds;

const GOOD: &str = "10.120.0.0/24";
const BAD: &str = "10.120.1.0/24";

/// Starts a world with two nodes. The route of the second one fails with this error.
async fn world(failure: impl Fn() -> Error + Send + 'static) -> World {
    let world = World::start(watching()).await;
    go_by(30).await;
    world.cloud.fail(BAD, failure);
    world.put(&Form::new("good", &[GOOD], "10.0.1.1"));
    world.put(&Form::new("bad", &[BAD], "10.0.2.1"));
    go_by(2).await;
    world
}

fn pauses(tries: &[Instant]) -> Vec<Duration> {
    tries.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_route_does_not_hold_up_others_and_is_retried_without_a_listing() {
    let world = world(|| Error::other("no more routes")).await;
    assert_eq!(world.cloud.routes(), ["good 10.120.0.0/24 10.0.1.1"]);
    assert_eq!(world.condition("good").unwrap(), "False RouteCreated");
    assert_eq!(world.condition("bad").unwrap(), "True NoRouteCreated");
    assert_eq!((world.routes_in("Ready"), world.routes_in("CloudError")), (1, 1));
    let listings = world.cloud.listings();
    go_by(190).await;
    assert_eq!(world.cloud.listings(), listings, "W-41");
    let expected: Vec<_> = [1, 2, 4, 8, 16, 32, 60, 60].map(seconds).into();
    assert_eq!(pauses(&world.cloud.tries(BAD)), expected);
    let written = world.writes();
    world.cloud.end_failure(BAD);
    go_by(60).await;
    assert_eq!(world.cloud.listings(), listings);
    assert_eq!(world.condition("bad").unwrap(), "False RouteCreated");
    assert_eq!((world.routes_in("Ready"), world.routes_in("CloudError"), world.writes()), (2, 0, written + 1));
    assert_eq!(world.cloud.tries(GOOD).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_change_of_the_reason_is_one_event() {
    let world = world(|| Error::other("no more routes")).await;
    go_by(600).await;
    assert_eq!(world.server.events("FailedToCreateRoute").len(), 1);
    world.cloud.fail(BAD, || Error::Denied { message: "not allowed".into() });
    go_by(600).await;
    let events = world.server.events("FailedToCreateRoute");
    assert!(events.len() == 2 && events[1].ends_with(": not allowed"), "{events:?}");
    world.cloud.end_failure(BAD);
    go_by(61).await;
    assert_eq!(world.cloud.routes().len(), 2);
    assert_eq!(world.server.events("FailedToCreateRoute").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn passes_do_not_shorten_the_wait_that_the_provider_demands() {
    let after = seconds(77);
    let world = world(move || Error::RetryAfter { message: "slow down".into(), after }).await;
    for number in 0..20 {
        world.put(&Form::new(&format!("n{number}"), &[&format!("10.120.{}.0/24", number + 9)], "10.0.3.1"));
        go_by(20).await;
    }
    let pauses = pauses(&world.cloud.tries(BAD));
    assert!(pauses.len() >= 4 && pauses.iter().all(|pause| *pause == after), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_route_waits_for_a_change_of_its_node() {
    let reason = reason::CloudError;
    let world = world(move || Error::Invalid { reason, message: "no such address".into() }).await;
    go_by(3600).await;
    assert_eq!(world.cloud.tries(BAD).len(), 1);
    world.cloud.end_failure(BAD);
    world.change("bad", &address("10.0.2.2"));
    go_by(15).await;
    assert_eq!(world.cloud.routes(), ["bad 10.120.1.0/24 10.0.2.2", "good 10.120.0.0/24 10.0.1.1"]);
    assert_eq!(world.condition("bad").unwrap(), "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn a_retry_creates_nothing_that_the_node_does_not_want_any_more() {
    let world = world(|| Error::other("no more routes")).await;
    go_by(3).await;
    let tries = world.cloud.tries(BAD);
    let listed = *world.cloud.listings().last().unwrap();
    world.cloud.end_failure(BAD);
    world.change("bad", &networks(&["10.120.2.0/24"]));
    go_by(20).await;
    assert_eq!(world.cloud.tries(BAD), tries, "a retry was due before the next listing");
    let created = world.cloud.tries("10.120.2.0/24");
    assert!(created.len() == 1 && created[0] - listed >= seconds(10), "{created:?}");
    assert_eq!(world.cloud.routes(), ["bad 10.120.2.0/24 10.0.2.1", "good 10.120.0.0/24 10.0.1.1"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_before_the_old_route_is_deleted() {
    let world = World::start(watching()).await;
    world.cloud.memory.put_route(CLUSTER, route("gone", BAD, "10.0.9.1"));
    world.cloud.memory.fail(Call::DeleteRoute, || Error::other("locked"));
    world.put(&Form::new("bad", &[BAD], "10.0.2.1"));
    go_by(60).await;
    assert_eq!(world.cloud.routes(), ["gone 10.120.1.0/24 10.0.9.1"], "W-45");
    assert_eq!(world.condition("bad").unwrap(), "True NoRouteCreated");
    let events = world.server.events("FailedToCreateRoute");
    let expected = ": failed to delete route 10.120.1.0/24 to Node gone: locked";
    assert!(events.len() == 1 && events[0].ends_with(expected), "{events:?}");
    world.cloud.memory.end_failures(Call::DeleteRoute);
    go_by(60).await;
    assert_eq!(world.cloud.routes(), ["bad 10.120.1.0/24 10.0.2.1"]);
    assert_eq!(world.condition("bad").unwrap(), "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_changes_nothing_and_is_retried() {
    let world = World::start(watching()).await;
    go_by(30).await;
    world.cloud.memory.fail(Call::ListRoutes, || Error::other("no answer"));
    let before = world.cloud.listings().len();
    world.put(&Form::new("n", &[GOOD], "10.0.1.1"));
    go_by(200).await;
    let listings = world.cloud.listings();
    let pauses = pauses(&listings[before..]);
    let expected: Vec<_> = [10, 10, 10, 10, 16, 32, 60].map(seconds).into();
    assert_eq!(pauses, expected, "the pause between listings, or the backoff");
    assert_eq!((world.cloud.routes(), world.writes()), (vec![], 0));
    world.cloud.memory.end_failures(Call::ListRoutes);
    go_by(61).await;
    assert_eq!(world.cloud.routes(), ["n 10.120.0.0/24 10.0.1.1"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_ends_and_holds_up_no_other() {
    let world = World::start(watching()).await;
    go_by(30).await;
    world.put(&Form::new("slow", &[BAD], "10.0.2.1"));
    world.cloud.hang(BAD);
    go_by(2).await;
    world.put(&Form::new("good", &[GOOD], "10.0.1.1"));
    go_by(20).await;
    assert_eq!(world.cloud.routes(), ["good 10.120.0.0/24 10.0.1.1"]);
    assert_eq!(world.condition("slow").unwrap(), "", "it was not tried to its end");
    go_by(45).await;
    assert_eq!(world.condition("slow").unwrap(), "True NoRouteCreated");
    assert_eq!(world.routes_in("ProviderTimeout"), 1);
    let listings = world.cloud.listings().len();
    go_by(240).await;
    assert!(world.cloud.listings().len() - listings <= 6, "one for each call that hung");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_exists_already_is_a_success() {
    let world = World::start(watching()).await;
    go_by(30).await;
    world.cloud.set_delays(seconds(5), seconds(0));
    let uid = world.put(&Form::new("n", &[GOOD], "10.0.1.1"));
    go_by(3).await;
    // Another leader creates the route after the list.
    let name = format!("{uid}-{GOOD}");
    world.cloud.memory.put_route(CLUSTER, Route { name, ..route("n", GOOD, "10.0.1.1") });
    go_by(5).await;
    assert_eq!((world.cloud.tries(GOOD).len(), world.cloud.routes().len()), (1, 1), "W-42");
    assert_eq!(world.condition("n").unwrap(), "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn at_most_twenty_calls_run_at_the_same_time() {
    let world = World::start(watching()).await;
    go_by(30).await;
    world.cloud.memory.set_call_latency(seconds(1));
    for number in 0..100 {
        world.put(&Form::new(&format!("n{number}"), &[&format!("10.120.{number}.0/24")], "10.0.1.1"));
    }
    go_by(2).await;
    moment().await;
    assert_eq!(world.cloud.memory.count(Call::CreateRoute), 20, "W-46");
    go_by(20).await;
    assert_eq!(world.cloud.routes().len(), 100);
    assert_eq!(world.cloud.listings().len(), 2);
}

// vectors: R-36
#[tokio::test(start_paused = true)]
async fn r36_differs_a_network_that_a_node_has_twice_is_one_route() {
    let world = World::start(watching()).await;
    world.put(&Form::new("node-4", &[BAD, BAD], "10.0.4.1"));
    go_by(15).await;
    assert_eq!(world.cloud.tries(BAD).len(), 1, "the Go program calls the cloud twice, and reports the second failure");
    assert_eq!(world.cloud.routes(), ["node-4 10.120.1.0/24 10.0.4.1"]);
    assert!(world.server.events("FailedToCreateRoute").is_empty());
}
