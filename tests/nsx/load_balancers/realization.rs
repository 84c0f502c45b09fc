//! Accepted objects are not realized immediately, and deleted objects are not purged immediately. Addresses are
//! reported, released and deleted based on the realized state.

use std::time::Duration;

use ccm::cloud::{Error, LoadBalancer as _};
use serde_json::{Value, json};
use support::fake_nsx::{Behaviour, Deletion, Model, Realization, Trouble};

use super::world::*;
use crate::world::{SOON, advance};
use ccm::providers::vsphere::config::{LoadBalancerConfig as Config, Size};

const SECOND: Duration = Duration::from_secs(1);

fn is_pending<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Pending { .. }))
}

fn marked(realized_for: u64, purged_after: u64) -> Behaviour {
    let (realized_for, purged_after) = (SECOND * realized_for as u32, SECOND * purged_after as u32);
    Behaviour { deletion: Deletion::Marked { realized_for, purged_after }, ..Behaviour::USUAL }
}

fn released(world: &World) -> u32 {
    world.fake.counts().of("DELETE ip-allocations")
}

/// Returns the path of the only virtual server, including one that is marked for deletion.
fn server(world: &World) -> String {
    let is_server = |object: &Value| object["resource_type"] == json!("LBVirtualServer");
    let servers: Vec<Value> = world.fake.objects().into_iter().filter(is_server).collect();
    servers[0]["path"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_deletion_waits_until_the_virtual_server_is_no_longer_in_effect() {
    let world = World::with(Model::small().behaviour(marked(40, 300)), Some(UID), config()).await;
    let one = world.ensured(&one()).await;
    world.sent();
    let mut elapsed = Duration::ZERO;
    let mut looks = Vec::new();
    while elapsed < SECOND * 40 {
        let Err(Error::Pending { after, .. }) = world.try_delete(&one).await else { panic!("after {elapsed:?}") };
        assert_eq!(released(&world), 0, "after {elapsed:?}");
        looks.push(after.as_secs());
        advance(after).await;
        elapsed += after;
    }
    let read = world.fake.counts().of("GET realized-entities");
    assert!(looks[..10].iter().all(|after| *after <= 2) && looks[11..].iter().all(|after| *after > 10), "{looks:?}");
    assert!((10..=12).contains(&read), "{read} reads in {elapsed:?}");
    world.delete(&one).await.unwrap();
    assert_eq!((released(&world), world.counted()), (1, [0; 5]));
}

/// No list has the marked virtual server, and this process has not deleted it.
#[tokio::test]
async fn the_next_leader_waits_for_what_the_former_one_has_deleted() {
    let mut world = World::with(Model::small().behaviour(marked(200, 300)), Some(UID), config()).await;
    let one = world.ensured(&one()).await;
    assert!(is_pending(&world.try_delete(&one).await));
    assert_eq!(world.objects("lb-virtual-servers").len(), 0, "it is deleted");
    world.restart();
    world.sent();
    assert!(is_pending(&world.try_delete(&one).await), "the first list");
    advance(SECOND * 10).await;
    support::eventually("it reads the realized state", SOON, async || {
        let pending = is_pending(&world.try_delete(&one).await);
        assert!(pending && released(&world) == 0);
        if world.fake.counts().of("GET realized-entities") > 0 { Ok(()) } else { Err("no read".to_owned()) }
    })
    .await;
    advance(SECOND * 120).await;
    assert!(is_pending(&world.try_delete(&one).await));
    assert_eq!(released(&world), 0);
    advance(SECOND * 80).await;
    world.delete(&one).await.unwrap();
    assert_eq!((released(&world), world.counted()), (1, [0; 5]));
}

/// The Service does not ask for its second address any more.
#[tokio::test]
async fn the_next_leader_releases_no_second_address_that_is_in_effect() {
    let mut world = World::with(dual_model().behaviour(marked(200, 300)), Some(UID), dual_config()).await;
    [1, 2].iter().for_each(|last| world.put_dual(&format!("n{last}"), *last));
    let both = world.ensured(&of_families(one(), "PreferDualStack", &["IPv4", "IPv6"])).await;
    let alone = of_families(both, "SingleStack", &["IPv4"]);
    assert!(is_pending(&world.try_ensure(&alone).await));
    assert_eq!(world.objects("lb-virtual-servers").len(), 1, "that of the second address is deleted");
    world.restart();
    world.sent();
    support::eventually("it reads the realized state", SOON, async || {
        advance(SECOND).await;
        let pending = is_pending(&world.try_ensure(&alone).await);
        assert!(pending && released(&world) == 0);
        if world.fake.counts().of("GET realized-entities") > 0 { Ok(()) } else { Err("no read") }
    })
    .await;
    advance(SECOND * 100).await;
    assert!(is_pending(&world.try_ensure(&alone).await));
    assert_eq!(released(&world), 0);
    advance(SECOND * 120).await;
    world.ensure(&alone).await.unwrap();
    assert_eq!(released(&world), 1);
}

#[tokio::test]
async fn a_virtual_server_that_lists_miss_is_found_by_its_realized_state() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&one()).await;
    world.restart();
    let empty: fn(&str) -> String = |_| json!({"results": []}).to_string();
    world.fake.every("LIST lb-virtual-servers", Trouble::Rewrite(empty));
    world.delete(&one).await.unwrap();
    world.fake.clear();
    assert_eq!(world.counted()[1..], [0; 4]);
}

