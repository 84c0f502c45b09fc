//! A scripted API server for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

/// The answer to a review: the `status` of the review, or an error with this HTTP code.
pub(super) type Answer = Result<Value, u16>;

/// Returns a client with a server that answers each review by `script`, and the number of reviews.
pub(super) fn server(script: impl Fn(&Value, usize) -> Answer + Send + Sync + 'static) -> (Client, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let (counter, script) = (count.clone(), Arc::new(script));
    let service = tower::service_fn(move |request: Request<Body>| {
        let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
        let script = script.clone();
        async move {
            let bytes = request.into_body().collect_bytes().await?;
            let mut review: Value = serde_json::from_slice(&bytes)?;
            let (code, body) = match script(&review["spec"], number) {
                Ok(status) => {
                    review["status"] = status;
                    (201, review)
                }
                // Code 0 means a broken connection.
                Err(0) => return Err::<_, BoxError>(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
                Err(code) => (code, json!({"kind": "Status", "status": "Failure", "message": "no", "code": code})),
            };
            Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
        }
    });
    (Client::new(service, "default"), count)
}

/// Returns a client with a server that never answers, and the number of requests that the server received.
pub(super) fn silent_server() -> (Client, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let service = tower::service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<Response<Body>, BoxError>>()
    });
    (Client::new(service, "default"), count)
}
