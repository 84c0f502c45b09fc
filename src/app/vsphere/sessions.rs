//! Metrics of vCenters from the provider: sessions, logins, and age and size of the inventory.

use crate::providers::vsphere::VcenterReport;
use crate::runtime::metrics::{Registry, counter_vec, gauge_vec, metrics};
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntCounterVec};

metrics! {
    struct SessionSeries {
        up: GaugeVec = gauge_vec("vsphere_ccm_vcenter_up",
            "1 while changes of the vCenter arrive as they happen.", &["vcenter"]),
        lag: GaugeVec = gauge_vec("vsphere_ccm_vcenter_inventory_lag_seconds",
            "Age of the inventory of the vCenter; 0 while connected, absent before the first connection.",
            &["vcenter"]),
        objects: GaugeVec = gauge_vec("vsphere_ccm_vcenter_inventory_objects",
            "Cached objects of the vCenter: virtual machines of nodes, and the objects above them.",
            &["vcenter", "kind"]),
        rejected_credentials: GaugeVec = gauge_vec("vsphere_ccm_vcenter_credentials_refused",
            "1 while the session in use is of older credentials because those offered now were refused.", &["vcenter"]),
        age: GaugeVec = gauge_vec("vsphere_ccm_vcenter_session_age_seconds",
            "How long the session in use has lasted; none before the first login.", &["vcenter"]),
        logins: IntCounterVec = counter_vec("vsphere_ccm_vcenter_logins_total",
            "Logins, by how they ended: accepted over soap or rest, rejected, unanswered.", &["vcenter", "outcome"]),
    }
}

/// The metrics, whose values are computed at each scrape.
pub struct Sessions {
    reports: Box<dyn Fn() -> Vec<VcenterReport> + Send + Sync>,
    series: SessionSeries,
    /// Locked during a scrape, since concurrent scrapes share the metrics above.
    update_lock: Mutex<()>,
}

impl Sessions {
    /// Registers the metrics of `reports`. Fails if `registry` already has a metric with one of the names.
    pub fn register(
        registry: &Registry,
        reports: impl Fn() -> Vec<VcenterReport> + Send + Sync + 'static,
    ) -> Result<(), prometheus::Error> {
        let sessions =
            Self { reports: Box::new(reports), series: SessionSeries::default(), update_lock: Mutex::default() };
        registry.register(Box::new(sessions))
    }

    fn take(&self, report: &VcenterReport) {
        let VcenterReport { server, lag, rejected_credentials, virtual_machines, ancestors, session, .. } = report;
        let series = &self.series;
        let of = |gauges: &GaugeVec| -> Gauge { gauges.with_label_values(&[server.as_str()]) };
        of(&series.up).set(if lag.is_some_and(|lag| lag.is_zero()) { 1.0 } else { 0.0 });
        of(&series.rejected_credentials).set(if rejected_credentials.is_some() { 1.0 } else { 0.0 });
        if let Some(lag) = lag {
            of(&series.lag).set(lag.as_secs_f64());
        }
        if let Some(since) = session.since {
            of(&series.age).set(since.elapsed().as_secs_f64());
        }
        for (kind, count) in [("VirtualMachine", *virtual_machines), ("ancestor", *ancestors)] {
            // Real counts are far below `u32::MAX`.
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            series.objects.with_label_values(&[server.as_str(), kind]).set(f64::from(count));
        }
        let logins = [
            ("accepted_soap", session.soap_logins),
            ("accepted_rest", session.rest_logins),
            ("rejected", session.rejections),
            ("unanswered", session.unanswered),
        ];
        for (outcome, count) in logins {
            series.logins.with_label_values(&[server.as_str(), outcome]).inc_by(count);
        }
    }
}

