//! Tests of features of Services that the Go program ignores.

use super::*;
use crate::providers::vsphere::nsx::load_balancer::service_request::{
    ANNOTATION_SNAT, ANNOTATION_UDP_CHECK, SourceRanges,
};

fn ranges(network: &str) -> Option<SourceRanges> {
    Some(SourceRanges::new(&[network.parse().unwrap()].into(), IpFamily::V4))
}

fn all() -> Features {
    Features {
        source_ranges: ranges("10.0.0.0/8"),
        affinity: Some(Duration::from_secs(60)),
        health_check: Some(32000),
        has_icmp_check: false,
        is_snat_disabled: true,
        address: None,
    }
}

fn with(features: Features) -> DesiredLoadBalancer {
    DesiredLoadBalancer { features, ..wanted(&[(udp(53), 30053)], &[1]) }
}

fn world() -> World {
    World { lb_service: Some(lb_service()), ..World::default() }
}

/// Returns a load balancer in the form in which the Go program leaves it.
fn adopted(wanted: &DesiredLoadBalancer) -> World {
    let mut world = world();
    world.ensure(&DesiredLoadBalancer { features: Features::default(), ..wanted.clone() });
    world.objects[(VirtualServer, 0)].tags = world.marks(VirtualServer, Some(udp(53)));
    world.objects[(Pool, 0)].tags = world.marks(Pool, Some(udp(53)));
    let pool = world.objects[(Pool, 0)].tags.path.clone();
    world.objects[(VirtualServer, 0)].set_reference(Pool, &pool);
    without_uids(&mut world.objects);
    world
}

#[test]
fn a_virtual_server_is_created_after_what_it_refers_to_and_deleted_before() {
    let mut world = world();
    let asked = with(all());
    let created = world.ensure(&asked);
    assert_eq!(created, ["group", "profile", "monitor", "pool", "allocate", "read address", "server"]);
    let server = &world.objects[(VirtualServer, 0)];
    assert_eq!((server.reference(Group), server.spec.is_restricted), (&*world.objects[(Group, 0)].tags.path, true));
    assert_eq!(*server.reference(PersistenceProfile), *world.objects[(PersistenceProfile, 0)].tags.path);
    assert_eq!(monitors(&world), [(Some(MonitorType::Http), Some(32000))]);
    assert_eq!(world.objects[(Pool, 0)].spec.is_snat_disabled, Some(true));
    assert_eq!(world.ensure(&asked), [""; 0]);
    let expected = ["delete server", "delete pool", "delete monitor", "delete profile", "delete group", "release"];
    assert_eq!(world.clone().delete(Some(CLUSTER)), expected);
    world.forget();
    assert_eq!(world.delete(Some(CLUSTER)), [&["read", "read"], &expected[..]].concat());
    assert!(world.objects.is_empty());
}

#[test]
fn a_service_that_asks_for_something_else_gets_it_and_keeps_nothing() {
    let mut world = world();
    world.ensure(&with(all()));
    let other = Features {
        source_ranges: ranges("10.1.0.0/16"),
        affinity: Some(Duration::from_secs(70)),
        health_check: Some(32001),
        ..all()
    };
    assert_eq!(world.ensure(&with(other.clone())), ["change monitor", "change group", "change profile"]);
    world.forget();
    assert_eq!(world.ensure(&with(other)), ["read", "read"], "a restart reads what it needs and changes nothing");
    world.forget();
    let nothing = world.ensure(&with(Features::default()));
    let expected = ["change pool", "read", "read", "change server", "delete monitor", "delete profile", "delete group"];
    assert_eq!(nothing, expected);
    let asked = world.ensure(&with(all()));
    let expected = ["change pool", "group", "change server", "profile", "change server", "monitor", "change pool"];
    assert_eq!(asked, expected);
}

#[test]
fn what_an_interrupted_creation_or_deletion_left_is_found_by_its_id() {
    let mut half = world();
    let asked = with(all());
    assert_eq!(half.begin(&asked, 2), ["group", "profile"]);
    half.forget();
    let steps = half.clone().ensure(&asked);
    assert_eq!(steps[..3], ["group", "profile", "monitor"], "a create meets what is there");
    assert_eq!(half.delete_as(&asked), ["read", "delete group", "read", "delete profile"]);
    assert!(half.objects.is_empty());
    assert_eq!(world().delete_as(&asked), ["read", "read"]);
    assert_eq!(world().delete(Some(CLUSTER)), [""; 0], "nothing is read that the Service did not ask for");
}

