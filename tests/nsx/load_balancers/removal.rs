//! An administrator deletes parts of a load balancer by force, although other objects refer to them. Then the Service
//! changes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{Model, Realization, Trouble};

use super::orphans::reading;
use super::world::*;
use crate::routes::world::node;
use crate::world::advance;
use ccm::providers::vsphere::config::IpPool;

/// Pause before a retry that needs a change by an operator.
const LATER: Duration = Duration::from_secs(300);

/// Returns the only object of this collection.
fn only(world: &World, collection: &str) -> Value {
    let objects = world.objects(collection);
    assert_eq!(objects.len(), 1, "{objects:#?}");
    objects[0].clone()
}

#[tokio::test]
async fn parts_that_are_gone_are_created_before_what_refers_to_them_changes() {
    for collection in ["lb-monitor-profiles", "lb-pools"] {
        let mut world = World::start(Some(UID)).await;
        let before = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
        let path = only(&world, collection)["path"].as_str().unwrap().to_owned();
        assert!(world.fake.force_delete_by_hand("operator", &path), "{path}");
        // The next process reads all objects, and finds other nodes and another node port.
        world.restart();
        world.cluster.remove("n2");
        world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
        let changed = moved(&before, &[("TCP", 80, 30090)]);
        let ensured = world.ensure(&changed).await.unwrap_or_else(|error| panic!("{collection}: {error}"));
        assert_eq!(addresses(&ensured), addresses(&status_of(&before)), "{collection}");
        assert_eq!(world.counted(), [1, 1, 1, 1, 1], "{collection}");
        let (pool, server) = (only(&world, "lb-pools"), only(&world, "lb-virtual-servers"));
        let monitor = only(&world, "lb-monitor-profiles");
        assert_eq!(World::members(&pool), ["10.0.0.1".to_owned(), "10.0.0.3".to_owned()].into());
        assert_eq!(pool["active_monitor_paths"], json!([monitor["path"]]));
        assert_eq!(monitor["monitor_port"], json!(30090));
        assert_eq!(server["pool_path"], pool["path"]);
        assert_eq!(server["default_pool_member_ports"], json!(["30090"]));
    }
}

/// The virtual server of an unknown cluster with this name may have any address.
#[tokio::test]
async fn an_allocation_without_address_is_released_beside_a_virtual_server_that_is_held() {
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    let world = async || {
        let world = World::with(Model::small().tier1("t2"), Some(UID), config()).await;
        let mut held = GoBalancer::new(NAME, "ns/s", "192.0.2.60".parse().unwrap());
        held.tier1_path = "/infra/tier-1s/t2".to_owned();
        drop(held.put(&world.fake, "operator"));
        world
    };
    let own = |world: &World| {
        let is_own = |object: &Value| object["tags"].to_string().contains(UID);
        world.objects("ip-allocations").iter().filter(|object| is_own(object)).count()
    };

    // NSX has no free address, and the process cannot release the allocation.
    let mut refused = world().await;
    let exhausted = Realization::Error(std::time::Duration::ZERO, 8212, "the pool is exhausted".to_owned());
    refused.fake.set_realization("ip-allocations", exhausted);
    refused.fake.every("DELETE ip-allocations", Trouble::overloaded());
    refused.ensure(&one).await.unwrap_err();
    assert_eq!(own(&refused), 1);
    refused.fake.clear();
    refused.restart();
    refused.delete(&one).await.unwrap();
    assert_eq!((own(&refused), refused.objects("lb-virtual-servers").len()), (0, 1));
}

/// The Service belonged to this process, then to another one, and is deleted by this one. The cached state of this
/// process is stale.
#[tokio::test]
async fn a_service_that_comes_back_to_be_deleted_is_looked_at_again() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    let other = World::on(Arc::clone(&world.fake), NAME, Some(UID), config());
    other.delete(&one).await.unwrap();
    for _ in 0..2 {
        reading(&world).await;
    }
    support::eventually("it is gone", crate::world::SOON, async || {
        let shown = world.get(&one).await;
        if matches!(shown, Ok(None)) { Ok(()) } else { Err(format!("{shown:?}")) }
    })
    .await;
    let again = other.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.delete(&again).await.unwrap();
    assert_eq!(world.counted()[1..], [0; 4]);
}

