//! Mutants of the login ledger: which attempts count, for how long, and over which servers and processes.

use crate::{Mutant, Tests};

const LEDGER: &str = "src/kubernetes/login_ledger.rs";
const RECORD: &str = "src/kubernetes/login_ledger/record.rs";

/// Tests with a store in memory, and of the decision.
const UNIT: Tests = &[&["--lib", "--", "login_ledger"]];

pub fn all() -> Vec<Mutant> {
    vec![
        // What counts.
        Mutant::new(
            "ledger-logins-under-way-do-not-count",
            RECORD,
            (
                "ServerRelation::SameProduct => self.entry.state == EntryState::Rejected || self.is_under_way(),",
                "ServerRelation::SameProduct => self.entry.state == EntryState::Rejected,",
            ),
            UNIT,
        ),
        Mutant::new(
            "ledger-lost-answers-do-not-count",
            RECORD,
            (
                "ServerRelation::SameServer => true,",
                "ServerRelation::SameServer => self.entry.state != EntryState::Unanswered,",
            ),
            UNIT,
        ),
        Mutant::new(
            "ledger-rejections-do-not-count",
            RECORD,
            (
                "Outcome::Rejected => Some(EntryState::Rejected),",
                "Outcome::Rejected => Some(EntryState::Rejected).filter(|_| false),",
            ),
            UNIT,
        ),
        Mutant::new(
            "ledger-rejections-at-other-servers-do-not-count",
            LEDGER,
            (
                "for name in account.keys().filter(|name| *name != here) {",
                "for name in account.keys().filter(|name| *name != here).take(0) {",
            ),
            UNIT,
        ),
        // Window and budget.
        Mutant::new(
            "ledger-half-a-window",
            RECORD,
            ("filter(|aged| aged.age < policy.window)", "filter(|aged| aged.age < policy.window / 2)"),
            UNIT,
        ),
        Mutant::new(
            "ledger-four-rejections",
            RECORD,
            (
                r#"(true, true) => (policy.budget, "rejected or not answered"),"#,
                r#"(true, true) => (policy.budget + 1, "rejected or not answered"),"#,
            ),
            UNIT,
        ),
        // Versions of a Secret, and pauses.
        Mutant::new(
            "ledger-a-rejected-version-is-repeated",
            RECORD,
            (
                "pause_after(backoff, same.count()).checked_sub(youngest.age)?",
                "pause_after(backoff, same.count()).checked_sub(policy.window)?",
            ),
            UNIT,
        ),
        Mutant::new(
            "ledger-a-new-version-has-a-budget-of-its-own",
            RECORD,
            (
                "counted.iter().filter(|aged| aged.age < policy.window)",
                "counted.iter().filter(|aged| aged.age < policy.window && aged.entry.version == planned.version)",
            ),
            UNIT,
        ),
        Mutant::new(
            "ledger-pauses-do-not-grow",
            RECORD,
            (
                "if has_hope { policy.window * 3 / 2 } else { LONGEST }",
                "if has_hope { policy.window * 3 / 2 } else { policy.window }",
            ),
            UNIT,
        ),
        // Clocks.
        Mutant::new(
            "ledger-ages-by-the-own-clock",
            LEDGER,
            ("|time| Clock { time, margin: MARGIN });", "|_| self.own_clock());"),
            UNIT,
        ),
        Mutant::new(
            "ledger-claims-are-dated-by-the-own-clock",
            LEDGER,
            ("self.entry(id, fetched.clock.time, planned)", "self.entry(id, self.own_clock().time, planned)"),
            UNIT,
        ),
        Mutant::new(
            "ledger-dates-are-exact",
            RECORD,
            ("saturating_sub(self.margin)", "saturating_sub(self.margin / 1000)"),
            UNIT,
        ),
        // Processes and versions of this program.
        Mutant::new(
            "ledger-a-claim-of-a-killed-process-is-under-way-for-ever",
            RECORD,
            (
                "self.entry.state == EntryState::Claimed && self.age < UNDER_WAY",
                "self.entry.state == EntryState::Claimed",
            ),
            UNIT,
        ),
        Mutant::new(
            "ledger-records-of-the-version-before-are-not-read",
            RECORD,
            ("pub struct Record {", "#[serde(deny_unknown_fields)]\npub struct Record {"),
            UNIT,
        ),
    ]
}
