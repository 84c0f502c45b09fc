//! Clusters that share a router, the Go program before and after this one, and routes without evidence of their owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ccm::cloud::{ClusterReads as _, Presence, Route, Routes as _};
use ccm::controllers::route::plan::{DeletionReason, LiveReadVerdict};
use ccm::providers::vsphere::nsx::routes::Adoption;
use proptest::prelude::*;
use serde_json::{Value, json};
use support::fake_nsx::{Behaviour, Deletion};
use support::{FakeNsx, Log};

use super::world::{Cluster, NAME, ROUTER, UID_1, UID_2, World, model, node, of_go, permit, word};

#[derive(Clone, Debug)]
enum Step {
    /// Creates a Node or changes its address.
    Node(usize, u8),
    /// Deletes a Node.
    NoNode(usize),
    Pass,
    /// Creates a route without a request of the controller.
    Create(usize),
    /// Deletes each route on the router, of any owner.
    DeleteAll,
    Restart(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..2_usize, 1..3_u8).prop_map(|(node, address)| Step::Node(node, address)),
        1 => (0..2_usize).prop_map(Step::NoNode),
        3 => Just(Step::Pass),
        1 => (0..2_usize).prop_map(Step::Create),
        1 => Just(Step::DeleteAll),
        1 => any::<bool>().prop_map(Step::Restart),
    ]
}

/// Returns the UID of the n-th Node of a cluster.
fn node_uid(cluster: usize, node: usize) -> String {
    format!("0000000{cluster}-0000-4000-8000-00000000000{node}")
}

fn network(node: usize) -> String {
    format!("100.96.{node}.0/24")
}

/// Executes a step. `site` is the second octet of the addresses.
async fn take(world: &mut World, cluster: usize, site: usize, step: &Step) {
    match step {
        Step::Node(number, address) => {
            let address = format!("172.{site}.{number}.{address}");
            let uid = node_uid(cluster, *number);
            let addresses = [("InternalIP", address.as_str())];
            world.cluster.put(node(&format!("node{number}"), &uid, &[&network(*number)], &addresses));
        }
        Step::NoNode(number) => world.cluster.remove(&format!("node{number}")),
        Step::Pass => world.pass().await,
        Step::Create(number) => {
            // Also for a missing Node, and with the UID of the other cluster's Node.
            for of in [cluster, 1 - cluster] {
                drop(world.create_for(&format!("node{number}"), &node_uid(of, *number), &network(*number)).await);
            }
        }
        Step::DeleteAll => {
            for object in world.objects() {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let tag = |tag: &Value| tag["scope"] == "vsphere.k8s.io/node-name";
                let target = object["tags"].as_array().unwrap().iter().find(|one| tag(one)).unwrap();
                let (name, destination_cidr) = (text(&object["id"]), text(&object["network"]));
                let route = Route { name, target_node: text(&target["tag"]), destination_cidr, ..Route::default() };
                drop(world.delete(&route).await);
            }
        }
        Step::Restart(adopts) => world.restart(if *adopts { Adoption::Full } else { Adoption::AsIs }),
    }
}

