//! Declarations of metrics: the macro `metrics!`, a function for each type of metric, and gauges that are computed.
//!
//! The functions panic if a name, a label or the buckets are not valid, because all of them are constants.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

/// Declares a struct of metrics that are registered together. Clones share the values.
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$doc:meta])* $field_vis:vis $field:ident: $kind:ty = $metric:expr,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone)]
        $vis struct $name {
            $($(#[$doc])* $field_vis $field: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $metric,)* }
            }
        }

        impl prometheus::core::Collector for $name {
            fn desc(&self) -> Vec<&prometheus::core::Desc> {
                [$(prometheus::core::Collector::desc(&self.$field),)*].concat()
            }

            fn collect(&self) -> Vec<prometheus::proto::MetricFamily> {
                [$(prometheus::core::Collector::collect(&self.$field),)*].concat()
            }
        }
    };
}
pub(crate) use metrics;

/// Creates a counter.
pub fn counter(name: &str, help: &str) -> IntCounter {
    valid(IntCounter::new(name, help))
}

/// Creates a counter with labels.
pub fn counter_vec(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    valid(IntCounterVec::new(Opts::new(name, help), labels))
}

/// Creates a gauge of fractions.
pub fn gauge(name: &str, help: &str) -> Gauge {
    valid(Gauge::new(name, help))
}

/// Creates a gauge of fractions with labels.
pub fn gauge_vec(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    valid(GaugeVec::new(Opts::new(name, help), labels))
}

/// Creates a gauge of integers.
pub fn int_gauge(name: &str, help: &str) -> IntGauge {
    valid(IntGauge::new(name, help))
}

/// Creates a gauge of integers with labels.
pub fn int_gauge_vec(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    valid(IntGaugeVec::new(Opts::new(name, help), labels))
}

/// Creates a histogram with these upper bounds of its buckets.
pub fn histogram(name: &str, help: &str, buckets: &[f64]) -> Histogram {
    valid(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
}

/// Creates a histogram with labels, and with these upper bounds of its buckets.
pub fn histogram_vec(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    valid(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
}

/// Returns a metric whose declaration is a constant.
pub fn valid<M: Collector>(metric: prometheus::Result<M>) -> M {
    metric.expect("name, labels and buckets are valid constants")
}

/// A gauge whose value is computed at each scrape, also in standby processes.
pub struct ComputedGauge {
    gauge: IntGauge,
    value: Box<dyn Fn() -> usize + Send + Sync>,
}

impl ComputedGauge {
    /// Creates the gauge. Each scrape calls `value`.
    pub fn new(name: &str, help: &str, value: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Self { gauge: int_gauge(name, help), value: Box::new(value) }
    }
}

impl Collector for ComputedGauge {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set(i64::try_from((self.value)()).unwrap_or(i64::MAX));
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::metrics::Metrics;

    metrics! {
        /// Metrics of a test.
        struct TestMetrics {
            adds: IntCounterVec = counter_vec("adds_total", "Adds.", &["name"]),
            depth: Gauge = gauge("depth", "Depth."),
            /// A field with documentation.
            work: Histogram = histogram("work_seconds", "Work.", &[1.0, 2.0]),
        }
    }

    #[test]
    fn declared_metrics_are_registered_together_and_only_once() {
        let declared = TestMetrics::default();
        let metrics = Metrics::new().unwrap();
        metrics.registry().register(Box::new(declared.clone())).unwrap();
        assert!(metrics.registry().register(Box::new(declared.depth.clone())).is_err());
        declared.adds.with_label_values(&["Nodes"]).inc_by(2);
        declared.depth.set(0.5);
        declared.work.observe(1.5);
        let text = metrics.encode().unwrap();
        for line in [
            "# HELP adds_total Adds.",
            "# TYPE adds_total counter",
            "adds_total{name=\"Nodes\"} 2",
            "depth 0.5",
            "work_seconds_bucket{le=\"1\"} 0",
            "work_seconds_bucket{le=\"2\"} 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        }
    }
}
