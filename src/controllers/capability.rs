//! What a controller needs of the cloud provider and does not always have: routes, load balancers. A reload of the
//! provider's configuration may add or remove it.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::cloud::{CloudProvider, LoadBalancer, Routes};

/// A capability of the provider. The controller idles without it.
#[derive(Clone)]
pub struct Capability {
    provider: Arc<dyn CloudProvider>,
    present: fn(&dyn CloudProvider) -> Option<Present>,
    idle: &'static str,
}

/// What the provider has, held so that it can be told from what it has later.
enum Present {
    Routes(Arc<dyn Routes>),
    LoadBalancers(Arc<dyn LoadBalancer>),
    /// That something is off.
    Off,
}

impl Present {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Routes(one), Self::Routes(other)) => Arc::ptr_eq(one, other),
            (Self::LoadBalancers(one), Self::LoadBalancers(other)) => Arc::ptr_eq(one, other),
            (one, other) => matches!((one, other), (Self::Off, Self::Off)),
        }
    }
}

impl Capability {
    /// `routes()` of the provider.
    pub fn routes(provider: Arc<dyn CloudProvider>) -> Self {
        let present = |provider: &dyn CloudProvider| provider.routes().map(Present::Routes);
        Self { provider, present, idle: "idle: the cloud provider has no routes" }
    }

    /// Work for as long as the configuration of the provider says that there are no routes.
    pub(in crate::controllers) fn routes_off(provider: Arc<dyn CloudProvider>) -> Self {
        let present = |provider: &dyn CloudProvider| provider.routes_are_off().then_some(Present::Off);
        Self { provider, present, idle: "idle: routes are not off" }
    }

    /// `load_balancer()` of the provider.
    pub fn load_balancer(provider: Arc<dyn CloudProvider>) -> Self {
        let present = |provider: &dyn CloudProvider| provider.load_balancer().map(Present::LoadBalancers);
        Self { provider, present, idle: "idle: the cloud provider has no load balancers" }
    }

    /// Why the controller idles; nothing while the provider has the capability.
    pub fn idle(&self) -> Option<&'static str> {
        (self.present)(&*self.provider).is_none().then_some(self.idle)
    }

    /// Completes as soon as the controller idles, or does not.
    pub(in crate::controllers) async fn wait_until(&self, is_idle: bool) {
        let mut changes = self.provider.capability_changes();
        while self.idle().is_some() != is_idle {
            next(&mut changes).await;
        }
    }

    /// Completes as soon as the provider has lost the capability, or announces a change with which another
    /// object serves it: what was learned of the former one does not hold for the latter, such as another router.
    pub(in crate::controllers) async fn wait_until_another(&self) {
        let mut changes = self.provider.capability_changes();
        let Some(before) = (self.present)(&*self.provider) else { return };
        loop {
            next(&mut changes).await;
            if !(self.present)(&*self.provider).is_some_and(|present| present.is(&before)) {
                return;
            }
        }
    }
}

/// The next change. A provider whose announcements have ended changes nothing.
async fn next(changes: &mut BoxStream<'static, ()>) {
    if changes.next().await.is_none() {
        std::future::pending::<()>().await;
    }
}
