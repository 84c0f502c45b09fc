//! The pause of deletions in all replicas, and their last deletions: reads the Lease, orders and ends a pause, announces
//! it, and adds deletions.
//!
//! The live read of the leader right before each deletion decides. The deletion has to be over [`WINDOW`] after that
//! read began. A pause is acknowledged when its write is older than that, so that no deletion overtakes it. The reads in
//! between are for users: reasons, metrics and commands.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::deletion_history::{self, MAX_DELETIONS, PastDeletion};
use super::deletion_pause::{self, DeletionPause, PauseAnnotations};
use super::recent_deletions::NodeDeletion;
use crate::base::error_chain::chain;
use crate::kubernetes::call::CallError;
use crate::kubernetes::deletion_lease::{DeletionLease, LeaseReading};
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::patch::permits_retry;
use crate::kubernetes::request_window::RequestWindow;
use crate::runtime::metrics::ComputedGauge;
use crate::runtime::tasks::BoxError;

/// Time from the beginning of the live read to the end of the deletion.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Additional time before a pause is acknowledged, in which the API server finishes a deletion that it has received.
const MARGIN: Duration = Duration::from_secs(2);

/// Interval of the reads for users.
const READ_PERIOD: Duration = Duration::from_secs(30);

/// Permission to send one deletion: the Lease was read live. Whether the deletion is paused is a rule of the deletion
/// policy, which has to know the result of that read.
#[derive(Debug)]
#[must_use]
pub struct DeletionWindow(RequestWindow);

impl DeletionWindow {
    /// Runs the request of the deletion within the window. See [`RequestWindow::limited`].
    pub async fn limited<T>(&self, what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        self.0.limited(what, call).await
    }
}

/// The pause as this process knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseReport {
    /// The pause; `None` if deletions do not pause, or nothing was read yet.
    pub pause: Option<DeletionPause>,
    /// Whether the Lease was read at least once.
    pub is_known: bool,
    /// Error of the last read, if it failed. Until a read succeeds, nothing is deleted.
    pub failure: Option<String>,
}

/// Reason why a pause was not ordered or ended.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// The order is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The API server's answer has no time.
    #[error(
        "the response of the API server has no Date header, so the end of the pause cannot be computed from its \
             clock"
    )]
    NoServerTime,
    /// Another client has changed the annotations before the pause was acknowledged.
    #[error("another client has changed or removed the pause at the same time")]
    Overwritten,
    /// The Lease cannot be read or written. The pause may have been written nevertheless.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// The pause of deletions as the replicas share it.
pub struct PauseMonitor {
    lease: DeletionLease,
    recorder: Recorder,
    leadership: Leadership,
    /// Host of this replica.
    host: String,
    state: Mutex<MonitorState>,
    /// Wakes the task that adds deletions to the Lease.
    added: Notify,
}

#[derive(Default)]
struct MonitorState {
    last: Option<PauseReading>,
    failure: Option<String>,
    /// The last announced pause.
    announced: Option<DeletionPause>,
    /// Deletions by this process that the Lease does not have yet, up to [`MAX_DELETIONS`].
    unwritten: VecDeque<PastDeletion>,
}

struct PauseReading {
    annotations: PauseAnnotations,
    server_time: Option<Timestamp>,
    began: Instant,
    uid: Option<String>,
    deletions: Vec<PastDeletion>,
}

impl PauseReading {
    fn of(reading: &LeaseReading) -> Self {
        let annotations = reading.annotations();
        Self {
            annotations: PauseAnnotations::of(&annotations),
            deletions: deletion_history::past_deletions(&annotations),
            server_time: reading.server_time,
            began: reading.began,
            uid: reading.uid().map(str::to_owned),
        }
    }

    /// Returns the pause at the present time of the API server's clock, which is not before the time of the answer.
    fn pause(&self) -> Option<DeletionPause> {
        self.annotations.pause_at(self.server_time)
    }

    /// Returns the pause for users: the time since the read counts, too.
    fn pause_by_now(&self) -> Option<DeletionPause> {
        let server_time = self.server_time.and_then(|time| time.checked_add(self.began.elapsed()).ok());
        self.annotations.pause_at(server_time)
    }
}

