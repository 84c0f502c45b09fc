//! Sends one request and reads its answer within the limits.

use tracing::trace;

use super::{Client, Error, Request, Response};

impl Client {
    /// Sends the request and reads the whole answer, whatever its status.
    ///
    /// A repeatable request is sent once more when the connection it went over broke before any answer: idle pooled
    /// connections die on the server's side.
    ///
    /// # Errors
    /// Every variant of [`Error`] but `Status`: judging the status is the caller's.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        let (timeout, operation) = (request.timeout, request.operation);
        let limited = tokio::time::timeout(timeout, self.send_twice(request)).await;
        limited
            .unwrap_or_else(|_| Err(Error::Timeout { endpoint: self.endpoint.to_string(), operation, after: timeout }))
    }

    /// An [`Error::Status`] for an answer that is not of the protocol.
    pub fn status_error(&self, operation: &'static str, response: &Response) -> Error {
        Error::Status {
            endpoint: self.endpoint.to_string(),
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

    async fn send_once(&self, request: Request) -> Result<Response, Failure> {
        let Request { method, path, headers, body, operation, timeout, max_bytes, .. } = request;
        let wrap = |error: reqwest::Error| Error::from_reqwest(&error, &self.endpoint, operation, timeout);
        let mut builder = self.inner.request(method.as_http(), format!("{}{path}", self.base));
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        if !body.is_empty() || method == super::Method::Post {
            builder = builder.body(body);
        }
        let mut answer = builder.send().await.map_err(|error| Failure::of(wrap(error)))?;
        let too_large = || Error::TooLarge { endpoint: self.endpoint.to_string(), operation, limit: max_bytes };
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| Failure::Final(wrap(error)))? {
            if body.len().saturating_add(chunk.len()) > max_bytes {
                return Err(Failure::Final(too_large()));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Response { status: answer.status().as_u16(), headers: std::mem::take(answer.headers_mut()), body })
    }
}

/// Tells a request that got no byte back from one that failed later.
enum Failure {
    Unanswered(Error),
    Final(Error),
}

impl Failure {
    fn of(error: Error) -> Self {
        match error {
            Error::Broken { .. } => Failure::Unanswered(error),
            other => Failure::Final(other),
        }
    }

    fn into_error(self) -> Error {
        match self {
            Failure::Unanswered(error) | Failure::Final(error) => error,
        }
    }
}
