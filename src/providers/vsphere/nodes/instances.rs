//! `InstancesV2` and the stream of changes, answered from the instance cache without waiting for vCenter.
//!
//! Mirrors `pkg/cloudprovider/vsphere/instances_v2.go`. Calls vCenter only to prove absence, with [`super::absence`],
//! and to read a power state that must not be stale.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::{OptionFuture, join_all};
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::absence::last_place::{last_places, place_to_record};
use super::absence::location::Location;
use super::absence::twins::check_none_runs;
use super::absence::{self, AbsenceInput, LocationReads, VcenterEvidence};
use super::lookup::instance_cache::{BoundVm, CachedInstance, InstanceCache};
use super::lookup::vcenters::TrackerConfig;
use crate::base::quoting::quoted;
use crate::cloud::node;
use crate::cloud::{
    InstanceEvent, InstanceEvents, InstanceMetadata, InstancesV2, Power, PowerState, Presence, Unknown, UsableAddresses,
};
use crate::providers::provider_id::{self, BiosUuid};
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::Vcenter;
use crate::providers::vsphere::vcenter::VcenterId;
use crate::providers::vsphere::vcenter::reads::ReadAnswer;
use crate::providers::vsphere::vcenter::snapshot::{self, ProvenPower};

/// Maximum number of contract calls that query vCenter at the same time.
const TURNS: usize = 4;
/// Time limit of a contract call that queries vCenter, including the wait for its turn. Callers wait for 30 s.
const ASK_LIMIT: Duration = Duration::from_secs(25);

/// Time after which the caller should retry while the cache lags behind the state of the vCenter.
const STALE_RETRY: Duration = Duration::from_secs(1);

/// Implements `InstancesV2` and `InstanceEvents` on the instance cache.
pub struct VsphereInstances {
    cache: Arc<InstanceCache>,
    setup: watch::Receiver<Arc<TrackerConfig>>,
    trusts_unseen: bool,
    live_reads: Semaphore,
}

impl VsphereInstances {
    /// Creates the implementation, which reads the instance cache `board`. Proofs of absence and reads of the power
    /// state also call the vCenters of `setup`.
    pub fn new(board: Arc<InstanceCache>, setup: watch::Receiver<Arc<TrackerConfig>>, trusts_unseen: bool) -> Self {
        Self { cache: board, setup, trusts_unseen, live_reads: Semaphore::new(TURNS) }
    }

    /// Returns the cache entry of exactly this Node, compared by UID.
    pub fn view(&self, node: &Node) -> Option<Arc<CachedInstance>> {
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        self.cache.find(node::name(node)).filter(|view| *view.uid == *uid)
    }

    /// Returns the VM of the Node as the cache has it, or the reason why there is none.
    pub fn find(&self, node: &Node) -> Presence<Arc<BoundVm>> {
        let provider_id = node::provider_id(node);
        if !provider_id.is_empty() && !provider_id::is_own(provider_id) {
            let message = format!("provider ID {} is not vSphere's", quoted(provider_id));
            return Presence::Unknown(Unknown::new(reason::ForeignProviderID, message));
        }
        let presence = self.view(node).map(|view| view.presence.clone());
        let pending = || {
            Presence::Unknown(Unknown::transient(
                reason::LookupPending,
                "the lookup of the VM has not \
                                                                                      begun",
            ))
        };
        if provider_id.is_empty() {
            return presence.unwrap_or_else(pending);
        }
        // The provider ID takes precedence. The cache entry for the name is used only if it is about the same VM.
        let Ok(uuid) = provider_id::parse_provider_id(provider_id) else {
            let message = format!("provider ID {} is not vsphere:// followed by a UUID", quoted(provider_id));
            return Presence::Unknown(Unknown::new(reason::MalformedProviderID, message));
        };
        match presence {
            // A VM whose UUID is not readable now stays bound, because it was bound by UUID earlier. Its metadata
            // reports the missing data.
            Some(Presence::Exists(vm)) if vm.uuid.is_some() && !vm.has_uuid(&uuid) => pending(),
            // The entry of another Node with this UUID is not used, because the VM may back only that Node.
            presence => presence.unwrap_or_else(pending),
        }
    }

