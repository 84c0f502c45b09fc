//! Which path answers what, and who may ask.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};

use super::Admin;
use super::access::{Shown, User};
use super::health::Probe;
use crate::runtime::{logging, metrics};

/// How long finding out who asks and what they may do may take, whoever is asked for it.
const ACCESS_LIMIT: Duration = Duration::from_secs(15);

type Answer = Response<Full<Bytes>>;

/// Answers one request. Never fails.
pub(super) async fn answer(admin: Arc<Admin>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path();
    let mut answer = match probe(path) {
        Some(_) if !is_read(&parts.method) => text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        Some(probe) => probed(&admin, probe, parts.uri.query().unwrap_or_default()),
        None => match allowed(&admin, &parts.headers, &parts.method, path).await {
            Err(refusal) => refusal,
            Ok(()) => routed(&admin, &parts.method, path),
        },
    };
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    Ok(answer)
}

fn probe(path: &str) -> Option<Probe> {
    match path {
        "/healthz" => Some(Probe::Health),
        "/livez" => Some(Probe::Live),
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
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*key {
            "verbose" => is_verbose = true,
            "exclude" => excluded.push(value.into_owned()),
            _ => {}
        }
    }
    let (passes, body) = admin.checks.answer(probe, is_verbose, &excluded);
    text(if passes { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, body)
}

/// Nothing, or the refusal.
async fn allowed(admin: &Admin, headers: &HeaderMap, method: &Method, path: &str) -> Result<(), Answer> {
    if admin.authorizer.is_open(path) {
        return Ok(());
    }
    let verb = method.as_str().to_ascii_lowercase();
    let asked = async {
        let shown = Shown { headers, certificates: &[] };
        let user = match admin.authenticator.authenticate(shown).await {
            Ok(user) => user.unwrap_or_else(User::anonymous),
            Err(error) => {
                // Whoever cannot be asked is told of there, once.
                tracing::debug!("{}", logging::chain(&error));
                return Err(text(StatusCode::UNAUTHORIZED, "Unauthorized"));
            }
        };
        match admin.authorizer.may(&user, &verb, path).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
                Err(text(StatusCode::FORBIDDEN, message))
            }
            Err(error) => {
                tracing::debug!("cannot tell what {} may do: {}", user.name, logging::chain(&*error));
                Err(text(StatusCode::INTERNAL_SERVER_ERROR, "authorization is not possible now"))
            }
        }
    };
    match tokio::time::timeout(ACCESS_LIMIT, asked).await {
        Ok(outcome) => outcome,
        Err(_) => Err(text(StatusCode::SERVICE_UNAVAILABLE, "finding out who may ask takes too long")),
    }
}

fn routed(admin: &Admin, method: &Method, path: &str) -> Answer {
    match path {
        "/metrics/slis" if *method == Method::DELETE => {
            admin.checks.slis().reset();
            text(StatusCode::OK, "metrics reset\n")
        }
        _ if !is_read(method) => text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        "/metrics" => exposed(admin.metrics.encode()),
        "/metrics/slis" => exposed(admin.checks.slis().encode()),
        _ => match single_check(admin, path) {
            Some((true, body)) => text(StatusCode::OK, body),
            Some((false, body)) => text(StatusCode::INTERNAL_SERVER_ERROR, body),
            None => text(StatusCode::NOT_FOUND, "404 page not found"),
        },
    }
}

/// The check that a path such as `/readyz/nodes` names.
fn single_check(admin: &Admin, path: &str) -> Option<(bool, String)> {
    let (first, name) = path.strip_prefix('/')?.split_once('/')?;
    let probe = probe(&format!("/{first}"))?;
    // A plus sign stands for itself in a path.
    let name = name.replace('+', "%2B");
    let name = url::form_urlencoded::parse(name.as_bytes()).map(|(name, _)| name).next()?;
    admin.checks.single(probe, &name)
}

fn exposed(series: Result<String, prometheus::Error>) -> Answer {
    match series {
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
