//! The leadership check behind the client's buffer: the last thing a write passes before the wire.

use futures::future::BoxFuture;
use futures::future::FutureExt;
use http::{Method, Request, Response};
use std::task::{Context, Poll};
use tower::{BoxError, Layer, Service};

use crate::kubernetes::leadership::Leadership;

/// Lets reads pass, and writes only while this process leads.
pub(super) struct GuardLayer {
    leadership: Leadership,
}

/// See [`GuardLayer`].
pub(super) struct Guard<S> {
    inner: S,
    leadership: Leadership,
}

impl GuardLayer {
    pub(super) fn new(leadership: Leadership) -> Self {
        Self { leadership }
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, leadership: self.leadership.clone() }
    }
}

/// Whether a request changes anything.
pub(super) fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

impl<S, B, R> Service<Request<B>> for Guard<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError>,
    S::Future: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<R>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !is_write(request.method()) {
            return self.inner.call(request).boxed();
        }
        let over = self.leadership.end_of_term();
        let leadership = self.leadership.clone();
        let answer = self.inner.call(request);
        async move {
            // The request is sent when this future is first polled, which may be long after it was made.
            leadership.check()?;
            tokio::select! {
                biased;
                () = over => Err(crate::kubernetes::leadership::NotLeader.into()),
                answer = answer => answer,
            }
        }
        .boxed()
    }
}
