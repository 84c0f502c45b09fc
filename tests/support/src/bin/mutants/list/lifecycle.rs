//! Mutants of the node-lifecycle controller: which Nodes are deleted, when, and which checks come before.

use crate::{Mutant, Tests};

const GUARD: &str = "src/controllers/node_lifecycle/deletion_policy.rs";
const RULE: &str = "src/controllers/node_lifecycle/deletion_policy/rule.rs";
const CANDIDACY: &str = "src/controllers/node_lifecycle/candidacy.rs";
const ALLOWANCE: &str = "src/controllers/node_lifecycle/deletion_policy/allowance.rs";
const FACTS: &str = "src/controllers/node_lifecycle/deletion_policy/facts.rs";
const DELETION: &str = "src/controllers/node_lifecycle/reconciler/deletion.rs";
const APPLY: &str = "src/controllers/node_lifecycle/apply.rs";
const PATCH: &str = "src/kubernetes/patch.rs";
const TAINTS: &str = "src/controllers/node_lifecycle/reconciler/taints.rs";
const ANSWERS: &str = "src/controllers/node_lifecycle/deletion_policy/answers.rs";
const RECORD: &str = "src/controllers/node_lifecycle/deletion_policy/record.rs";
const PLAN: &str = "src/controllers/node_lifecycle/plan.rs";
const INSTANCES: &str = "src/controllers/instances.rs";
const UNREACHABLE: &str = "src/controllers/node_lifecycle/unreachable.rs";
const RETRIES: &str = "src/controllers/node_lifecycle/retries.rs";
const ROLL: &str = "src/controllers/node_lifecycle/deletion_policy/node_table.rs";
const PAUSE: &str = "src/controllers/node_lifecycle/deletion_pause.rs";
const MONITOR: &str = "src/controllers/node_lifecycle/pause_monitor.rs";
const LEASE: &str = "src/kubernetes/dated_lease.rs";
const WINDOW: &str = "src/kubernetes/request_window.rs";
const DRIVER: &str = "src/controllers/driver.rs";
const HEAD: &str = "src/controllers/node_lifecycle.rs";

/// Tests without a server, and with a server in memory.
const UNIT: Tests = &[&["--lib", "--", "node_lifecycle"], &["--test", "apiserver", "--", "in_memory"]];
/// The same, for code that controllers share.
const SHARED: Tests = &[&["--lib", "--", "controllers"], &["--test", "apiserver", "--", "in_memory"]];
/// The same, with an API server.
const GLUE: Tests = &[&["--lib", "--", "node_lifecycle"], &["--test", "apiserver", "--", "lifecycle"]];

