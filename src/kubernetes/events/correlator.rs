//! Decides for each Event whether it is created, counted or dropped. Mirrors `EventCorrelator` of client-go's
//! `tools/record/events_cache.go`. No I/O: callers pass the time since recording began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use sha2::{Digest as _, Sha256};

use super::EventType;
use crate::base::names::is_dns_name;

/// Message prefix of a combined Event.
pub(super) const COMBINED: &str = "(combined from similar events): ";

/// Maximum number of entries in each map of the [`Correlator`].
const MAX_CACHED: usize = 4096;

/// Maximum number of Events about one object in a burst, per component and Event type.
const BURST: f64 = 25.0;
/// Time after which one more Event is allowed after a burst.
const REFILL: Duration = Duration::from_secs(300);

/// Number of different messages at which the Events of a group are combined. A group has the same object, component,
/// Event type and reason.
const MAX_MESSAGES: usize = 10;
/// Idle time after which a group starts over.
const GROUP_PAUSE: Duration = Duration::from_secs(600);

/// A recorded Event, before correlation.
#[derive(Debug, Clone)]
pub(super) struct RecordedEvent {
    pub(super) component: Arc<str>,
    pub(super) object: ObjectReference,
    pub(super) event_type: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) at: Timestamp,
}

/// The write for a recorded Event: a new Event, or a higher count of an earlier Event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EventWrite {
    pub(super) name: String,
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
}

#[derive(Debug)]
pub(super) struct Correlator {
    allowances: Lru<Allowance>,
    groups: Lru<EventGroup>,
    written: Lru<WrittenEvent>,
}

#[derive(Debug)]
struct Allowance {
    tokens: f64,
    updated: Duration,
}

#[derive(Debug)]
struct EventGroup {
    messages: Vec<Digest>,
    updated: Duration,
}

#[derive(Debug)]
struct WrittenEvent {
    first: Timestamp,
    count: i32,
}

impl Default for Correlator {
    fn default() -> Self {
        Self { allowances: Lru::new(MAX_CACHED), groups: Lru::new(MAX_CACHED), written: Lru::new(MAX_CACHED) }
    }
}

impl Correlator {
    /// Returns the write for `fact`, recorded at the local time `at`, or `None` if the `subject` of `fact` exceeds the
    /// rate limit.
    pub(super) fn take(&mut self, fact: &RecordedEvent, at: Duration) -> Option<EventWrite> {
        let subject = subject(fact);
        if !self.is_allowed(Digest::of(&subject), at) {
            return None;
        }
        let group = format!("{subject}\0{}", fact.reason);
        let (message, key) = if self.is_combined(Digest::of(&group), &fact.message, at) {
            (super::truncated(&format!("{COMBINED}{}", fact.message)), group)
        } else {
            (fact.message.clone(), format!("{group}\0{}", fact.message))
        };
        let fresh = || WrittenEvent { first: fact.at, count: 0 };
        let written = self.written.get_or_insert_with(Digest::of(&key), fresh);
        written.count = written.count.saturating_add(1);
        Some(EventWrite { name: name(fact, written.first), message, count: written.count, first: written.first })
    }

    fn is_allowed(&mut self, subject: Digest, at: Duration) -> bool {
        let allowance = self.allowances.get_or_insert_with(subject, || Allowance { tokens: BURST, updated: at });
        let grown = at.saturating_sub(allowance.updated).as_secs_f64() / REFILL.as_secs_f64();
        allowance.tokens = (allowance.tokens + grown).min(BURST);
        allowance.updated = at;
        let is_allowed = allowance.tokens >= 1.0;
        if is_allowed {
            allowance.tokens -= 1.0;
        }
        is_allowed
    }

    fn is_combined(&mut self, group: Digest, message: &str, at: Duration) -> bool {
        let group = self.groups.get_or_insert_with(group, || EventGroup { messages: Vec::new(), updated: at });
        if at.saturating_sub(group.updated) > GROUP_PAUSE {
            group.messages.clear();
        }
        group.updated = at;
        let message = Digest::of(message);
        if !group.messages.contains(&message) {
            group.messages.reserve_exact(1);
            group.messages.push(message);
        }
        if group.messages.len() < MAX_MESSAGES {
            return false;
        }
        // Limits the size of `messages`, as upstream does.
        group.messages.remove(0);
        true
    }
}

fn subject(fact: &RecordedEvent) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let object = &fact.object;
    [
        fact.component.to_string(),
        part(&object.api_version),
        part(&object.kind),
        part(&object.namespace),
        part(&object.name),
        part(&object.uid),
        part(&object.field_path),
        fact.event_type.as_str().to_owned(),
    ]
    .join("\0")
}

/// Returns `<object>.<hex nanoseconds of the first time>`, as upstream names Events. If the object's name is too long
/// or not a DNS name, a digest replaces it.
fn name(fact: &RecordedEvent, first: Timestamp) -> String {
    let object = fact.object.name.as_deref().unwrap_or_default();
    let stamp = format!("{:x}", first.as_nanosecond());
    if is_dns_name(object) && object.len() + stamp.len() < 253 {
        format!("{object}.{stamp}")
    } else {
        format!("{:.32x}.{stamp}", Sha256::digest(subject(fact)))
    }
}

