//! The section `NSXT` and its environment variables: the address of NSX and the login. Pure.
//!
//! Mirrors `pkg/nsxt/config`, with two differences: the variables are applied before the checks, and credentials that
//! are never used cause a warning.

use std::fmt;
use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use super::fields::RawSection;
use super::optional_sections::{OptionalSection, PartName};
use super::problems::ProblemReport;
use crate::base::addresses::parse_ip;
use crate::providers::vsphere::login::credentials::Credentials;
use crate::providers::vsphere::login::credentials::source::SourceLocation;

const DEFAULT_PORT: u16 = 443;

/// The connection to NSX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NsxConfig {
    /// Host name or IP address, IPv6 without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The prefix of each request path: empty, or `/prefix` without a trailing slash.
    pub path_prefix: String,
    /// Whether the server's certificate is not verified.
    pub insecure: bool,
    /// A PEM file that replaces the system's roots. Its existence is not checked here.
    pub ca_file: Option<PathBuf>,
    /// Whether user and password belong to vIDM (`Remote` instead of `Basic`).
    pub remote_auth: bool,
    /// The login method.
    pub login: NsxLogin,
}

/// Login methods for NSX, in order of precedence. `Debug` prints no secrets.
#[derive(Clone)]
pub enum NsxLogin {
    /// TLS client certificate. The existence of the files is not checked here.
    Certificate {
        /// The PEM file of the certificate.
        certificate: PathBuf,
        /// The PEM file of the certificate's private key.
        key: PathBuf,
    },
    /// API token of VMware Cloud, which is exchanged for access tokens.
    VmcToken {
        /// The API token.
        token: SecretString,
        /// Host and path of the token service, without scheme.
        host: String,
    },
    /// User and password.
    Pair {
        /// A Secret with the keys `username` and `password`, or user and password from the cloud config or from
        /// environment variables.
        credentials: Credentials,
        /// User and password from the cloud config or from environment variables, used until the Secret has a valid
        /// user and password.
        fallback: Option<Credentials>,
    },
}

impl NsxLogin {
    /// Returns host, port and path of the token service; `None` for other login methods.
    pub fn token_service(&self) -> Option<(String, u16, String)> {
        let Self::VmcToken { host, .. } = self else { return None };
        let (host, port, path) = parse_host(host)?;
        Some((host, port, if path.is_empty() { "/".to_owned() } else { path }))
    }
}

/// The comparison is not in constant time: both values are configurations of this process, so timing discloses nothing.
impl PartialEq for NsxLogin {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Certificate { certificate, key }, Self::Certificate { certificate: other, key: other_key }) => {
                certificate == other && key == other_key
            }
            (Self::VmcToken { token, host }, Self::VmcToken { token: other, host: other_host }) => {
                token.expose_secret() == other.expose_secret() && host == other_host
            }
            (Self::Pair { credentials, fallback }, Self::Pair { credentials: other, fallback: other_fallback }) => {
                credentials == other && fallback == other_fallback
            }
            _ => false,
        }
    }
}

impl Eq for NsxLogin {}

/// Omits user names, because an operator may have written the password there.
impl fmt::Debug for NsxLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate { certificate, key } => {
                formatter.debug_struct("Certificate").field("certificate", certificate).field("key", key).finish()
            }
            Self::VmcToken { host, .. } => {
                formatter.debug_struct("VmcToken").field("host", host).finish_non_exhaustive()
            }
            Self::Pair { credentials: Credentials::Stored(location), .. } => location.fmt(formatter),
            Self::Pair { .. } => formatter.debug_struct("Password").finish_non_exhaustive(),
        }
    }
}

const USER: &str = "user";
const PASSWORD: &str = "password";
const TOKEN: &str = "vmc-access-token";
const AUTH_HOST: &str = "vmc-auth-host";
const CERTIFICATE: &str = "client-auth-cert-file";
const KEY: &str = "client-auth-key-file";
const CA_FILE: &str = "ca-file";
const SECRET_NAME: &str = "secret-name";
const SECRET_NAMESPACE: &str = "secret-namespace";

