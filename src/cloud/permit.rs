//! The permission of this process to write to the cloud. `cloud.go` has no counterpart, because a Go process exits when
//! it loses leadership.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::error::Error;

/// Permission to write to the cloud during one term of leadership. A provider checks the token before each write, even
/// within one call, because the next leader may already be writing.
#[derive(Clone)]
pub struct LeaderToken {
    is_valid: Arc<dyn Fn() -> bool + Send + Sync>,
    ended: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl LeaderToken {
    /// Creates a token. Once `is_valid` is false, it must stay false, and the futures of `ended` must complete.
    pub fn new(
        is_valid: impl Fn() -> bool + Send + Sync + 'static,
        ended: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self { is_valid: Arc::new(is_valid), ended: Arc::new(ended) }
    }

    /// Fails with [`Error::NotLeader`] after the end of the term.
    pub fn check(&self) -> Result<(), Error> {
        if (self.is_valid)() { Ok(()) } else { Err(Error::NotLeader) }
    }

    /// Returns a future that completes at the end of the term. A write in progress must then be aborted.
    pub fn ended(&self) -> BoxFuture<'static, ()> {
        (self.ended)()
    }
}

impl fmt::Debug for LeaderToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if (self.is_valid)() { "valid" } else { "ended" })
    }
}
