//! The condition `NetworkUnavailable`: written while routes are enabled, and removed after they were disabled.

use ccm::cloud::Error;
use ccm::controllers::route::RouteSettings;
use ccm::controllers::route::withdrawal::Off;
use ccm::kubernetes::leadership::Leadership;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use support::{Log, eventually, unique};

use super::cloud::{CLUSTER, Cloud, route};
use super::harness::{Form, LIMIT, Run, Start, condition, looping};
use super::world::{World, go_by, watching, withdraw_conditions};
use crate::lifecycle::in_memory::server::{Fate, Server};

const NETWORK: &str = "10.120.0.0/24";
const MANAGER: &str = "vsphere-cloud-controller-manager";

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_reason_is_overwritten_and_what_is_right_is_not_written() {
    let cloud = Cloud::default();
    let run = Run::start(&cloud, looping()).await;
    let form = Form::new(&unique("n"), &[NETWORK], "10.0.1.1");
    run.register(&form).await;
    run.wait_for_condition("created", &form.name, "False RouteCreated").await;
    let foreign = json!({"conditions": [{"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp"}]});
    run.patch_status(&form.name, foreign, "cni").await;
    let node = run.wait_for_condition("W-44", &form.name, "False RouteCreated").await;
    run.several_passes(3).await;
    assert_eq!(run.get(&form.name).await.metadata.resource_version, node.metadata.resource_version);
    let written = node.status.unwrap().conditions.unwrap().pop().unwrap();
    assert_eq!(written.message.as_deref(), Some("RouteController created a route"));
    assert!(written.last_transition_time.is_some() && written.last_transition_time == written.last_heartbeat_time);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_condition_is_left_to_the_cni_if_a_flag_says_so() {
    let cloud = Cloud::default();
    let run = Run::start(&cloud, RouteSettings { writes_condition: false, ..looping() }).await;
    let form = Form::new(&unique("n"), &[NETWORK], "10.0.1.1");
    let created = run.register(&form).await;
    run.wait_for_routes("created", &cloud, &form.routes()).await;
    run.several_passes(3).await;
    assert_eq!(run.get(&form.name).await.metadata.resource_version, created.metadata.resource_version, "W-44");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_route_is_reported_on_the_node_once_and_withdrawn() {
    let cloud = Cloud::default();
    let run = Run::start(&cloud, looping()).await;
    let form = Form::new(&unique("n"), &[NETWORK], "10.0.1.1");
    cloud.fail(NETWORK, || Error::other("no more routes"));
    let node = run.register(&form).await;
    run.wait_for_condition("W-41", &form.name, "True NoRouteCreated").await;
    run.wait_for_metric("vsphere_ccm_routes{state=\"CloudError\"}", 1).await;
    let event = eventually("the Event", LIMIT, async || {
        let events = run.events(&form.name).await;
        events.into_iter().find(|event| event.reason.as_deref() == Some("FailedToCreateRoute")).ok_or("none".to_owned())
    })
    .await;
    let message = event.message.as_deref().unwrap();
    let uid = node.metadata.uid.as_deref().unwrap();
    let begins = format!("Could not create route {uid} {NETWORK} for node {} after ", form.name);
    assert!(message.starts_with(&begins) && message.ends_with(": no more routes"), "{message}");
    let object = &event.involved_object;
    assert_eq!((object.api_version.as_deref(), object.kind.as_deref()), (Some("v1"), Some("Node")));
    assert_eq!(object.uid.as_deref(), Some(uid));
    assert_eq!(event.source.as_ref().unwrap().component.as_deref(), Some("route_controller"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    run.several_passes(5).await;
    let count = |events: Vec<k8s_openapi::api::core::v1::Event>| {
        events.iter().map(|event| event.count.unwrap_or(1)).sum::<i32>()
    };
    assert_eq!(count(run.events(&form.name).await), 1, "once for each change of the reason");
    cloud.end_failure(NETWORK);
    run.wait_for_condition("it works", &form.name, "False RouteCreated").await;
    run.wait_for_metric("vsphere_ccm_routes{state=\"Ready\"}", 1).await;
    run.wait_for_metric("vsphere_ccm_routes{state=\"CloudError\"}", 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_resolved_with_a_live_read() {
    let world = World::start(watching()).await;
    go_by(30).await;
    for _ in 0..4 {
        world.server.before(&Method::PATCH, |state| state.change("n", &json!({"metadata": {"labels": {"a": "b"}}})));
    }
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(3).await;
    assert_eq!(world.condition("n").unwrap(), "False RouteCreated");
    let sent = world.server.sent(&Method::PATCH);
    assert_eq!(sent.len(), 5, "five attempts");
    assert!(sent[4].at - sent[0].at < Duration::from_millis(500), "without the backoff of the queue: {sent:?}");
    let patch = &sent[4].body;
    assert!(patch["metadata"]["uid"].is_string() && patch["metadata"]["resourceVersion"].is_string(), "{patch}");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_is_refused_is_written_later() {
    let world = World::start(watching()).await;
    go_by(30).await;
    world.server.always(&Method::PATCH, Fate::Refused(403));
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(60).await;
    assert_eq!((world.condition("n").unwrap().as_str(), world.cloud.routes().len()), ("", 1));
    world.server.always(&Method::PATCH, Fate::Works);
    go_by(61).await;
    assert_eq!(world.condition("n").unwrap(), "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_networks_has_a_condition_only_while_a_route_leads_to_it() {
    let world = World::start(watching()).await;
    world.cloud.memory.put_route(CLUSTER, route("routed", NETWORK, "10.0.1.1"));
    world.put(&Form::new("routed", &[], "10.0.1.1"));
    world.put(&Form::new("plain", &[], "10.0.2.1"));
    go_by(30).await;
    assert_eq!(world.condition("routed").unwrap(), "True NoRouteCreated");
    assert_eq!((world.condition("plain").unwrap().as_str(), world.cloud.routes().len()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_serve_routes_now_is_not_off() {
    let world = World::start(watching()).await;
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(30).await;
    world.cloud.memory.set_has_routes(false);
    let written = world.writes();
    world.put(&Form::new("m", &["10.120.1.0/24"], "10.0.2.1"));
    world.remove("n");
    go_by(600).await;
    assert_eq!((world.cloud.routes().len(), world.writes()), (1, written));
    assert_eq!(world.routes_in("Ready"), 0, "their state is unknown");
    world.cloud.memory.set_has_routes(true);
    go_by(15).await;
    assert_eq!(world.cloud.routes(), ["m 10.120.1.0/24 10.0.2.1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_routes_are_off_only_our_condition_is_removed() {
    let cloud = Cloud::default();
    let run = Run::with(Start { is_off: true, ..Start::of(&cloud, looping()) }).await;
    let unavailable = |status: &str, reason: &str| {
        json!({"conditions": [{"type": "NetworkUnavailable", "status": status, "reason": reason,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]})
    };
    let foreign = "other://1";
    let mut kept = Vec::new();
    let mut removed = Vec::new();
    for (status, reason, manager, provider_id, is_removed) in [
        ("True", "NoRouteCreated", "cni", "", false),
        ("False", "RouteCreated", MANAGER, "", false),
        ("True", "CalicoIsDown", MANAGER, "", false),
        ("True", "NoRouteCreated", MANAGER, foreign, false),
        ("True", "NoRouteCreated", MANAGER, "memory://1", true),
        ("True", "NoRouteCreated", MANAGER, "", true),
    ] {
        let form = Form { provider_id: provider_id.into(), ..Form::new(&unique("n"), &[NETWORK], "10.0.1.1") };
        run.register(&form).await;
        let node = run.patch_status(&form.name, unavailable(status, reason), manager).await;
        if is_removed { removed.push(form.name) } else { kept.push((form.name, node)) }
    }
    for name in &removed {
        run.wait_for_condition("it is removed", name, "").await;
    }
    for (name, node) in kept {
        assert_eq!(run.get(&name).await.metadata.resource_version, node.metadata.resource_version, "{name}");
        assert_ne!(condition(&node), "");
    }
    // The condition appears again, because another process may write it.
    run.wait_for_cache(&removed[0], |node| node.is_some_and(|node| condition(node).is_empty())).await;
    run.patch_status(&removed[0], unavailable("True", "NoRouteCreated"), MANAGER).await;
    run.wait_for_condition("it is removed again", &removed[0], "").await;
    assert!(cloud.listings().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_condition_stays_is_read_once_and_a_failed_read_is_repeated() {
    let (server, cloud) = (Server::start(), Cloud::default());
    let node = left_behind;
    let reads = || server.sent(&Method::GET).len();
    server.with(|state| state.put(node("n", "cni")));
    let standby = withdraw_conditions(&server, &cloud, Leadership::never(), Off::ByFlag);
    go_by(60).await;
    assert_eq!(reads(), 0, "it does not lead");
    drop(standby);
    let _tasks = withdraw_conditions(&server, &cloud, Leadership::always(), Off::ByFlag);
    for heartbeat in 0..10 {
        go_by(10).await;
        server.with(|state| state.change("n", &json!({"metadata": {"labels": {"a": heartbeat.to_string()}}})));
    }
    assert_eq!(reads(), 1);
    server.with(|state| {
        state.remove("n");
        state.put(node("n", "cni"));
    });
    go_by(10).await;
    assert_eq!(reads(), 2, "it is another Node");
    server.always(&Method::GET, Fate::Refused(500));
    server.with(|state| state.put(node("m", MANAGER)));
    go_by(30).await;
    assert_eq!(reads(), 2 + 5, "after 1, 2, 4 and 8 s");
    server.always(&Method::GET, Fate::Works);
    go_by(20).await;
    let patches = server.sent(&Method::PATCH);
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].body["status"]["conditions"], json!([{"$patch": "delete", "type": "NetworkUnavailable"}]));
}

/// Returns a Node that waits for a route, with the condition written by `manager`.
fn left_behind(name: &str, manager: &str) -> Value {
    let mut node = Form::new(name, &[NETWORK], "10.0.1.1").json();
    let owned = json!({"f:status": {"f:conditions": {"k:{\"type\":\"NetworkUnavailable\"}": {}}}});
    node["metadata"]["managedFields"] = json!([{"manager": manager, "fieldsV1": owned}]);
    node["status"]["conditions"] =
        json!([{"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"}]);
    node
}

/// A provider without routes for now is different from a configuration without routes.
#[tokio::test(start_paused = true)]
async fn a_configuration_without_routes_turns_them_off_and_one_with_routes_on_again() {
    let log = Log::keep();
    let (server, cloud) = (Server::start(), Cloud::default());
    server.with(|state| state.put(left_behind("n", MANAGER)));
    let _tasks = withdraw_conditions(&server, &cloud, Leadership::always(), Off::ByConfiguration);
    let patches = || server.sent(&Method::PATCH).len();
    go_by(10).await;
    assert_eq!(patches(), 0, "it has routes");
    cloud.memory.set_has_routes(false);
    go_by(10).await;
    assert_eq!(patches(), 0, "it cannot serve them");
    cloud.memory.set_routes_off();
    go_by(10).await;
    assert_eq!(patches(), 1);
    cloud.memory.set_has_routes(true);
    go_by(10).await;
    server.with(|state| state.put(left_behind("m", MANAGER)));
    go_by(10).await;
    assert_eq!(patches(), 1, "they are on again");
    assert_eq!(log.lines("no routes are made: the configuration of the cloud provider has none").len(), 1);
    assert!(log.lines("idle").is_empty(), "routes are the usual case");
}
