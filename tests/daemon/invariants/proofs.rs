//! Times at which the proofs for deletions began, from the daemons' logs.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use support::supervisor::Output;

use super::rules::LOOK;

/// Limit for a log line after a deletion. A frozen daemon writes its lines later.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum duration of the proof and of the deletion after it. It is at most a minute, because clock errors in these
/// tests are whole minutes: only one of them then fits a logged time.
const LONGEST: Duration = Duration::from_secs(60);
const FIELD: &str = "proof_began";

/// The proof right before a deletion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proof {
    /// Start of the proof.
    pub began: Instant,
    /// Number of the daemon's process that made the proof. Each start has a new number.
    pub process: usize,
}

/// Content of the logs for a deletion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Logged {
    /// The logs have the proof.
    Proof(Proof),
    /// The proof may still be logged.
    Awaited,
    /// The proof will not be logged, because a daemon was killed that may have sent the deletion.
    Lost,
    /// The proof will not be logged, although no daemon was killed.
    Never,
}

/// The logs of all daemons of a test, and their proofs of deletions.
pub struct Proofs {
    /// Logs that may still grow: process, output and read position.
    logs: Vec<(usize, Output, usize)>,
    started: usize,
    /// Begin and process of each logged proof, by UID of the Node.
    found: HashMap<String, Vec<(Timestamp, usize)>>,
    killed: Vec<Instant>,
    /// Seconds by which wall clocks of daemons were ahead.
    ahead: BTreeSet<i64>,
    is_closed: bool,
}

impl Proofs {
    /// Creates the logs without a daemon.
    pub fn new() -> Self {
        let ahead = BTreeSet::from([0]);
        Self { logs: Vec::new(), started: 0, found: HashMap::new(), killed: Vec::new(), ahead, is_closed: false }
    }

    /// Records the start of a daemon with this output.
    pub fn started(&mut self, output: &Output) {
        self.logs.push((self.started, output.clone(), 0));
        self.started += 1;
        self.is_closed = false;
    }

    /// Records that a daemon was killed now.
    pub fn killed(&mut self) {
        self.killed.push(Instant::now());
    }

    /// Records that the wall clock of a daemon is ahead by this much from now on.
    pub fn clock_is_ahead(&mut self, seconds: i64) {
        self.ahead.insert(seconds);
    }

    /// Records that all daemons have ended and all their output was read.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Reads the new lines.
    pub fn read(&mut self) {
        self.logs.retain_mut(|(process, output, position)| {
            let may_write = !output.is_last();
            output.read_on(position, |line| {
                if let Some((uid, began)) = proof_in(line) {
                    self.found.entry(uid).or_default().push((began, *process));
                }
            });
            may_write
        });
    }

    /// Returns the logged proof for the deletion of the Node with this UID. The test observed the deletion between
    /// these moments.
    pub fn of(&self, uid: &str, since: Instant, at: Instant) -> Logged {
        let found = self.found.get(uid).map(Vec::as_slice).unwrap_or_default();
        let proofs =
            found.iter().filter_map(|&(began, process)| Some(Proof { began: self.moment(began, since, at)?, process }));
        // A rejected deletion has no line. A deletion without an answer has a line, too.
        match proofs.max_by_key(|proof| proof.began) {
            Some(proof) => Logged::Proof(proof),
            None if !self.is_closed && at.elapsed() < PATIENCE => Logged::Awaited,
            None if self.killed.iter().any(|killed| *killed + LOOK >= since) => Logged::Lost,
            None => Logged::Never,
        }
    }

    /// Converts the time of a daemon's wall clock into a moment shortly before `since` or `at`.
    fn moment(&self, time: Timestamp, since: Instant, at: Instant) -> Option<Instant> {
        let (wall_clock, now) = (Timestamp::now(), Instant::now());
        let moments = self.ahead.iter().filter_map(|ahead| {
            let ago = wall_clock.duration_since(time) + SignedDuration::from_secs(*ahead);
            now.checked_sub(Duration::try_from(ago).ok()?)
        });
        moments.filter(|moment| *moment <= at && *moment + LONGEST > since).min()
    }
}

