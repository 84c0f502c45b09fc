//! Pure: the annotation that records which label differences were reported, so that a later leader does not report them
//! again. The annotation is removed once no label differs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

use super::action::Metadata;
use super::labels::Difference;
use crate::cloud::node;

/// The annotation: a JSON object from label to the Node's and the cloud's value.
pub const ANNOTATION: &str = "vsphere-ccm.dev/reported";

/// Adds to `changes` the update after which the annotation of `node` lists these differences. Entries of labels whose
/// cloud value is not known yet stay: otherwise each restart of this program would remove and report them again.
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

/// The Node's and the cloud's value, by label.
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
