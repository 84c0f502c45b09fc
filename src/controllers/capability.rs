//! What a controller needs of the cloud provider and does not always have: routes, load balancers. A reload of the
//! provider's configuration may add or remove it.

use std::sync::Arc;

use futures::StreamExt as _;

use crate::cloud::CloudProvider;

/// A capability of the provider. The controller idles without it.
#[derive(Clone)]
pub struct Capability {
    provider: Arc<dyn CloudProvider>,
    is_present: fn(&dyn CloudProvider) -> bool,
    idle: &'static str,
}

impl Capability {
    /// `routes()` of the provider.
    pub fn routes(provider: Arc<dyn CloudProvider>) -> Self {
        let is_present = |provider: &dyn CloudProvider| provider.routes().is_some();
        Self { provider, is_present, idle: "idle: the cloud provider has no routes" }
    }

    /// Work for as long as the configuration of the provider says that there are no routes.
    pub(in crate::controllers) fn routes_off(provider: Arc<dyn CloudProvider>) -> Self {
        let is_present = |provider: &dyn CloudProvider| provider.routes_are_off();
        Self { provider, is_present, idle: "idle: routes are not off" }
    }

    /// `load_balancer()` of the provider.
    pub fn load_balancer(provider: Arc<dyn CloudProvider>) -> Self {
        let is_present = |provider: &dyn CloudProvider| provider.load_balancer().is_some();
        Self { provider, is_present, idle: "idle: the cloud provider has no load balancers" }
    }

    /// Why the controller idles; nothing while the provider has the capability.
    pub fn idle(&self) -> Option<&'static str> {
        (!(self.is_present)(&*self.provider)).then_some(self.idle)
    }

    /// Completes as soon as the controller idles, or does not.
    pub(in crate::controllers) async fn wait_until(&self, is_idle: bool) {
        let mut changes = self.provider.capability_changes();
        while self.idle().is_some() != is_idle {
            if changes.next().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }
}
