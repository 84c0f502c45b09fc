//! Two replicas with one leader, the change of the leader, and an end without open sessions.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use support::{Daemon, Rule, Vcenter, eventually};

use crate::cluster::{ANSWERS, Cluster, LIMIT};

/// Minimum time until the daemon reconciles a machine or a Node without an event.
const NEXT_LOOK: Duration = Duration::from_secs(10);
/// Lease times for tests that wait for an expired Lease. They are long enough that an API server on a busy machine
/// answers in time, because the test counts terms.
const SHORT_TIMES: [&str; 3] =
    ["--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=500ms"];
/// Kubernetes kills a pod after 30 s.
const GRACE: Duration = Duration::from_secs(30);

async fn start_replica(cluster: &Cluster, vcenter: &Vcenter) -> Daemon {
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let mut daemon = cluster.start_for(vcenter, &["--leader-elect=true", &lease]).await;
    daemon.wait_for_line(" started", LIMIT).await;
    daemon
}

#[tokio::test]
async fn one_of_two_replicas_works_and_hands_over_when_it_is_told_to_stop() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..9)).await;
    let mut first = start_replica(&cluster, &vcenter).await;
    let leads = first.wait_for_line("became leader", LIMIT).await;
    let identity = cluster.holder(cluster.pool()).await;
    assert!(leads.contains(&identity), "{identity}: {leads}");
    let mut second = start_replica(&cluster, &vcenter).await;
    second.wait_for_line("standing by", LIMIT).await;

    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &first).await;
    // The log line comes after the write.
    eventually("the first one says so", LIMIT, async || match first.output().count("node initialized") {
        3 => Ok(()),
        other => Err(format!("{other} lines")),
    })
    .await;
    assert_eq!(second.output().count("node initialized"), 0);
    assert_eq!(cluster.holder(cluster.pool()).await, identity);
    // The standby creates its REST session concurrently with other work.
    eventually("there is one session of each kind per replica", LIMIT, async || match vcenter.counts().await {
        counts if (counts.soap_sessions, counts.rest_sessions) == (2, 2) => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;

    // The first replica is stopped during a join. Each node must become initialized by either replica.
    cluster.register(3..6).await;
    let told = Instant::now();
    let status = first.stop(GRACE).await;
    let stopped = told.elapsed();
    assert_eq!(status.code(), Some(0), "{}", first.output().tail(40));
    let ended = Instant::now();
    cluster.register(6..9).await;
    let name = cluster.name(6);
    eventually("the second one writes", LIMIT, async || match cluster.views().await[&name].addresses.is_empty() {
        false => Ok(()),
        true => Err(second.output().tail(20)),
    })
    .await;
    let taken_over = ended.elapsed();
    println!("the first ended {stopped:?} after SIGTERM, the second wrote its first Node {taken_over:?} later");
    cluster.wait_until_initialized(0..9, &second).await;
    // This is also sooner than the Lease would expire, because it was renewed only little more than 2 s before.
    assert!(taken_over < NEXT_LOOK, "the second one missed an announcement: {taken_over:?}");
    assert!(first.output().find("the lease is given up").is_some(), "{}", first.output().tail(40));
    eventually("each node was initialized once", LIMIT, async || {
        match first.output().count("node initialized") + second.output().count("node initialized") {
            9 => Ok(()),
            other => Err(format!("{other} lines")),
        }
    })
    .await;
    let leads = second.wait_for_line("became leader", LIMIT).await;
    assert!(leads.contains(&cluster.holder(cluster.pool()).await), "{leads}");

    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (1, 1), "the first one logged out: {counts:?}");
    assert_eq!(second.stop(GRACE).await.code(), Some(0));
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "{counts:?}");
    assert_eq!(cluster.holder(cluster.pool()).await, "");
    let expected = ["became leader", "stopped leading", "became leader", "stopped leading"];
    eventually("Events on the Lease tell the story", LIMIT, async || {
        let told = election_events(&cluster).await;
        let is_told = told.len() == expected.len() && told.iter().zip(expected).all(|(told, end)| told.ends_with(end));
        if is_told { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}

/// Returns the messages of the Events about the Lease, in their order.
async fn election_events(cluster: &Cluster) -> Vec<String> {
    let events = Api::<Event>::namespaced(cluster.client.clone(), "kube-system");
    let about = format!("involvedObject.name={},reason=LeaderElection", cluster.pool());
    let mut events = events.list(&ListParams::default().fields(&about)).await.unwrap().items;
    events.sort_by_key(|event| event.metadata.resource_version.as_ref().and_then(|text| text.parse::<u64>().ok()));
    events.into_iter().filter_map(|event| event.message).collect()
}

#[tokio::test]
async fn a_cold_standby_has_no_session_until_it_leads() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let flags = [&["--standby=cold", "--leader-elect=true", &lease], &SHORT_TIMES[..]].concat();
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let mut first = cluster.start(&config, &flags);
    first.wait_for_line(ANSWERS, LIMIT).await;
    let mut second = cluster.start(&config, &flags);
    second.wait_for_line("standing by", LIMIT).await;
    second.wait_for_line(" started", LIMIT).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &first).await;
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.rest_sessions, counts.soap_logins), (1, 1, 1), "{counts:?}");

    // The leader does not observe the end of its term in time, as on a suspended virtual machine.
    first.signal("STOP").await;
    let lost = Instant::now();
    cluster.register(1..2).await;
    cluster.wait_until_initialized(1..2, &second).await;
    println!("a cold standby worked {:?} after the leader was frozen", lost.elapsed());
    first.signal("CONT").await;
    first.wait_for_line("this process is now a standby", LIMIT).await;
    eventually("who lost the Lease logs out", LIMIT, async || match vcenter.counts().await {
        counts if (counts.soap_sessions, counts.rest_sessions) == (1, 1) => Ok(()),
        counts => Err(format!("{counts:?}\n{}", first.output().tail(20))),
    })
    .await;
    assert!(first.ended().is_none(), "it stands by and goes on");

    // The first replica leads again.
    assert_eq!(second.stop(GRACE).await.code(), Some(0));
    cluster.register(2..3).await;
    cluster.wait_until_initialized(2..3, &first).await;
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.soap_logins), (1, 3), "one login a term: {counts:?}");
    assert_eq!(first.stop(GRACE).await.code(), Some(0));
    // A logout waits 3 s for its answer. On a slow machine the session ends after the process.
    eventually("no session is left", LIMIT, async || match vcenter.counts().await {
        counts if (counts.soap_sessions, counts.rest_sessions) == (0, 0) => Ok(()),
        counts => Err(format!("{counts:?}\n{}", first.output().tail(20))),
    })
    .await;
}

