//! Pure: the state of one vCenter at one moment, immutable and readable without waiting.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::shared_map::SharedMap;
use crate::clients::vim::{GuestNic, MoRef};
use crate::cloud::{self, Reason};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::zone_tags::ObjectTags;

/// Maximum number of objects on the path to the root folder. Real inventories stay below 20.
const MAX_DEPTH: usize = 64;

/// The connection state of a VM or host whose properties in vCenter are current.
pub const CONNECTED: &str = "connected";

/// The cached inventory of one vCenter: the VMs that back Nodes, and their ancestors.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Sequence number of the snapshot.
    pub number: u64,
    /// Shows whether the contents are current.
    pub freshness: Freshness,
    /// Id of the period in which vCenter reports every change. The end of an outage, and the first complete answer of a
    /// subscription, begin a new period. `None` until that answer.
    pub live_period: Option<u64>,
    /// `about.instanceUuid`; empty until the first connection.
    pub instance_uuid: Arc<str>,
    /// The reason why the offered credentials are not in use, if any.
    pub credential_failure: Option<String>,
    /// The watched VMs, by id.
    pub vms: SharedMap<Arc<VmRecord>>,
    /// The VMs that may differ from the snapshot with the preceding `number`; `None` if all VMs may differ. A reader
    /// that skipped a snapshot must compare all VMs.
    pub changed: Option<BTreeSet<Arc<str>>>,
    /// Wanted ids that do not exist in vCenter, or that the account may not read.
    pub unresolved: Arc<Vec<Arc<str>>>,
    /// Hosts, clusters, pools, folders and datacenters above the VMs.
    pub entities: Arc<HashMap<MoRef, Entity>>,
    /// The tags that name zones and regions.
    pub tags: Arc<TagSnapshot>,
    /// The proven power states, by VM; see [`Snapshot::prove_power`].
    pub power: SharedMap<ProvenPower>,
}

/// A proven power state; see [`Snapshot::proves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenPower {
    /// The state.
    pub state: PowerState,
    /// Time since which the state is proven without interruption.
    pub since: Instant,
}

/// Shows whether a [`Snapshot`] is current.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Freshness {
    /// Nothing was read yet.
    #[default]
    Never,
    /// vCenter was never connected. Contains the last failure.
    Unreachable(VcenterFailure),
    /// Changes arrive as they happen.
    Live,
    /// The contents were current until `since`.
    Stale {
        /// Time when the contents were last confirmed to be current.
        since: Instant,
        /// The current failure.
        failure: VcenterFailure,
    },
}

/// The reason why a vCenter does not answer, or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{summary}")]
pub struct VcenterFailure {
    /// The reason for Nodes: [`reason::VCenterUnavailable`], or a reason that requires an action of an operator.
    pub reason: Reason,
    /// The full text of the failure, as in the log line of the vCenter.
    pub message: String,
    /// The short text, for each Node that waits for the vCenter.
    pub summary: String,
    /// The step that failed.
    pub step: ConnectionStep,
}

/// The steps of a connection to a vCenter, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionStep {
    /// Prepare the connection, and resolve the host name.
    Resolution,
    /// Connect and exchange messages, possibly through a proxy.
    Network,
    /// Verify the certificate.
    Certificate,
    /// Recognize the server as a vCenter.
    Product,
    /// Find credentials.
    Credentials,
    /// Log in.
    Login,
    /// Read the inventory.
    Reads,
}

impl VcenterFailure {
    /// Creates a failure with the reason [`reason::VCenterUnavailable`].
    pub fn unavailable(why: impl Into<String>) -> Self {
        let why = why.into();
        let step = ConnectionStep::Network;
        Self { reason: reason::VCenterUnavailable, summary: why.clone(), message: why, step }
    }
}

impl Freshness {
    /// Returns the full text of the failure, if the snapshot is not live.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Freshness::Live => None,
            Freshness::Never => Some("not connected yet"),
            Freshness::Unreachable(trouble) | Freshness::Stale { failure: trouble, .. } => Some(&trouble.message),
        }
    }

    /// Returns the short text for Nodes, if the snapshot is not live.
    pub fn brief(&self) -> Option<&str> {
        match self {
            Freshness::Unreachable(trouble) | Freshness::Stale { failure: trouble, .. } => Some(&trouble.summary),
            Freshness::Live | Freshness::Never => self.failure(),
        }
    }

    /// Checks that the snapshot is live.
    ///
    /// # Errors
    /// The failure, if the snapshot is not live.
    pub fn check(&self) -> Result<(), VcenterFailure> {
        match self {
            Freshness::Live => Ok(()),
            Freshness::Never => Err(VcenterFailure::unavailable("not connected yet")),
            Freshness::Unreachable(trouble) | Freshness::Stale { failure: trouble, .. } => Err(trouble.clone()),
        }
    }
}

