//! The daemon's metrics, and the expressions in alerts and dashboards, read by Prometheus's own parsers.

mod alerts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use support::components::Component;
use support::{ApiServer, Vcenter, eventually};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, LIMIT};
use crate::manifests::kustomize::{form, kubectl, piped};

/// Labels that Prometheus adds to scraped series. `cluster` is for several clusters with one Prometheus.
const OF_THE_TARGET: &[&str] = &["cluster", "job", "instance", "namespace", "pod"];

/// Series of other programs, with their labels: Prometheus itself and kube-state-metrics.
const OF_OTHERS: &[(&str, &[&str])] = &[
    ("up", &[]),
    ("kube_daemonset_status_desired_number_scheduled", &["daemonset"]),
    ("kube_daemonset_status_number_available", &["daemonset"]),
    ("kube_deployment_spec_replicas", &["deployment"]),
    ("kube_deployment_status_replicas_available", &["deployment"]),
];

/// Findings of promlint in names that Kubernetes defines.
const AS_IN_GO: &[&str] = &["authenticated_user_requests: ", "authentication_attempts: "];

/// Returns the output of the tool with Prometheus's parsers for this input.
async fn read(what: &str, input: &str) -> Value {
    read_with(&[what], input).await
}

async fn read_with(arguments: &[&str], input: &str) -> Value {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let answer = piped(&Component::Metrics.path(), &arguments, input).await;
    serde_json::from_str(&answer.unwrap_or_else(|error| panic!("{arguments:?}: {error}"))).unwrap()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Type and labels of a series.
#[derive(Debug, PartialEq, Eq)]
struct Series {
    kind: String,
    labels: BTreeSet<String>,
}

/// Returns the series in `docs/metrics.md`. Another test compares that page with the registered series.
fn documented() -> BTreeMap<String, Series> {
    let page = page("docs/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
        let [name, kind, labels, _] = cells.as_slice() else { return None };
        let labels = labels.split(", ").map(|label| label.trim_matches([' ', '`'])).filter(|label| !label.is_empty());
        let series = Series { kind: (*kind).to_owned(), labels: labels.map(str::to_owned).collect() };
        ["counter", "gauge", "histogram"].contains(kind).then(|| (name.trim_matches('`').to_owned(), series))
    });
    rows.collect()
}

fn texts(value: &Value) -> BTreeSet<String> {
    // Go encodes an empty list as `null`.
    let items = value.as_array().into_iter().flatten();
    items.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Returns lines that exist when three nodes are initialized.
fn counted(cluster: &Cluster) -> Vec<String> {
    let lines = [
        "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node\"} 1",
        "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node-lifecycle\"} 1",
        "workqueue_unfinished_work_seconds{name=\"Nodes\"} 0",
        "workqueue_depth{name=\"NodeLifecycle\"} 0",
        "node_controller_initial_node_sync_delay_seconds_count 3",
        "vsphere_ccm_nodes_uninitialized 0",
        "vsphere_ccm_nodes 3",
    ];
    let leads = format!("leader_election_master_status{{name=\"{}\"}} 1", cluster.pool());
    lines.map(str::to_owned).into_iter().chain([leads]).collect()
}

#[tokio::test]
async fn everything_exposed_is_well_formed_documented_and_as_in_the_go_program() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let admin = Admin::new();
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let mut daemon = cluster.start_for(&vcenter, &[&admin.flag(), "--leader-elect=true", &lease]).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &daemon).await;
    let token = token(&cluster).await;
    // A metric may change shortly after the event.
    let text = eventually("everything is counted", LIMIT, async || {
        let (status, text) = admin.get("/metrics", Some(&token), &mut daemon).await;
        assert_eq!(status, 200, "{text}");
        match counted(&cluster).into_iter().find(|line| !text.lines().any(|have| have == line)) {
            Some(missing) => Err(format!("{missing} is not in {text}")),
            None => Ok(text),
        }
    })
    .await;

    let exposition = read("exposition", &text).await;
    let problems = texts(&exposition["problems"]);
    let ours: Vec<_> =
        problems.iter().filter(|problem| !AS_IN_GO.iter().any(|known| problem.starts_with(known))).collect();
    assert!(ours.is_empty(), "{ours:#?}");
    let documented = documented();
    let families = exposition["families"].as_array().unwrap();
    for family in families {
        let name = family["name"].as_str().unwrap();
        let series = Series { kind: family["type"].as_str().unwrap().to_owned(), labels: texts(&family["labels"]) };
        assert_eq!(documented.get(name), Some(&series), "{name}");
    }

    let bounds = |name: &str| -> Vec<f64> {
        let family =
            families.iter().find(|family| family["name"] == name).unwrap_or_else(|| panic!("{name} in {text}"));
        family["bounds"].as_array().unwrap().iter().map(|bound| bound.as_f64().unwrap()).collect()
    };
    let seconds = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
    let work: Vec<f64> = std::iter::successors(Some(10e-9), |bound| Some(bound * 10.0)).take(10).collect();
    for (name, expected) in [
        ("workqueue_queue_duration_seconds", work.as_slice()),
        ("workqueue_work_duration_seconds", &work),
        ("rest_client_request_duration_seconds", &seconds),
        ("rest_client_rate_limiter_duration_seconds", &seconds),
        ("node_controller_initial_node_sync_delay_seconds", &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]),
        ("node_controller_cloud_provider_taint_removal_delay_seconds", &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]),
    ] {
        let found = bounds(name);
        // The JSON reader differs in the last digit. A check below covers the spelling of the bounds.
        let is_same = |(found, expected): (&f64, &f64)| (found - expected).abs() <= 1e-12 * expected;
        let are_same = found.len() == expected.len() && found.iter().zip(expected).all(is_same);
        assert!(are_same, "{name}: {found:?}, expected {expected:?}");
    }
    for begin in [
        "workqueue_adds_total{name=\"Nodes\"} ",
        "workqueue_queue_duration_seconds_bucket{name=\"Nodes\",le=\"9.999999999999999e-06\"} ",
        "rest_client_requests_total{code=\"200\",host=\"127.0.0.1:",
        "kubernetes_build_info{",
        "process_start_time_seconds ",
    ] {
        assert!(text.lines().any(|have| have.starts_with(begin)), "{begin} in {text}");
    }
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