#[tokio::test]
async fn a_deletion_goes_on_after_five_minutes_and_says_so() {
    let world = World::with(Model::small().behaviour(marked(3600, 7200)), Some(UID), config()).await;
    let one = world.ensured(&one()).await;
    let path = server(&world);
    assert!(is_pending(&world.try_delete(&one).await));
    advance(SECOND * 298).await;
    assert!(is_pending(&world.try_delete(&one).await));
    assert_eq!(released(&world), 0);
    advance(SECOND * 15).await;
    world.delete(&one).await.unwrap();
    assert_eq!((released(&world), world.counted()), (1, [0; 5]));
    let (reason, message) = world.balancers.remark(&one).expect("a remark");
    assert_eq!(reason.as_str(), "LoadBalancerStillRealized");
    assert!(message.contains(&path), "{message}");
    assert_eq!(world.balancers.remark(&one), None);
}

#[tokio::test]
async fn an_account_that_may_not_read_the_realized_state_waits_for_nothing() {
    let world = World::with(Model::small().behaviour(marked(3600, 7200)), Some(UID), config()).await;
    let one = world.ensured(&one()).await;
    world.fake.deny(world.fake.user(), "GET realized-entities");
    world.delete(&one).await.unwrap();
    assert_eq!(world.counted(), [0; 5]);
}

/// NSX rejects the deletion of the pool and the load balancer service with 500030 until the purge.
#[tokio::test]
async fn objects_that_a_deleted_one_still_refers_to_are_deleted_after_the_purge() {
    for behaviour in [
        Behaviour { marked_objects_refer: true, ..marked(2, 5) },
        Behaviour { marked_objects_refer: true, refuses_second_delete: true, ..marked(60, 300) },
    ] {
        let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let one = world.ensured(&one()).await;
        world.delete(&one).await.unwrap();
        assert_eq!(world.counted()[1..], [0; 4], "{behaviour:?}");
        // The load balancer service does not block the finalizer. One of the next passes deletes it.
        for _ in 0..12 {
            if world.objects("lb-services").is_empty() {
                break;
            }
            let lists = || world.fake.counts().of("LIST ip-allocations");
            let before = lists();
            advance(SECOND * 300).await;
            support::eventually("another reading", SOON, async || {
                if lists() > before || world.objects("lb-services").is_empty() { Ok(()) } else { Err(lists()) }
            })
            .await;
        }
        until("the load balancer service is gone", Vec::<Value>::new(), || world.objects("lb-services")).await;
    }
}

/// The process ends after the deletion of the virtual server. The next process cannot see the reference to the pool.
#[tokio::test]
async fn the_next_leader_waits_for_the_purge_of_what_the_former_one_has_deleted() {
    let behaviour = Behaviour { marked_objects_refer: true, ..marked(2, 300) };
    let mut world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
    let one = world.ensured(&one()).await;
    world.fake.next("DELETE lb-pools", Trouble::unavailable());
    assert!(world.try_delete(&one).await.is_err());
    world.restart();
    world.delete(&one).await.unwrap();
    assert_eq!(world.counted()[1..], [0; 4]);
}