    /// Returns the addresses in a Node's status that may receive traffic: those last seen on its VM. Returns all
    /// addresses for a Node that is not vSphere's, or that has no provider ID and no match in any vCenter. Returns
    /// `Pending` while the look-up is in progress, and `Unknown` without a VM or without its addresses.
    pub fn usable_addresses(&self, node: &Node) -> UsableAddresses {
        let provider_id = node::provider_id(node);
        if !provider_id.is_empty() && !provider_id::is_own(provider_id) {
            return UsableAddresses::All;
        }
        let is_complete = self.setup.borrow().check_complete().is_ok();
        if provider_id.is_empty() && is_complete && self.view(node).is_some_and(|view| view.has_no_match) {
            return UsableAddresses::All;
        }
        match self.find(node) {
            Presence::Exists(vm) if !vm.addresses.is_empty() => {
                UsableAddresses::Only(vm.addresses.iter().copied().collect())
            }
            Presence::Unknown(unknown) if unknown.is_transient => UsableAddresses::Pending,
            _ => UsableAddresses::Unknown,
        }
    }

    /// Returns the metadata for this Node without waiting, or the reason why there is none.
    pub fn metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        let described = self.find(node).and_then(|vm| {
            let found = vm.metadata.clone();
            found.map(|metadata| InstanceMetadata {
                record: vm.location.to_record(),
                stale: self.staleness(&vm),
                ..metadata
            })
        });
        match described {
            Presence::Unknown(unknown) => {
                let (view, recorded) = (self.view(node), Location::recorded_on(node));
                let last =
                    view.as_ref().and_then(|view| place_to_record(view.last_observation.as_ref(), recorded.as_ref()));
                Presence::Unknown(Unknown { last_record: last.map(Location::to_record), ..unknown })
            }
            other => other,
        }
    }

    /// Returns the power state of the Node's VM without waiting, or the reason why it is not proven.
    pub fn power(&self, node: &Node) -> Presence<Power> {
        self.find(node).and_then(|vm| {
            // The cache entry may lag behind, so the present state of the vCenter counts.
            let live = Presence::from(self.check_live(vm.vcenter));
            live.and_then(|()| vm.power.clone()).map(|ProvenPower { state, since }| {
                let lasting = Instant::now().saturating_duration_since(since);
                Power { state: state.into(), lasting }
            })
        })
    }

    /// Returns the reason why the cache entry may be stale; `None` if it is current. Subscribers get an event when it
    /// is current again. If the tracker may miss the outage, the result also has a time to retry.
    fn staleness(&self, vm: &BoundVm) -> Option<Unknown> {
        staleness(self.check_live(vm.vcenter), vm.is_live, &vm.location.vm)
    }

    fn vcenter(&self, vcenter: VcenterId) -> Result<Arc<Vcenter>, Unknown> {
        let setup = self.setup.borrow();
        setup.sources.get(&vcenter).map(|source| Arc::clone(&source.vcenter)).ok_or_else(|| {
            let message = "the vCenter of the node's VM is no longer configured";
            Unknown::new(reason::VCenterNotConfigured, message)
        })
    }

    /// Fails unless the snapshot of this vCenter is live, so that the cache is valid.
    fn check_live(&self, slot: VcenterId) -> Result<(), Unknown> {
        let vcenter = self.vcenter(slot)?;
        vcenter.snapshot().freshness.check().map_err(|failure| {
            let server = vcenter.server();
            let message = format!("waiting for vCenter {server}, where the node's VM is: {failure}");
            Unknown::new(failure.reason, message)
        })
    }

    async fn check_no_duplicate_runs(&self, node: &Node, own: &Location) -> Result<(), Unknown> {
        let uuids = absence::uuids(node)?;
        let setup = Arc::clone(&self.setup.borrow());
        setup.check_complete()?;
        check_none_runs(setup.sources.values().map(|source| &*source.vcenter), &uuids, own).await?;
        self.check_same(&setup)
    }

    /// Checks that the configuration is unchanged since the queries began, because a vCenter may have been added.
    fn check_same(&self, setup: &Arc<TrackerConfig>) -> Result<(), Unknown> {
        if Arc::ptr_eq(setup, &self.setup.borrow()) {
            return Ok(());
        }
        let message = "the configured vCenters changed during the search";
        Err(Unknown::transient(reason::LookupPending, message))
    }

    async fn prove(&self, node: &Node, uuids: &[BiosUuid]) -> Presence {
        // The semaphore is never closed.
        let _turn = self.live_reads.acquire().await;
        let setup = Arc::clone(&self.setup.borrow());
        let view = self.view(node);
        let recorded = Location::recorded_on(node);
        let last = last_places(view.as_ref().and_then(|view| view.last_observation.as_ref()), recorded);
        let ask = setup.sources.values().map(|source| evidence(&source.vcenter, uuids, &last.locations));
        let testimonies = join_all(ask).await;
        if let Err(unknown) = self.check_same(&setup) {
            return Presence::Unknown(unknown);
        }
        let (trusts_unseen, unasked) = (self.trusts_unseen, setup.check_complete().err());
        absence::presence_of(&AbsenceInput {
            uuids,
            last: &last,
            trusts_unseen,
            evidence: &testimonies,
            unqueried: unasked,
        })
    }
}

