//! Waits for a condition instead of for a time.

use std::fmt::Display;
use std::time::Duration;

/// Pause between two checks. It is short enough to be unnoticed, and long compared with the cost of a check.
const PERIOD: Duration = Duration::from_millis(25);

/// Repeats `check` until it returns a value. The error of `check` describes the current state.
///
/// # Panics
///
/// After `limit`, with `what` and the last state.
pub async fn eventually<T, E: Display>(what: &str, limit: Duration, check: impl AsyncFnMut() -> Result<T, E>) -> T {
    eventually_every(PERIOD, what, limit, check).await
}

/// Like [`eventually`], with this pause between two checks.
///
/// # Panics
///
/// Like [`eventually`].
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

/// Returns a unique name, which separates tests that share an API server. It is a valid DNS label if `prefix` is short.
#[must_use]
pub fn unique(prefix: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let short: String = id.chars().take(8).collect();
    format!("{prefix}-{short}")
}
