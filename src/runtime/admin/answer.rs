//! Builds the answers of the secure port.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::Bytes;

pub(super) type Answer = Response<Bytes>;

pub(super) fn text(status: StatusCode, body: impl Into<String>) -> Answer {
    let mut answer = Response::new(Bytes::from(body.into()));
    *answer.status_mut() = status;
    typed(answer, "text/plain; charset=utf-8")
}

pub(super) fn not_found() -> Answer {
    text(StatusCode::NOT_FOUND, "404 page not found")
}

pub(super) fn typed(mut answer: Answer, content_type: &'static str) -> Answer {
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Removes the body and keeps the headers, for the answer to `HEAD`.
pub(super) fn without_body(mut answer: Answer) -> Answer {
    let size = answer.body().len();
    answer.headers_mut().insert(CONTENT_LENGTH, size.into());
    answer.map(|_| Bytes::new())
}
