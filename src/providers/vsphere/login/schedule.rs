//! Pure: chooses the credential to try next and the time of the attempt. Times are durations since the creation of the
//! `LoginAttempts` of the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, Unit};

use crate::base::backoff::Failures;
use crate::cloud::login_ledger::{LoginPolicy, PlannedLogin};
use crate::providers::vsphere::login::credentials::{Credential, Login, Origin};
use crate::providers::vsphere::login::retry;

/// The interface to log in to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Interface {
    /// SOAP of vCenter, or the Policy API of NSX.
    Primary,
    /// REST of vCenter.
    Rest,
}

/// The attempts so far for each login that is offered or in use.
pub(in super::super) struct LoginSchedule {
    policy: LoginPolicy,
    credentials: Vec<CredentialHistory>,
}

/// History of one login. `was_accepted` means that the server accepted the login, and no later attempt was rejected or
/// left unanswered.
struct CredentialHistory {
    credential: Arc<Credential>,
    was_accepted: bool,
    was_tried: bool,
    schedules: BTreeMap<Interface, Schedule>,
}

#[derive(Default)]
struct Schedule {
    rejections: Failures,
    block: Option<LoginBlocked>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct LoginBlocked {
    pub(in super::super) until: Duration,
    pub(in super::super) reason: String,
    /// End of a wait that protects the account from lockout. Computed once, so that the message stays the same.
    lockout_until: Option<Timestamp>,
    /// Whether a rejected login of this process causes the wait, and not the login throttle.
    is_of_rejection: bool,
}

/// A pause of logins that protects an account from lockout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginPause {
    /// The end of the pause.
    pub until: Timestamp,
    /// The reason, such as the last rejection.
    pub cause: String,
    /// Whether the server rejected a login of this process, and not only logins of other processes.
    pub is_of_rejection: bool,
}

pub(super) struct PausedLogin {
    pub(super) credential: Arc<Credential>,
    pub(super) interface: Interface,
    pub(super) is_of_rejection: bool,
}

impl LoginBlocked {
    /// Returns the message that the login to `location` waits.
    pub(in super::super) fn what(&self, location: &str) -> String {
        match self.lockout_until {
            Some(until) => format!("login to {location} is paused until {until}, so that the account is not locked"),
            None => format!("login to {location} waits"),
        }
    }

    /// Returns the reason and, for a pause against lockout, how to end the pause. `is_of_secret` means that another
    /// version of a Secret may be tried earlier. `reset` is the command that clears the failed logins for all replicas;
    /// `None` without a shared login throttle.
    pub(super) fn why(&self, policy: LoginPolicy, is_of_secret: bool, reset: Option<&str>) -> String {
        if self.lockout_until.is_none() {
            return self.reason.clone();
        }
        // Without a shared login throttle, a process has one attempt for all versions together.
        let secret = match is_of_secret && reset.is_some() {
            true => format!(
                " Another version of the Secret is tried at once, unless {} logins have failed within {} s.",
                policy.budget,
                policy.window.as_secs()
            ),
            false => String::new(),
        };
        let retry = match reset {
            Some(command) => format!("run `{command}`; every replica notices it within a minute"),
            None => "restart this process".to_owned(),
        };
        format!(
            "{}.{secret} To retry before that, after you have corrected the credentials or unlocked the account: {retry}",
            self.reason
        )
    }
}

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Moment {
    pub(super) since_start: Duration,
    pub(super) wall: Timestamp,
}

pub(super) struct Rejection {
    pub(super) moment: Moment,
    pub(super) reason: String,
    /// Minimum pause before the next attempt; jitter is added.
    pub(super) min_pause: Duration,
}

impl Moment {
    pub(in super::super) fn wait(self, pause: Duration, why: String) -> LoginBlocked {
        LoginBlocked {
            until: self.since_start.saturating_add(pause),
            reason: why,
            lockout_until: None,
            is_of_rejection: false,
        }
    }

    /// Returns a pause that begins now and protects the account from lockout.
    pub(super) fn lockout(self, pause: Duration, reason: String) -> LoginBlocked {
        let until = self.wall.saturating_add(pause).unwrap_or(Timestamp::MAX);
        let until = until.round(Unit::Second).unwrap_or(until);
        LoginBlocked { lockout_until: Some(until), ..self.wait(pause, reason) }
    }
}

