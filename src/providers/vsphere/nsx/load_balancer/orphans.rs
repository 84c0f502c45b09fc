//! Pure: load balancers whose Services are gone, and when they may be deleted.
//!
//! Only objects with the UID of this cluster are looked at, of Services that the cache does not have. They have to be in two
//! readings at least ten minutes apart, and a live read of the API server decides. Few are deleted at once, and none
//! for a while when many would be: the API server may have been restored from an old backup. One that cannot be deleted keeps no
//! other one, and is tried again later each time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;

use crate::cloud::{Presence, service};

/// The time between two readings that have the same objects.
pub const APART: Duration = Duration::from_secs(600);
/// In this time only so many are deleted.
const WINDOW: Duration = Duration::from_secs(600);
/// How long none is deleted after many were found at once.
const HOLD: Duration = Duration::from_secs(900);
/// At least so many are few.
const FEW: usize = 5;
/// How long one stays that could not be deleted; twice as long after each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(30 * 60);

/// What becomes of load balancers whose Services are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// They are deleted.
    #[default]
    Delete,
    /// They are reported.
    Report,
    /// They are not looked for.
    Off,
}

/// What is known of load balancers that may be left over.
#[derive(Debug, Default)]
pub struct Orphans {
    /// Since which reading each Service was suspected without a break.
    suspected: BTreeMap<Box<str>, Instant>,
    /// When one was deleted, within the last [`WINDOW`].
    deleted: VecDeque<Instant>,
    /// None is deleted before this moment.
    held_until: Option<Instant>,
    /// Whether it was said in this term that many are suspected.
    is_mass_reported: bool,
    /// Those that were reported.
    reported: BTreeSet<Box<str>>,
    /// When some that are certain and were not deleted are looked at again.
    again: Option<Instant>,
    /// When the last reading began whose suspects were noted.
    noted: Option<Instant>,
    /// Those that could not be deleted: how often in a row, and when each is tried again.
    failed: BTreeMap<Box<str>, (u32, Instant)>,
    /// Those whose deletion has begun and waits for NSX, and when it goes on.
    under_way: BTreeMap<Box<str>, Instant>,
}

/// What to do about those that are certain.
#[derive(Debug, PartialEq, Eq)]
pub enum OrphanDecision {
    /// Delete these.
    Delete(Vec<Box<str>>),
    /// None: this many were found at once.
    Hold(usize),
}

impl Orphans {
    /// Forgets what was suspected: in another term of leadership objects may have been deleted and made again. The limits stay.
    pub fn begin_term(&mut self) {
        self.suspected.clear();
        self.reported.clear();
        self.failed.clear();
        self.under_way.clear();
        (self.again, self.noted) = (None, None);
        self.is_mass_reported = false;
    }

    /// Whether so many suspects of one reading are to be reported, before any is deleted: more than a few and more than a tenth
    /// of `all`, once in a term.
    pub fn are_many(&mut self, suspects: usize, all: usize) -> bool {
        let are_many = suspects > FEW && suspects.saturating_mul(10) > all;
        are_many && !std::mem::replace(&mut self.is_mass_reported, true)
    }

    /// Notes the suspects of a reading that began at `at`. Those that were suspected long enough.
    pub fn note(&mut self, suspects: BTreeSet<Box<str>>, at: Instant) -> Vec<Box<str>> {
        self.noted = Some(at);
        self.suspected.retain(|service, _| suspects.contains(service));
        self.reported.retain(|service| suspects.contains(service));
        self.failed.retain(|service, _| suspects.contains(service));
        for service in suspects {
            self.suspected.entry(service).or_insert(at);
        }
        let is_old = |since: &Instant| at.saturating_duration_since(*since) >= APART;
        self.suspected.iter().filter(|(_, since)| is_old(since)).map(|(service, _)| service.clone()).collect()
    }

    /// When another reading is needed; none if nothing is suspected.
    pub fn next_reading(&self) -> Option<Instant> {
        let later = |moment: &Instant| self.noted.is_none_or(|noted| *moment > noted);
        let due = self.suspected.values().map(|since| *since + APART).filter(later).min();
        let again = self.failed.values().map(|(_, again)| *again).chain(self.again).filter(later).min();
        due.into_iter().chain(again.filter(|_| !self.suspected.is_empty())).min()
    }

    /// Which of those that are certain may be deleted at this moment. `all` is the number of Services with objects of this cluster.
    pub fn decide(&mut self, certain: Vec<Box<str>>, all: usize, at: Instant) -> OrphanDecision {
        let share = |percent: usize| FEW.max(all.saturating_mul(percent) / 100);
        if certain.len() <= share(20) {
            self.held_until = None;
        } else if at < *self.held_until.get_or_insert(at + HOLD) {
            self.again = self.held_until;
            return OrphanDecision::Hold(certain.len());
        }
        while self.deleted.front().is_some_and(|moment| at.saturating_duration_since(*moment) >= WINDOW) {
            self.deleted.pop_front();
        }
        let left = share(10).saturating_sub(self.deleted.len());
        let mut services = certain;
        services.retain(|service| !self.under_way.contains_key(service));
        services.retain(|service| self.failed.get(service).is_none_or(|(_, again)| *again <= at));
        // A few that always fail do not use up what may be deleted.
        services.sort_by_key(|service| self.failed.contains_key(service));
        self.again = (services.len() > left).then_some(at + WINDOW);
        services.truncate(left);
        OrphanDecision::Delete(services)
    }

    /// The load balancer of a Service was deleted at this moment.
    pub fn deleted(&mut self, at: Instant) {
        self.deleted.push_back(at);
    }

    /// The deletion of the load balancer of a Service waits for NSX until this moment.
    pub fn postponed(&mut self, service: &str, until: Instant) {
        self.under_way.insert(service.into(), until);
    }

    /// When the next deletion that has begun goes on; none if none has.
    pub fn next_step(&self) -> Option<Instant> {
        self.under_way.values().min().copied()
    }

    /// Takes those whose deletion goes on at this moment.
    pub fn take_due(&mut self, at: Instant) -> Vec<Box<str>> {
        let due = self.under_way.iter().filter(|(_, until)| **until <= at).map(|(service, _)| service.clone());
        let due: Vec<Box<str>> = due.collect();
        self.under_way.retain(|_, until| *until > at);
        due
    }

    /// The load balancer of a Service could not be deleted at this moment.
    pub fn failed(&mut self, service: &str, at: Instant) {
        let (count, again) = self.failed.entry(service.into()).or_insert((0, at));
        *again = at + FIRST_PAUSE.saturating_mul(1 << (*count).min(8)).min(LONGEST_PAUSE);
        *count += 1;
    }

    /// Whether this one is to be reported: each is once.
    pub fn is_news(&mut self, service: &str) -> bool {
        self.reported.insert(service.into())
    }

    /// How many were reported and are still there.
    pub fn count(&self) -> usize {
        self.reported.len()
    }
}

/// Whether nothing needs the load balancer of a Service. Unknown is no proof.
pub fn is_certain(live: &Presence<Service>) -> bool {
    match live {
        Presence::Absent(_) => true,
        Presence::Exists(found) => !service::has_finalizer(found) && !service::is_load_balancer(found),
        Presence::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests;