/// An object that no list shows refers to the pool.
#[tokio::test]
async fn a_new_leader_reports_a_pool_in_use_once_no_deleted_object_can_be_the_reason() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&one()).await;
    world.fake.next("DELETE lb-pools", Trouble::unavailable());
    assert!(world.try_delete(&one).await.is_err());
    world.restart();
    world.fake.every("DELETE lb-pools", Trouble::error(400, Some(500_030)));
    let began = tokio::time::Instant::now();
    assert_eq!(word(&world.delete(&one).await.unwrap_err()), "NSXRefused");
    let readings = world.fake.counts().of("LIST lb-virtual-servers");
    assert!((4..=10).contains(&readings), "what uses it may be listed meanwhile: {readings}");
    let elapsed = began.elapsed().as_secs();
    assert!((350..400).contains(&elapsed), "{elapsed} s");
}

#[tokio::test]
async fn a_second_delete_of_a_marked_object_is_a_success() {
    let behaviour = Behaviour { refuses_second_delete: true, ..Behaviour::USUAL };
    let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
    let one = world.ensured(&one()).await;
    for operation in ["DELETE lb-virtual-servers", "DELETE lb-pools", "DELETE ip-allocations"] {
        world.fake.next(operation, Trouble::Lose);
    }
    world.delete(&one).await.unwrap();
    assert_eq!(world.counted(), [0; 5]);
}

#[tokio::test]
async fn an_address_is_given_when_the_load_balancer_is_in_effect() {
    let world = World::start(Some(UID)).await;
    world.ensured(&service("ns/other", &[("TCP", 80, 30081)])).await;
    world.fake.set_realization("lb-virtual-servers", Realization::After(SECOND * 5));
    let mut pauses = Vec::new();
    let status = loop {
        match world.try_ensure(&one()).await {
            Ok(status) => break status,
            Err(Error::Pending { after, .. }) => {
                advance(after).await;
                pauses.push(after.as_secs_f64().round() as u64);
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(addresses(&status).len(), 1);
    assert_eq!(pauses, [1, 2, 7], "after 1, 3 and 10 s");
}

#[tokio::test]
async fn a_load_balancer_that_nsx_cannot_put_into_effect_gives_no_address_and_takes_none() {
    let world = World::start(Some(UID)).await;
    let failing = Realization::Error(Duration::ZERO, 23_501, "the edge node has no room".to_owned());
    world.fake.set_realization("lb-virtual-servers", failing.clone());
    let refused = world.ensure(&one()).await.unwrap_err();
    assert_eq!(word(&refused), "LoadBalancerNotRealized");
    let path = server(&world);
    assert!(refused.to_string().contains(&path) && refused.to_string().contains("no room"), "{refused}");
    let after = refused.retry_after().expect("a pause");
    assert!((SECOND * 9..=SECOND * 10).contains(&after), "{after:?}");
    world.sent();
    assert_eq!(word(&world.ensure(&one()).await.unwrap_err()), "LoadBalancerNotRealized");
    assert_eq!(world.sent(), Vec::<String>::new(), "it is not read before the pause is over");
    world.fake.set_realization("lb-virtual-servers", Realization::After(Duration::ZERO));
    advance(SECOND * 10).await;
    let served = world.ensured(&one()).await;
    // With an address in the status the same failure is reported, and the address stays.
    world.fake.set_realization("lb-virtual-servers", failing);
    let moved = moved(&served, &[("TCP", 80, 30090)]);
    assert_eq!(word(&world.ensure(&moved).await.unwrap_err()), "LoadBalancerNotRealized");
    assert_eq!(world.counted(), [1; 5]);
    world.fake.set_realization("lb-virtual-servers", Realization::After(Duration::ZERO));
    advance(SECOND * 300).await;
    assert_eq!(addresses(&world.ensure(&moved).await.unwrap()).len(), 1);
}

/// NSX reports the state of the former revision until the new one is realized or fails.
#[tokio::test]
async fn a_changed_virtual_server_is_judged_by_its_new_revision() {
    for shows_intent_version in [true, false] {
        let behaviour = Behaviour { shows_intent_version, ..Behaviour::USUAL };
        let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let one = world.ensured(&one()).await;
        let failing = Realization::Error(SECOND * 2, 23_501, "the edge node has no room".to_owned());
        world.fake.set_realization("lb-virtual-servers", failing);
        let moved = moved(&one, &[("TCP", 80, 30090)]);
        let refused = world.ensure(&moved).await.expect_err("the old revision is in effect");
        assert!(refused.to_string().contains("no room"), "{shows_intent_version}: {refused}");
    }
}

#[tokio::test]
async fn a_failure_is_reported_also_where_its_alarm_cannot_be_read() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&one()).await;
    world.fake.set_realization("lb-virtual-servers", Realization::Error(Duration::ZERO, 23_501, "no room".to_owned()));
    world.fake.deny("admin", "GET realized-entities");
    let moved = moved(&one, &[("TCP", 80, 30090)]);
    assert_eq!(word(&world.ensure(&moved).await.unwrap_err()), "LoadBalancerNotRealized");
}

/// NSX may number revisions differently. Therefore the daemon waits no longer than for an object without any state.
#[tokio::test]
async fn a_change_that_nsx_does_not_confirm_ends_with_a_remark() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&one()).await;
    world.fake.set_realization("lb-virtual-servers", Realization::Never);
    let moved = moved(&one, &[("TCP", 80, 30090)]);
    world.sent();
    let status = world.ensure(&moved).await.unwrap();
    assert_eq!(addresses(&status).len(), 1);
    let reads = world.sent().iter().filter(|one| *one == "GET realized-status").count();
    assert_eq!(reads, 4, "after 1, 3, 10 and 30 s");
    let (reason, _) = world.balancers.remark(&moved).expect("a remark");
    assert_eq!(reason.to_string(), "LoadBalancerNotConfirmed");
}

