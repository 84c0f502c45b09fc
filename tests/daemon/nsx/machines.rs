//! A kubelet gives its Node the address of another machine: no route leads there. A take-over while vCenter is away writes nothing.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{CLUSTER_CIDR, NOT_CREATED, ROUTE_SECTION, Site, USERS, route};
use crate::cluster::{LIMIT, ip};

/// Of a machine that is no node.
const FORGED: &str = "10.1.0.99";

/// The addresses that the kubelet of this node reports.
async fn report(site: &Site, number: usize, addresses: &[&str]) {
    let all: Vec<Value> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
    let (nodes, name) = (Api::<Node>::all(site.cluster.client.clone()), site.cluster.name(number));
    // A list of its own, not merged with what is there.
    let replaced = json!([{"op": "add", "path": "/status/addresses", "value": all}]);
    let patch = Patch::<()>::Json(serde_json::from_value(replaced).unwrap());
    nodes.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn no_route_leads_to_an_address_that_no_machine_has_and_a_silent_vcenter_changes_nothing() {
    let site = Site::new(0..3).await;
    let config = site.file("all.conf", &format!("{}{ROUTE_SECTION}", site.with_nsx(USERS[0])));
    let mut first = site.start(&config, &[CLUSTER_CIDR]);
    first.wait_for_line("became leader", LIMIT).await;
    for number in 0..2 {
        site.join(number, &[]).await;
    }
    site.cluster.wait_until_initialised(0..2, &first).await;
    site.wait_for_routes(&[route(0), route(1)], &first).await;
    assert_eq!(first.stop(LIMIT).await.code(), Some(0));

    // Nobody writes the addresses of Nodes but their kubelets, and vCenter is away.
    site.vcenter.stop_listening().await;
    let seen = site.nsx.history().len();
    let mut second = site.start(&config, &[CLUSTER_CIDR, "--controllers=route"]);
    second.wait_for_line("became leader", LIMIT).await;
    report(&site, 0, &[FORGED, &ip(0)]).await;
    site.join(2, &[]).await;
    report(&site, 2, &[FORGED, &ip(2)]).await;
    // Its pass has looked at the others, too.
    site.wait_for_condition(2, NOT_CREATED, &second).await;
    assert!(site.nsx.written_from(seen).is_empty(), "{:#?}", site.nsx.written_from(seen));
    assert!(second.output().find("no IPv4 address of node").is_some(), "{}", second.output().tail(30));

    site.vcenter.resume_listening().await;
    site.wait_for_routes(&[route(0), route(1), route(2)], &second).await;
    let written = format!("{:?}", site.nsx.written_from(seen));
    assert!(!written.contains(FORGED), "{written}");
    assert_eq!(second.stop(LIMIT).await.code(), Some(0));
}
