//! The pod of the product, as the API server and its node show it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::{Cluster, LIMIT, NODE};

/// The container's name, also that of the DaemonSet.
pub const CONTAINER: &str = "vsphere-cloud-controller-manager";

/// Applies the sample of the configuration and this overlay, and waits for a pod that is ready.
pub async fn install(cluster: &Cluster, overlay: &Path) -> Pod {
    cluster.configure();
    cluster.kubectl(&["apply", "--kustomize", overlay.to_str().unwrap()]);
    Pod { name: cluster.wait_until_ready().await }
}

/// As [`install`], with the overlay for kubeadm.
pub async fn install_kubeadm(cluster: &Cluster) -> Pod {
    install(cluster, &cluster.manifests().join("overlays/kubeadm")).await
}

/// As [`install`], with the overlay for kubeadm and these changes to the specification of the pod.
pub async fn install_patched(cluster: &Cluster, pod: &Value) -> Pod {
    let overlay = cluster.manifests().join("overlays/patched");
    let patch = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": CONTAINER, "namespace": "kube-system" },
        "spec": { "template": { "spec": pod } },
    });
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../kubeadm"],
        "patches": [{ "patch": patch.to_string() }],
    });
    std::fs::create_dir(&overlay).unwrap();
    std::fs::write(overlay.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    install(cluster, &overlay).await
}

/// A pod in `kube-system`.
pub struct Pod {
    /// Its name.
    pub name: String,
}

/// Results of a probe since the container started.
#[derive(Debug, Clone, Copy)]
pub struct ProbeCounts {
    /// Probes that succeeded.
    pub successful: u64,
    /// Probes that failed.
    pub failed: u64,
}

impl Pod {
    /// The object.
    pub fn object(&self, cluster: &Cluster) -> Value {
        cluster.get(&["pod", "-n", "kube-system", &self.name])
    }

    /// The status of its container.
    pub fn container(&self, cluster: &Cluster) -> Value {
        self.object(cluster)["status"]["containerStatuses"][0].clone()
    }

    /// How often the kubelet has restarted its container.
    pub fn restarts(&self, cluster: &Cluster) -> u64 {
        self.container(cluster)["restartCount"].as_u64().unwrap()
    }

    /// The condition `Ready`.
    pub fn readiness(&self, cluster: &Cluster) -> Value {
        let pod = self.object(cluster);
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == "Ready").unwrap().clone()
    }

    /// The process of its container, as containerd knows it.
    pub fn process_id(&self, cluster: &Cluster) -> String {
        let container = self.container(cluster);
        let id = container["containerID"].as_str().unwrap().trim_start_matches("containerd://");
        let output = Command::new("ctr").args(["-n", "k8s.io", "tasks", "list"]).output().unwrap();
        let tasks = String::from_utf8(output.stdout).unwrap();
        let task = tasks.lines().find(|line| line.starts_with(id));
        task.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_else(|| panic!("no task {id}: {tasks}")).into()
    }

    /// Where the kubelet puts the files of a volume of this kind whose name begins so.
    pub fn volume(&self, cluster: &Cluster, kind: &str, name: &str) -> PathBuf {
        let pod = self.object(cluster);
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let volumes = Path::new("/var/lib/kubelet/pods").join(uid).join(format!("volumes/kubernetes.io~{kind}"));
        let entries = std::fs::read_dir(&volumes).unwrap_or_else(|error| panic!("{}: {error}", volumes.display()));
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let found = paths.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name));
        found.unwrap_or_else(|| panic!("{} has no volume {name}", volumes.display()))
    }

    /// Its log, as `kubectl logs` prints it.
    pub fn log(&self, cluster: &Cluster) -> Result<String, String> {
        cluster.try_kubectl(&["-n", "kube-system", "logs", &self.name])
    }

    /// Waits for a line of its log with this text.
    pub async fn wait_for_line(&self, cluster: &Cluster, text: &str) -> String {
        support::eventually(&format!("the pod logs {text:?}"), LIMIT, async || {
            let log = self.log(cluster)?;
            let line = log.lines().find(|line| line.contains(text));
            line.map(str::to_owned).ok_or(log)
        })
        .await
    }

    /// What `/readyz?verbose` answers through the API server, as the page for operations asks it.
    pub fn readyz(&self, cluster: &Cluster) -> Result<String, String> {
        let path = format!("/api/v1/namespaces/kube-system/pods/https:{}:10258/proxy/readyz?verbose", self.name);
        cluster.try_kubectl(&["get", "--raw", &path])
    }

    /// How often the kubelet has probed the container's liveness.
    pub fn liveness_probes(&self, cluster: &Cluster) -> ProbeCounts {
        let metrics = cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/metrics/probes")]);
        let count = |result: &str| {
            let labels = [format!("pod=\"{}\"", self.name), "\"Liveness\"".to_owned(), format!("result=\"{result}\"")];
            let is_wanted = |line: &&str| {
                line.starts_with("prober_probe_total{") && labels.iter().all(|label| line.contains(label.as_str()))
            };
            let value = metrics.lines().find(is_wanted).and_then(|line| line.rsplit(' ').next());
            value.map_or(0, |value| value.parse().unwrap())
        };
        ProbeCounts { successful: count("successful"), failed: count("failed") }
    }
}
