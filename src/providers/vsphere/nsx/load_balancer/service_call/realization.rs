//! Checks that NSX has realized writes and deletions. A sync that has to wait returns [`Error::Pending`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt as _;
use tracing::{debug, warn};

use super::{FailedFamilies, FamilyTarget, ServiceCall};
use crate::base::error_chain::chain;
use crate::clients::nsx::realization::RevisionStatus;
use crate::cloud::Error;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::plan::Action;
use crate::providers::vsphere::nsx::load_balancer::realization::{Effect, NextCheck};
use crate::providers::vsphere::nsx::load_balancer::service_request;
use crate::providers::vsphere::reason;

/// Maximum number of concurrent reads of realized states.
const MAX_CONCURRENT: usize = 8;

impl ServiceCall<'_> {
    /// Returns the load balancers that NSX could not realize, with the errors. Fails with [`Error::Pending`] for at
    /// most 30 s while NSX has not reported the outcome.
    pub(super) async fn unrealized(&self, targets: &[FamilyTarget<'_>]) -> Result<FailedFamilies, Error> {
        loop {
            match self.cache().rollout(&self.key, self.unreported(targets).iter().map(AsRef::as_ref)) {
                NextCheck::Complete => return Ok(Vec::new()),
                NextCheck::Errors(errors, after) => return Ok(failures(targets, &errors, after)),
                NextCheck::Wait(after) => {
                    return Err(self.wait("NSX has not put the load balancer into effect yet", after));
                }
                NextCheck::Read(paths) => {
                    let shown = self.read_effects(paths).await?;
                    self.cache().record_rollout(&self.key, shown);
                }
            }
        }
    }

    /// Returns the paths of objects that serve an unreported address, except realized load balancer services.
    fn unreported(&self, targets: &[FamilyTarget<'_>]) -> BTreeSet<Box<str>> {
        let servers =
            targets.iter().filter(|target| target.balancer.is_wanted).flat_map(|target| target.ours.servers());
        let mut paths = BTreeSet::new();
        for server in servers.filter(|one| one.address.is_some_and(|address| !self.ingress.contains(&address))) {
            paths.insert(server.tags.path.clone());
            let lb_service = server.reference(ObjectKind::LbService);
            if !lb_service.is_empty() && !self.cache().is_lb_service_realized(lb_service) {
                paths.insert(lb_service.into());
            }
        }
        paths
    }

    /// Sets or clears the Event about objects whose realization NSX has not confirmed.
    pub(super) fn remark_unconfirmed(&self, addresses: &[IpAddr]) {
        let is_reported = addresses.iter().all(|address| self.ingress.contains(address));
        let unconfirmed = self.cache().unconfirmed(&self.key, is_reported);
        let message = (!unconfirmed.is_empty()).then(|| {
            format!(
                "NSX has not confirmed within 30 s that the load balancer is in effect, or this account may not read that: {}; \
                 the address is reported all the same",
                joined(&unconfirmed)
            )
        });
        self.cache().set_event(&self.key, reason::LoadBalancerNotConfirmed, message);
    }

    /// Reports deleted virtual servers that NSX may still realize. Orphans get no Event.
    pub(super) fn remark_left(&self, left: &BTreeSet<Box<str>>) {
        if left.is_empty() {
            return;
        }
        let message = format!(
            "deleted virtual servers may still serve the address, because after 5 minutes NSX has them in effect or does not say \
             whether it has, or because this account may not read that: {}; the deletion goes on, and the address is released",
            joined(left)
        );
        warn!(service = self.key, "{message}");
        if self.uid().is_some() {
            self.cache().set_event(&self.key, reason::LoadBalancerStillRealized, Some(message));
        }
    }

    async fn read_effects(&self, paths: Vec<Box<str>>) -> Result<BTreeMap<Box<str>, Effect>, Error> {
        let asked = self.cache().rollout_age(&self.key);
        let read = async |path: Box<str>| {
            let revision = self.cache().revision(&self.key, &path);
            let status = self.provider.backend.realization(&path, revision).await;
            (path, status)
        };
        let all: Vec<_> = futures::stream::iter(paths).map(read).buffer_unordered(MAX_CONCURRENT).collect().await;
        let answered = self.cache().rollout_age(&self.key);
        let effect = |(path, status): (Box<str>, Result<RevisionStatus, Error>)| {
            let effect = match status {
                Ok(status) => Effect::of(status, asked, answered),
                Err(Error::NotLeader) => return Err(Error::NotLeader),
                Err(error) if error.reason() == reason::NSXNoPermission => Effect::Unreadable,
                Err(error) => {
                    debug!(service = self.key, "{}", chain(&error));
                    Effect::Open
                }
            };
            Ok((path, effect))
        };
        all.into_iter().map(effect).collect()
    }

    /// Returns the paths of the virtual servers that this program creates for these load balancers of the Service.
    pub(super) fn expected_servers(&self, secondaries: &[Option<IpFamily>]) -> BTreeSet<Box<str>> {
        let (Some(uid), Ok(ports)) = (self.uid(), service_request::ports_of(self.service)) else {
            return BTreeSet::new();
        };
        let mut paths = BTreeSet::new();
        for secondary in secondaries {
            let layout = self.layout.of(*secondary);
            for (port, _) in &ports {
                let id = layout.id(ObjectKind::VirtualServer, uid, Some(*port), 0);
                paths.insert(format!("{}/{id}", ObjectKind::VirtualServer.parent()).into());
            }
        }
        paths
    }

    /// Checks that NSX realizes neither the deleted virtual servers nor those in `expected`. Fails with
    /// [`Error::Pending`] for at most 5 minutes while NSX realizes one of them. Returns true if a list has missed a
    /// virtual server that still exists, so that the caller observes again.
    pub(super) async fn finds_missed_server(&self, expected: &BTreeSet<Box<str>>) -> Result<bool, Error> {
        loop {
            match self.cache().teardown(&self.key, expected) {
                NextCheck::Complete | NextCheck::Errors(..) => return Ok(false),
                NextCheck::Wait(after) => {
                    return Err(self.wait("NSX still serves virtual servers of the Service that were deleted", after));
                }
                NextCheck::Read(paths) => {
                    if self.read_teardown(paths).await? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Returns the error that requeues the Service after this time. Logs the reason, because long waits have no Event.
    pub(super) fn wait(&self, message: &str, after: Duration) -> Error {
        debug!(service = self.key, "{message}; the next check is in {} s", after.as_secs());
        Error::Pending { message: message.to_owned(), after }
    }

    /// Reads which deleted virtual servers NSX still realizes. Returns true if one of them still exists.
    async fn read_teardown(&self, paths: Vec<Box<str>>) -> Result<bool, Error> {
        let read = async |path: Box<str>| {
            let is_in_effect = self.provider.backend.is_in_effect(&path).await;
            (path, is_in_effect)
        };
        let all: Vec<_> = futures::stream::iter(paths).map(read).buffer_unordered(MAX_CONCURRENT).collect().await;
        let (mut in_effect, mut is_one_found) = (BTreeSet::new(), false);
        for (path, is_in_effect) in all {
            match is_in_effect {
                Ok(false) => {}
                Ok(true) if self.exists(&path).await? => is_one_found = true,
                Ok(true) => drop(in_effect.insert(path)),
                Err(error) if error.reason() == reason::NSXNoPermission => {
                    warn!(
                        service = self.key,
                        "cannot check that deleted virtual servers serve no traffic: {}",
                        chain(&error)
                    );
                    self.cache().record_teardown(&self.key, None);
                    return Ok(false);
                }
                Err(error) if matches!(error, Error::NotLeader) || error.reason() == reason::NSXUnavailable => {
                    return Err(error);
                }
                // The virtual server counts as realized until the time limit, because the answer is inconclusive.
                Err(error) => {
                    debug!(service = self.key, "{}", chain(&error));
                    in_effect.insert(path);
                }
            }
        }
        self.cache().record_teardown(&self.key, Some(in_effect));
        Ok(is_one_found)
    }

    /// Whether a realized virtual server exists. If not, records that another process has deleted the virtual server.
    async fn exists(&self, path: &str) -> Result<bool, Error> {
        if self.cache().is_deleted(&self.key, path) {
            return Ok(false);
        }
        let step = Action::Read { kind: ObjectKind::VirtualServer, path: path.to_owned() };
        self.perform_in(&self.layout, None, &step).await?;
        let exists = self.cache().of_service(&self.key).at(path).is_some();
        if !exists {
            self.cache().record_deleted_before(&self.key, path);
        }
        Ok(exists)
    }
}

fn joined(paths: &BTreeSet<Box<str>>) -> String {
    paths.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ")
}

fn failures(targets: &[FamilyTarget<'_>], errors: &BTreeMap<Box<str>, String>, after: Duration) -> FailedFamilies {
    let failure = |target: &FamilyTarget<'_>| {
        let is_its = |path: &str| target.ours.servers().any(|one| *one.tags.path == *path || one.refers_to(path));
        let of_target = errors.iter().filter(|(path, _)| is_its(path));
        let messages: Vec<String> = of_target.map(|(path, alarm)| format!("{path}: {alarm}")).collect();
        let message =
            format!("NSX has accepted the load balancer and cannot put it into effect: {}", messages.join("; "));
        let error = Error::Failed { reason: reason::LoadBalancerNotRealized, message, after: Some(after) };
        (!messages.is_empty()).then_some((target.balancer.secondary, error))
    };
    targets.iter().filter(|target| target.balancer.is_wanted).filter_map(failure).collect()
}
