//! Reports that the provider has no load balancers: in a gauge at each scrape, and in an Event for each Service that
//! waits for a load balancer. Changes no Service, because it is unknown which load balancers must be deleted.

mod waiting;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::reason;
use crate::cloud::CloudProvider;
use crate::controllers::capability::Capability;
use crate::controllers::driver::{Controller, Event, Reconciler, Requeue, Spec};
use crate::controllers::{Context, now, record_event};
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::stores::Services;
use crate::runtime::metrics::ComputedGauge;
use crate::runtime::tasks::PanicError;
use waiting::WaitingServices;

/// Name of the controller and of its task. No metric has this name.
const NAME: &str = "load-balancer-not-configured";

/// Interval between two checks of all Services.
const CHECK_PERIOD: Duration = Duration::from_secs(15);

/// The only key, which stands for all Services.
const ALL: &str = "services";

const MESSAGE: &str = "this program has no load balancers configured, or their configuration has an error that the log names, \
                       and does nothing for the Service; another program may be responsible for it";

/// The reconciler of one leadership term; see the module documentation.
pub struct WaitingServiceReporter {
    services: Services,
    recorder: Recorder,
    waiting: Arc<Mutex<WaitingServices>>,
}

/// Creates the controller. The controller is idle while the provider has load balancers.
pub fn controller(context: Context, services: Services) -> Controller<WaitingServiceReporter> {
    let spec = Spec {
        capability: Some(Capability::no_load_balancer(context.provider)),
        ..Spec::new(NAME, context.leadership, CHECK_PERIOD, vec![Arc::new(services.clone())])
    };
    let recorder = context.recorder.for_component("service-controller");
    let waiting = Arc::new(Mutex::new(WaitingServices::default()));
    Controller::new(spec, move || {
        // The waiting times restart, because the Services were not observed before this term.
        waiting.lock().forget();
        WaitingServiceReporter { services: services.clone(), recorder: recorder.clone(), waiting: Arc::clone(&waiting) }
    })
}

impl Reconciler for WaitingServiceReporter {
    type Outcome = ();

    fn keys_of(&self, event: Event) -> Vec<String> {
        match event {
            Event::AllObjects(_) | Event::Period => vec![ALL.to_owned()],
            // The time that a Service waits is measured in minutes.
            Event::Object(..) | Event::Instance(_) | Event::AllInstances => Vec::new(),
        }
    }

    async fn reconcile(self: Arc<Self>, _: String) {
        let due = self.waiting.lock().update(self.services.list(), now());
        for service in due {
            let reason = reason::LoadBalancerNotConfigured.as_str();
            record_event(&self.recorder, &*service, EventType::Warning, reason, MESSAGE);
        }
    }

    async fn conclude(self: &Arc<Self>, _: &str, outcome: Result<(), PanicError>) -> Requeue {
        if let Err(panic) = outcome {
            tracing::error!("checking the Services that wait for a load balancer failed: {panic}");
        }
        Requeue::PERIOD
    }
}

/// Creates the gauge that shows whether the provider has load balancers.
pub fn gauge(provider: Arc<dyn CloudProvider>) -> ComputedGauge {
    let help = "1 while the cloud provider has load balancers.";
    let value = move || usize::from(provider.load_balancer().is_some());
    ComputedGauge::new("vsphere_ccm_load_balancer_configured", help, value)
}