/// Keys that need another key, with the error texts of the Go program. As in the Go program, only the first row whose
/// key is given applies.
const RULES: [(&str, &str, &str); 6] = [
    (TOKEN, AUTH_HOST, "vmc auth host must be provided if auth token is provided"),
    (USER, PASSWORD, "password is empty"),
    (KEY, CERTIFICATE, "client cert file is required if client key file is provided"),
    (CERTIFICATE, KEY, NO_KEY),
    (SECRET_NAME, SECRET_NAMESPACE, "secret namespace is required if secret name is provided"),
    (SECRET_NAMESPACE, SECRET_NAME, "secret name is required if secret namespace is provided"),
];

const FILES: [&str; 3] = [CA_FILE, CERTIFICATE, KEY];

const NO_KEY: &str = "client key file is required if client cert file is provided";

const NO_LOGIN: &str = "user or vmc access token or client cert file must be set";

const HOST: &str = "expected a host name or IP address, then :port and /prefix where they are needed, without scheme";

/// The login methods in order of precedence: their names in messages, and their keys.
const LOGINS: [(&str, [&str; 2]); 4] = [
    ("the client certificate", [CERTIFICATE, KEY]),
    ("the VMC token", [TOKEN, AUTH_HOST]),
    ("the Secret", [SECRET_NAME, SECRET_NAMESPACE]),
    ("user and password", [USER, PASSWORD]),
];

pub(super) fn check(
    file: &RawSection,
    variables: &RawSection,
    report: &mut ProblemReport,
) -> OptionalSection<NsxConfig> {
    // As in the Go program, variables alone define no connection.
    if file.line.is_none() {
        return OptionalSection::Absent;
    }
    let given = GivenSection { file, variables };
    check_rules(&given, report);
    let host = match given.text("host") {
        None => {
            given.require("host", "host is empty", report);
            None
        }
        Some(text) => given.host("host", text, report),
    };
    // Without a token, the token service is unused, as in the Go program.
    if let Some(text) = given.text(AUTH_HOST).filter(|_| given.text(TOKEN).is_some()) {
        given.host(AUTH_HOST, text, report);
    }
    let login = given.login(report);
    for key in FILES.into_iter().filter(|key| given.text(key).is_some()) {
        report.record_nsx_file(given.section(key), key);
    }
    match (host, login) {
        (Some((host, port, path_prefix)), Some(login)) if !report.is_refused(PartName::Nsx) => {
            OptionalSection::Used(NsxConfig {
                host,
                port,
                path_prefix,
                insecure: given.flag("insecure-flag"),
                ca_file: given.text(CA_FILE).map(PathBuf::from),
                remote_auth: given.flag("remote-auth"),
                login,
            })
        }
        _ => OptionalSection::Refused,
    }
}

fn check_rules(given: &GivenSection<'_>, report: &mut ProblemReport) {
    let chosen = RULES.into_iter().find(|(key, _, _)| given.text(key).is_some());
    match chosen {
        Some((_, needed, rule)) => given.require(needed, rule, report),
        // If a login key has a reported error, the login is not reported as missing.
        None if LOGINS.iter().flat_map(|(_, keys)| keys).any(|key| given.file.has_error_at(key)) => {}
        None => given.require(USER, NO_LOGIN, report),
    }
    // A certificate always takes precedence. Without the key of the certificate, the Go program fails at startup.
    if chosen.is_some_and(|(key, ..)| key != CERTIFICATE) && given.text(CERTIFICATE).is_some() {
        given.require(KEY, NO_KEY, report);
    }
}

/// The section of the file, and the variables. The variables take precedence.
struct GivenSection<'a> {
    file: &'a RawSection,
    variables: &'a RawSection,
}

