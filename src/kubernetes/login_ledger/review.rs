//! Reads records for the review of paused logins. The logins of one account at all vCenters are judged by the same
//! records, so that one reading of each serves all reviews that come within [`SERVES_FOR`].

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::{CALL_LIMIT, Fetched, Ledger, StoreError, within};

/// How long a reading serves. A login is reviewed again after 30 to 37.5 s, so that what was deleted is noticed within a
/// minute.
const SERVES_FOR: Duration = Duration::from_secs(15);

/// A record as it was read for a review.
pub(super) struct SharedReading {
    began: Instant,
    fetched: Fetched,
}

impl Ledger {
    /// These records, as they were at most [`SERVES_FOR`] ago and after the last write of this process.
    pub(super) async fn read_for_review(&self, names: BTreeSet<String>) -> Result<Vec<(String, Fetched)>, StoreError> {
        let all = async {
            // One review reads at a time; the others find what it has read. It is never closed.
            let _turn = self.review_turn.acquire().await;
            let mut records = Vec::new();
            for name in names {
                let known = self.local().readings.get(&name).filter(|one| one.serves()).map(|one| one.fetched.clone());
                let fetched = match known {
                    Some(fetched) => fetched,
                    None => self.fetch_for_all(&name).await?,
                };
                records.push((name, fetched));
            }
            Ok(records)
        };
        within(CALL_LIMIT, all).await
    }

    async fn fetch_for_all(&self, name: &str) -> Result<Fetched, StoreError> {
        let (began, writes) = (Instant::now(), self.local().writes);
        let fetched = self.fetch(name).await?;
        let mut local = self.local();
        local.readings.retain(|_, reading| reading.serves());
        // A reading that met a write of this process may not hold it, and its attempt would seem to be deleted.
        if local.writes == writes {
            local.readings.insert(name.to_owned(), SharedReading { began, fetched: fetched.clone() });
        }
        Ok(fetched)
    }
}

impl SharedReading {
    fn serves(&self) -> bool {
        self.began.elapsed() < SERVES_FOR
    }
}
