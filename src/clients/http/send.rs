//! Sends a request through the transport, within the limits.

use std::sync::Arc;

use tracing::trace;

use super::transport::{Failure, Transport};
use super::{Client, Error, Request, Response};

impl Client {
    /// Sends the request and reads the whole answer, whatever its status.
    ///
    /// A repeatable request is sent once more when the connection it went over broke before the head of an answer was
    /// whole: idle pooled connections die on the server's side.
    ///
    /// # Errors
    /// Every variant of [`Error`] but `Status`: judging the status is the caller's.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        let (timeout, operation) = (request.timeout, request.operation);
        let limited = tokio::time::timeout(timeout, self.send_twice(request)).await;
        limited
            .unwrap_or_else(|_| Err(Error::Timeout { endpoint: self.endpoint().to_owned(), operation, after: timeout }))
    }

    /// An [`Error::Status`] for an answer that is not of the protocol.
    pub fn status_error(&self, operation: &'static str, response: &Response) -> Error {
        Error::Status {
            endpoint: self.endpoint().to_owned(),
            operation,
            status: response.status,
            media_type: response.media_type(),
        }
    }

    async fn send_twice(&self, request: Request) -> Result<Response, Error> {
        let again = request.repeatable.then(|| request.clone());
        match (self.send_once(request).await, again) {
            (Err(Failure::Unanswered(error)), Some(request)) => {
                trace!(operation = request.operation, %error, "connection broke before an answer, sending once more");
                self.send_once(request).await.map_err(Failure::into_error)
            }
            (result, _) => result.map_err(Failure::into_error),
        }
    }

    /// Each attempt takes the transport of its moment: the trust may have changed since the last one.
    async fn send_once(&self, request: Request) -> Result<Response, Failure> {
        let (operation, limit) = (request.operation, request.max_bytes);
        let transport: Arc<dyn Transport> = Arc::clone(&self.current().transport);
        let response = transport.exchange(&self.inner.endpoint, request).await?;
        if response.body.len() > limit {
            let endpoint = self.endpoint().to_owned();
            return Err(Failure::Final(Error::TooLarge { endpoint, operation, limit }));
        }
        Ok(response)
    }
}
