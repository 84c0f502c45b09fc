//! Tests of the checks of the connection to a vCenter, on given facts.

use super::*;
use crate::app::reports::check::CheckStatus;
use crate::app::reports::status::PauseStatus;

const TIME: &str = "2026-11-24T03:12:40Z";

pub(in crate::app::reports::check) fn time() -> Timestamp {
    TIME.parse().unwrap()
}

pub(in crate::app::reports::check) fn healthy() -> VcenterFacts {
    let status = VcenterStatus {
        server: "vc:443".to_owned(),
        inventory_age_seconds: Some(0),
        failure: None,
        virtual_machines: 3,
        session_age_seconds: Some(41),
        rejected_credentials: None,
        is_certificate_verified: true,
        certificate_expiry: Some("2027-11-24T03:12:40Z".parse().unwrap()),
        tags_age_seconds: Some(7),
        next_tag_poll_seconds: None,
        tag_failure: None,
        login_pause: None,
    };
    let account = AccountReads { datacenters: Ok(2), missing_datacenters: None, reads_root: Ok(Some(true)) };
    VcenterFacts {
        status,
        failed_step: None,
        account: Some(account),
        has_zones: true,
        user: Some("ccm@vsphere.local".to_owned()),
        secret: None,
    }
}

pub(in crate::app::reports::check) fn failed(step: ConnectionStep) -> VcenterFacts {
    let mut facts = healthy();
    facts.status.inventory_age_seconds = Some(60);
    facts.status.failure = Some("the text of the failure".to_owned());
    facts.failed_step = Some(step);
    facts.account = None;
    facts
}

fn statuses(facts: &VcenterFacts) -> Vec<(CheckId, CheckStatus)> {
    vcenter(facts, time()).into_iter().map(|result| (result.id, result.status)).collect()
}

/// Asserts that these checks have this status, and that all others pass.
fn assert_only(case: &str, facts: &VcenterFacts, expected: &[(CheckId, CheckStatus)]) {
    let others: Vec<_> = statuses(facts).into_iter().filter(|(_, status)| *status != CheckStatus::Passed).collect();
    assert_eq!(others, expected, "{case}");
}

#[test]
fn a_connected_vcenter_passes_all_checks() {
    assert_only("healthy", &healthy(), &[]);
    assert_eq!(statuses(&healthy()).len(), CHECKS.len());
}

#[test]
fn the_check_of_the_failed_step_fails_and_those_of_later_steps_are_skipped() {
    use CheckId::{A03, C05, N01, N02, N03, N05};
    let steps = [
        (ConnectionStep::Resolution, N01),
        (ConnectionStep::Network, N02),
        (ConnectionStep::Certificate, N03),
        (ConnectionStep::Product, N05),
        (ConnectionStep::Login, A03),
        (ConnectionStep::Reads, A03),
        // The check of the sources of credentials fails apart.
        (ConnectionStep::Credentials, C05),
    ];
    let order = [N01, N02, N03, N05, A03];
    for (step, id) in steps {
        let results = vcenter(&failed(step), time());
        let of = |id: CheckId| results.iter().find(|result| result.id == id).unwrap();
        let position = order.iter().position(|other| *other == id).unwrap_or(4);
        for (at, other) in order.into_iter().enumerate() {
            let result = of(other);
            let expected = match at {
                _ if other == id => CheckStatus::Failed,
                _ if at < position => CheckStatus::Passed,
                _ => CheckStatus::Skipped,
            };
            assert_eq!(result.status, expected, "{step:?}: {result:?}");
            assert!(expected != CheckStatus::Skipped || result.message == format!("needs {id}"), "{result:?}");
            assert_eq!(result.remedy.is_empty(), expected != CheckStatus::Failed, "{result:?}");
        }
        for other in [CheckId::C07, CheckId::P01, CheckId::P04] {
            assert_eq!((of(other).status, of(other).message.as_str()), (CheckStatus::Skipped, "needs A03"), "{step:?}");
        }
    }
}

#[test]
fn before_the_first_connection_nothing_is_known() {
    let mut starting = healthy();
    starting.status.inventory_age_seconds = None;
    starting.status.failure = Some("not connected yet".to_owned());
    starting.status.certificate_expiry = None;
    starting.account = None;
    let results = statuses(&starting);
    let passed: Vec<_> = results.iter().filter(|(_, status)| *status == CheckStatus::Passed).collect();
    assert_eq!(passed, [&(CheckId::A02, CheckStatus::Passed)], "{results:?}");
    assert!(results.contains(&(CheckId::N01, CheckStatus::Incomplete)), "{results:?}");
}

