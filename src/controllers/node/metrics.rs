//! Metrics of the node controller. The two histograms have the names and buckets of the Go program.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGaugeVec};

use crate::cloud::Reason;
use crate::cloud::node::{is_uninitialized, name};
use crate::controllers::reason_tracker::ReasonTracker;
use crate::kubernetes::stores::Nodes;
use crate::runtime::metrics::{ComputedGauge, counter, counter_vec, histogram, int_gauge_vec, metrics};

/// Buckets in seconds, exponential from 1 s, as upstream.
const DELAY_BUCKETS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// Value of the label `result` for a successful sync.
const SETTLED: &str = "Settled";

/// Value of the label `reason` for a Node that no reason blocks so far.
const PENDING: &str = "Pending";

metrics! {
    /// The metrics. All clones share the same series.
    pub(super) struct NodeMetrics {
        taint_removal_delay: Histogram = histogram("node_controller_cloud_provider_taint_removal_delay_seconds",
            "Number of seconds after node creation when NodeController removed the cloud-provider taint of \
             a single node.",
            &DELAY_BUCKETS),
        initial_sync_delay: Histogram = histogram("node_controller_initial_node_sync_delay_seconds",
            "Number of seconds after node creation when NodeController finished the initial synchronization \
             of a single node.",
            &DELAY_BUCKETS),
        syncs: IntCounterVec = counter_vec("vsphere_ccm_node_syncs_total",
            "Syncs of nodes, by result: Settled or a reason.", &["result"]),
        /// Number of Nodes blocked by each reason.
        pub(super) blocked: IntGaugeVec = int_gauge_vec("vsphere_ccm_nodes_held",
            "Nodes that are not up to date, by reason and by whether they are initialized.",
            &["reason", "initialized"]),
        pub(super) differing: IntGaugeVec = int_gauge_vec("vsphere_ccm_node_labels_differing",
            "Nodes with a label that stays although the cloud says otherwise.", &["label"]),
        pub(super) panics: IntCounter = counter("vsphere_ccm_node_sync_panics_total",
            "Panics during the sync of a node."),
    }
}

/// Returns the number of Nodes, and the number of Nodes with the uninitialized taint.
pub(super) fn node_counts(nodes: &Nodes) -> [ComputedGauge; 2] {
    let (all, uninitialized) = (nodes.clone(), nodes.clone());
    [
        ComputedGauge::new("vsphere_ccm_nodes", "Nodes that this process manages.", move || all.list().len()),
        ComputedGauge::new(
            "vsphere_ccm_nodes_uninitialized",
            "Nodes with the taint node.cloudprovider.kubernetes.io/uninitialized.",
            move || uninitialized.list().filter(|node| is_uninitialized(node)).count(),
        ),
    ]
}

/// The creation time of the oldest uninitialized Node for each reason, computed at each scrape from the cached Nodes. A
/// constant time shows the age of the Node also if a scrape is late or missing.
pub(super) struct OldestUninitialized {
    nodes: Nodes,
    reasons: Arc<ReasonTracker>,
    gauge: IntGaugeVec,
    /// Locked during a scrape, because concurrent scrapes share the gauge.
    update_lock: Mutex<()>,
}

impl OldestUninitialized {
    pub(super) fn new(nodes: Nodes, reasons: Arc<ReasonTracker>) -> Self {
        let gauge = int_gauge_vec(
            "vsphere_ccm_nodes_uninitialized_oldest_timestamp_seconds",
            "When the oldest Node with the taint node.cloudprovider.kubernetes.io/uninitialized was created, in seconds \
             since 1970, by the reason that blocks the Node; none where no Node has the taint.",
            &["reason"],
        );
        Self { nodes, reasons, gauge, update_lock: Mutex::default() }
    }

    /// Returns reason and creation time of each uninitialized Node.
    fn created(&self) -> impl Iterator<Item = (&'static str, i64)> {
        self.nodes.list().filter(|node| is_uninitialized(node)).filter_map(|node| {
            let created = node.metadata.creation_timestamp.as_ref()?.0.as_second();
            let blocked = self.reasons.get(name(&node));
            Some((blocked.map_or(PENDING, |blocked| blocked.reason.as_str()), created))
        })
    }
}

impl Collector for OldestUninitialized {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _turn = self.update_lock.lock();
        self.gauge.reset();
        for (reason, created) in oldest(self.created()) {
            self.gauge.with_label_values(&[reason]).set(created);
        }
        self.gauge.collect()
    }
}

/// Returns the earliest time of each reason.
fn oldest(nodes: impl Iterator<Item = (&'static str, i64)>) -> BTreeMap<&'static str, i64> {
    nodes.fold(BTreeMap::new(), |mut oldest, (reason, created)| {
        oldest.entry(reason).and_modify(|earliest| *earliest = created.min(*earliest)).or_insert(created);
        oldest
    })
}

impl NodeMetrics {
    /// Records an initialization that ended this many seconds after the Node's creation.
    pub(super) fn initialized(&self, seconds: f64) {
        self.taint_removal_delay.observe(seconds);
        self.initial_sync_delay.observe(seconds);
    }

    /// Counts a sync. `reason` is the reason that blocks the Node, if any.
    pub(super) fn synced(&self, reason: Option<Reason>) {
        self.syncs.with_label_values(&[reason.map_or(SETTLED, Reason::as_str)]).inc();
    }
}
