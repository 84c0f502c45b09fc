//! Pure: the beginning of the reports of `check`, `explain` and `plan`: which process answered, and when.

use super::{Emphasis, Line};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The process that made a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportHeader {
    /// Version of the process.
    pub version: String,
    /// Time of the report.
    pub time: Timestamp,
    /// Name of the host, which is the name of the Pod unless the Pod uses the host network.
    pub host: String,
    /// Whether this process leads.
    pub leads: bool,
    /// Whether the command read API server, vCenter and NSX itself, and asked no running process. Clocks and limits of
    /// the leader are then not known.
    pub is_detached: bool,
    /// On a standby, the command that finds the Pod of the leader.
    pub find_leader: Option<String>,
}

impl ReportHeader {
    /// Returns the lines about the process: its role, and on a standby the command that finds the leader.
    pub fn lines(&self) -> Vec<Line> {
        let role = match self.leads {
            _ if self.is_detached => "read from",
            true => "leader",
            false => "standby",
        };
        let mut lines = Line::wrapped(Emphasis::Plain, &[format!("{role} {}", self.host), self.time.to_string()]);
        if let Some(command) = &self.find_leader {
            let text = "this process does not lead; find the Pod of the leader with";
            lines.push(Line::new(Emphasis::Notice, text));
            lines.push(Line::new(Emphasis::Notice, &format!("  {command}")));
        }
        lines
    }
}

#[cfg(test)]
impl ReportHeader {
    /// Returns the header of a leader, for tests.
    pub fn of_test() -> Self {
        Self {
            version: "0.1.0".to_owned(),
            time: "2026-11-24T03:12:40Z".parse().unwrap_or_default(),
            host: "cp-1".to_owned(),
            leads: true,
            is_detached: false,
            find_leader: None,
        }
    }

    /// Returns the header of a standby that knows the leader, for tests.
    pub fn of_standby() -> Self {
        let find_leader = Some("kubectl -n kube-system get pods -o wide | grep -w cp-2".to_owned());
        Self { leads: false, find_leader, ..Self::of_test() }
    }
}
