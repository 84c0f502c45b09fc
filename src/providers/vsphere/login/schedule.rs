//! Pure: which of the offered credentials is tried next, and when. Moments are what passed since the process began.

use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, Unit};

use crate::base::backoff::Failures;
use crate::cloud::login_ledger::{Attempt, LoginPolicy};
use crate::providers::vsphere::login::credentials::{Credential, Login, Origin};
use crate::providers::vsphere::login::retry::REJECTED;

/// Where a credential is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::providers::vsphere) enum Interface {
    /// SOAP of vCenter; the one of NSX.
    Primary,
    /// REST of vCenter.
    Rest,
}

/// What is known of the logins that are, or were, offered.
pub(in crate::providers::vsphere) struct LoginSchedule {
    policy: LoginPolicy,
    standings: Vec<Standing>,
}

/// What became of one login so far.
struct Standing {
    credential: Arc<Credential>,
    is_known: bool,
    was_tried: bool,
    soap: Schedule,
    rest: Schedule,
}

/// When a login may be tried again at one interface, and why not before.
#[derive(Default)]
struct Schedule {
    rejections: Failures,
    held: Option<LoginBlocked>,
}

/// A login that must wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::providers::vsphere) struct LoginBlocked {
    pub(in crate::providers::vsphere) until: Duration,
    pub(in crate::providers::vsphere) why: String,
    /// By the clock on the wall, where it waits so that the account is not locked. Computed once, so that the message
    /// stays the same.
    lockout_until: Option<Timestamp>,
    /// Whether it is the pause that follows a rejection of this process's own, and not what the ledger asks for.
    is_of_rejection: bool,
}

/// A login that waits so that the account is not locked.
pub(in crate::providers::vsphere) struct PausedLogin {
    pub(in crate::providers::vsphere) credential: Arc<Credential>,
    pub(in crate::providers::vsphere) interface: Interface,
    /// Whether it waits for a rejection of this process's own, and not for what the ledger asks for.
    pub(in crate::providers::vsphere) is_of_rejection: bool,
}

impl LoginBlocked {
    /// That the login to `place` waits, in words.
    pub(in crate::providers::vsphere) fn what(&self, place: &str) -> String {
        match self.lockout_until {
            Some(until) => format!("login to {place} is paused until {until}, so that the account is not locked"),
            None => format!("login to {place} waits"),
        }
    }

    /// Why, and how the pause can be ended: `is_of_secret` says that another version of a Secret may be tried before, and
    /// `reset` is the command that makes all replicas forget the failed logins.
    pub(in crate::providers::vsphere) fn why(
        &self,
        policy: LoginPolicy,
        is_of_secret: bool,
        reset: Option<&str>,
    ) -> String {
        if self.lockout_until.is_none() {
            return self.why.clone();
        }
        // A process that counts alone has one attempt, whatever the version.
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
            self.why
        )
    }
}

/// One moment: since the process began, and by the clock on the wall.
#[derive(Clone, Copy, Debug)]
pub(in crate::providers::vsphere) struct Moment {
    pub(in crate::providers::vsphere) since_start: Duration,
    pub(in crate::providers::vsphere) wall: Timestamp,
}

/// The server's refusal of a login.
pub(in crate::providers::vsphere) struct Rejection {
    /// When it came.
    pub(in crate::providers::vsphere) moment: Moment,
    /// In the server's words.
    pub(in crate::providers::vsphere) why: String,
    /// The least pause before the next try; jitter is added to it.
    pub(in crate::providers::vsphere) least: Duration,
}

impl Moment {
    /// A wait that begins now.
    pub(in crate::providers::vsphere) fn wait(self, pause: Duration, why: String) -> LoginBlocked {
        LoginBlocked { until: self.since_start.saturating_add(pause), why, lockout_until: None, is_of_rejection: false }
    }

    /// A pause that begins now, so that the account is not locked.
    pub(in crate::providers::vsphere) fn lockout(self, pause: Duration, why: String) -> LoginBlocked {
        let until = self.wall.saturating_add(pause).unwrap_or(Timestamp::MAX);
        let until = until.round(Unit::Second).unwrap_or(until);
        LoginBlocked { lockout_until: Some(until), ..self.wait(pause, why) }
    }
}

