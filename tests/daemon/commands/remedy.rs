//! The commands of the remedies of `check` run in a shell as they are printed, and then the check passes.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::components::Component;
use support::{ApiServer, KubeletNode, Object, Rule, Vcenter, eventually, replace_file};
use tokio::process::Command;

use super::observer::Site;
use super::{ask, json, start_candidate};
use crate::cluster::{Cluster, LIMIT, swapped, uuid};
use crate::credentials::{PASSWORD, USER, reject_three_logins};
use crate::rights::account_without_secrets;

/// The checks of which a test runs the commands.
const RUN: [&str; 14] =
    ["K02", "K04", "K05", "K07", "K09", "K10", "C05", "N03", "A02", "A03", "P01", "V01", "V02", "Z02"];

/// The checks without a command that ends the finding, each with the reason.
const NOT_RUN: [(&str, &str); 21] = [
    ("C01", "vsphere.conf is edited"),
    ("C02", "vsphere.conf is edited"),
    ("C03", "vsphere.conf is edited"),
    ("C07", "vsphere.conf is edited"),
    ("C08", "vsphere.conf is edited"),
    ("N01", "the DNS of the host is corrected"),
    ("N02", "a firewall or a proxy is changed"),
    ("N04", "the authority of the server issues another certificate"),
    ("N05", "vsphere.conf is edited"),
    ("P02", "the simulator shows every object to every account; the command is that of P01"),
    ("P04", "govc cannot set global permissions"),
    ("V05", "VMware Tools is started in the guest"),
    ("V06", "the address rules or --node-ip are changed"),
    ("D01", "the reason of the Node decides, or time"),
    ("X01", "a firewall is changed, or vsphere.conf is edited"),
    ("X02", "the command is that of A03"),
    ("X03", "the administrator of NSX grants a role"),
    ("X04", "vsphere.conf is edited"),
    ("X05", "the administrator of NSX adds addresses or capacity"),
    ("X06", "a flag is changed"),
    ("X07", "the reason of the object decides"),
];

#[test]
fn the_commands_of_each_check_are_run_or_the_reason_is_known_why_not() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/checks.md");
    let page = std::fs::read_to_string(path).unwrap();
    let ids: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let listed: Vec<&str> = RUN.into_iter().chain(NOT_RUN.map(|(id, _)| id)).collect();
    assert_eq!(listed.len(), ids.len(), "no check is in both lists");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), ids.into_iter().collect());
}

/// A shell with `kubectl` and `govc`, whose environment is that of an administrator.
struct Shell {
    home: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Shell {
    fn new(server: &ApiServer, vcenter: &Vcenter) -> Self {
        let home = tempfile::tempdir().unwrap();
        for (tool, component) in [("kubectl", Component::Kubectl), ("govc", Component::Govc)] {
            symlink(component.path(), home.path().join(tool)).unwrap();
        }
        let mut variables = Vec::from(vcenter.govc_environment());
        variables.push(("PATH", format!("{}:/usr/bin:/bin", home.path().display())));
        variables.push(("HOME", home.path().display().to_string()));
        variables.push(("KUBECONFIG", server.kubeconfig().display().to_string()));
        Self { home, variables }
    }

    /// Runs the commands one after the other in one shell, and returns what they print. Each has to succeed.
    async fn run(&self, commands: &[String], input: &str) -> String {
        let script = commands.join("\n");
        println!("{script}");
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &script]).current_dir(self.home.path()).env_clear();
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = support::command::output(command, input).await;
        let [printed, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{script}\n{printed}\n{errors}");
        printed
    }
}

/// Returns the findings of this check.
fn findings<'a>(report: &'a Value, id: &str) -> Vec<&'a Value> {
    let is_finding = |result: &&Value| result["status"] == "failed" || result["status"] == "warning";
    let results = report["checks"].as_array().unwrap().iter();
    results.filter(|result| result["id"] == id).filter(is_finding).collect()
}

