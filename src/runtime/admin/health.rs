//! Named checks, and the answers of the probes in the text form of the Go program's `healthz`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use prometheus::{GaugeVec, IntCounterVec, Registry};

use crate::runtime::metrics::{Metrics, counter_vec, gauge_vec, metrics};

/// Limits for unknown excluded checks in an answer: the number of names, and the characters of each name.
const MAX_UNKNOWN: (usize, usize) = (16, 64);

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The check passes.
    Ok,
    /// The check passes, with a text for the answer. Used, for example, for an unreachable vCenter, which must not
    /// block a rollout.
    Note(Cow<'static, str>),
    /// The check fails for this reason. The log and the answer for this single check contain the reason. The answer for
    /// all checks omits it, because probes are open to all users.
    Failed(String),
}

/// The checks of the probes. Clones share the checks, which can be added at any time.
///
/// | added with | `/healthz` | `/livez` | `/readyz` | for |
/// |---|---|---|---|---|
/// | [`Checks::add_health`] | yes | no | no | the election and the controllers, as in the Go program |
/// | [`Checks::add_readiness`], [`Checks::add_readiness_group`] | no | no | yes | what the process needs to work |
///
/// A probe without own checks, such as `/livez`, has the check `ping`, which always passes.
#[derive(Clone, Default)]
pub struct Checks {
    /// Single checks.
    named: Arc<RwLock<Vec<(Probe, Group)>>>,
    /// Changing sets of checks, which come after the single checks.
    groups: Arc<RwLock<Vec<(Probe, Group)>>>,
    failing: Arc<Mutex<BTreeMap<(Probe, String), String>>>,
    pub(super) slis: Slis,
}

/// A function that returns the names and outcomes of checks. Each call can return other checks.
type Group = Arc<dyn Fn() -> Vec<(String, Health)> + Send + Sync>;

/// The kind of probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Probe {
    /// `/healthz`: the process, the election and the controllers.
    Health,
    /// `/livez`: the process alone.
    Live,
    /// `/readyz`: the process and its caches.
    Ready,
}

impl Checks {
    /// Adds a check to `/healthz` only, as the Go program does for the election and for each started controller. A
    /// manifest may use `/healthz` as the liveness probe, so the check must fail only if a restart helps. The check
    /// must not block.
    pub fn add_health(&self, name: impl Into<String>, check: impl Fn() -> Health + Send + Sync + 'static) {
        self.add(Probe::Health, name.into(), check);
    }

    /// Adds a check to `/readyz`, for a prerequisite of this process. The check must not block.
    pub fn add_readiness(&self, name: impl Into<String>, check: impl Fn() -> Health + Send + Sync + 'static) {
        self.add(Probe::Ready, name.into(), check);
    }

    /// Adds a changing set of checks to `/readyz`. Each probe calls the function for the current checks.
    pub fn add_readiness_group(&self, checks: impl Fn() -> Vec<(String, Health)> + Send + Sync + 'static) {
        self.groups.write().push((Probe::Ready, Arc::new(checks)));
    }

    fn add(&self, probe: Probe, name: String, check: impl Fn() -> Health + Send + Sync + 'static) {
        self.named.write().push((probe, Arc::new(move || vec![(name.clone(), check())])));
    }

    /// Returns the names and outcomes of all checks. The caller must not show them to users of the secure port.
    pub fn all(&self) -> Vec<(String, Health)> {
        [Probe::Health, Probe::Ready].into_iter().flat_map(|probe| self.run(probe)).collect()
    }

