//! Limits the concurrency of writes, and their rate if a rate is set.

use std::time::Duration;

use http::Method;
use tokio::sync::{AcquireError, Mutex, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::metrics;

/// A rate limit, such as that of the flags `--kube-api-qps` and `--kube-api-burst`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Average number of requests per second. For writes, zero or less means unlimited, as in client-go.
    pub qps: f32,
    /// Number of requests that pass without a pause after idle time. Zero counts as one.
    pub burst: u32,
}

/// The limits of a client's writes.
pub(super) struct WriteLimits {
    in_flight: Semaphore,
    bucket: Option<Bucket>,
    host: String,
}

impl WriteLimits {
    /// Limits writes to `in_flight` concurrent ones, and their rate to `rate`. The metrics of the API server at `host`
    /// show the delay.
    pub(super) fn new(in_flight: usize, rate: Option<Rate>, host: &str) -> Self {
        let bucket = rate.filter(|rate| rate.qps > 0.0).map(Bucket::new);
        Self { in_flight: Semaphore::new(in_flight), bucket, host: host.to_owned() }
    }

    /// Waits for the turn of a write. The write is in flight until the permit is dropped.
    pub(super) async fn admit(&self, method: &Method) -> Result<SemaphorePermit<'_>, AcquireError> {
        let began = Instant::now();
        if let Some(bucket) = &self.bucket {
            bucket.take().await;
        }
        let slot = self.in_flight.acquire().await?;
        metrics::waited(method, &self.host, began);
        Ok(slot)
    }
}

/// A token bucket. Callers wait inside a fair lock, so the first caller is served first.
pub(in crate::kubernetes) struct Bucket {
    /// Time in which one token is added.
    interval: Duration,
    burst: f64,
    level: Mutex<Level>,
}

struct Level {
    tokens: f64,
    updated: Instant,
}

impl Bucket {
    pub(in crate::kubernetes) fn new(rate: Rate) -> Self {
        let burst = f64::from(rate.burst.max(1));
        let interval = Duration::from_secs_f64(1.0 / f64::from(rate.qps.max(0.001)));
        Self { interval, burst, level: Mutex::new(Level { tokens: burst, updated: Instant::now() }) }
    }

    /// Waits for a token and takes it. A cancelled caller takes none.
    pub(in crate::kubernetes) async fn take(&self) {
        let mut level = self.level.lock().await;
        loop {
            let now = Instant::now();
            let grown = now.duration_since(level.updated).as_secs_f64() / self.interval.as_secs_f64();
            // Adds a tiny amount, so that rounding never results in a wait of zero.
            *level = Level { tokens: (level.tokens + grown + 1e-9).min(self.burst), updated: now };
            if level.tokens >= 1.0 {
                level.tokens -= 1.0;
                return;
            }
            // Keeps the lock on purpose, so that later callers wait in order.
            tokio::time::sleep(self.interval.mul_f64(1.0 - level.tokens)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let bucket = Bucket::new(Rate { qps: 10.0, burst: 3 });
        let start = Instant::now();
        let mut taken = Vec::new();
        for _ in 0..6 {
            bucket.take().await;
            taken.push(start.elapsed().as_millis());
        }
        for (at, expected) in taken.iter().zip([0, 0, 0, 100, 200, 300]) {
            assert!(at.abs_diff(expected) <= 5, "{taken:?}");
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..3 {
            bucket.take().await;
        }
        assert!(start.elapsed() < Duration::from_millis(5), "refilled, to the burst and no further");
        bucket.take().await;
        assert!(start.elapsed() > Duration::from_millis(95));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_are_served_in_order_and_one_that_gives_up_takes_nothing() {
        let bucket = Bucket::new(Rate { qps: 1.0, burst: 1 });
        bucket.take().await;
        let order = std::sync::Mutex::new(Vec::new());
        let caller = |name: &'static str| {
            let (bucket, order) = (&bucket, &order);
            async move {
                bucket.take().await;
                order.lock().unwrap().push(name);
            }
        };
        let impatient = tokio::time::timeout(Duration::from_millis(500), caller("impatient"));
        let start = Instant::now();
        let _ = tokio::join!(impatient, caller("first"), caller("second"));
        assert_eq!(*order.lock().unwrap(), ["first", "second"]);
        assert!(start.elapsed().as_millis().abs_diff(2000) < 10, "{:?}", start.elapsed());
    }
}
