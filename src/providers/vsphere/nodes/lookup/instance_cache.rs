//! The instance cache: the result of the look-up for each Node, from which `InstancesV2` is answered without waiting.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use parking_lot::RwLock;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::cloud::{InstanceEvent, InstanceMetadata, Presence};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::nodes::absence::last_place::LastObservation;
use crate::providers::vsphere::nodes::absence::location::Location;
use crate::providers::vsphere::nodes::lookup::resolution::SearchAnswer;
use crate::providers::vsphere::vcenter::VcenterId;
use crate::providers::vsphere::vcenter::snapshot::{PowerState, ProvenPower};

/// Number of events that a slow subscriber may lag behind before it gets `InstanceEvent::All`.
const BACKLOG: usize = 4_096;

/// Cache entry of one Node.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedInstance {
    /// The Node's UID. A later Node of the same name has another UID.
    pub uid: Arc<str>,
    /// The presence of the Node's VM.
    pub presence: Presence<Arc<BoundVm>>,
    /// Whether every vCenter answered and none has a VM that matches the Node.
    pub has_no_match: bool,
    /// The last observation of the VM. Kept when the VM is not found any more.
    pub last_observation: Option<LastObservation>,
    /// The inputs of the last decision about the VM; `None` before the first decision.
    pub inputs: Option<Arc<LookupInputs>>,
    /// The addresses that the VM reports and that running VMs of other Nodes also report.
    pub shared_addresses: Vec<IpAddr>,
}

/// The inputs of a decision about the VM, as they were. A bound VM keeps the inputs of its binding.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupInputs {
    /// Time of the decision.
    pub at: Instant,
    /// The UUID that the vCenters were searched by.
    pub uuid: Option<BiosUuid>,
    /// Whether the vCenters were also searched by name.
    pub asked_by_name: bool,
    /// For each vCenter, the name of the server and what the vCenter answered.
    pub answers: Vec<(String, SearchAnswer)>,
}

impl CachedInstance {
    /// Returns notes for operators. A note blocks nothing.
    fn notes(&self) -> &[String] {
        if let Presence::Exists(vm) = &self.presence
            && let Presence::Exists(metadata) = &vm.metadata
        {
            return &metadata.messages;
        }
        &[]
    }

    fn new_notes(&self, before: Option<&CachedInstance>) -> Vec<String> {
        let reported = before.map(CachedInstance::notes).unwrap_or_default();
        self.notes().iter().filter(|note| !reported.contains(note)).cloned().collect()
    }
}

/// The VM that backs a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundVm {
    /// The VM's vCenter.
    pub vcenter: VcenterId,
    /// The VM's location in this vCenter.
    pub location: Arc<Location>,
    /// The VM's BIOS UUID in vCenter's byte order.
    pub uuid: Option<BiosUuid>,
    /// The addresses that the guest reports, sorted, without unusable ones such as link-local addresses.
    pub addresses: Arc<[IpAddr]>,
    /// The Node's metadata without staleness and location record, or the reason why there is none yet.
    pub metadata: Presence<InstanceMetadata>,
    /// The VM's power state, and the time since which it is proved.
    pub power: Presence<ProvenPower>,
    /// Whether the vCenter's snapshot was live when this entry was written. A change of this value notifies
    /// subscribers.
    pub is_live: bool,
}

impl BoundVm {
    /// Returns true if the VM is proved to be powered on.
    pub fn is_running(&self) -> bool {
        matches!(self.power, Presence::Exists(ProvenPower { state: PowerState::PoweredOn, .. }))
    }

    /// Returns true if `uuid` is the VM's UUID, in either byte order.
    pub fn has_uuid(&self, uuid: &BiosUuid) -> bool {
        self.uuid.as_ref().is_some_and(|own| own.is_same(uuid))
    }
}

/// The entries of all Nodes, and the subscribers to changes.
#[derive(Debug)]
pub struct InstanceCache {
    instances: RwLock<HashMap<String, Arc<CachedInstance>>>,
    events: broadcast::Sender<InstanceEvent>,
}

impl Default for InstanceCache {
    fn default() -> Self {
        Self { instances: RwLock::default(), events: broadcast::Sender::new(BACKLOG) }
    }
}

impl InstanceCache {
    /// Returns the entry of this Node.
    pub fn find(&self, node: &str) -> Option<Arc<CachedInstance>> {
        self.instances.read().get(node).cloned()
    }

