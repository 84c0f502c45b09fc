//! Rules for objects that must not be released, deleted, repeated or forgotten.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{Behaviour, Deletion, Model, Realization, Side, Trouble};

use super::world::*;
use crate::routes::world::node;
use ccm::cloud::{Error, UsableAddresses};
use ccm::providers::vsphere::config::{Class, LoadBalancerConfig as Config};
use ccm::providers::vsphere::nsx::load_balancer::explanation::CallPurpose;

const ADDRESS: &str = "192.0.2.77";

fn adopted(world: &World) -> Service {
    GoBalancer::new(NAME, "ns/s", ADDRESS.parse().unwrap()).put(&world.fake, "go");
    reporting(one(), ADDRESS)
}

#[tokio::test]
async fn an_address_stays_when_the_virtual_server_of_a_second_port_is_refused() {
    let world = World::start(Some(UID)).await;
    world.fake.next_after("PUT lb-virtual-servers", 1, Trouble::error(400, Some(23_500)));
    let two = service("ns/s", &[("TCP", 80, 30080), ("TCP", 443, 30443)]);
    assert_eq!(word(&world.ensure(&two).await.unwrap_err()), "NSXRefused");
    assert_eq!(world.counted(), [1, 1, 2, 2, 1], "the first port uses the address");
    let two = world.ensured(&two).await;
    assert_eq!(world.handed_back(&[&two]), Vec::<String>::new());
}

/// A list without the virtual server would make pool and monitor unowned, and the address free.
#[tokio::test]
async fn one_listing_that_misses_a_virtual_server_releases_nothing() {
    let world = World::start(None).await;
    let one = adopted(&world);
    let without = Trouble::Rewrite(|_| "{\"results\": [], \"result_count\": 0}".to_owned());
    world.fake.next("LIST lb-virtual-servers", without.clone());
    world.delete(&one).await.unwrap();
    let history = world.fake.history();
    let is_marked = |object: &serde_json::Value| object["marked_for_delete"] == json!(true);
    let gone = history.iter().filter(|version| version.object.as_ref().is_none_or(is_marked));
    let gone: Vec<&str> = gone.map(|version| version.path.as_str()).collect();
    let position = |part: &str| gone.iter().position(|path| path.contains(part)).unwrap();
    assert!(position("lb-virtual-servers") < position("ip-allocations"), "{gone:?}");
    assert_eq!(world.counted(), [1, 0, 0, 0, 0]);

    // The incomplete list causes no creation either.
    let world = World::start(None).await;
    let one = adopted(&world);
    world.fake.next("LIST lb-virtual-servers", without);
    let seen = world.fake.history().len();
    world.ensure(&one).await.unwrap();
    assert!(world.history(seen).is_empty());
}

/// With another load balancer service in the configuration there is no evidence of the virtual server's owner.
#[tokio::test]
async fn the_finalizer_stays_while_a_virtual_server_has_the_address_of_the_service() {
    let model = Model::small().tier1("t2");
    let other = Config { tier1: Some("/infra/tier-1s/t2".to_owned()), ..config() };
    let missing = Config { lb_service_id: Some("none".to_owned()), ..config() };
    for config in [other, missing] {
        let world = World::with(model.clone(), None, config).await;
        let one = adopted(&world);
        let seen = world.fake.history().len();
        let left = world.delete(&one).await.unwrap_err();
        assert_eq!(word(&left), "LoadBalancerConfigWrong", "{left}");
        assert!(left.to_string().contains("has the address of the Service"), "{left}");
        assert!(world.history(seen).is_empty());
    }
}

#[tokio::test]
async fn many_syncs_at_the_start_share_one_reading() {
    let mut world = World::start(Some(UID)).await;
    let mut services = Vec::new();
    for number in 0..5u16 {
        services.push(world.ensured(&service(&format!("ns/s{number}"), &[("TCP", 80, 30080 + number)])).await);
    }
    world.restart();
    world.sent();
    // Some of the calls begin during the pass.
    let mut waiting = 0;
    while world.fake.counts().of("LIST ip-allocations") == 0 {
        for service in &services {
            waiting += usize::from(world.try_ensure(service).await.is_err());
        }
        tokio::task::yield_now().await;
    }
    assert!(waiting >= services.len());
    for service in &services {
        world.ensured(service).await;
    }
    crate::world::advance(Duration::from_secs(60)).await;
    world.ensured(&services[0]).await;
    let lists = world.sent();
    assert_eq!(lists.len(), 5, "{lists:?}");
}

