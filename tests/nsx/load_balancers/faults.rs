//! One fault at each call in the life of a load balancer. The final state is the same as without a fault, no object of
//! another owner changes, and no error is treated as absence.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm::cloud::Error;
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{Behaviour, HierarchicalPatch, Model, Trouble};

use super::world::*;
use crate::routes::world::node;
use crate::world::advance;

/// Limit on the test's clock, which advances a minute with every tenth check.
const LIMIT: Duration = Duration::from_secs(3600);

/// A fault with its name.
type Named = (&'static str, fn() -> Trouble);

/// Faults of one call.
const TROUBLES: [Named; 11] = [
    ("drop", || Trouble::Drop),
    ("lose", || Trouble::Lose),
    ("cut", || Trouble::Cut(5)),
    ("throttled", || Trouble::throttled().into()),
    ("overloaded", || Trouble::overloaded().into()),
    ("aborted", || Trouble::aborted().into()),
    ("conflict", || Trouble::conflict().into()),
    ("expired", || Trouble::expired().into()),
    ("page of a proxy", || Trouble::unavailable().into()),
    ("portal", || Trouble::portal().into()),
    ("no permission", || Trouble::error(403, Some(403)).into()),
];

/// Returns the objects of a cluster with another name and of an administrator.
fn foreign(world: &World) -> Vec<Value> {
    let foreign = world.fake.objects().into_iter().filter(|object| object.to_string().contains("foreign"));
    foreign.map(|object| world.object(object["path"].as_str().unwrap()).unwrap_or_default()).collect()
}

async fn world() -> World {
    let world = World::with(Model::small().tier1("t2"), Some(UID), config()).await;
    let mut other = GoBalancer::new("foreign", "ns/s", "192.0.2.90".parse().unwrap());
    other.tier1_path = "/infra/tier-1s/t2".to_owned();
    other.put(&world.fake, "go");
    world
}

/// Repeats a failed call as the controller does, while the test's clock runs fast.
async fn until_done<T>(what: &str, world: &World, mut act: impl AsyncFnMut() -> Result<T, ccm::cloud::Error>) -> T {
    let mut looks = 0;
    support::eventually(what, LIMIT, async || match act().await {
        Ok(done) => Ok(done),
        Err(error) => {
            // The clock advances rarely, so that no call in flight exceeds its time limit.
            if looks % 10 == 0 {
                world.balancers.read_again();
                advance(Duration::from_secs(61)).await;
            }
            looks += 1;
            Err(error.to_string())
        }
    })
    .await
}

/// Creates a load balancer, changes a node and a port, and deletes it. Returns the objects before the deletion.
async fn life(what: &str, world: &World) -> Vec<Value> {
    let one = service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)]);
    let status = until_done(what, world, async || world.ensure(&one).await).await;
    let one = with_status(one, status.clone());
    world.cluster.remove("n2");
    world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
    until_done(what, world, async || world.update(&[&one]).await.pop().unwrap()).await;
    let moved = with_status(service("ns/s", &[("TCP", 81, 30090), ("UDP", 80, 30081)]), status);
    until_done(what, world, async || world.ensure(&moved).await).await;
    assert_eq!(world.handed_back(&[&moved]), Vec::<String>::new(), "{what}");
    let kinds = ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"];
    let fields = ["ip_address", "ports", "default_pool_member_ports", "members", "monitor_port", "tags"];
    let shown = |object: Value| fields.iter().map(|field| object[*field].clone()).collect::<Value>();
    let is_own = |object: &Value| !object.to_string().contains("foreign");
    let objects = kinds.into_iter().flat_map(|kind| world.objects(kind)).filter(is_own).map(shown).collect();
    until_done(what, world, async || world.delete(&moved).await).await;
    objects
}

/// Kinds of faults that are representative for reads.
const OF_READS: [&str; 4] = ["drop", "overloaded", "expired", "portal"];

