//! Reads a kubeconfig and the files that it names. Errors name line and key. Errors contain no text of the files,
//! because the text may be a token or a private key; the library's errors quote it.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::FutureExt;
use kube::Config;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use super::files::{ReadFile, read_file};
use super::{credentials, exec, identity, proof, proxy, transport, verifier};
use crate::base::pem;
use crate::base::yaml::decoder::{self, TypeError};
use crate::base::yaml::{self, Node, Value, YamlError};

/// Placeholder that keeps the library from using the environment's proxy. The kubeconfig's proxy replaces it.
const NO_PROXY: &str = "http://none.invalid";

/// An error in a kubeconfig. Contains no text of the kubeconfig or of the files that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigProblem {
    /// Line of the error, counted from 1, if known.
    pub line: Option<usize>,
    /// The error, and the expected value.
    pub reason: String,
}

impl KubeconfigProblem {
    pub(super) fn new(line: Option<usize>, why: impl Into<String>) -> Self {
        Self { line, reason: why.into() }
    }
}

impl fmt::Display for KubeconfigProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "line {line}: {}", self.reason),
            None => formatter.write_str(&self.reason),
        }
    }
}

/// Checks the kubeconfig `content` of `path` and the files that it names, as far as possible without network. Runs no
/// program.
///
/// # Errors
/// Returns the problems found.
pub fn check_kubeconfig(path: &Path, content: &[u8], read: ReadFile<'_>) -> Result<(), Vec<KubeconfigProblem>> {
    parse(path, content, read).map(drop)
}

pub(super) fn read(path: &Path) -> Result<Config, Vec<KubeconfigProblem>> {
    let unreadable = |error| vec![KubeconfigProblem::new(None, format!("the file cannot be read: {error}"))];
    let content = read_file(path).map_err(unreadable)?;
    parse(path, &content, &read_file)
}

fn parse(path: &Path, content: &[u8], read: ReadFile<'_>) -> Result<Config, Vec<KubeconfigProblem>> {
    let only = |problem| vec![problem];
    let text = decode(content).map_err(|reason| only(KubeconfigProblem::new(None, reason)))?;
    let documents = yaml::parse_documents(&text).map_err(|error| only(not_yaml(error)))?;
    let mut kubeconfig = decode_documents(&documents).map_err(|error| only(not_a_kubeconfig(error)))?;
    let mut checks = Checks { tree: documents.into_iter().next(), read, problems: Vec::new() };
    let Some((cluster, user)) = checks.chosen(&kubeconfig) else { return Err(checks.problems) };
    let folder = path.parent().unwrap_or(Path::new(""));
    // If several clusters have the same name, the library also takes the first.
    let named = kubeconfig.clusters.iter_mut().find(|named| named.name == cluster);
    let mut missing = Cluster::default();
    let values = named.and_then(|named| named.cluster.as_mut()).unwrap_or(&mut missing);
    checks.check_server(&cluster, values.server.as_deref().unwrap_or_default());
    // Without a `proxy_url`, the library would use the environment's proxy.
    let named_proxy = values.proxy_url.replace(NO_PROXY.to_owned()).filter(|text| !text.is_empty());
    let proxy = named_proxy.as_deref().map(proxy::parse).transpose().unwrap_or_else(|reason| {
        let reason = format!("proxy-url: {reason}; expected http, https or socks5 and a host");
        checks.problem(&CLUSTERS, &cluster, "proxy-url", &reason);
        None
    });
    checks.check_cluster(&cluster, values, proxy.as_ref(), folder);
    if let Some(named) = kubeconfig.auth_infos.iter_mut().find(|named| user.as_ref() == Some(&named.name))
        && let Some(values) = &mut named.auth_info
    {
        checks.check_user(&named.name, values, folder);
    }
    if !checks.problems.is_empty() {
        return Err(checks.problems);
    }
    let unusable = |_| only(KubeconfigProblem::new(None, "the kubeconfig cannot be used"));
    let mut config = config_of(kubeconfig).map_err(unusable)?;
    config.proxy_url = proxy;
    if let Some(cluster) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
        // Otherwise the library would pass `NO_PROXY` to the `exec` program.
        cluster.proxy_url = named_proxy;
    }
    if config.root_cert.is_none() && verifier::client_config(&config, None).is_err() {
        let why = "certificate-authority is not set, and the system's trusted certificates cannot be used";
        return Err(only(KubeconfigProblem::new(None, why)));
    }
    Ok(config)
}

