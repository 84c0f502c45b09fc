//! The set of vCenters, which follows `vsphere.conf`. A change of one vCenter does not affect other vCenters.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tracing::{debug, warn};

use super::Tracker;
use super::node_entry::{Binding, NodeEntry, RemovedVcenter};
use crate::cloud::Unknown;
use crate::providers::vsphere::nodes::metadata::MetadataRules;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::VcenterId;
use crate::providers::vsphere::vcenter::snapshot::Snapshot;
use crate::providers::vsphere::vcenter::{Vcenter, scope};

/// The configured vCenters, and the rules for Nodes.
#[derive(Clone, Default)]
pub struct TrackerConfig {
    /// The vCenters in the order in which they were first configured.
    pub sources: BTreeMap<VcenterId, VcenterSource>,
    /// Environment variables of vCenters that are turned off because of configuration errors. Such a vCenter is not
    /// queried, and may have any VM.
    pub rejected: Vec<String>,
    /// Rules for every Node.
    pub rules: MetadataRules,
    /// The path of `vsphere.conf`, for messages.
    pub file: String,
}

impl TrackerConfig {
    /// Checks that no vCenter is turned off because of a configuration error. Such a vCenter is not queried, so absence
    /// cannot be proved.
    ///
    /// # Errors
    /// Names a vCenter that is turned off.
    pub fn check_complete(&self) -> Result<(), Unknown> {
        let Some(refused) = self.rejected.first() else { return Ok(()) };
        let message = format!(
            "the vCenter of the environment variable {refused} is turned off because of an error in the \
             configuration, and may have the VM"
        );
        Err(Unknown::new(reason::VCenterNotConfigured, message))
    }
}

/// One configured vCenter.
#[derive(Clone)]
pub struct VcenterSource {
    /// The vCenter.
    pub vcenter: Arc<Vcenter>,
    /// The configured datacenters; empty means all.
    pub datacenters: Vec<String>,
}

/// A vCenter and its last processed snapshot.
pub(super) struct VcenterState {
    pub(super) source: VcenterSource,
    pub(super) snapshot: Arc<Snapshot>,
}

impl Tracker {
    /// Applies the current configuration. Unchanged vCenters keep their state.
    pub(super) fn take_setup(&mut self) {
        let setup = Arc::clone(&self.setup.borrow_and_update());
        let removed: Vec<VcenterId> =
            self.vcenters.keys().filter(|vcenter| !setup.sources.contains_key(vcenter)).copied().collect();
        for slot in removed {
            self.remove(slot, &setup);
        }
        let mut is_changed = self.rules != setup.rules;
        self.rules.clone_from(&setup.rules);
        for (slot, source) in &setup.sources {
            match self.vcenters.get_mut(slot) {
                None => self.add(*slot, source.clone()),
                Some(held) if held.source.datacenters != source.datacenters => {
                    held.source = source.clone();
                    is_changed = true;
                    self.release_uncovered(*slot);
                }
                Some(_) => {}
            }
        }
        if is_changed {
            for name in self.nodes.names() {
                self.evaluate(&name);
            }
        }
    }

    fn add(&mut self, vcenter: VcenterId, source: VcenterSource) {
        let mut changes = source.vcenter.changes();
        // A snapshot that was published before the subscription also counts as a change.
        changes.mark_changed();
        let changes: BoxStream<'static, VcenterId> = stream::unfold(changes, move |mut changes| async move {
            changes.changed().await.ok()?;
            Some((vcenter, changes))
        })
        .boxed();
        self.snapshots.push(changes);
        self.searches.add(vcenter, Arc::clone(&source.vcenter));
        self.vcenters.insert(vcenter, VcenterState { source, snapshot: Arc::default() });
        // The VMs of bound Nodes are also searched in the new vCenter, so that a twin is reported.
        for name in self.nodes.names() {
            self.update(&name, |tracked| tracked.bound.iter_mut().for_each(|bound| bound.unqueried.push(vcenter)));
        }
    }

    /// Removes a vCenter. A Node with a VM on this vCenter becomes *unknown* until the VM is found elsewhere or the
    /// vCenter is configured again.
    fn remove(&mut self, slot: VcenterId, setup: &TrackerConfig) {
        let Some(held) = self.vcenters.remove(&slot) else { return };
        self.searches.remove(slot);
        let server = held.source.vcenter.server().to_owned();
        let file = &setup.file;
        // Without any vCenter, this process is a standby without sessions, and the file has not changed.
        let is_standby = setup.sources.is_empty();
        let mut lost_nodes = 0_usize;
        for name in self.nodes.names() {
            let mut lost = None;
            self.update(&name, |tracked| {
                tracked.answers.remove(&slot);
                tracked.duplicates.remove(&slot);
                tracked.bound.iter_mut().for_each(|bound| bound.unqueried.retain(|unqueried| *unqueried != slot));
                lost = tracked.bound.take_if(|bound| bound.vm.vcenter == slot);
                if let Some(Binding { vm, .. }) = &lost {
                    let lost = || {
                        Box::new(RemovedVcenter { vm: vm.id.to_string(), server: server.clone(), file: file.clone() })
                    };
                    tracked.restart_lookup();
                    tracked.removed_vcenter = (!is_standby).then(lost);
                }
            });
            if lost.is_some() {
                lost_nodes += 1;
                self.search_everywhere(&name);
            }
            if self.nodes.get(&name).is_some_and(|tracked| tracked.bound.is_none()) {
                self.evaluate(&name);
            }
        }
        if lost_nodes == 0 || is_standby {
            debug!(vcenter = server, "no longer searched");
        } else {
            let reason = reason::VCenterNotConfigured;
            warn!(
                vcenter = server,
                nodes = lost_nodes,
                %reason,
                "{file} no longer names this vCenter: the state of its Nodes is unknown, and they stay unchanged"
            );
        }
    }

    /// Restarts the look-up of Nodes whose VM is outside the configured datacenters.
    fn release_uncovered(&mut self, vcenter: VcenterId) {
        let Some(held) = self.vcenters.get(&vcenter) else { return };
        let (observed, datacenters) = (Arc::clone(&held.snapshot), held.source.datacenters.clone());
        let is_uncovered = |tracked: &NodeEntry| {
            let record = tracked.vm().filter(|vm| vm.vcenter == vcenter).and_then(|vm| observed.vms.get(&vm.id));
            record
                .and_then(|record| observed.datacenter_of(record))
                .is_some_and(|datacenter| !scope::covers(&datacenters, &datacenter))
        };
        let names: Vec<String> =
            self.nodes.iter().filter(|(_, tracked)| is_uncovered(tracked)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.update(&name, NodeEntry::restart_lookup);
            self.search_everywhere(&name);
        }
    }
}
