//! Tests of the text and the result of `deletions`.

use super::*;
use crate::app::reports::explain::{Section, SubjectState};
use crate::app::reports::golden::assert_golden;
use crate::app::reports::header::ReportHeader;
use crate::app::reports::status::DeletedNodeStatus;

fn held(name: &str, reason: &str, is_expected: bool) -> HeldObject {
    HeldObject { name: name.to_owned(), reason: reason.to_owned(), for_seconds: 12, is_expected }
}

/// Returns a report of the leader, while an operator has paused deletions.
fn report() -> DeletionsReport {
    let last = DeletedNodeStatus {
        name: "worker-2".to_owned(),
        uid: "7c".to_owned(),
        time: "2026-11-20T02:10:04Z".parse().unwrap(),
        proof: "no VM".to_owned(),
        replica: "cp-1".to_owned(),
    };
    DeletionsReport {
        version: "0.1.0".to_owned(),
        time: "2026-11-24T03:13:21Z".parse().unwrap(),
        host: "cp-1".to_owned(),
        leads: true,
        election: Some(ElectionStatus {
            namespace: "kube-system".to_owned(),
            name: "cloud-controller-manager".to_owned(),
            holder: Some("cp-1_8a7e".to_owned()),
            since: "2026-11-20T23:13:21Z".parse().ok(),
            read_age_seconds: Some(1),
            renewal_age_seconds: Some(1),
            lease_duration_seconds: Some(15),
        }),
        change: None,
        pause: DeletionPauseStatus {
            namespace: "kube-system".to_owned(),
            is_paused: Some(true),
            until: "2026-11-24T07:13:21Z".parse().ok(),
            cause: Some("vCenter upgrade".to_owned()),
            message: None,
            failure: None,
        },
        deletion: Some(DeletionStatus {
            mode: "enforce".to_owned(),
            allowance: 4,
            limit: 5,
            is_mass_held: false,
            unanswered: 0,
            pending: vec![held("worker-7", "DeletionPaused", true)],
            last: Some(last),
        }),
        explanation: None,
        uid: None,
    }
}

fn text(report: &DeletionsReport) -> Vec<String> {
    report.lines().iter().map(|line| line.text().to_owned()).collect()
}

fn changed(outcome: ChangeOutcome) -> DeletionsReport {
    DeletionsReport { change: Some(DeletionsChange { outcome, message: "the result".to_owned() }), ..report() }
}

#[test]
fn the_list_has_the_pause_the_limit_and_each_node() {
    let expected = [
        "deletions are paused until 2026-11-24T07:13:21Z, for 4 h: vCenter upgrade",
        "deletion enforce   allowance 4 of 5   pending 1   last: worker-2 at 2026-11-20T02:10:04Z",
        "  worker-7   DeletionPaused   for 12 s",
    ];
    assert_eq!(text(&report()), expected);
    assert_eq!(report().verdict(), Verdict::Ok, "what an operator has ordered is as it should be");
}

#[test]
fn the_exit_code_is_that_of_the_change_or_of_what_is_wrong() {
    type Change = fn(&mut DeletionsReport);
    let table: [(&str, Change, Verdict); 7] = [
        ("nothing", |_| {}, Verdict::Ok),
        ("another reason", |report| deletion(report).pending.push(held("a", "HostGone", false)), Verdict::Findings),
        ("many VMs are gone", |report| deletion(report).is_mass_held = true, Verdict::Findings),
        ("a look is due", |report| deletion(report).unanswered = 1, Verdict::Incomplete),
        ("an unreadable pause", |report| report.pause.message = Some("odd".to_owned()), Verdict::Findings),
        ("no read yet", |report| report.pause = DeletionPauseStatus::default(), Verdict::Incomplete),
        ("a standby", |report| report.deletion = None, Verdict::Incomplete),
    ];
    for (case, change, expected) in table {
        let mut report = report();
        change(&mut report);
        assert_eq!(report.verdict(), expected, "{case}: {:#?}", text(&report));
    }
    for (outcome, expected) in [
        (ChangeOutcome::Done, Verdict::Ok),
        (ChangeOutcome::Refused, Verdict::Findings),
        (ChangeOutcome::NotLeader, Verdict::Incomplete),
        (ChangeOutcome::Unconfirmed, Verdict::Incomplete),
    ] {
        let report = changed(outcome);
        assert_eq!(report.verdict(), expected);
        assert_eq!(text(&report)[0], "the result");
    }
}

fn deletion(report: &mut DeletionsReport) -> &mut DeletionStatus {
    report.deletion.as_mut().unwrap()
}

#[test]
fn a_standby_names_the_command_that_finds_the_leader() {
    let standby = DeletionsReport { host: "cp-2".to_owned(), leads: false, deletion: None, ..report() };
    let shown = text(&standby);
    let expected = [
        "cp-2 does not know which Nodes wait: it does not lead",
        "find the Pod of the leader with",
        "  kubectl -n kube-system get pods -o wide | grep -w cp-1",
    ];
    assert_eq!(shown[..3], expected);
    assert!(shown[3].starts_with("deletions are paused until "), "{shown:?}");
    let leader = DeletionsReport { leads: true, ..standby };
    assert_eq!(text(&leader)[0], "cp-2 does not know yet which Nodes wait: the controller begins soon");
}

/// Returns the rules about a Node in its grace period.
fn explanation() -> ExplainReport {
    ExplainReport {
        header: ReportHeader::of_test(),
        subject: "deletion of Node worker-7".to_owned(),
        summary: "not deleted: DeletionGracePeriod".to_owned(),
        state: SubjectState::Held,
        sections: vec![],
        fresh: None,
    }
}

#[test]
fn the_explanation_comes_before_the_result() {
    let report = DeletionsReport { explanation: Some(explanation()), ..changed(ChangeOutcome::Done) };
    let shown = text(&report);
    let expected = ["deletion of Node worker-7   not deleted: DeletionGracePeriod", "", "the result"];
    assert_eq!(shown[..3], expected);
    assert_eq!(report.verdict(), Verdict::Ok);
    let sent = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<DeletionsReport>(&sent).unwrap(), report);
}

/// The fields are part of the interface: scripts read them. Each has a value here.
#[test]
fn the_document_is_the_golden_file() {
    let mut explanation = explanation();
    explanation.header = ReportHeader::of_standby();
    let mut proof = Section::new("Proof that the VM is deleted");
    proof.add("1", "no VM with the UUID");
    explanation.sections.push(proof);
    let report = DeletionsReport {
        change: Some(DeletionsChange { outcome: ChangeOutcome::Done, message: "allowed".to_owned() }),
        pause: DeletionPauseStatus {
            message: Some("the annotation is odd".to_owned()),
            failure: Some("no answer".to_owned()),
            ..report().pause
        },
        explanation: Some(explanation),
        uid: Some("7c".to_owned()),
        ..report()
    };
    assert_golden("deletions", DeletionsReport::KIND, report.verdict(), &report);
}
