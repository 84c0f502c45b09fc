//! The login attempts at a fake vCenter, and their count against an account.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::xml::Element;
use crate::fake_server::http::{Delivery, Reply, Request};

/// Number of attempts that are kept. Older ones are dropped.
const KEPT: usize = 10_000;

/// The result of a login, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The login is not answered yet.
    UnderWay,
    /// User and password were right.
    Accepted,
    /// User or password were wrong.
    Rejected,
    /// User and password were not checked, and the answer shows that (429, 503), or they were right and the login
    /// failed for another reason (`NoPermission`). A server does not count this.
    TurnedAway,
    /// There was no answer, a partial one, or one that does not show whether user and password were right.
    Unanswered,
}

/// One login attempt at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginAttempt {
    /// Time of the request.
    pub at: Instant,
    /// User in the request.
    pub user: String,
    /// Whether it was made over REST instead of SOAP.
    pub is_rest: bool,
    /// Whether user and password were right, whatever the result.
    pub is_right: bool,
    /// Result of the attempt.
    pub outcome: LoginOutcome,
}

/// Returns the highest number of logins of one user, in any window of this length, that a server may have counted
/// against the account: rejected and unanswered ones. The attempts must be those of one server, in their order.
#[must_use]
pub fn most_against_an_account(attempts: &[LoginAttempt], window: Duration) -> usize {
    let is_against =
        |attempt: &&LoginAttempt| matches!(attempt.outcome, LoginOutcome::Rejected | LoginOutcome::Unanswered);
    let against: Vec<&LoginAttempt> = attempts.iter().filter(is_against).collect();
    let within = |first: &LoginAttempt| {
        let together = against.iter().filter(|one| one.user == first.user && one.at >= first.at);
        together.filter(|one| one.at - first.at < window).count()
    };
    against.iter().map(|first| within(first)).max().unwrap_or(0)
}

/// The attempts so far. Each has a number that does not change when older ones are dropped.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    attempts: Vec<LoginAttempt>,
    forgotten: usize,
}

impl Logins {
    pub(crate) fn all(&self) -> Vec<LoginAttempt> {
        self.attempts.clone()
    }

    /// Records this request if it is a login, and returns its number. `accepted` is the currently accepted user and
    /// password.
    pub(super) fn begin(
        &mut self,
        operation: &str,
        call: &Element,
        request: &Request,
        accepted: (&str, &str),
    ) -> Option<usize> {
        let is_rest = operation == "REST:session-login";
        let (user, password) = match operation {
            "Login" => (call.text_of("userName").to_owned(), call.text_of("password").to_owned()),
            _ if is_rest => pair_of(request.header("authorization").unwrap_or_default()),
            _ => return None,
        };
        let is_right = (user.as_str(), password.as_str()) == accepted;
        Some(self.push(user, is_rest, is_right))
    }

    /// Records a login that is in flight, and returns its number.
    pub(crate) fn push(&mut self, user: String, is_rest: bool, is_right: bool) -> usize {
        if self.attempts.len() == KEPT {
            self.attempts.remove(0);
            self.forgotten += 1;
        }
        // The clock is that of tokio, so that a test can advance it.
        let at = tokio::time::Instant::now().into_std();
        self.attempts.push(LoginAttempt { at, user, is_rest, is_right, outcome: LoginOutcome::UnderWay });
        self.forgotten + self.attempts.len() - 1
    }

    pub(crate) fn end(&mut self, number: usize, outcome: LoginOutcome) {
        if let Some(attempt) = number.checked_sub(self.forgotten).and_then(|index| self.attempts.get_mut(index)) {
            attempt.outcome = outcome;
        }
    }
}

/// Returns the result that this reply shows to the client.
pub(super) fn outcome(reply: &Reply) -> LoginOutcome {
    let says = |text: &str| reply.body.contains(text);
    match reply.status {
        _ if matches!(reply.delivery, Delivery::Close | Delivery::CutAfter(_)) => LoginOutcome::Unanswered,
        200 if says("<LoginResponse") || (says("\"value\"") && reply.media_type == "application/json") => {
            LoginOutcome::Accepted
        }
        500 if says("<InvalidLoginFault") => LoginOutcome::Rejected,
        401 if reply.media_type == "application/json" => LoginOutcome::Rejected,
        429 | 503 => LoginOutcome::TurnedAway,
        500 if says("<NoPermissionFault") => LoginOutcome::TurnedAway,
        _ => LoginOutcome::Unanswered,
    }
}

fn pair_of(authorization: &str) -> (String, String) {
    let pair = authorization.strip_prefix("Basic ").and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    let pair = String::from_utf8_lossy(&pair);
    pair.split_once(':').map_or_else(Default::default, |(user, password)| (user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_counted_per_account_and_window() {
        use LoginOutcome::{Accepted, Rejected, TurnedAway, Unanswered, UnderWay};
        let begin = Instant::now();
        let attempt = |second: u64, user: &str, outcome| LoginAttempt {
            at: begin + Duration::from_secs(second),
            user: user.to_owned(),
            is_rest: false,
            is_right: outcome == Accepted,
            outcome,
        };
        let attempts = [
            attempt(0, "a", Rejected),
            attempt(1, "a", Accepted),
            attempt(2, "a", TurnedAway),
            attempt(3, "a", UnderWay),
            attempt(4, "b", Rejected),
            attempt(70, "a", Unanswered),
            attempt(199, "a", Rejected),
            attempt(200, "a", Rejected),
        ];
        let most = |window| most_against_an_account(&attempts, Duration::from_secs(window));
        assert_eq!((most(1), most(2), most(200), most(201), most(70), most(71)), (1, 2, 3, 4, 2, 2));
        assert_eq!(most_against_an_account(&[], Duration::MAX), 0);
    }

    #[test]
    fn the_oldest_attempts_are_forgotten_and_numbers_stay() {
        let mut logins = Logins::default();
        let begin = |logins: &mut Logins| {
            logins.begin("Login", &Element::default(), &Request::default(), ("ccm", "secret")).unwrap()
        };
        let first = begin(&mut logins);
        let numbers: Vec<usize> = (0..KEPT).map(|_| begin(&mut logins)).collect();
        logins.end(first, LoginOutcome::Rejected);
        logins.end(numbers[0], LoginOutcome::Accepted);
        let all = logins.all();
        assert_eq!((all.len(), all[0].outcome, all[1].outcome), (KEPT, LoginOutcome::Accepted, LoginOutcome::UnderWay));
        assert_eq!(logins.begin("Logout", &Element::default(), &Request::default(), ("ccm", "secret")), None);
    }
}
