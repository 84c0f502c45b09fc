//! Which path answers what, and who may ask.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};

use super::Admin;
use super::health::Probe;
use crate::runtime::{logging, metrics};

/// How long finding out whose token it is may take, whatever the authenticator does.
const AUTHENTICATION_LIMIT: Duration = Duration::from_secs(15);

/// Bearer tokens are a few kilobytes.
const LONGEST_TOKEN: usize = 32 * 1024;

type Answer = Response<Full<Bytes>>;

/// Answers one request. Never fails.
pub(super) async fn answer(admin: Arc<Admin>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path();
    let mut answer = match probe(path) {
        Some(_) if !is_read(&parts.method) => text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        Some(probe) => probed(&admin, probe, parts.uri.query().unwrap_or_default()),
        None => match authenticated(&admin, &parts.headers, &parts.method, path).await {
            Err(refusal) => refusal,
            Ok(_) if path == "/metrics" && !is_read(&parts.method) => {
                text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
            }
            Ok(_) if path == "/metrics" => exposed(&admin),
            Ok(_) => text(StatusCode::NOT_FOUND, "404 page not found"),
        },
    };
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    Ok(answer)
}

fn probe(path: &str) -> Option<Probe> {
    match path {
        "/healthz" => Some(Probe::Live("healthz")),
        "/livez" => Some(Probe::Live("livez")),
        "/readyz" => Some(Probe::Ready),
        _ => None,
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn probed(admin: &Admin, probe: Probe, query: &str) -> Answer {
    let mut is_verbose = false;
    let mut excluded = Vec::new();
    for (key, value) in query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
        match key {
            "verbose" => is_verbose = true,
            "exclude" => excluded.push(value.to_owned()),
            _ => {}
        }
    }
    let (passes, body) = admin.checks.answer(probe, is_verbose, &excluded);
    text(if passes { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, body)
}

/// The user, or the refusal.
async fn authenticated(admin: &Admin, headers: &HeaderMap, method: &Method, path: &str) -> Result<String, Answer> {
    let forbidden = || {
        let verb = method.as_str().to_ascii_lowercase();
        let message = format!("forbidden: User \"system:anonymous\" cannot {verb} path {path:?}");
        text(StatusCode::FORBIDDEN, message)
    };
    let (Some(authenticator), Some(token)) = (&admin.authenticator, bearer_token(headers)) else {
        return Err(forbidden());
    };
    if token.is_empty() || token.len() > LONGEST_TOKEN {
        return Err(text(StatusCode::UNAUTHORIZED, "Unauthorized"));
    }
    match tokio::time::timeout(AUTHENTICATION_LIMIT, authenticator.authenticate(token)).await {
        Ok(Ok(Some(user))) => Ok(user),
        Ok(Ok(None)) => Err(text(StatusCode::UNAUTHORIZED, "Unauthorized")),
        Ok(Err(error)) => {
            tracing::warn!("cannot tell whose token it is: {}", logging::chain(&*error));
            Err(text(StatusCode::SERVICE_UNAVAILABLE, "authentication is not possible now"))
        }
        Err(_) => Err(text(StatusCode::SERVICE_UNAVAILABLE, "authentication takes too long")),
    }
}

/// The token; nothing when there are no credentials of that kind.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn exposed(admin: &Admin) -> Answer {
    match admin.metrics.encode() {
        Ok(body) => {
            let mut answer = text(StatusCode::OK, body);
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
            answer
        }
        Err(error) => {
            tracing::error!("cannot write the metrics: {error}");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written")
        }
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