impl<'a> GivenSection<'a> {
    /// Returns the variables if they contain the key; otherwise the section of the file.
    fn section(&self, key: &str) -> &'a RawSection {
        if self.variables.text(key).is_some() { self.variables } else { self.file }
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.section(key).text(key)
    }

    fn flag(&self, key: &str) -> bool {
        self.variables.flag(key).or(self.file.flag(key)).unwrap_or_default()
    }

    /// Reports a missing key, unless an error in its value was already reported or a part of the file is unreadable.
    fn require(&self, key: &str, rule: &str, report: &mut ProblemReport) {
        let is_mistake = self.file.has_error_at(key) || self.variables.has_error_at(key);
        if self.text(key).is_none() && !is_mistake && report.is_readable {
            report.error_at(self.file, Some(key), rule);
        }
    }

    fn host(&self, key: &str, text: &str, report: &mut ProblemReport) -> Option<(String, u16, String)> {
        let host = parse_host(text);
        if host.is_none() {
            report.error_at(self.section(key), Some(key), HOST);
        }
        host
    }

    /// Chooses the first complete login, and warns of keys of other logins that are not used.
    fn login(&self, report: &mut ProblemReport) -> Option<NsxLogin> {
        let is_complete = |keys: &[&str; 2]| keys.iter().all(|key| self.text(key).is_some());
        let (used, [first, second]) = LOGINS.into_iter().find(|(_, keys)| is_complete(keys))?;
        for (_, keys) in LOGINS.into_iter().filter(|(login, _)| *login != used) {
            let is_fallback = first == SECRET_NAME && keys.contains(&USER) && is_complete(&keys);
            if let Some(key) = keys.into_iter().find(|key| self.text(key).is_some()).filter(|_| !is_fallback) {
                report.warn_at(
                    self.section(key),
                    Some(key),
                    format!("ignored: the login with {used} takes precedence"),
                );
            }
        }
        if self.flag("remote-auth") && (first == CERTIFICATE || first == TOKEN) {
            report.warn_at(
                self.file,
                Some("remote-auth"),
                format!("no effect: the login with {used} takes precedence"),
            );
        }
        let (one, two) = (self.text(first)?, self.text(second)?);
        Some(match first {
            CERTIFICATE => NsxLogin::Certificate { certificate: one.into(), key: two.into() },
            TOKEN => NsxLogin::VmcToken { token: one.into(), host: two.to_owned() },
            SECRET_NAME => {
                let secret = SourceLocation::Secret { namespace: two.to_owned(), name: one.to_owned() };
                NsxLogin::Pair { credentials: Credentials::Stored(secret), fallback: self.inline() }
            }
            _ => NsxLogin::Pair { credentials: self.inline()?, fallback: None },
        })
    }

    fn inline(&self) -> Option<Credentials> {
        Some(Credentials::Inline { user: self.text(USER)?.to_owned(), password: self.text(PASSWORD)?.into() })
    }
}

/// Parses `host[:port][/prefix]`. An IPv6 address with a port is in brackets.
fn parse_host(text: &str) -> Option<(String, u16, String)> {
    let (authority, path) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
        _ if parse_ip(authority).is_some() => (authority, ""),
        Some(None) => return None,
        Some(Some((address, port))) => (parse_ip(address).map(|_| address)?, port),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => DEFAULT_PORT,
        Some(digits) if digits.bytes().all(|c| c.is_ascii_digit()) => digits.parse().ok().filter(|port| *port != 0)?,
        _ => return None,
    };
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "?#\\".contains(c);
    let is_host = parse_ip(host).is_some() || !(host.is_empty() || host.contains(|c| is_odd(c) || ":@[]".contains(c)));
    let path = path.trim_matches('/');
    let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
    (is_host && !prefix.contains(is_odd)).then(|| (host.to_owned(), port, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_port_and_a_prefix_where_they_are_written() {
        for (text, want) in [
            ("nsx", Some(("nsx", 443, ""))),
            ("nsx.example.com:8443", Some(("nsx.example.com", 8443, ""))),
            ("nsx/", Some(("nsx", 443, ""))),
            ("nsx:1/a/b/", Some(("nsx", 1, "/a/b"))),
            ("proxy/vmc/reverse-proxy/api", Some(("proxy", 443, "/vmc/reverse-proxy/api"))),
            ("192.0.2.1:443", Some(("192.0.2.1", 443, ""))),
            ("fd00::1", Some(("fd00::1", 443, ""))),
            ("[fd00::1]", Some(("fd00::1", 443, ""))),
            ("[fd00::1]:8443/a", Some(("fd00::1", 8443, "/a"))),
            ("", None),
            ("/a", None),
            ("nsx:", None),
            ("nsx:0", None),
            ("nsx:+1", None),
            ("nsx:65536", None),
            ("nsx:1:2", None),
            ("[fd00::1", None),
            ("[nsx]", None),
            ("[fd00::1]1", None),
            ("https://nsx", None),
            ("user:hunter2@nsx", None),
            ("user@nsx", None),
            ("n sx", None),
            ("nsx?a", None),
            ("nsx/a?b", None),
        ] {
            let read = parse_host(text);
            let read = read.as_ref().map(|(host, port, prefix)| (host.as_str(), *port, prefix.as_str()));
            assert_eq!(read, want, "{text}");
        }
    }
}
