//! `plan`: what is announced for a Node is what is written once the API server permits it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::fake_nsx::{FakeNsx, Model};
use support::rbac::{self, Subject};
use support::{ApiServer, Vcenter, eventually};

use super::observer::{self, writes};
use super::{CommandResult, ask, compare_with_page, json as json_of, normalised, start_candidate};
use crate::cluster::{Cluster, LIMIT};

/// Creates a service account that may read Nodes and not change them. Returns the flag with its kubeconfig.
async fn account_without_writes(cluster: &Cluster) -> String {
    let name = cluster.pool();
    let (kubeconfig, _) = ApiServer::shared().await.create_service_account("kube-system", name).await;
    let all = json!(["*"]);
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": all},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": all},
    ]);
    let account = Subject::ServiceAccount("kube-system", name);
    rbac::grant(&cluster.client, None, &format!("{name}-reads"), account, rules).await;
    format!("--kubeconfig={}", kubeconfig.display())
}

async fn permit_writes(cluster: &Cluster) {
    let name = cluster.pool();
    let rules = json!([{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch", "update"]}]);
    let account = Subject::ServiceAccount("kube-system", name);
    rbac::grant(&cluster.client, None, &format!("{name}-writes"), account, rules).await;
}

/// Returns the value of a field, as `plan` shows it. An address has the field of its type.
fn values(node: &Node) -> BTreeMap<String, Vec<String>> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |field: String, value: &str| values.entry(field).or_default().push(value.to_owned());
    let node: Value = serde_json::to_value(node).unwrap();
    if let Some(id) = node["spec"]["providerID"].as_str() {
        add("provider ID".to_owned(), id);
    }
    for taint in node["spec"]["taints"].as_array().into_iter().flatten() {
        let value = taint["value"].as_str().filter(|value| !value.is_empty()).map(|value| format!("{value}:"));
        let text = format!("{}{}", value.unwrap_or_default(), taint["effect"].as_str().unwrap());
        add(format!("taint {}", taint["key"].as_str().unwrap()), &text);
    }
    for (kind, key) in [("label", "labels"), ("annotation", "annotations")] {
        for (name, value) in node["metadata"][key].as_object().into_iter().flatten() {
            add(format!("{kind} {name}"), value.as_str().unwrap());
        }
    }
    for address in node["status"]["addresses"].as_array().into_iter().flatten() {
        add(format!("address {}", address["type"].as_str().unwrap()), address["address"].as_str().unwrap());
    }
    values
}

/// Returns the changes of a Node in the report.
fn changes_of(report: &Value, name: &str) -> Vec<Value> {
    let objects = report["nodes"]["objects"].as_array().unwrap();
    let object = objects.iter().find(|object| object["name"] == name);
    object.map(|object| object["changes"].as_array().unwrap().clone()).unwrap_or_default()
}

fn has(changes: &[Value], kind: &str, reason: &str) -> bool {
    changes.iter().any(|change| change["kind"] == kind && change["reason"] == reason)
}

/// Checks that the announced updates are those between two versions of a Node that waited for its initialization.
fn assert_written(changes: &[Value], before: &Node, after: &Node) {
    let present = values(before);
    let written = values(after);
    let is_update = |change: &&Value| {
        // A condition says why the Node waits, and has another value once it does not wait.
        change["kind"] == "update" && !change["field"].as_str().unwrap().starts_with("condition ")
    };
    let updates: Vec<&Value> = changes.iter().filter(is_update).collect();
    assert!(updates.len() > 8, "{updates:#?}");
    for change in updates {
        let field = change["field"].as_str().unwrap();
        let has_value = |values: &BTreeMap<String, Vec<String>>, value: &Value| match value.as_str() {
            Some(value) => values.get(field).is_some_and(|all| all.iter().any(|one| one == value)),
            // An address of the type may stay.
            None => field.starts_with("address ") || !values.contains_key(field),
        };
        assert!(has_value(&present, &change["present"]), "{change} {present:#?}");
        assert!(has_value(&written, &change["planned"]), "{change} {written:#?}");
    }
}

/// Indentation of a continued line.
const INDENT: usize = 15;

/// Replaces the names of the cluster, and what differs between two runs. Breaks the lines again, because the names of
/// the test have other lengths.
fn screen_of(output: &str, cluster: &Cluster, vcenter: &Vcenter) -> String {
    let indent = " ".repeat(INDENT);
    let output = output.replace(cluster.pool(), "worker").replace(vcenter.instance_uuid(), "VCENTER");
    let output = output.replace(&format!("\n{indent}"), " ");
    // A Node that waits for 30 s gets the condition, which a slow run may show.
    let lines: Vec<&str> = output.lines().filter(|line| !line.contains("condition VSphereInitialized")).collect();
    let mut broken: Vec<String> = Vec::new();
    for line in normalised(&lines.join("\n"), vcenter).lines() {
        let mut rest = line.to_owned();
        while let Some((end, char)) = rest.char_indices().nth(100) {
            let at = rest.split_at(end + char.len_utf8()).0.rfind(' ').filter(|at| *at > INDENT).unwrap_or(end);
            let (line, next) = rest.split_at(at);
            broken.push(line.to_owned());
            rest = format!("{indent}{}", next.trim_start());
        }
        broken.push(rest);
    }
    broken.join("\n")
}

#[tokio::test]
async fn what_is_announced_for_a_node_is_written_next() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let kubeconfig = account_without_writes(&cluster).await;
    let daemon = cluster.start_for(&vcenter, &[&kubeconfig]).await;
    cluster.register(0..3).await;
    let [joins, other, unknown] = [0, 1, 2].map(|number| cluster.name(number));

    let announced = eventually("the writes are refused and a VM is not known", LIMIT, async || {
        let (code, report) = json_of(&daemon, &["plan"]).await;
        let is_refused = [&joins, &other].iter().all(|name| has(&changes_of(&report, name), "hold", "WriteRefused"));
        let is_unknown = has(&changes_of(&report, &unknown), "unknown", "VMNotFound");
        if code == Some(1) && is_refused && is_unknown { Ok(report) } else { Err(format!("{code:?} {report:#}")) }
    })
    .await;
    assert_eq!((&announced["kind"], &announced["result"]), (&json!("Plan"), &json!("findings")));
    let counts = &announced["nodes"]["counts"];
    let numbers = ["objects", "held", "unknown", "unchanged"].map(|field| counts[field].as_u64().unwrap());
    assert_eq!(numbers, [3, 2, 1, 0], "{announced:#}");
    assert_eq!(announced["loadBalancers"]["state"], "off", "{announced:#}");
    let screen = ask(&daemon, &["plan"]).await.output;
    compare_with_page("plan", &screen_of(&screen, &cluster, &vcenter));

    let selected = ask(&daemon, &["plan", &format!("--node={joins}")]).await;
    assert!(selected.output.contains(&joins) && !selected.output.contains(&other), "{}", selected.output);
    assert!(selected.output.contains("Load balancers: not planned: --node selects a Node\n"), "{}", selected.output);
    let nearest = ask(&daemon, &["plan", &format!("--node={joins}0")]).await;
    assert_eq!((nearest.code, nearest.output.as_str()), (Some(2), ""));
    assert!(nearest.messages.contains(&format!("the nearest names are {joins}, ")), "{}", nearest.messages);

    let nodes = Api::<Node>::all(cluster.client.clone());
    let before = nodes.get(&joins).await.unwrap();
    permit_writes(&cluster).await;
    for name in [&joins, &other] {
        // The event enqueues the Node, which otherwise waits for its backoff.
        let change = json!({"metadata": {"annotations": {"test.example/event": "1"}}});
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }
    cluster.wait_until_initialized(0..2, &daemon).await;
    assert_written(&changes_of(&announced, &joins), &before, &nodes.get(&joins).await.unwrap());

    let incomplete = ask(&daemon, &["plan", "--wait", "--timeout=2s"]).await;
    assert!(incomplete.code == Some(1) || incomplete.code == Some(3), "{}", incomplete.output);
    nodes.delete(&unknown, &DeleteParams::default()).await.unwrap();
    let settled = ask(&daemon, &["plan", "--wait", "--timeout=60s"]).await;
    assert_eq!(settled.code, Some(0), "{}{}", settled.output, settled.messages);
    let last = "no change: 0 created, 0 updated, 0 deleted, 0 adopted, 0 held, 0 unknown, 2 need nothing\n";
    assert!(settled.output.ends_with(last), "{}", settled.output);
    for output in [screen, settled.output, announced.to_string()] {
        assert!(!output.contains(vcenter.password()), "{output}");
    }
}

#[tokio::test]
async fn a_standby_has_no_plan_and_names_the_leader() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let leader = start_candidate(&cluster, &vcenter).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &leader).await;
    let waited = ask(&leader, &["plan", "--wait", "--quiet", "--timeout=60s"]).await;
    assert_eq!((waited.code, waited.output.as_str()), (Some(0), ""), "{}", waited.messages);

    let standby = start_candidate(&cluster, &vcenter).await;
    eventually("the standby says so", LIMIT, async || {
        let CommandResult { code, output, messages } = ask(&standby, &["plan"]).await;
        let parts = ["standby ", "kubectl", "Nodes: not known: this process does not lead", "\nnot known: Nodes, "];
        let is_said = parts.iter().all(|part| output.contains(part));
        let last = output.lines().last().unwrap_or_default().to_owned();
        match code == Some(3) && is_said && last.starts_with("incomplete: ") {
            true => Ok(()),
            false => Err(format!("{code:?} {output}{messages}")),
        }
    })
    .await;
}

