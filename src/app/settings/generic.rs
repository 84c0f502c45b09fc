//! Flags that belong to no single part, and flags of the Go program for parts that this program lacks.

use super::SettingsCheck;
use super::gates::{FeatureGates, LOCKED_LOG_FLAGS};
use crate::app::selection;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Maximum number of workers of a controller. Each worker uses memory, and no API server serves more workers.
const MAX_WORKERS: i32 = 4096;

/// The settings of the flags that belong to no single part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generic {
    /// `--feature-gates`.
    pub gates: FeatureGates,
    /// `--controller-start-interval`: minimum pause between two starts of controllers. The maximum is twice as long.
    pub controller_start_interval: Duration,
    /// `--use-service-account-credentials`.
    pub use_service_account_credentials: bool,
    /// `--concurrent-node-status-updates`; if it is 0, `--concurrent-node-syncs`. Shown in `/configz` only.
    pub concurrent_node_status_updates: NonZeroUsize,
}

impl SettingsCheck<'_> {
    pub(super) fn generic(&mut self) -> Generic {
        for flag in [
            "allocate-node-cidrs",
            "allow-untagged-cloud",
            "profiling",
            "contention-profiling",
            "webhook-disable-http2-serving",
        ] {
            self.boolean(flag);
        }
        self.duration("min-resync-period");
        self.duration("node-sync-period");
        self.webhooks();
        Generic {
            gates: self.gates(),
            controller_start_interval: self.duration("controller-start-interval").unwrap_or_default(),
            use_service_account_credentials: self.boolean("use-service-account-credentials"),
            concurrent_node_status_updates: self.status_updates(),
        }
    }

    fn gates(&mut self) -> FeatureGates {
        let gates = match FeatureGates::parse(self.options.list("feature-gates")) {
            Ok(gates) => gates,
            Err(wrong) => {
                for (item, reason) in wrong {
                    self.wrong("feature-gates", &item, reason);
                }
                return FeatureGates::default();
            }
        };
        if !gates.is_logging_alpha_on() {
            let given = self.options.values.iter();
            let locked = given.filter(|value| value.is_changed() && LOCKED_LOG_FLAGS.contains(&value.flag.name));
            for value in locked {
                let why = "Feature LoggingAlphaOptions is disabled; it needs --feature-gates=LoggingAlphaOptions=true";
                self.wrong(value.flag.name, &value.value, why);
            }
        }
        gates
    }

    /// Returns a number of workers. Reports an invalid number.
    pub(super) fn workers(&mut self, flag: &str) -> NonZeroUsize {
        let value = self.options.text(flag);
        let number = value.parse::<i32>();
        match number {
            Ok(..=0) => self.wrong(flag, value, format!("{flag} must be a positive number")),
            Ok(1..=MAX_WORKERS) => {}
            Ok(_) => self.wrong(flag, value, format!("expected at most {MAX_WORKERS}")),
            Err(_) => self.wrong(flag, value, "expected a whole number above 0, such as 16"),
        }
        let workers = number.ok().and_then(|number| usize::try_from(number).ok());
        workers.and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
    }

    fn status_updates(&mut self) -> NonZeroUsize {
        const FLAG: &str = "concurrent-node-status-updates";
        let value = self.options.text(FLAG);
        let updates = value.parse::<i32>();
        match updates {
            Ok(..=-1) => self.wrong(FLAG, value, format!("{FLAG} cannot be a negative number")),
            Ok(_) => {}
            Err(_) => self.wrong(FLAG, value, "expected a whole number, or 0 for the value of --concurrent-node-syncs"),
        }
        let updates = updates.ok().and_then(|updates| NonZeroUsize::new(updates.unsigned_abs() as usize));
        // `SettingsCheck::nodes` reports an invalid `--concurrent-node-syncs`.
        let syncs = || self.options.text("concurrent-node-syncs").parse().ok();
        updates.or_else(syncs).unwrap_or(NonZeroUsize::MIN)
    }

    /// Checks the names, the address and the port of webhooks. This program has no webhooks, so every name except `*`
    /// is an error.
    fn webhooks(&mut self) {
        for name in selection::unknown(self.options.list("webhooks"), &[]) {
            let reason = format!("{name:?} is not in the list of known webhooks; expected *, there are none here");
            self.wrong("webhooks", name, reason);
        }
        self.number::<IpAddr>("webhook-bind-address", "an IP address such as 0.0.0.0 or ::");
        let flag = "webhook-secure-port";
        let port = self.number::<u16>(flag, "a port from 1 to 65535, or 0 for none");
        if port.is_some_and(|port| port != 0) && port == self.options.text("secure-port").parse().ok() {
            let why = "--webhook-secure-port cannot be the same value as --secure-port";
            self.wrong(flag, self.options.text(flag), why);
        }
    }
}

#[cfg(test)]
mod tests;
