//! Runs the commands of the pages as they are there, except names and passwords.
//!
//! A journey is the work of one reader. It runs blocks of commands in order, with its own API server and the vCenter
//! simulator. The test starts no containers. A pod is the daemon's binary, started as the manifests on the API server
//! define.

mod blocks;
mod distributions;
mod pod;
mod reused_values;
mod uninstall;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::pages::{Shell, page, pages, sections};
use support::{ApiServer, Daemon, Scenario, Vcenter, eventually};

use crate::cluster::{ANSWERS, Cluster, LIMIT};
use crate::manifests::kustomize::{kubectl, objects};
use crate::rights::GO_RELEASE;
use blocks::{
    ADOPT, By, CLUSTER_API, HELM, NEW_CLUSTER, PAGES, REPLACE, SCREENS, WORKSTATION, blocks_of, pages_of_journeys,
};
use pod::Pod;

#[test]
fn every_block_of_commands_is_run_or_says_why_it_is_not() {
    let mut listed = Vec::new();
    for name in pages() {
        let sections = sections(&page(&name));
        let there: Vec<(&str, usize)> =
            sections.iter().map(|(heading, blocks)| (heading.as_str(), blocks.len())).collect();
        let page = PAGES.iter().find(|(page, _)| *page == name);
        let expected: Vec<(&str, usize)> =
            page.iter().flat_map(|(_, sections)| *sections).map(|(heading, all)| (*heading, all.len())).collect();
        assert_eq!(there, expected, "{name}: headings with blocks of commands");
        listed.extend(page.map(|(page, _)| *page));
    }
    assert_eq!(listed.len(), PAGES.len(), "{listed:?}");
    for (heading, all) in PAGES.iter().flat_map(|(_, sections)| *sections) {
        for by in *all {
            match by {
                By::Journeys(journeys) => assert!(!journeys.is_empty(), "{heading}"),
                By::Nobody(why) => assert!(why.len() > 20, "{heading}: {why}"),
            }
        }
    }
}

#[test]
fn every_screen_of_commands_has_its_reason() {
    let screens = |name: &String| page(name).lines().filter(|line| line.trim_start() == "```console").count();
    let there: Vec<(String, usize)> =
        pages().into_iter().map(|name| (name.clone(), screens(&name))).filter(|(_, count)| *count > 0).collect();
    let listed: Vec<(String, usize)> = SCREENS.iter().map(|(page, count, _)| ((*page).to_owned(), *count)).collect();
    assert_eq!(there, listed);
}

const ADMINISTRATOR: &str = "administrator@vsphere.local";
const ADMINISTRATOR_PASSWORD: &str = "Adm1n-4711";
/// Account and password of the page.
const ACCOUNT: &str = "k8s-ccm@vsphere.local";
const PASSWORD: &str = "S3cret-4711";

/// A reader with a cluster, a vCenter and a copy of the manifests.
struct Reader {
    server: ApiServer,
    cluster: Cluster,
    vcenter: Vcenter,
    shell: Shell,
    journey: &'static str,
}

impl Reader {
    /// Creates a reader. `scenario` defines the vCenter.
    async fn new(journey: &'static str, scenario: impl Fn(&Cluster) -> Scenario) -> Self {
        let server = ApiServer::start().await;
        let cluster = Cluster::on(&server).await;
        let vcenter = Vcenter::start(&scenario(&cluster)).await;
        let names = [
            ("https://vcenter.example.com", format!("https://{}:{}", vcenter.host(), vcenter.port())),
            ("vcenter.example.com", vcenter.host().to_owned()),
            ("/dc-1/vm/node-1", format!("/dc-1/vm/{}", cluster.name(0))),
        ];
        let shell = Shell::new(&server.kubeconfig(), &pages_of_journeys(), names.into());
        Self { server, cluster, vcenter, shell, journey }
    }

    /// Runs a block of the page.
    async fn run(&mut self, heading: &'static str, number: usize, input: &str) -> String {
        self.shell.run(heading, number, input).await
    }

