//! Deletes load balancers whose Services are gone, and reports what names such Services and is held.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// The term of the last reading that was looked at.
    term: AtomicU64,
}

impl Cleanup {
    pub(super) fn new(policy: Policy, live: Arc<dyn LiveReads>) -> Self {
        Self { policy, live, orphans: Mutex::default(), term: AtomicU64::default() }
    }

    /// How many were found and are still there.
    pub(super) fn count(&self) -> usize {
        self.orphans.lock().count()
    }

    /// Looks at each reading. Ends with `stop`.
    pub(super) async fn run(&self, of: &LoadBalancers, stop: &CancellationToken) {
        let (mut readings, mut asked) = (of.inventory.completed_readings(), None);
        loop {
            // Each is asked for once.
            let next = self.orphans.lock().next_reading().map(Instant::from_std).filter(|next| Some(*next) != asked);
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = OptionFuture::from(next.map(sleep_until)) => {
                    asked = next;
                    of.inventory.ask_for_all();
                }
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
        let Some((permit, began, term)) = of.inventory.term() else { return };
        if self.term.swap(term, Ordering::Relaxed) != term {
            self.orphans.lock().begin_term();
        }
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
        let (mut failed, count) = (Vec::new(), services.len());
        for service in services {
            if let Err(error) = self.delete(of, &permit, &service).await {
                self.orphans.lock().failed(&service, Instant::now().into_std());
                failed.push(format!("{service}: {}", chain(&error)));
            }
        }
        if !failed.is_empty() {
            let all = failed.join("; ");
            warn!(
                "{} of {count} load balancers that are left over are not deleted, and are tried again later: {all}",
                failed.len()
            );
        }
    }

    async fn delete(&self, of: &LoadBalancers, permit: &WritePermit, service: &str) -> Result<(), Error> {
        let gone = named(service);
        // A sync of a Service that is created from now on waits for this call.
        let Ok(call) = of.call(permit, &gone).await else { return Ok(()) };
        if permit.check().is_err() || !self.is_certain(service).await {
            return Ok(());
        }
        self.orphans.lock().deleted(Instant::now().into_std());
        match call.delete().await {
            // The next reading shows whether something is left.
            Ok(()) | Err(Error::Pending { .. }) => {
                info!(service, "what was left of the load balancer is deleted");
                Ok(())
            }
            Err(Error::NotLeader) => Ok(()),
            Err(error) => Err(error),
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
