//! Pure: maps failed NSX calls to errors of the load balancer.

use super::{GROUPS, LB_SERVICES, MONITORS, PERSISTENCE_PROFILES, POOLS};
use crate::clients::nsx as client;
use crate::cloud::Error;
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::objects::VirtualServer;
use crate::providers::vsphere::nsx::load_balancer::plan::WantedPort;
use crate::providers::vsphere::nsx::load_balancer::{LATER, address_unavailable, config_wrong};
use crate::providers::vsphere::{nsx, reason};

/// The kind of an object by its path, if this program creates such objects and other objects refer to them.
pub(super) fn part_of(path: &str) -> Option<ObjectKind> {
    let parts = [
        (LB_SERVICES, ObjectKind::LbService),
        (POOLS, ObjectKind::Pool),
        (MONITORS, ObjectKind::Monitor),
        (GROUPS, ObjectKind::Group),
        (PERSISTENCE_PROFILES, ObjectKind::PersistenceProfile),
    ];
    let is_below = |parent: &str| path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'));
    parts.into_iter().find(|(parent, _)| is_below(parent)).map(|(_, kind)| kind)
}

/// Error of a failed call. Requests that NSX rejects are retried, earlier if the Nodes change: another object may be
/// the cause, or the meaning of the response may be unknown to this program.
pub(super) fn failed(doing: &str, owner: Option<&str>, error: &client::Error) -> Error {
    match nsx::failed(doing, owner, error) {
        Error::Invalid { reason, message } => Error::Refused { reason, message, after: LATER },
        other => other,
    }
}

/// Error of a failed create.
pub(super) fn refused(doing: &str, error: &client::Error) -> Error {
    match failed(doing, None, error) {
        // The missing object is not ours: an IP pool, an application profile or a gateway.
        Error::Failed { message, .. } if is_missing(error) && !names_part(error) => config_wrong(message),
        other => other,
    }
}

/// Error if another client removed the tag that names the Service.
pub(super) fn unmarked(doing: &str, path: &str) -> Error {
    let message = format!(
        "{doing}: {path} has the id for it, and no tag \"service\" that names a Service; set the tag back, or delete the \
         object in NSX if nothing needs it"
    );
    Error::Failed { reason: reason::NSXRefused, message, after: Some(LATER) }
}

/// Error if another virtual server uses the address and port of ours.
pub(super) fn obstructed(port: &WantedPort, server: &VirtualServer) -> Error {
    let message = format!(
        "port {} cannot be served: the virtual server {} listens on its address and port; delete it in NSX if nothing needs it",
        port.port, server.tags.path
    );
    Error::Failed { reason: reason::NSXRefused, message, after: Some(LATER) }
}

fn names_part(error: &client::Error) -> bool {
    matches!(&error.kind, client::Kind::MissingReference(path) if part_of(path).is_some())
}

pub(super) fn is_missing(error: &client::Error) -> bool {
    matches!(error.kind, client::Kind::MissingReference(_) | client::Kind::NotFound)
}

pub(super) fn no_address(doing: &str, is_exhausted: bool, alarm: &str) -> Error {
    let object = if is_exhausted { "the pool has no free address" } else { "NSX has refused it" };
    let alarm = if alarm.is_empty() { String::new() } else { format!(" ({alarm})") };
    address_unavailable(format!("{doing}: {object}{alarm}"))
}

/// Error of a failed list: retried soon, because nothing can be decided without a list.
pub(super) fn not_listed(path: &str, error: &client::Error) -> Error {
    failed(&format!("list {path}"), None, error)
}
