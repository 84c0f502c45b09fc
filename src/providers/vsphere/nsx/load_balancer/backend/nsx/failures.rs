//! Pure: what a call that NSX refused means for the load balancer.

use super::{GROUPS, LB_SERVICES, MONITORS, PERSISTENCE_PROFILES, POOLS};
use crate::clients::nsx as client;
use crate::cloud::Error;
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::objects::VirtualServer;
use crate::providers::vsphere::nsx::load_balancer::plan::WantedPort;
use crate::providers::vsphere::nsx::load_balancer::{LATER, address_unavailable, config_wrong};
use crate::providers::vsphere::{nsx, reason};

/// The kind of the object of a path, if it is one that this program creates and others refer to.
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

/// The failure of a call. A request that NSX does not accept is repeated, sooner with other Nodes: another object may be the
/// cause, or an answer that this program does not know.
pub(super) fn failed(doing: &str, owner: Option<&str>, error: &client::Error) -> Error {
    match nsx::failed(doing, owner, error) {
        Error::Invalid { reason, message } => Error::Refused { reason, message, after: LATER },
        other => other,
    }
}

/// The failure of a creation.
pub(super) fn refused(doing: &str, error: &client::Error) -> Error {
    match failed(doing, None, error) {
        // It is none of ours: a pool of addresses, an application profile or a gateway.
        Error::Failed { message, .. } if is_missing(error) && !names_part(error) => config_wrong(message),
        other => other,
    }
}

/// Another client removed the tag that names the Service.
pub(super) fn unmarked(doing: &str, path: &str) -> Error {
    let message = format!(
        "{doing}: {path} has the id for it, and no tag \"service\" that names a Service; set the tag back, or delete the \
         object in NSX if nothing needs it"
    );
    Error::Failed { reason: reason::NSXRefused, message, after: Some(LATER) }
}

/// Another virtual server is where the one of a port is to be.
pub(super) fn obstructed(port: &WantedPort, server: &VirtualServer) -> Error {
    let message = format!(
        "port {} cannot be served: the virtual server {} listens on its address and port; delete it in NSX if nothing needs it",
        port.port, server.marks.path
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
    let what = if is_exhausted { "the pool has no free address" } else { "NSX has refused it" };
    let alarm = if alarm.is_empty() { String::new() } else { format!(" ({alarm})") };
    address_unavailable(format!("{doing}: {what}{alarm}"))
}

/// Without a list nothing is decided, so that it is tried again soon.
pub(super) fn not_listed(path: &str, error: &client::Error) -> Error {
    failed(&format!("list {path}"), None, error)
}
