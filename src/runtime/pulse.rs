//! Detects a task that is not polled. A task that never yields, or that blocks its thread, has no pulse.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Interval between two beats.
const BEAT: Duration = Duration::from_secs(5);

/// The pulse of one task. Clones share the pulse.
#[derive(Clone, Default)]
pub struct Pulse {
    last: Arc<Mutex<Option<Instant>>>,
}

impl Pulse {
    /// Runs `work` and beats every 5 s in the same task. A task that is not polled does not beat.
    pub async fn beating<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = work.as_mut() => return done,
                _ = beats.tick() => *self.last.lock() = Some(Instant::now()),
            }
        }
    }

    /// Returns the time since the last beat, or `None` before the first beat.
    pub fn since_last_beat(&self) -> Option<Duration> {
        self.last.lock().map(|last| last.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_waits_beats_and_one_that_is_not_polled_does_not() {
        let pulse = Pulse::default();
        assert_eq!(pulse.since_last_beat(), None);
        let work = pulse.beating(std::future::pending::<()>());
        tokio::pin!(work);
        assert!(tokio::time::timeout(BEAT * 20, work.as_mut()).await.is_err());
        assert!(pulse.since_last_beat().unwrap() <= BEAT, "{:?}", pulse.since_last_beat());
        // The task is not polled while the clock advances.
        tokio::time::advance(BEAT * 20).await;
        assert!(pulse.since_last_beat().unwrap() >= BEAT * 20);
        assert_eq!(pulse.beating(async { 7 }).await, 7);
    }
}
