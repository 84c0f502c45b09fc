//! Late results: a proof that an event has invalidated, and a deletion that a finalizer delays.

use async_trait::async_trait;
use ccm::cloud::{CloudProvider, InstanceEvent, InstanceEvents, InstanceMetadata, InstancesV2, PowerState, Presence};
use doubles::memory::Memory;
use futures::stream::{BoxStream, StreamExt, unfold};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::{ApiServer, eventually};
use tokio::sync::{Notify, mpsc};

use super::harness::{Form, LIMIT, Run, Start, instance, settings, several_passes};

/// A provider whose second proof is invalidated by an event about the machine. From the third proof on the machine
/// exists.
#[derive(Clone)]
struct Overtaken {
    cloud: Memory,
    proofs: Arc<AtomicUsize>,
    sender: mpsc::UnboundedSender<InstanceEvent>,
    events: Arc<Mutex<Option<mpsc::UnboundedReceiver<InstanceEvent>>>>,
    /// Signals that the event was processed.
    is_taken: Arc<Notify>,
}

impl CloudProvider for Overtaken {
    fn provider_name(&self) -> &'static str {
        "overtaken"
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        true
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }

    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        Some(Arc::new(self.clone()))
    }
}

impl InstanceEvents for Overtaken {
    fn subscribe(&self) -> BoxStream<'static, InstanceEvent> {
        let receiver = self.events.lock().unwrap().take().expect("one subscription");
        let state = (receiver, Arc::clone(&self.is_taken), false);
        unfold(state, |(mut receiver, is_taken, has_given)| async move {
            if has_given {
                // A request for the next event shows that the last one was processed.
                is_taken.notify_one();
            }
            receiver.recv().await.map(|event| (event, (receiver, is_taken, true)))
        })
        .boxed()
    }
}

#[async_trait]
impl InstancesV2 for Overtaken {
    async fn instance_exists(&self, node: &Node) -> Presence {
        match self.proofs.fetch_add(1, Ordering::SeqCst) + 1 {
            1 => {}
            2 => {
                self.sender.send(InstanceEvent::Node(node.metadata.name.clone().unwrap())).unwrap();
                self.is_taken.notified().await;
            }
            _ => return Presence::Exists(()),
        }
        self.cloud.instance_exists(node).await
    }

    async fn instance_power(&self, node: &Node) -> Presence<ccm::cloud::Power> {
        self.cloud.instance_power(node).await
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        self.cloud.read_instance_power(node).await
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.cloud.instance_metadata(node).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_that_an_event_overtakes_deletes_nothing() {
    let cloud = Memory::default();
    let (sender, events) = mpsc::unbounded_channel();
    let provider = Overtaken {
        cloud: cloud.clone(),
        proofs: Arc::default(),
        sender,
        events: Arc::new(Mutex::new(Some(events))),
        is_taken: Arc::default(),
    };
    let run = Run::with(ApiServer::shared().await, Start::of(provider.clone(), settings())).await;
    let form = Form::new("Unknown");
    cloud.put(instance(&form, &form.provider_id));
    assert!(cloud.remove(&form.provider_id));
    run.register(&form).await;
    eventually("it is asked again", LIMIT, async || {
        let proofs = provider.proofs.load(Ordering::SeqCst);
        if proofs > 2 { Ok(()) } else { Err(format!("{proofs} proofs")) }
    })
    .await;
    several_passes(&cloud).await;
    assert_eq!(run.count().await, 1);
    assert_eq!(run.metric("vsphere_ccm_node_deletions_total"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_for_its_finalizers_is_deleted_once() {
    let cloud = Memory::default();
    let run = Run::start(&cloud, settings()).await;
    let form = Form::new("Unknown");
    cloud.put(instance(&form, &form.provider_id));
    run.register(&form).await;
    let finalizers = async |names: &[&str]| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": names}}));
        run.api().patch(&form.name, &PatchParams::default(), &patch).await.unwrap()
    };
    finalizers(&["test.ccm/keep"]).await;
    assert!(cloud.remove(&form.provider_id));
    run.wait("it is deleted", &form.name, |node| node.metadata.deletion_timestamp.is_some()).await;
    several_passes(&cloud).await;
    assert_eq!(run.metric("vsphere_ccm_node_deletions_total"), 1);
    // The Event is written concurrently with the deletion.
    run.wait_for_event(&form.name, "DeletingNode").await;
    let events = run.events(&form.name).await;
    let told = events.iter().filter(|event| event.reason.as_deref() == Some("DeletingNode"));
    assert_eq!(told.map(|event| event.count.unwrap_or(1)).sum::<i32>(), 1);
    finalizers(&[]).await;
    run.wait_for_deletion("nobody holds it", &form.name).await;
}
