//! Realization: the time at which a route is realized, and the state that is cached until then.

use std::time::Duration;

use ccm::cloud::{ClusterReads as _, Routes as _};
use serde_json::Value;
use support::fake_nsx::{Behaviour, PendingAnswer, Realization, Side, Trouble};

use super::world::{NAME, UID_1, World, model, node, word};

const CREATION: [&str; 2] = ["GET static-routes", "PATCH static-routes"];

/// Counts the requests for the realized state.
fn polls(operations: &[String]) -> usize {
    operations.iter().filter(|one| *one == "GET realized-entities").count()
}

/// Pauses the clock once the connection is open, so that waits take no time.
async fn connected(world: &World) {
    world.list().await;
    world.sent();
    tokio::time::pause();
}

#[tokio::test]
async fn an_answer_without_a_final_state_is_asked_for_again_after_a_second() {
    for pending in [PendingAnswer::Empty, PendingAnswer::NotFound, PendingAnswer::Unrealized] {
        let world = World::with(model().behaviour(Behaviour { pending, ..Behaviour::USUAL }), Some("uid")).await;
        world.fake.set_realization("static-routes", Realization::After(Duration::from_millis(1500)));
        connected(&world).await;
        let began = tokio::time::Instant::now();
        world.create().await.unwrap();
        let operations = world.operations();
        assert_eq!((&operations[..2], polls(&operations)), (&CREATION.map(str::to_owned)[..], 3), "{pending:?}");
        assert!((2250..2500).contains(&began.elapsed().as_millis()), "{pending:?}: {:?}", began.elapsed());
        tokio::time::resume();
    }
}

/// Returns a world with the route of the first vector, whose Node gets another address. The clock is paused.
async fn readdressed(behaviour: Behaviour) -> World {
    let world = World::with(model().behaviour(behaviour), Some("uid")).await;
    connected(&world).await;
    world.create().await.unwrap();
    world.cluster.put(node("node1", UID_1, &["100.96.0.0/24"], &[("InternalIP", "172.50.0.14")]));
    world.sent();
    world
}

/// NSX reports the state of the former revision until the new one is realized.
#[tokio::test]
async fn a_rewritten_route_is_done_when_its_new_revision_is_realized() {
    for shows_intent_version in [true, false] {
        let world = readdressed(Behaviour { shows_intent_version, ..Behaviour::USUAL }).await;
        world.fake.set_realization("static-routes", Realization::After(Duration::from_millis(2500)));
        let began = tokio::time::Instant::now();
        world.create().await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(2500), "{shows_intent_version}: {:?}", began.elapsed());
        let operations = world.operations();
        assert_eq!(operations[..2], ["GET static-routes", "PUT static-routes"], "{shows_intent_version}");
        let statuses = operations.iter().filter(|one| *one == "GET realized-status").count();
        // A status without a revision is read once.
        let expected = if shows_intent_version { (4, 0) } else { (1, 4) };
        assert_eq!((statuses, polls(&operations)), expected, "{shows_intent_version}");
        assert!(world.plan().await.is_empty());
        tokio::time::resume();
    }
}

/// With a manager that realizes immediately, an update takes as many calls as a creation.
#[tokio::test]
async fn a_rewrite_that_is_realized_at_once_costs_one_call_for_its_state() {
    let world = readdressed(Behaviour::USUAL).await;
    world.fake.set_realization("static-routes", Realization::After(Duration::ZERO));
    world.create().await.unwrap();
    assert_eq!(world.operations(), ["GET static-routes", "PUT static-routes", "GET realized-status"]);
}

#[tokio::test]
async fn a_rewrite_that_nsx_does_not_confirm_is_no_success_for_30_seconds() {
    let world = readdressed(Behaviour::USUAL).await;
    world.fake.set_realization("static-routes", Realization::Never);
    let began = tokio::time::Instant::now();
    let mut refused = 0;
    while let Err(error) = world.create().await {
        assert_eq!(word(&error), "RouteNotRealized");
        assert!(world.list().await[0].target_node_addresses.is_empty());
        refused += 1;
    }
    assert_eq!(refused, 3, "{:?}", began.elapsed());
    let elapsed = began.elapsed().as_secs();
    assert!((29..32).contains(&elapsed), "it may number revisions otherwise: {elapsed} s");
    assert_eq!(world.operations().iter().filter(|one| *one == "PUT static-routes").count(), 1);
    assert!(world.plan().await.is_empty());
}

/// NSX numbers revisions differently, or has no state for the new one. The only reported state is a failure.
#[tokio::test]
async fn an_error_of_an_older_revision_is_no_success_after_30_seconds_either() {
    let world = readdressed(Behaviour::USUAL).await;
    let alarm = Realization::Error(Duration::ZERO, 4711, "no such next hop".to_owned());
    world.fake.set_realization("static-routes", alarm);
    let older = |_: &str| r#"{"publish_status": "ERROR", "intent_version": "0"}"#.to_owned();
    world.fake.every("GET realized-status", Trouble::Rewrite(older));
    let mut errors = Vec::new();
    for _ in 0..4 {
        errors.push(world.create().await.unwrap_err().to_string());
    }
    assert!(!errors[0].contains("4711"), "the new revision may be realized yet: {}", errors[0]);
    assert!(errors[3].contains("code 4711: no such next hop"), "{}", errors[3]);
}

