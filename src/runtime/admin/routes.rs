//! Maps paths to answers.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::header::{CACHE_CONTROL, CONNECTION, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use super::access::User;
use super::answer::{Answer, not_found, text, typed, without_body};
use super::health::Probe;
use super::{Admin, Peer, Server, gate};
use crate::runtime::logging::Verbosity;
use crate::runtime::metrics;
use crate::runtime::tasks::BoxError;

/// Maximum size of a request body, in bytes.
const LARGEST_BODY: usize = 1024;

/// Time limit for receiving a body.
const BODY_LIMIT: Duration = Duration::from_secs(10);

/// The page of `/debug/flags`, as `routes.DebugFlags` of apiserver writes it.
const INDEX: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n\
                     <table>\n\n<tr>v<br>\n\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";

/// Answers one request. Never fails: a panic is answered with the status 500.
pub(super) async fn answer(
    server: Arc<Server>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    peer.requests.notify_one();
    let start = Instant::now();
    let (parts, body) = request.into_parts();
    let handled = AssertUnwindSafe(handled(&server, &peer, &parts, body)).catch_unwind().await;
    let (user, mut answer) = handled.unwrap_or_else(|_| {
        // The panic hook has already logged the message.
        tracing::error!(path = parts.uri.path(), "a request panicked");
        (None, text(StatusCode::INTERNAL_SERVER_ERROR, "This request caused a panic. See the log for details."))
    });
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    if parts.method == Method::HEAD {
        // For `HEAD`, HTTP/1 would omit the body by itself, but HTTP/2 would send it.
        answer = without_body(answer);
    }
    let is_known = user.as_ref().is_some_and(|user| *user != User::anonymous());
    // Closes the connection, as Go's gate `UnauthenticatedHTTP2DOSMitigation` does: only authenticated clients are
    // allowed to send many requests over one connection. A client with an invalid certificate then needs a handshake
    // for each attempt.
    if parts.version == Version::HTTP_2 && !is_known {
        peer.must_close.cancel();
    } else if answer.status() == StatusCode::UNAUTHORIZED {
        // An HTTP/1 answer must announce the close. Otherwise the client would send another request on this connection.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    tracing::debug!(
        verb = %parts.method,
        // Omits the query, which may contain private data of the client.
        path = parts.uri.path(),
        status = answer.status().as_u16(),
        latency = ?start.elapsed(),
        user = user.as_ref().map_or("-", |user| &user.name),
        peer = %peer.address,
        "HTTP"
    );
    Ok(answer.map(Full::new))
}

async fn handled(server: &Server, peer: &Peer, parts: &request::Parts, body: Incoming) -> (Option<User>, Answer) {
    let user = match gate::admitted(server, peer, parts).await {
        Ok(user) => user,
        Err(refusal) => return refusal,
    };
    let (admin, path) = (&server.admin, parts.uri.path());
    let answer = match &admin.verbosity {
        Some(verbosity) if path.starts_with("/debug/") => {
            let user = user.as_ref().map_or("-", |user| &user.name);
            debug(verbosity, &parts.method, path, user, body).await
        }
        _ => routed(admin, parts),
    };
    (user, answer)
}

fn routed(admin: &Admin, parts: &request::Parts) -> Answer {
    let path = parts.uri.path();
    let page = admin.pages.iter().find(|page| page.path == path);
    let check = named_check(path);
    let is_known = page.is_some() || check.is_some() || matches!(path, "/metrics" | "/metrics/slis");
    match path {
        _ if !is_known => not_found(),
        "/metrics/slis" if parts.method == Method::DELETE => {
            admin.checks.slis.reset();
            text(StatusCode::OK, "metrics reset\n")
        }
        _ if !matches!(parts.method, Method::GET | Method::HEAD) => {
            text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        }
        "/metrics" => exposed(admin.metrics.encode()),
        "/metrics/slis" => exposed(admin.checks.slis.encode()),
        _ => match (page, check) {
            (Some(page), _) => typed(text(StatusCode::OK, (page.write)()), page.content_type),
            (None, Some((probe, None))) => probed(admin, probe, parts.uri.query().unwrap_or_default()),
            (None, Some((probe, Some(name)))) => match admin.checks.single(probe, &name) {
                Some((true, body)) => text(StatusCode::OK, body),
                Some((false, body)) => text(StatusCode::INTERNAL_SERVER_ERROR, body),
                None => not_found(),
            },
            (None, None) => not_found(),
        },
    }
}

