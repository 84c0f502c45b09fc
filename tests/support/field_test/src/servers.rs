//! The servers of a `vsphere.conf`, with their logins. The product's reader parses the file.
//!
//! This program has no API server: credentials come from the file, from environment variables and from directories. If
//! the credentials of a server are only in a Secret, the server is not tested.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ccm::app::files::{FileSystem, SystemFiles};
use ccm::app::settings::vsphere::{CloudConfig, CloudConfigFile};
use ccm::clients::http::{Endpoint, ProxySettings, Settings, TlsSettings};
use ccm::clients::nsx::Scheme;
use ccm::clients::vim;
use ccm::providers::vsphere::config::{
    DEFAULT_CLASS, DEFAULT_DIRECTORY, Environment, IpPool, NsxConfig, NsxLogin, Profile, VcenterConfig,
    distinct_vcenters,
};
use ccm::providers::vsphere::login::credentials::layout::{SessionManagers, StoredKeys};
use ccm::providers::vsphere::login::credentials::source::{CredentialSource, SourceLocation, SourceReading};
use ccm::providers::vsphere::login::credentials::{CredentialState, Credentials, Login, Origin, ReadToken};
use secrecy::SecretString;

const NO_SECRET: &str = "this program does not read Secrets: put user and password into the file, or mount the Secret as the \
                         directory secrets-directory";

/// Default token for session managers, if this runs in a pod. It is also the daemon's default.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// All servers of a file.
pub struct Servers {
    /// The vCenters in the order of the file, then NSX.
    pub all: Vec<Server>,
    /// Warnings about the file.
    pub warnings: Vec<String>,
}

/// One server.
pub enum Server {
    /// A vCenter.
    Vcenter(VcenterServer),
    /// An NSX Manager.
    Nsx(NsxServer),
}

impl Server {
    /// Returns its title in the results, which contains no name.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Self::Vcenter(vcenter) => &vcenter.title,
            Self::Nsx(nsx) => &nsx.title,
        }
    }

    /// Returns `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        let settings = match self {
            Self::Vcenter(vcenter) => &vcenter.http,
            Self::Nsx(nsx) => &nsx.http,
        };
        settings.endpoint.authority().to_owned()
    }

    /// Describes the login for the announcement, if the login is more than one call to the server. Contains no secret.
    #[must_use]
    pub fn login_note(&self) -> Option<String> {
        match self {
            Self::Vcenter(VcenterServer { login: Ok(Login::SharedSession { url, .. }), .. }) => {
                let manager = Endpoint::of_url(url).map_or_else(|_| "of its URL".to_owned(), |at| at.authority().to_owned());
                Some(format!("Before the login, one call to the session manager {manager}"))
            }
            Self::Vcenter(VcenterServer { login: Ok(Login::Certificate { .. }), .. }) => {
                Some("Before the login, its token service (STS) issues one token".to_owned())
            }
            Self::Nsx(NsxServer { login: Ok(NsxProof::Token { service, .. }), .. }) => {
                let service = service.endpoint.authority();
                Some(format!("There is no session: one call to the token service {service}, then each call carries the token"))
            }
            Self::Nsx(NsxServer { login: Ok(NsxProof::Password(..)), .. }) => Some(
                "Where the manager has no sessions, each call carries user and password; the first one that is rejected is \
                 the last one"
                    .to_owned(),
            ),
            Self::Nsx(NsxServer { login: Ok(NsxProof::Certificate), .. }) => {
                Some("There is no session: each connection shows the client certificate".to_owned())
            }
            Self::Vcenter(_) | Self::Nsx(_) => None,
        }
    }
}

/// A vCenter and its user. It has no `Debug`, because it contains credentials.
pub struct VcenterServer {
    /// Title, such as `vCenter 1`.
    pub title: String,
    /// Settings of the connection.
    pub http: Settings,
    /// Its login, or the reason why there is none.
    pub login: Result<Login, String>,
}

impl VcenterServer {
    /// Returns true if both have the same credentials.
    pub(crate) fn has_account_of(&self, other: &Self) -> bool {
        matches!((&self.login, &other.login), (Ok(own), Ok(others)) if own == others)
    }
}

/// An NSX Manager, its user, and the objects in the file. It has no `Debug`, because it contains credentials.
pub struct NsxServer {
    /// Title: `NSX`.
    pub title: String,
    /// Settings of the connection.
    pub http: Settings,
    /// Prefix of every path: empty, or `/prefix`.
    pub prefix: String,
    /// Its login, or the reason why there is none.
    pub login: Result<NsxProof, String>,
    /// Path of the tier-1 gateway in the file.
    pub gateway: Option<String>,
    /// Path of the load balancer service in the file.
    pub lb_service: Option<String>,
    /// IP pool of the default class.
    pub address_pool: Option<IpPool>,
    /// Application profile for TCP of the default class.
    pub tcp_profile: Option<Profile>,
}