/// `VirtualMachinePowerState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// `poweredOn`
    PoweredOn,
    /// `poweredOff`
    PoweredOff,
    /// `suspended`
    Suspended,
}

impl PowerState {
    /// Parses a value of vCenter. Returns `None` for an unknown value.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "poweredOn" => Some(PowerState::PoweredOn),
            "poweredOff" => Some(PowerState::PoweredOff),
            "suspended" => Some(PowerState::Suspended),
            _ => None,
        }
    }
}

impl From<PowerState> for cloud::PowerState {
    fn from(state: PowerState) -> Self {
        match state {
            PowerState::PoweredOn => cloud::PowerState::On,
            PowerState::PoweredOff => cloud::PowerState::Off,
            PowerState::Suspended => cloud::PowerState::Suspended,
        }
    }
}

/// The watched properties of one VM. Each property may be unset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmRecord {
    /// The name in vCenter, decoded.
    pub name: String,
    /// `config.uuid` or `summary.config.uuid`, if well-formed.
    pub bios_uuid: Option<BiosUuid>,
    /// `parent`: a folder; unset for a VM directly in a vApp.
    pub parent: Option<MoRef>,
    /// `parentVApp`
    pub parent_vapp: Option<MoRef>,
    /// `resourcePool`; unset for templates.
    pub resource_pool: Option<MoRef>,
    /// `runtime.host`
    pub host: Option<MoRef>,
    /// `runtime.powerState`
    pub power_state: Option<PowerState>,
    /// `runtime.connectionState`, as vCenter spells it. The other properties are current only if it is `connected`.
    pub connection_state: Option<String>,
    /// `summary.config.template`
    pub is_template: bool,
    /// `summary.config.numCpu`
    pub cpus: Option<i64>,
    /// `summary.config.memorySizeMB`
    pub memory_mib: Option<i64>,
    /// `summary.config.guestId`
    pub guest_id: String,
    /// `summary.config.vmPathName`: the datastore in brackets, then the path of the configuration file.
    pub path: String,
    /// `guest.hostName`
    pub host_name: String,
    /// `guest.toolsRunningStatus`, as vCenter spells it.
    pub tools: String,
    /// `guest.net`
    pub nics: Vec<GuestNic>,
    /// `guestinfo.metadata`
    pub metadata: String,
    /// `guestinfo.metadata.encoding`
    pub metadata_encoding: String,
    /// Watched properties that the account may not read.
    pub unreadable: Vec<String>,
}

impl VmRecord {
    /// Whether the properties of the VM in vCenter are current.
    pub fn is_connected(&self) -> bool {
        self.connection_state.as_deref() == Some(CONNECTED)
    }
}

/// An ancestor of VMs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entity {
    /// The name in vCenter, decoded.
    pub name: String,
    /// The parent.
    pub parent: Option<MoRef>,
    /// Hosts only: `runtime.connectionState`, as vCenter spells it.
    pub connection_state: Option<String>,
    /// Hosts only: `runtime.inMaintenanceMode`.
    pub is_in_maintenance: bool,
}

/// The cached tags.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TagSnapshot {
    /// The zone and region tags of an object. An object whose tags were not read yet has no entry.
    pub objects: HashMap<MoRef, ObjectTags>,
    /// The reason why zones and regions cannot be determined, if any.
    pub error: Option<String>,
}

impl Snapshot {
    /// Returns the power state of this VM, if it is proven: the snapshot is live, and the VM and its host are
    /// connected. An unreadable host proves nothing.
    pub fn proves(&self, record: &VmRecord) -> Option<PowerState> {
        let host = record.host.as_ref().and_then(|host| self.entities.get(host));
        let is_host_connected = host.is_some_and(|host| host.connection_state.as_deref() == Some(CONNECTED));
        let is_proven = self.freshness == Freshness::Live && record.is_connected() && is_host_connected;
        record.power_state.filter(|_| is_proven)
    }

    /// Whether the host of this VM may be removed soon. vCenter removes only hosts that are in maintenance mode or not
    /// connected. Returns false for an unreadable host.
    pub fn may_host_be_removed(&self, record: &VmRecord) -> bool {
        let host = record.host.as_ref().and_then(|host| self.entities.get(host));
        host.is_some_and(|host| {
            host.is_in_maintenance || host.connection_state.as_deref().is_some_and(|state| state != CONNECTED)
        })
    }

    /// Records the power states that this snapshot proves. `before` must be the preceding snapshot. A state that is
    /// already in `power` keeps its start time.
    pub fn prove_power(&mut self, before: &Snapshot, moment: Instant) {
        let all: BTreeSet<Arc<str>>;
        let ids = match &self.changed {
            Some(changed) if self.freshness == before.freshness && Arc::ptr_eq(&self.entities, &before.entities) => {
                changed
            }
            _ => {
                all = self.vms.keys().chain(self.power.keys()).cloned().collect();
                &all
            }
        };
        for id in ids {
            let known = self.power.get(id).copied();
            let proven = self.vms.get(id).and_then(|record| self.proves(record));
            let proven = proven.map(|state| match known {
                Some(known) if known.state == state => known,
                _ => ProvenPower { state, since: moment },
            });
            if proven != known {
                self.power.set(id, proven);
            }
        }
    }

