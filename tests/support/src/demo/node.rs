//! The real node of the demo.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::cluster::Machine;
use super::step;
use crate::ApiServer;
use crate::eventually::eventually;
use crate::real_node::{Containerd, Kubelet, KubeletSettings};
use crate::sandbox::Sandbox;

/// A kubelet and its container runtime. They end with this value, before their sandbox.
pub struct RealNode {
    _kubelet: Kubelet,
    _containerd: Containerd,
    sandbox: Sandbox,
}

impl RealNode {
    /// Starts them, and waits until the Node is registered. `has_networks`: with a pod network.
    pub async fn start(sandbox: Sandbox, server: &ApiServer, machine: &Machine, has_networks: bool) -> Self {
        let started = Instant::now();
        let containerd = Containerd::start(&sandbox).await;
        let configuration = [("registerWithTaints".to_owned(), json!([]))].into_iter().collect();
        let worker = KubeletSettings { configuration, ..KubeletSettings::default() };
        let kubelet = Kubelet::start(&sandbox, server, &machine.node, &worker);
        let nodes: Api<Node> = Api::all(server.client().await);
        let network = machine.pod_network();
        let network = json!({ "spec": { "podCIDR": network, "podCIDRs": [network] } });
        let patch = Patch::Merge(if has_networks { network } else { json!({}) });
        eventually("the kubelet registers its Node", Duration::from_secs(60), async || {
            let patched = nodes.patch(&machine.node, &PatchParams::default(), &patch).await;
            patched.map_err(|error| format!("{error}; its last lines:\n{}", kubelet.output().tail(10)))
        })
        .await;
        step("kubelet, containerd", started, &format!("a real node, {}", machine.node));
        Self { _kubelet: kubelet, _containerd: containerd, sandbox }
    }

    /// Returns the prefix of a command that must reach the cluster.
    pub fn enter(&self) -> String {
        format!("sudo {} ", self.sandbox.enter())
    }
}
