//! Rules that always apply, checked repeatedly.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ccm::cloud::{InstanceMetadata, Presence};
use ccm::providers::vsphere::vcenter::snapshot::Freshness;
use k8s_openapi::api::core::v1::Node;
use tokio::time::MissedTickBehavior;

use super::{Scene, Server, internal, inventory_of, is_of_other, uuid};

/// Interval between two checks.
const LOOKS: Duration = Duration::from_millis(100);
/// Limit for an answer about a machine of the healthy vCenter. It is less than a call to the vCenter with the fault.
const OTHER_ANSWERS: Duration = Duration::from_millis(2_500);

impl Scene {
    /// Checks all answers repeatedly. Returns the first wrong one.
    pub async fn watch(&self) -> String {
        tokio::select! {
            wrong = self.watch_with(async || self.look(false).await) => wrong,
            wrong = self.watch_with(async || self.look(true).await) => wrong,
            wrong = self.watch_with(async || self.look_at_sizes()) => wrong,
        }
    }

    async fn watch_with(&self, look: impl AsyncFn() -> Result<(), String>) -> String {
        let mut times = tokio::time::interval(LOOKS);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            times.tick().await;
            match look().await {
                Err(wrong) => return wrong,
                Ok(()) => self.looks.fetch_add(1, Ordering::Relaxed),
            };
        }
    }

    /// Records the states of the inventory of the vCenter with the fault from now on, even short ones.
    pub fn take_down(&self) {
        let felt = Arc::clone(&self.felt);
        let mut changes = inventory_of(self.running.lock().unwrap().as_ref().unwrap(), self.port()).changes();
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let now = changes.borrow_and_update();
                felt.was_stale.fetch_or(now.freshness != Freshness::Live, Ordering::Relaxed);
                felt.had_no_tags.fetch_or(now.tags.error.is_some(), Ordering::Relaxed);
            }
        });
    }

    /// Checks that there were enough checks.
    pub fn was_watched(&self) -> Result<(), String> {
        match self.looks.load(Ordering::Relaxed) {
            looks if looks < 10 => Err(format!("{looks} looks are too few")),
            _ => Ok(()),
        }
    }

    /// Checks the answers about the machines of one vCenter.
    async fn look(&self, of_other: bool) -> Result<(), String> {
        let nodes: Vec<(String, Node)> = {
            let nodes = self.nodes.lock().unwrap();
            nodes
                .iter()
                .filter(|(name, _)| is_of_other(name) == of_other)
                .map(|(n, node)| (n.clone(), node.clone()))
                .collect()
        };
        for (name, node) in nodes {
            let began = Instant::now();
            let exists = self.instances.instance_exists(&node).await;
            let is_off = self.instances.instance_shutdown(&node).await;
            let metadata = self.instances.instance_metadata(&node).await;
            let took = began.elapsed();
            // An answer to a request from before the destruction of the machine may arrive later.
            let is_asked = self.nodes.lock().unwrap().contains_key(&name);
            let is_absent = matches!(exists, Presence::Absent(_)) || matches!(metadata, Presence::Absent(_));
            if is_absent && is_asked {
                return Err(format!("{name} is called absent: {exists:?}, {metadata:?}"));
            }
            if matches!(is_off, Presence::Absent(_) | Presence::Exists(true)) && is_asked {
                return Err(format!("{name} is called off: {is_off:?}"));
            }
            if let Presence::Exists(found) = &metadata {
                self.is_right(&name, found)?;
            }
            let was_initialized = node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some());
            if of_other && was_initialized {
                let is_well = matches!(exists, Presence::Exists(()))
                    && matches!(&metadata, Presence::Exists(found) if found.stale.is_none());
                if !is_well || took > OTHER_ANSWERS {
                    return Err(format!(
                        "{name} of the vCenter that is well, after {took:?}: {exists:?}, {metadata:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that the metadata was right at some time.
    fn is_right(&self, name: &str, found: &InstanceMetadata) -> Result<(), String> {
        let addresses = self.addresses.lock().unwrap();
        let zones = if is_of_other(name) { &["zone-m"] } else { self.zones };
        let is_right = found.provider_id == format!("vsphere://{}", uuid(name))
            && internal(found).iter().all(|address| addresses.contains(*address))
            && (found.zone.is_empty() || zones.contains(&found.zone.as_str()))
            && (found.region.is_empty() || found.region == "region-1");
        if is_right { Ok(()) } else { Err(format!("{name} is said to be {found:?}")) }
    }

    /// Checks the amount of cached data about the vCenter with the fault, and of objects on that vCenter.
    fn look_at_sizes(&self) -> Result<(), String> {
        let now = self.snapshot_at(self.port());
        let sizes = (now.vms.len(), now.entities.len(), now.tags.objects.len(), now.unresolved.len());
        if sizes.0 > 20 || sizes.1 > 40 || sizes.2 > 80 || sizes.3 > 20 {
            return Err(format!("what is held grows: {sizes:?}"));
        }
        if let Server::Fake(fake) = &self.troubled {
            let counts = fake.counts();
            // The limit covers a stop, a replaced subscription, and the new provider.
            if counts.collectors.max(counts.views).max(counts.soap_sessions) > 4 {
                return Err(format!("something is left behind on the server: {counts:?}"));
            }
        }
        Ok(())
    }
}
