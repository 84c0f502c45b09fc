//! The loop that fills a store: a streaming list, or pages where the server refuses those, then a watch, for ever.
//!
//! kube-runtime's watcher is not used: it neither falls back when streaming lists are refused, nor pauses between
//! watches that end at once, nor survives one object that does not decode in a list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Store;
use crate::kubernetes::client::{CallError, limited};
use crate::runtime::logging::chain;
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

const BACKOFF_FIRST: Duration = Duration::from_millis(800);
const BACKOFF_MOST: Duration = Duration::from_secs(30);

/// A round that lasted this long has worked.
const WORKED: Duration = Duration::from_secs(10);

/// The annotation of the bookmark that ends the list inside a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Keeps one [`Store`] filled.
pub(super) struct ListWatch<K> {
    /// Untyped, so that an object that does not fit its type is known by name and passed over.
    api: Api<DynamicObject>,
    kind: String,
    selector: Option<String>,
    prune: fn(&mut K),
    store: Store<K>,
    is_streaming: bool,
    /// Where the next watch continues; nothing means from a new list.
    version: Option<String>,
    next_start: Instant,
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

impl<K> ListWatch<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    pub(super) fn new(
        client: Client,
        kind: &K::DynamicType,
        selector: Option<String>,
        prune: fn(&mut K),
        store: Store<K>,
    ) -> Self {
        Self {
            api: Api::all_with(client, &ApiResource::erase::<K>(kind)),
            kind: K::plural(kind).into_owned(),
            selector: selector.filter(|selector| !selector.is_empty()),
            prune,
            store,
            is_streaming: true,
            version: None,
            next_start: Instant::now(),
        }
    }

    /// Lists and watches for ever.
    pub(super) async fn run(mut self) -> Result<(), BoxError> {
        let mut pause = BACKOFF_FIRST;
        loop {
            tokio::time::sleep_until(self.next_start).await;
            let start = Instant::now();
            self.next_start = start + FLOOR;
            let Err(failure) = self.round().await else {
                pause = BACKOFF_FIRST;
                continue;
            };
            if failure.is_gone() {
                tracing::debug!(kind = self.kind, "the watch is too old to continue; listing again");
                self.version = None;
                continue;
            }
            // A watch that worked for a while and broke is no sign of lasting trouble.
            if start.elapsed() >= WORKED {
                pause = BACKOFF_FIRST;
            }
            let jittered = pause.mul_f64(1.0 + fastrand::f64());
            tracing::warn!(kind = self.kind, retry_in = ?jittered, "{}", chain(&failure));
            tokio::time::sleep(jittered).await;
            pause = (pause * 2).min(BACKOFF_MOST);
        }
    }

    /// One watch, with a list before it when there is nothing to continue from.
    async fn round(&mut self) -> Result<(), Failure> {
        if self.version.is_none() && !self.is_streaming {
            self.list_pages().await?;
        }
        let seconds = fastrand::u32(WATCH_SECONDS);
        let parameters = WatchParams {
            label_selector: self.selector.clone(),
            timeout: Some(seconds),
            send_initial_events: self.version.is_none(),
            ..WatchParams::default()
        };
        let what = format!("watch {}", self.kind);
        let version = self.version.clone().unwrap_or_default();
        let mut events = match limited(&what, CALL_LIMIT, self.api.watch(&parameters, &version)).await {
            Err(error) if self.version.is_none() && error.code() == Some(422) => {
                tracing::info!(kind = self.kind, "the server refuses streaming lists; listing in pages");
                self.is_streaming = false;
                return Ok(());
            }
            answer => answer?.boxed(),
        };
        let idle = Duration::from_secs(u64::from(seconds)) + IDLE_MARGIN;
        if self.version.is_none() {
            self.take_initial_events(&mut events, idle).await?;
        }
        self.follow(&mut events, idle).await
    }

    async fn list_pages(&mut self) -> Result<(), Failure> {
        let mut fresh = BTreeMap::new();
        let mut parameters = ListParams { label_selector: self.selector.clone(), ..ListParams::default() }.limit(PAGE);
        let what = format!("list {}", self.kind);
        loop {
            let page = limited(&what, CALL_LIMIT, self.api.list(&parameters)).await?;
            for object in page.items {
                self.gather(&mut fresh, object);
            }
            parameters.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if parameters.continue_token.is_none() {
                let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                self.filled(fresh, version.ok_or(Failure::NoVersion)?);
                return Ok(());
            }
        }
    }

    async fn take_initial_events(
        &mut self,
        events: &mut (impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Unpin),
        idle: Duration,
    ) -> Result<(), Failure> {
        let mut fresh = BTreeMap::new();
        loop {
            match self.next(events, idle).await?.ok_or(Failure::Incomplete)? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => self.gather(&mut fresh, object),
                WatchEvent::Deleted(object) => drop(fresh.remove(&key(&object))),
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        self.filled(fresh, bookmark.metadata.resource_version);
                        return Ok(());
                    }
                }
                WatchEvent::Error(status) => {
                    return Err(Failure::Refused { code: status.code, message: status.message });
                }
            }
        }
    }

    /// Applies events until the server ends the watch.
    async fn follow(
        &mut self,
        events: &mut (impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Unpin),
        idle: Duration,
    ) -> Result<(), Failure> {
        while let Some(event) = self.next(events, idle).await? {
            let version = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let version = object.resource_version();
                    let key = key(&object);
                    if let Some(object) = self.parse(object) {
                        self.store.apply(key, object);
                    }
                    version
                }
                WatchEvent::Deleted(object) => {
                    self.store.remove(&key(&object));
                    object.resource_version()
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
        Ok(())
    }

    /// The next event that can be read; nothing at the end of the watch.
    async fn next(
        &self,
        events: &mut (impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + Unpin),
        idle: Duration,
    ) -> Result<Option<WatchEvent<DynamicObject>>, Failure> {
        loop {
            match tokio::time::timeout(idle, events.next()).await.map_err(|_| Failure::Silent(idle))? {
                Some(Err(error)) if is_unreadable(&error) => {
                    tracing::warn!(kind = self.kind, "an event that cannot be read is passed over: {}", chain(&error));
                }
                Some(Err(error)) => return Err(Failure::Broken(Box::new(error))),
                Some(Ok(event)) => return Ok(Some(event)),
                None => return Ok(None),
            }
        }
    }

    fn gather(&self, fresh: &mut BTreeMap<String, Arc<K>>, object: DynamicObject) {
        let key = key(&object);
        // An object that does not decode exists all the same: what was known of it stays.
        let known = match self.parse(object) {
            Some(object) => Some(Arc::new(object)),
            None => self.store.get(&key),
        };
        if let Some(object) = known {
            fresh.insert(key, object);
        }
    }

    fn filled(&mut self, fresh: BTreeMap<String, Arc<K>>, version: String) {
        tracing::debug!(kind = self.kind, count = fresh.len(), "the cache is filled");
        self.store.replace_all(fresh);
        self.version = Some(version);
    }

    fn parse(&self, object: DynamicObject) -> Option<K> {
        let name = key(&object);
        match object.try_parse::<K>() {
            Ok(mut object) => {
                (self.prune)(&mut object);
                Some(object)
            }
            Err(error) => {
                tracing::warn!(kind = self.kind, name, "an object is passed over: {}", chain(&error));
                None
            }
        }
    }
}

/// An event that is not what it should be; kube takes any JSON object for a Status without a code.
fn is_unreadable(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0,
        _ => false,
    }
}

fn key(object: &DynamicObject) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}
