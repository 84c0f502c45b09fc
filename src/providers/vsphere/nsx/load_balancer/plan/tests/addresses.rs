//! Tests of reserved addresses, and of virtual servers with an edited or released address.

use super::*;

/// Returns a load balancer with one port and one address.
fn served() -> (World, DesiredLoadBalancer) {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    (world, DesiredLoadBalancer { ingress: vec![ip(1)], ..one })
}

fn next_of<'a>(wanted: &'a DesiredLoadBalancer, world: &'a World, held: &'a ServiceResources) -> Option<Action<'a>> {
    next_for(wanted, CurrentState { ambiguous: held, ..known(&world.objects, world.lb_service.as_ref()) })
}

fn is_set_back(step: Option<Action<'_>>) -> bool {
    matches!(step, Some(Action::Update { resource, desired }) if resource.address != desired.address)
}

#[test]
fn what_the_service_asks_for_goes_before_what_it_reports() {
    let none = wanted(&[(tcp(80), 30080)], &[1]);
    let reported = DesiredLoadBalancer { reported: Some(ip(7)), ..none.clone() };
    let both =
        DesiredLoadBalancer { features: Features { address: Some(ip(8)), ..Features::default() }, ..reported.clone() };
    for (wanted, allocation_request) in [
        (none, AllocationRequest::Any),
        (reported, AllocationRequest::Rather(ip(7))),
        (both, AllocationRequest::Only(ip(8))),
    ] {
        let mut world = World::default();
        world.begin(&wanted, 2);
        assert_eq!(next_of(&wanted, &world, &NOTHING), Some(Action::Allocate(allocation_request)));
    }
}

#[test]
fn an_edited_address_is_set_back_and_does_not_count() {
    let (mut world, one) = served();
    let before = world.objects.clone();
    for edited in [Some(ip(9)), None] {
        world.objects[(VirtualServer, 0)].address = edited;
        assert_eq!(address(&one, &world.objects), Some(ip(1)));
        let lost = DesiredLoadBalancer { ingress: Vec::new(), ..one.clone() };
        assert_eq!((address(&lost, &world.objects), shown_address(&world.objects, false)), (Some(ip(1)), Some(ip(1))));
        assert_eq!(world.ensure(&one), ["set address"]);
        assert_eq!(world.objects, before);
    }
}

#[test]
fn an_edited_address_of_another_program_stays_and_is_said() {
    for adopts_fully in [false, true] {
        let (mut world, one) = served();
        let one = DesiredLoadBalancer { adopts_fully, ..one };
        world.objects[(VirtualServer, 0)].tags = world.marks(VirtualServer, Some(tcp(80)));
        world.objects[(VirtualServer, 0)].address = Some(ip(9));
        let expected: &[&str] = if adopts_fully { &["set address"] } else { &[] };
        assert_eq!(world.ensure(&one), expected);
        assert_eq!(address(&one, &world.objects), Some(ip(1)));
        assert_eq!(edited(&one, &known(&world.objects, None)).len(), usize::from(!adopts_fully));
        // A new port gets the reserved address.
        let two = DesiredLoadBalancer { ports: wanted(&[(tcp(80), 30080), (tcp(81), 30081)], &[1]).ports, ..one };
        world.ensure(&two);
        assert!(world.objects.servers().any(|server| server.spec.number == Some(81) && server.address == Some(ip(1))));
    }
}

#[test]
fn an_address_that_may_be_reserved_is_not_set_back() {
    let (mut world, one) = served();
    world.objects[(VirtualServer, 0)].address = Some(ip(9));
    let unread = DesiredLoadBalancer { has_unresolved: true, ..one.clone() };
    assert_eq!(next_of(&unread, &world, &NOTHING), None);
    assert_eq!((address(&unread, &world.objects), shown_address(&world.objects, true)), (Some(ip(9)), Some(ip(9))));
    let mut second = world.objects[(Allocation, 0)].clone();
    second.tags = world.marks(Allocation, None);
    second.address = None;
    world.objects.0.push(second);
    // The Service reports another address, so the reserved address is read first.
    assert!(matches!(next_of(&one, &world, &NOTHING), Some(Action::ReadAddress(_))));
    let silent = DesiredLoadBalancer { ingress: Vec::new(), ..one.clone() };
    assert!(!is_set_back(next_of(&silent, &world, &NOTHING)));
    assert_eq!(address(&silent, &world.objects), Some(ip(9)));
    world.objects[(Allocation, 1)].address = Some(ip(9));
    assert_eq!(address(&one, &world.objects), Some(ip(9)), "it is reserved");
}

