//! A complete provider that keeps everything in memory. It is the reference for the contract, and the cloud of tests.
//!
//! A [`Memory`] is also the handle that changes its content. Clones share the content. Every change is announced.

mod calls;
mod instances;
mod load_balancer;
mod routes;

#[cfg(test)]
mod tests;

use futures::stream::BoxStream;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use ccm::cloud::{
    CloudProvider, Clusters, Error, InstanceEvent, InstanceEvents, InstanceMetadata, Instances, InstancesV2,
    LeaderToken, LoadBalancer, PowerState, Route, Routes, ServiceEvent, Unknown, UsableAddresses, Zones,
};

pub use calls::Call;
use calls::Failure;
use load_balancer::Balancers;
pub use load_balancer::{ANNOTATION_DECLINED, ANNOTATION_PREFIX, MemoryLoadBalancer};

/// Number of announcements that a subscriber may lag behind. Beyond it the subscriber gets one announcement about
/// everything.
const EVENT_BUFFER: usize = 64;

/// The instance contract that the provider offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contract {
    /// `InstancesV2`.
    #[default]
    Current,
    /// `Instances` and `Zones`.
    Older,
}

/// One machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    /// Name of the node that runs on it.
    pub node_name: String,
    /// UUID that the kubelet reads from the firmware. It is empty if the machine has none.
    pub system_uuid: String,
    /// Metadata that the provider returns. Its provider ID is never empty and identifies the machine here.
    pub metadata: InstanceMetadata,
    /// Power state of the machine.
    pub power: PowerState,
    /// Whether the host is disconnected, so that `power` proves nothing.
    pub is_power_unproven: bool,
}

/// The provider, which is also the handle to its content.
#[derive(Clone)]
pub struct Memory {
    name: &'static str,
    contract: Contract,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    events: broadcast::Sender<InstanceEvent>,
    service_events: broadcast::Sender<ServiceEvent>,
    calls: AtomicUsize,
    capabilities: watch::Sender<Capabilities>,
    /// Calls that wait until [`Memory::release`].
    held: watch::Sender<BTreeSet<Call>>,
    /// The object that serves load balancers and routes. It stays the same while it is in use.
    capability: Mutex<Weak<Memory>>,
}

/// The capabilities that the provider offers.
struct Capabilities {
    routes: bool,
    /// Whether the configuration disables routes.
    routes_are_off: bool,
    load_balancers: bool,
}

#[derive(Default)]
struct State {
    /// Instances by provider ID.
    instances: BTreeMap<String, Instance>,
    /// Provider IDs of removed instances, which prove their absence.
    removed: BTreeSet<String>,
    /// Time since which an instance has its proven power state, by provider ID.
    powered_since: BTreeMap<String, Instant>,
    /// Provider IDs for which every answer is unknown.
    unknown: BTreeMap<String, Unknown>,
    outage: Option<Unknown>,
    latency: Duration,
    balancers: Balancers,
    deletes_by_half: bool,
    needs_address: bool,
    updates_separately: bool,
    /// Answer of `usable_addresses` for every Node.
    usable_addresses: UsableAddresses,
    /// Each route with the name of its cluster.
    routes: Vec<(String, Route)>,
    counts: BTreeMap<Call, usize>,
    failures: BTreeMap<Call, Failure>,
    call_latency: Duration,
    /// Address of the control plane by cluster name.
    clusters: BTreeMap<String, String>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new("memory", Contract::Current)
    }
}

