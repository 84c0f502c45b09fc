//! Load balancers of deleted Services.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ccm::cloud::LoadBalancer as _;
use ccm::providers::vsphere::nsx::load_balancer::orphans::Policy;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use support::Log;
use support::fake_nsx::Model;
use support::fake_nsx::go::GoBalancer;

use super::dual_stack::tag;
use super::world::*;
use crate::world::advance;

/// Longer than the minimum time between the two passes that must both see an orphan.
const APART: Duration = Duration::from_secs(601);

/// Creates Services with load balancers, and adds them to the API server.
async fn services(world: &World, names: &[&str]) -> Vec<Service> {
    let mut services = Vec::new();
    for (number, name) in (0u16..).zip(names) {
        let service = world.ensured(&service(name, &[("TCP", 80, 30080 + number)])).await;
        world.cluster.services.lock().unwrap().insert((*name).to_owned(), service.clone());
        services.push(service);
    }
    services
}

/// Runs a pass and the work that follows from it. A sync of a Service without a load balancer starts it. The pass is
/// complete at the return. Otherwise time that a caller lets pass afterwards would count against the time limit of its
/// calls.
pub(super) async fn reading(world: &World) {
    let asked = tokio::time::Instant::now();
    world.balancers.read_again();
    advance(Duration::from_secs(10)).await;
    support::eventually("everything is read", crate::world::SOON, async || {
        let last = world.balancers.last_list();
        if last.is_some_and(|begun| begun > asked) { Ok(()) } else { Err(format!("{last:?}")) }
    })
    .await;
}

// vectors: SEQ-14
#[tokio::test]
async fn seq_14_what_is_left_of_a_vanished_service_goes_after_two_readings() {
    let mut world = World::start(Some(UID)).await;
    let stays = services(&world, &["ns/gone", "ns/stays"]).await.pop().unwrap();
    world.cluster.services.lock().unwrap().remove("ns/gone");
    world.restart();
    world.ensure(&stays).await.unwrap();
    let before = world.counted();
    assert_eq!(before, [1, 2, 2, 2, 2]);
    reading(&world).await;
    assert_eq!(world.counted(), before, "one reading more is not enough");
    advance(APART).await;
    until("it is deleted", [1, 1, 1, 1, 1], || world.counted()).await;
    assert_eq!(world.handed_back(&[&stays]), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_not_proved_to_be_gone_stays() {
    let mut world = World::start(Some(UID)).await;
    services(&world, &["ns/unknown"]).await;
    world.cluster.services.lock().unwrap().clear();
    GoBalancer::new(NAME, "ns/go", "192.0.2.77".parse().unwrap()).put(&world.fake, "go");
    world.restart();
    let other = services(&world, &["ns/other"]).await.pop().unwrap();
    let before = world.counted();
    // Virtual server, pool, monitor and address.
    until("what names a Service that is not here is held", 4, || world.held()).await;
    // The API server does not answer.
    world.cluster.is_down.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        advance(APART).await;
        reading(&world).await;
    }
    assert_eq!(world.counted(), before);

    // The API server has the Service, but the cache does not, because of the selector.
    let hidden: Service = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "unknown"}, "spec": {"type": "LoadBalancer"},
    }))
    .unwrap();
    world.cluster.hidden.lock().unwrap().insert("ns/unknown".to_owned(), hidden);
    world.cluster.is_down.store(false, Ordering::Relaxed);
    for _ in 0..3 {
        advance(APART).await;
        reading(&world).await;
    }
    assert_eq!(world.counted(), before);
    world.ensure(&other).await.unwrap();

    // The Service is deleted. Objects of the Go program without this cluster's UID stay.
    world.cluster.hidden.lock().unwrap().clear();
    for _ in 0..2 {
        advance(APART).await;
        reading(&world).await;
    }
    until("the orphan goes", 2, || world.objects("lb-virtual-servers").len()).await;
}

#[tokio::test]
async fn when_many_are_left_over_at_once_none_goes_at_first() {
    let model = Model::small();
    let mut world = World::with(model, Some(UID), config()).await;
    services(&world, &["ns/a", "ns/b", "ns/c", "ns/d", "ns/e", "ns/f"]).await;
    world.cluster.services.lock().unwrap().clear();
    world.restart();
    world.delete(&service("ns/none", &[("TCP", 80, 30090)])).await.unwrap();
    let before = world.counted();
    // The warning comes once with the first pass, long before any object could be deleted.
    support::eventually("a warning about the cluster", crate::world::SOON, async || {
        let warnings = world.cluster.warnings.lock().unwrap().clone();
        if warnings.len() == 1 { Ok(()) } else { Err(format!("{warnings:?}")) }
    })
    .await;
    for _ in 0..2 {
        advance(APART).await;
        reading(&world).await;
    }
    assert_eq!(world.counted(), before, "an API server that was restored has none of them");
    let warnings = world.cluster.warnings.lock().unwrap().clone();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let (reason, message) = &warnings[0];
    assert_eq!(reason, "ManyOrphanedLoadBalancers");
    assert!(message.contains("does not show 6 of") && message.contains("--nsx-orphans=report"), "{message}");
}

