//! The transport of requests: the network, or memory in a test.
//!
//! A transport makes one attempt. The client adds time limits, the second attempt and the observer.

mod network;

use async_trait::async_trait;

use super::{Endpoint, Error, Request, Response};

pub(super) use network::Network;

/// Makes one attempt at a request.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends the request once and reads the whole answer, of any status, up to the request's `max_bytes`. The future
    /// may be dropped at any await, which is how a time limit ends it.
    ///
    /// # Errors
    /// [`Failure`] says whether the server may have begun to answer.
    async fn exchange(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Failure>;
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum Failure {
    /// The connection broke before the response head was complete, for example a pooled one that the server closed.
    Unanswered(Error),
    /// Any other failure: another attempt would fail too, or the server has begun to answer.
    Final(Error),
}

impl Failure {
    /// The error alone.
    pub fn into_error(self) -> Error {
        match self {
            Failure::Unanswered(error) | Failure::Final(error) => error,
        }
    }
}
