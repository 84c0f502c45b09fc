//! Services with two address families, and Services with IPv6 only.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ccm::clients::nsx::Object;
use ccm::cloud::{Error, Handling, LoadBalancer as _};
use ccm::providers::vsphere::config::IpFamily;
use ccm::providers::vsphere::nsx::load_balancer::layout::{ClusterLayout, ObjectKind, SERVICE};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{Model, Realization, Side};

use super::world::*;
use crate::routes::world::node;

const NOTHING: [String; 0] = [];
const PREFER: &str = "PreferDualStack";
const BOTH: [&str; 2] = ["IPv4", "IPv6"];
const OWNER: &str = "vsphere-cloud-controller-manager";

fn one() -> Service {
    service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)])
}

fn both(service: Service) -> Service {
    of_families(service, PREFER, &BOTH)
}

fn single(service: Service) -> Service {
    of_families(service, "SingleStack", &["IPv4"])
}

fn status(service: &Service) -> Vec<IpAddr> {
    addresses(&status_of(service))
}

fn ips<const N: usize>(addresses: [&str; N]) -> Vec<IpAddr> {
    addresses.map(|address| address.parse().unwrap()).into()
}

pub(super) fn tag<'a>(object: &'a Value, scope: &str) -> Option<&'a str> {
    let tags = object["tags"].as_array()?;
    tags.iter().find(|tag| tag["scope"] == scope)?["tag"].as_str()
}

/// Whether the object belongs to a load balancer of a second family, which the Go program does not find.
fn is_second(object: &Value) -> bool {
    let (owner, family) = (tag(object, "owner").unwrap(), tag(object, "ipfamily"));
    assert_eq!(owner == OWNER, family.is_none(), "{object}");
    owner == "vsphere-cloud-controller-manager-second-family" && family == Some("IPv6")
}

/// Counts the objects of each collection, for the first and for the second load balancers.
fn counted(world: &World) -> [(usize, usize); 4] {
    ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"].map(|collection| {
        let (second, first): (Vec<Value>, Vec<Value>) = world.objects(collection).into_iter().partition(is_second);
        (first.len(), second.len())
    })
}

const OF_BOTH: [(usize, usize); 4] = [(2, 2), (2, 2), (1, 1), (1, 1)];
const OF_FIRST: [(usize, usize); 4] = [(2, 0), (2, 0), (1, 0), (1, 0)];
const OF_SECOND: [(usize, usize); 4] = [(0, 2), (0, 2), (0, 1), (0, 1)];
const OF_NONE: [(usize, usize); 4] = [(0, 0); 4];

/// Returns the members of all pools, for the first and for the second load balancers.
fn members(world: &World) -> [BTreeSet<String>; 2] {
    let (second, first): (Vec<Value>, Vec<Value>) = world.objects("lb-pools").into_iter().partition(is_second);
    [first, second].map(|pools| pools.iter().flat_map(World::members).collect())
}

fn set<const N: usize>(addresses: [&str; N]) -> BTreeSet<String> {
    addresses.map(str::to_owned).into()
}

/// Checks that neither this program nor the Go program writes anything for this Service now.
async fn assert_settled(world: &mut World, service: &Service) {
    world.restart();
    let seen = world.fake.history().len();
    assert_eq!(addresses(&world.ensure(service).await.unwrap()), status(service));
    assert!(world.history(seen).is_empty(), "the next process writes nothing");
    assert_eq!(world.handed_back(&[service]), NOTHING, "the Go program finds it once, and writes nothing");
}