/// The flag for an operator who has restored the API server.
#[tokio::test]
async fn the_flag_keeps_what_is_left_of_vanished_services() {
    let log = Log::keep();
    for (policy, name, lines) in [(Policy::Report, "ns/gone-and-reported", 1), (Policy::Off, "ns/gone-and-kept", 0)] {
        let mut world = World::start(Some(UID)).await;
        let stays = services(&world, &[name, "ns/stays"]).await.pop().unwrap();
        world.cluster.services.lock().unwrap().remove(name);
        world.restart_with_orphans(policy);
        world.ensure(&stays).await.unwrap();
        let before = world.counted();
        for _ in 0..3 {
            advance(APART).await;
            reading(&world).await;
        }
        let told = || log.lines("orphaned load balancer").iter().filter(|line| line.contains(name)).count();
        until("the log names it", lines, &told).await;
        advance(APART).await;
        reading(&world).await;
        assert_eq!((world.counted(), told()), (before, lines), "{policy:?}");
    }
}

/// A failure does not block other objects. All failures are reported together, and retried with increasing pauses.
#[tokio::test]
async fn l_33_the_clean_up_goes_on_after_a_failure_and_tries_again_later() {
    let mut world = World::start(Some(UID)).await;
    services(&world, &["ns/bad", "ns/good"]).await;
    let servers = world.objects("lb-virtual-servers");
    let bad = servers.iter().find(|server| server.to_string().contains("ns/bad")).unwrap();
    world.fake.deny_writes("admin", bad["path"].as_str().unwrap());
    world.cluster.services.lock().unwrap().clear();
    world.restart();
    world.delete(&service("ns/none", &[("TCP", 80, 30090)])).await.unwrap();
    let attempts = |world: &World| world.fake.counts().of("DELETE lb-virtual-servers") - 1;
    let tried = async |expected: u32| {
        until("it is tried", expected, || attempts(&world)).await;
    };
    advance(APART).await;
    until("the other one goes", 1, || world.objects("lb-pools").len()).await;
    tried(1).await;
    for _ in 0..2 {
        reading(&world).await;
    }
    assert_eq!(attempts(&world), 1, "not with each reading");
    advance(Duration::from_secs(60)).await;
    tried(2).await;
    for (pause, expected) in [(120, 3), (240, 4)] {
        advance(Duration::from_secs(pause / 2)).await;
        reading(&world).await;
        assert_eq!(attempts(&world), expected - 1, "not before {pause} s");
        advance(Duration::from_secs(pause / 2)).await;
        tried(expected).await;
    }
    world.fake.allow("admin", bad["path"].as_str().unwrap());
    advance(Duration::from_secs(480)).await;
    until("it is deleted", [0, 0, 0, 0, 0], || world.counted()).await;
}

/// `--service-selector` assigns a Service to another process, for example the Go program.
#[tokio::test]
async fn what_a_service_of_another_process_needs_is_not_held() {
    let world = World::start(Some(UID)).await;
    for (name, last) in [("ns/theirs", 77), ("ns/gone", 78), ("ns/other-type", 79)] {
        GoBalancer::new(NAME, name, [192, 0, 2, last].into()).put(&world.fake, "go");
    }
    let mut other_type = service("ns/other-type", &[("TCP", 80, 30082)]);
    other_type.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    for service in [service("ns/theirs", &[("TCP", 80, 30080)]), other_type] {
        let name = format!("ns/{}", service.metadata.name.clone().unwrap());
        world.cluster.hidden.lock().unwrap().insert(name, service);
    }
    services(&world, &["ns/ours"]).await;
    until("what nothing needs is held", 8, || world.held()).await;
    reading(&world).await;
    assert_eq!(world.held(), 8, "virtual server, pool, monitor and address of two Services");
    assert_eq!(world.counted(), [1, 4, 4, 4, 4]);
}

/// An administrator uses the address of a load balancer for another virtual server.
#[tokio::test]
async fn an_address_that_somebody_else_uses_stays_reserved_until_he_does_not() {
    let mut world = World::start(Some(UID)).await;
    let all = services(&world, &["ns/gone", "ns/stays"]).await;
    let (gone, stays) = (&all[0], &all[1]);
    let server =
        world.objects("lb-virtual-servers").into_iter().find(|one| tag(one, "service") == Some("ns/gone")).unwrap();
    let by_hand = "/infra/lb-virtual-servers/by-hand";
    let body = json!({
        "display_name": "by hand", "ip_address": server["ip_address"], "ports": ["8443"],
        "application_profile_path": server["application_profile_path"], "lb_service_path": server["lb_service_path"],
    });
    world.fake.put_by_hand("admin", by_hand, body);
    world.restart();
    world.ensure(stays).await.unwrap();
    let of_gone = |world: &World| {
        let all = world.objects("ip-allocations");
        all.into_iter().filter(|one| tag(one, "service") == Some("ns/gone")).count()
    };
    // The Service is deleted, but its address stays reserved.
    world.delete(gone).await.unwrap();
    world.cluster.services.lock().unwrap().remove("ns/gone");
    assert_eq!(of_gone(&world), 1);
    let servers = world.objects("lb-virtual-servers");
    assert!(servers.iter().all(|one| tag(one, "service") != Some("ns/gone")), "{servers:?}");
    let (reason, message) = world.balancers.remark(gone).unwrap();
    assert_eq!(reason.to_string(), "AddressNotReleased");
    let address = server["ip_address"].as_str().unwrap();
    assert!(message.contains(address) && message.contains(by_hand), "{message}");
    // The clean-up does not release the address either, and does not retry constantly.
    let seen = world.fake.history().len();
    for _ in 0..3 {
        reading(&world).await;
        advance(APART).await;
    }
    assert_eq!(world.history(seen), []);
    assert_eq!(world.balancers.counts().unwrap().orphans, 0);
    assert!(world.fake.delete_by_hand("admin", by_hand));
    reading(&world).await;
    advance(APART).await;
    reading(&world).await;
    until("it is released", 0, || of_gone(&world)).await;
    assert_eq!(world.handed_back(&[stays]), Vec::<String>::new());
}
