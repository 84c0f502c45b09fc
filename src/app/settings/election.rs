//! Flags of the leader election, the leader migration and standby processes.

use super::leader_migration::{self, LEASES, LeaderMigration};
use super::{SettingsCheck, flags};
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
        LeaseName {
            namespace: text(flags::LEADER_ELECT_RESOURCE_NAMESPACE),
            name: text(flags::LEADER_ELECT_RESOURCE_NAME),
        }
    }

    pub(super) fn election(&mut self) -> Option<Election> {
        let is_on = self.boolean(flags::LEADER_ELECT);
        let lease_duration = self.duration(flags::LEADER_ELECT_LEASE_DURATION);
        let renew_deadline = self.duration(flags::LEADER_ELECT_RENEW_DEADLINE);
        let retry_period = self.duration(flags::LEADER_ELECT_RETRY_PERIOD);
        let migration = self.migration(&self.lease());
        if !is_on {
            return None;
        }
        let lock = self.options.text(flags::LEADER_ELECT_RESOURCE_LOCK);
        if lock != LEASES {
            self.invalid(flags::LEADER_ELECT_RESOURCE_LOCK, lock, "resourceLock value must be \"leases\"");
        }
        for flag in [flags::LEADER_ELECT_RESOURCE_NAME, flags::LEADER_ELECT_RESOURCE_NAMESPACE] {
            let value = self.options.text(flag);
            if !is_dns_name(value) {
                self.invalid(flag, value, format!("expected {DNS_NAME}"));
            }
        }
        // The durations can be compared only if all three are valid.
        let lease_duration = lease_duration?;
        let renew_deadline = renew_deadline?;
        let retry_period = retry_period?;
        self.check_order(lease_duration, renew_deadline, retry_period);
        Some(Election { lease_duration, renew_deadline, retry_period, migration })
    }

    /// Returns the leader migration. Checks the file even without an election, as the Go program does.
    fn migration(&mut self, main: &LeaseName) -> Option<LeaderMigration> {
        if !self.boolean(flags::ENABLE_LEADER_MIGRATION) {
            return None;
        }
        let path = self.optional(flags::LEADER_MIGRATION_CONFIG);
        let parsed = match path.map(|path| self.files.read(Path::new(path))) {
            None => Ok(LeaderMigration::default()),
            Some(Ok(bytes)) => match std::str::from_utf8(&bytes) {
                Ok(text) => leader_migration::parse(text),
                Err(_) => Err(vec!["is not UTF-8 text".to_owned()]),
            },
            Some(Err(error)) => Err(vec![format!("cannot be read: {error}")]),
        };
        let errors = match &parsed {
            Ok(migration) => second_lease_errors(migration, main),
            Err(errors) => errors.clone(),
        };
        for reason in errors {
            match path {
                Some(path) => self.invalid(flags::LEADER_MIGRATION_CONFIG, path, reason),
                None => self.invalid(flags::ENABLE_LEADER_MIGRATION, "true", reason),
            }
        }
        parsed.ok()
    }

    /// Checks the order that client-go requires: lease duration > renew deadline > 1.2 retry periods > 0.
    fn check_order(&mut self, lease_duration: Duration, renew_deadline: Duration, retry_period: Duration) {
        let spelled = go_duration::spelled;
        if retry_period.is_zero() {
            self.invalid(flags::LEADER_ELECT_RETRY_PERIOD, "0s", "expected more than 0s");
        }
        if lease_duration < Duration::from_secs(1) {
            // A Lease stores its duration in whole seconds.
            self.invalid(flags::LEADER_ELECT_LEASE_DURATION, &spelled(lease_duration), "expected at least 1s");
        }
        if lease_duration <= renew_deadline {
            let expected = format!("expected more than --leader-elect-renew-deadline ({})", spelled(renew_deadline));
            self.invalid(flags::LEADER_ELECT_LEASE_DURATION, &spelled(lease_duration), expected);
        }
        if renew_deadline <= retry_period.mul_f64(1.2) {
            let expected =
                format!("expected more than 1.2 times --leader-elect-retry-period ({})", spelled(retry_period));
            self.invalid(flags::LEADER_ELECT_RENEW_DEADLINE, &spelled(renew_deadline), expected);
        }
    }

    pub(super) fn standby(&mut self) -> Standby {
        let choices = [("warm", Standby::Warm), ("cold", Standby::Cold)];
        self.choice(flags::STANDBY, &choices, "warm or cold").unwrap_or(Standby::Warm)
    }
}

/// Returns errors of the second Lease that the Go program detects only when it creates the lock, or never.
fn second_lease_errors(migration: &LeaderMigration, main: &LeaseName) -> Vec<String> {
    let (lease, lock) = (&migration.leader_name, &migration.resource_lock);
    let mut errors = Vec::new();
    if !is_dns_name(lease) {
        errors.push(format!("leaderName {lease:?}: expected {DNS_NAME}"));
    }
    if *lease == main.name {
        let LeaseName { namespace, name } = main;
        errors.push(format!("leaderName {lease:?} is the Lease of the leader election itself, {namespace}/{name}"));
    }
    if lock != LEASES {
        errors.push(format!("resourceLock {lock:?} is no longer supported; expected leases"));
    }
    errors
}