    /// Returns whether the probe passes, and the text of the answer.
    pub(super) fn answer(&self, probe: Probe, is_verbose: bool, excluded: &[String]) -> (bool, String) {
        let checks = self.run(probe);
        let mut text = String::new();
        let mut passes = true;
        for (name, health) in &checks {
            let line = if excluded.contains(name) {
                format!("[+]{name} excluded: ok\n")
            } else {
                self.record(probe, name, health);
                match health {
                    Health::Ok => format!("[+]{name} ok\n"),
                    Health::Note(note) => format!("[+]{name} {note}\n"),
                    Health::Failed(_) => {
                        passes = false;
                        format!("[-]{name} failed: reason withheld\n")
                    }
                }
            };
            text.push_str(&line);
        }
        let mut unknown: Vec<_> =
            excluded.iter().filter(|name| checks.iter().all(|(known, _)| known != *name)).collect();
        if !unknown.is_empty() {
            unknown.sort();
            unknown.dedup();
            // A client can send any names, so the answer must not become much larger than the request.
            let shown = |name: &String| format!("{:?}", name.chars().take(MAX_UNKNOWN.1).collect::<String>());
            let unknown: Vec<_> = unknown.into_iter().take(MAX_UNKNOWN.0).map(shown).collect();
            let line = format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(","));
            text.push_str(&line);
        }
        let what = probe.name();
        match (passes, is_verbose) {
            (true, false) => (true, "ok".to_owned()),
            (true, true) => (true, format!("{text}{what} check passed\n")),
            (false, _) => (false, format!("{text}{what} check failed\n")),
        }
    }

    /// Returns whether the check with this name passes, and its text. `None` if the probe has no such check.
    pub(super) fn single(&self, probe: Probe, name: &str) -> Option<(bool, String)> {
        let (_, health) = self.run(probe).into_iter().find(|(known, _)| known == name)?;
        self.record(probe, name, &health);
        Some(match health {
            Health::Ok => (true, "ok".to_owned()),
            Health::Note(note) => (true, note.into_owned()),
            Health::Failed(reason) => (false, format!("internal server error: {reason}\n")),
        })
    }

    /// Returns the names and outcomes of the probe's checks. Runs the checks without a lock, so that probes do not wait
    /// for each other.
    fn run(&self, probe: Probe) -> Vec<(String, Health)> {
        let groups = [self.named.read().clone(), self.groups.read().clone()].concat();
        let own = groups.iter().filter(|(of, _)| *of == probe);
        let mut checks: Vec<_> = own.flat_map(|(_, group)| group()).collect();
        if checks.is_empty() {
            checks.push(("ping".to_owned(), Health::Ok));
        }
        checks
    }

    /// Counts the outcome of a check. Logs only changed outcomes, because clients can send probes at any rate.
    fn record(&self, probe: Probe, name: &str, health: &Health) {
        let key = (probe, name.to_owned());
        let mut failing = self.failing.lock();
        let was = match health {
            Health::Failed(reason) => failing.insert(key, reason.clone()),
            _ => failing.remove(&key),
        };
        drop(failing);
        let probe = probe.name();
        match health {
            Health::Failed(reason) if was.as_ref() != Some(reason) => {
                tracing::warn!(probe, check = name, reason, "a health check failed");
            }
            Health::Ok | Health::Note(_) if was.is_some() => {
                tracing::info!(probe, check = name, "a health check passes again");
            }
            _ => {}
        }
        self.slis.observe(name, probe, !matches!(health, Health::Failed(_)));
    }
}

impl Probe {
    /// Returns the path of the probe without the slash. The label `type` of the series has the same value.
    pub(super) fn name(self) -> &'static str {
        match self {
            Probe::Health => "healthz",
            Probe::Live => "livez",
            Probe::Ready => "readyz",
        }
    }
}

metrics! {
    /// Outcomes of the checks, as the series of `/metrics/slis` (`metrics/prometheus/slis` of component-base).
    pub(super) struct Slis {
        last: GaugeVec = gauge_vec("kubernetes_healthcheck",
            "[BETA] This metric records the result of a single healthcheck.", &["name", "type"]),
        all: IntCounterVec = counter_vec("kubernetes_healthchecks_total",
            "[BETA] This metric records the results of all healthcheck.", &["name", "type", "status"]),
    }
}

