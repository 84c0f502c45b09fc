//! Commands that ask no process: they read the API server, vCenter and NSX themselves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::fake_nsx::{FakeNsx, Model};
use support::nodes::ready_condition;
use support::{ApiServer, AuditEvent, Daemon, Rule, Vcenter, eventually};
use tokio::process::Command;

use super::{CommandResult, compare_with_page, lease_namespace, normalised};
use crate::cluster::{BINARY, Cluster, LIMIT, uuid};
use crate::credentials::{PASSWORD, USER, reject_three_logins};

/// Beginning of the user agent of this program.
const OWN_AGENT: &str = "vsphere-cloud-controller-manager/";

/// The gateway and the profiles of load balancers.
pub const BALANCER_PATHS: &str = "tier1-gateway-path = /infra/tier-1s/t1\n\
    tcp-app-profile-name = default-tcp-lb-app-profile\nudp-app-profile-path = /infra/lb-app-profiles/default-udp-lb-app-profile\n";

/// The files and flags of detached commands.
pub struct Site {
    kubeconfig: PathBuf,
    config: PathBuf,
    /// Flags of the daemon.
    pub flags: Vec<String>,
}

impl Site {
    pub fn new(cluster: &Cluster, server: &ApiServer, config: &str) -> Self {
        let path = cluster.folder().join(format!("{}-detached.conf", cluster.pool()));
        std::fs::write(&path, config).unwrap();
        let lease = format!("--leader-elect-resource-name={}", cluster.pool());
        let selector = format!("--node-selector={}", cluster.labels());
        Self { kubeconfig: server.kubeconfig(), config: path, flags: vec![selector, lease] }
    }

    /// Returns the path of `vsphere.conf`.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Returns the command line of a command with these arguments: files and flags of the daemon follow.
    fn command_line(&self, arguments: &[&str]) -> Vec<String> {
        let file = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut line: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        line.extend([file("kubeconfig", &self.kubeconfig), file("cloud-config", &self.config), "--".to_owned()]);
        line.extend(self.flags.clone());
        line
    }