impl PauseMonitor {
    /// Creates the monitor of the replica on this host. The leader among the replicas writes the Events.
    pub fn new(lease: DeletionLease, recorder: Recorder, leadership: Leadership, host: &str) -> Self {
        let host = host.to_owned();
        Self { lease, recorder, leadership, host, state: Mutex::default(), added: Notify::new() }
    }

    /// Returns the metric of the pause, which standbys have, too.
    pub fn metric(self: &Arc<Self>) -> ComputedGauge {
        let monitor = Arc::clone(self);
        let help = "1 while an operator has paused the deletion of Nodes, also if the annotation cannot be read.";
        ComputedGauge::new("vsphere_ccm_node_deletions_paused", help, move || usize::from(monitor.pause().is_some()))
    }

    /// Returns the namespace of the Lease.
    pub fn namespace(&self) -> &str {
        self.lease.namespace()
    }

    /// Returns the pause by the last read. Only for users: the live read decides about a deletion.
    pub fn pause(&self) -> Option<DeletionPause> {
        self.state.lock().last.as_ref().and_then(PauseReading::pause_by_now)
    }

    /// Returns the pause, and whether it can be read.
    pub fn report(&self) -> PauseReport {
        let state = self.state.lock();
        PauseReport {
            pause: state.last.as_ref().and_then(PauseReading::pause_by_now),
            is_known: state.last.is_some(),
            failure: state.failure.clone(),
        }
    }

    /// Reads the Lease for one deletion. Returns the pause, and the permission to send the deletion unless it pauses.
    ///
    /// # Errors
    /// The Lease cannot be read. Nothing may then be deleted.
    pub async fn read_live(&self) -> Result<(Option<DeletionPause>, DeletionWindow), CallError> {
        let window = RequestWindow::open(WINDOW);
        let reading = self.read().await?;
        let pause = PauseReading::of(&reading).pause();
        Ok((pause, DeletionWindow(window)))
    }

    /// Returns the last deletions of all replicas by the last read of the Lease, the oldest one first.
    pub fn past_deletions(&self) -> Vec<PastDeletion> {
        self.state.lock().last.as_ref().map(|last| last.deletions.clone()).unwrap_or_default()
    }

    /// Takes a deletion by this process, also one without an answer, for the Lease. Does not wait: the task of
    /// [`PauseMonitor::run`] writes it. The deletion is lost if the process ends before.
    pub fn add_deletion(&self, deletion: &NodeDeletion) {
        let deletion = PastDeletion {
            node: deletion.node.clone(),
            uid: deletion.uid.clone(),
            time: deletion.proof_began,
            replica: self.host.clone(),
            proof: deletion.proof.to_string(),
            is_unanswered: !deletion.is_confirmed,
        };
        let mut state = self.state.lock();
        state.unwritten.push_back(deletion);
        if state.unwritten.len() > MAX_DELETIONS {
            state.unwritten.pop_front();
        }
        drop(state);
        self.added.notify_one();
    }

    /// Reads the Lease every 30 s, for users, and adds deletions to it. Never ends.
    ///
    /// # Errors
    /// None: the result has the type of a task.
    pub async fn run(self: Arc<Self>) -> Result<(), BoxError> {
        loop {
            // The state has the error.
            let _ = self.read().await;
            // A deletion ends the wait, and so does the period.
            let _ = timeout(READ_PERIOD, self.added.notified()).await;
            self.write_deletions().await;
        }
    }

    /// Adds the deletions that the Lease does not have yet. Those that cannot be written now are tried again after the
    /// next read.
    async fn write_deletions(&self) {
        let unwritten: Vec<PastDeletion> = self.state.lock().unwritten.iter().cloned().collect();
        if unwritten.is_empty() {
            return;
        }
        match self.append(&unwritten).await {
            Ok(()) => self.state.lock().unwritten.retain(|deletion| !unwritten.contains(deletion)),
            Err(error) => tracing::debug!("deletions are not on the Lease yet: {}", chain(&error)),
        }
    }

    async fn append(&self, deletions: &[PastDeletion]) -> Result<(), CallError> {
        let mut attempts = 0;
        loop {
            let reading = self.lease.read().await?;
            let mut annotations = reading.annotations();
            deletion_history::add_deletions(&mut annotations, deletions);
            match self.lease.write(&reading, annotations).await {
                Err(error) if permits_retry(&mut attempts, &error).await => {}
                written => return written,
            }
        }
    }

