//! What a term of leadership knows of the Services that it has synced, by key: what was ensured, what the cloud was told of the
//! Nodes, what failed, and who calls the cloud for which Service at the moment.
//!
//! A sync and a round of node updates never call the cloud for one Service at the same time: each holds its [`Claim`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::{Held, Retry};
use super::inputs::Inputs;
use super::node_set::NodeSet;
use super::plan::{Rejection, ServiceRecord};
use crate::base::backoff::{Backoff, Failures};
use crate::cloud::service;

/// As in the Go program.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(5), Duration::from_secs(300));

/// The records of one term.
#[derive(Default)]
pub(super) struct Records {
    by_key: Mutex<HashMap<String, Record>>,
}

/// One Service.
#[derive(Default)]
struct Record {
    /// Another Service of this name has another one.
    uid: Option<String>,
    /// What it was when its load balancer was ensured last.
    ensured: Option<Inputs>,
    /// It is to be ensured again all the same.
    is_in_doubt: bool,
    /// How often the provider announced it.
    announcements: u64,
    rejection: Option<Rejection>,
    /// What it was when a sync began to call the cloud; nothing after a success.
    attempted: Option<Inputs>,
    /// Of the calls for what was attempted.
    failure: Option<Failure>,
    /// The provider had objects of it.
    had_objects: bool,
    /// Since when its finalizer stays because it may be another program's.
    not_ours_since: Option<Instant>,
    /// As it was seen last, if that was without the finalizer: what is needed to delete its load balancer when it is gone.
    unguarded: Option<Packed>,
    /// A sync of it has ended: node updates do not wait for the first one.
    was_synced: bool,
    told: Told,
    /// Of the calls that told the cloud of the Nodes.
    node_failure: Option<Failure>,
    is_claimed: bool,
}

/// What the cloud knows of the Nodes behind a load balancer.
#[derive(Clone, Default)]
enum Told {
    /// This term has told it nothing.
    #[default]
    Nothing,
    /// This, before a call whose end is not known.
    Before(Arc<NodeSet>),
    /// This.
    Now(Arc<NodeSet>),
}

#[derive(Clone, Default)]
struct Failure {
    failures: Failures,
    not_before: Option<Instant>,
}

impl Failure {
    /// Counts one more failure at `at`; the pause after it, if there is one.
    fn count(&mut self, retry: Retry, at: Instant) -> Option<Duration> {
        let pause = match retry {
            Retry::OnChange => None,
            Retry::After(after) => Some(after),
            Retry::Backoff => Some(self.failures.next_pause(&BACKOFF, 0.0)),
        };
        self.not_before = pause.map(|pause| at + pause);
        pause
    }

    fn is_over(&self, at: Instant) -> bool {
        self.not_before.is_none_or(|end| end <= at)
    }
}

/// A Service as JSON, a third of the size.
struct Packed(Box<str>);

impl Packed {
    fn of(service: &Service) -> Self {
        Self(serde_json::to_string(service).expect("a Service is JSON").into())
    }

    fn service(&self) -> Service {
        serde_json::from_str(&self.0).expect("it was a Service when it was packed")
    }
}

/// What a sync starts from.
pub(super) struct Start {
    /// What the plan rests on.
    pub(super) record: ServiceRecord,
    /// What the Service was when its load balancer was ensured last, also if that is to be repeated.
    pub(super) ensured: Option<Inputs>,
    /// The provider had objects of it.
    pub(super) had_objects: bool,
    /// The cloud was not called yet for what the Service is now.
    pub(super) is_first_attempt: bool,
    /// How often the provider had announced the Service.
    announcements: u64,
}

/// The right to call the cloud for one Service. Dropping it gives it back.
pub(super) struct Claim {
    records: Arc<Records>,
    /// The Service's key.
    pub(super) key: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.records.change(&self.key, |record| record.is_claimed = false);
    }
}

/// What a round of node updates has to do.
pub(super) struct Due {
    /// The Services that the cloud was told other Nodes for.
    pub(super) claims: Vec<Claim>,
    /// Those that need no update any more although the last one failed.
    pub(super) recovered: Vec<String>,
    /// When the next Service is tried again.
    pub(super) next: Option<Instant>,
}

