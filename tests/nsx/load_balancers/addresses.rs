//! The address of a load balancer: a lost address is reserved again, and an edited address is restored.

use std::net::IpAddr;
use std::time::Duration;

use ccm::cloud::{Error, LoadBalancer as _};
use ccm::providers::vsphere::config::{Class, IpPool, LoadBalancerConfig as Config};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{Behaviour, Model, Trouble};

use super::orphans::reading;
use super::world::*;
use crate::world::advance;

/// Longer than NSX reserves a released address, which is two minutes.
const RELEASED: Duration = Duration::from_secs(121);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn reported(service: &Service) -> Vec<IpAddr> {
    service.status.as_ref().and_then(|status| status.load_balancer.as_ref()).map(addresses).unwrap_or_default()
}

/// Deletes all objects of a Service as an administrator. Afterwards NSX reserves no released address.
async fn remove_all(world: &World, key: &str) {
    for collection in ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"] {
        for object in world.objects(collection) {
            if object["tags"].to_string().contains(&format!("\"{key}\"")) {
                assert!(world.fake.delete_by_hand("operator", object["path"].as_str().unwrap()));
            }
        }
    }
    advance(RELEASED).await;
    readings(world, 2).await;
}

/// Runs this many passes. The last one announces a change of `ns/s`.
async fn readings(world: &World, count: usize) {
    let announced = world.announcement("ns/s");
    for _ in 0..count {
        reading(world).await;
    }
    announced.await;
}

/// Releases the address of the only load balancer as an administrator, and waits until NSX does not reserve it any
/// more.
async fn release(world: &World) {
    let allocation = world.path_of("ip-allocations");
    assert!(world.fake.delete_by_hand("operator", &allocation));
    advance(RELEASED).await;
}

/// Changes the address of the virtual server with this address, as an administrator.
fn edit(world: &World, from: &str, to: &str) {
    let servers = world.objects("lb-virtual-servers");
    let server = servers.iter().find(|server| server["ip_address"] == from).unwrap();
    world.fake.change_by_hand("operator", server["path"].as_str().unwrap(), |object| object["ip_address"] = json!(to));
}

fn remarks(world: &World, service: &Service) -> Vec<String> {
    let given = std::iter::from_fn(|| world.balancers.remark(service));
    given.map(|(reason, message)| format!("{reason}: {message}")).collect()
}

fn servers_at(world: &World) -> Vec<Value> {
    world.objects("lb-virtual-servers").iter().map(|server| server["ip_address"].clone()).collect()
}

#[tokio::test]
async fn a_service_whose_objects_are_lost_gets_the_address_back_that_it_reports() {
    for (name, behaviour) in Behaviour::ALL {
        let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let other = world.ensured(&service("ns/other", &[("TCP", 80, 30081)])).await;
        let lost = world.ensured(&one()).await;
        assert_eq!(reported(&lost), [ip("192.0.2.6")], "{name}");
        world.delete(&other).await.unwrap();
        // A lower address is free now.
        remove_all(&world, "ns/s").await;
        assert_eq!(world.objects("ip-allocations").len(), 0, "{name}");
        assert_eq!(reported(&world.ensured(&lost).await), [ip("192.0.2.6")], "{name}");
        assert_eq!(world.counted(), [1, 1, 1, 1, 1], "{name}");
        // A Service that never had an address gets any address, without a search.
        world.sent();
        assert_eq!(reported(&world.ensured(&other_one()).await), [ip("192.0.2.5")], "{name}");
        let sent = world.sent();
        assert!(!sent.iter().any(|one| one == "LIST ip-subnets" || one == "LIST ip-allocations"), "{name}: {sent:?}");
    }
}

fn other_one() -> Service {
    service("ns/third", &[("TCP", 80, 30083)])
}

