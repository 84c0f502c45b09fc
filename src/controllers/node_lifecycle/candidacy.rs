//! Pure: decides whether a Node is a candidate for deletion, before the deletion policy decides.

use k8s_openapi::api::core::v1::Node;

use super::reason;
use crate::cloud::node::{self, Readiness};
use crate::cloud::{AbsenceProof, Presence, Reason, Unknown};

/// The reason why a Node is not deleted, whatever becomes of its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// The Node belongs to another provider.
    OtherProvider,
    /// The Node is `Ready`.
    Ready,
    /// The kubelet reports that the Node is not `Ready`.
    NotReady,
    /// The Node is being deleted, and its finalizers block that. Another request would only use up the limit.
    Leaving,
}

/// The result of the checks that come before the deletion policy, for a Node without an [`Exemption`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidacy {
    /// The VM exists, so the Node stays.
    VmExists,
    /// The Node is not deleted for this reason.
    Held {
        /// The reason for Events, metrics and log.
        reason: Reason,
        /// The message for users.
        message: String,
        /// Whether Events and log omit the reason.
        is_quiet: bool,
    },
    /// The presence of the VM is unknown, which is not reported because deletion is off.
    Unreported(Unknown),
    /// The VM is absent. The deletion policy decides.
    VmAbsent(AbsenceProof),
}

/// Returns the reason why the provider need not be queried about the VM; `None` if the VM decides. `is_own` is whether
/// the Node belongs to this provider, or has no provider ID yet.
pub fn exemption(node: &Node, is_own: bool) -> Option<Exemption> {
    if !is_own {
        return Some(Exemption::OtherProvider);
    }
    match node::readiness(node) {
        Readiness::True => return Some(Exemption::Ready),
        Readiness::False => return Some(Exemption::NotReady),
        Readiness::Unknown => {}
    }
    node.metadata.deletion_timestamp.is_some().then_some(Exemption::Leaving)
}

/// Returns the consequence of the provider's answer about the VM. `is_off` is whether no Node is deleted at all.
pub fn candidacy(node: &Node, presence: Presence, is_off: bool) -> Candidacy {
    let is_absent = matches!(presence, Presence::Absent(_));
    if presence != Presence::Exists(()) && node::is_uninitialized(node) {
        // The node controller reports the reason if the initialization takes too long.
        return Candidacy::Held {
            reason: reason::Uninitialized,
            message: "the node is not initialized; its VM is not treated as deleted".to_owned(),
            is_quiet: !is_absent,
        };
    }
    match presence {
        Presence::Exists(()) => Candidacy::VmExists,
        Presence::Unknown(unknown) if is_off => Candidacy::Unreported(unknown),
        Presence::Unknown(unknown) => {
            Candidacy::Held { reason: unknown.reason, message: unknown.message, is_quiet: unknown.is_transient }
        }
        Presence::Absent(_) if node::provider_id(node).is_empty() => Candidacy::Held {
            reason: reason::NoProviderID,
            message: "the node has no provider ID, so its VM is unknown".to_owned(),
            is_quiet: false,
        },
        Presence::Absent(proof) => Candidacy::VmAbsent(proof),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(ready: &str, provider_id: &str, is_uninitialized: bool) -> Node {
        let taint = json!({"key": node::TAINT_UNINITIALIZED, "effect": "NoSchedule"});
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u"},
            "spec": {"providerID": provider_id, "taints": if is_uninitialized { vec![taint] } else { vec![] }},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_node_of_this_provider_whose_kubelet_is_silent_depends_on_its_vm() {
        let mut leaving = node("Unknown", "p://1", false);
        leaving.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        for (node, is_own, expected) in [
            (node("Unknown", "p://1", false), true, None),
            (node("Unknown", "p://1", true), true, None),
            (node("Unknown", "p://1", false), false, Some(Exemption::OtherProvider)),
            (node("True", "p://1", false), true, Some(Exemption::Ready)),
            (node("False", "p://1", false), true, Some(Exemption::NotReady)),
            (node("strange", "p://1", false), true, Some(Exemption::NotReady)),
            (leaving, true, Some(Exemption::Leaving)),
        ] {
            assert_eq!(exemption(&node, is_own), expected, "{node:?}");
        }
    }

    #[test]
    fn a_node_is_a_candidate_only_with_a_proof_about_the_vm_of_its_provider_id() {
        let (silent, new, nameless) =
            (node("Unknown", "p://1", false), node("Unknown", "p://1", true), node("Unknown", "", false));
        let absent = || Presence::Absent(AbsenceProof::new("gone", []));
        let unknown = || Presence::Unknown(Unknown::new(reason::CloudUnavailable, "no answer"));
        let pending = || Presence::Unknown(Unknown::transient(reason::LookupPending, "searching"));
        let cases = [
            ("it exists", &silent, Presence::Exists(()), false, "exists"),
            ("it exists and is new", &new, Presence::Exists(()), false, "exists"),
            ("it is gone", &silent, absent(), false, "absent"),
            ("it is gone, deletion is off", &silent, absent(), true, "absent"),
            ("it is gone and was new", &new, absent(), false, "Uninitialized"),
            ("unknown and new", &new, unknown(), false, "Uninitialized quiet"),
            ("unknown and new, deletion is off", &new, unknown(), true, "Uninitialized quiet"),
            ("without an ID", &nameless, absent(), false, "NoProviderID"),
            ("unknown", &silent, unknown(), false, "CloudUnavailable"),
            ("not known yet", &silent, pending(), false, "LookupPending quiet"),
            ("unknown, deletion is off", &silent, unknown(), true, "unreported CloudUnavailable"),
        ];
        for (case, node, presence, is_off, expected) in cases {
            let shown = match candidacy(node, presence, is_off) {
                Candidacy::VmExists => "exists".to_owned(),
                Candidacy::Held { reason, is_quiet: true, .. } => format!("{reason} quiet"),
                Candidacy::Held { reason, .. } => reason.to_string(),
                Candidacy::Unreported(unknown) => format!("unreported {}", unknown.reason),
                Candidacy::VmAbsent(_) => "absent".to_owned(),
            };
            assert_eq!(shown, expected, "{case}");
        }
    }
}
