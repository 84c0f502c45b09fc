//! Tests of each row of the ownership table.

use super::super::layout::ObjectKind::{Allocation, Group, Monitor, PersistenceProfile, Pool, VirtualServer};
use super::super::layout::{Port, Probe, Protocol};
use super::super::resource::OwnerTags;
use super::*;

const UID: &str = "k-1";
const SERVICE: &str = "s-1";
const LBS: &str = "/infra/lb-services/l";
const PORT: Port = Port { protocol: Protocol::Tcp, number: 80 };

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn marks(id: &str) -> OwnerTags {
    OwnerTags {
        id: id.into(),
        path: format!("/{id}").into(),
        is_named_as_ours: true,
        service: "ns/s".into(),
        service_uid: None,
        cluster_uid: None,
        port: Some(PORT),
        secondary: None,
    }
}

fn resource(kind: ObjectKind, id: &str) -> Resource {
    Resource { tags: marks(id), ..Resource::new(kind, None) }
}

/// Returns a load balancer in the form in which the Go program leaves it.
fn of_go() -> ServiceResources {
    let mut server = resource(VirtualServer, "vs");
    server.address = Some(ip("192.0.2.5"));
    server.set_port(PORT, 30080, "/p");
    server.set_reference(Pool, "/pool");
    server.set_reference(ObjectKind::LbService, LBS);
    let mut pool = resource(Pool, "pool");
    pool.spec.members = [ip("10.0.0.1"), ip("10.0.0.2")].into();
    pool.set_reference(Monitor, "/monitor");
    let mut monitor = resource(Monitor, "monitor");
    monitor.set_probe(Probe::Tcp(30080));
    let allocation = Resource { address: Some(ip("192.0.2.5")), ..resource(Allocation, "allocation") };
    ServiceResources(vec![server, pool, monitor, allocation])
}

fn all_marks(objects: &mut ServiceResources) -> impl Iterator<Item = &mut OwnerTags> {
    objects.0.iter_mut().map(|one| &mut one.tags)
}

struct Case {
    layout: ClusterLayout,
    service_uid: Option<&'static str>,
    ingress: Vec<IpAddr>,
    lb_service: Option<&'static str>,
    nodes: BTreeSet<IpAddr>,
}

fn layout(uid: Option<&str>) -> ClusterLayout {
    ClusterLayout {
        cluster: "c".to_owned(),
        cluster_uid: uid.map(str::to_owned),
        configured: Default::default(),
        secondary: None,
    }
}

impl Default for Case {
    fn default() -> Self {
        let nodes = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(ip).into();
        let ingress = vec![ip("192.0.2.5")];
        Self { layout: layout(Some(UID)), service_uid: Some(SERVICE), ingress, lb_service: Some(LBS), nodes }
    }
}

impl Case {
    fn judge(&self, objects: &ServiceResources) -> ClassifiedResources {
        let Self { layout, service_uid, ingress, lb_service, nodes } = self;
        let (service_uid, ports, lb_service) = (*service_uid, &[PORT][..], *lb_service);
        classify(objects, &ClusterContext { layout, service_uid, ports, ingress, lb_service, nodes })
    }

    fn all_ours(&self, objects: &ServiceResources) -> bool {
        let classified = self.judge(objects);
        classified.owned == *objects && classified.ambiguous.is_empty()
    }

    fn all_held(&self, objects: &ServiceResources) -> bool {
        let classified = self.judge(objects);
        classified.ambiguous == *objects && classified.owned.is_empty()
    }
}

#[test]
fn a_load_balancer_of_the_go_program_is_adopted_by_the_address_that_the_service_reports() {
    assert!(Case::default().all_ours(&of_go()));
    assert!(Case { layout: layout(None), ..Case::default() }.all_ours(&of_go()));
    for case in [
        Case { ingress: vec![ip("192.0.2.6")], ..Case::default() },
        Case { lb_service: Some("/infra/lb-services/other"), ingress: Vec::new(), ..Case::default() },
        Case { lb_service: None, ingress: Vec::new(), ..Case::default() },
    ] {
        assert!(case.all_held(&of_go()));
    }
}

#[test]
fn without_a_reported_address_all_members_have_to_be_nodes_here() {
    let case = Case { ingress: Vec::new(), ..Case::default() };
    assert!(case.all_ours(&of_go()));
    let mut none = of_go();
    none[(Pool, 0)].spec.members.clear();
    assert!(case.all_held(&none), "an empty pool proves nothing");
    let mut one_more = of_go();
    one_more[(Pool, 0)].spec.members.insert(ip("10.9.9.9"));
    assert!(case.all_held(&one_more), "a member of another cluster");
    assert!(Case { service_uid: None, ingress: Vec::new(), ..Case::default() }.all_held(&of_go()), "no such Service");
}

