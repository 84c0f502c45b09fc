//! Pure: `/configz`, the settings in the form of the Go program's `CloudControllerManagerConfiguration`.

use crate::app::options::{Flag, Options, flags};
use crate::app::settings::Settings;
use crate::app::settings::leader_migration::{ControllerLeader, LeaderMigration};
use crate::base::go_duration::{parse_duration, spelled};
use serde_json::{Value, json};
use std::time::Duration;

/// The only top-level key of the JSON object.
const KEY: &str = "cloudcontrollermanager.config.k8s.io";

/// client-go's value for no rate limit.
const NO_LIMIT: f64 = -1.0;

/// Returns the page. Few fields of the Go types have JSON names, so most names begin with a capital letter.
pub fn text(settings: &Settings) -> String {
    let options = &settings.options;
    let page = json!({
        "kind": "CloudControllerManagerConfiguration",
        "apiVersion": format!("{KEY}/v1alpha1"),
        "Generic": generic(settings),
        "KubeCloudShared": shared(settings),
        "NodeController": {
            "ConcurrentNodeSyncs": settings.nodes.workers,
            "ConcurrentNodeStatusUpdates": settings.generic.concurrent_node_status_updates,
        },
        "ServiceController": { "ConcurrentServiceSyncs": settings.services.workers },
        "NodeStatusUpdateFrequency": spelled(settings.nodes.period),
        "Webhook": { "Webhooks": options.list(flags::WEBHOOKS) },
    });
    json!({ KEY: page }).to_string()
}

fn generic(settings: &Settings) -> Value {
    let options = &settings.options;
    let rate = settings.kubernetes.rate;
    // A number of JSON has 64 bits here. The conversion by text prints a rate of 0.1 as 0.1.
    let qps = rate.and_then(|rate| rate.qps.to_string().parse().ok()).unwrap_or(NO_LIMIT);
    let migration = settings.election.as_ref().and_then(|election| election.migration.as_ref());
    json!({
        // The port without TLS, which neither this program nor the Go program has.
        "Port": 0,
        "Address": "0.0.0.0",
        "MinResyncPeriod": duration(options, flags::MIN_RESYNC_PERIOD),
        "ClientConnection": {
            "kubeconfig": options.text(flags::KUBECONFIG),
            "acceptContentTypes": "",
            "contentType": options.text(flags::KUBE_API_CONTENT_TYPE),
            "qps": qps,
            "burst": rate.map_or(0, |rate| rate.burst),
        },
        "ControllerStartInterval": spelled(settings.generic.controller_start_interval),
        "LeaderElection": {
            "leaderElect": settings.election.is_some(),
            "leaseDuration": duration(options, flags::LEADER_ELECT_LEASE_DURATION),
            "renewDeadline": duration(options, flags::LEADER_ELECT_RENEW_DEADLINE),
            "retryPeriod": duration(options, flags::LEADER_ELECT_RETRY_PERIOD),
            "resourceLock": options.text(flags::LEADER_ELECT_RESOURCE_LOCK),
            "resourceName": settings.lease.name,
            "resourceNamespace": settings.lease.namespace,
        },
        "Controllers": options.list(flags::CONTROLLERS),
        "Debugging": {
            "enableProfiling": options.boolean(flags::PROFILING),
            "enableContentionProfiling": options.boolean(flags::CONTENTION_PROFILING),
        },
        "LeaderMigrationEnabled": options.boolean(flags::ENABLE_LEADER_MIGRATION),
        "LeaderMigration": leader_migration(migration),
    })
}

fn leader_migration(migration: Option<&LeaderMigration>) -> Value {
    let leader = |leader: &ControllerLeader| json!({ "name": leader.name, "component": leader.component });
    let leaders = migration.map(|migration| migration.controller_leaders.iter().map(leader).collect::<Vec<_>>());
    json!({
        "leaderName": migration.map_or("", |migration| &migration.leader_name),
        "resourceLock": migration.map_or("", |migration| &migration.resource_lock),
        "controllerLeaders": leaders,
    })
}

fn shared(settings: &Settings) -> Value {
    let options = &settings.options;
    json!({
        "CloudProvider": { "Name": settings.provider.name(), "CloudConfigFile": options.text(flags::CLOUD_CONFIG) },
        "ExternalCloudVolumePlugin": options.text(flags::EXTERNAL_CLOUD_VOLUME_PLUGIN),
        "UseServiceAccountCredentials": settings.generic.use_service_account_credentials,
        "AllowUntaggedCloud": options.boolean(flags::ALLOW_UNTAGGED_CLOUD),
        "RouteReconciliationPeriod": duration(options, flags::ROUTE_RECONCILIATION_PERIOD),
        "NodeMonitorPeriod": spelled(settings.node_lifecycle.period),
        "ClusterName": options.text(flags::CLUSTER_NAME),
        "ClusterCIDR": options.text(flags::CLUSTER_CIDR),
        "AllocateNodeCIDRs": options.boolean(flags::ALLOCATE_NODE_CIDRS),
        "CIDRAllocatorType": options.text(flags::CIDR_ALLOCATOR_TYPE),
        "ConfigureCloudRoutes": settings.routes.is_some(),
        "NodeSyncPeriod": duration(options, flags::NODE_SYNC_PERIOD),
    })
}

/// Returns a duration as in Go: `60s` becomes `1m0s`.
fn duration(options: &Options, flag: Flag<Duration>) -> Option<String> {
    parse_duration(options.text(flag)).ok().map(spelled)
}

#[cfg(test)]
mod tests;