#[tokio::test]
async fn a_service_with_two_families_has_a_load_balancer_for_each() {
    for uid in [Some(UID), None] {
        let mut world = World::dual(uid).await;
        for (key, families, expected) in
            [("ns/a", BOTH, ["192.0.2.5", "2001:db8::5"]), ("ns/b", ["IPv6", "IPv4"], ["2001:db8::6", "192.0.2.6"])]
        {
            let service = of_families(service(key, &[("TCP", 80, 30080), ("UDP", 80, 30081)]), PREFER, &families);
            let service = world.ensured(&service).await;
            assert_eq!(status(&service), ips(expected), "in the order of the Service");
            assert_eq!(world.get(&service).await.unwrap().map(|status| addresses(&status)), Some(ips(expected)));
            assert_eq!(counted(&world), OF_BOTH);
            assert_eq!(members(&world), [set(["10.0.0.1", "10.0.0.2"]), set(["fd00::1", "fd00::2"])]);
            for server in world.objects("lb-virtual-servers") {
                let pool = if is_second(&server) { "p6" } else { "p1" };
                assert_eq!(tag(&server, "ippoolid"), Some(pool), "{server}");
            }
            assert_settled(&mut world, &service).await;
            world.delete(&service).await.unwrap();
            assert_eq!(counted(&world), OF_NONE, "{uid:?}");
            assert_eq!(world.counted()[0], usize::from(uid.is_none()));
        }
    }
}

#[tokio::test]
async fn a_second_family_comes_and_goes_and_the_first_is_not_written() {
    for uid in [Some(UID), None] {
        for is_adopted in [false, true] {
            let mut world = World::dual(uid).await;
            if is_adopted {
                put_of_go(&world);
            }
            let before = world.ensured(&single(one())).await;
            let address = status(&before);
            let first: BTreeSet<String> = paths(&world);
            let seen = world.fake.history().len();
            let dual = world.ensured(&both(before)).await;
            assert_eq!((status(&dual)[0], status(&dual).len()), (address[0], 2), "{uid:?} {is_adopted}");
            assert_eq!(counted(&world), OF_BOTH, "{uid:?} {is_adopted}");
            assert_settled(&mut world, &dual).await;
            let after = world.ensured(&single(dual)).await;
            assert_eq!((status(&after), counted(&world)), (address, OF_FIRST), "{uid:?} {is_adopted}");
            assert_settled(&mut world, &after).await;
            let written = world.history(seen);
            assert!(written.iter().all(|version| !first.contains(&version.path)), "{uid:?} {is_adopted}");
        }
    }
}

/// The virtual servers of the first load balancer were deleted, and NSX does not return the allocation of its address
/// now.
#[tokio::test]
async fn the_first_waits_for_its_address_though_the_second_is_whole() {
    let mut world = World::dual(Some(UID)).await;
    put_of_go(&world);
    let dual = world.ensured(&both(one())).await;
    for server in world.objects("lb-virtual-servers").iter().filter(|server| !is_second(server)) {
        assert!(world.fake.delete_by_hand("admin", server["path"].as_str().unwrap()));
    }
    let unread = world.objects("ip-allocations").into_iter().find(|one| !is_second(one)).unwrap();
    let path = unread["path"].as_str().unwrap();
    world.fake.set_realization(path, Realization::Never);
    world.restart();
    let seen = world.fake.history().len();
    assert_eq!(word(&world.ensure(&dual).await.unwrap_err()), "NSXUnavailable");
    assert!(world.history(seen).is_empty(), "no other address is reserved");
    world.fake.set_realization(path, Realization::After(std::time::Duration::ZERO));
    assert_eq!(addresses(&world.ensure(&dual).await.unwrap()), status(&dual));
    let [servers, _, _, allocations] = counted(&world);
    assert_eq!((servers, allocations), ((2, 2), (1, 1)), "pools and monitors that nothing shows to be ours are held");
}

/// Creates the load balancer of [`one`] as the Go program does.
fn put_of_go(world: &World) {
    let go = GoBalancer::new(NAME, "ns/s", "192.0.2.77".parse().unwrap());
    go.ports(&[("TCP", 80, 30080), ("UDP", 80, 30081)]).put(&world.fake, "go");
}

