//! Deletes orphaned load balancers and reports ambiguous objects of Services that no longer exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::NsxLoadBalancers;
use super::orphans::{CONFIRM_INTERVAL, Orphans, Policy, is_certain};
use super::ownership::{ClassifiedResources, ClusterContext, classify};
use super::resource::ServiceResources;
use super::service_call::delete_lb_service;
use crate::base::error_chain::chain;
use crate::cloud::{ClusterEvents, Error, LeaderToken, LiveReads, Presence};
use crate::providers::vsphere::reason;

/// Maximum number of concurrent live reads.
const READS: usize = 4;
/// Maximum number of live reads per relist for ambiguous objects.
const MAX_READS: usize = 100;
/// Time for which the result of a live read is reused.
const CHECK_PERIOD: Duration = Duration::from_secs(30 * 60);

pub(super) struct Cleanup {
    policy: Policy,
    live: Arc<dyn LiveReads>,
    events: Arc<dyn ClusterEvents>,
    /// No task keeps this lock across an `await`.
    orphans: Mutex<Orphans>,
    /// Time of the last live read of each Service, and whether its ambiguous objects are unneeded. No task keeps this
    /// lock across an `await`.
    last_checked: Mutex<BTreeMap<Box<str>, (Instant, bool)>>,
    /// Term of the last processed relist.
    term: AtomicU64,
}

impl Cleanup {
    pub(super) fn new(policy: Policy, live: Arc<dyn LiveReads>, events: Arc<dyn ClusterEvents>) -> Self {
        let (orphans, last_checked) = (Mutex::default(), Mutex::default());
        Self { policy, live, events, orphans, last_checked, term: AtomicU64::default() }
    }

    /// Returns the number of detected orphans that still exist.
    pub(super) fn count(&self) -> usize {
        self.orphans.lock().count()
    }

    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether this suspected Service is a confirmed orphan.
    pub(super) fn is_confirmed(&self, service: &str) -> bool {
        self.orphans.lock().is_reported(service)
    }

    /// Whether deletions pause, because many orphans were found at once.
    pub(super) fn is_paused(&self) -> bool {
        self.orphans.lock().is_paused(Instant::now().into_std())
    }

    async fn is_certain(&self, service: &str) -> bool {
        match service.split_once('/') {
            Some((namespace, name)) => is_certain(&self.live.service(namespace, name).await),
            None => false,
        }
    }

    /// Warns about many suspected orphans: the cluster may be a copy, and an operator can stop the cleanup in time.
    async fn warn_of_many(&self, count: usize, all: usize) {
        let minutes = CONFIRM_INTERVAL.as_secs() / 60;
        let what_follows = match self.policy {
            Policy::Delete => format!(
                "in {minutes} minutes the deletion of those begins that a live read does not find either; if this cluster was \
                 restored or copied, set --nsx-orphans=report now"
            ),
            Policy::Report | Policy::Off => "they are reported and not deleted".to_owned(),
        };
        let message = format!(
            "NSX has load balancers of {all} Services of this cluster, and the API server does not show {count} of these \
             Services: {what_follows}"
        );
        warn!(reason = %reason::ManyOrphanedLoadBalancers, "{message}");
        self.events.warn(reason::ManyOrphanedLoadBalancers, &message).await;
    }
}

