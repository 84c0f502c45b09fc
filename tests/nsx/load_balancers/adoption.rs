//! Load balancers that the Go program created: complete ones are adopted without a write, and the creation or deletion
//! of partial ones is completed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ccm::providers::vsphere::config::{IpPool, LoadBalancerConfig as Config};
use ccm::providers::vsphere::nsx::load_balancer::StepKind;
use ccm::providers::vsphere::nsx::load_balancer::preview::StepPurpose;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use support::fake_nsx::go::{GoBalancer, GoPaths, GoStep};
use support::fake_nsx::{Behaviour, Model, Realization, Trouble};

use super::references::AGAIN;
use super::world::*;
use crate::routes::world::node;
use crate::world::advance;

const ADDRESS: &str = "192.0.2.77";

fn address() -> IpAddr {
    ADDRESS.parse().unwrap()
}

/// Returns the paths that requests wrote.
fn writes(world: &World) -> Vec<String> {
    let history = world.fake.history();
    history.iter().filter(|version| version.request.is_some()).map(|version| version.path.clone()).collect()
}

/// Returns a manager with a second gateway and a load balancer service of an administrator on it.
fn model() -> Model {
    Model::small()
        .tier1("t2")
        .object("/infra/lb-services/existing", json!({"size": "SMALL", "connectivity_path": "/infra/tier-1s/t2"}))
}

fn existing() -> Config {
    Config { lb_service_id: Some("existing".to_owned()), tier1: None, ..config() }
}

/// Returns complete load balancers of the Go program, each with its Service and configuration.
fn whole() -> Vec<(&'static str, GoBalancer, Service, Config)> {
    let balancer = || GoBalancer::new(NAME, "ns/s", address());
    let one = || service("ns/s", &[("TCP", 80, 30080)]);
    let mut unmanaged = balancer();
    unmanaged.lb_service_path = Some("/infra/lb-services/existing".to_owned());
    let by_name = Config {
        common: ccm::providers::vsphere::config::Class {
            pool: Some(IpPool::Name("pool1".to_owned())),
            ..config().common
        },
        ..config()
    };
    let several = [("TCP", 80, 30080), ("UDP", 80, 30081), ("TCP", 443, 30443)];
    let mut tagged = balancer();
    tagged.tags.insert("team".to_owned(), "a".to_owned());
    let team = Config { tags: [("team".to_owned(), "b".to_owned())].into(), ..config() };
    vec![
        ("managed", balancer(), one(), config()),
        ("unmanaged", unmanaged, one(), existing()),
        ("pool by name", balancer(), one(), by_name),
        ("udp", balancer().ports(&[("UDP", 53, 30053)]), service("ns/s", &[("UDP", 53, 30053)]), config()),
        ("several ports", balancer().ports(&several), service("ns/s", &several), config()),
        ("other configured tags", tagged, one(), team),
    ]
}

#[tokio::test]
async fn a_whole_load_balancer_is_taken_over_without_a_write() {
    for uid in [Some(UID), None] {
        for (name, balancer, one, config) in whole() {
            let mut world = World::with(model(), uid, config).await;
            balancer.put(&world.fake, "go");
            let one = reporting(one, ADDRESS);
            assert_eq!(addresses(&world.ensure(&one).await.unwrap()), [address()], "{name}");
            assert!(world.update(&[&one]).await.iter().all(Result::is_ok), "{name}");
            world.restart();
            world.ensure(&one).await.unwrap();
            assert_eq!(writes(&world), Vec::<String>::new(), "{name} {uid:?}");
            assert_eq!(world.held(), 0, "{name} {uid:?}");
            assert_eq!(world.handed_back(&[&one]), Vec::<String>::new(), "{name} {uid:?}");

            // The load balancer can be deleted, too. The load balancer service of the Go program stays.
            world.delete(&one).await.unwrap();
            let services = world.objects("lb-services").len();
            assert_eq!(world.counted(), [services, 0, 0, 0, 0], "{name} {uid:?}");
        }
    }
}

