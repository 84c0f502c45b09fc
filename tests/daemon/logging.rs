//! The log in the format of klog, and the absence of log lines while nothing changes.

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::Value;
use support::{Daemon, Vcenter, eventually};

use crate::cluster::{ANSWERS, Cluster, LIMIT};

/// Waits until the Lease has been renewed this many times.
async fn renewed(leases: &Api<Lease>, name: &str, times: usize, daemon: &Daemon) {
    let renewal = async || leases.get_opt(name).await.unwrap().and_then(|lease| lease.spec?.renew_time);
    for _ in 0..times {
        let before = renewal().await;
        eventually("the lease is renewed", LIMIT, async || match renewal().await {
            now if now != before => Ok(()),
            _ => Err(daemon.output().tail(20)),
        })
        .await;
    }
}

#[tokio::test]
async fn a_quiet_cluster_logs_nothing() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    cluster.register(0..3).await;
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    // All periodic work happens every second.
    let often = [
        "-v=0",
        "--leader-elect=true",
        &lease,
        "--leader-elect-retry-period=1s",
        "--node-status-update-frequency=1s",
        "--node-monitor-period=1s",
        "--tag-poll-interval=1s",
    ];
    let daemon = cluster.start_for(&vcenter, &often).await;
    cluster.wait_until_initialized(0..3, &daemon).await;
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "kube-system");
    renewed(&leases, cluster.pool(), 3, &daemon).await;
    let before = daemon.output().lines();
    renewed(&leases, cluster.pool(), 10, &daemon).await;
    let after = daemon.output().lines();
    assert!(before.len() > 3, "what it did at first is logged: {before:#?}");
    assert_eq!(after[before.len()..], [] as [String; 0], "it logs although nothing happens");
}

/// Whether the line matches klog's regular expression `^([IWEF])(\d{4}) (\d\d:\d\d:\d\d\.\d{6}) +(\d+) ([^:\]]+:\d+)\]
/// (.*)$`.
fn is_text(line: &str) -> bool {
    let shape =
        |text: &str| text.chars().map(|char| if char.is_ascii_digit() { '0' } else { char }).collect::<String>();
    let Some((header, rest)) = line.split_once("] ") else { return false };
    let Some((severity, header)) = header.split_at_checked(1) else { return false };
    let words: Vec<&str> = header.split_whitespace().collect();
    let [day, time, process, place] = words.as_slice() else { return false };
    "IWE".contains(severity)
        && shape(day) == "0000"
        && shape(time) == "00:00:00.000000"
        && process.parse::<u32>().is_ok()
        && header.len() >= 30
        && place.split_once(':').is_some_and(|(file, line)| file.ends_with(".rs") && line.parse::<u32>().is_ok())
        && rest.starts_with('"')
}

fn check_json(line: &str) -> Value {
    let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let milliseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0;
    let age = milliseconds - object["ts"].as_f64().unwrap();
    assert!((-1000.0..600_000.0).contains(&age), "{age} ms old: {line}");
    let (file, number) = object["caller"].as_str().and_then(|caller| caller.split_once(':')).unwrap();
    assert!(file.ends_with(".rs") && file.matches('/').count() <= 1 && number.parse::<u32>().is_ok(), "{line}");
    assert!(object["msg"].as_str().is_some_and(|message| !message.is_empty()), "{line}");
    assert!(object.get("v").is_none_or(|verbosity| [0, 4, 6].contains(&verbosity.as_u64().unwrap())), "{line}");
    object
}

#[tokio::test]
async fn every_line_is_one_that_parsers_of_klog_know() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    cluster.register(0..2).await;

    let mut daemon = cluster.start_for(&vcenter, &["-v=10"]).await;
    cluster.wait_until_initialized(0..2, &daemon).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    let lines = daemon.output().lines();
    let odd: Vec<_> = lines.iter().filter(|line| !is_text(line)).collect();
    assert!(odd.is_empty() && lines.len() > 20, "{odd:#?} of {}", lines.len());
    let server = format!("127.0.0.1:{}", vcenter.port());
    let answers = lines.iter().find(|line| line.contains(ANSWERS)).unwrap();
    let words = [" logger=\"", &format!(" vcenter=\"{server}\"")];
    assert!(answers.starts_with('I') && words.iter().all(|word| answers.contains(word)), "{answers}");
    let last = lines.last().unwrap();
    assert!(last.ends_with("] \"stopped\""), "the last line is written before the process ends: {last}");

    let json = ["-v=10", "--logging-format=json"];
    let mut daemon = cluster.start_for(&vcenter, &json).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    let objects: Vec<_> = daemon.output().lines().iter().map(|line| check_json(line)).collect();
    let answers = objects.iter().find(|object| object["msg"] == ANSWERS).unwrap();
    assert_eq!((&answers["v"], &answers["vcenter"]), (&0.into(), &Value::from(server)), "{answers}");
    assert!(objects.iter().any(|object| object["v"] == 4), "the level is high");
}