/// Returns the probe of a path, and the name of the check in a path such as `/readyz/nodes`.
fn named_check(path: &str) -> Option<(Probe, Option<String>)> {
    let path = path.strip_prefix('/')?;
    let (probe, name) = path.split_once('/').map_or((path, None), |(probe, name)| (probe, Some(name)));
    let probe = [Probe::Health, Probe::Live, Probe::Ready].into_iter().find(|known| known.name() == probe)?;
    Some((probe, name.map(|name| percent_decode_str(name).decode_utf8_lossy().into_owned())))
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

fn exposed(series: Result<String, prometheus::Error>) -> Answer {
    match series {
        Ok(body) => typed(text(StatusCode::OK, body), metrics::CONTENT_TYPE),
        Err(error) => {
            tracing::error!("cannot write the metrics: {error}");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written")
        }
    }
}

/// Answers paths below `/debug`: the verbosity of the log, as in the Go program. There is no pprof.
async fn debug(verbosity: &Verbosity, method: &Method, path: &str, user: &str, body: Incoming) -> Answer {
    match path {
        "/debug/flags/v" if *method == Method::PUT => set_verbosity(verbosity, user, body).await,
        "/debug/flags/v" => text(StatusCode::NOT_ACCEPTABLE, "unsupported http method"),
        _ if path == "/debug/flags" || path.starts_with("/debug/flags/") => {
            typed(text(StatusCode::OK, INDEX), "text/html; charset=utf-8")
        }
        _ if path == "/debug/pprof" || path.starts_with("/debug/pprof/") => {
            text(StatusCode::NOT_FOUND, "404 page not found: this program has no pprof, which is a profiler of Go")
        }
        _ => not_found(),
    }
}

async fn set_verbosity(verbosity: &Verbosity, user: &str, body: Incoming) -> Answer {
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let value = String::from_utf8_lossy(&body);
    match value.parse::<i32>() {
        Ok(level) => {
            verbosity.set(level.max(0).unsigned_abs());
            tracing::info!(verbosity = level, user, "the log's verbosity was set at /debug/flags/v");
            text(StatusCode::OK, format!("successfully set klog.logging.verbosity to {value}"))
        }
        Err(_) => {
            let reason = format!("failed set klog.logging.verbosity {value:?}: expected a whole number such as 2");
            text(StatusCode::BAD_REQUEST, reason)
        }
    }
}

/// Returns the body, or an answer to the client if the body is too large, too slow or incomplete.
async fn read_body<B>(body: B) -> Result<Bytes, Answer>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match tokio::time::timeout(BODY_LIMIT, Limited::new(body, LARGEST_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(text(StatusCode::BAD_REQUEST, "error reading request body")),
        Err(_) => Err(text(StatusCode::REQUEST_TIMEOUT, "the request body takes too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    #[test]
    fn the_names_of_checks_are_read_from_paths() {
        let cases = [
            ("/healthz", Some((Probe::Health, None))),
            ("/livez/ping", Some((Probe::Live, Some("ping")))),
            ("/readyz/vcenter%20a+b.example", Some((Probe::Ready, Some("vcenter a+b.example")))),
            ("/readyz/a&b=c%2Fd/e", Some((Probe::Ready, Some("a&b=c/d/e")))),
            ("/readyz/", Some((Probe::Ready, Some("")))),
            ("/healthzz", None),
            ("/", None),
            ("*", None),
        ];
        for (path, expected) in cases {
            let expected = expected.map(|(probe, name): (_, Option<&str>)| (probe, name.map(str::to_owned)));
            assert_eq!(named_check(path), expected, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_up_to_a_size_and_a_time() {
        let body = Full::new(Bytes::from(vec![b'1'; LARGEST_BODY]));
        assert_eq!(read_body(body).await.unwrap().len(), LARGEST_BODY);
        let larger = Full::new(Bytes::from(vec![b'1'; LARGEST_BODY + 1]));
        assert_eq!(read_body(larger).await.unwrap_err().status(), StatusCode::BAD_REQUEST);

        let start = Instant::now();
        let slow = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, BoxError>>());
        assert_eq!(read_body(slow).await.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(start.elapsed(), BODY_LIMIT);
    }
}
