//! Errors of SOAP calls, with methods that classify the errors for callers.

use super::MoRef;
use super::decoder::DecodeError;
use super::fault::{Fault, FaultKind};
use crate::clients::http::{self, FailedRequest};

/// Error of a SOAP call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no answer, or the answer does not follow the protocol.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The server refused with this fault.
    #[error("{0}: {1}")]
    Fault(FailedRequest, Box<Fault>),
    /// A malformed answer, with the error of the decoder.
    #[error("{0}: the answer cannot be understood")]
    Malformed(FailedRequest, #[source] DecodeError),
    /// The peer at `host:port` uses the protocol but is not a vCenter. The second text is the peer's description of
    /// itself.
    #[error("{0} is not a vCenter Server but {1}")]
    NotVcenter(String, String),
}

impl Error {
    /// Returns a stable word for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Http(error) => error.reason(),
            Error::Fault(_, fault) => fault.kind.as_str(),
            Error::Malformed { .. } => "Malformed",
            Error::NotVcenter { .. } => "NotVcenter",
        }
    }

    /// Returns the fault, if the server refused.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::Fault(_, fault) => Some(fault),
            _ => None,
        }
    }

    /// Whether there is no session, or the session has ended. The caller must log in again and rebuild the collector,
    /// filters and views.
    pub fn is_not_authenticated(&self) -> bool {
        self.has_kind(FaultKind::NotAuthenticated)
    }

    /// Whether the account lacks a permission.
    pub fn is_no_permission(&self) -> bool {
        self.has_kind(FaultKind::NoPermission)
    }

    /// Whether the credentials were rejected or have expired. Never repeat such a login quickly: accounts get locked.
    pub fn is_invalid_login(&self) -> bool {
        self.has_kind(FaultKind::InvalidLogin) || self.has_kind(FaultKind::PasswordExpired)
    }

    /// Whether the fault names exactly this object as missing. The same fault about a collector, view or filter proves
    /// nothing about this object.
    pub fn is_managed_object_not_found(&self, object: &MoRef) -> bool {
        self.fault().is_some_and(|fault| {
            fault.kind == FaultKind::ManagedObjectNotFound && fault.object.as_ref() == Some(object)
        })
    }

    /// Whether the same call may succeed later, with the same session and settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Http(error) => error.is_transient(),
            Error::Fault(_, fault) => matches!(
                fault.kind,
                FaultKind::SystemError
                    | FaultKind::HostUnreachable
                    | FaultKind::RequestCanceled
                    | FaultKind::InvalidState
                    | FaultKind::Other
            ),
            // The next answer may be complete.
            Error::Malformed { .. } => true,
            Error::NotVcenter { .. } => false,
        }
    }

    fn has_kind(&self, kind: FaultKind) -> bool {
        self.fault().is_some_and(|fault| fault.kind == kind)
    }
}
