//! A candidate's decision about the Lease. Mirrors `tryAcquireOrRenew` of client-go's
//! `tools/leaderelection/leaderelection.go`. Pure: callers pass clocks and records. Local times are monotonic and count
//! from the creation of the candidate.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The last observed record, and the times of its observation by the local clock. Remote clocks are not trusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The Lease's `spec`.
    pub spec: LeaseSpec,
    /// Time at which this `spec` was first observed.
    pub observed_at: Duration,
    /// Earliest time at which a candidate that does not lead may acquire a Lease without holder, or create a missing
    /// Lease. Until then, the last observed holder may still lead.
    pub free_from: Duration,
    /// Time of the last read of the Lease.
    pub last_read: Duration,
}

/// Next action of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseDecision {
    /// Another process holds the Lease, or may still lead, at least until `until`.
    HeldBy {
        /// Holder of the Lease. Empty if the record has none.
        holder: String,
        /// Earliest time at which this process may acquire the Lease.
        until: Duration,
    },
    /// Write this record. This process already leads or holds the Lease.
    Renew(LeaseSpec),
    /// Write this record. The Lease has no active holder.
    TakeOver(LeaseSpec),
}

/// Updates the previous observation with `spec`, which was read at `at`. A missing Lease has an empty spec.
/// `lease_duration` is the setting of this process.
pub fn observe(previous: Option<Observation>, spec: &LeaseSpec, at: Duration, lease_duration: Duration) -> Observation {
    if let Some(previous) = &previous
        && previous.spec == *spec
    {
        return Observation { last_read: at, ..previous.clone() };
    }
    let free_from = if holder(spec).is_some() {
        at + seconds(spec.lease_duration_seconds)
    } else if spec.lease_duration_seconds == Some(RELEASED_SECONDS) {
        Duration::ZERO
    } else {
        // The Lease was deleted or cleared by hand, and its holder may still lead until its next renewal. An old
        // observation does not show the last holder.
        let recent = previous.filter(|previous| at.saturating_sub(previous.last_read) <= lease_duration / 3);
        match recent {
            // The holder may have renewed the Lease after the previous read.
            Some(previous) if holder(&previous.spec).is_some() => {
                previous.free_from.max(previous.last_read + lease_duration)
            }
            Some(previous) => previous.free_from,
            None => at + lease_duration,
        }
    };
    Observation { spec: spec.clone(), observed_at: at, free_from, last_read: at }
}

/// Lease duration in a released record, in seconds, as client-go writes it.
const RELEASED_SECONDS: i32 = 1;

/// Returns the holder in this record, or `None` if the record has none.
pub fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Returns the lease duration in this record, or `None` if the record has none.
pub fn lease_duration(spec: &LeaseSpec) -> Option<Duration> {
    spec.lease_duration_seconds.map(|value| seconds(Some(value)))
}

/// A candidate for the Lease.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Identity of the candidate in the record.
    pub identity: &'a str,
    /// Lease duration that the candidate writes.
    pub lease_duration: Duration,
    /// Whether the candidate leads. A leader renews a record without holder immediately, because the record was cleared
    /// during the leadership. Other candidates wait until [`Observation::free_from`].
    pub is_leader: bool,
}

/// Returns what the candidate does after this observation.
pub fn decide(candidate: Candidate<'_>, observed: &Observation, at: Duration, wall_clock: Timestamp) -> LeaseDecision {
    let Candidate { identity, lease_duration, is_leader } = candidate;
    let holder = holder(&observed.spec);
    // The duration in the record applies, not the setting of this process.
    let until = match holder {
        Some(holder) if holder == identity => None,
        Some(_) => Some(observed.observed_at + seconds(observed.spec.lease_duration_seconds)),
        None => Some(observed.free_from).filter(|_| !is_leader),
    };
    if let Some(until) = until.filter(|until| *until > at) {
        return LeaseDecision::HeldBy { holder: holder.unwrap_or_default().to_owned(), until };
    }
    let transitions = observed.spec.lease_transitions.unwrap_or(0);
    let fresh = record(identity, lease_duration, wall_clock);
    if holder == Some(identity) || holder.is_none() && is_leader {
        let acquire_time = observed.spec.acquire_time.clone().or(fresh.acquire_time);
        LeaseDecision::Renew(LeaseSpec { acquire_time, lease_transitions: Some(transitions), ..fresh })
    } else {
        LeaseDecision::TakeOver(LeaseSpec { lease_transitions: Some(transitions.saturating_add(1)), ..fresh })
    }
}