#[tokio::test]
async fn a_pool_that_somebody_deleted_is_noticed_by_a_change_of_the_nodes() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    let pool = world.path_of("lb-pools");
    world.fake.force_delete_by_hand("admin", &pool);
    world.cluster.remove("n2");
    let announced = world.announcement("ns/s");
    assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
    announced.await;
    world.ensure(&one).await.unwrap();
    assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());
}

/// In a request for several pools NSX creates the objects that do not exist.
#[tokio::test]
async fn a_pool_that_is_deleted_while_the_nodes_change_is_not_left() {
    let marked = Behaviour::USUAL.deletion;
    for (creates_absent_children, deletion) in
        [(false, Deletion::AtOnce), (true, Deletion::AtOnce), (false, marked), (true, marked)]
    {
        let behaviour = Behaviour { creates_absent_children, deletion, ..Behaviour::USUAL };
        let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let two = world.ensured(&service("ns/s", &[("TCP", 80, 30080), ("UDP", 81, 30081)])).await;
        world.cluster.remove("n2");
        let hold = world.fake.hold_operation("PATCH infra", 1, Side::Request);
        let services = [&two];
        let update = world.update(&services);
        tokio::pin!(update);
        tokio::select! {
            biased;
            () = hold.wait() => {}
            done = &mut update => panic!("{done:?}"),
        }
        let one = moved(&two, &[("TCP", 80, 30080)]);
        // One of the pools in the request is deleted, and none is changed.
        world.cluster.put(node("n2", "uid-2", &[], &[("InternalIP", "10.0.0.2")]));
        world.ensure(&one).await.unwrap();
        world.cluster.remove("n2");
        assert_eq!(world.counted()[2], 1, "{creates_absent_children}");
        let announced = world.announcement("ns/s");
        hold.release();
        let updated = update.await;
        assert!(updated.iter().all(Result::is_ok), "{creates_absent_children}: {updated:?}");
        // A pool that is marked for deletion makes NSX reject the request.
        if creates_absent_children && deletion == Deletion::AtOnce {
            assert_eq!(world.counted()[2], 2, "NSX has created it again");
        }
        announced.await;
        world.ensure(&one).await.unwrap();
        assert_eq!(world.counted(), [1, 1, 1, 1, 1], "{creates_absent_children}");
    }
}

/// NSX may reject a requested address after it has accepted the request.
#[tokio::test]
async fn a_wished_address_is_used_only_once_it_is_reserved() {
    let world = World::start(Some(UID)).await;
    world.ensured(&service("ns/other", &[("TCP", 80, 30080)])).await;
    world.fake.set_realization(
        "ip-allocations",
        Realization::Error(Duration::ZERO, 8210, "the address is not to be had".to_owned()),
    );
    let mut one = service("ns/s", &[("TCP", 80, 30081)]);
    one.spec.as_mut().unwrap().load_balancer_ip = Some("192.0.2.50".to_owned());
    let refused = world.ensure(&one).await.unwrap_err();
    assert_eq!(word(&refused), "AddressUnavailable", "{refused}");
    assert_eq!(world.counted(), [1, 1, 2, 2, 1]);
}

#[tokio::test]
async fn another_class_is_refused_and_nothing_moves() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    let mut config = config();
    config.classes.insert("web".to_owned(), Default::default());
    let other = World::on(std::sync::Arc::clone(&world.fake), NAME, Some(UID), config);
    let seen = world.fake.history().len();
    let moved = annotated(one, "loadbalancer.vmware.io/class", "web");
    let refused = other.ensure(&moved).await.unwrap_err();
    assert_eq!(word(&refused), "LoadBalancerClassFixed", "{refused}");
    assert!(world.history(seen).is_empty());
    // The load balancer still follows its nodes.
    other.cluster.remove("n2");
    assert!(other.update(&[&moved]).await.iter().all(Result::is_ok));
    assert_eq!(World::members(&world.objects("lb-pools")[0]).len(), 1);
}

