//! Pure: proves that a VM is gone, from fresh answers of every vCenter.
//!
//! The proof needs all of these facts: the VM's own vCenter reports that the VM's id does not exist, the VM's last host
//! is connected, its last folder and pool (or, if they are gone, the datacenter) are readable, and no vCenter has a VM
//! with its UUID. If a fact is missing, denied or not answered, the result is unknown. The node-lifecycle controller
//! handles readiness, grace periods and limits.

pub mod last_place;
pub mod location;
pub mod twins;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use self::last_place::LastPlaces;
use self::location::Location;
use crate::base::quoting::quoted;
use crate::clients::vim::MoRef;
use crate::cloud::node;
use crate::cloud::{AbsenceProof, Presence, Unknown};
use crate::providers::provider_id::{self, BiosUuid};
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::reads::{
    Denial, HostRead, ObjectRead, ReadAnswer, SearchRead, VmIdentity, VmRead,
};
use crate::providers::vsphere::vcenter::snapshot::{CONNECTED, VcenterFailure};

/// The answers of one vCenter about a Node's VM.
#[derive(Clone, Debug, PartialEq)]
pub struct VcenterEvidence {
    /// Host and port, for messages.
    pub server: String,
    /// `about.instanceUuid`; empty before the first connection.
    pub instance_uuid: String,
    /// The results of the searches by UUID. A UUID that was not searched proves nothing.
    pub searches: Vec<(BiosUuid, SearchRead)>,
    /// The results of reading the VM's last known locations in this vCenter.
    pub locations: Vec<LocationReads>,
}

impl VcenterEvidence {
    /// Drops the answers if the address now leads to another vCenter, because answers of two vCenters prove nothing.
    pub fn if_still(self, instance_uuid: &str) -> Self {
        if self.instance_uuid == instance_uuid {
            return self;
        }
        Self { searches: Vec::new(), locations: Vec::new(), ..self }
    }
}

/// Results of reading the objects of a [`Location`] again. `None` if the location has no object of this kind, or if the
/// VM is not gone.
#[derive(Clone, Debug, PartialEq)]
pub struct LocationReads {
    /// The location.
    pub location: Arc<Location>,
    /// The VM.
    pub vm: VmRead,
    /// The VM's host.
    pub host: Option<HostRead>,
    /// The VM's folder.
    pub folder: Option<ObjectRead>,
    /// The VM's pool or vApp.
    pub pool: Option<ObjectRead>,
    /// The datacenter above the VM.
    pub datacenter: Option<ObjectRead>,
}

/// All evidence about one Node's VM.
#[derive(Clone, Debug)]
pub struct AbsenceInput<'a> {
    /// The UUIDs that the VM may have, from [`uuids`].
    pub uuids: &'a [BiosUuid],
    /// The VM's last known locations.
    pub last: &'a LastPlaces,
    /// Whether a VM can be proved absent if its last location is unknown.
    pub trusts_unseen: bool,
    /// The answers of every configured vCenter, one entry per vCenter.
    pub evidence: &'a [VcenterEvidence],
    /// Reason why a configured vCenter cannot be queried. With such a reason, nothing is proved.
    pub unqueried: Option<Unknown>,
}

/// Returns the UUIDs to search for: those of the provider ID and the system UUID, in both byte orders.
///
/// # Errors
/// Fails if the Node is not initialized or has no well-formed provider ID. The VM of such a Node is never reported as
/// deleted.
pub fn uuids(node: &Node) -> Result<Vec<BiosUuid>, Unknown> {
    if node::is_uninitialized(node) {
        return Err(Unknown::new(
            reason::Uninitialized,
            "the node is not initialized; its VM is never reported as deleted",
        ));
    }
    let provider_id = node::provider_id(node);
    if provider_id.is_empty() {
        let message = "the node has no provider ID, so its VM is never reported as deleted";
        return Err(Unknown::new(reason::NoProviderID, message));
    }
    let Ok(own) = provider_id::parse_provider_id(provider_id) else {
        let message = format!("provider ID {} is not vsphere:// followed by a UUID", quoted(provider_id));
        return Err(Unknown::new(reason::MalformedProviderID, message));
    };
    let mut uuids = vec![own.clone(), own.byte_swapped()];
    // The kubelet reports the UUID of the firmware, which may have changed after the provider ID was written.
    if let Ok(system) = node::system_uuid(node).parse::<BiosUuid>() {
        uuids.extend([system.byte_swapped(), system]);
    }
    let mut once: Vec<BiosUuid> = Vec::new();
    for uuid in uuids {
        if !once.contains(&uuid) {
            once.push(uuid);
        }
    }
    Ok(once)
}

