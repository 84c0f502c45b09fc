//! Flags of the leader election, the leader migration and standby processes.

use super::SettingsCheck;
use super::leader_migration::{self, LEASES, LeaderMigration};
use crate::base::go_duration;
use crate::base::names::is_dns_name;
use std::path::Path;
use std::time::Duration;

const DNS_NAME: &str =
    "parts of lower-case letters, digits and -, which begin and end with a letter or digit, joined by .";

/// Handling of the vCenter connections while a process does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standby {
    /// Keeps sessions and the inventory cache, so that the process can lead without delay.
    Warm,
    /// Has no session with any vCenter.
    Cold,
}

/// Namespace and name of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Settings of the leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Time that other candidates wait after the last observed renewal before they acquire the Lease.
    pub lease_duration: Duration,
    /// Time that a leader tries to renew the Lease; less than `lease_duration`.
    pub renew_deadline: Duration,
    /// Pause between attempts; less than `renew_deadline` divided by 1.2.
    pub retry_period: Duration,
    /// The controllers that work under a second Lease; `None` if there is no leader migration.
    pub migration: Option<LeaderMigration>,
}

impl SettingsCheck<'_> {
    pub(super) fn lease(&self) -> LeaseName {
        let text = |flag| self.options.text(flag).to_owned();
        LeaseName { namespace: text("leader-elect-resource-namespace"), name: text("leader-elect-resource-name") }
    }

    pub(super) fn election(&mut self) -> Option<Election> {
        let LeaseName { namespace, name } = self.lease();
        let is_on = self.boolean("leader-elect");
        let lease_duration = self.duration("leader-elect-lease-duration");
        let renew_deadline = self.duration("leader-elect-renew-deadline");
        let retry_period = self.duration("leader-elect-retry-period");
        let migration = self.migration(&namespace, &name);
        if !is_on {
            return None;
        }
        let lock = self.options.text("leader-elect-resource-lock");
        if lock != LEASES {
            self.wrong("leader-elect-resource-lock", lock, "resourceLock value must be \"leases\"");
        }
        for (flag, value) in [("leader-elect-resource-name", &name), ("leader-elect-resource-namespace", &namespace)] {
            if !is_dns_name(value) {
                self.wrong(flag, value, format!("expected {DNS_NAME}"));
            }
        }
        // The durations can be compared only if all three are valid.
        let (lease_duration, renew_deadline, retry_period) = (lease_duration?, renew_deadline?, retry_period?);
        self.check_order(lease_duration, renew_deadline, retry_period);
        Some(Election { lease_duration, renew_deadline, retry_period, migration })
    }

    /// Returns the leader migration. Checks the file even without an election, as the Go program does.
    fn migration(&mut self, namespace: &str, main: &str) -> Option<LeaderMigration> {
        if !self.boolean("enable-leader-migration") {
            return None;
        }
        let flag = "leader-migration-config";
        let Some(path) = self.optional(flag) else {
            let migration = LeaderMigration::default();
            self.second_lease("enable-leader-migration", "true", &migration, namespace, main);
            return Some(migration);
        };
        let parsed = match self.files.read(Path::new(path)) {
            Ok(bytes) => match std::str::from_utf8(&bytes) {
                Ok(text) => leader_migration::parse(text),
                Err(_) => Err(vec!["is not UTF-8 text".to_owned()]),
            },
            Err(error) => Err(vec![format!("cannot be read: {error}")]),
        };
        match &parsed {
            Ok(migration) => self.second_lease(flag, path, migration, namespace, main),
            Err(errors) => errors.iter().for_each(|mistake| self.wrong(flag, path, mistake)),
        }
        parsed.ok()
    }

    /// Reports errors of the second Lease that the Go program detects only when it creates the lock, or never.
    fn second_lease(&mut self, flag: &str, value: &str, migration: &LeaderMigration, namespace: &str, main: &str) {
        let lease = &migration.leader_name;
        if !is_dns_name(lease) {
            let reason = format!("leaderName {lease:?}: expected {DNS_NAME}");
            self.wrong(flag, value, reason);
        }
        if lease == main {
            let why = format!("leaderName {lease:?} is the Lease of the leader election itself, {namespace}/{main}");
            self.wrong(flag, value, why);
        }
        if migration.resource_lock != LEASES {
            let why = format!("resourceLock {:?} does not exist any more; expected leases", migration.resource_lock);
            self.wrong(flag, value, why);
        }
    }

    /// Checks the order that client-go requires: lease duration > renew deadline > 1.2 retry periods > 0.
    fn check_order(&mut self, lease_duration: Duration, renew_deadline: Duration, retry_period: Duration) {
        let spelled = go_duration::spelled;
        if retry_period.is_zero() {
            self.wrong("leader-elect-retry-period", "0s", "expected more than 0s");
        }
        if lease_duration < Duration::from_secs(1) {
            // A Lease stores its duration in whole seconds.
            self.wrong("leader-elect-lease-duration", &spelled(lease_duration), "expected at least 1s");
        }
        if lease_duration <= renew_deadline {
            let expected = format!("expected more than --leader-elect-renew-deadline ({})", spelled(renew_deadline));
            self.wrong("leader-elect-lease-duration", &spelled(lease_duration), expected);
        }
        if renew_deadline <= retry_period.mul_f64(1.2) {
            let expected =
                format!("expected more than 1.2 times --leader-elect-retry-period ({})", spelled(retry_period));
            self.wrong("leader-elect-renew-deadline", &spelled(renew_deadline), expected);
        }
    }

    pub(super) fn standby(&mut self) -> Standby {
        let choices = [("warm", Standby::Warm), ("cold", Standby::Cold)];
        self.choice("standby", &choices, "warm or cold").unwrap_or(Standby::Warm)
    }
}
