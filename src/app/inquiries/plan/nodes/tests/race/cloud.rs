//! A cloud in memory. Its answers take time, and it keeps the version of the machine in each answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::cloud::{
    AbsenceProof, CloudProvider, InstanceEvent, InstanceEvents, InstanceMetadata, InstancesV2, Power, PowerState,
    Presence, Unknown, node, reason,
};

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    pub metadata: InstanceMetadata,
    pub power: PowerState,
    /// Whether the host is disconnected, so that `power` proves nothing.
    pub is_power_unproven: bool,
    /// Time of the last change of the power state.
    pub powered_since: Instant,
}

/// A question that controllers ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    Metadata,
    Power,
    Presence,
}

/// The cloud. Clones are the same cloud.
#[derive(Clone)]
pub struct Cloud {
    state: Arc<Mutex<State>>,
    events: broadcast::Sender<InstanceEvent>,
}

struct State {
    /// The machines by the name of their Node.
    machines: BTreeMap<String, Machine>,
    /// Provider IDs of destroyed machines.
    destroyed: BTreeSet<String>,
    /// Names of the Nodes about which every answer is unknown.
    hidden: BTreeSet<String>,
    /// Number of changes that concern a Node, by its name.
    versions: BTreeMap<String, u64>,
    /// The answers: time of the arrival, and version of the machine.
    answers: BTreeMap<(String, Question), Vec<(Instant, u64)>>,
    random: Rng,
}

impl Cloud {
    pub fn new(seed: u64) -> Self {
        let state = State {
            machines: BTreeMap::new(),
            destroyed: BTreeSet::new(),
            hidden: BTreeSet::new(),
            versions: BTreeMap::new(),
            answers: BTreeMap::new(),
            random: Rng::with_seed(seed),
        };
        Self { state: Arc::new(Mutex::new(state)), events: broadcast::channel(64).0 }
    }

    /// Adds a machine for the Node with this name, or replaces it.
    pub fn put(&self, name: &str, machine: Machine) {
        self.change(name, |state| {
            state.destroyed.remove(&machine.metadata.provider_id);
            state.machines.insert(name.to_owned(), machine);
        });
    }

    /// Changes a machine. Returns false if there is none.
    pub fn update(&self, name: &str, change: impl FnOnce(&mut Machine)) -> bool {
        let Some(mut machine) = self.machine(name) else { return false };
        change(&mut machine);
        self.put(name, machine);
        true
    }

    /// Destroys a machine. From then on its absence is proved. Returns false if there is none.
    pub fn destroy(&self, name: &str) -> bool {
        let Some(machine) = self.machine(name) else { return false };
        self.change(name, |state| {
            state.machines.remove(name);
            state.destroyed.insert(machine.metadata.provider_id.clone());
        });
        true
    }

    /// Makes every answer about a Node unknown, or known again.
    pub fn hide(&self, name: &str, is_hidden: bool) {
        self.change(name, |state| {
            let _ = if is_hidden { state.hidden.insert(name.to_owned()) } else { state.hidden.remove(name) };
        });
    }

    pub fn machine(&self, name: &str) -> Option<Machine> {
        self.lock().machines.get(name).cloned()
    }

    /// Returns the number of changes that concern this Node.
    pub fn version(&self, name: &str) -> u64 {
        self.lock().versions.get(name).copied().unwrap_or_default()
    }

    /// Returns the version of the machine in the last answer to this question up to `at`.
    pub fn answered(&self, name: &str, question: Question, at: Instant) -> Option<u64> {
        let state = self.lock();
        let answers = state.answers.get(&(name.to_owned(), question))?;
        answers.iter().rev().find(|(arrival, _)| *arrival <= at).map(|(_, version)| *version)
    }

    /// Returns the time of the last answer about the presence of a machine other than that of this Node.
    pub fn last_presence_of_others(&self, name: &str) -> Option<Instant> {
        let state = self.lock();
        let of_others =
            state.answers.iter().filter(|((of, question), _)| of != name && *question == Question::Presence);
        of_others.filter_map(|(_, answers)| answers.last()).map(|(arrival, _)| *arrival).max()
    }

