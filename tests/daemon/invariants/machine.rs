//! The test's changes to a machine with their times. The daemon's results are compared with them.

use std::time::{Duration, Instant};

/// Time after which a period without machine is forgotten.
const MEMORY: Duration = Duration::from_secs(600);

/// A power state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    On,
    Off,
    Suspended,
}

/// State of a machine. Only the test changes it.
#[derive(Default)]
pub struct Machine {
    /// Whether the machine is in the inventory.
    pub is_there: bool,
    /// Whether the clone of the machine is in the inventory.
    pub has_twin: bool,
    /// Power state of the machine.
    pub power: Option<Power>,
    /// First address of the guest.
    pub address: Option<String>,
    /// Zones of the machine's own tags, without those of its host.
    pub zones: Vec<usize>,
    /// Periods in which no object in the inventory had the UUID. The last one may be open.
    gone: Vec<(Instant, Option<Instant>)>,
    /// Periods in which the machine possibly did not run. The last one may be open.
    not_running: Vec<(Instant, Option<Instant>)>,
}

impl Machine {
    /// Records the state now. The caller must call this before a removal and again after an addition. The time between
    /// the two counts as both states.
    pub fn note(&mut self) {
        self.note_at(Instant::now());
    }

    /// As [`Machine::note`], for a time that a test chooses.
    pub fn note_at(&mut self, now: Instant) {
        mark(&mut self.gone, !self.is_there && !self.has_twin, now);
        // Other tests check which of the two machines the daemon uses for the node.
        mark(&mut self.not_running, self.has_twin || self.power != Some(Power::On), now);
    }

    /// Whether at some time between these moments no object had the UUID.
    pub fn was_gone(&self, since: Instant, until: Instant) -> bool {
        meets(&self.gone, since, until)
    }

    /// Whether at some time between these moments the machine possibly did not run.
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
