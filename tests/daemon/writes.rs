//! The number of writes to the API server, from its own metrics: two for a node that joins, and only writes of the
//! Lease while nothing changes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use support::{ApiServer, Vcenter, eventually};

use crate::cluster::{Cluster, LIMIT, until_passed};

const NODES: usize = 10;

/// Time of many passes over all objects.
const QUIET: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_join_takes_two_writes_and_a_quiet_time_none_but_the_leases() {
    let server = ApiServer::start().await;
    let cluster = Cluster::on(&server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    let lease = cluster.pool().to_owned();
    let flags = [
        "--leader-elect=true",
        &format!("--leader-elect-resource-name={lease}"),
        "--node-status-update-frequency=2s",
        "--node-monitor-period=1s",
        "--tag-poll-interval=1s",
        "--topology-labels=esxi-host,cluster,datacenter",
    ];
    let daemon = cluster.start_for(&vcenter, &flags).await;
    until_leadership_is_told(&cluster.client).await;
    let before = writes(&cluster.client).await;
    cluster.register(0..NODES).await;
    cluster.wait_until_initialized(0..NODES, &daemon).await;
    eventually("every node's Event is written", LIMIT, async || {
        let written = difference(&before, &writes(&cluster.client).await);
        if of_events(&written) >= NODES as u64 { Ok(()) } else { Err(format!("{written:?}")) }
    })
    .await;
    let joined = writes(&cluster.client).await;
    let written = difference(&before, &joined);
    println!("{NODES} nodes joined: {written:?}");
    let each = NODES as u64;
    let of_nodes: BTreeMap<_, _> = written.into_iter().filter(|(what, _)| what.contains(" nodes")).collect();
    let expected = [("POST nodes", each), ("PATCH nodes/status", each), ("PATCH nodes", each)];
    let expected = expected.map(|(what, count)| (what.to_owned(), count)).into();
    assert_eq!(of_nodes, expected, "{}", daemon.output().tail(60));

    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "kube-system");
    let renewed = async || leases.get(&lease).await.unwrap().resource_version();
    let (versions, held) = (cluster.versions().await, renewed().await);
    until_passed(Instant::now(), QUIET).await;
    let written = difference(&joined, &writes(&cluster.client).await);
    assert!(written.is_empty(), "{written:?}\n{}", daemon.output().tail(20));
    assert_eq!(cluster.versions().await, versions);
    assert_ne!(renewed().await, held, "it led all the time");
}

/// Waits until the Event about the leader is counted. The daemon writes it concurrently with other work.
async fn until_leadership_is_told(client: &Client) {
    let events = Api::<Event>::all(client.clone());
    eventually("an Event says who leads", LIMIT, async || {
        let told = events.list(&ListParams::default()).await.unwrap().items;
        let written = writes(client).await;
        let leads = told.iter().any(|event| event.reason.as_deref() == Some("LeaderElection"));
        // The API server writes its own Events at a slow start. They are of another group and counted there.
        let is_of_core = |event: &&Event| event.source.as_ref().is_some_and(|source| source.component.is_some());
        let of_core = told.iter().filter(is_of_core).count();
        let is_counted = leads && of_events(&written) >= of_core as u64;
        if is_counted { Ok(()) } else { Err(format!("{of_core} Events, {written:?}")) }
    })
    .await;
}

fn of_events(writes: &BTreeMap<String, u64>) -> u64 {
    writes.iter().filter(|(what, _)| what.contains("events")).map(|(_, count)| count).sum()
}

/// Returns the numbers of writes so far to objects of the core group, as `VERB resource/subresource`. Rejected writes
/// also have the status code. Leases are in another group, and the daemon has no rights in a third one.
async fn writes(client: &Client) -> BTreeMap<String, u64> {
    const VERBS: [&str; 6] = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let mut writes = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap_or_default();
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        let (verb, resource, subresource) = (label("verb"), label(",resource"), label("subresource"));
        if !VERBS.contains(&verb.as_str()) || !label("group").is_empty() || resource.is_empty() {
            continue;
        }
        let separator = if subresource.is_empty() { "" } else { "/" };
        let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        let code = label("code");
        let refused = if code.starts_with('2') { String::new() } else { format!(" {code}") };
        *writes.entry(format!("{verb} {resource}{separator}{subresource}{refused}")).or_default() += count as u64;
    }
    writes
}

fn difference(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let more = |(what, count): (&String, &u64)| (what.clone(), count - before.get(what).copied().unwrap_or_default());
    after.iter().map(more).filter(|(_, count)| *count > 0).collect()
}
