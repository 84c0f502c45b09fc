//! A pool of addresses that this account may not list. Only Services that depend on it wait, and no object in it is
//! treated as absent.

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

/// Starts the next process with an account that may not list the pool.
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
    // The virtual server is deleted. Only its address shows the owner, and the address cannot be read.
    let server = world.path_of("lb-virtual-servers");
    assert!(world.fake.delete_by_hand("admin", &server));
    without_permission(&mut world).await;
    let seen = world.fake.history().len();
    let new = of_two(service("ns/new", &[("TCP", 80, 30082)]));
    // In the meantime the class was changed to the other pool. Only the address shows the pool of the Service.
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
        // A Service that never had an address, and whose class has another pool, has no allocation there.
        world.delete(&service("ns/none", &[("TCP", 80, 30090)])).await.unwrap();
        with_permission(&world).await;
        world.delete(&two).await.unwrap();
        assert_eq!((world.get(&two).await.unwrap(), allocations(&world)), (None, 0));
    }
}

/// The Service does not ask for the second family any more, and that family's pool may not be listed.
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

/// An edited tag can contain such a pool.
#[tokio::test]
async fn a_pool_whose_list_nsx_refuses_keeps_only_what_depends_on_it_waiting() {
    let world = world().await;
    // The second list is for `p2`.
    world.fake.next_after("LIST ip-allocations", 1, Trouble::error(400, Some(258)));
    world.ensured(&service("ns/one", &[("TCP", 80, 30080)])).await;
    let two = of_two(service("ns/two", &[("TCP", 80, 30081)]));
    let refused = world.ensure(&two).await.unwrap_err();
    assert_eq!(word(&refused), "NSXRefused", "{refused}");
    assert_eq!(allocations(&world), 0);
    advance(std::time::Duration::from_secs(61)).await;
    world.ensured(&two).await;
}
