//! Pure: `/configz`, the settings in the form of the Go program's `CloudControllerManagerConfiguration`.

use crate::app::settings::{Settings, boolean, leader_migration};
use crate::base::go_duration::{parse_duration, spelled};
#[cfg(test)]
use serde::Deserialize;
use serde::Serialize;
use std::collections::BTreeMap;

/// The one key of the page.
const KEY: &str = "cloudcontrollermanager.config.k8s.io";

/// No limit, as client-go writes it: the rate of requests is limited only when a flag asks for it.
const NO_LIMIT: f32 = -1.0;

/// The page.
pub fn text(settings: &Settings) -> String {
    let page = BTreeMap::from([(KEY, of(settings))]);
    // Only maps with keys that are no texts, and writers that fail, make this fail.
    serde_json::to_string(&page).unwrap_or_default()
}

/// The Go types have hardly any JSON names, so most fields begin with a capital letter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
struct Configuration {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "Generic")]
    generic: Generic,
    #[serde(rename = "KubeCloudShared")]
    kube_cloud_shared: KubeCloudShared,
    #[serde(rename = "NodeController")]
    node_controller: NodeController,
    #[serde(rename = "ServiceController")]
    service_controller: ServiceController,
    #[serde(rename = "NodeStatusUpdateFrequency")]
    node_status_update_frequency: String,
    #[serde(rename = "Webhook")]
    webhook: Webhook,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "PascalCase")]
struct Generic {
    port: u16,
    address: String,
    min_resync_period: String,
    client_connection: ClientConnection,
    controller_start_interval: String,
    leader_election: LeaderElection,
    controllers: Vec<String>,
    debugging: Debugging,
    leader_migration_enabled: bool,
    leader_migration: LeaderMigration,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "camelCase")]
struct ClientConnection {
    kubeconfig: String,
    accept_content_types: String,
    content_type: String,
    qps: f32,
    burst: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "camelCase")]
struct LeaderElection {
    leader_elect: bool,
    lease_duration: String,
    renew_deadline: String,
    retry_period: String,
    resource_lock: String,
    resource_name: String,
    resource_namespace: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "camelCase")]
struct Debugging {
    enable_profiling: bool,
    enable_contention_profiling: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "camelCase")]
struct LeaderMigration {
    leader_name: String,
    resource_lock: String,
    controller_leaders: Option<Vec<ControllerLeader>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
struct ControllerLeader {
    name: String,
    component: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "PascalCase")]
struct KubeCloudShared {
    cloud_provider: CloudProvider,
    external_cloud_volume_plugin: String,
    use_service_account_credentials: bool,
    allow_untagged_cloud: bool,
    route_reconciliation_period: String,
    node_monitor_period: String,
    cluster_name: String,
    #[serde(rename = "ClusterCIDR")]
    cluster_cidr: String,
    #[serde(rename = "AllocateNodeCIDRs")]
    allocate_node_cidrs: bool,
    #[serde(rename = "CIDRAllocatorType")]
    cidr_allocator_type: String,
    configure_cloud_routes: bool,
    node_sync_period: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "PascalCase")]
struct CloudProvider {
    name: String,
    cloud_config_file: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "PascalCase")]
struct NodeController {
    concurrent_node_syncs: usize,
    concurrent_node_status_updates: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "PascalCase")]
