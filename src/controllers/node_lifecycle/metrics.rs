//! Metrics of the node-lifecycle controller.

use prometheus::core::Collector;
use prometheus::{IntCounter, IntGauge, IntGaugeVec, Opts};

use super::deletion_policy::Counts;

/// The metrics. All clones share the same series.
#[derive(Clone)]
pub(super) struct NodeLifecycleMetrics {
    /// Number of Nodes whose deletion or out-of-service taint each reason blocks.
    pub(super) blocked: IntGaugeVec,
    pub(super) deletions: IntCounter,
    pub(super) dry_run_deletions: IntCounter,
    pub(super) refusals: IntCounter,
    mass_hold: IntGauge,
    allowance: IntGauge,
    pub(super) out_of_service: IntCounter,
    pub(super) panics: IntCounter,
}

impl NodeLifecycleMetrics {
    pub(super) fn new() -> Self {
        let options = |name, help| Opts::new(name, help).namespace("vsphere_ccm");
        let counter = |name, help| IntCounter::with_opts(options(name, help)).expect("the name is a valid constant");
        let gauge = |name, help| IntGauge::with_opts(options(name, help)).expect("the name is a valid constant");
        let held = options(
            "node_deletions_held",
            "Nodes with Ready=Unknown that are not deleted, or not taken out of service, by reason.",
        );
        Self {
            blocked: IntGaugeVec::new(held, &["reason"]).expect("name and label are valid constants"),
            deletions: counter("node_deletions_total", "Nodes deleted because their machines are gone."),
            dry_run_deletions: counter(
                "node_deletions_dry_run_total",
                "Nodes that would have been deleted, with --node-deletion=dry-run.",
            ),
            refusals: counter("node_deletions_failed_total", "Deletions that the API server did not perform."),
            mass_hold: gauge(
                "node_deletion_mass_hold",
                "1 while no Node is deleted because the machines of many are gone at once.",
            ),
            allowance: gauge("node_deletion_allowance", "Nodes that --node-deletion-limit allows to delete now."),
            out_of_service: counter("node_out_of_service_taints_total", "Nodes given the out-of-service taint."),
            panics: counter("node_lifecycle_panics_total", "Panics while a node's machine was looked at."),
        }
    }

    pub(super) fn series(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.blocked.clone()),
            Box::new(self.deletions.clone()),
            Box::new(self.dry_run_deletions.clone()),
            Box::new(self.refusals.clone()),
            Box::new(self.mass_hold.clone()),
            Box::new(self.allowance.clone()),
            Box::new(self.out_of_service.clone()),
            Box::new(self.panics.clone()),
        ]
    }

    /// Sets the metrics of the deletion policy; `None` while this process does not lead.
    pub(super) fn guard(&self, counts: Option<Counts>) {
        self.mass_hold.set(i64::from(counts.is_some_and(|counts| counts.is_mass_held)));
        self.allowance.set(counts.map_or(0, |counts| i64::try_from(counts.allowance).unwrap_or(i64::MAX)));
    }
}