    /// Pauses deletions for `length`, in place of an earlier pause. Returns the end once no deletion is under way: 12 s
    /// after the write.
    ///
    /// # Errors
    /// The pause is not acknowledged. It may have been written nevertheless.
    pub async fn start_pause(&self, length: Duration, cause: &str) -> Result<Timestamp, PauseError> {
        deletion_pause::check_order(length, cause).map_err(PauseError::Invalid)?;
        let mut attempts = 0;
        let until = loop {
            let reading = self.lease.read().await?;
            let server_time = reading.server_time.ok_or(PauseError::NoServerTime)?;
            let until = deletion_pause::end_of_pause(server_time, length);
            let mut annotations = reading.annotations();
            deletion_pause::add_pause(&mut annotations, until, cause);
            match self.lease.write(&reading, annotations).await {
                Ok(()) => break until,
                Err(error) if permits_retry(&mut attempts, &error).await => {}
                Err(error) => return Err(error.into()),
            }
        };
        let written = Instant::now();
        tracing::info!("the deletion of Nodes was paused by a command until {until}: {cause}");
        // The state has the error.
        let _ = self.read().await;
        sleep_until(written + WINDOW + MARGIN).await;
        let reading = self.read().await?;
        match PauseReading::of(&reading).pause() {
            Some(DeletionPause::Until { until: found, .. }) if found == until => Ok(until),
            _ => Err(PauseError::Overwritten),
        }
    }

    /// Ends the pause. Returns whether there was one.
    ///
    /// # Errors
    /// The Lease cannot be read or written. The pause may have been ended nevertheless.
    pub async fn end_pause(&self) -> Result<bool, PauseError> {
        let mut attempts = 0;
        loop {
            let reading = self.lease.read().await?;
            let mut annotations = reading.annotations();
            if !deletion_pause::remove_pause(&mut annotations) {
                self.record(&reading);
                return Ok(false);
            }
            match self.lease.write(&reading, annotations).await {
                Ok(()) => break,
                Err(error) if permits_retry(&mut attempts, &error).await => {}
                Err(error) => return Err(error.into()),
            }
        }
        tracing::info!("the pause of the deletion of Nodes was ended by a command");
        // The state has the error.
        let _ = self.read().await;
        Ok(true)
    }

    /// Reads the Lease, and records the result.
    async fn read(&self) -> Result<LeaseReading, CallError> {
        match self.lease.read().await {
            Ok(reading) => {
                self.record(&reading);
                Ok(reading)
            }
            Err(error) => {
                let failure = chain(&error);
                if self.state.lock().failure.replace(failure.clone()).is_none() {
                    tracing::warn!("no Node is deleted while it is not known whether deletions pause: {failure}");
                }
                Err(error)
            }
        }
    }

    /// Records a reading, unless a later one is known, and announces a change of the pause.
    fn record(&self, reading: &LeaseReading) {
        let mut state = self.state.lock();
        if state.failure.take().is_some() {
            tracing::info!("it is known again whether deletions of Nodes pause");
        }
        if state.last.as_ref().is_some_and(|last| last.began > reading.began) {
            return;
        }
        let last = state.last.insert(PauseReading::of(reading));
        let uid = last.uid.clone();
        let pause = last.pause_by_now();
        if state.announced == pause {
            return;
        }
        state.announced.clone_from(&pause);
        drop(state);
        self.announce(pause.as_ref(), uid);
    }

    /// Writes a change of the pause to the log, and as Event on the Lease if this process leads.
    fn announce(&self, pause: Option<&DeletionPause>, uid: Option<String>) {
        let (event_type, reason, message) = match pause {
            None => (EventType::Normal, "NodeDeletionsResumed", "the deletion of Nodes is no longer paused".to_owned()),
            Some(pause @ DeletionPause::Until { .. }) => {
                (EventType::Normal, "NodeDeletionsPaused", format!("no Node is deleted {pause}"))
            }
            Some(pause @ DeletionPause::Unreadable { .. }) => {
                let message = format!("no Node is deleted, because a pause cannot be read: {pause}");
                (EventType::Warning, "NodeDeletionsPaused", message)
            }
        };
        tracing::info!(reason, "{message}");
        if self.leadership.is_leader() {
            self.recorder.event(&self.lease.reference(uid), event_type, reason, &message);
        }
    }
}
