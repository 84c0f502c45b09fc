//! The documented procedures for a migration from and to the Go program, step by step.

use std::collections::BTreeSet;

use ccm::clients::nsx::{Kind, Timeouts};
use serde_json::Value;
use support::Log;
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::go_rules::{GoProgram, GoWrite};

use super::orphans::reading;
use super::world::*;
use crate::routes::world::client;
use crate::world::{SOON, Term, advance};

/// Order of deletions in the documentation and in NSX. No remaining object refers to a deleted one.
const ORDER: [&str; 6] =
    ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "lb-persistence-profiles", "groups", "ip-allocations"];

/// Deletes these objects in the documented order, as an administrator does. A refusal because of a deleted object is
/// temporary until the purge of that object.
async fn delete_by_page(world: &World, paths: &BTreeSet<String>) {
    let (nsx, (_term, permit)) = (client(&world.fake, Timeouts::default()), Term::begin());
    let is_of = |path: &&String, kind: &str| path.rsplit('/').nth(1) == Some(kind);
    let mut deleted = 0;
    for kind in ORDER {
        for path in paths.iter().filter(|path| is_of(path, kind)) {
            support::eventually(path, SOON, async || match nsx.delete(&permit, path, "test").await {
                Err(error) if error.kind == Kind::Referenced => {
                    advance(std::time::Duration::from_secs(30)).await;
                    Err(error.to_string())
                }
                other => {
                    other.unwrap();
                    Ok(())
                }
            })
            .await;
            deleted += 1;
        }
    }
    assert_eq!(deleted, paths.len(), "the page has each kind of {paths:?}");
}

fn deletions(writes: Vec<GoWrite>) -> BTreeSet<String> {
    let path = |write| match write {
        GoWrite::Delete(path) => path,
        other => panic!("{other}"),
    };
    writes.into_iter().map(path).collect()
}

fn is_second(object: &Value) -> bool {
    object["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag["scope"] == "ipfamily"))
}

/// Returns the paths of all objects of second load balancers.
fn seconds(world: &World) -> BTreeSet<String> {
    let all = world.fake.objects();
    let is_left = |object: &&serde_json::Value| is_second(object) && object["marked_for_delete"] != true;
    all.iter().filter(is_left).map(|object| object["path"].as_str().unwrap().to_owned()).collect()
}

/// Objects that the Go program's clean-up would remove are kept. The test checks log, metric, and the manual deletion.
#[tokio::test]
async fn what_the_clean_up_of_the_go_program_would_have_removed_is_named_and_can_be_deleted_in_order() {
    let log = Log::keep();
    let world = World::start(Some(UID)).await;
    GoBalancer::new(NAME, "ns/used", "192.0.2.70".parse().unwrap()).put(&world.fake, "go");
    let paths = GoBalancer::new(NAME, "ns/gone", "192.0.2.77".parse().unwrap()).put(&world.fake, "go");
    let used = service("ns/used", &[("TCP", 80, 30080)]);
    world.cluster.services.lock().unwrap().insert("ns/used".to_owned(), used.clone());
    let used = world.ensured(&used).await;
    let program = GoProgram::new(NAME);
    let left = deletions(program.cleanup(&world.fake.objects(), std::slice::from_ref(&used)).unwrap());
    assert_eq!(left.len(), 4, "virtual server, pool, monitor and allocation: {left:?} of {paths:?}");

    // Step 1: the log has each object, and the metric counts them.
    until("all of it is held", 4, || world.held()).await;
    let lines = log.lines("neither changed nor deleted");
    for path in &left {
        assert!(lines.iter().any(|line| line.contains(path.as_str())), "{path} in {lines:?}");
    }
    // NSX rejects deletions in another order.
    let (nsx, (_term, permit)) = (client(&world.fake, Timeouts::default()), Term::begin());
    let pool = left.iter().find(|path| path.contains("/lb-pools/")).unwrap();
    let refused = nsx.delete(&permit, pool, "test").await.unwrap_err();
    assert_eq!(refused.kind, Kind::Referenced);

    // Step 2: the deletion. Afterwards neither program has any work.
    delete_by_page(&world, &left).await;
    reading(&world).await;
    until("nothing is held", 0, || world.held()).await;
    assert_eq!(program.cleanup(&world.fake.objects(), std::slice::from_ref(&used)).unwrap(), []);
    assert_eq!(world.handed_back(&[&used]), Vec::<String>::new());
    let seen = world.fake.history().len();
    world.ensure(&used).await.unwrap();
    assert_eq!(world.history(seen), []);
}

/// Before the start of the Go program, this program deletes the second load balancers of Services that get one family.
#[tokio::test]
async fn a_service_that_gets_one_family_before_the_return_leaves_nothing_to_the_go_program() {
    let world = World::dual(Some(UID)).await;
    let one = || service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)]);
    let dual = world.ensured(&of_families(one(), "PreferDualStack", &["IPv4", "IPv6"])).await;
    assert!(!seconds(&world).is_empty());
    let before: Vec<_> = addresses(&status_of(&dual));
    let single = of_families(dual, "SingleStack", &["IPv4"]);
    let single = world.ensured(&single).await;
    assert_eq!(addresses(&status_of(&single)), before[..1], "the address stays");
    assert_eq!(seconds(&world), BTreeSet::new());
    assert_eq!(world.handed_back(&[&single]), Vec::<String>::new());
}

/// The remaining objects of a Service whose first family is IPv6 are deleted by their tag, after the Go program has
/// created its own.
#[tokio::test]
async fn what_is_left_of_second_load_balancers_is_deleted_by_its_tag_after_the_return() {
    let world = World::dual(Some(UID)).await;
    let other = world.ensured(&service("ns/other", &[("TCP", 80, 30090)])).await;
    let alone = of_families(service("ns/s", &[("TCP", 80, 30080)]), "SingleStack", &["IPv6"]);
    let alone = world.ensured(&alone).await;
    let left = seconds(&world);
    let program = GoProgram::new(NAME);
    let (services, nodes) = ([other.clone(), alone.clone()], world.nodes());
    let nodes: Vec<_> = nodes.iter().map(|node| (**node).clone()).collect();
    let objects = world.fake.objects();
    let writes = program.ensure(&objects, &alone, &nodes).unwrap();
    assert!(writes.iter().any(|write| matches!(write, GoWrite::Create("lb-virtual-servers", _))), "{writes:?}");
    assert_eq!(program.cleanup(&objects, &services).unwrap(), [], "it does not find them");
    delete_by_page(&world, &left).await;
    assert_eq!(seconds(&world), BTreeSet::new());
    assert_eq!(program.cleanup(&world.fake.objects(), &services).unwrap(), []);
    assert_eq!(world.handed_back(&[&other]), Vec::<String>::new(), "others are as they were");
}
