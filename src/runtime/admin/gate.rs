//! Who may ask, as the Go program's chain of handlers decides it: open paths, then who it is, then what they may.

use std::time::Duration;

use http::{StatusCode, request};

use super::Server;
use super::access::{Shown, User};
use super::answer::{Answer, text};
use super::peer::Peer;
use crate::base::error_chain::chain;

/// How long finding out who asks and what they may do may take, whoever is asked for it.
const LIMIT: Duration = Duration::from_secs(15);

/// A request may not go on.
pub(super) struct Refusal {
    /// Who asked, as far as that is known.
    pub(super) user: Option<User>,
    /// What they are told.
    pub(super) answer: Answer,
}

impl Refusal {
    fn of_nobody(status: StatusCode, why: &'static str) -> Self {
        Self { user: None, answer: text(status, why) }
    }
}

/// Who asks; nobody on a path that is open to everybody, where that is not found out.
pub(super) async fn admitted(server: &Server, peer: &Peer, parts: &request::Parts) -> Result<Option<User>, Refusal> {
    if server.admin.authorizer.is_open(parts.uri.path()) {
        return Ok(None);
    }
    let Some(_turn) = server.asked.turn(peer.address.ip()) else {
        let mut refusal = Refusal::of_nobody(StatusCode::TOO_MANY_REQUESTS, "too many requests at the same time");
        refusal.answer.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
        return Err(refusal);
    };
    match tokio::time::timeout(LIMIT, decided(server, peer, parts)).await {
        Ok(Ok(user)) => Ok(Some(user)),
        Ok(Err(refusal)) => Err(refusal),
        Err(_) => Err(Refusal::of_nobody(StatusCode::SERVICE_UNAVAILABLE, "finding out who may ask takes too long")),
    }
}

async fn decided(server: &Server, peer: &Peer, parts: &request::Parts) -> Result<User, Refusal> {
    let shown = Shown { headers: &parts.headers, certificates: &peer.certificates };
    let user = match server.admin.authenticator.authenticate(shown).await {
        Ok(user) => user.unwrap_or_else(User::anonymous),
        Err(error) => {
            // Whoever cannot be asked is told of there, once.
            tracing::debug!("{}", chain(&error));
            return Err(Refusal::of_nobody(StatusCode::UNAUTHORIZED, "Unauthorized"));
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