/// Decodes UTF-8, or UTF-16 with a byte order mark, as the library does.
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

/// Merges the documents as the library does: the first value of each key and name counts.
///
/// The library's own decoder of YAML is not used: for these types it is several times the code, and its errors quote the
/// text.
fn decode_documents(documents: &[Node]) -> Result<Kubeconfig, TypeError> {
    let mut merged = Kubeconfig::default();
    for document in documents {
        let next: Kubeconfig = decoder::decode(document)?;
        merged = merged.merge(next).map_err(|_| TypeError { line: Some(document.line) })?;
    }
    Ok(merged)
}

fn not_yaml(error: YamlError) -> KubeconfigProblem {
    match error {
        YamlError::TooLarge(line) => KubeconfigProblem::new(Some(line), "too many values, or nested too deeply"),
        YamlError::Syntax(_) | YamlError::Alias(_) => KubeconfigProblem::new(Some(error.line()), "not valid YAML"),
    }
}

fn not_a_kubeconfig(error: TypeError) -> KubeconfigProblem {
    KubeconfigProblem::new(error.line, format!("not a kubeconfig: {error}"))
}

/// Converts a kubeconfig whose files are already read. The library's future then completes immediately.
fn config_of(kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).now_or_never().unwrap_or(Err(KubeconfigError::FindPath))
}

/// A list in a kubeconfig, and the key that contains the values of an item.
struct Items {
    list: &'static str,
    values: &'static str,
}

const CLUSTERS: Items = Items { list: "clusters", values: "cluster" };
const CONTEXTS: Items = Items { list: "contexts", values: "context" };
const USERS: Items = Items { list: "users", values: "user" };

struct Checks<'a> {
    tree: Option<Node>,
    read: ReadFile<'a>,
    problems: Vec<KubeconfigProblem>,
}

