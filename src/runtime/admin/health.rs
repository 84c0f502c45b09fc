//! Named checks and the text of a probe's answer, as the Go program's `healthz` gives it.

use std::sync::{Arc, PoisonError, RwLock};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// All is well.
    Ok,
    /// Worth showing, and no reason to fail: a vCenter that is away must not block a rollout.
    Note(&'static str),
    /// The probe fails. The reason is logged and not shown, since probes are open to everybody.
    Failed(String),
}

/// The checks behind the probes. Cheap to clone; all clones are one. Checks can be added at any time.
#[derive(Clone, Default)]
pub struct Checks {
    named: Arc<RwLock<Vec<Named>>>,
    groups: Arc<RwLock<Vec<Group>>>,
}

/// Checks whose number changes, with what they found.
type Group = Arc<dyn Fn() -> Vec<(String, Health)> + Send + Sync>;

#[derive(Clone)]
struct Named {
    name: String,
    is_readiness: bool,
    check: Arc<dyn Fn() -> Health + Send + Sync>,
}

/// Which probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    /// `/healthz` and `/livez`: the process alone.
    Live(&'static str),
    /// `/readyz`: the process and its caches.
    Ready,
}

impl Checks {
    /// Adds a check of the process itself; when it fails, the kubelet restarts the container. It must not block.
    pub fn add_liveness(&self, name: impl Into<String>, check: impl Fn() -> Health + Send + Sync + 'static) {
        self.add(Named { name: name.into(), is_readiness: false, check: Arc::new(check) });
    }

    /// Adds a check of what the process needs before it is of use. It must not block.
    pub fn add_readiness(&self, name: impl Into<String>, check: impl Fn() -> Health + Send + Sync + 'static) {
        self.add(Named { name: name.into(), is_readiness: true, check: Arc::new(check) });
    }

    /// Adds checks like those of [`Checks::add_readiness`] that come and go: what is there at the moment is asked for
    /// at each probe.
    pub fn add_readiness_group(&self, checks: impl Fn() -> Vec<(String, Health)> + Send + Sync + 'static) {
        self.groups.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(checks));
    }

    fn add(&self, named: Named) {
        self.named.write().unwrap_or_else(PoisonError::into_inner).push(named);
    }

    /// Whether the probe passes, and its text. Checks run without a lock, so that probes do not wait for each other.
    pub(super) fn answer(&self, probe: Probe, is_verbose: bool, excluded: &[String]) -> (bool, String) {
        let mut named = self.named.read().unwrap_or_else(PoisonError::into_inner).clone();
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner).clone();
        let found = groups.iter().flat_map(|group| group());
        named.extend(found.map(|(name, health)| {
            let check = Arc::new(move || health.clone());
            Named { name, is_readiness: true, check }
        }));
        named.retain(|named| probe == Probe::Ready || !named.is_readiness);
        if named.is_empty() {
            named.push(Named { name: "ping".into(), is_readiness: false, check: Arc::new(|| Health::Ok) });
        }
        let mut text = String::new();
        let mut passes = true;
        for Named { name, check, .. } in &named {
            let line = if excluded.contains(name) {
                format!("[+]{name} excluded: ok\n")
            } else {
                match check() {
                    Health::Ok => format!("[+]{name} ok\n"),
                    Health::Note(note) => format!("[+]{name} {note}\n"),
                    Health::Failed(reason) => {
                        tracing::warn!(check = name, reason, "a health check failed");
                        passes = false;
                        format!("[-]{name} failed: reason withheld\n")
                    }
                }
            };
            text.push_str(&line);
        }
        for name in excluded.iter().filter(|name| named.iter().all(|named| named.name != **name)) {
            text.push_str(&format!("warn: some health checks cannot be excluded: no matches for {name:?}\n"));
        }
        let what = probe.name();
        match (passes, is_verbose) {
            (true, false) => (true, "ok".to_owned()),
            (true, true) => (true, format!("{text}{what} check passed\n")),
            (false, _) => (false, format!("{text}{what} check failed\n")),
        }
    }
}

