//! How many writes may be on the wire at once, and how fast they may follow each other when a rate is given.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::guard::is_write;
use super::metrics;

/// A rate as the flags `--kube-api-qps` and `--kube-api-burst` give it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Writes a second in the long run; zero or less means without limit, as in client-go.
    pub qps: f32,
    /// Writes that may follow each other at once after a pause; at least one.
    pub burst: u32,
}

/// The limits all writes of one client share.
#[derive(Clone)]
pub(super) struct Limits {
    in_flight: Arc<Semaphore>,
    bucket: Option<Arc<Bucket>>,
    /// Whose series shows the waiting.
    host: Arc<str>,
}

impl Limits {
    pub(super) fn new(in_flight: usize, rate: Option<Rate>) -> Self {
        let bucket = rate.filter(|rate| rate.qps > 0.0).map(|rate| Arc::new(Bucket::new(rate)));
        Self { in_flight: Arc::new(Semaphore::new(in_flight)), bucket, host: "".into() }
    }

    /// The waiting is shown in the series of the API server at `host`.
    pub(super) fn shown_for(self, host: &str) -> Self {
        Self { host: host.into(), ..self }
    }
}

/// A token bucket: who comes first is served first, since waiting happens inside a fair lock.
pub(in crate::kubernetes) struct Bucket {
    /// How long one token takes to grow.
    interval: Duration,
    burst: f64,
    level: Mutex<Level>,
}

struct Level {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(in crate::kubernetes) fn new(rate: Rate) -> Self {
        let burst = f64::from(rate.burst.max(1));
        let interval = Duration::from_secs_f64(1.0 / f64::from(rate.qps.max(0.001)));
        Self { interval, burst, level: Mutex::new(Level { tokens: burst, at: Instant::now() }) }
    }

    /// Waits for a token and takes it. A caller that gives up while waiting takes none.
    pub(in crate::kubernetes) async fn take(&self) {
        let mut level = self.level.lock().await;
        loop {
            level.refill(self.interval, self.burst);
            if level.tokens >= 1.0 {
                level.tokens -= 1.0;
                return;
            }
            // The lock is held on purpose: those behind wait their turn in order.
            tokio::time::sleep(self.interval.mul_f64(1.0 - level.tokens)).await;
        }
    }
}

impl Level {
    fn refill(&mut self, interval: Duration, burst: f64) {
        let now = Instant::now();
        let grown = now.duration_since(self.at).as_secs_f64() / interval.as_secs_f64();
        // A hair more than grew, so that rounding never asks for a wait of nothing.
        self.tokens = (self.tokens + grown + 1e-9).min(burst);
        self.at = now;
    }
}

/// Holds writes back to [`Limits`]; reads pass.
pub(super) struct LimitsLayer {
    limits: Limits,
}

/// See [`LimitsLayer`].
pub(super) struct Limited<S> {
    inner: S,
    limits: Limits,
}

impl LimitsLayer {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits }
    }
}

impl<S> Layer<S> for LimitsLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited { inner, limits: self.limits.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for Limited<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError>,
    S::Future: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<R>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Never waits here: one waiting write would stall the client's reads behind it.
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !is_write(request.method()) {
            return self.inner.call(request).boxed();
        }
        let limits = self.limits.clone();
        let method = request.method().clone();
        let answer = self.inner.call(request);
        async move {
            let began = Instant::now();
            if let Some(bucket) = &limits.bucket {
                bucket.take().await;
            }
            let _slot = limits.in_flight.acquire_owned().await?;
            metrics::waited(&method, &limits.host, began);
            answer.await
        }
        .boxed()
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