fn within_paused_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// L-12, R-02, R-13: each cluster reads its UID or not. Clusters may share addresses if both read their UIDs and
    /// there are no routes of the Go program.
    #[test]
    fn r_13_two_clusters_of_one_name_never_change_a_route_of_the_other(
        steps in prop::collection::vec((0..2_usize, any_step()), 8..40),
        knows in prop_oneof![Just([true, true]), any::<[bool; 2]>()],
        shares_addresses in any::<bool>(),
        opposite in any::<bool>(),
    ) {
        within_paused_time(async {
            let behaviour = if opposite { Behaviour::OPPOSITE } else { Behaviour::USUAL };
            let is_shared = shares_addresses && knows == [true, true];
            let site = |cluster: usize| if is_shared { 50 } else { 50 + cluster };
            // Routes of the Go program for the first Node of each cluster. A Node that is created again immediately
            // needs the id of its route. With `Deletion::AtOnce` the id is free before a purge.
            let mut manager = model().behaviour(Behaviour { deletion: Deletion::AtOnce, ..behaviour });
            for cluster in (0..2).filter(|_| !is_shared) {
                let path = format!("{ROUTER}/static-routes/{}_100.96.0.0_24", node_uid(cluster, 0));
                manager = manager.object(&path, of_go("node0", "100.96.0.0/24", &format!("172.{}.0.1", site(cluster))));
            }
            let fake = Arc::new(FakeNsx::start(manager).await);
            fake.set_limited(false);
            let uids = ["uid-0", "uid-1"];
            let world = |cluster: usize| {
                let uid = Some(uids[cluster]).filter(|_| knows[cluster]);
                World::on(Arc::clone(&fake), uid, ROUTER, Adoption::AsIs)
            };
            let mut worlds = [world(0), world(1)];
            for (cluster, step) in &steps {
                let seen = fake.history().len();
                take(&mut worlds[*cluster], *cluster, site(*cluster), step).await;
                for version in fake.history_from(seen) {
                    let id = version.path.rsplit('/').next().unwrap();
                    let own = format!("0000000{cluster}-");
                    assert!(id.starts_with(&own), "cluster {cluster}, {step:?}: {version:?}");
                }
            }
            // At the end each cluster has the routes of its Nodes.
            for (cluster, world) in worlds.iter().enumerate() {
                world.pass().await;
                for node in world.cluster.nodes() {
                    let uid = node.metadata.uid.clone().unwrap();
                    assert!(world.objects().iter().any(|route| route["id"].as_str().unwrap().starts_with(&uid)));
                }
                let seen = fake.history().len();
                world.pass().await;
                assert_eq!(fake.history().len(), seen, "cluster {cluster} writes nothing more");
            }
        });
    }
}

fn route_of(name: &str, id: &str, network: &str) -> Route {
    let (target_node, destination_cidr) = (name.to_owned(), network.to_owned());
    Route { name: id.to_owned(), target_node, destination_cidr, ..Route::default() }
}

/// Returns a world with two Nodes and the routes of the Go program, one Node with two families.
async fn after_go(adoption: Adoption, uid: Option<&'static str>) -> World {
    let route = |uid: &str, node: &str, network: &str, hop: &str| {
        (format!("{ROUTER}/static-routes/{uid}_{}", network.replace('/', "_")), of_go(node, network, hop))
    };
    let mut manager = model();
    for (path, object) in [
        route(UID_1, "node1", "100.96.0.0/24", "172.50.0.13"),
        route(UID_2, "node2", "100.96.1.0/24", "172.50.0.137"),
        route(UID_2, "node2", "FD00:0001::/64", "fd01::7"),
    ] {
        manager = manager.object(&path, object);
    }
    let world = World::with(manager, uid).await;
    let addresses = [("InternalIP", "172.50.0.137"), ("InternalIP", "FD01::7"), ("ExternalIP", "203.0.113.1")];
    world.cluster.put(node("node2", UID_2, &["100.96.1.0/24", "FD00:0001::/64"], &addresses));
    let mut world = world;
    world.restart(adoption);
    world
}

#[tokio::test]
async fn routes_of_the_go_program_are_kept_and_nothing_is_written() {
    for uid in [Some("uid"), None] {
        let world = after_go(Adoption::AsIs, uid).await;
        let seen = world.fake.history().len();
        for _ in 0..2 {
            assert!(world.plan().await.is_empty());
        }
        assert_eq!(world.operations(), ["LIST static-routes", "LIST static-routes"]);
        assert_eq!((world.fake.history().len(), world.routes.ambiguous_routes()), (seen, 0));
    }
}

#[tokio::test]
async fn a_full_adoption_tags_every_route_of_ours_once() {
    let world = after_go(Adoption::Full, Some("uid")).await;
    let foreign = of_go("node1", "100.99.0.0/24", "10.0.0.1");
    world.fake.put_by_hand("admin", &world.path("held_100.99.0.0_24"), foreign);
    let before: BTreeMap<String, Value> = ids(&world.objects());
    world.sent();
    world.pass().await;
    let puts = world.sent().iter().filter(|one| one.operation == "PUT static-routes").count();
    assert_eq!(puts, 3);
    for (id, after) in ids(&world.objects()) {
        let before = &before[&id];
        let own = json!([{"scope": "cluster-uid", "tag": "uid"},
            {"scope": "owner", "tag": "vsphere-cloud-controller-manager"}]);
        let more = if id.starts_with("held") { json!([]) } else { own };
        let tags = [before["tags"].as_array().unwrap().clone(), more.as_array().unwrap().clone()].concat();
        assert_eq!(after["tags"], json!(tags));
        for member in ["network", "next_hops", "display_name"] {
            assert_eq!(after[member], before[member], "{id}");
        }
    }
    world.pass().await;
    assert_eq!(world.operations(), ["LIST static-routes"]);
    // Without a UID the daemon cannot add the tag.
    let world = after_go(Adoption::Full, None).await;
    world.pass().await;
    assert_eq!(world.operations(), ["LIST static-routes"]);
}