impl Memory {
    /// Makes an empty cloud. `name` is the provider's name. With the older contract it is also the scheme of the
    /// provider IDs.
    pub fn new(name: &'static str, contract: Contract) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            events: broadcast::channel(EVENT_BUFFER).0,
            service_events: broadcast::channel(EVENT_BUFFER).0,
            calls: AtomicUsize::new(0),
            capabilities: watch::Sender::new(Capabilities {
                routes: true,
                routes_are_off: false,
                load_balancers: true,
            }),
            held: watch::Sender::default(),
            capability: Mutex::default(),
        };
        Self { name, contract, shared: Arc::new(shared) }
    }

    fn capability(&self) -> Arc<Self> {
        let mut capability = self.shared.capability.lock().unwrap_or_else(PoisonError::into_inner);
        capability.upgrade().unwrap_or_else(|| {
            let new = Arc::new(self.clone());
            *capability = Arc::downgrade(&new);
            new
        })
    }

    /// Adds an instance, or replaces the instance with the same provider ID.
    pub fn put(&self, instance: Instance) {
        let name = instance.node_name.clone();
        self.change(&name, |state| {
            let id = instance.metadata.provider_id.clone();
            state.removed.remove(&id);
            let power = |instance: &Instance| (instance.power, instance.is_power_unproven);
            if state.instances.get(&id).map(power) != Some(power(&instance)) {
                state.powered_since.insert(id.clone(), Instant::now());
            }
            state.instances.insert(id, instance);
        });
    }

    /// Changes the instance with this provider ID. Returns true if there is one.
    pub fn update(&self, provider_id: &str, change: impl FnOnce(&mut Instance)) -> bool {
        let Some(mut instance) = self.lock().instances.get(provider_id).cloned() else { return false };
        change(&mut instance);
        self.put(instance);
        true
    }

    /// Destroys the instance with this provider ID. Returns true if there was one. From then on its absence is proved.
    pub fn remove(&self, provider_id: &str) -> bool {
        let Some(name) = self.node_name(provider_id) else { return false };
        self.change(&name, |state| {
            state.instances.remove(provider_id);
            state.powered_since.remove(provider_id);
            state.removed.insert(provider_id.to_owned());
        });
        true
    }

    /// Makes every answer about this provider ID unknown; `None` ends that.
    pub fn set_unknown(&self, provider_id: &str, unknown: Option<Unknown>) {
        let name = self.node_name(provider_id).unwrap_or_default();
        self.change(&name, |state| {
            match unknown {
                Some(unknown) => state.unknown.insert(provider_id.to_owned(), unknown),
                None => state.unknown.remove(provider_id),
            };
        });
    }

    /// Makes every answer about instances unknown; `None` ends that.
    pub fn set_outage(&self, outage: Option<Unknown>) {
        self.lock().outage = outage;
        self.announce(InstanceEvent::All);
    }

    /// Sets the time that every call about instances takes.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Announces `event` without changing anything.
    pub fn announce(&self, event: InstanceEvent) {
        // The send fails if there is no subscriber, which is no error.
        let _ = self.shared.events.send(event);
    }

    /// Returns the number of calls about instances so far.
    pub fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::SeqCst)
    }

    /// Adds a cluster whose control plane is at `master`.
    pub fn put_cluster(&self, name: &str, master: &str) {
        self.lock().clusters.insert(name.to_owned(), master.to_owned());
    }

    fn node_name(&self, provider_id: &str) -> Option<String> {
        self.lock().instances.get(provider_id).map(|instance| instance.node_name.clone())
    }

    fn change(&self, node_name: &str, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.announce(if node_name.is_empty() {
            InstanceEvent::All
        } else {
            InstanceEvent::Node(node_name.to_owned())
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for a write of a controller. Fails if the permit has expired.
    fn lock_for_write(&self, permit: &LeaderToken) -> Result<MutexGuard<'_, State>, Error> {
        permit.check().map(|()| self.lock())
    }
}

impl CloudProvider for Memory {
    fn provider_name(&self) -> &'static str {
        self.name
    }

    fn owns_provider_id(&self, _provider_id: &str) -> bool {
        true
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        (self.contract == Contract::Current).then(|| Arc::new(self.clone()) as Arc<dyn InstancesV2>)
    }

    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        Some(Arc::new(self.clone()))
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        (self.contract == Contract::Older).then(|| Arc::new(self.clone()) as Arc<dyn Instances>)
    }

    fn zones(&self) -> Option<Arc<dyn Zones>> {
        (self.contract == Contract::Older).then(|| Arc::new(self.clone()) as Arc<dyn Zones>)
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        self.shared.capabilities.borrow().load_balancers.then(|| self.capability() as Arc<dyn LoadBalancer>)
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        self.shared.capabilities.borrow().routes.then(|| self.capability() as Arc<dyn Routes>)
    }

    fn routes_are_off(&self) -> bool {
        self.shared.capabilities.borrow().routes_are_off
    }

    fn capability_changes(&self) -> BoxStream<'static, ()> {
        let changes = self.shared.capabilities.subscribe();
        Box::pin(futures::stream::unfold(changes, |mut changes| async move {
            changes.changed().await.ok().map(|()| ((), changes))
        }))
    }

    fn clusters(&self) -> Option<Arc<dyn Clusters>> {
        Some(Arc::new(self.clone()))
    }
}

impl InstanceEvents for Memory {
    fn subscribe(&self) -> BoxStream<'static, InstanceEvent> {
        stream_of(self.shared.events.subscribe(), InstanceEvent::All)
    }
}

/// Streams the announcements. A subscriber that fell behind gets `all`.
fn stream_of<T: Clone + Send + 'static>(receiver: broadcast::Receiver<T>, all: T) -> BoxStream<'static, T> {
    Box::pin(futures::stream::unfold((receiver, all), |(mut receiver, all)| async move {
        let event = match receiver.recv().await {
            Ok(event) => event,
            Err(broadcast::error::RecvError::Lagged(_)) => all.clone(),
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        Some((event, (receiver, all)))
    }))
}
