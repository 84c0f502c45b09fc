//! Tests of the explanation, as tables of texts.

use super::*;
use crate::app::reports::explain::ExplainReport;
use crate::app::reports::explain::Fact;
use crate::app::reports::golden::assert_golden;
use crate::cloud::Unknown;
use crate::controllers::node_lifecycle::deletion_history::PastDeletion;
use crate::controllers::node_lifecycle::deletion_pause::DeletionPause;
use crate::controllers::node_lifecycle::deletion_policy::{Counts, DeletionRule, Facts, HoldReason};
use crate::controllers::node_lifecycle::reason;
use crate::providers::vsphere::reason as vsphere;
use std::time::{Duration, Instant};

const NOW: &str = "2026-11-24T03:12:40Z";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a moment that has earlier moments, also soon after the start of the host.
fn moment() -> Instant {
    Instant::now() + seconds(100_000)
}

fn node(presence: Presence, candidacy: Candidacy, now: Instant) -> NodeDeletionFacts {
    NodeDeletionFacts {
        mode: DeletionMode::Enforce,
        facts: Facts {
            uid: "u-7".to_owned(),
            provider_id: "vsphere://4211a1b2".to_owned(),
            is_own: true,
            is_control_plane: false,
            is_leaving: false,
            may_have_absent_vm: true,
            is_allowed_by_hand: false,
            readiness: Readiness::Unknown,
            transition: "2026-11-24T03:11:40Z".parse().ok(),
        },
        unknown_for: seconds(59),
        exemption: None,
        answer: Some(LastAnswer {
            presence,
            since: now - seconds(12),
            requested_at: now - seconds(13),
            due: Some(now + seconds(48)),
        }),
        candidacy: Some(candidacy),
        checks: None,
        reported: None,
    }
}

fn absent(hold: Option<(DeletionRule, HoldReason)>, now: Instant) -> NodeDeletionFacts {
    let proof = AbsenceProof::new("no VM with the UUID", ["host-3 is connected".to_owned()]);
    let counts = Counts { allowance: 4, is_mass_held: false, absent: 2, nodes: 12 };
    let (at, since) = (now - seconds(2), now - seconds(12));
    let inputs = DeletionDecision {
        at: now,
        since,
        counts,
        by_hand: false,
        control_plane: None,
        hold: hold.as_ref().map(|(_, hold)| hold.clone()),
    };
    let checks = DeletionChecks {
        hold,
        last_decision: Some(DeletionDecision { at, ..inputs.clone() }),
        inputs,
        grace_until: since + seconds(30),
        mass_hold_until: None,
        refused_until: None,
        capacity: 5,
        window: seconds(600),
        next_charge: Some(now),
    };
    let facts = node(Presence::Absent(proof.clone()), Candidacy::VmAbsent(proof), now);
    NodeDeletionFacts { checks: Some(checks), ..facts }
}

fn explained(node: NodeDeletionFacts, now: Instant) -> Explanation {
    let facts = DeletionFacts { node: Some(node), deletion: None };
    explanation("worker-7", &facts, None, &AnswerTime::of(now, NOW))
}

fn text(explanation: Explanation) -> Vec<String> {
    let report = explanation.report_of_test();
    report.lines().iter().map(|line| line.text().to_owned()).collect()
}

