//! Answers the product's clients from a recording.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ccm::clients::http::{
    Endpoint, Error, FailedRequest, Failure, Request, Response, Settings, TlsSettings, Transport,
};
use ccm::clients::nsx::Scheme;
use ccm::providers::vsphere::login::credentials::Login;
use secrecy::SecretString;

use super::exchange::{Answer, request};
use super::file::{ExchangeEntry, Outcomes, Product, Recording, ServerEntry};
use super::recorder::GIVEN_UP;
use super::tokens::Tokens;
use super::value::REMOVED;
use crate::report::ServerReport;
use crate::servers::{NsxProof, NsxServer, VcenterServer};
use crate::{RunSettings, nsx, vcenter};

/// The exchanges with one server, as a transport that replaces the server. Each exchange answers one request: the first
/// that is equal.
pub struct Replay {
    server: ServerEntry,
    state: Mutex<State>,
}

struct State {
    /// Exchanges that have not answered a request yet.
    left: Vec<ExchangeEntry>,
    unanswered: Vec<String>,
}

impl Replay {
    /// Returns the exchanges with the server of this title.
    ///
    /// # Errors
    /// The recording has no such server.
    pub fn of(recording: &Recording, title: &str) -> Result<Arc<Self>, String> {
        let server = recording.servers.iter().find(|server| server.title == title);
        let server = server.ok_or_else(|| format!("the recording has no server {title:?}"))?.clone();
        let left = recording.exchanges.iter().filter(|exchange| exchange.server == title).cloned().collect();
        Ok(Arc::new(Self { server, state: Mutex::new(State { left, unanswered: Vec::new() }) }))
    }

    /// Returns settings for a client of this server.
    #[must_use]
    pub fn settings(self: &Arc<Self>) -> Settings {
        let settings = Settings::new("recording.invalid", 443, TlsSettings::default(), "replay");
        Settings { transport: Some(Arc::clone(self) as Arc<dyn Transport>), ..settings }
    }

    /// Returns the requests that are not in the recording.
    #[must_use]
    pub fn unanswered(&self) -> Vec<String> {
        self.state().unanswered.clone()
    }

    /// Returns the numbers and operations of the exchanges that answered no request.
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        self.state().left.iter().map(|one| format!("{} {}", one.number, one.operation)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, sent: &Request) -> Option<ExchangeEntry> {
        let wanted = request(&mut Tokens::of_replay(), sent);
        let mut state = self.state();
        let found = state.left.iter().position(|one| one.request == wanted);
        match found {
            Some(at) => Some(state.left.remove(at)),
            None => {
                state.unanswered.push(format!("{} {} {}", sent.operation, wanted.method, wanted.path));
                None
            }
        }
    }
}

#[async_trait]
impl Transport for Replay {
    async fn exchange(&self, _endpoint: &Endpoint, sent: Request) -> Result<Response, Failure> {
        let failed = || FailedRequest { endpoint: "the recording".to_owned(), operation: sent.operation };
        let broken = |why: &str| Failure::Final(Error::Broken(failed(), why.to_owned()));
        let Some(found) = self.take(&sent) else { return Err(broken("there is no such request in it")) };
        tokio::time::sleep(Duration::from_millis(found.tenths.saturating_mul(100))).await;
        match found.answer {
            Some(answer) => response(&answer).ok_or_else(|| broken("the answer was too large for it")),
            None => Err(Failure::Final(failure(failed(), found.failed.as_deref().unwrap_or_default()))),
        }
    }
}

fn response(answer: &Answer) -> Option<Response> {
    let mut response = Response { status: answer.status, headers: Default::default(), body: answer.body.bytes()? };
    for name in super::words::HEADERS {
        if let Some(text) = answer.headers.get(name).and_then(|text| text.parse().ok()) {
            response.headers.insert(name, text);
        }
    }
    Some(response)
}

fn failure(request: FailedRequest, reason: &str) -> Error {
    let why = || "as recorded".to_owned();
    match reason {
        "Resolve" => Error::Resolve(request, why()),
        "Connect" => Error::Connect(request, why()),
        "Proxy" => Error::Proxy(request, why(), why()),
        "Tls" => Error::Tls(request, why()),
        "Timeout" | GIVEN_UP => Error::Timeout(request, Duration::ZERO),
        "TooLarge" => Error::TooLarge(request, 0),
        _ => Error::Broken(request, why()),
    }
}

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The report of the checks.
    pub report: ServerReport,
    /// Differences between the replay and the recorded run. Empty if the clients read the same results.
    pub differences: Vec<String>,
}

/// Runs the checks of the server of this title against the recording. Waits last as long as recorded.
///
/// # Errors
/// The recording has no such server.
pub async fn replay(recording: &Recording, title: &str) -> Result<Replayed, String> {
    let replay = Replay::of(recording, title)?;
    // The replay only reads. Requests that a run with `--write` sent in addition are reported as not sent.
    let settings = RunSettings::default();
    let report = match replay.server.product {
        Product::Vcenter => vcenter::check(&vcenter_of(&replay), &settings).await,
        Product::Nsx => nsx::check(&nsx_of(&replay), &settings).await,
    };
    let mut differences = differences(&report, recording.outcomes_of(title));
    differences.extend(replay.unanswered().iter().map(|one| format!("not recorded: {one}")));
    differences.extend(replay.unused().iter().map(|one| format!("not sent: {one}")));
    Ok(Replayed { report, differences })
}

/// Returns the differences between the findings and the recorded outcomes.
fn differences(report: &ServerReport, recorded: Option<&Outcomes>) -> Vec<String> {
    let Some(recorded) = recorded else { return vec!["the recording does not say what was found".to_owned()] };
    let mut differences = Vec::new();
    for finding in &report.findings {
        let (id, now) = (finding.belief.id, finding.outcome.word());
        let before = recorded.outcomes.get(id).map(String::as_str);
        if before.is_some_and(|before| before != now) {
            differences.push(format!("{id}: {now}, recorded: {}", before.unwrap_or_default()));
        }
    }
    if report.ended_early != recorded.ended_early {
        differences.push(format!("ended early: {:?}, recorded: {:?}", report.ended_early, recorded.ended_early));
    }
    differences
}

fn vcenter_of(replay: &Arc<Replay>) -> VcenterServer {
    let login = match replay.server.login.as_str() {
        "password" => Ok(Login::Password { user: REMOVED.to_owned(), password: SecretString::from(REMOVED) }),
        other => Err(not_replayed(other)),
    };
    VcenterServer { title: replay.server.title.clone(), http: replay.settings(), login }
}

fn nsx_of(replay: &Arc<Replay>) -> NsxServer {
    let ServerEntry { title, login, prefix, gateway, lb_service, .. } = replay.server.clone();
    let password = |scheme| Ok(NsxProof::Password(scheme, REMOVED.to_owned(), SecretString::from(REMOVED)));
    let login = match login.as_str() {
        "password" => password(Scheme::Basic),
        "remote" => password(Scheme::Remote),
        "certificate" => Ok(NsxProof::Certificate),
        other => Err(not_replayed(other)),
    };
    let (address_pool, tcp_profile) = (None, None);
    NsxServer { title, http: replay.settings(), prefix, login, gateway, lb_service, address_pool, tcp_profile }
}

/// Returns the reason why such a login cannot be replayed: it needs a key or another server, and no recording has
/// those.
fn not_replayed(login: &str) -> String {
    format!("a login of the kind {login:?} is not replayed")
}