#[tokio::test]
async fn an_address_is_given_after_thirty_seconds_with_a_remark() {
    for is_denied in [false, true] {
        let world = World::start(Some(UID)).await;
        match is_denied {
            true => world.fake.every("GET realized-entities", Trouble::Rewrite(without_servers)),
            false => world.fake.set_realization("lb-virtual-servers", Realization::Never),
        }
        let one = world.ensured(&one()).await;
        let (reason, message) = world.balancers.remark(&one).expect("a remark");
        assert_eq!(reason.as_str(), "LoadBalancerNotConfirmed");
        assert!(message.contains(&server(&world)), "{message}");
        assert_eq!(world.balancers.remark(&one), None);
        world.sent();
        world.ensure(&one).await.unwrap();
        assert_eq!((world.sent(), world.balancers.remark(&one)), (vec![], None), "it is not read again");
    }
}

/// Returns an answer without virtual servers.
fn without_servers(body: &str) -> String {
    if body.contains("lb-virtual-servers") { json!({"results": []}).to_string() } else { body.to_owned() }
}

/// The process ended between the write and the status update.
#[tokio::test]
async fn the_next_leader_gives_no_address_that_is_not_in_effect() {
    let mut world = World::start(Some(UID)).await;
    let failing = Realization::Error(Duration::ZERO, 23_501, "the edge node has no room".to_owned());
    world.fake.set_realization("lb-virtual-servers", failing);
    assert_eq!(word(&world.ensure(&one()).await.unwrap_err()), "LoadBalancerNotRealized");
    world.restart();
    assert_eq!(word(&world.ensure(&one()).await.unwrap_err()), "LoadBalancerNotRealized");
}

#[tokio::test]
async fn a_gateway_without_an_edge_cluster_is_named_before_anything_is_created() {
    let model = Model::small().object("/infra/tier-1s/bare", json!({"route_advertisement_types": ["TIER1_LB_VIP"]}));
    let bare = Config { tier1: Some("/infra/tier-1s/bare".to_owned()), ..config() };
    let world = World::with(model, Some(UID), bare).await;
    let wrong = world.ensure(&one()).await.unwrap_err();
    assert_eq!(word(&wrong), "LoadBalancerConfigWrong");
    assert!(wrong.to_string().contains("/infra/tier-1s/bare") && wrong.to_string().contains("edge cluster"), "{wrong}");
    assert_eq!(world.counted(), [0; 5]);
    let edge_cluster = "/infra/sites/default/enforcement-points/default/edge-clusters/edge-1";
    let services = "/infra/tier-1s/bare/locale-services/default";
    world.fake.put_by_hand("operator", services, json!({"edge_cluster_path": edge_cluster}));
    advance(SECOND * 61).await;
    world.ensured(&one()).await;
}

#[tokio::test]
async fn a_gateway_that_does_not_advertise_the_addresses_is_remarked() {
    let model = Model::small();
    let world = World::with(model, Some(UID), config()).await;
    world.fake.change_by_hand("operator", "/infra/tier-1s/t1", |gateway| {
        gateway["route_advertisement_types"] = json!(["TIER1_CONNECTED"]);
    });
    let one = world.ensured(&one()).await;
    let (reason, message) = world.balancers.remark(&one).expect("a remark");
    assert_eq!(reason.as_str(), "LoadBalancerConfigWrong");
    assert!(message.contains("/infra/tier-1s/t1") && message.contains("TIER1_LB_VIP"), "{message}");
}

