//! Pure: the annotation that records the reported label differences, so that a later leader does not report them again.
//! The annotation is removed once no label differs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::action::Metadata;
use super::labels::Difference;
use crate::cloud::node;

/// The annotation. Its value is a JSON object that maps each label to the Node's value and the cloud's value.
pub const ANNOTATION: &str = "vsphere-ccm.dev/reported";

/// Adds to `changes` the update that makes the annotation of `node` list these differences. Entries stay while the
/// cloud's value is unknown; otherwise each restart of this program would report the same difference again.
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

/// Whether the annotation of `node` lists this difference, with the same two values.
pub fn has(node: &Node, difference: &Difference) -> bool {
    known(node)
        .get(difference.label)
        .is_some_and(|(present, cloud)| *present == difference.present && *cloud == difference.cloud)
}

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
