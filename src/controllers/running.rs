//! Whether a controller works, under the Go program's name of the series.

use prometheus::{IntGauge, Opts};

use crate::runtime::metrics::Registry;

/// The program in the Go program's series, which is the framework's name.
const MANAGER: &str = "cloud-controller-manager";

/// One controller's series. Clones share it.
#[derive(Clone)]
pub(super) struct Running(IntGauge);

/// The controller works as long as this exists.
#[must_use]
pub(super) struct Works(IntGauge);

impl Running {
    /// Not running. `name` is what the Go program's series calls the controller.
    pub(super) fn new(name: &'static str) -> Self {
        let help = "1 while the controller works, which it does while this process leads.";
        let options = Opts::new("running_managed_controllers", help).const_label("name", name);
        let options = options.const_label("manager", MANAGER);
        Self(IntGauge::with_opts(options).expect("name and labels are valid constants"))
    }

    /// Adds the series to `registry`. Fails if it is there already.
    pub(super) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.0.clone()))
    }

    /// The controller works from now on.
    pub(super) fn begin(&self) -> Works {
        self.0.set(1);
        Works(self.0.clone())
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::metrics::Metrics;

    #[test]
    fn a_controller_is_shown_as_running_while_it_works() {
        let metrics = Metrics::new().unwrap();
        let (node, lifecycle) = (Running::new("cloud-node"), Running::new("cloud-node-lifecycle"));
        node.register(metrics.registry()).unwrap();
        lifecycle.register(metrics.registry()).unwrap();
        let shown = |name: &str, value: u8| {
            let line =
                format!("running_managed_controllers{{manager=\"cloud-controller-manager\",name=\"{name}\"}} {value}");
            let text = metrics.encode().unwrap();
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        };
        shown("cloud-node", 0);
        let works = node.begin();
        shown("cloud-node", 1);
        shown("cloud-node-lifecycle", 0);
        drop(works);
        shown("cloud-node", 0);
        assert!(Running::new("cloud-node").register(metrics.registry()).is_err());
    }
}