/// Whether there is something better to log in with than what is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::providers::vsphere) enum Better {
    /// No, as long as the offer stays as it is.
    Nothing,
    /// The same login under a new name: nothing to do but to take the name.
    Same(Arc<Credential>),
    /// This.
    Try(Arc<Credential>),
    /// Not before then.
    NotBefore(Duration),
}

impl LoginSchedule {
    /// Nothing is known. The policy is that of the server's product.
    pub(in crate::providers::vsphere) fn new(policy: LoginPolicy) -> Self {
        Self { policy, standings: Vec::new() }
    }

    /// In which order to log in when there is no session: what worked, if it is still offered; then what is offered;
    /// what worked and is offered no longer comes last.
    pub(in crate::providers::vsphere) fn candidates(
        offered: &[Arc<Credential>],
        in_use: Option<&Arc<Credential>>,
    ) -> Vec<Arc<Credential>> {
        let Some(in_use) = in_use else { return offered.to_vec() };
        let same = offered.iter().find(|credential| credential.login == in_use.login);
        let others = offered.iter().filter(|credential| credential.login != in_use.login).cloned();
        match same {
            Some(same) => std::iter::once(Arc::clone(same)).chain(others).collect(),
            None => others.chain(std::iter::once(Arc::clone(in_use))).collect(),
        }
    }

    /// Whether this candidate is to be tried: what is offered always; what worked and is offered no longer once the
    /// server refused all that is. While that merely has to wait, an old password would be one more that is refused, for
    /// which all wait even longer.
    pub(in crate::providers::vsphere) fn may_be_tried(
        &self,
        candidate: &Credential,
        offered: &[Arc<Credential>],
    ) -> bool {
        offered.iter().any(|credential| credential.login == candidate.login)
            || offered.iter().all(|credential| self.was_rejected(credential))
    }

    /// What to log in with beside the session that is made with `in_use`. Forgets what is offered no longer: a session
    /// may last for years, and its credentials change every hour.
    pub(in crate::providers::vsphere) fn better(
        &mut self,
        offered: &[Arc<Credential>],
        in_use: &Arc<Credential>,
        at: Duration,
    ) -> Better {
        self.forget_others(offered, Some(in_use));
        let mut soonest: Option<Duration> = None;
        for credential in offered {
            if credential.login == in_use.login {
                return if credential == in_use { Better::Nothing } else { Better::Same(Arc::clone(credential)) };
            }
            let standing = self.find(credential);
            let is_last_resort = !offered.iter().any(|other| other.login == in_use.login);
            match standing.and_then(|standing| standing.soap.held.as_ref()) {
                // Something further down the offer works.
                Some(_) if !is_last_resort && standing.is_some_and(|standing| !standing.soap.rejections.is_none()) => {}
                Some(held) if held.until > at => {
                    soonest = Some(soonest.map_or(held.until, |before| before.min(held.until)));
                }
                _ => return Better::Try(Arc::clone(credential)),
            }
        }
        soonest.map_or(Better::Nothing, Better::NotBefore)
    }

    /// Why this login must wait, if it must.
    pub(in crate::providers::vsphere) fn held(
        &self,
        credential: &Credential,
        interface: Interface,
        at: Duration,
    ) -> Option<LoginBlocked> {
        let standing = self.find(credential)?;
        let schedule = match interface {
            Interface::Primary => &standing.soap,
            Interface::Rest => &standing.rest,
        };
        schedule.held.clone().filter(|held| held.until > at)
    }

    /// Whether the server refused this login when it was tried over SOAP last.
    pub(in crate::providers::vsphere) fn was_rejected(&self, credential: &Credential) -> bool {
        self.find(credential).is_some_and(|standing| !standing.soap.rejections.is_none())
    }

    /// What the ledger is told of a login with this credential.
    pub(in crate::providers::vsphere) fn attempt(&self, credential: &Credential, server: &str) -> Attempt {
        let standing = self.find(credential);
        Attempt {
            policy: self.policy,
            server: server.to_owned(),
            user: account(&credential.login).to_owned(),
            version: credential.origin.secret_version(),
            is_known: standing.is_some_and(|standing| standing.is_known),
            is_new: !standing.is_some_and(|standing| standing.was_tried),
        }
    }