    /// Replaces the entry. If the UID, the presence or `has_no_match` changed, logs a new decision about the VM and new
    /// notes, and notifies subscribers.
    pub fn set(&self, node: &str, view: CachedInstance) {
        let view = Arc::new(view);
        let known = {
            let mut views = self.instances.write();
            if views.get(node).is_some_and(|known| *known == view) {
                return;
            }
            views.insert(node.to_string(), Arc::clone(&view))
        };
        let is_news = known.as_ref().is_none_or(|known| {
            known.uid != view.uid || known.presence != view.presence || known.has_no_match != view.has_no_match
        });
        if !is_news {
            return;
        }
        let decided = known.as_ref().and_then(|known| known.inputs.as_ref());
        if let Some(inputs) = view.inputs.as_ref().filter(|inputs| decided != Some(inputs)) {
            let LookupInputs { uuid, asked_by_name, answers, .. } = &**inputs;
            let vm = view.presence.clone().map(|vm| Arc::clone(&vm.location.vm));
            debug!(node, ?vm, ?uuid, asked_by_name, ?answers, "decided which virtual machine the node has");
        }
        for note in view.new_notes(known.as_deref()) {
            warn!(node, "{note}");
        }
        // The send fails if there is no subscriber.
        let _ = self.events.send(InstanceEvent::Node(node.to_string()));
    }

    /// Removes the entry of a deleted Node.
    pub fn remove(&self, node: &str) {
        self.instances.write().remove(node);
    }

    /// Returns a stream of changes from now on.
    pub fn subscribe(&self) -> BoxStream<'static, InstanceEvent> {
        stream::unfold(self.events.subscribe(), |mut events| async move {
            match events.recv().await {
                Ok(event) => Some((event, events)),
                Err(RecvError::Lagged(_)) => Some((InstanceEvent::All, events)),
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{Reason, Unknown};
    use crate::providers::vsphere::reason;

    fn view(reason: Reason) -> CachedInstance {
        let presence = Presence::Unknown(Unknown::new(reason, ""));
        CachedInstance {
            uid: "u".into(),
            presence,
            has_no_match: false,
            last_observation: None,
            inputs: None,
            shared_addresses: Vec::new(),
        }
    }

    #[test]
    fn a_note_is_told_when_it_is_new() {
        let noted = |notes: &[&str], address: &str| {
            let metadata = InstanceMetadata {
                messages: notes.iter().map(ToString::to_string).collect(),
                zone: address.into(),
                ..InstanceMetadata::default()
            };
            let vm = BoundVm {
                vcenter: 0.into(),
                location: Arc::default(),
                uuid: None,
                addresses: Arc::default(),
                metadata: Presence::Exists(metadata),
                power: Presence::Unknown(Unknown::new(reason::PowerStateUnknown, "")),
                is_live: true,
            };
            CachedInstance { presence: Presence::Exists(Arc::new(vm)), ..view(reason::VMNotFound) }
        };
        let before = noted(&["a"], "1");
        assert_eq!(before.new_notes(None), ["a"]);
        assert_eq!(before.new_notes(Some(&view(reason::LookupPending))), ["a"]);
        assert_eq!(noted(&["a", "b"], "2").new_notes(Some(&before)), ["b"], "what was told already is not told again");
        assert_eq!(noted(&[], "2").new_notes(Some(&before)), Vec::<String>::new());
    }

    #[tokio::test]
    async fn the_inputs_of_the_last_decision_are_kept_and_are_no_news_alone() {
        let decided = |asked_by_name| {
            let (at, uuid, answers) = (Instant::now(), None, Vec::new());
            let inputs = LookupInputs { at, uuid, asked_by_name, answers };
            CachedInstance { inputs: Some(Arc::new(inputs)), ..view(reason::VMNotFound) }
        };
        let (cache, last) = (InstanceCache::default(), decided(true));
        let mut events = cache.subscribe();
        cache.set("a", decided(false));
        cache.set("a", last.clone());
        cache.set("b", view(reason::VMNotFound));
        assert_eq!(cache.find("a").as_deref(), Some(&last));
        assert_eq!(events.next().await, Some(InstanceEvent::Node("a".into())));
        assert_eq!(events.next().await, Some(InstanceEvent::Node("b".into())));
    }

    #[tokio::test]
    async fn only_a_changed_view_is_announced() {
        let cache = InstanceCache::default();
        let mut events = cache.subscribe();
        cache.set("a", view(reason::VMNotFound));
        cache.set("a", view(reason::VMNotFound));
        cache.set("b", view(reason::VMNotFound));
        assert_eq!(events.next().await, Some(InstanceEvent::Node("a".into())));
        assert_eq!(events.next().await, Some(InstanceEvent::Node("b".into())));
    }

    #[test]
    fn w41_a_node_that_is_gone_leaves_nothing() {
        let cache = InstanceCache::default();
        cache.set("a", view(reason::VMNotFound));
        cache.remove("a");
        assert_eq!(cache.find("a"), None);
        assert!(cache.instances.read().is_empty());
    }

    #[tokio::test]
    async fn a_subscriber_that_fell_behind_is_told_to_look_at_everything() {
        let cache = InstanceCache::default();
        let mut events = cache.subscribe();
        for number in 0..=BACKLOG {
            cache.set(&format!("node-{number}"), view(reason::VMNotFound));
        }
        assert_eq!(events.next().await, Some(InstanceEvent::All));
    }
}