/// Digest of a text: the first half of its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Digest([u8; 16]);

impl Digest {
    fn of(text: &str) -> Self {
        let mut half = [0; 16];
        half.iter_mut().zip(Sha256::digest(text.as_bytes())).for_each(|(to, from)| *to = from);
        Self(half)
    }
}

/// Map with at most `limit` values that evicts the least recently used value. An eviction scans all values, because an
/// index by age would take more memory than most values.
#[derive(Debug)]
struct Lru<V> {
    limit: usize,
    /// Values with the number of their last use. Not a hash table, which would be half empty with 4,096 entries.
    values: BTreeMap<Digest, (u64, V)>,
    uses: u64,
}

impl<V> Lru<V> {
    fn new(limit: usize) -> Self {
        Self { limit, values: BTreeMap::new(), uses: 0 }
    }

    /// Returns the value of `key`, and marks it as most recently used. Creates a missing value.
    fn get_or_insert_with(&mut self, key: Digest, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        if self.values.len() >= self.limit && !self.values.contains_key(&key) {
            let oldest = self.values.iter().min_by_key(|(_, (used, _))| *used).map(|(oldest, _)| *oldest);
            if let Some(oldest) = oldest {
                self.values.remove(&oldest);
            }
        }
        let (used, value) = self.values.entry(key).or_insert_with(|| (0, make()));
        *used = self.uses;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(object: &str, reason: &'static str, message: &str) -> RecordedEvent {
        RecordedEvent {
            component: "test".into(),
            object: ObjectReference { name: Some(object.into()), ..ObjectReference::default() },
            event_type: EventType::Normal,
            reason,
            message: message.into(),
            at: Timestamp::from_nanosecond(255).unwrap(),
        }
    }

    #[test]
    fn a_repetition_raises_the_count_of_the_first() {
        let mut correlator = Correlator::default();
        let first = correlator.take(&fact("a", "R", "m"), Duration::ZERO).unwrap();
        assert_eq!((first.name.as_str(), first.count), ("a.ff", 1));
        let again = RecordedEvent { at: Timestamp::from_nanosecond(300).unwrap(), ..fact("a", "R", "m") };
        let second = correlator.take(&again, Duration::from_secs(1)).unwrap();
        assert_eq!(second, EventWrite { count: 2, ..first });
        assert_eq!(correlator.take(&fact("a", "R", "other"), Duration::ZERO).unwrap().count, 1);
        assert_eq!(correlator.take(&fact("a", "S", "m"), Duration::ZERO).unwrap().count, 1);
    }

    #[test]
    fn from_the_tenth_different_message_on_they_are_combined_until_a_pause() {
        let mut correlator = Correlator::default();
        let mut take = |message: u32, at| {
            let write = correlator.take(&fact("a", "R", &message.to_string()), Duration::from_secs(at)).unwrap();
            (write.message.starts_with(COMBINED), write.count)
        };
        for message in 1..=9 {
            assert_eq!(take(message, 0), (false, 1), "{message}");
        }
        assert_eq!(take(10, 0), (true, 1));
        assert_eq!(take(11, 600), (true, 2));
        assert_eq!(take(12, 1201), (false, 1));
    }

    #[test]
    fn an_object_has_an_allowance_that_refills() {
        let mut correlator = Correlator::default();
        let mut take = |object, at| correlator.take(&fact(object, "R", "m"), Duration::from_secs(at)).is_some();
        for index in 0..25 {
            assert!(take("a", 0), "{index}");
        }
        assert!(!take("a", 299));
        assert!(take("b", 299), "another object");
        assert!(take("a", 300));
        assert!(!take("a", 300));
    }

    #[test]
    fn names_are_valid_whatever_the_object_is_called() {
        let cases = [("a.b-1", true), ("A", false), ("", false), ("a..b", false), ("-a", false), ("a_b", false)];
        for (object, is_kept) in cases {
            let fact = fact(object, "R", "m");
            let name = name(&fact, fact.at);
            assert_eq!(name.starts_with(&format!("{object}.")) && !object.is_empty(), is_kept, "{object}: {name}");
            assert!(is_dns_name(&name), "{object}: {name}");
        }
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let mut lru = Lru::new(2);
        let [a, b, c] = ["a", "b", "c"].map(Digest::of);
        *lru.get_or_insert_with(a, || 0) += 1;
        *lru.get_or_insert_with(b, || 0) += 1;
        *lru.get_or_insert_with(a, || 0) += 1;
        *lru.get_or_insert_with(c, || 0) += 1;
        assert_eq!(*lru.get_or_insert_with(a, || 0), 2, "kept");
        assert_eq!(*lru.get_or_insert_with(b, || 0), 0, "forgotten");
        assert_eq!(lru.values.len(), 2);
    }
}