#[test]
fn a_node_in_its_grace_period_has_rules_proof_and_clocks() {
    let now = moment();
    let until = now + seconds(18);
    let node = absent(Some((DeletionRule::Grace, HoldReason::Grace { until })), now);
    let expected = "\
deletion of Node worker-7   not deleted: DeletionGracePeriod

Reason for the hold
  reason            DeletionGracePeriod
  message           the grace period runs until 2026-11-24T03:12:58Z; then the Node may be deleted,
                    unless its kubelet reports
  who acts          no one: the Node is checked again at 2026-11-24T03:12:58Z
  remedy            to delete it at once, only if the VM is gone for certain: kubectl annotate node
                    worker-7 vsphere-ccm.dev/allow-deletion=true
  page              docs/reasons.md#deletiongraceperiod

Node
  Ready             Unknown since 2026-11-24T03:11:40Z
  seen so           for 59 s, by this leader
  UID               u-7
  provider ID       vsphere://4211a1b2

Rules (docs/node-lifecycle.md)
  passed            Ready=Unknown: its kubelet does not report
  passed            Uninitialized, NoProviderID, MalformedProviderID: initialized, provider ID set
  passed            proof: the VM is confirmed deleted
  passed            DeletionOff: deletion is not off
  passed            DeletionPaused: deletions are not paused
  passed            DeletionDryRun: deletions are not only reported
  passed            DeletionRefused: no pause after a refusal of the API server
  holds             DeletionGracePeriod
  not reached       DeletionControlPlaneMajority
  not reached       DeletionMassHold
  not reached       DeletionLimitReached

Proof that the VM is deleted
  1                 no VM with the UUID
  2                 host-3 is connected
  confirmed since   2026-11-24T03:12:28Z, 12 s
  last looked up    2026-11-24T03:12:27Z
  next look-up      2026-11-24T03:13:28Z, at an event of the VM, and right before a deletion

Clocks and limits
  mode              enforce
  grace period      until 2026-11-24T03:12:58Z
  allowance         4 of 5 in 10 m
  absent VMs        2 of 12 Nodes
  mass hold         none
  last decision     DeletionGracePeriod at 2026-11-24T03:12:38Z";
    assert_eq!(text(explained(node, now)).join("\n"), expected);
}

/// Returns the texts of the facts with this label.
fn texts<'a>(facts: &'a [Fact], label: &str) -> Vec<&'a str> {
    facts.iter().filter(|fact| fact.label == label).map(|fact| fact.text.as_str()).collect()
}

fn actor_without_end(hold: &HoldReason) -> &'static str {
    match hold {
        HoldReason::Counting { .. } => "no one",
        HoldReason::Paused(_) => "an operator",
        _ => "the administrator of the cluster",
    }
}

#[test]
fn every_hold_names_who_acts_and_a_remedy_with_the_name_of_the_node() {
    let now = moment();
    let until = now + seconds(60);
    let names = ["worker-7".to_owned()].into();
    let window = seconds(600);
    let table = [
        (DeletionRule::Mode, HoldReason::Off { reason: "--node-deletion=off" }, "kubectl delete node worker-7"),
        (
            DeletionRule::Pause,
            HoldReason::Paused(DeletionPause::Unreadable { fault: "the annotation is odd".to_owned() }),
            "manager deletions resume",
        ),
        (DeletionRule::DryRun, HoldReason::DryRun, "--node-deletion=enforce"),
        (
            DeletionRule::Refusal,
            HoldReason::Refused { until },
            "involvedObject.name=worker-7,reason=DeletingNodeFailed",
        ),
        (DeletionRule::Grace, HoldReason::Grace { until }, "allow-deletion=true"),
        (DeletionRule::ControlPlane, HoldReason::ControlPlane { not_ready: 2, all: 3 }, "recover etcd"),
        (
            DeletionRule::MassHold,
            HoldReason::Mass { absent: 9, nodes: 12, names, until },
            "CCM_NODE_DELETION=off before 2026-11-24T03:13:40Z",
        ),
        (DeletionRule::MassHold, HoldReason::Counting { unanswered: 3 }, "allow-deletion=true"),
        (
            DeletionRule::Limit,
            HoldReason::Limit { capacity: 5, window, until: Some(until) },
            "kubectl annotate node worker-7 vsphere-ccm.dev/allow-deletion=true",
        ),
        (DeletionRule::Limit, HoldReason::Limit { capacity: 0, window, until: None }, "--node-deletion-limit"),
    ];
    for (rule, hold, remedy) in table {
        let word = hold.reason().as_str();
        let explanation = explained(absent(Some((rule, hold.clone())), now), now);
        assert_eq!(explanation.state, SubjectState::Held, "{word}");
        assert_eq!(explanation.summary, format!("not deleted: {word}"));
        let facts = &explanation.sections[0].facts;
        let remedies = texts(facts, "remedy");
        assert!(remedies.iter().any(|text| text.contains(remedy)), "{word}: {facts:?}");
        for text in remedies.iter().filter(|text| text.contains("allow-deletion") || text.contains("kubectl delete")) {
            assert!(text.contains("only if the VM is gone for certain: kubectl "), "{word}: {text}");
        }
        let actor = texts(facts, "who acts").join("");
        let expected = if hold.until().is_some() { "03:13:40Z" } else { actor_without_end(&hold) };
        assert!(actor.contains(expected), "{word}: {facts:?}");
        let rules = &explanation.sections[2].facts;
        let holding: Vec<_> = rules.iter().filter(|fact| fact.is_finding).map(|fact| fact.text.as_str()).collect();
        let expected = match hold {
            HoldReason::Counting { .. } => "DeletionMassHold, reported as DeletionGracePeriod",
            _ => word,
        };
        assert_eq!(holding, [expected]);
    }
}

