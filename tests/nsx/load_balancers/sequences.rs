//! The request sequences of the Go program for load balancers. This program's sequences are shorter if possible: the
//! five lists are read once for all Services, and written objects are not read again. They have one additional GET for
//! each IP pool, application profile and gateway with an id or path in the configuration, once in a term. A missing
//! object is thus reported before any creation.

use ccm::cloud::Error;
use serde_json::json;
use support::fake_nsx::{Model, Realization, Trouble};

use super::world::*;
use crate::routes::world::node;
use ccm::providers::vsphere::config::{IpPool, LoadBalancerConfig as Config, Profile, Size};

const LISTS: [&str; 5] =
    ["LIST lb-services", "LIST lb-virtual-servers", "LIST lb-pools", "LIST lb-monitor-profiles", "LIST ip-allocations"];

fn lists(more: &[&str]) -> Vec<String> {
    LISTS.iter().chain(more).map(|operation| (*operation).to_owned()).collect()
}

/// Removes repeated requests for the address.
fn without_repetitions(mut operations: Vec<String>) -> Vec<String> {
    operations.dedup_by(|one, other| one == other && *one == "GET realized-entities");
    operations
}

// vectors: SEQ-01, SEQ-03
#[tokio::test]
async fn seq_01_first_ensure_and_seq_03_its_repetition() {
    for uid in [Some(UID), None] {
        let mut world = World::start(uid).await;
        let one = service("ns/s", &[("TCP", 80, 30080)]);
        let status = world.ensure(&one).await.unwrap();
        assert_eq!(addresses(&status), ["192.0.2.5".parse::<std::net::IpAddr>().unwrap()]);
        let made = [
            // Checks for objects of the configuration, once in a term.
            "GET ip-pools",
            "GET lb-app-profiles",
            "GET tier-1s",
            "LIST locale-services",
            "PUT lb-monitor-profiles",
            "PUT lb-pools",
            "PATCH ip-allocations",
            "GET realized-entities",
            "PUT lb-services",
            "PUT lb-virtual-servers",
            // Checks that NSX has realized both objects.
            "GET realized-entities",
        ];
        assert_eq!(without_repetitions(world.sent()), lists(&made), "{uid:?}");
        let server = world.objects("lb-virtual-servers").remove(0);
        assert_eq!((&server["ip_address"], &server["ports"]), (&json!("192.0.2.5"), &json!(["80"])));
        assert_eq!(World::members(&world.objects("lb-pools")[0]), ["10.0.0.1".into(), "10.0.0.2".into()].into());
        let one = with_status(one, status.clone());
        assert_eq!(world.handed_back(&[&one]), Vec::<String>::new(), "{uid:?}");

        assert_eq!(world.ensure(&one).await.unwrap(), status);
        assert_eq!(world.sent(), Vec::<String>::new(), "{uid:?}: nothing is read again");
        world.restart();
        assert_eq!(world.ensure(&one).await.unwrap(), status);
        assert_eq!(world.sent(), lists(&[]), "{uid:?}: the next process reads everything once");
    }
}

// vectors: SEQ-02
#[tokio::test]
async fn seq_02_a_second_port_shares_address_and_load_balancer_service() {
    let world = World::start(Some(UID)).await;
    let two = service("ns/s", &[("TCP", 80, 30080), ("TCP", 443, 30443)]);
    let two = world.ensured(&two).await;
    let sent = without_repetitions(world.sent());
    let second = ["PUT lb-monitor-profiles", "PUT lb-pools", "PUT lb-virtual-servers", "GET realized-entities"];
    assert!(sent.ends_with(&second.map(str::to_owned)), "{sent:?}");
    assert_eq!(world.counted(), [1, 2, 2, 2, 1]);
    assert_eq!(world.handed_back(&[&two]), Vec::<String>::new());
}