/// An administrator deletes the object between the read and the request.
#[tokio::test]
async fn l_01_what_is_gone_when_it_is_deleted_is_deleted() {
    for collection in ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"] {
        let world = World::start(Some(UID)).await;
        let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
        let path = world.path_of(collection);
        let by_hand = async { assert!(world.fake.delete_by_hand("admin", &path)) };
        let (deleted, ()) = world.during(&format!("DELETE {collection}"), world.delete(&one), by_hand).await;
        deleted.unwrap_or_else(|error| panic!("{collection}: {error}"));
        let (answered, counted) = (world.fake.counts().answered(404), world.counted());
        if Behaviour::of_process() != Behaviour::USUAL {
            // The load balancer service may wait for the purge of objects that refer to it.
            assert!(answered > 0 && counted[1..] == [0; 4], "{collection}: {counted:?}");
            continue;
        }
        // A deleted virtual server has no realized state either.
        assert_eq!(answered, if collection == "lb-virtual-servers" { 2 } else { 1 }, "{collection}");
        assert_eq!(counted, [0; 5], "{collection}");
    }
}

/// The last virtual server of another Service is deleted during a creation.
#[tokio::test]
async fn l_04_a_load_balancer_service_is_not_deleted_while_another_sync_creates_on_it() {
    let world = World::start(Some(UID)).await;
    let old = world.ensured(&service("ns/old", &[("TCP", 80, 30080)])).await;
    let new = service("ns/new", &[("TCP", 80, 30081)]);
    let deletes = async {
        // The deletion waits until the virtual server is not realized any more, and then for a pass.
        assert!(matches!(world.try_delete(&old).await, Err(Error::Pending { .. })));
        crate::world::advance(Duration::from_secs(2)).await;
        assert!(matches!(world.try_delete(&old).await, Err(Error::Pending { .. })));
    };
    let (created, ()) = world.during("PUT lb-virtual-servers", world.try_ensure(&new), deletes).await;
    assert!(created.is_ok() || matches!(created, Err(Error::Pending { .. })), "{created:?}");
    world.ensure(&new).await.unwrap();
    assert_eq!(world.fake.counts().of("DELETE lb-services"), 0);
    assert_eq!(world.counted(), [1, 1, 1, 1, 1]);
}

#[tokio::test]
async fn l_02_a_load_balancer_service_that_is_gone_is_created_again() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/a", &[("TCP", 80, 30080)])).await;
    world.delete(&one).await.unwrap();
    let two = world.ensured(&service("ns/b", &[("TCP", 80, 30080)])).await;
    let path = world.path_of("lb-services");
    let server = world.path_of("lb-virtual-servers");
    world.fake.delete_by_hand("admin", &server);
    world.fake.delete_by_hand("admin", &path);
    let three = world.ensured(&service("ns/c", &[("TCP", 80, 30081)])).await;
    assert_eq!(world.counted()[..2], [1, 1]);
    world.balancers.read_again();
    crate::world::advance(Duration::from_secs(10)).await;
    world.delete(&two).await.unwrap();
    assert_eq!(world.handed_back(&[&three]), Vec::<String>::new());
}

#[tokio::test]
async fn l_21_a_pool_in_the_class_default_alone_is_used() {
    let mut only_default = config();
    let pool = only_default.common.pool.take();
    only_default.classes.insert("default".to_owned(), Class { pool, ..Class::default() });
    let world = World::with(Model::small(), Some(UID), only_default).await;
    world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    assert_eq!(world.counted(), [1; 5]);
}

/// Data that was read without a permit may belong to an earlier term.
#[tokio::test]
async fn what_is_read_without_a_term_decides_nothing_in_one() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.restart();
    world.sent();
    assert!(world.get(&one).await.unwrap().is_some());
    assert_eq!(world.sent().len(), 5);
    // In the meantime another replica leads.
    GoBalancer::new(NAME, "ns/go", ADDRESS.parse().unwrap()).put(&world.fake, "go");
    world.ensured(&one).await;
    assert_eq!(world.sent().len(), 5, "everything is read again");
}

/// An operator with a wrong gateway in the configuration must not get the advice to delete objects that serve clients.
#[tokio::test]
async fn a_wrong_load_balancer_service_in_the_configuration_is_an_error_of_the_configuration() {
    let model = Model::small().tier1("t2");
    let other = Config { tier1: Some("/infra/tier-1s/t2".to_owned()), ..config() };
    let missing = Config { lb_service_id: Some("none".to_owned()), ..config() };
    for (config, named) in [(other, "/infra/tier-1s/t2"), (missing, "none")] {
        let world = World::with(model.clone(), Some(UID), config).await;
        let one = adopted(&world);
        world.cluster.services.lock().unwrap().insert("ns/s".to_owned(), one.clone());
        let lb_service = world.path_of("lb-services");
        let seen = world.fake.history().len();
        let refused = world.ensure(&one).await.unwrap_err();
        assert_eq!(word(&refused), "LoadBalancerConfigWrong", "{refused}");
        assert!([named, &lb_service].iter().all(|name| refused.to_string().contains(name)), "{refused}");
        // The members do not follow the Nodes, and an error for the Service reports that.
        world.cluster.remove("n2");
        let updated = world.update(&[&one]).await.remove(0).unwrap_err();
        assert_eq!(word(&updated), "LoadBalancerConfigWrong", "{updated}");
        assert!(world.history(seen).is_empty(), "nothing is created");
        assert_eq!(world.held(), 0, "nobody is advised to delete it");
    }
}

