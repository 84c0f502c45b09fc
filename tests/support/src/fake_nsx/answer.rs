//! Handles one request: limits, credentials, permission, holds, then the work of the manager.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::access::{Credential, SOURCE, Sessions, credential};
use super::behaviour::{DeadSession, HierarchicalPatch};
use super::call::{Call, Method, Target};
use super::refusal::Refusal;
use super::trouble::Trouble;
use super::world::World;
use super::writes::Caller;
use crate::api_proxy::Side;
use crate::fake_server::Handler;
use crate::fake_server::barriers::Holds;
use crate::fake_server::http::{Delivery, Reply, Request};
use crate::fake_vcenter::LoginOutcome;

pub(super) struct Shared {
    world: Mutex<World>,
    pub(super) holds: Holds,
}

impl Shared {
    pub(super) fn new(world: World) -> Arc<Self> {
        Arc::new(Self { world: Mutex::new(world), holds: Holds::default() })
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener: that of the manager, or that of the token service.
pub(super) struct Endpoint {
    pub(super) shared: Arc<Shared>,
    pub(super) is_token_service: bool,
}

impl Handler for Endpoint {
    async fn answer(self: Arc<Self>, request: Request) -> Reply {
        if self.is_token_service {
            return exchange(&self.shared, &request).await;
        }
        RequestContext::begin(&self.shared, request).run().await
    }
}

/// A request to the manager, from its arrival to its answer.
struct RequestContext {
    shared: Arc<Shared>,
    request: Request,
    call: Call,
    credential: Credential,
    /// The client whose rate limit applies.
    client: String,
    /// The manager of the cluster that received the request.
    manager: usize,
    number: u64,
    login: Option<usize>,
    /// Whether the password was accepted, once it was checked.
    verdict: Option<bool>,
    busy: Duration,
}

/// Counts a request as in flight until it is answered or dropped.
struct InFlight(Arc<Shared>, String);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.world().limits.leave(&self.1);
    }
}

impl RequestContext {
    fn begin(shared: &Arc<Shared>, request: Request) -> Self {
        let begun = Instant::now();
        let mut world = shared.world();
        let call = Call::parse(&request, &world.prefix);
        let credential = credential(&call, &request);
        let user = world.access.name_of(&credential);
        let manager = world.managers.next();
        let number = world.records.begin(&user, &call.operation, manager, &request);
        let login = match &credential {
            Credential::Password { is_remote, user, password } => {
                let is_right = world.access.matches_account(*is_remote, user, password);
                Some(world.logins.push(user.clone(), true, is_right))
            }
            _ => None,
        };
        let client = if matches!(call.target, Target::SessionCreate) { SOURCE.to_owned() } else { user };
        drop(world);
        let shared = Arc::clone(shared);
        Self { shared, request, call, credential, client, manager, number, login, verdict: None, busy: begun.elapsed() }
    }

    async fn run(mut self) -> Reply {
        let (delay, early, entered) = {
            let mut world = self.shared.world();
            let mut early = world.rules.take(&self.call.operation, |trouble| !trouble.is_late());
            if matches!(early, Some(Trouble::EndSession)) {
                early = None;
                world.access.destroy_session(&self.credential);
            }
            let entered = world.limits.enter(&self.client);
            (world.delay, early, entered.and_then(|()| world.managers.serve(self.manager)))
        };
        let in_flight = InFlight(Arc::clone(&self.shared), self.client.clone());
        if matches!(early, Some(Trouble::Hang)) {
            return self.hang(in_flight).await;
        }
        if let Some(delay) = delay.filter(|_| entered.is_ok()) {
            tokio::time::sleep(delay).await;
            self.shared.world().records.counts.delayed += delay;
        }
        let is_early = early.is_some();
        let reply = match (early, entered) {
            (Some(Trouble::Instead(substitute)), _) => substitute.0,
            (Some(_), _) => Reply::close(),
            (None, Err(refusal)) => refusal.reply(),
            (None, Ok(())) => {
                let reply = self.work().await.unwrap_or_else(|refusal| refusal.reply());
                let late = self.shared.world().rules.take(&self.call.operation, Trouble::is_late);
                deliver(reply, late).await
            }
        };
        drop(in_flight);
        self.end(&reply, is_early);
        reply
    }

    /// Never answers. A lost request never reaches the manager, so it is not counted as in flight.
    async fn hang(&self, in_flight: InFlight) -> Reply {
        drop(in_flight);
        if let Some(login) = self.login {
            self.shared.world().logins.end(login, LoginOutcome::Unanswered);
        }
        std::future::pending().await
    }

    /// Makes the answer of the manager itself.
    async fn work(&mut self) -> Result<Reply, Refusal> {
        let begun = Instant::now();
        let entry = self.enter();
        self.busy += begun.elapsed();
        let caller = match entry? {
            Admission::Answered(reply) => return Ok(reply),
            Admission::Caller(caller) => caller,
        };
        let is_write = self.call.is_write();
        let held_write = if is_write { self.shared.holds.claim(&self.call.operation) } else { None };
        if let Some(held_write) = &held_write {
            held_write.pass(Side::Request).await;
        }
        let begun = Instant::now();
        let (served, delay) = {
            let mut world = self.shared.world();
            let served = world.serve(&self.call, &caller, &self.credential);
            (served, world.synchronous_delay(&self.call))
        };
        self.busy += begun.elapsed();
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        if let Some(held_write) = &held_write {
            held_write.pass(Side::Answer).await;
        }
        served
    }

