//! Polls `vsphere.conf` and the files that it names, on threads that are allowed to block. Compares contents: an update
//! of a ConfigMap swaps a symbolic link, and a copied file may keep its modification time.

use crate::app::files::{FileFingerprints, SystemFiles};
use crate::app::settings::SettingErrors;
use crate::app::settings::vsphere::{CloudConfig, CloudConfigFile};
use crate::runtime::tasks::{BoxError, off_thread};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// Poll interval. The kubelet needs up to a minute to update a mounted ConfigMap.
const PAUSE: Duration = Duration::from_secs(3);

/// Time that changed files must stay the same before they are used, since a file may be half-written.
const SETTLE: Duration = Duration::from_millis(250);

/// Time after which a poll in progress is logged, since a network file system may hang.
const SLOW: Duration = Duration::from_secs(30);

/// Outcome of parsing changed files.
pub(super) type ReloadResult = Result<CloudConfig, SettingErrors>;

/// Polls the files forever. After each change, parses the files and sends the outcome.
pub(super) async fn run(
    file: Arc<CloudConfigFile>,
    mut fingerprints: FileFingerprints,
    changes: mpsc::Sender<ReloadResult>,
) -> Result<(), BoxError> {
    let mut interval = tokio::time::interval(PAUSE);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let known = fingerprints.clone();
        if !log_if_slow(off_thread(move || known.differs(&SystemFiles))).await? {
            continue;
        }
        let (outcome, now) = settled(&file).await?;
        fingerprints = now;
        if changes.send(outcome).await.is_err() {
            // The receiver is gone, so the process is shutting down.
            return std::future::pending().await;
        }
    }
}

/// Reads the files until they stop changing.
async fn settled(file: &Arc<CloudConfigFile>) -> Result<(ReloadResult, FileFingerprints), BoxError> {
    loop {
        let file = Arc::clone(file);
        let (outcome, fingerprints) = log_if_slow(off_thread(move || file.read(&SystemFiles))).await?;
        tokio::time::sleep(SETTLE).await;
        let known = fingerprints.clone();
        if !log_if_slow(off_thread(move || known.differs(&SystemFiles))).await? {
            return Ok((outcome, fingerprints));
        }
    }
}

async fn log_if_slow<T>(work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    match tokio::time::timeout(SLOW, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            tracing::warn!("the files of the cloud config cannot be read: no answer within {SLOW:?}");
            work.await
        }
    }
}
