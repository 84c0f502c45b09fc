//! What begins with `/debug`: how loud the log is, as in the Go program. There is no pprof.

use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::answer::{Answer, not_found, text, typed};
use crate::runtime::logging::Verbosity;

/// The longest body that is read, in bytes.
const LARGEST_BODY: usize = 1024;

/// How long a body may take.
const BODY_LIMIT: Duration = Duration::from_secs(10);

/// As apiserver's `routes.DebugFlags` writes it.
const INDEX: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n\
                     <table>\n\n<tr>v<br>\n\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";

/// Answers a path that begins with `/debug`.
pub(super) async fn answer(verbosity: &Verbosity, method: &Method, path: &str, body: Incoming) -> Answer {
    match path {
        "/debug/flags/v" if *method == Method::PUT => put(verbosity, body).await,
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

async fn put(verbosity: &Verbosity, body: Incoming) -> Answer {
    let read = Limited::new(body, LARGEST_BODY);
    let body = match tokio::time::timeout(BODY_LIMIT, read.collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return text(StatusCode::BAD_REQUEST, "error reading request body"),
        Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the request body takes too long"),
    };
    let value = String::from_utf8_lossy(&body);
    match value.parse::<i32>() {
        Ok(level) => {
            verbosity.set(level.max(0).unsigned_abs());
            tracing::info!(verbosity = level, "the log's verbosity was set at /debug/flags/v");
            text(StatusCode::OK, format!("successfully set klog.logging.verbosity to {value}"))
        }
        Err(_) => {
            let why = format!("failed set klog.logging.verbosity {value:?}: expected a whole number such as 2");
            text(StatusCode::BAD_REQUEST, why)
        }
    }
}
