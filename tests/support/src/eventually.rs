//! Waiting for a condition instead of for a time.

use std::fmt::Display;
use std::time::Duration;

/// Between two looks: short against what people notice, long against what a look costs.
const PERIOD: Duration = Duration::from_millis(25);

/// Looks again and again until `check` gives a value. Its error is the state that was seen instead.
///
/// # Panics
///
/// After `limit`, with what was waited for and the last state seen.
pub async fn eventually<T, E: Display>(what: &str, limit: Duration, check: impl AsyncFnMut() -> Result<T, E>) -> T {
    eventually_every(PERIOD, what, limit, check).await
}

/// As [`eventually`], with this pause between two looks.
///
/// # Panics
///
/// As [`eventually`].
pub async fn eventually_every<T, E: Display>(
    period: Duration,
    what: &str,
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = tokio::time::Instant::now() + limit;
    let mut last = String::from("nothing was seen");
    loop {
        match tokio::time::timeout_at(deadline, check()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(state)) => last = state.to_string(),
            Err(_) => panic!("not within {limit:?}: {what}; the last look did not end; the one before saw: {last}"),
        }
        assert!(tokio::time::Instant::now() < deadline, "not within {limit:?}: {what}; last seen: {last}");
        tokio::time::sleep(period).await;
    }
}

/// A name that nobody else has: keeps tests that share an API server apart. Fits a DNS label if `prefix` is short.
#[must_use]
pub fn unique(prefix: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let short: String = id.chars().take(8).collect();
    format!("{prefix}-{short}")
}