    /// Returns the present answer about the metadata of the machine.
    pub fn metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.lock().find(node).map(|machine| {
            let record = &machine.metadata.record;
            let first = |text: &str| text.split('/').next().map(str::to_owned);
            let is_recorded =
                node::annotation(node, node::ANNOTATION_VM).is_some_and(|known| first(known) == first(record));
            InstanceMetadata { is_recorded, ..machine.metadata }
        })
    }

    /// Returns the present answer about the power state of the machine.
    pub fn power(&self, node: &Node) -> Presence<Power> {
        match self.lock().find(node) {
            Presence::Exists(machine) if machine.is_power_unproven => {
                Presence::Unknown(Unknown::new(reason::PowerStateUnknown, "the host does not answer"))
            }
            Presence::Exists(machine) => {
                Presence::Exists(Power { state: machine.power, lasting: machine.powered_since.elapsed() })
            }
            Presence::Absent(proof) => Presence::Absent(proof),
            Presence::Unknown(unknown) => Presence::Unknown(unknown),
        }
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        *state.versions.entry(name.to_owned()).or_default() += 1;
        drop(state);
        // The send fails if no controller subscribes, which is no error.
        let _ = self.events.send(InstanceEvent::Node(name.to_owned()));
    }

    /// Returns the answer at the time of the question, after a random time.
    async fn ask<T>(&self, node: &Node, question: Question, answer: impl FnOnce(&Self) -> Presence<T>) -> Presence<T> {
        let answer = answer(self);
        let name = node::name(node).to_owned();
        let (version, pause) = {
            let mut state = self.lock();
            let pause = if state.random.u8(..10) < 8 { state.random.u64(1..50) } else { state.random.u64(50..2000) };
            (state.versions.get(&name).copied().unwrap_or_default(), Duration::from_millis(pause))
        };
        tokio::time::sleep(pause).await;
        self.lock().answers.entry((name, question)).or_default().push((Instant::now(), version));
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Finds the machine of a Node by its provider ID, or by its name if it has none.
    fn find(&self, node: &Node) -> Presence<Machine> {
        let (name, id) = (node::name(node), node::provider_id(node));
        if self.hidden.contains(name) {
            return Presence::Unknown(Unknown::new(reason::CloudUnavailable, "no answer"));
        }
        let machine = self.machines.get(name).filter(|machine| id.is_empty() || machine.metadata.provider_id == id);
        match machine {
            Some(machine) => Presence::Exists(machine.clone()),
            None if self.destroyed.contains(id) => Presence::Absent(AbsenceProof::new("it was destroyed", [])),
            None => Presence::Unknown(Unknown::new(reason::InstanceNotFound, "no machine was seen")),
        }
    }
}

impl CloudProvider for Cloud {
    fn provider_name(&self) -> &'static str {
        "memory"
    }

    fn owns_provider_id(&self, provider_id: &str) -> bool {
        provider_id.starts_with("memory://")
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }

    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl InstancesV2 for Cloud {
    async fn instance_exists(&self, node: &Node) -> Presence {
        self.ask(node, Question::Presence, |cloud| cloud.lock().find(node).map(drop)).await
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        self.ask(node, Question::Power, |cloud| cloud.power(node)).await
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        self.ask(node, Question::Power, |cloud| cloud.power(node).map(|power| power.state)).await
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.ask(node, Question::Metadata, |cloud| cloud.metadata(node)).await
    }
}

impl InstanceEvents for Cloud {
    fn subscribe(&self) -> BoxStream<'static, InstanceEvent> {
        let receiver = self.events.subscribe();
        Box::pin(futures::stream::unfold(receiver, |mut receiver| async move {
            let event = match receiver.recv().await {
                Ok(event) => event,
                Err(broadcast::error::RecvError::Lagged(_)) => InstanceEvent::All,
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((event, receiver))
        }))
    }
}
