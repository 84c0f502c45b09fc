//! Access control in the order of the Go program's handler chain: open paths, authentication, authorization.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use http::{StatusCode, request};
use parking_lot::Mutex;

use super::access::{RequestCredentials, User};
use super::answer::{Answer, text};
use super::{Peer, Server};
use crate::base::error_chain::chain;

/// Time limit for authentication and authorization of a request together.
const LIMIT: Duration = Duration::from_secs(15);

/// Maximum number of requests that wait for a TokenReview or SubjectAccessReview, for all addresses together.
const MAX_WAITING: usize = 128;

/// Maximum number of requests of one address that wait for a review, so that one client cannot block other clients.
const MAX_PER_ADDRESS: usize = 32;

/// A rejected request.
pub(super) struct Refusal {
    /// The user, perhaps anonymous; `None` if the request was rejected before authorization.
    pub(super) user: Option<User>,
    /// The answer to the client.
    pub(super) answer: Answer,
}

impl Refusal {
    fn of_anonymous(status: StatusCode, reason: &'static str) -> Self {
        Self { user: None, answer: text(status, reason) }
    }
}

/// Returns the user of an admitted request. Returns `None` on an open path, which needs no authentication.
pub(super) async fn admitted(server: &Server, peer: &Peer, parts: &request::Parts) -> Result<Option<User>, Refusal> {
    if server.admin.authorizer.is_open(parts.uri.path()) {
        return Ok(None);
    }
    let Some(_turn) = server.review_limiter.turn(peer.address.ip()) else {
        let mut refusal = Refusal::of_anonymous(StatusCode::TOO_MANY_REQUESTS, "too many requests at the same time");
        refusal.answer.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
        return Err(refusal);
    };
    match tokio::time::timeout(LIMIT, decided(server, peer, parts)).await {
        Ok(Ok(user)) => Ok(Some(user)),
        Ok(Err(refusal)) => Err(refusal),
        Err(_) => Err(Refusal::of_anonymous(StatusCode::SERVICE_UNAVAILABLE, "finding out who may ask takes too long")),
    }
}

async fn decided(server: &Server, peer: &Peer, parts: &request::Parts) -> Result<User, Refusal> {
    let shown = RequestCredentials { headers: &parts.headers, certificates: &peer.certificates };
    let user = match server.admin.authenticator.authenticate(shown).await {
        Ok(user) => user.unwrap_or_else(User::anonymous),
        Err(error) => {
            // The debug level is enough, because the authenticator logs once when it cannot reach the API server.
            tracing::debug!("{}", chain(&error));
            return Err(Refusal::of_anonymous(StatusCode::UNAUTHORIZED, "Unauthorized"));
        }
    };
    let (verb, path) = (parts.method.as_str().to_ascii_lowercase(), parts.uri.path());
    let answer = match server.admin.authorizer.may(&user, &verb, path).await {
        Ok(true) => return Ok(user),
        Ok(false) => {
            let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
            text(StatusCode::FORBIDDEN, message)
        }
        Err(error) => {
            tracing::debug!("cannot tell what {} may do: {}", user.name, chain(&*error));
            text(StatusCode::INTERNAL_SERVER_ERROR, "authorization is not possible now")
        }
    };
    Err(Refusal { user: Some(user), answer })
}

/// Number of requests that wait for a review, by address. Addresses without such requests have no entry.
#[derive(Default)]
pub(super) struct ReviewLimiter(Mutex<HashMap<IpAddr, usize>>);

/// Guard that counts a request as waiting until the guard is dropped.
struct PendingReview<'a> {
    limiter: &'a ReviewLimiter,
    address: IpAddr,
}

impl ReviewLimiter {
    /// Counts a request of this address. Returns `None` if a limit is reached.
    fn turn(&self, address: IpAddr) -> Option<PendingReview<'_>> {
        let address = address.to_canonical();
        let mut of = self.0.lock();
        let own = of.get(&address).copied().unwrap_or_default();
        if own >= MAX_PER_ADDRESS || of.values().sum::<usize>() >= MAX_WAITING {
            return None;
        }
        of.insert(address, own + 1);
        Some(PendingReview { limiter: self, address })
    }
}

impl Drop for PendingReview<'_> {
    fn drop(&mut self) {
        let mut of = self.limiter.0.lock();
        match of.get_mut(&self.address) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(of.remove(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_a_quarter_of_all() {
        let asked = ReviewLimiter::default();
        let take =
            |last: u8| -> Vec<_> { std::iter::from_fn(|| asked.turn([192, 0, 2, last].into())).take(1_000).collect() };
        let mut turns: Vec<_> = (1..=5).map(take).collect();
        assert_eq!(turns.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32, 32, 32, 0]);
        assert!(asked.turn("::ffff:192.0.2.1".parse().unwrap()).is_none(), "the same address in another form");
        turns[1].pop();
        assert_eq!((take(1).len(), take(5).len()), (0, 1), "what is free is for the others");
        drop(turns);
        assert!(asked.0.lock().is_empty());
    }
}
