//! The permission to send a request. The permission may end while the request is in flight.

use async_trait::async_trait;

/// A caller's permission to write, attached to requests that change something. An ended permission stays ended.
#[async_trait]
pub trait Permit: Send + Sync {
    /// Whether the permission is valid now.
    fn is_valid(&self) -> bool;

    /// Completes when the permission has ended.
    async fn ended(&self);
}
