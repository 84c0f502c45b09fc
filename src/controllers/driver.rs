//! The driver, which runs a controller while this process leads.
//!
//! A leadership term lasts while this process leads and the provider has the declared capability. The term begins with
//! a new [`Reconciler`], an empty queue, and a refresh of the cloud's instances. Each event of the declared caches and
//! instances immediately enqueues the keys that the reconciler returns for the event. The keys of the periodic resync
//! are spread evenly over the period. Each worker takes one key at a time, contains panics, and requeues the key as the
//! reconciler decides. At the end of the term, the driver drops all queued and running work. On the signal to stop, the
//! driver finishes the reconciles in progress.
//!
//! A new controller declares its [`Spec`] and implements [`Reconciler`], which maps events to keys and reconciles a key
//! with `observe`, `plan` and `apply`.

use std::fmt::{self, Display};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::{BoxStream, SelectAll};
use parking_lot::Mutex;
use prometheus::IntGauge;
use prometheus::core::Collector;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::capability::Capability;
use super::instances::BoundedInstances;
use super::running_gauge::{self, RunningGauge};
use crate::base::backoff::Backoff;
use crate::cloud::InstanceEvent;
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::stores::{Change, Nodes, Services};
use crate::runtime::metrics::Registry;
use crate::runtime::queue::{KeyState, Priority, Queue, QueueMetrics};
use crate::runtime::tasks::{BoxError, PanicError, contain};

/// The usual backoff of a failed key. The backoff doubles with each failure, up to 60 s.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(60)).shortened_by(0.5);

/// Lower limit of the period of a controller. A shorter period would starve all other work.
pub(in crate::controllers) const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// A controller: its declaration, and the function that begins a leadership term.
pub struct Controller<R> {
    /// The declaration.
    pub spec: Spec,
    begin_term: Box<dyn Fn() -> R + Send + Sync>,
    current: CurrentTerm<R>,
    queue: QueueMetrics,
    side_queue: Option<QueueMetrics>,
    running: IntGauge,
}

/// The reconciler of the current leadership term, for readers of the controller's state. Clones share the term.
pub struct CurrentTerm<R>(Arc<Mutex<TermAccess<R>>>);

/// The reconciler and the queues of a term; empty between two terms.
struct TermAccess<R> {
    reconciler: Weak<R>,
    queues: Option<Queues>,
}

impl<R> Default for TermAccess<R> {
    fn default() -> Self {
        Self { reconciler: Weak::new(), queues: None }
    }
}

impl<R> CurrentTerm<R> {
    /// Returns the reconciler; `None` between two terms. The caller must not keep it, because it has the caches of its
    /// term.
    pub fn get(&self) -> Option<Arc<R>> {
        self.0.lock().reconciler.upgrade()
    }
}

impl<R: Reconciler> CurrentTerm<R> {
    /// Returns the state of `key` in its queue; `None` between two terms.
    pub fn key_state(&self, key: &str) -> Option<KeyState> {
        let (reconciler, queues) = {
            let access = self.0.lock();
            (access.reconciler.upgrade()?, access.queues.clone()?)
        };
        Some(queues.of(&*reconciler, key).key_state(&key.to_owned()))
    }
}

impl<R> Clone for CurrentTerm<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Default for CurrentTerm<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[derive(Clone)]
struct Queues {
    main: Queue<String>,
    side: Option<Queue<String>>,
}

impl Queues {
    fn of(&self, term: &impl Reconciler, key: &str) -> &Queue<String> {
        self.side.as_ref().filter(|_| term.uses_side_queue(key)).unwrap_or(&self.main)
    }
}

/// The declaration of a controller.
pub struct Spec {
    /// Name of the controller in the Go program's metric `running_managed_controllers`.
    pub name: &'static str,
    /// Name of the queue in the work queue metrics.
    pub queue: &'static str,
    /// Leadership of this process.
    pub leadership: Leadership,
    /// Capability of the provider that the controller needs, if any.
    pub capability: Option<Capability>,
    /// Number of keys of the main queue that are reconciled concurrently.
    pub workers: usize,
    /// Name of the side queue, if the controller has one. One separate worker takes the keys of the side queue, so that
    /// these keys do not wait behind other keys.
    pub side_queue: Option<&'static str>,
    /// Interval of [`Event::Period`]; at least 100 ms.
    pub period: Duration,
    /// Backoff of a key that fails.
    pub backoff: Backoff,
    /// The caches that the controller reads. Their events enqueue keys, and the controller is ready once all caches are
    /// filled. The first event of each cache covers all of its objects.
    pub caches: Vec<Arc<dyn Cache>>,
    /// The cloud's instances, if the controller uses their events. Refreshed at the beginning of each term.
    pub instances: Option<BoundedInstances>,
    /// The controller's own metrics.
    pub metrics: Vec<Box<dyn Collector>>,
}

