//! Metrics of NSX: calls, logins, throttling, availability, and load balancers.

use crate::app::vsphere::metrics::{Calls, NSX};
use crate::clients::http::CallObserver;
use crate::providers::vsphere::nsx::services::NsxReport;
use crate::runtime::metrics::{Registry, counter_vec, gauge_vec, metrics};
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounterVec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LOGINS: [&str; 3] = ["session.create", "login.basic", "token.exchange"];

/// Outcomes of calls that NSX itself did not answer.
const UNANSWERED: [&str; 9] =
    ["Resolve", "Connect", "Proxy", "Tls", "Timeout", "Status", "TooLarge", "Broken", "Unavailable"];

type Report = dyn Fn() -> Option<NsxReport> + Send + Sync;

pub(super) struct NsxSeries {
    calls: Calls,
    counters: CallCounters,
    state: StateMetrics,
}

metrics! {
    struct CallCounters {
        logins: IntCounterVec = counter_vec("vsphere_ccm_nsx_logins_total",
            "Logins, by how they ended: accepted, rejected, failed.", &["nsx", "outcome"]),
        throttled: IntCounterVec = counter_vec("vsphere_ccm_nsx_throttled_total",
            "Calls that NSX refused because it has too much to do.", &["nsx"]),
    }
}

metrics! {
    struct StateGauges {
        up: GaugeVec = gauge_vec("vsphere_ccm_nsx_up",
            "1 if NSX answered the last call, 0 if not; none where none is made.", &["nsx"]),
        /// Objects of load balancers in NSX.
        objects: GaugeVec = gauge_vec("vsphere_ccm_load_balancer_objects",
            "Objects in NSX that name this cluster: known, of them held (nothing shows that they are this cluster's).",
            &["nsx", "state"]),
        /// Deleted Services that still have load balancers.
        orphans: GaugeVec = gauge_vec("vsphere_ccm_load_balancer_orphans",
            "Services that are gone and have load balancers in NSX.", &["nsx"]),
    }
}

/// Availability of NSX and counts of load balancers, exported only while this process uses NSX.
#[derive(Clone, Default)]
struct StateMetrics {
    gauges: StateGauges,
    /// Whether the last call was answered, by server.
    last_answer: Arc<Mutex<BTreeMap<String, bool>>>,
    report: Arc<Mutex<Option<Box<Report>>>>,
}

impl NsxSeries {
    /// Registers the metrics. Fails if `registry` already has a metric with one of the names.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let (counters, state) = (CallCounters::default(), StateMetrics::default());
        registry.register(Box::new(counters.clone()))?;
        registry.register(Box::new(state.clone()))?;
        Ok(Self { calls: Calls::register(registry, NSX)?, counters, state })
    }

    /// Sets the function that reports the state of the connection at each scrape.
    pub fn show(&self, report: impl Fn() -> Option<NsxReport> + Send + Sync + 'static) {
        *self.state.report.lock() = Some(Box::new(report));
    }
}

impl CallObserver for NsxSeries {
    fn observed(&self, endpoint: &str, operation: &'static str, outcome: &'static str, duration: Duration) {
        self.calls.observed(endpoint, operation, outcome, duration);
        if LOGINS.contains(&operation) {
            let outcome = match outcome {
                "ok" => "accepted",
                "Rejected" => "rejected",
                _ => "failed",
            };
            self.counters.logins.with_label_values(&[endpoint, outcome]).inc();
        }
        if outcome == "Busy" {
            self.counters.throttled.with_label_values(&[endpoint]).inc();
        }
        // Calls that were cancelled or never sent do not show whether NSX answers.
        if !["NotPermitted", "PermitEnded", "Configuration"].contains(&outcome) {
            self.state.last_answer.lock().insert(endpoint.to_owned(), !UNANSWERED.contains(&outcome));
        }
    }
}

impl Collector for StateMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let report = self.report.lock().as_ref().and_then(|report| report());
        let mut answered = self.last_answer.lock();
        let StateGauges { up, objects, orphans } = &self.gauges;
        [up, objects, orphans].into_iter().for_each(GaugeVec::reset);
        match report {
            Some(report) if report.is_in_use => {
                answered.retain(|server, _| *server == report.server);
                if let Some(is_up) = answered.get(&report.server) {
                    up.with_label_values(&[report.server.as_str()]).set(f64::from(u8::from(*is_up)));
                }
                if let Some(counts) = report.balancers {
                    let server = report.server.as_str();
                    objects.with_label_values(&[server, "known"]).set(counts.named as f64);
                    objects.with_label_values(&[server, "held"]).set(counts.ambiguous as f64);
                    orphans.with_label_values(&[server]).set(counts.orphans as f64);
                }
            }
            _ => answered.clear(),
        }
        self.gauges.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{NsxSeries, Registry};
    use crate::clients::http::CallObserver as _;
    use crate::providers::vsphere::nsx::load_balancer::Counts;
    use crate::providers::vsphere::nsx::services::NsxReport;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    fn value(registry: &Registry, name: &str) -> Vec<f64> {
        let families = registry.gather();
        let metrics = families.iter().filter(|family| family.name() == name).flat_map(|family| family.get_metric());
        metrics.map(|metric| metric.get_gauge().get_value() + metric.get_counter().get_value()).collect()
    }

    #[test]
    fn up_is_shown_where_calls_are_made_and_logins_and_refusals_are_counted() {
        let (registry, leads) = (Registry::default(), Arc::new(AtomicBool::new(true)));
        let series = NsxSeries::register(&registry).unwrap();
        let asked = Arc::clone(&leads);
        series.show(move || {
            let leads = asked.load(Ordering::SeqCst);
            let balancers = Some(Counts { named: 9, ambiguous: 2, orphans: 1, of_other_clusters: 0 });
            Some(NsxReport {
                server: "nsx:443".to_owned(),
                is_in_use: leads,
                login: Default::default(),
                balancers,
                balancer_list: Default::default(),
                too_many_tags: None,
                certificate: Default::default(),
                login_pause: None,
                login_reset: None,
            })
        });
        let up = || value(&registry, "vsphere_ccm_nsx_up");
        let call = |operation, outcome| series.observed("nsx:443", operation, outcome, Duration::ZERO);
        assert!(up().is_empty(), "no call yet");
        for (outcome, expected) in [
            ("ok", 1.0),
            ("Timeout", 0.0),
            ("NotFound", 1.0),
            ("Unavailable", 0.0),
            ("NotPermitted", 0.0),
            ("Busy", 1.0),
        ] {
            call("static-routes.get", outcome);
            assert_eq!(up(), [expected], "{outcome}");
        }
        assert_eq!(value(&registry, "vsphere_ccm_load_balancer_objects"), [2.0, 9.0]);
        assert_eq!(value(&registry, "vsphere_ccm_load_balancer_orphans"), [1.0]);
        leads.store(false, Ordering::SeqCst);
        assert!(up().is_empty() && value(&registry, "vsphere_ccm_load_balancer_objects").is_empty());
        for outcome in ["ok", "Rejected", "Timeout"] {
            call("session.create", outcome);
        }
        assert_eq!(value(&registry, "vsphere_ccm_nsx_logins_total"), [1.0, 1.0, 1.0]);
        assert_eq!(value(&registry, "vsphere_ccm_nsx_throttled_total"), [1.0]);
    }
}
