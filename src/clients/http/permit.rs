//! The permission to send a request, which may end while the request is under way.

use async_trait::async_trait;

/// A permission of the caller's, carried by requests that change something. Once it has ended it stays so.
#[async_trait]
pub trait Permit: Send + Sync {
    /// Whether the request may be sent now.
    fn is_valid(&self) -> bool;

    /// Completes when the permission has ended.
    async fn ended(&self);
}