/// Returns the series with this name, or the histogram that it belongs to.
fn find<'a>(documented: &'a BTreeMap<String, Series>, name: &str) -> Option<(&'a Series, bool)> {
    if let Some(series) = documented.get(name) {
        return (series.kind != "histogram").then_some((series, false));
    }
    let (suffix, base) =
        ["_bucket", "_sum", "_count"].iter().find_map(|suffix| Some((*suffix, name.strip_suffix(suffix)?)))?;
    let series = documented.get(base).filter(|series| series.kind == "histogram")?;
    Some((series, suffix == "_bucket"))
}

/// Returns the series and labels in expressions that do not exist.
async fn unknown(expressions: &[&str]) -> Vec<String> {
    let mut documented = documented();
    assert!(documented.len() > 40, "{documented:?}");
    documented.extend(OF_OTHERS.iter().map(|(name, labels)| {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        ((*name).to_owned(), Series { kind: "gauge".to_owned(), labels })
    }));
    let mut wrong = Vec::new();
    for expression in read("expressions", &json!(expressions).to_string()).await.as_array().unwrap() {
        let text = &expression["expression"];
        for selector in expression["selectors"].as_array().unwrap() {
            let name = selector["series"].as_str().unwrap();
            let Some((series, is_bucket)) = find(&documented, name) else {
                wrong.push(format!("{text}: no series {name}"));
                continue;
            };
            for label in texts(&selector["labels"]) {
                let is_there = series.labels.contains(&label)
                    || OF_THE_TARGET.contains(&label.as_str())
                    || (is_bucket && label == "le");
                if !is_there {
                    wrong.push(format!("{text}: {name} has no label {label}"));
                }
            }
        }
    }
    wrong
}

/// Returns the aggregations and joins that merge several clusters of one Prometheus.
async fn merging_clusters(expressions: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for expression in read("expressions", &json!(expressions).to_string()).await.as_array().unwrap() {
        for grouping in expression["groupings"].as_array().unwrap() {
            let labels = texts(grouping);
            if !["cluster", "namespace"].iter().all(|&label| labels.contains(label)) {
                wrong.push(format!("{}: {labels:?}", expression["expression"]));
            }
        }
    }
    wrong
}

