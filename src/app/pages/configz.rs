//! Pure: `/configz`, the settings in the form of the Go program's `CloudControllerManagerConfiguration`.

use crate::app::settings::leader_migration::{ControllerLeader, LeaderMigration};
use crate::app::settings::{Settings, boolean};
use crate::base::go_duration::{parse_duration, spelled};
use serde::Serialize;

/// The one key of the page.
const KEY: &str = "cloudcontrollermanager.config.k8s.io";

/// No limit, as client-go writes it: the rate of requests is limited only when a flag asks for it.
const NO_LIMIT: f32 = -1.0;

/// The page. The Go types have hardly any JSON names, so most fields begin with a capital letter.
pub fn text(settings: &Settings) -> String {
    let (nodes, status_updates) = (settings.nodes.workers, settings.generic.concurrent_node_status_updates);
    let page = object(&[
        ("kind", json("CloudControllerManagerConfiguration")),
        ("apiVersion", json(format!("{KEY}/v1alpha1"))),
        ("Generic", generic(settings)),
        ("KubeCloudShared", shared(settings)),
        (
            "NodeController",
            object(&[("ConcurrentNodeSyncs", json(nodes)), ("ConcurrentNodeStatusUpdates", json(status_updates))]),
        ),
        ("ServiceController", object(&[("ConcurrentServiceSyncs", json(settings.generic.concurrent_service_syncs))])),
        ("NodeStatusUpdateFrequency", json(spelled(settings.nodes.period))),
        ("Webhook", object(&[("Webhooks", json(&settings.options.webhook.webhooks))])),
    ]);
    object(&[(KEY, page)])
}

/// An object of JSON values; `serde_json`'s own would sort the names.
fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{}:{value}", json(name))).collect();
    format!("{{{}}}", fields.join(","))
}

fn json(value: impl Serialize) -> String {
    // Only maps with keys that are no texts make this fail.
    serde_json::to_string(&value).unwrap_or_default()
}

fn generic(settings: &Settings) -> String {
    let options = &settings.options;
    let kubeconfig = settings.kubernetes.kubeconfig.as_ref().map(|path| path.display().to_string());
    let rate = settings.kubernetes.rate;
    let client_connection = object(&[
        ("kubeconfig", json(kubeconfig.unwrap_or_default())),
        ("acceptContentTypes", json("")),
        ("contentType", json(&options.generic.kube_api_content_type)),
        ("qps", json(rate.map_or(NO_LIMIT, |rate| rate.qps))),
        ("burst", json(rate.map_or(0, |rate| rate.burst))),
    ]);
    let leader_election = object(&[
        ("leaderElect", json(settings.election.is_some())),
        ("leaseDuration", json(as_go_prints(&options.leader_elect_lease_duration))),
        ("renewDeadline", json(as_go_prints(&options.leader_elect_renew_deadline))),
        ("retryPeriod", json(as_go_prints(&options.leader_elect_retry_period))),
        ("resourceLock", json(&options.leader_elect_resource_lock)),
        ("resourceName", json(&options.leader_elect_resource_name)),
        ("resourceNamespace", json(&options.leader_elect_resource_namespace)),
    ]);
    let debugging = object(&[
        ("enableProfiling", json(settings.generic.profiling)),
        ("enableContentionProfiling", json(settings.generic.contention_profiling)),
    ]);
    let is_migration_on = boolean(&options.leader_migration.enable_leader_migration) == Some(true);
    object(&[
        // The port without TLS, which the Go program does not have any more either.
        ("Port", json(0)),
        ("Address", json("0.0.0.0")),
        ("MinResyncPeriod", json(spelled(settings.generic.min_resync_period))),
        ("ClientConnection", client_connection),
        ("ControllerStartInterval", json(spelled(settings.generic.controller_start_interval))),
        ("LeaderElection", leader_election),
        ("Controllers", json(&options.controllers)),
        ("Debugging", debugging),
        ("LeaderMigrationEnabled", json(is_migration_on)),
        ("LeaderMigration", migration(settings.election.as_ref().and_then(|election| election.migration.as_ref()))),
    ])
}

fn migration(migration: Option<&LeaderMigration>) -> String {
    let leader =
        |leader: &ControllerLeader| object(&[("name", json(&leader.name)), ("component", json(&leader.component))]);
    let leaders = migration.map(|migration| migration.controller_leaders.iter().map(leader).collect::<Vec<_>>());
    object(&[
        ("leaderName", json(migration.map_or("", |migration| &migration.leader_name))),
        ("resourceLock", json(migration.map_or("", |migration| &migration.resource_lock))),
        ("controllerLeaders", leaders.map_or_else(|| json(()), |leaders| format!("[{}]", leaders.join(",")))),
    ])
}

fn shared(settings: &Settings) -> String {
    let (options, generic) = (&settings.options, &settings.generic);
    let cloud_provider = object(&[
        ("Name", json(settings.provider.name())),
        ("CloudConfigFile", json(settings.provider.cloud_config().display().to_string())),
    ]);
    object(&[
        ("CloudProvider", cloud_provider),
        ("ExternalCloudVolumePlugin", json(&options.generic.external_cloud_volume_plugin)),
        ("UseServiceAccountCredentials", json(generic.use_service_account_credentials)),
        ("AllowUntaggedCloud", json(generic.allow_untagged_cloud)),
        ("RouteReconciliationPeriod", json(spelled(generic.route_reconciliation_period))),
        ("NodeMonitorPeriod", json(spelled(settings.node_lifecycle.period))),
        ("ClusterName", json(&generic.cluster_name)),
        ("ClusterCIDR", json(&options.generic.cluster_cidr)),
        ("AllocateNodeCIDRs", json(generic.allocate_node_cidrs)),
        ("CIDRAllocatorType", json(&options.generic.cidr_allocator_type)),
        ("ConfigureCloudRoutes", json(generic.configure_cloud_routes)),
        ("NodeSyncPeriod", json(spelled(generic.node_sync_period))),
    ])
}

/// A duration that was checked, `60s`, in Go's own spelling, `1m0s`.
fn as_go_prints(typed: &str) -> String {
    parse_duration(typed).map_or_else(|_| typed.to_owned(), spelled)
}

#[cfg(test)]
mod tests;
