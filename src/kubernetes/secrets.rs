//! Watches single Secrets by name. No other Secret comes into memory, and a Role that names the one is enough.
//!
//! `get` tells whether it exists, then a watch on its name tells of changes. Where only one of the two is allowed, that
//! one does: `get` is then repeated.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use secrecy::{ExposeSecret, SecretSlice};
use tokio::sync::watch;
use tokio::time::Instant;

use super::client::{CALL_LIMIT, CallError, limited};
use crate::base::backoff::{Backoff, Failures};
use crate::base::error_chain::chain;

/// The server ends each watch after that many seconds, a random number of them, so that replicas do not move in step.
/// Short, because a peer that died silently is noticed only then; afterwards the Secret is read anew.
const WATCH_SECONDS: std::ops::Range<u32> = 60..120;

/// How long after the announced end a silent watch is given up.
const IDLE_MARGIN: Duration = Duration::from_secs(5);

/// The least time between two rounds; some proxies close watches at once.
const FLOOR: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(800), LONGEST_PAUSE).lengthened_by(1.0);

/// How often the Secret is read where it may not be watched.
const POLL: Duration = Duration::from_secs(10);

/// When a watch that was forbidden is tried again.
const PAUSE_FORBIDDEN: Duration = Duration::from_secs(300);

/// A round that lasted this long has worked.
const WORKED: Duration = Duration::from_secs(10);

/// What is known of one Secret.
#[derive(Clone, Debug)]
pub enum State {
    /// It was not looked at yet.
    Pending,
    /// It was looked at in vain, and never read. Says why.
    Failing(String),
    /// It does not exist, or this process may not read it. Says which.
    Absent(String),
    /// It was read. Stays so while the API server does not answer.
    Read(Arc<SecretVersion>),
}

/// One version of a Secret. Prints without the data.
#[derive(Debug)]
pub struct SecretVersion {
    /// Its UID; another one after it was deleted and created again.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    data: BTreeMap<String, SecretSlice<u8>>,
}

impl SecretVersion {
    /// Takes the data over. The buffers it came in are wiped.
    fn new(secret: Secret) -> Self {
        let entries = secret.data.unwrap_or_default().into_iter();
        let data = entries.map(|(key, mut value)| (key, wiped_into_box(&mut value.0)));
        Self {
            uid: secret.metadata.uid.unwrap_or_default(),
            resource_version: secret.metadata.resource_version.unwrap_or_default(),
            data: data.collect(),
        }
    }

    /// Keys and values.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.data.iter().map(|(key, value)| (key.as_str(), value.expose_secret()))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }

    /// Whether both are versions of one object, and this is the earlier one.
    fn is_older_than(&self, other: &Self) -> bool {
        let number = |version: &Self| version.resource_version.parse::<u64>().ok();
        self.uid == other.uid && matches!((number(self), number(other)), (Some(own), Some(others)) if own < others)
    }
}

/// A copy of exactly the right size, which wipes itself on drop; the original is wiped at once. A move into a box would
/// leave another copy behind where the original has room to spare.
fn wiped_into_box(value: &mut Vec<u8>) -> SecretSlice<u8> {
    let copy = SecretSlice::from(Box::<[u8]>::from(value.as_slice()));
    secrecy::zeroize::Zeroize::zeroize(value);
    copy
}

/// Watches the Secret `namespace/name`: what is known of it, and the work that keeps that true, for ever. The work ends
/// when it is dropped.
pub fn watch_secret(
    client: Client,
    namespace: &str,
    name: &str,
) -> (watch::Receiver<State>, impl Future<Output = Infallible> + Send + use<>) {
    let (state, receiver) = watch::channel(State::Pending);
    let watcher = Watcher {
        api: Api::namespaced(client, namespace),
        name: name.to_owned(),
        shown: format!("secret {namespace}/{name}"),
        state,
        next_watch: Instant::now(),
    };
    (receiver, watcher.run())
}

struct Watcher {
    api: Api<Secret>,
    name: String,
    shown: String,
    state: watch::Sender<State>,
    next_watch: Instant,
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
}

impl Watcher {
    async fn run(mut self) -> Infallible {
        let mut failures = Failures::default();
        loop {
            let start = Instant::now();
            let Err(failure) = self.round().await else {
                failures.reset();
                tokio::time::sleep_until(start + FLOOR).await;
                continue;
            };
            // A watch that worked for a while and broke is no sign of lasting trouble.
            if start.elapsed() >= WORKED {
                failures.reset();
            }
            let reason = chain(&failure);
            tracing::debug!(secret = self.shown, "{reason}");
            self.state.send_if_modified(|state| match state {
                State::Failing(known) if *known == reason => false,
                State::Pending | State::Failing(_) => {
                    *state = State::Failing(reason);
                    true
                }
                State::Absent(_) | State::Read(_) => false,
            });
            tokio::time::sleep(failures.next_pause(&BACKOFF, fastrand::f64())).await;
        }
    }

