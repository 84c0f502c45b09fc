//! A client of a fake NSX with the task that logs it in. The test controls credentials, leadership and the store of the
//! ledger.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ccm::clients::http::{self, CallObserver, ClientIdentity, Permit, ProxySettings, TlsSettings, TlsTrust};
use ccm::clients::nsx::{Client, Error, Listing, Object, Pace, Scheme, Timeouts};
use ccm::cloud::login_ledger::SecretVersion;
use ccm::kubernetes::login_ledger::Ledger;
use ccm::providers::vsphere::login::credentials::source::SourceLocation;
use ccm::providers::vsphere::login::credentials::{Credential, CredentialState, Login, Origin};
use ccm::providers::vsphere::nsx::{AnyLeader, LoginSource, NsxSession, Token};
use doubles::login_store::MemoryStore;
use secrecy::SecretString;
use serde_json::json;
use support::FakeNsx;
use support::connect_proxy::ConnectProxy;
use support::fake_nsx::{Model, NAME};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Limit of waits. It is much longer than required.
pub const SOON: Duration = Duration::from_secs(30);

/// The gateway of [`Model::small`].
pub const GATEWAY: &str = "/infra/tier-1s/t1";
/// Path of the gateway's routes.
pub const ROUTES: &str = "/infra/tier-1s/t1/static-routes";

/// Credentials of the client.
pub enum Proof {
    Password(Scheme),
    /// This refresh token.
    Token(&'static str),
    /// A certificate and its key, as PEM.
    Certificate(String, String),
}

/// Connection between the client and the manager.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Road {
    Direct,
    Proxy,
}

/// Results of all calls, each with its operation.
#[derive(Default)]
pub struct Outcomes(Mutex<Vec<(&'static str, &'static str)>>);

impl Outcomes {
    /// Returns the results of this operation.
    pub fn of(&self, operation: &str) -> Vec<&'static str> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|(name, _)| *name == operation).map(|(_, outcome)| *outcome).collect()
    }
}

impl CallObserver for Outcomes {
    fn observed(&self, _endpoint: &str, operation: &'static str, outcome: &'static str, _duration: Duration) {
        self.0.lock().unwrap().push((operation, outcome));
    }
}

/// A permit that a test can end.
pub struct Term(watch::Sender<bool>);

impl Term {
    /// Begins a term that lasts until [`Term::end`].
    pub fn begin() -> (Arc<Self>, Arc<dyn Permit>) {
        let term = Arc::new(Self(watch::Sender::new(true)));
        (Arc::clone(&term), term)
    }

    /// Ends the term.
    pub fn end(&self) {
        self.0.send_replace(false);
    }
}

#[async_trait]
impl Permit for Term {
    fn is_valid(&self) -> bool {
        *self.0.borrow()
    }

    async fn ended(&self) {
        let _ = self.0.subscribe().wait_for(|is_valid| !is_valid).await;
    }
}