impl Collector for Sessions {
    fn desc(&self) -> Vec<&Desc> {
        self.series.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _turn = self.update_lock.lock();
        let SessionSeries { up, lag, objects, rejected_credentials, age, logins } = &self.series;
        [up, lag, objects, rejected_credentials, age].into_iter().for_each(GaugeVec::reset);
        logins.reset();
        for report in (self.reports)() {
            self.take(&report);
        }
        self.series.collect()
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the series that result from given reports.

    use super::{Registry, Sessions, VcenterReport};
    use crate::providers::vsphere::vcenter::session::SessionStatus;
    use crate::runtime::metrics::Metrics;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tokio::time::Instant;

    fn text(registry: &Metrics) -> Vec<String> {
        let text = registry.encode().unwrap();
        let ours = text.lines().filter(|line| line.starts_with("vsphere_ccm_vcenter"));
        ours.map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_vcenter_that_answers_one_that_stopped_and_one_that_never_did() {
        let metrics = Metrics::new().unwrap();
        let live = VcenterReport {
            server: "a:443".into(),
            lag: Some(Duration::ZERO),
            rejected_credentials: None,
            virtual_machines: 3,
            ancestors: 7,
            session: SessionStatus {
                since: Some(Instant::now()),
                soap_logins: 2,
                rest_logins: 1,
                rejections: 4,
                unanswered: 5,
            },
            ..VcenterReport::default()
        };
        tokio::time::advance(Duration::from_secs(60)).await;
        let stale = VcenterReport {
            server: "b:443".into(),
            lag: Some(Duration::from_secs(90)),
            rejected_credentials: Some("no".into()),
            ..VcenterReport::default()
        };
        let never = VcenterReport { server: "c:443".into(), ..VcenterReport::default() };
        Sessions::register(metrics.registry(), move || vec![live.clone(), stale.clone(), never.clone()]).unwrap();
        let lines = text(&metrics);
        for expected in [
            "vsphere_ccm_vcenter_up{vcenter=\"a:443\"} 1",
            "vsphere_ccm_vcenter_up{vcenter=\"b:443\"} 0",
            "vsphere_ccm_vcenter_up{vcenter=\"c:443\"} 0",
            "vsphere_ccm_vcenter_credentials_refused{vcenter=\"a:443\"} 0",
            "vsphere_ccm_vcenter_credentials_refused{vcenter=\"b:443\"} 1",
            "vsphere_ccm_vcenter_inventory_lag_seconds{vcenter=\"a:443\"} 0",
            "vsphere_ccm_vcenter_inventory_lag_seconds{vcenter=\"b:443\"} 90",
            "vsphere_ccm_vcenter_inventory_objects{kind=\"VirtualMachine\",vcenter=\"a:443\"} 3",
            "vsphere_ccm_vcenter_inventory_objects{kind=\"ancestor\",vcenter=\"a:443\"} 7",
            "vsphere_ccm_vcenter_session_age_seconds{vcenter=\"a:443\"} 60",
            "vsphere_ccm_vcenter_logins_total{outcome=\"accepted_soap\",vcenter=\"a:443\"} 2",
            "vsphere_ccm_vcenter_logins_total{outcome=\"accepted_rest\",vcenter=\"a:443\"} 1",
            "vsphere_ccm_vcenter_logins_total{outcome=\"rejected\",vcenter=\"a:443\"} 4",
            "vsphere_ccm_vcenter_logins_total{outcome=\"unanswered\",vcenter=\"a:443\"} 5",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} is not among {lines:#?}");
        }
        for absent in ["lag_seconds{vcenter=\"c:443\"}", "session_age_seconds{vcenter=\"c:443\"}"] {
            assert!(!lines.iter().any(|line| line.contains(absent)), "{absent} is among {lines:#?}");
        }
        // A second scrape counts nothing twice.
        assert_eq!(text(&metrics), lines);
    }

    #[test]
    fn scrapes_at_the_same_time_do_not_disturb_each_other() {
        let metrics = Metrics::new().unwrap();
        let reports: Vec<VcenterReport> = (0..20)
            .map(|number| {
                let session = SessionStatus { soap_logins: number, ..SessionStatus::default() };
                VcenterReport { server: format!("{number}:443"), session, ..VcenterReport::default() }
            })
            .collect();
        Sessions::register(metrics.registry(), move || reports.clone()).unwrap();
        let expected = text(&metrics);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..200).for_each(|round| assert_eq!(text(&metrics), expected, "scrape {round}")));
            }
        });
    }

    #[test]
    fn a_vcenter_that_is_not_configured_any_more_has_no_series() {
        let metrics = Metrics::new().unwrap();
        let configured =
            Arc::new(Mutex::new(vec![VcenterReport { server: "a:443".into(), ..VcenterReport::default() }]));
        let reports = Arc::clone(&configured);
        Sessions::register(metrics.registry(), move || reports.lock().unwrap().clone()).unwrap();
        assert!(!text(&metrics).is_empty());
        configured.lock().unwrap().clear();
        assert_eq!(text(&metrics), Vec::<String>::new());
    }

    #[test]
    fn two_of_one_name_are_refused() {
        let registry = Registry::default();
        Sessions::register(&registry, Vec::new).unwrap();
        assert!(Sessions::register(&registry, Vec::new).is_err());
    }
}