/// Returns the expressions of the dashboard: of panels, annotations and variables.
fn dashboard_expressions(dashboard: &Value) -> Vec<&str> {
    let list = |value: &'static str| dashboard[value]["list"].as_array().unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
    let targets = panels.flat_map(|panel| {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        targets
    });
    let of_panels = targets.chain(list("annotations")).map(|target| target["expr"].as_str().unwrap());
    let variables = list("templating").iter().filter(|variable| variable["type"] == "query");
    let of_variables = variables.map(|variable| {
        let query = variable["query"]["query"].as_str().unwrap();
        let arguments = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        let (expression, label) = arguments.rsplit_once(", ").unwrap();
        assert_eq!(variable["name"], label, "the variable has the name of the label");
        expression
    });
    of_panels.chain(of_variables).collect()
}

#[tokio::test]
async fn the_dashboard_asks_for_series_that_exist_and_keeps_clusters_apart() {
    let dashboard: Value = serde_json::from_str(&page("manifests/monitoring/dashboard.json")).unwrap();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels of one number: {panel}");
    }
    let expressions = dashboard_expressions(&dashboard);
    assert!(expressions.len() > 50, "{expressions:?}");
    assert_eq!(unknown(&expressions).await, Vec::<String>::new());
    assert_eq!(merging_clusters(&expressions).await, Vec::<String>::new());
    // The selection at the head of the dashboard applies to each selector.
    let selectors = |expression: &str| expression.matches('{').count();
    for expression in &expressions {
        let job = expression.matches("{job=~\"$job\"").count();
        let cluster = expression.matches("cluster=~\"$cluster\"").count();
        let is_variable = !expression.contains('(') && *expression == "process_start_time_seconds{job=~\"$job\"}";
        let expected = if is_variable { 0 } else { job };
        assert_eq!((job, cluster), (selectors(expression), expected), "{expression}");
    }
}

#[tokio::test]
async fn the_account_of_the_monitoring_manifests_may_read_the_metrics() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let server = ApiServer::shared().await;
    let objects = &form("monitoring").await.objects;
    let access = |object: &&Value| {
        ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"].iter().any(|&kind| object["kind"] == kind)
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects.iter().filter(access).collect::<Vec<_>>()});
    // With names of its own: another test applies the manifests to this API server.
    let name = format!("{}-metrics", cluster.pool());
    let list = list.to_string().replace("vsphere-cloud-controller-manager-metrics", &name);
    let list = list.replace("system:cloud-controller-manager:metrics", &name);
    kubectl(Some(server), &["apply", "-f", "-"], &list).await.unwrap();
    let told = kubectl(Some(server), &["-n", "kube-system", "create", "token", &name], "").await.unwrap();
    let token = told.trim();
    let admin = Admin::new();
    let mut daemon = cluster.start_for(&vcenter, &[&admin.flag()]).await;
    assert_eq!(admin.get("/metrics", Some(token), &mut daemon).await.0, 200);
    assert_eq!(admin.get("/statusz", Some(token), &mut daemon).await.0, 403);
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

/// Tests the check itself.
#[tokio::test]
async fn what_does_not_exist_is_noticed() {
    let wrong = unknown(&[
        "rate(vsphere_ccm_nothing_total[5m])",
        "sum by (colour) (workqueue_depth)",
        "workqueue_depth{job=\"a\",le=\"1\"}",
        "workqueue_work_duration_seconds",
        "histogram_quantile(0.9, sum by (name, le) (rate(workqueue_work_duration_seconds_bucket[5m])))",
        "sum by (vcenter) (vsphere_ccm_vcenter_up unless on (instance) (workqueue_depth == 0))",
        "sum by (vcenter) (vsphere_ccm_vcenter_up unless on (vcenter) (workqueue_depth == 0))",
    ])
    .await;
    assert_eq!(wrong.len(), 5, "{wrong:#?}");
    let merging = merging_clusters(&[
        "max(workqueue_depth)",
        "sum by (namespace, name) (workqueue_depth)",
        "workqueue_depth and on (cluster, name) workqueue_depth",
        "sum by (cluster, namespace, name) (workqueue_depth)",
    ])
    .await;
    assert_eq!(merging.len(), 3, "{merging:#?}");
    let text = piped(&Component::Metrics.path(), &["exposition".to_owned()], "a{b=c} 1\n").await;
    assert!(text.is_err(), "{text:?}");
}
