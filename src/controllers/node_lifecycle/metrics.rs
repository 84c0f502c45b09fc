//! Metrics of the node-lifecycle controller.

use prometheus::{IntCounter, IntGauge, IntGaugeVec};

use super::deletion_policy::Counts;
use crate::runtime::metrics::{counter, int_gauge, int_gauge_vec, metrics};

metrics! {
    /// The metrics. All clones share the same series.
    pub(super) struct NodeLifecycleMetrics {
        /// Number of Nodes whose deletion or out-of-service taint each reason blocks.
        pub(super) blocked: IntGaugeVec = int_gauge_vec("vsphere_ccm_node_deletions_held",
            "Nodes with Ready=Unknown that are not deleted, or not taken out of service, by reason.", &["reason"]),
        pub(super) deletions: IntCounter = counter("vsphere_ccm_node_deletions_total",
            "Nodes deleted because their VMs are gone."),
        pub(super) dry_run_deletions: IntCounter = counter("vsphere_ccm_node_deletions_dry_run_total",
            "Nodes that would have been deleted, with --node-deletion=dry-run."),
        pub(super) refusals: IntCounter = counter("vsphere_ccm_node_deletions_failed_total",
            "Deletions that the API server did not perform."),
        mass_hold: IntGauge = int_gauge("vsphere_ccm_node_deletion_mass_hold",
            "1 while no Node is deleted because many VMs are gone at the same time."),
        allowance: IntGauge = int_gauge("vsphere_ccm_node_deletion_allowance",
            "Nodes that --node-deletion-limit allows to delete now."),
        pub(super) out_of_service: IntCounter = counter("vsphere_ccm_node_out_of_service_taints_total",
            "Nodes given the out-of-service taint."),
        pub(super) panics: IntCounter = counter("vsphere_ccm_node_lifecycle_panics_total",
            "Panics during the check of a node's VM."),
    }
}

impl NodeLifecycleMetrics {
    /// Sets the metrics of the deletion policy; `None` while this process does not lead.
    pub(super) fn guard(&self, counts: Option<Counts>) {
        self.mass_hold.set(i64::from(counts.is_some_and(|counts| counts.is_mass_held)));
        self.allowance.set(counts.map_or(0, |counts| i64::try_from(counts.allowance).unwrap_or(i64::MAX)));
    }
}