/// Returns the commands of the findings of this check about subjects that end with this text.
fn commands(report: &Value, id: &str, subject: &str) -> Vec<String> {
    let found = findings(report, id).into_iter();
    let found = found.filter(|result| result["subject"].as_str().unwrap().ends_with(subject));
    let commands = found.flat_map(|result| result["commands"].as_array().unwrap());
    let commands: Vec<String> = commands.map(|command| command.as_str().unwrap().to_owned()).collect();
    assert!(!commands.is_empty(), "{id} {subject}: {report:#}");
    commands
}

fn with_findings<'a>(report: &Value, ids: &[&'a str]) -> Vec<&'a str> {
    ids.iter().copied().filter(|id| !findings(report, id).is_empty()).collect()
}

/// The permission and the Secret are created, and the mistyped password is corrected, by the commands of the remedies;
/// then the checks pass.
#[tokio::test]
async fn the_commands_about_a_missing_permission_and_a_missing_secret_create_them_and_those_about_a_login_correct_it() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let shell = Shell::new(ApiServer::shared().await, &vcenter);
    let name = cluster.pool();
    let (host, port, ca_file) = (vcenter.host(), vcenter.port(), vcenter.ca_file().display());
    let section = format!(
        "[Global]\nsecret-name = {name}\nsecret-namespace = kube-system\nca-file = {ca_file}\n\
         [VirtualCenter \"vc-1\"]\nserver = {host}\nport = {port}\ndatacenters = dc-1\n"
    );
    let kubeconfig = account_without_secrets(&cluster).await;
    let mut daemon = cluster.start(&Cluster::zoned(&[section]), &[&kubeconfig]);
    daemon.wait_for_line(" started", LIMIT).await;
    let failed = async |ids: &[&str]| {
        eventually(&format!("{ids:?} fail"), LIMIT, async || {
            let (code, report) = json(&daemon, &["check"]).await;
            let failed: BTreeSet<&str> = report["checks"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|result| result["status"] == "failed")
                .filter_map(|result| result["id"].as_str())
                .collect();
            match code == Some(1) && failed == ids.iter().copied().collect() {
                true => Ok(report),
                false => Err(format!("{code:?} {report:#}")),
            }
        })
        .await
    };
    let report = failed(&["K02", "C05"]).await;
    let missing = format!("missing: get secrets kube-system/{name}; watch secrets kube-system/{name}");
    assert_eq!(findings(&report, "K02")[0]["message"], missing.as_str(), "{report:#}");
    shell.run(&commands(&report, "K02", ""), "").await;
    let report = failed(&["C05"]).await;
    // As an administrator who enters both at the prompts.
    let entered = |password: &str| format!("{}\n{password}\n", vcenter.user());
    shell.run(&commands(&report, "C05", ""), &entered("mistyped")).await;
    let report = eventually("the login is rejected", LIMIT, async || match json(&daemon, &["check"]).await.1 {
        report if with_findings(&report, &["A03"]).is_empty() => Err(format!("{report:#}")),
        report => Ok(report),
    })
    .await;
    shell.run(&commands(&report, "A03", ""), &entered(vcenter.password())).await;
    let waited = ask(&daemon, &["check", "--wait", "--timeout=60s"]).await;
    assert_eq!(waited.code, Some(0), "{}{}", waited.output, waited.messages);
    let masked = ask(&daemon, &["check", "-o", "json", "--mask-users"]).await.output;
    for hidden in [vcenter.user(), vcenter.password()] {
        assert!(!masked.contains(hidden), "{masked}");
    }
}

#[tokio::test]
async fn the_command_about_paused_logins_ends_the_pause() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1).login(USER, PASSWORD)).await;
    let shell = Shell::new(ApiServer::shared().await, &vcenter);
    // The account was unlocked since.
    reject_three_logins(&cluster, &vcenter).await;
    let mut daemon = cluster.start(&Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]), &[]);
    daemon.wait_for_line("is paused until", LIMIT).await;
    let (_, report) = json(&daemon, &["check"]).await;
    assert_eq!(with_findings(&report, &["A02"]), ["A02"], "{report:#}");
    shell.run(&commands(&report, "A02", ""), "").await;
    let waited = ask(&daemon, &["check", "--wait", "--timeout=100s"]).await;
    assert_eq!(waited.code, Some(0), "{}{}", waited.output, waited.messages);
}

