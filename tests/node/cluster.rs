//! A cluster with one real node, in a sandbox.

use std::fmt::{Display, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::api_server::{NODE_ADDRESS, SERVICE_ADDRESS};
use support::components::Component;
use support::controller_manager::ControllerManager;
use support::real_node::{Containerd, Kubelet, KubeletSettings, add_pod_network, system_uuid};
use support::sandbox::Sandbox;
use support::scheduler::Scheduler;
use support::{ApiServer, Scenario, Vcenter, Vm, copy_folder, eventually_every};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::images;
use crate::nodes::readiness;

/// Limit of a step. A busy machine takes many times as long as an idle one.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Interval between two checks. kubectl takes a tenth of a second of CPU time, and all tests share few CPUs.
const PERIOD: Duration = Duration::from_millis(250);

/// The limit of a whole test.
pub const TEST_LIMIT: Duration = Duration::from_secs(600);

/// Name of the node and of its VM in vCenter.
pub const NODE: &str = "node-a";

/// Name of vCenter in the configuration.
const VCENTER: &str = "vcenter.example.com";

/// The address of vCenter in the sandbox.
const VCENTER_ADDRESS: &str = "192.0.2.20";

/// Version of the product, which is the tag of its image.
pub const TAG: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// All parts of the cluster. They end in the order of the fields.
pub struct Cluster {
    /// The kubelet of [`NODE`]; `None` while a test has stopped it.
    pub kubelet: Option<Kubelet>,
    /// The container runtime.
    pub containerd: Containerd,
    _scheduler: Scheduler,
    _controllers: ControllerManager,
    kube_proxy: JoinHandle<()>,
    /// vCenter, with the VM of [`NODE`].
    pub vcenter: Vcenter,
    /// The API server, on the ports and addresses that pods use.
    pub server: ApiServer,
    /// The namespaces and the folder.
    pub sandbox: Sandbox,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// Starts all parts except the kubelet.
    pub async fn without_kubelet(sandbox: Sandbox) -> Self {
        Self::without_kubelet_on(sandbox, Scenario::small()).await
    }

    /// As [`Cluster::without_kubelet`], with a vCenter with this scenario and the VM of [`NODE`].
    pub async fn without_kubelet_on(sandbox: Sandbox, scenario: Scenario) -> Self {
        Self::set_up(sandbox, scenario, Duration::from_secs(40)).await
    }

    /// As [`Cluster::without_kubelet`]. A Node becomes `Unknown` if its kubelet does not renew its Lease for `grace`.
    pub async fn with_grace(sandbox: Sandbox, grace: Duration) -> Self {
        Self::set_up(sandbox, Scenario::small(), grace).await
    }

    async fn set_up(sandbox: Sandbox, scenario: Scenario, grace: Duration) -> Self {
        let vm = Vm::new(NODE, &system_uuid()).guest_host_name(NODE).ip(NODE_ADDRESS);
        let scenario = scenario.vm(vm);
        let (server, vcenter, containerd) =
            tokio::join!(ApiServer::of_a_node(), Vcenter::start(&scenario), Containerd::start(&sandbox));
        containerd.import(&images::pause(sandbox.folder()));
        containerd.import(&images::product(sandbox.folder(), TAG));
        // Replacements for kube-proxy and for a name server.
        let kube_proxy = forward(&format!("{SERVICE_ADDRESS}:443"), 6443).await;
        name_vcenter();
        drop(forward(&format!("{VCENTER_ADDRESS}:443"), vcenter.port()).await);
        let kubeconfig = server.kubeconfig();
        Self {
            kubelet: None,
            containerd,
            _scheduler: Scheduler::start(&server),
            _controllers: ControllerManager::start_all(&server, grace),
            kube_proxy,
            vcenter,
            server,
            sandbox,
            kubeconfig,
        }
    }

    /// Starts all parts with a pod network, and waits until the Node is registered with the labels of a control-plane
    /// node.
    pub async fn start(sandbox: Sandbox) -> Self {
        let mut cluster = Self::without_kubelet(sandbox).await;
        add_pod_network();
        cluster.start_kubelet(&KubeletSettings::default()).await;
        cluster
    }

    /// Starts the kubelet, and labels its Node as `kubeadm init` does.
    pub async fn start_kubelet(&mut self, settings: &KubeletSettings) {
        self.kubelet = Some(Kubelet::start(&self.sandbox, &self.server, NODE, settings));
        eventually("the kubelet registers its Node", LIMIT, async || {
            self.try_kubectl(&["label", "--overwrite", "node", NODE, "node-role.kubernetes.io/control-plane="])
        })
        .await;
    }

    /// Makes the address of the Service `kubernetes` unreachable.
    pub async fn stop_kube_proxy(&mut self) {
        self.kube_proxy.abort();
        let _ = (&mut self.kube_proxy).await;
    }

    /// Runs kubectl as an administrator in the root of the repository, and returns its output.
    ///
    ///
    /// Returns the standard error if kubectl fails.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(Component::Kubectl.path());
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = command.output().map_err(|error| format!("kubectl: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// As [`Cluster::try_kubectl`]. Panics if kubectl fails.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the output of `kubectl get` with these arguments.
    #[track_caller]
    pub fn get(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "--output=json"], arguments].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// Applies this text.
    #[track_caller]
    pub fn apply(&self, name: &str, manifest: &str) {
        let file = self.sandbox.folder().join(format!("{name}.yaml"));
        fs::write(&file, manifest).unwrap();
        self.kubectl(&["apply", "--filename", file.to_str().unwrap()]);
    }

    /// Applies the sample of the configuration and the Secret, with the values of this vCenter.
    pub fn configure(&self) {
        self.apply("config", &self.config());
        self.create_secret();
    }

    /// Returns the sample of the configuration, with the certificate of this vCenter.
    pub fn config(&self) -> String {
        let sample = include_str!("../../manifests/config/vsphere-cloud-config.yaml");
        let thumbprint = format!("thumbprint: \"{}\"", self.vcenter.sha256_thumbprint());
        let config = sample.replace("# thumbprint: \"AA:BB:…\"", &thumbprint);
        assert!(config.contains(&thumbprint), "the sample has no place for a thumbprint: {config}");
        config
    }

    /// Creates the Secret with the account of this vCenter.
    pub fn create_secret(&self) {
        let user = format!("--from-literal={VCENTER}.username={}", self.vcenter.user());
        let password = format!("--from-literal={VCENTER}.password={}", self.vcenter.password());
        self.kubectl(&["-n", "kube-system", "create", "secret", "generic", "vsphere-cloud-secret", &user, &password]);
    }

    /// Returns a copy of the manifests with the image of these tests, as described on the page for installation.
    pub fn manifests(&self) -> PathBuf {
        let folder = self.sandbox.folder().join("manifests");
        if folder.exists() {
            return folder;
        }
        copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests"), &folder);
        let file = folder.join("image/kustomization.yaml");
        let text = fs::read_to_string(&file).unwrap();
        let named = text.replace(
            "newName: image-not-set/EDIT/manifests/image/kustomization.yaml",
            &format!("newName: {}", images::IMAGE),
        );
        assert_ne!(text, named);
        fs::write(file, named).unwrap();
        folder
    }

    /// Writes a kustomization beside the copy of the manifests, as on the page for installation: a form with components
    /// and further fields. Returns its folder.
    pub fn kustomization(&self, name: &str, form: &str, components: &[&str], fields: &str) -> PathBuf {
        let components: String = components.iter().map(|name| format!("- ../manifests/components/{name}\n")).collect();
        let head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
        let text = format!("{head}resources:\n- ../manifests/{form}\ncomponents:\n{components}{fields}");
        let folder = self.manifests().with_file_name(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("kustomization.yaml"), text).unwrap();
        folder
    }

    /// Waits until the Node has lost the taint of uninitialized nodes.
    pub async fn wait_until_initialized(&self) -> Value {
        self.wait_until_node_is_initialized(NODE).await
    }

    /// As [`Cluster::wait_until_initialized`], for another Node.
    pub async fn wait_until_node_is_initialized(&self, name: &str) -> Value {
        eventually(&format!("{name} is initialized"), LIMIT, async || {
            let node = self.get(&["node", name]);
            let taints = node["spec"]["taints"].to_string();
            match node["spec"]["providerID"].is_string() && !taints.contains("uninitialized") {
                true => Ok(node),
                false => Err(node["spec"].to_string()),
            }
        })
        .await
    }

    /// Returns the pods of the product, in every form.
    pub fn pods(&self) -> Vec<Value> {
        let pods = self.get(&["pods", "-n", "kube-system", "-l", "component=cloud-controller-manager"]);
        pods["items"].as_array().unwrap().clone()
    }

    /// Waits until a pod of the product is ready.
    pub async fn wait_until_ready(&self) -> Value {
        self.wait_until_next_is_ready(&Value::Null).await
    }

    /// Waits until a pod of the product other than this one is ready.
    pub async fn wait_until_next_is_ready(&self, before: &Value) -> Value {
        eventually("a pod of the product is ready", LIMIT, async || {
            let is_next = |pod: &Value| pod["metadata"]["uid"] != before["metadata"]["uid"] && readiness(pod) == "True";
            self.pods().into_iter().find(is_next).ok_or("there is none")
        })
        .await
    }

    /// Waits until the product has no pod.
    pub async fn wait_until_no_pod(&self) {
        eventually("the pods of the product are gone", LIMIT, async || {
            if self.pods().is_empty() { Ok(()) } else { Err("they are there") }
        })
        .await;
    }

    /// Returns the state for a failure message.
    fn state(&self) -> String {
        let mut text = String::new();
        for command in ["get pods -A -o wide", "describe pods -n kube-system", "get events -A"] {
            let arguments: Vec<&str> = command.split(' ').chain(["--request-timeout=10s"]).collect();
            let _ = writeln!(text, "{}", self.try_kubectl(&arguments).unwrap_or_else(|error| error));
        }
        let kubelet = self.kubelet.as_ref().map(|kubelet| kubelet.output().tail(15)).unwrap_or_default();
        let _ = writeln!(text, "kubelet:\n{kubelet}\ncontainerd:\n{}", self.containerd.output().tail(5));
        text
    }
}

impl Drop for Cluster {
    /// Prints the state if a test fails, while all parts still run.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.state());
        }
    }
}

/// As [`support::eventually`], for checks that start programs.
pub async fn eventually<T, E: Display>(what: &str, limit: Duration, check: impl AsyncFnMut() -> Result<T, E>) -> T {
    eventually_every(PERIOD, what, limit, check).await
}

/// Adds the name of vCenter to the file that pods with `hostNetwork` also get.
fn name_vcenter() {
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    fs::write("/etc/hosts", format!("{hosts}\n{VCENTER_ADDRESS} {VCENTER}\n")).unwrap();
    let status = Command::new("ip").args(["address", "add", &format!("{VCENTER_ADDRESS}/32"), "dev", "lo"]).status();
    assert!(status.unwrap().success());
}

/// Forwards connections from this address to a port on loopback. It accepts new ones until the task is aborted.
pub async fn forward(from: &str, to: u16) -> JoinHandle<()> {
    let listener = TcpListener::bind(from).await.unwrap_or_else(|error| panic!("{from}: {error}"));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", to)).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    })
}