#[tokio::test]
async fn the_last_planned_step_is_kept_with_its_inputs_until_the_load_balancer_is_deleted() {
    let world = World::start(Some(UID)).await;
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    assert_eq!(world.balancers.last_step("ns/s"), None);
    world.fake.next("PUT lb-pools", Trouble::error(400, Some(1)));
    world.ensure(&one).await.unwrap_err();
    let last = world.balancers.last_step("ns/s").unwrap();
    assert_eq!(last.steps, [(None, "create the pool of port TCP/80".to_owned())].into());
    assert!(last.outcome.unwrap().is_err());
    assert_eq!((last.desired_servers, last.desired_members, last.owned, last.ambiguous), (1, 2, 1, 0));
    let one = world.ensured(&one).await;
    let last = world.balancers.last_step("ns/s").unwrap();
    assert_eq!((last.steps.len(), last.desired_servers, last.desired_members), (0, 1, 2));
    assert_eq!((last.owned, last.ambiguous, last.outcome), (4, 0, Some(Ok(()))));
    let wrong = annotated(one.clone(), "loadbalancer.vmware.io/class", "unknown");
    let error = world.ensure(&wrong).await.unwrap_err().to_string();
    let last = world.balancers.last_step("ns/s").unwrap();
    assert_eq!((last.steps.len(), last.outcome), (0, Some(Err(error))), "the call ended before a plan");
    world.fake.next("DELETE lb-pools", Trouble::unavailable());
    world.delete(&one).await.unwrap_err();
    let last = world.balancers.last_step("ns/s").unwrap();
    assert!(last.steps[&None].starts_with("delete /infra/lb-pools/"));
    assert_eq!((last.desired_servers, last.owned, last.outcome.unwrap().is_err()), (0, 3, true));
    world.delete(&one).await.unwrap();
    assert_eq!(world.balancers.last_step("ns/s"), None);
}

// vectors: SEQ-04
#[tokio::test]
async fn seq_04_another_node_port_changes_monitor_and_virtual_server_in_place() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.sent();
    let moved = moved(&one, &[("TCP", 80, 30090)]);
    world.ensure(&moved).await.unwrap();
    let expected = [
        "GET lb-monitor-profiles",
        "PUT lb-monitor-profiles",
        "GET lb-virtual-servers",
        "PUT lb-virtual-servers",
        "GET realized-status",
    ];
    assert_eq!(world.sent(), expected);
    assert_eq!(world.objects("lb-monitor-profiles")[0]["monitor_port"], json!(30090));
    assert_eq!(world.objects("lb-virtual-servers")[0]["default_pool_member_ports"], json!(["30090"]));
    assert_eq!(world.handed_back(&[&moved]), Vec::<String>::new());
}

// vectors: SEQ-05
#[tokio::test]
async fn seq_05_another_port_is_created_before_the_old_one_goes() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.sent();
    let moved = moved(&one, &[("TCP", 81, 30080)]);
    world.ensure(&moved).await.unwrap();
    // The load balancer service stays, because it is still in use.
    let expected = [
        "GET service-usage",
        "PUT lb-monitor-profiles",
        "PUT lb-pools",
        "PUT lb-virtual-servers",
        "GET lb-virtual-servers",
        "DELETE lb-virtual-servers",
        "GET lb-pools",
        "DELETE lb-pools",
        "GET lb-monitor-profiles",
        "DELETE lb-monitor-profiles",
        "GET realized-entities",
    ];
    assert_eq!(world.sent(), expected);
    assert_eq!(world.counted(), [1, 1, 1, 1, 1]);
    assert_eq!(world.handed_back(&[&moved]), Vec::<String>::new());
}

// vectors: SEQ-06, SEQ-16
#[tokio::test]
async fn seq_06_and_seq_16_a_udp_port_has_no_monitor_and_shares_the_address_of_a_tcp_port() {
    let world = World::start(Some(UID)).await;
    let both = world.ensured(&service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)])).await;
    assert_eq!(world.counted(), [1, 2, 2, 1, 1]);
    let addresses: Vec<_> = world.objects("lb-virtual-servers").iter().map(|one| one["ip_address"].clone()).collect();
    assert_eq!(addresses, [json!("192.0.2.5"), json!("192.0.2.5")]);
    let udp = world.objects("lb-pools").into_iter().find(|pool| pool.to_string().contains("UDP/80")).unwrap();
    assert_eq!(udp.get("active_monitor_paths").filter(|paths| **paths != json!([])), None);
    assert_eq!(world.handed_back(&[&both]), Vec::<String>::new());
    world.delete(&both).await.unwrap();
    assert_eq!(world.counted(), [0; 5]);

    let udp = world.ensured(&service("ns/u", &[("UDP", 53, 30053)])).await;
    assert_eq!(world.counted(), [1, 1, 1, 0, 1]);
    let server = &world.objects("lb-virtual-servers")[0];
    assert_eq!(server["application_profile_path"], json!("/infra/lb-app-profiles/default-udp-lb-app-profile"));
    assert_eq!(world.handed_back(&[&udp]), Vec::<String>::new());
}