fn ids(objects: &[Value]) -> BTreeMap<String, Value> {
    objects.iter().map(|object| (object["id"].as_str().unwrap().to_owned(), object.clone())).collect()
}

/// Returns the routes that the Go program would create and delete, by the rules in `nsx.md` 5.5 and 5.7. Its search
/// matches scope and value of tags independently. A route stays if the Node in its first node tag has the text of its
/// network.
fn go_changes(objects: &[Value], cluster: &Cluster) -> (Vec<String>, Vec<String>) {
    let tags = |object: &Value| object["tags"].as_array().unwrap().clone();
    let is_found = |object: &&Value| {
        let any = |part: &str, value: &str| {
            tags(object).iter().any(|tag| tag[part].as_str().unwrap().eq_ignore_ascii_case(value))
        };
        any("scope", "vsphere.k8s.io/cluster-name") && any("tag", NAME)
    };
    let listed: Vec<(String, String)> = objects
        .iter()
        .filter(is_found)
        .map(|object| {
            let node = tags(object).into_iter().find(|tag| tag["scope"] == "vsphere.k8s.io/node-name").unwrap();
            (node["tag"].as_str().unwrap().to_owned(), object["network"].as_str().unwrap().to_owned())
        })
        .collect();
    let wanted: Vec<(String, String)> = cluster
        .nodes()
        .flat_map(|node| {
            let name = node.metadata.name.clone().unwrap();
            let networks = node.spec.clone().unwrap().pod_cidrs.unwrap_or_default();
            networks.into_iter().map(move |network| (name.clone(), network))
        })
        .collect();
    let shown = |all: &[(String, String)], but: &[(String, String)]| {
        all.iter().filter(|one| !but.contains(one)).map(|(node, network)| format!("{node} {network}")).collect()
    };
    (shown(&wanted, &listed), shown(&listed, &wanted))
}

#[tokio::test]
async fn the_go_program_keeps_every_route_that_this_program_wrote() {
    for (adoption, uid) in [(Adoption::AsIs, Some("uid")), (Adoption::Full, Some("uid")), (Adoption::AsIs, None)] {
        let world = after_go(adoption, uid).await;
        // A new Node with unusual spellings of its networks, and a Node with another address.
        let addresses = [("InternalIP", "172.50.0.5"), ("InternalIP", "fd01::5")];
        world.cluster.put(node("node3", "uid-3", &["100.96.3.0/24", "FD00:0003:0::/64"], &addresses));
        world.cluster.put(node("node1", UID_1, &["100.96.0.0/24"], &[("InternalIP", "172.50.0.99")]));
        let none = Vec::<String>::new();
        assert_eq!(go_changes(&world.objects(), &world.cluster).0.len(), 2, "the comparison can fail");
        world.pass().await;
        assert_eq!(go_changes(&world.objects(), &world.cluster), (none.clone(), none.clone()), "{adoption:?} {uid:?}");
        world.pass().await;
        assert_eq!(go_changes(&world.objects(), &world.cluster), (none.clone(), none));
        assert_eq!(world.objects().len(), 5);
    }
}

#[tokio::test]
async fn a_node_outside_of_the_selector_keeps_its_route() {
    let of_other = "uid-9_100.96.9.0_24";
    let world = World::start(Some("uid")).await;
    // A route with the tags of this program, and a route of the Go program.
    world.cluster.put(node("node9", "uid-9", &["100.96.9.0/24"], &[("InternalIP", "172.50.0.9")]));
    world.pass().await;
    world.fake.put_by_hand("admin", &world.path("uid-8_100.96.8.0_24"), of_go("node8", "100.96.8.0/24", "172.50.0.8"));
    let outside = world.cluster.node("node9").unwrap();
    world.cluster.remove("node9");
    let plan = world.plan().await;
    let deletions: Vec<_> = plan.values().flat_map(|changes| &changes.deletions).collect();
    assert_eq!(deletions.len(), 1, "{plan:?}");
    assert_eq!((deletions[0].route.name.as_str(), deletions[0].reason), (of_other, DeletionReason::NodeMissing));
    assert_eq!(deletions[0].verdict(Some(&Presence::Exists((*outside).clone()))), LiveReadVerdict::Keep);
    assert_eq!(world.routes.ambiguous_routes(), 1, "of the other Node nothing is known");
}

