//! The gate of a controller's writes: each write waits for its turn, and leadership is checked after the write has left
//! the client's buffer, immediately before the write is sent.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response};
use tower::layer::{LayerFn, layer_fn};
use tower::{BoxError, Service};

use super::limits::WriteLimits;
use crate::kubernetes::leadership::{Leadership, NotLeader};

/// Returns a layer that passes reads through, delays writes by `limits`, rejects writes while this process does not
/// lead, and cancels writes when the leadership in which they began ends.
pub(super) fn layer<S>(leadership: Leadership, limits: WriteLimits) -> LayerFn<impl Fn(S) -> GuardedWrites<S>> {
    let limits = Arc::new(limits);
    layer_fn(move |inner| GuardedWrites { inner, leadership: leadership.clone(), limits: Arc::clone(&limits) })
}

pub(super) struct GuardedWrites<S> {
    inner: S,
    leadership: Leadership,
    limits: Arc<WriteLimits>,
}

impl<S, B, R> Service<Request<B>> for GuardedWrites<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError>,
    S::Future: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<R>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // A write never waits here, because the client's reads would wait behind it.
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = request.method().clone();
        let answer = self.inner.call(request);
        if matches!(method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return answer.boxed();
        }
        let over = self.leadership.wait_until_lost();
        let leadership = self.leadership.clone();
        let limits = Arc::clone(&self.limits);
        async move {
            let _slot = limits.admit(&method).await?;
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
    }
}
