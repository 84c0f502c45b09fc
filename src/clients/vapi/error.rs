//! Errors of REST calls, with methods that classify the errors for callers.

use serde::Deserialize;
use serde_json::error::Category;

use crate::clients::http::{self, FailedRequest, Response};

/// The largest error answer that is parsed, in bytes.
const LARGEST_ERROR: usize = 64 << 10;

/// Error of a REST call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no answer, or the answer does not follow the protocol.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The server refused.
    #[error("{request}: HTTP status {status}{}", detail(message))]
    Refused {
        /// The refused request.
        request: FailedRequest,
        /// The HTTP status.
        status: u16,
        /// The kind of refusal.
        refusal: Refusal,
        /// The server's text, possibly empty.
        message: String,
    },
    /// A call was made without a session; nothing was sent.
    #[error("{0}: not logged in")]
    NoSession(FailedRequest),
    /// A malformed answer, with the error of the parser.
    #[error("{0}: the answer cannot be understood")]
    Malformed(FailedRequest, #[source] Unreadable),
}

/// The error of malformed JSON. It quotes no values, because the answer to a login contains the session id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        let message = error.to_string();
        // Of the `Category::Data` messages, those about a missing or duplicate field contain only our field name;
        // others may quote a value.
        let is_ours = ["missing field ", "duplicate field "].iter().any(|words| message.starts_with(words));
        match error.classify() {
            Category::Data if !is_ours => {
                let (line, column) = (error.line(), error.column());
                Self(format!("a value has another form than expected at line {line} column {column}"))
            }
            _ => Self(message),
        }
    }
}

/// Kinds of refusals that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// 401: there is no session, the session has ended, or the credentials of a login are wrong.
    Unauthenticated,
    /// 403: the user lacks a privilege.
    Unauthorized,
    /// 404: the object does not exist, or the server does not have this operation.
    NotFound,
    /// 400 and any other 4xx: the request is invalid.
    InvalidRequest,
    /// The user has as many sessions as the server allows. Before 8.0 Update 3, the limit is 550.
    SessionLimit,
    /// 408, 429, 502, 503 or 504: retry later.
    Unavailable,
    /// 500 and any other status: an error on the server's side.
    Internal,
}

impl Refusal {
    fn as_str(self) -> &'static str {
        match self {
            Refusal::Unauthenticated => "Unauthenticated",
            Refusal::Unauthorized => "Unauthorized",
            Refusal::NotFound => "NotFound",
            Refusal::InvalidRequest => "InvalidRequest",
            Refusal::SessionLimit => "SessionLimit",
            Refusal::Unavailable => "Unavailable",
            Refusal::Internal => "Internal",
        }
    }
}

pub(super) const LOGIN: &str = "session.create";

impl Error {
    /// Returns a stable word for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Http(error) => error.reason(),
            Error::Refused { refusal, .. } => refusal.as_str(),
            Error::NoSession { .. } => "NoSession",
            Error::Malformed { .. } => "Malformed",
        }
    }

    /// Whether there is no session, or the session has ended, or a login was rejected.
    pub fn is_unauthenticated(&self) -> bool {
        matches!(self, Error::NoSession { .. } | Error::Refused { refusal: Refusal::Unauthenticated, .. })
    }

    /// Whether a login was rejected. Never repeat such a login quickly: accounts get locked.
    pub fn is_invalid_login(&self) -> bool {
        matches!(self, Error::Refused { request, .. } if self.is(Refusal::Unauthenticated) && request.operation == LOGIN)
    }

    pub(super) fn is(&self, wanted: Refusal) -> bool {
        matches!(self, Error::Refused { refusal, .. } if *refusal == wanted)
    }

    /// Classifies an answer that is not a success. The body may be JSON of either framing, text, HTML or empty.
    pub(super) fn refused(request: FailedRequest, response: &Response) -> Self {
        let is_small = response.body.len() <= LARGEST_ERROR;
        let parsed: Option<ErrorBody> = is_small.then(|| serde_json::from_slice(&response.body).ok()).flatten();
        let parsed = parsed.unwrap_or_default();
        let messages = parsed.value.map_or(parsed.messages, |value| value.messages).unwrap_or_default();
        let at_limit = messages.iter().any(|message| message.id.ends_with("MaxUserSessionCountReached"));
        let texts: Vec<&str> =
            messages.iter().map(|message| message.default_message.as_str()).filter(|text| !text.is_empty()).collect();
        let refusal = if at_limit { Refusal::SessionLimit } else { refusal_of(response.status) };
        let message = texts.join("; ").chars().filter(|c| !c.is_control()).take(300).collect();
        Error::Refused { request, status: response.status, refusal, message }
    }
}

fn refusal_of(status: u16) -> Refusal {
    match status {
        401 => Refusal::Unauthenticated,
        403 => Refusal::Unauthorized,
        404 => Refusal::NotFound,
        408 | 429 | 502 | 503 | 504 => Refusal::Unavailable,
        400..=499 => Refusal::InvalidRequest,
        _ => Refusal::Internal,
    }
}

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// `{"type":…,"value":{"messages":[…]}}` or `{"error_type":…,"messages":[…]}`.
#[derive(Default, Deserialize)]
struct ErrorBody {
    value: Option<ErrorValue>,
    messages: Option<Vec<Message>>,
}

#[derive(Deserialize)]
struct ErrorValue {
    messages: Option<Vec<Message>>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: String,
    #[serde(default)]
    default_message: String,
}
