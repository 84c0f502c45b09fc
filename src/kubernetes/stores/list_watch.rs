//! The loop that fills a store: a streaming list, or pages where the server refuses those, then a watch, for ever.
//!
//! kube-runtime's watcher is not used: it neither falls back when streaming lists are refused, nor pauses between
//! watches that end at once, nor survives one object that does not decode in a list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::Client;
use kube::api::{ListMeta, ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::{Deserialize, Deserializer};
use tokio::time::Instant;

use super::Store;
use super::packed::{Item, Packed, Seen, Watched};
use crate::base::backoff::{Backoff, Failures};
use crate::base::error_chain::chain;
use crate::kubernetes::client::{CallError, limited};
use crate::runtime::tasks::BoxError;

/// Objects a page. Larger pages fragment the heap for good.
const PAGE: u32 = 50;

/// How long one page or the opening of a watch may take, the client's own retries included.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The server ends each watch after that many seconds, a random number of them, so that replicas do not move in step.
/// Short, because a peer that died silently is noticed only then.
const WATCH_SECONDS: std::ops::Range<u32> = 60..120;

/// How long after the announced end a silent watch is given up.
const IDLE_MARGIN: Duration = Duration::from_secs(5);

/// The least time between the starts of two watches; some proxies close them at once.
const FLOOR: Duration = Duration::from_secs(1);

const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(800), Duration::from_secs(30)).lengthened_by(1.0);

/// A round that lasted this long has worked.
const WORKED: Duration = Duration::from_secs(10);

/// How long after something could not be read all is listed again: soon for the object that it may have been about, and
/// seldom enough where it can never be read.
const RELIST: Duration = Duration::from_secs(60);

/// The annotation of the bookmark that ends the list inside a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Keeps one [`Store`] filled.
pub(super) struct ListWatch<K> {
    client: Client,
    kind: String,
    selector: Option<String>,
    store: Store<K>,
    is_streaming: bool,
    /// Where the next watch continues; nothing means from a new list.
    version: Option<String>,
    next_start: Instant,
    /// Something could not be read, so that what is known may lack an object: when to list all again.
    relist: Option<Instant>,
    /// A streaming list could not be read whole: the next lists go in pages, until one is whole.
    is_in_pages: bool,
    /// The log has been told that lists are not whole.
    is_told: bool,
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound(deserialize = "K: Watched"))]
struct Page<K> {
    #[serde(default)]
    metadata: ListMeta,
    /// Of an empty list it may be null. An answer without it is no list.
    #[serde(deserialize_with = "null_as_none")]
    items: Option<Vec<Item<K>>>,
}

fn null_as_none<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
enum Failure {
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

impl Failure {
    /// The place to continue from is no longer known to the server.
    fn is_gone(&self) -> bool {
        match self {
            Failure::Call(error) => error.code() == Some(410),
            Failure::Refused { code, .. } => *code == 410,
            _ => false,
        }
    }
}

impl<K: Watched> ListWatch<K> {
    pub(super) fn new(client: Client, selector: Option<String>, store: Store<K>) -> Self {
        Self {
            client,
            kind: K::plural(&()).into_owned(),
            selector: selector.filter(|selector| !selector.is_empty()),
            store,
            is_streaming: true,
            version: None,
            next_start: Instant::now(),
            relist: None,
            is_in_pages: false,
            is_told: false,
        }
    }

    /// Lists and watches for ever.
    pub(super) async fn run(mut self) -> Result<(), BoxError> {
        let mut failures = Failures::default();
        loop {
            tokio::time::sleep_until(self.next_start).await;
            let start = Instant::now();
            self.next_start = start + FLOOR;
            let Err(failure) = self.round().await else {
                failures.reset();
                continue;
            };
            if failure.is_gone() {
                tracing::debug!(kind = self.kind, "the watch is too old to continue; listing again");
                self.version = None;
                continue;
            }
            // A watch that worked for a while and broke is no sign of lasting trouble.
            if start.elapsed() >= WORKED {
                failures.reset();
            }
            let pause = failures.next_pause(&BACKOFF, fastrand::f64());
            tracing::warn!(kind = self.kind, retry_in = ?pause, "{}", chain(&failure));
            tokio::time::sleep(pause).await;
        }
    }

