//! The pods of the product, on the API server and on their node.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, LIMIT, NODE};

/// Name of the container and of the DaemonSet.
pub const CONTAINER: &str = "vsphere-cloud-controller-manager";

/// Applies the sample of the configuration and this overlay, and waits for a ready pod.
pub async fn install(cluster: &Cluster, overlay: &Path) -> Pod {
    cluster.configure();
    cluster.kubectl(&["apply", "--kustomize", overlay.to_str().unwrap()]);
    Pod::current(cluster).await
}

/// As [`install`], with the overlay for kubeadm.
pub async fn install_kubeadm(cluster: &Cluster) -> Pod {
    install(cluster, &cluster.manifests().join("overlays/kubeadm")).await
}

/// As [`install`], with the overlay for kubeadm and these changes to the specification of the pod.
pub async fn install_patched(cluster: &Cluster, pod: &Value) -> Pod {
    let patch = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": CONTAINER, "namespace": "kube-system" },
        "spec": { "template": { "spec": pod } },
    });
    let patches = format!("patches: {}\n", json!([{ "patch": patch.to_string() }]));
    install(cluster, &cluster.kustomization("patched", "overlays/kubeadm", &[], &patches)).await
}

/// A pod of the product, with its container at the creation of this value.
pub struct Pod {
    pub name: String,
    /// The object at that time.
    pub object: Value,
    /// The log of that container. An open file stays readable after the kubelet has removed it.
    log: File,
}

/// Results of a probe since the container started.
#[derive(Debug, Clone, Copy)]
pub struct ProbeCounts {
    pub successful: u64,
    pub failed: u64,
}

impl Pod {
    /// Waits until a pod of the product is ready.
    pub async fn current(cluster: &Cluster) -> Self {
        let object = cluster.wait_until_ready().await;
        let name = name(&object).to_owned();
        let folder = format!("kube-system_{name}_{}", object["metadata"]["uid"].as_str().unwrap());
        let path = format!("/var/log/pods/{folder}/{CONTAINER}/{}.log", restarts(&object));
        let log = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { name, object, log }
    }

    /// Returns the current object.
    pub fn get(&self, cluster: &Cluster) -> Value {
        cluster.get(&["pod", "-n", "kube-system", &self.name])
    }

    /// Returns the number of restarts of the container.
    pub fn restarts(&self, cluster: &Cluster) -> u64 {
        restarts(&self.get(cluster))
    }

    /// Returns the process id of the container in the sandbox.
    pub fn process(&self) -> u32 {
        let container = &self.object["status"]["containerStatuses"][0];
        let id = container["containerID"].as_str().unwrap().trim_start_matches("containerd://");
        let output = Command::new("ctr").args(["-n", "k8s.io", "tasks", "list"]).output().unwrap();
        let tasks = String::from_utf8(output.stdout).unwrap();
        let process = tasks.lines().find_map(|line| line.strip_prefix(id)?.split_whitespace().next()?.parse().ok());
        process.unwrap_or_else(|| panic!("no task {id}: {tasks}"))
    }

    /// Returns the log so far, or the complete log after the end of the container. In the file each line begins with a
    /// time, a stream and a flag.
    pub fn log(&self) -> Vec<String> {
        let (mut file, mut text) = (&self.log, String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let line = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
        text.lines().map(line).collect()
    }

    /// Returns the errors in the log.
    pub fn errors(&self) -> Vec<String> {
        self.log().into_iter().filter(|line| line.starts_with('E')).collect()
    }

    /// Waits for a line of the log with this text.
    pub async fn wait_for_line(&self, text: &str) -> String {
        support::eventually(&format!("the pod logs {text:?}"), LIMIT, async || {
            let log = self.log();
            log.iter().find(|line| line.contains(text)).cloned().ok_or_else(|| log.join("\n"))
        })
        .await
    }

    /// Watches the pod until it is deleted, and returns the last object.
    pub async fn wait_until_deleted(&self, cluster: &Cluster) -> Value {
        let pods = Api::<v1::Pod>::namespaced(cluster.server.client().await, "kube-system");
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let since = self.object["metadata"]["resourceVersion"].as_str().unwrap();
        let follow = async {
            let mut events = pods.watch(&only, since).await.unwrap().boxed();
            while let Some(event) = events.next().await {
                if let WatchEvent::Deleted(pod) = event.unwrap() {
                    return json!(pod);
                }
            }
            panic!("the watch of pod {} ended", self.name)
        };
        tokio::time::timeout(LIMIT, follow).await.unwrap_or_else(|_| panic!("pod {} is still there", self.name))
    }

    /// Returns the folder of a volume with this kind and name prefix, where the kubelet puts its files.
    pub fn volume(&self, kind: &str, name: &str) -> PathBuf {
        let uid = self.object["metadata"]["uid"].as_str().unwrap();
        let volumes = Path::new("/var/lib/kubelet/pods").join(uid).join(format!("volumes/kubernetes.io~{kind}"));
        let entries = std::fs::read_dir(&volumes).unwrap_or_else(|error| panic!("{}: {error}", volumes.display()));
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let found = paths.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name));
        found.unwrap_or_else(|| panic!("{} has no volume {name}", volumes.display()))
    }

    /// Returns the results of the kubelet's liveness probes.
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

/// Returns the name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Returns the number of restarts of this pod's container.
pub fn restarts(pod: &Value) -> u64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap()
}
