//! Checks leadership immediately before a write is sent, behind the client's buffer. Also contains the layer type
//! shared by this check and the limits.

use futures::future::BoxFuture;
use futures::future::FutureExt;
use http::{Method, Request, Response};
use std::task::{Context, Poll};
use tower::{BoxError, Layer, Service};

use crate::kubernetes::leadership::{Leadership, NotLeader};

/// The response to a request. The request is sent when the future is first polled.
pub(super) type ResponseFuture<R> = BoxFuture<'static, Result<Response<R>, BoxError>>;

/// Passes reads through and hands each write to the function, which may delay or reject it.
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
        // Never waits here: one waiting write would stall the client's reads behind it.
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

/// Lets writes pass only while this process leads.
pub(super) fn layer<R: 'static>(
    leadership: Leadership,
) -> WriteLayer<impl Fn(Method, ResponseFuture<R>) -> ResponseFuture<R> + Clone + use<R>> {
    WriteLayer(move |_: Method, answer: ResponseFuture<R>| {
        let over = leadership.wait_until_lost();
        let leadership = leadership.clone();
        async move {
            // The request is sent at this future's first poll, which may be long after its creation.
            leadership.check()?;
            tokio::select! {
                biased;
                () = over => Err(NotLeader.into()),
                answer = answer => answer,
            }
        }
        .boxed()
    })
}