/// Tests every fourth fault, from this one on.
async fn every_fourth(from: usize) {
    let whole = world().await;
    let expected = life("without a fault", &whole).await;
    let operations: BTreeSet<String> = whole.sent().into_iter().collect();
    assert!(operations.len() > 15, "{operations:?}");
    let is_read = |operation: &str| operation.starts_with("GET") || operation.starts_with("LIST");
    let faults = operations.iter().flat_map(|operation| TROUBLES.map(|(name, trouble)| (operation, name, trouble)));
    let faults = faults.filter(|(operation, name, _)| !is_read(operation) || OF_READS.contains(name));
    for (operation, name, trouble) in faults.skip(from).step_by(4) {
        let what = format!("{name} at {operation}");
        let world = world().await;
        let before = foreign(&world);
        world.fake.next(operation, trouble());
        assert_eq!(life(&what, &world).await, expected, "{what}");
        let services = world.objects("lb-services").len();
        assert_eq!(world.counted(), [services, 1, 1, 1, 1], "{what}: what is foreign stays, and nothing else");
        assert_eq!(foreign(&world), before, "{what}");
    }
}

#[tokio::test]
async fn one_fault_at_any_call_changes_nothing_in_the_end_1() {
    every_fourth(0).await;
}

#[tokio::test]
async fn one_fault_at_any_call_changes_nothing_in_the_end_2() {
    every_fourth(1).await;
}

#[tokio::test]
async fn one_fault_at_any_call_changes_nothing_in_the_end_3() {
    every_fourth(2).await;
}

#[tokio::test]
async fn one_fault_at_any_call_changes_nothing_in_the_end_4() {
    every_fourth(3).await;
}

#[tokio::test]
async fn a_manager_without_requests_for_several_objects_gets_one_for_each() {
    for patch in [HierarchicalPatch::Forbidden, HierarchicalPatch::NotFound, HierarchicalPatch::NotAllowed] {
        let world = world().await;
        world.fake.set_behaviour(support::fake_nsx::Behaviour { hierarchical_patch: patch, ..world.fake.behaviour() });
        let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)])).await;
        world.sent();
        for (removed, expected) in [
            ("n1", &["LIST lb-pools", "PATCH infra", "PUT lb-pools", "PUT lb-pools"][..]),
            ("n2", &["LIST lb-pools", "PUT lb-pools", "PUT lb-pools"]),
        ] {
            world.cluster.remove(removed);
            assert!(world.update(&[&one]).await.iter().all(Result::is_ok), "{patch:?}");
            assert_eq!(world.sent(), expected, "{patch:?}");
        }
    }
}

/// The daemon finds the bad pool by bisection, and the other pools get their nodes.
#[tokio::test]
async fn a_pool_that_nsx_refuses_keeps_no_other_from_its_nodes() {
    let world = world().await;
    let mut services = Vec::new();
    for number in 0..9u16 {
        services.push(world.ensured(&service(&format!("ns/s{number}"), &[("TCP", 80, 30080 + number)])).await);
    }
    // The monitor of this pool was deleted, so that NSX rejects each write of the pool.
    let pools = world.objects("lb-pools");
    let bad = pools.iter().find(|pool| pool.to_string().contains("ns/s4")).unwrap();
    let monitor = bad["active_monitor_paths"][0].as_str().unwrap().to_owned();
    world.fake.force_delete_by_hand("admin", &monitor);
    world.cluster.remove("n2");
    let all: Vec<&Service> = services.iter().collect();
    let results = world.update(&all).await;
    let failed: Vec<usize> = (0..9).filter(|number| results[*number].is_err()).collect();
    assert_eq!(failed, [4], "{results:?}");
    for pool in world
        .objects("lb-pools")
        .iter()
        .filter(|pool| pool.to_string().contains("ns/s") && !pool.to_string().contains("foreign"))
    {
        let expected = if pool["path"] == bad["path"] { 2 } else { 1 };
        assert_eq!(World::members(pool).len(), expected, "{pool}");
    }
    // The next sync creates the monitor again, and the nodes follow.
    world.balancers.read_again();
    advance(Duration::from_secs(10)).await;
    until_done("the bad one", &world, async || {
        let one = &services[4];
        world.ensure(one).await?;
        match World::members(&world.fake.object(bad["path"].as_str().unwrap()).unwrap()).len() {
            1 => Ok(()),
            _ => Err(ccm::cloud::Error::other("it has both nodes")),
        }
    })
    .await;
    assert_eq!(world.handed_back(&all), Vec::<String>::new());
}

