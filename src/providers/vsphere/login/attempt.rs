//! Login attempts at one server. Each attempt is claimed from the local schedule and from the login throttle, which all
//! replicas share, and its outcome is reported to both.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cloud::login_ledger::{LoginClaim, LoginPolicy, LoginThrottle, Outcome};
use crate::providers::vsphere::login::credentials::{Credential, Origin};
use crate::providers::vsphere::login::schedule::{
    Better, Interface, LoginBlocked, LoginPause, LoginSchedule, Moment, PausedLogin, Rejection, account,
};

/// Interval between two reviews while a login waits. Jitter adds up to a quarter.
const REVIEW: Duration = Duration::from_secs(30);

/// The login attempts of this process at one server.
pub(in super::super) struct LoginAttempts {
    policy: LoginPolicy,
    /// `host:port`.
    server: String,
    throttle: Arc<dyn LoginThrottle>,
    began: Instant,
    schedule: Mutex<LoginSchedule>,
    /// Counts the reviews that ended a wait early.
    released: watch::Sender<u64>,
}

/// Permission for one login. Counts as a failed attempt until its outcome is recorded.
pub(in super::super) struct LoginAttempt<'a> {
    attempts: &'a LoginAttempts,
    credential: &'a Arc<Credential>,
    interface: Interface,
    claim: LoginClaim,
}

impl LoginAttempts {
    pub(in super::super) fn new(policy: LoginPolicy, server: &str, throttle: Arc<dyn LoginThrottle>) -> Self {
        Self {
            policy,
            server: server.to_owned(),
            throttle,
            began: Instant::now(),
            schedule: Mutex::new(LoginSchedule::new(policy)),
            released: watch::Sender::default(),
        }
    }

    /// Locks the schedule. The lock must not be held across an await.
    pub(in super::super) fn schedule(&self) -> MutexGuard<'_, LoginSchedule> {
        self.schedule.lock()
    }

    /// Returns the current pause of logins that protects an account from lockout, if any.
    pub(in super::super) fn pause(&self) -> Option<LoginPause> {
        self.schedule().lockout(self.began.elapsed())
    }

    /// Returns the commands that clear the failed logins of the paused accounts for all replicas, after which the pause
    /// ends; `None` without a pause and without a shared login throttle.
    pub(in super::super) fn reset_of_pause(&self) -> Option<String> {
        let paused = self.schedule().paused(self.began.elapsed());
        let mut commands = BTreeSet::new();
        for PausedLogin { credential, .. } in paused {
            commands.extend(self.throttle.reset_command(self.policy, &self.server, account(&credential.login)));
        }
        let commands: Vec<String> = commands.into_iter().collect();
        (!commands.is_empty()).then(|| commands.join("; "))
    }

    /// Returns the current time in the terms of the schedule.
    pub(in super::super) fn now(&self) -> Moment {
        Moment { since_start: self.began.elapsed(), wall: Timestamp::now() }
    }

    /// Returns the time from now until this time of the schedule.
    pub(in super::super) fn time_until(&self, moment: Duration) -> Duration {
        moment.saturating_sub(self.began.elapsed())
    }

    /// Returns [`LoginSchedule::candidates`], and forgets all other credentials.
    pub(in super::super) fn candidates(
        &self,
        offered: &[Arc<Credential>],
        in_use: Option<&Arc<Credential>>,
    ) -> Vec<Arc<Credential>> {
        self.schedule().forget_others(offered, in_use);
        LoginSchedule::candidates(offered, in_use)
    }

    /// Returns [`LoginSchedule::better`] as of now.
    pub(in super::super) fn better(&self, offered: &[Arc<Credential>], in_use: &Arc<Credential>) -> Better {
        self.schedule().better(offered, in_use, self.began.elapsed())
    }

    /// Claims an attempt, first from the schedule, then from the login throttle.
    ///
    /// # Errors
    /// The login has to wait.
    pub(in super::super) async fn claim<'a>(
        &'a self,
        credential: &'a Arc<Credential>,
        interface: Interface,
    ) -> Result<LoginAttempt<'a>, LoginBlocked> {
        let planned = {
            let schedule = self.schedule();
            if let Some(blocked) = schedule.blocked(credential, interface, self.began.elapsed()) {
                return Err(blocked);
            }
            schedule.planned_login(credential, &self.server)
        };
        match self.throttle.claim(&planned).await {
            Ok(claim) => Ok(LoginAttempt { attempts: self, credential, interface, claim }),
            Err(refused) => {
                let blocked = match refused.is_lockout {
                    true => self.now().lockout(refused.pause, refused.reason),
                    false => self.now().wait(refused.pause, refused.reason),
                };
                self.schedule().block(credential, interface, blocked.clone());
                Err(blocked)
            }
        }
    }

    /// Returns a text with the reason of a wait and the way to end the wait.
    pub(in super::super) fn why_blocked(&self, credential: &Credential, blocked: &LoginBlocked) -> String {
        let reset = self.throttle.reset_command(self.policy, &self.server, account(&credential.login));
        blocked.why(self.policy, matches!(credential.origin, Origin::Source { version: Some(_), .. }), reset.as_deref())
    }

    /// Records in the schedule that the server rejected this credential. The pause is at least `min_pause`. Returns the
    /// pause before the next attempt.
    pub(in super::super) fn reject(
        &self,
        credential: &Arc<Credential>,
        interface: Interface,
        reason: String,
        min_pause: Duration,
    ) -> Duration {
        let rejection = Rejection { moment: self.now(), reason, min_pause };
        self.schedule().rejected(credential, interface, rejection, fastrand::f64())
    }

    /// Counts in the login throttle a rejection that follows no claim.
    pub(in super::super) async fn count_rejection(&self, credential: &Credential) {
        let planned = self.schedule().planned_login(credential, &self.server);
        self.throttle.count_rejection(&planned).await;
    }

    /// Returns the time until the next review, with jitter.
    pub(in super::super) fn review_pause() -> Duration {
        REVIEW.mul_f64(1.0 + fastrand::f64() / 4.0)
    }

    /// Ends the waits that the login throttle does not require any more, because an administrator deleted the failed
    /// logins, or another replica logged in. Returns whether a wait was ended.
    pub(in super::super) async fn review(&self) -> bool {
        let paused = self.schedule().paused(self.began.elapsed());
        let mut is_released = false;
        for pause in paused {
            let planned = self.schedule().planned_login(&pause.credential, &self.server);
            if self.throttle.can_retry(&planned, pause.is_of_rejection).await {
                self.schedule().release(&pause.credential, pause.interface);
                is_released = true;
            }
        }
        if is_released {
            self.released.send_modify(|count| *count = count.wrapping_add(1));
        }
        is_released
    }

    /// Returns a watch that changes whenever a review ends a wait.
    pub(in super::super) fn released(&self) -> watch::Receiver<u64> {
        self.released.subscribe()
    }
}

