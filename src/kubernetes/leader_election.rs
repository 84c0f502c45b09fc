//! Leader election with client-go's algorithm: acquires, renews and releases the Lease, and provides the leadership.
//!
//! Differences from client-go: leadership ends at the renew deadline, which counts from before the last successful
//! renewal was sent. A process that loses leadership becomes a standby again. A stopping process releases the Lease.

mod config;
mod health;
mod reading;
mod record;
mod standby;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use prometheus::{IntCounterVec, IntGaugeVec};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::{CallError, limited};
use super::events::{EventType, Recorder};
use super::leadership::{Holder, Leadership, SendTime, WallClock};
use crate::base::error_chain::chain;
use crate::cloud::{ClusterEvents, Reason};
use crate::runtime::metrics::{Registry, counter_vec, int_gauge_vec, metrics};
use crate::runtime::tasks::BoxError;
use config::ACQUIRE_JITTER;
pub use config::{InvalidLease, LeaseConfig, identity};
pub use health::RenewalCheck;
pub use reading::{ElectionReading, read_lease};
use record::{LeaseDecision, Observation};
use standby::{LeaseObservation, ReleaseWatch};

const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Number of consecutive failed attempts per log line.
const LOG_EVERY: u32 = 30;

/// Candidate for the Lease. [`LeaderElector::run`] competes until it is stopped.
pub struct LeaderElector {
    api: Api<Lease>,
    config: LeaseConfig,
    holder: Holder,
    observed: Option<Observation>,
    /// The Lease as it was last read or written. The next write uses its resourceVersion.
    last: Option<Lease>,
    /// Whether a write was sent that may have acquired the Lease.
    may_have_acquired: bool,
    failures: u32,
    /// Creation time of the candidate. Times of observations count from this time.
    began: Instant,
    recorder: Option<Recorder>,
    status: watch::Sender<LeaseStatus>,
    metrics: ElectionMetrics,
}

/// The Lease as this candidate last read or wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseStatus {
    /// Identity of the holder; `None` without a holder, or before the first read.
    pub holder: Option<String>,
    /// Time at which the holder acquired the Lease, by the clock of the holder.
    pub acquired: Option<Timestamp>,
    /// Time of the last read or write; `None` before the first one.
    pub read: Option<Instant>,
    /// Time at which this candidate saw the record change, so that the holder had renewed the Lease by then.
    pub renewed: Option<Instant>,
    /// Time without a renewal after which other candidates may acquire the Lease, from the record.
    pub duration: Option<Duration>,
}

enum Attempt {
    /// This process holds the Lease, by a write that was sent at this time.
    Ours(SendTime),
    /// Another process holds the Lease, at least until `until`.
    HeldBy { holder: String, until: Instant },
}

enum End {
    Stopped,
    Taken(String),
    Deadline,
}

impl LeaderElector {
    /// Creates a candidate and its leadership. Fails if `config` is invalid. `client` must not retry.
    pub fn new(client: Client, config: LeaseConfig) -> Result<(Self, Leadership), InvalidLease> {
        Self::by_clock(client, config, WallClock::default())
    }

    fn by_clock(
        client: Client,
        config: LeaseConfig,
        wall_clock: WallClock,
    ) -> Result<(Self, Leadership), InvalidLease> {
        config.validate()?;
        let (holder, leadership) = Holder::with_clock(wall_clock);
        let api = Api::namespaced(client, &config.namespace);
        let elector = Self {
            api,
            config,
            holder,
            observed: None,
            last: None,
            may_have_acquired: false,
            failures: 0,
            began: Instant::now(),
            recorder: None,
            status: watch::Sender::default(),
            metrics: ElectionMetrics::default(),
        };
        elector.show(false);
        Ok((elector, leadership))
    }

    /// Returns the state of the Lease, also after later reads and writes. Only another holder counts as a change.
    pub fn status(&self) -> watch::Receiver<LeaseStatus> {
        self.status.subscribe()
    }

    /// Records Events on the Lease when the leader changes.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Shares the metrics of `other`, which registers them.
    #[must_use]
    pub fn counted_with(mut self, other: &Self) -> Self {
        self.metrics = other.metrics.clone();
        self.show(false);
        self
    }

