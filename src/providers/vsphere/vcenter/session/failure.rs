//! Reasons why there is no session, and the time of the next attempt.

use std::time::Duration;

use crate::base::error_chain::chain;
use crate::clients::{http, session_manager, sts, vapi, vim};
use crate::providers::vsphere::vcenter::outage::Outage;
use crate::providers::vsphere::vcenter::snapshot::VcenterFailure;
use crate::providers::vsphere::vcenter::spelling::Spelling;

/// The cause of a connection failure.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum FailureCause {
    /// No answer of the server, or a refusal.
    #[error(transparent)]
    Soap(#[from] vim::Error),
    #[error(transparent)]
    Token(#[from] sts::Error),
    #[error(transparent)]
    Ticket(#[from] session_manager::Error),
    /// The login has to wait.
    #[error("{message}")]
    Held {
        message: String,
        /// Whether the server rejected these credentials in the last attempt.
        was_rejected: bool,
    },
    /// There are no credentials. The text is the reason.
    #[error("{0}")]
    NoCredentials(String),
    /// The credentials were not read. The text is the reason.
    #[error("{0}")]
    CredentialsUnread(String),
    /// A cause that is no error of a client.
    #[error("{0}")]
    Other(String),
}

impl FailureCause {
    pub(in super::super) fn is_invalid_login(&self) -> bool {
        match self {
            FailureCause::Soap(error) => error.is_invalid_login(),
            FailureCause::Token(error) => error.is_invalid_login(),
            FailureCause::Ticket(error) => error.is_invalid_login(),
            FailureCause::Held { .. }
            | FailureCause::NoCredentials(_)
            | FailureCause::CredentialsUnread(_)
            | FailureCause::Other(_) => false,
        }
    }

    pub(in super::super) fn outage(&self) -> Outage {
        match self {
            _ if self.is_invalid_login() => Outage::LoginRejected,
            FailureCause::Soap(error) => Outage::of_soap(error),
            FailureCause::Token(sts::Error::Http(error)) => Outage::of_http(error),
            FailureCause::Token(_) => Outage::ErrorAnswered,
            FailureCause::Ticket(_) => Outage::NoTicket,
            FailureCause::Held { was_rejected, .. } => Outage::LoginDelayed { was_rejected: *was_rejected },
            FailureCause::NoCredentials(_) => Outage::CredentialsMissing,
            FailureCause::CredentialsUnread(_) => Outage::CredentialsUnread,
            FailureCause::Other(_) => Outage::NoAnswer,
        }
    }

    /// Returns the HTTP error if the cause is one of a call to vCenter.
    fn http_error(&self) -> Option<&http::Error> {
        match self {
            FailureCause::Soap(vim::Error::Http(error)) | FailureCause::Token(sts::Error::Http(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether the cause is that the session has ended.
    pub(in super::super) fn is_not_authenticated(&self) -> bool {
        matches!(self, FailureCause::Soap(error) if error.is_not_authenticated())
    }
}

/// The time of the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Pause {
    Backoff,
    /// After this time, or earlier if other credentials are offered or the login throttle permits the login.
    For(Duration),
    UntilOffered,
}

/// The cause of a failed or ended connection, and the operation in progress.
#[derive(Debug, thiserror::Error)]
#[error("{during}")]
pub(in super::super) struct ConnectionFailure {
    pub(in super::super) during: String,
    #[source]
    pub(in super::super) source: FailureCause,
    pub(in super::super) pause: Pause,
}

impl ConnectionFailure {
    /// Returns the outage as `VcenterFailure`, with texts for this configuration entry.
    pub(in super::super) fn vcenter_failure(&self, entry: &Spelling) -> VcenterFailure {
        let outage = self.source.outage();
        let cause = match outage {
            // The text with the operation names the account, the source of its credentials, and the way to end a pause.
            Outage::LoginRejected | Outage::LoginDelayed { .. } => chain(self),
            _ => chain(&self.source),
        };
        outage.vcenter_failure(with_thumbprint_line(chain(self), self.source.http_error(), entry), cause)
    }
}

/// Returns the full text of a failed read for the log line of the vCenter with the configuration entry `entry`.
pub(in super::super) fn text_of_read(error: &vim::Error, entry: &Spelling) -> String {
    let http_error = if let vim::Error::Http(error) = error { Some(error) } else { None };
    with_thumbprint_line(chain(error), http_error, entry)
}

/// Appends the line to configure, if a thumbprint would make the rejected certificate acceptable.
fn with_thumbprint_line(text: String, error: Option<&http::Error>, entry: &Spelling) -> String {
    let Some(http::Error::Certificate(_, refusal)) = error else { return text };
    match refusal.thumbprint {
        Some(thumbprint) => format!("{text}, with {}", entry.thumbprint_line(thumbprint)),
        None => text,
    }
}

/// Converts an error of the SOAP client. `during` names the operation.
pub(in super::super) fn failed(during: &str) -> impl FnOnce(vim::Error) -> ConnectionFailure + '_ {
    move |source| ConnectionFailure { during: during.to_string(), source: source.into(), pause: Pause::Backoff }
}

/// The reason why there is no REST session or no answer.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum RestFailure {
    /// No answer of the server, or a refusal.
    #[error(transparent)]
    Rest(#[from] vapi::Error),
    #[error(transparent)]
    Token(#[from] sts::Error),
    /// A login has to wait.
    #[error("{message}")]
    Held { message: String, pause: Duration },
    /// There is no SOAP session, which REST requires.
    #[error("there is no session with vCenter yet")]
    NoSession,
}

impl RestFailure {
    /// Whether the REST session has ended, or REST refuses the SOAP session.
    pub(in super::super) fn is_unauthenticated(&self) -> bool {
        matches!(self, RestFailure::Rest(error) if error.is_unauthenticated() && !error.is_invalid_login())
    }
}
