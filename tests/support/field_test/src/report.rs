//! Pure: the findings as a table, and the exit code.

use std::fmt::Write as _;

use crate::belief::{Finding, Outcome};
use crate::wire::Timing;

/// Widths of the text columns, in characters. Longer texts continue in the next line.
const STATEMENT: usize = 52;
const RESTS_ON: usize = 34;
const SEEN: usize = 44;

const LEFTOVERS: &str = "This run made these objects, and they may still be there. The commands remove them in this order and ask for \
                         the password:";
const EXISTING: &str = "These objects were there before this run, which has not changed them. Use another PREFIX; or, if an \
                        earlier run has left them, remove them in this order:";

/// The findings at all servers.
#[derive(Debug)]
pub struct Report {
    /// In the order of the file.
    pub servers: Vec<ServerReport>,
}

/// The findings at one server.
#[derive(Debug)]
pub struct ServerReport {
    /// Its title, which contains no name: `vCenter 1`.
    pub title: String,
    /// Product and version as the server reports them. Empty if they are unknown.
    pub product: String,
    /// The beliefs with their outcomes.
    pub findings: Vec<Finding>,
    /// Durations of the calls.
    pub timings: Vec<Timing>,
    /// Reason why the test of this server ended early, if it did.
    pub ended_early: Option<String>,
    /// Objects that must be removed by hand.
    pub cleanup: Cleanup,
}

/// Commands that delete the remaining objects. They name the server, and are not part of the table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleanup {
    /// Commands for objects that this run created and that may still exist.
    pub leftovers: Vec<String>,
    /// Commands for objects that existed before and have the ids of this run.
    pub existing: Vec<String>,
}

impl Report {
    /// Returns 0 if every checked belief holds, 1 if one differs, and 2 if a server could not be tested.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let differs = |finding: &Finding| matches!(finding.outcome, Outcome::Differs(_));
        let is_left = |server: &ServerReport| !server.cleanup.leftovers.is_empty();
        if self.servers.iter().any(|server| server.ended_early.is_some() || is_left(server)) {
            2
        } else {
            u8::from(self.servers.iter().flat_map(|server| &server.findings).any(differs))
        }
    }

    /// Returns the text about objects to remove by hand at all servers. Empty if there are none.
    #[must_use]
    pub fn cleanup(&self) -> String {
        let (mut text, all) = (String::new(), || self.servers.iter().map(|server| &server.cleanup));
        let leftovers: Vec<_> = all().flat_map(|cleanup| &cleanup.leftovers).collect();
        let existing: Vec<_> = all().flat_map(|cleanup| &cleanup.existing).collect();
        for (title, commands) in [(LEFTOVERS, leftovers), (EXISTING, existing)] {
            if !commands.is_empty() {
                let _ = writeln!(text, "\n{title}\n");
                commands.iter().for_each(|command| text.push_str(&format!("  {command}\n")));
            }
        }
        text
    }

    /// Returns the tables of all servers.
    #[must_use]
    pub fn table(&self) -> String {
        self.servers.iter().map(ServerReport::table).collect::<Vec<_>>().join("\n")
    }
}

impl ServerReport {
    /// Returns the ids of the beliefs that differ.
    #[must_use]
    pub fn differing(&self) -> Vec<&'static str> {
        let differs = |finding: &&Finding| matches!(finding.outcome, Outcome::Differs(_));
        self.findings.iter().filter(differs).map(|finding| finding.belief.id).collect()
    }

    fn table(&self) -> String {
        let mut text = match self.product.is_empty() {
            true => format!("{}\n\n", self.title),
            false => format!("{}: {}\n\n", self.title, self.product),
        };
        push_row(&mut text, ["", "belief", "rests on", "outcome", "seen"]);
        for Finding { belief, outcome } in &self.findings {
            push_row(&mut text, [belief.id, belief.statement, belief.rests_on, outcome.word(), outcome.text()]);
        }
        let of = |word| self.findings.iter().filter(|finding| finding.outcome.word() == word).count();
        let (holds, differs, not_tried) = (of("holds"), of("DIFFERS"), of("not tried"));
        let _ = writeln!(text, "\n{holds} hold, {differs} differ, {not_tried} not tried");
        if let Some(why) = &self.ended_early {
            let _ = writeln!(text, "The test of this server ended early: {why}");
        }
        if !self.cleanup.leftovers.is_empty() {
            let left = self.cleanup.leftovers.len();
            let _ = writeln!(text, "Objects that this run made and that may still be there: {left}");
        }
        if !self.timings.is_empty() {
            let calls: usize = self.timings.iter().map(|timing| timing.calls).sum();
            let _ = writeln!(text, "\n{calls} calls:");
        }
        for Timing { operation, calls, total, longest } in &self.timings {
            let mean = total.as_millis() / (*calls).max(1) as u128;
            let _ =
                writeln!(text, "  {operation:<45} {calls:>3} × {mean:>6} ms, longest {:>6} ms", longest.as_millis());
        }
        text
    }
}

