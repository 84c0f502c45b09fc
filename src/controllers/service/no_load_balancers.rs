//! Reports that the provider has no load balancers: sets a gauge, and records an Event for each Service that waits for
//! a load balancer. Changes no Service, because it is unknown which load balancers must be deleted.

mod waiting;

use std::sync::Arc;
use std::time::Duration;

use prometheus::IntGauge;
use tokio::time::Instant;

use super::reason;
use crate::cloud::CloudProvider;
use crate::controllers::capability::Capability;
use crate::controllers::{Context, record_event};
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::stores::Services;
use crate::runtime::metrics::{Registry, int_gauge};
use waiting::WaitingServices;

/// Interval between two checks of all Services.
const CHECK_PERIOD: Duration = Duration::from_secs(15);

const MESSAGE: &str = "this program has no load balancers configured, or their configuration has an error that the log names, \
                       and does nothing for the Service; another program may be responsible for it";

/// The task that reports missing load balancers; see the module documentation.
pub struct NotConfigured {
    services: Services,
    provider: Arc<dyn CloudProvider>,
    capability: Capability,
    recorder: Recorder,
    leadership: Leadership,
    configured: IntGauge,
}

impl NotConfigured {
    /// Creates the task for the Services of the controller.
    pub fn new(context: &Context, services: Services) -> Self {
        let help = "1 while the cloud provider has load balancers.";
        Self {
            services,
            provider: Arc::clone(&context.provider),
            capability: Capability::load_balancer(Arc::clone(&context.provider)),
            recorder: context.recorder.for_component("service-controller"),
            leadership: context.leadership.clone(),
            configured: int_gauge("vsphere_ccm_load_balancer_configured", help),
        }
    }

    /// Registers the gauge with `registry`. Fails if `registry` already has a collector with the same name.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.configured.clone()))
    }

    /// Checks all Services at least every 15 s. Never returns.
    pub async fn run(self) {
        let mut waiting = WaitingServices::default();
        loop {
            let is_configured = self.provider.load_balancer().is_some();
            self.configured.set(i64::from(is_configured));
            if is_configured || !self.leadership.is_leader() || !self.services.is_ready() {
                // The waiting times restart, because the Services are not observed in this state.
                waiting.forget();
            } else {
                for service in waiting.update(self.services.list(), Instant::now().into_std()) {
                    record_event(
                        &self.recorder,
                        &*service,
                        EventType::Warning,
                        reason::LoadBalancerNotConfigured.as_str(),
                        MESSAGE,
                    );
                }
            }
            tokio::select! {
                () = tokio::time::sleep(CHECK_PERIOD) => {}
                () = self.capability.wait_until(is_configured) => {}
            }
        }
    }
}
