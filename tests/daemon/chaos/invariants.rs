//! The invariants of a campaign, except the rules for Nodes and the check of the audit log. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ccm::kubernetes::login_ledger::record::{EntryState, Record};
use k8s_openapi::api::core::v1::Node;
use support::nodes::{NodeView, UNINITIALIZED_TAINT};
use support::{LoginAttempt, LoginOutcome};

use super::fault::REPLICAS;
use crate::invariants::machine::{Machine, Power};
use crate::invariants::rules::{SHUTDOWN_TAINT, has_taint};

/// vCenter's single sign-on locks an account after about five rejections in three minutes.
pub const WINDOW: Duration = Duration::from_secs(200);
/// Number of recorded failed logins in the window that make others wait.
pub const BUDGET: usize = 3;
/// Maximum number of failed logins in the window. A fourth login is allowed while none is known to be rejected.
pub const MOST: usize = 4;
/// Maximum number of failed logins in the window while each replica counts alone: one for each replica, and one more
/// after its restart.
const MOST_APART: usize = 2 * REPLICAS;
/// A replica may log in up to this long after a request for the record that got no answer.
const LATE: Duration = Duration::from_secs(10);
/// Limit of the `VmRSS` of a replica, in kB. A test build of the daemon takes about 116 MB with 5,000 nodes of real
/// size. The campaign has 200 small nodes. A memory leak exceeds the limit in any long campaign.
pub const MEMORY: u64 = 100 * 1_024;
/// Additional time that a Node without machine may stay. If no event announces that its vCenter answers again, and no
/// other node waits for the same vCenter, the daemon repeats the proof of absence after a pause of up to this time.
pub const PROOFS: Duration = Duration::from_secs(60);
/// A pause that protects the account may be up to a quarter longer than required.
const JITTER: f64 = 1.25;
/// The increasing pauses after repeated failed logins.
const FIRST_PAUSE: Duration = Duration::from_secs(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Returns the first line that reports a panic of the daemon.
pub fn panic_in<'a>(lines: impl IntoIterator<Item = &'a String>) -> Option<&'a String> {
    lines.into_iter().find(|line| line.contains("panic"))
}

/// Whether a replica exceeds the memory limit. `resident` is in kB.
pub fn is_too_large(resident: u64) -> bool {
    resident > MEMORY
}

/// A time in which replicas may not reach the Lease with their record, so that each counts its own logins. The last
/// such time may still be open.
pub type Apart = (Instant, Option<Instant>);

/// Logins by vCenter.
type Logins = Vec<Vec<LoginAttempt>>;

/// Start and end of a process. The end is `None` while the process runs.
pub type Run = (Instant, Option<Instant>);

/// Returns the maximum number of failed logins in a window, among the logins that the replicas could count together. A
/// rejection counts at all vCenters. A wrong password without an answer counts at its own vCenter only. A correct
/// password is no failure there, even if the answer was lost.
pub fn worst_window_together(logins: &[Vec<LoginAttempt>], apart: &[Apart]) -> usize {
    let together = parts(logins, apart).0;
    ends(&together).map(|end| counted(&together, end)).max().unwrap_or(0)
}

/// The same for logins that each process had to count alone. Returns the number of failed logins and the permitted
/// number for a window with too many of them. Each process may cause one. More than `REPLICAS` processes run in a
/// window in which replicas restart.
pub fn too_many_apart(logins: &[Vec<LoginAttempt>], apart: &[Apart], runs: &[Run]) -> Option<(usize, usize)> {
    let alone = parts(logins, apart).1;
    let allowed = |last: Instant| {
        let first = last.checked_sub(WINDOW);
        let ran = |(begin, end): &&Run| *begin <= last && end.is_none_or(|end| first.is_none_or(|first| end > first));
        runs.iter().filter(ran).count().max(MOST_APART)
    };
    ends(&alone).map(|end| (counted(&alone, end), allowed(end))).find(|(lost, allowed)| lost > allowed)
}