    /// Reads the Secret, then watches it until the server ends the watch, or waits where it may not be watched.
    async fn round(&mut self) -> Result<(), Failure> {
        let read = limited(&format!("get {}", self.shown), CALL_LIMIT, self.api.get_opt(&self.name)).await;
        let is_readable = match read {
            Ok(Some(secret)) => {
                self.found(secret, false);
                true
            }
            Ok(None) => {
                self.absent("it does not exist".to_owned());
                true
            }
            Err(error) if error.is_forbidden() => false,
            Err(error) => return Err(error.into()),
        };
        if is_readable && Instant::now() < self.next_watch {
            tokio::time::sleep(POLL).await;
            return Ok(());
        }
        match self.watch(is_readable).await {
            Err(Failure::Call(error)) if error.is_forbidden() && is_readable => {
                tracing::info!(secret = self.shown, "may not be watched, so it is polled");
                self.next_watch = Instant::now() + PAUSE_FORBIDDEN;
                Ok(())
            }
            Err(Failure::Call(error)) if error.is_forbidden() => {
                let why = "this process may not read it: it needs the verbs get and watch for this Secret";
                self.absent(format!("{why} ({})", chain(&error)));
                tokio::time::sleep(LONGEST_PAUSE).await;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// The version is left out: the server begins with what there is, so nothing is missed since the read, and no old
    /// version can be too old.
    async fn watch(&self, is_readable: bool) -> Result<(), Failure> {
        let seconds = fastrand::u32(WATCH_SECONDS);
        let parameters = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(seconds);
        let what = format!("watch {}", self.shown);
        let mut events = limited(&what, CALL_LIMIT, self.api.watch(&parameters, "")).await?.boxed();
        let idle = Duration::from_secs(u64::from(seconds)) + IDLE_MARGIN;
        loop {
            match tokio::time::timeout(idle, events.next()).await.map_err(|_| Failure::Silent(idle))? {
                Some(Ok(WatchEvent::Added(secret) | WatchEvent::Modified(secret))) => self.found(secret, is_readable),
                Some(Ok(WatchEvent::Deleted(_))) => self.absent("it does not exist".to_owned()),
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => {
                    return Err(Failure::Refused { code: status.code, message: status.message });
                }
                Some(Err(error)) => return Err(Failure::Broken(Box::new(error))),
                None => break,
            }
        }
        // Whoever may only watch has no other way to hear that there is nothing.
        if !is_readable && matches!(*self.state.borrow(), State::Pending | State::Failing(_)) {
            self.absent("it does not exist".to_owned());
        }
        Ok(())
    }

    /// What a watch begins with may come from a cache and be older than what was read a moment ago (`may_be_late`). A
    /// `get` is always believed: after a restore from a backup, versions are lower.
    fn found(&self, secret: Secret, may_be_late: bool) {
        let version = SecretVersion::new(secret);
        self.state.send_if_modified(|state| {
            let is_no_news =
                |known: &SecretVersion| known.is_same(&version) || may_be_late && version.is_older_than(known);
            if matches!(state, State::Read(known) if is_no_news(known)) {
                return false;
            }
            *state = State::Read(Arc::new(version));
            true
        });
    }

    fn absent(&self, why: String) {
        self.state.send_if_modified(|state| {
            if matches!(state, State::Absent(known) if *known == why) {
                return false;
            }
            *state = State::Absent(why);
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    #[tokio::test]
    async fn a_watch_that_begins_in_the_past_does_not_bring_an_old_version_back() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let (state, receiver) = watch::channel(State::Pending);
        let (api, next_watch) = (Api::namespaced(client, "kube-system"), Instant::now());
        let watcher =
            Watcher { api, name: "vc".to_owned(), shown: "secret kube-system/vc".to_owned(), state, next_watch };
        let secret = |uid: &str, version: &str| {
            let mut secret = Secret::default();
            secret.metadata.uid = Some(uid.to_owned());
            secret.metadata.resource_version = Some(version.to_owned());
            secret
        };
        for (uid, version, may_be_late, expected) in [
            ("a", "100", false, "100"),
            ("a", "99", true, "100"),
            ("a", "101", true, "101"),
            ("b", "9", true, "9"),
            ("b", "8", false, "8"),
            ("b", "no number", true, "no number"),
        ] {
            watcher.found(secret(uid, version), may_be_late);
            let State::Read(known) = receiver.borrow().clone() else { panic!("not read") };
            assert_eq!((known.uid.as_str(), known.resource_version.as_str()), (uid, expected));
        }
    }

    /// Types that promise it hold every copy this file makes.
    #[test]
    fn the_data_of_a_secret_is_wiped_on_drop_and_does_not_print() {
        fn is_wiped_on_drop<T: secrecy::zeroize::ZeroizeOnDrop>(_: &T) {}
        let mut buffer = ByteString(b"hidden".to_vec());
        let copy = wiped_into_box(&mut buffer.0);
        is_wiped_on_drop(&copy);
        assert_eq!(copy.expose_secret(), b"hidden");
        assert!(buffer.0.is_empty(), "the original is wiped");

        let data = BTreeMap::from([("key".to_owned(), ByteString(b"hidden".to_vec()))]);
        let version = SecretVersion::new(Secret { data: Some(data), ..Secret::default() });
        version.data.values().for_each(is_wiped_on_drop);
        assert_eq!(version.entries().collect::<Vec<_>>(), [("key", b"hidden".as_slice())]);
        let shown = format!("{version:?}");
        assert!(shown.contains("key") && !shown.contains("hidden") && !shown.contains("104"), "{shown}");
    }
}