/// Returns the first record of a Lease that does not exist.
pub fn first_record(identity: &str, lease_duration: Duration, wall_clock: Timestamp) -> LeaseSpec {
    LeaseSpec { lease_transitions: Some(0), ..record(identity, lease_duration, wall_clock) }
}

/// Returns the record that releases the Lease. It has no holder and a duration of one second, so that other candidates
/// need not wait.
pub fn released_record(held: &LeaseSpec, wall_clock: Timestamp) -> LeaseSpec {
    LeaseSpec {
        lease_transitions: held.lease_transitions,
        ..record("", Duration::from_secs(RELEASED_SECONDS.unsigned_abs().into()), wall_clock)
    }
}

fn record(identity: &str, lease_duration: Duration, wall_clock: Timestamp) -> LeaseSpec {
    // Rounds up to whole seconds, so that other candidates always wait longer than the renew deadline.
    let seconds = lease_duration.as_secs() + u64::from(lease_duration.subsec_nanos() > 0);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
        acquire_time: Some(MicroTime(wall_clock)),
        renew_time: Some(MicroTime(wall_clock)),
        ..LeaseSpec::default()
    }
}

fn seconds(value: Option<i32>) -> Duration {
    Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(10);

    fn held(holder: &str, lease_seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(lease_seconds),
            acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }
    }

    /// A lease duration is rounded up to whole seconds.
    #[test]
    fn a_part_of_a_second_is_written_as_a_whole_one() {
        for (milliseconds, seconds) in [(15_000, 15), (10_900, 11), (1_001, 2)] {
            let spec = first_record("a", Duration::from_millis(milliseconds), Timestamp::UNIX_EPOCH);
            assert_eq!(spec.lease_duration_seconds, Some(seconds), "{milliseconds} ms");
        }
    }

    /// Each case: name, record, age of the observation in seconds, and the transitions in the record of the new leader.
    /// `None` means that the Lease cannot be acquired.
    // vectors: E-02–E-07
    #[test]
    fn a_lease_is_had_when_nobody_holds_it_or_it_stood_still_for_its_own_duration() {
        let base = Duration::from_secs(1000);
        let cases = [
            ("E-02 empty spec: ours waits, nobody knows who held it", LeaseSpec::default(), 0, None),
            ("E-02 its duration later", LeaseSpec::default(), 10, Some(1)),
            ("given up", held("", 1), 0, Some(1)),
            ("given up, seen in the future", held("", 1), -500, Some(1)),
            ("E-03 first seen now", held("bing", 3), 0, None),
            ("E-03 its duration later", held("bing", 3), 3, Some(1)),
            ("E-04 observed long ago", held("bing", 10), 500, Some(1)),
            ("E-05 empty holder, seen in the future: ours waits", held("", 10), -500, None),
            ("E-06 held, seen in the future", held("bing", 10), -500, None),
            ("E-07 ours", held("baz", 10), 0, Some(0)),
        ];
        for (id, spec, seconds_ago, expected) in cases {
            let ago = Duration::from_secs(i64::unsigned_abs(seconds_ago));
            let seen = if seconds_ago < 0 { base + ago } else { base - ago };
            let observed = observe(None, &spec, seen, LASTS);
            let now = Timestamp::from_second(1_700_000_000).unwrap();
            let candidate = Candidate { identity: "baz", lease_duration: LASTS, is_leader: false };
            let decision = decide(candidate, &observed, base, now);
            let written = match &decision {
                LeaseDecision::HeldBy { holder, .. } => {
                    assert!(["bing", ""].contains(&holder.as_str()), "{id}");
                    None
                }
                LeaseDecision::Renew(spec) | LeaseDecision::TakeOver(spec) => Some(spec),
            };
            assert_eq!(written.and_then(|spec| spec.lease_transitions), expected, "{id}: {decision:?}");
            if let Some(written) = written {
                assert_eq!(written.holder_identity.as_deref(), Some("baz"), "{id}");
                assert_eq!(written.lease_duration_seconds, Some(10), "{id}");
                assert_eq!(written.renew_time, Some(MicroTime(now)), "{id}");
                let kept = spec.holder_identity.as_deref() == Some("baz");
                let acquired = if kept { Timestamp::UNIX_EPOCH } else { now };
                assert_eq!(written.acquire_time, Some(MicroTime(acquired)), "{id}");
            }
        }
    }

    #[test]
    fn an_unchanged_record_keeps_the_time_it_was_first_seen() {
        let start = Duration::from_secs(7);
        let first = observe(None, &held("bing", 3), start, LASTS);
        let later = start + Duration::from_secs(2);
        let again = observe(Some(first), &held("bing", 3), later, LASTS);
        assert_eq!((again.observed_at, again.last_read), (start, later));
        let renewed = LeaseSpec { renew_time: Some(MicroTime(Timestamp::now())), ..held("bing", 3) };
        assert_eq!(observe(Some(again), &renewed, later, LASTS).observed_at, later);
    }

    #[test]
    fn a_lease_without_a_holder_is_free_when_whoever_held_it_last_has_stopped() {
        let at = Duration::from_secs;
        let held_at = |seen: u64| observe(None, &held("bing", 15), at(seen), LASTS);
        let released = || observe(None, &held("", 1), at(100), LASTS);
        let nobody = [LeaseSpec::default(), held("", 15), LeaseSpec { holder_identity: None, ..held("", 15) }];
        for spec in nobody {
            let free_from = |previous, now| observe(previous, &spec, at(now), LASTS).free_from.as_secs();
            assert_eq!(free_from(None, 100), 110, "first seen: its own duration");
            assert_eq!(free_from(Some(held_at(100)), 101), 115, "seen to be renewed: from then on");
            let looked = observe(Some(held_at(100)), &held("bing", 15), at(108), LASTS);
            assert_eq!(free_from(Some(looked), 109), 118, "seen to be held since: it may have been renewed then");
            assert_eq!(free_from(Some(held_at(100)), 300), 310, "it looked long ago: others may have held it since");
            assert_eq!(free_from(Some(released()), 101), 0, "given up before");
            let emptied = observe(Some(held_at(100)), &spec, at(101), LASTS);
            assert_eq!(observe(Some(emptied), &spec, at(140), LASTS).free_from, at(115), "looked at again");
        }
    }

    #[test]
    fn a_leader_renews_a_record_that_somebody_has_emptied() {
        let observed = observe(None, &LeaseSpec { lease_transitions: Some(4), ..held("", 15) }, LASTS, LASTS);
        let candidate = Candidate { identity: "baz", lease_duration: LASTS, is_leader: true };
        let decision = decide(candidate, &observed, LASTS, Timestamp::UNIX_EPOCH);
        let LeaseDecision::Renew(spec) = decision else { panic!("{decision:?}") };
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("baz"), Some(4)));
        let others = decide(Candidate { is_leader: false, ..candidate }, &observed, LASTS, Timestamp::UNIX_EPOCH);
        assert_eq!(others, LeaseDecision::HeldBy { holder: String::new(), until: LASTS * 2 });
    }

    /// Checks the first record and the released record.
    // vectors: E-01
    #[test]
    fn e_01_the_first_record_counts_no_transition_and_a_released_one_has_no_holder() {
        let now = Timestamp::UNIX_EPOCH;
        let first = first_record("baz", LASTS, now);
        assert_eq!((first.lease_transitions, holder(&first)), (Some(0), Some("baz")));
        let released = released_record(&LeaseSpec { lease_transitions: Some(4), ..held("baz", 15) }, now);
        assert_eq!(holder(&released), None);
        assert_eq!(released.holder_identity.as_deref(), Some(""));
        assert_eq!((released.lease_duration_seconds, released.lease_transitions), (Some(1), Some(4)));
    }
    /// The record is the same as that of client-go, which requires microseconds in times.
    #[test]
    fn the_record_is_written_as_candidates_in_go_read_it() {
        let spec = first_record("host_1", Duration::from_secs(15), Timestamp::from_second(1_700_000_000).unwrap());
        let at = "2023-11-14T22:13:20.000000Z";
        let expected = serde_json::json!({
            "holderIdentity": "host_1", "leaseDurationSeconds": 15, "acquireTime": at, "renewTime": at,
            "leaseTransitions": 0,
        });
        assert_eq!(serde_json::to_value(spec).unwrap(), expected);
    }
}
