//! Mutants of the proof of absence, of the answers of the contract, and of the machine of a node.

use crate::{Mutant, Tests};

const ABSENCE: &str = "src/providers/vsphere/nodes/absence.rs";
const LAST_PLACE: &str = "src/providers/vsphere/nodes/absence/last_place.rs";
const TWINS: &str = "src/providers/vsphere/nodes/absence/twins.rs";
const INSTANCES: &str = "src/providers/vsphere/nodes/instances.rs";
const TRACKER: &str = "src/providers/vsphere/nodes/lookup.rs";
const EVALUATE: &str = "src/providers/vsphere/nodes/lookup/evaluation.rs";
const TRACKED: &str = "src/providers/vsphere/nodes/lookup/node_entry.rs";
const RESOLVE: &str = "src/providers/vsphere/nodes/lookup/resolution.rs";
const UNFOUND: &str = "src/providers/vsphere/nodes/lookup/resolution/not_found.rs";
const BOARD: &str = "src/providers/vsphere/nodes/lookup/instance_cache.rs";
const SLOTS: &str = "src/providers/vsphere/nodes/lookup/vcenters.rs";
const FENCE: &str = "src/providers/vsphere/vcenter/fence.rs";
const VCENTER: &str = "src/providers/vsphere/vcenter/connection.rs";

/// Tests without a server.
const UNIT: Tests = &[&["--lib", "--", "providers::vsphere::"]];
/// Test of a match that is not reported, on the simulator.
const READING: Tests = &[&["--test", "vcenter", "--", "inventory::a_match_is_waited_for"]];
const OUTCOMES: Tests = &[&["--test", "vcenter", "--", "outcomes::"]];