#[test]
fn members_of_a_pool_that_another_cluster_has_tagged_prove_nothing() {
    let mut objects = of_go();
    objects[(Pool, 0)].tags.cluster_uid = Some("k-2".into());
    for uid in [Some(UID), None] {
        let classified = Case { ingress: Vec::new(), layout: layout(uid), ..Case::default() }.judge(&objects);
        assert!(classified.owned.is_empty(), "{classified:?}");
    }
}

#[test]
fn the_uid_of_a_cluster_decides_before_everything_else() {
    let tagged = |uid: &str| {
        let mut objects = of_go();
        all_marks(&mut objects).for_each(|tags| tags.cluster_uid = Some(uid.into()));
        objects
    };
    let nothing_fits = Case { ingress: vec![ip("192.0.2.9")], lb_service: None, service_uid: None, ..Case::default() };
    assert!(nothing_fits.all_ours(&tagged(UID)));
    let foreign = Case::default().judge(&tagged("k-2"));
    assert!(foreign.owned.is_empty() && foreign.ambiguous.is_empty());
}

#[test]
fn the_uid_of_the_service_or_an_id_of_this_program_is_enough() {
    let nothing_fits = Case { ingress: vec![ip("192.0.2.9")], lb_service: None, ..Case::default() };
    let mut by_tag = of_go();
    all_marks(&mut by_tag).for_each(|tags| tags.service_uid = Some(SERVICE.into()));
    assert!(nothing_fits.all_ours(&by_tag));
    let mut by_id = of_go();
    by_id[(VirtualServer, 0)].tags.id = layout(None).id(VirtualServer, SERVICE, Some(PORT), 3).into();
    by_id[(Pool, 0)].tags.id = layout(None).id(Pool, SERVICE, Some(PORT), 0).into();
    by_id[(Monitor, 0)].tags.id = layout(None).id(Monitor, SERVICE, Some(PORT), 9).into();
    by_id[(Allocation, 0)].tags.id = layout(None).id(Allocation, SERVICE, None, 0).into();
    assert!(nothing_fits.all_ours(&by_id));
    let mut edited = by_id.clone();
    all_marks(&mut edited).for_each(|marks| marks.port = None);
    assert!(nothing_fits.all_ours(&edited), "an administrator removed the tags with the port");
    let mut of_another = of_go();
    all_marks(&mut of_another).for_each(|marks| marks.service_uid = Some("s-2".into()));
    assert!(nothing_fits.all_held(&of_another));
}

#[test]
fn while_the_uid_of_this_cluster_is_not_known_a_tagged_object_is_ours_only_by_its_address() {
    let mut tagged = of_go();
    all_marks(&mut tagged).for_each(|tags| tags.cluster_uid = Some("k-2".into()));
    let unknown = Case { layout: layout(None), ..Case::default() };
    let classified = unknown.judge(&tagged);
    assert_eq!((classified.owned.servers().count(), classified.owned.allocations().count()), (1, 1));
    assert_eq!((classified.ambiguous.pools().count(), classified.ambiguous.of_kind(Monitor).count()), (1, 1));
    assert!(Case { ingress: Vec::new(), ..unknown }.all_held(&tagged), "its members prove nothing");
}

#[test]
fn an_address_is_ours_only_if_the_service_reports_it_or_a_virtual_server_has_it() {
    let mut left = of_go().only(Allocation);
    assert!(Case::default().all_ours(&left));
    assert!(Case { ingress: Vec::new(), ..Case::default() }.all_held(&left));
    left[(Allocation, 0)].address = None;
    let classified = Case::default().judge(&left);
    assert!(classified.owned.is_empty() && classified.ambiguous.is_empty());
    assert_eq!(classified.unresolved, left.0, "only its address can show whose it is");
    let other = Resource { address: Some(ip("192.0.2.77")), ..of_go()[(Allocation, 0)].clone() };
    let mut two = of_go();
    two.0.push(other);
    assert_eq!(Case::default().judge(&two).ambiguous.allocations().count(), 1);
}

/// After the type of a Service changed, its status is empty and its virtual server is deleted.
#[test]
fn an_address_is_ours_if_the_tag_of_a_pool_of_ours_gives_it() {
    let case = Case { ingress: Vec::new(), ..Case::default() };
    let mut left = of_go();
    left.take(VirtualServer);
    left[(Pool, 0)].address = Some(ip("192.0.2.5"));
    assert!(!case.judge(&left).owned.has(Allocation), "nothing shows whose the pool is");
    left[(Pool, 0)].tags.cluster_uid = Some(UID.into());
    assert_eq!(case.judge(&left).owned.only(Allocation), left.only(Allocation));
    left[(Allocation, 0)].address = Some(ip("192.0.2.6"));
    assert_eq!(case.judge(&left).ambiguous.only(Allocation), left.only(Allocation));
}