// vectors: SEQ-07
#[tokio::test]
async fn seq_07_a_deletion_leaves_nothing_and_releases_the_address_last() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.sent();
    world.delete(&one).await.unwrap();
    let deleted = [
        "GET lb-virtual-servers",
        "DELETE lb-virtual-servers",
        "GET lb-pools",
        "DELETE lb-pools",
        "GET lb-monitor-profiles",
        "DELETE lb-monitor-profiles",
        // Check for the realized state, after 2 s.
        "GET realized-entities",
        "GET ip-allocations",
        "DELETE ip-allocations",
        "GET lb-services",
        "DELETE lb-services",
    ];
    let expected: Vec<String> = deleted.iter().chain(&LISTS).map(|operation| (*operation).to_owned()).collect();
    assert_eq!(world.sent(), expected);
    assert_eq!(world.counted(), [0; 5]);
    // In this term there is no evidence that no other process has created the load balancer since, with an address of
    // any pool. Therefore all collections and the pools are listed again.
    world.delete(&one).await.unwrap();
    let sent = world.sent();
    // No object refers to a group or a persistence profile, and the lists have none.
    let references = ["GET groups", "GET lb-persistence-profiles"];
    let expected = [&references[..], &["GET realized-entities"], &LISTS, &references].concat();
    assert_eq!(sent.iter().filter(|one| *one != "LIST ip-pools").collect::<Vec<_>>(), expected);
    assert_eq!(sent.len(), expected.len() + 1);
}

#[tokio::test]
async fn without_a_uid_the_load_balancer_service_stays() {
    let world = World::start(None).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.delete(&one).await.unwrap();
    assert_eq!(world.counted(), [1, 0, 0, 0, 0]);
}

// vectors: SEQ-08, SEQ-09
#[tokio::test]
async fn seq_08_another_node_and_seq_09_the_same_nodes() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)])).await;
    let before = world.objects("lb-pools")[0]["members"][0].clone();
    world.sent();
    assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
    assert_eq!(world.sent(), Vec::<String>::new(), "the pools are known to be right");

    world.cluster.remove("n2");
    world.cluster.put(crate::routes::world::node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
    assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
    assert_eq!(world.sent(), ["LIST lb-pools", "PATCH infra"]);
    for pool in world.objects("lb-pools") {
        assert_eq!(World::members(&pool), ["10.0.0.1".into(), "10.0.0.3".into()].into());
        assert_eq!(pool["members"][0], before, "the node that stays keeps its place");
    }
    assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());

    // The daemon sends no requests for several pools.
    world.restart_with(false);
    world.ensure(&one).await.unwrap();
    world.sent();
    world.cluster.remove("n3");
    assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
    assert_eq!(world.sent(), ["LIST lb-pools", "PUT lb-pools", "PUT lb-pools"]);
}

// vectors: SEQ-10
#[tokio::test]
async fn seq_10_an_address_is_released_when_its_first_virtual_server_is_refused() {
    let world = World::start(Some(UID)).await;
    world.fake.next("PUT lb-virtual-servers", Trouble::error(400, Some(23_500)));
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    let refused = world.ensure(&one).await.unwrap_err();
    assert_eq!(word(&refused), "NSXRefused", "{refused}");
    assert!(refused.to_string().contains("create the virtual server of port TCP/80"), "{refused}");
    let sent = world.sent();
    assert!(sent.ends_with(&["GET ip-allocations".to_owned(), "DELETE ip-allocations".to_owned()]), "{sent:?}");
    assert_eq!(world.counted(), [1, 0, 1, 1, 0]);
    let one = world.ensured(&one).await;
    assert_eq!(world.counted(), [1, 1, 1, 1, 1]);
    assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());
}

