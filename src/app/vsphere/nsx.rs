//! The connection to NSX: client, credentials and metrics.

mod series;

use super::credentials::Credentials;
use super::metrics::{Certificates, NSX};
use super::set_tls;
use crate::app::Error;
use crate::app::catalogue::{ROUTE, SERVICE};
use crate::app::settings::vsphere::CloudConfig;
use crate::app::settings::{NsxSettings, Settings};
use crate::app::shared_services::SharedServices;
use crate::base::addresses::host_and_port;
use crate::clients::http::{self, CallObserver, ProxySettings, TlsSettings, WeakClient};
use crate::clients::nsx::{Scheme, Timeouts};
use crate::clients::vim;
use crate::cloud::login_ledger::LoginThrottle;
use crate::cloud::{ClusterEvents, ClusterReads};
use crate::kubernetes::client::COMMIT;
use crate::kubernetes::cluster::LiveApi;
use crate::providers::vsphere::config::{NsxConfig, NsxLogin};
use crate::providers::vsphere::login::credentials::Offers;
use crate::providers::vsphere::login::credentials::offer::CredentialSettings;
use crate::providers::vsphere::nsx::services::{ConnectNsx, NsxReport, NsxServicesContext};
use crate::providers::vsphere::nsx::{AnyLeader, LoginSource, Token};
use crate::runtime::metrics::Registry;
use parking_lot::Mutex;
use secrecy::SecretString;
use series::NsxSeries;
use std::sync::Arc;
use tokio::sync::watch;

/// The default of `--cluster-name`, which many clusters have.
const DEFAULT_CLUSTER_NAME: &str = "kubernetes";

/// The client and the credentials of the NSX Manager.
pub(super) struct NsxConnection {
    series: Arc<NsxSeries>,
    certificates: Certificates,
    proxy: ProxySettings,
    current: watch::Receiver<Arc<CloudConfig>>,
    credentials: Arc<Credentials>,
    state: Mutex<State>,
}

/// The state of the connection. Never locked across an await. The references to the clients are weak, so that a removed
/// connection can drop them after the logout.
#[derive(Default)]
struct State {
    client: Option<WeakClient>,
    token_service: Option<WeakClient>,
    /// A receiver of the offers, which exist only as long as they have a receiver.
    offers: Option<Offers>,
    /// The configured login, if it uses a token, and the sender of that token.
    tokens: Option<(NsxLogin, watch::Sender<Arc<Token>>)>,
}

impl NsxConnection {
    /// Registers the metrics.
    pub fn new(
        registry: &Registry,
        current: watch::Receiver<Arc<CloudConfig>>,
        credentials: Arc<Credentials>,
        proxy: ProxySettings,
    ) -> Result<Self, Error> {
        let series = Arc::new(NsxSeries::register(registry)?);
        let certificates = Certificates::register(registry, NSX)?;
        Ok(Self { series, certificates, proxy, current, credentials, state: Mutex::default() })
    }

    /// Applies the TLS settings of a new active configuration to the client of the configured server. A client of
    /// another server or of a removed connection keeps its TLS settings, which it needs for the logout.
    pub fn update(&self) {
        let current = Arc::clone(&self.current.borrow());
        let state = self.state.lock();
        let Some(nsx) = current.config.nsx.used() else { return };
        let tls = current.nsx_tls.clone().unwrap_or_default();
        // If the host of the token service changes too, `source` replaces this client.
        if let Some(service) = state.token_service.as_ref().and_then(WeakClient::upgrade) {
            set_tls(&service, tls.of_public_service());
        }
        if let Some(client) = client_of(state.client.as_ref(), &nsx.host, nsx.port) {
            set_tls(&client, tls);
        }
    }

    /// Drops the credentials if the active configuration does not use NSX. The removed connection keeps its own
    /// receiver of the offers until the logout.
    pub fn drop_unused(&self) {
        if self.current.borrow().config.nsx.used().is_none() {
            let mut state = self.state.lock();
            state.offers = None;
            state.tokens = None;
        }
    }

    /// Exposes the state of the connection as metrics.
    pub fn show(&self, report: impl Fn() -> Option<NsxReport> + Send + Sync + 'static) {
        self.series.show(report);
    }

    fn tls(&self) -> TlsSettings {
        self.current.borrow().nsx_tls.clone().unwrap_or_default()
    }

    fn new_client(&self, host: &str, port: u16, tls: TlsSettings) -> Result<http::Client, String> {
        let mut settings = http::Settings::new(host, port, tls, vim::user_agent(COMMIT));
        settings.observer = Some(Arc::clone(&self.series) as Arc<dyn CallObserver>);
        settings.proxy = Some(self.proxy.clone());
        http::Client::new(settings).map_err(|error| error.to_string())
    }

