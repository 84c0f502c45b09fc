//! The series of the election, under the Go program's names.

use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use crate::runtime::metrics::Registry;

/// What an elector shows of itself.
pub(super) struct Metrics {
    lease: String,
    status: IntGaugeVec,
    slow_path: IntCounterVec,
}

impl Metrics {
    pub(super) fn new(lease: &str) -> Self {
        let status = Opts::new(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
             'name' is the string used to identify the lease. Please make sure to group by name.",
        );
        let slow_path = Opts::new(
            "leader_election_slowpath_total",
            "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the \
             lease. Please make sure to group by name.",
        );
        let valid = "the name and the label are valid";
        let status = IntGaugeVec::new(status, &["name"]).expect(valid);
        let slow_path = IntCounterVec::new(slow_path, &["name"]).expect(valid);
        Self { lease: String::new(), status, slow_path }.for_lease(lease)
    }

    /// The same series with the label of another Lease.
    pub(super) fn for_lease(&self, lease: &str) -> Self {
        let metrics = Self { lease: lease.to_owned(), status: self.status.clone(), slow_path: self.slow_path.clone() };
        metrics.show(false);
        metrics
    }

    pub(super) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.status.clone()))?;
        registry.register(Box::new(self.slow_path.clone()))
    }

    pub(super) fn show(&self, leads: bool) {
        self.status.with_label_values(&[&self.lease]).set(leads.into());
    }

    pub(super) fn count_slow_path(&self) {
        self.slow_path.with_label_values(&[&self.lease]).inc();
    }
}
