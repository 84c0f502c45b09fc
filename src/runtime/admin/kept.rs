//! Answers that wait for being read: all connections together keep only so many.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::{Answer, text};

/// Answers at once that are larger than [`SMALL`].
pub(super) const MOST_KEPT: usize = 1024;

/// An answer of that many bytes costs no more than the request that it is for. It is always given: a probe says little,
/// and must not fail because others read nothing.
const SMALL: u64 = 256;

/// The body of an answer, with its place among those that are kept.
pub(super) struct Kept {
    body: Full<Bytes>,
    _place: Option<OwnedSemaphorePermit>,
}

/// The answer once it has its place; without one it is that there is none.
pub(super) fn kept(answer: Answer, places: &Arc<Semaphore>) -> Response<Kept> {
    let is_small = answer.body().size_hint().exact().is_some_and(|size| size <= SMALL);
    match (is_small, Arc::clone(places).try_acquire_owned()) {
        (true, _) => answer.map(|body| Kept { body, _place: None }),
        (false, Ok(place)) => answer.map(|body| Kept { body, _place: Some(place) }),
        (false, Err(_)) => text(StatusCode::SERVICE_UNAVAILABLE, "").map(|body| Kept { body, _place: None }),
    }
}

/// The same header with nothing behind it, for whoever asks for that only.
pub(super) fn without_body(mut answer: Response<Kept>) -> Response<Kept> {
    if let Some(size) = answer.body().size_hint().exact() {
        answer.headers_mut().insert(CONTENT_LENGTH, size.into());
    }
    answer.map(|_| Kept { body: Full::default(), _place: None })
}

impl Body for Kept {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_answers_are_kept_up_to_a_number_and_small_ones_are_always_given() {
        let places = Arc::new(Semaphore::new(2));
        let large = || kept(text(StatusCode::OK, "x".repeat(257)), &places);
        let waiting = [large(), large()];
        assert!(waiting.iter().all(|answer| answer.status() == StatusCode::OK));
        let refused = large();
        assert_eq!((refused.status(), refused.body().size_hint().exact()), (StatusCode::SERVICE_UNAVAILABLE, Some(0)));
        assert_eq!(kept(text(StatusCode::OK, "x".repeat(256)), &places).status(), StatusCode::OK);
        drop(waiting);
        assert_eq!(large().status(), StatusCode::OK, "there is room again");
    }
}