impl Probe {
    fn name(self) -> &'static str {
        match self {
            Probe::Live(name) => name,
            Probe::Ready => "readyz",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHZ: Probe = Probe::Live("healthz");

    fn checks(names: &[&str]) -> Checks {
        let checks = Checks::default();
        for name in names {
            let is_bad = name.starts_with("bad");
            checks.add_liveness(*name, move || if is_bad { Health::Failed("secret".into()) } else { Health::Ok });
        }
        checks
    }

    #[test]
    fn checks_of_a_group_come_and_go() {
        let checks = Checks::default();
        let names = Arc::new(RwLock::new(vec!["a".to_owned()]));
        let shown = names.clone();
        checks.add_readiness_group(move || {
            shown.read().unwrap().iter().map(|name| (name.clone(), Health::Note("away"))).collect()
        });
        let ready = |checks: &Checks| checks.answer(Probe::Ready, true, &[]).1;
        assert_eq!(ready(&checks), "[+]a away\nreadyz check passed\n");
        *names.write().unwrap() = vec!["b".to_owned()];
        assert_eq!(ready(&checks), "[+]b away\nreadyz check passed\n");
        assert_eq!(checks.answer(HEALTHZ, true, &[]).1, "[+]ping ok\nhealthz check passed\n");
    }

    #[test]
    fn vectors_of_the_health_handler() {
        let failed = "[+]good ok\n[-]bad failed: reason withheld\nhealthz check failed\n";
        let excluded = "[+]good ok\n[+]bad excluded: ok\nhealthz check passed\n";
        let unknown = "[+]good ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\n\
                       healthz check passed\n";
        type Case = (&'static str, &'static [&'static str], bool, &'static [&'static str], (bool, &'static str));
        let cases: [Case; 7] = [
            ("O-70", &[], false, &[], (true, "ok")),
            ("O-70 verbose", &[], true, &[], (true, "[+]ping ok\nhealthz check passed\n")),
            ("O-71", &["good"], false, &[], (true, "ok")),
            ("O-72", &["good"], true, &[], (true, "[+]good ok\nhealthz check passed\n")),
            ("O-73", &["good", "bad"], false, &[], (false, failed)),
            ("excluded", &["good", "bad"], true, &["bad"], (true, excluded)),
            ("unknown", &["good"], true, &["x"], (true, unknown)),
        ];
        for (id, names, is_verbose, excluded, (passes, text)) in cases {
            let excluded: Vec<_> = excluded.iter().map(|name| (*name).to_owned()).collect();
            let answer = checks(names).answer(HEALTHZ, is_verbose, &excluded);
            assert_eq!(answer, (passes, text.to_owned()), "{id}");
        }
    }

    #[test]
    fn o_74_a_check_can_be_added_later() {
        let checks = checks(&["foo", "bar"]);
        assert!(checks.answer(HEALTHZ, false, &[]).0);
        checks.clone().add_liveness("bad", || Health::Failed(String::new()));
        assert!(!checks.answer(HEALTHZ, false, &[]).0);
    }

    #[test]
    fn o_76_probes_do_not_wait_for_each_other() {
        let meeting = Arc::new(std::sync::Barrier::new(5));
        let checks = Checks::default();
        let inside = meeting.clone();
        checks.add_liveness("meets", move || {
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
        checks.add_readiness("vcenter", || Health::Note("unavailable"));
        assert!(checks.answer(Probe::Live("livez"), false, &[]).0);
        let (passes, text) = checks.answer(Probe::Ready, false, &[]);
        assert!(!passes);
        assert!(text.contains("[-]caches failed") && text.contains("[+]vcenter unavailable\n"), "{text}");
        assert!(checks.answer(Probe::Ready, false, &["caches".to_owned()]).0);
    }
}
