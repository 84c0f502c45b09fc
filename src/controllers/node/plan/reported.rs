//! Pure: the annotation that remembers which differing labels were reported, so that a later leader does not report them
//! again. It goes when nothing differs any more.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::action::Metadata;
use super::labels::Difference;
use crate::cloud::node;

/// The annotation: a JSON object of labels, each with what the node has and what the cloud says.
pub const ANNOTATION: &str = "vsphere-ccm.dev/reported";

/// Adds to `changes` what makes the annotation of `node` say that these labels differ.
pub fn set(node: &Node, differences: &[Difference], changes: &mut Metadata) {
    let wanted = written(differences);
    match (node::annotation(node, ANNOTATION), wanted) {
        (present, Some(wanted)) if present != Some(&wanted) => {
            changes.annotations.insert(ANNOTATION.to_owned(), wanted);
        }
        (Some(_), None) => {
            changes.removed_annotations.insert(ANNOTATION);
        }
        _ => {}
    }
}

/// Whether the annotation of `node` has this difference.
pub fn has(node: &Node, difference: &Difference) -> bool {
    let text = node::annotation(node, ANNOTATION).unwrap_or_default();
    let known: BTreeMap<String, (String, String)> = serde_json::from_str(text).unwrap_or_default();
    known
        .get(difference.label)
        .is_some_and(|(present, cloud)| *present == difference.present && *cloud == difference.cloud)
}

fn written(differences: &[Difference]) -> Option<String> {
    let values = |difference: &Difference| [difference.present.clone(), difference.cloud.clone()];
    let all: BTreeMap<_, _> = differences.iter().map(|difference| (difference.label, values(difference))).collect();
    if all.is_empty() { None } else { serde_json::to_string(&all).ok() }
}
