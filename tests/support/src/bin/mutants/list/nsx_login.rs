//! Mutants of NSX sessions and logins: the meaning of an answer, when a call logs in again, and which failures count
//! against the account.

use crate::{Mutant, Tests};

const ANSWER: &str = "src/clients/nsx/answer.rs";
const CALL: &str = "src/clients/nsx/call.rs";
const PROOF: &str = "src/clients/nsx/proof.rs";
const GATE: &str = "src/providers/vsphere/nsx/session.rs";
const ENTER: &str = "src/providers/vsphere/nsx/session/login.rs";

/// Tests without a server.
const UNIT: Tests = &[&["--lib", "--", "clients::nsx::"]];
/// Tests of logins on the fake NSX, and on one in memory.
const LOGIN: Tests = &[&["--test", "nsx", "--", "login::", "login_counts::"]];
/// Tests of writes and their permits.
const PERMIT: Tests = &[&["--test", "nsx", "--", "permit"]];

pub fn all() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "answer-a-session-that-ended-is-denied",
            ANSWER,
            ("403 if matches!(code, 98 | 403) =>", "403 if code == 98 =>"),
            UNIT,
        ),
        Mutant::new(
            "answer-a-wrong-password-is-an-end",
            ANSWER,
            (
                "403 if asked.presents == PresentedCredentials::EachTime && code == 403 =>",
                "403 if asked.presents == PresentedCredentials::EachTime && code == 7 =>",
            ),
            UNIT,
        ),
        Mutant::new(
            "answer-a-page-is-of-the-api",
            ANSWER,
            ("_ if !is_json || !(400..500).contains(&status) =>", "_ if !(400..500).contains(&status) =>"),
            UNIT,
        ),
        Mutant::new(
            "answer-every-path-is-the-own",
            ANSWER,
            ("rest.trim_start_matches('.').chars().next().is_none_or(is_end)", "rest.len() < usize::MAX"),
            UNIT,
        ),
        Mutant::new("call-a-second-login-for-a-call", CALL, ("if refusals == 1 {", "if refusals <= 2 {"), LOGIN),
        Mutant::new(
            "call-a-write-is-repeated-after-a-page",
            CALL,
            ("if !has_another || error.kind == Kind::Unknown {", "if !has_another {"),
            LOGIN,
        ),
        Mutant::new(
            "call-a-login-that-changed-is-sent",
            CALL,
            (
                "if !self.login().is_some_and(|current| current.is(login)) {",
                "if self.login().is_none() && call.object.is_empty() {",
            ),
            LOGIN,
        ),
        Mutant::new(
            "call-a-write-is-repeated-after-503",
            CALL,
            (
                "call.permit.is_none() || error.status() == Some(429)",
                "call.permit.is_none() || error.status().is_some()",
            ),
            PERMIT,
        ),
        Mutant::new(
            "call-a-rejection-is-not-told",
            CALL,
            ("            self.inner.log_in.rejected(login);\n", ""),
            LOGIN,
        ),
        Mutant::new(
            "proof-a-password-is-not-presented",
            PROOF,
            (
                "RequestAuth::Basic(_) => PresentedCredentials::EachTime,",
                "RequestAuth::Basic(_) => PresentedCredentials::Nothing,",
            ),
            LOGIN,
        ),
        Mutant::new(
            "gate-sessions-forever",
            GATE,
            ("const SHORT_LIVES: u32 = 2;", "const SHORT_LIVES: u32 = 20;"),
            LOGIN,
        ),
        Mutant::new(
            "gate-every-session-is-short",
            GATE,
            ("if made.elapsed() >= SHORT_LIFE {", "if made.elapsed() >= SHORT_LIFE * 1000 {"),
            LOGIN,
        ),
        Mutant::new(
            "gate-a-term-remembers",
            GATE,
            ("(state.session_mode, state.short_lived) = (SessionMode::Usable, 0);", "state.short_lived = 0;"),
            LOGIN,
        ),
        Mutant::new(
            "gate-a-page-is-never-an-end",
            GATE,
            ("if state.has_ended || !is_due ||", "if state.has_ended || is_due ||"),
            LOGIN,
        ),
        Mutant::new(
            "gate-each-page-is-a-login",
            GATE,
            (
                "state.suspected_since.is_none_or(|at| at.elapsed() >= SUSPICION_WINDOW)",
                "state.suspected_since.is_none_or(|at| at.elapsed() >= SHORT_LIFE)",
            ),
            LOGIN,
        ),
        Mutant::new(
            "gate-a-standby-logs-in",
            GATE,
            (
                "None if !self.leads.is_leader() => Err(not_leading()),",
                "None if self.server.is_empty() => Err(not_leading()),",
            ),
            LOGIN,
        ),
        Mutant::new(
            "enter-a-refused-request-is-a-wrong-password",
            ENTER,
            (
                "error.kind == Kind::Rejected && self.is_in_use(credential)",
                "error.kind == Kind::Rejected && !self.is_in_use(credential)",
            ),
            LOGIN,
        ),
        Mutant::new(
            "enter-sessions-although-they-end",
            ENTER,
            ("if matches!(mode, SessionMode::Usable | SessionMode::Required)", "if mode != SessionMode::PerRequest"),
            LOGIN,
        ),
    ]
}