    /// Runs a command with these arguments before the flags of the daemon.
    pub async fn run(&self, arguments: &[&str]) -> CommandResult {
        let mut command = Command::new(BINARY);
        command.args(self.command_line(arguments)).env_clear();
        let output = support::command::output(command, "").await;
        CommandResult {
            code: output.status.code(),
            output: String::from_utf8(output.stdout).unwrap(),
            messages: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub async fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let CommandResult { code, output, messages } = self.run(&[arguments, &["-o", "json"]].concat()).await;
        (code, serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}{messages}")))
    }
}

/// Returns the ids of the results with this status.
fn with_status(report: &Value, status: &str) -> BTreeSet<String> {
    let results = report["checks"].as_array().unwrap().iter().filter(|result| result["status"] == status);
    results.map(|result| result["id"].as_str().unwrap().to_owned()).collect()
}

/// Returns the writes of this program, without the reviews of permissions, which the API server does not store.
pub fn writes(server: &ApiServer) -> Vec<AuditEvent> {
    let is_review = |event: &AuditEvent| event.object_ref.resource == "selfsubjectaccessreviews";
    let is_own = |event: &AuditEvent| event.user_agent.starts_with(OWN_AGENT);
    server.audit().into_iter().filter(|event| is_own(event) && event.is_write() && !is_review(event)).collect()
}

#[tokio::test]
async fn checks_pass_without_a_daemon_with_one_login_and_no_write_but_the_login_throttle() {
    let server = ApiServer::audited().await;
    let cluster = Cluster::on(&server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    cluster.register(0..3).await;
    let versions = cluster.versions().await;
    let site = Site::new(&cluster, &server, &Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]));
    let (code, report) = site.json(&["check", "--preflight"]).await;
    assert_eq!((code, report["result"].as_str()), (Some(0), Some("ok")), "{report:#}");
    assert_eq!((&report["isDetached"], &report["leads"]), (&true.into(), &false.into()), "{report:#}");
    for status in ["failed", "incomplete", "warning"] {
        assert_eq!(with_status(&report, status), BTreeSet::new(), "{report:#}");
    }
    let passed = with_status(&report, "passed");
    for id in ["K02", "K05", "C01", "C05", "C07", "N02", "N03", "A02", "A03", "P01", "P04", "V01", "V06", "Z02", "D01"]
    {
        assert!(passed.contains(id), "{id}: {report:#}");
    }
    let skipped = with_status(&report, "skipped");
    assert!(["C02", "K04", "K07"].iter().all(|id| skipped.contains(*id)), "{report:#}");
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_logins, counts.of("Login")), (1, 1), "{counts:?}");
    assert!(counts.rest_logins <= 1, "{counts:?}");
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "logged out: {counts:?}");

    let screen = site.run(&["check", "--preflight"]).await.output;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let screen = screen.replace(cluster.pool(), "cloud-controller-manager").replace(host.trim(), "workstation");
    compare_with_page("check --preflight", &normalised(&screen, &vcenter));

    let status = site.run(&["status"]).await;
    assert_eq!(status.code, Some(3), "only the leader knows the Nodes: {}{}", status.output, status.messages);
    assert!(
        status.output.starts_with("read from ") && status.output.contains("connected, current"),
        "{}",
        status.output
    );
    let vm = site.run(&["explain", "vm", &cluster.name(1)]).await;
    assert_eq!(vm.code, Some(0), "{}{}", vm.output, vm.messages);
    assert!(vm.output.contains(&format!("backs Node {}", cluster.name(1))), "{}", vm.output);
    let deletion = site.run(&["explain", "deletion", &cluster.name(1)]).await;
    assert_eq!(deletion.code, Some(0), "{}{}", deletion.output, deletion.messages);
    assert!(deletion.output.contains("Ready=False, so its kubelet reports"), "{}", deletion.output);
    let node = site.run(&["explain", "node", &cluster.name(1)]).await;
    assert_eq!(node.code, Some(1), "{}{}", node.output, node.messages);
    for part in [
        "not initialized: a new leader would write to it\n",
        ": what the leader waits for is not known here\n",
        "topology.kubernetes.io/zone=zone-b",
        "reconcile         not known: only the leader knows",
    ] {
        assert!(node.output.contains(part), "{part}: {}", node.output);
    }
    let unknown = site.run(&["check", "--node=nobody"]).await;
    assert_eq!((unknown.code, unknown.output.as_str()), (Some(2), ""), "{}", unknown.messages);
    // Without --preflight, the Lease has to have a holder.
    let (code, report) = site.json(&["check", "--detached"]).await;
    assert_eq!((code, with_status(&report, "failed")), (Some(1), BTreeSet::from(["K04".to_owned()])), "{report:#}");

    let writes = writes(&server);
    let is_of_throttle = |event: &AuditEvent| {
        let created = event.request_object["metadata"]["name"].as_str().unwrap_or_default();
        let names = [event.object_ref.name.as_str(), created];
        event.object_ref.resource == "leases" && names.iter().any(|name| name.starts_with("vsphere-ccm-logins-"))
    };
    assert!(!writes.is_empty() && writes.iter().all(is_of_throttle), "{writes:#?}");
    // A claim with the name of the Pod would replace the claims in flight of a daemon there.
    let records = writes.iter().filter_map(|event| event.request_object["metadata"]["annotations"].as_object());
    let records: Vec<String> = records.flat_map(|notes| notes.values().map(Value::to_string)).collect();
    let has_pod = |record: &String| record.contains("\\\"pod\\\"");
    assert!(records.iter().any(|record| record.contains("claimed")) && !records.iter().any(has_pod), "{records:#?}");
    assert_eq!(cluster.versions().await, versions, "no Node was written");
    a_second_manager_is_found(&cluster, &site).await;
}

