//! Watches the one ConfigMap in which the API server publishes the CAs of client certificates, and believes the same.
//!
//! What was learned stays while the API server is away, when the ConfigMap is deleted and when its key is gone. The proxies
//! that the API server publishes beside them are not read: no headers name a user here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use super::trust::Trust;
use crate::base::backoff::{Backoff, Failures};
use crate::base::error_chain::chain;
use crate::kubernetes::client::{CALL_LIMIT, CallError, limited};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The key with the CAs of client certificates, PEM.
const CLIENT_CA: &str = "client-ca-file";

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
) -> (watch::Receiver<Look>, impl Future<Output = Infallible> + Send + use<>) {
    let (looks, receiver) = watch::channel(Look::Pending);
    let api = Api::namespaced(client, NAMESPACE);
    let lookup = Lookup { api, trust, looks, taken: None, next_watch: Instant::now() };
    (receiver, lookup.run())
}

struct Lookup {
    api: Api<ConfigMap>,
    trust: Trust,
    looks: watch::Sender<Look>,
    /// The bundle that was looked at last, good or bad.
    taken: Option<String>,
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

    /// Takes a new bundle over. What is wrong in it is told once, and what was known stays. A key that is missing or blank
    /// says nothing.
    fn take(&mut self, found: ConfigMap) {
        let bundle = found.data.and_then(|mut data| data.remove(CLIENT_CA)).filter(|pem| !pem.trim().is_empty());
        let Some(pem) = bundle.filter(|pem| self.taken.as_ref() != Some(pem)) else { return };
        match self.trust.believe_clients(pem.as_bytes()) {
            Ok(()) => tracing::debug!("taken over: {CLIENT_CA} of {SHOWN}"),
            Err(error) => tracing::warn!("{SHOWN}: {CLIENT_CA}: {}; what was known before stays", chain(&error)),
        }
        self.taken = Some(pem);
    }

    fn forbidden(&self, error: CallError) {
        if !matches!(*self.looks.borrow(), Look::Forbidden(_)) {
            tracing::warn!(
                "client certificates are not believed at the secure port: {}; to allow it, bind the user of this \
                 process to the Role extension-apiserver-authentication-reader in kube-system",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::access::authority::{Authority, client};
    use crate::kubernetes::access::scripted::silent_server;
    use rustls::pki_types::{CertificateDer, UnixTime};
    use serde_json::json;

    #[tokio::test]
    async fn the_cas_of_clients_are_taken_over_and_what_says_nothing_of_them_changes_nothing() {
        let (one, two, proxies) = (Authority::new("one"), Authority::new("two"), Authority::new("proxies"));
        let api = Api::namespaced(silent_server().0, NAMESPACE);
        let (looks, trust) = (watch::Sender::new(Look::Pending), Trust::default());
        let mut lookup = Lookup { api, trust, looks, taken: None, next_watch: Instant::now() };
        let signed = |authority: &Authority| [authority.sign(&client("jane", &[]))];
        let (of_one, of_two, of_proxies) = (signed(&one), signed(&two), signed(&proxies));
        for (name, data, expected) in [
            ("nothing is there", json!(null), [false, false]),
            ("no data", json!({}), [false, false]),
            ("an authority", json!({"client-ca-file": one.pem}), [true, false]),
            ("the key is gone", json!({"else": two.pem}), [true, false]),
            ("the key is blank", json!({"client-ca-file": "\n"}), [true, false]),
            ("no bundle", json!({"client-ca-file": "hello"}), [true, false]),
            ("another authority", json!({"client-ca-file": two.pem}), [false, true]),
            ("proxies only", json!({"requestheader-client-ca-file": proxies.pem}), [false, true]),
            (
                "proxies by a list that is none",
                json!({"client-ca-file": one.pem, "requestheader-client-ca-file": proxies.pem,
                    "requestheader-username-headers": "X-Remote-User"}),
                [true, false],
            ),
        ] {
            let found = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data});
            lookup.take(serde_json::from_value(found).unwrap());
            let is_known =
                |chain: &[CertificateDer<'_>]| matches!(lookup.trust.user(chain, UnixTime::now()), Ok(Some(_)));
            assert_eq!([is_known(&of_one), is_known(&of_two)], expected, "{name}");
            assert!(!is_known(&of_proxies), "{name}");
        }
    }
}
