//! `InstancesV2` and the stream of changes, answered from the board without waiting for vCenter.
//!
//! Mirrors `pkg/cloudprovider/vsphere/instances_v2.go`, except that nothing here calls vCenter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;

use super::inventory::snapshot::Freshness;
use super::provider_id;
use super::tracker::board::{Board, Found, Outcome};
use super::tracker::slots::{Setup, Slot};
use crate::cloud::node;
use crate::cloud::{InstanceEvent, InstanceEvents, InstanceMetadata, InstancesV2, Presence, Unknown};

/// The contract over the board.
pub struct Instances {
    board: Arc<Board>,
    setup: watch::Receiver<Arc<Setup>>,
}

impl Instances {
    /// Reads `board`; the vCenters of `setup` are asked only how fresh their snapshots are.
    pub fn new(board: Arc<Board>, setup: watch::Receiver<Arc<Setup>>) -> Self {
        Self { board, setup }
    }

    fn find(&self, node: &Node) -> Result<Arc<Found>, Unknown> {
        let provider_id = node::provider_id(node);
        if !provider_id.is_empty() && !provider_id::is_own(provider_id) {
            return Err(Unknown::new("ForeignProviderID", format!("provider ID {provider_id:?} is not vSphere's")));
        }
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        let view = self.board.find(node::name(node)).filter(|view| view.uid == uid);
        let outcome = view.map(|view| view.outcome.clone());
        let pending = || Unknown::passing("LookupPending", "the node was not looked at yet");
        if provider_id.is_empty() {
            return match outcome {
                Some(Outcome::Found(found)) => Ok(found),
                Some(Outcome::Unknown(unknown)) => Err(unknown),
                None => Err(pending()),
            };
        }
        // The provider ID comes first. What the board says for the name is used where it is about the same machine.
        let Ok(uuid) = provider_id::parse_provider_id(provider_id) else {
            let message = format!("provider ID {provider_id:?} is not vsphere:// followed by a UUID");
            return Err(Unknown::new("MalformedProviderID", message));
        };
        match outcome {
            // A machine whose UUID cannot be read was bound by an earlier one; its metadata says what is missing.
            Some(Outcome::Found(found)) if found.uuid.is_none() || found.has_uuid(&uuid) => Ok(found),
            Some(Outcome::Unknown(unknown)) => Err(unknown),
            Some(Outcome::Found(_)) | None => self.board.find_by_uuid(&uuid).ok_or_else(pending),
        }
    }

    /// How long ago the snapshot that an answer rests on was known to be true.
    fn age(&self, vcenter: Slot) -> Duration {
        let source = self.setup.borrow().sources.get(&vcenter).cloned();
        match source.map(|source| source.vcenter.snapshot().freshness.clone()) {
            Some(Freshness::Stale { since, .. }) => Instant::now().saturating_duration_since(since),
            _ => Duration::ZERO,
        }
    }
}

#[async_trait]
impl InstancesV2 for Instances {
    /// Exists or unknown. A proof of absence needs reads that nothing asks for yet.
    async fn instance_exists(&self, node: &Node) -> Presence {
        match self.find(node) {
            Ok(_) => Presence::Exists(()),
            Err(unknown) => Presence::Unknown(unknown),
        }
    }

    async fn instance_shutdown(&self, node: &Node) -> Presence<bool> {
        match self.find(node) {
            Ok(found) => match found.is_shut_down {
                Some(is_shut_down) => Presence::Exists(is_shut_down),
                None => Presence::Unknown(Unknown::new(
                    "PowerStateUnknown",
                    "the power state is not proven: vCenter does not answer, or does not hear from the machine's host",
                )),
            },
            Err(unknown) => Presence::Unknown(unknown),
        }
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        match self.find(node) {
            Ok(found) => match &found.metadata {
                Ok(metadata) => Presence::Exists(InstanceMetadata { age: self.age(found.vcenter), ..metadata.clone() }),
                Err(unknown) => Presence::Unknown(unknown.clone()),
            },
            Err(unknown) => Presence::Unknown(unknown),
        }
    }
}

impl InstanceEvents for Instances {
    fn subscribe(&self) -> BoxStream<'static, InstanceEvent> {
        self.board.subscribe()
    }
}