pub fn all() -> Vec<Mutant> {
    vec![
        Mutant::new("guard-grace", GUARD, ("if at < until { Err", "if at > until { Err"), UNIT),
        Mutant::new(
            "guard-by-hand-and-the-control-plane",
            RULE,
            (
                "Self::Grace | Self::MassHold | Self::Limit => true",
                "Self::Grace | Self::MassHold | Self::Limit | Self::ControlPlane => true",
            ),
            UNIT,
        ),
        Mutant::new(
            "guard-by-hand-and-the-limit",
            RULE,
            (
                "Self::Grace | Self::MassHold | Self::Limit => true",
                "Self::Limit => false,\n            Self::Grace | Self::MassHold => true",
            ),
            UNIT,
        ),
        Mutant::new(
            "guard-mass-before-the-deletion",
            RULE,
            (
                "REPEATED: [Self; 4] = [Self::Pause, Self::Grace, Self::ControlPlane, Self::MassHold];",
                "REPEATED: [Self; 3] = [Self::Pause, Self::Grace, Self::ControlPlane];",
            ),
            UNIT,
        ),
        Mutant::new(
            "pause-before-the-deletion",
            RULE,
            (
                "REPEATED: [Self; 4] = [Self::Pause, Self::Grace, Self::ControlPlane, Self::MassHold];",
                "REPEATED: [Self; 3] = [Self::Grace, Self::ControlPlane, Self::MassHold];",
            ),
            UNIT,
        ),
        Mutant::new(
            "pause-is-read-live",
            DELETION,
            ("state.policy.observe_pause(pause);\n", "state.policy.observe_pause(pause.filter(|_| permit.by_hand));\n"),
            UNIT,
        ),
        Mutant::new(
            "pause-that-cannot-be-read",
            PAUSE,
            (
                "return Some(DeletionPause::Unreadable { fault });\n        };\n        if",
                "return Some(DeletionPause::Unreadable { fault }).filter(|_| until.is_empty());\n        };\n        if",
            ),
            UNIT,
        ),
        Mutant::new(
            "pause-without-a-clock",
            PAUSE,
            ("server_time.is_some_and(|time| time >= end)", "server_time.is_none_or(|time| time >= end)"),
            UNIT,
        ),
        Mutant::new(
            "pause-and-an-allowed-node",
            RULE,
            (
                "Self::Grace | Self::MassHold | Self::Limit => true,\n            Self::Mode | Self::Pause | Self::DryRun",
                "Self::Grace | Self::MassHold | Self::Limit | Self::Pause => true,\n            Self::Mode | Self::DryRun",
            ),
            UNIT,
        ),
        Mutant::new(
            "pause-of-a-lease-that-cannot-be-read",
            LEASE,
            ("status == StatusCode::NOT_FOUND && refused.reason == \"NotFound\"", "status == StatusCode::NOT_FOUND"),
            &[&["--lib", "--", "dated_lease"], &["--test", "apiserver", "--", "in_memory"]],
        ),
        Mutant::new(
            "pause-is-acknowledged-late",
            MONITOR,
            ("sleep_until(written + WINDOW + MARGIN)", "sleep_until(written + MARGIN)"),
            UNIT,
        ),
        Mutant::new(
            "deletion-in-its-window",
            WINDOW,
            ("            true => Poll::Pending,\n", "            true => call.as_mut().poll(context),\n"),
            &[&["--lib", "--", "request_window"]],
        ),
        Mutant::new("guard-control-plane-majority", GUARD, ("if lost * 2 > all {", "if lost > all {"), UNIT),
        Mutant::new(
            "guard-mass-is-held",
            GUARD,
            ("if at < mass.until {\n                let names", "if at > mass.until {\n                let names"),
            UNIT,
        ),
        Mutant::new(
            "guard-mass-of-others",
            GUARD,
            ("if mass.from.is_some_and(|from| since < from) {", "if mass.from.is_some() {"),
            UNIT,
        ),
        Mutant::new(
            "guard-mass-is-armed-again",
            GUARD,
            (
                "        if self.nodes.count(NodeCategory::NewlyAbsent) > threshold {\n            let names =",
                "        if self.mass_hold.is_none() {\n            let names =",
            ),
            UNIT,
        ),
        Mutant::new(
            "guard-counts-unanswered",
            GUARD,
            ("if absent + unanswered > threshold(nodes) {", "if absent > threshold(nodes) {"),
            UNIT,
        ),
        Mutant::new(
            "guard-answer-of-this-uid",
            ANSWERS,
            ("record.asking = record.facts.is_same_subject(facts).then_some(at)", "record.asking = Some(at)"),
            UNIT,
        ),
        Mutant::new(
            "guard-overtaken-of-this-uid",
            FACTS,
            ("self.uid == later.uid && self.provider_id", "self.provider_id"),
            UNIT,
        ),
        Mutant::new(
            "guard-same-suspicion",
            GUARD,
            (
                "known.absent_since() == Some(permit.since) && self.first_hold",
                "known.absent_since().is_some() && self.first_hold",
            ),
            UNIT,
        ),
        Mutant::new("guard-gives-back", GUARD, ("            self.allowance.give_back(permit.number);\n", ""), UNIT),
        Mutant::new(
            "guard-deleted-lately-is-given-back",
            GUARD,
            ("            self.recently_deleted.retain(|gone| gone.permit != permit.number);\n", ""),
            UNIT,
        ),
        Mutant::new(
            "guard-told",
            GUARD,
            (
                "DeletionRule::DryRun if known.is_dry_run_reported =>",
                "DeletionRule::DryRun if known.is_dry_run_reported && by_hand =>",
            ),
            UNIT,
        ),
        Mutant::new(
            "guard-refused",
            GUARD,
            ("match known.retry.not_before(at) {", "match known.retry.not_before(at).filter(|until| *until < at) {"),
            UNIT,
        ),
        Mutant::new(
            "guard-off",
            GUARD,
            (
                "DeletionRule::Mode => self.check_mode(),",
                "DeletionRule::Mode if by_hand => self.check_mode(),\n            DeletionRule::Mode => Ok(()),",
            ),
            UNIT,
        ),
        Mutant::new(
            "guard-existed-before",
            ROLL,
            ("..NodeCategory::Unanswered(Some(since)))", "..=NodeCategory::Unanswered(None))"),
            UNIT,
        ),
        Mutant::new(
            "guard-leaving-is-lost",
            GUARD,
            ("if known.facts.is_leaving || known.absent_since().is_some() {", "if known.absent_since().is_some() {"),
            UNIT,
        ),
        Mutant::new(
            "guard-vanished",
            GUARD,
            ("        for name in &vanished {\n            self.nodes.remove(name);\n        }\n", ""),
            UNIT,
        ),
        Mutant::new(
            "guard-another-suspect",
            RECORD,
            ("} else if !self.facts.is_same_subject(&facts) {", "} else if !self.facts.is_same_node(&facts) {"),
            UNIT,
        ),
        Mutant::new(
            "guard-limit-counts-the-deleted",
            GUARD,
            ("(self.nodes.count(NodeCategory::Own) + self.deleted())", "self.nodes.count(NodeCategory::Own)"),
            UNIT,
        ),
        Mutant::new(
            "allowance-window",
            ALLOWANCE,
            (
                "    at.saturating_duration_since(taken) < window\n",
                "    at.saturating_duration_since(taken) <= window\n",
            ),
            UNIT,
        ),
        Mutant::new(
            "allowance-new-leader",
            ALLOWANCE,
            (
                "        if passed >= bounds.window {\n            return bounds.capacity;",
                "        if passed >= Duration::ZERO {\n            return bounds.capacity;",
            ),
            UNIT,
        ),
        Mutant::new(
            "facts-unknown-only",
            FACTS,
            ("readiness == Readiness::Unknown && is_candidate", "readiness != Readiness::True && is_candidate"),
            UNIT,
        ),
        Mutant::new("facts-transition", FACTS, ("            && self.transition == later.transition\n", ""), UNIT),
        Mutant::new("facts-provider-id", FACTS, (" && self.provider_id == later.provider_id", ""), UNIT),
        Mutant::new(
            "deletion-live-node",
            DELETION,
            ("if !is_still(&live, node, permit.by_hand) {", "if !is_still(&live, &live, permit.by_hand) {"),
            UNIT,
        ),
        Mutant::new(
            "deletion-still-permitted",
            DELETION,
            (
                "&& state.policy.is_still_permitted(permit, now())",
                "&& (state.policy.is_still_permitted(permit, now()) || state.policy.capacity() > 0)",
            ),
            UNIT,
        ),
        Mutant::new(
            "deletion-late-proof",
            DELETION,
            ("&facts, now()).is_some()\n", "&facts, now()).is_some_and(|_| true) | !permit.by_hand\n"),
            UNIT,
        ),
        Mutant::new(
            "deletion-unanswered-is-used",
            DELETION,
            (
                "DeletionResult::Deleted(_) | DeletionResult::Unanswered(_) => PermitOutcome::Deleted,\n            DeletionResult::Told(_) => PermitOutcome::DryRun,\n            DeletionResult::Vanished",
                "DeletionResult::Deleted(_) => PermitOutcome::Deleted,\n            DeletionResult::Told(_) => PermitOutcome::DryRun,\n            DeletionResult::Unanswered(_) | DeletionResult::Vanished",
            ),
            UNIT,
        ),
        Mutant::new(
            "deletion-dry-run",
            DELETION,
            (
                "if self.settings.deletion != DeletionMode::Enforce {",
                "if matches!(self.settings.deletion, DeletionMode::Off { .. }) {",
            ),
            UNIT,
        ),
        Mutant::new(
            "deletion-second-proof",
            DELETION,
            (
                "let Presence::Absent(proof) = self.query_provider(&live).await else",
                "let Presence::Absent(proof) = self.presence(&live).await else",
            ),
            UNIT,
        ),
        Mutant::new(
            "deletion-failed-after-it-was-done",
            DELETION,
            ("live.metadata.uid != node.metadata.uid || live", "live"),
            UNIT,
        ),
        Mutant::new(
            "apply-resource-version",
            APPLY,
            ("resource_version: node.metadata.resource_version.clone() };", "resource_version: None };"),
            UNIT,
        ),
        Mutant::new(
            "apply-uid",
            APPLY,
            ("Preconditions { uid: node.metadata.uid.clone(),", "Preconditions { uid: None,"),
            UNIT,
        ),
        Mutant::new(
            "apply-taints-with-version",
            PATCH,
            ("json!(metadata.resource_version));", "json!(None::<String>));"),
            UNIT,
        ),
        Mutant::new(
            "look-fresh-power",
            TAINTS,
            ("Ok(PowerState::Off) => {\n                let mut state", "Ok(_) => {\n                let mut state"),
            UNIT,
        ),
        Mutant::new(
            "look-late-answer",
            ANSWERS,
            ("let Some(asked) = record.asking else {", "let Some(asked) = record.asking.or(Some(at)) else {"),
            UNIT,
        ),
        Mutant::new(
            "look-uninitialized",
            CANDIDACY,
            (
                "if presence != Presence::Exists(()) && node::is_uninitialized(node) {",
                "if matches!(presence, Presence::Unknown(_)) && node::is_uninitialized(node) {",
            ),
            UNIT,
        ),
        Mutant::new(
            "look-kubelet-reports",
            CANDIDACY,
            ("Readiness::False => return Some(Exemption::NotReady),", "Readiness::False => {}"),
            UNIT,
        ),
        Mutant {
            missed_because: Some("the event of the other Node comes to the same taints at that moment"),
            ..Mutant::new(
                "look-conflict-with-another-node",
                TAINTS,
                (
                    "live.metadata.uid == node.metadata.uid && self.instances.provider.owns(&live)",
                    "self.instances.provider.owns(&live)",
                ),
                UNIT,
            )
        },
        Mutant::new(
            "look-taint-without-answer",
            TAINTS,
            (
                "if is_refused { PermitOutcome::Unused } else { PermitOutcome::Deleted }",
                "if written.is_err() { PermitOutcome::Unused } else { PermitOutcome::Deleted }",
            ),
            UNIT,
        ),
        Mutant::new(
            "look-refused-write-waits",
            TAINTS,
            ("rejected_changes.wait(name, uid, now())", "rejected_changes.wait(name, \"\", now())"),
            UNIT,
        ),
        Mutant::new(
            "look-kept-unknown-is-told",
            RECORD,
            ("Some(answer) if answer.presence == Presence::Exists(()) =>", "Some(answer) if !answer.is_absent() =>"),
            UNIT,
        ),
        Mutant::new(
            "answers-subject",
            ANSWERS,
            (".filter(|record| record.facts.is_same_subject(facts))?;", "?;"),
            UNIT,
        ),
        Mutant::new("answers-due", ANSWERS, ("answer.due.is_some_and(|due| at < due)", "answer.due.is_some()"), UNIT),
        Mutant::new(
            "answers-forgotten-while-asked",
            RECORD,
            ("(self.asking, self.failures) = (None, 0);", "self.failures = 0;"),
            UNIT,
        ),
        Mutant::new(
            "answers-late-answer-ends-suspicion",
            RECORD,
            ("is_some_and(|last| is_absent && last.is_absent())", "is_some_and(|last| last.is_absent())"),
            UNIT,
        ),
        Mutant::new(
            "answers-late-answer-counts-as-none",
            RECORD,
            ("is_some_and(|last| is_absent && last.is_absent())", "is_some_and(|_| is_absent)"),
            UNIT,
        ),
        Mutant::new(
            "answers-allowed-by-hand",
            RECORD,
            ("            if has_permission_changed {", "            if false {"),
            UNIT,
        ),
        Mutant::new(
            "answers-failures-outlast-a-report",
            RECORD,
            ("failures: self.failures, unknown_reason: self.unknown_reason, ..Self", "..Self"),
            UNIT,
        ),
        Mutant::new(
            "answers-since-the-first",
            RECORD,
            ("Some(since) if answer.is_absent() =>", "Some(since) if !answer.is_absent() =>"),
            UNIT,
        ),
        Mutant::new(
            "plan-out-of-service-unknown",
            PLAN,
            (
                "let is_candidate = readiness == Readiness::Unknown &&",
                "let is_candidate = readiness != Readiness::True &&",
            ),
            UNIT,
        ),
        Mutant::new("plan-out-of-service-since", PLAN, ("power.lasting.min(unreachable_for)", "power.lasting"), UNIT),
        Mutant::new(
            "plan-out-of-service-suspended",
            PLAN,
            (
                "if !is_candidate || power.state != PowerState::Off {",
                "if !is_candidate || power.state == PowerState::On {",
            ),
            UNIT,
        ),
        Mutant::new(
            "plan-out-of-service-of-others",
            PLAN,
            (
                "!node::is_uninitialized(node) && !is_theirs;",
                "!node::is_uninitialized(node) && (!is_theirs || is_theirs);",
            ),
            UNIT,
        ),
        Mutant::new(
            "observe-limit",
            INSTANCES,
            (
                "Err(_) => Presence::Unknown(Unknown::new(\n            reason::ProviderTimeout",
                "Err(_) => Presence::Unknown(Unknown::transient(\n            reason::LookupPending",
            ),
            SHARED,
        ),
        Mutant::new("driver-notes-at-once", HEAD, ("                self.observe(&name);\n", ""), GLUE),
        Mutant::new(
            "driver-events-end-answers",
            HEAD,
            ("                self.state.lock().policy.expire(&name);\n", ""),
            GLUE,
        ),
        Mutant::new(
            "driver-all-answers-end",
            HEAD,
            ("                self.state.lock().policy.expire_all();\n", ""),
            GLUE,
        ),
        Mutant::new(
            "driver-backoff",
            DRIVER,
            ("                keys.retain(|key| !queues.of(term, key).is_backing_off(key));\n", ""),
            SHARED,
        ),
        Mutant::new(
            "unreachable-of-this-uid",
            UNREACHABLE,
            ("            && self.uid == node.metadata.uid.as_deref().unwrap_or_default()\n", ""),
            UNIT,
        ),
        Mutant::new(
            "unreachable-without-a-break",
            UNREACHABLE,
            ("            && self.transition == node::ready_since(node)\n", ""),
            UNIT,
        ),
        Mutant::new("retries-double", RETRIES, ("self.failures.next_pause(", "Failures::default().next_pause("), UNIT),
        Mutant::new(
            "retries-of-this-uid",
            RETRIES,
            ("self.by_node.get(name).filter(|failure| failure.uid == uid)?", "self.by_node.get(name)?"),
            UNIT,
        ),
        Mutant::new("look-other-changes", TAINTS, ("(*failed == planned).then_some(wait)", "Some(wait)"), UNIT),
        Mutant::new(
            "roll-told-count-nowhere",
            ROLL,
            ("record.absent_since().filter(|_| !record.is_dry_run_reported)", "record.absent_since()"),
            UNIT,
        ),
        Mutant::new("roll-newcomers", ROLL, ("from.is_none_or(|from| *since >= from)", "from.is_none()"), UNIT),
        Mutant::new(
            "roll-absent-is-kept",
            ROLL,
            ("*count -= 1;", "*count -= usize::from(category != NodeCategory::Absent);"),
            UNIT,
        ),
    ]
}
