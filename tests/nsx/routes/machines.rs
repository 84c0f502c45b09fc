//! The addresses of Nodes that routes may use. A kubelet writes the addresses of its Node, and vCenter shows which of
//! them the machine has.

use ccm::cloud::UsableAddresses;
use serde_json::json;

use super::world::{NAME, UID_1, World, node, of_go, word};

const NETWORK: &str = "100.96.0.0/24";

fn only(addresses: &[&str]) -> UsableAddresses {
    UsableAddresses::Only(addresses.iter().map(|ip| ip.parse().unwrap()).collect())
}

fn hops(world: &World) -> Vec<String> {
    let hop = |object: &serde_json::Value| object["next_hops"][0]["ip_address"].as_str().unwrap().to_owned();
    world.objects().iter().map(hop).collect()
}

#[tokio::test]
async fn a_route_leads_to_an_address_that_is_on_the_machine() {
    let world = World::start(Some("uid")).await;
    // The kubelet has inserted the address of another machine before its own.
    let forged = [("InternalIP", "172.50.0.99"), ("InternalIP", "172.50.0.13")];
    world.cluster.put(node("node1", UID_1, &[NETWORK], &forged));
    world.cluster.set_usable("node1", only(&["172.50.0.13", "172.50.0.14"]));
    world.create().await.unwrap();
    assert_eq!(hops(&world), ["172.50.0.13"]);
    // A route with another next hop is updated, and a correct route is not written.
    let seen = world.fake.history().len();
    world.pass().await;
    assert!(world.history(seen).is_empty());
    world.cluster.set_usable("node1", only(&["172.50.0.99"]));
    world.pass().await;
    assert_eq!(hops(&world), ["172.50.0.99"]);
    world.cluster.set_usable("node1", only(&["172.50.0.14"]));
    let refused = world.create().await.unwrap_err();
    assert_eq!(word(&refused), "NoNextHop");
    assert!(refused.to_string().contains("172.50.0.99") && refused.to_string().contains("vCenter"), "{refused}");
}

#[tokio::test]
async fn while_the_machine_is_not_known_routes_stay_and_none_is_added() {
    let mut world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    world.cluster.put(node("node2", "uid-2", &["100.96.1.0/24"], &[("InternalIP", "172.50.0.14")]));
    for name in ["node1", "node2"] {
        world.cluster.set_usable(name, UsableAddresses::Unknown);
    }
    // In the meantime the kubelet reports another address, and another process becomes the leader.
    world.cluster.put(node("node1", UID_1, &[NETWORK], &[("InternalIP", "172.50.0.99")]));
    world.restart(ccm::providers::vsphere::nsx::routes::Adoption::AsIs);
    let seen = world.fake.history().len();
    let outcomes = world.work(world.plan().await).await;
    assert!(world.history(seen).is_empty());
    let refused: Vec<String> = outcomes.iter().filter_map(|one| Some(word(one.result.as_ref().err()?))).collect();
    assert_eq!(refused, ["NoNextHop"], "the route of node2");
    // Once the addresses are known, each Node has its route.
    world.cluster.set_usable("node1", only(&["172.50.0.99"]));
    world.cluster.set_usable("node2", only(&["172.50.0.14"]));
    world.pass().await;
    let mut hops = hops(&world);
    hops.sort();
    assert_eq!(hops, ["172.50.0.14", "172.50.0.99"]);
}

/// Two clusters have the same name, and a kubelet of one reports the address of a node of the other.
#[tokio::test]
async fn a_route_is_not_a_clusters_by_an_address_that_its_node_has_not() {
    let world = World::start(Some("uid")).await;
    let forged = [("InternalIP", "172.50.0.13"), ("InternalIP", "172.50.0.99")];
    world.cluster.put(node("node1", UID_1, &[NETWORK], &forged));
    let theirs = world.path("0000_100.96.0.0_24");
    world.fake.put_by_hand("other", &theirs, of_go("node1", NETWORK, "172.50.0.99"));
    let held = |world: &World| ccm::cloud::Routes::ambiguous_routes(&world.routes);
    world.cluster.set_usable("node1", only(&["172.50.0.13"]));
    assert_eq!((world.list().await.len(), held(&world)), (0, 1));
    // Until the addresses are known, the route is not reported, and no second route is created.
    for usable in [UsableAddresses::Unknown, UsableAddresses::Pending] {
        world.cluster.set_usable("node1", usable);
        assert_eq!((world.list().await.len(), held(&world)), (1, 0));
        let seen = world.fake.history().len();
        let outcomes = world.work(world.plan().await).await;
        assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()), "the Node keeps its condition");
        assert!(world.history(seen).is_empty());
    }
    // The route is not deleted either, because it may belong to another cluster.
    world.cluster.put(node("node1", UID_1, &[], &forged));
    let seen = world.fake.history().len();
    world.work(world.plan().await).await;
    assert!(world.history(seen).is_empty());
    world.cluster.put(node("node1", UID_1, &[NETWORK], &forged));
    world.cluster.set_usable("node1", only(&["172.50.0.13", "172.50.0.99"]));
    assert_eq!(world.list().await.len(), 1);
    assert_eq!(world.object("0000_100.96.0.0_24")["tags"][0]["tag"], json!(NAME));
}
