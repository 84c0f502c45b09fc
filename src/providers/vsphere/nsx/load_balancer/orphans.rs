//! Pure: decides which load balancers are orphaned, because their Services no longer exist, and when to delete them.
//!
//! A Service is suspected if NSX has objects of the Service with the UID of this cluster and the informer cache lacks
//! the Service. Two lists at least ten minutes apart and a live read of the API server must confirm an orphan. The
//! number of deletions per period is limited. Many orphans at once pause all deletions for 15 minutes, because the API
//! server may run from an old backup. A failed deletion is retried with backoff, and blocks no other deletion.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;

use crate::cloud::{Presence, service};

/// Minimum time between the two lists that confirm an orphan.
pub const CONFIRM_INTERVAL: Duration = Duration::from_secs(600);
/// Period of the limit on deletions.
const WINDOW: Duration = Duration::from_secs(600);
/// Pause of all deletions after many orphans were found at once.
const HOLD: Duration = Duration::from_secs(900);
/// Number of orphans that never counts as many.
const FEW: usize = 5;
/// Pause after a failed deletion; doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(30 * 60);

/// Handling of load balancers whose Services no longer exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Deletes these load balancers.
    #[default]
    Delete,
    /// Reports these load balancers.
    Report,
    /// Does not search for these load balancers.
    Off,
}

/// Suspected and confirmed orphans, and the limits on deletions.
#[derive(Debug, Default)]
pub struct Orphans {
    /// Suspected Services, each with the start of the list since which the Service has always been suspected.
    suspected: BTreeMap<Box<str>, Instant>,
    /// Times of the deletions within the last [`WINDOW`].
    deleted: VecDeque<Instant>,
    /// Time before which no orphan is deleted.
    held_until: Option<Instant>,
    /// Whether many suspects were reported in this term.
    is_mass_reported: bool,
    reported: BTreeSet<Box<str>>,
    /// Time of the next check of confirmed orphans that are not deleted yet.
    next_check: Option<Instant>,
    /// Start of the last list whose suspects were recorded.
    recorded_at: Option<Instant>,
    /// Failed deletions: number of consecutive failures and time of the next attempt.
    failed: BTreeMap<Box<str>, (u32, Instant)>,
    /// Deletions in progress that wait for NSX, with the time of their next step.
    under_way: BTreeMap<Box<str>, Instant>,
}

impl Orphans {
    /// Clears the state of all orphans, because another process may have recreated objects. The limits on deletions
    /// stay active.
    pub fn begin_term(&mut self) {
        self.suspected.clear();
        self.reported.clear();
        self.failed.clear();
        self.under_way.clear();
        (self.next_check, self.recorded_at) = (None, None);
        self.is_mass_reported = false;
    }

    /// Returns true once per term for many suspects: more than `FEW`, and more than a tenth of `all` Services in NSX.
    pub fn are_many(&mut self, suspects: usize, all: usize) -> bool {
        let are_many = suspects > FEW && suspects.saturating_mul(10) > all;
        are_many && !std::mem::replace(&mut self.is_mass_reported, true)
    }

    /// Records the suspects of a list that started at `at`. Returns those suspected for [`CONFIRM_INTERVAL`] or longer.
    pub fn update(&mut self, suspects: BTreeSet<Box<str>>, at: Instant) -> Vec<Box<str>> {
        self.recorded_at = Some(at);
        self.suspected.retain(|service, _| suspects.contains(service));
        self.reported.retain(|service| suspects.contains(service));
        self.failed.retain(|service, _| suspects.contains(service));
        for service in suspects {
            self.suspected.entry(service).or_insert(at);
        }
        let is_old = |since: &Instant| at.saturating_duration_since(*since) >= CONFIRM_INTERVAL;
        self.suspected.iter().filter(|(_, since)| is_old(since)).map(|(service, _)| service.clone()).collect()
    }

    /// Returns the time of the next required list; `None` if no list is required.
    pub fn next_list(&self) -> Option<Instant> {
        let later = |moment: &Instant| self.recorded_at.is_none_or(|noted| *moment > noted);
        let due = self.suspected.values().map(|since| *since + CONFIRM_INTERVAL).filter(later).min();
        let again = self.failed.values().map(|(_, again)| *again).chain(self.next_check).filter(later).min();
        due.into_iter().chain(again.filter(|_| !self.suspected.is_empty())).min()
    }

    /// Decides which confirmed orphans to delete now; `None` if all wait, because many were found at once. `all` is the
    /// number of Services with objects of this cluster.
    pub fn decide(&mut self, certain: Vec<Box<str>>, all: usize, at: Instant) -> Option<Vec<Box<str>>> {
        let share = |percent: usize| FEW.max(all.saturating_mul(percent) / 100);
        if certain.len() <= share(20) {
            self.held_until = None;
        } else if at < *self.held_until.get_or_insert(at + HOLD) {
            self.next_check = self.held_until;
            return None;
        }
        while self.deleted.front().is_some_and(|moment| at.saturating_duration_since(*moment) >= WINDOW) {
            self.deleted.pop_front();
        }
        let left = share(10).saturating_sub(self.deleted.len());
        let mut services = certain;
        services.retain(|service| !self.under_way.contains_key(service));
        services.retain(|service| self.failed.get(service).is_none_or(|(_, again)| *again <= at));
        // Retries come last, so that constant failures do not use up the limit.
        services.sort_by_key(|service| self.failed.contains_key(service));
        self.next_check = (services.len() > left).then_some(at + WINDOW);
        services.truncate(left);
        Some(services)
    }

    /// Records the start of a deletion.
    pub fn deleted(&mut self, at: Instant) {
        self.deleted.push_back(at);
    }

    /// Records that the deletion of an orphan waits for NSX until this time.
    pub fn postponed(&mut self, service: &str, until: Instant) {
        self.under_way.insert(service.into(), until);
    }

    /// Returns the time of the next step of a deletion in progress.
    pub fn next_step(&self) -> Option<Instant> {
        self.under_way.values().min().copied()
    }

    /// Takes the deletions with a due step.
    pub fn take_due(&mut self, at: Instant) -> Vec<Box<str>> {
        let due = self.under_way.iter().filter(|(_, until)| **until <= at).map(|(service, _)| service.clone());
        let due: Vec<Box<str>> = due.collect();
        self.under_way.retain(|_, until| *until > at);
        due
    }

    /// Records a failed deletion.
    pub fn failed(&mut self, service: &str, at: Instant) {
        let (count, again) = self.failed.entry(service.into()).or_insert((0, at));
        *again = at + FIRST_PAUSE.saturating_mul(1 << (*count).min(8)).min(LONGEST_PAUSE);
        *count += 1;
    }

    /// Returns true for the first report of this orphan.
    pub fn is_news(&mut self, service: &str) -> bool {
        self.reported.insert(service.into())
    }

    /// Whether this Service was reported as an orphan.
    pub fn is_reported(&self, service: &str) -> bool {
        self.reported.contains(service)
    }

    /// Whether no orphan is deleted at `at`, because many were found at once.
    pub fn is_paused(&self, at: Instant) -> bool {
        self.held_until.is_some_and(|until| at < until)
    }

    /// Returns the number of reported orphans that still exist.
    pub fn count(&self) -> usize {
        self.reported.len()
    }
}

/// Whether a Service provably needs no load balancer; false for `Unknown`.
pub fn is_certain(live: &Presence<Service>) -> bool {
    match live {
        Presence::Absent(_) => true,
        Presence::Exists(found) => !service::has_finalizer(found) && !service::is_load_balancer(found),
        Presence::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests;
