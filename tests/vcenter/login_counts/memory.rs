//! A vCenter in memory with the parts that sessions need. It counts logins, with a clock that may be paused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ccm::clients::http::{self, Endpoint, FailedRequest, Failure, Request, Response, Transport};
use secrecy::ExposeSecret as _;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Duration of an answer.
const LATENCY: Duration = Duration::from_millis(50);
/// Duration of a login.
const LOGIN: Duration = Duration::from_millis(500);

/// Interface of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    Soap,
    Rest,
}

/// A login that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Login {
    pub at: Instant,
    pub interface: Interface,
    pub is_accepted: bool,
}

/// Kind of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections are refused.
    Refused,
    /// No call is answered, including earlier ones.
    Silent,
    /// Every call is answered with 503.
    Busy,
    /// Every call is answered with an HTML page.
    Html,
    /// Answers are truncated.
    Cut,
}

#[derive(Default)]
struct State {
    outage: Option<Outage>,
    probes: u64,
    probes_under_way: usize,
    password: String,
    api_version: String,
    takes_loans: bool,
    loses_logins: bool,
    garbles_logins: bool,
    login_fault: Option<&'static str>,
    refuses_views: bool,
    manager_token: String,
    tickets: BTreeSet<String>,
    next_id: u32,
    pending_waits: u32,
    /// Views and collectors, each with its SOAP session.
    objects: BTreeMap<String, String>,
    soap: BTreeSet<String>,
    rest: BTreeSet<String>,
    logins: Vec<Login>,
    /// Calls other than logins that were answered with an error.
    failed: Vec<String>,
}

/// The vCenter. Clones are the same server.
#[derive(Clone)]
pub struct MemoryVcenter {
    state: Arc<Mutex<State>>,
    sessions_changed: watch::Sender<u32>,
}