/// The credentials of a login to NSX.
pub enum NsxProof {
    /// User and password.
    Password(Scheme, String, SecretString),
    /// The client certificate of the TLS settings.
    Certificate,
    /// An access token of VMware Cloud.
    Token {
        /// Connection settings of the service that issues the token.
        service: Box<Settings>,
        /// Path at that service.
        path: String,
        /// Refresh token that is exchanged for it.
        refresh: SecretString,
    },
}

impl Servers {
    /// Reads the file, the variables of this process, and the files and directories that they name.
    ///
    /// # Errors
    /// The mistake in the file, without any of its values.
    pub fn read(path: &Path) -> Result<Self, String> {
        let environment = Environment::new(std::env::vars_os());
        let proxy = ProxySettings::from_environment(|name| environment.proxy(name)).map_err(|wrong| {
            let each = wrong.iter().map(|mistake| format!("{}: {}", mistake.variable, mistake.why()));
            each.collect::<Vec<_>>().join("; ")
        })?;
        let file = CloudConfigFile { path: path.to_owned(), environment, ipv6_pools: BTreeMap::new() };
        let config = file.read(&SystemFiles).0.map_err(|mistakes| mistakes.to_string())?;
        let mut warnings: Vec<_> = config.notices.iter().map(ToString::to_string).chain(config.unverified()).collect();
        warnings.extend(config.rejected.iter().map(|(_, mistake)| format!("{}: {}", mistake.place, mistake.reason)));
        let vcenters = distinct_vcenters(&config.config.vcenters);
        let vcenters = vcenters.iter().enumerate().map(|(at, entry)| {
            let tls = config.tls.get(&entry.key).cloned().unwrap_or_default();
            let http = settings(&entry.server, entry.port, tls, &proxy);
            Server::Vcenter(VcenterServer { title: format!("vCenter {}", at + 1), http, login: vcenter_login(entry) })
        });
        let nsx = config.config.nsx.used().map(|nsx| Server::Nsx(nsx_server(nsx, &config, &proxy)));
        Ok(Self { all: vcenters.chain(nsx).collect(), warnings })
    }
}

fn settings(host: &str, port: u16, tls: TlsSettings, proxy: &ProxySettings) -> Settings {
    Settings { proxy: Some(proxy.clone()), ..Settings::new(host, port, tls, vim::user_agent(None)) }
}

fn nsx_server(nsx: &NsxConfig, config: &CloudConfig, proxy: &ProxySettings) -> NsxServer {
    let scheme = if nsx.remote_auth { Scheme::Remote } else { Scheme::Basic };
    let password = |user: &str, password: &SecretString| NsxProof::Password(scheme, user.to_owned(), password.clone());
    let login = match &nsx.login {
        NsxLogin::Certificate { .. } => Ok(NsxProof::Certificate),
        NsxLogin::VmcToken { token, .. } => nsx.login.token_service().map_or_else(
            || Err("the address of the token service cannot be used".to_owned()),
            |(host, port, path)| {
                let tls = config.nsx_tls.as_ref().map(TlsSettings::of_public_service).unwrap_or_default();
                Ok(NsxProof::Token {
                    service: Box::new(settings(&host, port, tls, proxy)),
                    path,
                    refresh: token.clone(),
                })
            },
        ),
        NsxLogin::Pair { credentials: Credentials::Inline { user, password: secret }, .. }
        | NsxLogin::Pair { fallback: Some(Credentials::Inline { user, password: secret }), .. } => {
            Ok(password(user, secret))
        }
        NsxLogin::Pair { .. } => Err(NO_SECRET.to_owned()),
    };
    let balancers = config.config.load_balancers.used();
    let class = balancers.and_then(|balancers| balancers.class(DEFAULT_CLASS));
    NsxServer {
        title: "NSX".to_owned(),
        http: settings(&nsx.host, nsx.port, config.nsx_tls.clone().unwrap_or_default(), proxy),
        prefix: nsx.path_prefix.clone(),
        login,
        gateway: balancers.and_then(|balancers| balancers.tier1.clone()),
        lb_service: balancers
            .and_then(|balancers| balancers.lb_service_id.as_ref())
            .map(|id| format!("/infra/lb-services/{id}")),
        address_pool: class.as_ref().map(|class| class.pool.clone()),
        tcp_profile: class.as_ref().map(|class| class.tcp.clone()),
    }
}

