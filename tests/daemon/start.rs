//! A vCenter that is down at the start, and the access rights at the secure port.

use support::{Vcenter, eventually};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, LIMIT};

#[tokio::test]
async fn a_vcenter_that_is_down_at_the_start_is_waited_for() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    vcenter.stop_listening().await;
    cluster.register(0..2).await;
    let admin = Admin::new();
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let mut daemon = cluster.start(&config, &[&admin.flag()]);
    let told = daemon.wait_for_line("the connection to vCenter is refused", LIMIT).await;
    assert!(told.contains(&format!("127.0.0.1:{}", vcenter.port())), "{told}");
    daemon.wait_for_line("cannot initialize node", LIMIT).await;
    for path in ["/healthz", "/livez"] {
        assert_eq!(admin.get(path, None, &mut daemon).await, (200, "ok".to_owned()), "{path}");
    }
    eventually("it is ready, which an outage of vCenter does not change", LIMIT, async || {
        match admin.get("/readyz", None, &mut daemon).await {
            (200, _) => Ok(()),
            (status, text) => Err(format!("{status} {text}")),
        }
    })
    .await;
    assert!(daemon.ended().is_none());
    let views = cluster.views().await;
    assert!(views.values().all(|view| view.uninitialized && view.provider_id.is_none()), "{views:?}");
    vcenter.resume_listening().await;
    cluster.wait_until_initialized(0..2, &daemon).await;
}

#[tokio::test]
async fn metrics_need_a_token_that_the_api_server_knows() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let admin = Admin::new();
    let mut daemon = cluster.start_for(&vcenter, &[&admin.flag()]).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    let token = token(&cluster).await;
    for (who, token, expected) in [
        ("nobody", None, 403),
        ("somebody with a token of his own making", Some("not-a-token"), 401),
        ("somebody with a token that was tampered with", Some(format!("{token}x").as_str()), 401),
        ("a service account", Some(token.as_str()), 200),
    ] {
        let (status, text) = admin.get("/metrics", token, &mut daemon).await;
        assert_eq!(status, expected, "{who}: {text}");
        assert_eq!(text.contains("vsphere_ccm_"), expected == 200, "{who}: {text}");
    }
    let initialized = "node_controller_initial_node_sync_delay_seconds_count";
    // A metric may change shortly after the event.
    eventually("the node is counted", LIMIT, async || match admin.sum(initialized, &token, &mut daemon).await {
        1.0 => Ok(()),
        other => Err(other),
    })
    .await;
    // The metrics that an administrator of vCenter needs first.
    let vcenter = format!("vcenter=\"127.0.0.1:{}\"", vcenter.port());
    for (series, expected) in [
        (format!("vsphere_ccm_vcenter_up{{{vcenter}}}"), 1.0),
        (format!("vsphere_ccm_vcenter_inventory_lag_seconds{{{vcenter}}}"), 0.0),
        (format!("vsphere_ccm_vcenter_inventory_objects{{kind=\"VirtualMachine\",{vcenter}}}"), 1.0),
        (format!("vsphere_ccm_vcenter_logins_total{{outcome=\"accepted_soap\",{vcenter}}}"), 1.0),
        (format!("vsphere_ccm_vcenter_logins_total{{outcome=\"rejected\",{vcenter}}}"), 0.0),
    ] {
        let (_, text) = admin.get("/metrics", Some(&token), &mut daemon).await;
        let value = text.lines().find_map(|line| line.strip_prefix(&series)).map(|value| value.trim().parse::<f64>());
        assert_eq!(value, Some(Ok(expected)), "{series} in {text}");
    }
}
