//! Pure: what is known of one vCenter at one moment. Others look at it without waiting.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::shared_map::SharedMap;
use crate::clients::vim::{GuestNic, MoRef};
use crate::cloud::{self, Reason};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::zone_tags::ObjectTags;

/// The longest way from an object to the root folder that is followed. Real inventories stay below 20.
const MAX_DEPTH: usize = 64;

/// The connection state, of a machine or a host, in which what vCenter says of it is current.
pub const CONNECTED: &str = "connected";

/// The inventory of one vCenter, as far as it concerns this cluster: the VMs that back nodes, and their ancestors.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// How many were published before and with it; later ones have more.
    pub number: u64,
    /// Whether this is true now.
    pub freshness: Freshness,
    /// The period in which every change is reported, by a number that no other one has. A break, or another subscription,
    /// begins another one; none from when a subscription begins until its first complete answer.
    pub live_period: Option<u64>,
    /// `about.instanceUuid`; empty until the first connection.
    pub instance_uuid: Arc<str>,
    /// Why the credentials that are offered are not those in use, if they are not.
    pub offer_trouble: Option<String>,
    /// The virtual machines that are watched, by id.
    pub vms: SharedMap<Arc<VmRecord>>,
    /// The VMs that may differ from those of the previous snapshot, which has the number before this one; `None` if all
    /// may. A reader that skipped a snapshot compares all.
    pub changed: Option<BTreeSet<Arc<str>>>,
    /// Ids that were asked for and that vCenter does not know (any more), or does not let us read.
    pub unresolved: Arc<Vec<Arc<str>>>,
    /// Hosts, clusters, pools, folders and datacenters above the virtual machines.
    pub entities: Arc<HashMap<MoRef, Entity>>,
    /// Tags of zones and regions.
    pub tags: Arc<TagSnapshot>,
    /// The power states that are proven, by machine; see [`Snapshot::prove_power`].
    pub power: SharedMap<Proven>,
}

/// A power state that is proven: see [`Snapshot::proves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The state.
    pub state: PowerState,
    /// From when on every moment proved it.
    pub since: Instant,
}

/// Whether a [`Snapshot`] is true now.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Freshness {
    /// Nothing was ever read.
    #[default]
    Never,
    /// No connection was made yet, and this is the last failure.
    Unreachable(Trouble),
    /// Changes arrive as they happen.
    Live,
    /// What is known was true until this moment.
    Stale {
        /// The last moment it was known to be true.
        since: Instant,
        /// The failure since then.
        trouble: Trouble,
    },
}

/// Why a vCenter does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{brief}")]
pub struct Trouble {
    /// The word for Nodes: [`reason::VCenterUnavailable`], or one that says what an operator has to do.
    pub reason: Reason,
    /// The failure with all that the log line of the vCenter says.
    pub why: String,
    /// The failure as each Node says it that waits for the vCenter.
    pub brief: String,
}

impl Trouble {
    /// No answer, for a reason that has no word of its own.
    pub fn unavailable(why: impl Into<String>) -> Self {
        let why = why.into();
        Self { reason: reason::VCenterUnavailable, brief: why.clone(), why }
    }
}

impl Freshness {
    /// Why vCenter does not answer, if it does not.
    pub fn trouble(&self) -> Option<&str> {
        match self {
            Freshness::Live => None,
            Freshness::Never => Some("not connected yet"),
            Freshness::Unreachable(trouble) | Freshness::Stale { trouble, .. } => Some(&trouble.why),
        }
    }

    /// The same as Nodes say it.
    pub fn brief(&self) -> Option<&str> {
        match self {
            Freshness::Unreachable(trouble) | Freshness::Stale { trouble, .. } => Some(&trouble.brief),
            Freshness::Live | Freshness::Never => self.trouble(),
        }
    }

    /// The same with its reason, or nothing where vCenter answers.
    ///
    /// # Errors
    /// Why vCenter does not answer.
    pub fn check(&self) -> Result<(), Trouble> {
        match self {
            Freshness::Live => Ok(()),
            Freshness::Never => Err(Trouble::unavailable("not connected yet")),
            Freshness::Unreachable(trouble) | Freshness::Stale { trouble, .. } => Err(trouble.clone()),
        }
    }

