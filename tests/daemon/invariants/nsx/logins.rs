//! NSX locks an account for 15 minutes after five consecutive rejections. Each further attempt extends the lock.

use std::time::{Duration, Instant};

use support::{LoginAttempt, LoginOutcome};

use super::Span;

/// Time for which a rejection counts.
pub const WINDOW: Duration = Duration::from_secs(15 * 60);
/// Permitted rejections in the window. An accepted login in the window permits one more: NSX can reject a later request
/// with its credentials, and replicas claim logins only.
pub const BUDGET: usize = 3;

/// Returns the number of rejections and the permitted number, for a window in which NSX rejected an account too often.
/// `attempts` are the logins of one account, in their order. During the spans in `apart` replicas may not reach their
/// record. Then each process counts alone and may be rejected once. For the time `late` after such a span, a login can
/// be one that a process counted alone, or one that is in the record. `runs` are the processes of the account.
pub fn excess(attempts: &[LoginAttempt], apart: &[Span], late: Duration, runs: &[Span]) -> Option<(usize, usize)> {
    let is_in = |at: Instant, later: Duration| {
        apart.iter().any(|(begin, end)| at >= *begin && end.is_none_or(|end| at <= end + later))
    };
    let rejected: Vec<&LoginAttempt> =
        attempts.iter().filter(|attempt| attempt.outcome == LoginOutcome::Rejected).collect();
    rejected.iter().find_map(|last| {
        let in_window = |attempt: &&&LoginAttempt| attempt.at <= last.at && last.at - attempt.at < WINDOW;
        let window: Vec<_> = rejected.iter().filter(in_window).collect();
        let alone = window.iter().filter(|attempt| is_in(attempt.at, Duration::ZERO)).count();
        let together = window.iter().filter(|attempt| !is_in(attempt.at, late)).count();
        let first = window.first().map_or(last.at, |first| first.at);
        let was_accepted = attempts
            .iter()
            .any(|attempt| attempt.outcome == LoginOutcome::Accepted && attempt.at > first && attempt.at < last.at);
        let allowed = BUDGET + usize::from(was_accepted);
        let processes =
            runs.iter().filter(|(begin, end)| *begin <= last.at && end.is_none_or(|end| end >= first)).count();
        let limits = [(together, allowed), (alone, processes), (window.len(), allowed + processes)];
        limits.into_iter().find(|(count, limit)| count > limit)
    })
}

/// Returns the periods in which a replica may have to wait with its logins: after as many rejected or unanswered logins
/// as its budget. `attempts` are the logins of one account, in their order.
pub fn waits(attempts: &[LoginAttempt]) -> Vec<Span> {
    let is_against =
        |attempt: &&LoginAttempt| matches!(attempt.outcome, LoginOutcome::Rejected | LoginOutcome::Unanswered);
    let against: Vec<Instant> = attempts.iter().filter(is_against).map(|attempt| attempt.at).collect();
    let full = against.windows(BUDGET).filter(|some| some[BUDGET - 1] - some[0] < WINDOW);
    // A pause is up to a quarter longer than required.
    full.map(|some| (some[BUDGET - 1], Some(some[BUDGET - 1] + WINDOW.mul_f64(1.25)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time in seconds, and outcome.
    type Login = (u64, LoginOutcome);

    /// Name, logins, periods in which replicas are apart, and the expected excess.
    type Case<'a> = (&'a str, &'a [Login], &'a [Span], Option<(usize, usize)>);

    fn attempts(start: Instant, all: &[Login]) -> Vec<LoginAttempt> {
        let attempt = |&(second, outcome): &Login| LoginAttempt {
            at: start + Duration::from_secs(second),
            user: "a".to_owned(),
            is_rest: true,
            is_right: outcome == LoginOutcome::Accepted,
            outcome,
        };
        all.iter().map(attempt).collect()
    }

    #[test]
    fn more_rejections_than_the_budget_are_reported() {
        use LoginOutcome::{Accepted, Rejected, Unanswered};
        let start = Instant::now();
        let (at, late) = (|second| start + Duration::from_secs(second), Duration::from_secs(10));
        let four = [0, 10, 20, 30].map(|second| (second, Rejected));
        let late_fifth = [0, 7, 8, 20, 30].map(|second| (second, Rejected));
        let always: Span = (start, None);
        let again = [(0, Rejected), (1, Rejected), (2, Accepted), (3, Rejected), (4, Rejected), (5, Rejected)];
        let lost = [(0, Unanswered), (1, Unanswered), (2, Rejected), (3, Rejected), (4, Rejected)];
        let forgotten = [(0, Rejected), (1, Rejected), (2, Rejected), (900, Rejected)];
        let outage = (at(0), Some(at(5)));
        let cases: [Case<'_>; 11] = [
            ("three", &four[..3], &[], None),
            ("four", &four, &[], Some((4, 3))),
            ("the fourth when the first is forgotten", &forgotten, &[], None),
            ("four, one accepted in between", &again[..5], &[], None),
            ("five, one accepted in between", &again, &[], Some((5, 4))),
            ("not answered ones do not lock", &lost, &[], None),
            ("one apart", &four, &[(at(25), None)], None),
            ("two apart by one process", &four, &[(at(15), None)], Some((2, 1))),
            ("one apart, and one just after it that is in the record", &four[..2], &[outage], None),
            ("one apart, one just after it, and two later", &four, &[outage], None),
            ("one apart and the whole budget later", &late_fifth, &[outage], Some((5, 4))),
        ];
        for (case, all, apart, expected) in cases {
            assert_eq!(excess(&attempts(start, all), apart, late, &[always]), expected, "{case}");
        }
    }

    #[test]
    fn three_failures_in_a_window_make_a_replica_wait() {
        use LoginOutcome::{Rejected, TurnedAway, Unanswered};
        let start = Instant::now();
        let two = attempts(start, &[(0, Rejected), (1, Unanswered), (2, TurnedAway)]);
        assert_eq!(waits(&two), []);
        let three = attempts(start, &[(0, Rejected), (1, Unanswered), (5, Unanswered)]);
        let from = start + Duration::from_secs(5);
        assert_eq!(waits(&three), [(from, Some(from + Duration::from_secs(1125)))]);
        assert_eq!(waits(&attempts(start, &[(0, Rejected), (1, Rejected), (900, Rejected)])), []);
    }
}