    /// Starts the pod of the DaemonSet with this name, and waits until its vCenter answers.
    async fn start_pod(&self, set: &str) -> Daemon {
        let pod = Pod::of(&self.server, set, &self.vcenter).await;
        let mut daemon = pod.start();
        daemon.wait_for_line(ANSWERS, LIMIT).await;
        daemon.wait_for_line("became leader", LIMIT).await;
        daemon
    }

    async fn get(&self, what: &[&str]) -> Value {
        let arguments = [&["get", "--output=yaml"], what].concat();
        objects(&kubectl(Some(&self.server), &arguments, "").await.unwrap()).await.remove(0)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client.clone())
    }

    async fn patch_node(&self, number: usize, patch: Value) {
        let name = self.cluster.name(number);
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
        self.nodes().patch(&name, &parameters, &patch).await.unwrap();
        self.nodes().patch_status(&name, &parameters, &patch).await.unwrap();
    }

    async fn set_ready(&self, number: usize, status: &str) {
        support::nodes::set_ready(&self.nodes(), &self.cluster.name(number), status, "").await.unwrap();
    }

    /// Waits until the nodes have their provider IDs and no taint.
    async fn until_initialized(&self, daemon: &Daemon) {
        eventually("the nodes are initialized", LIMIT, async || {
            let views = self.cluster.views().await;
            let is_done = |view: &support::nodes::NodeView| !view.uninitialized && view.provider_id.is_some();
            match !views.is_empty() && views.values().all(is_done) {
                true => Ok(()),
                false => Err(format!("{views:?}\n{}", daemon.output().tail(20))),
            }
        })
        .await;
    }

    /// Checks that the journey ran all its blocks.
    fn end(self) {
        let mut ran = self.shell.ran;
        ran.sort_unstable();
        ran.dedup();
        let mut expected = blocks_of(self.journey);
        expected.sort_unstable();
        assert_eq!(ran, expected);
    }
}

/// Returns a vCenter without tags, whose administrator has another password.
fn untouched(cluster: &Cluster) -> Scenario {
    let empty = Scenario::small().login(ADMINISTRATOR, ADMINISTRATOR_PASSWORD);
    (0..2).fold(empty, |scenario, number| scenario.vm(cluster.vm(number)))
}

/// Returns a vCenter that is prepared, except for tags.
fn prepared(cluster: &Cluster) -> Scenario {
    untouched(cluster).login(ACCOUNT, PASSWORD)
}

#[tokio::test]
async fn a_reader_prepares_vsphere_and_installs_the_manifests_in_a_new_cluster() {
    let mut reader = Reader::new(NEW_CLUSTER, untouched).await;
    reader.run("Steps with kubeadm", 0, "").await;
    let printed = reader.run("Prepare vSphere", 0, "").await;
    let thumbprint = reader.vcenter.sha256_thumbprint().to_owned();
    assert!(printed.trim_end().ends_with(&thumbprint), "{printed}");
    let passwords = format!("{ADMINISTRATOR_PASSWORD}\n{PASSWORD}\n");
    reader.run("Prepare vSphere", 1, &passwords).await;
    let printed = reader.run("Prepare vSphere", 2, &format!("{PASSWORD}\n")).await;
    for expected in [&reader.cluster.name(1), "k8s-region", "k8s-zone", "guestToolsRunning", &reader.cluster.name(0)] {
        assert!(printed.contains(expected), "{expected} in {printed}");
    }

    reader.run("Steps with kubeadm", 2, &format!("{PASSWORD}\n")).await;
    // Edits by the reader: the thumbprint, the tags, the address.
    let edits = [
        ("# thumbprint: .*".to_owned(), format!("thumbprint: \"{thumbprint}\"")),
        ("vcenter.example.com".to_owned(), reader.vcenter.host().to_owned()),
        ("# labels:".to_owned(), "labels:".to_owned()),
        ("#   region:".to_owned(), "  region:".to_owned()),
        ("#   zone:".to_owned(), "  zone:".to_owned()),
    ];
    reader.shell.set_editor(&edits);
    reader.run("Steps with kubeadm", 3, "").await;
    let printed = reader.run("Steps with kubeadm", 4, "").await;
    assert!(printed.ends_with("daemonset.apps/vsphere-cloud-controller-manager created\n"), "{printed}");
    reader.cluster.register(0..2).await;
    let mut daemon = reader.start_pod("vsphere-cloud-controller-manager").await;
    reader.until_initialized(&daemon).await;
    let views = reader.cluster.views().await;
    for view in views.values() {
        let zone = view.label("topology.kubernetes.io/zone");
        assert_eq!((zone, view.label("topology.kubernetes.io/region")), ("zone-a", "region-1"), "{view:?}");
    }
    let printed = reader.run("Verify", 1, "").await;
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.first().is_some_and(|holder| holder.contains('_')), "{printed}");
    let nodes = lines.iter().filter(|line| line.contains("vsphere://")).count();
    assert_eq!((nodes, printed.contains("uninitialized")), (2, false), "{printed}");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    let printed = reader.run("Add components", 0, "").await;
    assert!(printed.contains("daemonset.apps/vsphere-cloud-controller-manager configured\n"), "{printed}");
    let (image, variables) = image_and_variables(&reader, SET).await;
    assert_eq!(image, "registry.example.com/vsphere-cloud-controller-manager:v0.1.0");
    assert_eq!(variables, [DRY_RUN], "with the component no-node-deletion");
    reader.end();
}