#[tokio::test]
async fn a_held_route_is_counted_reported_once_and_never_changed() {
    let log = Log::keep();
    let mut world = World::start(Some("uid")).await;
    let held = format!("{UID_2}_100.96.1.0_24");
    world.fake.put_by_hand("admin", &world.path(&held), of_go("node2", "100.96.1.0/24", "172.50.0.137"));
    world.create().await.unwrap();
    for _ in 0..3 {
        assert_eq!(world.list().await.len(), 1);
        assert_eq!(world.routes.ambiguous_routes(), 1);
    }
    assert_eq!(log.lines(&held).len(), 1, "{:?}", log.lines(""));
    let seen = world.fake.history().len();
    let deleted = world.delete(&route_of("node2", &held, "100.96.1.0/24")).await;
    let created = world.create_for("node1", UID_2, "100.96.1.0/24").await;
    for failed in [deleted, created] {
        let error = failed.unwrap_err();
        assert_eq!(word(&error), "RouteNotOurs");
        assert!(error.to_string().contains("\"admin\""), "{error}");
    }
    assert_eq!(world.fake.history().len(), seen);
    // Its Node appears. From then on the route belongs to this cluster, even after the deletion of the Node.
    world.cluster.put(node("node2", UID_2, &["100.96.1.0/24"], &[("InternalIP", "172.50.0.138")]));
    assert_eq!((world.list().await.len(), world.routes.ambiguous_routes()), (2, 0));
    world.cluster.remove("node2");
    assert_eq!((world.list().await.len(), world.routes.ambiguous_routes()), (2, 0));
    // Another process has not observed the Node.
    world.restart(Adoption::AsIs);
    assert_eq!((world.list().await.len(), world.routes.ambiguous_routes()), (1, 1));
}

#[tokio::test]
async fn without_the_uid_of_the_cluster_no_tag_of_it_is_written_and_that_is_logged_once() {
    let log = Log::keep();
    let world = World::start(None).await;
    world.pass().await;
    world.pass().await;
    let tags = world.objects()[0]["tags"].clone();
    assert_eq!(tags, of_go("node1", "", "")["tags"]);
    assert_eq!(log.lines("get no tag with the UID").len(), 1);
    assert!(log.lines("get no tag with the UID")[0].contains("forbidden"));
    assert_eq!(world.cluster.uid_reads.load(Ordering::Relaxed), 1, "it is asked for again after five minutes");
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(301)).await;
    tokio::time::resume();
    world.list().await;
    assert_eq!((log.lines("get no tag with the UID").len(), world.cluster.uid_reads.load(Ordering::Relaxed)), (1, 2));
}

/// A route without the tag would be kept forever after the deletion of its Node and a change of the leader.
#[tokio::test]
async fn an_api_server_without_an_answer_delays_routes_and_leaves_none_without_the_tag() {
    let world = World::start(Some("uid")).await;
    world.cluster.is_down.store(true, Ordering::Relaxed);
    let error = world.create().await.unwrap_err();
    assert_eq!(word(&error), "APIServerUnavailable");
    assert!(world.routes.list_routes("kubernetes").await.is_err());
    assert!(world.objects().is_empty());
    world.cluster.is_down.store(false, Ordering::Relaxed);
    world.create().await.unwrap();
    let tags = world.objects()[0]["tags"].clone();
    assert!(tags.as_array().unwrap().iter().any(|tag| tag["scope"] == "cluster-uid"), "{tags}");
}

/// Removes the tag with the name of the Node, as an administrator may do.
fn untag(world: &World, id: &str) {
    world.fake.change_by_hand("operator", &world.path(id), |object| {
        object["tags"].as_array_mut().unwrap().retain(|tag| tag["scope"] != "vsphere.k8s.io/node-name");
    });
}