/// A rehearsal: the plan is made beside another program, and the daemon then makes it true.
#[tokio::test]
async fn a_rehearsal_writes_nothing_and_announces_what_the_daemon_then_writes() {
    let server = ApiServer::audited().await;
    let cluster = Cluster::on(&server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    cluster.register(0..2).await;
    let versions = cluster.versions().await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let site = observer::Site::new(&cluster, &server, &config);
    let (code, announced) = site.json(&["plan", "--compare"]).await;
    assert_eq!((code, &announced["isDetached"]), (Some(1), &json!(true)), "{announced:#}");
    assert_eq!(announced["nodes"]["counts"]["updated"], 2, "{announced:#}");
    assert_eq!(cluster.versions().await, versions, "no Node was written");
    let is_of_throttle = |name: &str| name.starts_with("vsphere-ccm-logins-");
    for event in writes(&server) {
        let created = event.request_object["metadata"]["name"].as_str().unwrap_or_default();
        assert!(is_of_throttle(&event.object_ref.name) || is_of_throttle(created), "{event:?}");
    }
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_logins, counts.soap_sessions, counts.rest_sessions), (1, 0, 0), "{counts:?}");

    let name = cluster.name(0);
    let nodes = Api::<Node>::all(cluster.client.clone());
    let before = nodes.get(&name).await.unwrap();
    let daemon = cluster.start_for(&vcenter, &[]).await;
    cluster.wait_until_initialized(0..2, &daemon).await;
    assert_written(&changes_of(&announced, &name), &before, &nodes.get(&name).await.unwrap());
    let settled = site.run(&["plan", "--compare"]).await;
    assert_eq!(settled.code, Some(0), "{}{}", settled.output, settled.messages);
    assert!(settled.output.starts_with("read from ") && settled.output.contains("\nno change: "), "{}", settled.output);
    assert!(!settled.output.contains(vcenter.password()), "{}", settled.output);
}