    /// One watch, with a list before it when there is nothing to continue from.
    async fn round(&mut self) -> Result<(), Failure> {
        let mut is_list = self.version.is_none();
        if self.relist.is_some_and(|due| due <= Instant::now()) {
            // Should it fail, the watch goes on first.
            self.relist = Some(Instant::now() + RELIST);
            is_list = true;
        }
        if is_list && (self.is_in_pages || !self.is_streaming) {
            self.list_pages().await?;
            is_list = false;
        }
        let seconds = fastrand::u32(WATCH_SECONDS);
        let parameters = WatchParams {
            label_selector: self.selector.clone(),
            timeout: Some(seconds),
            send_initial_events: is_list,
            ..WatchParams::default()
        };
        let what = format!("watch {}", self.kind);
        let version = self.version.clone().filter(|_| !is_list).unwrap_or_default();
        let mut events = match limited(&what, CALL_LIMIT, self.watch(&parameters, &version)).await {
            Err(error) if is_list && error.code() == Some(422) => {
                tracing::info!(kind = self.kind, "the server refuses streaming lists; listing in pages");
                self.is_streaming = false;
                return Ok(());
            }
            answer => answer?.boxed(),
        };
        let idle = Duration::from_secs(u64::from(seconds)) + IDLE_MARGIN;
        if is_list {
            self.take_initial_events(&mut events, idle).await?;
        }
        self.follow(&mut events, idle).await
    }

