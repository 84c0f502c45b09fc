//! The permission to send a request. The permission may end while the request is in flight.

use async_trait::async_trait;

/// A caller's permission to write, attached to requests that change something. An ended permission stays ended.
#[async_trait]
pub trait Permit: Send + Sync {
    /// Whether the permission is valid now.
    fn is_valid(&self) -> bool;

    /// Completes when requests in flight must be aborted. The client polls it before each poll of such a request.
    async fn ended(&self);
}