#[test]
fn a_pause_of_logins_fails_with_its_end_and_its_cause() {
    let mut paused = healthy();
    let command = "kubectl -n kube-system delete lease vsphere-ccm-logins-1f3a";
    let pause = |reset_command: Option<&str>| PauseStatus {
        until: time(),
        cause: "3 rejected".to_owned(),
        reset_command: reset_command.map(str::to_owned),
    };
    paused.status.login_pause = Some(pause(Some(command)));
    assert_only("paused", &paused, &[(CheckId::A02, CheckStatus::Failed)]);
    let results = vcenter(&paused, time());
    let result = results.iter().find(|result| result.id == CheckId::A02).unwrap();
    assert!(result.message.contains(TIME) && result.message.ends_with("3 rejected"), "{result:?}");
    assert_eq!(result.commands, [command]);
    let alone = login_pause("vCenter vc:443", Some(&pause(None)));
    assert!(alone.remedy[1].ends_with("restart this process"), "{alone:?}");
}

#[test]
fn the_account_sees_the_datacenters_and_the_root_folder() {
    use CheckId::{C07, P01};
    use CheckStatus::{Failed, Incomplete, Skipped, Warning};
    let account = |datacenters: Result<usize, &str>, missing: Option<&str>, reads_root: Result<Option<bool>, &str>| {
        let account = AccountReads {
            datacenters: datacenters.map_err(str::to_owned),
            missing_datacenters: missing.map(str::to_owned),
            reads_root: reads_root.map_err(str::to_owned),
        };
        VcenterFacts { account: Some(account), ..healthy() }
    };
    assert_only("missing", &account(Ok(2), Some("no dc1"), Ok(Some(true))), &[(C07, Failed)]);
    assert_only("root", &account(Ok(2), None, Ok(Some(false))), &[(P01, Warning)]);
    assert_only("not told", &account(Ok(2), None, Ok(None)), &[(P01, Incomplete)]);
    assert_only("late", &account(Ok(2), None, Err("late")), &[(P01, Incomplete)]);
    let unread = VcenterFacts { account: None, ..healthy() };
    assert_only("not read", &unread, &[(C07, Incomplete), (P01, Incomplete)]);
    assert_only("none", &account(Ok(0), None, Ok(Some(false))), &[(C07, Skipped), (P01, Failed)]);
    assert_only("no answer", &account(Err("late"), None, Err("late")), &[(C07, Incomplete), (P01, Incomplete)]);
}

#[test]
fn what_works_and_is_not_as_it_should_be_is_a_warning() {
    let mut insecure = healthy();
    insecure.status.is_certificate_verified = false;
    assert_only("insecure-flag", &insecure, &[(CheckId::N03, CheckStatus::Warning)]);
    let mut old = healthy();
    old.status.rejected_credentials = Some("InvalidLogin".to_owned());
    assert_only("older credentials", &old, &[(CheckId::A03, CheckStatus::Warning)]);
}

#[test]
fn a_certificate_warns_for_30_days_and_fails_for_7() {
    let table = [
        ("2027-01-01T00:00:00Z", CheckStatus::Passed),
        ("2026-12-24T03:12:41Z", CheckStatus::Passed),
        ("2026-12-24T03:12:39Z", CheckStatus::Warning),
        ("2026-12-01T03:12:41Z", CheckStatus::Warning),
        ("2026-12-01T03:12:39Z", CheckStatus::Failed),
        ("2026-11-24T03:12:40Z", CheckStatus::Failed),
        ("2025-01-01T00:00:00Z", CheckStatus::Failed),
    ];
    for (text, status) in table {
        let mut facts = healthy();
        facts.status.certificate_expiry = Some(text.parse().unwrap());
        assert_eq!(statuses(&facts)[3], (CheckId::N04, status), "{text}");
    }
}

#[test]
fn tags_are_read_or_cannot_be_read_or_are_not_configured() {
    let tags = |facts: &VcenterFacts| vcenter(facts, time()).pop().unwrap();
    let mut facts = healthy();
    facts.status.tag_failure = Some("the account cannot see the category k8s-zone".to_owned());
    let result = tags(&facts);
    assert_eq!(result.status, CheckStatus::Failed);
    assert!(result.message.contains("k8s-zone") && result.remedy[0].contains("Global Permissions"), "{result:?}");
    facts.has_zones = false;
    assert_eq!(tags(&facts).status, CheckStatus::Skipped);
    let mut facts = healthy();
    facts.status.tags_age_seconds = None;
    assert_eq!(tags(&facts).status, CheckStatus::Incomplete);
}