// vectors: SEQ-11
#[tokio::test]
async fn seq_11_an_address_that_does_not_come_is_asked_for_again() {
    let world = World::start(Some(UID)).await;
    world.ensured(&service("ns/other", &[("TCP", 80, 30080)])).await;
    world.fake.set_realization("ip-allocations", Realization::Never);
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    let late = world.late(&one).await;
    assert_eq!(word(&late), "NSXUnavailable", "{late}");
    assert_eq!(world.counted(), [1, 1, 2, 2, 2]);
    let allocations = || -> Vec<_> {
        let all = world.objects("ip-allocations");
        all.iter().map(|one| (one["path"].clone(), one["_revision"].clone())).collect()
    };
    let (before, seen) = (allocations(), world.fake.history().len());
    assert_eq!(word(&world.late(&one).await), "NSXUnavailable", "the next attempt");
    assert_eq!((allocations(), world.history(seen)), (before, vec![]), "it waits for the same one");
    world.sent();
    world.fake.set_realization("ip-allocations", Realization::After(std::time::Duration::ZERO));
    world.ensured(&one).await;
    let expected = ["GET realized-entities", "GET service-usage", "PUT lb-virtual-servers", "GET realized-entities"];
    assert_eq!(world.sent(), expected);
}

/// The Go program never checks a path. This program checks it once in a term.
// vectors: SEQ-12
#[tokio::test]
async fn seq_12_paths_of_profiles_and_ids_of_pools_are_looked_up_once_for_all_services() {
    let world = World::start(Some(UID)).await;
    for name in ["ns/a", "ns/b"] {
        world.ensured(&service(name, &[("TCP", 80, 30080)])).await;
    }
    let sent = world.sent();
    for (operation, expected) in
        [("LIST lb-app-profiles", 0), ("LIST ip-pools", 0), ("GET lb-app-profiles", 1), ("GET ip-pools", 1)]
    {
        assert_eq!(sent.iter().filter(|sent| *sent == operation).count(), expected, "{operation}: {sent:?}");
    }
}

// vectors: SEQ-12
#[tokio::test]
async fn seq_12_names_of_profiles_and_pools_are_looked_up_once_for_all_services() {
    let mut by_name = config();
    by_name.common.tcp = Some(Profile::Name("default-tcp-lb-app-profile".to_owned()));
    by_name.common.pool = Some(IpPool::Name("pool1".to_owned()));
    let world = World::with(Model::small(), Some(UID), by_name).await;
    for name in ["ns/a", "ns/b"] {
        world.ensured(&service(name, &[("TCP", 80, 30080)])).await;
    }
    let sent = world.sent();
    for operation in ["LIST lb-app-profiles", "LIST ip-pools"] {
        assert_eq!(sent.iter().filter(|sent| *sent == operation).count(), 1, "{sent:?}");
    }
}

// vectors: SEQ-13
#[tokio::test]
async fn seq_13_a_configured_load_balancer_service_on_another_gateway_is_not_used() {
    let model = Model::small()
        .tier1("t2")
        .object("/infra/lb-services/lb", json!({"size": "SMALL", "connectivity_path": "/infra/tier-1s/t2"}));
    let existing = |id: &str| ccm::providers::vsphere::config::LoadBalancerConfig {
        lb_service_id: Some(id.to_owned()),
        ..config()
    };
    let world = World::with(model, Some(UID), existing("lb")).await;
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    let wrong = world.ensure(&one).await.unwrap_err();
    assert_eq!(word(&wrong), "LoadBalancerConfigWrong");
    let said = "load balancer service \"lb\" is configured for router \"/infra/tier-1s/t2\" not \"/infra/tier-1s/t1\"";
    assert_eq!(wrong.to_string(), said);
    assert_eq!(world.sent(), lists(&[]), "nothing is created");

    let other = World::on(std::sync::Arc::clone(&world.fake), NAME, Some(UID), existing("none"));
    let missing = other.ensure(&one).await.unwrap_err();
    assert_eq!(missing.to_string(), "no load balancer service found with id none");
    // A deletion needs neither object.
    other.delete(&one).await.unwrap();
}

