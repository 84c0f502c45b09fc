//! Why a SOAP call failed, and what a caller may do about it.

use super::MoRef;
use super::decoder::DecodeError;
use super::fault::{Fault, FaultKind};
use crate::clients::http::{self, FailedRequest};

/// Why a SOAP call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no answer, or one that does not follow the protocol.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The server refused with this fault.
    #[error("{0}: {1}")]
    Fault(FailedRequest, Box<Fault>),
    /// A malformed answer, and where decoding failed.
    #[error("{0}: the answer cannot be understood")]
    Malformed(FailedRequest, #[source] DecodeError),
    /// The peer at `host:port` speaks the protocol but is no vCenter. The second text is how it describes itself.
    #[error("{0} is not a vCenter Server but {1}")]
    NotVcenter(String, String),
}

impl Error {
    /// A stable word for metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Http(error) => error.reason(),
            Error::Fault(_, fault) => fault.kind.as_str(),
            Error::Malformed { .. } => "Malformed",
            Error::NotVcenter { .. } => "NotVcenter",
        }
    }

    /// The fault, if the server refused.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::Fault(_, fault) => Some(fault),
            _ => None,
        }
    }

    /// Whether the session has ended: log in again and rebuild collector, filters and views.
    pub fn is_not_authenticated(&self) -> bool {
        self.has_kind(FaultKind::NotAuthenticated)
    }

    /// Whether the account lacks a permission.
    pub fn is_no_permission(&self) -> bool {
        self.has_kind(FaultKind::NoPermission)
    }

    /// Whether the credentials were rejected or have expired. Never repeat this quickly: accounts get locked.
    pub fn is_invalid_login(&self) -> bool {
        self.has_kind(FaultKind::InvalidLogin) || self.has_kind(FaultKind::PasswordExpired)
    }

    /// Whether the server says that exactly this object does not exist. The same fault about another object, such as a
    /// collector, a view or a filter, proves nothing about this one.
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
            // The answer is truncated or garbled; the next one may be complete.
            Error::Malformed { .. } => true,
            Error::NotVcenter { .. } => false,
        }
    }

    fn has_kind(&self, kind: FaultKind) -> bool {
        self.fault().is_some_and(|fault| fault.kind == kind)
    }
}
