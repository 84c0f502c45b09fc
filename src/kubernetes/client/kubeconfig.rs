//! Reads a kubeconfig and the files that it names. An error names the line and the key, and holds no text of the files, which
//! may be a token or a private key: the errors of the library quote what they cannot read.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::FutureExt;
use kube::Config;
use kube::client::{ConfigExt, RustlsTlsError};
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::proxy;
use crate::base::limited_read::{MAX_FILE, read_limited};
use crate::base::yaml::{self, Aliases, Node, Value, YamlError};

/// Placeholder: keeps the library from using the proxy of the environment; the configuration gets the proxy of the file.
const NO_PROXY: &str = "http://none.invalid";

/// Reads a file; its buffer is wiped when it is dropped.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Zeroizing<Vec<u8>>>;

/// What is wrong with a kubeconfig. Holds no text of it, nor of the files that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigProblem {
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong, and what is expected.
    pub why: String,
}

impl KubeconfigProblem {
    pub(super) fn new(line: Option<usize>, why: impl Into<String>) -> Self {
        Self { line, why: why.into() }
    }
}

impl fmt::Display for KubeconfigProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "line {line}: {}", self.why),
            None => formatter.write_str(&self.why),
        }
    }
}

/// Checks the content of the kubeconfig at `path` and the files that it names, as far as that is possible without a
/// network. Runs no program that the file names.
///
/// # Errors
/// What is wrong.
pub fn check_kubeconfig(path: &Path, content: &[u8], read: ReadFile<'_>) -> Result<(), Vec<KubeconfigProblem>> {
    parse(path, content, read).map(drop)
}

/// Reads the kubeconfig at `path`.
pub(super) fn read(path: &Path) -> Result<Config, Vec<KubeconfigProblem>> {
    let unreadable = |error| vec![KubeconfigProblem::new(None, format!("the file cannot be read: {error}"))];
    let content = read_file(path).map_err(unreadable)?;
    parse(path, &content, &read_file)
}

fn read_file(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let expected = file.metadata().map_or(0, |about| usize::try_from(about.len()).unwrap_or(MAX_FILE));
    read_limited(file, expected, MAX_FILE)
}

/// The configuration of the current context.
fn parse(path: &Path, content: &[u8], read: ReadFile<'_>) -> Result<Config, Vec<KubeconfigProblem>> {
    let only = |problem| vec![problem];
    let text = decode(content).map_err(|why| only(KubeconfigProblem::new(None, why)))?;
    let mut kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| only(not_a_kubeconfig(&text, &error)))?;
    let mut checks = Checks { tree: yaml::parse_document(&text, Aliases::Copied).ok(), read, problems: Vec::new() };
    let Some((cluster, user)) = checks.chosen(&kubeconfig) else { return Err(checks.problems) };
    checks.check_server(&kubeconfig, &cluster);
    let proxy = proxy::of(&kubeconfig).unwrap_or_else(|why| {
        let line = checks.line(&CLUSTERS, &cluster, "proxy-url");
        let why = format!("proxy-url: {why}; expected http, https or socks5 and a host");
        checks.problems.push(KubeconfigProblem::new(line, why));
        None
    });
    let folder = path.parent().unwrap_or(Path::new(""));
    // As the library does, which takes the first one of a name.
    if let Some(named) = kubeconfig.clusters.iter_mut().find(|named| named.name == cluster)
        && let Some(values) = &mut named.cluster
    {
        // Without one of its own, the library takes the proxy of the environment.
        values.proxy_url = Some(NO_PROXY.to_owned());
        checks.inline_authority(&cluster, values, folder);
    }
    let mut in_files = ClientFiles::default();
    if let Some(named) = kubeconfig.auth_infos.iter_mut().find(|named| user.as_ref() == Some(&named.name))
        && let Some(values) = &mut named.auth_info
    {
        in_files = checks.inline_identity(&named.name, values, folder);
    }
    if !checks.problems.is_empty() {
        return Err(checks.problems);
    }
    let outcome = config_of(kubeconfig).map_err(|error| only(checks.of_library(&cluster, user.as_deref(), &error)));
    let mut config = outcome?;
    config.proxy_url = proxy;
    checks.check_tls(&cluster, user.as_deref(), &config);
    if !checks.problems.is_empty() {
        return Err(checks.problems);
    }
    in_files.put_back(&mut config.auth_info);
    Ok(config)
}