impl LoginAttempt<'_> {
    /// Records that the server accepted the credentials.
    pub(in super::super) async fn accepted(self) {
        self.attempts.schedule().accepted(self.credential, self.interface);
        self.counts_as(Outcome::Accepted).await;
    }

    /// Records the outcome of a failed login. Returns the pause after a rejection.
    pub(in super::super) async fn failed(self, outcome: Outcome, reason: String) -> Option<Duration> {
        let pause = match outcome {
            Outcome::Rejected => {
                let min_pause = self.claim.pause_if_rejected;
                Some(self.attempts.reject(self.credential, self.interface, reason, min_pause))
            }
            Outcome::Unanswered => {
                self.attempts.schedule().unanswered(self.credential);
                None
            }
            Outcome::Accepted | Outcome::Harmless => None,
        };
        self.counts_as(outcome).await;
        pause
    }

    /// Records the outcome in the login throttle only.
    pub(in super::super) async fn counts_as(self, outcome: Outcome) {
        self.attempts.throttle.record_outcome(self.claim, outcome).await;
    }
}

/// Whether a gateway sent this HTTP status, so that the outcome of the login is unknown.
pub(in super::super) fn is_of_gateway(status: u16) -> bool {
    matches!(status, 408 | 502 | 504)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::login_ledger::{LoginRefusal, PlannedLogin};
    use crate::providers::vsphere::login::credentials::Login;
    use crate::providers::vsphere::login::policy::LOGIN_POLICY;
    use async_trait::async_trait;

    /// A login throttle that allows each login.
    struct OpenThrottle;

    #[async_trait]
    impl LoginThrottle for OpenThrottle {
        fn register_server(&self, _: LoginPolicy, _: &str) {}

        async fn claim(&self, planned: &PlannedLogin) -> Result<LoginClaim, LoginRefusal> {
            let (planned, id) = (planned.clone(), "1".to_owned());
            Ok(LoginClaim { planned, id, pause_if_rejected: Duration::ZERO })
        }

        async fn count_rejection(&self, _: &PlannedLogin) {}

        async fn can_retry(&self, _: &PlannedLogin, _: bool) -> bool {
            false
        }

        fn reset_command(&self, _: LoginPolicy, server: &str, user: &str) -> Option<String> {
            Some(format!("delete lease of {user} at {server}"))
        }

        async fn record_outcome(&self, _: LoginClaim, _: Outcome) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_comes_with_the_command_that_ends_it_for_each_account() {
        let attempts = LoginAttempts::new(LOGIN_POLICY, "vc:443", Arc::new(OpenThrottle));
        assert_eq!(attempts.reset_of_pause(), None, "no login is paused");
        let credential = |user: &str, password: &str| {
            let login = Login::Password { user: user.to_owned(), password: password.into() };
            Arc::new(Credential { login, origin: Origin::Config })
        };
        for rejected in [credential("ccm", "one"), credential("ccm", "two"), credential("other", "one")] {
            attempts.reject(&rejected, Interface::Primary, "wrong".to_owned(), Duration::ZERO);
        }
        let commands = "delete lease of ccm at vc:443; delete lease of other at vc:443";
        assert_eq!(attempts.reset_of_pause().as_deref(), Some(commands));
        tokio::time::advance(LOGIN_POLICY.window * 2).await;
        assert_eq!((attempts.pause(), attempts.reset_of_pause()), (None, None), "the pause is over");
    }
}