impl NsxLoadBalancers {
    /// Processes each relist and continues deletions, until `stop` is cancelled.
    pub(super) async fn clean_up(&self, stop: &CancellationToken) {
        let (mut readings, mut asked) = (self.resources.relist_counter(), None);
        loop {
            // Requests each due relist only once.
            let next =
                self.cleanup.orphans.lock().next_list().map(Instant::from_std).filter(|next| Some(*next) != asked);
            let step = self.cleanup.orphans.lock().next_step().map(Instant::from_std);
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = OptionFuture::from(step.map(sleep_until)) => tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.continue_deletions() => {}
                },
                Some(()) = OptionFuture::from(next.map(sleep_until)) => {
                    asked = next;
                    self.resources.request_full_relist();
                }
                changed = readings.changed() => match changed {
                    Ok(()) => tokio::select! {
                        () = stop.cancelled() => return,
                        () = self.check_orphans() => {}
                    },
                    Err(_) => return,
                },
            }
        }
    }

    async fn check_orphans(&self) {
        let cleanup = &self.cleanup;
        let Some((permit, began, term)) = self.resources.term() else { return };
        if cleanup.term.swap(term, Ordering::Relaxed) != term {
            cleanup.orphans.lock().begin_term();
        }
        let Ok(uid) = self.uid.read().await else { return };
        self.remove_lb_service(&permit, uid.clone()).await;
        self.report_ambiguous(uid.clone()).await;
        let Some(uid) = uid.filter(|_| cleanup.policy != Policy::Off) else { return };
        let (suspects, all) = self.resources.suspects(&uid, &|service| self.nodes.has_service(service));
        let count = suspects.len();
        if cleanup.orphans.lock().are_many(count, all) {
            cleanup.warn_of_many(count, all).await;
        }
        let due = cleanup.orphans.lock().update(suspects, began.into_std());
        let certain: Vec<Box<str>> = futures::stream::iter(due)
            .map(async |service| cleanup.is_certain(&service).await.then_some(service))
            .buffered(READS)
            .filter_map(async |service| service)
            .collect()
            .await;
        for service in &certain {
            if cleanup.orphans.lock().is_news(service) {
                warn!(service = &**service, "orphaned load balancer in NSX: its Service no longer exists");
            }
        }
        if cleanup.policy != Policy::Delete {
            return;
        }
        let count = certain.len();
        let decision = cleanup.orphans.lock().decide(certain, all, Instant::now().into_std());
        let Some(services) = decision else {
            warn!(
                "{count} of {all} Services with load balancers no longer exist, which are many: no orphan is deleted for 15 \
                 minutes. If the API server was restored from a backup, set --nsx-orphans=report now"
            );
            return;
        };
        self.delete_orphans(&permit, services, true).await;
    }

    /// Retries a refused deletion of the load balancer service.
    async fn remove_lb_service(&self, permit: &LeaderToken, uid: Option<String>) {
        let Some(refusals) = self.resources.refused_removal() else { return };
        match delete_lb_service(self, permit, &self.layout(uid)).await {
            Ok(()) => self.resources.end_removal(refusals),
            Err(error) => warn!("{}", chain(&error)),
        }
    }

    /// Continues deletions that waited for NSX.
    async fn continue_deletions(&self) {
        let services = self.cleanup.orphans.lock().take_due(Instant::now().into_std());
        if let Some((permit, ..)) = self.resources.term() {
            self.delete_orphans(&permit, services, false).await;
        }
    }

    async fn delete_orphans(&self, permit: &LeaderToken, services: Vec<Box<str>>, is_new: bool) {
        let (mut failed, count) = (Vec::new(), services.len());
        for service in services {
            if let Err(error) = self.delete_orphan(permit, &service, is_new).await {
                self.cleanup.orphans.lock().failed(&service, Instant::now().into_std());
                failed.push(format!("{service}: {}", chain(&error)));
            }
        }
        if !failed.is_empty() {
            let all = failed.join("; ");
            warn!(
                "{} of {count} orphaned load balancers could not be deleted and will be retried: {all}",
                failed.len()
            );
        }
    }

    /// Deletes an orphan as far as NSX currently allows. Skips a Service that another call handles or that may exist
    /// again. The deletion counts towards the limit if `is_new` is set.
    async fn delete_orphan(&self, permit: &LeaderToken, service: &str, is_new: bool) -> Result<(), Error> {
        let gone = named(service);
        // The call claims the name of the Service: syncs of a new Service with this name wait for the call.
        let Ok(call) = self.call(permit, &gone).await else { return Ok(()) };
        if permit.check().is_err() || !self.cleanup.is_certain(service).await {
            return Ok(());
        }
        if is_new {
            self.cleanup.orphans.lock().deleted(Instant::now().into_std());
        }
        match call.delete().await {
            Ok(()) => {
                info!(service, "orphaned load balancer deleted");
                Ok(())
            }
            Err(Error::Pending { after, .. }) => {
                self.cleanup.orphans.lock().postponed(service, (Instant::now() + after).into_std());
                Ok(())
            }
            Err(Error::NotLeader) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reports ambiguous objects of Services that are not in the informer cache. Skips Services that still need a load
    /// balancer according to the API server: with `--service-selector`, another process may serve these Services.
    async fn report_ambiguous(&self, uid: Option<String>) {
        let layout = self.layout(uid);
        self.resources.report_without_service(layout.cluster_uid.as_deref());
        let facts = ClusterContext {
            layout: &layout,
            service_uid: None,
            ports: &[],
            ingress: &[],
            lb_service: None,
            nodes: &BTreeSet::new(),
        };
        let all = self.resources.not_here(&|service| self.nodes.has_service(service));
        let is_here = |service: &str| all.iter().any(|(one, _)| **one == *service);
        self.cleanup.last_checked.lock().retain(|service, (at, _)| at.elapsed() < CHECK_PERIOD && is_here(service));
        let mut reads = MAX_READS;
        for (service, objects) in all {
            let ClassifiedResources { ambiguous: mut held, unresolved, .. } = classify(&objects, &facts);
            held.0.extend(unresolved);
            let is_unneeded = match held.is_empty() {
                true => Some(true),
                false => self.is_unneeded(&service, &held, &mut reads).await,
            };
            // The Service exists now. Its sync reports the ambiguous objects.
            if self.nodes.has_service(&service) {
                continue;
            }
            match is_unneeded {
                Some(true) => self.resources.report_ambiguous(&service, &held),
                Some(false) => self.resources.report_ambiguous(&service, &ServiceResources::default()),
                None => {}
            }
        }
    }

    /// Returns `Some(true)` if a live read shows that the ambiguous objects of a Service are not needed, and `None` if
    /// the read failed or no `reads` are left. Reuses a result for 30 minutes, but `true` only if exactly these objects
    /// were reported.
    async fn is_unneeded(&self, service: &str, ambiguous: &ServiceResources, reads: &mut usize) -> Option<bool> {
        let known = self.cleanup.last_checked.lock().get(service).map(|(_, is_unneeded)| *is_unneeded);
        if let Some(is_unneeded) =
            known.filter(|is_unneeded| !is_unneeded || self.resources.are_reported(service, ambiguous))
        {
            return Some(is_unneeded);
        }
        let (namespace, name) = service.split_once('/').filter(|_| *reads > 0)?;
        let live = self.cleanup.live.service(namespace, name).await;
        if matches!(live, Presence::Unknown(_)) {
            *reads = 0;
            return None;
        }
        *reads -= 1;
        self.cleanup.last_checked.lock().insert(service.into(), (Instant::now(), is_certain(&live)));
        Some(is_certain(&live))
    }
}

/// Returns a Service with only this namespace and name.
pub(super) fn named(service: &str) -> Service {
    let (namespace, name) = service.split_once('/').unwrap_or_default();
    let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    Service { metadata: ObjectMeta { namespace, name, ..ObjectMeta::default() }, ..Service::default() }
}
