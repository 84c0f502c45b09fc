//! The connection to NSX: client, credentials and metrics.

mod series;

use super::credentials::Credentials;
use super::metrics::{Certificates, NSX};
use crate::app::Error;
use crate::app::catalogue::{ROUTE, SERVICE};
use crate::app::settings::vsphere::CloudConfig;
use crate::app::settings::{NsxSettings, Settings};
use crate::app::shared_services::SharedServices;
use crate::base::addresses::host_and_port;
use crate::base::error_chain::chain;
use crate::clients::http::{self, CallObserver, ProxySettings, TlsSettings, WeakClient};
use crate::clients::nsx::{Scheme, Timeouts};
use crate::clients::vim;
use crate::cloud::login_ledger::LoginThrottle;
use crate::cloud::{ClusterEvents, ClusterReads};
use crate::kubernetes::client::COMMIT;
use crate::kubernetes::cluster::LiveApi;
use crate::providers::vsphere::config::{NsxConfig, NsxLogin};
use crate::providers::vsphere::login::credentials::offer::NsxSources;
use crate::providers::vsphere::login::credentials::source::{SecretPlace, SourceLocation};
use crate::providers::vsphere::login::credentials::{Credentials as StoredOrInline, Login, Offers};
use crate::providers::vsphere::nsx::services::{ConnectNsx, NsxReport, NsxServicesContext};
use crate::providers::vsphere::nsx::{AnyLeader, LoginSource, Token};
use crate::runtime::metrics::Registry;
use parking_lot::Mutex;
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
    credentials: Credentials,
    state: Mutex<State>,
}

/// The state of the connection. Never locked across an await.
struct State {
    /// TLS settings of the active configuration.
    tls: TlsSettings,
    client: Option<IssuedClient>,
    token_service: Option<IssuedClient>,
    /// A receiver of the offers, which exist only as long as they have a receiver.
    offers: Option<Offers>,
    /// The configured login, if it uses a token, and the sender of that token.
    tokens: Option<(NsxLogin, watch::Sender<Arc<Token>>)>,
}

/// A client that `http` or `source` returned, with its server and TLS settings. The reference is weak, so that a
/// removed connection can drop the client after the logout.
struct IssuedClient {
    client: WeakClient,
    host: String,
    port: u16,
    tls: TlsSettings,
}

impl IssuedClient {
    fn new(client: &http::Client, host: &str, port: u16, tls: TlsSettings) -> Self {
        Self { client: client.downgrade(), host: host.to_owned(), port, tls }
    }

    fn is_of(&self, host: &str, port: u16) -> bool {
        (self.host.as_str(), self.port) == (host, port)
    }

    /// Changes the TLS settings of the client if the client still exists.
    fn set_tls(&mut self, tls: TlsSettings) {
        if self.tls == tls {
            return;
        }
        let Some(client) = self.client.upgrade() else { return };
        // Should not fail: the TLS settings were checked when the files were read.
        match client.set_tls(tls.clone()) {
            Ok(()) => self.tls = tls,
            Err(error) => tracing::error!("{}", chain(&error)),
        }
    }
}

impl NsxConnection {
    /// Registers the metrics.
    pub fn new(
        registry: &Registry,
        cloud_config: &CloudConfig,
        credentials: Credentials,
        proxy: ProxySettings,
    ) -> Result<Self, Error> {
        let series = Arc::new(NsxSeries::register(registry)?);
        let certificates = Certificates::register(registry, &NSX)?;
        let tls = cloud_config.nsx_tls.clone().unwrap_or_default();
        let state = State { tls, client: None, token_service: None, offers: None, tokens: None };
        Ok(Self { series, certificates, proxy, credentials, state: Mutex::new(state) })
    }

    /// Applies the TLS settings of a new configuration to the client of the configured server. A client of another
    /// server or of a removed connection keeps its TLS settings, which it needs for the logout.
    pub fn take(&self, cloud_config: &CloudConfig) {
        let mut state = self.state.lock();
        state.tls = cloud_config.nsx_tls.clone().unwrap_or_default();
        let Some(nsx) = cloud_config.config.nsx.used() else {
            // The removed connection keeps its own receiver of the offers until the logout.
            (state.offers, state.tokens) = (None, None);
            return;
        };
        let State { tls, client, token_service, .. } = &mut *state;
        if let Some(client) = client.as_mut().filter(|client| client.is_of(&nsx.host, nsx.port)) {
            client.set_tls(tls.clone());
        }
        // If the host of the token service changes too, `source` replaces this client.
        if let Some(service) = token_service {
            service.set_tls(tls.of_public_service());
        }
    }

    /// Exposes the state of the connection as metrics.
    pub fn show(&self, report: impl Fn() -> Option<NsxReport> + Send + Sync + 'static) {
        self.series.show(report);
    }