#[tokio::test]
async fn a_standby_takes_over_from_a_leader_that_was_killed() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let times = [&["--leader-elect=true", &lease], &SHORT_TIMES[..]].concat();
    let mut first = cluster.start_for(&vcenter, &times).await;
    first.wait_for_line("became leader", LIMIT).await;
    let mut second = cluster.start_for(&vcenter, &times).await;
    second.wait_for_line("standing by", LIMIT).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &first).await;
    first.kill().await;
    let killed = Instant::now();
    cluster.register(1..2).await;
    cluster.wait_until_initialized(1..2, &second).await;
    println!("the standby worked {:?} after the leader was killed", killed.elapsed());
    assert_eq!(second.output().count("became leader"), 1);
}

/// As on a suspended virtual machine, or on a host without free memory.
#[tokio::test]
async fn a_leader_that_was_frozen_writes_nothing_once_another_leads() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let flags = [&["--leader-elect=true", &lease], &SHORT_TIMES[..]].concat();
    let mut first = cluster.start_for(&vcenter, &flags).await;
    first.wait_for_line("became leader", LIMIT).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &first).await;
    let mut second = cluster.start_for(&vcenter, &flags).await;
    second.wait_for_line("standing by", LIMIT).await;
    first.signal("STOP").await;
    second.wait_for_line("became leader", LIMIT).await;
    // The frozen leader receives these changes when it resumes. It still acts as the leader then.
    cluster.register(1..2).await;
    vcenter.set_ip(&cluster.name(0), "10.9.9.9").await;
    cluster.wait_until_initialized(1..2, &second).await;
    first.signal("CONT").await;
    first.wait_for_line("this process is now a standby", LIMIT).await;
    first.wait_for_line("stopped leading", LIMIT).await;
    vcenter.set_ip(&cluster.name(0), "10.9.9.10").await;
    eventually("the second one still works", LIMIT, async || {
        match cluster.views().await[&cluster.name(0)].addresses.contains(&"InternalIP=10.9.9.10".to_owned()) {
            true => Ok(()),
            false => Err(second.output().tail(20)),
        }
    })
    .await;
    assert_eq!((first.output().count("node initialized"), first.output().count("node updated")), (1, 0));
    assert!(
        cluster.holder(cluster.pool()).await.len() > 1
            && second.output().find(&cluster.holder(cluster.pool()).await).is_some()
    );
    assert!(first.ended().is_none(), "it stands by and goes on");
}

#[tokio::test]
async fn a_vcenter_that_hangs_does_not_keep_the_process_from_stopping_in_time() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let mut daemon = cluster.start_for(&vcenter, &[]).await;
    vcenter.add_rule(&Rule::hang("*")).await;
    vcenter.reset_counts().await;
    cluster.register(0..2).await;
    eventually("a search hangs", LIMIT, async || match vcenter.counts().await {
        counts if counts.of("FindAllByUuid") > 0 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    let told = Instant::now();
    assert_eq!(daemon.stop(GRACE).await.code(), Some(0));
    println!("it ended {:?} after SIGTERM beside a vCenter that hangs", told.elapsed());
    assert_eq!(daemon.output().count(ANSWERS), 1);
}
