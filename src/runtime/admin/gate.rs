//! Access control in the order of the Go program's handler chain: open paths, authentication, authorization.

use std::time::Duration;

use http::{StatusCode, request};

use super::access::{RequestCredentials, User};
use super::answer::{Answer, text};
use super::{Peer, Server};
use crate::base::error_chain::chain;

/// Time limit for authentication and authorization of a request together.
const LIMIT: Duration = Duration::from_secs(15);

/// Maximum number of requests that wait for a TokenReview or SubjectAccessReview. Each of them holds its headers in
/// memory.
pub(super) const MAX_PENDING_REVIEWS: usize = 128;

/// The answer to a rejected request, with the user, perhaps anonymous; `None` if the request was rejected before
/// authorization.
pub(super) type Refusal = (Option<User>, Answer);

/// Returns the user of an admitted request. Returns `None` on an open path, which needs no authentication.
pub(super) async fn admitted(server: &Server, peer: &Peer, parts: &request::Parts) -> Result<Option<User>, Refusal> {
    if server.admin.authorizer.is_open(parts.uri.path()) {
        return Ok(None);
    }
    let Ok(_permit) = server.pending_reviews.try_acquire() else {
        let mut answer = text(StatusCode::TOO_MANY_REQUESTS, "too many requests at the same time");
        answer.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
        return Err((None, answer));
    };
    match tokio::time::timeout(LIMIT, decided(server, peer, parts)).await {
        Ok(decided) => decided.map(Some),
        Err(_) => Err((None, text(StatusCode::SERVICE_UNAVAILABLE, "finding out who may ask takes too long"))),
    }
}

async fn decided(server: &Server, peer: &Peer, parts: &request::Parts) -> Result<User, Refusal> {
    let shown = RequestCredentials { headers: &parts.headers, certificates: &peer.certificates };
    let user = match server.admin.authenticator.authenticate(shown).await {
        Ok(user) => user.unwrap_or_else(User::anonymous),
        Err(error) => {
            // The debug level is enough, because the authenticator logs once when it cannot reach the API server.
            tracing::debug!("{}", chain(&error));
            return Err((None, text(StatusCode::UNAUTHORIZED, "Unauthorized")));
        }
    };
    let (verb, path) = (parts.method.as_str().to_ascii_lowercase(), parts.uri.path());
    let answer = match server.admin.authorizer.is_allowed(&user, &verb, path).await {
        Ok(true) => return Ok(user),
        Ok(false) => {
            let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
            text(StatusCode::FORBIDDEN, message)
        }
        Err(error) => {
            tracing::debug!("cannot review the permissions of {}: {}", user.name, chain(&*error));
            text(StatusCode::INTERNAL_SERVER_ERROR, "authorization is not possible now")
        }
    };
    Err((Some(user), answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::admin::tests::{REVIEWED, peer, server};

    #[tokio::test]
    async fn requests_that_wait_for_a_review_are_limited_and_open_paths_are_not() {
        let (server, peer) = (server(), peer());
        let request = |path: &str| http::Request::get(path).body(()).unwrap().into_parts().0;
        let refused = async |path: &str| admitted(&server, &peer, &request(path)).await.err().map(|(_, answer)| answer);

        let pending = server.pending_reviews.try_acquire_many(u32::try_from(MAX_PENDING_REVIEWS).unwrap()).unwrap();
        let answer = refused(REVIEWED).await.expect("there are too many");
        assert_eq!(
            (answer.status(), &answer.headers()["retry-after"]),
            (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
        );
        assert!(refused("/livez").await.is_none(), "no review is needed");
        drop(pending);
        let answer = refused(REVIEWED).await.expect("nobody may see this path");
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "there is room again");
    }
}