    /// The server took it: at the next login it is not made to wait for what others were refused.
    pub(in crate::providers::vsphere) fn accepted(&mut self, credential: &Arc<Credential>, interface: Interface) {
        let standing = self.standing(credential);
        standing.is_known = true;
        standing.was_tried = true;
        *standing.schedule(interface) = Schedule::default();
    }

    /// The server refused it; how long it is not tried again.
    pub(in crate::providers::vsphere) fn rejected(
        &mut self,
        credential: &Arc<Credential>,
        interface: Interface,
        rejection: Rejection,
        random: f64,
    ) -> Duration {
        let Rejection { moment, why, least } = rejection;
        let standing = self.standing(credential);
        standing.is_known = false;
        standing.was_tried = true;
        let schedule = standing.schedule(interface);
        let pause = schedule.rejections.next_pause(&REJECTED, random).max(REJECTED.jittered(least, random));
        schedule.held = Some(LoginBlocked { is_of_rejection: true, ..moment.lockout(pause, why) });
        pause
    }

    /// Nobody knows what became of the login.
    pub(in crate::providers::vsphere) fn unanswered(&mut self, credential: &Arc<Credential>) {
        let standing = self.standing(credential);
        standing.is_known = false;
        standing.was_tried = true;
    }

    /// The ledger makes it wait.
    pub(in crate::providers::vsphere) fn hold(
        &mut self,
        credential: &Arc<Credential>,
        interface: Interface,
        held: LoginBlocked,
    ) {
        self.standing(credential).schedule(interface).held = Some(held);
    }

    /// The logins that wait so that the account is not locked.
    pub(in crate::providers::vsphere) fn paused(&self, at: Duration) -> Vec<PausedLogin> {
        let of_one = |standing: &Standing| {
            let credential = Arc::clone(&standing.credential);
            [(Interface::Primary, &standing.soap), (Interface::Rest, &standing.rest)].map(|(interface, schedule)| {
                let held = schedule.held.as_ref().filter(|held| held.until > at && held.lockout_until.is_some())?;
                let credential = Arc::clone(&credential);
                Some(PausedLogin { credential, interface, is_of_rejection: held.is_of_rejection })
            })
        };
        self.standings.iter().flat_map(of_one).flatten().collect()
    }

    /// It need not wait any more, and its pauses begin with the shortest again.
    pub(in crate::providers::vsphere) fn release(&mut self, credential: &Arc<Credential>, interface: Interface) {
        *self.standing(credential).schedule(interface) = Schedule::default();
    }

    /// Forgets what is neither offered nor in use.
    pub(in crate::providers::vsphere) fn forget_others(
        &mut self,
        offered: &[Arc<Credential>],
        in_use: Option<&Arc<Credential>>,
    ) {
        self.standings.retain(|standing| {
            offered.iter().chain(in_use).any(|credential| credential.login == standing.credential.login)
        });
    }

    fn find(&self, credential: &Credential) -> Option<&Standing> {
        self.standings.iter().find(|standing| standing.credential.login == credential.login)
    }

    fn standing(&mut self, credential: &Arc<Credential>) -> &mut Standing {
        let found = self.standings.iter().position(|standing| standing.credential.login == credential.login);
        let at = found.unwrap_or_else(|| {
            let (soap, rest) = (Schedule::default(), Schedule::default());
            let credential = Arc::clone(credential);
            self.standings.push(Standing { credential, is_known: false, was_tried: false, soap, rest });
            self.standings.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "the place was found, or made just above")]
        &mut self.standings[at]
    }
}

impl Standing {
    fn schedule(&mut self, interface: Interface) -> &mut Schedule {
        match interface {
            Interface::Primary => &mut self.soap,
            Interface::Rest => &mut self.rest,
        }
    }
}

/// What the server counts rejections by.
pub(in crate::providers::vsphere) fn account(login: &Login) -> &str {
    match login {
        Login::Password { user, .. } => user,
        Login::Certificate { certificate, .. } => certificate,
        Login::SharedSession { url, .. } => url,
    }
}

/// Where a credential is from, for messages; `in_config` is the place in the cloud config.
pub(in crate::providers::vsphere) fn place(origin: &Origin, in_config: impl FnOnce() -> String) -> String {
    match origin {
        Origin::Config => in_config(),
        Origin::Directory { path } => format!("the directory {}", path.display()),
        Origin::Secret { namespace, name, .. } => format!("the Secret {namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests;