/// Until now another process managed the Service, with another `--service-selector`.
#[tokio::test]
async fn a_service_that_was_made_by_another_process_since_the_last_reading_is_deleted() {
    let world = World::start(Some(UID)).await;
    // Two passes without the Service.
    world.delete(&service("ns/none", &[("TCP", 80, 30090)])).await.unwrap();
    world.ensured(&service("ns/other", &[("TCP", 80, 30091)])).await;
    let before = world.counted();
    let other = World::on(std::sync::Arc::clone(&world.fake), NAME, Some(UID), config());
    let one = other.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    drop(other);
    world.delete(&one).await.unwrap();
    assert_eq!(world.counted(), before);
}

/// A read without a permit, in one term and in the next. Another replica may have led in the meantime.
#[tokio::test]
async fn what_is_read_without_a_permit_ends_with_the_lead() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.restart();
    assert!(world.get(&one).await.unwrap().is_some());
    for collection in ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"] {
        let path = world.path_of(collection);
        assert!(world.fake.delete_by_hand("admin", &path));
    }
    world.leads.send_replace(false);
    world.leads.send_replace(true);
    assert_eq!(world.get(&one).await.unwrap(), None);

    // A standby reads nothing.
    world.leads.send_replace(false);
    world.sent();
    for _ in 0..4 {
        crate::world::advance(Duration::from_secs(30 * 60)).await;
        tokio::task::yield_now().await;
    }
    world.leads.send_replace(true);
    world.get(&one).await.unwrap();
    // The session has expired, so that the first call is made twice.
    assert_eq!(world.sent()[1..].len(), 5, "one reading");
}

#[tokio::test]
async fn a_retry_does_not_count_the_room_of_its_first_attempt_again() {
    let world = World::start(Some(UID)).await;
    // A SMALL load balancer service supports 20 virtual servers.
    let ports: Vec<(&str, u16, u16)> = (1..=18).map(|port| ("TCP", port, 30000 + port)).collect();
    world.ensured(&service("ns/large", &ports)).await;
    let two = service("ns/two", &[("TCP", 80, 30080), ("TCP", 81, 30081)]);
    for skip in [0, 0, 1, 0] {
        world.fake.next_after("PUT lb-virtual-servers", skip, Trouble::error(400, Some(23_500)));
        let refused = world.try_ensure(&two).await.unwrap_err();
        assert_eq!(word(&refused), "NSXRefused", "{refused}");
    }
    assert_eq!(world.fake.counts().of("GET service-usage"), 4);
    world.ensured(&two).await;
    // Other Services see the used capacity.
    let full = world.try_ensure(&service("ns/three", &[("TCP", 80, 30082)])).await.unwrap_err();
    assert_eq!(word(&full), "LoadBalancerCapacity", "{full}");
}

/// The address of a Service is on the gateway of its load balancer service.
#[tokio::test]
async fn a_new_port_is_not_created_on_another_load_balancer_service() {
    let existing = json!({"size": "SMALL", "connectivity_path": "/infra/tier-1s/t2"});
    let model = Model::small().tier1("t2").object("/infra/lb-services/existing", existing);
    let mut world = World::with(model, Some(UID), config()).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    let used = world.objects("lb-virtual-servers")[0]["lb_service_path"].as_str().unwrap().to_owned();
    world.restart_as_configured(Config { tier1: Some("/infra/tier-1s/t2".to_owned()), ..config() });
    let two = service("ns/s", &[("TCP", 80, 30080), ("TCP", 443, 30443)]);
    let two = with_status(two, status_of(&one));
    let seen = world.fake.history().len();
    let refused = world.ensure(&two).await.unwrap_err();
    assert_eq!(word(&refused), "LoadBalancerConfigWrong", "{refused}");
    let named = [&used, "/infra/lb-services/existing"];
    assert!(named.iter().all(|name| refused.to_string().contains(name)), "{refused}");
    assert!(world.history(seen).is_empty(), "nothing is created");
    world.ensure(&one).await.unwrap();
    world.cluster.remove("n2");
    assert!(world.update(&[&two]).await.iter().all(Result::is_ok), "it follows its nodes");
    world.restart_as_configured(config());
    world.ensure(&two).await.unwrap();
    assert_eq!(world.objects("lb-virtual-servers").len(), 2);
}

