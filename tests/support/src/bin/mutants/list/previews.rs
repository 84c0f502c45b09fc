//! Mutants of the previews: what `plan` and `explain` announce before the controllers write.

use crate::{Mutant, Tests};

const NODES: &str = "src/app/inquiries/plan/nodes.rs";
const NODE: &str = "src/controllers/node/reconciler/preview.rs";
const LIFECYCLE: &str = "src/controllers/node_lifecycle/reconciler/preview.rs";
const CHECKS: &str = "src/controllers/node_lifecycle/deletion_policy/explanation.rs";
const SERVICE: &str = "src/providers/vsphere/nsx/load_balancer/service_call/preview.rs";

/// The race of the controllers with the announcements.
const RACE: Tests = &[&["--lib", "--", "plan::nodes::tests::race"]];
/// Every step of every plan of a load balancer.
const STEPS: Tests = &[&["--lib", "--", "load_balancer::plan"]];

pub fn all() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "preview-unknown-is-unchanged",
            NODES,
            ("Presence::Unknown(unknown) => Some(unknown.clone()),", "Presence::Unknown(_) => None,"),
            RACE,
        ),
        Mutant::new(
            "preview-announces-no-deletion",
            NODES,
            (
                ".map(|(_, hold)| hold.clone()).or(dry_run)",
                ".map(|(_, hold)| hold.clone()).or(Some(HoldReason::DryRun))",
            ),
            RACE,
        ),
        Mutant::new(
            "preview-without-deferred-writes",
            NODE,
            (
                "self.preview_with(node, answer, AllowedWrites { of_record: true, of_labels: true })",
                "self.preview_with(node, answer, AllowedWrites::default())",
            ),
            RACE,
        ),
        Mutant::new(
            "preview-without-taints",
            LIFECYCLE,
            (
                "Some(LifecyclePreview { deletion: self.explain_node(node), taints, out_of_service_hold })",
                "taints.clear();\n        \
                 Some(LifecyclePreview { deletion: self.explain_node(node), taints, out_of_service_hold })",
            ),
            RACE,
        ),
        Mutant::new(
            "preview-without-the-rules-of-deletions",
            CHECKS,
            ("self.first_hold(&DeletionRule::ALL, &suspect, at)", "self.first_hold(&[], &suspect, at)"),
            RACE,
        ),
        Mutant::new(
            "preview-of-another-step",
            SERVICE,
            ("Action::Delete(_) => Self::Delete,", "Action::Delete(_) => Self::Update,"),
            STEPS,
        ),
        Mutant::new(
            "preview-without-a-difference",
            SERVICE,
            ("compare(\"node port\", text(present.node_port), text(wanted.node_port));", ""),
            STEPS,
        ),
    ]
}
