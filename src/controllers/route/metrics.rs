//! The route controller's metrics. The counter has the Go program's name.

use prometheus::{IntCounter, IntGaugeVec};

use crate::runtime::metrics::{counter, int_gauge_vec, metrics};

/// Label value: the route matches its Node.
const READY: &str = "Ready";
/// Label value: the planned changes of the route were not tried yet.
const PENDING: &str = "Pending";
/// Label value: the route is ambiguous, because nothing shows that it belongs to this cluster.
const HELD: &str = "held";

metrics! {
    /// The metrics. Clones share the same values.
    pub(super) struct RouteMetrics {
        pub(super) syncs: IntCounter = counter("route_controller_route_sync_total",
            "A metric counting the amount of times routes have been synced with the cloud provider."),
        /// Number of routes by state: `READY`, `PENDING`, `HELD`, or the reason why a route cannot be changed.
        pub(super) routes: IntGaugeVec = int_gauge_vec("vsphere_ccm_routes",
            "Routes of the pod network by state: Ready, Pending, held (not known to be this cluster's), or the reason \
             why a route could not be created or deleted, or would not be created now.",
            &["state"]),
        pub(super) panics: IntCounter = counter("vsphere_ccm_route_panics_total",
            "Panics while routes were reconciled."),
    }
}

impl RouteMetrics {
    /// Returns the metrics, with the values for no routes.
    pub(super) fn new() -> Self {
        let new = Self::default();
        new.show((0, 0));
        new.show_blocked(0);
        new
    }

    /// Sets the number of ambiguous routes, which are never changed.
    pub(super) fn show_blocked(&self, blocked: usize) {
        self.routes.with_label_values(&[HELD]).set(i64::try_from(blocked).unwrap_or(i64::MAX));
    }

    /// Sets the number of matching routes, and the number of destinations with untried changes.
    pub(super) fn show(&self, (ready, pending): (usize, usize)) {
        for (state, count) in [(READY, ready), (PENDING, pending)] {
            self.routes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
