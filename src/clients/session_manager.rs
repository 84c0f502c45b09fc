//! Client of a session manager, which is a service that keeps a vCenter session and issues tickets to clone it.
//!
//! Mirrors `vclib/vc_session_manager.go` of the Go program: a `GET` with a bearer token returns `{"token": "<clone
//! ticket>"}`. Neither token is part of an error or a log. The bearer token may be that of our service account, so the
//! manager's certificate is always verified.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::http::{self, Method, Request, Response};

const FETCH: &str = "session-manager.get";

/// Time limit for the whole exchange, as in the Go program.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest accepted answer, in bytes. A ticket has some hundred bytes.
const MAX_BYTES: usize = 64 << 10;

/// Error of a request for a ticket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is empty.
    #[error("the URL of the session manager is empty")]
    NoUrl,
    /// The URL is not encrypted, so the token would be readable on the network.
    #[error("the URL of the session manager is not encrypted; expected https:// (http:// only for a loopback address)")]
    NotEncrypted,
    /// The token is empty or malformed.
    #[error("the token for the session manager is empty or holds characters that no token has")]
    BadToken,
    /// The HTTP request failed.
    #[error("the request to the session manager failed: {0}")]
    Http(#[from] http::Error),
    /// The manager at `host:port` refused with this HTTP status.
    #[error("the session manager at {0} answered with HTTP status {1}; expected 200")]
    Refused(String, u16),
    /// A malformed answer from `host:port`.
    #[error("the answer of the session manager at {0} cannot be decoded; expected {{\"token\": \"…\"}}")]
    Malformed(String),
    /// The answer from `host:port` has no ticket.
    #[error("the session manager at {0} returned an empty token")]
    NoTicket(String),
}

impl Error {
    /// Returns a stable word for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::NoUrl | Error::NotEncrypted => "Configuration",
            Error::BadToken => "Token",
            Error::Http(error) => error.reason(),
            Error::Refused(_, 401 | 403) => "InvalidLogin",
            Error::Refused { .. } => "Status",
            Error::Malformed { .. } | Error::NoTicket { .. } => "Malformed",
        }
    }

    /// Whether the manager rejected our token.
    pub fn is_invalid_login(&self) -> bool {
        matches!(self, Error::Refused(_, 401 | 403))
    }
}

/// Fetches a ticket from the manager at this URL, within 5 s. `vcenter` provides the authorities and the proxy. The
/// manager's certificate is verified even if vCenter's is not.
pub async fn fetch_ticket(vcenter: &http::Client, url: &str, token: &SecretString) -> Result<SecretString, Error> {
    fetch_within(vcenter, url, token, TIMEOUT).await
}

async fn fetch_within(
    vcenter: &http::Client,
    url: &str,
    token: &SecretString,
    timeout: Duration,
) -> Result<SecretString, Error> {
    if url.is_empty() {
        return Err(Error::NoUrl);
    }
    let value = token.expose_secret();
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::BadToken);
    }
    let manager = vcenter.sibling(url)?;
    if !manager.is_confidential() {
        return Err(Error::NotEncrypted);
    }
    let mut request = Request::new(Method::GET, path_of(url), FETCH, timeout);
    request.secret_headers.push(("Authorization", bearer(value)));
    request.headers.push(("Accept", "application/json".to_owned()));
    request.max_bytes = MAX_BYTES;
    let answered = async { read(manager.endpoint(), manager.send(request).await?) };
    manager.observed(FETCH, Error::reason, answered).await
}

fn bearer(token: &str) -> SecretString {
    const SCHEME: &str = "Bearer ";
    // The capacity equals the final length, so the conversion to a secret copies nothing.
    let mut value = String::with_capacity(SCHEME.len() + token.len());
    value.extend([SCHEME, token]);
    value.into()
}

/// Returns path and query of a URL that was already validated.
fn path_of(url: &str) -> String {
    use url::Position::{AfterQuery, BeforePath};
    url::Url::parse(url).map_or_else(|_| "/".to_owned(), |url| url[BeforePath..AfterQuery].to_owned())
}

#[derive(Deserialize)]
struct TicketAnswer {
    #[serde(default)]
    token: String,
}

fn read(endpoint: &str, response: Response) -> Result<SecretString, Error> {
    let endpoint = || endpoint.to_owned();
    let body = Zeroizing::new(response.body);
    if response.status != 200 {
        return Err(Error::Refused(endpoint(), response.status));
    }
    // Drops the library's message, which may quote the content.
    let answer: TicketAnswer = serde_json::from_slice(&body).map_err(|_| Error::Malformed(endpoint()))?;
    if answer.token.is_empty() {
        return Err(Error::NoTicket(endpoint()));
    }
    Ok(answer.token.into())
}

#[cfg(test)]
mod tests;