    /// Returns the refresh token and its later changes.
    fn tokens(&self, login: &NsxLogin, refresh: &SecretString) -> Result<watch::Receiver<Arc<Token>>, String> {
        let (host, port, path) = login.token_service().ok_or("the address of the token service cannot be used")?;
        let mut state = self.state.lock();
        // Reuses the client if the address of the token service is unchanged, since an unchanged connection keeps that
        // client.
        let service = match client_of(state.token_service.as_ref(), &host, port) {
            Some(service) => service,
            None => {
                let service = self.new_client(&host, port, self.tls().of_public_service())?;
                state.token_service = Some(service.downgrade());
                service
            }
        };
        let token = Token { service, path, refresh: refresh.clone() };
        let tokens = match state.tokens.take() {
            Some((known, tokens)) if known == *login => tokens,
            Some((_, tokens)) => {
                tokens.send_replace(Arc::new(token));
                tokens
            }
            None => watch::Sender::new(Arc::new(token)),
        };
        let receiver = tokens.subscribe();
        state.tokens = Some((login.clone(), tokens));
        Ok(receiver)
    }
}

/// Returns the client if it still exists and is one of this server.
fn client_of(client: Option<&WeakClient>, host: &str, port: u16) -> Option<http::Client> {
    client?.upgrade().filter(|client| client.endpoint() == host_and_port(host, port))
}

impl ConnectNsx for NsxConnection {
    fn http(&self, nsx: &NsxConfig) -> Result<http::Client, String> {
        let client = self.new_client(&nsx.host, nsx.port, self.tls())?;
        self.certificates.show(&client);
        self.state.lock().client = Some(client.downgrade());
        Ok(client)
    }

    fn source(&self, nsx: &NsxConfig) -> Result<LoginSource, String> {
        let pair = match &nsx.login {
            NsxLogin::Pair { credentials, fallback } => Some(self.credentials.offers(CredentialSettings {
                entry: None,
                server: nsx.host.clone(),
                port: nsx.port,
                credentials: credentials.clone(),
                fallback: fallback.clone(),
            })),
            NsxLogin::Certificate { .. } | NsxLogin::VmcToken { .. } => None,
        };
        self.state.lock().offers.clone_from(&pair);
        if let NsxLogin::VmcToken { token, .. } = &nsx.login {
            return Ok(LoginSource::Token(self.tokens(&nsx.login, token)?));
        }
        self.state.lock().tokens = None;
        let scheme = if nsx.remote_auth { Scheme::Remote } else { Scheme::Basic };
        Ok(match pair {
            Some(offers) => LoginSource::Pairs { offers, scheme },
            None => LoginSource::Certificate,
        })
    }
}

pub(super) fn setup(
    connect: &Arc<NsxConnection>,
    throttle: Arc<dyn LoginThrottle>,
    nodes: Arc<dyn ClusterReads>,
    events: Arc<dyn ClusterEvents>,
    settings: &NsxSettings,
    cluster: &str,
    parts: &SharedServices,
) -> NsxServicesContext {
    let leads = [ROUTE, SERVICE].into_iter().filter_map(|name| parts.elections.leadership_of(name));
    let leads = AnyLeader::new(leads.map(|leadership| leadership.watch()).collect());
    // The observer never leads, so nothing that leaders do begins. Its reads need a login all the same.
    let may_log_in = if parts.is_observer { AnyLeader::always() } else { leads.clone() };
    NsxServicesContext {
        connect: Arc::clone(connect) as Arc<dyn ConnectNsx>,
        throttle,
        nodes,
        live: Arc::new(LiveApi::new(parts.api_server.clients.auxiliary.clone())),
        events,
        leads,
        may_log_in,
        calls_per_second: settings.calls_per_second,
        adoption: settings.adoption,
        orphans: settings.orphans,
        requested_addresses: settings.requested_addresses,
        cluster: cluster.to_owned(),
        batches: settings.batches,
        timeouts: Timeouts::default(),
    }
}

/// Warns if NSX is used and the cluster has the default name, which another cluster in the same NSX may also have.
pub(super) fn warn_of_cluster_name(settings: &Settings, cloud_config: &CloudConfig) {
    if let Some(problem) = name_problem(settings).filter(|_| cloud_config.config.nsx.used().is_some()) {
        tracing::warn!("{problem}");
    }
}

/// Returns the problem if `--cluster-name` is the default. The name matters only if NSX is used.
pub(super) fn name_problem(settings: &Settings) -> Option<&'static str> {
    let problem = "--cluster-name=kubernetes is the default: clusters that share an NSX need different names, \
                   because the name identifies the owner of an object in NSX";
    (settings.services.cluster_name == DEFAULT_CLUSTER_NAME).then_some(problem)
}
