//! Runs the default installation for 20 minutes, scrapes it as Prometheus does, and evaluates the alerts afterwards.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde_json::json;

use super::evaluate;
use crate::rights::site::{Scrape, Site};

/// Prometheus's usual scrape interval.
const INTERVAL: Duration = Duration::from_secs(15);
const SCRAPES: usize = 80;

/// The unchanged manifests, two replicas and four Nodes that join. No Service is read, because the form `base` does not
/// grant that right.
#[tokio::test]
async fn the_default_install_raises_no_alert_above_info_in_20_minutes() {
    let scrapes = Site::ours("base").await.scraped(INTERVAL, SCRAPES).await;
    let verdict = evaluate(&case(&scrapes, SCRAPES)).await;
    assert_eq!(verdict["problems"], json!([]));
}

/// Tests the check itself with a process that never becomes leader.
#[tokio::test]
async fn an_install_without_a_leader_raises_one() {
    let scrape = |number| {
        let text = "process_start_time_seconds 1\nleader_election_master_status{name=\"ccm\"} 0\n";
        Scrape { pod: 1, number, text: text.to_owned() }
    };
    let verdict = evaluate(&case(&(0..SCRAPES).map(scrape).collect::<Vec<_>>(), SCRAPES)).await;
    assert!(verdict["problems"].to_string().contains("VsphereCcmNoLeader"), "{verdict}");
}

/// Converts the scrapes into one case for the tool with Prometheus's engine. Each scrape adds `up`, as in Prometheus.
fn case(scrapes: &[Scrape], count: usize) -> String {
    let mut series: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for scrape in scrapes {
        let lines = scrape.text.lines().chain(["up 1"]);
        for line in lines.filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let target = format!("instance=\"cp-{0}:10258\",pod=\"ccm-{0}\"}}", scrape.pod);
            let name = match name.strip_suffix('}') {
                Some(labels) => format!("{labels},{target}"),
                None => format!("{name}{{{target}"),
            };
            let values = series.entry(name).or_insert_with(|| vec!["_"; count]);
            values[scrape.number] = value;
        }
    }
    let end = INTERVAL.as_secs() * u64::try_from(count - 1).unwrap();
    let labels = json!({"job": "vsphere-cloud-controller-manager", "cluster": "a", "namespace": "kube-system"});
    let mut case = format!(
        "target_labels: {labels}\ntests:\n- name: the first minutes\n  interval: {}s\n  quiet: [critical, warning]\n  \
         alert_rule_test: [{{eval_time: {end}s, alertname: VsphereCcmNoLeader}}]\n  input_series:\n",
        INTERVAL.as_secs()
    );
    for (name, values) in series {
        writeln!(case, "  - {{series: {}, values: {}}}", json!(name), json!(values.join(" "))).unwrap();
    }
    case
}
