//! The metrics of the service controller. Some have the names and buckets of `controllers/service/metrics.go`.

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, IntGaugeVec, Opts};

/// The metrics. Clones share the same values.
#[derive(Clone)]
pub(super) struct ServiceMetrics {
    /// Number of node updates sent to the cloud, counted per Service.
    pub(super) node_updates: IntCounter,
    pub(super) node_update_errors: IntCounter,
    pub(super) round_seconds: Histogram,
    /// Duration of the cloud call of a round, in seconds.
    pub(super) node_update_seconds: Histogram,
    /// Number of Services whose load balancer this leadership term has ensured.
    load_balancers: IntGauge,
    /// Number of blocked Services, by reason.
    pub(super) blocked: IntGaugeVec,
    pub(super) panics: IntCounter,
}

impl ServiceMetrics {
    pub(super) fn new() -> Self {
        let histogram = |name, help| {
            // The buckets double from 1 s, as upstream.
            let buckets = (0..15).map(|power| f64::from(1_u32 << power)).collect();
            let options = HistogramOpts::new(name, help).subsystem("service_controller").buckets(buckets);
            Histogram::with_opts(options).expect("name and buckets are valid constants")
        };
        let counter = |name, help| {
            let options = Opts::new(name, help).subsystem("service_controller");
            IntCounter::with_opts(options).expect("the name is a valid constant")
        };
        let options = |name, help| Opts::new(name, help).namespace("vsphere_ccm");
        Self {
            node_updates: counter(
                "loadbalancer_sync_total",
                "A metric counting the amount of times any load balancer has been configured, as an effect of service/node \
                 changes on the cluster",
            ),
            node_update_errors: counter(
                "nodesync_error_total",
                "A metric counting the amount of times any load balancer has been configured and errored, as an effect of \
                 node changes on the cluster",
            ),
            round_seconds: histogram(
                "nodesync_latency_seconds",
                "A metric measuring the latency for nodesync which updates loadbalancer hosts on cluster node updates.",
            ),
            node_update_seconds: histogram(
                "update_loadbalancer_host_latency_seconds",
                "A metric measuring the latency for updating each load balancer hosts.",
            ),
            load_balancers: IntGauge::with_opts(options(
                "load_balancers",
                "Services whose load balancer this process has ensured since it leads.",
            ))
            .expect("the name is a valid constant"),
            blocked: IntGaugeVec::new(
                options("load_balancers_held", "Services whose load balancer is not up to date, by reason."),
                &["reason"],
            )
            .expect("name and label are valid constants"),
            panics: IntCounter::with_opts(options("service_panics_total", "Panics while a Service was synced."))
                .expect("the name is a valid constant"),
        }
    }

    pub(super) fn show_ensured(&self, count: usize) {
        self.load_balancers.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn series(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.node_updates.clone()),
            Box::new(self.node_update_errors.clone()),
            Box::new(self.round_seconds.clone()),
            Box::new(self.node_update_seconds.clone()),
            Box::new(self.load_balancers.clone()),
            Box::new(self.blocked.clone()),
            Box::new(self.panics.clone()),
        ]
    }
}