/// Adds a row, with as many lines as its longest text needs.
fn push_row(table: &mut String, [id, statement, rests_on, outcome, seen]: [&str; 5]) {
    let (statement, rests_on, seen) = (wrap(statement, STATEMENT), wrap(rests_on, RESTS_ON), wrap(seen, SEEN));
    let lines = statement.len().max(rests_on.len()).max(seen.len()).max(1);
    for line in 0..lines {
        let part = |text: &[String]| text.get(line).cloned().unwrap_or_default();
        let (id, outcome) = if line == 0 { (id, outcome) } else { ("", "") };
        let (statement, rests_on, seen) = (part(&statement), part(&rests_on), part(&seen));
        let row = format!("{id:<4} {statement:<STATEMENT$}  {rests_on:<RESTS_ON$}  {outcome:<9}  {seen}");
        table.push_str(row.trim_end());
        table.push('\n');
    }
}

/// Wraps the text at this width in characters. A longer word gets a line for itself.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Cleanup, Report, ServerReport, wrap};
    use crate::belief::{Belief, Finding, Outcome};
    use crate::wire::Timing;

    static BELIEF: Belief = Belief { id: "V1", statement: "It answers.", rests_on: "a page" };

    fn server(outcome: Outcome, ended_early: Option<&str>) -> ServerReport {
        let timing = Timing {
            operation: "Login",
            calls: 2,
            total: Duration::from_millis(30),
            longest: Duration::from_millis(20),
        };
        ServerReport {
            title: "vCenter 1".to_owned(),
            product: "a vCenter".to_owned(),
            findings: vec![Finding { belief: &BELIEF, outcome }],
            timings: vec![timing],
            ended_early: ended_early.map(str::to_owned),
            cleanup: Cleanup::default(),
        }
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_server() {
        let holds = || server(Outcome::Holds("1".to_owned()), None);
        let differs = || server(Outcome::Differs("2".to_owned()), None);
        let ended = || server(Outcome::NotTried("3".to_owned()), Some("the login was rejected"));
        let code = |servers| Report { servers }.exit_code();
        assert_eq!(code(vec![holds(), server(Outcome::NotTried("no VM".to_owned()), None)]), 0);
        assert_eq!(code(vec![holds(), differs()]), 1);
        assert_eq!(code(vec![ended(), differs()]), 2);
        let left = Cleanup { leftovers: vec!["curl".to_owned()], ..Cleanup::default() };
        assert_eq!(code(vec![ServerReport { cleanup: left, ..holds() }]), 2);
    }

    #[test]
    fn what_is_left_is_counted_in_the_table_and_named_beside_it() {
        let cleanup = Cleanup { leftovers: vec!["curl a".to_owned()], existing: vec!["curl b".to_owned()] };
        let left = ServerReport { cleanup, ..server(Outcome::Holds("1".to_owned()), None) };
        let report = Report { servers: vec![left, server(Outcome::Holds("1".to_owned()), None)] };
        let (table, cleanup) = (report.table(), report.cleanup());
        assert!(table.contains("may still be there: 1") && !table.contains("curl"), "{table}");
        let at = |part| cleanup.find(part).unwrap_or_else(|| panic!("{part} is missing in {cleanup}"));
        assert!(at("may still be there") < at("  curl a") && at("  curl a") < at("were there before"), "{cleanup}");
        assert!(cleanup.ends_with("  curl b\n"), "{cleanup}");
        assert_eq!(Report { servers: Vec::new() }.cleanup(), "");
    }

    #[test]
    fn a_table_has_belief_source_outcome_and_times() {
        let table = Report { servers: vec![server(Outcome::Differs("status 500".to_owned()), Some("why"))] }.table();
        for part in [
            "vCenter 1: a vCenter",
            "V1   It answers.",
            "a page",
            "DIFFERS    status 500",
            "0 hold, 1 differ",
            "ended early: why",
            "2 calls:",
            "Login",
            "2 ×     15 ms, longest     20 ms",
        ] {
            assert!(table.contains(part), "{part} is missing in\n{table}");
        }
    }

    #[test]
    fn long_texts_go_on_in_the_next_line() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
        assert_eq!(wrap("", 3), Vec::<String>::new());
    }
}