/// UTF-8, or UTF-16 with its byte order mark, as the library reads a file.
fn decode(content: &[u8]) -> Result<Zeroizing<String>, &'static str> {
    let utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let pairs = rest.as_chunks::<2>().0;
        let units = Zeroizing::new(pairs.iter().map(|pair| unit(*pair)).collect::<Vec<_>>());
        String::from_utf16(&units).map_err(|_| "the file is not valid UTF-16")
    };
    let text = match content {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => {
            std::str::from_utf8(rest).map(str::to_owned).map_err(|_| "the file is not text in UTF-8 or UTF-16")
        }
    };
    text.map(Zeroizing::new)
}

/// The problem of a text that the library does not read. Its own error quotes lines of the text.
fn not_a_kubeconfig(text: &str, error: &KubeconfigError) -> KubeconfigProblem {
    match yaml::parse_document(text, Aliases::Copied) {
        Err(YamlError::TooLarge(line)) => KubeconfigProblem::new(Some(line), "too many values, or nested too deeply"),
        Err(error) => KubeconfigProblem::new(Some(error.line()), "not valid YAML"),
        Ok(_) => {
            let location = match error {
                KubeconfigError::Parse(error) => error.location(),
                _ => None,
            };
            let line = location.and_then(|location| usize::try_from(location.line()).ok()).filter(|line| *line > 0);
            KubeconfigProblem::new(
                line,
                "not a kubeconfig: a value of another type than expected, or a key given twice",
            )
        }
    }
}

/// The library's configuration of a kubeconfig whose files are read already; it waits for nothing.
fn config_of(kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).now_or_never().unwrap_or(Err(KubeconfigError::FindPath))
}

/// The files of the client certificate, which are read again when they change.
#[derive(Default)]
struct ClientFiles {
    certificate: bool,
    key: bool,
}

impl ClientFiles {
    /// Takes out what was read of the files, so that the paths count.
    fn put_back(self, user: &mut AuthInfo) {
        if self.certificate {
            user.client_certificate_data = None;
        }
        if self.key {
            user.client_key_data = None;
        }
    }
}

/// A list of a kubeconfig, and the key below which its items have their values.
struct Items {
    list: &'static str,
    values: &'static str,
}

const CLUSTERS: Items = Items { list: "clusters", values: "cluster" };
const CONTEXTS: Items = Items { list: "contexts", values: "context" };
const USERS: Items = Items { list: "users", values: "user" };

/// The checks of one kubeconfig.
struct Checks<'a> {
    /// For the lines.
    tree: Option<Node>,
    read: ReadFile<'a>,
    problems: Vec<KubeconfigProblem>,
}

