//! Pure: `/configz`, the settings in the form of the Go program's `CloudControllerManagerConfiguration`.

use crate::app::options::Options;
use crate::app::settings::Settings;
use crate::app::settings::leader_migration::{ControllerLeader, LeaderMigration};
use crate::base::go_duration::{parse_duration, spelled};
use crate::base::go_flags::parse_bool;
use serde::Serialize;

/// The only top-level key of the JSON object.
const KEY: &str = "cloudcontrollermanager.config.k8s.io";

/// client-go's value for no rate limit.
const NO_LIMIT: f32 = -1.0;

/// Returns the page. Few fields of the Go types have JSON names, so most names begin with a capital letter.
pub fn text(settings: &Settings) -> String {
    let options = &settings.options;
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
        ("ServiceController", object(&[("ConcurrentServiceSyncs", json(settings.services.workers))])),
        ("NodeStatusUpdateFrequency", duration(options, "node-status-update-frequency")),
        ("Webhook", object(&[("Webhooks", json(options.list("webhooks")))])),
    ]);
    object(&[(KEY, page)])
}

/// Returns a JSON object with the fields in the given order. `serde_json` would sort the names.
fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{}:{value}", json(name))).collect();
    format!("{{{}}}", fields.join(","))
}

fn json(value: impl Serialize) -> String {
    // Fails only for maps whose keys are not strings.
    serde_json::to_string(&value).unwrap_or_default()
}

fn generic(settings: &Settings) -> String {
    let options = &settings.options;
    let kubeconfig = settings.kubernetes.kubeconfig.as_ref().map(|path| path.display().to_string());
    let rate = settings.kubernetes.rate;
    let client_connection = object(&[
        ("kubeconfig", json(kubeconfig.unwrap_or_default())),
        ("acceptContentTypes", json("")),
        ("contentType", json(options.text("kube-api-content-type"))),
        ("qps", json(rate.map_or(NO_LIMIT, |rate| rate.qps))),
        ("burst", json(rate.map_or(0, |rate| rate.burst))),
    ]);
    let leader_election = object(&[
        ("leaderElect", json(settings.election.is_some())),
        ("leaseDuration", duration(options, "leader-elect-lease-duration")),
        ("renewDeadline", duration(options, "leader-elect-renew-deadline")),
        ("retryPeriod", duration(options, "leader-elect-retry-period")),
        ("resourceLock", json(options.text("leader-elect-resource-lock"))),
        ("resourceName", json(options.text("leader-elect-resource-name"))),
        ("resourceNamespace", json(options.text("leader-elect-resource-namespace"))),
    ]);
    let debugging = object(&[
        ("enableProfiling", boolean(options, "profiling")),
        ("enableContentionProfiling", boolean(options, "contention-profiling")),
    ]);
    object(&[
        // The port without TLS, which neither this program nor the Go program has.
        ("Port", json(0)),
        ("Address", json("0.0.0.0")),
        ("MinResyncPeriod", duration(options, "min-resync-period")),
        ("ClientConnection", client_connection),
        ("ControllerStartInterval", duration(options, "controller-start-interval")),
        ("LeaderElection", leader_election),
        ("Controllers", json(options.list("controllers"))),
        ("Debugging", debugging),
        ("LeaderMigrationEnabled", boolean(options, "enable-leader-migration")),
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
    let options = &settings.options;
    let cloud_provider = object(&[
        ("Name", json(settings.provider.name())),
        ("CloudConfigFile", json(settings.provider.cloud_config().display().to_string())),
    ]);
    object(&[
        ("CloudProvider", cloud_provider),
        ("ExternalCloudVolumePlugin", json(options.text("external-cloud-volume-plugin"))),
        ("UseServiceAccountCredentials", boolean(options, "use-service-account-credentials")),
        ("AllowUntaggedCloud", boolean(options, "allow-untagged-cloud")),
        ("RouteReconciliationPeriod", duration(options, "route-reconciliation-period")),
        ("NodeMonitorPeriod", duration(options, "node-monitor-period")),
        ("ClusterName", json(options.text("cluster-name"))),
        ("ClusterCIDR", json(options.text("cluster-cidr"))),
        ("AllocateNodeCIDRs", boolean(options, "allocate-node-cidrs")),
        ("CIDRAllocatorType", json(options.text("cidr-allocator-type"))),
        ("ConfigureCloudRoutes", boolean(options, "configure-cloud-routes")),
        ("NodeSyncPeriod", duration(options, "node-sync-period")),
    ])
}

fn boolean(options: &Options, name: &str) -> String {
    json(parse_bool(options.text(name)))
}

/// Returns a duration flag as JSON, spelled as in Go: `60s` becomes `1m0s`.
fn duration(options: &Options, name: &str) -> String {
    json(parse_duration(options.text(name)).ok().map(spelled))
}

#[cfg(test)]
mod tests;