/// Returns the UID of the Node and the start of the proof, if this line has them in text form or as JSON.
fn proof_in(line: &str) -> Option<(String, Timestamp)> {
    if !line.contains(FIELD) {
        return None;
    }
    let value = |key: &str| match line.starts_with('{') {
        true => serde_json::from_str::<Value>(line).ok()?[key].as_str().map(str::to_owned),
        false => Some(line.split_once(&format!(" {key}=\""))?.1.split_once('"')?.0.to_owned()),
    };
    Some((value("uid")?, value(FIELD)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "7d0fcb0c-9b1f-4d3e-8a35-2f5e0c1d6a11";

    fn text(began: &str) -> String {
        format!(
            "I0109 07:05:03.000042      77 deletion.rs:66] \"node deleted: no \\\"vm\\\"\" logger=\"node-lifecycle\" \
             node=\"n-0\" uid=\"{UID}\" proof_began=\"{began}\""
        )
    }

    fn ago(seconds: i64) -> Timestamp {
        Timestamp::now() - SignedDuration::from_secs(seconds)
    }

    fn proofs(found: &[Timestamp]) -> Proofs {
        let mut proofs = Proofs::new();
        proofs
            .found
            .insert(UID.to_owned(), found.iter().enumerate().map(|(process, began)| (*began, process)).collect());
        proofs
    }

    /// Whether the proof of this process began this many seconds ago, with a tolerance of 0.1 s.
    fn is_ago(logged: Logged, seconds: f64, process: usize) -> bool {
        let Logged::Proof(proof) = logged else { return false };
        proof.process == process && (proof.began.elapsed().as_secs_f64() - seconds).abs() < 0.1
    }

    #[test]
    fn both_forms_of_the_log_are_read() {
        let time = "2026-01-09T07:05:03.000042Z";
        let expected = Some((UID.to_owned(), time.parse().unwrap()));
        assert_eq!(proof_in(&text(time)), expected);
        let json = format!(
            "{{\"ts\":1767942303000.043,\"caller\":\"node_lifecycle/deletion.rs:66\",\"msg\":\"node deleted: gone\",\"v\":0,\
             \"node\":\"n-0\",\"uid\":\"{UID}\",\"proof_began\":\"{time}\"}}"
        );
        assert_eq!(proof_in(&json), expected);
        for other in
            ["", "I0109 07:05:03.000042      77 x.rs:1] \"proof_began\"", &text("yesterday"), "{\"proof_began\":1"]
        {
            assert_eq!(proof_in(other), None, "{other}");
        }
    }

    #[test]
    fn the_last_proof_before_the_deletion_counts() {
        let now = Instant::now();
        assert!(is_ago(proofs(&[ago(10), ago(20)]).of(UID, now, now), 10.0, 0));
        assert_eq!(proofs(&[ago(-10)]).of(UID, now, now), Logged::Awaited, "it began after the deletion");
        assert_eq!(proofs(&[ago(70)]).of(UID, now, now), Logged::Awaited, "it was long ago");
        let missed = now.checked_sub(Duration::from_secs(30)).unwrap();
        assert!(is_ago(proofs(&[ago(70)]).of(UID, missed, now), 70.0, 0), "the deletion may have been missed for long");
        assert_eq!(proofs(&[ago(10)]).of("another", now, now), Logged::Awaited);
    }

    #[test]
    fn a_wall_clock_that_is_known_to_be_wrong_tells_the_right_moment() {
        let now = Instant::now();
        for ahead in [300, -300] {
            let mut proofs = proofs(&[ago(10 - ahead)]);
            assert_eq!(proofs.of(UID, now, now), Logged::Awaited);
            proofs.clock_is_ahead(ahead);
            assert!(is_ago(proofs.of(UID, now, now), 10.0, 0), "{ahead}");
        }
    }

    #[test]
    fn a_line_is_awaited_until_it_cannot_come_any_more() {
        let long_ago = Instant::now().checked_sub(PATIENCE).unwrap();
        let a_while_ago = Instant::now().checked_sub(LOOK + Duration::from_secs(1)).unwrap();
        let now = Instant::now();
        let mut none = proofs(&[]);
        assert_eq!(none.of(UID, now, now), Logged::Awaited);
        assert_eq!(none.of(UID, long_ago, long_ago), Logged::Never);
        none.close();
        assert_eq!(none.of(UID, now, now), Logged::Never);
        none.killed.push(a_while_ago);
        assert_eq!(none.of(UID, now, now), Logged::Never, "that one had ended long before");
        none.killed();
        assert_eq!(none.of(UID, now, now), Logged::Lost);
        assert_eq!(none.of(UID, long_ago, long_ago), Logged::Lost);
        none.started(&Output::default());
        assert_eq!(none.of(UID, now, now), Logged::Awaited, "one that runs may write it");
    }
}
