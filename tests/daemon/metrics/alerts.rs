//! The alerts: their expressions, their page, and the conditions under which they fire.

mod nightly;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use support::components::Component;

use super::{merging_clusters, page, read, read_with, texts, unknown};
use crate::manifests::kustomize::piped;

const RULES: &str = "manifests/monitoring/alerts.yaml";

async fn rules() -> Vec<Value> {
    let rules = read("rules", &page(RULES)).await.as_array().unwrap().clone();
    assert!(rules.len() > 15, "{rules:?}");
    rules
}

/// Returns the result of Prometheus's engine for the cases of this file.
async fn evaluate(cases: &str) -> Value {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join(RULES);
    read_with(&["test", rules.to_str().unwrap()], cases).await
}

#[tokio::test]
async fn alerts_ask_for_series_that_exist_and_say_what_to_do() {
    let rules = rules().await;
    let expressions: Vec<&str> = rules.iter().map(|rule| rule["expression"].as_str().unwrap()).collect();
    assert_eq!(unknown(&expressions).await, Vec::<String>::new());
    assert_eq!(merging_clusters(&expressions).await, Vec::<String>::new());
    let runbook = page("docs/alerts.md");
    let addresses = page("manifests/addresses.env");
    let base = addresses.lines().find_map(|line| line.strip_prefix("RUNBOOKS=")).unwrap();
    for rule in &rules {
        let name = rule["alert"].as_str().unwrap();
        let annotation = |key: &str| rule["annotations"][key].as_str().unwrap_or_else(|| panic!("{name} has no {key}"));
        assert!(!annotation("summary").is_empty() && annotation("description").ends_with('.'), "{rule}");
        assert_eq!(annotation("runbook_url"), format!("{base}#{}", name.to_lowercase()));
        assert!(runbook.lines().any(|line| line == format!("## {name}")), "{name} is not in docs/alerts.md");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{rule}");
        let row = format!("| [{name}](#{}) | ", name.to_lowercase());
        let row = runbook.lines().find(|line| line.starts_with(&row));
        assert!(row.is_some_and(|row| row.contains(severity)), "{name} is not in the table of docs/alerts.md: {row:?}");
    }
    let sections = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    for name in sections.filter(|name| name.starts_with("VsphereCcm")) {
        assert!(rules.iter().any(|rule| rule["alert"] == name), "{name} is no alert");
    }
}

#[tokio::test]
async fn each_alert_fires_in_its_case_and_only_there() {
    let (mut problems, mut firing, mut silent) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let page = page("tests/daemon/metrics/alerts.yaml");
    let (head, cases) = page.split_once("\ntests:\n").unwrap();
    // One process for each case. All cases together would exceed the CPU limit of one process on a busy machine.
    for case in cases.split("\n- name: ").skip(1) {
        let verdict = evaluate(&format!("{head}\ntests:\n- name: {case}")).await;
        problems.extend(texts(&verdict["problems"]));
        firing.extend(texts(&verdict["firing"]));
        silent.extend(texts(&verdict["silent"]));
    }
    assert!(problems.is_empty(), "{problems:#?}");
    for rule in rules().await {
        let name = rule["alert"].as_str().unwrap();
        assert!(firing.contains(name), "{name} fires in no case");
        assert!(silent.contains(name), "no case shows that {name} does not fire");
    }
}

/// Tests the check itself.
#[tokio::test]
async fn a_wrong_expectation_is_noticed() {
    let case = |series: &str, values: &str, expectation: &str| {
        format!(
            "tests:\n- name: a case\n  input_series:\n  - {{series: '{series}', values: '{values}'}}\n  {expectation}\n"
        )
    };
    let memory = "process_resident_memory_bytes{job=\"vsphere-cloud-controller-manager\"}";
    let expected = |alerts: &str| {
        format!("alert_rule_test: [{{eval_time: 1h, alertname: VsphereCcmMemory, exp_alerts: [{alerts}]}}]")
    };
    let fires = "{exp_labels: {job: vsphere-cloud-controller-manager, severity: warning}}";
    let other_text = fires.replace("}}", "}, exp_annotations: {summary: no}}");
    let (much, little) = ("1000000000x60", "1x60");
    for (series, values, expectation, problems) in [
        (memory, much, expected(fires), 0),
        (memory, little, expected(""), 0),
        (memory, much, expected(""), 1),
        (memory, little, expected(fires), 1),
        (memory, much, expected(&other_text), 1),
        (memory, much, expected(&fires.replace("warning", "critical")), 2),
        (memory, much, format!("quiet: [warning]\n  {}", expected(fires)), 1),
        ("other", little, expected(""), 1),
        (memory, "one", expected(""), 1),
    ] {
        let verdict = evaluate(&case(series, values, &expectation)).await;
        assert_eq!(verdict["problems"].as_array().unwrap().len(), problems, "{expectation} of {values}: {verdict:#}");
    }
    let misspelt = case(memory, little, "alert_rule_tests: []");
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join(RULES);
    let arguments = ["test".to_owned(), rules.to_str().unwrap().to_owned()];
    let answer = piped(&Component::Metrics.path(), &arguments, &misspelt).await;
    assert!(answer.is_err(), "{answer:?}");
    let broken = "spec:\n  groups:\n  - name: a\n    rules:\n    - alert: A\n      expr: 'rate('\n";
    let answer = piped(&Component::Metrics.path(), &["rules".to_owned()], broken).await;
    assert!(answer.is_err(), "{answer:?}");
}
