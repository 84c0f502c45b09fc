//! A client that reaches the API server through the proxy of its kubeconfig (`proxy-url`), as client-go does: only when the
//! file names one, whatever the environment says.
//!
//! The library parses `NO_PROXY` when its own support for proxies is on, and fails on lists that others accept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::{Authority, Scheme, Uri};
use http::{HeaderValue, Request, Response};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt, DynBody};
use kube::config::Kubeconfig;
use kube::{Config, Error};
use tower::util::BoxService;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::Transport;

/// The proxy of the cluster of the current context, checked.
///
/// # Errors
/// What is wrong with the URL. Never the URL itself: it may hold a password.
pub(super) fn of(kubeconfig: &Kubeconfig) -> Result<Option<Uri>, &'static str> {
    let context = kubeconfig.contexts.iter().find(|named| Some(&named.name) == kubeconfig.current_context.as_ref());
    let name = context.and_then(|named| named.context.as_ref()).map(|context| &context.cluster);
    let cluster = kubeconfig.clusters.iter().find(|named| Some(&named.name) == name);
    let text = cluster.and_then(|named| named.cluster.as_ref()?.proxy_url.as_deref()).filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(None) };
    let uri: Uri = text.parse().map_err(|_| "it is not a URL")?;
    if !matches!(uri.scheme_str(), Some("http" | "https" | "socks5")) {
        return Err("its scheme is not http, https or socks5");
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err("it names no host");
    }
    Ok(Some(uri))
}

/// The stack of the library, over connections through `proxy`.
pub(super) fn builder(mut config: Config, proxy: &Uri) -> Result<ClientBuilder<Transport>, Error> {
    config.proxy_url = None;
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    let Destination { uri, user, password } = Destination::of(proxy);
    let header = || {
        let pair = STANDARD.encode(format!("{}:{}", user.as_deref()?, password.as_deref().unwrap_or_default()));
        HeaderValue::from_str(&format!("Basic {pair}")).ok()
    };
    match proxy.scheme_str() {
        Some("socks5") => {
            let socks = SocksV5::new(uri, connector);
            over(
                &config,
                match user.clone() {
                    Some(user) => socks.with_auth(user, password.clone().unwrap_or_default()),
                    None => socks,
                },
            )
        }
        Some("https") => {
            let tunnel = Tunnel::new(uri, config.rustls_https_connector_with_connector(connector)?);
            over(&config, header().map_or_else(|| tunnel.clone(), |header| tunnel.clone().with_auth(header)))
        }
        _ => {
            let tunnel = Tunnel::new(uri, connector);
            over(&config, header().map_or_else(|| tunnel.clone(), |header| tunnel.clone().with_auth(header)))
        }
    }
}

/// As the library builds its own: the address of the server, the credentials, further headers, the wire.
fn over<C>(config: &Config, connector: C) -> Result<ClientBuilder<Transport>, Error>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: std::error::Error + Send + Sync + 'static,
{
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let wire: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new()).build(connector);
    let wire = config.extra_headers_layer()?.layer(wire.map_err(BoxError::from));
    let wire: BoxService<Request<Body>, Response<_>, BoxError> = match config.auth_layer()? {
        Some(layer) => BoxService::new(layer.layer(wire)),
        None => BoxService::new(wire),
    };
    let service = config.base_uri_layer().layer(wire);
    let service = service.map_response(|response: Response<hyper::body::Incoming>| {
        response.map(|body| Box::new(http_body_util::BodyExt::map_err(body, BoxError::from)) as Box<DynBody>)
    });
    Ok(ClientBuilder::new(BoxService::new(service), config.default_namespace.clone()))
}

/// Where the proxy is, without its credentials, and these.
struct Destination {
    uri: Uri,
    user: Option<String>,
    password: Option<String>,
}

impl Destination {
    fn of(proxy: &Uri) -> Self {
        let authority = proxy.authority().map(Authority::as_str).unwrap_or_default();
        let (pair, host) = authority.rsplit_once('@').map_or((None, authority), |(pair, host)| (Some(pair), host));
        let (user, password) = pair.map(|pair| pair.split_once(':').unwrap_or((pair, ""))).unzip();
        let port = match proxy.scheme_str() {
            _ if proxy.port().is_some() => "",
            Some("https") => ":443",
            Some("socks5") => ":1080",
            _ => ":80",
        };
        let uri = Uri::builder()
            .scheme(proxy.scheme().cloned().unwrap_or(Scheme::HTTP))
            .authority(format!("{host}{port}"))
            .path_and_query("/")
            .build();
        // What is left of a valid URL is one.
        let uri = uri.unwrap_or_default();
        Self { uri, user: user.map(percent_decoded), password: password.map(percent_decoded) }
    }
}

/// A text with its `%40` and the like replaced.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_taken_apart() {
        for (url, uri, user, password) in [
            ("http://proxy", "http://proxy:80/", None, None),
            ("https://proxy:3128/x", "https://proxy:3128/", None, None),
            ("socks5://u@proxy", "socks5://proxy:1080/", Some("u"), Some("")),
            ("http://u%40x:p%3A%25%zz@[fd00::1]:8080", "http://[fd00::1]:8080/", Some("u@x"), Some("p:%%zz")),
        ] {
            let found = Destination::of(&url.parse().unwrap());
            assert_eq!(found.uri.to_string(), uri, "{url}");
            assert_eq!((found.user.as_deref(), found.password.as_deref()), (user, password), "{url}");
        }
    }

    #[test]
    fn a_url_that_is_none_is_refused_without_being_repeated() {
        let of = |url: &str| {
            of(&serde_json::from_value(serde_json::json!({
                "clusters": [{"name": "c", "cluster": {"server": "https://a", "proxy-url": url}}],
                "contexts": [{"name": "x", "context": {"cluster": "c"}}],
                "current-context": "x",
            }))
            .unwrap())
        };
        assert_eq!(of(""), Ok(None));
        assert_eq!(of("http://p").unwrap().unwrap().host(), Some("p"));
        for url in ["ftp://u:hunter2@p", "p:3128", "http://", "http://u:hunter2 @p", "socks4://p"] {
            let why = of(url).unwrap_err();
            assert!(why.starts_with("it"), "{url}: {why}");
        }
    }
}