fn paths(world: &World) -> BTreeSet<String> {
    let collections = ["lb-services", "lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"];
    let objects = collections.into_iter().flat_map(|collection| world.objects(collection));
    objects.map(|object| object["path"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_family_that_ipv6_alone_leaves_out_goes_unless_the_go_program_made_it() {
    for is_adopted in [false, true] {
        let mut world = World::dual(Some(UID)).await;
        if is_adopted {
            put_of_go(&world);
        }
        let dual = world.ensured(&of_families(one(), PREFER, &["IPv6", "IPv4"])).await;
        let alone = world.ensured(&of_families(dual.clone(), "SingleStack", &["IPv6"])).await;
        let (expected, kept) = if is_adopted { (OF_BOTH, 2) } else { (OF_SECOND, 1) };
        assert_eq!((counted(&world), status(&alone)), (expected, status(&dual)[..kept].to_vec()));
        world.restart();
        let seen = world.fake.history().len();
        world.ensure(&alone).await.unwrap();
        assert!(world.history(seen).is_empty());
        world.delete(&alone).await.unwrap();
        assert_eq!(counted(&world), OF_NONE);
    }
}

#[tokio::test]
async fn what_there_is_stays_when_the_pool_for_ipv6_is_no_longer_configured() {
    let mut world = World::dual(Some(UID)).await;
    let dual = world.ensured(&both(one())).await;
    world.restart_as_configured(config());
    assert_settled(&mut world, &dual).await;

    // The second load balancer follows its Service and nodes, and gets new ports.
    world.put_dual("n3", 3);
    world.update(&[&dual]).await.pop().unwrap().unwrap();
    assert_eq!(members(&world)[1], set(["fd00::1", "fd00::2", "fd00::3"]));
    let more = service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081), ("TCP", 443, 30443)]);
    let more = both(with_status(more, status_of(&dual)));
    assert_eq!(addresses(&world.ensure(&more).await.unwrap()), status(&dual));
    assert_eq!(counted(&world)[0], (3, 3));

    // The second load balancer is deleted with its family, and is not created again.
    let after = world.ensured(&single(dual)).await;
    assert_eq!(counted(&world), OF_FIRST);
    let after = world.ensured(&both(after)).await;
    assert_eq!((counted(&world), status(&after)), (OF_FIRST, ips(["192.0.2.5"])));

    // An object that does not exist needs no pool for its deletion.
    world.restart_as_configured(dual_config());
    let dual = world.ensured(&both(after)).await;
    assert_eq!(counted(&world), OF_BOTH);
    world.restart_as_configured(config());
    world.delete(&dual).await.unwrap();
    assert_eq!(counted(&world), OF_NONE);
}

#[tokio::test]
async fn without_a_pool_for_ipv6_one_family_is_enough_unless_both_are_required() {
    let world = World::with(dual_model(), Some(UID), config()).await;
    let required = of_families(one(), "RequireDualStack", &BOTH);
    let Handling::Invalid { reason, message } = world.balancers.handles(&required) else { panic!("it is refused") };
    assert_eq!(reason.as_str(), "LoadBalancerNotPossible");
    assert!(message.contains("--nsx-ipv6-pool=default=POOL-ID"), "{message}");
    assert_eq!(word(&world.ensure(&required).await.unwrap_err()), "LoadBalancerNotPossible");
    assert_eq!(world.sent(), Vec::<String>::new());
    for families in [BOTH, ["IPv6", "IPv4"]] {
        let service = of_families(one(), PREFER, &families);
        assert_eq!(world.balancers.handles(&service), Handling::Handled);
        assert_eq!(status(&world.ensured(&service).await), ips(["192.0.2.5"]));
    }
    let world = World::dual(Some(UID)).await;
    assert_eq!(world.balancers.handles(&required), Handling::Handled);
    assert_eq!(status(&world.ensured(&required).await).len(), 2);
}

