//! Shared watch implementation: opens a watch, reads its events, detects its end, and repeats the rounds around it.
//!
//! `stores` lists and watches all objects of a kind. [`object`] reads and watches one object by name (Secrets and a
//! ConfigMap). A standby watches its Lease from the version of the last read.
//!
//! `watcher` of kube-runtime 5.0 with `DeserializeGuard` does not fit:
//! - It begins with a list, for which a Role needs `list`, or with a streaming list. It repeats the streaming list
//!   forever if the API server rejects streaming (422, the default of Kubernetes 1.33). It cannot start from a known
//!   version, and cannot poll.
//! - After an undecodable event of a streaming list, it reports the list as complete. An existing Node would be taken
//!   for deleted. `DeserializeGuard` helps only if the metadata can be decoded, and stores the whole object twice
//!   before pruning.
//! - If a watch ends immediately, it reopens the watch without a pause. It has no time limit for a page of a list or
//!   for the opening of a watch. Every watch has the same timeout, so all replicas reconnect together.

pub mod object;

use std::convert::Infallible;
use std::ops::Range;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::Client;
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use kube::core::watch::Bookmark;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::call::{CallError, limited};
use crate::base::backoff::{Backoff, Failures};

/// A silent watch counts as dead this long after its announced end.
const IDLE_MARGIN: Duration = Duration::from_secs(5);

/// Minimum interval between the starts of two rounds, because some proxies close watches immediately.
const FLOOR: Duration = Duration::from_secs(1);

const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(800), Duration::from_secs(30)).lengthened_by(1.0);

/// Pause after a forbidden watch.
pub const PAUSE_FORBIDDEN: Duration = Duration::from_secs(300);

/// Time limits of a watch.
#[derive(Debug)]
pub struct WatchPolicy {
    /// Range of the watch timeout, in seconds. Each watch uses a random timeout, so that replicas do not reconnect in
    /// step. The range is short, because HTTP/1.1 has no pings: a dead peer is noticed only when the watch should end.
    pub seconds: Range<u32>,
    /// Time limit of opening the watch, including the client's own retries.
    pub call_limit: Duration,
    /// Whether events extend a watch beyond its announced end.
    pub is_extended_by_events: bool,
}

/// Client, objects and settings of a watch.
pub struct WatchTarget {
    pub client: Client,
    /// Path of the collection.
    pub url: String,
    /// Name of the object or kind in messages.
    pub shown: String,
    /// Selectors and other parameters.
    pub parameters: WatchParams,
    pub policy: &'static WatchPolicy,
}

/// An event of a watch.
pub enum Event<K> {
    /// The object was added or changed.
    Applied(K),
    /// The object was deleted, or is no longer selected.
    Deleted(K),
    /// A newer version from which a watch can continue.
    Bookmark(Bookmark),
}

/// An open watch.
pub struct EventStream<K> {
    events: BoxStream<'static, kube::Result<WatchEvent<K>>>,
    idle: Duration,
    /// Time at which the watch counts as dead.
    ends: Instant,
    is_extended_by_events: bool,
}

/// Reason for a failed round.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the watch was refused: {message} ({code})")]
    Refused { code: u16, message: String },
    #[error("the watch broke")]
    Broken(#[source] Box<kube::Error>),
    #[error("the watch was silent for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the list has no resourceVersion")]
    NoVersion,
    #[error("the watch ended before its list was complete")]
    Incomplete,
    #[error("a part of the streaming list cannot be read; listing in pages")]
    Unreadable(#[source] Box<kube::Error>),
}

/// End of a round without failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundEnd {
    /// The round succeeded, so earlier failures are reset.
    Done,
    /// The version to continue from is too old. The next round lists again, and earlier failures still count.
    Outdated,
}

/// Rounds for [`repeat`].
pub trait Rounds {
    /// Reads the current state, then watches it until the server ends the watch.
    fn round(&mut self) -> impl Future<Output = Result<RoundEnd, Failure>> + Send;

    /// Handles a failed round. The next round follows after `retry_in`.
    fn failed(&mut self, failure: Failure, retry_in: Duration);
}

/// Repeats the rounds forever: at most one per second, with backoff after failures. A failed round that lasted at least
/// `worked` resets the backoff.
pub async fn repeat(mut rounds: impl Rounds, worked: Duration) -> Infallible {
    let mut failures = Failures::default();
    loop {
        let start = Instant::now();
        match rounds.round().await {
            Ok(RoundEnd::Done) => failures.reset(),
            Ok(RoundEnd::Outdated) => {}
            Err(failure) => {
                if start.elapsed() >= worked {
                    failures.reset();
                }
                let pause = failures.next_pause(&BACKOFF, fastrand::f64());
                rounds.failed(failure, pause);
                tokio::time::sleep(pause).await;
            }
        }
        tokio::time::sleep_until(start + FLOOR).await;
    }
}

impl WatchTarget {
    /// Opens a watch from `version`. An empty version begins with the current state, as a streaming list if `is_list`.
    pub async fn open<K>(&self, version: &str, is_list: bool) -> Result<EventStream<K>, CallError>
    where
        K: Clone + DeserializeOwned + Send + 'static,
    {
        let seconds = fastrand::u32(self.policy.seconds.clone());
        let parameters = WatchParams { send_initial_events: is_list, ..self.parameters.clone() }.timeout(seconds);
        let call = async {
            let mut request = Request::new(&self.url).watch(&parameters, version).map_err(kube::Error::BuildRequest)?;
            // Verb for the request log, as kube sets it for its own types.
            request.extensions_mut().insert("watch");
            self.client.request_events(request).await
        };
        let events = limited(&format!("watch {}", self.shown), self.policy.call_limit, call).await?;
        Ok(EventStream::new(events, seconds, self.policy))
    }
}

impl<K> EventStream<K> {
    /// Wraps a watch that the server ends after `seconds`.
    pub fn new(
        events: impl Stream<Item = kube::Result<WatchEvent<K>>> + Send + 'static,
        seconds: u32,
        policy: &WatchPolicy,
    ) -> Self {
        let idle = Duration::from_secs(u64::from(seconds)) + IDLE_MARGIN;
        let is_extended_by_events = policy.is_extended_by_events;
        Self { events: events.boxed(), idle, ends: Instant::now() + idle, is_extended_by_events }
    }

    /// Returns the next event, or `None` at the end of the watch. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Event<K>>, Failure> {
        let event = timeout_at(self.ends, self.events.next()).await.map_err(|_| Failure::Silent(self.idle))?;
        if self.is_extended_by_events {
            self.ends = Instant::now() + self.idle;
        }
        match event.transpose().map_err(|error| Failure::Broken(Box::new(error)))? {
            None => Ok(None),
            Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => Ok(Some(Event::Applied(object))),
            Some(WatchEvent::Deleted(object)) => Ok(Some(Event::Deleted(object))),
            Some(WatchEvent::Bookmark(bookmark)) => Ok(Some(Event::Bookmark(bookmark))),
            Some(WatchEvent::Error(status)) => Err(Failure::Refused { code: status.code, message: status.message }),
        }
    }
}

#[cfg(test)]
mod tests;