impl Checks<'_> {
    /// The names of the cluster and of the user of the current context.
    fn chosen(&mut self, kubeconfig: &Kubeconfig) -> Option<(String, Option<String>)> {
        let Some(current) = kubeconfig.current_context.as_ref().filter(|name| !name.is_empty()) else {
            self.problems.push(KubeconfigProblem::new(None, "current-context is not set"));
            return None;
        };
        let named = kubeconfig.contexts.iter().find(|named| named.name == *current);
        let Some(context) = named.and_then(|named| named.context.as_ref()) else {
            let line = self.tree.as_ref().and_then(|tree| entry(tree, "current-context")).map(|(line, _)| line);
            self.problems.push(KubeconfigProblem::new(line, "current-context: there is no context of this name"));
            return None;
        };
        let known = kubeconfig.clusters.iter().any(|named| named.name == context.cluster && named.cluster.is_some());
        if !known {
            let line = self.line(&CONTEXTS, current, "cluster");
            let why = "cluster of the current context: there is no cluster of this name";
            self.problems.push(KubeconfigProblem::new(line, why));
            return None;
        }
        Some((context.cluster.clone(), context.user.clone()))
    }

    fn check_server(&mut self, kubeconfig: &Kubeconfig, cluster: &str) {
        let named = kubeconfig.clusters.iter().find(|named| named.name == cluster);
        let server = named.and_then(|named| named.cluster.as_ref()?.server.as_deref()).unwrap_or_default();
        let line = self.line(&CLUSTERS, cluster, "server");
        let uri = server.parse::<http::Uri>().ok();
        let is_url = uri.as_ref().is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
        });
        let has_user = uri.and_then(|uri| uri.authority().map(|authority| authority.as_str().contains('@')));
        let why = match (server, is_url, has_user) {
            ("", ..) => "server: the cluster of the current context has none",
            (_, false, _) => "server: expected a URL such as https://10.0.0.1:6443",
            (_, true, Some(true)) => "server: expected a URL without a user; use a token or a client certificate",
            _ => return,
        };
        self.problems.push(KubeconfigProblem::new(line, why));
    }

    /// Replaces the file with the authorities by its content, as it would stand in the kubeconfig.
    fn inline_authority(&mut self, cluster: &str, values: &mut Cluster, folder: &Path) {
        values.certificate_authority_data.take_if(|data| data.is_empty());
        let Some(path) = absolute(&mut values.certificate_authority, folder) else { return };
        if values.certificate_authority_data.is_none() {
            values.certificate_authority_data =
                self.read(&CLUSTERS, cluster, "certificate-authority", &path).map(|content| STANDARD.encode(&content));
        }
    }

    /// The same for the client certificate; checks that the token can be used.
    fn inline_identity(&mut self, user: &str, values: &mut AuthInfo, folder: &Path) -> ClientFiles {
        let mut files = ClientFiles::default();
        if let Some(path) = absolute(&mut values.client_certificate, folder)
            && values.client_certificate_data.is_none()
        {
            let content = self.read(&USERS, user, "client-certificate", &path);
            values.client_certificate_data = content.map(|content| STANDARD.encode(&content));
            files.certificate = true;
        }
        if let Some(path) = absolute(&mut values.client_key, folder)
            && values.client_key_data.is_none()
        {
            let content = self.read(&USERS, user, "client-key", &path);
            values.client_key_data = content.map(|content| SecretString::from(STANDARD.encode(&content)));
            files.key = true;
        }
        if let Some(path) = absolute(&mut values.token_file, folder)
            && values.token.is_none()
        {
            self.read(&USERS, user, "tokenFile", &path);
        }
        // The library panics on such a token.
        let is_sent = |token: &SecretString| http::HeaderValue::from_str(token.expose_secret()).is_ok();
        if values.token.as_ref().is_some_and(|token| !is_sent(token)) {
            let line = self.line(&USERS, user, "token");
            let why = "token: it has characters that cannot be sent, such as a line break";
            self.problems.push(KubeconfigProblem::new(line, why));
        }
        if let Some(command) = values.exec.as_mut().and_then(|exec| exec.command.as_mut())
            && command.contains(std::path::MAIN_SEPARATOR)
            && let Some(joined) = folder.join(&*command).to_str()
        {
            *command = joined.to_owned();
        }
        files
    }

    fn read(&mut self, items: &Items, name: &str, key: &str, path: &Path) -> Option<Zeroizing<Vec<u8>>> {
        let content = (self.read)(path);
        if let Err(error) = &content {
            let why = format!("{key}: the file cannot be read: {error}");
            self.problems.push(KubeconfigProblem::new(self.line(items, name, key), why));
        }
        content.ok()
    }

    /// Checks that the authorities and the client certificate can be used.
    fn check_tls(&mut self, cluster: &str, user: Option<&str>, config: &Config) {
        let is_verified = !config.accept_invalid_certs && config.cluster_url.scheme_str() == Some("https");
        if is_verified && config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            let why = "certificate-authority: there is no certificate in PEM form";
            return self.problems.push(KubeconfigProblem::new(self.authority_line(cluster), why));
        }
        let AuthInfo { client_certificate_data: certificate, client_key_data: key, .. } = &config.auth_info;
        if config.root_cert.is_none() && certificate.is_none() && key.is_none() {
            return;
        }
        // Without the rest of the user, whose program would run.
        let mut checked = config.clone();
        checked.auth_info = AuthInfo {
            client_certificate_data: certificate.clone(),
            client_key_data: key.clone(),
            ..AuthInfo::default()
        };
        let problem = match checked.rustls_client_config() {
            Ok(_) => return,
            Err(kube::Error::InferKubeconfig(error)) => self.of_library(cluster, user, &error),
            Err(kube::Error::RustlsTls(RustlsTlsError::AddRootCertificate(_))) => {
                let why = match config.root_cert {
                    Some(_) => "certificate-authority: a certificate cannot be used",
                    None => "certificate-authority is not set, and the system's trusted certificates cannot be used",
                };
                KubeconfigProblem::new(self.authority_line(cluster), why)
            }
            Err(error) => KubeconfigProblem::new(self.identity_line(user), tls_problem(&error)),
        };
        self.problems.push(problem);
    }

    /// The problem that the library's error means. Its text quotes the file.
    fn of_library(&self, cluster: &str, user: Option<&str>, error: &KubeconfigError) -> KubeconfigProblem {
        let (line, why) = match error {
            KubeconfigError::LoadCertificateAuthority(_) => {
                (self.authority_line(cluster), "certificate-authority-data: it is not valid base64")
            }
            KubeconfigError::ParseCertificates(_) => {
                (self.authority_line(cluster), "certificate-authority: it is not valid PEM")
            }
            _ => return KubeconfigProblem::new(self.identity_line(user), data_problem(error)),
        };
        KubeconfigProblem::new(line, why)
    }

    fn authority_line(&self, cluster: &str) -> Option<usize> {
        let keys = ["certificate-authority-data", "certificate-authority"];
        keys.into_iter().find_map(|key| self.line(&CLUSTERS, cluster, key))
    }

    fn identity_line(&self, user: Option<&str>) -> Option<usize> {
        let keys = ["client-key-data", "client-key", "client-certificate-data", "client-certificate"];
        keys.into_iter().find_map(|key| self.line(&USERS, user?, key))
    }

    /// The line of a key among the values of the item of this name.
    fn line(&self, items: &Items, name: &str, key: &str) -> Option<usize> {
        let (_, Node { value: Value::List(listed), .. }) = entry(self.tree.as_ref()?, items.list)? else { return None };
        let is_named = |item: &&Node| match entry(item, "name") {
            Some((_, Node { value: Value::Scalar { text, .. }, .. })) => text.as_str() == name,
            _ => false,
        };
        let (_, values) = entry(listed.iter().find(is_named)?, items.values)?;
        entry(values, key).map(|(line, _)| line)
    }
}

