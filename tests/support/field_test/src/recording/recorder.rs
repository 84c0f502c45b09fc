//! Writes a recording while the checks run, exchange by exchange.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ccm::clients::http::{Client, Endpoint, Error, Failure, Request, Response, Settings, Transport};
use ccm::clients::nsx::Scheme;
use ccm::providers::vsphere::login::credentials::Login;
use tokio::time::Instant;

use super::exchange::{answer, request};
use super::file::{End, Entry, ExchangeEntry, Manifest, Outcomes, Product, ServerEntry};
use super::tokens::Tokens;
use super::value;
use crate::report::Report;
use crate::servers::{NsxProof, Server, Servers};

/// Upper limits of recorded exchanges and bytes. The limit of calls for each server is far below.
const MOST_EXCHANGES: usize = 2_000;
const MOST_BYTES: usize = 16 << 20;

/// Failure text of an exchange whose caller stopped waiting for the answer.
pub(super) const GIVEN_UP: &str = "GivenUp";

/// A file that is being written. It has no `Debug`, because it contains the values that the tokens replace.
pub struct Recorder {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    tokens: Tokens,
    exchanges: usize,
    bytes: usize,
    /// Reason why nothing more is recorded.
    cut: Option<String>,
}

impl Recorder {
    /// Creates the file. Only its owner may read it.
    ///
    /// # Errors
    /// It exists already, or cannot be written.
    pub fn create(path: &Path) -> Result<Arc<Self>, String> {
        let failed = |error: std::io::Error| format!("the recording {} cannot be written: {error}", path.display());
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        let state = State { file, tokens: Tokens::default(), exchanges: 0, bytes: 0, cut: None };
        let recorder = Self { path: path.to_owned(), state: Mutex::new(state) };
        let mut state = recorder.state();
        state.write(&Entry::Manifest(Manifest::new()));
        let failure = state.cut.take();
        drop(state);
        failure.map_or_else(|| Ok(Arc::new(recorder)), |why| Err(format!("the recording {}: {why}", path.display())))
    }

    /// Records all exchanges with these servers.
    pub fn attach(self: &Arc<Self>, servers: &mut Servers) {
        for server in &mut servers.all {
            let entry = {
                let mut state = self.state();
                let entry = described(server, &mut state.tokens);
                state.write(&Entry::Server(entry.clone()));
                entry
            };
            let settings = match server {
                Server::Vcenter(vcenter) => &mut vcenter.http,
                Server::Nsx(nsx) => &mut nsx.http,
            };
            // The checks themselves report settings that cannot be used.
            if let Ok(client) = Client::new(settings.clone()) {
                let transport = Recorded { client, recorder: Arc::clone(self), server: entry.title };
                *settings = Settings { transport: Some(Arc::new(transport)), ..settings.clone() };
            }
        }
    }

    /// Writes the end of the file.
    ///
    /// # Errors
    /// The reason why the recording is incomplete. The part that was written before remains.
    pub fn finish(&self, report: &Report) -> Result<String, String> {
        let mut state = self.state();
        let cut = state.cut.take();
        // Each recording gets an end, even if it was cut.
        state.bytes = 0;
        for server in &report.servers {
            let findings = server.findings.iter();
            let outcomes =
                findings.map(|finding| (finding.belief.id.to_owned(), finding.outcome.word().to_owned())).collect();
            let (server, ended_early) = (server.title.clone(), server.ended_early.clone());
            state.write(&Entry::Outcomes(Outcomes { server, outcomes, ended_early }));
        }
        let end = End { exchanges: state.exchanges, cut: cut.clone(), replaced: state.tokens.counts() };
        state.write(&Entry::End(end));
        let path = self.path.display();
        match cut.or(state.cut.take()) {
            None => Ok(format!("recorded in {path}: {} exchanges. Read it before you send it", state.exchanges)),
            Some(why) => Err(format!("the recording {path} is not complete: {why}")),
        }
    }

