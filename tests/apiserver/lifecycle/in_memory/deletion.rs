//! The steps from a permit to the deletion.

use super::server::{Fate, Server};
use super::world::{MOMENT, World, is, node, pass, seconds, settings};
use ccm::cloud::node::TAINT_UNINITIALIZED;
use ccm::cloud::{InstanceEvent, InstanceMetadata, PowerState, Unknown};
use ccm::controllers::node_lifecycle::plan::ANNOTATION_ALLOW_DELETION;
use ccm::controllers::node_lifecycle::{DeletionMode, LifecycleSettings};
use ccm::providers::vsphere::reason;
use doubles::memory::{Instance, Memory};
use http::Method;
use serde_json::json;
use std::time::Duration;
use support::Log;
use tracing::Level;

/// Longer than the grace period and two proofs.
const GRACE_IS_OVER: Duration = Duration::from_secs(35);

/// Starts a world with healthy nodes, so that one absent machine does not count as many.
async fn world(settings: LifecycleSettings) -> World {
    let world = World::start(settings).await;
    (0..10).for_each(|number| drop(world.create(&format!("well-{number}"), "True", PowerState::On)));
    pass(MOMENT).await;
    world
}

#[tokio::test(start_paused = true)]
async fn only_a_node_that_nobody_hears_of_is_deleted() {
    for (ready, is_deleted) in [("True", false), ("False", false), ("Unknown", true), ("", true), ("Maybe", false)] {
        let world = world(settings()).await;
        world.create("a", ready, PowerState::On);
        world.destroy("a");
        pass(GRACE_IS_OVER).await;
        assert_eq!(!world.is_there("a"), is_deleted, "Ready={ready:?}");
        let is_told = world.held("DeletionGracePeriod") > 0;
        assert!(!is_told, "Ready={ready:?}: nothing is held that would never be deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_starts_again_after_any_other_status() {
    for between in ["True", "False"] {
        let world = world(settings()).await;
        world.lose("a");
        pass(seconds(25)).await;
        world.set_ready("a", between);
        pass(MOMENT).await;
        assert_eq!(world.held("DeletionGracePeriod"), 0, "{between}");
        world.set_ready("a", "Unknown");
        pass(seconds(25)).await;
        assert!(world.is_there("a"), "{between}: 25 s");
        pass(seconds(10)).await;
        assert!(!world.is_there("a"), "{between}: 35 s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_recreated_during_the_grace_period_is_another_one() {
    let world = world(settings()).await;
    world.lose("a");
    pass(seconds(20)).await;
    assert_eq!(world.held("DeletionGracePeriod"), 1);
    world.server.with(|state| state.remove("a"));
    // The machine of the new Node has another id.
    let metadata = InstanceMetadata { provider_id: "memory://a-new".into(), ..InstanceMetadata::default() };
    world.cloud.put(Instance { node_name: "a".into(), metadata, ..Instance::default() });
    let mut new = node("a", "Unknown");
    new["spec"]["providerID"] = json!("memory://a-new");
    world.server.with(|state| state.put(new));
    pass(MOMENT).await;
    assert_eq!(world.held("DeletionGracePeriod"), 0);
    let before = world.server.node("a");
    pass(seconds(300)).await;
    assert_eq!(world.server.node("a"), before, "nothing is written");
    assert_eq!(world.deletions(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_deletion_carries_what_was_read_live() {
    let world = world(settings()).await;
    world.lose("a");
    pass(MOMENT).await;
    // The cache does not receive this change, which does not affect the machine.
    world.server.hold_watch(true);
    world.server.with(|state| state.change("a", &json!({"metadata": {"labels": {"new": "yes"}}})));
    let live = world.server.node("a").unwrap()["metadata"].clone();
    pass(GRACE_IS_OVER).await;
    let sent = world.server.sent(&Method::DELETE);
    assert_eq!(sent.len(), 1, "{sent:?}");
    let expected = json!({"uid": live["uid"], "resourceVersion": live["resourceVersion"]});
    assert_eq!(sent[0].body["preconditions"], expected);
    assert!(!world.is_there("a"));
}

#[tokio::test(start_paused = true)]
async fn what_changes_between_the_live_read_and_the_deletion_stops_it() {
    let recreated = json!({"metadata": {"uid": "uid-new"}});
    let labelled = json!({"metadata": {"labels": {"new": "yes"}}});
    for (case, change, stays) in
        [("Ready", is("True"), true), ("recreated", recreated, true), ("any change", labelled, false)]
    {
        let world = world(settings()).await;
        world.lose("a");
        world.server.before(&Method::DELETE, move |state| state.change("a", &change));
        pass(GRACE_IS_OVER).await;
        assert_eq!(world.is_there("a"), stays, "{case}");
        let versions = world.server.sent(&Method::DELETE).into_iter().map(|sent| sent.body["preconditions"].clone());
        let versions: Vec<_> = versions.collect();
        assert_eq!(
            versions.len(),
            if stays { 1 } else { 2 },
            "{case}: the API server refuses what is not as it was read"
        );
        assert!(stays || versions[0] != versions[1], "{case}: it is read again");
        assert_eq!(world.metric("vsphere_ccm_node_deletions_total"), u64::from(!stays), "{case}");
        assert_eq!(world.server.events("DeletingNodeFailed"), [""; 0], "{case}: it is no failure");
    }
}

#[tokio::test(start_paused = true)]
async fn the_live_read_counts_and_not_the_cache() {
    let taint = json!({"spec": {"taints": [{"key": TAINT_UNINITIALIZED, "effect": "NoSchedule"}]}});
    let cases = [
        ("Ready", is("True")),
        ("the kubelet reports", is("False")),
        ("another status in between", is("Unknown")),
        ("recreated", json!({"metadata": {"uid": "uid-new"}})),
        ("another machine", json!({"spec": {"providerID": "memory://other"}})),
        ("it waits to be initialized", taint),
        ("deleted by somebody", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        ("of the control plane now", json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})),
    ];
    for (case, change) in cases {
        let world = world(settings()).await;
        world.lose("a");
        pass(MOMENT).await;
        world.server.hold_watch(true);
        world.server.with(|state| state.change("a", &change));
        pass(GRACE_IS_OVER).await;
        assert!(!world.server.sent(&Method::GET).is_empty(), "{case}: it was permitted");
        assert_eq!(world.deletions(), [""; 0], "{case}");
        assert_eq!(world.metric("vsphere_ccm_node_deletion_allowance"), 1, "{case}: nothing is used up");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_vanished_is_neither_deleted_nor_proved_again() {
    let world = world(settings()).await;
    world.lose("a");
    pass(MOMENT).await;
    world.server.hold_watch(true);
    world.server.with(|state| state.remove("a"));
    pass(seconds(31)).await;
    assert_eq!((world.asked("a"), world.deletions().len()), (1, 0));
    assert_eq!(world.metric("vsphere_ccm_node_deletions_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_proof_is_made_again_between_the_live_read_and_the_deletion() {
    for (case, is_found) in [("it is gone", false), ("it is found", true)] {
        let world = world(settings()).await;
        let (server, cloud) = (world.server.clone(), world.cloud.clone());
        world.hook(move |name, number| {
            if (name, number) == ("a", 2) {
                assert_eq!((server.sent(&Method::GET).len(), server.sent(&Method::DELETE).len()), (1, 0));
                if is_found {
                    cloud.put(Instance {
                        metadata: InstanceMetadata { provider_id: "memory://a".into(), ..InstanceMetadata::default() },
                        ..Instance::default()
                    });
                }
            }
            Duration::ZERO
        });
        world.lose("a");
        pass(GRACE_IS_OVER).await;
        assert_eq!(world.is_there("a"), is_found, "{case}");
        assert_eq!(world.deletions().len(), usize::from(!is_found), "{case}");
        assert!(world.asked("a") >= 2, "{case}");
    }
}

/// Executes `act` during the second proof about `a`, which takes eight seconds.
fn in_the_second_proof(world: &World, act: impl Fn(&Server, &Memory) + Send + 'static) {
    let (server, cloud) = (world.server.clone(), world.cloud.clone());
    world.hook(move |name, number| {
        if (name, number) != ("a", 2) {
            return Duration::ZERO;
        }
        act(&server, &cloud);
        seconds(8)
    });
    world.lose("a");
}

#[tokio::test(start_paused = true)]
async fn many_that_go_while_the_second_proof_is_made_withdraw_the_permit() {
    let world = world(settings()).await;
    in_the_second_proof(&world, |server, cloud| {
        for number in 0..6 {
            let name = format!("well-{number}");
            assert!(cloud.remove(&format!("memory://{name}")));
            server.with(|state| state.change(&name, &is("Unknown")));
        }
    });
    pass(seconds(100)).await;
    assert!(world.asked("a") >= 2, "it was about to be deleted");
    assert_eq!(world.deletions(), [""; 0]);
    assert_eq!(world.held("DeletionMassHold"), 7);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_reports_while_the_second_proof_is_made_withdraws_the_permit() {
    for ready in ["True", "False"] {
        let world = world(settings()).await;
        in_the_second_proof(&world, move |server, _| server.with(|state| state.change("a", &is(ready))));
        pass(seconds(100)).await;
        assert_eq!((world.asked("a"), world.deletions().len()), (2, 0), "{ready}");
        assert_eq!(world.metric("vsphere_ccm_node_deletion_allowance"), 1, "{ready}: nothing is used up");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_recreated_while_the_second_proof_is_made_stays() {
    let world = world(settings()).await;
    in_the_second_proof(&world, |server, _| {
        server.with(|state| {
            state.remove("a");
            state.put(node("a", "True"));
        });
    });
    pass(seconds(100)).await;
    assert_eq!((world.asked("a"), world.deletions().len()), (2, 0));
    assert!(world.is_there("a"));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_changes_while_the_second_proof_is_made_makes_it_late() {
    // The provider announces changes during the proof.
    for event in [InstanceEvent::All, InstanceEvent::Node("a".into())] {
        let (world, announced) = (world(settings()).await, event.clone());
        in_the_second_proof(&world, move |_, cloud| cloud.announce(announced.clone()));
        pass(seconds(45)).await;
        let counts = (world.asked("a"), world.deletions().len());
        assert_eq!(counts, (4, 1), "{event:?}: two more proofs, and then it is deleted");
    }

    // The vCenter of the machine is removed from the configuration.
    let world = world(settings()).await;
    in_the_second_proof(&world, |_, cloud| {
        let cloud = cloud.clone();
        // The answer was made before the removal.
        tokio::spawn(async move {
            pass(MOMENT).await;
            cloud.set_outage(Some(Unknown::new(reason::VCenterNotConfigured, "the test says so")));
        });
    });
    pass(seconds(300)).await;
    assert_eq!(world.deletions(), [""; 0]);
    assert_eq!(world.held("VCenterNotConfigured"), 1);
}

/// Two machines are absent, and a new leader may delete one Node in two and a half minutes. `deleted` is the fate of
/// the DELETE of the first Node, and `read` the fate of the GET after it.
async fn first_of_two(deleted: Fate, read: Fate) -> World {
    let world = world(settings()).await;
    world.server.next(&Method::DELETE, &[deleted]);
    world.server.next(&Method::GET, &[Fate::Works, read]);
    world.lose("a");
    pass(MOMENT).await;
    world.lose("b");
    pass(seconds(60)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_counts_as_one() {
    for (case, deleted, read) in [
        ("it was done", Fate::DoneAndLost, Fate::Works),
        ("it was not done", Fate::Lost, Fate::Works),
        ("it failed, and nobody says whether it was done", Fate::DoneAndFails(504), Fate::Lost),
    ] {
        let world = first_of_two(deleted, read).await;
        assert_eq!(world.deletions(), ["a"], "{case}");
        assert_eq!(world.metric("vsphere_ccm_node_deletion_allowance"), 0, "{case}");
        assert_eq!(world.held("DeletionLimitReached"), 1, "{case}: the other one waits");
        assert_eq!(world.server.events("DeletingNodeFailed").len(), 1, "{case}");
        assert_eq!(world.metric("vsphere_ccm_node_deletions_failed_total"), 1, "{case}");
        pass(seconds(100)).await;
        assert_eq!(world.deletions().len(), 2, "{case}: the next one is deleted when the limit allows it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_at_which_the_api_server_failed_counts_if_it_was_done() {
    let world = first_of_two(Fate::DoneAndFails(504), Fate::Works).await;
    assert_eq!((world.deletions(), world.metric("vsphere_ccm_node_deletions_total")), (vec!["a".to_owned()], 1));
    assert_eq!(world.held("DeletionLimitReached"), 1);
    assert_eq!(world.server.events("DeletingNodeFailed"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_not_done_uses_nothing_up() {
    for fate in [Fate::Refused(403), Fate::Refused(504)] {
        let world = first_of_two(fate, Fate::Works).await;
        assert!(world.is_there("a") && !world.is_there("b"), "{fate:?}: the other one is deleted instead");
        assert_eq!(world.metric("vsphere_ccm_node_deletions_total"), 1, "{fate:?}");
        assert_eq!(world.server.events("DeletingNodeFailed").len(), 1, "{fate:?}");
        pass(seconds(150)).await;
        assert!(!world.is_there("a"), "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_is_sent_again_after_pauses_that_double() {
    let world = world(settings()).await;
    world.server.always(&Method::DELETE, Fate::Refused(403));
    world.lose("a");
    pass(seconds(400)).await;
    let sent = world.server.sent(&Method::DELETE);
    let pauses: Vec<u64> = sent.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs()).collect();
    assert_eq!(pauses, [5, 10, 20, 40, 60, 60, 60, 60]);
    assert_eq!(world.server.events("DeletingNode").len(), 1, "it is announced once");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_and_its_failure_are_logged_in_the_form_of_upstream() {
    let log = Log::keep();
    let world = world(settings()).await;
    world.server.next(&Method::DELETE, &[Fate::Refused(403)]);
    world.lose("a");
    pass(seconds(60)).await;
    assert!(!world.is_there("a"));
    let lines = log.lines("Event occurred");
    for (reason, message) in [
        ("DeletingNode", "Deleting node a because it does not exist in the cloud provider: "),
        ("DeletingNodeFailed", "Failed deleting node a: "),
    ] {
        let reason = format!("reason=\"{reason}\"");
        let of: Vec<&String> = lines.iter().filter(|line| line.contains(&reason)).collect();
        assert_eq!(of.len(), 1, "{reason}: {lines:?}");
        for part in ["object=\"a\"", "kind=\"Node\"", message] {
            assert!(of[0].contains(part), "{part} is missing in {}", of[0]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_logged_in_the_form_of_upstream_and_as_what_holds_the_node() {
    let log = Log::keep();
    let world = world(settings()).await;
    world.server.next(&Method::DELETE, &[Fate::Refused(403)]);
    world.lose("a");
    pass(seconds(60)).await;
    let failure = log.lines("the test says Forbidden");
    assert_eq!(failure.len(), 2, "{failure:?}");
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_logged_with_its_inputs_and_the_deletion_when_the_node_is_gone() {
    let log = Log::keep_up_to(Level::DEBUG);
    let world = world(settings()).await;
    world.lose("a");
    pass(seconds(60)).await;
    assert!(!world.is_there("a"));
    let decisions = log.lines("decided whether the node is deleted");
    let (first, last) = (decisions.first().unwrap(), decisions.last().unwrap());
    assert!(first.contains("deleted: DeletionGracePeriod, VM absent for 0s, allowance "), "{first}");
    assert!(last.contains("deleted: permitted, VM absent for 30s, allowance "), "{last}");
    assert!(last.contains("VMs of 1 of 11 Nodes absent"), "{last}");
    let gone = log.lines("this process deleted a node of this name");
    assert_eq!(gone.len(), 1, "{gone:?}");
    for part in ["node=\"a\"", "decision=\"permitted, VM absent for 30s"] {
        assert!(gone[0].contains(part), "{part}: {gone:?}");
    }
    world.server.next(&Method::DELETE, &[Fate::DoneAndLost]);
    world.lose("b");
    pass(seconds(200)).await;
    assert!(!world.is_there("b"));
    assert!(!log.lines("this process may have deleted a node of this name").is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_decision_is_recorded_once_and_not_with_each_period() {
    let world = world(settings()).await;
    world.lose("a");
    pass(seconds(60)).await;
    assert_eq!(world.decisions("a"), ["DeletionGracePeriod", "Permitted", "Deleted"]);
    world.lose("b");
    pass(seconds(10)).await;
    world.set_ready("b", "True");
    pass(seconds(60)).await;
    assert_eq!(world.decisions("b"), ["DeletionGracePeriod", "Settled"]);
    assert_eq!(world.decisions("well-1"), [""; 0]);
    world.server.next(&Method::DELETE, &[Fate::DoneAndLost]);
    world.lose("c");
    pass(seconds(200)).await;
    assert!(!world.is_there("c"));
    let mut decided = world.decisions("c");
    decided.retain(|word| ["Permitted", "Deleted", "Unanswered"].contains(word));
    assert_eq!(decided, ["Permitted", "Unanswered"]);
}

#[tokio::test(start_paused = true)]
async fn the_period_does_not_shorten_the_backoff() {
    let world = world(settings()).await;
    world.server.always(&Method::GET, Fate::Refused(500));
    world.lose("a");
    pass(seconds(30 + 180)).await;
    let reads = world.server.sent(&Method::GET).len();
    // The backoff doubles from 0.5 s to 60 s. Each pause is shortened by up to a half.
    assert!((7..=15).contains(&reads), "{reads} in three minutes");
}

#[tokio::test(start_paused = true)]
async fn a_word_that_is_taken_back_before_the_live_read_lets_nothing_go() {
    let world = world(settings()).await;
    let allow = |word: &str| json!({"metadata": {"annotations": {ANNOTATION_ALLOW_DELETION: word}}});
    world.lose("a");
    pass(seconds(5)).await;
    world.server.before(&Method::GET, move |state| state.change("a", &allow("false")));
    world.server.with(|state| state.change("a", &allow("true")));
    pass(seconds(5)).await;
    assert_eq!((world.server.sent(&Method::GET).len(), world.deletions().len()), (1, 0));
    world.server.with(|state| state.change("a", &allow("true")));
    pass(seconds(5)).await;
    assert!(!world.is_there("a"), "and it goes at once when somebody says so");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_sends_no_deletion() {
    let world = world(LifecycleSettings { deletion: DeletionMode::DryRun, ..settings() }).await;
    world.lose("a");
    pass(seconds(300)).await;
    assert_eq!(world.deletions(), [""; 0]);
    assert_eq!(world.metric("vsphere_ccm_node_deletions_dry_run_total"), 1);
    assert_eq!(world.held("DeletionDryRun"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_initialized_is_held_for_that_although_its_machine_is_gone() {
    let world = world(settings()).await;
    world.lose("a");
    let taint = json!({"spec": {"taints": [{"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]}});
    world.server.with(|state| state.change("a", &taint));
    pass(seconds(100)).await;
    assert_eq!((world.is_there("a"), world.held("Uninitialized")), (true, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_provider_is_counted_and_tried_again() {
    let world = world(settings()).await;
    world.hook(|name, number| {
        assert!(name != "a" || number > 3, "on purpose");
        Duration::ZERO
    });
    world.lose("a");
    pass(MOMENT).await;
    assert_eq!(world.held("Panic"), 1);
    assert!(world.metric("vsphere_ccm_node_lifecycle_panics_total") > 0);
    pass(seconds(100)).await;
    assert_eq!((world.is_there("a"), world.held("Panic")), (false, 0));
}
