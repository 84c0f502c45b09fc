//! The production transport: HTTP/1.1 over TLS, directly or through a proxy.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderValue, Method};
use secrecy::ExposeSecret as _;

use super::{Failure, Transport};
use crate::base::error_chain::sources;
use crate::clients::http::body::WipedBytes;
use crate::clients::http::certificate::PeerCertificate;
use crate::clients::http::error::chain_text;
use crate::clients::http::proxy::ProxyServer;
use crate::clients::http::request::{Request, Response};
use crate::clients::http::{Endpoint, Error, FailedRequest, Settings, TlsSettings, tls};

/// Connections to one endpoint with one set of TLS settings.
pub(in crate::clients::http) struct Network {
    inner: reqwest::Client,
    /// The proxy without its credentials, for messages.
    proxy: Option<String>,
}

impl Network {
    /// Prepares connections without sending anything.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the trust settings or the proxy cannot be used.
    pub(in crate::clients::http) fn new(
        settings: &Settings,
        tls: &TlsSettings,
        peer_certificate: Arc<PeerCertificate>,
    ) -> Result<Self, Error> {
        let endpoint = &settings.endpoint;
        let refused = |message: String| Error::Configuration { endpoint: endpoint.authority().to_owned(), message };
        let tls = tls::client_config(tls, endpoint, peer_certificate).map_err(refused)?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .user_agent(&settings.user_agent)
            .connect_timeout(settings.connect_timeout)
            // vCenter drops idle connections after some minutes, so reusing older connections would mostly fail.
            .pool_idle_timeout(Duration::from_secs(120))
            .tcp_keepalive(Duration::from_secs(30))
            // The caller has read the proxies from the environment, so the library must not read them.
            .no_proxy();
        let server = settings.proxy.as_ref().and_then(|proxy| proxy.server_for(endpoint));
        if let Some(server) = server {
            let all = reqwest::Proxy::all(server.url.expose_secret());
            builder = builder.proxy(all.map_err(|_| refused(format!("the proxy {server} cannot be used")))?);
        }
        let inner = builder.build().map_err(|error| refused(chain_text(&error)))?;
        Ok(Self { inner, proxy: server.map(ProxyServer::to_string) })
    }
}

#[async_trait]
impl Transport for Network {
    async fn exchange(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Failure> {
        let Request { method, path, headers, secret_headers, body, operation, timeout, max_bytes, .. } = request;
        let failed = || FailedRequest { endpoint: endpoint.authority().to_owned(), operation };
        let wrap = |error: reqwest::Error| Error::from_reqwest(&error, failed(), timeout, self.proxy.as_deref());
        if let Some(proxy) = &self.proxy
            && endpoint.is_tls()
            && endpoint.host().contains(':')
        {
            // reqwest 0.13 would fail, because it uses the address with brackets as the server name of the handshake.
            let message = "an IPv6 address cannot be reached through a proxy; give the server's name instead, or list \
                           the address in NO_PROXY";
            return Err(Failure::Final(Error::Proxy(failed(), proxy.clone(), message.to_owned())));
        }
        let mut builder = self.inner.request(method.clone(), format!("{}{path}", endpoint.base()));
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        for (name, value) in secret_headers {
            let value = sensitive(value.expose_secret()).ok_or_else(|| {
                let message = format!("the value of the header {name} holds what a header cannot carry");
                Failure::Final(Error::Configuration { endpoint: endpoint.authority().to_owned(), message })
            })?;
            builder = builder.header(name, value);
        }
        if !body.is_empty() || method == Method::POST {
            builder = builder.body(body.to_shared());
        }
        let mut answer = builder.send().await.map_err(|error| {
            let is_rubbish = is_unreadable(&error);
            match wrap(error) {
                error @ Error::Broken { .. } if !is_rubbish => Failure::Unanswered(error),
                error => Failure::Final(error),
            }
        })?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| Failure::Final(wrap(error)))? {
            if body.len().saturating_add(chunk.len()) > max_bytes {
                return Err(Failure::Final(Error::TooLarge(failed(), max_bytes)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response { status: answer.status().as_u16(), headers: std::mem::take(answer.headers_mut()), body })
    }
}

/// Builds a header value that prints as `Sensitive` and is wiped when the library drops it.
fn sensitive(value: &str) -> Option<HeaderValue> {
    let shared = WipedBytes(value.as_bytes().to_vec()).into_shared();
    let mut value = HeaderValue::from_maybe_shared(shared).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether the answer is not HTTP, or has a head that is too large.
fn is_unreadable(error: &reqwest::Error) -> bool {
    let answer = sources(error).find_map(|source| source.downcast_ref::<hyper::Error>());
    answer.is_some_and(hyper::Error::is_parse)
}