#[tokio::test]
async fn a_reader_installs_the_chart_with_the_command_of_the_page() {
    let mut reader = Reader::new(HELM, prepared).await;
    // Same format as `docker login` writes.
    let logins = r#"{"auths": {"registry.example.com": {"auth": "dXNlcjpwYXNzd29yZA=="}}}"#;
    reader.shell.write("registry/config.json", logins);
    reader.run("Private registry", 1, "").await;
    let pull_secret = reader.get(&["secret", "registry-credentials", "--namespace=kube-system"]).await;
    assert_eq!(pull_secret["type"], "kubernetes.io/dockerconfigjson");
    reader.run("Steps with Helm", 0, &format!("{PASSWORD}\n")).await;
    let unreachable = [("https://vcenter.example.com", "https://127.0.0.1:1")];
    let refused = reader.shell.fails("Steps with Helm", 1, &unreachable).await;
    assert!(refused.contains("THUMBPRINT: vCenter did not answer"), "no certificate is left unchecked: {refused}");
    reader.run("Steps with Helm", 1, "").await;
    reader.cluster.register(0..2).await;
    let mut daemon = reader.start_pod(CHART_SET).await;
    reader.until_initialized(&daemon).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));

    // Revision 1 replaces a release of upstream's chart, which is not available here.
    reader.run("Replacing upstream with Helm", 0, "").await;
    assert_eq!(image_and_variables(&reader, CHART_SET).await.1, [DRY_RUN]);
    reader.run("Replacing upstream with Helm", 1, "").await;
    assert_eq!(image_and_variables(&reader, CHART_SET).await.1, Vec::<String>::new());
    let printed = reader.run("Going back with Helm", 0, "").await;
    assert!(printed.ends_with("the release sets no variables\n"), "{printed}");
    let printed = reader.run("Going back with Helm", 1, "").await;
    assert!(printed.contains(SKIPS), "the rollback keeps it: {printed}");
    reader.run("Remove the program", 1, "").await;
    let left = ["get", "daemonsets", "--namespace=kube-system", "--output=name"];
    assert_eq!(kubectl(Some(&reader.server), &left, "").await.unwrap(), "");
    reader.end();
}

