//! Pure: maps failed NSX calls to errors of the load balancer.

use crate::clients::nsx as client;
use crate::cloud::Error;
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::plan::WantedPort;
use crate::providers::vsphere::nsx::load_balancer::resource::Resource;
use crate::providers::vsphere::nsx::load_balancer::{LATER, address_unavailable, config_wrong};
use crate::providers::vsphere::{nsx, reason};

/// Returns the kind of an object by its path; `None` for kinds that this program does not create or that no object
/// refers to.
pub(super) fn kind_of(path: &str) -> Option<ObjectKind> {
    let parts = [
        ObjectKind::LbService,
        ObjectKind::Pool,
        ObjectKind::Monitor,
        ObjectKind::Group,
        ObjectKind::PersistenceProfile,
    ];
    let is_below = |kind: &ObjectKind| path.strip_prefix(kind.parent()).is_some_and(|rest| rest.starts_with('/'));
    parts.into_iter().find(is_below)
}

/// Maps the failure of a call. A rejected request is retried, because another object or a Node may be the cause.
pub(super) fn failed(doing: &str, owner: Option<&str>, error: &client::Error) -> Error {
    match nsx::failed(doing, owner, error) {
        Error::Invalid { reason, message } => Error::Refused { reason, message, after: LATER },
        other => other,
    }
}

/// Maps the failure of a create to an error.
pub(super) fn create_failed(doing: &str, error: &client::Error) -> Error {
    match failed(doing, None, error) {
        // This program does not create the missing object: an IP pool, an application profile or a gateway.
        Error::Failed { message, .. } if is_missing(error) && !names_part(error) => config_wrong(message),
        other => other,
    }
}

/// Returns the error for an object from which another client has removed the tag with the Service.
pub(super) fn unmarked(doing: &str, path: &str) -> Error {
    let message = format!(
        "{doing}: {path} has the id for it, and no tag \"service\" that names a Service; set the tag back, or delete the \
         object in NSX if nothing needs it"
    );
    Error::Failed { reason: reason::NSXRefused, message, after: Some(LATER) }
}

/// Returns the error for another virtual server that uses the address and port of the Service.
pub(super) fn obstructed(port: &WantedPort, server: &Resource) -> Error {
    let message = format!(
        "port {} cannot be served: the virtual server {} listens on its address and port; delete it in NSX if nothing needs it",
        port.port, server.tags.path
    );
    Error::Failed { reason: reason::NSXRefused, message, after: Some(LATER) }
}

fn names_part(error: &client::Error) -> bool {
    matches!(&error.kind, client::Kind::MissingReference(path) if kind_of(path).is_some())
}

pub(super) fn is_missing(error: &client::Error) -> bool {
    matches!(error.kind, client::Kind::MissingReference(_) | client::Kind::NotFound)
}

/// Whether to read the object and plan again: another client changed or deleted it, or the outcome is unknown.
pub(super) fn is_to_be_read(kind: &client::Kind) -> bool {
    use client::Kind::{Conflict, MarkedForDeletion, NotFound, Unknown};
    matches!(kind, Conflict | Unknown | NotFound | MarkedForDeletion)
}

pub(super) fn no_address(doing: &str, is_exhausted: bool, alarm: &str) -> Error {
    let object = if is_exhausted { "the pool has no free address" } else { "NSX has refused it" };
    let alarm = if alarm.is_empty() { String::new() } else { format!(" ({alarm})") };
    address_unavailable(format!("{doing}: {object}{alarm}"))
}

pub(super) fn not_listed(path: &str, error: &client::Error) -> Error {
    failed(&format!("list {path}"), None, error)
}
