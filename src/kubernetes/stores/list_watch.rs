//! The rounds that fill a store. A round lists if necessary, then watches. The list is streaming, or paged if the API
//! server rejects streaming.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{ListMeta, ListParams, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use tokio::time::Instant;

use super::cached_object::{CacheAction, CachedObject, Item, ListedObject};
use super::{Store, access_review};
use crate::base::backoff::{Backoff, Failures};
use crate::base::error_chain::chain;
use crate::base::go_duration::whole_seconds;
use crate::kubernetes::call::limited;
use crate::kubernetes::watch::{
    Event, EventStream, Failure, PAUSE_FORBIDDEN, RoundEnd, Rounds, WatchPolicy, WatchTarget,
};

/// `call_limit` also applies to each page.
const POLICY: WatchPolicy =
    WatchPolicy { seconds: 60..120, call_limit: Duration::from_secs(30), is_extended_by_events: true };

/// Minimum duration of a failed round that resets the backoff.
pub(super) const SUCCESS_AFTER: Duration = Duration::from_secs(10);

/// Time until the relist after an item could not be decoded. It limits the load if the item can never be decoded.
const RELIST: Duration = Duration::from_secs(60);

/// Pause after a denied list. The first pauses are short, because a starting API server denies everything until it has
/// loaded its roles. Later pauses are long, because the permission is missing.
const FORBIDDEN: Backoff = Backoff::doubling(Duration::from_secs(2), PAUSE_FORBIDDEN);

/// Annotation of the bookmark that ends a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Task that keeps one [`Store`] filled.
pub(super) struct ListWatch<K> {
    target: WatchTarget,
    store: Store<K>,
    is_streaming: bool,
    /// Version from which the next watch continues. `None` starts with a new list.
    version: Option<String>,
    /// Time of the next relist, because an item could not be decoded and the cache may lack an object.
    relist: Option<Instant>,
    /// Whether an event of a streaming list could not be decoded. Lists are then paged until all items of a list can be
    /// decoded.
    lists_in_pages: bool,
    /// Whether incomplete lists were logged.
    is_logged: bool,
    /// Consecutive denials.
    refusals: Failures,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "K: CachedObject"))]
struct Page<K> {
    #[serde(default)]
    metadata: ListMeta,
    /// May be null for an empty list. An answer without this field is not a list.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<Item<K>>>,
}

impl<K: CachedObject> Rounds for ListWatch<K> {
    async fn round(&mut self) -> Result<RoundEnd, Failure> {
        // There is no review with a selector, because an authorizer may permit the list only with this selector.
        if let Some(needed_by) = K::NEEDED_BY
            && self.target.parameters.label_selector.is_none()
            && self.version.is_none()
            && access_review::is_denied::<K>(&self.target.client).await
        {
            return Ok(self.forbidden("a SelfSubjectAccessReview denies it", needed_by).await);
        }
        let outcome = self.list_and_watch().await;
        if let Err(Failure::Call(error)) = &outcome
            && error.is_forbidden()
            && let Some(needed_by) = K::NEEDED_BY
        {
            return Ok(self.forbidden(&chain(error), needed_by).await);
        }
        let is_gone = match &outcome {
            Err(Failure::Call(error)) => error.code() == Some(410),
            failure => matches!(failure, Err(Failure::Refused { code: 410, .. })),
        };
        if is_gone {
            tracing::debug!(kind = self.target.shown, "the watch is too old to continue; listing again");
            self.version = None;
            return Ok(RoundEnd::Outdated);
        }
        outcome.map(|()| RoundEnd::Done)
    }

    fn failed(&mut self, failure: Failure, retry_in: Duration) {
        tracing::warn!(kind = self.target.shown, retry_in = whole_seconds(retry_in), "{}", chain(&failure));
    }
}

impl<K: CachedObject> ListWatch<K> {
    pub(super) fn new(client: Client, selector: Option<String>, store: Store<K>) -> Self {
        let shown = K::plural(&()).into_owned();
        let label_selector = selector.filter(|selector| !selector.is_empty());
        let parameters = WatchParams { label_selector, ..WatchParams::default() };
        let target = WatchTarget { client, url: K::url_path(&(), None), shown, parameters, policy: &POLICY };
        Self {
            target,
            store,
            is_streaming: true,
            version: None,
            relist: None,
            lists_in_pages: false,
            is_logged: false,
            refusals: Failures::default(),
        }
    }

    async fn forbidden(&mut self, error: &str, needed_by: &str) -> RoundEnd {
        let again_in = self.refusals.next_pause(&FORBIDDEN, 0.0);
        if !self.store.set_refused(true) {
            let fault = format!("no permission to list and watch {}: {needed_by}", self.target.shown);
            tracing::warn!(
                kind = self.target.shown,
                again_in = whole_seconds(again_in),
                "{fault}. Objects in the cache may be stale. {error}"
            );
        }
        // Changes during the pause are missed, so the next round lists again.
        self.version = None;
        tokio::time::sleep(again_in).await;
        RoundEnd::Done
    }

