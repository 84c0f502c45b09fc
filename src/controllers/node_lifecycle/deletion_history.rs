//! Pure: the last deletions of Nodes by all replicas, as an annotation of the Lease. They outlast Events and processes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::controllers::decisions::shortened;

/// Annotation with the last deletions, as JSON. The oldest one is first.
pub const ANNOTATION: &str = "vsphere-ccm.dev/deletions";

/// Maximum number of deletions.
pub const MAX_DELETIONS: usize = 20;

/// Maximum length of the annotation, in bytes.
const MAX_BYTES: usize = 16 * 1024;

/// Maximum length of a proof, in characters.
const MAX_PROOF: usize = 400;

/// The deletion of one Node by one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastDeletion {
    /// Name of the Node.
    pub node: String,
    /// UID of the Node.
    pub uid: String,
    /// Start of the query for the proof.
    pub time: Timestamp,
    /// Host of the replica.
    pub replica: String,
    /// The proof that the VM is absent.
    pub proof: String,
    /// Whether the API server did not answer the request, so that the Node may still exist.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_unanswered: bool,
}

impl PastDeletion {
    /// Whether the Node was not deleted after all. `existing` is the UID of the Node that has the name now.
    pub fn has_failed(&self, existing: Option<&str>) -> bool {
        self.is_unanswered && existing == Some(self.uid.as_str())
    }
}

/// Whether a field has its default, so that the annotation omits it.
fn is_false(value: &bool) -> bool {
    !value
}

