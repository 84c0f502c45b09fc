//! Optional capabilities of the cloud provider: routes and load balancers. A configuration reload may add or remove
//! them.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::cloud::{CloudProvider, LoadBalancer, Routes};

/// A capability of the provider. A controller that needs the capability idles while the provider lacks it.
#[derive(Clone)]
pub struct Capability {
    provider: Arc<dyn CloudProvider>,
    present: fn(&dyn CloudProvider) -> Option<Present>,
    /// The text about the missing capability for log and readiness. `None` for a pseudo-capability, which no user
    /// misses.
    idle: Option<&'static str>,
}

/// The object that provides the capability, kept to detect its replacement by another object.
enum Present {
    Routes(Arc<dyn Routes>),
    LoadBalancers(Arc<dyn LoadBalancer>),
    /// The object of a pseudo-capability: the provider lacks routes or load balancers.
    Nothing,
}

impl Present {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Routes(one), Self::Routes(other)) => Arc::ptr_eq(one, other),
            (Self::LoadBalancers(one), Self::LoadBalancers(other)) => Arc::ptr_eq(one, other),
            (one, other) => matches!((one, other), (Self::Nothing, Self::Nothing)),
        }
    }
}

impl Capability {
    /// Creates the capability for the provider's `routes()`.
    pub fn routes(provider: Arc<dyn CloudProvider>) -> Self {
        let present = |provider: &dyn CloudProvider| provider.routes().map(Present::Routes);
        Self { provider, present, idle: Some("idle: the cloud provider has no routes") }
    }

    /// Creates a pseudo-capability, which the provider has while its configuration disables routes.
    pub(in crate::controllers) fn routes_off(provider: Arc<dyn CloudProvider>) -> Self {
        let present = |provider: &dyn CloudProvider| provider.routes_are_off().then_some(Present::Nothing);
        Self { provider, present, idle: None }
    }

    /// Creates the capability for the provider's `load_balancer()`.
    pub fn load_balancer(provider: Arc<dyn CloudProvider>) -> Self {
        let present = |provider: &dyn CloudProvider| provider.load_balancer().map(Present::LoadBalancers);
        Self { provider, present, idle: Some("idle: the cloud provider has no load balancers") }
    }

    /// Creates a pseudo-capability, which the provider has while it lacks load balancers.
    pub(in crate::controllers) fn no_load_balancer(provider: Arc<dyn CloudProvider>) -> Self {
        let present = |provider: &dyn CloudProvider| provider.load_balancer().is_none().then_some(Present::Nothing);
        Self { provider, present, idle: None }
    }

    pub(in crate::controllers) fn is_present(&self) -> bool {
        (self.present)(&*self.provider).is_some()
    }

    /// Returns the text about the missing capability, or `None` while the provider has the capability. Always `None`
    /// for a pseudo-capability.
    pub fn idle(&self) -> Option<&'static str> {
        self.idle.filter(|_| !self.is_present())
    }

    pub(in crate::controllers) async fn wait_until_present(&self) {
        let mut changes = self.provider.capability_changes();
        while !self.is_present() {
            next(&mut changes).await;
        }
    }

    /// Completes once the provider lacks the capability, or another object, such as a new router, provides it. State
    /// from the previous object is not valid for the new object.
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

/// Waits for the next change. Never returns if the provider's stream of changes has ended.
async fn next(changes: &mut BoxStream<'static, ()>) {
    if changes.next().await.is_none() {
        std::future::pending::<()>().await;
    }
}
