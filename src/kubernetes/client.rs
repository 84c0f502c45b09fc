//! The clients of the API server, one per purpose.

mod account;
mod credentials;
mod errors;
mod exec;
mod files;
mod guard;
mod identity;
mod kubeconfig;
mod limits;
pub mod metrics;
mod pod;
mod proof;
mod proxy;
mod rotating;
mod transport;
mod verifier;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
#[cfg(test)]
use kube::client::Body;
use kube::client::ClientBuilder;
use kube::config::AuthInfo;
use kube::{Client, Config};
use tower::BoxError;

use super::leadership::Leadership;
use crate::runtime::metrics::platform;
pub use account::{Account, TokenRenewer};
pub use files::ReadFile;
pub use kubeconfig::{KubeconfigProblem, check_kubeconfig};
pub(super) use limits::Bucket;
pub use limits::Rate;
use metrics::MetricsService;
pub use pod::PodError;
use rotating::Rotating;
use transport::Transport;

/// Time limit of establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Concurrent writes; further ones wait. The API server has its own priority and fairness.
const WRITES_IN_FLIGHT: usize = 32;

/// The program's name in user agents. The server derives the field manager from the text before the slash, unless a
/// write names one.
const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// The commit of this build, if known.
pub const COMMIT: Option<&str> = option_env!("CCM_COMMIT");

/// Purposes of clients: the end of their user agent, as in the Go program.
pub mod purpose {
    /// Events, reviews, and other process-wide calls.
    pub const PROCESS: &str = "cloud-controller-manager";
    /// Lists and watches.
    pub const INFORMERS: &str = "shared-informers";
    /// The Leases of the leader election.
    pub const LEADER_ELECTION: &str = "leader-election";
}

/// The identity of a controller's writes.
#[derive(Debug, Clone, Copy)]
pub enum Identity<'a> {
    /// This process; the name ends the user agent.
    Process(&'a str),
    /// A separate service account.
    Account(&'a Account),
}

/// Settings of the connection to the API server.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `--kubeconfig`; by default, the pod's own credentials.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: overrides the address of the API server.
    pub master: Option<String>,
    /// `--kube-api-qps` and `--kube-api-burst`, if set: rate limit of writes.
    pub rate: Option<Rate>,
}

/// The clients that the whole process shares. Each has its own queue, so that none delays another.
#[derive(Clone)]
pub struct Clients {
    /// For lists and watches.
    pub watch: Client,
    /// For Events and token reviews, which standbys send, too. Never retries by itself.
    pub auxiliary: Client,
}