/// As in the Go program, which uses the pool of the class for every family.
#[tokio::test]
async fn a_service_of_ipv6_alone_is_served_from_the_pool_of_its_class_if_that_has_ipv6() {
    let ipv6 = Model::empty().tier1("t1").ip_pool("p1", "pool1", "2001:db8::/64", &[("2001:db8::5", "2001:db8::68")]);
    let mut world = World::with(ipv6, Some(UID), config()).await;
    for (name, last) in [("n1", 1), ("n2", 2)] {
        world.cluster.put(node(name, &format!("uid-{last}"), &[], &[("InternalIP", &format!("fd00::{last}"))]));
    }
    let alone = world.ensured(&of_families(one(), "SingleStack", &["IPv6"])).await;
    assert_eq!((status(&alone), counted(&world)), (ips(["2001:db8::5"]), OF_FIRST));
    assert_eq!(members(&world)[0], set(["fd00::1", "fd00::2"]));
    assert_settled(&mut world, &alone).await;
    world.delete(&alone).await.unwrap();
    assert_eq!(counted(&world), OF_NONE);

    // The pool of the class has IPv4 only.
    let world = World::with(dual_model(), Some(UID), config()).await;
    let error = world.ensure(&of_families(one(), "SingleStack", &["IPv6"])).await.unwrap_err();
    assert_eq!(word(&error), "LoadBalancerConfigWrong");
    assert!(error.to_string().contains("the IP pool p1 has no IPv6 addresses"), "{error}");
    assert_eq!((counted(&world), world.counted()[0]), (OF_NONE, 0), "nothing was created");
    let world = World::dual(Some(UID)).await;
    let alone = world.ensured(&of_families(one(), "SingleStack", &["IPv6"])).await;
    assert_eq!((status(&alone), counted(&world)), (ips(["2001:db8::5"]), OF_SECOND));
}

#[tokio::test]
async fn pools_of_the_wrong_family_are_said_before_anything_is_created() {
    let only_ipv4 = Model::small().ip_pool("p6", "pool6", "198.51.100.0/24", &[("198.51.100.5", "198.51.100.9")]);
    let world = World::with(only_ipv4, Some(UID), dual_config()).await;
    // The first family works. The next sync reports the mistake of the second family.
    let first = world.ensured(&both(one())).await;
    assert_eq!((status(&first), counted(&world)), (ips(["192.0.2.5"]), OF_FIRST));
    let error = world.ensure(&first).await.unwrap_err();
    assert_eq!(word(&error), "LoadBalancerConfigWrong");
    assert!(error.to_string().contains("the IP pool p6 has no IPv6 addresses"), "{error}");
    assert_eq!(counted(&world), OF_FIRST);
}

#[tokio::test]
async fn a_second_family_without_a_free_address_keeps_no_service_from_the_first() {
    let full = Model::small().ip_pool("p6", "pool6", "2001:db8::/64", &[("2001:db8::5", "2001:db8::5")]);
    let world = World::with(full, Some(UID), dual_config()).await;
    let other = world.ensured(&both(service("ns/o", &[("TCP", 80, 30080)]))).await;
    let announced = world.announcement("ns/s");
    let first = world.ensured(&both(one())).await;
    assert_eq!(status(&first), ips(["192.0.2.6"]));
    announced.await;
    let error = world.ensure(&first).await.unwrap_err();
    assert_eq!(word(&error), "AddressUnavailable", "{error}");
    assert_eq!(world.objects("ip-allocations").len(), 3, "nothing is reserved in vain");
    world.delete(&other).await.unwrap();
    crate::world::advance(std::time::Duration::from_secs(300)).await;
    world.ensure(&first).await.unwrap();
    assert_eq!(status(&world.ensured(&first).await), ips(["192.0.2.6", "2001:db8::5"]));
}