impl Spec {
    /// Creates the declaration of a controller with one worker and the usual backoff, and with nothing optional.
    pub fn new(name: &'static str, leadership: Leadership, period: Duration, caches: Vec<Arc<dyn Cache>>) -> Self {
        Self {
            name,
            queue: name,
            leadership,
            capability: None,
            workers: 1,
            side_queue: None,
            period,
            backoff: BACKOFF,
            caches,
            instances: None,
            metrics: Vec::new(),
        }
    }
}

/// One leadership term of a controller, with all its state. A key identifies the work of one reconcile, usually one
/// object.
pub trait Reconciler: Send + Sync + 'static {
    /// The result of a reconcile.
    type Outcome: Send + 'static;

    /// Returns the keys to reconcile because of `event`. The keys of `Event::Period` are spread over the period.
    fn keys_of(&self, event: Event) -> Vec<String>;

    /// Returns the priority of a waiting key.
    fn priority(&self, _: &str) -> Priority {
        Priority::Normal
    }

    /// Whether the key must not wait behind other keys. If the controller has a side queue, this queue takes the key.
    fn uses_side_queue(&self, _: &str) -> bool {
        false
    }

    /// Waits for the next key that is due for another reason than an event, for example a timer. Must be cancel-safe.
    fn next_key(&self) -> impl Future<Output = String> + Send {
        std::future::pending()
    }

    /// Brings the object with this key to its desired state, in a separate task that may briefly outlive the term.
    fn reconcile(self: Arc<Self>, key: String) -> impl Future<Output = Self::Outcome> + Send + 'static;

    /// Reports the outcome or the panic of a reconcile. Returns the time of the next reconcile. Never runs after the
    /// term.
    fn conclude(
        self: &Arc<Self>,
        key: &str,
        outcome: Result<Self::Outcome, PanicError>,
    ) -> impl Future<Output = Requeue> + Send;

    /// Ends the term after all workers have stopped. Not called on the signal to stop.
    fn end(&self) {}
}

/// A cache that a controller reads.
pub trait Cache: Send + Sync {
    /// The kind of the cache, which events of the cache contain.
    fn kind(&self) -> CacheKind;

    /// Whether the cache has been filled at least once.
    fn is_synced(&self) -> bool;

    /// Returns the reason why the cache is not filled, if the reason is not a failure.
    fn idle(&self) -> Option<&'static str> {
        None
    }

    /// Returns the changes from now on. The first change of a cache of Kubernetes objects is [`Change::All`], once the
    /// cache is filled.
    fn changes(&self) -> BoxStream<'static, Change>;
}

impl Cache for Services {
    fn kind(&self) -> CacheKind {
        CacheKind::Services
    }

    fn is_synced(&self) -> bool {
        self.is_ready()
    }

    fn idle(&self) -> Option<&'static str> {
        (!self.is_ready() && self.is_refused()).then_some("idle: the API server refuses to list the services")
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        self.subscribe()
    }
}

impl Cache for Nodes {
    fn kind(&self) -> CacheKind {
        CacheKind::Nodes
    }

    fn is_synced(&self) -> bool {
        self.is_ready()
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        self.subscribe()
    }
}

/// The kind of a cache, by the objects that its keys name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// The Nodes.
    Nodes,
    /// The Services.
    Services,
    /// The Services for which the provider requests a resync.
    ProviderResyncs,
}

impl Display for CacheKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            CacheKind::Nodes => "nodes",
            CacheKind::Services => "services",
            CacheKind::ProviderResyncs => "load balancers",
        })
    }
}

/// The cause of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The object with this key in this cache was added, changed or deleted.
    Object(CacheKind, String),
    /// Any object of this cache may have changed.
    AllObjects(CacheKind),
    /// The instance of the Node with this name has changed.
    Instance(String),
    /// Any instance may have changed.
    AllInstances,
    /// The periodic resync, which covers missed events.
    Period,
}

/// Time of the next reconcile of a key. An event may cause an earlier reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requeue {
    /// Longest time until the next reconcile. `None` if the period, or the backoff after a failure, suffices.
    pub after: Option<Duration>,
    /// Whether the reconcile failed. The next one then comes after the backoff, which the period does not shorten.
    /// Otherwise, the failure count of the key is reset.
    pub counts_as_failure: bool,
}

