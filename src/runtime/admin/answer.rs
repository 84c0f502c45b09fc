//! Answers of the secure port.

use http::header::{CONTENT_TYPE, HeaderValue};
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
