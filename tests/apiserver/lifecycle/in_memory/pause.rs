//! A pause of deletions that an operator has ordered: it is read live before each deletion, and ends by the clock of the
//! API server.

use std::sync::Arc;
use std::time::Duration;

use ccm::cloud::PowerState;
use ccm::controllers::node_lifecycle::deletion_pause::{ANNOTATION_CAUSE, ANNOTATION_UNTIL};
use ccm::controllers::node_lifecycle::pause_monitor::PauseError;
use http::Method;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::server::Fate;
use super::world::{MOMENT, World, pass, seconds, settings};

/// Longer than the grace period and two proofs.
const GRACE_IS_OVER: Duration = Duration::from_secs(35);
/// Longer than the interval of the reads of the Lease.
const READ_AGAIN: Duration = Duration::from_secs(31);
/// Time between the write of a pause and its acknowledgement.
const ACKNOWLEDGED_AFTER: Duration = Duration::from_secs(12);

/// Starts a world with healthy nodes, so that one absent machine does not count as many.
async fn world() -> World {
    let world = World::start(settings()).await;
    (0..10).for_each(|number| drop(world.create(&format!("well-{number}"), "True", PowerState::On)));
    pass(MOMENT).await;
    world
}

/// Another client pauses deletions for this time by the server's clock.
fn pause_for(world: &World, time: Duration) {
    world.server.with(|state| {
        let until = state.leases.time().checked_add(time).unwrap();
        state.leases.annotate(&json!({ANNOTATION_UNTIL: until.to_string(), ANNOTATION_CAUSE: "vCenter upgrade"}));
    });
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_deletions_until_its_end_by_the_servers_clock_whatever_the_local_clock_is() {
    for start in ["1999-01-01T00:00:00Z", "2031-05-01T00:00:00Z"] {
        let world = world().await;
        world.server.with(|state| state.leases.start = start.parse().unwrap());
        pause_for(&world, seconds(300));
        world.lose("a");
        pass(READ_AGAIN).await;
        pass(GRACE_IS_OVER).await;
        assert!(world.is_there("a"), "{start}");
        assert_eq!(world.held("DeletionPaused"), 1, "{start}");
        assert_eq!(world.metric("vsphere_ccm_node_deletions_paused"), 1, "{start}");
        let messages = world.server.events("DeletionPaused");
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(
            messages[0].contains("(vCenter upgrade)") && messages[0].contains("VM confirmed deleted"),
            "{messages:?}"
        );
        pass(seconds(200)).await;
        assert_eq!(world.deletions(), [""; 0], "{start}: the pause lasts");
        pass(seconds(60)).await;
        assert_eq!(world.deletions(), ["a"], "{start}: it has ended by itself");
        assert_eq!(world.metric("vsphere_ccm_node_deletions_paused"), 0, "{start}");
        pass(READ_AGAIN).await;
        let told = ["NodeDeletionsPaused", "NodeDeletionsResumed"].map(|reason| world.server.events(reason).len());
        assert_eq!(told, [1, 1], "{start}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_written_after_the_permit_stops_the_deletion() {
    let world = world().await;
    world.lose("a");
    let server = world.server.clone();
    world.hook(move |name, number| {
        // The second proof comes right before the deletion.
        if name == "a" && number == 2 {
            let annotations = json!({ANNOTATION_UNTIL: "2100-01-01T00:00:00Z"});
            server.with(|state| state.leases.annotate(&annotations));
        }
        Duration::ZERO
    });
    pass(GRACE_IS_OVER).await;
    assert!(world.asked("a") >= 2, "the deletion was permitted");
    pass(seconds(600)).await;
    assert_eq!(world.deletions(), [""; 0]);
    assert_eq!(world.server.events("DeletingNode"), [""; 0], "nobody is told of a deletion that is not made");
    assert_eq!(world.held("DeletionPaused"), 1);
    world.server.with(|state| state.leases.annotate(&json!({})));
    pass(seconds(60)).await;
    assert_eq!(world.deletions(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn each_deletion_reads_the_lease_right_before() {
    let world = world().await;
    for name in ["a", "b"] {
        world.lose(name);
        pass(GRACE_IS_OVER).await;
        pass(seconds(600)).await;
    }
    let deletions = world.server.sent(&Method::DELETE);
    assert_eq!(deletions.len(), 2);
    let reads = world.server.with(|state| std::mem::take(&mut state.leases.sent));
    for deletion in deletions {
        let is_just_before = |(at, method): &(Instant, Method)| method == Method::GET && *at == deletion.at;
        assert!(reads.iter().any(is_just_before), "{deletion:?} {reads:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_while_the_lease_cannot_be_read() {
    // A 404 with another reason than NotFound is not from the API server.
    for fate in [Fate::Refused(403), Fate::Refused(404), Fate::Refused(500), Fate::DoneAndFails(503), Fate::Lost] {
        let world = world().await;
        world.server.with(|state| state.leases.always = fate);
        world.lose("a");
        pass(GRACE_IS_OVER).await;
        pass(seconds(600)).await;
        assert!(world.asked("a") >= 2, "{fate:?}: the deletion was permitted");
        assert_eq!(world.deletions(), [""; 0], "{fate:?}");
        let word = if fate == Fate::Lost { "APIServerUnavailable" } else { "WriteRefused" };
        assert_eq!(world.held(word), 1, "{fate:?}: {:?}", world.server.reasons());
        assert!(world.pauses.report().failure.is_some(), "{fate:?}");
        world.server.with(|state| state.leases.always = Fate::Works);
        pass(seconds(120)).await;
        assert_eq!(world.deletions(), ["a"], "{fate:?}");
        assert_eq!(world.pauses.report().failure, None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_cannot_be_read_pauses_and_is_told_on_the_lease() {
    let long = "x".repeat(100_000);
    for annotations in [
        json!({ANNOTATION_UNTIL: "for ever"}),
        json!({ANNOTATION_UNTIL: ""}),
        json!({ANNOTATION_UNTIL: long}),
        json!({ANNOTATION_CAUSE: "vCenter upgrade"}),
    ] {
        let world = world().await;
        world.server.with(|state| state.leases.annotate(&annotations));
        world.lose("a");
        pass(READ_AGAIN).await;
        pass(seconds(3600)).await;
        assert_eq!(world.deletions(), [""; 0]);
        assert_eq!((world.held("DeletionPaused"), world.metric("vsphere_ccm_node_deletions_paused")), (1, 1));
        let events = world.server.events_with("NodeDeletionsPaused");
        assert_eq!(events.len(), 1, "{events:?}");
        let object = &events[0]["involvedObject"];
        assert_eq!(
            [&events[0]["type"], &object["kind"], &object["name"]],
            ["Warning", "Lease", "vsphere-ccm-deletions"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_acknowledged_when_no_deletion_can_be_under_way() {
    let world = world().await;
    let began = Instant::now();
    let before = world.server.with(|state| state.leases.time());
    let until = world.pauses.start_pause(seconds(3600), "vCenter upgrade").await.unwrap();
    assert_eq!(began.elapsed(), ACKNOWLEDGED_AFTER);
    let error = (until.as_second() - before.as_second()).abs_diff(3600);
    assert!(error <= 1, "the end is a time of the server's clock: {before} {until}");
    let leases = |name| world.server.with(|state| state.leases.annotation(name));
    assert_eq!((leases(ANNOTATION_UNTIL), leases(ANNOTATION_CAUSE)), (until.to_string(), "vCenter upgrade".to_owned()));
    world.lose("a");
    pass(seconds(3000)).await;
    assert_eq!(world.deletions(), [""; 0]);
    assert!(world.pauses.end_pause().await.unwrap());
    assert!(!world.pauses.end_pause().await.unwrap(), "there is none left");
    assert_eq!(leases(ANNOTATION_UNTIL), "");
    pass(seconds(60)).await;
    assert_eq!(world.deletions(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_sent_before_the_pause_has_ended_when_the_pause_is_acknowledged() {
    let world = world().await;
    world.lose("a");
    // The API server never answers the deletion.
    world.server.always(&Method::DELETE, Fate::Lost);
    let pauses = Arc::clone(&world.pauses);
    let (sender, receiver) = tokio::sync::oneshot::channel();
    world.server.before(&Method::DELETE, move |_| {
        tokio::spawn(
            async move { sender.send(pauses.start_pause(seconds(3600), "now").await.map(|_| Instant::now())) },
        );
    });
    pass(GRACE_IS_OVER).await;
    pass(seconds(30)).await;
    let acknowledged = receiver.await.unwrap().unwrap();
    let sent = world.server.sent(&Method::DELETE);
    assert_eq!(sent.len(), 1, "no further one: {sent:?}");
    assert!(acknowledged.duration_since(sent[0].at) >= ACKNOWLEDGED_AFTER);
    assert_eq!(world.server.events("DeletingNodeFailed").len(), 1, "its time is over");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_and_what_cannot_be_told_is_no_pause() {
    let world = world().await;
    let next = |fates: &[Fate]| world.server.with(|state| state.leases.next.extend(fates));
    next(&[Fate::Works, Fate::Refused(409), Fate::Works, Fate::Works]);
    world.server.with(|state| state.leases.annotate(&json!({"other": "kept"})));
    world.pauses.start_pause(seconds(3600), "x").await.unwrap();
    assert_eq!(world.server.with(|state| state.leases.annotation("other")), "kept");

    for (length, cause) in [(seconds(1), "x"), (seconds(8 * 24 * 3600), "x"), (seconds(3600), " ")] {
        let invalid = world.pauses.start_pause(length, cause).await.unwrap_err();
        assert!(matches!(invalid, PauseError::Invalid(_)), "{invalid:?}");
    }
    next(&[Fate::Works, Fate::DoneAndFails(500)]);
    let unknown = world.pauses.start_pause(seconds(3600), "x").await.unwrap_err();
    assert!(matches!(unknown, PauseError::Call(_)), "{unknown:?}");

    let (started, ()) = tokio::join!(world.pauses.start_pause(seconds(3600), "x"), async {
        pass(seconds(5)).await;
        world.server.with(|state| state.leases.annotate(&json!({})));
    });
    assert!(matches!(started, Err(PauseError::Overwritten)), "{started:?}");

    world.server.with(|state| state.leases.has_clock = false);
    let timeless = world.pauses.start_pause(seconds(3600), "x").await.unwrap_err();
    assert!(matches!(timeless, PauseError::NoServerTime), "{timeless:?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_servers_clock_a_pause_does_not_end() {
    let world = world().await;
    world.server.with(|state| {
        state.leases.has_clock = false;
        state.leases.annotate(&json!({ANNOTATION_UNTIL: Timestamp::UNIX_EPOCH.to_string()}));
    });
    world.lose("a");
    pass(seconds(600)).await;
    assert_eq!(world.deletions(), [""; 0]);
    world.server.with(|state| state.leases.has_clock = true);
    pass(seconds(60)).await;
    assert_eq!(world.deletions(), ["a"]);
}
