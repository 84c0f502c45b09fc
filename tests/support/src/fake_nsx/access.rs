//! Authentication and permissions: passwords, sessions, tokens, client certificates, locks and roles (rule S1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::behaviour::{Behaviour, DeadSession};
use super::call::{Call, Target, decode_form};
use super::refusal::Refusal;
use crate::fake_server::http::{Reply, Request};

/// Number of consecutive rejected logins that lock an account.
const REJECTIONS: u32 = 5;

/// Duration of a lock. Each further login attempt restarts it.
const LOCK: Duration = Duration::from_secs(900);

/// Idle timeout of a session.
const IDLE: Duration = Duration::from_secs(1800);

/// Source address of unauthenticated requests.
pub(super) const SOURCE: &str = "127.0.0.1";

/// Answer of managers to `/api/session/create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// A session.
    Served,
    /// 404.
    NotFound,
    /// 405.
    NotAllowed,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Credential {
    Session { id: String, token: Option<String> },
    Password { is_remote: bool, user: String, password: String },
    Token(String),
    Certificate(Arc<[u8]>),
    Nothing,
}

/// An authenticated user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) user: String,
    pub(super) is_principal: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) password: String,
    /// Whether it is a vIDM user.
    pub(super) is_remote: bool,
}

#[derive(Clone, Debug, Default)]
struct Role {
    is_auditor: bool,
    /// Denied collections, operations or paths, and whether only writes are denied.
    denials: Vec<(String, bool)>,
}

#[derive(Clone, Debug)]
struct Session {
    identity: Identity,
    /// The manager that created the session. Other managers reject it.
    manager: usize,
    token: String,
    used: Instant,
}

#[derive(Clone, Debug, Default)]
struct Failures {
    in_a_row: u32,
    locked_until: Option<Instant>,
}

#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) accounts: BTreeMap<String, Account>,
    /// Principals by certificate as DER.
    pub(super) principals: BTreeMap<Vec<u8>, String>,
    /// Users by refresh token.
    pub(super) refresh_tokens: BTreeMap<String, String>,
    pub(super) token_life: Duration,
    pub(super) locks: bool,
    pub(super) most_sessions: usize,
    roles: BTreeMap<String, Role>,
    sessions: BTreeMap<String, Session>,
    /// User and expiry by access token.
    tokens: BTreeMap<String, (String, Instant)>,
    failures: BTreeMap<String, Failures>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            accounts: BTreeMap::new(),
            principals: BTreeMap::new(),
            refresh_tokens: BTreeMap::new(),
            token_life: Duration::from_secs(1799),
            locks: true,
            most_sessions: 0,
            roles: BTreeMap::new(),
            sessions: BTreeMap::new(),
            tokens: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

/// Returns the credential that decides about a request.
pub(super) fn credential(call: &Call, request: &Request) -> Credential {
    let password = |(is_remote, user, password)| Credential::Password { is_remote, user, password };
    let authorization = request.header("authorization").filter(|value| !value.is_empty()).map(authorization);
    let certificate = request.client.clone().map(Credential::Certificate);
    if matches!(call.target, Target::SessionCreate) {
        let form = decode_form(&request.body);
        let field = |name: &str| form.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
        let named = field("j_username").map(|user| (false, user, field("j_password").unwrap_or_default()));
        return match (authorization, named) {
            (Some(header @ (true, ..)), _) => password(header),
            (_, Some(named)) => password(named),
            _ => certificate.unwrap_or(Credential::Nothing),
        };
    }
    let cookies = request.header("cookie").unwrap_or_default().split(';');
    if let Some(id) = cookies.filter_map(|cookie| cookie.trim().strip_prefix("JSESSIONID=")).next() {
        let token = request.header("x-xsrf-token").map(str::to_owned);
        return Credential::Session { id: id.to_owned(), token };
    }
    let token = request.header("csp-auth-token").map(|token| Credential::Token(token.to_owned()));
    authorization.map(password).or(token).or(certificate).unwrap_or(Credential::Nothing)
}

/// Returns whether the scheme is `Remote`, and the user and password. A header that cannot be decoded matches no
/// account.
fn authorization(value: &str) -> (bool, String, String) {
    let (scheme, text) = value.split_once(' ').unwrap_or((value, ""));
    let decoded = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let (user, password) = decoded.split_once(':').unwrap_or_default();
    match scheme {
        "Basic" | "Remote" => (scheme == "Remote", user.to_owned(), password.to_owned()),
        _ => (false, String::new(), String::new()),
    }
}

