//! Waits until a number is stable or a server is ready, with a finer resolution than tests need.

use std::time::{Duration, Instant};

/// Pause between two reads of a number.
const PERIOD: Duration = Duration::from_millis(250);
/// Pause between two requests to a server.
const READY_PERIOD: Duration = Duration::from_millis(2);
/// Timeout of one such request.
const QUESTION: Duration = Duration::from_secs(5);

/// Waits until this number has not changed for `quiet`. Returns false if that does not happen within `limit`.
pub async fn settled(quiet: Duration, limit: Duration, mut number: impl AsyncFnMut() -> u64) -> bool {
    let begun = Instant::now();
    let (mut last, mut since) = (number().await, Instant::now());
    while since.elapsed() < quiet {
        if begun.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(PERIOD).await;
        let now = number().await;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    true
}

/// Repeats a request to this URL until it succeeds. Returns the time from `since` to that answer. Any certificate is
/// accepted.
///
/// # Errors
///
/// The last answer, if there is no success within `limit`.
pub async fn ready(url: &str, since: Instant, limit: Duration) -> Result<Duration, String> {
    crate::api_server::install_crypto();
    let builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().timeout(QUESTION);
    let client = builder.build().map_err(|error| error.to_string())?;
    loop {
        let state = match client.get(url).send().await {
            Ok(answer) if answer.status().is_success() => return Ok(since.elapsed()),
            Ok(answer) => answer.status().to_string(),
            Err(error) => error.to_string(),
        };
        if since.elapsed() > limit {
            return Err(format!("{url} is not answered with success within {limit:?}: {state}"));
        }
        tokio::time::sleep(READY_PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_stops_is_settled_and_what_goes_on_is_not() {
        let (quiet, limit) = (Duration::from_millis(600), Duration::from_secs(60));
        let mut looks = 0;
        assert!(
            settled(quiet, limit, async || {
                looks += 1;
                looks.min(4)
            })
            .await
        );
        assert!(looks > 4, "{looks}");
        let mut looks = 0;
        let goes_on = settled(quiet, Duration::from_secs(1), async || {
            looks += 1;
            looks
        });
        assert!(!goes_on.await);
    }
}