impl Requeue {
    /// Not failed. The next reconcile comes with the period.
    pub const PERIOD: Self = Self { after: None, counts_as_failure: false };
    /// Failed. The next reconcile comes after the backoff.
    pub const BACKOFF: Self = Self { after: None, counts_as_failure: true };

    /// Not failed. The next reconcile comes after `delay`.
    pub const fn after(delay: Duration) -> Self {
        Self { after: Some(delay), ..Self::PERIOD }
    }

    /// Returns this value, but with the next reconcile after `delay` at the latest.
    pub fn or_after(self, delay: Duration) -> Self {
        Self { after: Some(self.after.map_or(delay, |other| other.min(delay))), ..self }
    }
}

impl<R: Reconciler> Controller<R> {
    /// Creates the controller. `begin_term` is called at the beginning of each leadership term.
    pub fn new(spec: Spec, begin_term: impl Fn() -> R + Send + Sync + 'static) -> Self {
        let (queue, side_queue) = (QueueMetrics::new(spec.queue), spec.side_queue.map(QueueMetrics::new));
        let running = running_gauge::series(spec.name);
        Self { spec, begin_term: Box::new(begin_term), current: CurrentTerm::default(), queue, side_queue, running }
    }

    /// Returns the access to the reconciler of each later term.
    pub fn current_term(&self) -> CurrentTerm<R> {
        self.current.clone()
    }

    /// Creates the reconciler of a new leadership term.
    pub fn begin_term(&self) -> R {
        (self.begin_term)()
    }

    /// Registers the metrics with `registry`. Fails if `registry` already has a collector with the same name.
    pub fn register(&mut self, registry: &Registry) -> Result<(), prometheus::Error> {
        for queue in std::iter::once(&self.queue).chain(&self.side_queue) {
            registry.register(Box::new(queue.clone()))?;
        }
        registry.register(Box::new(self.running.clone()))?;
        self.spec.metrics.drain(..).try_for_each(|metrics| registry.register(metrics))
    }

    /// Runs the controller whenever this process leads, until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = self.wait_until_due() => {}
            }
            let term = Arc::new(self.begin_term());
            self.current.0.lock().reconciler = Arc::downgrade(&term);
            tokio::select! {
                // `select!` drops the future of `lead`, and with it all queued and running work.
                () = self.wait_until_over() => {
                    *self.current.0.lock() = TermAccess::default();
                    term.end();
                }
                () = self.lead(&term, &stop) => return Ok(()),
            }
        }
    }

    /// Completes when this process leads and the provider has the capability. Logs once if the capability is missing.
    async fn wait_until_due(&self) {
        let Spec { leadership, capability, name, .. } = &self.spec;
        let mut is_idle = false;
        loop {
            leadership.wait_until_leader().await;
            let Some(capability) = capability else { return };
            if capability.is_present() {
                break;
            }
            if let Some(idle) = capability.idle().filter(|_| !is_idle) {
                tracing::info!(controller = name, "{idle}");
                is_idle = true;
            }
            tokio::select! {
                () = leadership.wait_until_lost() => {}
                () = capability.wait_until_present() => {}
            }
        }
        if is_idle {
            tracing::info!(controller = name, "no longer idle");
        }
    }

    /// Completes when leadership is lost, the provider loses the capability, or another object provides it.
    async fn wait_until_over(&self) {
        let idle = async {
            match &self.spec.capability {
                Some(capability) => capability.wait_until_another().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.spec.leadership.wait_until_lost() => {}
            () = idle => {}
        }
    }

    /// Works until `stop` is cancelled, then finishes the reconciles in progress.
    async fn lead(&self, term: &Arc<R>, stop: &CancellationToken) {
        let _works = RunningGauge::begin(&self.running);
        let queue = |metrics| Queue::new(self.spec.backoff, metrics);
        let queues = Queues { main: queue(&self.queue), side: self.side_queue.as_ref().map(queue) };
        self.current.0.lock().queues = Some(queues.clone());
        let of_main = (0..self.spec.workers).map(|_| work(term, &queues.main));
        let workers = of_main.chain(queues.side.iter().map(|queue| work(term, queue)));
        let feed = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = async {
                    if let Some(instances) = &self.spec.instances {
                        instances.refresh().await;
                    }
                    self.feed(term, &queues).await;
                } => {}
            }
            queues.main.close();
            queues.side.iter().for_each(Queue::close);
        };
        tokio::join!(feed, join_all(workers));
    }

    /// Enqueues the keys of events, of the period and of `next_key`. Never returns.
    async fn feed(&self, term: &R, queues: &Queues) {
        let add = |key: String| {
            let priority = term.priority(&key);
            queues.of(term, &key).add_with_priority(key, priority);
        };
        let mut events: SelectAll<_> = self.spec.caches.iter().map(|cache| events_of(&**cache)).collect();
        events.extend(self.spec.instances.as_ref().and_then(instance_events));
        let length = self.spec.period.max(SHORTEST_PERIOD);
        // The first tick comes after one period, because the first event of each cache already covers all its objects.
        let mut period = interval_at(Instant::now() + length, length);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = events.next() => term.keys_of(event).into_iter().for_each(add),
                key = term.next_key() => add(key),
                _ = period.tick() => {
                    let mut keys = term.keys_of(Event::Period);
                    keys.retain(|key| !queues.of(term, key).is_backing_off(key));
                    // Spreads the keys evenly, to avoid a burst of calls to the provider.
                    let step = length.div_f64(keys.len().max(1) as f64);
                    (0..).zip(keys).for_each(|(number, key)| queues.of(term, &key).add_after(key, step * number));
                }
            }
        }
    }
}

