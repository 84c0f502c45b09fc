//! Tests that no error, warning or log line contains text of a file that may hold a secret. Each parser of such files
//! gets broken files of many formats, including formats that it does not expect.

use super::*;
use crate::app::files::FileSystem;
use crate::app::settings::vsphere::CloudConfigFile;
use crate::base::error_chain::chain;
use crate::clients::token::HolderKey;
use crate::kubernetes::access::check_bundle;
use crate::kubernetes::client::check_kubeconfig;
use crate::providers::vsphere::login::credentials::layout::{SessionManagers, StoredKeys};
use crate::providers::vsphere::login::credentials::{ReadToken, layout};
use crate::runtime::admin::given_certificate;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

/// The secret in each file.
const SECRET: &str = "hunter2Kq9Zt";

/// Returns all messages about a file with this content.
type Parser = fn(&[u8]) -> String;

/// All parsers of files that may hold a secret, and of files that an operator may confuse with them.
const PARSERS: &[(&str, Parser)] = &[
    ("vsphere.conf", cloud_config),
    ("ca-file of vsphere.conf", |content| named_by_cloud_config("ca-file = /file", content)),
    ("files of NSXT", nsx_files),
    ("kubeconfig", kubeconfig),
    ("certificate-authority of a kubeconfig", |content| named_by_kubeconfig("certificate-authority", content)),
    ("client certificate of a kubeconfig", |content| named_by_kubeconfig("client-certificate", content)),
    ("client key of a kubeconfig", |content| named_by_kubeconfig("client-key", content)),
    ("token of a kubeconfig", |content| named_by_kubeconfig("tokenFile", content)),
    ("--client-ca-file", |content| check_bundle(content).err().map(|error| shown(&error)).unwrap_or_default()),
    ("--tls-cert-file", |content| served(content, content)),
    ("--tls-private-key-file", |content| served(pair().0.as_bytes(), content)),
    ("--leader-migration-config", leader_migration),
    ("values of a Secret or a directory", stored),
    ("a Secret of the type basic-auth", |content| told_of(StoredKeys::read_basic_auth([("password", content)]))),
    ("key of a certificate as user name", holder_key),
];

fn shown(error: &(dyn std::error::Error + 'static)) -> String {
    format!("{} {error:?}", chain(error))
}

/// A file system that returns `text` at the path `first` and `content` at all other paths.
struct OneFile<'a> {
    first: &'static str,
    text: String,
    content: &'a [u8],
}

impl FileSystem for OneFile<'_> {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let is_first = path == Path::new(self.first);
        Ok(Zeroizing::new(if is_first { self.text.as_bytes().to_vec() } else { self.content.to_vec() }))
    }

    fn is_directory(&self, _: &Path) -> bool {
        false
    }
}

fn checked(content: &[u8], files: &dyn FileSystem) -> String {
    let (path, environment) = ("/etc/vsphere.conf".into(), Environment::default());
    let file = CloudConfigFile { path, environment, ipv6_pools: Default::default() };
    match file.check(content, files) {
        Err(mistakes) => format!("{mistakes} {mistakes:?}"),
        Ok(cloud_config) => {
            let oddities: Vec<String> = cloud_config.notices.iter().map(ToString::to_string).collect();
            let unverified = cloud_config.unverified();
            format!("{oddities:?} {unverified:?} {:?} {cloud_config:?}", cloud_config.rejected)
        }
    }
}

fn cloud_config(content: &[u8]) -> String {
    checked(content, &OneFile { first: "", text: String::new(), content })
}

fn named_by_cloud_config(line: &str, content: &[u8]) -> String {
    let text = format!("[VirtualCenter \"a\"]\nuser = u\npassword = p\n{line}\n");
    checked(text.as_bytes(), &OneFile { first: "", text: String::new(), content })
}

fn nsx_files(content: &[u8]) -> String {
    let text = "[VirtualCenter \"a\"]\nuser = u\npassword = p\n[NSXT]\nhost = n\nclient-auth-cert-file = /c\n\
                client-auth-key-file = /k\nca-file = /ca\n";
    let swapped = OneFile { first: "/c", text: pair().0, content };
    checked(text.as_bytes(), &OneFile { first: "", text: String::new(), content }) + &checked(text.as_bytes(), &swapped)
}

fn kubeconfig(content: &[u8]) -> String {
    let read = |_: &Path| Ok(Zeroizing::new(content.to_vec()));
    format!("{:?}", check_kubeconfig(Path::new("/etc/kubeconfig"), content, &read))
}