// vectors: SEQ-15
#[tokio::test]
async fn seq_15_an_unknown_class_is_refused_before_any_request_and_deletion_needs_none() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.sent();
    let unknown = annotated(one, "loadbalancer.vmware.io/class", "none");
    let refused = world.ensure(&unknown).await.unwrap_err();
    assert_eq!(word(&refused), "LoadBalancerClassUnknown");
    assert_eq!(world.sent(), Vec::<String>::new());
    world.delete(&unknown).await.unwrap();
    assert_eq!(world.counted(), [0; 5]);
}

#[tokio::test]
async fn a_pool_without_a_free_address_is_said_and_tried_again_after_some_minutes() {
    let model = Model::empty().tier1("t1").ip_pool("p1", "pool1", "192.0.2.0/24", &[("192.0.2.5", "192.0.2.5")]);
    let world = World::with(model, Some(UID), config()).await;
    let first = world.ensured(&service("ns/a", &[("TCP", 80, 30080)])).await;
    let second = service("ns/b", &[("TCP", 80, 30081)]);
    let none = world.ensure(&second).await.unwrap_err();
    assert_eq!(word(&none), "AddressUnavailable", "{none}");
    assert!(none.to_string().contains("pool p1") && none.to_string().contains("no free address"), "{none}");
    assert_eq!(world.counted(), [1, 1, 2, 2, 1], "what cannot be had is not kept");
    let pause = none.retry_after().unwrap();
    assert!((300..360).contains(&pause.as_secs()), "{pause:?}");
    world.delete(&first).await.unwrap();
    crate::world::advance(pause).await;
    world.ensured(&second).await;
}

/// An earlier failed request gives no right to an address. A released address starts no sync.
#[tokio::test]
async fn a_released_address_is_offered_to_nobody() {
    let model = Model::empty().tier1("t1").ip_pool("p1", "pool1", "192.0.2.0/24", &[("192.0.2.5", "192.0.2.5")]);
    let world = World::with(model, Some(UID), config()).await;
    let first = world.ensured(&service("ns/a", &[("TCP", 80, 30080)])).await;
    let mut wish = service("ns/b", &[("TCP", 80, 30081)]);
    wish.spec.as_mut().unwrap().load_balancer_ip = Some("192.0.2.5".to_owned());
    for one in [&wish, &service("ns/c", &[("TCP", 80, 30082)]), &service("ns/d", &[("TCP", 80, 30083)])] {
        let announced = world.announcements();
        assert_eq!(word(&world.ensure(one).await.unwrap_err()), "AddressUnavailable");
        assert_eq!(announced(), Vec::<String>::new(), "an address that was never had is no address that is free");
    }
    let announced = world.announcements();
    world.delete(&first).await.unwrap();
    let announced = announced().join(" ");
    assert!(!["b", "c", "d"].iter().any(|name| announced.contains(&format!("\"{name}\""))), "{announced}");
}

#[tokio::test]
async fn a_full_load_balancer_service_is_said_before_anything_is_created() {
    let world = World::start(Some(UID)).await;
    // A SMALL load balancer service supports 20 virtual servers.
    let ports: Vec<(&str, u16, u16)> = (1..=19).map(|port| ("TCP", port, 30000 + port)).collect();
    let large = world.ensured(&service("ns/large", &ports)).await;
    world.sent();
    let two = service("ns/two", &[("TCP", 80, 30080), ("TCP", 81, 30081)]);
    let full = world.ensure(&two).await.unwrap_err();
    assert_eq!(word(&full), "LoadBalancerCapacity", "{full}");
    assert!(full.to_string().contains("19 of 20 virtual servers"), "{full}");
    assert_eq!(world.sent(), ["GET service-usage"]);
    let mut pauses = std::collections::BTreeSet::new();
    for _ in 0..8 {
        pauses.extend(world.ensure(&two).await.unwrap_err().retry_after());
    }
    assert!(pauses.iter().all(|pause| (300..360).contains(&pause.as_secs())), "{pauses:?}");
    assert!(pauses.len() > 1, "waiting Services do not try again at once: {pauses:?}");
    world.ensured(&service("ns/one", &[("TCP", 80, 30080)])).await;
    world.delete(&large).await.unwrap();
    world.ensured(&two).await;
}

