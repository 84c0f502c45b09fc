//! The address that a client connects to.

use std::net::IpAddr;
use std::sync::Arc;

use url::Url;

use crate::base::addresses::host_and_port;

/// Scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    is_tls: bool,
    host: Arc<str>,
    port: u16,
    authority: Arc<str>,
}

impl Endpoint {
    /// Builds an endpoint over TLS. An IPv6 `host` has no brackets.
    pub fn https(host: &str, port: u16) -> Self {
        Self::new(true, host, port)
    }

    fn new(is_tls: bool, host: &str, port: u16) -> Self {
        let authority = host_and_port(host, port);
        Self { is_tls, host: host.into(), port, authority: authority.into() }
    }

    /// Parses the endpoint of a URL. Path, query and user information are ignored.
    ///
    /// # Errors
    /// A message if the text is not an `http://` or `https://` URL with a host. The message does not contain the URL.
    pub fn of_url(url: &str) -> Result<Self, String> {
        let expected = || "expected a URL such as https://host:8443".to_owned();
        let url = Url::parse(url).map_err(|error| format!("{error}; {}", expected()))?;
        let is_tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(expected()),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(expected)?;
        let port = url.port_or_known_default().ok_or_else(expected)?;
        Ok(Self::new(is_tls, host.trim_start_matches('[').trim_end_matches(']'), port))
    }

    /// Whether the endpoint uses TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether requests are unreadable on the network, because they use TLS or stay on the local host.
    pub fn is_confidential(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        let is_here = address.map_or_else(|_| self.host.eq_ignore_ascii_case("localhost"), |own| own.is_loopback());
        self.is_tls || is_here
    }

    /// Returns the host name or IP literal. An IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `host:port`. An IPv6 address has brackets.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns `https://host:port` or `http://host:port`. An IPv6 address has brackets.
    pub fn base(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.authority)
    }
}

#[cfg(test)]
mod tests {
    //! Tests of endpoints that are parsed from URLs.

    use super::Endpoint;

    #[test]
    fn an_endpoint_is_read_from_a_url() {
        let cases = [
            ("https://vc.example.com", "https://vc.example.com:443", "vc.example.com"),
            ("https://vc.example.com:8443/session?a=b", "https://vc.example.com:8443", "vc.example.com"),
            ("http://manager.svc/x", "http://manager.svc:80", "manager.svc"),
            ("https://[2001:db8::1]/", "https://[2001:db8::1]:443", "2001:db8::1"),
            ("https://user:hunter2@vc", "https://vc:443", "vc"),
        ];
        for (url, base, host) in cases {
            let endpoint = Endpoint::of_url(url).unwrap();
            assert_eq!((endpoint.base().as_str(), endpoint.host()), (base, host), "{url}");
        }
    }

    #[test]
    fn what_is_no_web_address_is_refused_without_its_text() {
        for url in ["", "vc.example.com", "ftp://user:hunter2@vc", "https://user:hunter2@", "mailto:hunter2@vc"] {
            let error = Endpoint::of_url(url).unwrap_err();
            assert!(error.contains("expected a URL such as") && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