/// Returns upstream's release manifest with the configuration of this vCenter.
async fn upstream(reader: &Reader) -> String {
    let mut release = objects(GO_RELEASE).await;
    for object in &mut release {
        match object["kind"].as_str() {
            Some("ConfigMap") => {
                let text = format!(
                    "global:\n  port: 443\n  thumbprint: \"{}\"\n  secretName: vsphere-cloud-secret\n  secretNamespace: \
                     kube-system\nvcenter:\n  vc:\n    server: {}\n    datacenters: [dc-1]\n",
                    reader.vcenter.sha1_thumbprint(),
                    reader.vcenter.host()
                );
                object["data"] = json!({"vsphere.conf": text});
            }
            Some("Secret") => {
                let host = reader.vcenter.host();
                object["stringData"] =
                    json!({format!("{host}.username"): ACCOUNT, format!("{host}.password"): PASSWORD});
            }
            _ => {}
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": release}).to_string()
}

const SET: &str = "vsphere-cloud-controller-manager";
const CHART_SET: &str = "vsphere-cpi";
/// Image of this program on the pages.
const IMAGE: &str = "registry.example.com/vsphere-cloud-controller-manager:v0.1.0";
const DRY_RUN: &str = "CCM_NODE_DELETION=dry-run";
const SKIPS: &str = "SKIP_NODE_DELETION=true";

/// Returns the image of the DaemonSet's container, and its variables as `NAME=value`.
async fn image_and_variables(reader: &Reader, set: &str) -> (String, Vec<String>) {
    let set = reader.get(&["daemonset", set, "--namespace=kube-system"]).await;
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown = variables.iter().map(|variable| format!("{}={}", text(&variable["name"]), text(&variable["value"])));
    (text(&container["image"]), shown.collect())
}

/// The image reference changes and the variables are upstream's. The pods always run this program, because upstream's
/// is not available here. The test covers the effect of the commands on objects, permissions and Nodes.
#[tokio::test]
async fn a_reader_replaces_upstream_and_goes_back() {
    let mut reader = Reader::new(REPLACE, prepared).await;
    let release = upstream(&reader).await;
    kubectl(Some(&reader.server), &["apply", "-f", "-"], &release).await.unwrap();
    let mut daemon = reader.start_pod(SET).await;
    reader.cluster.register(0..2).await;
    reader.until_initialized(&daemon).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));

    reader.run("Replacing upstream", 0, "").await;
    assert_eq!(image_and_variables(&reader, SET).await.1, [DRY_RUN]);
    reader.run("Replacing upstream", 2, "").await;
    reader.run("Replacing upstream", 3, "").await;
    let (image, variables) = image_and_variables(&reader, SET).await;
    assert_eq!(image, IMAGE);
    assert_eq!(variables, [DRY_RUN]);
    let mut daemon = reader.start_pod(SET).await;
    assert!(reader.run("Replacing upstream", 4, "").await.contains("no Node has changed"));

    // The VM of a Node that is not Ready is destroyed. The dry run logs that and deletes nothing.
    let gone = reader.cluster.name(1);
    reader.set_ready(0, "True").await;
    reader.set_ready(1, "Unknown").await;
    reader.vcenter.destroy_vm(&gone).await;
    let reported = eventually("the dry run is reported", LIMIT, async || {
        let printed = reader.shell.run("Replacing upstream", 5, "").await;
        if printed.contains(&gone) { Ok(printed) } else { Err(format!("{printed}\n{}", daemon.output().tail(20))) }
    })
    .await;
    assert!(reported.contains("DeletionDryRun") && !reported.contains(&reader.cluster.name(0)), "{reported}");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    reader.run("Replacing upstream", 6, "").await;
    assert_eq!(image_and_variables(&reader, SET).await.1, Vec::<String>::new());

    reader.run("Name the image", 0, "").await;
    reader.run("Replacing upstream", 7, "").await;
    go_back(&mut reader, &gone).await;
    reader.end();
}

