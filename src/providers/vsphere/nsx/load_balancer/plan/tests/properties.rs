//! Properties of syncs: whatever happens between two syncs, each sync reaches the desired state, and a second sync
//! changes nothing.

use super::*;
use crate::providers::vsphere::nsx::load_balancer::service_request::SourceRanges;

fn any_port() -> impl Strategy<Value = (Port, u16)> {
    (any::<bool>(), 80u16..84, 30000u16..30003)
        .prop_map(|(is_tcp, number, node_port)| (if is_tcp { tcp(number) } else { udp(number) }, node_port))
}

fn any_wanted() -> impl Strategy<Value = DesiredLoadBalancer> {
    let ports = prop::collection::vec(any_port(), 1..4).prop_map(|mut ports| {
        ports.sort();
        ports.dedup_by_key(|(port, _)| *port);
        ports
    });
    (ports, prop::collection::btree_set(1u8..6, 0..4), any_features()).prop_map(|(ports, nodes, features)| {
        DesiredLoadBalancer { features, ..wanted(&ports, &nodes.into_iter().collect::<Vec<_>>()) }
    })
}

/// Generates a second load balancer with its own features, or none.
fn any_second() -> impl Strategy<Value = DesiredLoadBalancer> {
    (any_wanted(), any::<bool>()).prop_map(|(wanted, is_wanted)| match is_wanted {
        true => wanted,
        false => DesiredLoadBalancer { ports: Vec::new(), ..wanted },
    })
}

fn any_features() -> impl Strategy<Value = Features> {
    let ranges = prop::option::of(1u8..3).prop_map(|net| {
        net.map(|net| SourceRanges::new(&[IpNet::from(IpAddr::from([net, 0, 0, 0]))].into(), IpFamily::V4))
    });
    let affinity = prop::option::of((1u64..3).prop_map(Duration::from_secs));
    let health_check = prop::option::of(32000u16..32002);
    (ranges, affinity, health_check, any::<bool>(), any::<bool>()).prop_map(
        |(source_ranges, affinity, health_check, has_icmp_check, is_snat_disabled)| Features {
            source_ranges,
            affinity,
            health_check,
            has_icmp_check,
            is_snat_disabled,
            address: None,
        },
    )
}

