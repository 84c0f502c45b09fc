//! A store in memory, with the Lease's compare-and-swap: for tests of several replicas in one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{Store, StoreError, Stored};

/// Clones share what is stored.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    texts: HashMap<String, (u64, String)>,
    trouble: Option<String>,
}

impl MemoryStore {
    /// From now on nothing can be read or written, for this reason; `None` ends that.
    pub fn fail(&self, trouble: Option<&str>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).trouble = trouble.map(str::to_owned);
    }

    /// Everything that is stored, by name.
    pub fn texts(&self) -> HashMap<String, String> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.texts.iter().map(|(name, (_, text))| (name.clone(), text.clone())).collect()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, name: &str) -> Result<Option<Stored>, StoreError> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = &inner.trouble {
            return Err(StoreError::OutOfReach(trouble.clone()));
        }
        let stored = inner.texts.get(name);
        Ok(stored.map(|(version, text)| Stored { text: text.clone(), version: version.to_string() }))
    }

    async fn write(&self, name: &str, version: Option<&str>, text: &str) -> Result<(), StoreError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = &inner.trouble {
            return Err(StoreError::OutOfReach(trouble.clone()));
        }
        let before = inner.texts.get(name).map(|(version, _)| *version);
        if before.map(|version| version.to_string()).as_deref() != version {
            return Err(StoreError::Conflict);
        }
        inner.texts.insert(name.to_owned(), (before.unwrap_or(0) + 1, text.to_owned()));
        Ok(())
    }
}
