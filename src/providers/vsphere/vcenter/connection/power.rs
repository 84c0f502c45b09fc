//! A fresh read of the power state of a VM, for decisions that must not use the snapshot.

use super::Vcenter;
use super::reads::{CONNECTION_STATE, Denial, ReadAnswer, denial};
use crate::clients::vim::{MoRef, ObjectContent, Value};
use crate::cloud::Unknown;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::snapshot::{CONNECTED, PowerState};

const MACHINE_PATHS: [&str; 3] = [POWER, CONNECTION_STATE, HOST];
const POWER: &str = "runtime.powerState";
const HOST: &str = "runtime.host";

impl Vcenter {
    /// Reads the power state of this VM. Both VM and host must be connected.
    ///
    /// # Errors
    /// The reason why the state is not proven: no answer, no permission, a missing property, or a VM or host that does
    /// not exist or is disconnected.
    pub async fn read_power(&self, id: &str) -> Result<PowerState, Unknown> {
        let vm = MoRef::new("VirtualMachine", id);
        let content = found(&vm, self.read(&vm, &MACHINE_PATHS).await)?;
        check_connected(&content)?;
        let host = content.property(HOST).and_then(Value::as_ref).ok_or_else(|| unsaid(&content, HOST))?;
        check_connected(&found(host, self.read(host, &[CONNECTION_STATE]).await)?)?;
        let state = content.property(POWER).and_then(Value::as_str).and_then(PowerState::parse);
        state.ok_or_else(|| unsaid(&content, POWER))
    }
}

fn found(object: &MoRef, read: ReadAnswer<ObjectContent>) -> Result<ObjectContent, Unknown> {
    match read {
        ReadAnswer::Found(content) => Ok(content),
        ReadAnswer::Gone => {
            let message = format!("vCenter says that {object} does not exist");
            Err(Unknown::new(reason::PowerStateUnknown, message))
        }
        ReadAnswer::Denied(denial) => Err(denied(object, &denial)),
        ReadAnswer::Silent(failure) => Err(Unknown::new(failure.reason, format!("reading {object}: {failure}"))),
    }
}

fn check_connected(content: &ObjectContent) -> Result<(), Unknown> {
    match content.property(CONNECTION_STATE).and_then(Value::as_str) {
        Some(CONNECTED) => Ok(()),
        Some(state) => {
            let message = format!("vCenter does not hear from {}: its connection state is {state}", content.object);
            Err(Unknown::new(reason::PowerStateUnknown, message))
        }
        None => Err(unsaid(content, CONNECTION_STATE)),
    }
}

/// Builds the error for a property that is missing in the answer.
fn unsaid(content: &ObjectContent, path: &str) -> Unknown {
    let missing = content.missing.iter().find(|missing| missing.path == path);
    match missing.and_then(|missing| denial(&missing.fault, Some(&content.object))) {
        Some(denial) => denied(&content.object, &denial),
        None => {
            let message = format!("vCenter does not say {path} of {}", content.object);
            Unknown::new(reason::PowerStateUnknown, message)
        }
    }
}

fn denied(object: &MoRef, denial: &Denial) -> Unknown {
    let message = format!("reading the power state of {object}: {denial}; give the account the role Read-only there");
    Unknown::new(reason::NoPermission, message)
}
