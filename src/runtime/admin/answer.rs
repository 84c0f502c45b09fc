//! Answers of the secure port. Limits the number of large answers in memory, over all connections.

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of answers larger than [`SMALL`] in memory.
pub(super) const MAX_ANSWERS: usize = 1024;

/// Maximum size in bytes of an answer that needs no slot. Such an answer takes no more memory than its request. Answers
/// of probes are small, so they never fail because other clients leave large answers unread.
const SMALL: usize = 256;

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

/// The bytes of a large answer. The slot of the answer becomes free when the bytes are dropped.
struct BufferedAnswer {
    bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for BufferedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reserves a slot for the answer until its bytes are freed. If no slot is free, returns an answer with the status 503.
pub(super) fn kept(answer: Answer, slots: &Arc<Semaphore>) -> Answer {
    if answer.body().len() <= SMALL {
        return answer;
    }
    match Arc::clone(slots).try_acquire_owned() {
        Ok(slot) => answer.map(|bytes| Bytes::from_owner(BufferedAnswer { bytes, _place: slot })),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, ""),
    }
}

/// Removes the body and keeps the headers, for the answer to `HEAD`.
pub(super) fn without_body(mut answer: Answer) -> Answer {
    let size = answer.body().len();
    answer.headers_mut().insert(CONTENT_LENGTH, size.into());
    answer.map(|_| Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_answers_are_kept_up_to_a_number_and_small_ones_are_always_given() {
        let slots = Arc::new(Semaphore::new(2));
        let large = || kept(text(StatusCode::OK, "x".repeat(257)), &slots);
        let waiting = [large(), large()];
        assert!(waiting.iter().all(|answer| answer.status() == StatusCode::OK));
        let refused = large();
        assert_eq!((refused.status(), refused.body().len()), (StatusCode::SERVICE_UNAVAILABLE, 0));
        assert_eq!(kept(text(StatusCode::OK, "x".repeat(256)), &slots).status(), StatusCode::OK);
        drop(waiting);
        assert_eq!(large().status(), StatusCode::OK, "there is room again");
    }
}
