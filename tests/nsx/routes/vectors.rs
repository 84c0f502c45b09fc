//! RT-01 to RT-09: the requests, and the reading of answers. RT-06 is in `rules.rs`.

use ccm::cloud::{ClusterReads as _, Route};
use serde_json::json;
use support::fake_nsx::{Model, Trouble};

use super::world::{NAME, ROUTER, UID_1, UID_2, World, model, node, of_go, permit, word};
use ccm::cloud::Routes as _;

const ID_1: &str = "62d347a4-1b70-435e-b92a-9a61453843ee_100.96.0.0_24";
const ID_2: &str = "a4775ec4-8b68-42ea-86fc-d17390e4c373_100.96.1.0_24";

const API: &str = "/policy/api/v1";

/// RT-01 and RT-07 differ: this program lists the router without a search, and reads Nodes from the cache at the call
/// in place of a separate map.
// vectors: RT-01
#[tokio::test]
async fn rt_01_routes_are_listed_from_the_router_without_a_search() {
    let model = model()
        .tier1("other")
        .object(&format!("{ROUTER}/static-routes/{ID_1}"), of_go("node1", "100.96.0.0/24", "172.50.0.13"))
        .object(&format!("{ROUTER}/static-routes/{ID_2}"), of_go("node2", "100.96.1.0/24", "172.50.0.137"))
        .object("/infra/tier-1s/other/static-routes/x", of_go("node1", "100.96.0.0/24", "172.50.0.13"));
    let world = World::with(model, Some("uid")).await;
    world.cluster.put(node("node2", UID_2, &["100.96.1.0/24"], &[("InternalIP", "172.50.0.137")]));
    let listed = world.list().await;
    let shown: Vec<_> = listed
        .iter()
        .map(|route| (route.name.as_str(), route.target_node.as_str(), route.destination_cidr.as_str()))
        .collect();
    assert_eq!(shown, [(ID_1, "node1", "100.96.0.0/24"), (ID_2, "node2", "100.96.1.0/24")]);
    assert!(listed.iter().all(|route| route.enable_node_addresses && !route.blackhole));
    assert_eq!(listed[1].target_node_addresses[0].address, "172.50.0.137");
    let sent = world.sent();
    assert_eq!((sent.len(), sent[0].method.as_str()), (1, "GET"));
    assert_eq!(sent[0].path, format!("{API}{ROUTER}/static-routes?page_size=1000"));
}

/// RT-02 differs: the route has two more tags if the UID of the cluster is known.
// vectors: RT-02
#[tokio::test]
async fn rt_02_a_route_is_created_with_three_calls() {
    for uid in [Some("uid"), None] {
        let world = World::start(uid).await;
        world.create().await.unwrap();
        let sent = world.sent();
        let path = format!("{API}{ROUTER}/static-routes/{ID_1}");
        let shown: Vec<_> = sent.iter().map(|one| (one.method.as_str(), one.path.as_str(), one.status)).collect();
        let entities = format!("{API}/infra/realized-state/realized-entities?intent_path=%2Finfra%2Ftier-1s%2Ftest-t1");
        let entities = format!("{entities}%2Fstatic-routes%2F{ID_1}");
        let expected = [("GET", &*path, Some(404)), ("PATCH", &*path, Some(200)), ("GET", &*entities, Some(200))];
        assert_eq!(shown, expected);
        let mut body = of_go("node1", "100.96.0.0/24", "172.50.0.13");
        if let Some(uid) = uid {
            let tags = body["tags"].as_array_mut().unwrap();
            tags.insert(0, json!({"scope": "cluster-uid", "tag": uid}));
            tags.insert(1, json!({"scope": "owner", "tag": "vsphere-cloud-controller-manager"}));
        }
        assert_eq!(sent[1].json(), body);
    }
}

// vectors: RT-03
#[tokio::test]
async fn rt_03_after_a_failed_write_nothing_is_asked() {
    let world = World::start(Some("uid")).await;
    world.fake.next("PATCH static-routes", Trouble::error(500, Some(99)));
    assert_eq!(word(&world.create().await.unwrap_err()), "NSXUnavailable");
    assert_eq!(world.operations(), ["GET static-routes", "PATCH static-routes"]);
}

