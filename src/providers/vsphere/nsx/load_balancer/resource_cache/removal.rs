//! The deletion of the load balancer service after NSX has refused it, because something that was deleted still refers to it: it is
//! tried again after a reading, until the load balancer service is gone or in use.

use std::time::Duration;

use tokio::time::Instant;

use super::{CacheState, ResourceCache};

/// The pause after the first refusal; it doubles with each further one. NSX purges deleted objects every five minutes.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// See the file's header.
#[derive(Clone, Copy)]
pub(super) struct Removal {
    /// When it is tried again.
    pub(super) next: Instant,
    /// How often it was refused.
    refusals: u32,
}

impl CacheState {
    /// NSX has refused the deletion of the load balancer service at this moment.
    pub(super) fn note_removal_refused(&mut self, now: Instant) {
        let refusals = self.removal.map_or(0, |removal| removal.refusals);
        let pause = FIRST_PAUSE.saturating_mul(1 << refusals.min(8)).min(LONGEST_PAUSE);
        self.removal = Some(Removal { next: now + pause, refusals: refusals + 1 });
    }

    /// A reading begins, after which the deletion is tried: it is no reason for another one before the longest pause.
    pub(super) fn begin_removal(&mut self, now: Instant) {
        if let Some(removal) = &mut self.removal
            && removal.next <= now
        {
            removal.next = now + LONGEST_PAUSE;
        }
    }
}

impl ResourceCache {
    /// How often the deletion of the load balancer service was refused; none if it is not to be tried again.
    pub fn refused_removal(&self) -> Option<u32> {
        self.state.lock().removal.map(|removal| removal.refusals)
    }

    /// It was tried again after so many refusals. Unless it was refused once more, the load balancer service is gone or in use.
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
            state.note_removal_refused(now);
            pauses.extend(state.removal.map(|removal| removal.next.duration_since(now).as_secs()));
        }
        assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300]);
    }
}
