//! Tests of the whole page `/configz`. Other programs read it, so it has the same fields as that of the Go program.

use super::*;
use crate::app::settings::tests::settled;

fn page(arguments: &[&str]) -> Value {
    let page: Value = serde_json::from_str(&text(&settled(arguments).unwrap())).unwrap();
    page[KEY].clone()
}

/// Vector O-01. Three values differ on purpose: the number of concurrent node syncs, the request rate, and the cloud
/// config file, which this program requires.
// vectors: O-01
#[test]
fn o_01_defaults_are_the_go_programs() {
    let expected = json!({
        "kind": "CloudControllerManagerConfiguration",
        "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
        "Generic": {
            "Port": 0,
            "Address": "0.0.0.0",
            "MinResyncPeriod": "12h0m0s",
            "ClientConnection": {
                "kubeconfig": "",
                "acceptContentTypes": "",
                "contentType": "application/vnd.kubernetes.protobuf",
                "qps": -1.0,
                "burst": 0
            },
            "ControllerStartInterval": "0s",
            "LeaderElection": {
                "leaderElect": true,
                "leaseDuration": "15s",
                "renewDeadline": "10s",
                "retryPeriod": "2s",
                "resourceLock": "leases",
                "resourceName": "cloud-controller-manager",
                "resourceNamespace": "kube-system"
            },
            "Controllers": ["*"],
            "Debugging": { "enableProfiling": true, "enableContentionProfiling": false },
            "LeaderMigrationEnabled": false,
            "LeaderMigration": { "leaderName": "", "resourceLock": "", "controllerLeaders": null }
        },
        "KubeCloudShared": {
            "CloudProvider": { "Name": "vsphere", "CloudConfigFile": "/etc/vsphere.conf" },
            "ExternalCloudVolumePlugin": "",
            "UseServiceAccountCredentials": false,
            "AllowUntaggedCloud": false,
            "RouteReconciliationPeriod": "10s",
            "NodeMonitorPeriod": "5s",
            "ClusterName": "kubernetes",
            "ClusterCIDR": "",
            "AllocateNodeCIDRs": false,
            "CIDRAllocatorType": "RangeAllocator",
            "ConfigureCloudRoutes": true,
            "NodeSyncPeriod": "0s"
        },
        "NodeController": { "ConcurrentNodeSyncs": 16, "ConcurrentNodeStatusUpdates": 16 },
        "ServiceController": { "ConcurrentServiceSyncs": 8 },
        "NodeStatusUpdateFrequency": "5m0s",
        "Webhook": { "Webhooks": [] }
    });
    assert_eq!(page(&[]), expected);
}

// vectors: O-17
#[test]
fn o_17_flags_reach_the_page() {
    let page = page(&[
        "--node-status-update-frequency=10m",
        "--master=192.168.4.20",
        "--kubeconfig=/etc/kubeconfig",
        "--cluster-cidr=1.2.3.4/24",
        "--leader-elect=false",
        "--leader-elect-lease-duration=60s",
        "--kube-api-qps=50.5",
        "--controllers=cloud-node,-service",
        "--webhooks=*",
    ]);
    assert_eq!(page["NodeStatusUpdateFrequency"], "10m0s");
    assert_eq!(page["KubeCloudShared"]["ClusterCIDR"], "1.2.3.4/24");
    let generic = &page["Generic"];
    assert_eq!(generic["ClientConnection"]["kubeconfig"], "/etc/kubeconfig");
    assert_eq!(generic["ClientConnection"]["qps"], 50.5);
    assert_eq!(generic["ClientConnection"]["burst"], 30);
    assert_eq!(generic["LeaderElection"]["leaderElect"], false);
    assert_eq!(generic["LeaderElection"]["leaseDuration"], "1m0s");
    assert_eq!(generic["Controllers"], json!(["cloud-node", "-service"]));
    assert_eq!(page["Webhook"]["Webhooks"], json!(["*"]));
}

/// The expected page, because other programs read it. They do not depend on the order of the fields.
const PAGE: &str = concat!(
    r#"{"cloudcontrollermanager.config.k8s.io":{"kind":"CloudControllerManagerConfiguration","#,
    r#""apiVersion":"cloudcontrollermanager.config.k8s.io/v1alpha1","Generic":{"Port":0,"Address":"0.0.0.0","#,
    r#""MinResyncPeriod":"12h0m0s","ClientConnection":{"kubeconfig":"","acceptContentTypes":"","#,
    r#""contentType":"application/vnd.kubernetes.protobuf","qps":0.1,"burst":30},"ControllerStartInterval":"0s","#,
    r#""LeaderElection":{"leaderElect":true,"leaseDuration":"15s","renewDeadline":"10s","retryPeriod":"2s","#,
    r#""resourceLock":"leases","resourceName":"cloud-controller-manager","resourceNamespace":"kube-system"},"#,
    r#""Controllers":["*"],"Debugging":{"enableProfiling":true,"enableContentionProfiling":false},"#,
    r#""LeaderMigrationEnabled":true,"LeaderMigration":{"leaderName":"cloud-provider-extraction-migration","#,
    r#""resourceLock":"leases","controllerLeaders":[{"name":"route-controller","component":"*"},"#,
    r#"{"name":"service-controller","component":"*"},{"name":"cloud-node-lifecycle-controller","component":"*"}]}},"#,
    r#""KubeCloudShared":{"CloudProvider":{"Name":"vsphere","CloudConfigFile":"/etc/vsphere.conf"},"#,
    r#""ExternalCloudVolumePlugin":"","UseServiceAccountCredentials":false,"AllowUntaggedCloud":false,"#,
    r#""RouteReconciliationPeriod":"10s","NodeMonitorPeriod":"5s","ClusterName":"\"ü\"","ClusterCIDR":"","#,
    r#""AllocateNodeCIDRs":false,"CIDRAllocatorType":"RangeAllocator","ConfigureCloudRoutes":true,"NodeSyncPeriod":"0s"},"#,
    r#""NodeController":{"ConcurrentNodeSyncs":16,"ConcurrentNodeStatusUpdates":16},"#,
    r#""ServiceController":{"ConcurrentServiceSyncs":8},"NodeStatusUpdateFrequency":"5m0s","Webhook":{"Webhooks":[]}}}"#,
);

// vectors: O-26
#[test]
fn o_26_the_page_survives_being_read_and_written_again() {
    let flags = ["--kube-api-qps=0.1", "--enable-leader-migration", "--cluster-name=\"ü\""];
    let page = text(&settled(&flags).unwrap());
    let read: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(read, serde_json::from_str::<Value>(PAGE).unwrap());
    assert_eq!(read.to_string(), page);
    assert_eq!(read[KEY]["Generic"]["ClientConnection"]["qps"], 0.1);
    assert_eq!(read[KEY]["KubeCloudShared"]["ClusterName"], "\"ü\"");
}

#[test]
fn the_leader_migration_in_force_is_on_the_page() {
    let page = page(&["--enable-leader-migration"]);
    let any = |name: &str| json!({"name": name, "component": "*"});
    let expected = json!({
        "leaderName": "cloud-provider-extraction-migration",
        "resourceLock": "leases",
        "controllerLeaders": [any("route-controller"), any("service-controller"), any("cloud-node-lifecycle-controller")]
    });
    assert_eq!(page["Generic"]["LeaderMigrationEnabled"], true);
    assert_eq!(page["Generic"]["LeaderMigration"], expected);
}
