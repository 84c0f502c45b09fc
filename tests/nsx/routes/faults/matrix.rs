//! Every known fault of a manager, during a list, a creation, an update and a deletion.
//!
//! During the fault no object of another owner changes, and no existing route is treated as absent. After the fault one
//! pass leaves the same routes as at a manager without a fault, and a new process changes nothing.

use std::sync::Arc;
use std::time::Duration;

use ccm::cloud::Routes as _;
use ccm::providers::vsphere::nsx::routes::Adoption;
use serde_json::{Value, json};
use support::FakeNsx;
use support::fake_nsx::Behaviour;

use crate::matrix::{Row, TIMEOUTS, block_on, prove_all, rows};
use crate::routes::world::{NAME, ROUTER, World, model, node, of_go};
use crate::world::advance;

/// Operations with the fault: the list, the read before each change, the creation, the update, the deletion, and the
/// wait until a route is realized.
const OPERATIONS: [&str; 7] = [
    "LIST static-routes",
    "GET static-routes",
    "PATCH static-routes",
    "PUT static-routes",
    "DELETE static-routes",
    "GET realized-entities",
    "GET realized-status",
];

/// Limit for the recovery after the end of the fault.
const END: Duration = Duration::from_secs(60);

/// Routes that never change: of another cluster, of another cluster with the same name, without any tag, and one
/// without evidence that it belongs to this cluster.
const OTHERS: [&str; 4] = ["other-name", "other-uid", "by-hand", "held"];

fn uid(number: usize) -> String {
    format!("0000000{number}-0000-4000-8000-000000000000")
}

fn network(number: usize) -> String {
    format!("100.96.{number}.0/24")
}

fn id(number: usize) -> String {
    format!("{}_100.96.{number}.0_24", uid(number))
}

fn put_node(world: &World, number: usize, address: &str) {
    let networks = [network(number)];
    world.cluster.put(node(
        &format!("node{number}"),
        &uid(number),
        &[networks[0].as_str()],
        &[("InternalIP", address)],
    ));
}

/// Returns a world with one route to update, one to create, one to delete, and one that stays.
async fn scene(behaviour: Behaviour) -> World {
    let mut of_other_uid = of_go("node1", "100.97.1.0/24", "172.50.9.9");
    of_other_uid["tags"].as_array_mut().unwrap().push(json!({"scope": "vsphere.k8s.io/cluster-uid", "tag": "other"}));
    let mut of_other_name = of_go("node1", "100.97.0.0/24", "172.50.9.9");
    of_other_name["tags"][0]["tag"] = json!("other");
    let mut by_hand = of_go("node1", "100.97.2.0/24", "172.50.9.9");
    by_hand["tags"] = json!([]);
    let held = of_go("node9", "100.97.3.0/24", "172.50.9.9");
    let model = OTHERS
        .into_iter()
        .zip([of_other_name, of_other_uid, by_hand, held])
        .fold(model().behaviour(behaviour), |model, (id, body)| {
            model.object(&format!("{ROUTER}/static-routes/{id}"), body)
        });
    let fake = Arc::new(FakeNsx::start(model).await);
    let world = World::on_time(fake, Some("uid"), TIMEOUTS);
    for number in [1, 3, 4] {
        put_node(&world, number, &format!("172.50.0.{number}"));
    }
    world.work(world.plan().await).await;
    put_node(&world, 1, "172.50.0.99");
    put_node(&world, 2, "172.50.0.2");
    world.cluster.remove("node3");
    world
}

/// Returns the routes after a pass at a manager without a fault.
async fn undisturbed(behaviour: Behaviour) -> Arc<[Value]> {
    let world = scene(behaviour).await;
    world.pass().await;
    essence(&world)
}

/// Returns the relevant fields of all routes on the router.
fn essence(world: &World) -> Arc<[Value]> {
    let of_one = |object: Value| {
        let members = ["id", "display_name", "network", "next_hops", "tags"];
        members.map(|name| (name, object[name].clone())).into_iter().collect()
    };
    world.objects().into_iter().map(of_one).collect()
}

/// Makes one pass, with any result.
async fn pass_in_trouble(world: &World, row: &Row, name: &str) {
    let Ok(listed) = world.routes.list_routes(NAME).await else { return };
    let ids: Vec<&str> = listed.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(ids, [id(1), id(3), id(4)], "{name}: what is there and ours is listed");
    for outcome in world.work(world.plan_of(&listed)).await {
        let path = world.path(&outcome.route.name);
        let is_gone = outcome.is_deletion && outcome.result.is_ok();
        let is_said = row.says_gone || row.says_marked;
        assert!(!is_gone || is_said || world.fake.object(&path).is_none(), "{name}: {path} is called gone");
    }
}

type Case = (Row, &'static str, (&'static str, Behaviour), Arc<[Value]>);

async fn prove((row, operation, (manager, behaviour), expected): Case) {
    let name = format!("{}, {operation}, {manager}", row.name);
    let name = name.as_str();
    let mut world = scene(behaviour).await;
    let seen = world.fake.history().len();
    world.fake.every(operation, (row.trouble)());
    pass_in_trouble(&world, &row, name).await;
    world.fake.clear();
    advance(END).await;
    for outcome in world.work(world.plan().await).await {
        assert!(outcome.result.is_ok(), "{name}: {:?}: {:?}", outcome.route, outcome.result);
    }
    for version in world.history(seen) {
        let number = (1..=3).find(|number| version.path == world.path(&id(*number)));
        assert!(number.is_some(), "{name}: it is not for this program to change: {version:?}");
        assert!(version.object.is_some() || number == Some(3), "{name}: its Node is here: {version:?}");
    }
    assert_eq!(essence(&world), expected, "{name}");
    let written = world.fake.history().len();
    world.restart(Adoption::AsIs);
    assert!(world.plan().await.is_empty(), "{name}");
    world.pass().await;
    assert_eq!(world.history(written), [], "{name}");
}

#[test]
fn routes_survive_every_answer_and_are_as_from_scratch_when_it_is_over() {
    let mut cases = Vec::new();
    for behaviour in Behaviour::ALL {
        let expected = block_on(undisturbed(behaviour.1));
        for row in rows() {
            cases.extend(OPERATIONS.map(|operation| (row.clone(), operation, behaviour, Arc::clone(&expected))));
        }
    }
    prove_all(cases, prove);
}