    /// The word for Nodes where vCenter does not answer for a reason that an operator can name: the credentials are
    /// rejected or missing, or the certificate is not accepted.
    pub fn own_reason(&self) -> Option<Reason> {
        let reason = self.check().err()?.reason;
        (reason != reason::VCenterUnavailable).then_some(reason)
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
    /// Reads vCenter's word; none for one of the future.
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

/// The watched properties of one virtual machine. Everything may be unset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmRecord {
    /// The name in vCenter, decoded.
    pub name: String,
    /// `config.uuid` or `summary.config.uuid`, where well-formed.
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
    /// `runtime.connectionState`, as vCenter spells it. With anything but `connected` the rest is stale.
    pub connection_state: Option<String>,
    /// `summary.config.template`
    pub is_template: bool,
    /// `summary.config.numCpu`
    pub cpus: Option<i64>,
    /// `summary.config.memorySizeMB`
    pub memory_mib: Option<i64>,
    /// `summary.config.guestId`
    pub guest_id: String,
    /// `summary.config.vmPathName`: the datastore in brackets, and the path there of the configuration file.
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
    /// Watched paths that the account may not read, with the missing privilege where it was named.
    pub unreadable: Vec<String>,
}

impl VmRecord {
    /// Whether vCenter's view of the machine is current.
    pub fn is_connected(&self) -> bool {
        self.connection_state.as_deref() == Some(CONNECTED)
    }
}

/// An object above the virtual machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entity {
    /// The name in vCenter, decoded.
    pub name: String,
    /// The object above.
    pub parent: Option<MoRef>,
    /// Of hosts: `runtime.connectionState`, as vCenter spells it.
    pub connection_state: Option<String>,
    /// Of hosts: `runtime.inMaintenanceMode`.
    pub is_in_maintenance: bool,
}

/// What is known of tags.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TagSnapshot {
    /// The zone and region tags of an object. An object that was not asked about yet has no entry.
    pub of: HashMap<MoRef, ObjectTags>,
    /// Why tags cannot be read at the moment.
    pub trouble: Option<String>,
}

impl Snapshot {
    /// The power state of this machine, where it is proven: changes arrive as they happen, and vCenter hears from the
    /// machine and from the host it is on. A host that may not be read proves nothing.
    pub fn proves(&self, record: &VmRecord) -> Option<PowerState> {
        let host = record.host.as_ref().and_then(|host| self.entities.get(host));
        let is_host_connected = host.is_some_and(|host| host.connection_state.as_deref() == Some(CONNECTED));
        let is_proven = self.freshness == Freshness::Live && record.is_connected() && is_host_connected;
        record.power_state.filter(|_| is_proven)
    }

    /// Whether the host of this machine may be removed next: vCenter removes only hosts that are in maintenance mode or that it
    /// does not hear from. A host that may not be read says nothing.
    pub fn may_host_be_removed(&self, record: &VmRecord) -> bool {
        let host = record.host.as_ref().and_then(|host| self.entities.get(host));
        host.is_some_and(|host| {
            host.is_in_maintenance || host.connection_state.as_deref().is_some_and(|state| state != CONNECTED)
        })
    }

    /// Records the power states that are proven at this moment. A state that the previous snapshot, `before`, proves as
    /// well keeps its start; so no snapshot may be left out.
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
                _ => Proven { state, since: moment },
            });
            if proven != known {
                self.power.set(id, proven);
            }
        }
    }

    /// The objects from `start` up to the root folder, `start` first. It ends early where an ancestor is not readable.
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

    /// Whether `start`, or something above it, is one of `objects`.
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

    /// The chain of the virtual machine itself: the machine, its folders or vApp, the datacenter and above.
    pub fn vm_chain(&self, id: &str, vm: &VmRecord) -> Vec<MoRef> {
        let mut chain = vec![MoRef::new("VirtualMachine", id)];
        if let Some(parent) = vm.parent.as_ref().or(vm.parent_vapp.as_ref()) {
            chain.extend(self.chain(parent));
        }
        chain
    }

    /// The datacenter of `vm`, and what is above it.
    fn datacenter_chain(&self, vm: &VmRecord) -> Option<Vec<MoRef>> {
        let starts = [vm.parent.as_ref(), vm.parent_vapp.as_ref(), vm.host.as_ref(), vm.resource_pool.as_ref()];
        starts.into_iter().flatten().find_map(|start| {
            let mut chain = self.chain(start);
            let at = chain.iter().position(|object| object.kind() == "Datacenter")?;
            Some(chain.split_off(at))
        })
    }

    /// The datacenter of `vm`.
    pub fn datacenter_above(&self, vm: &VmRecord) -> Option<MoRef> {
        self.datacenter_chain(vm)?.into_iter().next()
    }

    /// The names on the way from the root folder down to the datacenter of `vm`, the datacenter's own id with it.
    pub fn datacenter_of(&self, vm: &VmRecord) -> Option<Datacenter> {
        self.datacenter_chain(vm).map(|chain| self.datacenter_at(&chain))
    }

    /// The datacenter that this chain begins with.
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

/// Where a datacenter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datacenter {
    /// The managed object id.
    pub id: String,
    /// Folder names from below the root folder, then the datacenter's own name.
    pub path: Vec<String>,
}

#[cfg(test)]
mod tests;
