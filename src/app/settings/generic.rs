//! Flags that belong to no single part, and flags of the Go program for parts that this program lacks.

use super::gates::FeatureGates;
use super::{Flag, SettingsCheck, flags};
use crate::app::selection;
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
            flags::ALLOCATE_NODE_CIDRS,
            flags::ALLOW_UNTAGGED_CLOUD,
            flags::PROFILING,
            flags::CONTENTION_PROFILING,
            flags::WEBHOOK_DISABLE_HTTP2_SERVING,
        ] {
            self.boolean(flag);
        }
        self.duration(flags::MIN_RESYNC_PERIOD);
        self.duration(flags::NODE_SYNC_PERIOD);
        self.webhooks();
        Generic {
            gates: self.gates(),
            controller_start_interval: self.duration(flags::CONTROLLER_START_INTERVAL).unwrap_or_default(),
            use_service_account_credentials: self.boolean(flags::USE_SERVICE_ACCOUNT_CREDENTIALS),
            concurrent_node_status_updates: self.status_updates(),
        }
    }

    fn gates(&mut self) -> FeatureGates {
        let gates = match FeatureGates::parse(self.options.list(flags::FEATURE_GATES)) {
            Ok(gates) => gates,
            Err(wrong) => {
                for (item, reason) in wrong {
                    self.invalid(flags::FEATURE_GATES, &item, reason);
                }
                return FeatureGates::default();
            }
        };
        if !gates.is_logging_alpha_on() {
            self.refuse_log_flag(flags::LOG_JSON_INFO_BUFFER_SIZE);
            self.refuse_log_flag(flags::LOG_JSON_SPLIT_STREAM);
            self.refuse_log_flag(flags::LOG_TEXT_INFO_BUFFER_SIZE);
            self.refuse_log_flag(flags::LOG_TEXT_SPLIT_STREAM);
        }
        gates
    }

    /// Reports a flag of the log whose gate is off, unless it has its default.
    fn refuse_log_flag<T: Copy>(&mut self, flag: Flag<T>) {
        let given = self.options.value(flag);
        if given.is_changed() {
            let why = "Feature LoggingAlphaOptions is disabled; it needs --feature-gates=LoggingAlphaOptions=true";
            self.invalid(flag, &given.value, why);
        }
    }

    /// Returns a number of workers. Reports an invalid number.
    pub(super) fn workers(&mut self, flag: Flag<i32>) -> NonZeroUsize {
        let value = self.options.text(flag);
        let number = self.number(flag, "a whole number above 0, such as 16");
        match number {
            Some(..=0) => self.invalid(flag, value, format!("{} must be a positive number", flag.name)),
            None | Some(1..=MAX_WORKERS) => {}
            Some(_) => self.invalid(flag, value, format!("expected at most {MAX_WORKERS}")),
        }
        let workers = number.and_then(|number| usize::try_from(number).ok());
        workers.and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
    }

    fn status_updates(&mut self) -> NonZeroUsize {
        let flag = flags::CONCURRENT_NODE_STATUS_UPDATES;
        let number = self.number(flag, "a whole number, or 0 for the value of --concurrent-node-syncs");
        if number.is_some_and(i32::is_negative) {
            let why = format!("{} cannot be a negative number", flag.name);
            self.invalid(flag, self.options.text(flag), why);
        }
        let updates = number.and_then(|number| NonZeroUsize::new(number.unsigned_abs() as usize));
        // `SettingsCheck::nodes` reports an invalid `--concurrent-node-syncs`.
        let syncs = self.options.text(flags::CONCURRENT_NODE_SYNCS).parse().ok();
        updates.or(syncs).unwrap_or(NonZeroUsize::MIN)
    }

    /// Checks the names, the address and the port of webhooks. This program has no webhooks, so every name except `*`
    /// is an error.
    fn webhooks(&mut self) {
        for name in selection::unknown(self.options.list(flags::WEBHOOKS), &[]) {
            let reason = format!("{name:?} is not in the list of known webhooks; expected *, there are none here");
            self.invalid(flags::WEBHOOKS, name, reason);
        }
        self.number(flags::WEBHOOK_BIND_ADDRESS, "an IP address such as 0.0.0.0 or ::");
        let flag = flags::WEBHOOK_SECURE_PORT;
        let port = self.number(flag, "a port from 1 to 65535, or 0 for none");
        if port.is_some_and(|port| port != 0) && port == self.options.text(flags::SECURE_PORT).parse().ok() {
            let why = "--webhook-secure-port cannot be the same value as --secure-port";
            self.invalid(flag, self.options.text(flag), why);
        }
    }
}

#[cfg(test)]
mod tests;
