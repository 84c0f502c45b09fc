//! The flags that belong to no single part, and those that the Go program has for parts that are not here.

use super::Check;
use super::gates::{FeatureGates, LOCKED_LOG_FLAGS};
use crate::app::selection;
use ipnet::IpNet;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Workers of a controller at most: each has its place in memory, and no API server serves more.
const MOST_WORKERS: i32 = 4096;

/// What these flags say. What no part reads yet, or ever, is shown by `/configz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generic {
    /// `--feature-gates`.
    pub gates: FeatureGates,
    /// `--controller-start-interval`: at least this long, and less than twice, between the starts of two controllers.
    pub controller_start_interval: Duration,
    /// `--use-service-account-credentials`.
    pub use_service_account_credentials: bool,
    /// `--cluster-name`.
    pub cluster_name: String,
    /// `--cluster-cidr`: the networks of the pods, at most one of each family.
    pub cluster_cidrs: Vec<IpNet>,
    /// `--allocate-node-cidrs`.
    pub allocate_node_cidrs: bool,
    /// `--configure-cloud-routes`.
    pub configure_cloud_routes: bool,
    /// `--route-reconciliation-period`.
    pub route_reconciliation_period: Duration,
    /// `--concurrent-node-status-updates`, or what stands for it: see `status_updates`.
    pub concurrent_node_status_updates: NonZeroUsize,
    /// `--concurrent-service-syncs`.
    pub concurrent_service_syncs: NonZeroUsize,
    /// `--min-resync-period`.
    pub min_resync_period: Duration,
    /// `--node-sync-period`.
    pub node_sync_period: Duration,
    /// `--allow-untagged-cloud`.
    pub allow_untagged_cloud: bool,
    /// `--profiling`.
    pub profiling: bool,
    /// `--contention-profiling`.
    pub contention_profiling: bool,
}

