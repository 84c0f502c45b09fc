//! Watches the Lease for a standby. The standby acquires a released Lease immediately, and the Lease of a crashed
//! leader as soon as the lease duration has passed.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::WatchParams;
use tokio::time::Instant;

use super::record;
use crate::base::error_chain::chain;
use crate::kubernetes::watch::{Event, EventStream, PAUSE_FORBIDDEN, WatchPolicy, WatchTarget};

/// A watch that outlasts its announced end is treated as dead, although the connection shows no error.
const POLICY: WatchPolicy =
    WatchPolicy { seconds: 60..61, call_limit: Duration::from_secs(10), is_extended_by_events: false };

/// Minimum interval between two attempts to open the watch.
const PAUSE: Duration = Duration::from_secs(2);

pub(super) enum LeaseObservation {
    /// The Lease was released or deleted.
    GivenUp,
    /// The holder has written the Lease.
    Written(Box<Lease>),
}

/// Watch of the Lease. [`ReleaseWatch::next`] opens the watch, which stays open between calls.
pub(super) struct ReleaseWatch {
    target: WatchTarget,
    events: Option<EventStream<Lease>>,
    next_start: Instant,
}

impl ReleaseWatch {
    pub(super) fn new(api: &Api<Lease>, name: &str) -> Self {
        let (client, url) = (api.clone().into_client(), api.resource_url().to_owned());
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
        let target = WatchTarget { client, url, shown: "the lease".to_owned(), parameters, policy: &POLICY };
        Self { target, events: None, next_start: Instant::now() }
    }

    /// Closes the watch. The next call of [`ReleaseWatch::next`] opens the watch again.
    pub(super) fn close(&mut self) {
        self.events = None;
    }

    /// Completes when the Lease was written or deleted after `version`, the resourceVersion of the last read. Never
    /// completes without a version. Cancel-safe.
    pub(super) async fn next(&mut self, version: Option<String>) -> LeaseObservation {
        let Some(version) = version else { return std::future::pending().await };
        loop {
            let Some(events) = &mut self.events else {
                self.start(&version).await;
                continue;
            };
            match events.next().await {
                Ok(Some(Event::Deleted(_))) => return LeaseObservation::GivenUp,
                Ok(Some(Event::Applied(lease))) => {
                    return match lease.spec.as_ref().and_then(record::holder) {
                        None => LeaseObservation::GivenUp,
                        Some(_) => LeaseObservation::Written(Box::new(lease)),
                    };
                }
                Ok(Some(Event::Bookmark(_))) => {}
                Ok(None) | Err(_) => self.events = None,
            }
        }
    }

    async fn start(&mut self, version: &str) {
        tokio::time::sleep_until(self.next_start).await;
        self.next_start = Instant::now() + PAUSE;
        match self.target.open(version, false).await {
            Ok(events) => self.events = Some(events),
            // The elector polls the Lease during the pause.
            Err(error) if error.is_forbidden() => {
                tracing::info!("the lease cannot be watched (forbidden), so it is polled");
                self.next_start = Instant::now() + PAUSE_FORBIDDEN;
            }
            Err(error) => tracing::debug!("{}", chain(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::StreamExt;
    use http::{Method, Request, Response};
    use kube::api::WatchEvent;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;
    use tower::BoxError;

    use super::super::{LeaderElector, LeaseConfig};
    use super::*;

    const LEASE_DURATION: Duration = Duration::from_secs(15);

    fn lease(version: u64) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "a", "namespace": "b", "resourceVersion": version.to_string() },
            "spec": {
                "holderIdentity": "other",
                "leaseDurationSeconds": LEASE_DURATION.as_secs(),
                "renewTime": format!("2026-01-01T00:00:{version:02}.000000Z"),
            },
        })
    }

    /// Returns a client of a server with this Lease. The server accepts every write.
    fn client(lease: &Arc<Mutex<Value>>) -> kube::Client {
        let lease = lease.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let lease = lease.clone();
            async move {
                let (parts, body) = request.into_parts();
                let sent = body.collect_bytes().await?;
                let mut lease = lease.lock().unwrap();
                if parts.method == Method::PUT {
                    *lease = serde_json::from_slice(&sent)?;
                }
                Ok::<_, BoxError>(Response::new(Body::from(serde_json::to_vec(&*lease)?)))
            }
        });
        kube::Client::new(service, "default")
    }

    /// Competes for the Lease, which is changed to `written` after `delay`. Returns the time until leadership. With
    /// polling alone, the change would be noticed up to 2.2 retry periods later.
    async fn acquired_after(delay: Duration, written: Value) -> Duration {
        let stored = Arc::new(Mutex::new(lease(1)));
        let config = LeaseConfig {
            namespace: "b".to_owned(),
            name: "a".to_owned(),
            identity: "me".to_owned(),
            lease_duration: LEASE_DURATION,
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        };
        let (mut elector, _) = LeaderElector::new(client(&stored), config).unwrap();
        let server = stored.clone();
        let write = async move {
            tokio::time::sleep(delay).await;
            *server.lock().unwrap() = written.clone();
            Ok(WatchEvent::Modified(serde_json::from_value(written).unwrap()))
        };
        let mut release = ReleaseWatch::new(&elector.api, "a");
        let events = futures::stream::once(write).chain(futures::stream::pending());
        release.events = Some(EventStream::new(events, 60, &POLICY));
        let began = Instant::now();
        assert!(elector.acquire(&mut release, &CancellationToken::new()).await.is_some());
        assert_eq!(stored.lock().unwrap()["spec"]["holderIdentity"], "me");
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_of_a_dead_leader_is_taken_its_duration_after_the_last_renewal_was_heard_of() {
        let taken = acquired_after(Duration::from_secs(1), lease(2)).await;
        assert!((Duration::from_secs(16)..Duration::from_millis(16_100)).contains(&taken), "{taken:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_it_is_heard_that_its_leader_gave_it_up() {
        let mut given_up = lease(2);
        given_up["spec"]["holderIdentity"] = "".into();
        given_up["spec"]["leaseDurationSeconds"] = 1.into();
        let taken = acquired_after(Duration::from_millis(500), given_up).await;
        assert!((Duration::from_millis(500)..Duration::from_millis(600)).contains(&taken), "{taken:?}");
    }

    /// The dead connection gives no error. Each call is cancelled by the next attempt to acquire the Lease.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_cut_is_given_up_although_nobody_waits_for_long() {
        let api = Api::namespaced(client(&Arc::new(Mutex::new(lease(1)))), "b");
        let mut release = ReleaseWatch::new(&api, "a");
        release.events = Some(EventStream::new(futures::stream::pending(), 60, &POLICY));
        let began = Instant::now();
        while release.next_start <= began {
            let heard = tokio::time::timeout(Duration::from_secs(2), release.next(Some("1".to_owned()))).await;
            assert!(heard.is_err() || release.next_start > began, "a new watch was opened");
        }
        let elapsed = began.elapsed();
        assert!((65..68).contains(&elapsed.as_secs()), "{elapsed:?}");
    }
}
