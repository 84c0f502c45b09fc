//! The servers of a `vsphere.conf`, with what they are logged in to with. The product's reader of the file decides.
//!
//! There is no API server here: credentials come from the file, from environment variables and from directories. Those that
//! are only in a Secret are missing, and the server is then not tested.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ccm::app::files::{Files, SystemFiles};
use ccm::app::settings::vsphere::{CloudConfig, CloudConfigFile};
use ccm::clients::http::{ProxySettings, Settings, TlsSettings};
use ccm::clients::nsx::Scheme;
use ccm::clients::vim;
use ccm::providers::vsphere::config::{DEFAULT_DIRECTORY, Environment, Nsx, NsxLogin, Vcenter, distinct_vcenters};
use ccm::providers::vsphere::credentials::layout::{SessionManagers, Stored};
use ccm::providers::vsphere::credentials::offer::{offer, places};
use ccm::providers::vsphere::credentials::source::{Place, Reading, Source};
use ccm::providers::vsphere::credentials::{Login, Offer, Origin, ReadToken};
use secrecy::{ExposeSecret as _, SecretString};

/// Why a server without credentials is not tested.
const NO_SECRET: &str = "this program does not read Secrets: put user and password into the file, or mount the Secret as the \
                         directory secrets-directory";

/// All servers of a file.
pub struct Servers {
    /// The vCenters in the order of the file, then NSX.
    pub all: Vec<Server>,
    /// What is odd about the file.
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
    /// What to call it in a result, which has no names.
    #[must_use]
    pub fn title(&self) -> &str {
        match self {
            Self::Vcenter(vcenter) => &vcenter.title,
            Self::Nsx(nsx) => &nsx.title,
        }
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        let settings = match self {
            Self::Vcenter(vcenter) => &vcenter.http,
            Self::Nsx(nsx) => &nsx.http,
        };
        format!("{}:{}", settings.host, settings.port)
    }
}

/// A vCenter and its user. Deliberately without `Debug`.
pub struct VcenterServer {
    /// `vCenter 1`.
    pub title: String,
    /// How to reach it.
    pub http: Settings,
    /// User and password; or why there are none.
    pub login: Result<(String, SecretString), String>,
}

impl VcenterServer {
    /// Whether both have the same user and password.
    pub(crate) fn has_account_of(&self, other: &Self) -> bool {
        match (&self.login, &other.login) {
            (Ok((user, password)), Ok((others, its))) => {
                user == others && password.expose_secret() == its.expose_secret()
            }
            _ => false,
        }
    }
}

/// An NSX Manager, its user, and the objects of the file. Deliberately without `Debug`.
pub struct NsxServer {
    /// `NSX`.
    pub title: String,
    /// How to reach it.
    pub http: Settings,
    /// Before every path: empty, or `/prefix`.
    pub prefix: String,
    /// What to log in with; or why there is nothing.
    pub login: Result<NsxProof, String>,
    /// The path of the tier-1 gateway that the file names.
    pub gateway: Option<String>,
    /// The path of the load balancer service that the file names.
    pub lb_service: Option<String>,
}

/// What a login to NSX is made with.
pub enum NsxProof {
    /// User and password.
    Password(Scheme, String, SecretString),
    /// The client certificate of the TLS settings.
    Certificate,
}

