//! One pod of the product: its log, its container and what became of both.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::Command;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};

use crate::cluster::{Cluster, LIMIT};

/// The container of the manifests.
pub const CONTAINER: &str = "vsphere-cloud-controller-manager";

/// A pod that ran when this was made.
pub struct RunningPod {
    pods: Api<Pod>,
    name: String,
    /// The log of the first container. An open file can be read to its end after the kubelet has removed it.
    log: File,
    /// As [`RunningPod::current`] saw it.
    pub pod: Pod,
}

impl RunningPod {
    /// Waits until a pod of the product is ready.
    pub async fn current(cluster: &Cluster, client: &Client) -> Self {
        let name = cluster.wait_until_ready().await;
        let pods = Api::<Pod>::namespaced(client.clone(), "kube-system");
        let pod = pods.get(&name).await.unwrap();
        let uid = pod.metadata.uid.as_deref().unwrap();
        let path = PathBuf::from(format!("/var/log/pods/kube-system_{name}_{uid}/{CONTAINER}/0.log"));
        let log = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { pods, name, log, pod }
    }

    /// The log so far, or all of it after the end of the pod. A line has a time, a stream and a flag in front.
    pub fn log(&self) -> Vec<String> {
        let (mut file, mut text) = (&self.log, String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let line = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
        text.lines().map(line).collect()
    }

    /// Its container at the moment.
    pub async fn container(&self) -> ContainerStatus {
        container(&self.pods.get(&self.name).await.unwrap())
    }

    /// Follows the pod until the API server has it no more, and gives the last state of its container.
    pub async fn wait_until_deleted(&self) -> ContainerStatus {
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let since = self.pod.metadata.resource_version.as_deref().unwrap();
        let follow = async {
            let mut events = self.pods.watch(&only, since).await.unwrap().boxed();
            while let Some(event) = events.next().await {
                if let WatchEvent::Deleted(pod) = event.unwrap() {
                    return container(&pod);
                }
            }
            panic!("the watch of pod {} ended", self.name)
        };
        tokio::time::timeout(LIMIT, follow).await.unwrap_or_else(|_| panic!("pod {} is still there", self.name))
    }

    /// The process of its container, as the sandbox numbers it.
    pub fn process(&self) -> u32 {
        let id = container(&self.pod).container_id.unwrap();
        let id = id.strip_prefix("containerd://").unwrap();
        let output = Command::new("ctr").args(["-n", "k8s.io", "tasks", "list"]).output().unwrap();
        let tasks = String::from_utf8(output.stdout).unwrap();
        let process = tasks.lines().find_map(|line| line.strip_prefix(id)?.split_whitespace().next()?.parse().ok());
        process.unwrap_or_else(|| panic!("no task {id}: {tasks}"))
    }
}

/// The only container of a pod.
fn container(pod: &Pod) -> ContainerStatus {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    assert_eq!(containers.len(), 1, "{containers:?}");
    containers[0].clone()
}

/// The lines of errors.
pub fn errors(log: &[String]) -> Vec<&String> {
    log.iter().filter(|line| line.starts_with('E')).collect()
}
