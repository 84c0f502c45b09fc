//! The metrics of the service controller. Some have the names and buckets of `controllers/service/metrics.go`.

use prometheus::{Histogram, IntCounter, IntGauge, IntGaugeVec};

use crate::runtime::metrics::{counter, histogram, int_gauge, int_gauge_vec, metrics};

/// Buckets in seconds. They double, as upstream.
const BUCKETS: [f64; 15] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

metrics! {
    /// The metrics. Clones share the same values.
    pub(super) struct ServiceMetrics {
        /// Number of node updates sent to the cloud, counted per Service.
        pub(super) node_updates: IntCounter = counter("service_controller_loadbalancer_sync_total",
            "A metric counting the amount of times any load balancer has been configured, as an effect of service/node \
             changes on the cluster"),
        pub(super) node_update_errors: IntCounter = counter("service_controller_nodesync_error_total",
            "A metric counting the amount of times any load balancer has been configured and errored, as an effect of \
             node changes on the cluster"),
        pub(super) round_seconds: Histogram = histogram("service_controller_nodesync_latency_seconds",
            "A metric measuring the latency for nodesync which updates loadbalancer hosts on cluster node updates.",
            &BUCKETS),
        /// Duration of the cloud call of a round, in seconds.
        pub(super) node_update_seconds: Histogram = histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "A metric measuring the latency for updating each load balancer hosts.", &BUCKETS),
        /// Number of Services whose load balancer this leadership term has ensured.
        load_balancers: IntGauge = int_gauge("vsphere_ccm_load_balancers",
            "Services whose load balancer this process has ensured since it leads."),
        /// Number of blocked Services, by reason.
        pub(super) blocked: IntGaugeVec = int_gauge_vec("vsphere_ccm_load_balancers_held",
            "Services whose load balancer is not up to date, by reason.", &["reason"]),
        pub(super) panics: IntCounter = counter("vsphere_ccm_service_panics_total",
            "Panics while a Service was synced."),
    }
}

impl ServiceMetrics {
    pub(super) fn show_ensured(&self, count: usize) {
        self.load_balancers.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
