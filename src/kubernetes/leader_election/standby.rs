//! A standby's watch on the one Lease: a leader that gives it up is followed at once.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::Instant;

use super::record;
use crate::kubernetes::client::limited;

/// How long the server keeps a watch open, and how long after that the client gives up on it. In seconds.
const WATCH_SECONDS: u32 = 60;
const WATCH_IDLE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// How long opening a watch may take.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The least time between two attempts to open the watch.
const PAUSE: Duration = Duration::from_secs(2);

/// The same where the credentials do not allow it; the elector's own polling does until then.
const PAUSE_FORBIDDEN: Duration = Duration::from_secs(300);

/// Waits for the Lease to be given up. Opens its watch when first asked and keeps it between questions.
pub(super) struct ReleaseWatch {
    api: Api<Lease>,
    parameters: WatchParams,
    stream: Option<BoxStream<'static, kube::Result<WatchEvent<Lease>>>>,
    next_start: Instant,
}

impl ReleaseWatch {
    pub(super) fn new(api: Api<Lease>, name: &str) -> Self {
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
        Self { api, parameters, stream: None, next_start: Instant::now() }
    }

    /// Closes the watch until the next question.
    pub(super) fn close(&mut self) {
        self.stream = None;
    }

    /// Completes when the Lease was given up or deleted after `version`, the resourceVersion last read. Never completes
    /// without a version. Safe to cancel.
    pub(super) async fn next(&mut self, version: Option<String>) {
        let Some(version) = version else { return std::future::pending().await };
        loop {
            let Some(stream) = &mut self.stream else {
                self.start(&version).await;
                continue;
            };
            match tokio::time::timeout(WATCH_IDLE, stream.next()).await {
                Ok(Some(Ok(WatchEvent::Deleted(_)))) => return,
                Ok(Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))) => {
                    if lease.spec.as_ref().and_then(record::holder).is_none() {
                        return;
                    }
                }
                Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                Ok(Some(Ok(WatchEvent::Error(_)) | Err(_)) | None) | Err(_) => self.stream = None,
            }
        }
    }

    async fn start(&mut self, version: &str) {
        tokio::time::sleep_until(self.next_start).await;
        self.next_start = Instant::now() + PAUSE;
        match limited("watch the lease", START_LIMIT, self.api.watch(&self.parameters, version)).await {
            Ok(stream) => self.stream = Some(stream.boxed()),
            Err(error) if error.is_forbidden() => {
                tracing::info!("the lease cannot be watched (forbidden), so it is polled");
                self.next_start = Instant::now() + PAUSE_FORBIDDEN;
            }
            Err(error) => tracing::debug!("{}", crate::runtime::logging::chain(&error)),
        }
    }
}
