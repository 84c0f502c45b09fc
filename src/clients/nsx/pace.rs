//! Rate limiter for the calls to a manager, which stays below the limits of NSX and slows down while NSX is overloaded.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of calls in flight. NSX refuses calls of a client that has more than 40 in flight.
const MAX_IN_FLIGHT: usize = 20;

/// The lowest rate after throttling, in calls per second.
const MIN_RATE: f64 = 1.0;

/// Additive increase of the rate after each second without throttling, in calls per second.
const GROWTH: f64 = 2.0;

/// The longest pause that a manager may request.
pub(super) const LONGEST_HOLD: Duration = Duration::from_secs(300);

/// Rate limiter of one manager, shared by all its callers.
pub struct Pace {
    began: Instant,
    /// Never locked across an await.
    state: Mutex<PaceState>,
    changed: Notify,
}

struct PaceState {
    flow: Flow,
    under_way: usize,
}

/// One call in flight, counted until this value is dropped.
pub(super) struct InFlightCall<'a> {
    pace: &'a Pace,
    pub(super) began: Instant,
}

impl Pace {
    /// Builds a limiter for this many calls per second, at least one.
    pub fn new(calls_per_second: u32) -> Self {
        let state = PaceState { flow: Flow::new(f64::from(calls_per_second.max(1))), under_way: 0 };
        Self { began: Instant::now(), state: Mutex::new(state), changed: Notify::new() }
    }

    /// Waits until the rate limit admits a call. The caller must limit the wait.
    pub(super) async fn turn(&self) -> InFlightCall<'_> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let ready = {
                let mut state = self.state.lock();
                if state.under_way >= MAX_IN_FLIGHT {
                    None
                } else if let Err(ready) = state.flow.take(self.began.elapsed()) {
                    Some(ready)
                } else {
                    state.under_way += 1;
                    return InFlightCall { pace: self, began: Instant::now() };
                }
            };
            match ready {
                Some(ready) => drop(tokio::time::timeout_at(self.began + ready, changed).await),
                None => changed.await,
            }
        }
    }

    /// Records that an overloaded manager refused a call sent at `sent` and requested the pause `after`.
    pub(super) fn slow_down(&self, sent: Instant, after: Option<Duration>) {
        let sent = sent.saturating_duration_since(self.began);
        self.state.lock().flow.slow_down(sent, self.began.elapsed(), after);
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.state.lock();
        state.under_way = state.under_way.saturating_sub(1);
        drop(state);
        self.pace.changed.notify_waiters();
    }
}

/// Schedule of the calls. Times are relative to the start of the `Pace`.
struct Flow {
    ceiling: f64,
    rate: f64,
    /// Time of the next call if no burst were allowed.
    due: Duration,
    not_before: Duration,
    /// Start of the time without refusals for which `rate` has not been raised yet.
    calm_since: Duration,
    slowed_at: Option<Duration>,
}

impl Flow {
    fn new(ceiling: f64) -> Self {
        let zero = Duration::ZERO;
        Self { ceiling, rate: ceiling, due: zero, not_before: zero, calm_since: zero, slowed_at: None }
    }

    /// Admits one call, or returns the time of the next attempt.
    fn take(&mut self, now: Duration) -> Result<(), Duration> {
        if now < self.not_before {
            return Err(self.not_before);
        }
        self.grow(now);
        let interval = Duration::from_secs_f64(self.rate.recip());
        // A burst has as many calls as the rate allows in a tenth of a second, but at least one.
        let burst = interval.mul_f64((self.rate / 10.0 - 1.0).max(0.0));
        let ready = self.due.saturating_sub(burst);
        if now < ready {
            return Err(ready);
        }
        self.due = self.due.max(now) + interval;
        Ok(())
    }

    fn grow(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.calm_since).as_secs();
        if seconds > 0 {
            self.rate = (self.rate + GROWTH * seconds as f64).min(self.ceiling);
            self.calm_since += Duration::from_secs(seconds);
        }
    }

    /// Halves the rate once per overload. The refusal of a call sent before the last slow-down does not halve the rate
    /// again.
    fn slow_down(&mut self, sent: Duration, now: Duration, after: Option<Duration>) {
        if self.slowed_at.is_none_or(|slowed_at| sent >= slowed_at) {
            self.grow(now);
            self.rate = (self.rate / 2.0).max(MIN_RATE);
            self.slowed_at = Some(now);
        }
        self.calm_since = now;
        let after = after.unwrap_or_default().min(LONGEST_HOLD);
        self.not_before = self.not_before.max(now + after);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::Instant;

    use super::{Flow, MAX_IN_FLIGHT, Pace};

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the number of calls that pass in this time if the caller makes as many calls as possible.
    fn passed(flow: &mut Flow, from: Duration, to: Duration) -> usize {
        let (mut now, mut count) = (from, 0);
        while now < to {
            match flow.take(now) {
                Ok(()) => count += 1,
                Err(ready) => now = ready.max(now + Duration::from_micros(1)),
            }
        }
        count
    }

    #[test]
    fn the_rate_is_kept_and_halved_by_refusals_and_grows_again() {
        let mut flow = Flow::new(80.0);
        let first = passed(&mut flow, Duration::ZERO, SECOND);
        assert!((80..=88).contains(&first), "{first}");
        assert!((79..=81).contains(&passed(&mut flow, SECOND, SECOND * 2)));
        // Ten refusals of calls that were in flight at the same time halve the rate once.
        for _ in 0..10 {
            flow.slow_down(SECOND * 2 - Duration::from_millis(10), SECOND * 2, None);
        }
        assert_eq!(flow.rate, 40.0);
        flow.slow_down(SECOND * 2, SECOND * 2, None);
        assert_eq!(flow.rate, 20.0);
        assert!((18..=24).contains(&passed(&mut flow, SECOND * 2, SECOND * 3)));
        flow.grow(SECOND * 12);
        assert_eq!(flow.rate, 40.0);
        flow.grow(SECOND * 1000);
        assert_eq!(flow.rate, 80.0);
        for second in 1001..1020 {
            flow.slow_down(SECOND * second, SECOND * second, None);
        }
        assert!(flow.rate < 4.0, "{}", flow.rate);
    }

    #[test]
    fn what_the_manager_asks_for_is_kept_up_to_five_minutes() {
        let mut flow = Flow::new(80.0);
        flow.slow_down(Duration::ZERO, Duration::ZERO, Some(SECOND * 7));
        assert_eq!((flow.take(SECOND), flow.take(SECOND * 7)), (Err(SECOND * 7), Ok(())));
        flow.slow_down(SECOND * 8, SECOND * 8, Some(SECOND * 100_000));
        assert_eq!(flow.take(SECOND * 9), Err(SECOND * 308));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_twenty_are_under_way() {
        let pace = Arc::new(Pace::new(1000));
        let all = join_all((0..MAX_IN_FLIGHT).map(|_| pace.turn())).await;
        assert!(tokio::time::timeout(SECOND, pace.turn()).await.is_err());
        drop(all);
        assert!(tokio::time::timeout(SECOND, pace.turn()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_leaves_no_trace() {
        let pace = Pace::new(1);
        let began = Instant::now();
        drop(pace.turn().await);
        assert!(tokio::time::timeout(SECOND / 2, pace.turn()).await.is_err());
        drop(pace.turn().await);
        assert!(began.elapsed() <= SECOND + SECOND / 10, "{:?}", began.elapsed());
    }
}