proptest! {
    /// A sync may start after any step of an earlier sync, even of one with another desired state. It ends, and its
    /// result needs no further step. A virtual server whose port stays wanted is never deleted, and the address stays.
    #[test]
    fn every_sync_comes_to_what_is_wanted_and_then_changes_nothing(
        states in prop::collection::vec((any_wanted(), 0usize..12), 1..5), last in any_wanted(),
    ) {
        let mut world = World::default();
        for (wanted, steps) in states {
            world.begin(&wanted, steps);
        }
        let before = address(&last, &world.objects);
        let kept: Vec<Resource> = world.objects.servers().filter(|server| {
            last.ports.iter().any(|port| Some(port.port) == server.tags.port)
        }).cloned().collect();
        world.ensure(&last);
        prop_assert_eq!(world.ensure(&last), Vec::<String>::new());
        world.assert_features(&last);
        prop_assert!(before.is_none() || before == address(&last, &world.objects));
        for server in kept {
            prop_assert!(world.objects.servers().any(|one| one.tags == server.tags && one.address == server.address));
        }
        let served: BTreeSet<Port> = world.objects.servers().filter_map(|server| server.tags.port).collect();
        prop_assert_eq!(served, last.ports.iter().map(|port| port.port).collect::<BTreeSet<_>>());
        prop_assert_eq!(world.objects.pools().count(), last.ports.len());
        let is_udp_checked = last.features.health_check.is_some() || last.features.has_icmp_check;
        let has_monitor = |port: &&WantedPort| port.port.protocol == Protocol::Tcp || is_udp_checked;
        let monitors = last.ports.iter().filter(has_monitor).count();
        prop_assert_eq!((world.objects.of_kind(Monitor).count(), world.objects.allocations().count()), (monitors, 1));
        let Features { source_ranges, affinity, .. } = &last.features;
        let of_service = (world.objects.of_kind(Group).count(), world.objects.of_kind(PersistenceProfile).count());
        prop_assert_eq!(of_service, (usize::from(source_ranges.is_some()), usize::from(affinity.is_some())));
        for pool in world.objects.pools() {
            prop_assert!(members::are_equal(&pool.spec.members, &last.members));
        }
        world.delete(Some(CLUSTER));
        prop_assert!(world.objects.is_empty());
    }
    /// A second family is added and removed. Both load balancers reach the desired state. A change of the second load
    /// balancer does not change the first.
    #[test]
    fn two_families_come_to_what_is_wanted_beside_each_other(
        states in prop::collection::vec((any_wanted(), any_second(), 0usize..20), 1..5), last in any_wanted(),
        second in any_second(), third in any_second(),
    ) {
        let mut world = World::default();
        for (first, second, steps) in states {
            world.begin_both(&first, &second, steps);
        }
        let addresses = |world: &World| [None, SECOND].map(|which| {
            let ours = world.objects.of(which);
            let server = ours.servers().next().and_then(|server| server.address);
            server.or_else(|| ours.allocations().find_map(|allocation| allocation.address))
        });
        let before = addresses(&world);
        world.begin_both(&last, &second, usize::MAX);
        world.assert_is(None, &last);
        world.assert_is(SECOND, &second);
        prop_assert_eq!(world.begin_both(&last, &second, usize::MAX), Vec::<String>::new());
        let after = addresses(&world);
        prop_assert!(before[0].is_none() || before[0] == after[0]);
        prop_assert!(before[1].is_none() || second.ports.is_empty() || before[1] == after[1]);
        let first = world.objects.of(None);
        world.begin_both(&last, &third, usize::MAX);
        world.assert_is(SECOND, &third);
        prop_assert_eq!(world.objects.of(None), first);
        world.begin_both(&DesiredLoadBalancer { ports: Vec::new(), ..last }, &DesiredLoadBalancer { ports: Vec::new(), ..third }, usize::MAX);
        prop_assert!(world.objects.is_empty(), "{:?}", world.objects);
    }
    /// An administrator, another program or a restart changes the state between two syncs.
    #[test]
    fn whatever_happens_in_between_every_sync_comes_to_what_is_wanted(
        states in prop::collection::vec((any_wanted(), 0usize..30, any_disturbance()), 1..6),
        last in any_wanted(), adopts_fully in any::<bool>(),
    ) {
        let mut world = World::default();
        for (wanted, steps, disturbance) in states {
            world.begin(&DesiredLoadBalancer { adopts_fully, ..wanted }, steps);
            disturbance.happen(&mut world);
        }
        let last = DesiredLoadBalancer { adopts_fully, ..last };
        world.ensure(&last);
        prop_assert_eq!(world.ensure(&last), Vec::<String>::new());
        prop_assert_eq!(world.served(&last, None), last.ports.iter().map(|port| port.port).collect::<BTreeSet<_>>());
        world.assert_features(&last);
        let used: BTreeSet<&str> = world.objects.servers().map(|server| server.reference(Pool)).collect();
        for pool in world.objects.pools().filter(|pool| used.contains(&*pool.tags.path)) {
            prop_assert!(members::are_equal(&pool.spec.members, &last.members), "{:?}", pool);
        }
        for server in world.objects.servers() {
            let port = last.ports.iter().find(|port| Some(port.port) == server.tags.port).unwrap();
            prop_assert_eq!(server.spec.node_port, Some(port.node_port));
        }
        // After a restart or a manual change, some objects are only found by a full list.
        world.list();
        let left = world.ensure(&last);
        prop_assert!(left.iter().all(|word| word.starts_with("delete")), "{:?}", left);
        world.delete_as(&last);
        prop_assert!(world.objects.is_empty(), "{:?}", world.objects);
    }
}

/// A change between two syncs.
#[derive(Clone, Debug)]
enum Disturbance {
    Restart,
    /// Removes the ids and tags of this program, as if the Go program had created the objects.
    Adoption,
    OtherPort(usize),
    OtherTag(usize, Option<Port>),
    OtherTagOfPool(usize, Option<Port>),
    SecondServer(usize),
    SecondAddress(Option<u8>),
    NoServer(usize),
    NoList(usize),
    NoAllocation,
    OtherAddress(usize),
}

fn any_disturbance() -> impl Strategy<Value = Disturbance> {
    let tag = || prop::option::of(any_port().prop_map(|(port, _)| port));
    prop_oneof![
        Just(Disturbance::Restart),
        Just(Disturbance::Adoption),
        (0usize..4).prop_map(Disturbance::OtherPort),
        (0usize..4, tag()).prop_map(|(at, port)| Disturbance::OtherTag(at, port)),
        (0usize..4, tag()).prop_map(|(at, port)| Disturbance::OtherTagOfPool(at, port)),
        (0usize..4).prop_map(Disturbance::SecondServer),
        prop::option::of(200u8..203).prop_map(Disturbance::SecondAddress),
        (0usize..4).prop_map(Disturbance::NoServer),
        (0usize..4).prop_map(Disturbance::NoList),
        Just(Disturbance::NoAllocation),
        (0usize..4).prop_map(Disturbance::OtherAddress),
    ]
}

