//! A kubelet gives its Node the address of another machine. Routes and load balancers do not use that address. A new
//! leader writes nothing while vCenter is unavailable.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::{Daemon, eventually};

use super::{BALANCER_SECTION, CLUSTER_CIDR, NOT_CREATED, ROUTE_SECTION, Site, USERS, route};
use crate::admin::{Admin, token};
use crate::cluster::{LIMIT, ip};

/// Address of a machine that has no Node.
const FORGED: &str = "10.1.0.99";

/// Writes the addresses that the kubelet of this node reports.
async fn report(site: &Site, number: usize, addresses: &[&str]) {
    let all: Vec<Value> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
    let (nodes, name) = (Api::<Node>::all(site.cluster.client.clone()), site.cluster.name(number));
    // Replaces the list. A merge would keep the existing addresses.
    let replaced = json!([{"op": "add", "path": "/status/addresses", "value": all}]);
    let patch = Patch::<()>::Json(serde_json::from_value(replaced).unwrap());
    nodes.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
}

async fn wait_for_members(site: &Site, expected: &[String], daemon: &Daemon) {
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    eventually(&format!("the pool has the members {expected:?}"), LIMIT, async || {
        let pools = site.nsx.objects_below("/infra/lb-pools");
        let members = pools.iter().flat_map(|pool| pool["members"].as_array().cloned().unwrap_or_default());
        let members: Vec<Value> = members.map(|member| member["ip_address"].clone()).collect();
        match members.iter().filter_map(Value::as_str).collect::<BTreeSet<_>>() == expected && !pools.is_empty() {
            true => Ok(()),
            false => Err(format!("{members:?}\n{}", daemon.output().tail(30))),
        }
    })
    .await;
}

#[tokio::test]
async fn an_address_that_no_machine_has_leads_nowhere_and_a_silent_vcenter_changes_nothing() {
    let site = Site::new(0..3).await;
    let config = site.file("all.conf", &format!("{}{ROUTE_SECTION}{BALANCER_SECTION}", site.with_nsx(USERS[0])));
    let selector = format!("--service-selector={}", site.cluster.labels());
    let mut first = site.start(&config, &[CLUSTER_CIDR, &selector]);
    first.wait_for_line("became leader", LIMIT).await;
    for number in 0..2 {
        site.join(number, &[]).await;
    }
    site.cluster.wait_until_initialized(0..2, &first).await;
    let labels = site.cluster.labels();
    let (label, value) = labels.split_once('=').unwrap();
    let service = json!({
        "metadata": {"name": site.cluster.pool(), "labels": {label: value}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    let services = Api::<Service>::namespaced(site.cluster.client.clone(), "default");
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    site.wait_for_routes(&[route(0), route(1)], &first).await;
    wait_for_members(&site, &[ip(0), ip(1)], &first).await;
    assert_eq!(first.stop(LIMIT).await.code(), Some(0));

    // Only kubelets write the addresses of Nodes, because vCenter is unavailable.
    site.vcenter.stop_listening().await;
    let (seen, admin, token) = (site.nsx.history().len(), Admin::new(), token(&site.cluster).await);
    let flags = [CLUSTER_CIDR, &selector, "--controllers=route,service", &admin.flag()];
    let mut second = site.start(&config, &flags);
    second.wait_for_line("became leader", LIMIT).await;
    eventually("the load balancer is looked after", LIMIT, async || {
        match admin.sum("vsphere_ccm_load_balancers ", &token, &mut second).await {
            1.0 => Ok(()),
            count => Err(format!("{count}\n{}", second.output().tail(30))),
        }
    })
    .await;
    site.join(2, &[]).await;
    report(&site, 2, &[&ip(2)]).await;
    site.wait_for_condition(2, NOT_CREATED, &second).await;
    assert!(site.nsx.written_from(seen).is_empty(), "{:#?}", site.nsx.written_from(seen));

    // The kubelet adds the address to its own address.
    report(&site, 0, &[FORGED, &ip(0)]).await;
    site.vcenter.resume_listening().await;
    site.wait_for_routes(&[route(0), route(1), route(2)], &second).await;
    wait_for_members(&site, &[ip(0), ip(1), ip(2)], &second).await;
    // The kubelet replaces its own address. Only that Node loses traffic.
    report(&site, 0, &[FORGED]).await;
    wait_for_members(&site, &[ip(1), ip(2)], &second).await;
    report(&site, 0, &[&ip(0)]).await;
    wait_for_members(&site, &[ip(0), ip(1), ip(2)], &second).await;
    site.wait_for_routes(&[route(0), route(1), route(2)], &second).await;
    let written = format!("{:?}", site.nsx.written_from(seen));
    assert!(!written.contains(FORGED), "{written}");

    services.delete(site.cluster.pool(), &DeleteParams::default()).await.unwrap();
    eventually("the Service is gone", LIMIT, async || match services.get_opt(site.cluster.pool()).await.unwrap() {
        None => Ok(()),
        Some(_) => Err(second.output().tail(30)),
    })
    .await;
    assert_eq!(second.stop(LIMIT).await.code(), Some(0));
}