fn named_by_kubeconfig(key: &str, content: &[u8]) -> String {
    let (certificate, own) = pair();
    let mut cluster = serde_json::json!({"server": "https://a"});
    let mut user = match key {
        "client-certificate" => serde_json::json!({"client-key-data": STANDARD.encode(own)}),
        "client-key" => serde_json::json!({"client-certificate-data": STANDARD.encode(certificate)}),
        _ => serde_json::json!({}),
    };
    let place = if key == "certificate-authority" { &mut cluster } else { &mut user };
    place[key] = "/file".into();
    let text = serde_json::json!({
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
        "current-context": "x",
    });
    let read = |_: &Path| Ok(Zeroizing::new(content.to_vec()));
    format!("{:?}", check_kubeconfig(Path::new("/etc/kubeconfig"), text.to_string().as_bytes(), &read))
}

fn served(certificate: &[u8], key: &[u8]) -> String {
    given_certificate(certificate, key).err().map(|error| shown(&error)).unwrap_or_default()
}

fn leader_migration(content: &[u8]) -> String {
    let text = std::str::from_utf8(content).unwrap_or_default();
    settings::leader_migration::parse(text).err().map(|mistakes| mistakes.join("; ")).unwrap_or_default()
}

/// A token source without a token.
struct NoToken;

#[async_trait]
impl ReadToken for NoToken {
    async fn read(&self) -> Result<SecretString, String> {
        Err("none".to_owned())
    }
}

fn stored(content: &[u8]) -> String {
    let managers = SessionManagers { account: Arc::new(NoToken), hosts: Default::default() };
    let keys = ["a.username", "a.password", "b.username", "c.vc-session-manager-token", "username_1", "password_1"];
    told_of(StoredKeys::read(keys.map(|key| (key, Some(content))), &managers))
}

fn told_of(stored: layout::StoredKeys) -> String {
    let wrong: Vec<_> = stored.servers.values().filter_map(|login| login.as_ref().err()).collect();
    format!("{wrong:?} {:?}", stored.problems)
}

fn holder_key(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(content).into_owned();
    let as_certificate = HolderKey::from_pem(&text, &SecretString::from(text.clone()));
    let as_key = HolderKey::from_pem(&pair().0, &SecretString::from(text));
    format!("{:?} {:?}", as_certificate.err(), as_key.err())
}

