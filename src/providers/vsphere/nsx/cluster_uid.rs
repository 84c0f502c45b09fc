//! The UID of this cluster, for the tags of NSX objects.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::cloud::{Error, LiveReads, Unknown};
use crate::providers::vsphere::reason;

/// Pause before the next read after a read for which the permission was missing.
const PAUSE: Duration = Duration::from_secs(300);

/// The UID of the cluster, read once.
pub struct ClusterUid {
    live: Arc<dyn LiveReads>,
    /// Beginning of the warning about an unknown UID: the consequence.
    missing: &'static str,
    cache: Mutex<CachedClusterUid>,
}

/// Never locked over an await.
#[derive(Default)]
struct CachedClusterUid {
    uid: Option<String>,
    /// Earliest time of the next read.
    ask_again: Option<Instant>,
}

impl ClusterUid {
    /// `missing` is the beginning of the warning about an unknown UID: it names the consequence.
    pub fn new(live: Arc<dyn LiveReads>, missing: &'static str) -> Self {
        Self { live, missing, cache: Mutex::default() }
    }

    /// The UID, if it was read already.
    pub fn known(&self) -> Option<String> {
        self.cache.lock().uid.clone()
    }

    /// Returns the UID, and reads it if necessary; `None` if the permission is missing. A missing permission is logged
    /// once, and a later call reads again.
    ///
    /// # Errors
    /// The API server does not answer. Writes have to wait: an object written without the UID tag could not be
    /// attributed to this cluster later.
    pub async fn read(&self) -> Result<Option<String>, Error> {
        {
            let known = self.cache.lock();
            if known.uid.is_some() || known.ask_again.is_some_and(|moment| moment > Instant::now()) {
                return Ok(known.uid.clone());
            }
        }
        let answer = self.live.cluster_uid().await;
        let mut known = self.cache.lock();
        match answer {
            Ok(uid) => known.uid = Some(uid),
            Err(unknown) if unknown.reason != reason::NoPermission => {
                let Unknown { reason, message, .. } = unknown;
                let message = format!("what identifies this cluster is not known: {message}");
                return Err(Error::Failed { reason, message, after: None });
            }
            Err(unknown) => {
                if known.ask_again.replace(Instant::now() + PAUSE).is_none() {
                    warn!("{}: {unknown}", self.missing);
                }
            }
        }
        Ok(known.uid.clone())
    }
}
