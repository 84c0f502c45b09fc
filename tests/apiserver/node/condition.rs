//! The condition with the reason why a node is not initialized, and its Events.

use super::harness::{
    Form, OwnsNothing, Run, Start, condition, instance, is_tainted, says, unknown, user_with, waiting,
};
use super::{A3, metadata};
use ccm::cloud::reason;
use ccm::cloud::{InstanceMetadata, Unknown};
use ccm::controllers::node::Policy;
use doubles::memory::Memory;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::unique;

/// Long enough that a node with an immediate initialization gets no condition.
const AFTER: Duration = Duration::from_secs(1);

fn soon() -> Policy {
    Policy { condition_after: AFTER, ..Policy::default() }
}

/// Returns a cloud that has the machine of this node, but answers `said`.
fn cloud_that_says(name: &str, said: Option<Unknown>) -> Memory {
    let cloud = Memory::default();
    cloud.put(instance(name, metadata(&id(name), A3)));
    cloud.set_unknown(&id(name), said);
    cloud
}

fn id(name: &str) -> String {
    format!("memory://{name}")
}

/// Waits for many reconciliations that write nothing.
async fn expect_quiet(run: &Run, cloud: &Memory, name: &str, result: &str) {
    let before = run.get(name).await.metadata.resource_version;
    run.wait_for_failing_looks(cloud, name, result, 20).await;
    assert_eq!(run.get(name).await.metadata.resource_version, before, "nothing changed, and something was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_provider_with_the_taint_gets_the_condition_and_nothing_else() {
    let name = unique("n");
    let cloud = cloud_that_says(&name, None);
    let provider = Arc::new(OwnsNothing(cloud.clone()));
    let run = Start::with(provider).restless().policy(soon()).run().await;
    let form = Form { provider_id: id(&name), ..waiting(&name) };
    let before = run.register(&form).await;
    let after = run.wait("it says why", &name, |node| says(node, "False", "ForeignProviderID")).await;
    assert!(is_tainted(&after));
    assert_eq!((&after.spec, &after.metadata.labels), (&before.spec, &before.metadata.labels));
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    run.wait_for_events(&name, &[("Warning", "ForeignProviderID", 1)]).await;
    run.wait_for_nodes_held("it is counted", "ForeignProviderID", false, 1).await;
    // Another controller manager has initialized the node.
    let initialized = Patch::Merge(json!({"spec": {"taints": null}}));
    let nodes: Api<Node> = Api::all(run.client.clone());
    nodes.patch(&name, &PatchParams::default(), &initialized).await.unwrap();
    run.wait_for_nodes_held("it is left alone", "ForeignProviderID", false, 0).await;
    assert_eq!(run.writes(&name).await.len(), 2, "the condition, and the write of this test");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_says_why_once_for_each_reason_and_that_it_is_over() {
    let name = unique("n");
    let cloud = cloud_that_says(&name, unknown(reason::VMNotFound, "looked everywhere"));
    let run = Start::on(&cloud).restless().policy(soon()).run().await;
    run.register(&waiting(&name)).await;
    let first = run.wait("it says why", &name, |node| says(node, "False", "VMNotFound")).await;
    let first = condition(&first).unwrap().clone();
    assert_eq!(first.message.as_deref(), Some("looked everywhere"));
    assert_eq!(first.last_heartbeat_time, first.last_transition_time);
    expect_quiet(&run, &cloud, &name, "VMNotFound").await;

    cloud.set_unknown(&id(&name), unknown(reason::CloudError, "another trouble"));
    let second = run.wait("another reason", &name, |node| says(node, "False", "CloudError")).await;
    assert_eq!(condition(&second).unwrap().last_transition_time, first.last_transition_time, "it was False all along");
    run.wait_for_events(&name, &[("Warning", "VMNotFound", 1), ("Warning", "CloudError", 1)]).await;

    cloud.set_unknown(&id(&name), unknown(reason::CloudError, "the same in other words"));
    expect_quiet(&run, &cloud, &name, "CloudError").await;
    let written = jiff::Timestamp::now() - Duration::from_secs(61);
    let condition_of_old = json!([{"type": "VSphereInitialized", "lastHeartbeatTime": format!("{written:.0}")}]);
    run.patch_status(&name, json!({"conditions": condition_of_old})).await;
    let in_other_words =
        |node: &Node| condition(node).is_some_and(|one| one.message.as_deref() == Some("the same in other words"));
    run.wait("a new message after a minute", &name, in_other_words).await;

    cloud.set_unknown(&id(&name), None);
    let done = run.wait("it is over", &name, |node| says(node, "True", "Initialized")).await;
    assert!(!is_tainted(&done));
    expect_quiet(&run, &cloud, &name, "Settled").await;
    let events = [("Warning", "VMNotFound", 1), ("Warning", "CloudError", 1), ("Normal", "Synced", 1)];
    run.wait_for_events(&name, &events).await;
    // Writes for two reasons, the test's own change, another message, addresses, the remaining fields, and the end of
    // the condition.
    assert_eq!(run.writes(&name).await.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_goes_on_where_the_first_one_ended() {
    let name = unique("n");
    let said = || unknown(reason::VMNotFound, "looked everywhere");
    let first = Start::on(&cloud_that_says(&name, said())).restless().policy(soon()).run().await;
    first.register(&waiting(&name)).await;
    first.wait("the first says why", &name, |node| says(node, "False", "VMNotFound")).await;
    first.wait_for_events(&name, &[("Warning", "VMNotFound", 1)]).await;

    let cloud = cloud_that_says(&name, said());
    let second = Start::on(&cloud).beside(&first).restless().policy(soon()).run().await;
    drop(first);
    let began = Instant::now();
    second.wait_for_failing_looks(&cloud, &name, "VMNotFound", 100).await;
    assert!(began.elapsed() > AFTER, "it would have said so itself by now");
    assert_eq!(second.writes(&name).await.len(), 0, "it is said already");
    cloud.set_unknown(&id(&name), None);
    second.wait("the second initializes", &name, |node| says(node, "True", "Initialized")).await;
    second.wait_for_events(&name, &[("Warning", "VMNotFound", 1), ("Normal", "Synced", 1)]).await;
    assert_eq!(second.writes(&name).await.len(), 3, "addresses, the rest, and that it is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_server_refuses_is_said_and_finished_by_the_next_process() {
    let name = unique("n");
    let cloud = cloud_that_says(&name, None);
    // The user may not make the second write of an initialization, so that this process stops between the two writes.
    let rights: &[(&[&str], &[&str])] = &[
        (&["nodes"], &["get", "list", "watch"]),
        (&["nodes/status"], &["patch"]),
        (&["events"], &["create", "patch"]),
    ];
    let kubeconfig = user_with(rights).await;
    let first = Start::on(&cloud).restless().policy(soon()).kubeconfig(kubeconfig).run().await;
    first.register(&waiting(&name)).await;
    let refused = first.wait("it says so", &name, |node| says(node, "False", "WriteRefused")).await;
    assert!(is_tainted(&refused));
    let message = condition(&refused).unwrap().message.clone().unwrap();
    assert!(message.contains("forbidden") && message.contains(&name), "{message}");
    expect_quiet(&first, &cloud, &name, "WriteRefused").await;
    first.wait_for_events(&name, &[("Warning", "WriteRefused", 1)]).await;
    let writes = first.writes(&name).await;
    assert_eq!(writes.len(), 2, "addresses, and why there is no more");
    assert_eq!(ccm::cloud::node::addresses::of(&writes[0]).len(), A3.len());

    let second = Start::on(&cloud).beside(&first).policy(soon()).run().await;
    drop(first);
    let done = second.wait("the next one finishes", &name, |node| says(node, "True", "Initialized")).await;
    assert!(!is_tainted(&done));
    assert_eq!(ccm::cloud::node::provider_id(&done), id(&name));
    assert_eq!(second.writes(&name).await.len(), 2, "the rest, and that it is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_an_earlier_name_hears_once_that_its_machine_joined_again() {
    let (old, new) = (unique("n"), unique("n"));
    let cloud = cloud_that_says(&old, None);
    let joined = InstanceMetadata { earlier_name: Some(old.clone()), ..metadata(&id(&new), A3) };
    cloud.put(instance(&new, joined));
    let run = Start::on(&cloud).restless().run().await;
    run.register(&waiting(&old)).await;
    let before = run.wait("the old one is initialized", &old, |node| !is_tainted(node)).await;
    run.register(&waiting(&new)).await;
    run.wait("the new one is initialized", &new, |node| !is_tainted(node)).await;
    expect_quiet(&run, &cloud, &new, "Settled").await;
    run.wait_for_events(&old, &[("Normal", "Synced", 1), ("Warning", "VMBacksAnotherNode", 1)]).await;
    run.wait_for_events(&new, &[("Normal", "Synced", 1)]).await;
    let after = run.get(&old).await;
    assert_eq!((after.spec, after.metadata.labels), (before.spec, before.metadata.labels), "it keeps what it has");
}
