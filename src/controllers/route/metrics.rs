//! The route controller's series. The counter has the Go program's name.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntGaugeVec, Opts};

/// The state of a route that is as its Node wants it.
const READY: &str = "Ready";
/// The state of a route that is planned.
const PENDING: &str = "Pending";
/// The state of a route that nothing shows to be this cluster's.
const HELD: &str = "held";

/// The series. Clones share them.
#[derive(Clone)]
pub(super) struct RouteMetrics {
    pub(super) syncs: IntCounter,
    /// How many routes are in each state: three words of ours, and the reasons why routes cannot be changed.
    pub(super) routes: IntGaugeVec,
    pub(super) panics: IntCounter,
}

impl RouteMetrics {
    /// All at zero, registered nowhere.
    pub(super) fn new() -> Self {
        let ours = |name, help| Opts::new(name, help).namespace("vsphere_ccm");
        let syncs = Opts::new(
            "route_sync_total",
            "A metric counting the amount of times routes have been synced with the cloud provider.",
        );
        let routes = ours(
            "routes",
            "Routes of the pod network by state: Ready, Pending, held (not known to be this cluster's), or the reason why a route could not be created or deleted, or would not be created now.",
        );
        let panics = ours("route_panics_total", "Panics while routes were reconciled.");
        let new = Self {
            syncs: IntCounter::with_opts(syncs.subsystem("route_controller")).expect("the name is a valid constant"),
            routes: IntGaugeVec::new(routes, &["state"]).expect("name and label are valid constants"),
            panics: IntCounter::with_opts(panics).expect("the name is a valid constant"),
        };
        new.show((0, 0));
        new.show_held(0);
        new
    }

    /// How many routes of the cloud are left alone because nothing shows that they are this cluster's.
    pub(super) fn show_held(&self, held: usize) {
        self.routes.with_label_values(&[HELD]).set(i64::try_from(held).unwrap_or(i64::MAX));
    }

    /// All of them.
    pub(super) fn series(&self) -> Vec<Box<dyn Collector>> {
        vec![Box::new(self.syncs.clone()), Box::new(self.routes.clone()), Box::new(self.panics.clone())]
    }

    /// How many routes need nothing, and how many wait for their first try.
    pub(super) fn show(&self, (ready, pending): (usize, usize)) {
        for (state, count) in [(READY, ready), (PENDING, pending)] {
            self.routes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
