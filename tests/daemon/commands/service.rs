//! `explain service` with a fake NSX: served, refused, held by NSX, deleted, and on a standby.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use support::eventually;
use support::fake_nsx::Trouble;

use super::{CommandResult, ask, compare_with_page, json as json_of, normalised_line};
use crate::load_balancers::site::{LIMIT, Process, Site};

/// Number of Nodes.
const NODES: usize = 3;

/// Waits until the command has this exit code and all these parts in its output. Returns the output.
async fn explained(process: &Process, key: &str, code: i32, parts: &[&str]) -> String {
    eventually(&format!("{key} is explained with {parts:?}"), LIMIT, async || {
        let CommandResult { code: found, output, messages } = ask(&process.daemon, &["explain", "service", key]).await;
        let shown = output.replace("\n  ", " ");
        match found == Some(code) && parts.iter().all(|part| shown.contains(part)) {
            true => Ok(output),
            false => Err(format!("{found:?}, {output}{messages}")),
        }
    })
    .await
}

/// Replaces what differs between two runs: names, ids, ports and times.
fn normalised(screen: &str, site: &Site, node_port: i64) -> String {
    let names = [
        (site.key("web"), "shop/web".to_owned()),
        (format!("node port {node_port}"), "node port 30080".to_owned()),
        (site.nsx.address().to_string(), "nsx.example.com:443".to_owned()),
    ];
    let screen = names.iter().fold(screen.to_owned(), |screen, (name, shown)| screen.replace(name, shown));
    screen.lines().map(|line| normalised_line(&without_ids(line))).collect::<Vec<_>>().join("\n")
}

/// Replaces the ids of objects, which are UUIDs.
fn without_ids(line: &str) -> String {
    let parts = line.split('/').map(|part| match part.len() == 36 && part.matches('-').count() == 4 {
        true => "8b6d…",
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The number of calls is that of NSX, and a change by hand is a difference.
async fn fresh_counts_and_compares(site: &Site, leader: &Process, key: &str) {
    let arguments = ["explain", "service", key, "--fresh"];
    let logins = site.nsx.login_attempts().len();
    eventually("NSX counts the calls that are printed", LIMIT, async || {
        site.nsx.reset_counts();
        let (code, report) = json_of(&leader.daemon, &arguments).await;
        let counted = u64::from(site.nsx.counts().total());
        let servers = report["fresh"]["calls"].as_array().cloned().unwrap_or_default();
        let printed = servers.iter().find(|calls| calls["server"].as_str().unwrap().starts_with("NSX "));
        let printed = printed.map_or(0, |calls| calls["calls"].as_u64().unwrap());
        match code == Some(0) && printed > 3 && printed == counted {
            true => Ok(()),
            false => Err(format!("{code:?} {printed} {counted} {report:#}")),
        }
    })
    .await;
    assert_eq!(site.nsx.login_attempts().len(), logins, "no login more");
    let pools = site.nsx.objects_below("/infra/lb-pools");
    let pool = pools[0]["path"].as_str().unwrap();
    let members = pools[0]["members"].clone();
    site.nsx.change_by_hand("admin", pool, |pool| pool["members"] = json!([]));
    let (code, report) = json_of(&leader.daemon, &arguments).await;
    let objects = report["fresh"]["objects"].as_array().unwrap();
    let differing: Vec<&Value> = objects.iter().filter(|object| object["differences"][0].is_object()).collect();
    assert_eq!((code, differing.len()), (Some(1), 1), "{report:#}");
    assert_eq!((&differing[0]["kind"], &differing[0]["name"]), (&json!("pool"), &json!(pool)), "{report:#}");
    let difference = &differing[0]["differences"][0];
    assert_eq!((&difference["field"], &difference["read"]), (&json!("members"), &json!("none")), "{report:#}");
    site.nsx.change_by_hand("admin", pool, |pool| pool["members"] = members);
    explained(leader, key, 0, &["served at 192.0.2.5"]).await;
}

async fn node_port(site: &Site, name: &str) -> i64 {
    let service = serde_json::to_value(site.services.get(name).await.unwrap()).unwrap();
    service["spec"]["ports"][0]["nodePort"].as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_explained_from_its_creation_to_its_deletion() {
    let mut site = Site::alone(true, 0..NODES).await;
    let lease = format!("--leader-elect-resource-name={}", site.cluster.pool());
    let flags = ["--leader-elect=true", &lease];
    let mut leader = site.start(&flags);
    leader.daemon.wait_for_line("became leader", LIMIT).await;
    let key = site.key("web");
    site.create("web", &[("TCP", 80)]).await;
    site.select("web").await;
    leader.wait_until_ensured(1).await;
    let served = explained(&leader, &key, 0, &["served at 192.0.2.5", "ours by the tag cluster-uid"]).await;
    compare_with_page("explain service NAMESPACE/NAME", &normalised(&served, &site, node_port(&site, "web").await));
    let (code, document) = json_of(&leader.daemon, &["explain", "service", &key]).await;
    assert_eq!((code, &document["state"]), (Some(0), &json!("settled")), "{document:#}");

    fresh_counts_and_compares(&site, &leader, &key).await;

    let unknown = ask(&leader.daemon, &["explain", "service", &site.key("wep")]).await;
    assert_eq!((unknown.code, unknown.output.as_str()), (Some(2), ""));
    assert!(unknown.messages.ends_with(&format!("the nearest name is {key}\n")), "{}", unknown.messages);

    let mut standby = site.start(&flags);
    standby.daemon.wait_for_line("standing by", LIMIT).await;
    let parts = ["not known: only the leader lists NSX", "never in this term", "TCP/80 to node port"];
    explained(&standby, &key, 3, &parts).await;
    let fresh = ask(&standby.daemon, &["explain", "service", &key, "--fresh"]).await;
    assert!(fresh.code == Some(3) && fresh.output.contains("only the leader logs in to NSX"), "{}", fresh.output);

    let class = |class: Value| json!({"metadata": {"annotations": {"loadbalancer.vmware.io/class": class}}});
    site.patch("web", class(json!("gold"))).await;
    let parts = ["LoadBalancerClassUnknown", "the owner of the Service", "kubectl edit service -n", "refused"];
    explained(&leader, &key, 1, &parts).await;
    site.patch("web", class(Value::Null)).await;
    explained(&leader, &key, 0, &["served at 192.0.2.5"]).await;

    site.nsx.every("PUT lb-pools", Trouble::error(400, Some(1)));
    site.set_ports("web", &[("TCP", 80, None), ("TCP", 443, None)]).await;
    let step = "create the pool of port TCP/443";
    let parts = ["NSXRefused", step, "the administrator of NSX", "next attempt"];
    explained(&leader, &key, 1, &parts).await;
    site.nsx.clear();
    // The next attempt comes minutes later, unless the Service changes.
    site.set_ports("web", &[("TCP", 80, None)]).await;
    explained(&leader, &key, 0, &["served at 192.0.2.5"]).await;

    site.services.delete("web", &DeleteParams::default()).await.unwrap();
    eventually("only the history of the Service is known after its deletion", LIMIT, async || {
        let CommandResult { code, output, .. } = ask(&leader.daemon, &["explain", "service", &key]).await;
        let is_gone =
            output.contains("does not exist: see its last decisions") && output.contains("Z DeletedLoadBalancer: ");
        if code == Some(2) && is_gone { Ok(()) } else { Err(format!("{code:?}, {output}")) }
    })
    .await;
}
