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
    /// How often the provider had announced it when the last sync began.
    seen_announcements: u64,
    /// An Event said that the cloud is called for what was attempted.
    is_told_of: bool,
    /// What is in the way of the Service itself.
    held: Option<Held>,
    /// What is in the way of its Nodes.
    nodes_held: Option<Held>,
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
        let mut by_key = self.records.by_key.lock();
        if let Some(record) = by_key.get_mut(&self.key) {
            record.is_claimed = false;
            // It was forgotten meanwhile.
            if record.uid.is_none() {
                by_key.remove(&self.key);
            }
        }
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
        let by_key = self.by_key.lock();
        by_key.get(key).is_some_and(|record| record.uid.is_some() && record.uid != service.metadata.uid)
    }

    /// What is known of the Service.
    pub(super) fn start(&self, key: &str, service: &Service) -> Start {
        let mut by_key = self.by_key.lock();
        let record = by_key.entry(key.to_owned()).or_default();
        if record.uid.is_none() {
            record.uid = service.metadata.uid.clone();
        }
        record.seen_announcements = record.announcements;
        let ensured = record.ensured.clone();
        Start {
            record: ServiceRecord {
                ensured: ensured.clone().filter(|_| !record.is_in_doubt()),
                rejection: record.rejection.clone(),
            },
            ensured,
            had_objects: record.had_objects,
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
            (record.attempted, record.failure, record.is_told_of) = (inputs.cloned(), None, false);
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
        self.change(key, Record::begin_to_tell);
    }

    /// The cloud is about to be called to make the load balancer another one, or to delete it. Until that has ended well and
    /// the Service says so, nothing is as it was ensured before.
    pub(super) fn begin_to_change(&self, key: &str) {
        self.change(key, |record| {
            record.begin_to_tell();
            record.is_in_doubt = true;
        });
    }

    /// Whether an Event has to say that the cloud is called: once for what is attempted.
    pub(super) fn is_first_told_of(&self, key: &str) -> bool {
        let mut is_first = false;
        self.change(key, |record| is_first = !std::mem::replace(&mut record.is_told_of, true));
        is_first
    }

    /// The API server has no such Service any more, although the cloud was called for it.
    pub(super) fn vanished(&self, key: &str, service: &Service) {
        self.change(key, |record| record.unguarded = Some(Packed::of(service)));
    }

    /// The load balancer has these Nodes. Whether that is news: it had others before, as far as this term knows.
    pub(super) fn told(&self, key: &str, set: &Arc<NodeSet>) -> bool {
        let mut is_news = false;
        self.change(key, |record| {
            is_news = match &record.told {
                Told::Nothing => false,
                Told::Before(before) | Told::Now(before) => before != set,
            };
            (record.told, record.node_failure, record.nodes_held) = (Told::Now(Arc::clone(set)), None, None);
        });
        is_news
    }

    /// The cloud was not told of the Nodes: when it is tried again, if not when something changes.
    pub(super) fn not_told(&self, key: &str, held: Held) -> Option<Instant> {
        let at = Instant::now();
        // What is wrong with a Service is no reason to leave its Nodes as they are.
        let retry = if held.retry == Retry::OnChange { Retry::Backoff } else { held.retry };
        let mut not_before = None;
        self.change(key, |record| {
            let failure = record.node_failure.get_or_insert_default();
            failure.count(retry, at);
            not_before = failure.not_before;
            record.nodes_held = Some(held);
        });
        not_before
    }

    /// The cloud is not told of the Nodes on purpose.
    pub(super) fn withheld(&self, key: &str, held: Held) {
        self.change(key, |record| {
            (record.node_failure, record.nodes_held) = (Some(Failure::default()), Some(held));
        });
    }

    /// The load balancer is what `inputs` says, and the Service has its addresses.
    pub(super) fn ensured(&self, key: &str, inputs: Inputs, start: &Start) {
        self.change(key, |record| {
            record.ensured = Some(inputs);
            // An announcement during the call may be about what came after it.
            record.is_in_doubt = record.announcements != start.announcements;
            (record.rejection, record.attempted, record.failure, record.is_told_of) = (None, None, None, false);
        });
    }

    /// The cloud did not ensure the load balancer.
    pub(super) fn not_ensured(&self, key: &str, rejection: Option<Rejection>, start: &Start) {
        self.change(key, |record| {
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
            (record.was_synced, record.held) = (true, held.cloned());
            match held {
                None => (record.attempted, record.failure, record.is_told_of) = (None, None, false),
                Some(held) => {
                    let failure = record.failure.get_or_insert_default();
                    pause = failure.count(held.retry, at);
                    // An announcement during the call is about what came after it.
                    if record.announcements != record.seen_announcements {
                        (failure.not_before, pause) = (None, Some(Duration::ZERO));
                    }
                }
            }
        });
        // Without a record nothing counts the failures.
        pause.or_else(|| held.and_then(|held| Failure::default().count(held.retry, at)))
    }

    /// Whether the cloud has still to be told of these Nodes, and nothing is known that forbids it.
    pub(super) fn is_due(&self, key: &str, set: &Arc<NodeSet>) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.is_due(set, Instant::now()))
    }

    /// What is in the way of the Service: of two things that of the Service itself.
    pub(super) fn held(&self, key: &str) -> Option<Held> {
        let by_key = self.by_key.lock();
        let record = by_key.get(key)?;
        record.held.clone().or_else(|| record.nodes_held.clone())
    }

    /// Whether a sync of the Service has ended since it was forgotten last.
    pub(super) fn was_synced(&self, key: &str) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.was_synced)
    }

    /// What a round has to do so that the cloud is told of these Nodes.
    pub(super) fn due(self: &Arc<Self>, set: &Arc<NodeSet>) -> Due {
        let at = Instant::now();
        let mut due = Due { claims: Vec::new(), recovered: Vec::new(), next: None };
        for (key, record) in self.by_key.lock().iter_mut() {
            if record.is_told(set) {
                record.nodes_held = None;
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
        let mut by_key = self.by_key.lock();
        match by_key.get_mut(key) {
            // Whoever calls the cloud for it still does: its claim removes the rest.
            Some(record) if record.is_claimed => *record = Record { is_claimed: true, ..Record::default() },
            _ => drop(by_key.remove(key)),
        }
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

    fn begin_to_tell(&mut self) {
        if let Told::Now(set) | Told::Before(set) = std::mem::take(&mut self.told) {
            self.told = Told::Before(set);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::reason;
    use crate::controllers::service::failure::Action;
    use serde_json::json;

    const KEY: &str = "n/a";

    fn service() -> Service {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"type": "LoadBalancer"}})).unwrap()
    }

    fn set(name: &str) -> Arc<NodeSet> {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Arc::new(NodeSet::of([&node]))
    }

    fn held(retry: Retry) -> Held {
        Held::new(reason::CloudError, "why", retry)
    }

    /// Records with one Service whose load balancer was ensured and has these Nodes.
    fn ensured(nodes: &Arc<NodeSet>) -> (Arc<Records>, Inputs) {
        let (records, inputs) = (Arc::<Records>::default(), Inputs::of(&service(), &[""]));
        let start = records.start(KEY, &service());
        drop(records.claim(KEY, Some(&inputs)).unwrap());
        records.begin_to_change(KEY);
        records.told(KEY, nodes);
        records.ensured(KEY, inputs.clone(), &start);
        records.synced(KEY, None);
        (records, inputs)
    }

    #[test]
    fn what_a_call_may_have_changed_is_in_doubt_until_it_has_ended_well() {
        let (records, inputs) = ensured(&set("a"));
        assert_eq!(records.start(KEY, &service()).record.ensured.as_ref(), Some(&inputs));
        records.begin_to_change(KEY);
        let start = records.start(KEY, &service());
        assert_eq!((start.record.ensured.as_ref(), start.ensured.as_ref()), (None, Some(&inputs)));
        records.announced(None);
        records.ensured(KEY, inputs.clone(), &start);
        assert_eq!(records.start(KEY, &service()).record.ensured, None, "it was announced meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_exact_ends_with_a_change_and_an_announcement_is_not_lost() {
        let (records, inputs) = ensured(&set("a"));
        let after = Duration::from_secs(42);
        let fail = || {
            records.start(KEY, &service());
            drop(records.claim(KEY, Some(&inputs)).unwrap_or_else(|delay| panic!("{delay:?}")));
            records.synced(KEY, Some(&held(Retry::After(after))))
        };
        assert_eq!(fail(), Some(after));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(records.claim(KEY, Some(&inputs)).err(), Some(Duration::from_secs(40)));
        tokio::time::advance(Duration::from_secs(40)).await;
        records.start(KEY, &service());
        let claim = records.claim(KEY, Some(&inputs)).unwrap();
        assert!(claim.is_some() && records.claim(KEY, Some(&inputs)).unwrap().is_none(), "one at a time");
        // Announced while the call is under way, which then fails.
        records.announced(Some(KEY));
        drop(claim);
        assert_eq!(records.synced(KEY, Some(&held(Retry::After(after)))), Some(Duration::ZERO));
        assert!(records.claim(KEY, Some(&inputs)).unwrap().is_some());
        fail();
        assert!(records.claim(KEY, None).unwrap().is_some(), "another Service, so to say");
    }

    #[test]
    fn of_two_things_in_the_way_that_of_the_service_is_shown() {
        let (records, _) = ensured(&set("a"));
        assert_eq!(records.held(KEY), None);
        let of_nodes = held(Retry::Backoff).with(Action::UpdateNodes);
        records.not_told(KEY, of_nodes.clone());
        assert_eq!(records.held(KEY).as_ref(), Some(&of_nodes));
        records.synced(KEY, Some(&held(Retry::OnChange)));
        assert_eq!(records.held(KEY), Some(held(Retry::OnChange)));
        records.told(KEY, &set("b"));
        assert_eq!(records.held(KEY), Some(held(Retry::OnChange)), "a node update mends no Service");
        records.not_told(KEY, of_nodes.clone());
        records.synced(KEY, None);
        assert_eq!(records.held(KEY), Some(of_nodes));
        records.withheld(KEY, held(Retry::OnChange));
        assert_eq!(records.due(&set("b")).recovered, [KEY], "the Nodes are those that the cloud has");
        assert_eq!(records.held(KEY), None);
    }

    #[test]
    fn nodes_that_were_told_after_a_failure_are_news() {
        let (one, two) = (set("a"), set("b"));
        let (records, _) = ensured(&one);
        for _ in 0..2 {
            records.begin_to_tell(KEY);
            records.not_told(KEY, held(Retry::Backoff));
        }
        records.begin_to_tell(KEY);
        assert!(records.told(KEY, &two) && !records.told(KEY, &two));
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_back_off_by_service_also_if_it_is_wrong() {
        let (one, two) = (set("a"), set("b"));
        let (records, _) = ensured(&one);
        for pause in [5, 10, 20] {
            let due = records.due(&two);
            assert_eq!(due.claims.len(), 1);
            assert!(records.due(&two).claims.is_empty(), "it is claimed");
            records.begin_to_tell(KEY);
            records.not_told(KEY, held(Retry::OnChange));
            drop(due);
            let again = records.due(&two);
            assert!(again.claims.is_empty() && again.next == Some(Instant::now() + Duration::from_secs(pause)));
            tokio::time::advance(Duration::from_secs(pause)).await;
        }
        // The Nodes are as they were before: the cloud may have others by now.
        assert_eq!(records.due(&one).claims.len(), 1);
    }

    #[test]
    fn one_that_is_forgotten_during_a_call_stays_claimed() {
        let (records, inputs) = ensured(&set("a"));
        let due = records.due(&set("b"));
        records.forget(KEY);
        assert!(!records.was_synced(KEY));
        records.start(KEY, &service());
        assert!(records.claim(KEY, Some(&inputs)).unwrap().is_none());
        drop(due);
        assert!(records.claim(KEY, Some(&inputs)).unwrap().is_some());
        records.forget(KEY);
        assert_eq!(records.keys(), Vec::<String>::new());
    }
}