#[tokio::test]
async fn an_address_that_another_one_has_meanwhile_is_not_waited_for() {
    let accepting = Behaviour { accepts_any_wish: true, ..Behaviour::USUAL };
    for (name, behaviour) in Behaviour::ALL.into_iter().chain([("accepting", accepting)]) {
        let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let lost = world.ensured(&one()).await;
        remove_all(&world, "ns/s").await;
        let taker = world.ensured(&service("ns/taker", &[("TCP", 80, 30081)])).await;
        assert_eq!(reported(&taker), [ip("192.0.2.5")], "{name}");
        assert_eq!(reported(&world.ensured(&lost).await), [ip("192.0.2.6")], "{name}");
        assert_eq!(world.counted(), [1, 2, 2, 2, 2], "{name}");
    }
}

#[tokio::test]
async fn an_address_that_another_program_has_meanwhile_is_not_waited_for() {
    for (name, behaviour) in Behaviour::ALL {
        let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let lost = world.ensured(&one()).await;
        remove_all(&world, "ns/s").await;
        let path = "/infra/ip-pools/p1/ip-allocations/other";
        world.fake.put_allocation_by_hand("operator", path, json!({}), ip("192.0.2.5"));
        // NSX realizes the allocation.
        advance(Duration::from_secs(1)).await;
        assert_eq!(reported(&world.ensured(&lost).await), [ip("192.0.2.6")], "{name}");
    }
}

#[tokio::test]
async fn the_address_that_a_service_asks_for_goes_before_the_one_that_it_reports() {
    let world = World::start(Some(UID)).await;
    let mut lost = world.ensured(&one()).await;
    remove_all(&world, "ns/s").await;
    lost.spec.as_mut().unwrap().load_balancer_ip = Some("192.0.2.50".to_owned());
    assert_eq!(reported(&world.ensured(&lost).await), [ip("192.0.2.50")]);
}

#[tokio::test]
async fn an_address_of_another_pool_is_not_asked_for() {
    let mut world = World::start(Some(UID)).await;
    let lost = world.ensured(&one()).await;
    remove_all(&world, "ns/s").await;
    world.fake.put_by_hand("operator", "/infra/ip-pools/p2", json!({"display_name": "pool2"}));
    let ranges = json!([{"start": "198.51.100.5", "end": "198.51.100.50"}]);
    let subnet =
        json!({"resource_type": "IpAddressPoolStaticSubnet", "cidr": "198.51.100.0/24", "allocation_ranges": ranges});
    world.fake.put_by_hand("operator", "/infra/ip-pools/p2/ip-subnets/s", subnet);
    let common = Class { pool: Some(IpPool::Id("p2".to_owned())), ..config().common };
    world.restart_as_configured(Config { common, ..config() });
    assert_eq!(reported(&world.ensured(&lost).await), [ip("198.51.100.5")]);
}

#[tokio::test]
async fn both_families_get_their_addresses_back() {
    let world = World::dual(Some(UID)).await;
    let families = |service| of_families(service, "PreferDualStack", &["IPv4", "IPv6"]);
    let other = world.ensured(&families(service("ns/other", &[("TCP", 80, 30081)]))).await;
    let lost = world.ensured(&families(one())).await;
    let before = reported(&lost);
    assert_eq!(before, [ip("192.0.2.6"), ip("2001:db8::6")]);
    world.delete(&other).await.unwrap();
    remove_all(&world, "ns/s").await;
    assert_eq!(reported(&world.ensured(&lost).await), before);
}

#[tokio::test]
async fn an_allocation_that_was_deleted_below_a_virtual_server_is_made_again() {
    for (name, behaviour) in Behaviour::ALL {
        let mut world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let one = world.ensured(&one()).await;
        for is_restarted in [false, true] {
            release(&world).await;
            if is_restarted {
                world.restart();
            } else {
                readings(&world, 2).await;
            }
            assert_eq!(reported(&world.ensured(&one).await), [ip("192.0.2.5")], "{name}");
            assert_eq!(world.counted(), [1; 5], "{name}");
            assert_eq!(remarks(&world, &one), Vec::<String>::new(), "{name}");
        }
        let two = world.ensured(&service("ns/two", &[("TCP", 80, 30081)])).await;
        assert_eq!(reported(&two), [ip("192.0.2.6")], "{name}");
    }
}