/// The second DaemonSet is deleted as the remedy says; then the check passes.
async fn a_second_manager_is_found(cluster: &Cluster, site: &Site) {
    let sets: Api<DaemonSet> = Api::namespaced(cluster.client.clone(), "kube-system");
    for name in ["vsphere-cloud-controller-manager", "rancher-vsphere-cpi"] {
        let arguments = ["--cloud-provider=vsphere".to_owned(), format!("--leader-elect-resource-name={name}")];
        let containers = json!([{"name": "ccm", "image": "ccm", "args": arguments}]);
        let template = json!({"metadata": {"labels": {"name": name}}, "spec": {"containers": containers}});
        let spec = json!({"selector": {"matchLabels": {"name": name}}, "template": template});
        let set = json!({"metadata": {"name": name}, "spec": spec});
        sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    }
    let (code, report) = site.json(&["check", "--preflight"]).await;
    let failed = ["K05", "K07"].map(str::to_owned);
    assert_eq!((code, with_status(&report, "failed")), (Some(1), BTreeSet::from(failed)), "{report:#}");
    let remedy = "kubectl -n kube-system delete daemonset rancher-vsphere-cpi";
    assert!(report.to_string().contains(remedy), "{report:#}");
    sets.delete("rancher-vsphere-cpi", &DeleteParams::default()).await.unwrap();
    let (code, report) = site.json(&["check", "--preflight"]).await;
    assert_eq!((code, with_status(&report, "failed")), (Some(1), BTreeSet::from(["K07".to_owned()])), "{report:#}");
}

#[tokio::test]
async fn a_spent_budget_of_logins_is_said_and_no_login_is_made() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1).login(USER, PASSWORD)).await;
    reject_three_logins(&cluster, &vcenter).await;
    let (host, port, ca_file) = (vcenter.host(), vcenter.port(), vcenter.ca_file().display());
    let config = format!(
        "[Global]\nca-file = {ca_file}\nuser = {USER}\npassword = {PASSWORD}\n\
         [VirtualCenter \"vc-1\"]\nserver = {host}\nport = {port}\ndatacenters = dc-1\n"
    );
    let site = Site::new(&cluster, ApiServer::shared().await, &config);
    for arguments in [&["check", "--preflight"][..], &["status"], &["explain", "vcenter", host]] {
        let CommandResult { code, output, messages } = site.run(arguments).await;
        assert_eq!((code, output.as_str()), (Some(3), ""), "{arguments:?}: {messages}");
        let told = format!("logins to vCenter {host}:{port} are paused until ");
        assert!(messages.contains(&told) && messages.contains("three times within 200 s"), "{messages}");
        assert!(!messages.contains(PASSWORD), "{messages}");
    }
    let counts = vcenter.counts().await;
    assert_eq!((counts.of("Login"), counts.of("REST:session-login"), counts.soap_logins), (0, 0, 0), "{counts:?}");
}

/// The logins of one account at two servers wait for each other, and are no failures meanwhile.
#[tokio::test]
async fn two_vcenters_with_one_account_get_one_login_each() {
    let cluster = Cluster::new().await;
    let first = Vcenter::start(&cluster.scenario(0..1)).await;
    let second = Vcenter::start(&cluster.scenario(1..2)).await;
    cluster.register(0..2).await;
    let sections = [first.ini_section("vc-1", "dc-1"), second.ini_section("vc-2", "dc-1")];
    let site = Site::new(&cluster, ApiServer::shared().await, &Cluster::zoned(&sections));
    let (_, report) = site.json(&["check", "--preflight"]).await;
    // Other tests create DaemonSets on this API server.
    let failed: BTreeSet<String> =
        with_status(&report, "failed").into_iter().filter(|id| !id.starts_with('K')).collect();
    assert_eq!((failed, with_status(&report, "incomplete")), (BTreeSet::new(), BTreeSet::new()), "{report:#}");
    for vcenter in [&first, &second] {
        let counts = vcenter.counts().await;
        assert_eq!((counts.of("Login"), counts.soap_sessions, counts.rest_sessions), (1, 0, 0), "{counts:?}");
        assert!(counts.rest_logins <= 1, "{counts:?}");
    }
}