/// Returns the reason why a cache entry may be stale. `live` is the vCenter's present state, and `was_live` the state
/// when the entry was written.
fn staleness(live: Result<(), Unknown>, was_live: bool, vm: &str) -> Option<Unknown> {
    let is_behind = was_live != live.is_ok();
    let stale = match live {
        Ok(()) if was_live => return None,
        Ok(()) => {
            let message = format!("the vCenter of the node's VM {vm} answers again, and its inventory is being loaded");
            Unknown::transient(reason::LookupPending, message)
        }
        Err(unknown) => unknown,
    };
    Some(Unknown { retry_after: is_behind.then_some(STALE_RETRY), ..stale })
}

fn late() -> Unknown {
    let message = format!("vCenter did not say within {} s", ASK_LIMIT.as_secs());
    Unknown::new(reason::VCenterUnavailable, message)
}

/// Collects the evidence of one vCenter. The searches end at the first that finds a VM or fails.
async fn evidence(vcenter: &Vcenter, uuids: &[BiosUuid], last: &[Arc<Location>]) -> VcenterEvidence {
    let instance_uuid = vcenter.snapshot().instance_uuid.to_string();
    let server = vcenter.server().to_owned();
    let mut searches = Vec::new();
    for uuid in uuids {
        let read = vcenter.search_by_uuid(uuid).await;
        let is_over = !matches!(&read, ReadAnswer::Found(ids) if ids.is_empty());
        searches.push((uuid.clone(), read));
        if is_over {
            return VcenterEvidence { server, instance_uuid, searches, locations: Vec::new() };
        }
    }
    let mut places = Vec::new();
    for location in last.iter().filter(|at| !instance_uuid.is_empty() && *at.vcenter == *instance_uuid) {
        places.push(location_reads(vcenter, location).await);
    }
    VcenterEvidence { server, instance_uuid, searches, locations: places }.if_still(&vcenter.snapshot().instance_uuid)
}

/// Reads the VM. If the VM is gone, also reads the objects of its location.
async fn location_reads(vcenter: &Vcenter, location: &Arc<Location>) -> LocationReads {
    let at = Arc::clone(location);
    let vm = vcenter.read_vm(&location.vm).await;
    if vm != ReadAnswer::Gone {
        return LocationReads { location: at, vm, host: None, folder: None, pool: None, datacenter: None };
    }
    let [folder, pool, datacenter] = [&location.folder, &location.pool, &location.datacenter]
        .map(|object| OptionFuture::from(object.as_ref().map(|object| vcenter.read_object(object))));
    let host = OptionFuture::from(location.host.as_ref().map(|host| vcenter.read_host(host)));
    let (host, folder) = tokio::join!(host, folder);
    let (pool, datacenter) = tokio::join!(pool, datacenter);
    LocationReads { location: at, vm, host, folder, pool, datacenter }
}

#[async_trait]
impl InstancesV2 for VsphereInstances {
    /// Answers from the cache while the vCenter of the cached VM is live. While the look-up of the VM is in progress,
    /// the answer is unknown. Otherwise every vCenter is searched, and the VM is absent only with proof.
    async fn instance_exists(&self, node: &Node) -> Presence {
        let unknown = match self.find(node).and_then(|vm| self.check_live(vm.vcenter).into()) {
            // An event will announce the result of the look-up in progress, so a second search is not needed.
            Presence::Unknown(unknown) if !unknown.is_transient => unknown,
            presence => return presence,
        };
        let uuids = match absence::uuids(node) {
            Ok(uuids) => uuids,
            // Without valid UUIDs, the VM is never reported as absent; the state of its look-up is more informative.
            Err(_) => return Presence::Unknown(unknown),
        };
        timeout(ASK_LIMIT, self.prove(node, &uuids)).await.unwrap_or_else(|_| Presence::Unknown(late()))
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        self.power(node)
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        let vm = match self.find(node) {
            Presence::Exists(vm) => vm,
            Presence::Absent(proof) => return Presence::Absent(proof),
            Presence::Unknown(unknown) => return Presence::Unknown(unknown),
        };
        let reading = async {
            let vcenter = self.vcenter(vm.vcenter)?;
            let _turn = self.live_reads.acquire().await;
            let state = vcenter.read_power(&vm.location.vm).await?;
            if state == snapshot::PowerState::PoweredOff {
                self.check_no_duplicate_runs(node, &vm.location).await?;
            }
            Ok(state.into())
        };
        timeout(ASK_LIMIT, reading).await.unwrap_or_else(|_| Err(late())).into()
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.metadata(node)
    }

