//! The registry of this process's metrics, and its text form.
//!
//! Whoever moves a metric owns its handle and registers it here; names are those of the Go program where it has them.

use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, Registry, TextEncoder};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of this process. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// A registry that holds the process's own series (`process_*`) and nothing else yet.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(ProcessCollector::for_self()))?;
        Ok(Self { registry })
    }

    /// Where to register. Two metrics of one name are an error.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Everything, in the text format.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        let mut bytes = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut bytes)?;
        String::from_utf8(bytes).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_process_and_what_was_registered() {
        let metrics = Metrics::new().unwrap();
        let counter = prometheus::IntCounter::new("route_sync_total", "Syncs.").unwrap();
        metrics.registry().register(Box::new(counter.clone())).unwrap();
        assert!(metrics.registry().register(Box::new(counter.clone())).is_err());
        counter.inc_by(3);
        let text = metrics.clone().encode().unwrap();
        for line in
            ["# TYPE route_sync_total counter", "route_sync_total 3", "# TYPE process_cpu_seconds_total counter"]
        {
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        }
    }
}