/// A cluster in which most checks of Kubernetes, vCenter and Nodes have a finding, and the means to end them.
struct BrokenCluster {
    cluster: Cluster,
    server: ApiServer,
    vcenter: Vcenter,
    shell: Shell,
    site: Site,
}

const MANAGERS: [&str; 2] = ["vsphere-cloud-controller-manager", "rancher-vsphere-cpi"];

impl BrokenCluster {
    async fn new() -> Self {
        let server = ApiServer::start().await;
        let cluster = Cluster::on(&server).await;
        let scenario = cluster.scenario(0..3).vm(cluster.vm(4)).vm(cluster.vm(5));
        let vcenter = Vcenter::start(&scenario).await;
        let shell = Shell::new(&server, &vcenter);
        // No authority of this host has issued the certificate.
        let section = vcenter.ini_section("vc-1", "dc-1");
        let untrusted: Vec<&str> = section.lines().filter(|line| !line.starts_with("ca-file")).collect();
        let mut site = Site::new(&cluster, &server, &Cluster::zoned(&[untrusted.join("\n")]));
        let (account, _) = server.create_service_account("kube-system", cluster.pool()).await;
        for purpose in ["authentication", "authorization"] {
            site.flags.push(format!("--{purpose}-kubeconfig={}", account.display()));
        }
        let broken = Self { cluster, server, vcenter, shell, site };
        broken.create_nodes().await;
        broken.create_managers().await;
        broken
    }

    /// Creates a Node without taint, one of K3s with a Pod of a DaemonSet, one without a VM, and one whose provider ID
    /// names another VM.
    async fn create_nodes(&self) {
        let cluster = &self.cluster;
        cluster.register(0..1).await;
        let mut untainted = cluster.kubelet(1).build();
        untainted.spec.get_or_insert_default().taints = None;
        let mut foreign = cluster.kubelet(2).build();
        foreign.spec.get_or_insert_default().provider_id = Some("k3s://foreign".to_owned());
        cluster.register(3..4).await;
        let mut copied = cluster.marked(KubeletNode::new(&cluster.name(4), &swapped(&uuid(5)))).build();
        let spec = copied.spec.get_or_insert_default();
        (spec.provider_id, spec.taints) = (Some(format!("vsphere://{}", uuid(4))), None);
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        for node in [&untainted, &foreign, &copied] {
            nodes.create(&PostParams::default(), node).await.unwrap();
        }
    }