/// Two clusters have the same name and the same node addresses. The object belongs to a Service of the other cluster.
#[test]
fn an_id_of_this_program_that_is_of_another_service_is_not_taken_for_its_nodes() {
    let layout =
        ClusterLayout { cluster: "c".to_owned(), cluster_uid: None, configured: Default::default(), secondary: None };
    let nodes = [ip("10.0.0.1"), ip("10.0.0.2")].into();
    let (service_uid, ports) = (Some(SERVICE), &[PORT][..]);
    let facts =
        ClusterContext { layout: &layout, service_uid, ports, ingress: &[], lb_service: Some(LBS), nodes: &nodes };
    for (of, expected) in [("s-2", 0), (SERVICE, 1)] {
        let mut objects = of_go();
        objects[(VirtualServer, 0)].tags.id = layout.id(VirtualServer, of, Some(PORT), 0).into();
        assert_eq!(classify(&objects, &facts).owned.servers().count(), expected, "{of}");
    }
    assert_eq!(classify(&of_go(), &facts).owned.servers().count(), 1);
}

#[test]
fn a_group_or_persistence_profile_is_ours_by_its_marks_its_id_or_a_virtual_server() {
    let with = |id: &dyn Fn(ObjectKind) -> String, cluster_uid: Option<&str>| {
        let of = |kind| {
            let tags = OwnerTags { cluster_uid: cluster_uid.map(Into::into), port: None, ..marks(&id(kind)) };
            Resource { tags, ..Resource::new(kind, None) }
        };
        ServiceResources(vec![of(Group), of(PersistenceProfile)])
    };
    let random = |kind| format!("{kind:?}");
    let case = Case::default();
    assert!(case.all_held(&with(&random, None)));
    assert!(case.all_ours(&with(&random, Some(UID))));
    let foreign = case.judge(&with(&random, Some("k-2")));
    assert!(foreign.owned.is_empty() && foreign.ambiguous.is_empty());
    assert!(case.all_ours(&with(&|kind| layout(None).id(kind, SERVICE, None, 2), None)));
    let mut referred = ServiceResources([of_go().only(VirtualServer).0, with(&random, None).0].concat());
    for kind in [Group, PersistenceProfile] {
        let path = referred[(kind, 0)].tags.path.clone();
        referred[(VirtualServer, 0)].set_reference(kind, &path);
    }
    assert!(case.all_ours(&referred));
}

#[test]
fn each_owner_is_shown_with_the_rule_that_decides() {
    let proofs = |case: &Case, objects: &ServiceResources| -> Vec<ObjectOwner> {
        let Case { layout, service_uid, ingress, lb_service, nodes } = case;
        let (service_uid, ports, lb_service) = (*service_uid, &[PORT][..], *lb_service);
        let facts = ClusterContext { layout, service_uid, ports, ingress, lb_service, nodes };
        owners(objects, &facts).into_iter().map(|(_, owner)| owner).collect()
    };
    let ours = ObjectOwner::ThisCluster;
    let (address, reference) = (ours(OwnershipProof::Address), ours(OwnershipProof::Reference));
    assert_eq!(proofs(&Case::default(), &of_go()), [address, reference, reference, address]);
    let new = Case { ingress: Vec::new(), ..Case::default() };
    assert_eq!(proofs(&new, &of_go()), [ours(OwnershipProof::Members), reference, reference, address]);
    let mut objects = of_go();
    objects.0[0].tags.cluster_uid = Some(UID.into());
    objects.0[1].tags.cluster_uid = Some("k-2".into());
    objects.0[2].tags.service_uid = Some(SERVICE.into());
    objects.0[3].tags.id = Case::default().layout.id(Allocation, SERVICE, None, 3).into();
    let expected = [
        ours(OwnershipProof::ClusterUid),
        ObjectOwner::AnotherCluster,
        ours(OwnershipProof::ServiceUid),
        ours(OwnershipProof::Id),
    ];
    assert_eq!(proofs(&Case::default(), &objects), expected);
    let other = Case { lb_service: None, ingress: Vec::new(), ..Case::default() };
    let mut objects = of_go();
    objects.0[3].address = None;
    let expected = [ObjectOwner::Ambiguous, ObjectOwner::Ambiguous, ObjectOwner::Ambiguous, ObjectOwner::Unresolved];
    assert_eq!(proofs(&other, &objects), expected);
}
