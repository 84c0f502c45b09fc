//! Taints: the times of their writes, and the retries after rejections.

use super::server::Fate;
use super::world::{MOMENT, World, node, pass, seconds, settings};
use ccm::cloud::reason;
use ccm::cloud::{InstanceMetadata, PowerState, Presence, Unknown};
use ccm::controllers::node_lifecycle::plan::{ANNOTATION_OUT_OF_SERVICE, TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};
use ccm::controllers::node_lifecycle::{LifecycleSettings, Limit};
use doubles::memory::Instance;
use http::Method;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const AFTER: Duration = Duration::from_secs(300);

async fn world() -> World {
    World::start(LifecycleSettings { out_of_service_after: Some(AFTER), ..settings() }).await
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
async fn a_vm_that_is_not_proved_off_is_reported_once_and_read_again_after_pauses() {
    let world = world().await;
    let twin = Unknown::new(reason::SeveralVMsMatch, "a twin of it runs");
    world.set_fresh(Some(Presence::Unknown(twin)));
    world.create("a", "Unknown", PowerState::Off);
    pass(seconds(301)).await;
    let first = world.fresh_reads();
    // Each second, to sample the pauses between the polls, too.
    for second in 0..600 {
        assert_eq!(world.held("SeveralVMsMatch"), 1, "after {second} s");
        pass(seconds(1)).await;
    }
    let reads = world.fresh_reads() - first;
    assert!((10..=20).contains(&reads), "each may cost a search everywhere: {reads} in ten minutes");
    assert_eq!(world.server.events("SeveralVMsMatch"), ["Node not taken out of service: a twin of it runs"]);
    assert_eq!(world.taints("a"), [shutdown()]);
    world.set_fresh(None);
    pass(seconds(61)).await;
    assert_eq!((world.taints("a"), world.held("SeveralVMsMatch")), (vec![shutdown(), out_of_service()], 0));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_runs_again_is_not_taken_out_of_service() {
    for fresh in [PowerState::On, PowerState::Suspended, PowerState::NotRunning] {
        let world = world().await;
        world.set_fresh(Some(Presence::Exists(fresh)));
        world.create("a", "Unknown", PowerState::Off);
        pass(seconds(400)).await;
        assert_eq!(world.taints("a"), [shutdown()], "{fresh:?}");
        assert!(world.fresh_reads() > 0, "{fresh:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_read_of_a_power_state_holds_no_deletion_and_none_is_made_while_the_limit_is_reached() {
    let limit = Limit { nodes: 1, percent: 0, window: seconds(600) };
    let world = World::start(LifecycleSettings { out_of_service_after: Some(AFTER), limit, ..settings() }).await;
    world.create("off", "Unknown", PowerState::Off);
    world.set_fresh_pause(seconds(20));
    pass(seconds(280)).await;
    // Due at 310 s, during the read of the other machine's power state.
    world.lose("gone");
    pass(seconds(35)).await;
    assert_eq!((world.fresh_reads(), world.is_there("gone")), (1, false));
    pass(seconds(60)).await;
    assert_eq!((world.taints("off"), world.held("DeletionLimitReached")), (vec![shutdown()], 1));
    let told = world.server.events("DeletionLimitReached");
    assert!(told.len() == 1 && told[0].starts_with("Node not taken out of service: the limit"), "{told:?}");
    assert_eq!(world.fresh_reads(), 1, "nothing is read that would not be used");
    pass(seconds(600)).await;
    assert_eq!(world.taints("off"), [shutdown(), out_of_service()]);
}

#[tokio::test(start_paused = true)]
async fn no_more_machines_are_taken_out_of_service_than_the_limit_for_deletions_allows() {
    let limit = Limit { nodes: 1, percent: 0, window: seconds(600) };
    let world = World::start(LifecycleSettings { out_of_service_after: Some(AFTER), limit, ..settings() }).await;
    let names = ["a", "b", "c"];
    for name in names {
        world.create(name, "Unknown", PowerState::Off);
    }
    pass(AFTER + seconds(60)).await;
    let taken = names.into_iter().filter(|name| world.taints(name).contains(&out_of_service())).count();
    assert_eq!((taken, world.held("DeletionLimitReached")), (1, 2));
    assert_eq!(world.metric("vsphere_ccm_node_out_of_service_taints_total"), 1);
}

#[tokio::test(start_paused = true)]
async fn taints_that_others_add_meanwhile_survive() {
    let world = world().await;
    world.create("a", "Unknown", PowerState::Off);
    // The cache does not receive the change.
    world.server.hold_watch(true);
    let other = json!({"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}});
    world.server.before(&Method::PATCH, move |state| state.change("a", &other));
    pass(MOMENT).await;
    assert_eq!(world.taints("a"), ["other:NoSchedule".to_owned(), shutdown()]);
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

    // The taint of another program has no mark.
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
    // The cache does not receive the change.
    world.server.hold_watch(true);
    world.set_ready("a", "True");
    pass(seconds(60)).await;
    assert!(world.server.sent(&Method::PATCH).len() > before, "it was tried");
    let live = world.server.node("a").unwrap();
    assert!(!live.to_string().contains(TAINT_OUT_OF_SERVICE), "{live}");
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_provider_is_neither_deleted_nor_tainted() {
    let world = world().await;
    for (name, power) in [("gone", PowerState::On), ("off", PowerState::Off)] {
        let provider_id = format!("foreign://{name}");
        let mut node = node(name, "Unknown");
        node["spec"]["providerID"] = json!(provider_id);
        let metadata = InstanceMetadata { provider_id, ..InstanceMetadata::default() };
        world.cloud.put(Instance { node_name: name.into(), metadata, power, ..Instance::default() });
        world.server.with(|state| state.put(node));
    }
    assert!(world.cloud.remove("foreign://gone"));
    pass(seconds(1000)).await;
    assert_eq!((world.deletions(), world.server.sent(&Method::PATCH).len()), (Vec::new(), 0));
}

/// Returns the times of the writes of each Node's taints, in seconds since the first one.
fn writes(world: &World) -> BTreeMap<String, Vec<u64>> {
    let sent = world.server.sent(&Method::PATCH);
    let first = sent.first().map(|sent| sent.at).expect("something is written");
    let mut writes = BTreeMap::<String, Vec<u64>>::new();
    for sent in sent {
        writes.entry(sent.name).or_default().push((sent.at - first).as_secs());
    }
    writes
}

#[tokio::test(start_paused = true)]
async fn a_refused_taint_is_written_again_after_pauses_that_double() {
    const NODES: usize = 300;
    let world = World::start(settings()).await;
    world.server.always(&Method::PATCH, Fate::Refused(403));
    (0..NODES).for_each(|number| drop(world.create(&format!("n-{number}"), "Unknown", PowerState::Off)));
    pass(seconds(200)).await;
    let writes = writes(&world);
    assert_eq!(writes.len(), NODES);
    for (name, times) in &writes {
        let first = times[0];
        let in_minute = |minute: u64| times.iter().filter(|time| (*time - first) / 60 == minute).count();
        assert!((3..=5).contains(&in_minute(0)), "{name}: {times:?}");
        for minute in 1..3 {
            assert!((1..=2).contains(&in_minute(minute)), "{name} in minute {minute}: {times:?}");
        }
    }
    let apart: std::collections::BTreeSet<u64> = writes.values().filter_map(|times| times.last().copied()).collect();
    assert!(apart.len() > 10, "they do not come back together: {apart:?}");

    // Events do not cause more writes.
    let world = World::start(settings()).await;
    world.server.always(&Method::PATCH, Fate::Refused(403));
    world.create("a", "Unknown", PowerState::Off);
    for beat in 0..60 {
        pass(seconds(1)).await;
        world.server.with(|state| state.change("a", &json!({"metadata": {"labels": {"beat": beat.to_string()}}})));
    }
    let tried = world.server.sent(&Method::PATCH).len();
    assert!((3..=5).contains(&tried), "{tried} times in a minute");

    // Another change causes another write.
    world.set_power("a", PowerState::On);
    world.set_ready("a", "True");
    let tainted = json!({"spec": {"taints": [{"key": TAINT_SHUTDOWN, "effect": "NoSchedule"}]}});
    world.server.with(|state| state.change("a", &tainted));
    pass(MOMENT).await;
    assert_eq!(world.server.sent(&Method::PATCH).len(), tried + 1, "it is to go, which was not refused before");
    world.server.always(&Method::PATCH, Fate::Works);
    pass(seconds(61)).await;
    assert_eq!(world.taints("a"), [""; 0]);
}