/// `plan --compare` beside the Go program.
#[tokio::test]
async fn a_rehearsal_beside_a_whole_load_balancer_announces_no_change() {
    for (name, balancer, one, config) in whole() {
        let world = World::with(model(), Some(UID), config).await;
        balancer.put(&world.fake, "go");
        let one = reporting(one, ADDRESS);
        assert!(world.get(&one).await.unwrap().is_some(), "{name}: NSX is listed");
        let members = world.balancers.target_members(&world.nodes());
        let announced = world.balancers.first_step(&one, StepPurpose::Sync(&members)).unwrap().unwrap();
        assert_eq!((announced.step, announced.kind), (None, None), "{name}");
        assert_eq!(announced.addresses, [address()], "{name}");

        world.cluster.put(node("n9", "uid-9", &[], &[("InternalIP", "10.0.0.9")]));
        let members = world.balancers.target_members(&world.nodes());
        let announced = world.balancers.first_step(&one, StepPurpose::Sync(&members)).unwrap().unwrap();
        assert_eq!(announced.kind, Some(StepKind::Adopt), "{name}: a write to an object of the Go program");
        assert_eq!(announced.changes, ["lacks the members 10.0.0.9"], "{name}");
        let deletion = world.balancers.first_step(&one, StepPurpose::Deletion).unwrap().unwrap();
        assert!(matches!(deletion.kind, Some(StepKind::Adopt | StepKind::Delete | StepKind::Read)), "{deletion:?}");
        assert_eq!(writes(&world), Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_load_balancer_of_a_service_without_address_is_taken_over_by_its_nodes() {
    let world = World::with(model(), Some(UID), config()).await;
    GoBalancer::new(NAME, "ns/s", address()).put(&world.fake, "go");
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    assert_eq!(addresses(&world.ensure(&one).await.unwrap()), [address()]);
    assert_eq!(writes(&world), Vec::<String>::new());
}

#[tokio::test]
async fn fields_that_the_go_program_ignores_stay_as_an_administrator_set_them() {
    let world = World::with(model(), Some(UID), config()).await;
    let paths = GoBalancer::new(NAME, "ns/s", address()).put(&world.fake, "go");
    let edit = |object: &mut Value| {
        for (field, value) in [
            ("display_name", json!("renamed")),
            ("description", json!("by hand")),
            ("algorithm", json!("LEAST_CONNECTION")),
            ("min_active_members", json!(2)),
            ("max_concurrent_connections", json!(7)),
        ] {
            let of_pool = object["resource_type"] == json!("LBPool");
            let is_known = match field {
                "algorithm" | "min_active_members" => of_pool,
                "max_concurrent_connections" => object["resource_type"] == json!("LBVirtualServer"),
                _ => true,
            };
            if is_known {
                object[field] = value;
            }
        }
        if object["resource_type"] == json!("LBPool") {
            object["members"][0]["weight"] = json!(5);
            object["members"][0]["admin_state"] = json!("DISABLED");
        }
    };
    let edited: Vec<&String> = paths.values().filter(|path| path.contains("/lb-")).collect();
    edited.iter().for_each(|path| world.fake.change_by_hand("go", path, edit));
    let before: Vec<_> = edited.iter().map(|path| world.fake.object(path)).collect();
    let one = reporting(service("ns/s", &[("TCP", 80, 30080)]), ADDRESS);
    world.ensure(&one).await.unwrap();
    assert_eq!(writes(&world), Vec::<String>::new());
    let after: Vec<_> = edited.iter().map(|path| world.fake.object(path)).collect();
    assert_eq!(before, after);

    // A change keeps the fields.
    world.cluster.put(crate::routes::world::node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
    assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
    let pool = world.objects("lb-pools").remove(0);
    assert_eq!(World::members(&pool).len(), 3);
    assert_eq!((&pool["algorithm"], &pool["members"][0]["weight"]), (&json!("LEAST_CONNECTION"), &json!(5)));
    assert_eq!(pool["members"][0]["admin_state"], json!("DISABLED"));
}

/// Creates another allocation of the load balancer, with the UID of this cluster or none.
fn put_second(world: &World, balancer: &GoBalancer, uid: Option<&str>) -> String {
    let path = balancer.put_allocation(&world.fake, "go", "192.0.2.78".parse().unwrap());
    if let Some(uid) = uid {
        let tag = json!({"scope": "cluster-uid", "tag": uid});
        world.fake.change_by_hand("go", &path, |object| object["tags"].as_array_mut().unwrap().push(tag));
    }
    path
}

/// The other allocation has no evidence of its owner, or belongs to another cluster.
#[tokio::test]
async fn of_two_allocations_the_one_in_use_stays() {
    for (uid, held) in [(None, 1), (Some("of-another"), 0)] {
        let world = World::with(model(), Some(UID), config()).await;
        let balancer = GoBalancer::new(NAME, "ns/s", address());
        balancer.put(&world.fake, "go");
        let other = put_second(&world, &balancer, uid);
        let one = reporting(service("ns/s", &[("TCP", 80, 30080)]), ADDRESS);
        world.ensure(&one).await.unwrap();
        assert!(world.fake.object(&other).is_some(), "{uid:?}");
        assert_eq!(writes(&world), Vec::<String>::new(), "{uid:?}");
        world.delete(&one).await.unwrap();
        assert_eq!(world.objects("ip-allocations").len(), 1, "{uid:?}: the other one stays");
        assert_eq!(world.held(), held, "{uid:?}");
    }
}

/// Such an allocation can come from a creation after an incomplete list.
#[tokio::test]
async fn an_allocation_of_ours_beside_the_one_in_use_is_released() {
    let mut world = World::with(model(), Some(UID), config()).await;
    let balancer = GoBalancer::new(NAME, "ns/s", address());
    let paths = balancer.put(&world.fake, "go");
    let other = put_second(&world, &balancer, Some(UID));
    let before: Vec<_> = paths.values().map(|path| world.object(path)).collect();
    let one = reporting(service("ns/s", &[("TCP", 80, 30080)]), ADDRESS);
    assert_eq!(addresses(&world.ensure(&one).await.unwrap()), [address()]);
    assert_eq!(writes(&world), [other]);
    let after: Vec<_> = paths.values().map(|path| world.object(path)).collect();
    assert_eq!(before, after);
    assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());
    world.restart();
    world.ensure(&one).await.unwrap();
    assert_eq!(writes(&world).len(), 1, "nothing more is written");
}

/// NSX does not return the address during the sync of the Service, and nothing changes afterwards.
#[tokio::test]
async fn an_allocation_of_ours_whose_address_comes_later_is_released_within_half_an_hour() {
    for shows_allocated_ip in [true, false] {
        let behaviour = Behaviour { shows_allocated_ip, ..Behaviour::USUAL };
        let world = World::with(model().behaviour(behaviour), Some(UID), config()).await;
        let balancer = GoBalancer::new(NAME, "ns/s", address());
        balancer.put(&world.fake, "go");
        let other = put_second(&world, &balancer, Some(UID));
        world.fake.set_realization(&other, Realization::Never);
        let one = reporting(service("ns/s", &[("TCP", 80, 30080)]), ADDRESS);
        world.cluster.services.lock().unwrap().insert("ns/s".to_owned(), one.clone());
        assert_eq!(addresses(&world.ensure(&one).await.unwrap()), [address()]);
        assert!(world.fake.object(&other).is_some());

        world.fake.set_realization(&other, Realization::After(Duration::ZERO));
        let announced = world.announcement("ns/s");
        advance(AGAIN).await;
        announced.await;
        assert_eq!(addresses(&world.ensure(&one).await.unwrap()), [address()]);
        assert_eq!(writes(&world), [other], "{shows_allocated_ip}");
    }
}

/// Checks the virtual server, and the pool and monitor that it uses.
fn is_whole(world: &World, address: IpAddr) {
    let [server] = &world.objects("lb-virtual-servers")[..] else { panic!("one virtual server") };
    assert_eq!(server["ip_address"], json!(address));
    let pool = world.object(server["pool_path"].as_str().unwrap()).unwrap();
    assert_eq!(Vec::from_iter(World::members(&pool)), ["10.0.0.1", "10.0.0.2"]);
    assert!(pool["active_monitor_paths"][0].is_string(), "{pool}");
}

/// Returns the objects that the Go program would reject or write, except held ones with these paths.
fn left_over(world: &World, service: &Service, paths: &GoPaths) -> Vec<String> {
    let is_of_held = |line: &String| line.contains("ns/s") || paths.values().any(|path| line.ends_with(path.as_str()));
    world.handed_back(&[service]).into_iter().filter(|line| world.held() == 0 || !is_of_held(line)).collect()
}

#[tokio::test]
async fn a_half_made_one_is_completed_and_nothing_held_changes() {
    for uid in [Some(UID), None] {
        for count in 1..GoBalancer::new(NAME, "ns/s", address()).creation().len() {
            for has_status in [true, false] {
                let world = World::with(model(), uid, config()).await;
                let balancer = GoBalancer::new(NAME, "ns/s", address());
                let paths = balancer.put_half_made(&world.fake, "go", count);
                let before: Vec<_> = paths.values().map(|path| world.object(path)).collect();
                let one = service("ns/s", &[("TCP", 80, 30080)]);
                let one = if has_status { reporting(one, ADDRESS) } else { one };
                let status = world.ensure(&one).await.unwrap_or_else(|error| panic!("{count} {uid:?}: {error}"));
                let has_allocation = paths.keys().any(|step| *step == GoStep::Allocation);
                if has_status && has_allocation {
                    assert_eq!(addresses(&status), [address()], "{count}");
                }
                assert_eq!(addresses(&status).len(), 1);
                let after: Vec<_> = paths.values().map(|path| world.object(path)).collect();
                assert_eq!(before, after, "{count} {uid:?}: nothing that exists is changed");
                is_whole(&world, addresses(&status)[0]);
                let one = with_status(one, status);
                assert_eq!(left_over(&world, &one, &paths), Vec::<String>::new(), "{count} {uid:?}");
                world.delete(&one).await.unwrap();
                assert_eq!(world.objects("lb-virtual-servers").len(), 0);
            }
        }
    }
}

/// Returns the pools and monitors with these paths.
fn pools_and_monitors(world: &World, paths: &GoPaths) -> Vec<Option<Value>> {
    let paths = paths.iter().filter(|(step, _)| matches!(step, GoStep::Pool(_) | GoStep::Monitor(_)));
    paths.map(|(_, path)| world.object(path)).collect()
}

/// Without their virtual server, nothing proves the owner of a pool and a monitor.
#[tokio::test]
async fn a_half_deleted_one_is_completed() {
    for uid in [Some(UID), None] {
        let balancer = GoBalancer::new(NAME, "ns/s", address());
        for count in 1..balancer.deletion().len() {
            // The deletion continues.
            let world = World::with(model(), uid, config()).await;
            let left = balancer.put_half_deleted(&world.fake, "go", count);
            let before = pools_and_monitors(&world, &left);
            let one = reporting(service("ns/s", &[("TCP", 80, 30080)]), ADDRESS);
            world.delete(&one).await.unwrap();
            assert_eq!(pools_and_monitors(&world, &left), before, "{count} {uid:?}: the deletion");
            assert_eq!(world.objects("ip-allocations").len(), 0, "{count}: its address is an ingress of the Service");
            let held: usize = world.objects("lb-pools").len() + world.objects("lb-monitor-profiles").len();
            assert_eq!(world.held(), held, "{count} {uid:?} {left:?}");

            // Or the Service requests a load balancer again.
            let world = World::with(model(), uid, config()).await;
            let left = balancer.put_half_deleted(&world.fake, "go", count);
            let before = pools_and_monitors(&world, &left);
            let status = world.ensure(&one).await.unwrap();
            assert_eq!(pools_and_monitors(&world, &left), before, "{count} {uid:?}: the creation");
            if left.values().any(|path| path.contains("ip-allocations")) {
                assert_eq!(addresses(&status), [address()], "{count} {uid:?}");
            }
            is_whole(&world, addresses(&status)[0]);
            let one = with_status(one.clone(), status);
            assert_eq!(left_over(&world, &one, &left), Vec::<String>::new(), "{count} {uid:?}");
        }
    }
}

/// The type of the Service changes, and changes back while NSX deletes no pool. NSX accepts 30 tags. A virtual server
/// of the Go program has 6 in addition to the configured ones.
#[tokio::test]
async fn as_many_configured_tags_as_the_go_program_can_have_keep_nothing_from_its_changes_and_its_end() {
    let tags: BTreeMap<String, String> = (0..24).map(|number| (format!("team-{number}"), "x".to_owned())).collect();
    let config = Config { tags: tags.clone(), ..config() };
    let mut world = World::with(Model::small(), Some(UID), config).await;
    let mut balancer = GoBalancer::new(NAME, "ns/s", address());
    balancer.tags = tags;
    balancer.put(&world.fake, "go");
    let one = reporting(service("ns/s", &[("TCP", 80, 30080)]), ADDRESS);
    world.ensure(&one).await.unwrap();
    let moved = reporting(service("ns/s", &[("TCP", 80, 30090), ("UDP", 53, 30053)]), ADDRESS);
    world.ensure(&moved).await.unwrap_or_else(|error| panic!("{error}"));
    let most = |collection: &str| {
        world.objects(collection).iter().map(|one| one["tags"].as_array().unwrap().len()).max().unwrap()
    };
    // A pool of this program needs no tag with the UID of the Service.
    assert_eq!(["lb-virtual-servers", "lb-pools"].map(most), [30, 29]);
    world.restart();
    world.delete(&moved).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(world.counted()[1..], [0; 4]);
}

#[tokio::test]
async fn a_deletion_that_is_given_up_leaves_no_tag_with_the_address() {
    let world = World::with(model(), Some(UID), config()).await;
    GoBalancer::new(NAME, "ns/s", address()).put(&world.fake, "go");
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    let mut of_other_type = one.clone();
    of_other_type.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    world.fake.every("DELETE lb-pools", Trouble::overloaded());
    world.delete(&of_other_type).await.unwrap_err();
    let is_tagged = || world.objects("lb-pools")[0]["tags"].to_string().contains("virtual-server-address");
    assert!(is_tagged());
    assert_eq!(world.counted()[1..], [0, 1, 1, 0]);
    world.fake.clear();
    let one = world.ensured(&one).await;
    assert!(!is_tagged());
    assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());
}