#[tokio::test]
async fn a_signal_ends_the_session_and_the_command() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let site = Site::new(&cluster, ApiServer::shared().await, &vcenter.ini_section("vc-1", "dc-1"));
    vcenter.add_rule(&Rule::hang("WaitForUpdatesEx")).await;
    let mut command = Daemon::start(BINARY, site.command_line(&["check", "--preflight", "--timeout=10m"]));
    eventually("the command has logged in", LIMIT, async || match vcenter.counts().await {
        counts if counts.soap_sessions == 1 => Ok(()),
        counts => Err(format!("{counts:?}\n{}", command.output().tail(20))),
    })
    .await;
    assert_eq!(command.stop(LIMIT).await.code(), Some(3), "{}", command.output().tail(20));
    command.wait_for_line("stopped by a signal", LIMIT).await;
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_logins, counts.soap_sessions), (1, 0), "{counts:?}");
}

/// In a Job, the log has what the command writes to standard error, as it has the report.
#[tokio::test]
async fn a_slow_command_without_a_terminal_prints_only_its_report() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let site = Site::new(&cluster, ApiServer::shared().await, &vcenter.ini_section("vc-1", "dc-1"));
    vcenter.add_rule(&Rule::hang("WaitForUpdatesEx")).await;
    let began = Instant::now();
    let slow = site.run(&["status", "--detached", "--timeout=5s", "-o", "json"]).await;
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(slow.messages, "");
    let report: Value = serde_json::from_str(&slow.output).unwrap_or_else(|error| panic!("{error}: {}", slow.output));
    assert_eq!(report["kind"], "Status");
}

