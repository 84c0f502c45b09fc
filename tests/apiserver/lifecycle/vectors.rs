//! The vectors of the Go program, through both cloud contracts.

use ccm::cloud::{PowerState, Unknown};
use ccm::controllers::node_lifecycle::plan::TAINT_SHUTDOWN;
use doubles::memory::{Contract, Memory};
use support::{ApiServer, eventually};

use super::harness::{Form, LIMIT, Run, Start, instance, settings, taints};
use ccm::cloud::reason;

/// Answer of the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cloud {
    /// The machine existed and was destroyed.
    Gone,
    Runs,
    ShutDown,
    /// Every request fails.
    Fails,
    /// The machine never existed, which is an error in the look-up by name.
    NeverThere,
}

/// Expected result for the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Deleted,
    Unchanged,
    Tainted,
}

struct Vector {
    id: &'static str,
    ready: &'static str,
    has_provider_id: bool,
    cloud: Cloud,
    fate: Fate,
}

fn vector(id: &'static str, ready: &'static str, has_provider_id: bool, cloud: Cloud, fate: Fate) -> Vector {
    Vector { id, ready, has_provider_id, cloud, fate }
}

/// Upstream deletes a Node without provider ID, and a Node with Ready=False. This program keeps such a Node. In these
/// cases the next row has the same vector with a Node that this program deletes.
fn vectors() -> Vec<Vector> {
    use Cloud::{Fails, Gone, NeverThere, Runs, ShutDown};
    use Fate::{Deleted, Tainted, Unchanged};
    vec![
        vector("L-01, L-07 differs: kept without a provider ID", "Unknown", false, Gone, Unchanged),
        vector("L-01, L-07 differs: a kubelet that reports keeps its Node", "False", true, Gone, Unchanged),
        vector("L-01, L-07", "Unknown", true, Gone, Deleted),
        vector("L-02, L-08", "False", true, Fails, Unchanged),
        vector("L-03, L-09", "False", true, Runs, Unchanged),
        vector("L-04, L-10 differs: kept without a provider ID", "Unknown", false, Gone, Unchanged),
        vector("L-04, L-10", "Unknown", true, Gone, Deleted),
        vector("L-05, L-11", "Unknown", false, Runs, Unchanged),
        vector("L-06, L-12", "True", true, Gone, Unchanged),
        vector("L-20", "False", true, ShutDown, Tainted),
        vector("L-21", "False", false, ShutDown, Tainted),
        vector("L-22 differs: kept without a provider ID", "False", false, NeverThere, Unchanged),
        vector("L-22, L-26 with a provider ID", "Unknown", true, Gone, Deleted),
        vector("L-23", "False", false, Fails, Unchanged),
        vector("L-24 differs: what was never there is not gone", "False", false, NeverThere, Unchanged),
        vector("L-25, L-26 differs: kept without a provider ID", "False", false, Gone, Unchanged),
        vector("L-25", "Unknown", true, Gone, Deleted),
        vector("L-27", "True", false, ShutDown, Unchanged),
        vector("L-28 differs: kept without a provider ID", "Unknown", false, Gone, Unchanged),
        vector("L-28", "Unknown", true, Gone, Deleted),
        vector("Ready absent counts as Unknown", "", true, Gone, Deleted),
        vector("Ready absent, shut down", "", true, ShutDown, Tainted),
    ]
}

/// Sets the state of the cloud in the vector for this node.
fn arrange(cloud: &Memory, form: &Form, state: Cloud) {
    let provider_id = format!("memory://{}", form.name);
    if state == Cloud::NeverThere {
        return;
    }
    let power = if state == Cloud::ShutDown { PowerState::Off } else { PowerState::On };
    cloud.put(doubles::memory::Instance { power, ..instance(form, &provider_id) });
    match state {
        Cloud::Gone => assert!(cloud.remove(&provider_id)),
        Cloud::Fails => cloud.set_unknown(&provider_id, Some(Unknown::new(reason::CloudError, "the test says so"))),
        Cloud::Runs | Cloud::ShutDown | Cloud::NeverThere => {}
    }
}

