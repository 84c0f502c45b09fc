//! Writes Events for users with the core/v1 API, as client-go's recorder (`tools/record`), because existing RBAC roles
//! permit no other API. A background task writes Events about different objects concurrently, and those about one
//! object in order.

mod correlator;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use prometheus::IntCounterVec;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{CallError, limited};
use crate::base::abbreviation::{MAX_MESSAGE, abbreviated};
use crate::base::error_chain::chain;
use crate::runtime::metrics::{Registry, counter_vec};
use crate::runtime::tasks::BoxError;
use correlator::{Correlator, EventWrite, RecordedEvent};

/// Maximum number of queued Events. Further Events are dropped. When 5,000 Nodes join at the same time, all their
/// Events are queued: about 2 MB, or 15 MB with messages of maximum length.
const QUEUE: usize = 10_000;

/// Number of concurrent writes. All Events about an object use the same lane and stay in order.
const LANES: usize = 8;

const LANE_QUEUE: usize = 16;

const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Maximum number of attempts of a write while the API server is unreachable.
const ATTEMPTS: u32 = 12;
/// Pause between two attempts. The first pause is a random part of `PAUSE`.
const PAUSE: Duration = Duration::from_secs(10);

/// Time limit for writing the queued Events when the process stops.
const FINAL_FLUSH: Duration = Duration::from_secs(2);

/// Maximum length of a message, in bytes. The API server enforces it.
const LONGEST_MESSAGE: usize = 1024;

/// The type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// An expected state or a completed action.
    Normal,
    /// A failure.
    Warning,
}

impl EventType {
    /// Returns the value of the Event's field `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// Recorder for the Events of one component. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    component: Arc<str>,
    queue: mpsc::Sender<RecordedEvent>,
    dropped: IntCounterVec,
}

/// Writer of the Events of [`Recorder`]s.
pub struct EventWriter {
    client: Client,
    queue: mpsc::Receiver<RecordedEvent>,
    correlator: Correlator,
    dropped: IntCounterVec,
    began: Instant,
}

/// Returns a recorder for `component`, and its writer, which the caller must run. `client` must not check leadership,
/// because standbys also record Events.
pub fn recorder(client: Client, component: &str) -> (Recorder, EventWriter) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let help = "Events that were not written, by reason.";
    let dropped = counter_vec("vsphere_ccm_events_dropped_total", help, &["reason"]);
    let recorder = Recorder { component: component.into(), queue: sender, dropped: dropped.clone() };
    let correlator = Correlator::default();
    (recorder, EventWriter { client, queue: receiver, correlator, dropped, began: Instant::now() })
}

impl Recorder {
    /// Returns a recorder with the same queue for another component.
    pub fn for_component(&self, component: &str) -> Self {
        Self { component: component.into(), ..self.clone() }
    }

    /// Registers the counter of dropped Events.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.dropped.clone()))
    }

    /// Records an Event about `object`. A long message is [abbreviated]; the caller logs it in full. A repeated Event raises the count of the earlier Event. Never waits: if the
    /// queue is full, the Event is dropped and counted.
    pub fn event(&self, object: &ObjectReference, event_type: EventType, reason: &'static str, message: &str) {
        let fact = RecordedEvent {
            component: self.component.clone(),
            object: object.clone(),
            event_type,
            reason,
            message: truncated(message),
            at: Timestamp::now(),
        };
        if self.queue.try_send(fact).is_err() {
            self.dropped.with_label_values(&["QueueFull"]).inc();
        }
    }
}

