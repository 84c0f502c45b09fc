//! Implementations of the cloud contract.

pub mod provider_id;
pub mod vsphere;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// Background work that runs until `stop` is cancelled and then shuts down cleanly.
pub struct Task {
    /// The task's name, for logs.
    pub name: String,
    /// Cancelled when the provider stops or when the vCenter of this task is removed from the configuration. A task
    /// that ends before its cancellation is a bug in this program.
    pub stop: CancellationToken,
    /// The work.
    pub run: BoxFuture<'static, ()>,
}

/// Error for an entry of the configuration that this program cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct BuildError {
    key: String,
    problem: String,
}