/// The running client. When this is dropped, its task ends without a logout. [`World::stop`] logs out.
pub struct World {
    pub nsx: FakeNsx,
    /// The proxy before the manager, if there is one.
    pub proxy: Option<ConnectProxy>,
    pub outcomes: Arc<Outcomes>,
    pub http: http::Client,
    pub client: Client,
    pub gate: Arc<NsxSession>,
    pub offers: watch::Sender<Arc<CredentialState>>,
    tokens: Option<watch::Sender<Arc<Token>>>,
    pub leads: watch::Sender<bool>,
    /// Whether a second controller leads. At the start it does not.
    pub other_leads: watch::Sender<bool>,
    identity: Option<ClientIdentity>,
    permit: Arc<dyn Permit>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl World {
    /// Starts a client with user and password of the last account in the model.
    pub async fn start(model: Model) -> Self {
        Self::start_with(model, Proof::Password(Scheme::Basic), Timeouts::default()).await
    }

    pub async fn start_as(model: Model, proof: Proof) -> Self {
        Self::start_with(model, proof, Timeouts::default()).await
    }

    pub async fn start_with(model: Model, proof: Proof, timeouts: Timeouts) -> Self {
        Self::start_by(Road::Direct, model, proof, timeouts).await
    }

    pub async fn start_by(road: Road, model: Model, proof: Proof, timeouts: Timeouts) -> Self {
        let nsx = FakeNsx::start(model).await;
        let mut tls = trust(nsx.ca_pem());
        if let Proof::Certificate(certificate, key) = &proof {
            tls.identity = Some(identity(certificate, key));
        }
        let identity = tls.identity.clone();
        let proxy = if road == Road::Proxy { Some(ConnectProxy::start(nsx.port()).await) } else { None };
        let host = if proxy.is_some() { NAME } else { "127.0.0.1" };
        let mut settings = http::Settings::new(host, nsx.port(), tls, "test");
        let outcomes = Arc::new(Outcomes::default());
        settings.observer = Some(Arc::clone(&outcomes) as Arc<dyn CallObserver>);
        settings.proxy = proxy.as_ref().map(by);
        settings.connect_timeout = settings.connect_timeout.min(timeouts.call / 2);
        let http = http::Client::new(settings).unwrap();
        let password = if matches!(proof, Proof::Password(_)) { nsx.password() } else { String::new() };
        let offers = watch::Sender::new(offer(nsx.user(), &password, 1));
        let mut tokens = None;
        let source = match proof {
            Proof::Password(scheme) => LoginSource::Pairs { offers: offers.subscribe(), scheme },
            Proof::Certificate(..) => LoginSource::Certificate,
            Proof::Token(refresh) => {
                let address = nsx.token_address();
                let (host_and_port, path) = address.split_once('/').unwrap();
                let port = host_and_port.rsplit_once(':').unwrap().1.parse().unwrap();
                let settings = http::Settings::new("127.0.0.1", port, trust(nsx.token_ca_pem()), "test");
                let service = http::Client::new(settings).unwrap();
                let token = Token { service, path: format!("/{path}"), refresh: SecretString::from(refresh) };
                let offered = tokens.insert(watch::Sender::new(Arc::new(token)));
                LoginSource::Token(offered.subscribe())
            }
        };
        let (leads, other_leads) = (watch::Sender::new(true), watch::Sender::new(false));
        let ledger = Arc::new(Ledger::new(MemoryStore::default()));
        let both = AnyLeader::new(vec![leads.subscribe(), other_leads.subscribe()]);
        let gate = Arc::new(NsxSession::new(http.endpoint(), source, ledger, both));
        let prefix = nsx.address().split_once('/').map_or(String::new(), |(_, path)| format!("/{path}"));
        let client = Client::new(http.clone(), prefix, Arc::new(Pace::new(80)), Arc::clone(&gate) as _, timeouts);
        let stop = CancellationToken::new();
        let (runs, logs_in, until) = (Arc::clone(&gate), client.clone(), stop.clone());
        let task = tokio::spawn(async move { runs.run(&logs_in, until).await });
        let (_, permit) = Term::begin();
        Self {
            nsx,
            proxy,
            outcomes,
            http,
            client,
            gate,
            offers,
            tokens,
            leads,
            other_leads,
            identity,
            permit,
            stop,
            task,
        }
    }

    /// Offers another password, from a newer version of the Secret.
    pub fn offer(&self, password: &str, version: u32) {
        self.offers.send_replace(offer(self.nsx.user(), password, version));
    }

    /// Offers another refresh token.
    pub fn offer_token(&self, refresh: &str) {
        let tokens = self.tokens.as_ref().unwrap();
        let before = Arc::clone(&tokens.borrow());
        let Token { service, path, .. } = &*before;
        let (service, path) = (service.clone(), path.clone());
        tokens.send_replace(Arc::new(Token { service, path, refresh: SecretString::from(refresh) }));
    }

    /// Trusts only this certificate from now on.
    pub fn trust(&self, pem: &str) {
        self.http.set_tls(TlsSettings { identity: self.identity.clone(), ..trust(pem) }).unwrap();
    }

    pub async fn get(&self, path: &str) -> Result<Object, Error> {
        self.client.get(path, "test.get").await
    }

    pub async fn list(&self) -> Result<Listing, Error> {
        self.client.pages(ROUTES, "test.list", 1000).all().await
    }

    pub async fn patch(&self, id: &str) -> Result<(), Error> {
        patch(&self.client, &self.permit, id).await
    }

    /// Returns the permit for writes.
    pub fn write(&self) -> &Arc<dyn Permit> {
        &self.permit
    }

    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        self.client.delete(&self.permit, &format!("{ROUTES}/{id}"), "test.delete").await
    }

    /// Returns the number of attempts to open a session.
    pub fn logins(&self) -> u32 {
        self.nsx.counts().of("session create")
    }

    /// Returns the number of open sessions at the manager.
    pub fn sessions(&self) -> usize {
        self.nsx.counts().sessions
    }

    /// Waits until `is_so` returns true.
    pub async fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        support::eventually(what, SOON, async || {
            let state = || format!("{:?}, {:?}", self.gate.facts(), self.nsx.counts());
            if is_so(self) { Ok(()) } else { Err(state()) }
        })
        .await;
    }

    /// Stops the client and waits for its end. Returns the manager.
    pub async fn stop(self) -> FakeNsx {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.task).await.expect("the task ends").unwrap();
        self.nsx
    }

    /// Signals the end of the client, and waits for it.
    pub async fn end(&mut self) {
        self.stop.cancel();
        tokio::time::timeout(SOON, &mut self.task).await.expect("the task ends").unwrap();
    }
}

fn by(proxy: &ConnectProxy) -> ProxySettings {
    let url = format!("http://127.0.0.1:{}", proxy.port());
    ProxySettings::from_environment(|name| (name == "HTTPS_PROXY").then(|| url.clone())).unwrap()
}

/// Writes a route.
pub async fn patch(client: &Client, permit: &Arc<dyn Permit>, id: &str) -> Result<(), Error> {
    client.patch(permit, &format!("{ROUTES}/{id}"), "test.patch", &route()).await
}

/// Returns a route that NSX accepts.
pub fn route() -> Object {
    let body = json!({"network": "10.0.0.0/24", "next_hops": [{"ip_address": "192.0.2.1"}]});
    Object(serde_json::from_value(body).unwrap())
}

/// Returns settings that trust only this certificate.
pub fn trust(pem: &str) -> TlsSettings {
    let trust = TlsTrust::Ca { pem: pem.as_bytes().to_vec(), path: "ca.pem".to_owned() };
    TlsSettings { trust, ..TlsSettings::default() }
}

pub fn identity(certificate: &str, key: &str) -> ClientIdentity {
    ClientIdentity::from_pem(certificate.as_bytes(), key.as_bytes(), "client.pem").unwrap()
}

/// Returns credentials from this version of a Secret.
pub fn offer(user: &str, password: &str, version: u32) -> Arc<CredentialState> {
    let login = Login::Password { user: user.to_owned(), password: SecretString::from(password) };
    let location = SourceLocation::Secret { namespace: "kube-system".to_owned(), name: "nsx".to_owned() };
    let version = SecretVersion { uid: "u-1".to_owned(), resource_version: version.to_string() };
    let origin = Origin::Source { location, version: Some(version) };
    Arc::new(CredentialState::Ready(vec![Arc::new(Credential { login, origin })]))
}

/// Advances both clocks by this time.
pub async fn advance(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