pub fn all() -> Vec<Mutant> {
    vec![
        // Proof of absence.
        Mutant::new(
            "absence-host-not-connected",
            ABSENCE,
            (
                "Some(ReadAnswer::Found(state)) if state != CONNECTED",
                "Some(ReadAnswer::Found(state)) if state.is_empty()",
            ),
            UNIT,
        ),
        Mutant::new(
            "absence-host-gone",
            ABSENCE,
            (
                "        Some(ReadAnswer::Gone) => Err(Unknown::new(\n            reason::HostGone,",
                "        Some(ReadAnswer::Gone) if false => Err(Unknown::new(\n            reason::HostGone,",
            ),
            UNIT,
        ),
        Mutant::new(
            "absence-sign-of-search",
            ABSENCE,
            (
                "matches!(read, ReadAnswer::Found(ids) if !ids.is_empty())",
                "matches!(read, ReadAnswer::Found(ids) if ids.len() > 1)",
            ),
            UNIT,
        ),
        Mutant::new(
            "absence-other-uuid",
            ABSENCE,
            (".filter(|uuid| !uuids.contains(uuid))", ".filter(|_| false)"),
            UNIT,
        ),
        Mutant::new(
            "absence-one-uuid-is-enough",
            ABSENCE,
            ("        for uuid in case.uuids {", "        for uuid in case.uuids.iter().take(1) {"),
            UNIT,
        ),
        Mutant::new(
            "absence-unseen-is-trusted",
            ABSENCE,
            (
                "if !case.last.are_known && !case.trusts_unseen {",
                "if case.last.locations.is_empty() && !case.trusts_unseen {",
            ),
            UNIT,
        ),
        Mutant::new(
            "absence-first-place-is-enough",
            ABSENCE,
            ("    for location in &case.last.locations {", "    for location in case.last.locations.iter().take(1) {"),
            UNIT,
        ),
        Mutant::new(
            "absence-one-of-two-entries",
            ABSENCE,
            (
                "for testimony in testimonies.iter().filter(at_home) {",
                "for testimony in testimonies.iter().filter(at_home).take(1) {",
            ),
            UNIT,
        ),
        Mutant::new(
            "absence-unconfigured-vcenter",
            ABSENCE,
            (
                "    if evidence.is_empty() {\n        let message = format!(\n            \"VM {} was in the vCenter",
                "    if false {\n        let message = format!(\n            \"VM {} was in the vCenter",
            ),
            UNIT,
        ),
        Mutant::new(
            "absence-still-the-same-vcenter",
            ABSENCE,
            (
                "if self.instance_uuid == instance_uuid {",
                "if self.instance_uuid == instance_uuid || !instance_uuid.is_empty() {",
            ),
            UNIT,
        ),
        Mutant::new(
            "absence-uninitialized",
            ABSENCE,
            (
                "if node::is_uninitialized(node) {",
                "if node::is_uninitialized(node) && node::provider_id(node).is_empty() {",
            ),
            UNIT,
        ),
        Mutant::new(
            "absence-system-uuid",
            ABSENCE,
            ("uuids.extend([system.byte_swapped(), system]);", "uuids.extend([system]);"),
            UNIT,
        ),
        Mutant::new(
            "absence-folder-gone",
            ABSENCE,
            (
                "(None, _) | (Some(_), Some(ReadAnswer::Gone)) => {}",
                "(None, _) | (Some(_), Some(ReadAnswer::Gone) | None) => {}",
            ),
            UNIT,
        ),
        // Latest place.
        Mutant::new(
            "last-place-watched",
            LAST_PLACE,
            ("(true, false) => vec![observed],", "(true, false) => vec![recorded],"),
            UNIT,
        ),
        Mutant::new(
            "last-place-rewritten",
            LAST_PLACE,
            ("(false, true) => vec![recorded],", "(false, true) => vec![seen],"),
            UNIT,
        ),
        Mutant::new(
            "last-place-never-watched",
            LAST_PLACE,
            ("are_known: *is_watched_to_end };", "are_known: true };"),
            UNIT,
        ),
        Mutant::new(
            "tracked-watched-in-one-period",
            TRACKED,
            ("                    && self.live_period == snapshot.live_period;\n", ";\n"),
            UNIT,
        ),
        Mutant::new(
            "tracked-record-while-live",
            TRACKED,
            ("_ if is_live => self.facts.recorded.clone(),", "_ if is_live => None,"),
            OUTCOMES,
        ),
        Mutant::new(
            "tracked-keeps-last-observation",
            TRACKED,
            (
                "Self { last_observation, addressed_since, ..Self::new(version, facts) }",
                "Self { addressed_since, ..Self::new(version, facts) }",
            ),
            OUTCOMES,
        ),
        Mutant::new(
            "tracked-seen-is-not-the-end",
            TRACKED,
            (
                "Some(LastObservation { location, recorded, is_watched_to_end: false })",
                "Some(LastObservation { location, recorded, is_watched_to_end: true })",
            ),
            OUTCOMES,
        ),
        Mutant::new(
            "tracked-watched-to-end",
            TRACKED,
            ("last_observation.is_watched_to_end |= is_watched;", "let _ = is_watched;"),
            OUTCOMES,
        ),
        Mutant::new(
            "tracked-first-answer",
            TRACKED,
            (
                "last_observation.is_watched_to_end &= !is_there;\n        self.live_period = None;",
                "last_observation.is_watched_to_end &= !is_there;",
            ),
            UNIT,
        ),
        // Duplicate UUIDs.
        Mutant::new(
            "twins-suspended-is-not-off",
            TWINS,
            (
                "Ok(PowerState::PoweredOff) => continue,",
                "Ok(PowerState::PoweredOff | PowerState::Suspended) => continue,",
            ),
            OUTCOMES,
        ),
        Mutant::new(
            "twins-own-machine",
            TWINS,
            ("ids.iter().filter(|id| !own.is(&instance_uuid, id))", "ids.iter().filter(|id| *own.vm != ***id)"),
            OUTCOMES,
        ),
        Mutant::new("twins-search-fails", TWINS, ("BIOS UUID {uuid}\"))?;", "BIOS UUID {uuid}\")).ok();"), OUTCOMES),
        // Answers of the contract.
        Mutant::new(
            "instances-twins-are-asked",
            INSTANCES,
            ("self.check_no_duplicate_runs(node, &vm.location).await?;", ""),
            OUTCOMES,
        ),
        Mutant::new(
            "instances-seen-is-used",
            INSTANCES,
            ("view.as_ref().and_then(|view| view.last_observation.as_ref())", "view.as_ref().and_then(|_| None)"),
            OUTCOMES,
        ),
        Mutant::new(
            "instances-record-is-used",
            INSTANCES,
            ("let recorded = Location::recorded_on(node);", "let recorded = None;"),
            OUTCOMES,
        ),
        Mutant::new(
            "instances-setup-changed",
            INSTANCES,
            (
                "if Arc::ptr_eq(setup, &self.setup.borrow()) {",
                "if !setup.sources.is_empty() || Arc::ptr_eq(setup, &self.setup.borrow()) {",
            ),
            OUTCOMES,
        ),
        Mutant::new(
            "instances-vcenter-replaced",
            INSTANCES,
            (".if_still(&vcenter.snapshot().instance_uuid)", ""),
            OUTCOMES,
        ),
        Mutant::new(
            "instances-live",
            INSTANCES,
            ("self.find(node).and_then(|vm| self.check_live(vm.vcenter).into())", "self.find(node).map(|_| ())"),
            OUTCOMES,
        ),
        Mutant::new(
            "instances-node-of-this-uid",
            INSTANCES,
            (".filter(|view| *view.uid == *uid)", ".filter(|_| true || uid.is_empty())"),
            OUTCOMES,
        ),
        // Machine of a node.
        Mutant::new(
            "resolve-recorded-vcenter-is-silent",
            RESOLVE,
            (
                "    if let Some(unknown) = recorded_vcenter_unanswered(question, candidate) {\n        return LookupDecision::Wait(unknown);\n    }\n",
                "",
            ),
            UNIT,
        ),
        Mutant::new(
            "resolve-never-reached",
            RESOLVE,
            ("unheard.extend(question.vcenters.iter().filter(|asked| asked.snapshot.instance_uuid.is_empty()));", ""),
            UNIT,
        ),
        Mutant::new(
            "resolve-template",
            RESOLVE,
            (".filter(|candidate| !candidate.record.is_template).collect();", ".collect();"),
            UNIT,
        ),
        Mutant::new(
            "resolve-silent-vcenter",
            RESOLVE,
            ("if silent.is_empty() || is_vouched_for ||", "if silent.is_empty() || is_plain || is_vouched_for ||"),
            UNIT,
        ),
        Mutant::new(
            "evaluate-another-vcenter",
            EVALUATE,
            (
                "(is_same_vcenter && is_same_uuid).then_some((vm, observed, record))",
                "is_same_uuid.then_some((vm, observed, record))",
            ),
            OUTCOMES,
        ),
        Mutant::new(
            "evaluate-another-uuid",
            EVALUATE,
            (
                "(is_same_vcenter && is_same_uuid).then_some((vm, observed, record))",
                "is_same_vcenter.then_some((vm, observed, record))",
            ),
            OUTCOMES,
        ),
        Mutant::new(
            "evaluate-reading-counts-from-the-match",
            EVALUATE,
            ("Some(end_of_reading(since, reported))", "Some(end_of_reading(since, None))"),
            READING,
        ),
        Mutant::new(
            "tracker-answers-are-forgotten",
            TRACKER,
            ("                self.forget_answer(&name, vcenter);\n", ""),
            OUTCOMES,
        ),
        Mutant::new(
            "tracker-waiting-nodes-are-told",
            TRACKER,
            ("        self.changed_nodes.extend(waiting.into_iter().map(Arc::from));\n", ""),
            OUTCOMES,
        ),
        Mutant::new(
            "slots-standby-is-no-loss",
            SLOTS,
            ("tracked.removed_vcenter = (!is_standby).then(lost)", "tracked.removed_vcenter = Some(lost())"),
            OUTCOMES,
        ),
        Mutant::new(
            "unfound-denied",
            UNFOUND,
            ("    if !denied.is_empty() {\n        let others", "    if false {\n        let others"),
            UNIT,
        ),
        Mutant::new(
            "unfound-silent",
            UNFOUND,
            ("    if !silent.is_empty() {\n        let message", "    if false {\n        let message"),
            UNIT,
        ),
        Mutant::new(
            "unfound-first-connection",
            UNFOUND,
            (
                "*queried.answer == SearchAnswer::Pending && will_tell(&queried.snapshot.freshness)",
                "*queried.answer == SearchAnswer::Pending",
            ),
            UNIT,
        ),
        Mutant::new(
            "board-another-uid-is-news",
            BOARD,
            ("known.uid != view.uid || known.presence != view.presence", "known.presence != view.presence"),
            UNIT,
        ),
        Mutant::new("board-either-byte-order", BOARD, ("own.is_same(uuid)", "own == uuid"), OUTCOMES),
        // A new leader must not use data that is older than its leadership.
        Mutant::new(
            "fence-passed-by-an-earlier-request",
            FENCE,
            ("wait_for(|synced| *synced >= number)", "wait_for(|synced| *synced + 1 >= number)"),
            UNIT,
        ),
        Mutant::new(
            "fence-passed-by-an-earlier-snapshot",
            FENCE,
            ("wait_for(|applied| *applied >= snapshot)", "wait_for(|applied| *applied + 1 >= snapshot)"),
            UNIT,
        ),
        Mutant::new(
            "fence-never-waits-for-vcenter",
            VCENTER,
            ("() = self.fence.wait(request) => {}", "() = std::future::ready(()) => {}"),
            OUTCOMES,
        ),
        Mutant::new(
            "fence-never-waits-for-the-board",
            VCENTER,
            ("self.fence.wait_applied(self.snapshot().number)", "std::future::ready(())"),
            OUTCOMES,
        ),
    ]
}
