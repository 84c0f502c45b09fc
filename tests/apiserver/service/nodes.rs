//! The Nodes of load balancers.

use ccm::cloud::{Error, InstanceEvent, ServiceEvent, UsableAddresses, reason};
use doubles::memory::{Call, Memory};
use serde_json::json;
use std::time::Duration;
use support::{ApiServer, eventually};

use super::harness::{LIMIT, Run, Start, ingress, spec};

/// Kind of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ClusterIp,
    NodePort,
    LoadBalancer,
    /// The Service was deleted.
    Gone,
}

// One call covers all Services. Upstream counts the Services, not the calls.
// vectors: S-40–S-46
#[tokio::test(flavor = "multi_thread")]
async fn only_services_with_a_load_balancer_are_told_about_the_nodes() {
    use Kind::{ClusterIp, Gone, LoadBalancer, NodePort};
    let cases: [(&str, &[Kind], f64); 7] = [
        ("S-40", &[], 0.0),
        ("S-41", &[ClusterIp, NodePort], 0.0),
        ("S-42", &[LoadBalancer], 1.0),
        ("S-43", &[LoadBalancer; 3], 3.0),
        ("S-44", &[NodePort, LoadBalancer, LoadBalancer, ClusterIp], 2.0),
        ("S-45", &[LoadBalancer, Gone], 1.0),
        ("S-46", &[LoadBalancer; 4], 4.0),
    ];
    for (id, kinds, expected) in cases {
        let run = Run::start(&Memory::default()).await;
        for (number, kind) in kinds.iter().enumerate() {
            let name = format!("s-{number}");
            match kind {
                ClusterIp => run.create(&name, json!({}), json!({"type": "ClusterIP", "ports": [{"port": 80}]})).await,
                NodePort => run.create(&name, json!({}), json!({"type": "NodePort", "ports": [{"port": 80}]})).await,
                LoadBalancer => run.create_ensured(&[&name]).await,
                Gone => {
                    run.create_ensured(&[&name]).await;
                    run.delete(&name).await;
                    run.wait_until_gone(&name).await;
                }
            }
        }
        run.with_node("n1").await;
        if expected > 0.0 {
            run.wait_for_nodes(&[run.node_name("n1")]).await;
        }
        // A later Service is ensured with the Node.
        run.create_ensured(&["last"]).await;
        eventually(id, LIMIT, async || match run.metric("service_controller_loadbalancer_sync_total") {
            count if count == expected => Ok(()),
            count => Err(count),
        })
        .await;
        assert_eq!(run.cloud.count(Call::UpdateNodes), usize::from(expected > 0.0), "{id}");
    }
}