struct ServiceController {
    concurrent_service_syncs: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
#[serde(rename_all = "PascalCase")]
struct Webhook {
    webhooks: Vec<String>,
}

fn of(settings: &Settings) -> Configuration {
    let options = &settings.options;
    Configuration {
        kind: "CloudControllerManagerConfiguration".to_owned(),
        api_version: format!("{KEY}/v1alpha1"),
        generic: generic(settings),
        kube_cloud_shared: shared(settings),
        node_controller: NodeController {
            concurrent_node_syncs: settings.nodes.workers.get(),
            concurrent_node_status_updates: settings.generic.concurrent_node_status_updates.get(),
        },
        service_controller: ServiceController {
            concurrent_service_syncs: settings.generic.concurrent_service_syncs.get(),
        },
        node_status_update_frequency: spelled(settings.nodes.period),
        webhook: Webhook { webhooks: options.webhook.webhooks.clone() },
    }
}

fn generic(settings: &Settings) -> Generic {
    let options = &settings.options;
    let kubeconfig = settings.kubernetes.kubeconfig.as_ref().map(|path| path.display().to_string());
    let rate = settings.kubernetes.rate;
    Generic {
        // The port without TLS, which the Go program does not have any more either.
        port: 0,
        address: "0.0.0.0".to_owned(),
        min_resync_period: spelled(settings.generic.min_resync_period),
        client_connection: ClientConnection {
            kubeconfig: kubeconfig.unwrap_or_default(),
            accept_content_types: String::new(),
            content_type: options.generic.kube_api_content_type.clone(),
            qps: rate.map_or(NO_LIMIT, |rate| rate.qps),
            burst: rate.map_or(0, |rate| rate.burst),
        },
        controller_start_interval: spelled(settings.generic.controller_start_interval),
        leader_election: LeaderElection {
            leader_elect: settings.election.is_some(),
            lease_duration: as_go_prints(&options.leader_elect_lease_duration),
            renew_deadline: as_go_prints(&options.leader_elect_renew_deadline),
            retry_period: as_go_prints(&options.leader_elect_retry_period),
            resource_lock: options.leader_elect_resource_lock.clone(),
            resource_name: options.leader_elect_resource_name.clone(),
            resource_namespace: options.leader_elect_resource_namespace.clone(),
        },
        controllers: options.controllers.clone(),
        debugging: Debugging {
            enable_profiling: settings.generic.profiling,
            enable_contention_profiling: settings.generic.contention_profiling,
        },
        leader_migration_enabled: boolean(&options.leader_migration.enable_leader_migration) == Some(true),
        leader_migration: settings.election.as_ref().and_then(|election| election.migration.as_ref()).into(),
    }
}

impl From<Option<&leader_migration::LeaderMigration>> for LeaderMigration {
    fn from(migration: Option<&leader_migration::LeaderMigration>) -> Self {
        let Some(migration) = migration else { return Self::default() };
        let leader = |leader: &leader_migration::ControllerLeader| ControllerLeader {
            name: leader.name.clone(),
            component: leader.component.clone(),
        };
        Self {
            leader_name: migration.leader_name.clone(),
            resource_lock: migration.resource_lock.clone(),
            controller_leaders: Some(migration.controller_leaders.iter().map(leader).collect()),
        }
    }
}

fn shared(settings: &Settings) -> KubeCloudShared {
    let (options, generic) = (&settings.options, &settings.generic);
    KubeCloudShared {
        cloud_provider: CloudProvider {
            name: settings.provider.name().to_owned(),
            cloud_config_file: settings.provider.cloud_config().display().to_string(),
        },
        external_cloud_volume_plugin: options.generic.external_cloud_volume_plugin.clone(),
        use_service_account_credentials: generic.use_service_account_credentials,
        allow_untagged_cloud: generic.allow_untagged_cloud,
        route_reconciliation_period: spelled(generic.route_reconciliation_period),
        node_monitor_period: spelled(settings.node_lifecycle.period),
        cluster_name: generic.cluster_name.clone(),
        cluster_cidr: options.generic.cluster_cidr.clone(),
        allocate_node_cidrs: generic.allocate_node_cidrs,
        cidr_allocator_type: options.generic.cidr_allocator_type.clone(),
        configure_cloud_routes: generic.configure_cloud_routes,
        node_sync_period: spelled(generic.node_sync_period),
    }
}

/// A duration that was checked, `60s`, in Go's own spelling, `1m0s`.
fn as_go_prints(typed: &str) -> String {
    parse_duration(typed).map_or_else(|_| typed.to_owned(), spelled)
}

#[cfg(test)]
mod tests;
