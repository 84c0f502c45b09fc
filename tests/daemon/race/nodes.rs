//! Changes of Nodes, as kubelets, operators and other controllers make them.

use std::time::Instant;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use support::nodes::{PROVIDED_NODE_IP, UNINITIALIZED_TAINT};

use super::action::{Action, NodeIp};
use super::world::World;
use crate::invariants::rules::{has_taint, number, ready, taints};

impl World<'_> {
    pub(super) async fn register(&mut self, number: usize) -> bool {
        let kubelet = self.cluster.kubelet(number);
        let kubelet = if number < self.control_plane { kubelet.control_plane() } else { kubelet };
        self.judged.register(kubelet).await
    }

    /// Deletes a Node, if there is one.
    pub async fn delete_node(&mut self, number: usize) -> bool {
        let name = self.cluster.name(number);
        let Some(node) = self.judged.nodes.get_opt(&name).await.unwrap() else { return false };
        self.judged.delete(&node).await
    }

    /// Executes a change by another client. Each change sets a new annotation, so that its version differs from all
    /// others.
    pub(super) async fn node(&mut self, number: usize, action: &Action) -> bool {
        let (name, began) = (self.cluster.name(number), Instant::now());
        let step = self.story.count.to_string();
        let mut patch = json!({ "metadata": { "annotations": { "test.example/step": step } } });
        match action {
            Action::Ready(_, status) => return self.judged.set_ready(&name, status, &step).await,
            Action::Taint(_, key) | Action::Untaint(_, key) => {
                return self.change_taint(&name, key, matches!(action, Action::Taint(..))).await;
            }
            Action::Label(_, key, value) => patch["metadata"]["labels"] = json!({ *key: value }),
            Action::Unlabel(_, key) => patch["metadata"]["labels"] = json!({ *key: Value::Null }),
            Action::NodeIp(_, wanted) => {
                let ip = match wanted {
                    NodeIp::Its => json!(self.judged.machines[number].address),
                    NodeIp::Foreign => json!("10.250.0.1"),
                    NodeIp::None => Value::Null,
                };
                patch["metadata"]["annotations"][PROVIDED_NODE_IP] = ip;
            }
            Action::Cordon(_, cordoned) => patch["spec"] = json!({ "unschedulable": cordoned }),
            other => panic!("{other:?} changes no Node"),
        }
        let written = self.judged.nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.judged.written(written, began)
    }

    /// Writes the whole list of taints, as the taint controllers do, unless another write came first. Returns false in
    /// that case.
    async fn change_taint(&mut self, name: &str, key: &str, is_wanted: bool) -> bool {
        let Some(node) = self.judged.nodes.get_opt(name).await.unwrap() else { return false };
        if has_taint(&node, key) == is_wanted {
            return false;
        }
        let mut list = serde_json::to_value(taints(&node)).unwrap();
        let list = list.as_array_mut().unwrap();
        list.retain(|taint| taint["key"] != key);
        if is_wanted {
            list.push(json!({ "key": key, "effect": "NoSchedule" }));
        }
        let (version, began) = (node.metadata.resource_version, Instant::now());
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": list } });
        let written = self.judged.nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.judged.written(written, began)
    }

    pub(super) async fn is_uninitialized(&self, number: usize) -> bool {
        let node = self.judged.nodes.get_opt(&self.cluster.name(number)).await.unwrap();
        node.is_some_and(|node| has_taint(&node, UNINITIALIZED_TAINT))
    }

    /// Returns the nodes by number, with the status of their condition Ready.
    pub async fn readiness(&self) -> Vec<(usize, String)> {
        self.cluster.nodes().await.values().map(|node| (number(node), ready(node).to_owned())).collect()
    }
}