#[test]
fn a_node_without_a_proof_is_held_by_the_answer_about_its_vm() {
    let now = moment();
    let unknown = |word, message: &str| Unknown::new(word, message);
    let held = |reason, is_quiet| Candidacy::Held { reason, message: "x".repeat(2_400), is_quiet };
    for (candidacy, word, actor, first_unreached) in [
        (held(reason::Uninitialized, false), "Uninitialized", "cloud-node-controller", "proof"),
        (
            held(vsphere::CredentialsRejected, false),
            "CredentialsRejected",
            "the administrator of the cluster fixes",
            "DeletionOff",
        ),
        (held(reason::CloudUnavailable, false), "CloudUnavailable", "no one: it passes by itself", "DeletionOff"),
        (held(vsphere::HostGone, false), "HostGone", "the administrator of vSphere fixes", "DeletionOff"),
        (
            held(vsphere::HostNotConnected, false),
            "HostNotConnected",
            "the administrator of vSphere fixes",
            "DeletionOff",
        ),
        (held(vsphere::LocationUnknown, false), "LocationUnknown", "the administrator of vSphere fixes", "DeletionOff"),
        (held(reason::NoPermission, false), "NoPermission", "the administrator of vSphere fixes", "DeletionOff"),
        (held(reason::LookupPending, true), "LookupPending", "no one", "DeletionOff"),
        (Candidacy::Unreported(unknown(reason::CloudError, "m")), "CloudError", "administrator", "DeletionOff"),
    ] {
        let answer = Presence::Unknown(unknown(reason::CloudUnavailable, "m"));
        let facts = NodeDeletionFacts {
            mode: DeletionMode::Off { reason: "--node-deletion=off" },
            reported: Some(crate::controllers::BlockedObject {
                key: "worker-7".to_owned(),
                reason: reason::CloudUnavailable,
                blocked_for: seconds(372),
                message: String::new(),
            }),
            ..node(answer, candidacy, now)
        };
        let explanation = explained(facts, now);
        assert_eq!(explanation.state, SubjectState::Held, "{word}");
        let lasting = if word == "CloudUnavailable" { " for 6 m 12 s" } else { "" };
        assert_eq!(explanation.summary, format!("not deleted{lasting}: {word}"));
        let text = text(explanation).join("\n");
        assert!(text.contains(actor), "{text}");
        assert!(text.contains(&format!("  not reached       {first_unreached}\n")), "{text}");
        assert!(!text.contains(&"x".repeat(2_001)), "long messages are clipped");
        assert!(!text.contains("Clocks and limits"), "{text}");
    }
}