#[tokio::test]
async fn an_address_that_cannot_be_reserved_is_said_once_and_the_service_is_served() {
    for (edited, part) in [(None, "192.0.2.5"), (Some("203.0.113.9"), "outside")] {
        let world = World::start(Some(UID)).await;
        let one = world.ensured(&one()).await;
        release(&world).await;
        let path = "/infra/ip-pools/p1/ip-allocations/other";
        world.fake.put_allocation_by_hand("operator", path, json!({}), ip("192.0.2.5"));
        readings(&world, 2).await;
        if let Some(address) = edited {
            edit(&world, "192.0.2.5", address);
            readings(&world, 1).await;
        }
        let address = edited.unwrap_or("192.0.2.5");
        let one = world.ensured(&one).await;
        assert_eq!(reported(&one), [ip(address)]);
        let said = remarks(&world, &one);
        assert!(said.len() == 1 && said[0].starts_with("AddressNotReserved") && said[0].contains(part), "{said:?}");
        world.ensured(&one).await;
        assert_eq!(remarks(&world, &one), Vec::<String>::new(), "it is said once");
        let own = world.objects("ip-allocations").iter().filter(|one| one["tags"].to_string().contains("ns/s")).count();
        assert_eq!((own, servers_at(&world)), (0, vec![json!(address)]));
    }
}

#[tokio::test]
async fn an_allocation_that_one_listing_misses_is_not_made_again() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&one()).await;
    world.restart();
    let empty = Trouble::answer(200, "application/json", r#"{"results": [], "result_count": 0}"#);
    world.fake.next("LIST ip-allocations", empty);
    world.sent();
    assert_eq!(reported(&world.ensured(&one).await), [ip("192.0.2.5")]);
    let sent = world.sent();
    assert!(!sent.iter().any(|one| one.starts_with("PATCH") || one.starts_with("PUT")), "{sent:?}");
}

/// The Go program created the load balancer, and this account may not list the pool, so the allocation may exist.
#[tokio::test]
async fn nothing_is_reserved_in_a_pool_that_cannot_be_listed() {
    let mut world = World::start(Some(UID)).await;
    GoBalancer::new(NAME, "ns/s", ip("192.0.2.77")).put(&world.fake, "go");
    let one = world.ensured(&one()).await;
    world.fake.deny("admin", "/infra/ip-pools/p1");
    world.restart();
    let seen = world.fake.history().len();
    assert_eq!(reported(&world.ensured(&one).await), [ip("192.0.2.77")]);
    assert!(world.history(seen).is_empty());
    assert_eq!(remarks(&world, &one), Vec::<String>::new());
}

#[tokio::test]
async fn an_edited_address_is_set_back_each_time() {
    for (name, behaviour) in Behaviour::ALL {
        let mut world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let one = world.ensured(&one()).await;
        for is_restarted in [false, false, true] {
            edit(&world, "192.0.2.5", "192.0.2.60");
            if is_restarted {
                world.restart();
            } else {
                readings(&world, 1).await;
            }
            assert_eq!(reported(&world.ensured(&one).await), [ip("192.0.2.5")], "{name}");
            assert_eq!(servers_at(&world), [json!("192.0.2.5")], "{name}");
            let said = remarks(&world, &one);
            assert!(said.len() == 1 && said[0].starts_with("LoadBalancerAddressSetBack"), "{name}: {said:?}");
            assert!(said[0].contains("192.0.2.60"), "{name}: {said:?}");
        }
        assert_eq!(world.counted(), [1; 5], "{name}");
    }
}

/// After a restart the address of the allocation is unknown, and NSX does not return it now.
#[tokio::test]
async fn no_edited_address_is_reported_while_the_reserved_one_cannot_be_read() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&one()).await;
    edit(&world, "192.0.2.5", "192.0.2.60");
    world.fake.set_realization("ip-allocations", support::fake_nsx::Realization::Never);
    world.restart();
    let announced = world.announcement("ns/s");
    assert!(matches!(world.try_ensure(&one).await, Err(Error::Pending { .. })));
    announced.await;
    let error = world.late(&one).await;
    assert_eq!(word(&error), "NSXUnavailable", "{error}");
    assert_eq!(servers_at(&world), [json!("192.0.2.60")]);
}

