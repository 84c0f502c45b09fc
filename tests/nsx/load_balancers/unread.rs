//! Addresses of allocations that NSX does not return now. Unknown is never treated as absent.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{Behaviour, Model, PendingAnswer, Realization, Side, Trouble};

use super::world::*;

const ADDRESS: &str = "192.0.2.77";

fn balancer() -> GoBalancer {
    GoBalancer::new(NAME, "ns/s", ADDRESS.parse().unwrap())
}

fn refused() -> Realization {
    Realization::Error(Duration::ZERO, 8210, "not at the moment".to_owned())
}

/// Returns one world for each possible answer of the realized state while NSX does not return an allocation's address.
async fn not_now() -> Vec<World> {
    let mut worlds = Vec::new();
    for pending in [PendingAnswer::Empty, PendingAnswer::NotFound, PendingAnswer::Unrealized] {
        for realization in [Realization::Never, refused()] {
            let model = Model::small().behaviour(Behaviour { pending, ..Behaviour::USUAL });
            let world = World::with(model, Some(UID), config()).await;
            world.fake.set_realization("ip-allocations", realization);
            worlds.push(world);
        }
    }
    worlds
}

#[tokio::test]
async fn a_service_keeps_its_address_while_nsx_does_not_say_which_allocation_has_it() {
    for world in not_now().await {
        balancer().put(&world.fake, "go");
        let server = world.path_of("lb-virtual-servers");
        world.fake.delete_by_hand("admin", &server);
        let one = reporting(one(), ADDRESS);
        let error = world.ensure(&one).await.unwrap_err();
        assert_eq!((word(&error).as_str(), error.retry_after()), ("NSXUnavailable", Some(Duration::from_secs(10))));
        assert!(error.to_string().contains("/ip-allocations/"), "{error}");
        assert_eq!(world.counted(), [1, 0, 1, 1, 1], "nothing is created");
        world.fake.set_realization("ip-allocations", Realization::After(Duration::ZERO));
        assert_eq!(addresses(&world.ensure(&one).await.unwrap()), [ADDRESS.parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(world.objects("ip-allocations").len(), 1);
    }
}

#[tokio::test]
async fn an_allocation_without_an_address_keeps_no_service_from_another_one() {
    let world = World::start(Some(UID)).await;
    balancer().put_allocation(&world.fake, "go", ADDRESS.parse().unwrap());
    let exhausted = Realization::Error(Duration::ZERO, 8212, "no free address".to_owned());
    world.fake.set_realization(&world.path_of("ip-allocations"), exhausted);
    assert_eq!(addresses(&world.ensure(&reporting(one(), ADDRESS)).await.unwrap()).len(), 1);

    // An allocation that was deleted in the meantime has no address either.
    let world = World::start(Some(UID)).await;
    let path = balancer().put_allocation(&world.fake, "go", ADDRESS.parse().unwrap());
    world.ensured(&service("ns/other", &[("TCP", 80, 30081)])).await;
    world.fake.delete_by_hand("admin", &path);
    assert_eq!(addresses(&world.ensure(&reporting(one(), ADDRESS)).await.unwrap()).len(), 1);

    // An allocation that cannot belong to the Service does not block it either.
    let world = World::start(Some(UID)).await;
    let path = balancer().put_allocation(&world.fake, "go", ADDRESS.parse().unwrap());
    world.fake.set_realization(&path, Realization::Never);
    assert_eq!(addresses(&world.ensure(&one()).await.unwrap()).len(), 1);
}

#[tokio::test]
async fn the_finalizer_stays_while_nsx_does_not_say_which_allocation_has_the_address() {
    for is_whole in [true, false] {
        for world in not_now().await {
            match is_whole {
                true => drop(balancer().put(&world.fake, "go")),
                false => drop(balancer().put_allocation(&world.fake, "go", ADDRESS.parse().unwrap())),
            }
            let seen = world.fake.history().len();
            let error = world.delete(&reporting(one(), ADDRESS)).await.unwrap_err();
            assert_eq!(word(&error), "NSXUnavailable", "{error}");
            assert!(world.history(seen).is_empty(), "what shows whose it is stays");
            world.fake.set_realization("ip-allocations", Realization::After(Duration::ZERO));
            world.delete(&reporting(one(), ADDRESS)).await.unwrap();
            assert_eq!(world.counted()[1..], [0; 4]);
        }
    }
    // A deletion does not need an address that never existed.
    let world = World::start(Some(UID)).await;
    let path = balancer().put_allocation(&world.fake, "go", ADDRESS.parse().unwrap());
    world.fake.set_realization(&path, Realization::Never);
    world.delete(&one()).await.unwrap();
    let exhausted = Realization::Error(Duration::ZERO, 8212, "no free address".to_owned());
    world.fake.set_realization(&path, exhausted);
    world.delete(&reporting(one(), ADDRESS)).await.unwrap();
    assert!(world.fake.object(&path).is_some());
}

/// The first list of a term lacks the virtual server, and the allocation has a temporary error.
#[tokio::test]
async fn an_error_of_the_moment_does_not_release_the_address_in_use() {
    for has_status in [true, false] {
        let mut world = World::start(Some(UID)).await;
        let before = world.ensured(&one()).await;
        let address = addresses(before.status.as_ref().and_then(|status| status.load_balancer.as_ref()).unwrap());
        let one = if has_status { before } else { one() };
        world.restart();
        world.fake.set_realization("ip-allocations", refused());
        let without = Trouble::Rewrite(|_| "{\"results\": [], \"result_count\": 0}".to_owned());
        world.fake.next("LIST lb-virtual-servers", without);
        let seen = world.fake.history().len();
        let first = world.ensure(&one).await;
        if has_status {
            assert_eq!(word(&first.unwrap_err()), "AddressUnavailable");
        }
        world.balancers.read_again();
        crate::world::advance(Duration::from_secs(10)).await;
        world.fake.set_realization("ip-allocations", Realization::After(Duration::ZERO));
        assert_eq!(addresses(&world.ensure(&one).await.unwrap()), address);
        assert!(world.history(seen).is_empty(), "{has_status}: nothing is released or created");
    }
}

/// Ends the process after it has reserved an address, and before the answer.
async fn end_after_reservation(world: &mut World, service: &Service) {
    let hold = world.fake.hold_operation("PATCH ip-allocations", 1, Side::Answer);
    tokio::select! {
        biased;
        () = hold.wait() => {}
        ended = world.ensure(service) => panic!("{ended:?}"),
    }
    world.restart();
    hold.release();
}

/// The process ended after the reservation of an address, and NSX finally assigns none.
#[tokio::test]
async fn an_allocation_that_gets_no_address_and_that_nothing_uses_is_released() {
    let mut world = World::start(Some(UID)).await;
    let one = one();
    end_after_reservation(&mut world, &one).await;
    world.fake.set_realization("ip-allocations", refused());
    assert_eq!(word(&world.ensure(&one).await.unwrap_err()), "AddressUnavailable");
    assert_eq!(world.objects("ip-allocations").len(), 0);
}

/// The process ended before the release of the allocation, and the pool has a free address again.
#[tokio::test]
async fn an_allocation_that_got_no_address_before_is_replaced_at_once() {
    // The id cannot be used again immediately.
    let behaviour = Behaviour { deletion: Behaviour::THIRD.deletion, ..Behaviour::USUAL };
    let mut world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
    let one = one();
    end_after_reservation(&mut world, &one).await;
    let path = world.path_of("ip-allocations");
    let exhausted = Realization::Error(Duration::ZERO, 8212, "no free address".to_owned());
    world.fake.set_realization(&path, exhausted);
    assert_eq!(addresses(&world.ensure(&one).await.unwrap()).len(), 1);
    assert!(world.fake.object(&path).is_none_or(|object| object["marked_for_delete"] == json!(true)));
    assert_eq!(world.objects("ip-allocations").len(), 1);
}

/// Of several unread allocations the daemon finds the one in use, with any answer for the others.
#[tokio::test]
async fn an_error_of_one_allocation_keeps_no_other_one_from_being_read() {
    for number in 0..6 {
        let mut world = World::start(Some(UID)).await;
        let one = world.ensured(&one()).await;
        let used = world.path_of("ip-allocations");
        let mut balancer = balancer();
        balancer.tags.insert("cluster-uid".to_owned(), UID.to_owned());
        let other = balancer.put_allocation(&world.fake, "go", ADDRESS.parse().unwrap());
        world.fake.set_realization(&other, refused());
        world.restart();
        world.ensure(&one).await.unwrap();
        assert!(world.fake.object(&used).is_some(), "{number}");
        assert!(world.fake.object(&other).is_none(), "{number}: it has no address, and the one in use is known");
    }
}

#[tokio::test]
async fn a_wished_address_that_the_service_has_reserved_already_is_not_in_use() {
    for uid in [Some(UID), None] {
        let world = World::start(uid).await;
        let mut one = one();
        one.spec.as_mut().unwrap().load_balancer_ip = Some("192.0.2.50".to_owned());
        // The answer of the creation is lost, and so is the answer of the read after it.
        world.fake.next("PATCH ip-allocations", Trouble::Lose);
        world.fake.next("GET ip-allocations", Trouble::error(403, Some(288)));
        assert_eq!(word(&world.ensure(&one).await.unwrap_err()), "NSXNoPermission");
        assert_eq!(world.objects("ip-allocations")[0]["allocation_ip"], json!("192.0.2.50"));
        assert_eq!(addresses(&world.ensure(&one).await.unwrap()), ["192.0.2.50".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(world.objects("ip-allocations").len(), 1);
    }
}

/// The allocation has no evidence of its owner, and the address of the Service is released before.
#[tokio::test]
async fn an_allocation_that_gets_no_address_keeps_no_finalizer_once_the_other_one_is_released() {
    for shows_allocated_ip in [true, false] {
        let behaviour = Behaviour { shows_allocated_ip, ..Behaviour::USUAL };
        let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let paths = balancer().put(&world.fake, "go");
        let other = balancer().put_allocation(&world.fake, "go", "192.0.2.78".parse().unwrap());
        world.fake.set_realization(&other, Realization::Never);
        world.delete(&reporting(one(), ADDRESS)).await.unwrap();
        let left: Vec<_> = world.objects("ip-allocations").iter().map(|one| one["path"].clone()).collect();
        assert_eq!((left, world.counted()[1..].to_vec()), (vec![other.into()], vec![0, 0, 0, 1]), "{paths:?}");
    }
}