impl Access {
    /// Returns the user that a credential names, without verification.
    pub(super) fn name_of(&self, credential: &Credential) -> String {
        let name = match credential {
            Credential::Session { id, .. } => self.sessions.get(id).map(|session| &session.identity.user),
            Credential::Password { user, .. } => Some(user),
            Credential::Token(token) => self.tokens.get(token).map(|(user, _)| user),
            Credential::Certificate(certificate) => self.principals.get(&**certificate),
            Credential::Nothing => None,
        };
        name.map_or_else(|| SOURCE.to_owned(), Clone::clone)
    }

    pub(super) fn matches_account(&self, is_remote: bool, user: &str, password: &str) -> bool {
        let account = self.accounts.get(user);
        account.is_some_and(|account| account.password == password && account.is_remote == is_remote)
    }

    /// Verifies a credential at this manager. A password counts as a login attempt, and may lock its account.
    pub(super) fn authenticate(
        &mut self,
        credential: &Credential,
        manager: usize,
        behaviour: &Behaviour,
    ) -> Result<Identity, Refusal> {
        let rejected = || Refusal::rejected(behaviour.rejects_with_401);
        let user = |user: &str| Identity { user: user.to_owned(), is_principal: false };
        match credential {
            Credential::Session { id, token } => self.resume((id, token.as_deref()), manager, behaviour),
            Credential::Password { is_remote, user: name, password } => {
                if self.log_in(*is_remote, name, password) {
                    Ok(user(name))
                } else {
                    Err(rejected())
                }
            }
            Credential::Token(token) => match self.tokens.get(token) {
                Some((name, end)) if *end > Instant::now() => Ok(user(name)),
                _ if behaviour.dead_session == DeadSession::Rejected => Err(Refusal::rejected(false)),
                _ => Err(Refusal::unauthenticated("The token is invalid or has expired.")),
            },
            Credential::Certificate(certificate) => match self.principals.get(&**certificate) {
                Some(name) => Ok(Identity { user: name.clone(), is_principal: true }),
                None if behaviour.distrusts_with_99 => {
                    Err(Refusal::new(500, 99, "The client certificate is not trusted."))
                }
                None => Err(rejected()),
            },
            Credential::Nothing => Err(Refusal::unauthenticated("The request has no credentials.")),
        }
    }

    fn resume(
        &mut self,
        (id, token): (&str, Option<&str>),
        manager: usize,
        behaviour: &Behaviour,
    ) -> Result<Identity, Refusal> {
        let now = Instant::now();
        self.sessions.retain(|_, session| now - session.used < IDLE);
        let session = self.sessions.get_mut(id).filter(|session| session.manager == manager);
        match (session, behaviour.dead_session) {
            (Some(session), _) if token == Some(&session.token) => {
                session.used = now;
                Ok(session.identity.clone())
            }
            (_, DeadSession::Rejected) => Err(Refusal::rejected(false)),
            (Some(_), _) | (None, DeadSession::BadToken) => Err(Refusal::invalid_token()),
            (None, _) => Err(Refusal::unauthenticated("The session has expired.")),
        }
    }

    fn log_in(&mut self, is_remote: bool, user: &str, password: &str) -> bool {
        let (matches_account, now) = (self.matches_account(is_remote, user, password), Instant::now());
        let failures = self.failures.entry(user.to_owned()).or_default();
        if self.locks && failures.locked_until.is_some_and(|until| now < until) {
            failures.locked_until = Some(now + LOCK);
            return false;
        }
        if failures.locked_until.is_some_and(|until| until <= now) || matches_account {
            *failures = Failures::default();
        }
        if !matches_account {
            failures.in_a_row += 1;
            if failures.in_a_row >= REJECTIONS {
                failures.locked_until = Some(now + LOCK);
            }
        }
        matches_account
    }

    /// Returns true if an account is currently locked.
    pub(super) fn is_locked(&self, user: &str) -> bool {
        let until = self.failures.get(user).and_then(|failures| failures.locked_until);
        self.locks && until.is_some_and(|until| Instant::now() < until)
    }