/// A change added this cluster's tag to the load balancer.
#[tokio::test]
async fn an_edited_address_of_the_go_program_stays_unless_it_is_adopted_fully() {
    let mut world = World::start(Some(UID)).await;
    GoBalancer::new(NAME, "ns/s", ip("192.0.2.77")).put(&world.fake, "go");
    world.ensured(&one()).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30090)])).await;
    remarks(&world, &one);
    edit(&world, "192.0.2.77", "192.0.2.60");
    for is_restarted in [false, true] {
        if is_restarted {
            world.restart();
        } else {
            readings(&world, 1).await;
        }
        for is_said in [true, false] {
            assert_eq!(reported(&world.ensured(&one).await), [ip("192.0.2.77")]);
            let said = remarks(&world, &one);
            assert_eq!(said.len(), usize::from(is_said), "{said:?}");
            assert!(said.iter().all(|one| one.starts_with("LoadBalancerAddressEdited") && one.contains("192.0.2.60")));
        }
        assert_eq!(servers_at(&world), [json!("192.0.2.60")]);
    }
    world.restart_adopting_fully();
    assert_eq!(reported(&world.ensured(&one).await), [ip("192.0.2.77")]);
    assert_eq!(servers_at(&world), [json!("192.0.2.77")]);
    assert_eq!(remarks(&world, &one).len(), 1);
}

/// Returns a world whose class has a pool with a subnet from a block.
async fn with_block() -> World {
    let common = Class { pool: Some(IpPool::Id("b".to_owned())), ..config().common };
    let model = Model::small().block_pool("b", "block", "198.51.100.0/28", 8);
    World::with(model, Some(UID), Config { common, ..config() }).await
}

#[tokio::test]
async fn an_address_of_a_block_is_given_and_one_outside_is_refused_by_nsx() {
    let world = with_block().await;
    let wish = |address: &str| {
        let mut one = one();
        one.spec.as_mut().unwrap().load_balancer_ip = Some(address.to_owned());
        one
    };
    let outside = world.ensure(&wish("198.51.100.9")).await.unwrap_err();
    assert_eq!(word(&outside), "AddressUnavailable", "{outside}");
    assert_eq!(world.objects("ip-allocations").len(), 0, "nothing is left");
    let one = world.ensured(&wish("198.51.100.3")).await;
    assert_eq!(reported(&one), [ip("198.51.100.3")]);
    let any = world.ensured(&service("ns/any", &[("TCP", 80, 30081)])).await;
    assert_eq!(reported(&any), [ip("198.51.100.1")]);
    remove_all(&world, "ns/s").await;
    let mut lost = one.clone();
    lost.spec.as_mut().unwrap().load_balancer_ip = None;
    assert_eq!(reported(&world.ensured(&lost).await), [ip("198.51.100.3")]);
}

/// The Service is created again while its allocation is marked for deletion. NSX answers the PATCH of that allocation
/// as if it existed.
#[tokio::test]
async fn an_id_that_is_marked_for_deletion_and_swallows_the_reservation_is_left() {
    let behaviour =
        Behaviour { deletion: Behaviour::THIRD.deletion, swallows_marked_allocation: true, ..Behaviour::USUAL };
    let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
    for _ in 0..3 {
        let one = world.ensured(&one()).await;
        assert_eq!(world.objects("ip-allocations").len(), 1);
        world.delete(&one).await.unwrap();
    }
}

#[tokio::test]
async fn rows_that_name_no_intent_are_of_the_one_that_was_asked_for() {
    let behaviour = Behaviour { rows_name_intents: false, ..Behaviour::USUAL };
    let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
    assert_eq!(reported(&world.ensured(&one()).await), [ip("192.0.2.5")]);
}