    /// Registers `leader_election_master_status` and `leader_election_slowpath_total`.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.metrics.clone()))
    }

    /// Competes, leads, and competes again. On `stop`, ends the term and releases the Lease. The caller must end all
    /// work under the leadership before `stop`. Returns only after `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), BoxError> {
        self.compete(&stop).await;
        Ok(())
    }

    /// As [`LeaderElector::run`], but competes only while this process also has the leadership `main`. If `main` is
    /// lost, this term ends as well and its Lease is released, so that the next leader gets both Leases.
    pub async fn run_under(mut self, main: Leadership, stop: CancellationToken) -> Result<(), BoxError> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = main.wait_until_leader() => {}
            }
            let over = stop.child_token();
            let watch = async {
                tokio::select! {
                    () = main.wait_until_lost() => over.cancel(),
                    () = over.cancelled() => {}
                }
            };
            tokio::join!(self.compete(&over), watch);
        }
    }

    async fn compete(&mut self, stop: &CancellationToken) {
        let mut release = ReleaseWatch::new(&self.api, &self.config.name);
        while let Some(sent) = self.acquire(&mut release, stop).await {
            release.close();
            self.holder.begin(sent, self.config.renew_deadline);
            self.show(true);
            self.record_event("became leader");
            let end = self.lead(stop).await;
            self.holder.end();
            self.show(false);
            match end {
                End::Stopped => {
                    self.release().await;
                    self.record_event("stopped leading");
                    return;
                }
                End::Taken(holder) => {
                    tracing::error!(lease = self.config.name, %holder, "another process took the Lease; this process \
                                                                        is now a standby");
                }
                End::Deadline => {
                    let lease = &self.config.name;
                    tracing::error!(lease, "the Lease could not be renewed in time; this process is now a standby");
                }
            }
            self.record_event("stopped leading");
        }
        // A write without an answer may have acquired the Lease.
        if self.may_have_acquired {
            self.release().await;
        }
    }

    /// Tries until this process holds the Lease. Returns `None` on `stop`. Never cancels an attempt, because the
    /// attempt may acquire the Lease.
    async fn acquire(&mut self, release: &mut ReleaseWatch, stop: &CancellationToken) -> Option<SendTime> {
        loop {
            if stop.is_cancelled() {
                return None;
            }
            let mut next = Instant::now() + self.config.retry_period.mul_f64(1.0 + ACQUIRE_JITTER * fastrand::f64());
            match self.attempt(self.config.renew_deadline).await {
                // The caller releases the Lease.
                Ok(Attempt::Ours(_)) if stop.is_cancelled() => return None,
                Ok(Attempt::Ours(sent)) if sent.elapsed() < self.config.renew_deadline => return Some(sent),
                Ok(Attempt::Ours(_)) => continue,
                Ok(Attempt::HeldBy { holder, until }) => {
                    tracing::debug!(lease = self.config.name, %holder, "standing by");
                    self.failures = 0;
                    next = next.min(until);
                }
                // Another candidate was faster, which is normal.
                Err(error) if error.is_conflict() => tracing::debug!("{}", chain(&error)),
                Err(error) => self.report_failure(&error),
            }
            if !self.pause(next, release, stop).await {
                return None;
            }
        }
    }

    /// Waits until `next`, or until the Lease is released. Returns false on `stop`.
    async fn pause(&mut self, next: Instant, release: &mut ReleaseWatch, stop: &CancellationToken) -> bool {
        loop {
            let version = self.last.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep_until(next) => return true,
                heard = release.next(version) => match heard {
                    // The lease duration counts from this observation. Without it, the duration would count from the
                    // next attempt.
                    LeaseObservation::Written(lease) => self.observe(*lease),
                    LeaseObservation::GivenUp => {
                        tracing::debug!("the lease was given up");
                        return true;
                    }
                },
            }
        }
    }

    fn observe(&mut self, lease: Lease) {
        self.update_observation(&lease.spec.clone().unwrap_or_default());
        self.remember(lease);
    }

    fn remember(&mut self, lease: Lease) {
        let spec = lease.spec.as_ref();
        let observed = self.observed.as_ref();
        let status = LeaseStatus {
            holder: spec.and_then(record::holder).map(str::to_owned),
            acquired: spec.and_then(|spec| spec.acquire_time.as_ref()).map(|time| time.0),
            read: observed.map(|observed| self.began + observed.last_read),
            renewed: observed.map(|observed| self.began + observed.observed_at),
            duration: spec.and_then(record::lease_duration),
        };
        self.status.send_if_modified(|known| {
            // A renewal wakes no reader.
            let is_changed = known.holder != status.holder || known.acquired != status.acquired;
            *known = status;
            is_changed
        });
        self.last = Some(lease);
    }

    /// Updates and returns the observation. `spec` is the Lease's spec; it is empty if there is no Lease.
    fn update_observation(&mut self, spec: &LeaseSpec) -> Observation {
        let observed = record::observe(self.observed.take(), spec, self.began.elapsed(), self.config.lease_duration);
        self.observed = Some(observed.clone());
        observed
    }

    fn decide(&self, observed: &Observation) -> LeaseDecision {
        let candidate = record::Candidate {
            identity: &self.config.identity,
            lease_duration: self.config.lease_duration,
            is_leader: self.holder.is_held(),
        };
        record::decide(candidate, observed, self.began.elapsed(), Timestamp::now())
    }

    async fn lead(&mut self, stop: &CancellationToken) -> End {
        let mut next = Instant::now() + self.config.retry_period;
        loop {
            let Some(ends) = self.holder.ends() else { return End::Deadline };
            tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopped,
                () = tokio::time::sleep_until(next.min(ends)) => {}
            }
            let Some(ends) = self.holder.ends() else { return End::Deadline };
            next = Instant::now() + self.config.retry_period;
            let limit = ends.saturating_duration_since(Instant::now());
            // Cancelling a renewal in flight is safe: it has the same resourceVersion as the release, so only one of
            // the two can succeed.
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopped,
                outcome = self.attempt(limit) => outcome,
            };
            match outcome {
                Ok(Attempt::Ours(sent)) if self.holder.extend(sent, self.config.renew_deadline) => {}
                Ok(Attempt::Ours(_)) => return End::Deadline,
                Ok(Attempt::HeldBy { holder, .. }) => return End::Taken(holder),
                Err(error) => self.report_failure(&error),
            }
        }
    }

    /// Runs one round of `tryAcquireOrRenew` within `limit`.
    async fn attempt(&mut self, limit: Duration) -> Result<Attempt, CallError> {
        let deadline = Instant::now() + limit;
        if let Some(sent) = self.renew_from_memory(deadline).await {
            return Ok(self.succeeded(sent));
        }
        let what = format!("get lease {}", self.config.name);
        let lease = match limited(&what, self.remaining(deadline), self.api.get(&self.config.name)).await {
            Err(error) if error.is_not_found() => {
                // The Lease was deleted. Its last holder may still lead for the remaining lease duration.
                let deleted = self.observed.is_some().then(|| self.update_observation(&LeaseSpec::default()));
                return match deleted.map(|observed| self.decide(&observed)) {
                    Some(LeaseDecision::HeldBy { holder, until }) => {
                        Ok(Attempt::HeldBy { holder, until: self.began + until })
                    }
                    _ => self.create(deadline).await,
                };
            }
            answer => answer?,
        };
        let observed = self.update_observation(&lease.spec.clone().unwrap_or_default());
        self.remember(lease.clone());
        match self.decide(&observed) {
            LeaseDecision::HeldBy { holder, until } => {
                self.may_have_acquired = false;
                Ok(Attempt::HeldBy { holder, until: self.began + until })
            }
            LeaseDecision::Renew(spec) | LeaseDecision::TakeOver(spec) => {
                let sent = self.replace(lease, spec, deadline).await?;
                Ok(self.succeeded(sent))
            }
        }
    }

    /// Renews with a single write, based on the record of the last read or write. Returns `None` if this process does
    /// not lead, the record is not to be renewed, or the write failed. The Lease must then be read.
    async fn renew_from_memory(&mut self, deadline: Instant) -> Option<SendTime> {
        if !self.holder.is_held() {
            return None;
        }
        let (lease, observed) = (self.last.clone()?, self.observed.clone()?);
        match self.decide(&observed) {
            LeaseDecision::Renew(spec) => match self.replace(lease, spec, deadline).await {
                Ok(sent) => Some(sent),
                Err(error) => {
                    tracing::debug!("{}; reading it first", chain(&error));
                    self.metrics.slow_path.with_label_values(&[&self.config.name]).inc();
                    None
                }
            },
            _ => None,
        }
    }

    async fn create(&mut self, deadline: Instant) -> Result<Attempt, CallError> {
        let spec = record::first_record(&self.config.identity, self.config.lease_duration, Timestamp::now());
        let metadata = ObjectMeta {
            name: Some(self.config.name.clone()),
            namespace: Some(self.config.namespace.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease { metadata, spec: Some(spec) };
        let what = format!("create lease {}", self.config.name);
        let sent = self.about_to_write();
        let answer = limited(&what, self.remaining(deadline), self.api.create(&PostParams::default(), &lease)).await;
        self.written(answer)?;
        Ok(self.succeeded(sent))
    }

    async fn replace(&mut self, mut lease: Lease, spec: LeaseSpec, deadline: Instant) -> Result<SendTime, CallError> {
        lease.spec = Some(spec);
        let what = format!("update lease {}", self.config.name);
        let sent = self.about_to_write();
        let parameters = PostParams::default();
        let call = self.api.replace(&self.config.name, &parameters, &lease);
        let answer = limited(&what, self.remaining(deadline), call).await;
        self.written(answer)?;
        Ok(sent)
    }

    fn about_to_write(&mut self) -> SendTime {
        self.may_have_acquired = true;
        self.holder.sends_now()
    }

    fn written(&mut self, answer: Result<Lease, CallError>) -> Result<(), CallError> {
        match answer {
            Ok(lease) => {
                // The record was written just now, so its observation starts now.
                self.observed = None;
                self.observe(lease);
                Ok(())
            }
            Err(error) => {
                // A rejected write did not acquire the Lease. After a conflict, this process may still have acquired
                // the Lease by an earlier write, whose answer was lost.
                if error.is_refusal() && !error.is_conflict() && !self.holder.is_held() {
                    self.may_have_acquired = false;
                }
                Err(error)
            }
        }
    }

    fn succeeded(&mut self, sent: SendTime) -> Attempt {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "the lease can be written again");
        }
        self.failures = 0;
        Attempt::Ours(sent)
    }

    /// Clears the Lease's holder if this process is the holder. If the write fails, other candidates wait for the lease
    /// duration.
    async fn release(&mut self) {
        let deadline = Instant::now() + RELEASE_LIMIT;
        let outcome = async {
            if let Some(lease) = self.last.clone()
                && let Ok(true) = self.clear_holder(lease, deadline).await
            {
                return Ok(true);
            }
            let what = format!("get lease {}", self.config.name);
            let lease = limited(&what, self.remaining(deadline), self.api.get(&self.config.name)).await?;
            self.clear_holder(lease, deadline).await
        };
        match outcome.await {
            Ok(true) => tracing::info!(lease = self.config.name, "the lease is given up"),
            Ok(false) => tracing::debug!("there is no lease to give up"),
            Err(error) => return tracing::warn!("{}", chain(&error)),
        }
        self.may_have_acquired = false;
    }

    /// Returns false if another process holds the Lease.
    async fn clear_holder(&mut self, lease: Lease, deadline: Instant) -> Result<bool, CallError> {
        let held = lease.spec.clone().unwrap_or_default();
        if record::holder(&held) != Some(self.config.identity.as_str()) {
            return Ok(false);
        }
        let spec = record::released_record(&held, Timestamp::now());
        self.replace(lease, spec, deadline).await.map(|_| true)
    }

    fn remaining(&self, deadline: Instant) -> Duration {
        let most = (self.config.renew_deadline / 2).max(Duration::from_secs(1));
        deadline.saturating_duration_since(Instant::now()).min(most)
    }

    fn record_event(&self, what: &str) {
        tracing::info!(identity = self.config.identity, lease = self.config.name, "{what}");
        if let Some(recorder) = &self.recorder {
            let message = format!("{} {what}", self.config.identity);
            recorder.event(&self.reference(), EventType::Normal, "LeaderElection", &message);
        }
    }

    fn reference(&self) -> ObjectReference {
        let ObjectMeta { uid, resource_version, .. } =
            self.last.as_ref().map(|lease| lease.metadata.clone()).unwrap_or_default();
        let reference = reference(&self.config.namespace, &self.config.name, uid);
        ObjectReference { resource_version, ..reference }
    }

    fn show(&self, leads: bool) {
        self.metrics.status.with_label_values(&[&self.config.name]).set(leads.into());
    }

    fn report_failure(&mut self, error: &CallError) {
        if self.failures.is_multiple_of(LOG_EVERY) {
            tracing::warn!(failures = self.failures + 1, "{}", chain(error));
        }
        self.failures = self.failures.saturating_add(1);
    }
}

