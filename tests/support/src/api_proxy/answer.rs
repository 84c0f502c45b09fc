//! The proxy's own answers, in the form of the API server, and the recognition of watch requests.

use http::{HeaderValue, Response, StatusCode, Uri, header};
use serde_json::{Value, json};

use super::Refusal;

/// Returns true if the answer is a stream of events.
pub(super) fn is_watch(uri: &Uri) -> bool {
    parameter(uri, "watch").is_some_and(|value| ["true", "1"].contains(&value))
}

/// Returns true for a watch whose version can be too old. A watch without a version, or from version 0, starts with the
/// current state.
pub(super) fn can_expire(uri: &Uri) -> bool {
    is_watch(uri) && parameter(uri, "resourceVersion").is_some_and(|version| !["", "0"].contains(&version))
}

fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// Returns a `Status` object with this HTTP status.
pub(super) fn refused(refusal: Refusal) -> Response<String> {
    let reason = match refusal.status.as_u16() {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let mut answer = of(refusal.status, &status(refusal.status, reason, "the proxy says so", refusal.retry_after));
    if let Some(seconds) = refusal.retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// Returns the API server's answer to a watch from a version that it has compacted: a status, or the only event of a
/// stream.
pub(super) fn expired(is_event: bool) -> Response<String> {
    let told = status(StatusCode::GONE, "Expired", "too old resource version: 1 (2)", None);
    if is_event { of(StatusCode::OK, &json!({ "type": "ERROR", "object": told })) } else { of(StatusCode::GONE, &told) }
}

fn status(code: StatusCode, reason: &str, message: &str, retry_after: Option<u32>) -> Value {
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    if let Some(seconds) = retry_after {
        status["details"] = json!({ "retryAfterSeconds": seconds });
    }
    status
}

fn of(status: StatusCode, body: &Value) -> Response<String> {
    let mut answer = Response::new(format!("{body}\n"));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watches_from_a_version_expire() {
        for (uri, watches, expires) in [
            ("/api/v1/nodes", false, false),
            ("/api/v1/nodes?watch=false&resourceVersion=7", false, false),
            ("/api/v1/nodes?resourceVersion=7", false, false),
            ("/api/v1/nodes?watch=true", true, false),
            ("/api/v1/nodes?watch=true&resourceVersion=", true, false),
            ("/api/v1/nodes?&watch=1&resourceVersion=0", true, false),
            ("/api/v1/nodes?&watch=true&timeoutSeconds=290&resourceVersion=7", true, true),
        ] {
            let uri = Uri::from_static(uri);
            assert_eq!((is_watch(&uri), can_expire(&uri)), (watches, expires), "{uri}");
        }
    }
}
