//! Why a REST call failed, and what a caller may do about it.

use serde::Deserialize;
use serde_json::error::Category;

use crate::clients::http::{self, FailedRequest, Response};

/// The largest error answer that is parsed, in bytes.
const LARGEST_ERROR: usize = 64 << 10;

/// Why a REST call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no answer, or one that does not follow the protocol.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The server refused.
    #[error("{request}: HTTP status {status}{}", detail(message))]
    Refused {
        /// The refused request.
        request: FailedRequest,
        /// The HTTP status.
        status: u16,
        /// Family of the refusal.
        refusal: Refusal,
        /// The server's text, possibly empty.
        message: String,
    },
    /// A call was made without a session; nothing was sent.
    #[error("{0}: not logged in")]
    NoSession(FailedRequest),
    /// A malformed answer, and where parsing failed.
    #[error("{0}: the answer cannot be understood")]
    Malformed(FailedRequest, #[source] Unreadable),
}

/// Why JSON cannot be parsed, and where. None of the JSON is repeated: the answer to a login contains the session id,
/// and any other may be long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        let message = error.to_string();
        // Messages about a missing field contain only our field name; those about an unexpected value quote the value.
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

/// Families of refusals that a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// 401: no session, a dead one, or wrong credentials at a login.
    Unauthenticated,
    /// 403: the user lacks a privilege.
    Unauthorized,
    /// 404: the object does not exist, or the server does not have this operation.
    NotFound,
    /// 400 and the like: the request is invalid.
    InvalidRequest,
    /// The user has as many sessions as the server allows; before 8.0 Update 3 the limit is 550.
    SessionLimit,
    /// 503, 504, 429 and the like: retry later.
    Unavailable,
    /// 500 and anything else: an error on the server's side.
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

/// The name under which a login appears in errors and metrics.
pub(super) const LOGIN: &str = "session.create";

impl Error {
    /// A stable word for metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Http(error) => error.reason(),
            Error::Refused { refusal, .. } => refusal.as_str(),
            Error::NoSession { .. } => "NoSession",
            Error::Malformed { .. } => "Malformed",
        }
    }

    /// Whether the session is missing or has ended: log in, repeat once. Also true for a rejected login.
    pub fn is_unauthenticated(&self) -> bool {
        matches!(self, Error::NoSession { .. } | Error::Refused { refusal: Refusal::Unauthenticated, .. })
    }

    /// Whether a login was rejected. Never repeat this quickly: accounts get locked.
    pub fn is_invalid_login(&self) -> bool {
        matches!(self, Error::Refused { request, .. } if self.is(Refusal::Unauthenticated) && request.operation == LOGIN)
    }

    pub(super) fn is(&self, wanted: Refusal) -> bool {
        matches!(self, Error::Refused { refusal, .. } if *refusal == wanted)
    }

    /// Classifies an answer that is not a success. Its body may be JSON of either framing, text, HTML or empty.
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
