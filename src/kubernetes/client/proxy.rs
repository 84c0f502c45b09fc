//! Connects to the API server through the proxy of the kubeconfig (`proxy-url`). Ignores the proxy variables of the
//! environment.
//!
//! The library's own proxy support is not enabled: it parses `NO_PROXY`, and fails on lists that other programs accept.

use http::uri::Uri;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};
use url::Url;

use super::credentials::basic;

/// Parses and checks a `proxy-url`.
///
/// # Errors
/// Describes the error in the URL. Does not contain the URL, which may contain a password.
pub(super) fn parse(text: &str) -> Result<Uri, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "it is not a URL")?;
    if !matches!(uri.scheme_str(), Some("http" | "https" | "socks5")) {
        return Err("its scheme is not http, https or socks5");
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err("it names no host");
    }
    if Destination::of(&uri).is_none() {
        return Err("it is not a URL");
    }
    Ok(uri)
}

pub(super) fn is_tls(proxy: &Uri) -> bool {
    proxy.scheme_str() == Some("https")
}

/// Returns a connector through `proxy`. `tls` is used only for the connection to an HTTPS proxy.
pub(super) fn connector(
    proxy: &Uri,
    connector: HttpConnector,
    tls: &rustls::ClientConfig,
) -> Result<BoxConnector, BoxError> {
    let Some(Destination { uri, user, password }) = Destination::of(proxy) else {
        return Err("the proxy-url cannot be used".into());
    };
    if proxy.scheme_str() == Some("socks5") {
        let socks = SocksV5::new(uri, connector);
        return Ok(boxed(match user {
            Some(user) => socks.with_auth(user, password),
            None => socks,
        }));
    }
    let tls = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_http1();
    let tunnel = Tunnel::new(uri, tls.wrap_connector(connector));
    Ok(boxed(match user.and_then(|user| basic(&user, &password).ok()) {
        Some(header) => tunnel.with_auth(header),
        None => tunnel,
    }))
}

/// Connector for direct connections and any kind of proxy. With a single type, the client is compiled only once.
pub(super) type BoxConnector = BoxCloneSyncService<Uri, TcpOrTlsStream, BoxError>;

/// A connection to the API server or to a proxy, which is encrypted only for an HTTPS proxy.
pub(super) type TcpOrTlsStream = MaybeHttpsStream<TokioIo<TcpStream>>;

pub(super) fn boxed<C>(connector: C) -> BoxConnector
where
    C: Service<Uri, Response: Into<TcpOrTlsStream>> + Clone + Send + Sync + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    BoxCloneSyncService::new(connector.map_response(Into::into).map_err(Into::into))
}

struct Destination {
    uri: Uri,
    user: Option<String>,
    password: String,
}

impl Destination {
    /// Returns `None` if `proxy` is not a URL with a host.
    fn of(proxy: &Uri) -> Option<Self> {
        let url = Url::parse(&proxy.to_string()).ok()?;
        // The library has the default ports of all supported schemes except SOCKS.
        let port = url.port_or_known_default().unwrap_or(1080);
        let uri = Uri::builder()
            .scheme(proxy.scheme()?.clone())
            .authority(format!("{}:{port}", url.host_str()?))
            .path_and_query("/");
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = Some(decoded(url.username())).filter(|user| !user.is_empty());
        Some(Self { uri: uri.build().ok()?, user, password: decoded(url.password().unwrap_or_default()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_taken_apart() {
        for (url, uri, user, password) in [
            ("http://proxy", "http://proxy:80/", None, ""),
            ("https://proxy:3128/x", "https://proxy:3128/", None, ""),
            ("https://proxy", "https://proxy:443/", None, ""),
            ("socks5://u@proxy", "socks5://proxy:1080/", Some("u"), ""),
            ("http://u%40x:p%3A%25%zz@[fd00::1]:8080", "http://[fd00::1]:8080/", Some("u@x"), "p:%%zz"),
        ] {
            let found = Destination::of(&url.parse().unwrap()).unwrap();
            assert_eq!(found.uri.to_string(), uri, "{url}");
            assert_eq!((found.user.as_deref(), found.password.as_str()), (user, password), "{url}");
        }
    }

    #[test]
    fn a_url_that_is_none_is_refused_without_being_repeated() {
        assert_eq!(parse("http://p").unwrap().host(), Some("p"));
        for url in ["ftp://u:hunter2@p", "p:3128", "http://", "http://u:hunter2 @p", "socks4://p"] {
            let reason = parse(url).unwrap_err();
            assert!(reason.starts_with("it"), "{url}: {reason}");
        }
    }
}