    async fn watch(
        &self,
        parameters: &WatchParams,
        version: &str,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<Seen<K>>>> + use<K>> {
        let mut request = all::<K>().watch(parameters, version).map_err(kube::Error::BuildRequest)?;
        // The word for it where requests are logged, as kube's own types have it.
        request.extensions_mut().insert("watch");
        self.client.request_events(request).await
    }

    async fn page(&self, parameters: &ListParams) -> kube::Result<Page<K>> {
        let mut request = all::<K>().list(parameters).map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("list");
        self.client.request(request).await
    }

    async fn list_pages(&mut self) -> Result<(), Failure> {
        let (mut fresh, mut unreadable) = (BTreeMap::new(), 0);
        let mut parameters = ListParams { label_selector: self.selector.clone(), ..ListParams::default() }.limit(PAGE);
        let what = format!("list {}", self.kind);
        loop {
            let page = limited(&what, CALL_LIMIT, self.page(&parameters)).await?;
            for object in page.items.into_iter().flatten() {
                match object {
                    Item(Some(object)) => self.gather(&mut fresh, object),
                    Item(None) => unreadable += 1,
                }
            }
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if parameters.continue_token.is_none() {
                let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                self.filled(fresh, unreadable, version.ok_or(Failure::NoVersion)?);
                return Ok(());
            }
        }
    }

    async fn take_initial_events(
        &mut self,
        events: &mut (impl Stream<Item = kube::Result<WatchEvent<Seen<K>>>> + Unpin),
        idle: Duration,
    ) -> Result<(), Failure> {
        let mut fresh = BTreeMap::new();
        loop {
            let event = self.next(events, idle).await?.ok_or(Failure::Incomplete)?;
            let event = event.map_err(|error| {
                self.is_in_pages = true;
                Failure::Unreadable(Box::new(error))
            })?;
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => self.gather(&mut fresh, object),
                WatchEvent::Deleted(object) => drop(fresh.remove(&object.key)),
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        self.filled(fresh, 0, bookmark.metadata.resource_version);
                        return Ok(());
                    }
                }
                WatchEvent::Error(status) => {
                    return Err(Failure::Refused { code: status.code, message: status.message });
                }
            }
        }
    }

    /// Applies events until the server ends the watch, or all is to be listed again.
    async fn follow(
        &mut self,
        events: &mut (impl Stream<Item = kube::Result<WatchEvent<Seen<K>>>> + Unpin),
        idle: Duration,
    ) -> Result<(), Failure> {
        loop {
            let next = self.next(events, idle);
            let next = match self.relist {
                Some(due) => tokio::time::timeout_at(due, next).await.unwrap_or(Ok(None)),
                None => next.await,
            };
            let event = match next? {
                None => return Ok(()),
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    let kind = &self.kind;
                    tracing::warn!(
                        kind,
                        "an event that cannot be read is passed over; all is listed again: {}",
                        chain(&error)
                    );
                    self.relist.get_or_insert_with(|| Instant::now() + RELIST);
                    continue;
                }
            };
            let version = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let Seen { key, version, object } = object;
                    if let Some(object) = self.fitting(&key, object) {
                        self.store.apply(key, object);
                    }
                    version
                }
                WatchEvent::Deleted(object) => {
                    self.store.remove(&object.key);
                    object.version
                }
                WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
                WatchEvent::Error(status) => {
                    return Err(Failure::Refused { code: status.code, message: status.message });
                }
            };
            if let Some(version) = version.filter(|version| !version.is_empty()) {
                self.version = Some(version);
            }
        }
    }

    /// The next event, or why it cannot be read; nothing at the end of the watch.
    async fn next(
        &self,
        events: &mut (impl Stream<Item = kube::Result<WatchEvent<Seen<K>>>> + Unpin),
        idle: Duration,
    ) -> Result<Option<Result<WatchEvent<Seen<K>>, kube::Error>>, Failure> {
        match tokio::time::timeout(idle, events.next()).await.map_err(|_| Failure::Silent(idle))? {
            Some(Err(error)) if !is_unreadable(&error) => Err(Failure::Broken(Box::new(error))),
            event => Ok(event),
        }
    }

    fn gather(&self, fresh: &mut BTreeMap<String, Packed<K>>, object: Seen<K>) {
        let Seen { key, object, .. } = object;
        // An object that does not decode exists all the same: what was known of it stays.
        let known = self.fitting(&key, object).or_else(|| self.store.packed(&key));
        if let Some(object) = known {
            fresh.insert(key, object);
        }
    }

    /// Takes over a list of which so many items could not be read: one without any is whole.
    fn filled(&mut self, mut fresh: BTreeMap<String, Packed<K>>, unreadable: usize, version: String) {
        tracing::debug!(kind = self.kind, count = fresh.len(), unreadable, "the cache is filled");
        if unreadable == 0 {
            (self.relist, self.is_in_pages, self.is_told) = (None, false, false);
        } else {
            if !std::mem::replace(&mut self.is_told, true) {
                tracing::warn!(
                    kind = self.kind,
                    unreadable,
                    again_in = ?RELIST,
                    "items of the list have no name and are not known; what was known stays, and all is listed again until \
                     everything can be read"
                );
            }
            self.relist = Some(Instant::now() + RELIST);
            // What could not be read may be any of these.
            for key in self.store.keys() {
                if let Some(known) = self.store.packed(&key) {
                    fresh.entry(key).or_insert(known);
                }
            }
        }
        self.store.replace_all(fresh);
        // After a list that is not whole what happened before it is heard, too: somebody may be gone whom it kept.
        if unreadable == 0 || self.version.is_none() {
            self.version = Some(version);
        }
    }

    fn fitting(&self, name: &str, object: Result<Packed<K>, Arc<serde_json::Error>>) -> Option<Packed<K>> {
        object
            .inspect_err(|error| {
                tracing::warn!(kind = self.kind, name, "an object is passed over: {}", chain(&**error));
            })
            .ok()
    }
}

/// Requests about all objects of the kind.
fn all<K: Watched>() -> Request {
    Request::new(K::url_path(&(), None))
}

/// An event that is not what it should be; kube takes any JSON object for a Status without a code.
fn is_unreadable(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0,
        _ => false,
    }
}
