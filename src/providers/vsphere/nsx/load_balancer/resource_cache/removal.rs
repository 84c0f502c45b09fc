//! Retries the deletion of the load balancer service, which NSX refuses while a deleted object still refers to it. Each
//! retry follows a relist. Retries end when the load balancer service is deleted or in use.

use std::time::Duration;

use tokio::time::Instant;

use super::{CacheState, ResourceCache};

/// Pause after the first refusal; doubles with each further refusal. NSX purges deleted objects every five minutes.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Retry state of a refused deletion of the load balancer service.
#[derive(Clone, Copy)]
pub(super) struct Removal {
    /// Time of the next attempt.
    pub(super) next: Instant,
    refusals: u32,
}

impl CacheState {
    pub(super) fn record_removal_refused(&mut self, now: Instant) {
        let refusals = self.removal.map_or(0, |removal| removal.refusals);
        let pause = FIRST_PAUSE.saturating_mul(1 << refusals.min(8)).min(LONGEST_PAUSE);
        self.removal = Some(Removal { next: now + pause, refusals: refusals + 1 });
    }

    /// Records the start of a relist. A due attempt follows the relist; the next one is due after the longest pause.
    pub(super) fn begin_removal(&mut self, now: Instant) {
        if let Some(removal) = &mut self.removal
            && removal.next <= now
        {
            removal.next = now + LONGEST_PAUSE;
        }
    }
}

impl ResourceCache {
    /// Returns the number of refusals; `None` if no retry is pending.
    pub fn refused_removal(&self) -> Option<u32> {
        self.state.lock().removal.map(|removal| removal.refusals)
    }

    /// Ends the retries, because the load balancer service is deleted or in use. Has no effect if NSX has refused a
    /// deletion more than `refusals` times by now.
    pub fn end_removal(&self, refusals: u32) {
        self.state.lock().removal.take_if(|removal| removal.refusals == refusals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_up_to_five_minutes() {
        let (mut state, now) = (CacheState::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            state.record_removal_refused(now);
            pauses.extend(state.removal.map(|removal| removal.next.duration_since(now).as_secs()));
        }
        assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300]);
    }
}
