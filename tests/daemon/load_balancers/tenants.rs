//! Services of malicious or mistaken authors.

use ccm::cloud::service::FINALIZER;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use serde_json::{Value, json};
use support::process::Usage;
use support::{ApiServer, eventually};

use super::site::{LIMIT, Process, Setup, Site, manager, server};

/// Maximum memory of a leader or a standby above its idle state, in kB.
const MOST: u64 = 64 << 10;

/// Length of an annotation close to the API server's limit for one object. Its JSON form is six times as long.
const ANNOTATION: usize = 250 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_too_large_keeps_what_it_has_and_is_deleted() {
    let mut site = Site::alone(true, 0..2).await;
    let mut process = site.start(&[]);
    site.create("web", &[("TCP", 80)]).await;
    site.select("web").await;
    let address = site.wait_for_address("web", &process).await;
    process.wait_until_ensured(1).await;
    let (before, seen) = (site.objects_of("web"), site.nsx.history().len());
    let class = |text: Value| json!({"metadata": {"annotations": {"loadbalancer.vmware.io/class": text}}});
    site.patch("web", class(json!("\u{1}".repeat(5000)))).await;
    let line = process.daemon.wait_for_line("the Service is too large", LIMIT).await;
    assert!(
        line.contains("LoadBalancerNotPossible") && line.contains("has 5000 bytes; expected at most 4096"),
        "{line}"
    );
    assert_eq!(site.objects_of("web"), before);
    assert!(site.written_since(seen).is_empty(), "{:?}", site.written_since(seen));
    // The members of its load balancer still follow the Nodes.
    site.exclude(0, true).await;
    eventually("the pool follows the Nodes", LIMIT, async || {
        let objects = site.objects_of("web");
        let members = objects.iter().find_map(|object| object["members"].as_array()).map_or(0, Vec::len);
        if members == 1 { Ok(()) } else { Err(format!("{members}\n{}", process.daemon.output().tail(30))) }
    })
    .await;
    let events = site.events().await;
    let failed = events.iter().filter(|(_, reason)| reason == "SyncLoadBalancerFailed").count();
    assert_eq!(failed, 1, "{events:?}");
    // With the former annotation the Service is ensured again. It is deleted while its annotation is too long again.
    site.patch("web", class(Value::Null)).await;
    process.wait_until_ensured(1).await;
    assert_eq!(site.wait_for_address("web", &process).await, address);
    site.patch("web", class(json!("\u{1}".repeat(5000)))).await;
    site.services.delete("web", &kube::api::DeleteParams::default()).await.unwrap();
    site.wait_until_gone("web", &process).await;
    assert_eq!(site.objects_of("web"), Vec::<Value>::new());
    process.stop().await;
}

/// Returns a Service with a long annotation: one that the daemon reads, or another one. There are four kinds.
fn large(site: &Site, number: usize) -> Service {
    let (key, length) = match number % 4 {
        0 => ("loadbalancer.vmware.io/class", ANNOTATION),
        _ => ("example.com/note", ANNOTATION),
    };
    let (spec, finalizers) = match number % 4 {
        0 => (json!({"type": "LoadBalancer"}), json!([])),
        1 => (json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}), json!([])),
        2 => (json!({"type": "ClusterIP"}), json!([FINALIZER])),
        _ => (json!({"type": "NodePort"}), json!(["example.com/one", FINALIZER])),
    };
    let mut spec = spec;
    spec["ports"] = json!([{"port": 80}]);
    let labels = site.labels();
    let metadata = json!({
        "name": format!("large-{number}"), "labels": labels, "finalizers": finalizers, "annotations": {key: "\u{1}".repeat(length)},
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn usage(process: &Process) -> Usage {
    Usage::of(process.daemon.pid().unwrap()).unwrap()
}

/// Measures the memory of a leader, a standby and a process that starts afterwards, for this many large Services.
async fn memory(server: &ApiServer, count: usize) {
    let mut site = Site::new(server, manager(&["site"]).await, Setup::alone(true), 0..1).await;
    let lease = format!("--leader-elect-resource-name={}", site.cluster.pool());
    let flags = ["--leader-elect=true", &lease, "--concurrent-service-syncs=8"];
    let mut leader = site.start(&flags);
    site.create("first", &[("TCP", 80)]).await;
    site.select("first").await;
    site.wait_for_address("first", &leader).await;
    let mut standby = site.start(&flags);
    let idle = usage(&leader).resident;
    futures::stream::iter(0..count)
        .for_each_concurrent(4, async |number| {
            site.services.create(&PostParams::default(), &large(&site, number)).await.unwrap();
        })
        .await;
    // The leader has processed all Services once it serves the last one.
    site.create("last", &[("TCP", 80)]).await;
    site.select("last").await;
    site.wait_for_address("last", &leader).await;
    wait_until_reported(&mut leader, count).await;
    let more = |process: &Process| usage(process).peak.saturating_sub(idle);
    let (of_leader, of_standby) = (more(&leader), more(&standby));
    assert!(!leader.daemon.output().lines().iter().any(|line| line.contains("messages are lost")));
    // The standby becomes the leader, and a process that starts now reads all Services at once.
    leader.stop().await;
    wait_until_reported(&mut standby, count).await;
    let of_successor = more(&standby);
    let mut late = site.start(&[&flags[..], &["-v=4"]].concat());
    late.daemon.wait_for_line("kind=\"services\"", LIMIT).await;
    let of_late = more(&late);
    println!(
        "{count} Services, kB beyond the {idle} kB of an idle leader: leader {of_leader}, standby {of_standby}, as a leader \
         {of_successor}, started with them {of_late}"
    );
    assert!([of_leader, of_standby, of_successor, of_late].into_iter().all(|more| more < MOST));
    late.stop().await;
    standby.stop().await;
}

/// Waits until every Service with an annotation that is too long is reported.
async fn wait_until_reported(process: &mut Process, count: usize) {
    eventually("those that are too large are reported", LIMIT, async || {
        let held = process.sum("vsphere_ccm_load_balancers_held{reason=\"LoadBalancerNotPossible\"}").await;
        match held == count.div_ceil(4) as f64 {
            true => Ok(()),
            false => Err(not_reported(process).await),
        }
    })
    .await;
}

/// Returns the queue metrics and the log about unreported Services. The last lines of the log are about reads of these
/// metrics.
async fn not_reported(process: &mut Process) -> String {
    let (held, queue) = (process.series("vsphere_ccm_load_balancers").await, process.series("workqueue_").await);
    let log = process.daemon.output();
    let lines = log.lines();
    let of_services = lines.iter().filter(|line| line.contains("logger=\"service\"") && !line.contains("is too large"));
    let of_services: Vec<_> = of_services.rev().take(20).collect();
    format!("{held:#?}\n{queue:#?}\n{of_services:#?}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_services_cost_little() {
    memory(server().await, 100).await;
}

mod nightly {
    use super::{ApiServer, memory};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_large_services_cost_little() {
        memory(&ApiServer::start().await, 1000).await;
    }
}