#[test]
fn an_adopted_load_balancer_stays_as_it_is_and_says_in_what() {
    let asked = with(Features { address: Some(ip(77)), ..all() });
    let mut world = adopted(&asked);
    assert_eq!(world.ensure(&asked), [""; 0]);
    let ignored_by = |wanted: &DesiredLoadBalancer, world: &World| {
        ignored(wanted, &known(&world.objects, world.lb_service.as_ref()))
    };
    let everything = [
        "spec.loadBalancerSourceRanges",
        "spec.sessionAffinity",
        "spec.externalTrafficPolicy",
        ANNOTATION_SNAT,
        "spec.loadBalancerIP",
    ];
    assert_eq!(ignored_by(&asked, &world), everything);
    assert_eq!(ignored_by(&with(Features::default()), &world), [""; 0]);
    // The load balancer follows its nodes. An update that adds the UID of the cluster changes nothing else.
    let moved = DesiredLoadBalancer { members: wanted(&[], &[2]).members, ..asked.clone() };
    assert_eq!(world.ensure(&moved), ["change pool"]);
    world.objects[(VirtualServer, 0)].tags.cluster_uid = Some(CLUSTER.into());
    assert_eq!(world.ensure(&moved), [""; 0]);
    // Settings of an administrator stay too.
    world.objects[(VirtualServer, 0)].set_reference(Group, "/infra/domains/default/groups/admin");
    world.objects[(VirtualServer, 0)].set_reference(PersistenceProfile, "/infra/lb-persistence-profiles/admin");
    let plain = DesiredLoadBalancer { features: Features::default(), ..moved.clone() };
    assert_eq!(world.ensure(&plain), [""; 0]);
    assert_eq!(ignored_by(&plain, &world), &everything[..2]);
    let full = DesiredLoadBalancer { adopts_fully: true, ..moved };
    let expected = ["change pool", "group", "profile", "change server", "monitor", "change pool"];
    assert_eq!(world.ensure(&full), expected);
    assert_eq!(world.ensure(&full), [""; 0]);
    assert_eq!(ignored_by(&full, &world), [""; 0]);
}

#[test]
fn a_new_port_of_an_adopted_load_balancer_gets_what_the_service_asks_for() {
    let asked = with(all());
    let mut world = adopted(&asked);
    let more = DesiredLoadBalancer { ports: wanted(&[(udp(53), 30053), (tcp(53), 30054)], &[]).ports, ..asked };
    let steps = world.ensure(&more);
    assert_eq!(steps, ["group", "profile", "monitor", "pool", "server"]);
    assert_eq!(world.objects[(VirtualServer, 0)].reference(Group), "", "the adopted one stays");
    assert_eq!(world.objects[(VirtualServer, 1)].reference(Group), &*world.objects[(Group, 0)].tags.path);
}

#[test]
fn a_list_that_an_administrator_disabled_or_replaced_is_set_again() {
    let mut world = world();
    let asked = with(Features { source_ranges: all().source_ranges, ..Features::default() });
    world.ensure(&asked);
    let before = world.objects.clone();
    world.objects[(VirtualServer, 0)].spec.is_restricted = false;
    assert_eq!(world.ensure(&asked), ["change server"]);
    world.objects[(VirtualServer, 0)].set_reference(Group, "/infra/domains/default/groups/admin");
    assert_eq!(world.ensure(&asked), ["change server"]);
    world.objects[(Group, 0)].spec.ranges = None;
    assert_eq!(world.ensure(&asked), ["change group"]);
    assert_eq!(world.objects, before);
}

#[test]
fn the_address_that_a_service_asks_for_is_reserved() {
    let address = ip(7);
    let asked = with(Features { address: Some(address), ..Features::default() });
    let mut world = world();
    assert_eq!(world.begin(&asked, 1), ["pool"]);
    let objects = world.view();
    let expected = Some(Action::Allocate(AllocationRequest::Only(address)));
    assert_eq!(step(&asked, &objects, world.lb_service.as_ref()), expected);
}