/// Separates the logins that the replicas could count together from the others.
fn parts(logins: &[Vec<LoginAttempt>], apart: &[Apart]) -> (Logins, Logins) {
    let is_apart = |login: &LoginAttempt| {
        apart.iter().any(|(begin, end)| login.at >= *begin && end.is_none_or(|end| login.at < end + LATE))
    };
    let part = |of_those_apart: bool| -> Logins {
        let own =
            |own: &Vec<LoginAttempt>| own.iter().filter(|login| is_apart(login) == of_those_apart).cloned().collect();
        logins.iter().map(own).collect()
    };
    (part(false), part(true))
}

/// Returns the ends of the windows to check. Each window ends with a login.
fn ends(logins: &[Vec<LoginAttempt>]) -> impl Iterator<Item = Instant> {
    logins.iter().flatten().map(|login| login.at)
}

/// Counts the failed logins in the window that ends at `end`, at the vCenter with the most of them.
fn counted(logins: &[Vec<LoginAttempt>], end: Instant) -> usize {
    let is_in = |login: &&LoginAttempt| login.at <= end && end.saturating_duration_since(login.at) < WINDOW;
    let rejected = |login: &&LoginAttempt| login.outcome == LoginOutcome::Rejected;
    let of_one = |own: &Vec<LoginAttempt>| {
        let lost = own.iter().filter(|login| login.outcome == LoginOutcome::Unanswered && !login.is_right);
        logins.iter().flatten().filter(rejected).chain(lost).filter(is_in).count()
    };
    logins.iter().map(of_one).max().unwrap_or(0)
}

/// Returns the additional time that a replica may need for a login now, so that the account is not locked. It is zero
/// while fewer than three logins of the account are recorded.
///
/// The records are the Leases of its vCenters, which also have the claims of killed processes. Each replica derives the
/// age of an entry from its date and from its own observations. A login that a replica made while it could not reach
/// the record is written with the next claim of that replica. Until then only the lists of the vCenters have it.
pub fn excused(records: &[Record], logins: &[Vec<LoginAttempt>]) -> Duration {
    let lost = counted(logins, Instant::now());
    let of_one = |own: &Record| {
        let others = records.iter().filter(|record| !std::ptr::eq(*record, own));
        let rejected = others.flat_map(|record| &record.entries).filter(|entry| entry.state == EntryState::Rejected);
        let on_record = own.entries.len() + rejected.count();
        let Some(surplus) = on_record.max(lost).checked_sub(BUDGET) else { return Duration::ZERO };
        let doublings = u32::try_from(surplus).unwrap_or(u32::MAX).min(8);
        WINDOW.max(FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)).mul_f64(JITTER)
    };
    records.iter().map(of_one).max().unwrap_or_default()
}

/// Differences between Nodes and machines.
#[derive(Debug, Default)]
pub struct Unsettled {
    /// Nodes that differ from their machines, or are missing.
    pub there: Vec<String>,
    /// Nodes whose machines do not exist.
    pub gone: Vec<String>,
}

/// Returns the differences between Nodes and machines, by number.
pub fn unsettled(machines: &[Machine], nodes: &BTreeMap<usize, Node>, wanted: &BTreeSet<usize>) -> Unsettled {
    let mut found = Unsettled::default();
    for (number, machine) in machines.iter().enumerate() {
        match nodes.get(&number) {
            None if machine.is_there && wanted.contains(&number) => {
                found.there.push(format!("{number}: it has no Node"))
            }
            None => {}
            Some(_) if !machine.is_there => found.gone.push(format!("{number}: its machine is gone")),
            Some(node) => found.there.extend(lacks(machine, node).map(|what| format!("{number}: {what}"))),
        }
    }
    found
}