impl MemoryVcenter {
    /// Creates a vCenter with the account `ccm@vsphere.local`.
    pub fn new(password: &str, api_version: &str) -> Self {
        let state = State { password: password.to_owned(), api_version: api_version.to_owned(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), sessions_changed: watch::Sender::default() }
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    /// Requires another password for logins from now on. Sessions stay valid.
    pub fn set_password(&self, password: &str) {
        self.with(|state| state.password = password.to_owned());
    }

    /// Sets whether REST accepts a SOAP session.
    pub fn set_takes_loans(&self, takes: bool) {
        self.with(|state| state.takes_loans = takes);
    }

    /// Sets whether answers to logins are lost after the login.
    pub fn set_loses_logins(&self, loses: bool) {
        self.with(|state| state.loses_logins = loses);
    }

    /// Sets whether answers to logins are invalid SOAP, although the session was created.
    pub fn set_garbles_logins(&self, garbles: bool) {
        self.with(|state| state.garbles_logins = garbles);
    }

    /// Rejects logins with this fault before the password is checked.
    pub fn set_login_fault(&self, fault: Option<&'static str>) {
        self.with(|state| state.login_fault = fault);
    }

    /// Sets whether new subscriptions are rejected. Existing subscriptions stay.
    pub fn set_refuses_views(&self, refuses: bool) {
        self.with(|state| state.refuses_views = refuses);
    }

    /// Begins an outage of this kind, or ends it.
    pub fn set_outage(&self, outage: Option<Outage>) {
        self.with(|state| state.outage = outage);
        // Pending waits are cut.
        self.sessions_changed.send_modify(|count| *count += 1);
    }

    /// Returns the number of probes, which need no session.
    pub fn probes(&self) -> u64 {
        self.with(|state| state.probes)
    }

    /// Returns the number of unanswered probes.
    pub fn probes_under_way(&self) -> usize {
        self.with(|state| state.probes_under_way)
    }

    fn outage(&self) -> Option<Outage> {
        self.with(|state| state.outage)
    }

    /// Applies the outage to an answer.
    async fn spoil(&self, request: &Request, answer: Result<Response, Failure>) -> Result<Response, Failure> {
        let (endpoint, operation) = ("vc.test:443".to_owned(), request.operation);
        match self.outage() {
            None => answer,
            Some(Outage::Refused) => {
                let request = FailedRequest { endpoint, operation };
                Err(Failure::Final(http::Error::Connect(request, "connection refused".to_owned())))
            }
            Some(Outage::Silent) => std::future::pending().await,
            Some(Outage::Busy) => Ok(plain(503, "busy")),
            Some(Outage::Html) => Ok(plain(200, "<html><body>Please wait</body></html>")),
            Some(Outage::Cut) => {
                let mut response = answer?;
                response.body.truncate(response.body.len() / 2);
                Ok(response)
            }
        }
    }

    /// Sets the token for which the session manager beside the vCenter issues tickets.
    pub fn set_manager_token(&self, token: &str) {
        self.with(|state| state.manager_token = token.to_owned());
    }

    /// Ends all SOAP sessions.
    pub fn kill_soap_sessions(&self) {
        self.with(|state| state.soap.clear());
        self.sessions_changed.send_modify(|count| *count += 1);
    }

    /// Returns every login that arrived.
    pub fn logins(&self) -> Vec<Login> {
        self.with(|state| state.logins.clone())
    }

    /// Returns the number of accepted logins of one kind.
    pub fn accepted(&self, interface: Interface) -> usize {
        self.logins().iter().filter(|login| login.is_accepted && login.interface == interface).count()
    }

    /// Returns the numbers of open sessions over SOAP and over REST.
    pub fn sessions(&self) -> (usize, usize) {
        self.with(|state| (state.soap.len(), state.rest.len()))
    }

    /// Returns the number of pending waits for changes. Waits whose client has gone count until they end.
    pub fn pending_waits(&self) -> u32 {
        self.with(|state| state.pending_waits)
    }

    /// Returns the numbers of views and property collectors on open sessions.
    pub fn subscriptions(&self) -> (usize, usize) {
        self.with(|state| {
            let open = state.objects.iter().filter(|(_, session)| state.soap.contains(*session));
            let (views, collectors): (Vec<_>, Vec<_>) = open.partition(|(id, _)| id.starts_with("view"));
            (views.len(), collectors.len())
        })
    }

    fn create(&self, operation: &str, kind: &str, id: &str, session: Option<String>) -> Response {
        let id = self.with(|state| {
            state.next_id += 1;
            let id = format!("{id}-{}", state.next_id);
            state.objects.insert(id.clone(), session.unwrap_or_default());
            id
        });
        answer(operation, &format!("<returnval type=\"{kind}\">{id}</returnval>"))
    }

    /// Returns the rejected calls other than logins.
    pub fn failed(&self) -> Vec<String> {
        self.with(|state| state.failed.clone())
    }

    /// Returns a client of this server, with its own connections.
    pub fn client(&self) -> http::Client {
        let mut settings = http::Settings::new("vc.test", 443, http::TlsSettings::default(), "test");
        settings.transport = Some(Arc::new(self.clone()));
        http::Client::new(settings).unwrap()
    }

    fn log_in(&self, interface: Interface, is_accepted: bool) -> Option<String> {
        self.with(|state| {
            state.logins.push(Login { at: Instant::now(), interface, is_accepted });
            state.next_id += 1;
            let id = format!("{interface:?}-{}", state.next_id);
            match interface {
                _ if !is_accepted => return None,
                Interface::Soap => state.soap.insert(id.clone()),
                Interface::Rest => state.rest.insert(id.clone()),
            };
            Some(id)
        })
    }

    async fn soap(&self, request: &Request) -> Result<Response, Failure> {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let cookie = header(request, "Cookie").and_then(|text| text.split_once('=').map(|(_, id)| id.to_owned()));
        let is_logged_in = || cookie.as_ref().is_some_and(|id| self.with(|state| state.soap.contains(id)));
        match request.operation {
            "vimServiceVersions" => Ok(plain(404, "")),
            "RetrieveServiceContent" => {
                let version = self.with(|state| state.api_version.clone());
                Ok(answer(
                    request.operation,
                    &format!(
                        "<returnval><rootFolder type=\"Folder\">group-d1</rootFolder><about><fullName>vCenter \
                         {version}</fullName><apiType>VirtualCenter</apiType><apiVersion>{version}</apiVersion>\
                         <instanceUuid>u-1</instanceUuid></about></returnval>"
                    ),
                ))
            }
            "Login" => {
                let _ = timeout(LOGIN, std::future::pending::<()>()).await;
                if let Some(kind) = self.with(|state| state.login_fault) {
                    return Ok(fault(kind));
                }
                let is_right = body.contains(&format!("<password>{}</password>", self.with(|s| s.password.clone())));
                let made = self.log_in(Interface::Soap, is_right);
                if self.with(|state| state.loses_logins) {
                    let request = FailedRequest { endpoint: "vc.test:443".to_owned(), operation: "Login" };
                    return Err(Failure::Final(http::Error::Broken(request, "reset".to_owned())));
                }
                let Some(id) = made else { return Ok(fault("InvalidLogin")) };
                let mut response = answer("Login", &format!("<returnval><key>{id}</key></returnval>"));
                if self.with(|state| state.garbles_logins) {
                    response = plain(200, "<html>please wait</html>");
                }
                let cookie = format!("vmware_soap_session={id}; Path=/; HttpOnly");
                response.headers.insert("set-cookie", cookie.parse().unwrap());
                Ok(response)
            }
            "CloneSession" => {
                let ticket = body.split("<cloneTicket>").nth(1).and_then(|rest| rest.split('<').next());
                let is_right = self.with(|state| ticket.is_some_and(|ticket| state.tickets.remove(ticket)));
                let Some(id) = self.log_in(Interface::Soap, is_right) else { return Ok(fault("InvalidLogin")) };
                let mut response = answer("CloneSession", &format!("<returnval><key>{id}</key></returnval>"));
                let cookie = format!("vmware_soap_session={id}; Path=/; HttpOnly");
                response.headers.insert("set-cookie", cookie.parse().unwrap());
                Ok(response)
            }
            "RetrievePropertiesEx" => {
                let session = "<objects><obj type=\"SessionManager\">SessionManager</obj><propSet><name>currentSession\
                               </name><val xsi:type=\"UserSession\"><key>k</key></val></propSet></objects>";
                Ok(answer(
                    request.operation,
                    &format!("<returnval>{}</returnval>", if is_logged_in() { session } else { "" }),
                ))
            }
            operation if !is_logged_in() => {
                self.with(|state| state.failed.push(operation.to_owned()));
                Ok(fault("NotAuthenticated"))
            }
            "WaitForUpdatesEx" if !body.contains("<version>1</version>") => {
                Ok(answer(request.operation, "<returnval><version>1</version></returnval>"))
            }
            "WaitForUpdatesEx" => {
                let mut changes = self.sessions_changed.subscribe();
                let seconds = body.split("<maxWaitSeconds>").nth(1).and_then(|rest| rest.split('<').next());
                let wait = Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(0));
                let over = changes.wait_for(|_| !is_logged_in() || self.outage().is_some());
                self.with(|state| state.pending_waits += 1);
                let over = timeout(wait, over).await;
                self.with(|state| state.pending_waits -= 1);
                if over.is_ok() {
                    return Ok(fault("NotAuthenticated"));
                }
                Ok(answer(request.operation, ""))
            }
            "Logout" => {
                self.with(|state| cookie.as_ref().map(|id| state.soap.remove(id)));
                self.sessions_changed.send_modify(|count| *count += 1);
                Ok(answer(request.operation, ""))
            }
            "CreateListView" if self.with(|state| state.refuses_views) => Ok(fault("NoPermission")),
            "CreateListView" => Ok(self.create(request.operation, "ListView", "view", cookie)),
            "CreatePropertyCollector" => Ok(self.create(request.operation, "PropertyCollector", "collector", cookie)),
            "DestroyView" | "DestroyPropertyCollector" => {
                let this = body.split("<_this").nth(1).and_then(|rest| rest.split(['>', '<']).nth(1));
                self.with(|state| this.map(|id| state.objects.remove(id)));
                Ok(answer(request.operation, ""))
            }
            "CreateFilter" => Ok(answer(request.operation, "<returnval type=\"PropertyFilter\">f-1</returnval>")),
            _ => Ok(answer(request.operation, "")),
        }
    }