/// The process ended before the release of the address. The next process has another pool for the class.
#[tokio::test]
async fn an_address_of_a_pool_that_is_no_longer_configured_is_released() {
    let left = [("DELETE ip-allocations", [0, 0, 0, 1]), ("DELETE lb-monitor-profiles", [0, 0, 1, 1])];
    for (uid, (refused, left)) in [Some(UID), None].into_iter().flat_map(|uid| left.map(|left| (uid, left))) {
        let model = Model::small().ip_pool("p2", "pool2", "198.51.100.0/24", &[("198.51.100.5", "198.51.100.50")]);
        let model = model.ip_pool("p3", "of somebody else", "203.0.113.0/24", &[("203.0.113.5", "203.0.113.50")]);
        let mut world = World::with(model, uid, config()).await;
        world.fake.deny("admin", "/infra/ip-pools/p3");
        let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
        world.fake.every(refused, Trouble::overloaded());
        world.delete(&one).await.unwrap_err();
        let mut other = config();
        other.common.pool = Some(IpPool::Id("p2".to_owned()));
        world.restart_as_configured(other);
        world.fake.clear();
        assert_eq!(world.counted()[1..], left);
        world.delete(&one).await.unwrap();
        assert_eq!(world.counted()[1..], [0; 4], "{refused} {uid:?}");
    }
}

/// The account may use its pools but not list them.
#[tokio::test]
async fn pools_that_may_not_be_listed_keep_no_other_service_waiting() {
    let world = World::start(Some(UID)).await;
    let other = world.ensured(&service("ns/other", &[("TCP", 80, 30080)])).await;
    world.fake.deny("admin", "LIST ip-pools");
    let gone = with_status(service("ns/gone", &[("TCP", 80, 30081)]), status_of(&other));
    for _ in 0..2 {
        let error = world.delete(&gone).await.unwrap_err();
        assert_eq!((word(&error).as_str(), error.retry_after()), ("NSXNoPermission", Some(LATER)), "{error}");
    }
    world.delete(&other).await.unwrap();
    world.ensured(&service("ns/new", &[("TCP", 80, 30082)])).await;
    world.fake.allow("admin", "LIST ip-pools");
    advance(LATER).await;
    world.delete(&gone).await.unwrap();
}

#[tokio::test]
async fn the_finalizer_stays_while_the_load_balancer_service_cannot_be_deleted_for_a_moment() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.fake.every("DELETE lb-services", Trouble::overloaded());
    assert_eq!(word(&world.delete(&one).await.unwrap_err()), "NSXUnavailable");
    assert_eq!(world.counted(), [1, 0, 0, 0, 0]);
    world.fake.clear();
    world.delete(&one).await.unwrap();
    assert_eq!(world.counted(), [0; 5]);
}

/// The last other virtual server is deleted during a creation, which then fails.
#[tokio::test]
async fn a_load_balancer_service_that_a_failing_creation_may_use_is_deleted_after_it() {
    let world = World::start(Some(UID)).await;
    let old = world.ensured(&service("ns/old", &[("TCP", 80, 30080)])).await;
    let new = service("ns/new", &[("TCP", 80, 30081)]);
    world.fake.next("PUT lb-virtual-servers", Trouble::error(400, Some(23_500)));
    let (created, deleted) = world.during("PUT lb-pools", world.try_ensure(&new), world.delete(&old)).await;
    deleted.unwrap();
    assert_eq!(word(&created.unwrap_err()), "NSXRefused");
    assert_eq!(world.fake.counts().of("DELETE lb-services"), 0);
    // The pool and the monitor of the failed creation stay for its retry.
    for _ in 0..2 {
        reading(&world).await;
    }
    until("it is deleted", [0, 0, 1, 1, 0], || world.counted()).await;
    world.ensured(&new).await;
}