impl Records {
    /// Whether a Service with another UID is known under this key.
    pub(super) fn is_another(&self, key: &str, service: &Service) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.uid != service.metadata.uid)
    }

    /// What is known of the Service.
    pub(super) fn start(&self, key: &str, service: &Service, inputs: &Inputs) -> Start {
        let mut by_key = self.by_key.lock();
        let new = || Record { uid: service.metadata.uid.clone(), ..Record::default() };
        let record = by_key.entry(key.to_owned()).or_insert_with(new);
        let ensured = record.ensured.clone();
        Start {
            record: ServiceRecord {
                ensured: ensured.clone().filter(|_| !record.is_in_doubt()),
                rejection: record.rejection.clone(),
            },
            ensured,
            had_objects: record.had_objects,
            is_first_attempt: record.attempted.as_ref() != Some(inputs),
            announcements: record.announcements,
        }
    }

    /// A sync is about to call the cloud for the Service as `inputs` says it, or for one that is gone. None while a round
    /// does so.
    ///
    /// # Errors
    /// How long the pause after the last failure lasts, if the Service is what it was then.
    pub(super) fn claim(self: &Arc<Self>, key: &str, inputs: Option<&Inputs>) -> Result<Option<Claim>, Duration> {
        let at = Instant::now();
        let mut by_key = self.by_key.lock();
        let Some(record) = by_key.get_mut(key).filter(|record| !record.is_claimed) else { return Ok(None) };
        if record.attempted.as_ref() != inputs {
            (record.attempted, record.failure) = (inputs.cloned(), None);
        }
        let not_before = record.failure.as_ref().and_then(|failure| failure.not_before).filter(|end| *end > at);
        if let Some(not_before) = not_before {
            return Err(not_before.saturating_duration_since(at));
        }
        record.is_claimed = true;
        Ok(Some(Claim { records: Arc::clone(self), key: key.to_owned() }))
    }

    /// The Service was seen in the cache. Without the finalizer, it may vanish without a sync.
    pub(super) fn saw(&self, key: &str, service: Option<&Service>) {
        let Some(service) = service else { return };
        self.change(key, |record| {
            let is_it = record.uid == service.metadata.uid;
            let is_guarded = service::has_finalizer(service);
            if is_it {
                record.unguarded = (!is_guarded && record.may_have_objects()).then(|| Packed::of(service));
            }
        });
    }

    /// The Service as it was seen last, if that was without the finalizer.
    pub(super) fn unguarded(&self, key: &str) -> Option<Service> {
        self.by_key.lock().get(key)?.unguarded.as_ref().map(Packed::service)
    }

    /// The cloud is about to be called with other Nodes, maybe.
    pub(super) fn begin_to_tell(&self, key: &str) {
        self.change(key, |record| {
            if let Told::Now(set) = std::mem::take(&mut record.told) {
                record.told = Told::Before(set);
            }
        });
    }

    /// The load balancer has these Nodes. Whether that is news: it had others before, as far as this term knows.
    pub(super) fn told(&self, key: &str, set: &Arc<NodeSet>) -> bool {
        let mut is_news = false;
        self.change(key, |record| {
            is_news = match &record.told {
                Told::Nothing => false,
                Told::Before(before) | Told::Now(before) => before != set,
            };
            (record.told, record.node_failure) = (Told::Now(Arc::clone(set)), None);
        });
        is_news
    }

    /// The cloud was not told of the Nodes: when it is tried again, if not when something changes.
    pub(super) fn not_told(&self, key: &str, retry: Retry) -> Option<Instant> {
        let at = Instant::now();
        // What is wrong with a Service is no reason to leave its Nodes as they are.
        let retry = if retry == Retry::OnChange { Retry::Backoff } else { retry };
        let mut not_before = None;
        self.change(key, |record| {
            let failure = record.node_failure.get_or_insert_default();
            failure.count(retry, at);
            not_before = failure.not_before;
        });
        not_before
    }

    /// The cloud is not told of the Nodes on purpose.
    pub(super) fn withheld(&self, key: &str) {
        self.change(key, |record| record.node_failure = Some(Failure::default()));
    }

    /// The load balancer is what `inputs` says, and the Service has its addresses.
    pub(super) fn ensured(&self, key: &str, inputs: Inputs, start: &Start) {
        self.change(key, |record| {
            record.ensured = Some(inputs);
            // An announcement during the call may be about what came after it.
            record.is_in_doubt = record.announcements != start.announcements;
            (record.rejection, record.attempted, record.failure) = (None, None, None);
        });
    }

    /// A call failed: it may have changed anything.
    pub(super) fn not_ensured(&self, key: &str, rejection: Option<Rejection>, start: &Start) {
        self.change(key, |record| {
            record.is_in_doubt = true;
            record.rejection = rejection.filter(|_| record.announcements == start.announcements);
        });
    }

    /// The provider had objects of the Service.
    pub(super) fn had_objects(&self, key: &str) {
        self.change(key, |record| record.had_objects = true);
    }

    /// For how long the finalizer stays already because it may be another program's.
    pub(super) fn not_ours_for(&self, key: &str) -> Duration {
        let at = Instant::now();
        let mut lasting = Duration::ZERO;
        self.change(key, |record| {
            lasting = at.saturating_duration_since(*record.not_ours_since.get_or_insert(at));
        });
        lasting
    }

    /// The provider wants this Service to be synced again, or all.
    pub(super) fn announced(&self, key: Option<&str>) {
        let announce = |record: &mut Record| {
            record.announcements += 1;
            record.is_in_doubt = true;
            (record.rejection, record.failure) = (None, None);
        };
        match key {
            Some(key) => self.change(key, announce),
            None => self.by_key.lock().values_mut().for_each(announce),
        }
    }

    /// A sync has ended: the pause that follows, if something was in the way and time may mend it.
    pub(super) fn synced(&self, key: &str, held: Option<&Held>) -> Option<Duration> {
        let at = Instant::now();
        let mut pause = None;
        self.change(key, |record| {
            record.was_synced = true;
            match held {
                None => (record.attempted, record.failure) = (None, None),
                Some(held) => pause = record.failure.get_or_insert_default().count(held.retry, at),
            }
        });
        // Without a record nothing counts the failures.
        pause.or_else(|| held.and_then(|held| Failure::default().count(held.retry, at)))
    }

    /// Whether the cloud has still to be told of these Nodes, and nothing is known that forbids it.
    pub(super) fn is_due(&self, key: &str, set: &Arc<NodeSet>) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.is_due(set, Instant::now()))
    }

    /// Whether the last try to tell the cloud of the Nodes failed.
    pub(super) fn has_node_failure(&self, key: &str) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.node_failure.is_some())
    }

    /// Whether something is in the way of the Service itself.
    pub(super) fn is_held(&self, key: &str) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.attempted.is_some() || record.rejection.is_some())
    }

    /// What a round has to do so that the cloud is told of these Nodes.
    pub(super) fn due(self: &Arc<Self>, set: &Arc<NodeSet>) -> Due {
        let at = Instant::now();
        let mut due = Due { claims: Vec::new(), recovered: Vec::new(), next: None };
        for (key, record) in self.by_key.lock().iter_mut() {
            if record.is_told(set) {
                if record.node_failure.take().is_some() {
                    due.recovered.push(key.clone());
                }
            } else if record.is_due(set, at) {
                record.is_claimed = true;
                due.claims.push(Claim { records: Arc::clone(self), key: key.clone() });
            }
            let waits = record.node_failure.as_ref().and_then(|failure| failure.not_before).filter(|end| *end > at);
            due.next = [due.next, waits].into_iter().flatten().min();
        }
        due.claims.sort_by(|one, other| one.key.cmp(&other.key));
        due
    }

    /// Nothing of this program stands behind the Service.
    pub(super) fn forget(&self, key: &str) {
        self.by_key.lock().remove(key);
    }

    /// All Services that something is known of.
    pub(super) fn keys(&self) -> Vec<String> {
        self.by_key.lock().keys().cloned().collect()
    }

    /// Whether this term has ensured the load balancer.
    pub(super) fn was_ensured(&self, key: &str) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.ensured.is_some())
    }

    /// How many load balancers this term has ensured.
    pub(super) fn count_ensured(&self) -> usize {
        self.by_key.lock().values().filter(|record| record.ensured.is_some()).count()
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.by_key.lock().get_mut(key) {
            change(record);
        }
    }
}

impl Record {
    /// Whether the provider may have objects of it because of this term.
    fn may_have_objects(&self) -> bool {
        self.ensured.is_some() || self.attempted.is_some() || self.had_objects || !matches!(self.told, Told::Nothing)
    }

    /// The cloud is to be called for the Service although it did not change. Who refuses its Nodes may have lost it.
    fn is_in_doubt(&self) -> bool {
        self.is_in_doubt || self.node_failure.as_ref().is_some_and(|failure| !failure.failures.is_none())
    }

    fn is_told(&self, set: &Arc<NodeSet>) -> bool {
        matches!(&self.told, Told::Now(told) if Arc::ptr_eq(told, set) || told == set)
    }

    fn is_due(&self, set: &Arc<NodeSet>, at: Instant) -> bool {
        let may_try = self.node_failure.as_ref().is_none_or(|failure| failure.is_over(at));
        self.was_synced && !self.is_claimed && may_try && !self.is_told(set)
    }
}