/// Returns the Service without its UDP port, with the same status.
fn without_udp(service: &Service) -> Service {
    with(service, json!({"ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}]}))
}

#[tokio::test]
async fn a_family_that_cannot_be_made_keeps_the_other_one_from_nothing() {
    let one_address: &[(&str, &str)] = &[("2001:db8::5", "2001:db8::5")];
    let full = Model::small().ip_pool("p6", "pool6", "2001:db8::/64", one_address);
    let world = World::with(full, Some(UID), dual_config()).await;
    world.ensured(&both(service("ns/o", &[("TCP", 80, 30080)]))).await;
    let first = world.ensured(&both(one())).await;
    let error = world.ensure(&without_udp(&first)).await.unwrap_err();
    assert_eq!(word(&error), "AddressUnavailable", "{error}");
    let of_service = |object: &Value| tag(object, "service") == Some("ns/s");
    let servers = || world.objects("lb-virtual-servers").into_iter().filter(of_service).count();
    assert_eq!(servers(), 1, "the port that is gone goes");
    let more = service("ns/s", &[("TCP", 80, 30080), ("TCP", 81, 30081)]);
    let more = both(with_status(more, status_of(&first)));
    assert_eq!(word(&world.ensure(&more).await.unwrap_err()), "AddressUnavailable");
    assert_eq!(servers(), 2, "a new one comes");

    // The pool of the first family has no free address.
    let model = Model::empty().tier1("t1").ip_pool("p1", "pool1", "192.0.2.0/24", &[("192.0.2.5", "192.0.2.5")]);
    let model = model.ip_pool("p6", "pool6", "2001:db8::/64", &[("2001:db8::5", "2001:db8::68")]);
    let world = World::with(model, Some(UID), dual_config()).await;
    world.ensured(&both(service("ns/o", &[("TCP", 80, 30080)]))).await;
    let second = world.ensured(&both(one())).await;
    assert_eq!(status(&second), ips(["2001:db8::6"]));
    assert_eq!(word(&world.ensure(&second).await.unwrap_err()), "AddressUnavailable");
    assert_eq!(world.objects("ip-allocations").len(), 3, "nothing is reserved in vain");
}

#[tokio::test]
async fn an_address_that_does_not_come_keeps_the_other_family_from_nothing() {
    let world = World::dual(Some(UID)).await;
    let first = world.ensured(&single(one())).await;
    world.fake.set_realization("ip-allocations", Realization::Never);
    assert_eq!(word(&world.late(&both(without_udp(&first))).await), "NSXUnavailable");
    assert_eq!(counted(&world)[0], (1, 0), "the port that is gone goes");
}

/// IPv6 has no free address, so the Service gets an IPv4 address. Then the Service asks for IPv6 only.
#[tokio::test]
async fn what_serves_stays_until_what_takes_its_place_is_there() {
    let one_address: &[(&str, &str)] = &[("2001:db8::5", "2001:db8::5")];
    let full = Model::small().ip_pool("p6", "pool6", "2001:db8::/64", one_address);
    let world = World::with(full, Some(UID), dual_config()).await;
    let other = world.ensured(&both(service("ns/o", &[("TCP", 80, 30080)]))).await;
    let first = world.ensured(&of_families(one(), PREFER, &["IPv6", "IPv4"])).await;
    assert_eq!(status(&first), ips(["192.0.2.6"]));
    let alone = of_families(first, "SingleStack", &["IPv6"]);
    assert_eq!(word(&world.ensure(&alone).await.unwrap_err()), "AddressUnavailable");
    assert_eq!(counted(&world)[0], (3, 1));
    world.delete(&other).await.unwrap();
    world.fake.clear();
    crate::world::advance(std::time::Duration::from_secs(300)).await;
    assert_eq!(addresses(&world.ensure(&alone).await.unwrap()), ips(["2001:db8::5"]));
    assert_eq!(counted(&world)[0], (0, 2));
}

/// The virtual servers of a load balancer of the Go program were deleted, and NSX rejects new ones now.
#[tokio::test]
async fn an_address_that_is_reported_stays_reported_while_nothing_serves_it() {
    let world = World::dual(Some(UID)).await;
    put_of_go(&world);
    let first = world.ensured(&single(one())).await;
    for server in world.objects("lb-virtual-servers") {
        assert!(world.fake.delete_by_hand("admin", server["path"].as_str().unwrap()));
    }
    for _ in 0..2 {
        super::orphans::reading(&world).await;
    }
    world.fake.next("PUT lb-virtual-servers", support::fake_nsx::Trouble::error(400, Some(23_500)));
    let dual = world.ensured(&both(first)).await;
    assert_eq!(status(&dual), ips(["192.0.2.77", "2001:db8::5"]));
    assert_eq!(addresses(&world.ensure(&dual).await.unwrap()), status(&dual));
}

#[tokio::test]
async fn each_family_needs_room_of_its_own() {
    let world = World::dual(Some(UID)).await;
    // A SMALL load balancer service supports 20 virtual servers.
    let ports: Vec<(&str, u16, u16)> = (1..=17).map(|port| ("TCP", port, 30000 + port)).collect();
    world.ensured(&service("ns/large", &ports)).await;
    let first = world.ensured(&both(one())).await;
    assert_eq!(status(&first), ips(["192.0.2.6"]), "one family has room");
    let error = world.ensure(&first).await.unwrap_err();
    assert_eq!(word(&error), "LoadBalancerCapacity", "{error}");
    assert!(error.to_string().contains("19 of 20 virtual servers, and 2 ports"), "{error}");
}

/// A SMALL load balancer service supports 20 virtual servers: 13 exist, 4 are being created for another Service, and the
/// first family takes 2.
#[tokio::test]
async fn a_family_that_waits_for_room_keeps_the_other_one_from_nothing() {
    let world = World::dual(Some(UID)).await;
    let of_ports = |key: &str, count: u16| {
        let ports: Vec<(&str, u16, u16)> = (1..=count).map(|port| ("TCP", port, 30000 + port)).collect();
        service(key, &ports)
    };
    world.ensured(&of_ports("ns/large", 13)).await;
    let other = of_ports("ns/other", 4);
    let waits = async {
        let first = world.ensured(&both(one())).await;
        let pause = world.waits_for("capacity", async || world.try_ensure(&first).await).await;
        (first, pause)
    };
    let (created, (first, pause)) = world.during("PUT lb-virtual-servers", world.try_ensure(&other), waits).await;
    assert!(matches!(created, Ok(_) | Err(Error::Pending { .. })), "{created:?}");
    let [address] = status(&first)[..] else { panic!("{first:?}") };
    assert!(address.is_ipv4());
    assert!((1000..=2000).contains(&pause.as_millis()), "{pause:?}");
    let other = world.ensured(&other).await;
    assert_eq!(word(&world.ensure(&first).await.unwrap_err()), "LoadBalancerCapacity");
    world.delete(&other).await.unwrap();
    assert_eq!(status(&world.ensured(&first).await).len(), 2);
}

#[tokio::test]
async fn the_last_planned_step_of_a_failed_family_is_kept_beside_the_steps_of_the_other_one() {
    let world = World::dual(Some(UID)).await;
    let ports: Vec<(&str, u16, u16)> = (1..=17).map(|port| ("TCP", port, 30000 + port)).collect();
    world.ensured(&service("ns/large", &ports)).await;
    let first = world.ensured(&both(one())).await;
    let last = world.balancers.last_step("ns/s").unwrap();
    let failed: Vec<Option<IpFamily>> = last.steps.keys().copied().collect();
    assert_eq!((failed, last.outcome), (vec![Some(IpFamily::V6)], Some(Ok(()))), "the first family was made later");
    let error = world.ensure(&first).await.unwrap_err().to_string();
    let again = world.balancers.last_step("ns/s").unwrap();
    assert_eq!((again.steps, again.outcome), (last.steps, Some(Err(error))));
}

#[tokio::test]
async fn a_load_balancer_that_cannot_get_the_required_second_family_is_named() {
    let ipv6 = Model::empty().tier1("t1").ip_pool("p1", "pool1", "2001:db8::/64", &[("2001:db8::5", "2001:db8::68")]);
    let mut world = World::with(ipv6, Some(UID), config()).await;
    let alone = world.ensured(&of_families(one(), "SingleStack", &["IPv6"])).await;
    world.restart_as_configured(dual_config());
    let required = of_families(alone, "RequireDualStack", &["IPv6", "IPv4"]);
    let error = world.ensure(&required).await.unwrap_err();
    assert_eq!(word(&error), "LoadBalancerNotPossible");
    assert!(error.to_string().contains("has the address 2001:db8::5 alone"), "{error}");
    assert_eq!(counted(&world), OF_FIRST);
}

/// An earlier process reserved the address in a pool with both families.
#[tokio::test]
async fn an_address_of_the_other_family_is_released_and_another_one_is_reserved() {
    let ipv4 = json!({
        "resource_type": "IpAddressPoolStaticSubnet", "cidr": "198.51.100.0/24",
        "allocation_ranges": [{"start": "198.51.100.7", "end": "198.51.100.7"}],
    });
    let model = dual_model().object("/infra/ip-pools/p6/ip-subnets/s2", ipv4);
    let world = World::with(model, Some(UID), dual_config()).await;
    let layout = ClusterLayout {
        cluster: NAME.to_owned(),
        cluster_uid: Some(UID.to_owned()),
        configured: Default::default(),
        secondary: Some(IpFamily::V6),
    };
    let mut allocation = Object::default();
    layout.tags(ObjectKind::Allocation).with(SERVICE, "ns/s").write_into(&mut allocation);
    let body = Value::Object(allocation.0);
    let path = "/infra/ip-pools/p6/ip-allocations/of-an-earlier-process";
    world.fake.put_allocation_by_hand("ccm", path, body, "198.51.100.7".parse().unwrap());
    let first = world.ensured(&both(one())).await;
    assert_eq!((status(&first), world.fake.object(path)), (ips(["192.0.2.5"]), None));
    let dual = world.ensured(&first).await;
    assert_eq!(status(&dual), ips(["192.0.2.5", "2001:db8::5"]));
    assert_eq!(counted(&world), OF_BOTH);
}

#[tokio::test]
async fn each_family_has_its_own_wish_and_source_ranges() {
    let world = World::dual(Some(UID)).await;
    let wish = with(&both(one()), json!({"loadBalancerIP": "2001:db8::50", "loadBalancerSourceRanges": ["fd00::/8"]}));
    let service = world.ensured(&wish).await;
    assert_eq!(status(&service), ips(["192.0.2.5", "2001:db8::50"]));
    let groups = world.objects("groups");
    assert_eq!(groups.iter().map(is_second).collect::<BTreeSet<_>>(), [false, true].into(), "{groups:?}");
    for server in world.objects("lb-virtual-servers") {
        let group = groups.iter().find(|group| group["path"] == server["access_list_control"]["group_path"]).unwrap();
        assert_eq!(is_second(group), is_second(&server));
    }
    let other = with(&service, json!({"loadBalancerIP": "2001:db8::51"}));
    assert_eq!(word(&world.ensure(&other).await.unwrap_err()), "LoadBalancerNotPossible");
    world.ensure(&single(with(&service, json!({"loadBalancerIP": null})))).await.unwrap();
    assert_eq!((world.objects("groups").len(), counted(&world)), (1, OF_FIRST));
    world.delete(&service).await.unwrap();
    assert_eq!((world.objects("groups").len(), counted(&world)), (0, OF_NONE));
}

#[tokio::test]
async fn a_family_without_nodes_is_said() {
    let world = World::dual(Some(UID)).await;
    let dual = world.ensured(&both(one())).await;
    assert_eq!(world.balancers.without_nodes(&dual, &world.nodes()), None);
    for (name, last) in [("n1", 1), ("n2", 2)] {
        world.cluster.put(node(name, &format!("uid-{last}"), &[], &[("InternalIP", &format!("10.0.0.{last}"))]));
    }
    world.update(&[&dual]).await.pop().unwrap().unwrap();
    assert_eq!(members(&world), [set(["10.0.0.1", "10.0.0.2"]), set([])]);
    let message = world.balancers.without_nodes(&dual, &world.nodes()).unwrap();
    assert!(message.starts_with("There are no available nodes") && message.contains("IPv6 address"), "{message}");
    let single = world.ensured(&single(dual)).await;
    assert_eq!(world.balancers.without_nodes(&single, &world.nodes()), None);
    let message = world.balancers.without_nodes(&single, &[]).unwrap();
    assert_eq!(message, "There are no available nodes for the load balancer");
}

/// Each of two clusters with the same name keeps its own second families.
#[tokio::test]
async fn the_second_family_of_another_cluster_is_foreign() {
    const OTHER: &str = "5e1f9a3c-1d2e-4a6b-8c7d-9e0f1a2b3c4d";
    let mut world = World::with(dual_model().tier1("t2"), Some(UID), dual_config()).await;
    world.put_dual("n1", 1);
    world.put_dual("n2", 2);
    let dual = world.ensured(&both(one())).await;
    let (seen, before) = (world.fake.history().len(), paths(&world));
    let config = ccm::providers::vsphere::config::LoadBalancerConfig {
        tier1: Some("/infra/tier-1s/t2".to_owned()),
        ..dual_config()
    };
    let fake = std::sync::Arc::clone(&world.fake);
    let other = World::on(fake, NAME, Some(OTHER), config);
    other.put_dual("n1", 1);
    other.put_dual("n2", 2);
    let mut theirs = both(one());
    theirs.metadata.uid = Some("uid-of-the-other".to_owned());
    let theirs = other.ensured(&theirs).await;
    assert!(status(&theirs).iter().all(|address| !status(&dual).contains(address)));
    other.ensure(&single(theirs.clone())).await.unwrap();
    other.delete(&theirs).await.unwrap();
    let written = world.history(seen);
    assert!(!written.is_empty() && written.iter().all(|version| !before.contains(&version.path)));
    assert_settled(&mut world, &dual).await;
}

/// Work of a process on a Service that has or had two families.
#[derive(Clone, Copy, Debug)]
enum Work {
    Create,
    AddFamily,
    RemoveFamily,
    RemoveFirst,
    Delete,
}

impl Work {
    async fn prepare(self, uid: Option<&'static str>) -> (World, Service) {
        let world = World::dual(uid).await;
        let ranges = with(&one(), json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}));
        let (before, after) = match self {
            Self::Create => return (world, both(ranges)),
            Self::AddFamily => (single(ranges.clone()), both(ranges)),
            Self::RemoveFamily => (both(ranges.clone()), single(ranges)),
            Self::RemoveFirst => {
                let dual = of_families(ranges.clone(), PREFER, &["IPv6", "IPv4"]);
                (dual, of_families(ranges, "SingleStack", &["IPv6"]))
            }
            Self::Delete => (both(ranges.clone()), both(ranges)),
        };
        let before = world.ensured(&before).await;
        (world, with_status(after, status_of(&before)))
    }

    async fn act(self, world: &World, service: &Service) -> Vec<IpAddr> {
        match self {
            Self::Delete => world.delete(service).await.map(|()| Vec::new()).unwrap(),
            _ => addresses(&world.ensure(service).await.unwrap()),
        }
    }

    fn end(self, world: &World, addresses: Vec<IpAddr>) -> (Vec<IpAddr>, [(usize, usize); 4], usize, usize) {
        (addresses, counted(world), world.objects("groups").len(), world.held())
    }

    async fn run(self, uid: Option<&'static str>) -> u32 {
        let (world, service) = self.prepare(uid).await;
        let addresses = self.act(&world, &service).await;
        let whole = self.end(&world, addresses);
        for n in 1.. {
            for side in [Side::Request, Side::Answer] {
                let (mut world, service) = self.prepare(uid).await;
                let hold = world.fake.hold(n, side);
                tokio::select! {
                    biased;
                    () = hold.wait() => {}
                    _ = self.act(&world, &service) => return n - 1,
                }
                world.restart();
                hold.release();
                let addresses = self.act(&world, &service).await;
                assert_eq!(self.end(&world, addresses), whole, "{self:?} {uid:?}: {n} {side:?}");
            }
        }
        0
    }
}

async fn run_all(uid: Option<&'static str>) {
    for (work, least) in
        [(Work::Create, 15), (Work::AddFamily, 7), (Work::RemoveFamily, 7), (Work::RemoveFirst, 7), (Work::Delete, 14)]
    {
        let writes = work.run(uid).await;
        assert!(writes >= least, "{work:?} {uid:?}: {writes} writes");
    }
}

#[tokio::test]
async fn two_families_survive_an_end_at_any_write() {
    run_all(Some(UID)).await;
}

#[tokio::test]
async fn two_families_survive_an_end_at_any_write_without_a_uid() {
    run_all(None).await;
}
