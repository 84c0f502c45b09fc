//! What the records of logins are kept in, as the ledger sees it.

use std::collections::BTreeSet;

use async_trait::async_trait;

/// What a store holds under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The text of a [`Record`](super::record::Record).
    pub text: String,
    /// To be given back at the next write.
    pub version: String,
}

/// The answer of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What stands under the name; nothing when nobody has written there yet.
    pub stored: Option<Stored>,
    /// The store's own clock, in seconds since 1970, if it tells it.
    pub server_time: Option<i64>,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another has written in between.
    #[error("another replica has written in between")]
    Conflict,
    /// It does not answer, or may not be used.
    #[error("{0}")]
    OutOfReach(String),
}

/// Keeps texts under names, for all replicas.
#[async_trait]
pub trait Store: Send + Sync {
    /// What stands there, and what time it is.
    async fn read(&self, name: &str) -> Result<Reading, StoreError>;

    /// The command by which an administrator deletes what is stored under these names; none where there is no such command.
    fn delete_command(&self, _names: &BTreeSet<String>) -> Option<String> {
        None
    }

    /// Writes, if what stands there is still `version`: nothing, or what was read.
    async fn write(&self, name: &str, version: Option<&str>, text: &str) -> Result<(), StoreError>;
}