    /// Checks credentials and permission.
    fn enter(&mut self) -> Result<Admission, Refusal> {
        let mut world = self.shared.world();
        let World { access, behaviour, serves_sessions, .. } = &mut *world;
        let is_creation = matches!(self.call.target, Target::SessionCreate);
        if matches!(self.call.target, Target::Unknown) || (is_creation && *serves_sessions == Sessions::NotFound) {
            return Ok(Admission::Answered(unknown_path()));
        }
        if is_creation && (*serves_sessions == Sessions::NotAllowed || self.call.method != Method::Post) {
            return Err(Refusal::method_not_allowed());
        }
        let media_type = self.request.header("content-type").unwrap_or_default();
        let is_form = media_type.starts_with("application/x-www-form-urlencoded");
        if is_creation && !self.request.body.is_empty() && !is_form {
            return Err(Refusal::new(415, None, "Content-Type must be application/x-www-form-urlencoded"));
        }
        let judged = access.authenticate(&self.credential, self.manager, behaviour);
        self.verdict = self.login.map(|_| judged.is_ok());
        if judged.is_err() && matches!(self.credential, Credential::Session { .. }) {
            match behaviour.dead_session {
                DeadSession::LoginPage => return Ok(Admission::Answered(Trouble::portal().0)),
                DeadSession::LoginRedirect => return Ok(Admission::Answered(Trouble::login_redirect().0)),
                DeadSession::Rejected | DeadSession::BadToken | DeadSession::Unauthenticated => {}
            }
        }
        let identity = judged?;
        if is_creation {
            return Ok(Admission::Answered(access.create_session(identity, self.manager, behaviour)));
        }
        access.authorize(&identity.user, &self.call)?;
        if matches!(self.call.target, Target::Infra) {
            match behaviour.hierarchical_patch {
                HierarchicalPatch::Served => {}
                HierarchicalPatch::Forbidden => return Err(Refusal::no_permission()),
                HierarchicalPatch::NotFound => return Ok(Admission::Answered(unknown_path())),
                HierarchicalPatch::NotAllowed => return Err(Refusal::method_not_allowed()),
            }
        }
        let overrides = self.request.header("x-allow-overwrite") == Some("true");
        let (user, is_principal) = (identity.user, identity.is_principal);
        Ok(Admission::Caller(Caller { user, is_principal, overrides, request: self.number }))
    }

    fn end(&self, reply: &Reply, is_early: bool) {
        let mut world = self.shared.world();
        let is_sent = reply.delivery != Delivery::Close;
        world.records.end(self.number, is_sent.then_some(reply.status), self.busy);
        if is_sent {
            world.records.counts.bytes_sent += reply.body.len() as u64;
        }
        let outcome = match (self.verdict, reply.status) {
            _ if matches!(reply.delivery, Delivery::Close | Delivery::CutAfter(_)) => LoginOutcome::Unanswered,
            (Some(true), _) => LoginOutcome::Accepted,
            (Some(false), _) => LoginOutcome::Rejected,
            (None, 401 | 403) if is_early => LoginOutcome::Rejected,
            (None, 404 | 405 | 415 | 429 | 503) => LoginOutcome::TurnedAway,
            (None, _) => LoginOutcome::Unanswered,
        };
        if let Some(login) = self.login {
            world.logins.end(login, outcome);
        }
    }
}

fn unknown_path() -> Reply {
    Reply::new(404, "text/html", "<html><body><h1>404 Not Found</h1></body></html>".to_owned())
}

/// The result of authentication and authorization.
enum Admission {
    Answered(Reply),
    Caller(Caller),
}

async fn deliver(mut reply: Reply, late: Option<Trouble>) -> Reply {
    match late {
        Some(Trouble::Cut(count)) => reply.delivery = Delivery::CutAfter(count),
        Some(Trouble::Slow(pause)) => reply.delivery = Delivery::Slow(pause),
        Some(Trouble::Late(pause)) => tokio::time::sleep(pause).await,
        Some(Trouble::Lose) => reply.delivery = Delivery::Close,
        Some(Trouble::Afterwards(substitute)) => return substitute.0,
        Some(Trouble::Rewrite(rewrite)) => reply.body = rewrite(&reply.body),
        _ => {}
    }
    reply
}

async fn exchange(shared: &Arc<Shared>, request: &Request) -> Reply {
    let operation = "token authorize";
    let (number, early) = {
        let mut world = shared.world();
        let number = world.records.begin(SOURCE, operation, 0, request);
        (number, world.rules.take(operation, |trouble| !trouble.is_late()))
    };
    let reply = match early {
        Some(Trouble::Instead(substitute)) => substitute.0,
        Some(Trouble::Hang) => std::future::pending().await,
        Some(_) => Reply::close(),
        None if request.method != "POST" || request.path != super::TOKEN_PATH => unknown_path(),
        None => {
            let (reply, late) = {
                let mut world = shared.world();
                let World { access, behaviour, rules, .. } = &mut *world;
                (access.exchange(request, behaviour), rules.take(operation, Trouble::is_late))
            };
            deliver(reply, late).await
        }
    };
    let is_sent = reply.delivery != Delivery::Close;
    shared.world().records.end(number, is_sent.then_some(reply.status), Duration::ZERO);
    reply
}
