//! The transport of requests: the network, or memory in a test.
//!
//! A transport makes one attempt. The client adds the time limit, the check of the permit, and the second attempt.

mod network;

use async_trait::async_trait;

use super::{Endpoint, Error, Request, Response};

pub(super) use network::Network;

/// A transport, which makes one attempt per call.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends the request once and reads the whole answer of any status, up to the request's `max_bytes`. A time limit
    /// may drop the future at any await.
    ///
    /// # Errors
    /// [`Failure`], which shows whether the server may have begun to answer.
    async fn exchange(&self, endpoint: &Endpoint, request: Request) -> Result<Response, Failure>;
}

/// The failure of an attempt.
#[derive(Debug)]
pub enum Failure {
    /// The connection broke before the response head was complete. For example, the server closed a pooled connection.
    Unanswered(Error),
    /// Any other failure. The client makes no second attempt.
    Final(Error),
}

impl Failure {
    /// Returns the error alone.
    pub fn into_error(self) -> Error {
        match self {
            Failure::Unanswered(error) | Failure::Final(error) => error,
        }
    }
}
