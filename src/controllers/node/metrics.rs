//! Metrics of the node controller. The two histograms have the names and buckets of the Go program.

use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts};

use crate::cloud::Reason;

/// Buckets in seconds, exponential from 1 s, as upstream.
const DELAY_BUCKETS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// Value of the label `result` for a successful sync.
const SETTLED: &str = "Settled";

/// The metrics. All clones share the same series.
#[derive(Clone)]
pub(super) struct NodeMetrics {
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
    syncs: IntCounterVec,
    /// Number of Nodes blocked by each reason.
    pub(super) blocked: IntGaugeVec,
    pub(super) differing: IntGaugeVec,
    pub(super) panics: IntCounter,
}

impl NodeMetrics {
    pub(super) fn new() -> Self {
        let histogram = |name, help| {
            let options = HistogramOpts::new(name, help).subsystem("node_controller").buckets(DELAY_BUCKETS.to_vec());
            Histogram::with_opts(options).expect("name and buckets are valid constants")
        };
        let options = |name, help| Opts::new(name, help).namespace("vsphere_ccm");
        let counts = |name, help, labels: &[&str]| {
            IntGaugeVec::new(options(name, help), labels).expect("name and labels are valid constants")
        };
        Self {
            taint_removal_delay: histogram(
                "cloud_provider_taint_removal_delay_seconds",
                "Number of seconds after node creation when NodeController removed the cloud-provider taint of a single node.",
            ),
            initial_sync_delay: histogram(
                "initial_node_sync_delay_seconds",
                "Number of seconds after node creation when NodeController finished the initial synchronization of a single node.",
            ),
            syncs: IntCounterVec::new(
                options("node_syncs_total", "Times a node was looked at, by what came of it: Settled or a reason."),
                &["result"],
            )
            .expect("name and label are valid constants"),
            blocked: counts(
                "nodes_held",
                "Nodes that are not up to date, by reason and by whether they are initialized.",
                &["reason", "initialized"],
            ),
            differing: counts(
                "node_labels_differing",
                "Nodes with a label that stays although the cloud says otherwise.",
                &["label"],
            ),
            panics: IntCounter::with_opts(options("node_sync_panics_total", "Panics while a node was looked at."))
                .expect("the name is a valid constant"),
        }
    }

    pub(super) fn series(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.taint_removal_delay.clone()),
            Box::new(self.initial_sync_delay.clone()),
            Box::new(self.syncs.clone()),
            Box::new(self.blocked.clone()),
            Box::new(self.differing.clone()),
            Box::new(self.panics.clone()),
        ]
    }

    /// Records an initialisation that ended this many seconds after the Node's creation.
    pub(super) fn initialised(&self, seconds: f64) {
        self.taint_removal_delay.observe(seconds);
        self.initial_sync_delay.observe(seconds);
    }

    /// Counts a sync. `reason` is the reason that blocks the Node, if any.
    pub(super) fn synced(&self, reason: Option<Reason>) {
        self.syncs.with_label_values(&[reason.map_or(SETTLED, Reason::as_str)]).inc();
    }

    pub(super) fn initialized(is_initialized: bool) -> &'static str {
        if is_initialized { "true" } else { "false" }
    }
}
