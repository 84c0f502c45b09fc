//! The route controller's metrics. The counter has the Go program's name.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntGaugeVec, Opts};

/// Label value: the route matches its Node.
const READY: &str = "Ready";
/// Label value: the planned changes of the route were not tried yet.
const PENDING: &str = "Pending";
/// Label value: the route is ambiguous, because nothing shows that it belongs to this cluster.
const HELD: &str = "held";

/// The metrics. Clones share the same values.
#[derive(Clone)]
pub(super) struct RouteMetrics {
    pub(super) syncs: IntCounter,
    /// Number of routes by state: `READY`, `PENDING`, `HELD`, or the reason why a route cannot be changed.
    pub(super) routes: IntGaugeVec,
    pub(super) panics: IntCounter,
}

impl RouteMetrics {
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
        new.show_blocked(0);
        new
    }

    /// Sets the number of ambiguous routes, which are never changed.
    pub(super) fn show_blocked(&self, blocked: usize) {
        self.routes.with_label_values(&[HELD]).set(i64::try_from(blocked).unwrap_or(i64::MAX));
    }

    pub(super) fn series(&self) -> Vec<Box<dyn Collector>> {
        vec![Box::new(self.syncs.clone()), Box::new(self.routes.clone()), Box::new(self.panics.clone())]
    }

    /// Sets the number of matching routes, and the number of destinations with untried changes.
    pub(super) fn show(&self, (ready, pending): (usize, usize)) {
        for (state, count) in [(READY, ready), (PENDING, pending)] {
            self.routes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
