//! Pure: the pause of deletions in reports.

use super::text::duration;
use super::{Emphasis, Line, Verdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whether an operator has paused the deletion of Nodes, as one process knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionPauseStatus {
    /// Namespace of the Lease with the pause.
    pub namespace: String,
    /// Whether deletions pause; `None` before the Lease was read.
    pub is_paused: Option<bool>,
    /// The end of the pause; `None` if the annotations cannot be read.
    pub until: Option<Timestamp>,
    /// The cause that the operator gave.
    pub cause: Option<String>,
    /// The fault of annotations that cannot be read.
    pub message: Option<String>,
    /// The error of the last read of the Lease, if it failed.
    pub failure: Option<String>,
}

impl DeletionPauseStatus {
    /// Returns the result. A pause that an operator has ordered is as it should be.
    pub fn verdict(&self) -> Verdict {
        if self.failure.is_some() || self.message.is_some() {
            return Verdict::Findings;
        }
        if self.is_paused.is_none() { Verdict::Incomplete } else { Verdict::Ok }
    }

    /// Returns the lines about a pause, and about what cannot be read. None if deletions do not pause.
    pub fn lines(&self, time: Timestamp) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(failure) = &self.failure {
            let text = format!("deletions: no Node is deleted while it is not known whether they pause: {failure}");
            lines.extend(Line::wrapped(Emphasis::Finding, &[text]));
        }
        if let Some(message) = &self.message {
            lines.extend(Line::wrapped(Emphasis::Finding, &[format!("deletions are paused, because {message}")]));
        }
        if let Some(until) = self.until {
            let left = u64::try_from(until.as_second().saturating_sub(time.as_second())).unwrap_or_default();
            let cause = self.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
            let text = format!("deletions are paused until {until}, for {}{cause}", duration(left));
            lines.extend(Line::wrapped(Emphasis::Notice, &[text]));
        }
        if lines.is_empty() && self.is_paused.is_none() {
            lines.push(Line::new(Emphasis::Notice, "deletions: it is not known yet whether they pause"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_worth_knowing_and_what_cannot_be_read_is_a_finding() {
        let known = DeletionPauseStatus { is_paused: Some(false), ..DeletionPauseStatus::default() };
        let paused = DeletionPauseStatus {
            is_paused: Some(true),
            until: "2026-11-30T04:00:00Z".parse().ok(),
            cause: Some("vCenter\nupgrade".to_owned()),
            ..known.clone()
        };
        let unreadable = DeletionPauseStatus {
            is_paused: Some(true),
            message: Some("the annotation is odd".to_owned()),
            ..known.clone()
        };
        let failed = DeletionPauseStatus { failure: Some("no answer".to_owned()), ..known.clone() };
        let time = "2026-11-30T00:01:00Z".parse().unwrap();
        for (status, verdict, expected) in [
            (
                DeletionPauseStatus::default(),
                Verdict::Incomplete,
                vec![(Emphasis::Notice, "deletions: it is not known yet whether they pause")],
            ),
            (known, Verdict::Ok, vec![]),
            (
                paused,
                Verdict::Ok,
                vec![(
                    Emphasis::Notice,
                    "deletions are paused until 2026-11-30T04:00:00Z, for 3 h 59 m: vCenter upgrade",
                )],
            ),
            (
                unreadable,
                Verdict::Findings,
                vec![(Emphasis::Finding, "deletions are paused, because the annotation is odd")],
            ),
            (
                failed,
                Verdict::Findings,
                vec![(
                    Emphasis::Finding,
                    "deletions: no Node is deleted while it is not known whether they pause: no answer",
                )],
            ),
        ] {
            let lines = status.lines(time);
            let shown: Vec<_> = lines.iter().map(|line| (line.emphasis, line.text())).collect();
            assert_eq!((shown, status.verdict()), (expected, verdict), "{status:?}");
        }
    }
}