/// Returns a certificate and its key as PEM.
fn pair() -> (String, String) {
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

/// Broken files. The word `SECRET` marks the place of the secret.
fn shapes() -> Vec<Vec<u8>> {
    let texts = [
        // INI.
        "[Global]\npassword = \"SECRET\n",
        "[Global]\npassword = SE\"CRET\nSECRET\"\n",
        "[Global\npassword = SECRET\n",
        "[Global]\nuser = u\npassword SECRET\n",
        "[Global]\nuser = u\npassword: SECRET\n",
        "[Global]\npassword = \"SECRET\\q\"\n",
        "[Global]\npassword = SECRET\\\n",
        "[Global]\npassword = \"a\\\nSECRET\n",
        "[Global]\nuser = u\npassword = a;SECRET\n",
        "[Global]\nuser = u\npassword = a #SECRET\n",
        "[Global]\nuser = u\npassword = 'SECRET'\n",
        "[Global]\nuser = u\npassword = ${SECRET}\n",
        "[Global]\npassword = SECRET\npassword = SECRET2\n",
        "[Global] password = SECRET\n",
        "password = SECRET\n",
        "GOVC_PASSWORD=SECRET\nexport GOVC_USERNAME=u\n",
        "[Global]\npassword = SECRET\nport = x\ninsecure-flag = maybe\nthumbprint = 12\n",
        "[VirtualCenter \"a\"]\nuser = u\npassword = SECRET\nport = no\n",
        "[NSXT]\npassword = SECRET\nvmc-access-token = SECRET\n",
        // YAML.
        "global:\n  password: \"SECRET\n",
        "global:\n  password: 'SECRET\n",
        "global:\n  password: SECRET: SECRET\n",
        "global:\n\tpassword: SECRET\n",
        "global:\n  password: @SECRET\n",
        "global:\n  password: %SECRET\n",
        "global:\n  password: *SECRET\n",
        "global:\n  password: !SECRET\n",
        "global:\n  password: [SECRET\n",
        "global:\n  password: [SECRET]\n",
        "global:\n  password: {a: SECRET}\n",
        "global:\n  password: SECRET\n password: SECRET\n",
        "global:\n  password: SECRET\n  password: SECRET\n",
        "global:\n  port: no\n  password: a #SECRET\n",
        "global: SECRET\nvcenter: SECRET\n",
        "global:\n- SECRET\n",
        "vcenter:\n  a: SECRET\n",
        "vcenters:\n  a: {password: SECRET}\n",
        "nsxt:\n  password: SECRET\n  vmcAccessToken: SECRET\n",
        "global: !!binary SECRET\n",
        "- SECRET\n",
        "SECRET\n",
        "SECRET: SECRET: SECRET\n",
        "apiVersion: v1\nkind: Secret\nstringData:\n  a.password: SECRET\n",
        "apiVersion: v1\nkind: ConfigMap\ndata: {vsphere.conf: \"password = SECRET\"}\n",
        "---\n---\nglobal: {password: SECRET\n",
        // JSON.
        "{\"global\": {\"password\": \"SECRET\"",
        "{\"global\": {\"password\": SECRET\"}}",
        "{\"token\": \"SECRET\",}",
        "[\"SECRET\", ",
        // Kubeconfigs.
        "clusters: SECRET\nusers: SECRET\n",
        "clusters: []\nusers: [{name: u, user: {token: [SECRET]}}]\n",
        "users:\n- name: u\n  user:\n    token: \"SECRET\n",
        "users:\n- name: u\n  user:\n    token: SECRET\n   client-key-data: SECRET\n",
        "users: [{name: u, user: {token: SECRET, token: SECRET}}]\n",
        "users: [{name: u, user: {client-key-data: SECRET, client-certificate-data: SECRET}}]\nCONTEXT",
        "users: [{name: u, user: {exec: SECRET}}]\nCONTEXT",
        "users: [{name: u, user: {exec: {command: x, env: SECRET}}}]\nCONTEXT",
        "users: [{name: u, user: {auth-provider: {name: gcp, config: [SECRET]}}}]\nCONTEXT",
        "users: [{name: u, user: {username: SECRET, password: {a: SECRET}}}]\nCONTEXT",
        "current-context: SECRET\n",
        "current-context: x\ncontexts: [{name: x, context: {cluster: SECRET, user: SECRET}}]\n",
        // PEM.
        "-----BEGIN PRIVATE KEY----- SECRET -----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----SECRET\nSECRET\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nSECRET\n",
        "-----BEGIN PRIVATE KEY-----\nSECRET!\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END SECRET-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info SECRET\n\nSECRET\n-----END RSA PRIVATE KEY-----\n",
        "-----BEGIN CERTIFICATE-----\nSECRET\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE----- SECRET\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nSECRET\n-----END PRIVATE KEY-----\n",
        "-----BEGIN SECRET\n",
        "-----BEGIN SECRET-----\nSECRET\n-----END SECRET-----\n",
        // Tokens.
        "SECRET.SECRET.SECRET",
        "Bearer SECRET\r\nX: SECRET",
    ];
    let context = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n\
                   clusters: [{name: c, cluster: {server: 'https://a'}}]\n";
    let filled = texts.map(|text| text.replace("CONTEXT", context).replace("SECRET", SECRET));
    let mut shapes: Vec<Vec<u8>> = Vec::new();
    for text in filled {
        shapes.push(text.replace('\n', "\r\n").into_bytes());
        shapes.push([text.as_bytes(), &[0xff, 0xfe, 0]].concat());
        shapes.push([&[0xff, 0xfe][..], text.as_bytes()].concat());
        shapes.push(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
        shapes.push([&[0xef, 0xbb, 0xbf][..], text.as_bytes()].concat());
        shapes.push(text.into_bytes());
    }
    shapes
}

/// Returns true if the text contains the secret: as it is, as base64, as a list of byte values, or as escaped UTF-16.
fn has_secret(text: &str) -> bool {
    let numbers = format!("{:?}", &SECRET.as_bytes()[..4]);
    let base64: String = STANDARD.encode(SECRET).chars().take(12).collect();
    let utf16 = SECRET.chars().map(|char| format!("{char}\\0")).collect::<String>();
    [SECRET, &base64, numbers.trim_matches(['[', ']']), &utf16].iter().any(|form| text.contains(form))
}

/// Collects all log events, of all levels.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.0.lock().unwrap().push_str(&format!("{attributes:?}\n"));
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        self.0.lock().unwrap().push_str(&format!("{values:?}\n"));
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lock().unwrap().push_str(&format!("{event:?}\n"));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn no_parser_of_a_file_tells_what_is_in_it() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut leaks = Vec::new();
    for shape in shapes() {
        for (parser, parse) in PARSERS {
            let log = Log::default();
            let reported = tracing::subscriber::with_default(log.clone(), || parse(&shape));
            let logged = log.0.lock().unwrap().clone();
            if has_secret(&reported) || has_secret(&logged) {
                leaks.push(format!("{parser}: {:?}: {reported}{logged}", String::from_utf8_lossy(&shape)));
            }
        }
    }
    assert!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
}

/// Each parser rejects at least one of the broken files. Otherwise the test above would check nothing.
#[test]
fn every_parser_refuses_something() {
    let shapes = shapes();
    for (parser, parse) in PARSERS.iter().filter(|(parser, _)| *parser != "token of a kubeconfig") {
        let empty = parse(b"");
        assert!(shapes.iter().any(|shape| parse(shape) != empty && !parse(shape).is_empty()), "{parser}");
    }
}