impl Servers {
    /// Reads the file, the variables of this process, and the files and directories that they name.
    ///
    /// # Errors
    /// What is wrong with the file, with nothing of its values.
    pub fn read(path: &Path) -> Result<Self, String> {
        let environment = Environment::new(std::env::vars_os());
        let proxy = ProxySettings::from_environment(|name| environment.proxy(name)).map_err(|wrong| {
            let each = wrong.iter().map(|mistake| format!("{}: {}", mistake.variable, mistake.why()));
            each.collect::<Vec<_>>().join("; ")
        })?;
        let file = CloudConfigFile { path: path.to_owned(), environment, ipv6_pools: BTreeMap::new() };
        let config = file.read(&SystemFiles).0.map_err(|mistakes| mistakes.to_string())?;
        let mut warnings: Vec<_> = config.oddities.iter().map(ToString::to_string).chain(config.unverified()).collect();
        warnings.extend(config.refused.iter().map(|(_, mistake)| format!("{}: {}", mistake.place, mistake.why)));
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

fn nsx_server(nsx: &Nsx, config: &CloudConfig, proxy: &ProxySettings) -> NsxServer {
    let scheme = if nsx.remote_auth { Scheme::Remote } else { Scheme::Basic };
    let password = |user: &str, password: &SecretString| NsxProof::Password(scheme, user.to_owned(), password.clone());
    let login = match &nsx.login {
        NsxLogin::Certificate { .. } => Ok(NsxProof::Certificate),
        NsxLogin::VmcToken { .. } => Err("logins with a token of VMware Cloud are not part of this test".to_owned()),
        NsxLogin::Secret { fallback, .. } => {
            fallback.as_ref().map(|(user, secret)| password(user, secret)).ok_or_else(|| NO_SECRET.to_owned())
        }
        NsxLogin::Password { user, password: secret } => Ok(password(user, secret)),
    };
    let balancers = config.config.load_balancers.used();
    NsxServer {
        title: "NSX".to_owned(),
        http: settings(&nsx.host, nsx.port, config.nsx_tls.clone().unwrap_or_default(), proxy),
        prefix: nsx.path_prefix.clone(),
        login,
        gateway: balancers.and_then(|balancers| balancers.tier1.clone()),
        lb_service: balancers
            .and_then(|balancers| balancers.lb_service_id.as_ref())
            .map(|id| format!("/infra/lb-services/{id}")),
    }
}

/// The first pair that the product would try. A second one is never tried here.
fn vcenter_login(entry: &Vcenter) -> Result<(String, SecretString), String> {
    let default = Path::new(DEFAULT_DIRECTORY);
    let mut sources = BTreeMap::new();
    for place in places(entry, default) {
        if let Place::Directory(path) = &place {
            let mut source = Source::default();
            source.take(read_directory(path));
            sources.insert(place, source);
        }
    }
    match offer(entry, default, &sources) {
        Offer::Ready(credentials) => match credentials.first().map(|credential| &credential.login) {
            Some(Login::Password { user, password }) => Ok((user.clone(), password.clone())),
            Some(Login::Certificate { .. }) => Err("logins with a certificate are not part of this test".to_owned()),
            Some(Login::SharedSession { .. }) => Err("session managers are not part of this test".to_owned()),
            None => Err(NO_SECRET.to_owned()),
        },
        Offer::Pending { .. } => Err(NO_SECRET.to_owned()),
        Offer::Missing { why } => Err(why),
    }
}

/// Reads the files of a directory, one key each.
fn read_directory(path: &PathBuf) -> Reading {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return Reading::Absent(error.to_string()),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let keys: Vec<_> = names.filter(|name| !name.starts_with("..") && path.join(name).is_file()).collect();
    let contents: Vec<_> = keys.iter().map(|key| (key.as_str(), SystemFiles.read(&path.join(key)).ok())).collect();
    let managers = SessionManagers { account: Arc::new(NoToken), hosts: BTreeSet::new() };
    let entries = contents.iter().map(|(key, content)| (*key, content.as_ref().map(|content| content.as_slice())));
    Reading::Read { stored: Stored::read(entries, &managers), origin: Origin::Directory { path: path.clone() } }
}

/// Session managers are not asked here.
struct NoToken;

#[async_trait]
impl ReadToken for NoToken {
    async fn read(&self) -> Result<SecretString, String> {
        Err("session managers are not part of this test".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::{Server, Servers};

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
                        Ok((user, password)) => format!("{user}/{}", password.expose_secret()),
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
