//! Tests of the report: text, counts and exit codes.

use super::*;
use crate::app::reports::golden::assert_golden;

mod states;

fn report(checks: Vec<CheckResult>) -> CheckReport {
    CheckReport { header: ReportHeader::of_test(), summary: CheckSummary::new(&checks), checks }
}

#[test]
fn each_status_has_a_symbol_and_findings_have_remedy_and_page() {
    let checks = vec![
        CheckResult::passed(CheckId::K04, "Lease kube-system/ccm", "held by cp-1"),
        CheckResult::warning(CheckId::N04, "vCenter vc:443", "the certificate expires in 9 d").with_remedy("renew it"),
        CheckResult::failed(CheckId::P04, "vCenter vc:443", "no tag is visible").with_remedy("add a permission"),
        CheckResult::needs(CheckId::Z02, "3 Nodes", CheckId::P04),
        CheckResult::incomplete(CheckId::D01, "", "only the leader knows the deletions"),
    ];
    let lines = report(checks).lines();
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "leader cp-1   2026-11-24T03:12:40Z",
            "",
            "Kubernetes",
            "  ✓ K04 Lease kube-system/ccm: held by cp-1",
            "",
            "network and TLS",
            "  ‼ N04 vCenter vc:443: the certificate expires in 9 d",
            "        → renew it",
            "        docs/checks.md#n04",
            "",
            "accounts and permissions",
            "  × P04 vCenter vc:443: no tag is visible",
            "        → add a permission",
            "        docs/checks.md#p04",
            "",
            "Nodes, zones and deletion",
            "  – Z02 3 Nodes: skipped: needs P04",
            "  – D01 not known: only the leader knows the deletions",
            "",
            "1 passed, 1 warning, 1 failed, 1 skipped, 1 not known",
        ]
    );
    let finding = lines.iter().find(|line| line.text.contains("P04 vCenter")).unwrap();
    assert_eq!(finding.emphasis, Emphasis::Finding);
}

#[test]
fn failed_is_1_and_not_known_is_3_and_warnings_and_skipped_are_0() {
    let passed = CheckResult::passed(CheckId::K04, "", "");
    let warning = CheckResult::warning(CheckId::C03, "", "");
    let failed = CheckResult::failed(CheckId::C01, "", "");
    let skipped = CheckResult::skipped(CheckId::X01, "", "");
    let incomplete = CheckResult::incomplete(CheckId::D01, "", "");
    let code = |checks: &[&CheckResult]| {
        let checks = checks.iter().map(|check| (*check).clone()).collect();
        report(checks).verdict().exit_code()
    };
    assert_eq!(code(&[&passed, &warning, &skipped]), 0);
    assert_eq!(code(&[&passed, &incomplete]), 3);
    assert_eq!(code(&[&incomplete, &failed, &passed]), 1);
}

#[test]
fn a_long_message_of_another_system_is_cut() {
    let result = CheckResult::failed(CheckId::N02, "", "é".repeat(5000));
    assert_eq!(result.message.chars().count(), 1001);
    assert!(result.message.ends_with('…'));
}

#[test]
fn a_standby_names_the_command_that_finds_the_leader() {
    let standby = CheckReport { header: ReportHeader::of_standby(), ..report(Vec::new()) };
    let texts: Vec<String> = standby.lines().into_iter().map(|line| line.text).collect();
    assert_eq!(texts[0], "standby cp-1   2026-11-24T03:12:40Z");
    assert_eq!(texts[2], "  kubectl -n kube-system get pods -o wide | grep -w cp-2");
}

#[test]
fn a_detached_report_names_the_host_from_which_it_was_read() {
    let header = ReportHeader { leads: false, is_detached: true, ..ReportHeader::of_test() };
    let detached = CheckReport { header, ..report(Vec::new()) };
    assert_eq!(detached.lines()[0].text(), "read from cp-1   2026-11-24T03:12:40Z");
}