impl Slis {
    fn observe(&self, check: &str, probe: &str, passes: bool) {
        self.last.with_label_values(&[check, probe]).set(if passes { 1.0 } else { 0.0 });
        self.all.with_label_values(&[check, probe, if passes { "success" } else { "error" }]).inc();
    }

    pub(super) fn reset(&self) {
        self.last.reset();
        self.all.reset();
    }

    pub(super) fn encode(&self) -> Result<String, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(self.clone()))?;
        Metrics::encode_of(&registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHZ: Probe = Probe::Health;

    fn checks(names: &[&str]) -> Checks {
        let checks = Checks::default();
        for name in names {
            let is_bad = name.starts_with("bad");
            checks.add_health(*name, move || if is_bad { Health::Failed("secret".into()) } else { Health::Ok });
        }
        checks
    }

    #[test]
    fn checks_of_a_group_come_and_go() {
        let checks = Checks::default();
        let names = Arc::new(RwLock::new(vec!["a".to_owned()]));
        let shown = names.clone();
        checks.add_readiness_group(move || {
            shown.read().iter().map(|name| (name.clone(), Health::Note("away".into()))).collect()
        });
        let ready = |checks: &Checks| checks.answer(Probe::Ready, true, &[]).1;
        assert_eq!(ready(&checks), "[+]a away\nreadyz check passed\n");
        *names.write() = vec!["b".to_owned()];
        assert_eq!(ready(&checks), "[+]b away\nreadyz check passed\n");
        assert_eq!(checks.answer(HEALTHZ, true, &[]).1, "[+]ping ok\nhealthz check passed\n");
    }

    // vectors: O-70–O-73
    #[test]
    fn vectors_of_the_health_handler() {
        let failed = "[+]good ok\n[-]bad failed: reason withheld\nhealthz check failed\n";
        let excluded = "[+]good ok\n[+]bad excluded: ok\nhealthz check passed\n";
        let unknown = "[+]good ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\n\
                       healthz check passed\n";
        let two_unknown = "[+]good excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"x\"\n\
                           healthz check passed\n";
        type Case = (&'static str, &'static [&'static str], bool, &'static [&'static str], (bool, &'static str));
        let cases: [Case; 8] = [
            ("O-70", &[], false, &[], (true, "ok")),
            ("O-70 verbose", &[], true, &[], (true, "[+]ping ok\nhealthz check passed\n")),
            ("O-71", &["good"], false, &[], (true, "ok")),
            ("O-72", &["good"], true, &[], (true, "[+]good ok\nhealthz check passed\n")),
            ("O-73", &["good", "bad"], false, &[], (false, failed)),
            ("excluded", &["good", "bad"], true, &["bad"], (true, excluded)),
            ("unknown", &["good"], true, &["x"], (true, unknown)),
            ("two unknown", &["good"], true, &["x", "good", "a"], (true, two_unknown)),
        ];
        for (id, names, is_verbose, excluded, (passes, text)) in cases {
            let excluded: Vec<_> = excluded.iter().map(|name| (*name).to_owned()).collect();
            let answer = checks(names).answer(HEALTHZ, is_verbose, &excluded);
            assert_eq!(answer, (passes, text.to_owned()), "{id}");
        }
    }

    #[test]
    fn of_what_cannot_be_excluded_not_all_is_shown() {
        let excluded: Vec<_> = (0..5_000).map(|number| format!("{number:04}{}", "\u{7f}".repeat(1_000))).collect();
        let (passes, text) = checks(&["good"]).answer(HEALTHZ, true, &excluded);
        assert!(passes && text.contains("no matches for \"0000\\u{7f}"), "{text}");
        assert!(text.contains("\"0015") && !text.contains("\"0016"), "{text}");
        assert_eq!(text.matches("\\u{7f}").count(), 16 * 60);
    }

    // vectors: O-74
    #[test]
    fn o_74_a_check_can_be_added_later() {
        let checks = checks(&["foo", "bar"]);
        assert!(checks.answer(HEALTHZ, false, &[]).0);
        checks.clone().add_health("bad", || Health::Failed(String::new()));
        assert!(!checks.answer(HEALTHZ, false, &[]).0);
    }

    // vectors: O-76
    #[test]
    fn o_76_probes_do_not_wait_for_each_other() {
        let meeting = Arc::new(std::sync::Barrier::new(5));
        let checks = Checks::default();
        let inside = meeting.clone();
        checks.add_health("meets", move || {
            inside.wait();
            Health::Ok
        });
        std::thread::scope(|scope| {
            let probes: Vec<_> = (0..5).map(|_| scope.spawn(|| checks.answer(HEALTHZ, false, &[]).0)).collect();
            assert!(probes.into_iter().all(|probe| probe.join().unwrap()));
        });
    }

    #[test]
    fn liveness_ignores_what_readiness_asks_and_notes_fail_nothing() {
        let checks = checks(&["good"]);
        checks.add_readiness("caches", || Health::Failed("empty".into()));
        checks.add_readiness("vcenter", || Health::Note("unavailable".into()));
        assert!(checks.answer(Probe::Live, false, &[]).0);
        let (passes, text) = checks.answer(Probe::Ready, false, &[]);
        assert!(!passes);
        assert!(text.contains("[-]caches failed") && text.contains("[+]vcenter unavailable\n"), "{text}");
        assert!(checks.answer(Probe::Ready, false, &["caches".to_owned()]).0);
    }

    #[test]
    fn health_has_what_neither_liveness_nor_readiness_asks() {
        let checks = checks(&["process"]);
        checks.add_health("leaderElection", || Health::Failed("failed election to renew leadership".into()));
        assert!(!checks.answer(Probe::Health, false, &[]).0);
        assert_eq!(checks.answer(Probe::Live, true, &[]).1, "[+]ping ok\nlivez check passed\n");
        assert_eq!(checks.answer(Probe::Ready, true, &[]).1, "[+]ping ok\nreadyz check passed\n");
    }

    // vectors: O-75
    #[test]
    fn o_75_a_single_check_is_answered_with_its_reason() {
        let checks = checks(&["good", "bad"]);
        checks.add_readiness("vcenter a.example", || Health::Note("unavailable".into()));
        let cases = [
            ("O-75", Probe::Health, "good", Some((true, "ok"))),
            ("failed", Probe::Health, "bad", Some((false, "internal server error: secret\n"))),
            ("note", Probe::Ready, "vcenter a.example", Some((true, "unavailable"))),
            ("of another probe", Probe::Health, "vcenter a.example", None),
            ("unknown", Probe::Live, "other", None),
            ("no ping beside checks", Probe::Health, "ping", None),
        ];
        for (case, probe, name, expected) in cases {
            let expected = expected.map(|(passes, text)| (passes, text.to_owned()));
            assert_eq!(checks.single(probe, name), expected, "{case}");
        }
        assert_eq!(Checks::default().single(Probe::Live, "ping"), Some((true, "ok".to_owned())));
    }

    #[test]
    fn what_probes_find_becomes_series() {
        let checks = checks(&["good", "bad"]);
        for _ in 0..2 {
            checks.answer(Probe::Health, false, &[]);
        }
        checks.answer(Probe::Live, false, &["bad".to_owned()]);
        let text = checks.slis.encode().unwrap();
        for line in [
            "kubernetes_healthcheck{name=\"good\",type=\"healthz\"} 1",
            "kubernetes_healthcheck{name=\"bad\",type=\"healthz\"} 0",
            "kubernetes_healthchecks_total{name=\"bad\",status=\"error\",type=\"healthz\"} 2",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
        assert!(!text.contains("name=\"bad\",type=\"livez\""), "excluded: {text}");
        checks.slis.reset();
        assert!(!checks.slis.encode().unwrap().contains("name="), "reset");
    }
}