/// Result of [`LoginSchedule::better`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Better {
    /// The offer has no better credential.
    Nothing,
    /// The same login is offered with another origin. Only the origin has to be updated.
    Same(Arc<Credential>),
    /// This better credential may be tried.
    Try(Arc<Credential>),
    /// A better credential is offered, but must wait until this time.
    NotBefore(Duration),
}

impl LoginSchedule {
    pub(super) fn new(policy: LoginPolicy) -> Self {
        Self { policy, credentials: Vec::new() }
    }

    /// Returns the order in which to try credentials while there is no session: first `in_use`, the last accepted
    /// credential, then the other offered credentials. If `in_use` is not offered any more, it comes last.
    pub(super) fn candidates(offered: &[Arc<Credential>], in_use: Option<&Arc<Credential>>) -> Vec<Arc<Credential>> {
        let Some(in_use) = in_use else { return offered.to_vec() };
        let same = offered.iter().find(|credential| credential.login == in_use.login);
        let others = offered.iter().filter(|credential| credential.login != in_use.login).cloned();
        match same {
            Some(same) => std::iter::once(Arc::clone(same)).chain(others).collect(),
            None => others.chain(std::iter::once(Arc::clone(in_use))).collect(),
        }
    }

    /// Returns true if this candidate may be tried. An offered candidate may always be tried. A last accepted
    /// credential that is not offered any more may be tried only after the server rejected every offered credential:
    /// while offered credentials only wait, an old password would most likely be rejected and lengthen all waits.
    pub(in super::super) fn may_be_tried(&self, candidate: &Credential, offered: &[Arc<Credential>]) -> bool {
        offered.iter().any(|credential| credential.login == candidate.login)
            || offered.iter().all(|credential| self.was_rejected(credential))
    }

    /// Finds a credential that takes precedence over `in_use`, the credential of the session. Forgets credentials that
    /// are neither offered nor in use: a session may last for years, and old credentials would accumulate.
    pub(super) fn better(&mut self, offered: &[Arc<Credential>], in_use: &Arc<Credential>, at: Duration) -> Better {
        self.forget_others(offered, Some(in_use));
        let mut soonest: Option<Duration> = None;
        for credential in offered {
            if credential.login == in_use.login {
                return if credential == in_use { Better::Nothing } else { Better::Same(Arc::clone(credential)) };
            }
            let is_in_use_withdrawn = !offered.iter().any(|other| other.login == in_use.login);
            match self.schedule(credential, Interface::Primary).and_then(|schedule| schedule.block.as_ref()) {
                // Skips a rejected credential if the credential in use is offered further down the list.
                Some(_) if !is_in_use_withdrawn && self.was_rejected(credential) => {}
                Some(blocked) if blocked.until > at => {
                    soonest = Some(soonest.map_or(blocked.until, |before| before.min(blocked.until)));
                }
                _ => return Better::Try(Arc::clone(credential)),
            }
        }
        soonest.map_or(Better::Nothing, Better::NotBefore)
    }

    /// Returns the reason why this login must wait; `None` if the login may be tried.
    pub(super) fn blocked(&self, credential: &Credential, interface: Interface, at: Duration) -> Option<LoginBlocked> {
        self.schedule(credential, interface)?.block.clone().filter(|blocked| blocked.until > at)
    }

    /// Returns the pause that protects an account from lockout and ends last, if any.
    pub(super) fn lockout(&self, at: Duration) -> Option<LoginPause> {
        let schedules = self.credentials.iter().flat_map(|history| history.schedules.values());
        let blocks = schedules.filter_map(|schedule| schedule.block.as_ref()).filter(|blocked| blocked.until > at);
        let pauses = blocks.filter_map(|blocked| {
            let LoginBlocked { lockout_until, reason, is_of_rejection, .. } = blocked;
            Some(LoginPause { until: (*lockout_until)?, cause: reason.clone(), is_of_rejection: *is_of_rejection })
        });
        pauses.max_by_key(|pause| pause.until)
    }

    /// Returns true if the server rejected the last attempt with this login at the primary interface.
    pub(in super::super) fn was_rejected(&self, credential: &Credential) -> bool {
        self.schedule(credential, Interface::Primary).is_some_and(|schedule| !schedule.rejections.is_none())
    }

    pub(super) fn planned_login(&self, credential: &Credential, server: &str) -> PlannedLogin {
        let history = self.find(credential);
        PlannedLogin {
            policy: self.policy,
            server: server.to_owned(),
            user: account(&credential.login).to_owned(),
            version: credential.origin.secret_version(),
            was_accepted: history.is_some_and(|history| history.was_accepted),
            is_new: !history.is_some_and(|history| history.was_tried),
        }
    }