/// Decides whether the VM exists. Any sign of the VM proves its existence. Without a sign, and without a complete proof
/// of absence, the existence is unknown.
pub fn presence_of(case: &AbsenceInput<'_>) -> Presence {
    if case.evidence.iter().any(|answer| is_present(answer, case.uuids)) {
        return Presence::Exists(());
    }
    match prove(case) {
        Ok(proof) => Presence::Absent(proof),
        Err(unknown) => Presence::Unknown(unknown),
    }
}

fn is_present(answer: &VcenterEvidence, uuids: &[BiosUuid]) -> bool {
    let is_matched = answer.searches.iter().any(|(_, read)| matches!(read, ReadAnswer::Found(ids) if !ids.is_empty()));
    let is_there =
        |place: &LocationReads| matches!(&place.vm, ReadAnswer::Found(vm) if other_uuid(vm, uuids).is_none());
    is_matched || answer.locations.iter().any(is_there)
}

/// Returns the VM's UUID if it is not one of `uuids`. Then either a vCenter restored from a backup gave the id to
/// another VM, or the UUID of the VM was changed.
fn other_uuid<'a>(vm: &'a VmIdentity, uuids: &[BiosUuid]) -> Option<&'a BiosUuid> {
    vm.bios_uuid.as_ref().filter(|uuid| !uuids.contains(uuid))
}

fn prove(case: &AbsenceInput<'_>) -> Result<AbsenceProof, Unknown> {
    if let Some(unknown) = &case.unqueried {
        return Err(unknown.clone());
    }
    let searched = prove_not_found(case)?;
    if !case.last.are_known && !case.trusts_unseen {
        return Err(Unknown::new(reason::NeverSeen, never_seen(case.last)));
    }
    let mut evidence = Vec::new();
    for location in &case.last.locations {
        for piece in prove_gone_from(case.evidence, location)? {
            if !evidence.contains(&piece) {
                evidence.push(piece);
            }
        }
    }
    if evidence.is_empty() {
        evidence.push("no record has the location of the VM".to_string());
    }
    // An Event may have room for the first pieces only.
    evidence.insert(1, searched);
    let mut evidence = evidence.into_iter();
    let first = evidence.next().unwrap_or_default();
    Ok(AbsenceProof::new(first, evidence))
}

fn never_seen(last: &LastPlaces) -> String {
    match last.locations.first() {
        None => "this process never saw the node's VM, and the Node has no record of it".to_string(),
        Some(observed) => format!(
            "this process last saw VM {} before the connection to its vCenter was lost, and the node does not record \
             where it was",
            observed.vm
        ),
    }
}

/// Proves that the VM left this location. If a vCenter is configured twice, both entries must confirm it.
fn prove_gone_from(testimonies: &[VcenterEvidence], location: &Location) -> Result<Vec<String>, Unknown> {
    let at_home =
        |answer: &&VcenterEvidence| !answer.instance_uuid.is_empty() && *answer.instance_uuid == *location.vcenter;
    let mut evidence = Vec::new();
    for testimony in testimonies.iter().filter(at_home) {
        evidence.extend(prove_gone(testimony, location)?);
    }
    if evidence.is_empty() {
        let message = format!(
            "VM {} was in the vCenter with instance UUID {}, which is not configured or was never reached",
            location.vm, location.vcenter
        );
        return Err(Unknown::new(reason::VCenterNotConfigured, message));
    }
    Ok(evidence)
}

/// Proves that no vCenter has a VM with any of the UUIDs.
fn prove_not_found(case: &AbsenceInput<'_>) -> Result<String, Unknown> {
    if case.uuids.is_empty() || case.evidence.is_empty() {
        return Err(Unknown::new(reason::VCenterUnavailable, "no vCenter was searched for the VM's UUID"));
    }
    for answer in case.evidence {
        for uuid in case.uuids {
            let doing = || format!("searching vCenter {} for BIOS UUID {uuid}", answer.server);
            let read = answer.searches.iter().find(|(searched, _)| searched == uuid).map(|(_, read)| read);
            need_answer(read, doing)?;
        }
    }
    let uuids: Vec<String> = case.uuids.iter().map(BiosUuid::to_string).collect();
    let servers: Vec<&str> = case.evidence.iter().map(|testimony| testimony.server.as_str()).collect();
    Ok(format!("no VM has BIOS UUID {} in {}", uuids.join(" or "), servers.join(", ")))
}