async fn go_back(reader: &mut Reader, gone: &str) {
    let at_risk = reader.run("Going back", 0, "").await;
    assert!(at_risk.contains(gone) && !at_risk.contains(&reader.cluster.name(0)), "{at_risk}");
    let held = reader.run("Going back", 1, "").await;
    assert!(held.contains(gone) && held.contains("DeletionDryRun"), "{held}");
    reader.run("Going back", 2, "").await;
    assert_eq!(image_and_variables(reader, SET).await.1, [SKIPS]);
    // With the permissions and the variable of the overlay, nothing is deleted.
    let mut daemon = reader.start_pod(SET).await;
    daemon.wait_for_line("DeletionOff", LIMIT).await;
    assert!(reader.nodes().get_opt(gone).await.unwrap().is_some());
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));

    reader.run("Going back", 3, "").await;
    let role = reader.get(&["clusterrole", "system:cloud-controller-manager:way-back"]).await;
    assert!(role["rules"].as_array().is_some_and(|rules| rules.len() > 5), "{role}");
    reader.run("Going back", 4, "").await;
    let (image, variables) = image_and_variables(reader, SET).await;
    assert_eq!(image, "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.36.0");
    assert_eq!(variables, [SKIPS], "the variable outlives the overlay and the image");
    reader.run("Going back", 5, "").await;
    assert_eq!(image_and_variables(reader, SET).await.1, Vec::<String>::new());

    // All objects that can stay.
    let condition = json!({"type": "VSphereInitialized", "status": "True", "reason": "Initialized", "message": ""});
    let ours = json!({
        "metadata": {"annotations": {"vsphere-ccm.dev/out-of-service": "2026-11-22T03:14:20Z"}},
        "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]},
        "status": {"conditions": [condition]},
    });
    reader.patch_node(1, ours).await;
    let leases = Api::<Lease>::namespaced(reader.cluster.client.clone(), "kube-system");
    let logins = ListParams::default().labels("vsphere-ccm.dev/lease=logins");
    assert!(!leases.list(&logins).await.unwrap().items.is_empty());
    assert_eq!(left_on(&reader.nodes().get(gone).await.unwrap()).len(), 4, "the record, and what was put there");
    reader.run("Objects that stay", 0, "").await;
    for number in [0, 1] {
        let node = reader.nodes().get(&reader.cluster.name(number)).await.unwrap();
        assert_eq!(left_on(&node), Vec::<String>::new());
        assert!(node.spec.unwrap().provider_id.unwrap().starts_with("vsphere://"), "the rest stays");
    }
    assert_eq!(leases.list(&logins).await.unwrap().items.len(), 0);
}

/// Returns this program's annotations, conditions and taints on a Node.
fn left_on(node: &Node) -> Vec<String> {
    let annotations = node.metadata.annotations.iter().flat_map(|all| all.keys());
    let annotations = annotations.filter(|key| key.starts_with("vsphere-ccm.dev/")).cloned();
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let conditions = conditions.map(|condition| condition.type_.clone()).filter(|kind| kind == "VSphereInitialized");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let taints = taints.map(|taint| taint.key.clone()).filter(|key| key == "node.kubernetes.io/out-of-service");
    annotations.chain(conditions).chain(taints).collect()
}

/// Returns upstream's release manifest with the names that the templates of Cluster API Provider vSphere use.
fn with_names_of_cluster_api(release: &str) -> String {
    let names = [
        (SET, CHART_SET),
        ("vsphere-cloud-config", "cloud-config"),
        ("vsphere-cloud-secret", "cloud-provider-vsphere-credentials"),
        ("system:cloud-controller-manager", "cloud-controller-manager"),
    ];
    let renamed = names.iter().fold(release.to_owned(), |text, (from, to)| text.replace(from, to));
    let mut list: Value = serde_json::from_str(&renamed).unwrap();
    for object in list["items"].as_array_mut().unwrap() {
        if object["kind"] == "DaemonSet" {
            let labels = json!({"app": CHART_SET});
            object["spec"]["selector"]["matchLabels"] = labels.clone();
            object["spec"]["template"]["metadata"]["labels"] = labels;
        }
    }
    list.to_string()
}

