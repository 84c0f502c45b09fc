//! Looks at `vsphere.conf` and the files it names every few seconds, off the threads that must not wait.
//!
//! By content: a ConfigMap is updated by exchanging a symbolic link, and copies keep their times.

use crate::app::files::{FileFingerprints, SystemFiles};
use crate::app::settings::Mistakes;
use crate::app::settings::vsphere::{CloudConfig, CloudConfigFile};
use crate::runtime::tasks::{BoxError, off_thread};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// Pause between two looks. The kubelet needs up to a minute to bring a changed ConfigMap.
const PAUSE: Duration = Duration::from_secs(3);

/// A changed file is believed when it is still the same after this pause: whoever writes it may not be done.
const SETTLE: Duration = Duration::from_millis(250);

/// How long one look may take before that is told; a file system over a network may hang.
const SLOW: Duration = Duration::from_secs(30);

/// What a changed content means.
pub(super) type ReloadResult = Result<CloudConfig, Mistakes>;

/// Hands every changed content over, once.
pub(super) async fn run(
    file: Arc<CloudConfigFile>,
    mut seen: FileFingerprints,
    changes: mpsc::Sender<ReloadResult>,
) -> Result<(), BoxError> {
    let mut looks = tokio::time::interval(PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let known = seen.clone();
        if !told_if_slow(off_thread(move || known.differs(&SystemFiles))).await? {
            continue;
        }
        let (outcome, now) = settled(&file).await?;
        seen = now;
        if changes.send(outcome).await.is_err() {
            // Whoever took them is on its way out.
            return std::future::pending().await;
        }
    }
}

/// What the files say once they have stopped changing.
async fn settled(file: &Arc<CloudConfigFile>) -> Result<(ReloadResult, FileFingerprints), BoxError> {
    loop {
        let file = Arc::clone(file);
        let (outcome, seen) = told_if_slow(off_thread(move || file.read(&SystemFiles))).await?;
        tokio::time::sleep(SETTLE).await;
        let known = seen.clone();
        if !told_if_slow(off_thread(move || known.differs(&SystemFiles))).await? {
            return Ok((outcome, seen));
        }
    }
}

async fn told_if_slow<T>(work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    match tokio::time::timeout(SLOW, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            tracing::warn!("the files of the cloud config cannot be read: no answer within {SLOW:?}");
            work.await
        }
    }
}
