//! The service controller with the memory provider and a real API server.

mod crashes;
mod harness;
mod no_load_balancers;
mod nodes;
mod others;

use ccm::cloud::{Error, ServiceEvent, reason};
use doubles::memory::{Call, Memory};
use harness::{FINALIZER, Run, Start, has_finalizer, ingress, spec};
use serde_json::json;
use std::time::Duration;
use support::{ApiServer, eventually};

// vectors: S-01–S-05, S-08, S-110
#[tokio::test(flavor = "multi_thread")]
async fn services_are_synced_as_upstream() {
    let run = Run::start(&Memory::default()).await;
    run.with_node("n1").await;
    run.create_ensured(&["first"]).await;
    let class = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/custom", "ports": [{"port": 80}]});
    for (id, spec, is_ensured) in [
        ("S-01", json!({"type": "ClusterIP", "ports": [{"port": 80}]}), false),
        ("S-02", spec("UDP"), true),
        ("S-03", spec("TCP"), true),
        ("S-04", spec("SCTP"), true),
        ("S-05", class, false),
    ] {
        let name = id.to_lowercase();
        run.create(&name, json!({}), spec).await;
        if is_ensured {
            let service = run.wait(id, &name, |service| !ingress(service).is_empty()).await;
            assert!(has_finalizer(&service), "{id}");
        }
    }
    run.create("s-08", json!({"finalizers": [FINALIZER]}), spec("TCP")).await;
    run.wait("S-08", "s-08", |service| !ingress(service).is_empty()).await;
    for name in ["s-01", "s-05"] {
        let service = run.api().get(name).await.unwrap();
        assert!(!has_finalizer(&service) && ingress(&service).is_empty(), "{name}");
    }
    let balancers = run.cloud.load_balancers();
    assert_eq!(balancers.len(), 5, "{balancers:?}");
    assert!(balancers.iter().all(|balancer| balancer.nodes == [run.node_name("n1")]), "{balancers:?}");
    assert_eq!(run.cloud.count(Call::EnsureLoadBalancer), 5, "S-110: each once");
    run.wait_for_event("s-03", "EnsuredLoadBalancer").await;
    assert_eq!(run.events("s-03").await, ["EnsuredLoadBalancer", "EnsuringLoadBalancer"]);
    run.wait_for_metric("five", "vsphere_ccm_load_balancers", 5.0).await;
}

