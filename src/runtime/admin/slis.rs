//! What the probes found, as the series of `/metrics/slis` (component-base's `metrics/prometheus/slis`).

use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};

use crate::runtime::metrics::Metrics;

/// The series. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Slis {
    registry: Registry,
    last: GaugeVec,
    all: IntCounterVec,
}

impl Default for Slis {
    fn default() -> Self {
        let last =
            Opts::new("kubernetes_healthcheck", "[BETA] This metric records the result of a single healthcheck.");
        let all =
            Opts::new("kubernetes_healthchecks_total", "[BETA] This metric records the results of all healthcheck.");
        let last = GaugeVec::new(last, &["name", "type"]).expect("the name and the labels are well-formed");
        let all =
            IntCounterVec::new(all, &["name", "type", "status"]).expect("the name and the labels are well-formed");
        let registry = Registry::new();
        registry.register(Box::new(last.clone())).expect("the registry is empty");
        registry.register(Box::new(all.clone())).expect("the registry has another series only");
        Self { registry, last, all }
    }
}

impl Slis {
    /// Notes what a check found when `probe` asked it.
    pub(super) fn observe(&self, check: &str, probe: &str, passes: bool) {
        self.last.with_label_values(&[check, probe]).set(if passes { 1.0 } else { 0.0 });
        self.all.with_label_values(&[check, probe, if passes { "success" } else { "error" }]).inc();
    }

    /// Forgets everything.
    pub(super) fn reset(&self) {
        self.last.reset();
        self.all.reset();
    }

    /// The series in the text format.
    pub(super) fn encode(&self) -> Result<String, prometheus::Error> {
        Metrics::encode_of(&self.registry)
    }
}
