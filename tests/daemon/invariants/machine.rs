//! What the test did to a machine, and when: the truth that the daemon is measured by.

use std::time::{Duration, Instant};

/// For how long it is remembered when there was no machine.
const MEMORY: Duration = Duration::from_secs(600);

/// A power state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Running.
    On,
    /// Switched off.
    Off,
    /// Suspended.
    Suspended,
}

/// A machine, as far as the test knows: nobody else changes it.
#[derive(Default)]
pub struct Machine {
    /// Whether it is in the inventory.
    pub is_there: bool,
    /// Whether its clone is.
    pub has_twin: bool,
    /// Its power state.
    pub power: Option<Power>,
    /// The first address of its guest.
    pub address: Option<String>,
    /// The zone it is in by itself, and not by its host.
    pub zones: Vec<usize>,
    /// When nothing in the inventory had its UUID; the last one may last.
    gone: Vec<(Instant, Option<Instant>)>,
    /// When it was not known to be running; the last one may last.
    not_running: Vec<(Instant, Option<Instant>)>,
}

impl Machine {
    /// To be called before something is taken away, and again after something was put there: what lies in between
    /// counts as either.
    pub fn note(&mut self) {
        self.note_at(Instant::now());
    }

    /// The same for a moment that a test chooses.
    pub fn note_at(&mut self, now: Instant) {
        mark(&mut self.gone, !self.is_there && !self.has_twin, now);
        // Which of the two is taken for the node's is for other tests.
        mark(&mut self.not_running, self.has_twin || self.power != Some(Power::On), now);
    }

    /// Whether at some time between these moments nothing had its UUID.
    pub fn was_gone(&self, since: Instant, until: Instant) -> bool {
        meets(&self.gone, since, until)
    }

    /// Whether at some time between these moments it may not have been running.
    pub fn was_not_running(&self, since: Instant, until: Instant) -> bool {
        meets(&self.not_running, since, until)
    }
}

fn mark(times: &mut Vec<(Instant, Option<Instant>)>, holds: bool, now: Instant) {
    times.retain(|(_, end)| end.is_none_or(|end| now - end < MEMORY));
    match times.last_mut() {
        Some((_, end @ None)) if !holds => *end = Some(now),
        Some((_, None)) => {}
        _ if holds => times.push((now, None)),
        _ => {}
    }
}

fn meets(times: &[(Instant, Option<Instant>)], since: Instant, until: Instant) -> bool {
    times.iter().any(|(begin, end)| *begin <= until && end.is_none_or(|end| end >= since))
}
