//! Pure: load balancers whose Services are gone, and when they may be deleted.
//!
//! Only objects with the UID of this cluster are looked at, of Services that the cache does not have. They have to be in two
//! readings at least ten minutes apart, and a live read of the API server decides. Few are deleted at once, and none
//! for a while when many would be: the API server may have been restored from an old backup.

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
    /// Those that were reported.
    reported: BTreeSet<Box<str>>,
    /// When some that are certain and were not deleted are looked at again.
    again: Option<Instant>,
}

/// What to do about those that are certain.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Delete these.
    Delete(Vec<Box<str>>),
    /// None: this many were found at once.
    Hold(usize),
}

impl Orphans {
    /// Notes the suspects of a reading that began at `at`. Those that were suspected long enough.
    pub fn note(&mut self, suspects: BTreeSet<Box<str>>, at: Instant) -> Vec<Box<str>> {
        self.suspected.retain(|service, _| suspects.contains(service));
        self.reported.retain(|service| suspects.contains(service));
        for service in suspects {
            self.suspected.entry(service).or_insert(at);
        }
        let is_old = |since: &Instant| at.saturating_duration_since(*since) >= APART;
        self.suspected.iter().filter(|(_, since)| is_old(since)).map(|(service, _)| service.clone()).collect()
    }

    /// When another reading is needed; none if nothing is suspected.
    pub fn next_reading(&self) -> Option<Instant> {
        let due = self.suspected.values().max().map(|since| *since + APART);
        self.again.filter(|_| due.is_some()).or(due)
    }

    /// Which of those that are certain may be deleted at this moment. `all` is the number of Services with objects of this cluster.
    pub fn decide(&mut self, certain: Vec<Box<str>>, all: usize, at: Instant) -> Decision {
        let share = |percent: usize| FEW.max(all.saturating_mul(percent) / 100);
        if certain.len() <= share(20) {
            self.held_until = None;
        } else if at < *self.held_until.get_or_insert(at + HOLD) {
            self.again = self.held_until;
            return Decision::Hold(certain.len());
        }
        while self.deleted.front().is_some_and(|moment| at.saturating_duration_since(*moment) >= WINDOW) {
            self.deleted.pop_front();
        }
        let left = share(10).saturating_sub(self.deleted.len());
        self.again = (certain.len() > left).then_some(at + WINDOW);
        Decision::Delete(certain.into_iter().take(left).collect())
    }

    /// The load balancer of a Service was deleted at this moment.
    pub fn deleted(&mut self, at: Instant) {
        self.deleted.push_back(at);
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