/// The line of a key, and its value.
fn entry<'a>(node: &'a Node, key: &str) -> Option<(usize, &'a Node)> {
    let entry = node.entries()?.iter().find(|entry| entry.key == key)?;
    Some((entry.line, &entry.node))
}

/// Makes a path relative to the folder of the kubeconfig absolute; an empty one is none, as in client-go.
fn absolute(path: &mut Option<String>, folder: &Path) -> Option<PathBuf> {
    *path = path.take().filter(|path| !path.is_empty()).map(|path| match folder.join(&path).to_str() {
        Some(joined) => joined.to_owned(),
        None => path,
    });
    path.as_ref().map(PathBuf::from)
}

/// What is wrong with a client certificate that cannot be read.
pub(super) fn data_problem(error: &KubeconfigError) -> String {
    let (key, error) = match error {
        KubeconfigError::LoadClientCertificate(error) => ("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => ("client-key", error),
        _ => return "the kubeconfig cannot be used".to_owned(),
    };
    match error {
        LoadDataError::ReadFile(source, _) => format!("{key}: the file cannot be read: {source}"),
        LoadDataError::DecodeBase64(_) => format!("{key}: it is not valid base64"),
        LoadDataError::NoBase64DataOrFile => format!("{key}: it is missing"),
    }
}

/// What is wrong with the certificates for a connection. The library's own error may quote a line of the private key.
pub(super) fn tls_problem(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::RustlsTls(RustlsTlsError::AddRootCertificate(_)) => {
            "the certificates of the authorities for the API server cannot be used"
        }
        kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(_)) => "tls-server-name: expected a host name",
        kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_)) => {
            "client-certificate and client-key: they are not valid PEM"
        }
        kube::Error::RustlsTls(RustlsTlsError::MissingPrivateKey) => {
            "client-key: there is no private key in PEM form that is not encrypted"
        }
        kube::Error::RustlsTls(RustlsTlsError::MissingCertificate) => {
            "client-certificate: there is no certificate in PEM form"
        }
        kube::Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(_)) => {
            "client-key: it cannot be used, or is not that of the certificate"
        }
        _ => "client-certificate and client-key: they cannot be used",
    }
}
