//! Records the objects written or deleted for each Service, and their realization in NSX.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::ResourceCache;
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::realization::{
    Effect, NextCheck, PendingTeardown, Rollout, until_purge,
};

impl ResourceCache {
    /// Records a write of a virtual server or of the load balancer service. `revision` is the revision that the write
    /// produced; `None` if the write created the object.
    pub fn record_written(&self, service: &str, path: &str, revision: Option<i64>) {
        let now = Instant::now().into_std();
        let mut state = self.state.lock();
        state.rollouts.entry(service.into()).or_insert_with(|| Rollout::new(now)).written(path, revision, now);
    }

    /// Returns the revision that NSX has to realize; `None` for an object that the last write created.
    pub fn revision(&self, service: &str, path: &str) -> Option<i64> {
        self.state.lock().rollouts.get(service)?.revision(path)
    }

    /// Records the deletion of an object of this Service.
    pub fn record_deleted(&self, service: &str, path: &str) {
        let now = Instant::now().into_std();
        let mut state = self.state.lock();
        if let Some(rollout) = state.rollouts.get_mut(service) {
            rollout.removed(path);
        }
        let teardown = state.teardowns.entry(service.into()).or_insert_with(|| PendingTeardown::new(now));
        teardown.deleted_any(now);
        if path.starts_with(ObjectKind::VirtualServer.parent()) {
            teardown.deleted(path, now);
        }
    }

    /// Returns the next action for the written objects of this Service, and for `unreported`: objects that serve an
    /// address that the Service does not report yet.
    pub fn rollout<'a>(&self, service: &str, unreported: impl Iterator<Item = &'a str>) -> NextCheck {
        let now = Instant::now().into_std();
        let mut state = self.state.lock();
        let mut unreported = unreported.peekable();
        if unreported.peek().is_some() {
            let rollout = state.rollouts.entry(service.into()).or_insert_with(|| Rollout::new(now));
            unreported.for_each(|path| rollout.expect(path));
        }
        state.rollouts.get(service).map_or(NextCheck::Complete, |rollout| rollout.due(now))
    }

    /// Returns the time since the last write for this Service.
    pub fn rollout_age(&self, service: &str) -> Duration {
        let now = Instant::now().into_std();
        self.state.lock().rollouts.get(service).map(|rollout| rollout.age(now)).unwrap_or_default()
    }

    /// Records the realized states of objects written for this Service.
    pub fn record_rollout(&self, service: &str, shown: BTreeMap<Box<str>, Effect>) {
        let mut state = self.state.lock();
        let realized = shown.iter().filter(|(_, effect)| **effect == Effect::Realized).map(|(path, _)| path);
        let parent = ObjectKind::LbService.parent();
        let lb_services: Vec<Box<str>> = realized.filter(|path| path.starts_with(parent)).cloned().collect();
        state.realized_lb_services.extend(lb_services);
        if let Some(rollout) = state.rollouts.get_mut(service) {
            rollout.note(shown, Instant::now().into_std());
        }
    }

    /// Whether NSX has realized this load balancer service.
    pub fn is_lb_service_realized(&self, path: &str) -> bool {
        self.state.lock().realized_lb_services.contains(path)
    }

    /// Returns the unconfirmed objects of this Service. Drops the record of writes if all objects are confirmed and the
    /// Service reports its address.
    pub fn unconfirmed(&self, service: &str, is_reported: bool) -> BTreeSet<Box<str>> {
        let mut state = self.state.lock();
        let Some(rollout) = state.rollouts.get(service) else { return BTreeSet::new() };
        let unconfirmed = rollout.unconfirmed();
        if is_reported && rollout.is_over() {
            state.rollouts.remove(service);
        }
        unconfirmed
    }

    /// Returns the next action for the deleted virtual servers of this Service, and for `expected`: virtual servers
    /// that another process may have deleted.
    pub fn teardown(&self, service: &str, expected: &BTreeSet<Box<str>>) -> NextCheck {
        let now = Instant::now().into_std();
        let mut state = self.state.lock();
        if !expected.is_empty() {
            let teardown = state.teardowns.entry(service.into()).or_insert_with(|| PendingTeardown::new(now));
            expected.iter().for_each(|path| teardown.expect(path));
        }
        state.teardowns.get(service).map_or(NextCheck::Complete, |teardown| teardown.due(now))
    }

    /// Whether this virtual server is known to be deleted.
    pub fn is_deleted(&self, service: &str, path: &str) -> bool {
        self.state.lock().teardowns.get(service).is_some_and(|teardown| teardown.is_deleted(path))
    }

    /// Whether an earlier process may have left a group or persistence profile of this Service. False if the load
    /// balancers were complete in this term, or if this process has deleted a virtual server of the Service.
    pub fn may_have_references(&self, service: &str) -> bool {
        let state = self.state.lock();
        let has_deleted = state.teardowns.get(service).is_some_and(PendingTeardown::has_deleted);
        !has_deleted && !state.complete_families.contains_key(service)
    }

    /// Records that another process has deleted this virtual server, which NSX still realizes.
    pub fn record_deleted_before(&self, service: &str, path: &str) {
        if let Some(teardown) = self.state.lock().teardowns.get_mut(service) {
            teardown.was_deleted(path);
        }
    }

    /// Records which deleted virtual servers NSX still realizes; `None` if the realized state cannot be read.
    pub fn record_teardown(&self, service: &str, in_effect: Option<BTreeSet<Box<str>>>) {
        let now = Instant::now().into_std();
        let mut state = self.state.lock();
        let Some(teardown) = state.teardowns.get_mut(service) else { return };
        match in_effect {
            Some(in_effect) => teardown.note(in_effect, now),
            None => teardown.give_up(),
        }
    }

    /// Returns the deleted virtual servers of this Service that NSX may still realize although the wait for them has
    /// ended.
    pub fn left_in_effect(&self, service: &str) -> BTreeSet<Box<str>> {
        self.state.lock().teardowns.get(service).map(PendingTeardown::left).unwrap_or_default()
    }

    /// Returns the pause before the retry of a deletion that a reference blocks; `None` without a recent deletion.
    pub fn until_purge(&self, service: &str) -> Option<Duration> {
        self.state.lock().teardowns.get(service)?.until_purge(Instant::now().into_std())
    }

    /// Returns the pause before the retry of a deletion that an object deleted by an earlier process may block. The
    /// time of its purge counts from the first call of this term.
    pub fn until_purge_of_former(&self) -> Option<Duration> {
        until_purge(self.state.lock().term_began?.into_std(), Instant::now().into_std())
    }
}
