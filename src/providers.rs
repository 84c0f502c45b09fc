//! Implementations of the cloud contract.

pub mod provider_id;
pub mod vsphere;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// Work that runs until `stop` is cancelled, then ends in order.
pub struct Task {
    /// The task's name, for logs.
    pub name: String,
    /// Cancelled when the work must end: with the provider, or when its vCenter is removed from the configuration. An
    /// earlier end is a bug in this program.
    pub stop: CancellationToken,
    /// The work.
    pub run: BoxFuture<'static, ()>,
}

/// An entry of the configuration that this program cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct BuildError {
    /// The name of the entry.
    key: String,
    problem: String,
}