/// The clients cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// This kubeconfig cannot be used; the reasons contain none of its text.
    #[error("cannot use the kubeconfig {}: {}", .0.display(), .1.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Kubeconfig(PathBuf, Vec<KubeconfigProblem>),
    /// Neither a kubeconfig nor a pod's environment is available.
    #[error("no --kubeconfig is given and this is not a pod with a service account")]
    InCluster(#[source] PodError),
    /// The value of `--master` is not a URL.
    #[error("--master: {0:?} is not a URL such as https://10.0.0.1:6443")]
    Master(String, #[source] http::uri::InvalidUri),
    /// The credentials or certificates for this server cannot be used.
    #[error("cannot prepare the client for the API server {0}")]
    Client(http::Uri, #[source] BoxError),
}

impl Clients {
    /// Builds the clients. Must run inside the async runtime. Does not open connections.
    pub fn new(config: &Config) -> Result<Self, SettingsError> {
        Ok(Self {
            watch: builder(prepared(config, purpose::INFORMERS))?.build(),
            auxiliary: unguarded(config, purpose::PROCESS)?,
        })
    }
}

/// A client for a controller. Its writes pass only under this leadership, are cancelled when it ends, and are not
/// retried.
pub fn writer(
    config: &Config,
    rate: Option<Rate>,
    leadership: Leadership,
    identity: Identity<'_>,
) -> Result<Client, SettingsError> {
    // The last layer is the outermost: a write waits for its turn, then for a token, and leadership is checked last.
    let limits = limits::layer(WRITES_IN_FLIGHT, rate, host(config));
    let guard = guard::layer(leadership);
    Ok(match identity {
        Identity::Process(name) => single(config, name)?.with_layer(&guard).with_layer(&limits).build(),
        Identity::Account(account) => {
            let mut anonymous = config.clone();
            anonymous.auth_info = AuthInfo::default();
            let client = single(&anonymous, &account.user())?.with_layer(&guard);
            client.with_layer(&account::layer(account.clone())).with_layer(&limits).build()
        }
    })
}

/// A service account for the client of this name, and the task that keeps its token. A missing account is created only
/// under this leadership.
pub fn account(
    config: &Config,
    name: &'static str,
    leadership: Leadership,
) -> Result<(Account, TokenRenewer), SettingsError> {
    let create = writer(config, None, leadership.clone(), Identity::Process(purpose::PROCESS))?;
    Ok(account::new(name, unguarded(config, purpose::PROCESS)?, create, leadership))
}

/// For tests: a client over any service, whose writes pass only under this leadership.
#[cfg(test)]
pub(in crate::kubernetes) fn guarded<S>(service: S, leadership: Leadership) -> Client
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
{
    ClientBuilder::new(service, "default")
        .with_layer(&guard::layer(leadership))
        .with_layer(&limits::layer(WRITES_IN_FLIGHT, None, ""))
        .build()
}

/// A client that neither retries nor checks leadership: for calls that need none. `purpose` ends its user agent.
pub fn unguarded(config: &Config, purpose: &str) -> Result<Client, SettingsError> {
    Ok(single(config, purpose)?.build())
}

fn single(config: &Config, purpose: &str) -> Result<ClientBuilder<MetricsService<Transport>>, SettingsError> {
    let mut config = prepared(config, purpose);
    config.default_retry = false;
    builder(config)
}

fn builder(config: Config) -> Result<ClientBuilder<MetricsService<Transport>>, SettingsError> {
    let server = config.cluster_url.clone();
    let measure = metrics::layer(host(&config));
    metrics::show_expiry(&config);
    let namespace = config.default_namespace.clone();
    let builder = match Rotating::new(&config) {
        Some(rotating) => rotating.map(|client| ClientBuilder::new(Transport::new(client), namespace)),
        None => transport::builder(config),
    };
    let named = errors::layer(&server);
    let builder = builder.map_err(|source| SettingsError::Client(server, source))?;
    Ok(builder.with_layer(&named).with_layer(&measure))
}

/// The API server's name in metrics.
fn host(config: &Config) -> &str {
    config.cluster_url.authority().map_or("", |authority| authority.as_str())
}

fn prepared(config: &Config, purpose: &str) -> Config {
    let mut config = config.clone();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.headers.push((http::header::USER_AGENT, user_agent(COMMIT, purpose)));
    config
}

/// `<binary>/<version> (<os>/<arch>) kubernetes/<commit>/<purpose>`, as client-go.
fn user_agent(commit: Option<&str>, purpose: &str) -> HeaderValue {
    let (version, platform) = (env!("CARGO_PKG_VERSION"), platform());
    let commit = commit.and_then(|commit| commit.get(..7)).unwrap_or("unknown");
    let text = format!("{PROGRAM}/{version} ({platform}) kubernetes/{commit}/{purpose}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(PROGRAM))
}

/// Reads the configuration that the settings name: the kubeconfig, or the pod's own. Tries no other source, unlike
/// `Config::infer`.
pub async fn read_config(settings: &Settings) -> Result<Config, SettingsError> {
    let master = settings.master.as_deref().filter(|text| !text.is_empty()).map(parse_master).transpose()?;
    let mut config = match &settings.kubeconfig {
        Some(path) => kubeconfig::read(path).map_err(|problems| SettingsError::Kubeconfig(path.clone(), problems))?,
        // As in the Go program: an address without a kubeconfig is a server without credentials. The pod's credentials
        // are for its own server only.
        None => match &master {
            Some(master) => Config::new(master.clone()),
            None => pod::config(|name| std::env::var(name).ok(), Path::new(pod::FOLDER))
                .map_err(SettingsError::InCluster)?,
        },
    };
    if let Some(master) = master {
        if let Some(cluster) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
            // Kept as given: a URL without a path would be shown with a slash.
            cluster.server = settings.master.clone();
        }
        config.cluster_url = master;
    }
    if config.accept_invalid_certs {
        tracing::warn!(
            server = %config.cluster_url,
            "the certificate of the API server is not checked: insecure-skip-tls-verify is set in the kubeconfig"
        );
    }
    Ok(config)
}

fn parse_master(text: &str) -> Result<http::Uri, SettingsError> {
    let complete = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    complete.parse().map_err(|source| SettingsError::Master(text.to_owned(), source))
}

#[cfg(test)]
mod tests;
