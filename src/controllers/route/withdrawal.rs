//! While routes are off, removes the condition `NetworkUnavailable` from Nodes that wait for a route, because
//! Kubernetes schedules no pods on such Nodes. The Go program does not remove the condition.
//!
//! The condition must be `True` with the reason `NoRouteCreated`, and `managedFields` must show that this program or
//! the Go program wrote the condition. Nodes of other providers are not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use parking_lot::Mutex;

use super::{DRIVER_PERIOD, condition};
use crate::base::backoff::Backoff;
use crate::base::error_chain::chain;
use crate::cloud::{CloudProvider, LiveReads as _, Presence};
use crate::controllers::capability::Capability;
use crate::controllers::driver::{Controller, Event, Reconciler, Requeue, Spec};
use crate::controllers::{Context, FIELD_MANAGER};
use crate::kubernetes::cluster::LiveApi;
use crate::kubernetes::patch::{patch_status, permits_retry};
use crate::kubernetes::stores::Nodes;
use crate::runtime::tasks::PanicError;

/// Name of the controller and of its task. No metric has this name.
const NAME: &str = "withdraw-route-conditions";

/// Pauses between retries of a failed removal.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

/// The reason why routes are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// `--configure-cloud-routes=false` is set, so routes are always off.
    ByFlag,
    /// The provider's configuration disables routes. The configuration may change.
    ByConfiguration,
}

/// The reconciler of one leadership term. Its keys are names of Nodes.
pub struct ConditionWithdrawal {
    nodes: Nodes,
    provider: Arc<dyn CloudProvider>,
    api: Api<Node>,
    live: LiveApi,
    /// By name, the UIDs of the Nodes whose condition stays, for example because another program wrote it.
    retained: Mutex<BTreeMap<String, Option<String>>>,
    /// The Nodes whose last removal failed.
    failed: Mutex<BTreeSet<String>>,
}

/// Creates the controller. While the provider's configuration enables routes, a controller with
/// [`Off::ByConfiguration`] is idle.
pub fn controller(context: Context, nodes: Nodes, off: Off) -> Controller<ConditionWithdrawal> {
    let Context { write, provider, leadership, .. } = context;
    let spec = Spec {
        capability: (off == Off::ByConfiguration).then(|| Capability::routes_off(Arc::clone(&provider))),
        backoff: BACKOFF,
        ..Spec::new(NAME, leadership, DRIVER_PERIOD, vec![Arc::new(nodes.clone())])
    };
    Controller::new(spec, move || {
        if off == Off::ByConfiguration {
            tracing::info!("no routes are made: the configuration of the cloud provider has none");
        }
        ConditionWithdrawal {
            nodes: nodes.clone(),
            provider: Arc::clone(&provider),
            api: Api::all(write.clone()),
            live: LiveApi::new(write.clone()),
            retained: Mutex::default(),
            failed: Mutex::default(),
        }
    })
}

impl Reconciler for ConditionWithdrawal {
    type Outcome = Result<(), String>;

    fn keys_of(&self, event: Event) -> Vec<String> {
        if let Event::Object(_, name) = event {
            return vec![name];
        }
        self.retained.lock().retain(|name, _| self.nodes.contains(name));
        self.nodes.keys()
    }

    /// Removes the condition of one Node, if necessary. Reads the Node live if the cached Node has the condition.
    async fn reconcile(self: Arc<Self>, name: String) -> Result<(), String> {
        let Some(cached) = self.nodes.get(&name).filter(|node| condition::is_obsolete(node)) else {
            self.retained.lock().remove(&name);
            return Ok(());
        };
        let uid = &cached.metadata.uid;
        if !self.provider.owns(&cached) || self.retained.lock().get(&name) == Some(uid) {
            return Ok(());
        }
        match self.withdraw(&name).await? {
            true => tracing::info!(node = name, "condition NetworkUnavailable removed: routes are off"),
            false => drop(self.retained.lock().insert(name, uid.clone())),
        }
        Ok(())
    }

    async fn conclude(self: &Arc<Self>, name: &str, outcome: Result<Self::Outcome, PanicError>) -> Requeue {
        let mut failed = self.failed.lock();
        let message = match outcome {
            Ok(Ok(())) => {
                failed.remove(name);
                return Requeue::PERIOD;
            }
            Ok(Err(message)) => message,
            Err(panic) => format!("remove the condition NetworkUnavailable of Node {name}: {panic}"),
        };
        match failed.is_empty() {
            true => tracing::warn!(node = name, "{message}"),
            // The first failure was logged as a warning.
            false => tracing::debug!(node = name, "{message}"),
        }
        failed.insert(name.to_owned());
        Requeue::BACKOFF
    }
}

impl ConditionWithdrawal {
    /// Returns true if the condition was removed, and false if it stays or the Node does not exist.
    async fn withdraw(&self, name: &str) -> Result<bool, String> {
        let what = format!("remove the condition NetworkUnavailable of Node {name}");
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
