//! The permission of this process to write to the cloud. `cloud.go` has no counterpart, because a Go process exits when
//! it loses leadership.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::error::Error;

/// The permission to write to the cloud during one term of leadership. Cheap to clone.
///
/// A provider checks it before each write, also between the writes of one call: the next leader may already be writing.
#[derive(Clone)]
pub struct LeaderToken {
    is_valid: Arc<dyn Fn() -> bool + Send + Sync>,
    ended: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl LeaderToken {
    /// `is_valid` must stay false once it is false; the future of `ended` completes at that time.
    pub fn new(
        is_valid: impl Fn() -> bool + Send + Sync + 'static,
        ended: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self { is_valid: Arc::new(is_valid), ended: Arc::new(ended) }
    }

    /// # Errors
    /// [`Error::NotLeader`] after the end of the term.
    pub fn check(&self) -> Result<(), Error> {
        if (self.is_valid)() { Ok(()) } else { Err(Error::NotLeader) }
    }

    /// Completes at the end of the term, when a write in progress must be aborted.
    pub fn ended(&self) -> BoxFuture<'static, ()> {
        (self.ended)()
    }
}

impl fmt::Debug for LeaderToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if (self.is_valid)() { "valid" } else { "ended" })
    }
}
