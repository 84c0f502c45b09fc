//! A cluster with the control-plane node on which the product runs, and a worker whose kubelet a test starts and stops.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Value, json};
use support::Vm;
use support::real_node::{Kubelet, KubeletSettings, add_pod_network};
use support::sandbox::Sandbox;
use support::worker::Worker;
use uuid::{Uuid, uuid};

use crate::cluster::{Cluster, LIMIT, eventually};
use crate::nodes::{addresses, readiness, taints};
use crate::pod::{Pod, install_kubeadm};

/// Name of the worker's VM. Neither this name nor the guest's name is the name of a Node.
pub const VM: &str = "vm-of-the-worker";
/// Host name of the worker's guest.
pub const GUEST: &str = "guest-of-the-worker";
/// BIOS UUID of the worker's VM.
pub const UUID: Uuid = uuid!("42312b9c-6a1e-4f0b-9d52-0c7a3e8f1b64");
/// First address of the worker's VM.
pub const ADDRESS: &str = "192.0.2.11";

/// After this time without a heartbeat a Node becomes `Unknown`. The default is 50 s.
pub const GRACE: Duration = Duration::from_secs(10);

/// All parts of the cluster. They end in the order of the fields.
pub struct TwoNodes {
    /// The kubelet of the worker, while it runs.
    pub kubelet: Option<Kubelet>,
    worker: Worker,
    /// The other node, with the shared parts.
    pub cluster: Cluster,
    pub pod: Pod,
    pub nodes: Api<Node>,
}

impl TwoNodes {
    /// Starts all parts except the kubelet of the worker, and waits until the product works. That kubelet will report
    /// `system_uuid`.
    pub async fn start(sandbox: Sandbox, system_uuid: &str) -> Self {
        add_pod_network();
        let mut cluster = Cluster::with_grace(sandbox, GRACE).await;
        cluster.start_kubelet(&settings(&[])).await;
        cluster.vcenter.create_vm(&Vm::new(VM, &UUID.to_string()).guest_host_name(GUEST).ip(ADDRESS)).await;
        give_address(ADDRESS);
        let pod = install_kubeadm(&cluster).await;
        cluster.wait_until_initialized().await;
        let worker = Worker::start(&cluster.sandbox, system_uuid).await;
        let nodes = Api::all(cluster.server.client().await);
        Self { kubelet: None, worker, cluster, pod, nodes }
    }

    /// Starts the kubelet of the worker with this Node name. Stops a running one first.
    pub fn start_kubelet(&mut self, name: &str, flags: &[&str]) {
        drop(self.kubelet.take());
        self.kubelet = Some(self.worker.kubelet(&self.cluster.server, name, &settings(flags)));
    }

    /// Returns the Node with this name, or null without it.
    pub async fn get(&self, name: &str) -> Value {
        json!(self.nodes.get_opt(name).await.unwrap())
    }

    /// Waits until the Node meets `check`.
    pub async fn until(&self, what: &str, name: &str, check: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{name} {what}"), LIMIT, async || {
            let node = self.get(name).await;
            let state = || format!("{} {} {}", node["metadata"], node["spec"], node["status"]["conditions"]);
            if !node.is_null() && check(&node) { Ok(node) } else { Err(format!("{}\n{}", state(), self.logs())) }
        })
        .await
    }

    /// Waits until the Node has these addresses, in any order, and is initialized.
    pub async fn until_addresses_are(&self, name: &str, expected: &[impl AsRef<str>]) -> Value {
        let mut expected: Vec<String> = expected.iter().map(|address| address.as_ref().to_owned()).collect();
        expected.sort();
        let is_initialized = |node: &Value| !taints(node).iter().any(|taint| taint.contains("uninitialized"));
        let check = |node: &Value| is_initialized(node) && addresses(node) == expected;
        self.until(&format!("has the addresses {expected:?}"), name, check).await
    }

    /// Waits until the Node has this status of Ready.
    pub async fn until_ready_is(&self, name: &str, status: &str) -> Value {
        self.until(&format!("is Ready={status}"), name, |node| readiness(node) == status).await
    }

    /// Waits for an Event on the Node, and returns its message.
    pub async fn event(&self, name: &str, reason: &str) -> String {
        let selector = format!("--field-selector=involvedObject.kind=Node,involvedObject.name={name},reason={reason}");
        eventually(&format!("{name} has an Event {reason}"), LIMIT, async || {
            let events = self.cluster.get(&["events", "-n", "default", &selector]);
            let message = events["items"][0]["message"].as_str().map(str::to_owned);
            message.ok_or_else(|| self.cluster.kubectl(&["get", "events", "-n", "default"]))
        })
        .await
    }

    /// Returns the last log lines of the product and of the worker's kubelet.
    pub fn logs(&self) -> String {
        let product = Command::new("sh").args(["-c", "tail -qn 15 /var/log/pods/kube-system_*/*/*.log"]).output();
        let kubelet = self.kubelet.as_ref().map(|kubelet| kubelet.output().tail(10)).unwrap_or_default();
        format!("product:\n{}\nkubelet:\n{kubelet}", String::from_utf8_lossy(&product.unwrap().stdout))
    }
}

/// Returns settings for a kubelet that reports often.
pub fn settings(flags: &[&str]) -> KubeletSettings {
    let configuration = [
        // The kubelet renews the Lease after a quarter of this time.
        ("nodeLeaseDurationSeconds", json!(6)),
        ("nodeStatusUpdateFrequency", json!("1s")),
        ("nodeStatusReportFrequency", json!("1s")),
    ];
    let configuration = configuration.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
    KubeletSettings { flags: flags.iter().map(|&flag| flag.to_owned()).collect(), configuration }
}

/// Adds this address to the network of both nodes.
pub fn give_address(address: &str) {
    let length = if address.contains(':') { 128 } else { 32 };
    let status = Command::new("ip").args(["address", "add", &format!("{address}/{length}"), "dev", "lo"]).status();
    assert!(status.unwrap().success(), "failed to add {address}");
}
