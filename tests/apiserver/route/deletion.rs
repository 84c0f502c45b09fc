//! A route is deleted only if a live read shows that its Node does not exist or does not need the route.

use std::time::Duration;

use ccm::cloud::Route;
use http::Method;
use serde_json::json;
use support::unique;

use super::cloud::{CLUSTER, Cloud, route};
use super::harness::{Form, Run, looping};
use super::world::{World, address, go_by, networks, watching};
use crate::lifecycle::in_memory::server::Fate;
use crate::lifecycle::in_memory::world::pass;

const NETWORK: &str = "10.120.0.0/24";

#[tokio::test(flavor = "multi_thread")]
async fn nodes_outside_of_the_selection_or_of_another_provider_keep_what_they_have() {
    let cloud = Cloud::default();
    let run = Run::start(&cloud, looping()).await;
    let unselected = Form::new(&unique("n"), &[NETWORK], "10.0.1.1");
    let foreign = Form { provider_id: "other://1".into(), ..Form::new(&unique("n"), &["10.120.1.0/24"], "10.0.2.1") };
    let new = Form { provider_id: "other://2".into(), ..Form::new(&unique("n"), &["10.120.2.0/24"], "10.0.3.1") };
    let own = Form { provider_id: "memory://3".into(), ..Form::new(&unique("n"), &["10.120.3.0/24"], "10.0.4.1") };
    let mut created = vec![run.register_in(&unselected, "another").await];
    for form in [&foreign, &new] {
        created.push(run.register(form).await);
    }
    for (form, network) in [(&unselected, "10.120.8.0/24"), (&foreign, "10.120.9.0/24")] {
        // The node of this route does not need it, and has other addresses.
        let route = route(&form.name, network, "10.0.9.9");
        cloud.memory.put_route(CLUSTER, Route { enable_node_addresses: true, ..route });
    }
    let before = cloud.routes();
    run.register(&own).await;
    run.wait_for_routes("its own", &cloud, &[before, own.routes()].concat()).await;
    run.several_passes(3).await;
    run.wait_for_condition("its own", &own.name, "False RouteCreated").await;
    for node in created {
        let now = run.get(node.metadata.name.as_deref().unwrap()).await;
        assert_eq!(now.metadata.resource_version, node.metadata.resource_version, "W-43");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_cache_deletes_nothing() {
    let world = World::start(watching()).await;
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(30).await;
    let created = world.cloud.routes();
    assert_eq!(created, ["n 10.120.0.0/24 10.0.1.1"]);
    // The cache keeps the first network while another leader creates the route for the second one. The cache also lacks
    // a Node.
    world.server.hold_watch(true);
    world.change("n", &networks(&["10.120.1.0/24"]));
    world.server.with(|state| state.put(Form::new("m", &["10.120.2.0/24"], "10.0.2.1").json()));
    world.cloud.memory.put_route(CLUSTER, route("n", "10.120.1.0/24", "10.0.1.1"));
    world.cloud.memory.put_route(CLUSTER, route("m", "10.120.2.0/24", "10.0.2.1"));
    let before = world.cloud.routes();
    go_by(310).await;
    assert_eq!(world.cloud.routes(), before, "two passes");
    world.server.hold_watch(false);
    go_by(15).await;
    assert_eq!(world.cloud.routes(), ["m 10.120.2.0/24 10.0.2.1", "n 10.120.1.0/24 10.0.1.1"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_here_between_two_passes_keeps_no_route() {
    let world = World::start(watching()).await;
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(30).await;
    world.remove("n");
    // The Node is registered again after the plan, right before the read.
    world.server.before(&Method::GET, |state| drop(state.put(Form::new("n", &[NETWORK], "10.0.1.1").json())));
    go_by(3).await;
    assert!(world.server.node("n").is_some(), "it was read");
    assert_eq!(world.cloud.routes(), ["n 10.120.0.0/24 10.0.1.1"]);
    world.remove("n");
    go_by(30).await;
    assert_eq!(world.cloud.routes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_has_passed_holds_back_no_deletion() {
    let world = World::start(watching()).await;
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(30).await;
    world.server.always(&Method::GET, Fate::Refused(500));
    world.remove("n");
    go_by(30).await;
    // The successful read finds the Node, which is deleted before the next pass.
    world.server.before(&Method::GET, |state| drop(state.put(Form::new("n", &[NETWORK], "10.0.1.1").json())));
    world.server.always(&Method::GET, Fate::Works);
    // The steps are shorter than the period in which changes are collected.
    for _ in 0..1000 {
        if world.server.node("n").is_some() {
            break;
        }
        pass(Duration::from_millis(100)).await;
    }
    assert!(world.server.node("n").is_some(), "it is read again");
    world.remove("n");
    go_by(60).await;
    assert_eq!(world.cloud.routes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_live_read_that_fails_deletes_nothing() {
    let world = World::start(watching()).await;
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(30).await;
    for fate in [Fate::Refused(403), Fate::Refused(500), Fate::Lost] {
        world.server.always(&Method::GET, fate);
        world.remove("n");
        go_by(120).await;
        assert_eq!(world.cloud.routes(), ["n 10.120.0.0/24 10.0.1.1"], "{fate:?}");
        world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
        go_by(120).await;
        assert_eq!(world.cloud.routes(), ["n 10.120.0.0/24 10.0.1.1"], "{fate:?}");
    }
    world.remove("n");
    go_by(30).await;
    world.server.always(&Method::GET, Fate::Works);
    go_by(61).await;
    assert!(world.cloud.routes().is_empty(), "the retry needs no pass");
}

#[tokio::test(start_paused = true)]
async fn old_addresses_are_replaced_only_if_they_are_old_for_the_api_server_too() {
    let world = World::start(watching()).await;
    world.cloud.memory.set_has_routes(false);
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(30).await;
    world.server.hold_watch(true);
    world.change("n", &address("10.0.1.2"));
    let new = route("n", NETWORK, "10.0.1.2");
    world.cloud.memory.put_route(CLUSTER, Route { enable_node_addresses: true, ..new });
    world.cloud.memory.set_has_routes(true);
    go_by(30).await;
    let kept = world.cloud.memory.all_routes();
    assert!(kept.len() == 1 && kept[0].1.enable_node_addresses, "{kept:?}");
    world.server.hold_watch(false);
    go_by(30).await;
    assert_eq!(world.cloud.memory.all_routes(), kept);
    world.change("n", &address("10.0.1.3"));
    go_by(30).await;
    assert_eq!(world.cloud.routes(), ["n 10.120.0.0/24 10.0.1.3"]);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_rewrites_gets_a_changed_address_without_a_deletion() {
    let world = World::start(watching()).await;
    world.cloud.set_rewrites();
    let uid = world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(30).await;
    world.change("n", &address("10.0.1.2"));
    go_by(30).await;
    assert_eq!((world.cloud.routes(), world.cloud.deletions()), (vec!["n 10.120.0.0/24 10.0.1.2".to_owned()], 0));
    assert_eq!(world.cloud.tries(NETWORK).len(), 2);
    // The second route, from before the Node joined again, is deleted once the first route has the right address.
    let second = Route { enable_node_addresses: true, ..route("n", NETWORK, "10.0.1.1") };
    assert_ne!(second.name, format!("{uid}-{NETWORK}"));
    world.cloud.memory.put_route(CLUSTER, second);
    go_by(310).await;
    assert_eq!((world.cloud.routes(), world.cloud.deletions()), (vec!["n 10.120.0.0/24 10.0.1.2".to_owned()], 1));
    assert_eq!(world.condition("n").as_deref(), Some("False RouteCreated"));
}

#[tokio::test(start_paused = true)]
async fn routes_that_the_cloud_holds_are_counted() {
    let world = World::start(watching()).await;
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    world.cloud.set_held(2);
    go_by(310).await;
    assert_eq!((world.routes_in("held"), world.routes_in("Ready"), world.cloud.deletions()), (2, 1, 0));
    world.cloud.set_held(0);
    go_by(310).await;
    assert_eq!(world.routes_in("held"), 0);
}

#[tokio::test(start_paused = true)]
async fn another_node_of_the_same_name_is_not_taken_for_the_one_that_was_planned_for() {
    let world = World::start(watching()).await;
    world.put(&Form::new("n", &[NETWORK], "10.0.1.1"));
    go_by(30).await;
    // Right before the read the Node gets another provider, and does not need the route any more.
    world.server.before(&Method::GET, |state| state.change("n", &json!({"spec": {"providerID": "other://1"}})));
    world.change("n", &networks(&["10.120.1.0/24"]));
    go_by(60).await;
    assert_eq!(world.cloud.routes().first().unwrap(), "n 10.120.0.0/24 10.0.1.1");
}

#[tokio::test(start_paused = true)]
async fn a_network_that_another_node_keeps_is_not_routed_twice_and_that_is_reported() {
    let world = World::start(watching()).await;
    // The Node is older, so the network of the other Node is rejected before it can conflict.
    world.put(&Form::new("n", &["10.120.9.0/24"], "10.0.2.1"));
    world.put(&Form { provider_id: "other://1".into(), ..Form::new("foreign", &[NETWORK], "10.0.1.1") });
    world.cloud.memory.put_route(CLUSTER, route("foreign", NETWORK, "10.0.1.1"));
    world.change("n", &networks(&[NETWORK]));
    go_by(120).await;
    assert_eq!(world.cloud.routes(), ["foreign 10.120.0.0/24 10.0.1.1"]);
    assert_eq!(world.condition("n").unwrap(), "True NoRouteCreated");
    assert_eq!(world.routes_in("PodNetworkInUse"), 1);
    let events = world.server.events("FailedToCreateRoute");
    assert!(
        events.len() == 1 && events[0].contains("route 10.120.0.0/24 to Node foreign is not deleted"),
        "{events:?}"
    );
    world.remove("foreign");
    go_by(120).await;
    assert_eq!(world.cloud.routes(), ["n 10.120.0.0/24 10.0.2.1"]);
}