    async fn refresh(&self) {
        let setup = Arc::clone(&self.setup.borrow());
        join_all(setup.sources.values().map(async |source| {
            source.vcenter.refresh().await;
            // The tracker updates the cache shortly after a new snapshot.
            source.vcenter.wait_applied().await;
        }))
        .await;
    }
}

impl InstanceEvents for VsphereInstances {
    fn subscribe(&self) -> BoxStream<'static, InstanceEvent> {
        self.cache.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_machine_is_in_doubt_unless_its_vcenter_is_live_and_was_when_it_was_put_down() {
        let silent = || Err(Unknown::new(reason::CredentialsRejected, "vc does not answer: no"));
        let (silence, pending) = (reason::CredentialsRejected, reason::LookupPending);
        for (live, was_live, expected) in [
            (Ok(()), true, None),
            (Ok(()), false, Some((pending, true, Some(STALE_RETRY)))),
            // The cache may miss such a short outage.
            (silent(), true, Some((silence, false, Some(STALE_RETRY)))),
            (silent(), false, Some((silence, false, None))),
        ] {
            let case = format!("{live:?}, {was_live}");
            let stale = staleness(live, was_live, "vm-1");
            let reported = stale.map(|stale| (stale.reason, stale.is_transient, stale.retry_after));
            assert_eq!(reported, expected, "{case}");
        }
    }

    #[test]
    fn the_addresses_of_the_status_count_alone_only_where_no_vcenter_can_say_more() {
        const OWN: &str = "vsphere://4221c3a7-0000-1111-2222-333344445555";
        let uuid: BiosUuid = OWN.trim_start_matches("vsphere://").parse().unwrap();
        let known = BTreeSet::from(["10.0.0.1".parse().unwrap()]);
        let vm = |addresses: &BTreeSet<IpAddr>| {
            Presence::Exists(Arc::new(BoundVm {
                vcenter: 0.into(),
                location: Arc::default(),
                uuid: Some(uuid.clone()),
                addresses: addresses.iter().copied().collect(),
                metadata: Presence::Exists(InstanceMetadata::default()),
                power: Presence::Unknown(Unknown::new(reason::PowerStateUnknown, "")),
                is_live: true,
            }))
        };
        let not_found = || Presence::Unknown(Unknown::new(reason::VMNotFound, ""));
        let pending = || Presence::Unknown(Unknown::transient(reason::LookupPending, ""));
        for (case, provider_id, view, expected) in [
            ("not checked yet", "", None, UsableAddresses::Pending),
            ("being looked up", OWN, Some((pending(), false)), UsableAddresses::Pending),
            ("found", OWN, Some((vm(&known), false)), UsableAddresses::Only(known.clone())),
            ("found, not initialized", "", Some((vm(&known), false)), UsableAddresses::Only(known.clone())),
            ("no guest address", OWN, Some((vm(&BTreeSet::new()), false)), UsableAddresses::Unknown),
            ("no match", "", Some((not_found(), true)), UsableAddresses::All),
            ("no match for a provider ID", OWN, Some((not_found(), true)), UsableAddresses::Unknown),
            ("a match that may not be taken", "", Some((not_found(), false)), UsableAddresses::Unknown),
            ("of another provider", "aws:///a/i-1", None, UsableAddresses::All),
        ] {
            let cache = Arc::new(InstanceCache::default());
            if let Some((presence, has_no_match)) = view {
                let (last_observation, inputs) = (None, None);
                let shared_addresses = Vec::new();
                let uid = "u".into();
                cache.set(
                    "n",
                    CachedInstance { uid, presence, has_no_match, last_observation, inputs, shared_addresses },
                );
            }
            let mut node = Node::default();
            (node.metadata.name, node.metadata.uid) = (Some("n".to_owned()), Some("u".to_owned()));
            node.spec.get_or_insert_default().provider_id = Some(provider_id.to_owned());
            let with = |setup| VsphereInstances::new(Arc::clone(&cache), watch::channel(Arc::new(setup)).1, false);
            assert_eq!(with(TrackerConfig::default()).usable_addresses(&node), expected, "{case}");
            let refused =
                with(TrackerConfig { rejected: vec!["VSPHERE_VCENTER_2".to_owned()], ..TrackerConfig::default() });
            let expected = if case == "no match" { UsableAddresses::Unknown } else { expected };
            assert_eq!(refused.usable_addresses(&node), expected, "{case}, one vCenter is turned off");
        }
    }
}
