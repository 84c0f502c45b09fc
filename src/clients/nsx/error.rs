//! Errors of NSX calls, classified by [`Kind`].

use std::fmt;
use std::time::Duration;

use crate::clients::http::{self, FailedRequest};

/// Meaning of a failed call. The table in `nsx::answer` assigns the kinds to error answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The manager is overloaded. A write refused with 429 had no effect. With another status, a write's effect is
    /// unknown.
    Busy,
    /// The credentials were rejected. Repeated attempts lock the account.
    Rejected,
    /// The session has ended or never existed. The call had no effect.
    SessionOver,
    /// NSX gave no valid answer, so the state in NSX is unknown. A write was not sent, or its effect is unknown.
    Unavailable,
    /// A write, login or logout was sent, and its effect is unknown. The caller must read the object before repeating a
    /// write.
    Unknown,
    /// The account lacks a permission. If another principal protects the object, the message names that owner.
    NoPermission,
    /// The object of the request does not exist.
    NotFound,
    /// Another object that the request refers to does not exist. The text is the path of that object.
    MissingReference(String),
    /// Other objects still refer to the object.
    Referenced,
    /// The object is marked for deletion. Its id cannot be used before NSX purges the object.
    MarkedForDeletion,
    /// Another client has changed the object. The caller must read the object, check its owner, and plan again.
    Conflict,
    /// The request is invalid. A retry is useless until something changes.
    BadRequest,
    /// The permission to write has ended. The effect of a write in flight is unknown.
    NotPermitted,
}

impl Kind {
    /// Returns a stable word for metrics.
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

/// Error of a call.
#[derive(Debug)]
pub struct Error {
    /// The meaning of the failure.
    pub kind: Kind,
    request: FailedRequest,
    target: String,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Http(http::Error),
    Refused(ErrorAnswer),
    Other(String),
}

/// The printable part of an error answer.
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

    /// Returns a stable word for metrics: the network failure, or the kind.
    pub fn reason(&self) -> &'static str {
        match &self.cause {
            Cause::Http(error) => error.reason(),
            Cause::Refused(_) | Cause::Other(_) => self.kind.as_str(),
        }
    }

    /// Returns the HTTP status of the error answer or web page, if there is one.
    pub fn status(&self) -> Option<u16> {
        self.answer().map(|answer| answer.status)
    }

    /// Returns `error_code` of the error answer, if there is one.
    pub fn code(&self) -> Option<i64> {
        self.answer()?.code
    }

    /// Whether NSX answered with 404 that the object of the request, or another object such as an ancestor, does not
    /// exist. Status 400 proves nothing, because an invalid path may have another cause.
    pub fn says_absent(&self) -> bool {
        self.status() == Some(404) && matches!(self.kind, Kind::NotFound | Kind::MissingReference(_))
    }

    /// Returns the error without the call, for a message that already names the call.
    pub(super) fn what(&self) -> String {
        let ErrorAnswer { status, code, message, .. } = match &self.cause {
            Cause::Http(error) => return error.to_string(),
            Cause::Other(message) => return message.clone(),
            Cause::Refused(answer) => answer,
        };
        let mut text = format!("HTTP status {status}");
        if let Some(code) = code {
            text += &format!(", code {code}");
        }
        if let Kind::MissingReference(path) = &self.kind {
            text += &format!(", {path} does not exist");
        }
        if !message.is_empty() {
            text += &format!(": {message}");
        }
        text
    }

    /// Returns the pause that the manager requests, if any.
    pub fn retry_after(&self) -> Option<Duration> {
        self.answer()?.retry_after
    }

    fn answer(&self) -> Option<&ErrorAnswer> {
        match &self.cause {
            Cause::Refused(answer) => Some(answer),
            Cause::Http(_) | Cause::Other(_) => None,
        }
    }

    /// Returns the network failure, if that is the cause.
    pub fn http_error(&self) -> Option<&http::Error> {
        match &self.cause {
            Cause::Http(error) => Some(error),
            Cause::Refused(_) | Cause::Other(_) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, target, cause, .. } = self;
        match cause {
            Cause::Http(_) => write!(f, "{target}: {}", self.what()),
            Cause::Other(_) | Cause::Refused(_) => write!(f, "{request}, {target}: {}", self.what()),
        }
    }
}

impl std::error::Error for Error {}
