//! Clients of the API server, one per purpose.

mod account;
mod credentials;
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
use limits::WriteLimits;
use metrics::MetricsService;
pub use pod::PodError;
use transport::Transport;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of concurrent writes. Further writes wait.
const WRITES_IN_FLIGHT: usize = 32;

/// Program name in user agents. The API server uses it as field manager, unless a write specifies another.
const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// Commit of this build, if known.
pub const COMMIT: Option<&str> = option_env!("CCM_COMMIT");

/// Purposes of clients. A user agent ends with the purpose, as in the Go program.
pub mod purpose {
    /// Events, reviews and other process-wide calls.
    pub const PROCESS: &str = "cloud-controller-manager";
    /// Lists and watches.
    pub const INFORMERS: &str = "shared-informers";
    /// The Leases of the leader election.
    pub const LEADER_ELECTION: &str = "leader-election";
}

/// Identity that a controller uses for its writes.
#[derive(Debug, Clone, Copy)]
pub enum Identity<'a> {
    /// Identity of this process. The user agent ends with this string.
    Process(&'a str),
    /// A separate service account.
    Account(&'a Account),
}

/// Settings of the connection to the API server.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Value of `--kubeconfig`. Without this value and without `--master`, the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// Value of `--master`, the address of the API server. Overrides the address in the kubeconfig.
    pub master: Option<String>,
    /// Rate limit of writes, from `--kube-api-qps` and `--kube-api-burst`.
    pub rate: Option<Rate>,
}

/// Clients that the whole process shares. Each client has its own queue, so that no client delays another.
#[derive(Clone)]
pub struct Clients {
    /// For lists and watches.
    pub watch: Client,
    /// For Events, reviews, login records and live reads, which standbys also need. This client does not retry.
    pub auxiliary: Client,
}

/// The error for settings from which no client can be built.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The kubeconfig cannot be used. The listed problems contain none of its text.
    #[error("cannot use the kubeconfig {}: {}", .0.display(), .1.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Kubeconfig(PathBuf, Vec<KubeconfigProblem>),
    /// Neither `--kubeconfig` nor `--master` is set, and the in-cluster configuration is missing or invalid.
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
    /// Builds the clients. Opens no connections. Must be called inside the async runtime.
    pub fn new(config: &Config) -> Result<Self, SettingsError> {
        Ok(Self {
            watch: builder(prepared(config, purpose::INFORMERS))?.build(),
            auxiliary: unguarded(config, purpose::PROCESS)?,
        })
    }
}

/// Returns a client for a controller. Its writes need leadership, are cancelled when leadership ends, and are never
/// retried.
pub fn writer(
    config: &Config,
    rate: Option<Rate>,
    leadership: Leadership,
    identity: Identity<'_>,
) -> Result<Client, SettingsError> {
    let limits = WriteLimits::new(WRITES_IN_FLIGHT, rate, host(config));
    Ok(match identity {
        Identity::Process(name) => single(config, name)?.with_layer(&guard::layer(leadership, limits)).build(),
        Identity::Account(account) => {
            let mut anonymous = config.clone();
            anonymous.auth_info = AuthInfo::default();
            let service = account::service(account.clone(), unguarded(&anonymous, &account.user())?);
            let client = ClientBuilder::new(service, config.default_namespace.clone());
            client.with_layer(&guard::layer(leadership, limits)).build()
        }
    })
}

/// Returns the service account `name` and the task that renews its token. Only the leader creates a missing account.
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
        .with_layer(&guard::layer(leadership, WriteLimits::new(WRITES_IN_FLIGHT, None, "")))
        .build()
}

/// Returns a client without retries and without leadership check. Its user agent ends with `purpose`.
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
    let builder = transport::builder(config).map_err(|source| SettingsError::Client(server, source))?;
    Ok(builder.with_layer(&measure))
}

fn host(config: &Config) -> &str {
    config.cluster_url.authority().map_or("", |authority| authority.as_str())
}

fn prepared(config: &Config, purpose: &str) -> Config {
    let mut config = config.clone();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.headers.push((http::header::USER_AGENT, user_agent(COMMIT, purpose)));
    config
}

/// Returns `<binary>/<version> (<os>/<arch>) kubernetes/<commit>/<purpose>`, as client-go.
fn user_agent(commit: Option<&str>, purpose: &str) -> HeaderValue {
    let (version, platform) = (env!("CARGO_PKG_VERSION"), platform());
    let commit = commit.and_then(|commit| commit.get(..7)).unwrap_or("unknown");
    let text = format!("{PROGRAM}/{version} ({platform}) kubernetes/{commit}/{purpose}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(PROGRAM))
}

/// Reads the configuration from the kubeconfig and `--master`, or from the pod if neither is set. Unlike
/// `Config::infer`, reads no other source.
pub async fn read_config(settings: &Settings) -> Result<Config, SettingsError> {
    let master = settings.master.as_deref().filter(|text| !text.is_empty()).map(parse_master).transpose()?;
    let mut config = match &settings.kubeconfig {
        Some(path) => kubeconfig::read(path).map_err(|problems| SettingsError::Kubeconfig(path.clone(), problems))?,
        // As in the Go program, `--master` without a kubeconfig means an API server without credentials. The pod's
        // credentials are only for the pod's own API server.
        None => match &master {
            Some(master) => Config::new(master.clone()),
            None => pod::config(|name| std::env::var(name).ok(), Path::new(pod::FOLDER))
                .map_err(SettingsError::InCluster)?,
        },
    };
    if let Some(master) = master {
        if let Some(cluster) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
            // The `exec` program gets the text of `--master`, because a parsed URL without a path would get a slash.
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
