//! Why a SOAP call failed, and what a caller may do about it.

use super::decode::DecodeError;
use super::fault::{Fault, FaultKind};
use super::types::MoRef;
use crate::clients::http;

/// Why a SOAP call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer of the protocol.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The server refused.
    #[error("{operation} at {endpoint}: {fault}")]
    Fault {
        /// `host:port`.
        endpoint: String,
        /// The method.
        operation: &'static str,
        /// What it said.
        fault: Box<Fault>,
    },
    /// An answer that cannot be understood.
    #[error("{operation} at {endpoint}: the answer cannot be understood")]
    Malformed {
        /// `host:port`.
        endpoint: String,
        /// The method.
        operation: &'static str,
        /// Where it fails.
        source: DecodeError,
    },
    /// The peer speaks the protocol but is no vCenter.
    #[error("{endpoint} is not a vCenter Server but {found}")]
    NotVcenter {
        /// `host:port`.
        endpoint: String,
        /// What it says it is.
        found: String,
    },
}

impl Error {
    /// A stable word for metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Http(error) => error.reason(),
            Error::Fault { fault, .. } => fault.kind.as_str(),
            Error::Malformed { .. } => "Malformed",
            Error::NotVcenter { .. } => "NotVcenter",
        }
    }

    /// The fault, if the server refused.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::Fault { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// The session is gone: log in again and rebuild collector, filters and views.
    pub fn is_not_authenticated(&self) -> bool {
        self.has_kind(FaultKind::NotAuthenticated)
    }

    /// The credentials were rejected, or the password has expired. Never repeat this quickly: accounts get locked.
    pub fn is_invalid_login(&self) -> bool {
        self.has_kind(FaultKind::InvalidLogin) || self.has_kind(FaultKind::PasswordExpired)
    }

    /// The server says that exactly this object does not exist. The same fault naming another object (a collector, a
    /// view, a filter) proves nothing about this one.
    pub fn is_managed_object_not_found(&self, object: &MoRef) -> bool {
        self.fault().is_some_and(|fault| {
            fault.kind == FaultKind::ManagedObjectNotFound && fault.object.as_ref() == Some(object)
        })
    }

    /// The same call may well succeed later, with the same session and settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Http(error) => error.is_transient(),
            Error::Fault { fault, .. } => matches!(
                fault.kind,
                FaultKind::SystemError
                    | FaultKind::HostUnreachable
                    | FaultKind::RequestCanceled
                    | FaultKind::InvalidState
                    | FaultKind::Other
            ),
            // A cut or garbled answer; the next one may be whole.
            Error::Malformed { .. } => true,
            Error::NotVcenter { .. } => false,
        }
    }

    fn has_kind(&self, kind: FaultKind) -> bool {
        self.fault().is_some_and(|fault| fault.kind == kind)
    }
}