    /// Creates two DaemonSets that run a cloud controller manager, and a Pod of the first one on the Node of K3s.
    async fn create_managers(&self) {
        let client = &self.cluster.client;
        let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
        for name in MANAGERS {
            let arguments = ["--cloud-provider=vsphere".to_owned(), format!("--leader-elect-resource-name={name}")];
            let containers = json!([{"name": "ccm", "image": "ccm", "args": arguments}]);
            let template = json!({"metadata": {"labels": {"name": name}}, "spec": {"containers": containers}});
            let spec = json!({"selector": {"matchLabels": {"name": name}}, "template": template});
            let set = json!({"metadata": {"name": name}, "spec": spec});
            sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
        }
        let owner = sets.get(MANAGERS[0]).await.unwrap().metadata.uid;
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": MANAGERS[0], "uid": owner,
            "controller": true});
        let containers = json!([{"name": "ccm", "image": "ccm"}]);
        let pod = json!({"metadata": {"name": "ccm-1", "ownerReferences": [owner]},
            "spec": {"nodeName": self.cluster.name(2), "containers": containers}});
        let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    async fn check(&self) -> Value {
        self.site.json(&["check", "--detached"]).await.1
    }

    /// Runs the commands of the checks of Nodes, and does what their sentences ask for.
    async fn mend_nodes(&self, report: &Value) {
        let (cluster, shell) = (&self.cluster, &self.shell);
        let of = |id: &str, number: usize| commands(report, id, &format!("Node {}", cluster.name(number)));
        shell.run(&of("K09", 1), "").await;
        shell.run(&of("K10", 2), "").await;
        shell.run(&of("V02", 4), "").await;
        // The kubelets register their Nodes again.
        cluster.register(2..3).await;
        cluster.marked(KubeletNode::new(&cluster.name(4), &swapped(&uuid(5)))).register(&cluster.client).await;
        let printed = shell.run(&of("V01", 3), "").await;
        assert!(!printed.contains("/dc-1/vm/"), "{printed}");
        self.vcenter.create_vm(&cluster.vm(3)).await;
        assert!(shell.run(&of("V01", 3), "").await.contains("/dc-1/vm/"), "the search finds the VM");
        // The tag that the administrator has chosen.
        let attach = of("Z02", 0).iter().map(|command| command.replace("ZONE", "zone-a")).collect::<Vec<_>>();
        shell.run(&attach, "").await;
    }

    async fn mend_workloads(&self, report: &Value) {
        self.shell.run(&commands(report, "K05", MANAGERS[1]), "").await;
        let printed = self.shell.run(&commands(report, "K07", MANAGERS[0]), "").await;
        assert!(printed.contains(MANAGERS[0]), "{printed}");
        // As the controller of DaemonSets does when Pods run.
        let status = json!({"status": {"desiredNumberScheduled": 1, "numberReady": 1, "currentNumberScheduled": 1,
            "numberMisscheduled": 0}});
        let sets: Api<DaemonSet> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        sets.patch_status(MANAGERS[0], &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

#[tokio::test]
async fn the_commands_about_a_broken_cluster_mend_it() {
    let broken = BrokenCluster::new().await;
    let BrokenCluster { cluster, vcenter, shell, .. } = &broken;
    vcenter.detach_tag("k8s-zone", "zone-a", &Object::host("host-1")).await;
    let report = broken.check().await;
    let ids = ["K02", "K04", "K05", "K07", "N03"];
    assert_eq!(with_findings(&report, &ids), ids, "{report:#}");
    let printed = shell.run(&commands(&report, "N03", ""), "").await;
    let thumbprint = printed.split_whitespace().last().unwrap();
    let trusted = format!("{}thumbprint = \"{thumbprint}\"\n", vcenter.ini_section("vc-1", "dc-1"));
    let trusted: Vec<&str> = trusted.lines().filter(|line| !line.starts_with("ca-file")).collect();
    replace_file(broken.site.config(), &Cluster::zoned(&[trusted.join("\n")]));
    shell.run(&commands(&report, "K02", ""), "").await;
    broken.mend_workloads(&report).await;
    shell.run(&commands(&report, "K04", ""), "").await;

    // The simulator knows no permissions of accounts: the rule stands for the missing one.
    vcenter.add_rule(&Rule::fault("HasPrivilegeOnEntity", "NoPermission")).await;
    let report = broken.check().await;
    let ids = ["K09", "K10", "P01", "V01", "V02", "Z02"];
    assert_eq!(with_findings(&report, &ids), ids, "{report:#}");
    assert_eq!(with_findings(&report, &["K02", "K05", "K07", "N03"]), [""; 0], "{report:#}");
    shell.run(&commands(&report, "P01", ""), "").await;
    let permissions = shell.run(&["govc permissions.ls /".to_owned()], "").await;
    let line = permissions.lines().find(|line| line.contains(vcenter.user()));
    assert!(line.is_some_and(|line| line.contains("ReadOnly")), "{permissions}");
    vcenter.clear_rules().await;
    broken.mend_nodes(&report).await;

    let leader = start_candidate(cluster, vcenter).await;
    eventually("all checks pass", LIMIT, async || {
        let (code, report) = broken.site.json(&["check", "--detached"]).await;
        match code {
            Some(0) if with_findings(&report, &RUN).is_empty() => Ok(()),
            _ => Err(format!("{code:?} {report:#}\n{}", leader.output().tail(20))),
        }
    })
    .await;
    drop(broken.server);
}
