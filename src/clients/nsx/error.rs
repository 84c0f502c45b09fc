//! Why a call failed, and what a caller may do about it.

use std::fmt;
use std::time::Duration;

use crate::clients::http::{self, FailedRequest};

/// Meaning of a failed call, from the table in `nsx::answer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The manager is overloaded. A write refused with 429 did nothing; otherwise its effect is unknown.
    Busy,
    /// The credentials were refused. Repeating them locks the account.
    Rejected,
    /// The session has ended or never existed. The call did nothing.
    SessionOver,
    /// No valid answer of NSX: the state in NSX is unknown, and a write was not made or its effect is unknown.
    Unavailable,
    /// A write was sent, and its effect is unknown. Read the object before repeating anything.
    Unknown,
    /// The account lacks a permission. The message names the owner of an object that another principal protects.
    NoPermission,
    /// The object of the request does not exist.
    NotFound,
    /// An object that the request refers to, other than its own object, does not exist. The text is the path.
    MissingReference(String),
    /// Other objects still refer to the object.
    Referenced,
    /// The object is marked for deletion: its id cannot be used before the purge.
    MarkedForDeletion,
    /// Another client has changed the object: read it, check its ownership, plan again.
    Conflict,
    /// The request is invalid: repeating it is useless until something changes.
    BadRequest,
    /// The permission to write has ended. The effect of a write in flight is unknown.
    NotPermitted,
}

impl Kind {
    /// A stable word for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Kind::Busy => "Busy",
            Kind::Rejected => "Rejected",
            Kind::SessionOver => "SessionOver",
            Kind::Unavailable => "Unavailable",
            Kind::Unknown => "Unknown",
            Kind::NoPermission => "NoPermission",
            Kind::NotFound => "NotFound",
            Kind::MissingReference(_) => "MissingReference",
            Kind::Referenced => "Referenced",
            Kind::MarkedForDeletion => "MarkedForDeletion",
            Kind::Conflict => "Conflict",
            Kind::BadRequest => "BadRequest",
            Kind::NotPermitted => "NotPermitted",
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub struct Error {
    /// Meaning of the failure.
    pub kind: Kind,
    request: FailedRequest,
    /// The HTTP method and the path of the object.
    target: String,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Http(http::Error),
    Refused(ErrorAnswer),
    Other(String),
}

/// The printable part of an answer that is not a success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// The HTTP status.
    pub status: u16,
    /// `error_code`.
    pub code: Option<i64>,
    /// `error_message`, without control characters and at most 300 characters; possibly empty.
    pub message: String,
    /// `Retry-After`, at most five minutes.
    pub retry_after: Option<Duration>,
}

impl Error {
    pub(super) fn http(kind: Kind, request: FailedRequest, target: String, error: http::Error) -> Self {
        Self { kind, request, target, cause: Cause::Http(error) }
    }

    pub(super) fn refused(kind: Kind, request: FailedRequest, target: String, refused: ErrorAnswer) -> Self {
        Self { kind, request, target, cause: Cause::Refused(refused) }
    }

    pub(super) fn other(kind: Kind, request: FailedRequest, target: String, message: impl Into<String>) -> Self {
        Self { kind, request, target, cause: Cause::Other(message.into()) }
    }

    /// An error of this kind.
    #[cfg(test)]
    pub(crate) fn of_kind(kind: Kind) -> Self {
        let request = FailedRequest { endpoint: "nsx:443".to_owned(), operation: "test" };
        Self::other(kind, request, "GET /infra".to_owned(), "no")
    }

    /// A stable word for metrics: the network failure, or the kind.
    pub fn reason(&self) -> &'static str {
        match &self.cause {
            Cause::Http(error) => error.reason(),
            Cause::Refused(_) | Cause::Other(_) => self.kind.as_str(),
        }
    }

    /// The HTTP status of the refusal, if there was one.
    pub fn status(&self) -> Option<u16> {
        match &self.cause {
            Cause::Refused(refused) => Some(refused.status),
            Cause::Http(_) | Cause::Other(_) => None,
        }
    }

    /// `error_code` of the refusal, if it has one.
    pub fn code(&self) -> Option<i64> {
        match &self.cause {
            Cause::Refused(refused) => refused.code,
            Cause::Http(_) | Cause::Other(_) => None,
        }
    }

    /// Whether NSX says (404) that an object does not exist: that of the request, or another one, such as an ancestor.
    /// Status 400 for an invalid path proves nothing, since the path may be invalid for another reason.
    pub fn says_absent(&self) -> bool {
        self.status() == Some(404) && matches!(self.kind, Kind::NotFound | Kind::MissingReference(_))
    }

    /// The error without the call, for a message that already names the call.
    pub(super) fn what(&self) -> String {
        What(self).to_string()
    }

    /// How long the manager asks clients to wait, if it does.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.cause {
            Cause::Refused(refused) => refused.retry_after,
            Cause::Http(_) | Cause::Other(_) => None,
        }
    }

    /// The network failure, if that is the cause.
    pub fn http_error(&self) -> Option<&http::Error> {
        match &self.cause {
            Cause::Http(error) => Some(error),
            Cause::Refused(_) | Cause::Other(_) => None,
        }
    }
}

struct What<'a>(&'a Error);

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { kind, cause, .. } = self.0;
        match cause {
            Cause::Http(error) => write!(f, "{error}"),
            Cause::Other(message) => f.write_str(message),
            Cause::Refused(ErrorAnswer { status, code, message, .. }) => {
                write!(f, "HTTP status {status}")?;
                if let Some(code) = code {
                    write!(f, ", code {code}")?;
                }
                if let Kind::MissingReference(path) = kind {
                    write!(f, ", {path} does not exist")?;
                }
                if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, target, cause, .. } = self;
        match cause {
            Cause::Http(_) => write!(f, "{target}: {}", What(self)),
            Cause::Other(_) | Cause::Refused(_) => write!(f, "{request}, {target}: {}", What(self)),
        }
    }
}

impl std::error::Error for Error {}
