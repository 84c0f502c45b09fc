//! The registry of the metrics of this process, and the text format. The owner of a metric keeps the handle and
//! registers the metric here. A metric that exists in the Go program has the same name here. The registry of unit tests
//! also lists the series without a value, for `docs/metrics.md`.

mod declaration;
#[cfg(test)]
mod series;
mod text;

pub(crate) use declaration::metrics;
pub use declaration::{
    ComputedGauge, counter, counter_vec, gauge, gauge_vec, histogram, histogram_vec, int_gauge, int_gauge_vec, valid,
};

#[cfg(not(test))]
pub use prometheus::Registry;
use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGauge, Opts};
#[cfg(test)]
pub use series::{Registry, Series};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of this process. Clones share the registry.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Creates a registry with the metrics that each process has (`process_*`, `kubernetes_build_info`).
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::default();
        registry.register(Box::new(ProcessCollector::for_self()))?;
        registry.register(Box::new(build_info()?))?;
        Ok(Self { registry })
    }

    /// Returns the registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Formats all metrics as text.
    pub fn encode(&self) -> Result<String, prometheus::Error> {
        Self::encode_of(&self.registry)
    }

    pub(super) fn encode_of(registry: &prometheus::Registry) -> Result<String, prometheus::Error> {
        text::encode(&registry.gather())
    }
}

/// Creates the build info, which is always 1. Labels of the Go program that have no meaning here are empty.
fn build_info() -> Result<IntGauge, prometheus::Error> {
    let help = "Always 1; the labels say which version this is and what it was built for.";
    let options = Opts::new("kubernetes_build_info", help)
        .const_label("major", env!("CARGO_PKG_VERSION_MAJOR"))
        .const_label("minor", env!("CARGO_PKG_VERSION_MINOR"))
        .const_label("git_version", concat!("v", env!("CARGO_PKG_VERSION")))
        .const_label("git_commit", "")
        .const_label("git_tree_state", "")
        .const_label("build_date", "")
        .const_label("go_version", "")
        .const_label("compiler", "rustc")
        .const_label("platform", platform());
    let info = IntGauge::with_opts(options)?;
    info.set(1);
    Ok(info)
}

/// Returns operating system and architecture with the names that images and Go use.
pub fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{architecture}", std::env::consts::OS)
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
        let built = text.lines().find(|line| line.starts_with("kubernetes_build_info{")).unwrap();
        for label in [
            "major",
            "minor",
            "git_version",
            "git_commit",
            "git_tree_state",
            "build_date",
            "go_version",
            "compiler",
            "platform",
        ] {
            assert!(built.contains(&format!("{label}=\"")), "{label} in {built}");
        }
    }
}