    /// Returns the objects from `start` up to the root folder. Ends early at an unreadable ancestor, at a cycle, or
    /// after `MAX_DEPTH` objects.
    pub fn chain(&self, start: &MoRef) -> Vec<MoRef> {
        let mut chain = vec![start.clone()];
        let mut at = self.entities.get(start);
        while let Some(parent) = at.and_then(|entity| entity.parent.as_ref()) {
            if chain.len() >= MAX_DEPTH || chain.contains(parent) {
                break;
            }
            chain.push(parent.clone());
            at = self.entities.get(parent);
        }
        chain
    }

    /// Whether `start` or one of its ancestors is one of `objects`.
    pub fn is_below(&self, start: &MoRef, objects: &HashSet<&MoRef>) -> bool {
        let mut at = Some(start);
        for _ in 0..MAX_DEPTH {
            let Some(object) = at else { return false };
            if objects.contains(object) {
                return true;
            }
            at = self.entities.get(object).and_then(|entity| entity.parent.as_ref());
        }
        false
    }

    /// Returns the path of the VM upwards: the VM, its folders or vApp, its datacenter, and the objects above.
    pub fn vm_chain(&self, id: &str, vm: &VmRecord) -> Vec<MoRef> {
        let mut chain = vec![MoRef::new("VirtualMachine", id)];
        if let Some(parent) = vm.parent.as_ref().or(vm.parent_vapp.as_ref()) {
            chain.extend(self.chain(parent));
        }
        chain
    }

    /// Returns the inventory path of an ancestor by names, such as `/dc-1/host/cluster-1`. `None` if the name of an
    /// object on the path is unknown.
    pub fn path_of(&self, object: &MoRef) -> Option<String> {
        let mut path = String::new();
        for object in self.chain(object) {
            let entity = self.entities.get(&object)?;
            if entity.parent.is_some() {
                path = format!("/{}{path}", path_part(&entity.name));
            }
        }
        Some(path)
    }

    /// Returns the inventory path of a VM by names, such as `/dc-1/vm/node-1`. `None` if the name of an object on the
    /// path is unknown.
    pub fn vm_path(&self, vm: &VmRecord) -> Option<String> {
        let parent = vm.parent.as_ref().or(vm.parent_vapp.as_ref())?;
        Some(format!("{}/{}", self.path_of(parent)?, path_part(&vm.name)))
    }

    /// Returns the datacenter of `vm`, then the ancestors of the datacenter. `None` if no datacenter is found above the
    /// folder, vApp, host or resource pool of `vm`.
    fn datacenter_chain(&self, vm: &VmRecord) -> Option<Vec<MoRef>> {
        let starts = [vm.parent.as_ref(), vm.parent_vapp.as_ref(), vm.host.as_ref(), vm.resource_pool.as_ref()];
        starts.into_iter().flatten().find_map(|start| {
            let mut chain = self.chain(start);
            let at = chain.iter().position(|object| object.kind() == "Datacenter")?;
            Some(chain.split_off(at))
        })
    }

    /// Returns the datacenter of `vm`, if one is found.
    pub fn datacenter_above(&self, vm: &VmRecord) -> Option<MoRef> {
        self.datacenter_chain(vm)?.into_iter().next()
    }

    /// Returns the datacenter of `vm` with the path of the datacenter, if one is found.
    pub fn datacenter_of(&self, vm: &VmRecord) -> Option<Datacenter> {
        self.datacenter_chain(vm).map(|chain| self.datacenter_at(&chain))
    }

    /// Returns the datacenter at the beginning of this chain.
    pub fn datacenter_at(&self, chain: &[MoRef]) -> Datacenter {
        let mut path: Vec<String> = chain
            .iter()
            .filter_map(|object| self.entities.get(object))
            .filter(|entity| entity.parent.is_some())
            .map(|entity| entity.name.clone())
            .collect();
        path.reverse();
        Datacenter { id: chain.first().map(|datacenter| datacenter.id().to_owned()).unwrap_or_default(), path }
    }
}

/// Returns a name as a part of a path, in which `govc` expects slashes as `%2f`.
fn path_part(name: &str) -> String {
    name.replace('/', "%2f")
}

/// A datacenter and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datacenter {
    /// The managed object id.
    pub id: String,
    /// Folder names below the root folder, then the datacenter's own name.
    pub path: Vec<String>,
}

#[cfg(test)]
mod tests;