impl EventWriter {
    /// Writes Events until `stop`, then writes the queued Events for at most two seconds.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..LANES).map(|_| mpsc::channel(LANE_QUEUE)).unzip();
        let lane = Lane { client: self.client.clone(), dropped: self.dropped.clone(), stop: stop.clone() };
        let lanes = join_all(receivers.into_iter().map(|receiver| lane.run(receiver)));
        let work = async { tokio::join!(self.feed(senders, &stop), lanes) };
        let limit = async {
            stop.cancelled().await;
            tokio::time::sleep(FINAL_FLUSH).await;
        };
        tokio::select! {
            _ = work => {}
            () = limit => tracing::debug!("some events were not written before the end"),
        }
        Ok(())
    }

    /// Correlates the Events in the order of recording, and passes each Event to its lane.
    async fn feed(mut self, lanes: Vec<mpsc::Sender<(RecordedEvent, EventWrite)>>, stop: &CancellationToken) {
        loop {
            let fact = tokio::select! {
                biased;
                // Queued Events take precedence over `stop`.
                fact = self.queue.recv() => fact,
                () = stop.cancelled() => return,
            };
            // All recorders were dropped, so no Event can arrive.
            let Some(fact) = fact else { return stop.cancelled().await };
            let Some(write) = self.correlator.take(&fact, self.began.elapsed()) else {
                self.dropped.with_label_values(&["Spam"]).inc();
                continue;
            };
            // `lane_of` returns a valid index, and the lanes outlive this loop.
            if let Some(lane) = lanes.get(lane_of(&fact.object)) {
                let _ = lane.send((fact, write)).await;
            }
        }
    }
}

fn lane_of(object: &ObjectReference) -> usize {
    let mut hasher = DefaultHasher::new();
    (&object.kind, &object.namespace, &object.name).hash(&mut hasher);
    usize::try_from(hasher.finish() % LANES as u64).unwrap_or_default()
}

struct Lane {
    client: Client,
    dropped: IntCounterVec,
    stop: CancellationToken,
}

impl Lane {
    async fn run(&self, mut queue: mpsc::Receiver<(RecordedEvent, EventWrite)>) {
        while let Some((fact, write)) = queue.recv().await {
            self.write(&fact, &write).await;
        }
    }

    async fn write(&self, fact: &RecordedEvent, write: &EventWrite) {
        for attempt in 1..=ATTEMPTS {
            match self.attempt(fact, write).await {
                Ok(()) => return,
                Err(error) if attempt < ATTEMPTS && error.code().is_none() && !self.stop.is_cancelled() => {
                    tracing::debug!("{}", chain(&error));
                    let pause = if attempt == 1 { PAUSE.mul_f64(fastrand::f64()) } else { PAUSE };
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                Err(error) => {
                    self.dropped.with_label_values(&[error.reason()]).inc();
                    tracing::warn!(reason = fact.reason, "{}", chain(&error));
                    return;
                }
            }
        }
    }

    async fn attempt(&self, fact: &RecordedEvent, write: &EventWrite) -> Result<(), CallError> {
        let namespace = fact.object.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if write.count > 1 {
            let what = format!("patch event {}", write.name);
            let patch = serde_json::json!({
                "count": write.count, "lastTimestamp": Time(fact.at), "message": write.message,
            });
            let (parameters, patch) = (PatchParams::default(), Patch::Strategic(&patch));
            match limited(&what, WRITE_LIMIT, events.patch(&write.name, &parameters, &patch)).await {
                // The earlier Event has expired in the API server, so a new Event is created.
                Err(error) if error.is_not_found() => {}
                answer => return answer.map(drop),
            }
        }
        let what = format!("create event {}", write.name);
        let event = new_event(fact, write, namespace);
        match limited(&what, WRITE_LIMIT, events.create(&PostParams::default(), &event)).await {
            // An earlier attempt succeeded, but its answer was lost.
            Err(error) if error.is_conflict() => Ok(()),
            answer => answer.map(drop),
        }
    }
}

fn new_event(fact: &RecordedEvent, write: &EventWrite, namespace: &str) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(write.name.clone()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: fact.object.clone(),
        reason: Some(fact.reason.to_owned()),
        message: Some(write.message.clone()),
        type_: Some(fact.event_type.as_str().to_owned()),
        source: Some(EventSource { component: Some(fact.component.to_string()), host: None }),
        reporting_component: Some(fact.component.to_string()),
        first_timestamp: Some(Time(write.first)),
        last_timestamp: Some(Time(fact.at)),
        count: Some(write.count),
        ..Event::default()
    }
}

/// Returns the message as an Event has it.
fn truncated(message: &str) -> String {
    let short = abbreviated(message, MAX_MESSAGE);
    short.get(..short.floor_char_boundary(LONGEST_MESSAGE)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