#[tokio::test]
async fn a_load_balancer_service_without_room_on_the_edges_is_reported() {
    let world = World::start(Some(UID)).await;
    world.fake.set_edge_credits("/infra/tier-1s/t1", 0);
    let refused = world.ensure(&one()).await.unwrap_err();
    assert_eq!(word(&refused), "LoadBalancerNotRealized");
    assert!(refused.to_string().contains("credits"), "{refused}");
    world.fake.set_edge_credits("/infra/tier-1s/t1", 1);
    advance(SECOND * 10).await;
    world.ensured(&one()).await;
}

/// The edges still serve the old virtual server on the port of the new one.
#[tokio::test]
async fn a_port_that_comes_back_at_once_is_reported_until_the_old_server_is_gone() {
    let world = World::with(Model::small().behaviour(marked(20, 300)), Some(UID), config()).await;
    let both = world.ensured(&service("ns/s", &[("TCP", 80, 30080), ("TCP", 81, 30081)])).await;
    let one = moved(&both, &[("TCP", 80, 30080)]);
    world.ensure(&one).await.unwrap();
    let refused = world.ensure(&both).await.unwrap_err();
    assert_eq!(word(&refused), "LoadBalancerNotRealized", "{refused}");
    advance(SECOND * 20).await;
    world.ensure(&both).await.unwrap();
    assert_eq!(world.counted(), [1, 2, 2, 2, 1]);
}

#[tokio::test]
async fn one_family_that_is_not_in_effect_keeps_the_other_one_from_nothing() {
    let world = World::dual(Some(UID)).await;
    let both = of_families(one(), "PreferDualStack", &["IPv4", "IPv6"]);
    world.fake.set_realization("lb-virtual-servers", Realization::After(Duration::ZERO));
    let failing = Realization::Error(Duration::ZERO, 23_501, "no room".to_owned());
    let is_ipv6 = |server: &Value| server["ip_address"].as_str().unwrap().contains(':');
    world.ensure(&both).await.unwrap();
    let servers = world.objects("lb-virtual-servers");
    let path = servers.iter().find(|server| is_ipv6(server)).unwrap()["path"].as_str().unwrap().to_owned();
    world.delete(&both).await.unwrap();
    advance(SECOND * 10).await;
    // The id is used again, because the purge is complete.
    world.fake.set_realization(&path, failing);
    let given = addresses(&world.ensure(&both).await.unwrap());
    assert_eq!(given.iter().map(|address| address.is_ipv4()).collect::<Vec<_>>(), [true]);
    let refused = world.ensure(&with_status(both.clone(), world.get(&both).await.unwrap().unwrap())).await;
    assert_eq!(word(&refused.unwrap_err()), "LoadBalancerNotRealized");
}

/// The controller's time limit for a call is a minute.
#[tokio::test]
async fn a_load_balancer_with_many_ports_takes_several_calls_and_no_failure() {
    let world = World::with(Model::small(), Some(UID), Config { size: Size::Large, ..config() }).await;
    let ports: Vec<(&str, u16, u16)> = (1..=40).map(|port| ("TCP", port, 30000 + port)).collect();
    let many = service("ns/many", &ports);
    world.ensured(&service("ns/other", &[("TCP", 80, 30080)])).await;
    world.fake.delay_calls(SECOND);
    let hurry = async {
        loop {
            support::eventually("a call is under way", SOON, async || {
                if world.fake.counts().in_flight > 0 { Ok(()) } else { Err("none is") }
            })
            .await;
            advance(SECOND).await;
        }
    };
    let calls = async {
        let mut longest = Duration::ZERO;
        let mut number = 0;
        loop {
            let began = tokio::time::Instant::now();
            let result = world.try_ensure(&many).await;
            longest = longest.max(began.elapsed());
            match result {
                Ok(_) => return (number, longest),
                Err(Error::Pending { after, .. }) => advance(after).await,
                Err(error) => panic!("{error}"),
            }
            number += 1;
        }
    };
    let (calls, longest) = tokio::select! { done = calls => done, () = hurry => unreachable!() };
    assert!(calls >= 4 && longest < SECOND * 60, "{calls} calls, the longest {longest:?}");
    assert_eq!(world.counted(), [1, 41, 41, 41, 2]);
}