// vectors: L-01–L-12, L-20–L-28
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_deleted_tainted_and_kept_as_upstream() {
    for contract in [Contract::Older, Contract::Current] {
        let cloud = Memory::new("memory", contract);
        let run = Run::start(&cloud, settings()).await;
        let mut kept = Vec::new();
        for Vector { id, ready, has_provider_id, cloud: state, fate } in vectors() {
            let mut form = Form { taints: vec!["X:NoSchedule".into()], ..Form::new(ready) };
            arrange(&cloud, &form, state);
            if !has_provider_id {
                form.provider_id.clear();
            }
            let created = run.register(&form).await;
            let what = format!("{id}, {contract:?}");
            match fate {
                Fate::Deleted => run.wait_for_deletion(&what, &form.name).await,
                Fate::Tainted => {
                    let expected = ["X:NoSchedule".to_owned(), format!("{TAINT_SHUTDOWN}:NoSchedule")];
                    let node = run.wait(&what, &form.name, |node| taints(node).len() > 1).await;
                    assert_eq!(taints(&node), expected, "{what}");
                    assert_eq!(ccm::cloud::node::provider_id(&node), form.provider_id, "{what}");
                    kept.push((what, node));
                }
                Fate::Unchanged => kept.push((what, created)),
            }
        }
        let asked = cloud.calls();
        eventually("several periodic passes", LIMIT, async || {
            let passes = (cloud.calls() - asked) / kept.len();
            if passes > 5 { Ok(()) } else { Err(format!("{passes} passes")) }
        })
        .await;
        for (what, node) in kept {
            let after = run.api().get(node.metadata.name.as_deref().unwrap()).await.unwrap();
            assert_eq!(after.metadata.resource_version, node.metadata.resource_version, "{what}: nothing is written");
        }
    }
}

// vectors: L-29
#[tokio::test(flavor = "multi_thread")]
async fn l_29_events_name_the_api_version_of_the_node() {
    let cloud = Memory::default();
    let run = Run::start(&cloud, settings()).await;
    let form = Form::new("Unknown");
    arrange(&cloud, &form, Cloud::Gone);
    let node = run.register(&form).await;
    for reason in ["DeletionGracePeriod", "DeletingNode"] {
        let event = run.wait_for_event(&form.name, reason).await;
        assert_eq!(event.involved_object.api_version.as_deref(), Some("v1"), "L-29");
        assert_eq!(event.involved_object.kind.as_deref(), Some("Node"));
        assert_eq!(event.involved_object.uid, node.metadata.uid);
        assert_eq!(event.type_.as_deref(), Some("Normal"), "{reason}");
        assert_eq!(event.source.unwrap().component.as_deref(), Some("cloud-node-lifecycle-controller"));
    }
    let event = run.wait_for_event(&form.name, "DeletingNode").await;
    let message = event.message.unwrap();
    let expected = format!("Deleting node {} because it does not exist in the cloud provider", form.name);
    assert!(message.starts_with(&expected) && message.contains("was removed"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_node_loses_the_shutdown_taint_and_the_cloud_is_not_asked() {
    let cloud = Memory::default();
    let run = Run::with(ApiServer::shared().await, Start::of(cloud.clone(), settings())).await;
    let shutdown = format!("{TAINT_SHUTDOWN}:NoSchedule");
    let form = Form { taints: vec!["X:NoSchedule".into(), shutdown.clone()], ..Form::new("True") };
    cloud.put(instance(&form, &form.provider_id));
    run.register(&form).await;
    let node = run.wait("the taint goes", &form.name, |node| taints(node).len() == 1).await;
    assert_eq!(taints(&node), ["X:NoSchedule"]);
    assert_eq!(cloud.calls(), 0);
}
