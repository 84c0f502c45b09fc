//! Pure: the number of deletions that are still possible within a sliding window. A charge is one deletion, or one
//! out-of-service taint, that counts against the limit.
//!
//! Each charge is returned one window later, so that no window exceeds the capacity. A new leader has no record of
//! earlier charges, so its capacity grows from one to the full value during the first window.

use std::time::{Duration, Instant};

/// The charges within the window.
#[derive(Clone, Debug)]
pub struct Allowance {
    began: Instant,
    /// Identifying number and time of each charge, ordered by time.
    deletions: Vec<(u64, Instant)>,
}

/// The limit on charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of charges within any window.
    pub capacity: usize,
    /// Length of the window.
    pub window: Duration,
}

impl Allowance {
    /// Creates the allowance of a leader whose term begins at `at`.
    pub fn new(at: Instant) -> Self {
        Self { began: at, deletions: Vec::new() }
    }

    /// Returns the number of charges possible at `at`.
    pub fn available(&self, bounds: Bounds, at: Instant) -> usize {
        self.reached(bounds, at).saturating_sub(self.times(bounds.window, at).count())
    }

    /// Returns the time of the next possible charge if nothing else changes, or `None` if the capacity is zero.
    pub fn next(&self, bounds: Bounds, at: Instant) -> Option<Instant> {
        let counted: Vec<Instant> = self.times(bounds.window, at).collect();
        let back = |index: usize| counted.get(index).map(|taken| *taken + bounds.window);
        // After `returned` charges are returned, the reached capacity must exceed the number of remaining charges.
        (0..=counted.len())
            .filter_map(|returned| {
                let reached_at = self.reaches(bounds, counted.len() - returned + 1)?;
                let returned_at = returned.checked_sub(1).map_or(Some(at), back)?;
                Some(reached_at.max(returned_at).max(at))
            })
            .min()
    }

    /// Takes one charge. `number` identifies the charge for `give_back`.
    pub fn take(&mut self, number: u64, bounds: Bounds, at: Instant) {
        self.deletions.retain(|(_, taken)| is_counted(*taken, bounds.window, at));
        self.deletions.push((number, at));
    }

    /// Gives back an unused charge.
    pub fn give_back(&mut self, number: u64) {
        self.deletions.retain(|(other, _)| *other != number);
    }

    fn times(&self, window: Duration, at: Instant) -> impl Iterator<Item = Instant> + '_ {
        self.deletions.iter().map(|(_, taken)| *taken).filter(move |taken| is_counted(*taken, window, at))
    }

    /// Returns the part of the capacity that this leader has reached at `at`.
    fn reached(&self, bounds: Bounds, at: Instant) -> usize {
        let passed = at.saturating_duration_since(self.began);
        if passed >= bounds.window {
            return bounds.capacity;
        }
        let more = bounds.capacity.saturating_sub(1) as u128 * passed.as_nanos() / bounds.window.as_nanos();
        bounds.capacity.min(usize::try_from(more).unwrap_or(usize::MAX).saturating_add(1))
    }

    /// Returns the time at which the growing capacity reaches `amount`; `None` if `amount` exceeds the full capacity.
    fn reaches(&self, bounds: Bounds, amount: usize) -> Option<Instant> {
        if amount > bounds.capacity {
            return None;
        }
        let (steps, all) = (amount.saturating_sub(1), bounds.capacity.saturating_sub(1));
        if steps == 0 {
            return Some(self.began);
        }
        // Rounded up, because an earlier wakeup would find no charge available.
        let nanos = (bounds.window.as_nanos() * steps as u128).div_ceil(all as u128);
        Some(self.began + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

fn is_counted(taken: Instant, window: Duration, at: Instant) -> bool {
    at.saturating_duration_since(taken) < window
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { capacity: 5, window: Duration::from_secs(600) };

    #[test]
    fn a_new_leader_has_one_and_reaches_the_capacity_after_a_window() {
        let start = Instant::now();
        let allowance = Allowance::new(start);
        let table = [(0, 1), (149, 1), (150, 2), (300, 3), (450, 4), (599, 4), (600, 5), (10_000, 5)];
        for (second, expected) in table {
            let at = start + Duration::from_secs(second);
            assert_eq!(allowance.available(BOUNDS, at), expected, "after {second} s");
        }
        let none = Bounds { capacity: 0, ..BOUNDS };
        assert_eq!((allowance.available(none, start), allowance.next(none, start)), (0, None));
        let unbounded = Bounds { window: Duration::ZERO, ..BOUNDS };
        assert_eq!(allowance.available(unbounded, start), 5);
    }

    #[test]
    fn what_is_taken_comes_back_one_window_later() {
        let start = Instant::now();
        let second = |second: u64| start + Duration::from_secs(second);
        let mut allowance = Allowance::new(start);
        allowance.take(1, BOUNDS, start);
        assert_eq!(allowance.available(BOUNDS, second(149)), 0);
        assert_eq!(allowance.next(BOUNDS, second(1)), Some(second(150)));
        for number in 2..=6 {
            allowance.take(number, BOUNDS, second(700 + number));
        }
        assert_eq!(allowance.available(BOUNDS, second(710)), 0);
        assert_eq!(allowance.next(BOUNDS, second(710)), Some(second(1302)));
        assert_eq!(allowance.available(BOUNDS, second(1302)), 1);
        allowance.give_back(6);
        assert_eq!(allowance.available(BOUNDS, second(710)), 1);
        assert_eq!(allowance.next(BOUNDS, second(710)), Some(second(710)));
    }
}