#[test]
fn other_nodes_are_not_held() {
    let now = moment();
    let exempt = |exemption| {
        let node = node(Presence::Exists(()), Candidacy::VmExists, now);
        NodeDeletionFacts { exemption: Some(exemption), candidacy: None, ..node }
    };
    let asked = node(Presence::Exists(()), Candidacy::VmExists, now);
    let unasked = NodeDeletionFacts { answer: None, candidacy: None, ..asked.clone() };
    let dry_run = NodeDeletionFacts { mode: DeletionMode::DryRun, ..absent(None, now) };
    for (node, state, summary) in [
        (exempt(Exemption::Ready), SubjectState::Settled, "not a candidate for deletion: Ready=True, "),
        (exempt(Exemption::NotReady), SubjectState::Settled, "not a candidate for deletion: Ready=False, "),
        (
            exempt(Exemption::OtherProvider),
            SubjectState::Settled,
            "not a candidate for deletion: it belongs to another",
        ),
        (exempt(Exemption::Leaving), SubjectState::Settled, "deleted already: "),
        (asked, SubjectState::Settled, "not a candidate for deletion: its VM exists"),
        (unasked, SubjectState::Unknown, "not known yet: "),
        (absent(None, now), SubjectState::Settled, "is deleted at the next check: "),
        (dry_run, SubjectState::Settled, "would be deleted: "),
    ] {
        let explanation = explained(node, now);
        assert_eq!(explanation.state, state, "{summary}");
        assert!(explanation.summary.starts_with(summary), "{}", explanation.summary);
    }
    let reported = |reason| crate::controllers::BlockedObject {
        key: "worker-7".to_owned(),
        reason,
        blocked_for: seconds(3),
        message: String::new(),
    };
    let failed = NodeDeletionFacts { reported: Some(reported(reason::APIServerUnavailable)), ..absent(None, now) };
    assert_eq!(explained(failed, now).summary, "not deleted for 3 s: APIServerUnavailable");
    let outdated = NodeDeletionFacts { reported: Some(reported(reason::DeletionGracePeriod)), ..absent(None, now) };
    assert_eq!(explained(outdated, now).state, SubjectState::Settled);
    assert_eq!(super::unknown("worker-7", None).state, SubjectState::Unknown);
}

#[test]
fn the_annotation_of_a_user_overrides_some_rules() {
    let now = moment();
    let mut node = absent(None, now);
    node.facts.is_allowed_by_hand = true;
    node.checks.as_mut().unwrap().inputs.by_hand = true;
    let text = text(explained(node, now)).join("\n");
    for rule in [DeletionRule::Grace, DeletionRule::MassHold, DeletionRule::Limit] {
        assert!(text.contains(&format!("  passed            {}: does not apply, ", rule.reason())), "{text}");
    }
    assert!(text.contains("DeletionControlPlaneMajority: the Node is not one of the control plane"), "{text}");
}

#[test]
fn a_deleted_node_has_its_decision_and_proof() {
    let now = moment();
    let decision = DeletionDecision { control_plane: Some((1, 3)), ..absent(None, now).checks.unwrap().inputs };
    let deletion = NodeDeletion {
        node: "worker-7".to_owned(),
        uid: "u-7".to_owned(),
        decision: Some(decision),
        proof: AbsenceProof::new("no VM with the UUID", []),
        proof_began: "2026-11-20T02:10:04.2Z".parse().unwrap(),
        is_confirmed: true,
    };
    let gone = |deletion: NodeDeletion| DeletionFacts { node: None, deletion: Some(deletion) };
    let time = AnswerTime::of(now, NOW);
    let expected = "\
deletion of Node worker-7   deleted by this process at 2026-11-20T02:10:04Z

Decision
  UID               u-7
  proof began       2026-11-20T02:10:04Z
  API server        deleted
  decision          permitted, VM absent for 12 s
  allowance         4 before this deletion
  absent VMs        2 of 12 Nodes
  control plane     1 of 3 Nodes lost

Proof that the VM is deleted
  1                 no VM with the UUID";
    let explanation = explanation("worker-7", &gone(deletion.clone()), None, &time);
    assert_eq!(explanation.state, SubjectState::Settled);
    assert_eq!(text(explanation).join("\n"), expected);
    let unanswered = gone(NodeDeletion { is_confirmed: false, ..deletion.clone() });
    assert_eq!(super::explanation("worker-7", &unanswered, None, &time).state, SubjectState::Unknown);
    let again = DeletionFacts { node: Some(absent(None, now)), deletion: Some(deletion) };
    let explanation = super::explanation("worker-7", &again, None, &time);
    assert!(text(explanation).contains(&"Earlier deletion of a Node of this name".to_owned()));
}

