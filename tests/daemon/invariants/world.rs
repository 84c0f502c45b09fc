//! What races and faults have in common: the machines as they are, the Nodes as others than the daemon write them, and
//! what every version of a Node is held to.

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

/// See the file's header.
pub struct Judged {
    /// By number.
    pub machines: Vec<Machine>,
    /// What versions are held to.
    pub rules: Rules,
    /// What daemons log of the proofs that led to deletions.
    pub proofs: Proofs,
    /// Which routes the Nodes needed, and when.
    pub needs: Needs,
    /// The nodes, as an administrator sees them.
    pub nodes: Api<Node>,
    /// When the last version of a Node came.
    pub last_version: Instant,
    /// The same of a Node whose machine exists.
    pub last_change: Instant,
    versions: Versions,
}

impl Judged {
    /// No machine, and no Node.
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

    /// Holds the versions that have come since the last call to the rules.
    ///
    /// # Panics
    ///
    /// When one of them breaks one.
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

    /// Registers this node, if there is none of its name.
    pub async fn register(&mut self, kubelet: KubeletNode) -> bool {
        let began = Instant::now();
        let written = self.nodes.create(&PostParams::default(), &kubelet.build()).await;
        self.written(written, began)
    }

    /// Deletes this Node, if it is there and no other has come in its place.
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

    /// As a kubelet or kube-controller-manager does. The message makes it another version than the one before.
    pub async fn set_ready(&mut self, name: &str, status: &str, message: &str) -> bool {
        let began = Instant::now();
        let written = set_ready(&self.nodes, name, status, message).await;
        self.written(written, began)
    }

    /// Takes the answer to a write of somebody else than the daemon. There may be no such Node any more, or another write
    /// may have come first.
    pub fn written(&mut self, written: kube::Result<Node>, began: Instant) -> bool {
        match written {
            Ok(node) => self.rules.wrote(&node, began),
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => return false,
            Err(error) => panic!("a Node could not be written: {error}"),
        }
        true
    }
}
