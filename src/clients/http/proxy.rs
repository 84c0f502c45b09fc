//! Pure: chooses the proxy for an endpoint by the environment variables that Go programs use.
//!
//! Mirrors `http/httpproxy` of `golang.org/x/net`, the base of Go's `http.ProxyFromEnvironment`.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use secrecy::SecretString;
use url::{Host, Url};

use super::Endpoint;
use crate::base::addresses::parse_ip;

/// The proxies for HTTP and HTTPS, and the endpoints that are reached without a proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    https: Option<ProxyServer>,
    http: Option<ProxyServer>,
    bypass: Bypass,
}

/// A proxy server. `Display` prints scheme, host and port. `Debug` does not print user and password either.
#[derive(Clone, Debug)]
pub struct ProxyServer {
    /// The URL of the proxy, with user and password.
    pub(super) url: SecretString,
    shown: String,
}

/// An environment variable whose value is not a proxy. The value is not shown, because it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {variable}: {}", self.why())]
pub struct ProxyError {
    /// The name of the variable, in upper or lower case as it is set.
    pub variable: &'static str,
    problem: &'static str,
}

impl ProxyError {
    /// Returns the error in the value, and the expected form.
    pub fn why(&self) -> String {
        format!("{}; expected a proxy such as http://proxy.example.com:3128", self.problem)
    }
}

impl ProxySettings {
    /// Reads `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`. If a variable is missing or empty, its lower-case name is
    /// read. `lookup` returns the value of a variable.
    ///
    /// # Errors
    /// All variables whose value is not a proxy. The Go programs ignore such values silently.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<ProxyError>> {
        let mut errors = Vec::new();
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| Some((name, lookup(name).filter(|value| !value.is_empty())?)))
        };
        let mut server = |names| {
            let (variable, value) = first(names)?;
            ProxyServer::parse(&value)
                .map_err(|complaint| errors.push(ProxyError { variable, problem: complaint }))
                .ok()
        };
        let https = server(["HTTPS_PROXY", "https_proxy"]);
        let http = server(["HTTP_PROXY", "http_proxy"]);
        let bypass = Bypass::parse(&first(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default());
        if errors.is_empty() { Ok(Self { https, http, bypass }) } else { Err(errors) }
    }

    /// Returns the proxy for an endpoint; `None` for a direct connection. `localhost` and loopback addresses never use
    /// a proxy.
    pub fn server_for(&self, endpoint: &Endpoint) -> Option<&ProxyServer> {
        let server = if endpoint.is_tls() { &self.https } else { &self.http };
        server.as_ref().filter(|_| !is_local(endpoint.host()) && !self.bypass.covers(endpoint))
    }
}

impl ProxyServer {
    /// Parses the address of a proxy. The default scheme is `http://`.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let mut url = Url::parse(&full).map_err(|_| "the value is not the URL of a proxy")?;
        let (scheme, default_port) = match url.scheme() {
            "http" => ("http", 80),
            "https" => ("https", 443),
            // The proxy resolves names, as in Go. Other programs call this scheme `socks5h`.
            "socks5" | "socks5h" => ("socks5h", 1080),
            _ => return Err("the scheme is none of http, https, socks5 and socks5h"),
        };
        let shown_scheme = url.scheme().to_owned();
        let Some(host) = url.host_str().filter(|host| !host.is_empty()).map(str::to_owned) else {
            return Err("the value names no host");
        };
        url.set_scheme(scheme).map_err(|()| "the value is not the URL of a proxy")?;
        url.set_path("");
        url.set_query(None);
        url.set_fragment(None);
        let shown = format!("{shown_scheme}://{host}:{}", url.port().unwrap_or(default_port));
        Ok(Self { url: String::from(url).into(), shown })
    }
}

impl fmt::Display for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The endpoints of `NO_PROXY`, which are reached without a proxy.
#[derive(Clone, Debug, Default)]
struct Bypass {
    everything: bool,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Network(IpNet),
    Address {
        ip: IpAddr,
        port: Option<String>,
    },
    /// A domain. `suffix` begins with a dot.
    Domain {
        suffix: String,
        includes_itself: bool,
        port: Option<String>,
    },
}

impl Bypass {
    /// Parses a comma-separated list. `*` covers every endpoint. As in Go, every text is accepted: an item that is
    /// neither a network nor an address is a domain. An item that cannot be a domain covers no endpoint.
    fn parse(list: &str) -> Self {
        let mut bypass = Self::default();
        for item in list.split(',').map(|item| item.trim().to_lowercase()).filter(|item| !item.is_empty()) {
            if item == "*" {
                return Self { everything: true, entries: Vec::new() };
            }
            bypass.entries.extend(Entry::parse(&item));
        }
        bypass
    }

    fn covers(&self, endpoint: &Endpoint) -> bool {
        let port = endpoint.port().to_string();
        let ip = parse_host_ip(endpoint.host());
        let host = to_ascii(endpoint.host());
        self.everything || self.entries.iter().any(|entry| entry.covers(&host, ip, &port))
    }
}

impl Entry {
    fn parse(item: &str) -> Option<Self> {
        if let Ok(network) = item.parse::<IpNet>() {
            return Some(Entry::Network(network));
        }
        // No host contains these characters. The item may be a misplaced URL with a password, so it is not stored.
        if item.contains(['@', '/']) {
            return None;
        }
        let (host, port) = split_port(item);
        let port = port.filter(|port| !port.is_empty()).map(str::to_owned);
        if let Some(ip) = parse_ip(host) {
            return Some(Entry::Address { ip, port });
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let (name, includes_itself) = match host.strip_prefix('.') {
            Some(name) => (name, false),
            None => (host, true),
        };
        if name.is_empty() {
            return None;
        }
        Some(Entry::Domain { suffix: format!(".{}", to_ascii(name)), includes_itself, port })
    }

    /// Whether an entry covers a host. A domain never covers an IP address, even one with a zone, such as
    /// `fe80::1%.example.com`.
    fn covers(&self, host: &str, ip: Option<IpAddr>, port: &str) -> bool {
        let is_port = |wanted: &Option<String>| wanted.as_deref().is_none_or(|wanted| wanted == port);
        match (self, ip) {
            (Entry::Network(network), Some(ip)) => network.contains(&ip),
            (Entry::Address { ip: own, port }, Some(ip)) => *own == ip && is_port(port),
            (Entry::Domain { suffix, includes_itself, port }, None) => {
                let is_itself = *includes_itself && suffix.strip_prefix('.') == Some(host);
                (is_itself || host.ends_with(suffix.as_str())) && is_port(port)
            }
            _ => false,
        }
    }
}

fn is_local(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || parse_host_ip(host).is_some_and(|ip| ip.is_loopback())
}

/// Parses an IP literal with or without a zone.
fn parse_host_ip(host: &str) -> Option<IpAddr> {
    parse_ip(host.split_once('%').map_or(host, |(bare, _)| bare))
}

/// Splits `host:port`, `[v6]:port` and `[v6]`. Several colons without brackets are an IPv6 address without a port.
fn split_port(item: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = item.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    match item.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (item, None),
    }
}

/// Returns the ASCII form of an internationalized name. An invalid name is only lower-cased.
fn to_ascii(name: &str) -> String {
    match Host::parse(name) {
        Ok(Host::Domain(ascii)) => ascii,
        _ => name.to_lowercase(),
    }
}

#[cfg(test)]
mod tests;