#[tokio::test]
async fn nsx_is_asked_with_one_login_and_stays_as_it_is() {
    let server = ApiServer::audited().await;
    let cluster = Cluster::on(&server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    cluster.kubelet(0).pod_cidrs(&["10.244.0.0/24"]).register(&cluster.client).await;
    let nsx = FakeNsx::start(Model::small().user("ccm", "Correct-Horse-1")).await;
    let ca_file = cluster.folder().join(format!("{}-nsx-ca.pem", cluster.pool()));
    std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
    let section = vcenter.ini_section("vc-1", "dc-1");
    let (host, ca_file) = (nsx.address(), ca_file.display());
    let login = format!("[NSXT]\nhost = {host}\nca-file = {ca_file}\nuser = ccm\npassword = Correct-Horse-1\n");
    let sections = |pool: &str| {
        let balancers = format!("[LoadBalancer]\nip-pool-name = {pool}\nsize = SMALL\n{BALANCER_PATHS}");
        let routes = "[Route]\nrouter-path = /infra/tier-1s/t1\n";
        format!("{}\n{login}{balancers}{routes}", Cluster::zoned(std::slice::from_ref(&section)))
    };
    let config = sections("pool1");
    let mut site = Site::new(&cluster, &server, &config);
    site.flags.push(format!("--cluster-name={}", cluster.pool()));
    site.flags.push("--cluster-cidr=10.244.0.0/16".to_owned());
    let before = nsx.objects();
    let (code, report) = site.json(&["check", "--preflight"]).await;
    assert_eq!(code, Some(0), "{report:#}");
    let passed = with_status(&report, "passed");
    assert!(["X01", "X02", "X03", "X04", "X05", "X06", "X07"].iter().all(|id| passed.contains(*id)), "{report:#}");
    assert_eq!(nsx.login_attempts().len(), 1, "{:?}", nsx.login_attempts());
    assert_eq!(nsx.objects(), before);
    let explained = site.run(&["explain", "vm", &cluster.name(0)]).await;
    assert_eq!(explained.code, Some(0), "{}{}", explained.output, explained.messages);
    assert_eq!(nsx.login_attempts().len(), 1, "an explanation of a VM needs no login to NSX");
    let route = site.run(&["explain", "route", &cluster.name(0)]).await;
    assert_eq!(route.code, Some(1), "{}{}", route.output, route.messages);
    assert!(route.output.contains("pending: a new leader would create or rewrite the route"), "{}", route.output);
    assert_eq!(nsx.login_attempts().len(), 2, "{:?}", nsx.login_attempts());
    assert_eq!(nsx.objects(), before);

    nsx.deny("ccm", "ip-allocations");
    let (code, report) = site.json(&["check", "--preflight"]).await;
    let failed = with_status(&report, "failed");
    assert!(code == Some(1) && failed.contains("X03"), "{report:#}");
    let path = "/infra/ip-pools/p1/ip-allocations";
    assert!(report.to_string().contains(&format!("of the kind allocation ({path})")), "{report:#}");
    nsx.allow("ccm", "ip-allocations");

    let site = Site { flags: site.flags, ..Site::new(&cluster, &server, &sections("nowhere")) };
    let (code, report) = site.json(&["check", "--preflight"]).await;
    assert_eq!((code, with_status(&report, "failed")), (Some(1), BTreeSet::from(["X04".to_owned()])), "{report:#}");
}

/// Sets the Ready condition of a Node as kube-controller-manager does when the kubelet does not report.
async fn silence(cluster: &Cluster, name: &str) {
    let nodes = Api::<Node>::all(cluster.client.clone());
    let node = nodes.get(name).await.unwrap();
    let condition = ready_condition(&node, "Unknown", k8s_openapi::jiff::Timestamp::now());
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_deletion_is_explained_up_to_the_clocks_of_the_leader() {
    let cluster = Cluster::new().await;
    let namespace = lease_namespace(&cluster).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    cluster.register(0..2).await;
    let mut daemon = cluster.start_for(&vcenter, &[]).await;
    cluster.wait_until_initialized(0..2, &daemon).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0), "{}", daemon.output().tail(20));
    vcenter.destroy_vm(&uuid(1)).await;
    let name = cluster.name(1);
    silence(&cluster, &name).await;

    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let mut site = Site::new(&cluster, ApiServer::shared().await, &config);
    site.flags.push(format!("--leader-elect-resource-namespace={namespace}"));
    let explained = site.run(&["explain", "deletion", &name]).await;
    assert_eq!(explained.code, Some(3), "{}{}", explained.output, explained.messages);
    for part in [
        "its VM is deleted, and only the leader knows whether and when",
        "passed            proof: the VM is confirmed deleted\n",
        "passed            DeletionPaused: deletions are not paused\n",
        "not known         DeletionGracePeriod\n",
    ] {
        assert!(explained.output.contains(part), "{part}: {}", explained.output);
    }
    let annotation = json!({"vsphere-ccm.dev/deletions-paused-until": "2126-11-24T03:12:40Z"});
    let lease = json!({"metadata": {"name": "vsphere-ccm-deletions", "annotations": annotation}, "spec": {}});
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), &namespace);
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let paused = site.run(&["explain", "deletion", &name]).await;
    assert_eq!(paused.code, Some(1), "{}{}", paused.output, paused.messages);
    assert!(paused.output.contains("not deleted: DeletionPaused\n"), "{}", paused.output);
    let gone = site.run(&["explain", "deletion", "nobody"]).await;
    assert_eq!((gone.code, gone.output.as_str()), (Some(2), ""), "{}", gone.messages);
}

#[tokio::test]
async fn the_flags_of_the_daemon_and_its_files_are_checked_before_anything_is_asked() {
    let cluster = Cluster::new().await;
    let mut site = Site::new(&cluster, ApiServer::shared().await, "[Global]\nport = many\n");
    let (code, report) = site.json(&["check", "--preflight"]).await;
    assert_eq!((code, with_status(&report, "failed")), (Some(1), BTreeSet::from(["C01".to_owned()])), "{report:#}");
    let status = site.run(&["status"]).await;
    assert!(status.code == Some(2) && status.messages.contains("port"), "{}", status.messages);
    site.flags.push("--cluster-nmae=a".to_owned());
    let misspelled = site.run(&["check", "--preflight"]).await;
    assert!(misspelled.code == Some(2) && misspelled.messages.contains("--cluster-nmae"), "{}", misspelled.messages);
}
