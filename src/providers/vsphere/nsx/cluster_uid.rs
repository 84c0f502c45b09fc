//! The UID of this cluster, for the tags of NSX objects.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::cloud::{Error, LiveReads, Unknown};
use crate::providers::vsphere::reason;

/// Pause after a read that failed because the permission was missing.
const PAUSE: Duration = Duration::from_secs(300);

/// The UID of the cluster, read once.
pub struct ClusterUid {
    live: Arc<dyn LiveReads>,
    missing: &'static str,
    cache: Mutex<CachedClusterUid>,
}

/// Cached UID. No task keeps its lock across an `await`.
#[derive(Default)]
struct CachedClusterUid {
    uid: Option<String>,
    /// Earliest time of the next read.
    next_read: Option<Instant>,
}

impl ClusterUid {
    /// Creates the cache. `missing` is the beginning of the warning about an unknown UID, and names the consequence.
    pub fn new(live: Arc<dyn LiveReads>, missing: &'static str) -> Self {
        Self { live, missing, cache: Mutex::default() }
    }

    /// Returns the UID if it was read already.
    pub fn known(&self) -> Option<String> {
        self.cache.lock().uid.clone()
    }

    /// Returns the UID, and reads it if necessary. Without permission, returns `None`, and reads again after 300 s.
    ///
    /// # Errors
    /// The read failed for a reason other than a missing permission. Writes have to wait: an object without the UID tag
    /// has no provable owner.
    pub async fn read(&self) -> Result<Option<String>, Error> {
        {
            let known = self.cache.lock();
            if known.uid.is_some() || known.next_read.is_some_and(|moment| moment > Instant::now()) {
                return Ok(known.uid.clone());
            }
        }
        let answer = self.live.cluster_uid().await;
        let mut known = self.cache.lock();
        match answer {
            Ok(uid) => known.uid = Some(uid),
            Err(unknown) if unknown.reason != reason::NoPermission => {
                let Unknown { reason, message, .. } = unknown;
                let message = format!("the UID of this cluster is not known: {message}");
                return Err(Error::Failed { reason, message, after: None });
            }
            Err(unknown) => {
                if known.next_read.replace(Instant::now() + PAUSE).is_none() {
                    warn!("{}: {unknown}", self.missing);
                }
            }
        }
        Ok(known.uid.clone())
    }
}
