//! A pool of addresses that this account may not list: only what depends on it waits, and nothing in it is taken for absent.

use k8s_openapi::api::core::v1::Service;
use support::fake_nsx::{Model, Trouble};

use super::world::*;
use crate::world::advance;
use ccm::providers::vsphere::config::{Class, IpPool, LoadBalancerConfig as Config};

const POOL: &str = "/infra/ip-pools/p2";

/// The classes `default` with `p1` and `two` with `p2`.
fn two_classes() -> Config {
    let mut config = config();
    let two = Class { pool: Some(IpPool::Id("p2".to_owned())), ..config.common.clone() };
    config.classes.insert("two".to_owned(), two);
    config
}

async fn world() -> World {
    let model = Model::small().ip_pool("p2", "pool2", "198.51.100.0/24", &[("198.51.100.5", "198.51.100.50")]);
    World::with(model, Some(UID), two_classes()).await
}

fn of_two(service: Service) -> Service {
    annotated(service, "loadbalancer.vmware.io/class", "two")
}

/// The next process of an account that may not look into the pool.
async fn without_permission(world: &mut World) {
    world.fake.deny("admin", POOL);
    world.restart();
}

async fn with_permission(world: &World) {
    world.fake.allow("admin", POOL);
    advance(std::time::Duration::from_secs(61)).await;
}

fn allocations(world: &World) -> usize {
    world
        .fake
        .objects_below(POOL)
        .iter()
        .filter(|one| one["path"].as_str().unwrap().contains("/ip-allocations/"))
        .count()
}

#[tokio::test]
async fn what_does_not_depend_on_the_pool_goes_on() {
    let mut world = world().await;
    let one = world.ensured(&service("ns/one", &[("TCP", 80, 30080)])).await;
    let two = world.ensured(&of_two(service("ns/two", &[("TCP", 80, 30081)]))).await;
    assert_eq!(allocations(&world), 1);
    without_permission(&mut world).await;

    let seen = world.fake.history().len();
    world.ensure(&one).await.unwrap();
    world.ensure(&two).await.unwrap();
    assert!(world.history(seen).is_empty(), "its virtual server shows its address");
    world.cluster.remove("n2");
    assert!(world.update(&[&one, &two]).await.iter().all(Result::is_ok));
    let mut ports = two.clone();
    ports.spec.as_mut().unwrap().ports =
        service("ns/two", &[("TCP", 80, 30081), ("TCP", 81, 30082)]).spec.unwrap().ports;
    assert_eq!(world.ensured(&ports).await.status, two.status, "a second port has the address of the first");
    let three = world.ensured(&service("ns/three", &[("TCP", 80, 30083)])).await;
    for service in [&one, &three] {
        world.delete(service).await.unwrap();
    }
    assert_eq!((world.counted(), allocations(&world)), ([1, 2, 2, 2, 1], 1));
}

#[tokio::test]
async fn nothing_is_reserved_beside_what_may_be_in_the_pool() {
    let mut world = world().await;
    let two = world.ensured(&of_two(service("ns/two", &[("TCP", 80, 30081)]))).await;
    // Somebody deletes its virtual server: the address shows whose it is, and cannot be read.
    let server = world.objects("lb-virtual-servers")[0]["path"].as_str().unwrap().to_owned();
    assert!(world.fake.delete_by_hand("admin", &server));
    without_permission(&mut world).await;
    let seen = world.fake.history().len();
    let new = of_two(service("ns/new", &[("TCP", 80, 30082)]));
    // Its class was changed to the other pool meanwhile, and nothing but the address shows which one it had.
    let mut moved = two.clone();
    moved.metadata.annotations = None;
    for service in [&new, &two, &moved] {
        let refused = world.ensure(service).await.unwrap_err();
        assert_eq!(word(&refused), "NSXNoPermission", "{refused}");
        assert!(refused.to_string().contains("p2"), "{refused}");
    }
    assert!(world.history(seen).is_empty());
    with_permission(&world).await;
    assert_eq!(world.ensured(&two).await.status, two.status, "the address stays");
    world.ensured(&new).await;
    assert_eq!(allocations(&world), 2);
}

#[tokio::test]
async fn no_deletion_ends_while_an_address_may_be_left_in_the_pool() {
    for is_crashed in [false, true] {
        let mut world = world().await;
        let two = world.ensured(&of_two(service("ns/two", &[("TCP", 80, 30081)]))).await;
        without_permission(&mut world).await;
        for _ in 0..2 {
            let left = world.delete(&two).await.unwrap_err();
            assert_eq!(word(&left), "NSXNoPermission", "{left}");
            let shown = world.get(&two).await;
            assert!(!matches!(shown, Ok(None)), "{shown:?}");
            if is_crashed {
                world.restart();
            }
        }
        assert_eq!((world.objects("lb-virtual-servers").len(), allocations(&world)), (0, 1));
        // What never had an address, and whose class has another pool, has nothing there.
        world.delete(&service("ns/none", &[("TCP", 80, 30090)])).await.unwrap();
        with_permission(&world).await;
        world.delete(&two).await.unwrap();
        assert_eq!((world.get(&two).await.unwrap(), allocations(&world)), (None, 0));
    }
}

/// The Service no longer asks for the second family, whose pool may not be listed.
#[tokio::test]
async fn no_family_is_gone_while_its_address_may_be_left_in_the_pool() {
    for is_crashed in [false, true] {
        let mut world = World::dual(Some(UID)).await;
        let dual = of_families(service("ns/s", &[("TCP", 80, 30080)]), "PreferDualStack", &["IPv4", "IPv6"]);
        let dual = world.ensured(&dual).await;
        world.fake.deny("admin", "/infra/ip-pools/p6");
        world.restart();
        let single = of_families(dual, "SingleStack", &["IPv4"]);
        for _ in 0..2 {
            let left = world.ensure(&single).await.unwrap_err();
            assert_eq!(word(&left), "NSXNoPermission", "{left}");
            if is_crashed {
                world.restart();
            }
        }
        assert_eq!((world.objects("lb-virtual-servers").len(), world.objects("ip-allocations").len()), (1, 2));
        world.fake.allow("admin", "/infra/ip-pools/p6");
        advance(std::time::Duration::from_secs(61)).await;
        world.ensured(&single).await;
        assert_eq!(world.objects("ip-allocations").len(), 1);
    }
}

/// Such as one that a tag names which was edited by hand.
#[tokio::test]
async fn a_pool_whose_list_nsx_refuses_keeps_only_what_depends_on_it_waiting() {
    let world = world().await;
    // The second one is that of `p2`.
    world.fake.next_after("LIST ip-allocations", 1, Trouble::error(400, Some(258)));
    world.ensured(&service("ns/one", &[("TCP", 80, 30080)])).await;
    let two = of_two(service("ns/two", &[("TCP", 80, 30081)]));
    let refused = world.ensure(&two).await.unwrap_err();
    assert_eq!(word(&refused), "NSXRefused", "{refused}");
    assert_eq!(allocations(&world), 0);
    advance(std::time::Duration::from_secs(61)).await;
    world.ensured(&two).await;
}