impl Checks<'_> {
    /// Returns the names of the current context's cluster and user. If the context or its cluster is missing, adds a
    /// problem and returns `None`.
    fn chosen(&mut self, kubeconfig: &Kubeconfig) -> Option<(String, Option<String>)> {
        let Some(current) = kubeconfig.current_context.as_ref().filter(|name| !name.is_empty()) else {
            self.problems.push(KubeconfigProblem::new(None, "current-context is not set"));
            return None;
        };
        let named = kubeconfig.contexts.iter().find(|named| named.name == *current);
        let Some(context) = named.and_then(|named| named.context.as_ref()) else {
            let line = self.tree.as_ref().and_then(|tree| tree.entry("current-context")).map(|(line, _)| line);
            self.problems.push(KubeconfigProblem::new(line, "current-context: there is no context of this name"));
            return None;
        };
        let known = kubeconfig.clusters.iter().any(|named| named.name == context.cluster && named.cluster.is_some());
        if !known {
            let reason = "cluster of the current context: there is no cluster of this name";
            self.problem(&CONTEXTS, current, "cluster", reason);
            return None;
        }
        Some((context.cluster.clone(), context.user.clone()))
    }

    fn check_server(&mut self, cluster: &str, server: &str) {
        let uri = server.parse::<http::Uri>().ok();
        let is_url = uri.as_ref().is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
        });
        let has_user = uri.and_then(|uri| uri.authority().map(|authority| authority.as_str().contains('@')));
        let reason = match (server, is_url, has_user) {
            ("", ..) => "server: the cluster of the current context has none",
            (_, false, _) => "server: expected a URL such as https://10.0.0.1:6443",
            (_, true, Some(true)) => "server: expected a URL without a user; use a token or a client certificate",
            _ => return,
        };
        self.problem(&CLUSTERS, cluster, "server", reason);
    }

    /// Checks `tls-server-name` and the authorities. Stores the authorities inline, without certificates that cannot be
    /// parsed.
    fn check_cluster(&mut self, cluster: &str, values: &mut Cluster, proxy: Option<&http::Uri>, folder: &Path) {
        values.tls_server_name.take_if(|name| name.is_empty());
        if let Some(Err(reason)) = values.tls_server_name.as_deref().map(transport::server_name) {
            self.problem(&CLUSTERS, cluster, "tls-server-name", reason);
        }
        absolute(&mut values.certificate_authority, folder);
        let keys = ["certificate-authority-data", "certificate-authority"];
        let data = values.certificate_authority_data.take();
        let file = values.certificate_authority.take();
        let source = match identity::source(keys, data.as_deref(), file.as_deref(), self.read) {
            Ok(Some(source)) => source,
            Ok(None) => return,
            Err(problem) => return self.problem(&CLUSTERS, cluster, problem.key, &problem.to_string()),
        };
        let listed = verifier::read_bundle(&source.text);
        let server = values.server.as_deref().unwrap_or_default();
        let is_tls = server.starts_with("https:") || proxy.is_some_and(proxy::is_tls);
        let is_verified = is_tls && values.insecure_skip_tls_verify != Some(true);
        // An empty file selects the system's authorities, as in client-go.
        if listed.is_empty() && is_verified && !source.text.trim_ascii().is_empty() {
            let problem = source.no_certificate(&pem::blocks(&source.text));
            return self.problem(&CLUSTERS, cluster, problem.key, &problem.to_string());
        }
        if !listed.is_empty() {
            let block =
                |der| format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der));
            values.certificate_authority_data = Some(STANDARD.encode(listed.iter().map(block).collect::<String>()));
        }
    }

    /// Checks the credentials without running a program. Resolves relative paths against `folder`.
    fn check_user(&mut self, user: &str, values: &mut AuthInfo, folder: &Path) {
        // Removes empty inline data, so that the file is used, and reloaded when it changes.
        values.client_certificate_data.take_if(|data| data.is_empty());
        values.client_key_data.take_if(|data| data.expose_secret().is_empty());
        absolute(&mut values.client_certificate, folder);
        absolute(&mut values.client_key, folder);
        if let Err(problem) = identity::of(values, self.read) {
            self.problem(&USERS, user, problem.key, &problem.to_string());
        }
        let token = values.token.as_ref().map(|token| token.expose_secret()).filter(|token| !token.is_empty());
        let in_file = absolute(&mut values.token_file, folder).map(|path| {
            let content = (self.read)(&path).map_err(|error| identity::unreadable(&error))?;
            proof::token_header(&content).map_err(|error| error.0)
        });
        match (in_file, token.map(proof::bearer)) {
            (Some(Err(reason)), None) => self.problem(&USERS, user, "tokenFile", &format!("tokenFile: {reason}")),
            // The inline token is used until the file has been read once.
            (None | Some(Err(_)), Some(Err(error))) => self.problem(&USERS, user, "token", &format!("token: {error}")),
            _ => {}
        }
        if let Some(Err(why)) = values.auth_provider.as_ref().map(credentials::token_of) {
            self.problem(&USERS, user, "auth-provider", &why);
        }
        let Some(exec) = &mut values.exec else { return };
        if let Some(why) = exec::problem(exec) {
            self.problem(&USERS, user, "exec", why);
        }
        if let Some(command) = &mut exec.command
            && command.contains(std::path::MAIN_SEPARATOR)
            && let Some(joined) = folder.join(&*command).to_str()
        {
            *command = joined.to_owned();
        }
    }

    fn problem(&mut self, items: &Items, name: &str, key: &str, reason: &str) {
        self.problems.push(KubeconfigProblem::new(self.line(items, name, key), reason));
    }

    /// Returns the line of a key in the named item.
    fn line(&self, items: &Items, name: &str, key: &str) -> Option<usize> {
        let (_, Node { value: Value::List(listed), .. }) = self.tree.as_ref()?.entry(items.list)? else { return None };
        let is_named = |item: &&Node| match item.entry("name") {
            Some((_, Node { value: Value::Scalar { text, .. }, .. })) => text.as_str() == name,
            _ => false,
        };
        let (_, values) = listed.iter().find(is_named)?.entry(items.values)?;
        values.entry(key).map(|(line, _)| line)
    }
}

/// Resolves a path against `folder`, the folder of the kubeconfig. As in client-go, an empty path is ignored.
fn absolute(path: &mut Option<String>, folder: &Path) -> Option<PathBuf> {
    *path = path.take().filter(|path| !path.is_empty()).map(|path| match folder.join(&path).to_str() {
        Some(joined) => joined.to_owned(),
        None => path,
    });
    path.as_ref().map(PathBuf::from)
}
