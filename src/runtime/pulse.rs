//! Detects a task that is no longer polled: one that never yields, or that blocks its thread, has no pulse.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Pause between two beats.
const BEAT: Duration = Duration::from_secs(5);

/// The pulse of one task. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Pulse {
    last: Arc<Mutex<Option<Instant>>>,
}

impl Pulse {
    /// Runs the work with a beat every 5 s in the same task: a task that is not polled does not beat.
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

    /// Time since the last beat; `None` before the first one.
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
        // The task is not polled now.
        tokio::time::advance(BEAT * 20).await;
        assert!(pulse.since_last_beat().unwrap() >= BEAT * 20);
        assert_eq!(pulse.beating(async { 7 }).await, 7);
    }
}