fn events_of(cache: &dyn Cache) -> BoxStream<'static, Event> {
    let kind = cache.kind();
    let event = move |change| match change {
        Change::Applied(key) | Change::Deleted(key) => Event::Object(kind, key),
        Change::All => Event::AllObjects(kind),
    };
    cache.changes().map(event).boxed()
}

fn instance_events(instances: &BoundedInstances) -> Option<BoxStream<'static, Event>> {
    let event = |event| match event {
        InstanceEvent::Node(name) => Event::Instance(name),
        InstanceEvent::All => Event::AllInstances,
    };
    Some(instances.provider.instance_events()?.subscribe().map(event).boxed())
}

async fn work(term: &Arc<impl Reconciler>, queue: &Queue<String>) {
    while let Some(key) = queue.next().await {
        let outcome = contain(Arc::clone(term).reconcile(key.clone())).await;
        let requeue = term.conclude(&key, outcome).await;
        match requeue.counts_as_failure {
            true => drop(queue.retry(key.clone())),
            false => queue.forget(&key),
        }
        if let Some(delay) = requeue.after {
            queue.add_after(key.clone(), delay);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Records the times of the reconciles. Each has the same result.
    struct Fixed {
        requeue: Requeue,
        times: Mutex<Vec<Instant>>,
    }

    impl Reconciler for Fixed {
        type Outcome = ();

        fn keys_of(&self, _: Event) -> Vec<String> {
            Vec::new()
        }

        async fn reconcile(self: Arc<Self>, _: String) {
            self.times.lock().push(Instant::now());
        }

        async fn conclude(self: &Arc<Self>, _: &str, _: Result<(), PanicError>) -> Requeue {
            self.requeue
        }
    }

    #[tokio::test(start_paused = true)]
    async fn readers_see_the_state_of_a_key_during_a_term_only() {
        let spec = Spec::new("test", Leadership::always(), Duration::from_secs(60), Vec::new());
        let fixed = || Fixed { requeue: Requeue::PERIOD, times: Mutex::default() };
        let controller = Controller::new(spec, fixed);
        let current = controller.current_term();
        assert_eq!(current.key_state("a"), None);
        let stop = CancellationToken::new();
        let mut run = std::pin::pin!(controller.run(stop.clone()));
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut run).await.is_err(), "it runs until the stop");
        assert_eq!(current.key_state("a"), Some(KeyState::Idle));
        stop.cancel();
        run.await.unwrap();
        assert_eq!(current.key_state("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_retried_after_its_backoff_or_earlier_if_the_controller_says_so() {
        let seconds = Duration::from_secs;
        for (requeue, expected) in [
            (Requeue::PERIOD, vec![0]),
            (Requeue::after(seconds(7)), vec![0, 7, 14, 21, 28]),
            (Requeue::after(seconds(7)).or_after(seconds(9)), vec![0, 7, 14, 21, 28]),
            (Requeue::BACKOFF, vec![0, 2, 6, 14]),
            (Requeue::BACKOFF.or_after(seconds(5)), vec![0, 2, 6, 11, 16, 21, 26]),
        ] {
            let (began, term) = (Instant::now(), Arc::new(Fixed { requeue, times: Mutex::default() }));
            let queue = Queue::new(Backoff::doubling(seconds(2), seconds(60)), &QueueMetrics::new("test"));
            queue.add("a".to_owned());
            assert!(tokio::time::timeout(seconds(29), work(&term, &queue)).await.is_err(), "it ends with the queue");
            let times: Vec<u64> = term.times.lock().iter().map(|at| at.duration_since(began).as_secs()).collect();
            assert_eq!(times, expected, "{requeue:?}");
        }
    }
}