    fn manager(&self, request: &Request) -> Response {
        self.with(|state| {
            if header(request, "Authorization") != Some(format!("Bearer {}", state.manager_token)) {
                return plain(401, "");
            }
            state.next_id += 1;
            let ticket = format!("ticket-{}", state.next_id);
            let response = plain(200, &format!("{{\"token\":\"{ticket}\"}}"));
            state.tickets.insert(ticket);
            response
        })
    }

    async fn rest(&self, request: &Request) -> Response {
        let id = header(request, "vmware-api-session-id");
        match request.operation {
            "session.create" => {
                let _ = timeout(LOGIN, std::future::pending::<()>()).await;
                let pair = format!("ccm@vsphere.local:{}", self.with(|state| state.password.clone()));
                let is_right = header(request, "Authorization") == Some(format!("Basic {}", STANDARD.encode(pair)));
                match self.log_in(Interface::Rest, is_right) {
                    Some(id) => plain(200, &format!("{{\"value\":\"{id}\"}}")),
                    None => plain(401, "{}"),
                }
            }
            "session.delete" => {
                self.with(|state| id.map(|id| state.rest.remove(&id)));
                plain(200, "")
            }
            operation => {
                let is_known = self.with(|state| {
                    id.is_some_and(|id| state.rest.contains(&id) || state.takes_loans && state.soap.contains(&id))
                });
                if is_known {
                    return plain(200, "{\"value\":[]}");
                }
                self.with(|state| state.failed.push(operation.to_owned()));
                plain(401, "{}")
            }
        }
    }
}