/// Proves with the VM's own vCenter that the VM's id no longer exists, and that the account can read the last location.
fn prove_gone(answer: &VcenterEvidence, location: &Location) -> Result<Vec<String>, Unknown> {
    let server = &answer.server;
    let unread = || unanswered(&format!("reading VM {} on vCenter {server}", location.vm), "it was not queried");
    let place = answer.locations.iter().find(|place| *place.location == *location).ok_or_else(unread)?;
    match &place.vm {
        ReadAnswer::Gone => {}
        ReadAnswer::Found(vm) => {
            return Err(vm.bios_uuid.as_ref().map_or_else(unread, |uuid| reused(server, location, uuid)));
        }
        ReadAnswer::Denied(denial) => {
            return Err(denied(&format!("reading VM {} on vCenter {server}", location.vm), denial));
        }
        ReadAnswer::Silent(trouble) => {
            return Err(silent(&format!("reading VM {} on vCenter {server}", location.vm), trouble));
        }
    }
    let host = prove_host(server, location, place)?;
    let folder = (location.folder.as_ref(), place.folder.as_ref());
    let pool = (location.pool.as_ref(), place.pool.as_ref());
    let mut above = Vec::new();
    for below in [("folder", folder), ("pool", pool)] {
        let found = prove_above(server, location, place, below)?;
        if !above.contains(&found) {
            above.push(found);
        }
    }
    Ok(vec![
        format!("vCenter {server} ({}) has no VM {}", location.vcenter, location.vm),
        format!("its last host {host} is connected, and {} can be read", above.join(" and ")),
    ])
}

fn reused(server: &str, location: &Location, uuid: &BiosUuid) -> Unknown {
    let message = format!(
        "VM {} on vCenter {server}, which backed the Node, has BIOS UUID {uuid}: either the UUID was changed, or \
         another VM has the id; if the Node's VM is gone, delete the Node",
        location.vm
    );
    Unknown::new(reason::ProviderIDMismatch, message)
}

/// Requires that the last host is connected. A host that leaves vCenter takes its running VMs along. A disconnected
/// host may also run the VM: a vCenter restored from a backup lacks the VM until the host reconnects.
fn prove_host(server: &str, location: &Location, place: &LocationReads) -> Result<String, Unknown> {
    let Some(host) = &location.host else {
        let message = format!("VM {} is gone from vCenter {server}, and its last host is not known", location.vm);
        return Err(Unknown::new(reason::LocationUnknown, message));
    };
    match &place.host {
        Some(ReadAnswer::Gone) => Err(Unknown::new(
            reason::HostGone,
            format!(
                "VM {} is gone from vCenter {server} with its last host {host}, on which it may still run",
                location.vm
            ),
        )),
        Some(ReadAnswer::Found(state)) if state != CONNECTED => Err(Unknown::new(
            reason::HostNotConnected,
            format!(
                "VM {} is gone from vCenter {server}, and its last host {host}, on which it may still run, has the \
                 connection state {state}",
                location.vm
            ),
        )),
        read => {
            need_answer(read.as_ref(), || format!("reading host {host} on vCenter {server}")).map(|()| host.to_string())
        }
    }
}

/// Requires that the VM's last folder or pool (`what`) is readable. If this object is gone or not recorded, the
/// datacenter must be readable.
fn prove_above(
    server: &str,
    location: &Location,
    place: &LocationReads,
    (what, below): (&str, (Option<&MoRef>, Option<&ObjectRead>)),
) -> Result<String, Unknown> {
    match below {
        (None, _) | (Some(_), Some(ReadAnswer::Gone)) => {}
        (Some(object), read) => {
            let doing = || format!("reading {what} {object} on vCenter {server}");
            return need_answer(read, doing).map(|()| object.to_string());
        }
    }
    let gone = || {
        let message = format!(
            "VM {} is gone from vCenter {server}; its last {what} and the recorded objects above it can no longer be \
             read",
            location.vm
        );
        Unknown::new(reason::LocationUnknown, message)
    };
    let datacenter = location.datacenter.as_ref().ok_or_else(gone)?;
    match &place.datacenter {
        Some(ReadAnswer::Gone) => Err(gone()),
        read => need_answer(read.as_ref(), || format!("reading datacenter {datacenter} on vCenter {server}"))
            .map(|()| datacenter.to_string()),
    }
}

/// Requires a read that found its object, or a search that was answered. [`ReadAnswer::Gone`] also fails.
pub(in crate::providers::vsphere) fn need_answer<T>(
    read: Option<&ReadAnswer<T>>,
    doing: impl Fn() -> String,
) -> Result<(), Unknown> {
    match read {
        Some(ReadAnswer::Found(_)) => Ok(()),
        Some(ReadAnswer::Denied(denial)) => Err(denied(&doing(), denial)),
        Some(ReadAnswer::Silent(trouble)) => Err(silent(&doing(), trouble)),
        Some(ReadAnswer::Gone) => Err(unanswered(&doing(), "the requested object is gone")),
        None => Err(unanswered(&doing(), "it was not queried")),
    }
}

fn denied(doing: &str, denial: &Denial) -> Unknown {
    Unknown::new(reason::NoPermission, format!("{doing}: {denial}; give the account the role Read-only there"))
}

fn silent(doing: &str, trouble: &VcenterFailure) -> Unknown {
    Unknown::new(trouble.reason, format!("{doing}: {trouble}"))
}

fn unanswered(doing: &str, reason: &str) -> Unknown {
    Unknown::new(reason::VCenterUnavailable, format!("{doing}: {reason}"))
}

#[cfg(test)]
mod tests;
