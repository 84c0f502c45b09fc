//! Pure: the annotation that remembers which differing labels were reported, so that a later leader does not report them
//! again. It goes when nothing differs any more.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::action::Metadata;
use super::labels::Difference;
use crate::cloud::node;

/// The annotation: a JSON object of labels, each with what the node has and what the cloud says.
pub const ANNOTATION: &str = "vsphere-ccm.dev/reported";

/// Adds to `changes` what makes the annotation of `node` say that these labels differ. What it says of labels of which the
/// cloud says nothing yet stays: else each start would take it off and report it again.
pub fn set(node: &Node, differences: &[Difference], is_unknown: impl Fn(&str) -> bool, changes: &mut Metadata) {
    let kept = known(node).into_iter().filter(|(label, _)| is_unknown(label));
    let wanted = written(kept.collect(), differences);
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
    known(node)
        .get(difference.label)
        .is_some_and(|(present, cloud)| *present == difference.present && *cloud == difference.cloud)
}

/// By label, what the node had and what the cloud said.
type ReportedLabels = BTreeMap<String, (String, String)>;

fn known(node: &Node) -> ReportedLabels {
    serde_json::from_str(node::annotation(node, ANNOTATION).unwrap_or_default()).unwrap_or_default()
}

fn written(mut all: ReportedLabels, differences: &[Difference]) -> Option<String> {
    for Difference { label, present, cloud, .. } in differences {
        all.insert((*label).to_owned(), (present.clone(), cloud.clone()));
    }
    if all.is_empty() { None } else { serde_json::to_string(&all).ok() }
}
