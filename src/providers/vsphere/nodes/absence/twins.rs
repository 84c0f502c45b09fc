//! Checks that no other VM with a Node's UUID runs: no copy, and no replica after a fail-over. All data is read from
//! vCenter, not from the snapshot.

use futures::future::join_all;

use super::location::Location;
use super::need_answer;
use crate::cloud::Unknown;
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::Vcenter;
use crate::providers::vsphere::vcenter::reads::ReadAnswer;
use crate::providers::vsphere::vcenter::snapshot::PowerState;

/// Searches all these vCenters for VMs with these UUIDs. All VMs except the VM at `own` must be powered off.
///
/// # Errors
/// Fails if a VM is not proved to be off, or if a vCenter does not answer.
pub async fn check_none_runs<'a>(
    vcenters: impl IntoIterator<Item = &'a Vcenter>,
    uuids: &[BiosUuid],
    own: &Location,
) -> Result<(), Unknown> {
    let answers = join_all(vcenters.into_iter().map(|vcenter| check(vcenter, uuids, own))).await;
    answers.into_iter().collect()
}

async fn check(vcenter: &Vcenter, uuids: &[BiosUuid], own: &Location) -> Result<(), Unknown> {
    let server = vcenter.server();
    for uuid in uuids {
        let read = vcenter.search_by_uuid(uuid).await;
        need_answer(Some(&read), || format!("searching vCenter {server} for BIOS UUID {uuid}"))?;
        let ReadAnswer::Found(ids) = read else { continue };
        let instance_uuid = vcenter.snapshot().instance_uuid.clone();
        for id in ids.iter().filter(|id| !own.is(&instance_uuid, id)) {
            let why = match vcenter.read_power(id).await {
                Ok(PowerState::PoweredOff) => continue,
                Ok(PowerState::PoweredOn) => "is powered on".to_owned(),
                Ok(PowerState::Suspended) => "is suspended".to_owned(),
                Err(unknown) => format!("may run ({})", unknown.message),
            };
            let message = format!(
                "VM {} is powered off, but VM {id} on vCenter {server} has the Node's UUID, too, and {why}; give \
                 each VM its own BIOS UUID (uuid.bios)",
                own.vm
            );
            return Err(Unknown::new(reason::SeveralVMsMatch, message));
        }
    }
    Ok(())
}
