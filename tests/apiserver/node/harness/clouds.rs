//! Providers with incorrect behaviour.

use super::*;
use async_trait::async_trait;
use ccm::cloud::{InstanceEvents, InstanceMetadata, InstancesV2, Power, PowerState, Presence};
use doubles::memory::Memory;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A provider that owns no provider ID.
pub struct OwnsNothing(pub Memory);

impl CloudProvider for OwnsNothing {
    fn provider_name(&self) -> &'static str {
        self.0.provider_name()
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        false
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        self.0.instances_v2()
    }

    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        self.0.instance_events()
    }
}

/// A provider with concurrent edits. During its first answers another client edits the requested node, after the
/// controller's read and before its write.
#[derive(Clone)]
pub struct Meddling {
    cloud: Memory,
    client: Client,
    turns: usize,
    turn: Arc<AtomicUsize>,
    edit: Edit,
}

/// Edits a node. The number is the turn.
type Edit = Arc<dyn Fn(&mut Node, usize) + Send + Sync>;

impl Meddling {
    pub async fn new(cloud: Memory, turns: usize, edit: impl Fn(&mut Node, usize) + Send + Sync + 'static) -> Self {
        let client = ApiServer::shared().await.client().await;
        Self { cloud, client, turns, turn: Arc::default(), edit: Arc::new(edit) }
    }
}

impl CloudProvider for Meddling {
    fn provider_name(&self) -> &'static str {
        "meddling"
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        true
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl InstancesV2 for Meddling {
    async fn instance_exists(&self, node: &Node) -> Presence {
        self.cloud.instance_exists(node).await
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        self.cloud.instance_power(node).await
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        self.cloud.read_instance_power(node).await
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        if turn < self.turns {
            let api: Api<Node> = Api::all(self.client.clone());
            let mut live = api.get(node.metadata.name.as_deref().unwrap()).await.unwrap();
            (self.edit)(&mut live, turn);
            api.replace(node.metadata.name.as_deref().unwrap(), &PostParams::default(), &live).await.unwrap();
        }
        self.cloud.instance_metadata(node).await
    }
}