fn only(address: &str) -> UsableAddresses {
    UsableAddresses::Only([address.parse().unwrap()].into())
}

fn members(world: &World) -> Vec<Vec<String>> {
    let pools = world.objects("lb-pools");
    pools.iter().map(|pool| World::members(pool).into_iter().collect()).collect()
}

/// A kubelet writes the addresses of its Node. vCenter shows which of them the machine has.
#[tokio::test]
async fn members_are_addresses_that_are_on_the_machine() {
    let world = World::start(Some(UID)).await;
    let forged = [("InternalIP", "10.0.0.99"), ("InternalIP", "10.0.0.2")];
    world.cluster.put(node("n2", "uid-2", &[], &forged));
    world.cluster.set_usable("n1", only("10.0.0.1"));
    world.cluster.set_usable("n2", only("10.0.0.2"));
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    assert_eq!(members(&world), [["10.0.0.1", "10.0.0.2"]]);
    let seen = world.fake.history().len();
    world.update(&[&one]).await.remove(0).unwrap();
    assert!(world.history(seen).is_empty());
    world.cluster.set_usable("n2", only("10.0.0.3"));
    world.update(&[&one]).await.remove(0).unwrap();
    assert_eq!(members(&world), [["10.0.0.1"]]);
}

/// As after a change of the leader while vCenter is unavailable.
#[tokio::test]
async fn of_a_node_whose_machine_is_not_known_the_pool_keeps_the_member_and_gets_none() {
    let mut world = World::start(Some(UID)).await;
    let one = adopted(&world);
    let before = members(&world);
    assert_eq!(before, [["10.0.0.1", "10.0.0.2"]]);
    world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
    for name in ["n1", "n2", "n3"] {
        world.cluster.set_usable(name, UsableAddresses::Unknown);
    }
    world.restart();
    let seen = world.fake.history().len();
    let one = world.ensured(&one).await;
    world.update(&[&one]).await.remove(0).unwrap();
    assert!(world.history(seen).is_empty(), "nothing is written");
    // A deleted Node leaves the pool, even in this state.
    world.cluster.remove("n2");
    world.update(&[&one]).await.remove(0).unwrap();
    assert_eq!(members(&world), [["10.0.0.1"]]);
    world.cluster.set_usable("n3", only("10.0.0.3"));
    world.update(&[&one]).await.remove(0).unwrap();
    assert_eq!(members(&world), [["10.0.0.1", "10.0.0.3"]]);
}

/// Without an address in the Service's status, the members are the evidence for the owner of a virtual server of the Go
/// program.
#[tokio::test]
async fn whose_a_virtual_server_is_waits_until_the_machines_of_its_members_are_known() {
    let world = World::start(Some(UID)).await;
    GoBalancer::new(NAME, "ns/s", ADDRESS.parse().unwrap()).put(&world.fake, "go");
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    world.cluster.set_usable("n1", UsableAddresses::Unknown);
    let seen = world.fake.history().len();
    world.waits_for("the VM of Node n1 is not known yet", async || world.try_ensure(&one).await).await;
    let nodes = world.nodes();
    let explained = world.balancers.explain(&one, CallPurpose::Sync(&nodes)).state.unwrap();
    let (_, message) = explained.next.unwrap_err();
    assert!(message.contains("the VM of Node n1 is not known yet"), "the wait is announced, too: {message}");
    assert!(world.history(seen).is_empty(), "nothing is created beside it");
    world.cluster.set_usable("n1", only("10.0.0.1"));
    assert_eq!(addresses(&world.ensure(&one).await.unwrap()), [ADDRESS.parse::<std::net::IpAddr>().unwrap()]);
    assert!(world.history(seen).is_empty());
}

