//! Servers in memory that answer by a script, with a clock that may be paused. Also an NSX in memory with the parts
//! that logins need.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use async_trait::async_trait;
use ccm::clients::http::{self, Endpoint, Failure, Method, Request, Response, TlsSettings, Transport};
use ccm::clients::nsx::{Client, LogIn, Login, NoLogin, Pace, Timeouts};
use secrecy::ExposeSecret as _;
use tokio::sync::watch;
use tokio::time::Instant;

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub method: Method,
    pub path: String,
    secrets: Vec<(&'static str, String)>,
    pub body: String,
}

impl Arrival {
    /// Returns a header that is sent as a secret.
    pub fn secret(&self, name: &str) -> Option<&str> {
        self.secrets.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.path.split_once('?')?.1;
        query
            .split('&')
            .filter_map(|part| part.split_once('='))
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }
}

/// An answer.
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A server in memory.
pub struct Memory {
    latency: Duration,
    /// While this is false, requests arrive and wait.
    pub answers: watch::Sender<bool>,
    arrivals: Mutex<Vec<Arrival>>,
    script: Box<dyn Fn(&Arrival) -> Reply + Send + Sync>,
}

#[async_trait]
impl Transport for Memory {
    async fn exchange(&self, _: &Endpoint, request: Request) -> Result<Response, Failure> {
        let secrets = request.secret_headers.iter().map(|(name, value)| (*name, value.expose_secret().to_owned()));
        let arrival = Arrival {
            at: Instant::now(),
            method: request.method.clone(),
            path: request.path.clone(),
            secrets: secrets.collect(),
            body: String::from_utf8_lossy(&request.body).into_owned(),
        };
        self.arrivals.lock().unwrap().push(arrival.clone());
        let _ = self.answers.subscribe().wait_for(|answers| *answers).await;
        tokio::time::sleep(self.latency).await;
        let Reply { status, headers: pairs, body } = (self.script)(&arrival);
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap());
        }
        Ok(Response { status, headers, body })
    }
}

impl Memory {
    pub fn new(latency: Duration, script: impl Fn(&Arrival) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        let answers = watch::Sender::new(true);
        Arc::new(Self { latency, answers, arrivals: Mutex::default(), script: Box::new(script) })
    }

    pub fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }

    pub fn http(self: &Arc<Self>) -> http::Client {
        let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
        let mut settings = http::Settings::new("nsx.test", 443, tls, "test");
        settings.transport = Some(Arc::clone(self) as Arc<dyn Transport>);
        http::Client::new(settings).unwrap()
    }

    /// Returns a client that logs in with `log_in`.
    pub fn client(self: &Arc<Self>, log_in: Arc<dyn LogIn>) -> Client {
        Client::new(self.http(), "", Arc::new(Pace::new(80)), log_in, Timeouts::default())
    }
}

/// Logs in with the certificate once it is open, so that only the test makes requests.
pub struct Door {
    pub open: watch::Sender<bool>,
    pub logins: watch::Sender<u32>,
}

impl Door {
    pub fn new(is_open: bool) -> Arc<Self> {
        Arc::new(Self { open: watch::Sender::new(is_open), logins: watch::Sender::default() })
    }
}

#[async_trait]
impl LogIn for Door {
    async fn log_in(&self, client: &Client, _: Option<&Login>) -> Result<(), NoLogin> {
        self.logins.send_modify(|count| *count += 1);
        let _ = self.open.subscribe().wait_for(|is_open| *is_open).await;
        client.adopt(Login::with_certificate());
        Ok(())
    }

    fn rejected(&self, _: &Login) {}
}

/// The credentials of a request or of a login.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub at: Instant,
    pub is_accepted: bool,
}

struct State {
    authorization: String,
    form: String,
    has_sessions: bool,
    next: u32,
    sessions: Vec<String>,
    attempts: Vec<Attempt>,
}

/// An NSX with the account `admin`.
#[derive(Clone)]
pub struct MemoryNsx {
    state: Arc<Mutex<State>>,
    pub server: Arc<Memory>,
}

impl MemoryNsx {
    pub fn new(password: &str, has_sessions: bool, latency: Duration) -> Self {
        let (authorization, form) = presented(password);
        let (next, sessions, attempts) = (1, Vec::new(), Vec::new());
        let state = State { authorization, form, has_sessions, next, sessions, attempts };
        let state = Arc::new(Mutex::new(state));
        let serves = Arc::clone(&state);
        Self { state, server: Memory::new(latency, move |arrival| serves.lock().unwrap().serve(arrival)) }
    }

    /// Accepts only this password from now on. Sessions stay valid.
    pub fn set_password(&self, password: &str) {
        let mut state = self.state.lock().unwrap();
        (state.authorization, state.form) = presented(password);
    }

    /// Returns the checked logins so far, in the order of the answers.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.state.lock().unwrap().attempts.clone()
    }

    pub fn rejections(&self) -> usize {
        self.attempts().iter().filter(|attempt| !attempt.is_accepted).count()
    }

    pub fn sessions(&self) -> usize {
        self.state.lock().unwrap().sessions.len()
    }
}

fn presented(password: &str) -> (String, String) {
    let scheme = ccm::clients::nsx::Scheme::Basic;
    let authorization = scheme.authorization("admin", &password.into()).expose_secret().to_owned();
    (authorization, format!("j_username=admin&j_password={password}"))
}

impl State {
    fn serve(&mut self, arrival: &Arrival) -> Reply {
        let error = |status: u16, code: i64| Reply::new(status, format!("{{\"error_code\": {code}}}"));
        let cookie = arrival.secret("Cookie").map(str::to_owned);
        match arrival.path.as_str() {
            "/api/session/create" if !self.has_sessions => Reply::new(404, "<html>404</html>"),
            "/api/session/create" => {
                if !self.judge(arrival, arrival.body == self.form) {
                    return error(403, 403);
                }
                let id = format!("JSESSIONID={}", self.next);
                self.next += 1;
                self.sessions.push(id.clone());
                Reply::new(200, "").header("set-cookie", format!("{id}; Path=/; Secure")).header("x-xsrf-token", "x")
            }
            "/api/session/destroy" => {
                self.sessions.retain(|id| Some(id) != cookie.as_ref());
                Reply::new(200, "")
            }
            _ => {
                let is_known = match (arrival.secret("Authorization"), cookie) {
                    (Some(authorization), _) => {
                        let is_right = authorization == self.authorization;
                        if !self.judge(arrival, is_right) {
                            return error(403, 403);
                        }
                        true
                    }
                    (None, Some(cookie)) => self.sessions.contains(&cookie),
                    (None, None) => false,
                };
                if is_known { Reply::new(200, "{\"results\": []}") } else { error(401, 401) }
            }
        }
    }

    fn judge(&mut self, arrival: &Arrival, is_accepted: bool) -> bool {
        self.attempts.push(Attempt { at: arrival.at, is_accepted });
        is_accepted
    }
}