    fn enter(&self, server: &str, sent: &Request, began: Instant, got: Result<&Response, &'static str>) {
        let mut state = self.state();
        if state.cut.is_some() {
            return;
        }
        if state.exchanges == MOST_EXCHANGES {
            state.cut = Some(format!("more than {MOST_EXCHANGES} exchanges"));
            return;
        }
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let request = request(&mut state.tokens, sent);
        let answer = got.ok().map(|got| answer(&mut state.tokens, sent.operation, &sent.path, got));
        let entry = ExchangeEntry {
            number: state.exchanges + 1,
            server: server.to_owned(),
            operation: sent.operation.to_owned(),
            tenths: took.saturating_add(50) / 100,
            request,
            answer,
            failed: got.err().map(str::to_owned),
        };
        if state.write(&Entry::Exchange(Box::new(entry))) {
            state.exchanges += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write(&mut self, entry: &Entry) -> bool {
        if self.cut.is_some() {
            return false;
        }
        let text = entry.written();
        if self.bytes.saturating_add(text.len()) > MOST_BYTES {
            self.cut = Some(format!("more than {} MiB", MOST_BYTES >> 20));
            return false;
        }
        match self.file.write_all(text.as_bytes()) {
            Ok(()) => self.bytes += text.len(),
            Err(error) => self.cut = Some(format!("it cannot be written: {error}")),
        }
        self.cut.is_none()
    }
}

fn described(server: &Server, tokens: &mut Tokens) -> ServerEntry {
    let title = server.title().to_owned();
    match server {
        Server::Vcenter(vcenter) => ServerEntry {
            title,
            product: Product::Vcenter,
            login: match &vcenter.login {
                Ok(Login::Password { .. }) => "password",
                Ok(Login::Certificate { .. }) => "certificate",
                Ok(Login::SharedSession { .. }) => "session manager",
                Err(_) => "none",
            }
            .to_owned(),
            prefix: String::new(),
            gateway: None,
            lb_service: None,
        },
        Server::Nsx(nsx) => {
            let login = match &nsx.login {
                Ok(NsxProof::Password(Scheme::Basic, ..)) => "password",
                Ok(NsxProof::Password(Scheme::Remote, ..)) => "remote",
                Ok(NsxProof::Certificate) => "certificate",
                Ok(NsxProof::Token { .. }) => "token",
                Err(_) => "none",
            };
            ServerEntry {
                title,
                product: Product::Nsx,
                login: login.to_owned(),
                prefix: value::path(tokens, &nsx.prefix),
                gateway: nsx.gateway.as_deref().map(|path| value::path(tokens, path)),
                lb_service: nsx.lb_service.as_deref().map(|path| value::path(tokens, path)),
            }
        }
    }
}

/// The transport of a recorded client. It sends with a client of its own, and records.
struct Recorded {
    client: Client,
    recorder: Arc<Recorder>,
    server: String,
}

/// An exchange that is always recorded, even if its caller stops waiting for the answer.
struct Pending<'a> {
    recorded: &'a Recorded,
    sent: Request,
    began: Instant,
    is_entered: bool,
}

impl Pending<'_> {
    fn enter(&mut self, got: Result<&Response, &'static str>) {
        self.is_entered = true;
        self.recorded.recorder.enter(&self.recorded.server, &self.sent, self.began, got);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_entered {
            self.enter(Err(GIVEN_UP));
        }
    }
}

#[async_trait]
impl Transport for Recorded {
    async fn exchange(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Failure> {
        // This transport sends to one server only. A request for another server may contain credentials for that
        // server.
        if endpoint.authority() != self.client.endpoint() {
            return Err(Failure::Final(Error::NotPermitted(self.client.failed(request.operation))));
        }
        let mut pending = Pending { recorded: self, sent: request.clone(), began: Instant::now(), is_entered: false };
        let answer = self.client.send(request).await;
        pending.enter(answer.as_ref().map_err(ccm::clients::http::Error::reason));
        answer.map_err(Failure::Final)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ccm::clients::http::{self, Method};
    use tokio::time::Instant;

    use super::{MOST_BYTES, MOST_EXCHANGES, Recorder, Report};
    use crate::recording::file::Recording;

    #[test]
    fn a_recording_that_is_cut_says_so_and_has_its_end() {
        for (bytes, exchanges, why) in
            [(MOST_BYTES - 300, 0, "more than 16 MiB"), (0, MOST_EXCHANGES - 1, "more than 2000 exchanges")]
        {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("recording.json");
            let recorder = Recorder::create(&path).unwrap();
            {
                let mut state = recorder.state();
                (state.bytes, state.exchanges) = (bytes, exchanges);
            }
            let sent = http::Request::new(Method::GET, "/infra", "test", Duration::from_secs(1));
            for _ in 0..3 {
                recorder.enter("NSX", &sent, Instant::now(), Err("Timeout"));
            }
            let said = recorder.finish(&Report { servers: Vec::new() }).unwrap_err();
            assert!(said.ends_with(&format!("is not complete: {why}")), "{said}");
            let recording = Recording::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(recording.exchanges.len(), 1, "{why}");
            assert_eq!(recording.end.unwrap().cut.as_deref(), Some(why));
        }
    }
}