/// NSX rejects the request for several pools.
#[tokio::test]
async fn a_pool_that_the_account_may_not_write_does_not_turn_requests_for_several_pools_off() {
    let world = world().await;
    let mut services = Vec::new();
    for number in 0..3u16 {
        services.push(world.ensured(&service(&format!("ns/s{number}"), &[("TCP", 80, 30080 + number)])).await);
    }
    let pools = world.objects("lb-pools");
    let denied = pools.iter().find(|pool| pool.to_string().contains("ns/s1")).unwrap()["path"].as_str().unwrap();
    world.fake.deny_writes("admin", denied);
    let all: Vec<&Service> = services.iter().collect();
    for (removed, expected) in [("n1", vec![1]), ("n2", vec![1])] {
        world.cluster.remove(removed);
        world.sent();
        let results = world.update(&all).await;
        let failed: Vec<usize> = (0..3).filter(|number| results[*number].is_err()).collect();
        assert_eq!(failed, expected, "{results:?}");
        assert_eq!(world.sent().iter().filter(|operation| *operation == "PATCH infra").count(), 1, "{removed}");
    }
}

/// Another client changes a pool between the read and the write.
#[tokio::test]
async fn a_stale_revision_is_read_and_planned_again() {
    let world = world().await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)])).await;
    world.sent();
    world.cluster.remove("n2");
    world.fake.next("PATCH infra", Trouble::conflict());
    assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
    assert_eq!(world.sent(), ["LIST lb-pools", "PATCH infra", "LIST lb-pools", "PATCH infra"]);
    assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());
}

/// While NSX does not answer, a deletion fails with a reason, and no object is treated as absent.
#[tokio::test]
async fn without_an_answer_nothing_is_absent() {
    let world = world().await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    let mut world = world;
    world.restart();
    for operation in ["LIST lb-services", "LIST lb-virtual-servers", "LIST lb-pools", "LIST ip-allocations"] {
        world.fake.every(operation, Trouble::overloaded());
        until_done("the reason is said", &world, async || match world.delete(&one).await {
            Err(error) if word(&error) == "NSXUnavailable" => Ok(()),
            other => Err(ccm::cloud::Error::other(format!("{other:?}"))),
        })
        .await;
        world.fake.clear();
    }
    assert_eq!(world.objects("lb-virtual-servers").len(), 2);
    until_done("it is deleted", &world, async || world.delete(&one).await).await;
    assert_eq!(world.objects("lb-virtual-servers").len(), 1);
}

/// Each page comes in time, but all pages together take too long.
#[tokio::test]
async fn a_reading_that_takes_longer_than_ten_minutes_fails_and_those_that_wait_learn_it() {
    let behaviour = Behaviour { page_limit: 1, ..Behaviour::USUAL };
    let pool = |number: usize| format!("/infra/lb-pools/by-hand-{number}");
    let model = (0..60).fold(Model::small().behaviour(behaviour), |model, number| {
        model.object(&pool(number), serde_json::json!({"display_name": format!("by hand {number}")}))
    });
    let world = World::with(model, Some(UID), config()).await;
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    // The connection is open after this step.
    assert!(matches!(world.try_ensure(&one).await, Err(Error::Pending { .. })));
    support::eventually("the login", crate::world::SOON, async || match world.fake.counts().of("LIST lb-pools") {
        0 => Err(0),
        _ => Ok(()),
    })
    .await;
    world.fake.delay_calls(Duration::from_secs(20));
    let announced = world.announcement_within(&one, Duration::from_secs(900));
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    announced.await;
    tokio::time::resume();
    assert!((560..660).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    world.fake.delay_calls(Duration::ZERO);
    let announced = world.announcement("ns/s");
    let error = world.try_ensure(&one).await.unwrap_err();
    assert_eq!(word(&error), "NSXUnavailable");
    assert!(error.to_string().contains("not complete after 10 minutes"), "{error}");
    // The next pass serves the Service. One of its calls may still be late.
    advance(Duration::from_secs(20)).await;
    announced.await;
    assert!(world.ensure(&one).await.is_ok());
}