    /// Opens a session at this manager. The answer contains its cookie and token.
    pub(super) fn create_session(&mut self, identity: Identity, manager: usize, behaviour: &Behaviour) -> Reply {
        let [id, token] = [(), ()].map(|()| uuid::Uuid::new_v4().to_string());
        let id = id.replace('-', "").to_uppercase();
        self.sessions.insert(id.clone(), Session { identity, manager, token: token.clone(), used: Instant::now() });
        self.most_sessions = self.most_sessions.max(self.sessions.len());
        Reply::new(if behaviour.creates_with_201 { 201 } else { 200 }, "application/json", String::new())
            .header("Set-Cookie", format!("JSESSIONID={id}; Path=/; Secure; HttpOnly; SameSite=Lax"))
            .header("X-XSRF-TOKEN", token)
    }

    pub(super) fn destroy_session(&mut self, credential: &Credential) -> Reply {
        if let Credential::Session { id, .. } = credential {
            self.sessions.remove(id);
        }
        Reply::new(200, "application/json", String::new())
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Ends the sessions of this manager, as its restart does.
    pub(super) fn end_sessions_at(&mut self, manager: usize) {
        self.sessions.retain(|_, session| session.manager != manager);
    }

    pub(super) fn end_sessions(&mut self, user: Option<&str>) {
        self.sessions.retain(|_, session| user.is_some_and(|user| session.identity.user != user));
    }

    pub(super) fn end_tokens(&mut self) {
        self.tokens.clear();
    }

    pub(super) fn exchange(&mut self, request: &Request, behaviour: &Behaviour) -> Reply {
        let form = decode_form(&request.body);
        let refresh = form.iter().find(|(name, _)| name == "refresh_token").map(|(_, value)| value.as_str());
        let Some((refresh, user)) = refresh.and_then(|refresh| self.refresh_tokens.get_key_value(refresh)) else {
            let body = json!({"statusCode": 400, "message": "invalid_grant: Invalid refresh token"});
            return Reply::new(400, "application/json", body.to_string());
        };
        let access = uuid::Uuid::new_v4().to_string();
        let body = json!({
            "scope": "ALL_PERMISSIONS openid",
            "id_token": Value::Null,
            "token_type": "bearer",
            "expires_in": match (self.token_life.as_secs(), behaviour.expires_in_is_text) {
                (seconds, true) => json!(seconds.to_string()),
                (seconds, false) => json!(seconds),
            },
            "access_token": access,
            "refresh_token": refresh,
        });
        let end = Instant::now() + self.token_life;
        self.tokens.insert(access, (user.clone(), end));
        Reply::new(200, "application/json", body.to_string())
    }

    pub(super) fn set_auditor(&mut self, user: &str, is_auditor: bool) {
        self.roles.entry(user.to_owned()).or_default().is_auditor = is_auditor;
    }

    pub(super) fn deny(&mut self, user: &str, what: &str, only_writes: bool) {
        self.roles.entry(user.to_owned()).or_default().denials.push((what.to_owned(), only_writes));
    }

    pub(super) fn allow(&mut self, user: &str, what: &str) {
        self.roles.entry(user.to_owned()).or_default().denials.retain(|(denied, _)| denied != what);
    }

    /// Returns an error if a user may not make this call.
    pub(super) fn authorize(&self, user: &str, call: &Call) -> Result<(), Refusal> {
        self.authorize_operation(user, &call.operation, call.is_write(), &call.target_path())
    }

    /// Returns an error if a user may not do this operation, such as `PATCH lb-pools`, at this path.
    pub(super) fn authorize_operation(
        &self,
        user: &str,
        operation: &str,
        is_write: bool,
        path: &str,
    ) -> Result<(), Refusal> {
        let Some(role) = self.roles.get(user) else { return Ok(()) };
        let noun = operation.split_once(' ').map_or("", |(_, noun)| noun);
        let is_denied = |(what, only_writes): &(String, bool)| {
            let is_below =
                path.strip_prefix(what.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            (is_write || !only_writes) && (what == noun || is_below || what == operation)
        };
        if (role.is_auditor && is_write) || role.denials.iter().any(is_denied) {
            return Err(Refusal::no_permission());
        }
        Ok(())
    }
}