#[test]
fn a_command_has_no_provider_id_that_a_shell_would_interpret() {
    let now = moment();
    for (provider_id, expected) in [
        ("vsphere://4211a1b2-c3d4", "govc find / -type m -config.uuid 4211a1b2-c3d4"),
        ("vsphere://$(reboot)", "govc find / -type m -config.uuid UUID"),
    ] {
        let message = "it was never seen".to_owned();
        let held = Candidacy::Held { reason: vsphere::NeverSeen, message, is_quiet: false };
        let mut facts = node(Presence::Unknown(Unknown::new(reason::NoProviderID, "")), held, now);
        facts.facts.provider_id = provider_id.to_owned();
        let shown = text(explained(facts, now));
        assert!(shown.iter().any(|line| line.ends_with(expected)), "{expected}: {shown:#?}");
    }
}

#[test]
fn a_deletion_by_another_replica_is_known_from_the_lease() {
    let now = moment();
    let past = PastDeletion {
        node: "worker-7".to_owned(),
        uid: "u-6".to_owned(),
        time: "2026-11-20T02:10:04.2Z".parse().unwrap(),
        replica: "cp-2".to_owned(),
        proof: "no VM with the UUID".to_owned(),
        is_unanswered: false,
    };
    let section = "
Last deletion of a Node of this name, by any replica
  replica           cp-2
  UID               u-6
  proof began       2026-11-20T02:10:04Z
  proof             no VM with the UUID";
    let gone = text(of_past("worker-7", &past)).join("\n");
    let summary = "deletion of Node worker-7   deleted by the replica on cp-2 at 2026-11-20T02:10:04Z\n";
    assert_eq!(gone, format!("{summary}{section}"));
    let facts = DeletionFacts { node: Some(absent(None, now)), deletion: None };
    let again = explanation("worker-7", &facts, Some(&past), &AnswerTime::of(now, NOW));
    assert!(text(again).join("\n").ends_with(section));
    let unanswered = of_past("worker-7", &PastDeletion { is_unanswered: true, ..past.clone() });
    let text_of_unanswered = text(unanswered).join("\n");
    assert!(text_of_unanswered.contains("gone: the API server did not answer the deletion"), "{text_of_unanswered}");
    assert!(text_of_unanswered.ends_with("API server        no answer"), "{text_of_unanswered}");
    let standby = super::unknown("worker-7", Some(&past));
    assert_eq!(standby.state, SubjectState::Unknown);
    assert!(text(standby).join("\n").ends_with(section));
}

#[test]
fn the_document_is_the_golden_file() {
    let now = moment();
    let until = now + seconds(18);
    let past = PastDeletion {
        node: "worker-7".to_owned(),
        uid: "u-6".to_owned(),
        time: "2026-11-20T02:10:04.2Z".parse().unwrap(),
        replica: "cp-2".to_owned(),
        proof: "no VM with the UUID".to_owned(),
        is_unanswered: false,
    };
    let node = absent(Some((DeletionRule::Grace, HoldReason::Grace { until })), now);
    let facts = DeletionFacts { node: Some(node), deletion: None };
    let report = explanation("worker-7", &facts, Some(&past), &AnswerTime::of(now, NOW)).report_of_test();
    assert_golden("explain-deletion", ExplainReport::KIND, report.verdict(), &report);
}

