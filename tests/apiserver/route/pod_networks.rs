//! Nodes that claim the networks of other nodes. No traffic goes to them.

use ccm::cloud::Route;
use ccm::controllers::route::{PodNetworks, RouteSettings};
use serde_json::json;
use support::{eventually, unique};

use super::cloud::{CLUSTER, Cloud, route};
use super::harness::{Form, LIMIT, Run, looping};
use super::world::{World, address, go_by, watching};

const OWN: &str = "10.120.0.0/24";
const CREATED: &str = "False RouteCreated";
const NOT_CREATED: &str = "True NoRouteCreated";

/// Registers a node with a later creation time than `older`. The API server's clock has a resolution of one second.
async fn register_later(run: &Run, form: &Form, older: &str) {
    let created = async |name: &str| run.get(name).await.metadata.creation_timestamp;
    let before = created(older).await;
    eventually("a later second", LIMIT, async || {
        let node = run.register(form).await;
        if node.metadata.creation_timestamp > before {
            return Ok(());
        }
        run.delete(&form.name).await;
        Err(format!("{:?}", node.metadata.creation_timestamp))
    })
    .await;
}

#[tokio::test]
async fn a_node_gets_neither_a_foreign_network_nor_that_of_an_older_one() {
    let cloud = Cloud::default();
    let run = Run::start(&cloud, looping()).await;
    let names = ["a", "b", "c", "d"].map(|letter| unique(&format!("node-{letter}")));
    let older = Form::new(&names[0], &[OWN, "a00:100::/64"], "10.0.1.1");
    run.register(&older).await;
    run.wait_for_condition("the older one", &names[0], CREATED).await;
    for (pair, network) in names.windows(2).zip(["0.0.0.0/0", OWN, "10.120.0.0/16"]) {
        register_later(&run, &Form::new(&pair[1], &[network], "10.0.9.9"), &pair[0]).await;
        run.wait_for_condition("one that claims", &pair[1], NOT_CREATED).await;
    }
    run.several_passes(2).await;
    run.wait_for_routes("those of the older one alone", &cloud, &older.routes()).await;
    run.wait_for_metric("vsphere_ccm_routes{state=\"PodNetworkForeign\"}", 1).await;
    run.wait_for_metric("vsphere_ccm_routes{state=\"PodNetworkInUse\"}", 2).await;
    let told = eventually("the Event", LIMIT, async || {
        run.events(&names[2]).await.into_iter().next().ok_or_else(|| "no Event".to_owned())
    })
    .await;
    let expected = format!("no route to {OWN} is created: the network {OWN} in spec.podCIDRs of Node {}", names[2]);
    assert_eq!(told.reason.as_deref(), Some("FailedToCreateRoute"));
    assert!(told.message.as_deref().is_some_and(|message| message.starts_with(&expected)), "{:?}", told.message);
    // After the deletion of the older node the next one gets the network.
    run.delete(&names[0]).await;
    run.wait_for_condition("the next one", &names[2], CREATED).await;
    run.wait_for_metric("vsphere_ccm_routes{state=\"PodNetworkInUse\"}", 1).await;
    run.wait_for_routes("of the next one", &cloud, &[format!("{} {OWN} 10.0.9.9", names[2])]).await;
}