/// Returns types and ports of all monitors.
fn monitors(world: &World) -> Vec<(Option<MonitorType>, Option<u16>)> {
    world.objects.of_kind(Monitor).map(|monitor| (monitor.spec.monitor_type, monitor.spec.number)).collect()
}

#[test]
fn another_type_of_health_check_is_another_monitor_and_the_pool_has_one_all_the_time() {
    let tcp_port = |features| DesiredLoadBalancer { features, ..wanted(&[(tcp(80), 30080)], &[1]) };
    let udp_port = |features| DesiredLoadBalancer { features, ..wanted(&[(udp(53), 30053)], &[1]) };
    let local = || Features { health_check: Some(32000), ..Features::default() };
    let icmp = || Features { has_icmp_check: true, ..Features::default() };
    for (before, after, expected) in [
        (tcp_port(Features::default()), tcp_port(local()), (Some(MonitorType::Http), Some(32000))),
        (tcp_port(local()), tcp_port(Features::default()), (Some(MonitorType::Tcp), Some(30080))),
        (udp_port(icmp()), udp_port(local()), (Some(MonitorType::Http), Some(32000))),
        (udp_port(local()), udp_port(icmp()), (Some(MonitorType::Icmp), None)),
        (
            udp_port(local()),
            udp_port(Features { has_icmp_check: true, ..local() }),
            (Some(MonitorType::Http), Some(32000)),
        ),
    ] {
        let mut world = world();
        world.ensure(&before);
        let is_same = monitors(&world) == [expected];
        let steps = world.ensure(&after);
        let expected_steps = ["monitor", "change pool", "delete monitor"];
        assert_eq!(steps, if is_same { &[][..] } else { &expected_steps }, "{expected:?}");
        assert_eq!(monitors(&world), [expected]);
        let monitor = world.objects[(Monitor, 0)].tags.path.clone();
        assert_eq!(world.objects[(Pool, 0)].references, [(Monitor, monitor)]);
        assert_eq!(world.ensure(&after), [""; 0], "{expected:?}");
    }
}

#[test]
fn a_monitor_that_cannot_be_created_keeps_no_pool_from_following_its_nodes() {
    let mut world = world();
    world.ensure(&wanted(&[(tcp(80), 30080)], &[1]));
    let features = Features { health_check: Some(32000), ..Features::default() };
    let local = DesiredLoadBalancer { features, ..wanted(&[(tcp(80), 30080)], &[1, 2]) };
    let before = world.objects[(Pool, 0)].references.clone();
    assert_eq!(world.begin(&local, 1), ["change pool"]);
    assert_eq!(world.objects[(Pool, 0)].references, before);
    assert_eq!(world.ensure(&local), ["monitor", "change pool", "delete monitor"]);
}

#[test]
fn a_monitor_of_an_earlier_version_is_changed_once() {
    let mut world = world();
    let asked = with(Features { health_check: Some(32000), ..Features::default() });
    world.ensure(&asked);
    world.objects[(Monitor, 0)].spec.has_other_version = true;
    assert_eq!(world.ensure(&asked), ["change monitor"]);
    assert_eq!(world.ensure(&asked), [""; 0]);
}

#[test]
fn an_adopted_port_keeps_the_health_check_of_the_go_program() {
    for (port, features, field) in [
        (tcp(80), Features { health_check: Some(32000), ..Features::default() }, "spec.externalTrafficPolicy"),
        (udp(53), Features { has_icmp_check: true, ..Features::default() }, ANNOTATION_UDP_CHECK),
    ] {
        let asked = DesiredLoadBalancer { features, ..wanted(&[(port, 30080)], &[1]) };
        let mut world = world();
        world.ensure(&DesiredLoadBalancer { features: Features::default(), ..asked.clone() });
        world.objects[(VirtualServer, 0)].tags = world.marks(VirtualServer, Some(port));
        let before = world.objects.only(Monitor);
        assert_eq!(world.ensure(&asked), [""; 0], "{field}");
        assert_eq!(world.objects.only(Monitor), before);
        assert_eq!(ignored(&asked, &known(&world.objects, world.lb_service.as_ref())), [field]);
        let full = DesiredLoadBalancer { adopts_fully: true, ..asked };
        assert!(world.ensure(&full).contains(&"monitor".to_owned()), "{field}");
        assert_eq!(ignored(&full, &known(&world.objects, world.lb_service.as_ref())), [""; 0]);
    }
}
