//! Why there is no session, and when to try again.

use std::time::Duration;

use crate::base::error_chain::chain;
use crate::clients::{http, session_manager, sts, vapi, vim};
use crate::providers::vsphere::vcenter::outage::Outage;
use crate::providers::vsphere::vcenter::snapshot::Trouble;
use crate::providers::vsphere::vcenter::spelling::Spelling;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Cause {
    /// The server did not answer, or refused.
    #[error(transparent)]
    Soap(#[from] vim::Error),
    /// There is no token to log in with.
    #[error(transparent)]
    Token(#[from] sts::Error),
    /// There is no ticket for a shared session.
    #[error(transparent)]
    Ticket(#[from] session_manager::Error),
    /// The login has to wait.
    #[error("{why}")]
    Held {
        why: String,
        /// Whether the server refused these credentials when they were tried last.
        was_rejected: bool,
    },
    /// There is nothing to log in with: what is missing.
    #[error("{0}")]
    NoCredentials(String),
    /// What there is to log in with is not known: what was not read.
    #[error("{0}")]
    CredentialsUnread(String),
    /// Something that is no answer of this server.
    #[error("{0}")]
    Other(String),
}

impl Cause {
    /// The server refused the credentials.
    pub(in super::super) fn is_invalid_login(&self) -> bool {
        match self {
            Cause::Soap(error) => error.is_invalid_login(),
            Cause::Token(error) => error.is_invalid_login(),
            Cause::Ticket(error) => error.is_invalid_login(),
            Cause::Held { .. } | Cause::NoCredentials(_) | Cause::CredentialsUnread(_) | Cause::Other(_) => false,
        }
    }

    /// What it means for those who use the vCenter.
    pub(in super::super) fn outage(&self) -> Outage {
        match self {
            _ if self.is_invalid_login() => Outage::LoginRejected,
            Cause::Soap(error) => Outage::of_soap(error),
            Cause::Token(sts::Error::Http(error)) => Outage::of_http(error),
            Cause::Token(_) => Outage::ErrorAnswered,
            Cause::Ticket(_) => Outage::NoTicket,
            Cause::Held { was_rejected, .. } => Outage::LoginDelayed { was_rejected: *was_rejected },
            Cause::NoCredentials(_) => Outage::CredentialsMissing,
            Cause::CredentialsUnread(_) => Outage::CredentialsUnread,
            Cause::Other(_) => Outage::NoAnswer,
        }
    }

    /// The certificate of vCenter that was refused.
    fn certificate(&self) -> Option<&http::CertificateRefusal> {
        match self {
            Cause::Soap(vim::Error::Http(error)) | Cause::Token(sts::Error::Http(error)) => match error {
                http::Error::Certificate(_, refusal) => Some(refusal),
                _ => None,
            },
            _ => None,
        }
    }

    /// The session is gone.
    pub(in super::super) fn is_not_authenticated(&self) -> bool {
        matches!(self, Cause::Soap(error) if error.is_not_authenticated())
    }
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Pause {
    /// Soon, then less and less often.
    Backoff,
    /// After this long, or when other credentials are offered.
    For(Duration),
    /// When other credentials are offered.
    UntilOffered,
}

/// Why a connection ended or was not made, and during what.
#[derive(Debug, thiserror::Error)]
#[error("{during}")]
pub(in super::super) struct ConnectionFailure {
    pub(in super::super) during: String,
    #[source]
    pub(in super::super) source: Cause,
    pub(in super::super) pause: Pause,
}

impl ConnectionFailure {
    /// All there is to say, for the log line of the vCenter, whose entry is written so. A certificate that a thumbprint
    /// excuses comes with the line to configure.
    pub(in super::super) fn text(&self, entry: &Spelling) -> String {
        match self.source.certificate().and_then(|refusal| refusal.thumbprint) {
            Some(thumbprint) => format!("{}, with {}", chain(self), entry.thumbprint_line(thumbprint)),
            None => chain(self),
        }
    }

    /// What it means for those who use the vCenter, whose entry is written so.
    pub(in super::super) fn trouble(&self, entry: &Spelling) -> Trouble {
        let outage = self.source.outage();
        let cause = match outage {
            // Says which account of which source it is, and how a pause ends.
            Outage::LoginRejected | Outage::LoginDelayed { .. } => chain(self),
            _ => chain(&self.source),
        };
        outage.trouble(self.text(entry), cause)
    }
}

/// All there is to say of a read that failed, as [`ConnectionFailure::text`].
pub(in super::super) fn text_of_read(error: &vim::Error, entry: &Spelling) -> String {
    let refusal = match error {
        vim::Error::Http(http::Error::Certificate(_, refusal)) => Some(refusal),
        _ => None,
    };
    match refusal.and_then(|refusal| refusal.thumbprint) {
        Some(thumbprint) => format!("{}, with {}", chain(error), entry.thumbprint_line(thumbprint)),
        None => chain(error),
    }
}

/// Attaches what was being done to a client's error.
pub(in super::super) fn failed(during: &str) -> impl FnOnce(vim::Error) -> ConnectionFailure + '_ {
    move |source| ConnectionFailure { during: during.to_string(), source: source.into(), pause: Pause::Backoff }
}

/// Why there is no REST session, or why it did not answer.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum RestFailure {
    /// The server did not answer, or refused.
    #[error(transparent)]
    Rest(#[from] vapi::Error),
    /// There is no token to log in with.
    #[error(transparent)]
    Token(#[from] sts::Error),
    /// No login may be made before this has passed.
    #[error("{why}")]
    Held {
        /// What held it.
        why: String,
        /// For how long.
        pause: Duration,
    },
    /// There is no SOAP session to begin with.
    #[error("there is no session with vCenter yet")]
    NoSession,
}

impl RestFailure {
    /// The session ended, or this server does not take a session of SOAP.
    pub(in super::super) fn is_unauthenticated(&self) -> bool {
        matches!(self, RestFailure::Rest(error) if error.is_unauthenticated() && !error.is_invalid_login())
    }
}