/// Returns the first credentials that the product would try. The field test never tries others.
fn vcenter_login(entry: &VcenterConfig) -> Result<Login, String> {
    let default = Path::new(DEFAULT_DIRECTORY);
    let mut sources = BTreeMap::new();
    let settings = entry.credential_settings();
    for place in settings.sources(default) {
        if let SourceLocation::Directory(path) = &place {
            let mut source = CredentialSource::default();
            source.take(read_directory(path));
            sources.insert((place, settings.layout()), source);
        }
    }
    match settings.offer(default, &sources) {
        CredentialState::Ready(credentials) => {
            credentials.first().map(|credential| credential.login.clone()).ok_or_else(|| NO_SECRET.to_owned())
        }
        CredentialState::Pending { .. } | CredentialState::Unreadable { .. } => Err(NO_SECRET.to_owned()),
        CredentialState::Missing { reason: why } => Err(why),
    }
}

/// Reads the files of a directory. Each file is one key.
fn read_directory(path: &PathBuf) -> SourceReading {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return SourceReading::Absent(error.to_string()),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let keys: Vec<_> = names.filter(|name| !name.starts_with("..") && path.join(name).is_file()).collect();
    let contents: Vec<_> = keys.iter().map(|key| (key.as_str(), SystemFiles.read(&path.join(key)).ok())).collect();
    let managers = SessionManagers { account: Arc::new(ServiceAccount), hosts: BTreeSet::new() };
    let entries = contents.iter().map(|(key, content)| (*key, content.as_ref().map(|content| content.as_slice())));
    SourceReading::Read {
        stored: StoredKeys::read(entries, &managers),
        origin: Origin::Source { location: SourceLocation::Directory(path.clone()), version: None },
    }
}

/// The token of the pod's service account.
struct ServiceAccount;

#[async_trait]
impl ReadToken for ServiceAccount {
    async fn read(&self) -> Result<SecretString, String> {
        let read = SystemFiles.read(Path::new(SERVICE_ACCOUNT)).map_err(|error| error.to_string());
        let text = read.and_then(|content| match std::str::from_utf8(&content).map(str::trim) {
            Ok("") | Err(_) => Err("it is empty or not text".to_owned()),
            Ok(text) => Ok(SecretString::from(text)),
        });
        text.map_err(|why| format!("the token {SERVICE_ACCOUNT} cannot be read: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::{Login, Server, Servers};

    #[test]
    fn servers_and_credentials_are_those_that_the_product_reads() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = folder.path().join("secrets");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(secrets.join("vc-2.username"), "two\n").unwrap();
        std::fs::write(secrets.join("vc-2.password"), "hunter2\n").unwrap();
        let file = folder.path().join("vsphere.conf");
        let text = format!(
            "[Global]\nsecrets-directory = \"{}\"\ninsecure-flag = true\n[VirtualCenter \"vc-1\"]\nuser = \"one\"\n\
             password = \"hunter1\"\ndatacenters = \"dc\"\n[VirtualCenter \"vc-2\"]\ndatacenters = \"dc\"\n\
             [VirtualCenter \"vc-3\"]\ndatacenters = \"dc\"\n[NSXT]\nhost = \"nsx:8443\"\nuser = \"admin\"\n\
             password = \"hunter4\"\ninsecure-flag = true\n",
            secrets.display()
        );
        std::fs::write(&file, text).unwrap();
        let servers = Servers::read(&file).unwrap();
        let shown: Vec<_> = servers
            .all
            .iter()
            .map(|server| {
                let login = match server {
                    Server::Vcenter(vcenter) => match &vcenter.login {
                        Ok(Login::Password { user, password }) => format!("{user}/{}", password.expose_secret()),
                        Ok(_) => "another".to_owned(),
                        Err(why) => format!("no: {}", why.contains("no entry for server")),
                    },
                    Server::Nsx(nsx) => nsx.login.is_ok().to_string(),
                };
                (server.title().to_owned(), server.address(), login)
            })
            .collect();
        let expected = [
            ("vCenter 1", "vc-1:443", "one/hunter1"),
            ("vCenter 2", "vc-2:443", "two/hunter2"),
            ("vCenter 3", "vc-3:443", "no: true"),
            ("NSX", "nsx:8443", "true"),
        ];
        let expected: Vec<_> = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())).into();
        assert_eq!(shown, expected);
        assert!(servers.warnings.iter().any(|warning| warning.contains("not verified")), "{:?}", servers.warnings);
        assert!(!format!("{:?}", servers.warnings).contains("hunter"));
    }
}
