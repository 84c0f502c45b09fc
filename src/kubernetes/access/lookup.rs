//! Watches the one ConfigMap in which the API server publishes whom it believes, and believes the same.
//!
//! What was learned stays while the API server is away, when the ConfigMap is deleted and when a key of it is gone.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use super::published;
use super::trust::Trust;
use crate::base::backoff::{Backoff, Failures};
use crate::base::error_chain::chain;
use crate::kubernetes::client::{CALL_LIMIT, CallError, limited};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// In messages.
const SHOWN: &str = "configmap kube-system/extension-apiserver-authentication";

/// The server ends each watch after that many seconds, a random number of them; then the ConfigMap is read anew.
const WATCH_SECONDS: std::ops::Range<u32> = 240..480;

/// How long after the announced end a silent watch is given up.
const IDLE_MARGIN: Duration = Duration::from_secs(5);

/// The least time between two rounds; some proxies close watches at once.
const FLOOR: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(800), LONGEST_PAUSE).lengthened_by(1.0);

/// How often the ConfigMap is read where it may not be watched.
const POLL: Duration = Duration::from_secs(60);

/// When something that was forbidden is tried again.
const PAUSE_FORBIDDEN: Duration = Duration::from_secs(300);

/// What of the ConfigMap counts; flags replace the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The CAs of clients.
    pub clients: bool,
    /// The proxies.
    pub proxies: bool,
}

/// What came of looking at the ConfigMap.
#[derive(Debug, Clone)]
pub enum Look {
    /// It was not looked at yet.
    Pending,
    /// It was read, or there is none.
    Done,
    /// This process may not read it.
    Forbidden(Arc<CallError>),
    /// There was no answer, or none that says something.
    Failed,
}

/// Keeps `trust` as the ConfigMap says, for ever; the work ends when it is dropped. And what came of the last look.
pub fn follow_published(
    client: Client,
    trust: Trust,
    wanted: Wanted,
) -> (watch::Receiver<Look>, impl Future<Output = Infallible> + Send + use<>) {
    let (looks, receiver) = watch::channel(Look::Pending);
    let api = Api::namespaced(client, NAMESPACE);
    let lookup = Lookup { api, trust, wanted, looks, taken: None, next_watch: Instant::now() };
    (receiver, lookup.run())
}

struct Lookup {
    api: Api<ConfigMap>,
    trust: Trust,
    wanted: Wanted,
    looks: watch::Sender<Look>,
    /// The data that was looked at last, good or bad.
    taken: Option<BTreeMap<String, String>>,
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

impl Lookup {
    async fn run(mut self) -> Infallible {
        let mut failures = Failures::default();
        loop {
            let start = Instant::now();
            match self.round().await {
                Ok(()) => {
                    failures.reset();
                    tokio::time::sleep_until(start + FLOOR).await;
                }
                Err(Failure::Call(error)) if error.is_forbidden() => {
                    self.forbidden(error);
                    tokio::time::sleep(PAUSE_FORBIDDEN).await;
                }
                Err(failure) => {
                    // A watch that worked for a while and broke is no sign of lasting trouble.
                    if start.elapsed() >= LONGEST_PAUSE {
                        failures.reset();
                    }
                    self.failed(&failure);
                    tokio::time::sleep(failures.next_pause(&BACKOFF, fastrand::f64())).await;
                }
            }
        }
    }

    /// Reads the ConfigMap, then watches it until the server ends the watch, or waits where it may not be watched.
    async fn round(&mut self) -> Result<(), Failure> {
        let read = limited(&format!("get {SHOWN}"), CALL_LIMIT, self.api.get_opt(NAME)).await?;
        match read {
            Some(found) => self.take(found),
            None => tracing::debug!("there is no {SHOWN}"),
        }
        self.looks.send_replace(Look::Done);
        if Instant::now() < self.next_watch {
            tokio::time::sleep(POLL).await;
            return Ok(());
        }
        match self.watch().await {
            Err(Failure::Call(error)) if error.is_forbidden() => {
                tracing::info!("{SHOWN} may not be watched, so it is polled");
                self.next_watch = Instant::now() + PAUSE_FORBIDDEN;
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// The version is left out: the server begins with what there is, so nothing is missed since the read.
    async fn watch(&mut self) -> Result<(), Failure> {
        let seconds = fastrand::u32(WATCH_SECONDS);
        let parameters = WatchParams::default().fields(&format!("metadata.name={NAME}")).timeout(seconds);
        let mut events = limited(&format!("watch {SHOWN}"), CALL_LIMIT, self.api.watch(&parameters, "")).await?.boxed();
        let idle = Duration::from_secs(u64::from(seconds)) + IDLE_MARGIN;
        loop {
            match tokio::time::timeout(idle, events.next()).await.map_err(|_| Failure::Silent(idle))? {
                Some(Ok(WatchEvent::Added(found) | WatchEvent::Modified(found))) => self.take(found),
                Some(Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => {
                    return Err(Failure::Refused { code: status.code, message: status.message });
                }
                Some(Err(error)) => return Err(Failure::Broken(Box::new(error))),
                None => return Ok(()),
            }
        }
    }

    /// Takes new data over. What is wrong in it is told once, and what was known stays.
    fn take(&mut self, found: ConfigMap) {
        let data = found.data.unwrap_or_default();
        if self.taken.as_ref() == Some(&data) {
            return;
        }
        let (published, wrong) = published::read(&data);
        if let Some(error) = wrong.filter(|_| self.wanted.proxies) {
            tracing::warn!("{SHOWN}: {}; what was known of proxies before stays", chain(&error));
        }
        self.taken = Some(data);
        if let Some(pem) = published.client_ca.filter(|_| self.wanted.clients) {
            told("client-ca-file", self.trust.believe_clients(pem.as_bytes()));
        }
        if let Some((pem, settings)) = published.proxies.filter(|_| self.wanted.proxies) {
            told("requestheader-client-ca-file", self.trust.believe_proxies(pem.as_bytes(), settings));
        }
    }

    fn forbidden(&self, error: CallError) {
        if !matches!(*self.looks.borrow(), Look::Forbidden(_)) {
            tracing::warn!(
                "client certificates and proxies are not believed at the secure port: {}; to allow it, bind the user of \
                 this process to the Role extension-apiserver-authentication-reader in kube-system",
                chain(&error)
            );
        }
        self.looks.send_replace(Look::Forbidden(Arc::new(error)));
    }

    fn failed(&self, failure: &Failure) {
        // A watch that breaks is nothing to tell of unless the ConfigMap cannot be read afterwards.
        let is_told = !matches!((&*self.looks.borrow(), failure), (Look::Pending | Look::Done, Failure::Call(_)));
        if is_told {
            tracing::debug!("{}", chain(failure));
        } else {
            tracing::warn!(
                "the client CAs for the secure port cannot be read and may have changed: {}",
                chain(failure)
            );
        }
        if matches!(failure, Failure::Call(_)) {
            self.looks.send_replace(Look::Failed);
        }
    }
}

fn told(key: &str, outcome: Result<(), super::BadBundle>) {
    match outcome {
        Ok(()) => tracing::debug!("taken over: {key} of {SHOWN}"),
        Err(error) => tracing::warn!("{SHOWN}: {key}: {}; what was known before stays", chain(&error)),
    }
}