// S-63 and S-64 cannot occur: a filled cache has no errors, and Services are synced only after the cache is filled.
// vectors: S-60–S-64
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_nodes_is_one_call_for_all_services() {
    let run = Run::start(&Memory::default()).await;
    run.node("n1").await;
    run.create("port", json!({}), json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
    run.create_ensured(&["a", "b", "c", "d"]).await;
    run.wait_for_nodes(&[run.node_name("n1")]).await;
    let (ensured, before) = (run.cloud.count(Call::EnsureLoadBalancer), run.cloud.count(Call::UpdateNodes));
    run.node("n2").await;
    let names = [run.node_name("n1"), run.node_name("n2")];
    run.wait_for_nodes(&names).await;
    run.exclude("n1").await;
    run.wait_for_nodes(&names[1..]).await;
    run.patch_node(
        "n1",
        json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": null}}}),
    )
    .await;
    run.wait_for_nodes(&names).await;
    let taint = json!({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"});
    run.patch_node("n2", json!({"spec": {"taints": [taint]}})).await;
    run.wait_for_nodes(&names[..1]).await;
    assert_eq!(run.cloud.count(Call::UpdateNodes) - before, 4, "S-60, S-61, S-62: one each, and none for S-63, S-64");
    assert_eq!(run.cloud.count(Call::EnsureLoadBalancer), ensured, "nothing else is called");
    assert_eq!(run.cloud.count(Call::UpdateLoadBalancer), 0);
    run.wait_for_event("a", "UpdatedLoadBalancer").await;
    run.wait_for_metric("as upstream counts", "service_controller_loadbalancer_sync_total", 16.0).await;
    assert_eq!(run.metric("service_controller_nodesync_error_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_without_a_call_for_all_services_is_called_for_each() {
    let cloud = Memory::default();
    cloud.set_updates_separately(true);
    let run = Run::start(&cloud).await;
    run.create_ensured(&["a", "b", "c", "d"]).await;
    run.node("n1").await;
    run.wait_for_nodes(&[run.node_name("n1")]).await;
    let calls = (run.cloud.count(Call::UpdateLoadBalancer), run.cloud.count(Call::UpdateNodes));
    assert_eq!(calls, (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_leave_one_after_the_other_are_gathered() {
    let run = Run::start(&Memory::default()).await;
    run.create_ensured(&["a"]).await;
    let names: Vec<String> = (0..21).map(|number| format!("n{number:02}")).collect();
    for name in &names {
        run.node(name).await;
    }
    run.wait_for_nodes(&names.iter().map(|name| run.node_name(name)).collect::<Vec<_>>()).await;
    let before = run.cloud.count(Call::UpdateNodes);
    let mut leave = tokio::time::interval(Duration::from_millis(200));
    for name in &names[..20] {
        leave.tick().await;
        run.delete_node(name).await;
    }
    run.wait_for_nodes(&[run.node_name("n20")]).await;
    let calls = run.cloud.count(Call::UpdateNodes) - before;
    assert!(calls <= 4, "{calls} calls");
}

// The retry belongs to the Service. The pass after it makes no call.
// vectors: S-52
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_the_cloud_did_not_take_are_tried_again_after_a_pause() {
    let run = Run::start(&Memory::default()).await;
    run.node("n1").await;
    run.create_ensured(&["a"]).await;
    run.wait_for_nodes(&[run.node_name("n1")]).await;
    let before = run.cloud.count(Call::UpdateNodes);
    run.cloud.fail(Call::UpdateNodes, || Error::other("no"));
    run.node("n2").await;
    run.wait_for_event("a", "UpdateLoadBalancerFailed").await;
    run.cloud.end_failures(Call::UpdateNodes);
    run.wait_for_metric("it is held", "vsphere_ccm_load_balancers_held{reason=\"CloudError\"}", 1.0).await;
    // Another round begins without the Service.
    run.create_ensured(&["b"]).await;
    run.node("n3").await;
    eventually("b has the third Node", LIMIT, async || {
        let balancers = run.cloud.load_balancers();
        let of_b = balancers.iter().find(|balancer| balancer.service.metadata.name.as_deref() == Some("b")).unwrap();
        if of_b.nodes.len() == 3 { Ok(()) } else { Err(format!("{of_b:?}")) }
    })
    .await;
    run.wait_for_nodes(&["n1", "n2", "n3"].map(|name| run.node_name(name))).await;
    assert!((2..=3).contains(&(run.cloud.count(Call::UpdateNodes) - before)), "{}", run.cloud.count(Call::UpdateNodes));
    run.wait_for_metric("it is not held any more", "vsphere_ccm_load_balancers_held{reason=\"CloudError\"}", 0.0).await;
    run.wait_for_metric("S-52", "service_controller_nodesync_error_total", 1.0).await;
    run.wait_for_event("a", "UpdatedLoadBalancer").await;
}

// vectors: S-124
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_synced_during_a_round_gets_no_second_update() {
    let run = Run::start(&Memory::default()).await;
    run.node("n1").await;
    run.create_ensured(&["a"]).await;
    run.wait_for_nodes(&[run.node_name("n1")]).await;
    run.cloud.hold(Call::UpdateNodes);
    run.cloud.hold(Call::EnsureLoadBalancer);
    let (updates, ensured) = (run.cloud.count(Call::UpdateNodes), run.cloud.count(Call::EnsureLoadBalancer));
    run.node("n2").await;
    run.wait_for_calls(Call::UpdateNodes, updates + 1).await;
    run.node("n3").await;
    run.create("b", json!({}), spec("TCP")).await;
    run.wait_for_calls(Call::EnsureLoadBalancer, ensured + 1).await;
    run.cloud.release();
    run.wait("b is ensured", "b", |service| !ingress(service).is_empty()).await;
    run.wait_for_nodes(&["n1", "n2", "n3"].map(|name| run.node_name(name))).await;
    run.wait_for_event("a", "UpdatedLoadBalancer").await;
    // The Event is written after the address.
    run.wait_for_event("b", "EnsuredLoadBalancer").await;
    assert_eq!(run.events("b").await, ["EnsuredLoadBalancer", "EnsuringLoadBalancer"], "S-124");
}

/// A change of the Service waits until the current round with the Service has ended. Then the Service has the Nodes of
/// that round.
#[tokio::test(flavor = "multi_thread")]
async fn a_sync_and_a_round_of_one_service_follow_each_other() {
    let run = Run::start(&Memory::default()).await;
    run.create_ensured(&["a", "b"]).await;
    run.cloud.hold(Call::UpdateNodes);
    let updates = run.cloud.count(Call::UpdateNodes);
    run.node("n1").await;
    run.wait_for_calls(Call::UpdateNodes, updates + 1).await;
    run.patch("a", json!({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})).await;
    run.delete("b").await;
    run.node("n2").await;
    run.cloud.release();
    run.wait_until_gone("b").await;
    run.wait_for_nodes(&["n1", "n2"].map(|name| run.node_name(name))).await;
    eventually("it has the ranges", LIMIT, async || {
        let ranges = run.cloud.load_balancers().remove(0).service.spec.unwrap().load_balancer_source_ranges;
        if ranges.is_some() { Ok(()) } else { Err("none") }
    })
    .await;
    assert_eq!(run.cloud.load_balancer_objects(), 2, "of one load balancer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_matches_no_node_empties_no_load_balancer() {
    let start = Start { has_node_selector: true, ..Start::of(&Memory::default()) };
    let run = Run::with(ApiServer::shared().await, start).await;
    run.node("n1").await;
    run.create_ensured(&["a"]).await;
    run.wait_for_nodes(&[run.node_name("n1")]).await;
    let calls =
        || [Call::EnsureLoadBalancer, Call::UpdateNodes, Call::DeleteLoadBalancer].map(|call| run.cloud.count(call));
    let before = calls();
    run.exclude("n1").await;
    run.wait_for_event("a", "UpdateLoadBalancerFailed").await;
    run.create("b", json!({}), spec("TCP")).await;
    run.wait_for_event("b", "SyncLoadBalancerFailed").await;
    let held = "vsphere_ccm_load_balancers_held{reason=\"NoSelectedNodes\"}";
    run.wait_for_metric("both are held", held, 2.0).await;
    assert_eq!(calls(), before);
    assert_eq!(run.cloud.load_balancers()[0].nodes, [run.node_name("n1")]);
    run.node("n2").await;
    run.wait("b goes on at once", "b", |service| !ingress(service).is_empty()).await;
    run.wait_for_nodes(&[run.node_name("n2")]).await;
    eventually("nothing is held", LIMIT, async || if run.metric(held) == 0.0 { Ok(()) } else { Err(run.metric(held)) })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announcement_about_all_ensures_each_again() {
    let run = Run::start(&Memory::default()).await;
    run.with_node("n1").await;
    run.create_ensured(&["a", "b"]).await;
    run.cloud.announce_service(ServiceEvent::All);
    run.wait_for_calls(Call::EnsureLoadBalancer, 4).await;
    run.cloud.set_has_load_balancers(false);
    run.cloud.set_has_load_balancers(true);
    run.wait_for_calls(Call::EnsureLoadBalancer, 6).await;
    run.cloud.fail(Call::EnsureLoadBalancer, || Error::Denied { message: "no".into() });
    run.cloud.announce_service(ServiceEvent::Service { namespace: run.namespace.clone(), name: "a".into() });
    run.wait_for_event("a", "SyncLoadBalancerFailed").await;
    let held = format!("vsphere_ccm_load_balancers_held{{reason=\"{}\"}}", reason::NoPermission);
    run.wait_for_metric("it is held", &held, 1.0).await;
    let events = run.events("b").await;
    assert_eq!(events, ["EnsuredLoadBalancer", "EnsuringLoadBalancer"], "nothing changed");
}

/// The Service changes while its load balancer is ensured, so that the first status write conflicts.
#[tokio::test(flavor = "multi_thread")]
async fn an_announcement_is_not_lost_when_a_write_conflicts() {
    let run = Run::start(&Memory::default()).await;
    run.with_node("n1").await;
    run.cloud.hold(Call::EnsureLoadBalancer);
    run.create("a", json!({}), spec("TCP")).await;
    run.wait_for_calls(Call::EnsureLoadBalancer, 1).await;
    run.patch("a", json!({"metadata": {"labels": {"changed": "meanwhile"}}})).await;
    run.cloud.announce_service(ServiceEvent::Service { namespace: run.namespace.clone(), name: "a".into() });
    run.cloud.release();
    run.wait("it has its address", "a", |service| !ingress(service).is_empty()).await;
    run.wait_for_calls(Call::EnsureLoadBalancer, 2).await;
}

/// The provider decides which addresses are used, even if the Node does not change.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_about_the_addresses_of_one_node_or_of_all_is_a_change_of_the_nodes() {
    let run = Run::start(&Memory::default()).await;
    run.with_node("n1").await;
    run.set_address("n1", "192.0.2.1").await;
    run.create_ensured(&["a"]).await;
    run.with_node("n2").await;
    let names = [run.node_name("n1"), run.node_name("n2")];
    run.wait_for_nodes(&names).await;
    let before = run.cloud.count(Call::UpdateNodes);
    let other = UsableAddresses::Only(["192.0.2.9".parse().unwrap()].into());
    run.cloud.set_usable_addresses(other);
    run.cloud.announce(InstanceEvent::All);
    run.wait_for_calls(Call::UpdateNodes, before + 1).await;
    run.cloud.set_usable_addresses(UsableAddresses::All);
    run.cloud.announce(InstanceEvent::Node(names[0].clone()));
    run.wait_for_calls(Call::UpdateNodes, before + 2).await;
}

/// A rejection of one set of Nodes does not apply to another set.
#[tokio::test(flavor = "multi_thread")]
async fn other_nodes_end_the_pause_after_a_refusal() {
    let refused = || Error::Refused {
        reason: reason::CloudError,
        message: "one member too many".into(),
        after: Duration::from_secs(3600),
    };
    let run = Run::start(&Memory::default()).await;
    run.with_node("n1").await;
    run.with_node("n2").await;
    run.create_ensured(&["a"]).await;
    run.wait_for_nodes(&[run.node_name("n1"), run.node_name("n2")]).await;
    run.cloud.fail(Call::UpdateNodes, refused);
    run.with_node("n3").await;
    run.wait_for_event("a", "UpdateLoadBalancerFailed").await;
    run.cloud.end_failures(Call::UpdateNodes);
    run.delete_node("n2").await;
    run.wait_for_nodes(&[run.node_name("n1"), run.node_name("n3")]).await;

    // A load balancer that was rejected as a whole is tried again, too.
    run.cloud.fail(Call::EnsureLoadBalancer, refused);
    run.create("b", json!({}), spec("TCP")).await;
    run.wait_for_event("b", "SyncLoadBalancerFailed").await;
    run.cloud.end_failures(Call::EnsureLoadBalancer);
    run.delete_node("n3").await;
    run.wait("it is ensured", "b", |service| !ingress(service).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_changes_all_the_time_is_followed_after_pauses_and_its_end_at_once() {
    let run = Run::start(&Memory::default()).await;
    run.create_ensured(&["a"]).await;
    run.node("n1").await;
    run.node("n2").await;
    let (one, both) = ([run.node_name("n2")], [run.node_name("n1"), run.node_name("n2")]);
    run.wait_for_nodes(&both).await;
    let have = |names: &[String]| run.cloud.load_balancers().iter().all(|balancer| balancer.nodes == names);
    // Changes the Node repeatedly, each time after the controller has followed, until it does not follow any more.
    let mut followed = 0;
    for is_excluded in [true, false].into_iter().cycle() {
        let label = json!({"node.kubernetes.io/exclude-from-external-load-balancers": is_excluded.then_some("true")});
        run.patch_node("n1", json!({"metadata": {"labels": label}})).await;
        let expected = if is_excluded { &one[..] } else { &both[..] };
        let is_followed = eventually("it is followed, or said to flap", LIMIT, async || {
            match (have(expected), run.is_flapping("n1").await) {
                (_, true) => Ok(false),
                (true, false) => Ok(true),
                (false, false) => Err("neither"),
            }
        })
        .await;
        if !is_followed {
            // The pause lasts 30 s.
            let seen = if is_excluded { &both[..] } else { &one[..] };
            run.create_ensured(&["b"]).await;
            assert!(have(seen), "also a load balancer that is created now: {:?}", run.cloud.load_balancers());
            run.wait_for_nodes(expected).await;
            break;
        }
        followed += 1;
    }
    assert!((1..=5).contains(&followed), "{followed}");
    // The next change waits twice as long. A deletion of the Node does not wait.
    run.patch_node(
        "n1",
        json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "x"}}}),
    )
    .await;
    run.delete_node("n1").await;
    run.wait_for_nodes(&one).await;
}