/// The same for a deletion.
#[tokio::test]
async fn a_deletion_waits_until_the_machines_of_members_are_known() {
    let world = World::start(Some(UID)).await;
    GoBalancer::new(NAME, "ns/s", ADDRESS.parse().unwrap()).put(&world.fake, "go");
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    world.cluster.set_usable("n2", UsableAddresses::Unknown);
    world.waits_for("the VM of Node n2 is not known yet", async || world.try_delete(&one).await).await;
    let explained = world.balancers.explain(&one, CallPurpose::Deletion).state.unwrap();
    let (_, message) = explained.next.unwrap_err();
    assert!(message.contains("the VM of Node n2 is not known yet"), "the wait is announced, too: {message}");
    assert!(!world.objects("lb-virtual-servers").is_empty());
    world.cluster.set_usable("n2", only("10.0.0.2"));
    world.delete(&one).await.unwrap();
    assert!(world.objects("lb-virtual-servers").is_empty());
}

/// The machine of a new Node will be found soon, so that one write to NSX is sufficient.
#[tokio::test]
async fn nothing_is_created_while_the_machine_of_a_node_is_looked_up() {
    let world = World::start(Some(UID)).await;
    world.cluster.set_usable("n2", UsableAddresses::Pending);
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    let pause =
        world.waits_for("the lookup of the VM of Node n2 is under way", async || world.try_ensure(&one).await).await;
    assert_eq!(pause, Duration::from_secs(1));
    assert!(world.objects("lb-pools").is_empty());
    // A Node whose machine is not found does not block the others.
    crate::world::advance(Duration::from_secs(10)).await;
    let one = world.ensured(&one).await;
    world.cluster.set_usable("n2", UsableAddresses::Unknown);
    world.ensured(&one).await;
    assert_eq!(members(&world), [["10.0.0.1"]]);
}

/// In the meantime another process led, and the address of a Node that it deleted moved to another Node's machine.
#[tokio::test]
async fn whose_an_address_was_in_an_earlier_term_does_not_count() {
    let mut world = World::start(Some(UID)).await;
    world.cluster.set_usable("n1", only("10.0.0.1"));
    world.cluster.set_usable("n2", only("10.0.0.2"));
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.cluster.remove("n2");
    world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.2")]));
    for name in ["n1", "n3"] {
        world.cluster.set_usable(name, UsableAddresses::Unknown);
    }
    world.begin_next_term();
    let one = world.ensured(&one).await;
    world.update(&[&one]).await.remove(0).unwrap();
    assert_eq!(members(&world), [["10.0.0.1", "10.0.0.2"]]);
}

/// The kubelet of a Node without a known machine claims the address of an existing Node, and then of a deleted one.
#[tokio::test]
async fn a_node_whose_machine_is_not_known_keeps_no_address_of_a_node_that_is_gone() {
    let world = World::start(Some(UID)).await;
    world.cluster.set_usable("n1", only("10.0.0.1"));
    world.cluster.set_usable("n2", only("10.0.0.2"));
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.2")]));
    world.cluster.set_usable("n3", UsableAddresses::Unknown);
    world.cluster.set_usable("n2", UsableAddresses::Unknown);
    world.cluster.put(node("n2", "uid-2", &[], &[]));
    world.update(&[&one]).await.remove(0).unwrap();
    assert_eq!(members(&world), [["10.0.0.1", "10.0.0.2"]]);
    world.cluster.remove("n2");
    world.update(&[&one]).await.remove(0).unwrap();
    assert_eq!(members(&world), [["10.0.0.1"]]);
}

/// Another cluster or an administrator has become the owner of objects that belonged to this cluster in the last pass.
#[tokio::test]
async fn what_became_another_owners_since_the_last_reading_is_neither_changed_nor_deleted() {
    let kinds = ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"];
    for act in ["delete", "other port", "other nodes"] {
        let world = World::start(Some(UID)).await;
        let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
        let paths = kinds.map(|kind| world.path_of(kind));
        for path in &paths {
            world.fake.change_by_hand("admin", path, |object| {
                let tags = object["tags"].as_array_mut().unwrap();
                tags.iter_mut().find(|tag| tag["scope"] == "cluster-uid").unwrap()["tag"] = "another".into();
            });
        }
        let seen = world.fake.history().len();
        match act {
            "delete" => drop(world.delete(&one).await),
            "other port" => drop(world.ensure(&moved(&one, &[("TCP", 81, 30081)])).await),
            _ => {
                world.cluster.remove("n2");
                drop(world.update(&[&one]).await);
            }
        }
        let written = world.history(seen);
        let is_one = |version: &&support::fake_nsx::ObjectVersion| paths.contains(&version.path);
        assert_eq!(written.iter().filter(is_one).count(), 0, "{act}: {written:?}");
    }
}