impl Check<'_> {
    pub(super) fn generic(&mut self) -> Option<Generic> {
        let options = &self.options.generic;
        let debugging = &self.options.debugging;
        let gates = self.gates();
        let allocate_node_cidrs = self.boolean("--allocate-node-cidrs", &options.allocate_node_cidrs);
        let allow_untagged_cloud = self.boolean("--allow-untagged-cloud", &options.allow_untagged_cloud);
        let configure_cloud_routes = self.boolean("--configure-cloud-routes", &options.configure_cloud_routes);
        let flag = "--use-service-account-credentials";
        let use_service_account_credentials = self.boolean(flag, &options.use_service_account_credentials);
        let profiling = self.boolean("--profiling", &debugging.profiling);
        let contention_profiling = self.boolean("--contention-profiling", &debugging.contention_profiling);
        let start_interval = self.duration("--controller-start-interval", &options.controller_start_interval);
        let min_resync_period = self.duration("--min-resync-period", &options.min_resync_period);
        let node_sync_period = self.duration("--node-sync-period", &options.node_sync_period);
        let flag = "--route-reconciliation-period";
        let route_reconciliation_period = self.pause(flag, &options.route_reconciliation_period);
        let status_updates = self.status_updates();
        let service_syncs = self.workers("--concurrent-service-syncs", &self.options.services.concurrent_service_syncs);
        let cluster_cidrs = self.cluster_cidrs();
        self.webhooks();
        Some(Generic {
            gates: gates?,
            controller_start_interval: start_interval?,
            use_service_account_credentials: use_service_account_credentials?,
            cluster_name: options.cluster_name.clone(),
            cluster_cidrs: cluster_cidrs?,
            allocate_node_cidrs: allocate_node_cidrs?,
            configure_cloud_routes: configure_cloud_routes?,
            route_reconciliation_period: route_reconciliation_period?,
            concurrent_node_status_updates: status_updates?,
            concurrent_service_syncs: service_syncs?,
            min_resync_period: min_resync_period?,
            node_sync_period: node_sync_period?,
            allow_untagged_cloud: allow_untagged_cloud?,
            profiling: profiling?,
            contention_profiling: contention_profiling?,
        })
    }

    fn gates(&mut self) -> Option<FeatureGates> {
        let gates = match FeatureGates::parse(&self.options.generic.feature_gates) {
            Ok(gates) => gates,
            Err(wrong) => {
                for (item, why) in wrong {
                    self.wrong::<()>("--feature-gates", &item, why);
                }
                return None;
            }
        };
        if !gates.is_on(FeatureGates::LOGGING_ALPHA) {
            let given = self.options.values.iter();
            let locked = given.filter(|value| value.is_changed() && LOCKED_LOG_FLAGS.contains(&value.flag().as_str()));
            for value in locked {
                let why = "Feature LoggingAlphaOptions is disabled; it needs --feature-gates=LoggingAlphaOptions=true";
                self.wrong::<()>(&value.flag(), &value.value, why);
            }
        }
        Some(gates)
    }

    /// A number of workers; the text of the mistake is the Go program's, which has it and never says it.
    pub(super) fn workers(&mut self, flag: &str, value: &str) -> Option<NonZeroUsize> {
        match value.parse::<i32>() {
            Ok(number) if number > MOST_WORKERS => self.wrong(flag, value, format!("expected at most {MOST_WORKERS}")),
            Ok(number) => match NonZeroUsize::new(usize::try_from(number).unwrap_or_default()) {
                Some(workers) => Some(workers),
                None => self.wrong(flag, value, format!("{} must be a positive number", flag.trim_start_matches('-'))),
            },
            Err(_) => self.wrong(flag, value, "expected a whole number above 0, such as 16"),
        }
    }

    fn status_updates(&mut self) -> Option<NonZeroUsize> {
        const FLAG: &str = "--concurrent-node-status-updates";
        let value = &self.options.node_workers.concurrent_node_status_updates;
        // A mistake in the other flag is told where its value is used.
        let syncs = self.options.concurrent_node_syncs.parse().ok().and_then(NonZeroUsize::new);
        match value.parse::<i32>() {
            Ok(..=-1) => self.wrong(FLAG, value, "concurrent-node-status-updates cannot be a negative number"),
            Ok(updates) => Some(status_updates(syncs?, updates.unsigned_abs() as usize)),
            Err(_) => self.wrong(FLAG, value, "expected a whole number, or 0 for the value of --concurrent-node-syncs"),
        }
    }

    fn cluster_cidrs(&mut self) -> Option<Vec<IpNet>> {
        const FLAG: &str = "--cluster-cidr";
        let value = &self.options.generic.cluster_cidr;
        let cidrs: Result<Vec<IpNet>, _> = value.split(',').filter(|cidr| !cidr.is_empty()).map(str::parse).collect();
        match cidrs.as_deref() {
            Err(_) => self.wrong(FLAG, value, "expected a CIDR such as 10.0.0.0/8, or two, one of each family"),
            Ok([] | [_]) => cidrs.ok(),
            Ok([IpNet::V4(_), IpNet::V6(_)] | [IpNet::V6(_), IpNet::V4(_)]) => cidrs.ok(),
            Ok(_) => self.wrong(FLAG, value, "expected at most two CIDRs, one of each family"),
        }
    }

    /// There are no webhooks here, so every name is unknown.
    fn webhooks(&mut self) {
        let options = &self.options.webhook;
        for name in selection::unknown(&options.webhooks, &[]) {
            let why = format!("{name:?} is not in the list of known webhooks; expected *, there are none here");
            self.wrong::<()>("--webhooks", name, why);
        }
        let expected = "an IP address such as 0.0.0.0 or ::";
        self.number::<IpAddr>("--webhook-bind-address", &options.webhook_bind_address, expected);
        self.boolean("--webhook-disable-http2-serving", &options.webhook_disable_http2_serving);
        let flag = "--webhook-secure-port";
        let port = self.number::<u16>(flag, &options.webhook_secure_port, "a port from 1 to 65535, or 0 for none");
        if port.is_some_and(|port| port != 0) && port == self.options.serving.secure_port.parse().ok() {
            let why = "--webhook-secure-port cannot be the same value as --secure-port";
            self.wrong::<()>(flag, &options.webhook_secure_port, why);
        }
    }
}

/// The nodes whose addresses the Go program looks at at the same time: 0 is as many as are initialised at the same time.
fn status_updates(syncs: NonZeroUsize, updates: usize) -> NonZeroUsize {
    NonZeroUsize::new(updates).unwrap_or(syncs)
}

#[cfg(test)]
mod tests;