/// Another `vsphere.conf`, with routes, is tried without a process.
#[tokio::test]
async fn another_configuration_is_planned_without_a_change_in_nsx() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    cluster.kubelet(0).pod_cidrs(&["10.244.0.0/24"]).register(&cluster.client).await;
    let nsx = FakeNsx::start(Model::small().user("ccm", "Correct-Horse-1")).await;
    let ca_file = cluster.folder().join(format!("{}-plan-ca.pem", cluster.pool()));
    std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
    let section = vcenter.ini_section("vc-1", "dc-1");
    let (host, ca_file) = (nsx.address(), ca_file.display());
    let login = format!("[NSXT]\nhost = {host}\nca-file = {ca_file}\nuser = ccm\npassword = Correct-Horse-1\n");
    let config = format!("{}\n{login}[Route]\nrouter-path = /infra/tier-1s/t1\n", Cluster::zoned(&[section]));
    let mut site = observer::Site::new(&cluster, ApiServer::shared().await, &config);
    site.flags.push(format!("--cluster-name={}", cluster.pool()));
    site.flags.push("--cluster-cidr=10.244.0.0/16".to_owned());
    let before = nsx.objects();
    let (code, plan) = site.json(&["plan"]).await;
    let of_routes = &plan["routes"];
    assert_eq!((code, &of_routes["counts"]["created"]), (Some(1), &json!(1)), "{plan:#}");
    let route = &of_routes["objects"][0];
    assert_eq!((&route["name"], &route["changes"][0]["kind"]), (&json!("10.244.0.0/24"), &json!("create")), "{plan:#}");
    assert_eq!(nsx.objects(), before);
    assert_eq!(nsx.login_attempts().len(), 1, "{:?}", nsx.login_attempts());
}
