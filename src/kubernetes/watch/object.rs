//! Follows one object by name. Reads no other object of its kind, and needs only a Role for the named object.
//!
//! A `get` shows whether the object exists, then a watch on its name shows changes. If the watch is forbidden, the
//! `get` is repeated. If the `get` is forbidden, the policy decides whether a watch alone is tried.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use kube::api::WatchParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{Event, Failure, PAUSE_FORBIDDEN, RoundEnd, Rounds, WatchPolicy, WatchTarget, repeat};
use crate::kubernetes::call::{CALL_LIMIT, CallError, get_opt};

/// Settings for following an object.
#[derive(Debug)]
pub struct ObjectPolicy {
    pub watch: WatchPolicy,
    /// Interval of reads if the object cannot be watched.
    pub poll: Duration,
    /// Whether to try a watch if `get` is forbidden.
    pub watches_without_get: bool,
    /// Pause if reading the object is forbidden.
    pub forbidden: Duration,
    /// Minimum duration of a failed round that resets the backoff.
    pub worked: Duration,
}

/// An update about an object. It has no `Debug`, because the object may be a Secret.
pub enum ObjectUpdate<K> {
    /// The current object; `None` if it does not exist.
    Read(Option<K>),
    /// The current object, from a watch after a `get`. The first object of the watch may come from the API server's
    /// cache, and be older than the object from the `get`.
    Watched(Option<K>),
    /// The watch is forbidden, so the object is polled.
    Polled,
    /// Reading the object is forbidden.
    Forbidden(CallError),
    /// A round failed and will be repeated.
    Failed(Failure),
}

/// A kind that can be followed.
pub trait WatchedObject: Clone + DeserializeOwned + Debug + Send + Sync + 'static {}

impl<K: Clone + DeserializeOwned + Debug + Send + Sync + 'static> WatchedObject for K {}

/// Follows the object `name` forever, and passes each update to `learn`.
pub async fn follow<K, L>(api: Api<K>, name: String, policy: &'static ObjectPolicy, learn: L) -> Infallible
where
    K: WatchedObject + Resource<DynamicType = ()>,
    L: FnMut(ObjectUpdate<K>) + Send,
{
    let shown = format!("{} {}/{name}", K::kind(&()).to_lowercase(), api.namespace().unwrap_or_default());
    let (client, url) = (api.clone().into_client(), api.resource_url().to_owned());
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
    let target = WatchTarget { client, url, shown, parameters, policy: &policy.watch };
    repeat(Object { api, name, target, policy, learn, next_watch: Instant::now(), is_loaded: false }, policy.worked)
        .await
}

struct Object<K, L> {
    api: Api<K>,
    name: String,
    target: WatchTarget,
    policy: &'static ObjectPolicy,
    learn: L,
    next_watch: Instant,
    /// Whether there was an update other than a failure.
    is_loaded: bool,
}

impl<K: WatchedObject, L: FnMut(ObjectUpdate<K>) + Send> Rounds for Object<K, L> {
    async fn round(&mut self) -> Result<RoundEnd, Failure> {
        let what = format!("get {}", self.target.shown);
        let is_readable = match get_opt(&what, CALL_LIMIT, &self.api, &self.name).await {
            Ok(object) => {
                self.notify(ObjectUpdate::Read(object));
                true
            }
            Err(error) if error.is_forbidden() && self.policy.watches_without_get => false,
            Err(error) if error.is_forbidden() => return Ok(self.forbidden(error).await),
            Err(error) => return Err(error.into()),
        };
        if is_readable && Instant::now() < self.next_watch {
            tokio::time::sleep(self.policy.poll).await;
            return Ok(RoundEnd::Done);
        }
        match self.watch(if is_readable { ObjectUpdate::Watched } else { ObjectUpdate::Read }).await {
            Err(Failure::Call(error)) if error.is_forbidden() && is_readable => {
                self.notify(ObjectUpdate::Polled);
                self.next_watch = Instant::now() + PAUSE_FORBIDDEN;
                Ok(RoundEnd::Done)
            }
            Err(Failure::Call(error)) if error.is_forbidden() => Ok(self.forbidden(error).await),
            outcome => outcome.map(|()| RoundEnd::Done),
        }
    }

    fn failed(&mut self, failure: Failure, _: Duration) {
        (self.learn)(ObjectUpdate::Failed(failure));
    }
}

impl<K: WatchedObject, L: FnMut(ObjectUpdate<K>) + Send> Object<K, L> {
    /// Watches from the current state, without a version: nothing is missed, and no version can be too old.
    async fn watch(&mut self, update: fn(Option<K>) -> ObjectUpdate<K>) -> Result<(), Failure> {
        let mut events = self.target.open("", false).await?;
        while let Some(event) = events.next().await? {
            match event {
                Event::Applied(object) => self.notify(update(Some(object))),
                Event::Deleted(_) => self.notify(update(None)),
                Event::Bookmark(_) => {}
            }
        }
        // If only `watch` is permitted, the absence of events shows that the object does not exist.
        if !self.is_loaded {
            self.notify(ObjectUpdate::Read(None));
        }
        Ok(())
    }

    fn notify(&mut self, update: ObjectUpdate<K>) {
        self.is_loaded = true;
        (self.learn)(update);
    }

    async fn forbidden(&mut self, error: CallError) -> RoundEnd {
        self.notify(ObjectUpdate::Forbidden(error));
        tokio::time::sleep(self.policy.forbidden).await;
        RoundEnd::Done
    }
}