/// The fields are part of the interface: scripts read them.
#[test]
fn the_document_is_the_golden_file() {
    let checks = vec![
        CheckResult::passed(CheckId::K04, "Lease kube-system/ccm", "held by cp-2"),
        CheckResult::warning(CheckId::N04, "vCenter vc:443", "the certificate expires in 9 d").with_remedy("renew it"),
        CheckResult::failed(CheckId::P04, "vCenter vc:443", "no tag is visible")
            .with_remedy("add a permission")
            .with_command("govc about"),
        CheckResult::needs(CheckId::Z02, "3 Nodes", CheckId::P04),
        CheckResult::incomplete(CheckId::D01, "", "only the leader knows the deletions"),
    ];
    let report = CheckReport { header: ReportHeader::of_standby(), ..report(checks) };
    assert_golden("check", CheckReport::KIND, report.verdict(), &report);
}

/// Returns the results of three checks, of which each passed, warns, failed, does not apply, is not known, or needs one
/// of the other two: all combinations.
fn combinations() -> Vec<Vec<CheckResult>> {
    const IDS: [CheckId; 3] = [CheckId::A03, CheckId::V05, CheckId::V06];
    let results = |id: CheckId| {
        let mut results = vec![
            CheckResult::passed(id, "", ""),
            CheckResult::warning(id, "", ""),
            CheckResult::failed(id, "", ""),
            CheckResult::skipped(id, "", "does not apply"),
            CheckResult::incomplete(id, "", ""),
        ];
        results.extend(IDS.into_iter().filter(|other| *other != id).map(|other| CheckResult::needs(id, "", other)));
        results
    };
    let mut all = vec![Vec::new()];
    for id in IDS {
        let with_next = |one: &Vec<CheckResult>| {
            let longer = |next: CheckResult| one.iter().cloned().chain([next]).collect::<Vec<_>>();
            results(id).into_iter().map(longer).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with_next).collect();
    }
    all
}

/// Whether the check with this id, or a check that it needs, failed, is not known or does not apply.
fn has_cause(id: CheckId, checks: &[CheckResult], depth: usize) -> bool {
    let mut results = checks.iter().filter(|check| check.id == id);
    results.any(|check| match (check.status, check.needs) {
        (CheckStatus::Failed | CheckStatus::Incomplete, _) | (CheckStatus::Skipped, None) => true,
        (CheckStatus::Skipped, Some(other)) => depth > 0 && has_cause(other, checks, depth - 1),
        (CheckStatus::Passed | CheckStatus::Warning, _) => false,
    })
}

#[test]
fn a_result_that_needs_a_check_without_a_fault_is_not_known() {
    let all = combinations();
    assert_eq!(all.len(), 7 * 7 * 7);
    for before in all {
        let mut after = before.clone();
        resolve_needs(&mut after);
        for (old, new) in before.iter().zip(&after) {
            let expected = match old.needs {
                Some(other) if !has_cause(other, &before, before.len()) => CheckStatus::Incomplete,
                _ => old.status,
            };
            assert_eq!(new.status, expected, "{before:#?}");
        }
        let is_open = before.iter().any(|check| check.needs.is_some_and(|other| !has_cause(other, &before, 3)));
        assert!(!is_open || report(after).verdict() != Verdict::Ok, "{before:#?}");
    }
}

#[test]
fn a_check_that_applies_to_one_of_two_subjects_explains_nothing_unless_it_fails() {
    let results = |other: CheckResult| {
        let mut checks = vec![
            CheckResult::skipped(CheckId::V05, "Node a", "the VM is not powered on"),
            other,
            CheckResult::needs(CheckId::V06, "Node b", CheckId::V05),
        ];
        resolve_needs(&mut checks);
        checks.pop().unwrap()
    };
    let open = results(CheckResult::passed(CheckId::V05, "Node b", ""));
    assert_eq!(open.status, CheckStatus::Incomplete);
    assert_eq!(open.message, "depends on V05, which did not fail; run the command again");
    let explained = results(CheckResult::failed(CheckId::V05, "Node b", ""));
    assert_eq!((explained.status, explained.message.as_str()), (CheckStatus::Skipped, "needs V05"));
}