/// An unanswered probe. It ends when this is dropped.
struct Asking<'a>(&'a MemoryVcenter);

impl<'a> Asking<'a> {
    fn new(server: &'a MemoryVcenter) -> Self {
        server.with(|state| (state.probes, state.probes_under_way) = (state.probes + 1, state.probes_under_way + 1));
        Self(server)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.with(|state| state.probes_under_way -= 1);
    }
}

#[async_trait]
impl Transport for MemoryVcenter {
    async fn exchange(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Failure> {
        let _ = timeout(LATENCY, std::future::pending::<()>()).await;
        if endpoint.host() == "manager.test" {
            return Ok(self.manager(&request));
        }
        let _asking = (request.operation == "RetrieveServiceContent").then(|| Asking::new(self));
        if self.outage().is_some_and(|outage| outage != Outage::Cut) {
            return self.spoil(&request, Ok(plain(200, ""))).await;
        }
        let is_soap = request.path.starts_with("/sdk");
        let answer = if is_soap { self.soap(&request).await } else { Ok(self.rest(&request).await) };
        self.spoil(&request, answer).await
    }
}

fn header(request: &Request, name: &str) -> Option<String> {
    let plain = request.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let secret = request.secret_headers.iter().find(|(known, _)| *known == name);
    plain.or_else(|| secret.map(|(_, value)| value.expose_secret().to_owned()))
}

fn plain(status: u16, body: &str) -> Response {
    Response { status, headers: ::http::HeaderMap::new(), body: body.as_bytes().to_vec() }
}

fn envelope(content: &str) -> String {
    format!(
        "<soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><soapenv:Body>{content}</soapenv:Body>\
         </soapenv:Envelope>"
    )
}

fn answer(operation: &str, content: &str) -> Response {
    let name = format!("{operation}Response");
    plain(200, &envelope(&format!("<{name} xmlns=\"urn:vim25\">{content}</{name}>")))
}

fn fault(kind: &str) -> Response {
    plain(
        500,
        &envelope(&format!(
            "<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring/><detail><{kind}Fault \
             xmlns=\"urn:vim25\" xsi:type=\"{kind}\"/></detail></soapenv:Fault>"
        )),
    )
}