metrics! {
    /// Metrics of the candidates of this process, with the Go program's names.
    struct ElectionMetrics {
        status: IntGaugeVec = int_gauge_vec("leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
             'name' is the string used to identify the lease. Please make sure to group by name.", &["name"]),
        slow_path: IntCounterVec = counter_vec("leader_election_slowpath_total",
            "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the \
             lease. Please make sure to group by name.", &["name"]),
    }
}

const UID_LIMIT: Duration = Duration::from_secs(5);

/// Recorder of Events about the cluster. Their object is the Lease of the election, which need not exist.
pub struct LeaseEvents {
    /// Client that reads the Lease.
    pub client: Client,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Recorder of the Events.
    pub recorder: Recorder,
}

impl LeaseEvents {
    /// Returns the object reference for Events. Without the Lease's UID, which is missing if the Lease cannot be read,
    /// `kubectl describe` does not show the Events.
    pub async fn reference(&self) -> ObjectReference {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        let what = format!("get lease {}/{}", self.namespace, self.name);
        let metadata = limited(&what, UID_LIMIT, leases.get(&self.name)).await.map(|lease| lease.metadata).ok();
        reference(&self.namespace, &self.name, metadata.and_then(|metadata| metadata.uid))
    }
}

#[async_trait]
impl ClusterEvents for LeaseEvents {
    async fn warn(&self, reason: Reason, message: &str) {
        self.recorder.event(&self.reference().await, EventType::Warning, reason.as_str(), message);
    }
}

/// Returns the reference to a Lease for Events.
pub(in crate::kubernetes) fn reference(namespace: &str, name: &str, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid,
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