/// Returns what a command without a daemon reads about a Node whose VM is deleted.
fn first_look(mode: DeletionMode, pause: PauseReading, now: Instant) -> FirstLook {
    let node = NodeDeletionFacts { mode, checks: None, unknown_for: Duration::ZERO, ..absent(None, now) };
    FirstLook { node, pause, past: None }
}

#[test]
fn without_a_term_a_deletion_is_never_announced_and_clocks_are_not_known() {
    let now = moment();
    let look = first_look(DeletionMode::Enforce, PauseReading::Read(None), now);
    let explanation = first_look::explanation("worker-7", &look, &AnswerTime::of(now, NOW));
    assert_eq!(explanation.state, SubjectState::Unknown);
    let expected = "\
deletion of Node worker-7
  not known: its VM is deleted, and only the leader knows whether and when the Node is deleted

Node
  Ready             Unknown since 2026-11-24T03:11:40Z
  UID               u-7
  provider ID       vsphere://4211a1b2

Rules (docs/node-lifecycle.md)
  passed            Ready=Unknown: its kubelet does not report
  passed            Uninitialized, NoProviderID, MalformedProviderID: initialized, provider ID set
  passed            proof: the VM is confirmed deleted
  passed            DeletionOff: deletion is not off
  passed            DeletionPaused: deletions are not paused
  passed            DeletionDryRun: deletions are not only reported
  not known         DeletionRefused
  not known         DeletionGracePeriod
  not known         DeletionControlPlaneMajority
  not known         DeletionMassHold
  not known         DeletionLimitReached

Proof that the VM is deleted
  1                 no VM with the UUID
  2                 host-3 is connected

Clocks and limits
  mode              enforce
  pause             none
  others            not known: only the leader has the grace period and the limits";
    assert_eq!(text(explanation).join("\n"), expected);
}

#[test]
fn without_a_term_the_rules_that_can_be_read_hold_a_deletion() {
    let now = moment();
    let pause = DeletionPause::Until { until: "2026-11-24T04:00:00Z".parse().unwrap(), cause: None };
    let unread = || PauseReading::Unread("forbidden".to_owned());
    for (mode, pause, state, summary) in [
        (DeletionMode::Off { reason: "because" }, unread(), SubjectState::Held, "not deleted: DeletionOff"),
        (DeletionMode::DryRun, unread(), SubjectState::Held, "not deleted: DeletionDryRun"),
        (DeletionMode::Enforce, PauseReading::Read(Some(pause)), SubjectState::Held, "not deleted: DeletionPaused"),
        (DeletionMode::Enforce, unread(), SubjectState::Unknown, "not known: its VM is deleted, "),
    ] {
        let is_unread = matches!(pause, PauseReading::Unread(_));
        let look = first_look(mode, pause, now);
        let explanation = first_look::explanation("worker-7", &look, &AnswerTime::of(now, NOW));
        assert_eq!(explanation.state, state, "{}", explanation.summary);
        assert!(explanation.summary.starts_with(summary), "{}", explanation.summary);
        let text = text(explanation).join("\n");
        assert_eq!(text.contains("not known: forbidden"), is_unread, "{text}");
    }
    let exists = NodeDeletionFacts { answer: None, ..node(Presence::Exists(()), Candidacy::VmExists, now) };
    let look = FirstLook { node: exists, pause: PauseReading::Read(None), past: None };
    let explanation = first_look::explanation("worker-7", &look, &AnswerTime::of(now, NOW));
    assert_eq!(explanation.state, SubjectState::Settled, "{}", explanation.summary);
}