    /// Records an accepted login and resets its backoff at this interface.
    pub(super) fn accepted(&mut self, credential: &Arc<Credential>, interface: Interface) {
        self.record_attempt(credential, true);
        self.release(credential, interface);
    }

    /// Records a rejection. Returns the pause before the next attempt.
    pub(super) fn rejected(
        &mut self,
        credential: &Arc<Credential>,
        interface: Interface,
        rejection: Rejection,
        random: f64,
    ) -> Duration {
        let Rejection { moment, reason: why, min_pause: least } = rejection;
        let backoff = retry::rejected(self.policy.window);
        self.record_attempt(credential, false);
        let schedule = self.schedule_mut(credential, interface);
        let pause = schedule.rejections.next_pause(&backoff, random).max(backoff.jittered(least, random));
        schedule.block = Some(LoginBlocked { is_of_rejection: true, ..moment.lockout(pause, why) });
        pause
    }

    /// Records a login whose outcome is unknown.
    pub(super) fn unanswered(&mut self, credential: &Arc<Credential>) {
        self.record_attempt(credential, false);
    }

    fn record_attempt(&mut self, credential: &Arc<Credential>, was_accepted: bool) {
        let history = self.history_of(credential);
        history.was_accepted = was_accepted;
        history.was_tried = true;
    }

    /// Records that the login must wait, because of the login throttle or of a transient failure.
    pub(in super::super) fn block(
        &mut self,
        credential: &Arc<Credential>,
        interface: Interface,
        blocked: LoginBlocked,
    ) {
        self.schedule_mut(credential, interface).block = Some(blocked);
    }

    /// Returns the logins that wait so that the account is not locked.
    pub(super) fn paused(&self, at: Duration) -> Vec<PausedLogin> {
        let mut paused = Vec::new();
        for history in &self.credentials {
            for (interface, schedule) in &history.schedules {
                let blocked =
                    schedule.block.as_ref().filter(|blocked| blocked.until > at && blocked.lockout_until.is_some());
                let Some(LoginBlocked { is_of_rejection, .. }) = blocked else { continue };
                let credential = Arc::clone(&history.credential);
                paused.push(PausedLogin { credential, interface: *interface, is_of_rejection: *is_of_rejection });
            }
        }
        paused
    }

    pub(super) fn release(&mut self, credential: &Arc<Credential>, interface: Interface) {
        *self.schedule_mut(credential, interface) = Schedule::default();
    }

    pub(super) fn forget_others(&mut self, offered: &[Arc<Credential>], in_use: Option<&Arc<Credential>>) {
        self.credentials.retain(|history| {
            offered.iter().chain(in_use).any(|credential| credential.login == history.credential.login)
        });
    }

    fn find(&self, credential: &Credential) -> Option<&CredentialHistory> {
        self.credentials.iter().find(|history| history.credential.login == credential.login)
    }

    fn schedule(&self, credential: &Credential, interface: Interface) -> Option<&Schedule> {
        self.find(credential)?.schedules.get(&interface)
    }

    fn schedule_mut(&mut self, credential: &Arc<Credential>, interface: Interface) -> &mut Schedule {
        self.history_of(credential).schedules.entry(interface).or_default()
    }

    fn history_of(&mut self, credential: &Arc<Credential>) -> &mut CredentialHistory {
        let found = self.credentials.iter().position(|history| history.credential.login == credential.login);
        let at = found.unwrap_or_else(|| {
            let (credential, schedules) = (Arc::clone(credential), BTreeMap::new());
            self.credentials.push(CredentialHistory { credential, was_accepted: false, was_tried: false, schedules });
            self.credentials.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "the place was found, or made just above")]
        &mut self.credentials[at]
    }
}

/// Returns the account for which the server counts rejections.
pub(in super::super) fn account(login: &Login) -> &str {
    match login {
        Login::Password { user, .. } => user,
        Login::Certificate { certificate, .. } => certificate,
        Login::SharedSession { url, .. } => url,
    }
}

/// Returns the origin of a credential for messages. `in_config` is the place in the cloud config.
pub(in super::super) fn place(origin: &Origin, in_config: impl FnOnce() -> String) -> String {
    match origin {
        Origin::Config => in_config(),
        Origin::Source { location, .. } => format!("the {location}"),
    }
}

#[cfg(test)]
mod tests;