/// Returns the last deletions, the oldest one first. Returns none if the annotation cannot be read.
pub fn past_deletions(annotations: &BTreeMap<String, String>) -> Vec<PastDeletion> {
    let text = annotations.get(ANNOTATION).filter(|text| text.len() <= MAX_BYTES);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Adds deletions, each in place of an earlier one of the same Node, except that one without an answer never replaces
/// an answered one: another replica may have deleted the Node meanwhile. Drops the oldest ones that do not fit.
pub fn add_deletions(annotations: &mut BTreeMap<String, String>, added: &[PastDeletion]) {
    let mut deletions = past_deletions(annotations);
    for deletion in added {
        if deletion.is_unanswered && deletions.iter().any(|known| known.uid == deletion.uid && !known.is_unanswered) {
            continue;
        }
        deletions.retain(|known| known.uid != deletion.uid);
        let proof = shortened(&deletion.proof, MAX_PROOF).into();
        deletions.push(PastDeletion { proof, ..deletion.clone() });
    }
    let excess = deletions.len().saturating_sub(MAX_DELETIONS);
    deletions.drain(..excess);
    let mut text = serialized(&deletions);
    while text.len() > MAX_BYTES && !deletions.is_empty() {
        deletions.remove(0);
        text = serialized(&deletions);
    }
    annotations.insert(ANNOTATION.to_owned(), text);
}

fn serialized(deletions: &[PastDeletion]) -> String {
    // Cannot fail: all fields are texts.
    serde_json::to_string(deletions).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletion(number: usize, proof: &str) -> PastDeletion {
        PastDeletion {
            node: format!("worker-{number}"),
            uid: format!("uid-{number}"),
            time: "2026-11-20T02:10:04Z".parse().unwrap(),
            replica: "cp-1".to_owned(),
            proof: proof.to_owned(),
            is_unanswered: false,
        }
    }

    fn numbers(annotations: &BTreeMap<String, String>) -> Vec<String> {
        past_deletions(annotations).into_iter().map(|deletion| deletion.node).collect()
    }

    #[test]
    fn the_last_twenty_deletions_are_kept_with_all_other_annotations() {
        let mut annotations: BTreeMap<String, String> = [("other".to_owned(), "kept".to_owned())].into();
        for number in 0..30 {
            add_deletions(&mut annotations, &[deletion(number, "gone")]);
        }
        let expected: Vec<String> = (10..30).map(|number| format!("worker-{number}")).collect();
        assert_eq!(numbers(&annotations), expected);
        assert_eq!(past_deletions(&annotations)[0], deletion(10, "gone"));
        add_deletions(&mut annotations, &[deletion(12, "gone again"), deletion(30, "gone")]);
        let last = past_deletions(&annotations);
        assert_eq!((last.len(), last[18].proof.as_str(), last[19].node.as_str()), (20, "gone again", "worker-30"));
        assert_eq!(annotations["other"], "kept");
    }

    #[test]
    fn the_annotation_has_at_most_16_kib_and_keeps_the_newest() {
        let mut annotations = BTreeMap::new();
        // Each character takes six bytes in JSON.
        let proof = "\u{1}".repeat(100_000);
        for number in 0..30 {
            add_deletions(&mut annotations, &[deletion(number, &proof)]);
            assert!(annotations[ANNOTATION].len() <= MAX_BYTES);
        }
        let kept = numbers(&annotations);
        assert!(kept.len() >= 5 && kept.last().unwrap() == "worker-29", "{kept:?}");
        let huge = PastDeletion { replica: "x".repeat(MAX_BYTES), ..deletion(31, "gone") };
        add_deletions(&mut annotations, &[huge]);
        assert_eq!(annotations[ANNOTATION], "[]", "what does not fit alone is lost");
    }

    #[test]
    fn a_deletion_without_an_answer_is_marked_until_the_answer_to_another_request() {
        let unanswered = PastDeletion { is_unanswered: true, ..deletion(1, "gone") };
        let mut annotations = BTreeMap::new();
        add_deletions(&mut annotations, &[unanswered.clone(), deletion(2, "gone")]);
        assert_eq!(past_deletions(&annotations), [unanswered.clone(), deletion(2, "gone")]);
        assert_eq!(annotations[ANNOTATION].matches("isUnanswered").count(), 1, "{}", annotations[ANNOTATION]);
        add_deletions(&mut annotations, &[deletion(1, "gone")]);
        assert_eq!(past_deletions(&annotations), [deletion(2, "gone"), deletion(1, "gone")]);
        add_deletions(&mut annotations, &[PastDeletion { replica: "cp-2".to_owned(), ..unanswered.clone() }]);
        assert_eq!(past_deletions(&annotations), [deletion(2, "gone"), deletion(1, "gone")]);
        for (known, existing, has_failed) in [
            (&unanswered, Some("uid-1"), true),
            (&unanswered, Some("uid-9"), false),
            (&unanswered, None, false),
            (&deletion(1, "gone"), Some("uid-1"), false),
        ] {
            assert_eq!(known.has_failed(existing), has_failed, "{known:?} {existing:?}");
        }
    }

    #[test]
    fn a_long_proof_ends_with_an_ellipsis() {
        let mut annotations = BTreeMap::new();
        add_deletions(
            &mut annotations,
            &[deletion(1, &"é".repeat(MAX_PROOF)), deletion(2, &"é".repeat(MAX_PROOF + 1))],
        );
        let proofs: Vec<String> = past_deletions(&annotations).into_iter().map(|deletion| deletion.proof).collect();
        assert_eq!(proofs, ["é".repeat(MAX_PROOF), format!("{}…", "é".repeat(MAX_PROOF - 1))]);
    }

    #[test]
    fn an_annotation_that_cannot_be_read_is_replaced() {
        let long = format!("[{}]", " ".repeat(MAX_BYTES));
        for text in ["", "{", "7", "[{\"node\": \"a\"}]", &long] {
            let mut annotations: BTreeMap<String, String> = [(ANNOTATION.to_owned(), text.to_owned())].into();
            assert_eq!(past_deletions(&annotations), []);
            add_deletions(&mut annotations, &[deletion(1, "gone")]);
            assert_eq!(numbers(&annotations), ["worker-1"]);
        }
    }
}