/// A SMALL load balancer service supports 300 pool members.
#[tokio::test]
async fn each_port_needs_room_for_each_node_once() {
    let world = World::start(Some(UID)).await;
    for number in 3..20 {
        let address = format!("10.0.0.{number}");
        world.cluster.put(node(&format!("n{number}"), &format!("uid-{number}"), &[], &[("InternalIP", &address)]));
    }
    world.ensured(&service("ns/one", &[("TCP", 80, 30080)])).await;
    let ports: Vec<(&str, u16, u16)> = (1..=14).map(|port| ("TCP", port, 30000 + port)).collect();
    world.ensured(&service("ns/large", &ports)).await;
    let full = world.ensure(&service("ns/two", &[("TCP", 80, 30080)])).await.unwrap_err();
    assert!(full.to_string().contains("285 of 300 pool members"), "{full}");
}

#[tokio::test]
async fn a_load_balancer_service_that_states_no_capacity_is_not_full() {
    let world = World::with(Model::small(), Some(UID), Config { size: Size::Dlb, ..config() }).await;
    for name in ["ns/a", "ns/b"] {
        world.ensured(&service(name, &[("TCP", 80, 30080)])).await;
    }
    assert_eq!(world.counted(), [1, 2, 2, 2, 2]);
}

#[tokio::test]
async fn a_load_balancer_service_that_many_services_need_is_created_once() {
    let world = World::start(Some(UID)).await;
    let services: Vec<_> =
        (0..16).map(|number| service(&format!("ns/s{number}"), &[("TCP", 80, 30080 + number)])).collect();
    world.delete(&services[0]).await.unwrap();
    let mut sent = Vec::new();
    let count = |sent: &[String], operation: &str| sent.iter().filter(|one| *one == operation).count();
    world.sent();
    for services in services.chunks(8) {
        let mut are_done = false;
        // One call creates the load balancer service, and the next ones wait for it. The last ones wait for the effect.
        for _ in 0..4 {
            let all = futures::future::join_all(services.iter().map(|service| world.try_ensure(service))).await;
            assert!(all.iter().all(|one| matches!(one, Ok(_) | Err(Error::Pending { .. }))), "{all:?}");
            are_done = all.iter().all(Result::is_ok);
            crate::world::advance(std::time::Duration::from_secs(10)).await;
        }
        assert!(are_done);
        sent.extend(world.sent());
    }
    assert_eq!(count(&sent, "PUT lb-services"), 1);
    assert_eq!(count(&sent, "GET lb-services"), 0, "none meets what another one has created");
    let read = count(&sent, "GET service-usage");
    assert!(read <= 2 * services.len(), "{read}");
    assert_eq!(world.counted(), [1, 16, 16, 16, 16]);
}

/// A pass that began during other deletions would have to be repeated for them.
#[tokio::test]
async fn many_deletions_at_once_need_one_more_reading() {
    let world = World::start(Some(UID)).await;
    let mut services = Vec::new();
    for number in 0..8 {
        services.push(world.ensured(&service(&format!("ns/s{number}"), &[("TCP", 80, 30080 + number)])).await);
    }
    crate::world::advance(std::time::Duration::from_secs(10)).await;
    world.sent();
    // The first time the virtual servers are still realized. The second time they wait for the pass.
    for _ in 0..2 {
        let all = futures::future::join_all(services.iter().map(|service| world.try_delete(service))).await;
        assert!(all.iter().all(|one| matches!(one, Err(Error::Pending { .. }))), "{all:?}");
        crate::world::advance(std::time::Duration::from_secs(2)).await;
    }
    for service in &services {
        world.delete(service).await.unwrap();
    }
    let sent = world.sent();
    assert_eq!(sent.iter().filter(|one| *one == "LIST lb-services").count(), 1, "{sent:?}");
    assert_eq!(world.counted(), [0; 5]);
}
