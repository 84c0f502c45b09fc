//! The gauge that shows whether a controller runs, with the metric name of the Go program.

use prometheus::{IntGauge, Opts};

use crate::runtime::metrics::valid;

/// Value of the label `manager`, as in the Go program: the name of the framework.
const MANAGER: &str = "cloud-controller-manager";

/// A guard that keeps the gauge at 1 until the guard is dropped.
#[must_use]
pub(super) struct RunningGauge(IntGauge);

/// Creates the gauge of a controller, with the value 0 (not running). `name` is the controller's name in the Go
/// program.
pub(super) fn series(name: &'static str) -> IntGauge {
    let help = "1 while the controller works, which it does while this process leads.";
    let options = Opts::new("running_managed_controllers", help).const_label("name", name);
    let options = options.const_label("manager", MANAGER);
    valid(IntGauge::with_opts(options))
}

impl RunningGauge {
    pub(super) fn begin(series: &IntGauge) -> Self {
        series.set(1);
        Self(series.clone())
    }
}

impl Drop for RunningGauge {
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
        let (node, lifecycle) = (series("cloud-node"), series("cloud-node-lifecycle"));
        let register = |series: &IntGauge| metrics.registry().register(Box::new(series.clone()));
        register(&node).unwrap();
        register(&lifecycle).unwrap();
        let shown = |name: &str, value: u8| {
            let line =
                format!("running_managed_controllers{{manager=\"cloud-controller-manager\",name=\"{name}\"}} {value}");
            let text = metrics.encode().unwrap();
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        };
        shown("cloud-node", 0);
        let works = RunningGauge::begin(&node);
        shown("cloud-node", 1);
        shown("cloud-node-lifecycle", 0);
        drop(works);
        shown("cloud-node", 0);
        assert!(register(&series("cloud-node")).is_err());
    }
}