#[test]
fn an_edited_address_is_not_set_back_to_where_another_virtual_server_listens() {
    let (mut world, one) = served();
    let mut held = world.objects.only(VirtualServer);
    held[(VirtualServer, 0)].tags = world.marks(VirtualServer, Some(tcp(80)));
    world.objects[(VirtualServer, 0)].address = Some(ip(9));
    assert_eq!(next_of(&one, &world, &held), None);
    assert_eq!(edited(&one, &CurrentState { ambiguous: &held, ..known(&world.objects, None) }).len(), 1);
    held[(VirtualServer, 0)].spec.number = Some(81);
    assert!(is_set_back(next_of(&one, &world, &held)));
}

#[test]
fn an_address_that_nothing_reserves_is_reserved_once_in_a_sync() {
    let (mut world, one) = served();
    let allocations = world.objects.take(Allocation);
    let unread = DesiredLoadBalancer { has_unresolved: true, ..one.clone() };
    assert_eq!(next_of(&unread, &world, &NOTHING), None, "it may be reserved");
    for address in [None, Some(ip(1))] {
        let mut ambiguous = allocations.clone();
        ambiguous[(Allocation, 0)].address = address;
        assert_eq!(next_of(&one, &world, &ambiguous), None, "it may be reserved");
    }
    let tried: BTreeSet<Box<str>> = [world.objects[(VirtualServer, 0)].tags.path.clone()].into();
    let again = CurrentState { settled_paths: &tried, ..known(&world.objects, world.lb_service.as_ref()) };
    assert_eq!(next_for(&one, again), None);
    let mut without_pool = world.clone();
    without_pool.objects[(VirtualServer, 0)].address_pool = "".into();
    assert_eq!(next_of(&one, &without_pool, &NOTHING), None, "it may be in any pool");
    // A load balancer that is to be deleted needs no reserved address.
    let gone = DesiredLoadBalancer { ports: Vec::new(), ..one.clone() };
    assert!(matches!(next_of(&gone, &world, &NOTHING), Some(Action::Delete(one)) if one.kind == VirtualServer));
    assert_eq!(world.ensure(&one), ["reserve"]);
    assert_eq!(world.objects.allocations().count(), 1);
}

#[test]
fn an_address_beyond_the_first_is_released_unless_another_owner_uses_it() {
    let (mut world, one) = served();
    let marks = world.marks(Allocation, None);
    let second = Resource { tags: marks, address: Some(ip(9)), ..world.objects[(Allocation, 0)].clone() };
    world.objects.0.push(second);
    assert_eq!(next_of(&one, &world, &NOTHING), Some(Action::Delete(&world.objects[(Allocation, 1)])));
    let elsewhere = [ip(9)].into();
    let used = CurrentState { addresses_in_use: &elsewhere, ..known(&world.objects, world.lb_service.as_ref()) };
    assert_eq!(next_for(&one, used), None);
}

#[test]
fn addresses_are_doubtful_by_family() {
    let (mut world, _) = served();
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    for (ingress, expected) in [
        (vec![], false),
        (vec![ip(1)], false),
        (vec![ip(2)], true),
        (vec![v6], false),
        (vec![v6, ip(2)], true),
        (vec![ip(2), ip(1)], false),
    ] {
        assert_eq!(is_doubtful(&ingress, &world.objects), expected, "{ingress:?}");
    }
    let mut second = world.objects[(VirtualServer, 0)].clone();
    second.address = Some(v6);
    world.objects.0.push(second);
    assert!(is_doubtful(&[ip(1), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2])], &world.objects));
}