fn lacks(machine: &Machine, node: &Node) -> Option<String> {
    let view = NodeView::of(node);
    let address = machine.address.as_deref().unwrap_or_default();
    let is_running = machine.power == Some(Power::On);
    if has_taint(node, UNINITIALIZED_TAINT) {
        Some("it is not initialized".to_owned())
    } else if !view.addresses.contains(&format!("InternalIP={address}")) {
        Some(format!("its address is {address}, and it has {:?}", view.addresses))
    } else if has_taint(node, SHUTDOWN_TAINT) == is_running {
        Some(format!("it runs: {is_running}, and the shutdown taint says otherwise"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm::kubernetes::login_ledger::record::Entry;

    const LINE: &str = "I1121 10:00:00.000000       1 node.go:1] \"node initialized\"";

    #[test]
    fn a_panic_is_found_among_other_lines() {
        let lines = |last: &str| vec![LINE.to_owned(), last.to_owned()];
        assert_eq!(panic_in(&lines(LINE)), None);
        let panicked = "E1121 10:00:00.000000       1 plan.rs:1] \"panic: index out of bounds\"";
        assert_eq!(panic_in(&lines(panicked)).map(String::as_str), Some(panicked));
    }

    #[test]
    fn memory_has_a_bound() {
        assert!(!is_too_large(MEMORY));
        assert!(is_too_large(MEMORY + 1));
    }

    /// Logins at a vCenter: time in seconds, whether the password was right, and the outcome.
    type Told<'a> = &'a [(u64, bool, LoginOutcome)];

    fn logins(start: Instant, all: Told<'_>) -> Vec<LoginAttempt> {
        let login = |&(second, is_right, outcome): &(u64, bool, LoginOutcome)| LoginAttempt {
            at: start + Duration::from_secs(second),
            user: "ccm".to_owned(),
            is_rest: false,
            is_right,
            outcome,
        };
        all.iter().map(login).collect()
    }

    #[test]
    fn logins_count_in_the_window_that_has_most_of_them() {
        use LoginOutcome::{Accepted, Rejected, TurnedAway, Unanswered};
        let start = Instant::now();
        let rejected = |second| (second, false, Rejected);
        let lost = |second| (second, false, Unanswered);
        let four = [rejected(0), rejected(60), rejected(120), rejected(199)];
        let spread = [rejected(0), rejected(60), rejected(120), rejected(200)];
        let harmless = [
            (0, true, Accepted),
            (1, true, Accepted),
            (2, true, TurnedAway),
            (3, true, Unanswered),
            (4, true, Unanswered),
            (5, true, Unanswered),
            (6, false, TurnedAway),
            lost(7),
        ];
        let cases: [(&str, Told<'_>, Told<'_>, usize); 8] = [
            ("none", &[], &[], 0),
            ("four in a window", &four, &[], 4),
            ("three, and one when the first is forgotten", &spread, &[], 3),
            ("accepted and busy ones do not count, and right ones never", &harmless, &[], 1),
            ("rejections count wherever they were", &[rejected(0), rejected(1)], &[rejected(2), rejected(3)], 4),
            ("lost ones count where they were", &[lost(0), lost(1)], &[lost(2), lost(3)], 2),
            ("both", &[rejected(0), lost(1)], &[rejected(2), lost(3)], 3),
            ("far apart", &[rejected(0), rejected(300)], &[rejected(600)], 1),
        ];
        for (case, first, second, expected) in cases {
            let all = [logins(start, first), logins(start, second)];
            assert_eq!(worst_window_together(&all, &[]), expected, "{case}");
        }
    }

    #[test]
    fn what_replicas_could_not_count_together_is_counted_apart() {
        use LoginOutcome::Rejected;
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let all = [logins(start, &[0, 20, 40, 60, 80, 100].map(|second| (second, false, Rejected)))];
        for (case, apart, expected) in [
            ("never", vec![], 6),
            ("always", vec![(at(0), None)], 0),
            ("from then on", vec![(at(50), None)], 3),
            ("and a little longer", vec![(at(10), Some(at(15))), (at(40), Some(at(50)))], 4),
            ("and not much longer", vec![(at(10), Some(at(15))), (at(41), Some(at(50)))], 5),
        ] {
            assert_eq!(worst_window_together(&all, &apart), expected, "{case}");
        }
    }

    #[test]
    fn each_process_may_lose_one_login_apart() {
        use LoginOutcome::Rejected;
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let lost = |count: u64| [logins(start, &(0..count).map(|n| (300 + n, false, Rejected)).collect::<Vec<_>>())];
        let three = || vec![(at(0), None); REPLICAS];
        let with = |more: &[Run]| [three(), more.to_vec()].concat();
        let cases = [
            ("nothing is lost", 0, three(), None),
            ("one, and one after a restart", 6, three(), None),
            ("one more", 7, three(), Some((7, 6))),
            ("four processes ended in the window", 7, with(&[(at(0), Some(at(290))); 4]), None),
            ("and lost one more", 8, with(&[(at(0), Some(at(290))); 4]), Some((8, 7))),
            ("they ended before it", 7, with(&[(at(0), Some(at(100))); 4]), Some((7, 6))),
            ("they began after it", 7, with(&[(at(400), None); 4]), Some((7, 6))),
            ("they began while logins were lost", 7, with(&[(at(304), None); 4]), None),
        ];
        for (case, count, runs, expected) in cases {
            assert_eq!(too_many_apart(&lost(count), &[(at(0), None)], &runs), expected, "{case}");
            assert_eq!(too_many_apart(&lost(count), &[], &runs), None, "{case}, counted together");
        }
    }

    #[test]
    fn only_three_logins_on_record_excuse_a_longer_wait() {
        use EntryState::{Claimed, Rejected, Unanswered};
        let record = |states: &[EntryState]| {
            let entry =
                |&state| Entry { id: "of this".to_owned(), at: 0, state, version: None, pod: None, start: None };
            Record { entries: states.iter().map(entry).collect() }
        };
        let seconds = Duration::from_secs;
        let cases: [(&str, &[&[EntryState]], Duration); 7] = [
            ("none", &[], Duration::ZERO),
            ("two", &[&[Rejected, Unanswered]], Duration::ZERO),
            ("three, whatever they are", &[&[Rejected, Unanswered, Claimed]], seconds(250)),
            ("rejections count at both", &[&[Rejected, Rejected], &[Rejected]], seconds(250)),
            ("what was lost at another does not", &[&[Unanswered, Unanswered], &[Unanswered, Claimed]], seconds(0)),
            ("four", &[&[Unanswered; 4]], seconds(250)),
            ("many", &[&[Unanswered; 12]], seconds(375)),
        ];
        for (case, records, expected) in cases {
            let records: Vec<Record> = records.iter().map(|states| record(states)).collect();
            assert_eq!(excused(&records, &[]), expected, "{case}");
        }
        // The record lacks the logins that failed while the record was unreachable.
        let start = Instant::now().checked_sub(seconds(100)).unwrap();
        let records = [record(&[Rejected; 2]), record(&[])];
        for (lost, expected) in [(2, seconds(0)), (3, seconds(250))] {
            let lost: Vec<_> = (0..lost).map(|second| (second, false, LoginOutcome::Rejected)).collect();
            assert_eq!(excused(&records, &[logins(start, &lost)]), expected, "{lost:?}");
        }
    }

    #[test]
    fn a_node_is_unsettled_that_is_not_as_its_machine() {
        let node = |taints: &[&str], address: &str| -> Node {
            let taints: Vec<_> =
                taints.iter().map(|key| serde_json::json!({"key": key, "effect": "NoSchedule"})).collect();
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "n"},
                "spec": {"taints": taints},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]},
            }))
            .unwrap()
        };
        let machine = |power| {
            let mut machine = Machine::default();
            (machine.is_there, machine.power, machine.address) = (true, Some(power), Some("10.0.0.1".to_owned()));
            machine
        };
        let gone = Machine::default;
        let (on, off) = (|| machine(Power::On), || machine(Power::Off));
        let cases = [
            ("as it should be", on(), Some(node(&[], "10.0.0.1")), (0, 0)),
            ("no Node", on(), None, (1, 0)),
            ("not initialized", on(), Some(node(&[UNINITIALIZED_TAINT], "10.0.0.1")), (1, 0)),
            ("another address", on(), Some(node(&[], "10.0.0.2")), (1, 0)),
            ("marked as shut down", on(), Some(node(&[SHUTDOWN_TAINT], "10.0.0.1")), (1, 0)),
            ("off", off(), Some(node(&[SHUTDOWN_TAINT], "10.0.0.1")), (0, 0)),
            ("off and not marked", off(), Some(node(&[], "10.0.0.1")), (1, 0)),
            ("neither", gone(), None, (0, 0)),
            ("not deleted", gone(), Some(node(&[], "10.0.0.1")), (0, 1)),
        ];
        for (case, machine, node, expected) in cases {
            let nodes = node.into_iter().map(|node| (0, node)).collect();
            let found = unsettled(&[machine], &nodes, &BTreeSet::from([0]));
            assert_eq!((found.there.len(), found.gone.len()), expected, "{case}");
        }
    }
}