#[tokio::test]
async fn a_route_without_the_tag_of_its_node_gets_it_again_and_is_never_gone() {
    for is_restarted in [false, true] {
        let mut world = World::start(Some("uid")).await;
        world.create().await.unwrap();
        let before = world.objects();
        let id = before[0]["id"].as_str().unwrap();
        untag(&world, id);
        if is_restarted {
            world.restart(Adoption::AsIs);
        }
        let seen = world.fake.history().len();
        world.pass().await;
        let versions = world.fake.history_from(seen);
        assert!(versions.len() == 1 && versions[0].object.is_some(), "{is_restarted}: {versions:?}");
        let scopes = |object: &Value| {
            let tags = object["tags"].as_array().unwrap().iter();
            tags.map(|tag| (tag["scope"].to_string(), tag["tag"].to_string())).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(scopes(&world.objects()[0]), scopes(&before[0]), "{is_restarted}");
        assert!(world.plan().await.is_empty());
    }
}

/// The Node may be outside of `--node-selector`, so the cache is no proof.
#[tokio::test]
async fn a_route_without_the_tag_of_its_node_is_deleted_only_after_a_live_read_of_the_node() {
    for is_restarted in [false, true] {
        let mut world = World::start(Some("uid")).await;
        world.create().await.unwrap();
        // The process has cached the Node by its UID. After a restart the display name of the route identifies it.
        world.list().await;
        let id = world.objects()[0]["id"].as_str().unwrap().to_owned();
        let live = (*world.cluster.node("node1").unwrap()).clone();
        untag(&world, &id);
        world.cluster.remove("node1");
        if is_restarted {
            world.restart(Adoption::AsIs);
        }
        let plan = world.plan().await;
        let deletion = plan.values().next().unwrap().deletions[0].clone();
        assert_eq!((deletion.route.target_node.as_str(), deletion.reason), ("node1", DeletionReason::NodeMissing));
        assert!(deletion.needs_live_node(), "{is_restarted}");
        assert_eq!(deletion.verdict(Some(&Presence::Exists(live))), LiveReadVerdict::Keep);
        world.pass().await;
        assert_eq!(world.objects(), Vec::<Value>::new(), "{is_restarted}: no Node of this name");
    }
}

#[tokio::test]
async fn a_route_that_nothing_shows_the_node_of_is_held() {
    let mut world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    let id = world.objects()[0]["id"].as_str().unwrap().to_owned();
    untag(&world, &id);
    world.fake.change_by_hand("operator", &world.path(&id), |object| object["display_name"] = json!("by hand"));
    world.cluster.remove("node1");
    world.restart(Adoption::AsIs);
    let seen = world.fake.history().len();
    world.pass().await;
    assert_eq!((world.routes.ambiguous_routes(), world.fake.history().len()), (1, seen));
}

/// other names, other scopes and other routers.
#[tokio::test]
async fn r_02_only_a_tag_of_scope_and_name_makes_a_route_ours() {
    let world = World::start(Some("uid")).await;
    let tags = |cluster: &str| {
        json!([{"scope": "vsphere.k8s.io/cluster-name", "tag": cluster}, {"scope": "x", "tag": NAME},
            {"scope": "vsphere.k8s.io/node-name", "tag": "node1"}])
    };
    for (number, cluster) in ["kubernetes-2", "KUBERNETES", "kube", ""].into_iter().enumerate() {
        let mut route = of_go("node1", &format!("100.98.{number}.0/24"), "172.50.0.13");
        route["tags"] = tags(cluster);
        world.fake.put_by_hand("admin", &world.path(&format!("{UID_1}_100.98.{number}.0_24")), route);
    }
    let seen = world.fake.history().len();
    assert!(world.list().await.is_empty() && world.routes.ambiguous_routes() == 0);
    for object in world.objects() {
        let (id, network) = (object["id"].as_str().unwrap(), object["network"].as_str().unwrap());
        assert_eq!(word(&world.delete(&route_of("node1", id, network)).await.unwrap_err()), "RouteNotOurs");
        let created = world.routes.create_route(&permit(), NAME, UID_1, &route_of("node1", "", network)).await;
        assert_eq!(word(&created.unwrap_err()), "RouteNotOurs");
    }
    assert_eq!(world.fake.history().len(), seen);
}
