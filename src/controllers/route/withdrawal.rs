//! While routes are off, removes the condition `NetworkUnavailable` from Nodes that wait for a route, because
//! Kubernetes schedules no pods on such Nodes. The Go program does not remove the condition.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::{Instant, sleep_until};

use super::apply::owns;
use super::condition;
use crate::base::backoff::{Backoff, Failures};
use crate::base::error_chain::chain;
use crate::cloud::{CloudProvider, LiveReads as _, Presence};
use crate::controllers::capability::Capability;
use crate::controllers::{Context, FIELD_MANAGER};
use crate::kubernetes::cluster::LiveApi;
use crate::kubernetes::patch::{patch_status, permits_retry};
use crate::kubernetes::stores::{Change, Nodes};

/// Pauses between retries of failed removals.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

/// The reason why routes are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// `--configure-cloud-routes=false` is set, so routes are always off.
    ByFlag,
    /// The provider's configuration disables routes. The configuration may change.
    ByConfiguration,
}

/// While routes are off and this process leads, removes the condition `NetworkUnavailable` from Nodes. The condition
/// must be `True` with the reason `NoRouteCreated`, and `managedFields` must show that this program or the Go program
/// wrote the condition. Nodes of other providers are not changed. Dropping the future ends the work.
pub async fn withdraw_conditions(context: Context, nodes: Nodes, off: Off) -> Infallible {
    let configuration = Capability::routes_off(Arc::clone(&context.provider));
    let wait_until = async |is_off: bool| match off {
        Off::ByFlag if is_off => {}
        Off::ByFlag => std::future::pending().await,
        Off::ByConfiguration => configuration.wait_until(!is_off).await,
    };
    loop {
        wait_until(true).await;
        if off == Off::ByConfiguration {
            tracing::info!("no routes are made: the configuration of the cloud provider has none");
        }
        let withdraw = async {
            loop {
                context.leadership.wait_until_leader().await;
                let lost = context.leadership.wait_until_lost();
                tokio::select! {
                    () = lost => {}
                    never = Withdrawal::new(&context, &nodes).run() => match never {},
                }
            }
        };
        tokio::select! {
            () = wait_until(false) => {}
            () = withdraw => {}
        }
    }
}

struct Withdrawal<'a> {
    nodes: &'a Nodes,
    provider: &'a dyn CloudProvider,
    api: Api<Node>,
    live: LiveApi,
    /// By name, the UIDs of the Nodes whose condition stays, for example because another program wrote it.
    retained: BTreeMap<String, Option<String>>,
    failed: BTreeSet<String>,
    failures: Failures,
    retry_at: Instant,
}

impl<'a> Withdrawal<'a> {
    fn new(context: &'a Context, nodes: &'a Nodes) -> Self {
        let (api, live) = (Api::all(context.write.clone()), LiveApi::new(context.write.clone()));
        let (kept, failed) = (BTreeMap::new(), BTreeSet::new());
        let (failures, retry_at) = (Failures::default(), Instant::now());
        Self { nodes, provider: &*context.provider, api, live, retained: kept, failed, failures, retry_at }
    }

    async fn run(mut self) -> Infallible {
        let mut changes = self.nodes.subscribe();
        loop {
            let is_waiting = !self.failed.is_empty();
            let names = tokio::select! {
                Some(change) = changes.next() => match change {
                    // Failed Nodes wait for the end of the pause.
                    Change::Applied(name) | Change::Deleted(name) if self.failed.contains(&name) => continue,
                    Change::Applied(name) | Change::Deleted(name) => vec![name],
                    Change::All => {
                        let nodes = self.nodes;
                        self.retained.retain(|name, _| nodes.contains(name));
                        nodes.keys()
                    }
                },
                () = sleep_until(self.retry_at), if is_waiting => std::mem::take(&mut self.failed).into_iter().collect(),
            };
            for name in names {
                self.withdraw_from(&name).await;
            }
            match self.failed.is_empty() {
                true => self.failures.reset(),
                false if self.retry_at <= Instant::now() => {
                    self.retry_at = Instant::now() + self.failures.next_pause(&BACKOFF, 0.0);
                }
                false => {}
            }
        }
    }

    /// Handles one Node. Reads the Node live if the cached Node has the condition.
    async fn withdraw_from(&mut self, name: &str) {
        let Some(cached) = self.nodes.get(name).filter(|node| condition::is_obsolete(node)) else {
            self.retained.remove(name);
            return;
        };
        if !owns(self.provider, &cached) || self.retained.get(name) == Some(&cached.metadata.uid) {
            return;
        }
        match self.withdraw(name).await {
            Ok(true) => tracing::info!(node = name, "condition NetworkUnavailable removed: routes are off"),
            Ok(false) => drop(self.retained.insert(name.to_owned(), cached.metadata.uid.clone())),
            Err(message) => {
                match self.failures.is_none() {
                    true => tracing::warn!(node = name, "{message}"),
                    // The first failure was logged as a warning.
                    false => tracing::debug!(node = name, "{message}"),
                }
                self.failed.insert(name.to_owned());
            }
        }
    }

    /// Returns true if the condition was removed, and false if it stays or the Node does not exist.
    async fn withdraw(&self, name: &str) -> Result<bool, String> {
        let what = format!("remove the condition NetworkUnavailable of node {name}");
        let mut attempts = 0;
        loop {
            let patch = match self.live.node(name).await {
                Presence::Exists(live) => condition::removal(&live, FIELD_MANAGER),
                Presence::Absent(_) => None,
                Presence::Unknown(unknown) => return Err(format!("{what}: {unknown}")),
            };
            let Some(patch) = patch else { return Ok(false) };
            match patch_status(&what, &self.api, name, patch).await {
                Ok(_) => return Ok(true),
                Err(error) if permits_retry(&mut attempts, &error).await => {}
                Err(error) if error.is_not_found() => return Ok(false),
                Err(error) => return Err(chain(&error)),
            }
        }
    }
}