    /// Runs one watch, after a list if there is no version to continue from or a relist is due.
    async fn list_and_watch(&mut self) -> Result<(), Failure> {
        let mut is_list = self.version.is_none();
        if self.relist.is_some_and(|due| due <= Instant::now()) {
            // If the relist fails, the watch continues, and the next relist follows after `RELIST`.
            self.relist = Some(Instant::now() + RELIST);
            is_list = true;
        }
        if is_list && (self.lists_in_pages || !self.is_streaming) {
            self.list_pages().await?;
            is_list = false;
        }
        let version = self.version.clone().filter(|_| !is_list).unwrap_or_default();
        let mut events = match self.target.open(&version, is_list).await {
            Err(error) if is_list && error.code() == Some(422) => {
                tracing::info!(kind = self.target.shown, "the server refuses streaming lists; listing in pages");
                self.is_streaming = false;
                return Ok(());
            }
            answer => answer?,
        };
        self.refusals.reset();
        if self.store.set_refused(false) {
            tracing::info!(
                kind = self.target.shown,
                "the permission to list and watch {} is there now",
                self.target.shown
            );
        }
        if is_list {
            self.take_initial_events(&mut events).await?;
        }
        self.follow(&mut events).await
    }

    async fn page(&self, parameters: &ListParams) -> kube::Result<Page<K>> {
        let mut request = Request::new(&self.target.url).list(parameters).map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("list");
        self.target.client.request(request).await
    }

    async fn list_pages(&mut self) -> Result<(), Failure> {
        let (mut fresh, mut unreadable) = (BTreeMap::new(), 0);
        let label_selector = self.target.parameters.label_selector.clone();
        let mut parameters = ListParams { label_selector, ..ListParams::default() }.limit(K::PAGE);
        let what = format!("list {}", self.target.shown);
        loop {
            let page = limited(&what, POLICY.call_limit, self.page(&parameters)).await?;
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

    async fn take_initial_events(&mut self, events: &mut EventStream<ListedObject<K>>) -> Result<(), Failure> {
        let mut fresh = BTreeMap::new();
        loop {
            let event = match events.next().await {
                Err(Failure::Broken(error)) if is_unreadable(&error) => {
                    self.lists_in_pages = true;
                    return Err(Failure::Unreadable(error));
                }
                next => next?.ok_or(Failure::Incomplete)?,
            };
            match event {
                Event::Applied(object) => self.gather(&mut fresh, object),
                Event::Deleted(object) => drop(fresh.remove(&object.key)),
                Event::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        self.filled(fresh, 0, bookmark.metadata.resource_version);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Applies events until the server ends the watch, or a relist is due.
    async fn follow(&mut self, events: &mut EventStream<ListedObject<K>>) -> Result<(), Failure> {
        loop {
            let next = match self.relist {
                Some(due) => tokio::time::timeout_at(due, events.next()).await.unwrap_or(Ok(None)),
                None => events.next().await,
            };
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(Failure::Broken(error)) if is_unreadable(&error) => {
                    let what = "an event that cannot be read is passed over; all is listed again";
                    tracing::warn!(kind = self.target.shown, "{what}: {}", chain(&*error));
                    self.relist.get_or_insert_with(|| Instant::now() + RELIST);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let version = match event {
                Event::Applied(ListedObject { key, version, object }) => {
                    match object {
                        CacheAction::Needed(object) => self.store.apply(key, object),
                        CacheAction::Unneeded => self.store.remove(&key),
                        CacheAction::Unreadable(error) => self.passed_over(&key, &error),
                    }
                    version
                }
                Event::Deleted(object) => {
                    self.store.remove(&object.key);
                    object.version
                }
                Event::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
            };
            if let Some(version) = version.filter(|version| !version.is_empty()) {
                self.version = Some(version);
            }
        }
    }

    fn gather(&self, fresh: &mut BTreeMap<String, Arc<K>>, ListedObject { key, object, .. }: ListedObject<K>) {
        let known = match object {
            // An equal object keeps its `Arc`, so that a relist holds no second copy and announces no change.
            CacheAction::Needed(object) => {
                Some(self.store.get(&key).filter(|known| *known == object).unwrap_or(object))
            }
            CacheAction::Unneeded => None,
            CacheAction::Unreadable(error) => {
                self.passed_over(&key, &error);
                self.store.get(&key)
            }
        };
        match known {
            Some(object) => drop(fresh.insert(key, object)),
            None => drop(fresh.remove(&key)),
        }
    }

    /// Applies a list with this number of unreadable items. The list is complete if the number is zero.
    fn filled(&mut self, mut fresh: BTreeMap<String, Arc<K>>, unreadable: usize, version: String) {
        tracing::debug!(kind = self.target.shown, count = fresh.len(), unreadable, "the cache is filled");
        if unreadable == 0 {
            self.relist = None;
            self.lists_in_pages = false;
            self.is_logged = false;
        } else {
            if !std::mem::replace(&mut self.is_logged, true) {
                tracing::warn!(
                    kind = self.target.shown,
                    unreadable,
                    again_in = whole_seconds(RELIST),
                    "items of the list have no name and are not known; what was known stays, and all is listed again until \
                     everything can be read"
                );
            }
            self.relist = Some(Instant::now() + RELIST);
            // A cached object that the list lacks may be an unreadable item, so it is kept.
            for key in self.store.keys() {
                if let Some(known) = self.store.get(&key) {
                    fresh.entry(key).or_insert(known);
                }
            }
        }
        self.store.replace_all(fresh);
        // After an incomplete list, older events must also be received, because an event may delete a kept object.
        if unreadable == 0 || self.version.is_none() {
            self.version = Some(version);
        }
    }

    fn passed_over(&self, name: &str, error: &serde_json::Error) {
        tracing::warn!(kind = self.target.shown, name, "an object is passed over: {}", chain(error));
    }
}

/// Whether an event could not be decoded. kube parses any JSON object as a Status without a code.
fn is_unreadable(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0,
        _ => false,
    }
}
