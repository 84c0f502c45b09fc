//! The registry of the unit tests, which lists the series that `docs/metrics.md` must document.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::proto::MetricType;

/// A registry that also lists the series that have no value. The text format omits such series.
#[derive(Clone, Default)]
pub struct Registry {
    registry: prometheus::Registry,
    series: Arc<Mutex<BTreeMap<String, Series>>>,
}

/// The description of a series, with or without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Full name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Sorted names of the labels.
    pub labels: Vec<String>,
    /// Help text.
    pub help: String,
}

impl Registry {
    /// Adds a collector.
    ///
    /// # Errors
    /// Another collector has a series with the same name and constant labels.
    pub fn register(&self, collector: Box<dyn Collector>) -> Result<(), prometheus::Error> {
        let described = described(&*collector);
        self.registry.register(collector)?;
        let mut series = self.series.lock();
        series.extend(described.into_iter().map(|one| (one.name.clone(), one)));
        Ok(())
    }

    /// Returns all registered series, sorted by name.
    pub fn series(&self) -> Vec<Series> {
        self.series.lock().values().cloned().collect()
    }
}

/// Read access to the registry of the crate `prometheus`.
impl Deref for Registry {
    type Target = prometheus::Registry;

    fn deref(&self) -> &prometheus::Registry {
        &self.registry
    }
}

fn described(collector: &dyn Collector) -> Vec<Series> {
    let families = collector.collect();
    let describe = |desc: &prometheus::core::Desc| {
        let constant = desc.const_label_pairs.iter().map(|pair| pair.name().to_owned());
        let mut labels: Vec<String> = desc.variable_labels.iter().cloned().chain(constant).collect();
        labels.sort();
        let family = families.iter().find(|family| family.name() == desc.fq_name);
        let kind = match family.map(|family| family.get_field_type()) {
            Some(MetricType::COUNTER) => "counter",
            Some(MetricType::GAUGE) => "gauge",
            Some(MetricType::HISTOGRAM) => "histogram",
            Some(MetricType::SUMMARY) => "summary",
            Some(MetricType::UNTYPED) | None => "untyped",
        };
        Series { name: desc.fq_name.clone(), kind, labels, help: desc.help.clone() }
    };
    collector.desc().into_iter().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::metrics::Metrics;
    use prometheus::{HistogramOpts, HistogramVec, IntGauge, Opts};

    #[test]
    fn a_series_is_known_before_anything_is_counted() {
        let metrics = Metrics::new().unwrap();
        let calls = HistogramVec::new(HistogramOpts::new("call_seconds", "Calls."), &["verb", "host"]).unwrap();
        metrics.registry().register(Box::new(calls)).unwrap();
        for name in ["a", "b"] {
            let depth = IntGauge::with_opts(Opts::new("depth", "Depth.").const_label("name", name)).unwrap();
            metrics.registry().register(Box::new(depth)).unwrap();
        }
        assert!(!metrics.encode().unwrap().contains("call_seconds"));
        let series = metrics.registry().series();
        let of = |name: &str| series.iter().find(|series| series.name == name).cloned().unwrap();
        let expected = Series {
            name: "call_seconds".into(),
            kind: "histogram",
            labels: vec!["host".into(), "verb".into()],
            help: "Calls.".into(),
        };
        assert_eq!(of("call_seconds"), expected);
        assert_eq!((of("depth").kind, of("depth").labels), ("gauge", vec!["name".to_owned()]));
        assert_eq!(of("process_start_time_seconds").kind, "gauge");
        assert_eq!(series.iter().filter(|series| series.name == "depth").count(), 1);
    }
}