// vectors: RT-04, RT-05
#[tokio::test]
async fn rt_04_and_rt_05_ids_names_and_networks_are_those_of_the_go_program() {
    let v6_hop = "21DA:00D3:0000:2F3B:02AC:00FF:FE28:9C5A";
    for (id, network, hop, route_id) in [
        ("RT-04", "100.96.0.0/24", "172.50.0.13", "nameHint_100.96.0.0_24"),
        ("RT-05", "21DA:00D3:0000:2F3B::/64", v6_hop, "nameHint_21DA:00D3:0000:2F3B::_64"),
    ] {
        let world = World::with(model(), None).await;
        world.cluster.put(node("node1", "nameHint", &[network], &[("InternalIP", hop)]));
        let route = Route { target_node: "node1".to_owned(), destination_cidr: network.to_owned(), ..Route::default() };
        world.routes.create_route(&permit(), "cluster1", "nameHint", &route).await.unwrap();
        let sent = world.sent();
        assert_eq!(sent[1].path, format!("{API}{ROUTER}/static-routes/{route_id}"), "{id}");
        let body = sent[1].json();
        assert_eq!(body["display_name"], format!("cluster1_node1_{network}"), "{id}");
        assert_eq!(body["network"], network, "{id}");
        // The address is in its canonical form, as in the Go program.
        assert_eq!(body["next_hops"], json!([{"ip_address": hop.parse::<std::net::IpAddr>().unwrap().to_string()}]));
        let tags = json!([
            {"scope": "vsphere.k8s.io/cluster-name", "tag": "cluster1"},
            {"scope": "vsphere.k8s.io/node-name", "tag": "node1"},
        ]);
        assert_eq!(body["tags"], tags, "{id}");
    }
}

/// RT-07 differs: there is no separate map of Nodes.
// vectors: RT-07
#[tokio::test]
async fn rt_07_the_node_is_the_one_of_the_cache_at_the_call() {
    let world = World::start(Some("uid")).await;
    world.cluster.remove("node1");
    let error = world.create().await.unwrap_err();
    assert_eq!((word(&error), error.to_string()), ("NoNextHop".to_owned(), "Node node1 does not exist".to_owned()));
    // a Node without addresses gets its route once it has one.
    world.cluster.put(node("node1", UID_1, &["100.96.0.0/24"], &[("Hostname", "node1"), ("InternalIP", "fe80::1")]));
    let error = world.create().await.unwrap_err();
    assert_eq!(word(&error), "NoNextHop");
    assert!(error.to_string().contains("IPv4") && error.to_string().contains("fe80::1"), "{error}");
    assert_eq!(world.operations(), Vec::<String>::new());
    world.cluster.put(node("node1", UID_1, &["100.96.0.0/24"], &[("InternalIP", "172.50.0.14")]));
    world.create().await.unwrap();
    assert_eq!(world.object(ID_1)["next_hops"][0]["ip_address"], "172.50.0.14");
    assert!(world.cluster.node("node1").is_some());
}

// vectors: RT-08
#[tokio::test]
async fn rt_08_a_route_is_read_and_deleted() {
    let model =
        model().object(&format!("{ROUTER}/static-routes/{ID_2}"), of_go("node2", "100.96.1.0/24", "172.50.0.137"));
    let world = World::with(model, Some("uid")).await;
    world.cluster.put(node("node2", UID_2, &[], &[]));
    let listed = world.list().await;
    world.sent();
    world.delete(&listed[0]).await.unwrap();
    let path = format!("{API}{ROUTER}/static-routes/{ID_2}");
    let sent = world.sent();
    let shown: Vec<_> = sent.iter().map(|one| (one.method.as_str(), one.path.as_str(), one.status)).collect();
    assert_eq!(shown, [("GET", &*path, Some(200)), ("DELETE", &*path, Some(200))]);
    assert_eq!(world.objects(), Vec::<serde_json::Value>::new());
}

/// Uses the exact answer of the vector.
// vectors: RT-09
#[tokio::test]
async fn rt_09_a_realized_route_is_accepted() {
    const ANSWER: &str = include_str!("rt_09.json");
    assert!(ANSWER.contains(ID_2));
    let world = World::with(Model::empty().tier1("test-t1"), Some("uid")).await;
    world.cluster.put(node("node2", UID_2, &["100.96.1.0/24"], &[("InternalIP", "172.50.0.137")]));
    world.fake.next("GET realized-entities", Trouble::answer(200, "application/json", ANSWER));
    world.create_for("node2", UID_2, "100.96.1.0/24").await.unwrap();
    assert_eq!(world.operations(), ["GET static-routes", "PATCH static-routes", "GET realized-entities"]);
    assert_eq!(world.routes.list_routes(NAME).await.unwrap()[0].target_node_addresses.len(), 1);
}
