//! The Go program's vectors for the reconciliation of all routes, in its loop.

use ccm::cloud::Route;
use ccm::kubernetes::leadership::Leadership;
use doubles::memory::Call;
use futures::future::join_all;
use support::unique;

use super::cloud::{CLUSTER, Cloud, route};
use super::harness::{Form, Run, Start, looping};

const CREATED: &str = "False RouteCreated";

/// The nodes, the routes before, the routes after, and whether the controller requests changes from the cloud.
struct Vector {
    id: &'static str,
    nodes: Vec<Form>,
    before: Vec<Route>,
    after: Vec<String>,
    is_change: bool,
}

/// Returns the routes for a cloud that compares addresses.
fn addressed(mut routes: Vec<Route>, address: impl Fn(&str) -> Option<&'static str>) -> Vec<Route> {
    for route in &mut routes {
        route.enable_node_addresses = true;
        let new = address(route.target_node.rsplit('-').next().unwrap());
        route.target_node_addresses.truncate(usize::from(new.is_some()));
        for (old, new) in route.target_node_addresses.iter_mut().zip(new) {
            old.address = new.to_owned();
        }
    }
    routes
}

fn full(nodes: &[Form]) -> Vec<Route> {
    let of = |node: &Form| -> Vec<_> {
        node.networks.iter().map(|network| route(&node.name, network, &node.address)).collect()
    };
    nodes.iter().flat_map(of).collect()
}

fn wanted(nodes: &[Form]) -> Vec<String> {
    nodes.iter().flat_map(Form::routes).collect()
}

/// Returns the vectors for nodes whose names begin with `prefix`. R-36 has a node with a duplicate network, which a
/// real API server rejects.
fn vectors(prefix: &str) -> Vec<Vector> {
    let (v4, v6) = (["10.120.0.0/24", "10.120.1.0/24"], ["a00:100::/24", "a00:200::/24"]);
    let named = |number: u8| format!("{prefix}-{number}");
    let node = |number: u8, networks: &[&str]| Form::new(&named(number), networks, &format!("10.0.{number}.1"));
    let single = vec![node(1, &v4[..1]), node(2, &v4[1..])];
    let dual = vec![node(3, &[v4[0], v6[0]]), node(4, &[v4[1], v6[1]])];
    let to = |number: u8, network: &str| route(&named(number), network, "10.0.9.1");
    let blackhole = |network: &str| Route { blackhole: true, target_node_addresses: vec![], ..route("", network, "") };
    let with = |nodes: &[Form], more: Vec<Route>| [full(nodes), more].concat();
    let case = |id, nodes: &[Form], before, is_change| Vector {
        id,
        nodes: nodes.to_vec(),
        before,
        after: wanted(nodes),
        is_change,
    };
    let swapped = vec![to(4, v4[0]), to(3, v4[1]), to(4, v6[0]), to(3, v6[1])];
    let half = vec![full(&dual)[0].clone(), full(&dual)[3].clone()];
    let outside = "10.1.2.0/24";
    vec![
        case("R-20", &dual, addressed(full(&dual), |_| None), true),
        case(
            "R-21",
            &dual,
            addressed(full(&dual), |node| Some(if node == "3" { "10.0.13.1" } else { "10.0.14.1" })),
            true,
        ),
        case("R-22", &dual, vec![], true),
        case("R-23", &dual, full(&dual), false),
        case("R-24", &dual, swapped, true),
        case("R-25", &dual, half, true),
        case("R-26", &dual, with(&dual, vec![to(8, "10.120.2.0/24"), to(9, "a00:300::/24")]), true),
        case("R-27", &single, full(&single), false),
        case(
            "R-28",
            &single,
            addressed(full(&single), |node| Some(if node == "1" { "10.0.1.2" } else { "10.0.2.2" })),
            true,
        ),
        case("R-29", &single, full(&single[..1]), true),
        case("R-30", &single, vec![], true),
        case("R-31", &single, with(&single, vec![to(3, "10.120.2.0/24"), to(4, "10.120.3.0/24")]), true),
        case("R-32", &single, with(&single[..1], vec![to(3, "10.120.2.0/24")]), true),
        case("R-33", &[single[0].clone(), node(2, &[])], vec![], true),
        case("R-34", &single, with(&single, vec![blackhole("10.120.2.0/24")]), true),
        Vector {
            after: [wanted(&single), vec![format!(" {outside}  blackhole")]].concat(),
            ..case("R-35", &single, with(&single, vec![blackhole(outside)]), false)
        },
    ]
}

async fn check(vector: Vector) {
    let Vector { id, nodes, before, after, is_change } = vector;
    let cloud = Cloud::default();
    for route in before {
        cloud.memory.put_route(CLUSTER, route);
    }
    let standby = Run::with(Start { leadership: Leadership::never(), ..Start::of(&cloud, looping()) }).await;
    let mut created = Vec::new();
    for node in &nodes {
        created.push(standby.register(node).await);
    }
    let run = Run::with(Start { group: Some(standby.group.clone()), ..Start::of(&cloud, looping()) }).await;
    run.wait_for_routes(id, &cloud, &after).await;
    run.several_passes(2).await;
    for (node, before) in nodes.iter().zip(&created) {
        if node.networks.is_empty() {
            assert_eq!(run.get(&node.name).await.metadata.resource_version, before.metadata.resource_version, "{id}");
        } else {
            run.wait_for_condition(id, &node.name, CREATED).await;
        }
    }
    let changes = |cloud: &Cloud| cloud.memory.count(Call::CreateRoute) + cloud.memory.count(Call::DeleteRoute);
    let made = changes(&cloud);
    assert_eq!(made > 0, is_change, "{id}");
    let version = async |node: &Form| run.get(&node.name).await.metadata.resource_version;
    let versions = join_all(nodes.iter().map(version)).await;
    run.several_passes(3).await;
    assert_eq!(changes(&cloud), made, "{id}: a pass without a change calls nothing");
    assert_eq!(join_all(nodes.iter().map(version)).await, versions, "{id}: and writes nothing");
    run.wait_for_routes(id, &cloud, &after).await;
}

// vectors
#[tokio::test(flavor = "multi_thread")]
async fn routes_and_conditions_follow_the_nodes_as_in_the_go_program() {
    let all = vectors("n").len();
    let one = |at: usize| check(vectors(&unique("n")).swap_remove(at));
    join_all((0..all).map(one)).await;
}
