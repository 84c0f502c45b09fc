//! Deletes load balancers whose Services are gone, and reports what names such Services and is held.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::LoadBalancers;
use super::orphans::{Decision, Orphans, Policy, is_certain};
use super::ownership::{Facts, Judged, judge};
use crate::base::error_chain::chain;
use crate::cloud::{Error, LiveReads, WritePermit};

/// How many live reads are under way.
const READS: usize = 4;

/// See the file's header.
pub(super) struct Cleanup {
    policy: Policy,
    live: Arc<dyn LiveReads>,
    /// Never locked over an await.
    orphans: Mutex<Orphans>,
}

impl Cleanup {
    pub(super) fn new(policy: Policy, live: Arc<dyn LiveReads>) -> Self {
        Self { policy, live, orphans: Mutex::default() }
    }

    /// How many were found and are still there.
    pub(super) fn count(&self) -> usize {
        self.orphans.lock().count()
    }

    /// Looks at each reading. Ends with `stop`.
    pub(super) async fn run(&self, of: &LoadBalancers, stop: &CancellationToken) {
        let mut readings = of.inventory.completed_readings();
        loop {
            let next = self.orphans.lock().next_reading().map(Instant::from_std).filter(|next| *next > Instant::now());
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = OptionFuture::from(next.map(sleep_until)) => of.inventory.ask(),
                changed = readings.changed() => match changed {
                    Ok(()) => tokio::select! {
                        () = stop.cancelled() => return,
                        () = self.look(of) => {}
                    },
                    Err(_) => return,
                },
            }
        }
    }

    async fn look(&self, of: &LoadBalancers) {
        let Some((permit, began)) = of.inventory.term() else { return };
        let Ok(uid) = of.uid.read().await else { return };
        self.report_held(of, uid.clone());
        let Some(uid) = uid.filter(|_| self.policy != Policy::Off) else { return };
        let (suspects, all) = of.inventory.suspects(&uid, &|service| of.nodes.has_service(service));
        let due = self.orphans.lock().note(suspects, began.into_std());
        let certain: Vec<Box<str>> = futures::stream::iter(due)
            .map(async |service| self.is_certain(&service).await.then_some(service))
            .buffered(READS)
            .filter_map(async |service| service)
            .collect()
            .await;
        for service in &certain {
            if self.orphans.lock().is_news(service) {
                warn!(service = &**service, "a load balancer in NSX is left over: its Service is gone");
            }
        }
        if self.policy != Policy::Delete {
            return;
        }
        let decision = self.orphans.lock().decide(certain, all, Instant::now().into_std());
        let services = match decision {
            Decision::Hold(count) => {
                warn!(
                    "load balancers of {count} Services of {all} are left over, which are many: none is deleted for 15 minutes"
                );
                return;
            }
            Decision::Delete(services) => services,
        };
        for service in services {
            self.delete(of, &permit, &service).await;
        }
    }

    async fn delete(&self, of: &LoadBalancers, permit: &WritePermit, service: &str) {
        let gone = named(service);
        // A sync of a Service that is created from now on waits for this call.
        let Ok(call) = of.call(permit, &gone).await else { return };
        if permit.check().is_err() || !self.is_certain(service).await {
            return;
        }
        self.orphans.lock().deleted(Instant::now().into_std());
        match call.delete().await {
            // The next reading shows whether something is left.
            Ok(()) | Err(Error::Pending { .. }) => info!(service, "what was left of the load balancer is deleted"),
            Err(error) => warn!(service, "the left over load balancer is not deleted: {}", chain(&error)),
        }
    }

    /// Objects of Services that are not here, and that nothing shows to be of this cluster.
    fn report_held(&self, of: &LoadBalancers, uid: Option<String>) {
        let layout = of.layout(uid);
        let facts = Facts {
            layout: &layout,
            service_uid: None,
            ports: &[],
            ingress: &[],
            lb_service: None,
            nodes: &BTreeSet::new(),
        };
        for (service, objects) in of.inventory.not_here(&|service| of.nodes.has_service(service)) {
            let Judged { mut held, unread, .. } = judge(&objects, &facts);
            held.allocations.extend(unread);
            of.inventory.report_held(&service, &held);
        }
    }

    async fn is_certain(&self, service: &str) -> bool {
        match service.split_once('/') {
            Some((namespace, name)) => is_certain(&self.live.service(namespace, name).await),
            None => false,
        }
    }
}

/// A Service of which only the name is known.
fn named(service: &str) -> Service {
    let (namespace, name) = service.split_once('/').unwrap_or_default();
    let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    Service { metadata: ObjectMeta { namespace, name, ..ObjectMeta::default() }, ..Service::default() }
}
