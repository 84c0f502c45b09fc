//! Checks leadership after a write has left the client's buffer, immediately before the write is sent. Also defines
//! [`WriteLayer`].

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response};
use std::task::{Context, Poll};
use tower::{BoxError, Layer, Service};

use crate::kubernetes::leadership::{Leadership, NotLeader};

/// Future of the response to a request. A poll sends the request: the first one if a connection is idle.
pub(super) type ResponseFuture<R> = BoxFuture<'static, Result<Response<R>, BoxError>>;

/// Layer that passes reads through, and hands the response future of each write to a function. The function may delay
/// or reject the write.
pub(super) struct WriteLayer<F>(pub(super) F);

pub(super) struct Writes<S, F> {
    inner: S,
    on_write: F,
}

impl<S, F: Clone> Layer<S> for WriteLayer<F> {
    type Service = Writes<S, F>;

    fn layer(&self, inner: S) -> Writes<S, F> {
        Writes { inner, on_write: self.0.clone() }
    }
}

impl<S, F, B, R> Service<Request<B>> for Writes<S, F>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError>,
    S::Future: Send + 'static,
    F: Fn(Method, ResponseFuture<R>) -> ResponseFuture<R>,
    R: 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = ResponseFuture<R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // A write never waits here, because the client's reads would wait behind it.
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<R> {
        let method = request.method().clone();
        let answer = self.inner.call(request).boxed();
        match method {
            Method::GET | Method::HEAD | Method::OPTIONS => answer,
            method => (self.on_write)(method, answer),
        }
    }
}

/// Returns a layer that rejects writes while this process does not lead, and cancels writes in flight when leadership
/// ends.
pub(super) fn layer<R: 'static>(
    leadership: Leadership,
) -> WriteLayer<impl Fn(Method, ResponseFuture<R>) -> ResponseFuture<R> + Clone + use<R>> {
    WriteLayer(move |_: Method, answer: ResponseFuture<R>| {
        let over = leadership.wait_until_lost();
        let leadership = leadership.clone();
        async move {
            // The first poll may come long after the creation of this future.
            leadership.check()?;
            tokio::select! {
                // Any poll of the answer can send the request, for example once a connection is established, so `over`
                // is polled before it.
                biased;
                () = over => Err(NotLeader.into()),
                answer = answer => answer,
            }
        }
        .boxed()
    })
}