#[tokio::test]
async fn a_reader_replaces_upstream_in_a_workload_cluster_of_cluster_api() {
    let mut reader = Reader::new(CLUSTER_API, prepared).await;
    let release = with_names_of_cluster_api(&upstream(&reader).await);
    kubectl(Some(&reader.server), &["apply", "-f", "-"], &release).await.unwrap();
    reader.run("A workload cluster", 0, "").await;
    assert_eq!(image_and_variables(&reader, CHART_SET).await.1, [DRY_RUN]);
    reader.run("A workload cluster", 1, "").await;
    let (image, variables) = image_and_variables(&reader, CHART_SET).await;
    assert_eq!(image, IMAGE);
    assert_eq!(variables, [DRY_RUN]);
    reader.cluster.register(0..2).await;
    let mut daemon = reader.start_pod(CHART_SET).await;
    reader.until_initialized(&daemon).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    reader.run("A workload cluster", 2, "").await;
    assert_eq!(image_and_variables(&reader, CHART_SET).await.1, Vec::<String>::new());

    // The rendered chart takes upstream's permissions away. The program reads only the Secret with this name.
    reader.run("A workload cluster", 3, "").await;
    let role = reader.get(&["clusterrole", "cloud-controller-manager"]).await;
    assert!(!role["rules"].to_string().contains("secrets"), "{role}");
    let mut daemon = reader.start_pod(CHART_SET).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    reader.end();
}

#[tokio::test]
async fn a_reader_adopts_nodes_without_provider_id_and_taint() {
    let mut reader = Reader::new(ADOPT, prepared).await;
    let release = upstream(&reader).await;
    kubectl(Some(&reader.server), &["apply", "-f", "-"], &release).await.unwrap();
    reader.cluster.register(0..2).await;
    // Same as the Nodes of kubelets without --cloud-provider=external.
    for number in [0, 1] {
        reader.patch_node(number, json!({"spec": {"taints": null}})).await;
    }
    let listed = reader.run("Nodes without provider ID", 0, "").await;
    assert!([0, 1].iter().all(|number| listed.contains(&reader.cluster.name(*number))), "{listed}");

    reader.run("Nodes without provider ID", 1, "").await;
    assert_eq!(image_and_variables(&reader, SET).await.1, ["CCM_ADOPT_UNTAINTED_NODES=true"]);
    let mut daemon = reader.start_pod(SET).await;
    reader.until_initialized(&daemon).await;
    let left = reader.run("Nodes without provider ID", 0, "").await;
    assert_eq!(left.lines().count(), 1, "the heading alone: {left}");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    reader.run("Nodes without provider ID", 2, "").await;
    assert_eq!(image_and_variables(&reader, SET).await.1, Vec::<String>::new());
    reader.end();
}

#[tokio::test]
async fn a_reader_runs_the_program_on_a_workstation() {
    let server = ApiServer::shared().await;
    let cluster = Cluster::on(server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let config = cluster.folder().join("vsphere-of-a-workstation.conf");
    std::fs::write(&config, Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")])).unwrap();
    let sections = sections(&page("README.md"));
    let (_, blocks) = sections.iter().find(|(heading, _)| heading == "Install").unwrap();
    let mut words = blocks[1].commands.split_whitespace();
    assert_eq!(words.next(), Some("CCM_NODE_DELETION=off"));
    assert_eq!(words.next(), Some("vsphere-cloud-controller-manager"));
    let flags = words.map(|word| match word {
        "~/.kube/config" => server.kubeconfig().display().to_string(),
        "vsphere.conf" => config.display().to_string(),
        other => other.to_owned(),
    });
    // Only the nodes and the Lease of this test, and no port.
    let own = [
        format!("--node-selector={}", cluster.labels()),
        format!("--leader-elect-resource-name={}", cluster.pool()),
        "--secure-port=0".to_owned(),
    ];
    let variables = [("CCM_NODE_DELETION", "off")];
    let mut daemon = Daemon::start_with(crate::cluster::BINARY, flags.chain(own), &variables);
    daemon.wait_for_line(ANSWERS, LIMIT).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    assert_eq!(blocks_of(WORKSTATION), [("Install", 1)]);
}