impl Disturbance {
    fn happen(self, world: &mut World) {
        match self {
            Self::Restart => world.forget(),
            Self::Adoption => world.adopt(),
            Self::OtherPort(at) => {
                world
                    .objects
                    .get_mut(VirtualServer, at)
                    .into_iter()
                    .for_each(|server| server.spec.number = Some(9000 + at as u16));
            }
            Self::OtherTag(at, port) => {
                world.objects.get_mut(VirtualServer, at).into_iter().for_each(|server| server.tags.port = port);
            }
            Self::OtherTagOfPool(at, port) => {
                world.objects.get_mut(Pool, at).into_iter().for_each(|pool| pool.tags.port = port);
            }
            Self::SecondServer(at) => {
                let Some(mut second) = world.objects.of_kind(VirtualServer).nth(at).cloned() else { return };
                second.tags = world.marks(VirtualServer, second.tags.port);
                second.address = Some(ip(100 + world.made as u8));
                world.objects.0.push(second);
            }
            Self::SecondAddress(last) => {
                let allocation = world.allocation("p", last.map(ip));
                world.objects.0.push(allocation);
            }
            Self::NoServer(at) => {
                let path = world.objects.servers().nth(at).map(|server| server.tags.path.clone());
                world.objects.0.retain(|one| Some(&one.tags.path) != path.as_ref());
            }
            Self::NoAllocation => drop(world.objects.take(Allocation)),
            Self::OtherAddress(at) => {
                world.made += 1;
                let address = Some(ip(100 + world.made as u8));
                world.objects.get_mut(VirtualServer, at).into_iter().for_each(|server| server.address = address);
            }
            Self::NoList(at) => {
                world
                    .objects
                    .get_mut(VirtualServer, at)
                    .into_iter()
                    .for_each(|server| server.spec.is_restricted = false);
            }
        }
    }
}

impl World {
    fn adopt(&mut self) {
        let mut renamed = std::collections::BTreeMap::new();
        for (kind, at) in [VirtualServer, Pool, Monitor].into_iter().flat_map(|kind| (0..9).map(move |at| (kind, at))) {
            let new = self.marks(kind, None);
            let Some(marks) = self.objects.get_mut(kind, at).map(|one| &mut one.tags) else { continue };
            renamed.insert(marks.path.clone(), new.path.clone());
            *marks = OwnerTags { port: marks.port, cluster_uid: None, ..new };
        }
        for one in &mut self.objects.0 {
            one.references.retain(|(kind, path)| ![Pool, Monitor].contains(kind) || renamed.contains_key(path));
            for (_, path) in one.references.iter_mut().filter(|(kind, _)| [Pool, Monitor].contains(kind)) {
                path.clone_from(&renamed[path]);
            }
        }
    }

    /// Checks that one of two load balancers is in the desired state.
    fn assert_is(&self, second: Option<IpFamily>, wanted: &DesiredLoadBalancer) {
        let ours = self.objects.of(second);
        if wanted.ports.is_empty() {
            assert!(ours.is_empty(), "{ours:?}");
            return;
        }
        let served: BTreeSet<Port> = ours.servers().filter_map(|server| server.tags.port).collect();
        assert_eq!(served, wanted.ports.iter().map(|port| port.port).collect());
        assert_eq!((ours.pools().count(), ours.allocations().count()), (wanted.ports.len(), 1));
        assert!(ours.pools().all(|pool| members::are_equal(&pool.spec.members, &wanted.members)));
        for server in ours.servers() {
            assert_eq!(server.address, ours[(Allocation, 0)].address);
            assert!(ours.pools().any(|pool| server.refers_to(&pool.tags.path)));
        }
        World { objects: ours, ..self.clone() }.assert_features(wanted);
    }

    /// Checks the features on virtual servers of this program. With full adoption, checks all virtual servers.
    fn assert_features(&self, wanted: &DesiredLoadBalancer) {
        let Features { source_ranges, affinity, is_snat_disabled, .. } = &wanted.features;
        let is_ours = |server: &&Resource| wanted.adopts_fully || has_own_form(&server.tags.id);
        for server in self.objects.servers().filter(is_ours) {
            let group = self.objects.of_kind(Group).find(|group| server.refers_to(&group.tags.path));
            let networks = source_ranges.as_ref().map(|ranges| Some(ranges.networks().clone()));
            assert_eq!(group.map(|group| group.spec.ranges.clone()), networks);
            assert_eq!(server.spec.is_restricted, source_ranges.is_some());
            let mut profiles = self.objects.of_kind(PersistenceProfile);
            let profile = profiles.find(|profile| server.refers_to(&profile.tags.path));
            assert_eq!(profile.map(|profile| profile.spec.timeout), affinity.map(Some));
            let pool = self.objects.pools().find(|pool| server.refers_to(&pool.tags.path)).unwrap();
            assert_eq!(pool.spec.is_snat_disabled, Some(*is_snat_disabled));
        }
    }
}
