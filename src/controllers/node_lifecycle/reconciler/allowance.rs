//! Allows the deletion of one Node by hand, for the command `deletions allow`: the proof is known, and the annotation is
//! written.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::NodeLifecycleReconciler;
use crate::controllers::node_lifecycle::candidacy::Candidacy;
use crate::controllers::node_lifecycle::plan::{self, ANNOTATION_ALLOW_DELETION};
use crate::controllers::read_live;
use crate::kubernetes::call::CallError;
use crate::kubernetes::patch::{patch, permits_retry, preconditions};

/// Reason why a deletion was not allowed by hand.
#[derive(Debug, thiserror::Error)]
pub enum AllowanceError {
    /// There is no Node with this name and UID, or it is being deleted.
    #[error("the Node is gone, is being deleted, or was replaced by another Node of its name")]
    OtherNode,
    /// The VM of the Node is not proved to be absent in this term, or the kubelet reports.
    #[error("there is no proof that its VM is deleted, so there is nothing to allow")]
    NoProof,
    /// The Node cannot be read or written.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl NodeLifecycleReconciler {
    /// Sets the annotation that allows the deletion of this Node, if the absence of its VM is proved. Returns whether
    /// the annotation was not there before. The write needs leadership.
    ///
    /// # Errors
    /// The Node or the proof is not there, or a call failed.
    pub async fn allow_deletion(&self, name: &str, uid: &str) -> Result<bool, AllowanceError> {
        let mut attempts = 0;
        loop {
            let live = read_live(&self.api, name).await?;
            let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(uid)) else {
                return Err(AllowanceError::OtherNode);
            };
            if live.metadata.deletion_timestamp.is_some() {
                return Err(AllowanceError::OtherNode);
            }
            if !self.is_proved_absent(&live) {
                return Err(AllowanceError::NoProof);
            }
            if plan::is_allowed_by_hand(&live) {
                return Ok(false);
            }
            let what = format!("allow the deletion of Node {name}");
            match patch(&what, &self.api, name, body(&live)).await {
                Ok(_) => {
                    tracing::info!(node = name, uid, "the deletion of the node was allowed by a command");
                    return Ok(true);
                }
                Err(error) if permits_retry(&mut attempts, &error).await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the last answer about the VM of the Node in its live state proves that the VM is absent.
    fn is_proved_absent(&self, live: &Node) -> bool {
        let facts = self.explain_node(live);
        matches!(facts.candidacy, Some(Candidacy::VmAbsent(_))) && facts.checks.is_some()
    }
}

fn body(node: &Node) -> Value {
    let mut metadata = preconditions(&node.metadata);
    metadata.insert("annotations".into(), json!({ANNOTATION_ALLOW_DELETION: "true"}));
    json!({"metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_has_the_annotation_and_the_version_of_the_node() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}})).unwrap();
        let annotations = json!({ANNOTATION_ALLOW_DELETION: "true"});
        let expected = json!({"metadata": {"uid": "u", "resourceVersion": "7", "annotations": annotations}});
        assert_eq!(body(&node), expected);
    }
}
