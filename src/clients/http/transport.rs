//! How one request gets its answer: over the network, or, in a test, from memory.
//!
//! A transport makes one attempt. Time limits, the second attempt and the observer are the client's.

mod network;

use async_trait::async_trait;

use super::{Endpoint, Error, Request, Response};

pub(super) use network::Network;

/// Makes one attempt at a request.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends the request to the endpoint, once, and reads the whole answer, whatever its status, up to the request's
    /// `max_bytes`. It may be dropped at any await: that is how a time limit ends it.
    ///
    /// # Errors
    /// [`Failure`] says whether the server can have begun to answer.
    async fn exchange(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Failure>;
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum Failure {
    /// The connection broke before the head of an answer was whole: what a pooled connection does that the server had
    /// given up.
    Unanswered(Error),
    /// Anything else: another attempt would find the same, or the server has begun to answer.
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
