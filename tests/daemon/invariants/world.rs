//! The common part of race tests and fault tests: the state of the machines, the writes to Nodes by other clients than
//! the daemon, and the rules for every version of a Node.

use std::time::Instant;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use support::KubeletNode;
use support::nodes::set_ready;

use super::machine::Machine;
use super::nsx::presence::Needs;
use super::proofs::Proofs;
use super::rules::{Rules, number};
use super::versions::Versions;

/// The machines and Nodes of a test, with the rules.
pub struct Judged {
    /// Machines by number.
    pub machines: Vec<Machine>,
    /// The rules for versions.
    pub rules: Rules,
    /// The proofs of deletions in the daemons' logs.
    pub proofs: Proofs,
    /// The routes that Nodes needed, with the times.
    pub needs: Needs,
    /// Nodes, with the rights of an administrator.
    pub nodes: Api<Node>,
    /// Arrival of the last version of a Node.
    pub last_version: Instant,
    /// Arrival of the last version of a Node whose machine exists.
    pub last_change: Instant,
    versions: Versions,
}

impl Judged {
    /// Creates the state without machines and Nodes.
    pub fn new(nodes: Api<Node>, versions: Versions, rules: Rules) -> Self {
        let now = Instant::now();
        Self {
            machines: Vec::new(),
            rules,
            proofs: Proofs::new(),
            needs: Needs::default(),
            nodes,
            last_version: now,
            last_change: now,
            versions,
        }
    }

    /// Applies the rules to the versions since the last call.
    ///
    ///
    /// If a version breaks a rule.
    pub fn check(&mut self) {
        for version in self.versions.take() {
            self.last_version = version.at;
            let number = number(&version.node);
            self.needs.take(version.at, &version.node, version.is_deletion);
            if self.machines[number].is_there {
                self.last_change = version.at;
            }
            if let Err(broken) = self.rules.take(version, &self.machines[number]) {
                panic!("node {number}: {broken}");
            }
        }
        self.proofs.read();
        let concluded = self.rules.conclude(&self.machines, |uid, since, until| self.proofs.of(uid, since, until));
        if let Err(broken) = concluded {
            panic!("{broken}");
        }
    }

    /// Registers this node, if no node has its name.
    pub async fn register(&mut self, kubelet: KubeletNode) -> bool {
        let began = Instant::now();
        let written = self.nodes.create(&PostParams::default(), &kubelet.build()).await;
        self.written(written, began)
    }

    /// Deletes this Node, if it exists with the same UID.
    pub async fn delete(&mut self, node: &Node) -> bool {
        self.rules.will_delete(node);
        let preconditions = Some(Preconditions { uid: node.metadata.uid.clone(), resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.nodes.delete(node.metadata.name.as_deref().unwrap(), &parameters).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => false,
            Err(error) => panic!("a Node could not be deleted: {error}"),
        }
    }

    /// Writes the condition Ready as a kubelet or the kube-controller-manager does. `message` makes the version
    /// different from the one before.
    pub async fn set_ready(&mut self, name: &str, status: &str, message: &str) -> bool {
        let began = Instant::now();
        let written = set_ready(&self.nodes, name, status, message).await;
        self.written(written, began)
    }

    /// Records the result of a test's own write. Returns false if the Node does not exist, or if another write came
    /// first.
    pub fn written(&mut self, written: kube::Result<Node>, began: Instant) -> bool {
        match written {
            Ok(node) => self.rules.wrote(&node, began),
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => return false,
            Err(error) => panic!("a Node could not be written: {error}"),
        }
        true
    }
}