#[tokio::test(start_paused = true)]
async fn a_route_that_would_not_be_created_now_is_kept_up_and_told() {
    let world = World::start(watching()).await;
    go_by(30).await;
    let foreign = "10.20.0.0/16";
    world.cloud.memory.put_route(CLUSTER, route("old", foreign, "10.0.1.1"));
    world.cloud.memory.put_route(CLUSTER, route("young", OWN, "10.0.3.1"));
    world.put(&Form::new("old", &[foreign], "10.0.1.1"));
    world.put(&Form::new("owner", &[OWN], "10.0.2.1"));
    world.put(&Form::new("young", &[OWN], "10.0.3.1"));
    go_by(600).await;
    let kept = ["old 10.20.0.0/16 10.0.1.1", "owner 10.120.0.0/24 10.0.2.1", "young 10.120.0.0/24 10.0.3.1"];
    assert_eq!(world.cloud.routes(), kept);
    for name in ["old", "owner", "young"] {
        assert_eq!(world.condition(name).unwrap(), CREATED, "{name}");
    }
    assert_eq!((world.routes_in("PodNetworkForeign"), world.routes_in("PodNetworkInUse")), (1, 1));
    let told = [world.server.events("PodNetworkForeign"), world.server.events("PodNetworkInUse")].concat();
    assert!(told.len() == 2 && told.iter().all(|message| message.contains(" is kept, and would not be created now")));
    // One list without the route is no evidence that it was deleted.
    world.cloud.memory.remove_route(CLUSTER, "old", foreign);
    world.change("owner", &address("10.0.2.9"));
    go_by(5).await;
    world.cloud.memory.put_route(CLUSTER, route("old", foreign, "10.0.1.1"));
    world.change("owner", &address("10.0.2.1"));
    go_by(60).await;
    assert_eq!(world.condition("old").unwrap(), CREATED);
    assert_eq!(world.server.events("FailedToCreateRoute").len(), 0);
    // The route is deleted. The network is then usable for any node.
    world.cloud.memory.remove_route(CLUSTER, "old", foreign);
    go_by(600).await;
    assert_eq!(world.cloud.routes().len(), 2);
    assert_eq!(world.condition("old").unwrap(), NOT_CREATED);
    assert_eq!(world.server.events("FailedToCreateRoute").len(), 1);
    world.remove("old");
    go_by(30).await;
    assert_eq!(world.routes_in("PodNetworkForeign"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_kept_route_follows_the_address_of_its_node() {
    let world = World::start(watching()).await;
    world.cloud.set_rewrites();
    world.put(&Form::new("owner", &[OWN], "10.0.2.1"));
    let uid = world.put(&Form::new("young", &[OWN], "10.0.3.1"));
    let name = format!("{uid}-{OWN}");
    let kept = Route { name, enable_node_addresses: true, ..route("young", OWN, "10.0.3.1") };
    world.cloud.memory.put_route(CLUSTER, kept);
    go_by(30).await;
    world.change("young", &address("10.0.3.9"));
    go_by(30).await;
    assert_eq!(world.cloud.routes(), ["owner 10.120.0.0/24 10.0.2.1", "young 10.120.0.0/24 10.0.3.9"]);
}

#[tokio::test(start_paused = true)]
async fn with_any_network_only_overlaps_are_refused() {
    let world = World::start(RouteSettings { pod_networks: PodNetworks::Any, ..watching() }).await;
    world.put(&Form::new("a", &["10.20.0.0/16"], "10.0.1.1"));
    world.put(&Form::new("b", &["10.20.7.0/24"], "10.0.2.1"));
    go_by(30).await;
    assert_eq!(world.cloud.routes(), ["a 10.20.0.0/16 10.0.1.1"]);
    assert_eq!(world.condition("b").unwrap(), NOT_CREATED);
}

#[tokio::test(start_paused = true)]
async fn the_network_of_a_node_of_another_provider_is_not_available() {
    let world = World::start(watching()).await;
    world.put(&Form { provider_id: "other://1".into(), ..Form::new("foreign", &[OWN], "10.0.1.1") });
    world.put(&Form::new("n", &[OWN], "10.0.2.1"));
    go_by(30).await;
    assert_eq!(world.cloud.routes(), Vec::<String>::new());
    assert_eq!(world.condition("n").unwrap(), NOT_CREATED);
    world.change("foreign", &json!({"spec": {"podCIDRs": ["10.120.9.0/24"]}}));
    go_by(15).await;
    assert_eq!(world.cloud.routes(), ["n 10.120.0.0/24 10.0.2.1"]);
}
