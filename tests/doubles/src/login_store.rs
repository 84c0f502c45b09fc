//! A store in memory with the compare-and-swap of a Lease, for tests of several replicas in one process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use tokio::time::Instant;

use ccm::kubernetes::login_ledger::{LedgerStore, StoreError, StoreReading, StoredText};

/// Server time of a new store, in Unix seconds.
const EPOCH: i64 = 1_900_000_000;

/// The store. Clones share its content.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    texts: HashMap<String, (u64, String)>,
    trouble: Option<String>,
    began: Instant,
    tells_time: bool,
}

impl Default for MemoryStore {
    fn default() -> Self {
        let inner = Inner { texts: HashMap::new(), trouble: None, began: Instant::now(), tells_time: true };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }
}

impl MemoryStore {
    /// Stops reporting the server time.
    pub fn hide_time(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).tells_time = false;
    }

    /// Makes all reads and writes fail for this reason; `None` ends the failures.
    pub fn fail(&self, trouble: Option<&str>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).trouble = trouble.map(str::to_owned);
    }

    /// Deletes these records, as an administrator does.
    pub fn clear(&self, names: &[String]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.texts.retain(|name, _| !names.contains(name));
    }

    /// Returns everything that is stored, by name.
    pub fn texts(&self) -> HashMap<String, String> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.texts.iter().map(|(name, (_, text))| (name.clone(), text.clone())).collect()
    }
}

#[async_trait]
impl LedgerStore for MemoryStore {
    async fn read(&self, name: &str) -> Result<StoreReading, StoreError> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = &inner.trouble {
            return Err(StoreError::OutOfReach(trouble.clone()));
        }
        let stored = inner.texts.get(name);
        let stored = stored.map(|(version, text)| StoredText { text: text.clone(), version: version.to_string() });
        let elapsed = i64::try_from(inner.began.elapsed().as_secs()).unwrap_or(i64::MAX);
        Ok(StoreReading { stored, server_time: inner.tells_time.then(|| EPOCH.saturating_add(elapsed)) })
    }

    fn delete_command(&self, names: &BTreeSet<String>) -> Option<String> {
        Some(format!("delete {names:?}"))
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
