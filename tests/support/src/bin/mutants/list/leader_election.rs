//! Mutants of the leader election: the leader, its term, and the content of the Lease.

use crate::{Mutant, Tests};

const ELECTOR: &str = "src/kubernetes/leader_election.rs";
const LEADERSHIP: &str = "src/kubernetes/leadership.rs";
const RECORD: &str = "src/kubernetes/leader_election/record.rs";
const STANDBY: &str = "src/kubernetes/leader_election/standby.rs";
const WATCH: &str = "src/kubernetes/watch.rs";

/// Tests with processes, clocks and server in memory.
const UNIT: Tests = &[&["--lib", "--", "leader_election", "leadership"]];

pub fn all() -> Vec<Mutant> {
    vec![
        // Term.
        Mutant::new(
            "leadership-wall-clock",
            LEADERSHIP,
            ("now >= self.ends || wall_clock >= self.ends_by_wall_clock", "now >= self.ends"),
            UNIT,
        ),
        Mutant::new(
            "leadership-monotonic-clock",
            LEADERSHIP,
            ("now >= self.ends || wall_clock >= self.ends_by_wall_clock", "wall_clock >= self.ends_by_wall_clock"),
            UNIT,
        ),
        Mutant::new(
            "leadership-is-not-revived",
            LEADERSHIP,
            ("        if !self.is_held() {\n            return false;\n        }\n", ""),
            UNIT,
        ),
        Mutant::new(
            "leadership-from-before-the-request",
            LEADERSHIP,
            ("(sent.monotonic + lasts, sent.wall_clock + lasts)", "(Instant::now() + lasts, sent.wall_clock + lasts)"),
            UNIT,
        ),
        Mutant::new(
            "leadership-another-term",
            LEADERSHIP,
            (".filter(|term| Some(term.number) == started)", ".filter(|_| started.is_some())"),
            UNIT,
        ),
        Mutant::new(
            "leadership-without-an-elector",
            LEADERSHIP,
            ("    fn drop(&mut self) {\n        self.end();", "    fn drop(&mut self) {"),
            UNIT,
        ),
        Mutant::new(
            "leadership-waits-look-at-the-wall-clock",
            LEADERSHIP,
            ("term.ends.min(Instant::now() + WALL_CLOCK_PERIOD)", "term.ends"),
            UNIT,
        ),
        // Record.
        Mutant::new(
            "record-its-own-duration",
            RECORD,
            (
                "Some(observed.observed_at + seconds(observed.spec.lease_duration_seconds))",
                "Some(observed.observed_at + lease_duration)",
            ),
            UNIT,
        ),
        Mutant::new(
            "record-still-the-same",
            RECORD,
            ("{ last_read: at, ..previous", "{ last_read: at, observed_at: at, ..previous"),
            UNIT,
        ),
        Mutant::new("record-vacant", RECORD, ("Some(observed.free_from).filter(|_| !is_leader)", "None"), UNIT),
        Mutant::new(
            "record-emptied-under-its-leader",
            RECORD,
            ("Some(observed.free_from).filter(|_| !is_leader)", "Some(observed.free_from)"),
            UNIT,
        ),
        Mutant::new(
            "record-a-recent-look",
            RECORD,
            ("at.saturating_sub(previous.last_read) <= lease_duration / 3", "previous.last_read <= at"),
            UNIT,
        ),
        Mutant::new(
            "record-given-up",
            RECORD,
            ("spec.lease_duration_seconds == Some(RELEASED_SECONDS)", "spec.lease_duration_seconds.is_some()"),
            UNIT,
        ),
        Mutant::new(
            "record-renewed-after-the-look",
            RECORD,
            ("previous.free_from.max(previous.last_read + lease_duration)", "previous.free_from"),
            UNIT,
        ),
        // Elector.
        Mutant::new(
            "elector-creates-at-once",
            ELECTOR,
            ("let deleted = self.observed.is_some().then(", "let deleted = false.then("),
            UNIT,
        ),
        Mutant::new(
            "elector-resource-version",
            ELECTOR,
            (
                "        lease.spec = Some(spec);\n",
                "        lease.spec = Some(spec);\n        lease.metadata.resource_version = None;\n",
            ),
            UNIT,
        ),
        Mutant::new(
            "elector-from-before-the-request",
            ELECTOR,
            (
                "        self.written(answer)?;\n        Ok(sent)",
                "        self.written(answer)?;\n        Ok(self.about_to_write())",
            ),
            UNIT,
        ),
        Mutant::new(
            "elector-gives-up-what-it-may-hold",
            ELECTOR,
            (
                "        if self.may_have_acquired {\n            self.release().await;",
                "        if self.may_have_acquired {",
            ),
            UNIT,
        ),
        Mutant::new(
            "elector-second-lease-ends-with-the-first",
            ELECTOR,
            ("() = main.wait_until_lost() => over.cancel(),", "() = main.wait_until_lost() => {}"),
            UNIT,
        ),
        Mutant::new(
            "elector-hears-renewals",
            ELECTOR,
            ("LeaseObservation::Written(lease) => self.observe(*lease),", "LeaseObservation::Written(_) => {}"),
            UNIT,
        ),
        // Watch of the standby.
        Mutant::new(
            "standby-cut-watch",
            WATCH,
            (
                "timeout_at(self.ends, self.events.next())",
                "timeout_at(self.ends + 100 * self.idle, self.events.next())",
            ),
            UNIT,
        ),
        Mutant::new(
            "standby-given-up",
            STANDBY,
            ("None => LeaseObservation::GivenUp,", "None => LeaseObservation::Written(Box::new(lease)),"),
            UNIT,
        ),
    ]
}