#[tokio::test]
async fn a_rewrite_that_fails_ends_with_the_alarm_of_its_revision() {
    let world = readdressed(Behaviour::USUAL).await;
    let alarm = Realization::Error(Duration::from_secs(2), 4711, "no such next hop".to_owned());
    world.fake.set_realization("static-routes", alarm);
    let error = world.create().await.unwrap_err();
    assert_eq!(word(&error), "RouteNotRealized");
    assert!(error.to_string().contains("code 4711: no such next hop"), "{error}");
    assert_eq!(polls(&world.operations()), 1, "for the alarm");
}

#[tokio::test]
async fn a_rewrite_whose_answer_is_lost_waits_for_its_revision_too() {
    let world = readdressed(Behaviour::USUAL).await;
    world.fake.set_realization("static-routes", Realization::After(Duration::from_millis(2500)));
    world.fake.next("PUT static-routes", Trouble::Lose);
    let began = tokio::time::Instant::now();
    world.create().await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(2500), "{:?}", began.elapsed());
    assert_eq!(world.operations().iter().filter(|one| *one == "PUT static-routes").count(), 1);
}

/// R-07.
#[tokio::test]
async fn r_07_a_route_that_is_not_realized_is_tried_again_and_not_written_twice() {
    let world = World::start(Some("uid")).await;
    world.fake.set_realization("static-routes", Realization::Never);
    connected(&world).await;
    let began = tokio::time::Instant::now();
    let error = world.create().await.unwrap_err();
    assert_eq!(word(&error), "RouteNotRealized");
    assert!(error.to_string().contains("within 10 s"), "{error}");
    assert!((9_000..=10_500).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!(polls(&world.operations()), 10);
    // The route exists, and the list returns it with a different next hop. Therefore the controller creates it and
    // deletes nothing.
    for _ in 0..2 {
        let listed = world.list().await;
        assert_eq!((listed.len(), listed[0].target_node_addresses.len()), (1, 0));
        let plan = world.plan().await;
        let changes: Vec<_> = plan.values().map(|one| (one.deletions.len(), one.creations.len())).collect();
        assert_eq!(changes, [(0, 1)]);
        assert_eq!(word(&world.create().await.unwrap_err()), "RouteNotRealized");
        assert!(world.operations().iter().all(|one| one != "PATCH static-routes" && one != "PUT static-routes"));
    }
    world.fake.set_realization("static-routes", Realization::After(Duration::ZERO));
    world.pass().await;
    assert_eq!(world.operations(), ["LIST static-routes", "GET static-routes", "GET realized-entities"]);
    assert!(world.plan().await.is_empty());
    assert_eq!(world.objects()[0]["_revision"], 0);
}

#[tokio::test]
async fn a_failed_realization_ends_at_once_with_its_alarm() {
    let world = World::start(Some("uid")).await;
    let alarm = Realization::Error(Duration::ZERO, 4711, "no such next hop".to_owned());
    world.fake.set_realization("static-routes", alarm);
    let error = world.create().await.unwrap_err();
    assert_eq!(word(&error), "RouteNotRealized");
    assert!(error.to_string().contains("code 4711: no such next hop"), "{error}");
    assert_eq!(polls(&world.operations()), 1);
    assert_eq!(world.plan().await.len(), 1, "it is not shown as created");
}

/// A list that does not have the route yet does not remove it from the pending routes.
#[tokio::test]
async fn a_listing_during_a_creation_does_not_hide_that_it_is_not_realized() {
    let world = World::start(Some("uid")).await;
    let alarm = Realization::Error(Duration::ZERO, 1, String::new());
    world.fake.set_realization("static-routes", alarm);
    let hold = world.fake.hold(1, Side::Request);
    let listed_meanwhile = async {
        hold.wait().await;
        assert!(world.list().await.is_empty());
        hold.release();
    };
    let (created, ()) = tokio::join!(world.create(), listed_meanwhile);
    assert_eq!(word(&created.unwrap_err()), "RouteNotRealized");
    assert!(world.list().await[0].target_node_addresses.is_empty());
}

#[tokio::test]
async fn a_creation_that_is_cancelled_leaves_a_route_that_is_tried_again() {
    let world = World::start(Some("uid")).await;
    let hold = world.fake.hold(1, Side::Answer);
    {
        let creation = world.create();
        tokio::pin!(creation);
        tokio::select! {
            _ = &mut creation => panic!("it is held"),
            () = hold.wait() => {}
        }
        assert!(world.list().await[0].target_node_addresses.is_empty(), "NSX was not asked yet");
    }
    hold.release();
    assert!(world.list().await[0].target_node_addresses.is_empty());
    world.pass().await;
    assert!(world.plan().await.is_empty());
}

#[tokio::test]
async fn a_deleted_route_is_forgotten() {
    let world = World::start(Some("uid")).await;
    world.fake.set_realization("static-routes", Realization::Error(Duration::ZERO, 1, String::new()));
    world.create().await.unwrap_err();
    let listed = world.routes.list_routes(NAME).await.unwrap();
    world.delete(&listed[0]).await.unwrap();
    assert_eq!(world.objects(), Vec::<Value>::new());
    assert!(world.list().await.is_empty() && world.cluster.node("node1").is_some());
}