// One write in place of two removes finalizer and address together.
// vectors: S-06, S-07
#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_is_deleted_before_the_service_goes() {
    let run = Run::start(&Memory::default()).await;
    run.with_node("n1").await;
    for (name, is_deleted) in [("s-06", false), ("s-07", true)] {
        run.create(name, json!({"finalizers": ["example.com/other"]}), spec("TCP")).await;
        run.wait("it has a load balancer", name, |service| !ingress(service).is_empty()).await;
        match is_deleted {
            true => run.delete(name).await,
            false => run.patch(name, json!({"spec": {"type": "ClusterIP"}})).await,
        }
        let service = run.wait("it is let go", name, |service| !has_finalizer(service)).await;
        assert!(ingress(&service).is_empty(), "{name}: in one write");
        assert_eq!(service.metadata.finalizers.unwrap(), ["example.com/other"]);
        run.wait_for_event(name, "DeletedLoadBalancer").await;
        let expected = ["DeletedLoadBalancer", "DeletingLoadBalancer", "EnsuredLoadBalancer", "EnsuringLoadBalancer"];
        assert_eq!(run.events(name).await, expected);
    }
    assert_eq!(run.cloud.load_balancer_objects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_finalizer_stays_until_nothing_is_left() {
    let run = Run::start(&Memory::default()).await;
    run.create_ensured(&["a", "b"]).await;
    run.cloud.set_deletes_by_half(true);
    run.delete("a").await;
    run.patch("b", json!({"spec": {"type": "ClusterIP"}})).await;
    run.wait_for_calls(Call::DeleteLoadBalancer, 4).await;
    for name in ["a", "b"] {
        assert!(has_finalizer(&run.api().get(name).await.unwrap()), "{name}");
    }
    assert_eq!(run.cloud.load_balancer_objects(), 2, "half of each");
    // The look-up would also fail, but the controller does not use it.
    run.cloud.fail(Call::GetLoadBalancer, || Error::other("not found"));
    run.cloud.set_deletes_by_half(false);
    run.wait_until_gone("a").await;
    run.wait("b is let go", "b", |service| !has_finalizer(service)).await;
    assert_eq!(run.cloud.load_balancer_objects(), 0);
    let told = run.events("a").await.iter().filter(|event| *event == "DeletingLoadBalancer").count();
    assert_eq!(told, 1, "not at each try");
}

// vectors: S-111, S-112
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_cloud_are_retried_as_they_say() {
    let run = Run::start(&Memory::default()).await;
    run.cloud.fail(Call::EnsureLoadBalancer, || Error::other("something went wrong"));
    run.create("s-111", json!({}), spec("TCP")).await;
    run.wait_for_event("s-111", "SyncLoadBalancerFailed").await;
    run.wait_for_calls(Call::EnsureLoadBalancer, 2).await;
    assert!(run.metric("workqueue_retries_total{name=\"service\"}") >= 1.0, "S-111");
    let is_held = "vsphere_ccm_load_balancers_held{reason=\"CloudError\"}";
    run.wait_for_metric("it is held", is_held, 1.0).await;
    run.cloud.end_failures(Call::EnsureLoadBalancer);
    run.wait("it is tried again by itself", "s-111", |service| !ingress(service).is_empty()).await;
    run.wait_for_metric("it is not held any more", is_held, 0.0).await;

    // The Service neither waits longer, nor counts as a failure, nor is reconciled earlier for its own events.
    let (retries, calls) =
        (run.metric("workqueue_retries_total{name=\"service\"}"), run.cloud.count(Call::EnsureLoadBalancer));
    let after = Duration::from_secs(2);
    run.cloud.fail(Call::EnsureLoadBalancer, move || Error::RetryAfter { message: "busy".into(), after });
    let began = std::time::Instant::now();
    run.create("s-112", json!({}), spec("TCP")).await;
    run.wait_for_calls(Call::EnsureLoadBalancer, calls + 1).await;
    run.patch("s-112", json!({"metadata": {"labels": {"any": "change"}}})).await;
    run.wait_for_calls(Call::EnsureLoadBalancer, calls + 3).await;
    assert!(began.elapsed() >= 2 * after, "S-112: {:?}", began.elapsed());
    assert_eq!(run.metric("workqueue_retries_total{name=\"service\"}"), retries, "S-112");
    run.cloud.end_failures(Call::EnsureLoadBalancer);
    run.wait("it is ensured", "s-112", |service| !ingress(service).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_or_used_up_is_tried_when_something_changed() {
    let run = Run::start(&Memory::default()).await;
    run.cloud.fail(Call::EnsureLoadBalancer, || Error::Invalid { reason: reason::CloudError, message: "odd".into() });
    run.create("a", json!({}), spec("TCP")).await;
    run.wait_for_event("a", "SyncLoadBalancerFailed").await;
    run.patch("a", json!({"metadata": {"labels": {"any": "change"}}})).await;
    run.cloud.end_failures(Call::EnsureLoadBalancer);
    run.create_ensured(&["b"]).await;
    assert!(ingress(&run.api().get("a").await.unwrap()).is_empty(), "what is wrong waits for its change");
    assert_eq!(run.cloud.count(Call::EnsureLoadBalancer), 2);
    run.patch("a", json!({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})).await;
    run.wait("it is ensured", "a", |service| !ingress(service).is_empty()).await;
    // A later mistake blocks neither updates of Nodes nor the deletion of the load balancer.
    run.cloud.fail(Call::EnsureLoadBalancer, || Error::Invalid { reason: reason::CloudError, message: "odd".into() });
    run.patch("a", json!({"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}})).await;
    run.wait_for_calls(Call::EnsureLoadBalancer, 4).await;
    run.node("n1").await;
    run.wait_for_nodes(&[run.node_name("n1")]).await;
    run.delete("a").await;
    run.wait_until_gone("a").await;
    assert_eq!(run.cloud.load_balancers().len(), 1);

    // The provider may set the time of the next sync.
    run.cloud.fail(Call::EnsureLoadBalancer, || Error::Exhausted {
        reason: reason::CloudError,
        message: "no address is free".into(),
        after: Duration::from_secs(3600),
    });
    run.create("c", json!({}), spec("TCP")).await;
    run.wait_for_event("c", "SyncLoadBalancerFailed").await;
    run.cloud.end_failures(Call::EnsureLoadBalancer);
    run.cloud.announce_service(ServiceEvent::Service { namespace: run.namespace.clone(), name: "c".into() });
    run.wait("it is ensured", "c", |service| !ingress(service).is_empty()).await;
}

// Upstream fails and waits. Here the Service is read again immediately, without another call to the cloud.
// vectors: S-113, S-138
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_planned_again_and_overwrites_nothing() {
    let run = Run::start(&Memory::default()).await;
    run.with_node("n1").await;
    run.cloud.hold(Call::EnsureLoadBalancer);
    run.create("a", json!({"finalizers": ["example.com/foo"]}), spec("TCP")).await;
    run.wait_for_calls(Call::EnsureLoadBalancer, 1).await;
    run.patch("a", json!({"metadata": {"annotations": {"example.com/other": "kept"}}})).await;
    run.cloud.release();
    let service = run.wait("it is ensured", "a", |service| !ingress(service).is_empty()).await;
    assert_eq!(service.metadata.annotations.unwrap()["example.com/other"], "kept");
    assert_eq!(service.metadata.finalizers.unwrap(), ["example.com/foo", FINALIZER]);
    assert_eq!(run.cloud.count(Call::EnsureLoadBalancer), 1, "S-113, S-138: the cloud is not called again");
    run.wait_for_event("a", "EnsuredLoadBalancer").await;
    assert_eq!(run.events("a").await, ["EnsuredLoadBalancer", "EnsuringLoadBalancer"]);
}

// vectors: S-119
#[tokio::test(flavor = "multi_thread")]
async fn a_change_reaches_the_cloud_and_one_of_others_does_not() {
    let run = Run::start(&Memory::default()).await;
    let mut spec = spec("TCP");
    spec["loadBalancerIP"] = json!("192.168.1.1");
    run.create("a", json!({}), spec).await;
    run.wait("it is ensured", "a", |service| !ingress(service).is_empty()).await;
    run.patch("a", json!({"metadata": {"annotations": {"example.com/other": "1"}, "labels": {"a": "b"}}})).await;
    run.patch("a", json!({"spec": {"loadBalancerIP": "192.168.1.11"}})).await;
    run.wait_for_calls(Call::EnsureLoadBalancer, 2).await;
    eventually("it has the new address", harness::LIMIT, async || {
        let service = run.cloud.load_balancers().remove(0).service;
        let address = service.spec.unwrap().load_balancer_ip;
        if address.as_deref() == Some("192.168.1.11") { Ok(()) } else { Err(format!("{address:?}")) }
    })
    .await;
    assert_eq!(run.cloud.count(Call::EnsureLoadBalancer), 2, "S-119");
}

/// By the audit log: a start or a change of the leader writes nothing, a new Service takes two writes, a deletion one.
#[tokio::test(flavor = "multi_thread")]
async fn only_real_changes_are_written() {
    let server = ApiServer::audited().await;
    let cloud = Memory::default();
    let first = Run::with(&server, Start::of(&cloud)).await;
    first.node("n1").await;
    let names: Vec<String> = (0..200).map(|number| format!("s-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    first.create_ensured(&names).await;
    let writes = || {
        let events = server.audit();
        events.iter().filter(|event| event.is_write() && event.is_accepted() && harness::is_ours(event)).count()
    };
    // The log is slightly delayed.
    let until_logged = async |count: usize| {
        eventually(&format!("{count} writes are in the log"), harness::LIMIT, async || {
            let found = writes();
            if found >= count { Ok(()) } else { Err(found) }
        })
        .await;
        assert_eq!(writes(), count);
    };
    // Each Service has a write of the finalizer and a write of the address.
    until_logged(400).await;
    let before = cloud.count(Call::UpdateNodes);
    first.node("n2").await;
    first.wait_for_nodes(&[first.node_name("n1"), first.node_name("n2")]).await;
    assert_eq!(cloud.count(Call::UpdateNodes) - before, 1, "one call for all Services");
    first.wait_for_event("s-1", "UpdatedLoadBalancer").await;
    let told = first.events("s-1").await;
    let place = first.place();
    drop(first);

    let ensured = cloud.count(Call::EnsureLoadBalancer);
    let second = Run::with(&server, Start { place, ..Start::of(&cloud) }).await;
    second.wait_for_calls(Call::EnsureLoadBalancer, ensured + 200).await;
    second.delete("s-0").await;
    second.wait_until_gone("s-0").await;
    // A change of the leader writes nothing, and one write removes the finalizer.
    until_logged(401).await;
    assert_eq!(second.events("s-1").await, told, "and no Event");
}