    fn settings(&self, host: &str, port: u16, tls: TlsSettings) -> http::Settings {
        let mut settings = http::Settings::new(host, port, tls, vim::user_agent(COMMIT));
        settings.observer = Some(Arc::clone(&self.series) as Arc<dyn CallObserver>);
        settings.proxy = Some(self.proxy.clone());
        settings
    }

    fn pairs(&self, nsx: &NsxConfig, credentials: &StoredOrInline, fallback: Option<&StoredOrInline>) -> LoginSource {
        let secret = match credentials {
            StoredOrInline::Stored(SourceLocation::Secret { namespace, name }) => {
                Some(SecretPlace { namespace: namespace.clone(), name: name.clone() })
            }
            StoredOrInline::Stored(SourceLocation::Directory(_)) | StoredOrInline::Inline { .. } => None,
        };
        let file = [Some(credentials), fallback].into_iter().flatten().find_map(|credentials| match credentials {
            StoredOrInline::Inline { user, password } => {
                Some(Login::Password { user: user.clone(), password: password.clone() })
            }
            StoredOrInline::Stored(_) => None,
        });
        let sources = NsxSources { server: host_and_port(&nsx.host, nsx.port), secret, file };
        let offers = self.credentials.nsx_offers(&sources);
        self.state.lock().offers = Some(offers.clone());
        LoginSource::Pairs { offers, scheme: if nsx.remote_auth { Scheme::Remote } else { Scheme::Basic } }
    }
}

impl ConnectNsx for NsxConnection {
    fn http(&self, nsx: &NsxConfig) -> Result<http::Client, String> {
        let tls = self.state.lock().tls.clone();
        let client = http::Client::new(self.settings(&nsx.host, nsx.port, tls.clone()));
        let client = client.map_err(|error| error.to_string())?;
        self.certificates.show(&client);
        self.state.lock().client = Some(IssuedClient::new(&client, &nsx.host, nsx.port, tls));
        Ok(client)
    }

    fn source(&self, nsx: &NsxConfig) -> Result<LoginSource, String> {
        {
            let mut state = self.state.lock();
            if matches!(nsx.login, NsxLogin::Certificate { .. } | NsxLogin::VmcToken { .. }) {
                state.offers = None;
            }
            if !matches!(nsx.login, NsxLogin::VmcToken { .. }) {
                state.tokens = None;
            }
        }
        match &nsx.login {
            NsxLogin::Certificate { .. } => Ok(LoginSource::Certificate),
            NsxLogin::Pair { credentials, fallback } => Ok(self.pairs(nsx, credentials, fallback.as_ref())),
            NsxLogin::VmcToken { token, .. } => {
                let service = nsx.login.token_service();
                let (host, port, path) = service.ok_or("the address of the token service cannot be used")?;
                let mut state = self.state.lock();
                // Reuses the client if the address of the token service is unchanged, since an unchanged connection
                // keeps that client.
                let in_use = state.token_service.as_ref().filter(|service| service.is_of(&host, port));
                let service = match in_use.and_then(|service| service.client.upgrade()) {
                    Some(service) => service,
                    None => {
                        let tls = state.tls.of_public_service();
                        let service = http::Client::new(self.settings(&host, port, tls.clone()));
                        let service = service.map_err(|error| error.to_string())?;
                        state.token_service = Some(IssuedClient::new(&service, &host, port, tls));
                        service
                    }
                };
                let token = Token { service, path, refresh: token.clone() };
                let offers = match state.tokens.take() {
                    Some((login, offers)) if login == nsx.login => offers,
                    Some((_, offers)) => {
                        offers.send_replace(Arc::new(token));
                        offers
                    }
                    None => watch::Sender::new(Arc::new(token)),
                };
                let offered = offers.subscribe();
                state.tokens = Some((nsx.login.clone(), offers));
                Ok(LoginSource::Token(offered))
            }
        }
    }
}

pub(super) fn setup(
    connect: &Arc<NsxConnection>,
    ledger: Arc<dyn LoginThrottle>,
    nodes: Arc<dyn ClusterReads>,
    events: Arc<dyn ClusterEvents>,
    settings: &NsxSettings,
    cluster: &str,
    parts: &SharedServices,
) -> NsxServicesContext {
    let leads = [ROUTE, SERVICE].into_iter().filter_map(|name| parts.elections.leadership_of(name));
    NsxServicesContext {
        connect: Arc::clone(connect) as Arc<dyn ConnectNsx>,
        ledger,
        nodes,
        live: Arc::new(LiveApi::new(parts.api_server.clients.auxiliary.clone())),
        events,
        leads: AnyLeader::new(leads.map(|leadership| leadership.watch()).collect()),
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
    let problem = "--cluster-name=kubernetes is the default: clusters that share an NSX need names of their own, since objects of \
                   NSX are told apart by them";
    (settings.services.cluster_name == DEFAULT_CLUSTER_NAME).then_some(problem)
}
