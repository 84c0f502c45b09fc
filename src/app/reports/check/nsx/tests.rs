//! Tests of the checks of NSX, on given facts.

use super::*;
use crate::app::reports::plan::{ChangeKind, ObjectPlan, PlanPart, PlanPartBuilder, PlannedChange};
use crate::app::reports::status::{BalancerCounts, PauseStatus, RouteCounts};

fn time() -> Timestamp {
    "2026-11-24T03:12:40Z".parse().unwrap()
}

pub(in crate::app::reports::check) fn healthy() -> NsxFacts {
    let status = NsxStatus {
        server: "nsx:443".to_owned(),
        is_in_use: true,
        is_logged_in: true,
        failure: None,
        is_certificate_verified: true,
        certificate_expiry: Some("2027-11-24T03:12:40Z".parse().unwrap()),
        login_pause: None,
        load_balancers: Some(BalancerCounts {
            ensured: 3,
            waiting: 0,
            held: Vec::new(),
            ambiguous_objects: Some(0),
            orphans: Some(0),
            list_age_seconds: Some(720),
            list_failure: None,
        }),
        routes: Some(RouteCounts { are_listed: true, failure: None, ready: 2, pending: 0, held: Vec::new() }),
    };
    NsxFacts {
        status,
        name_problem: None,
        objects_of_other_clusters: Some(0),
        secret: None,
        has_load_balancers: true,
        has_routes: true,
        plan: None,
    }
}

/// Asserts that these checks have this status, and that all others pass.
fn assert_only(case: &str, facts: &NsxFacts, expected: &[(CheckId, CheckStatus)]) {
    let results = nsx(Some(facts), time(), false);
    let others = results.into_iter().map(|result| (result.id, result.status));
    let others: Vec<_> = others.filter(|(_, status)| *status != CheckStatus::Passed).collect();
    assert_eq!(others, expected, "{case}");
}

#[test]
fn without_nsx_its_checks_are_skipped_and_with_it_they_pass() {
    let skipped = nsx(None, time(), false);
    assert!(skipped.iter().all(|result| result.status == CheckStatus::Skipped), "{skipped:?}");
    assert_eq!(skipped.len(), 4);
    assert_only("healthy", &healthy(), &[]);
    let ids: Vec<_> = nsx(Some(&healthy()), time(), false).into_iter().map(|result| result.id).collect();
    assert_eq!(ids, [CheckId::A02, CheckId::N04, CheckId::X01, CheckId::X02, CheckId::X06, CheckId::X07]);
}

#[test]
fn the_cause_fails_and_what_depends_on_it_is_skipped() {
    use CheckId::{A02, X01, X02, X07};
    use CheckStatus::{Failed, Incomplete, Skipped, Warning};
    let mut down = healthy();
    down.status.is_logged_in = false;
    down.status.failure = Some("connection refused".to_owned());
    assert_only("down later", &down, &[(X01, Skipped), (X02, Failed), (X07, Skipped)]);
    down.status.certificate_expiry = None;
    assert_only("down from the start", &down, &[(X01, Failed), (X02, Skipped), (X07, Skipped)]);
    let pause = PauseStatus { until: time(), cause: "rejected".to_owned(), reset_command: None };
    down.status.login_pause = Some(pause);
    assert_only("paused", &down, &[(A02, Failed), (X01, Failed), (X02, Skipped), (X07, Skipped)]);
    let mut old = healthy();
    old.status.failure = Some("rejected".to_owned());
    assert_only("older credentials", &old, &[(X02, Warning)]);
    let mut insecure = healthy();
    insecure.status.is_certificate_verified = false;
    assert_only("insecure-flag", &insecure, &[(X01, Warning)]);
    let mut standby = healthy();
    standby.status.is_in_use = false;
    standby.status.is_logged_in = false;
    standby.status.certificate_expiry = None;
    standby.status.load_balancers = None;
    standby.status.routes = None;
    standby.objects_of_other_clusters = None;
    let expected = [X01, X02, CheckId::X06, X07].map(|id| (id, Incomplete));
    assert_only("standby", &standby, &expected);
}

#[test]
fn the_default_name_of_the_cluster_is_a_warning_and_a_shared_name_a_failure() {
    let facts = NsxFacts { name_problem: Some("--cluster-name=kubernetes".to_owned()), ..healthy() };
    assert_only("name", &facts, &[(CheckId::X06, CheckStatus::Warning)]);
    let shared = NsxFacts { objects_of_other_clusters: Some(2), ..healthy() };
    assert_only("another cluster", &shared, &[(CheckId::X06, CheckStatus::Failed)]);
}

#[test]
fn held_objects_fail_and_leftover_objects_are_warnings() {
    use CheckStatus::{Failed, Skipped, Warning};
    let held = |name: &str, reason: &str| {
        vec![HeldObject { name: name.to_owned(), reason: reason.to_owned(), for_seconds: 372, is_expected: false }]
    };
    let mut facts = healthy();
    let balancers = facts.status.load_balancers.as_mut().unwrap();
    balancers.held = held("shop/web", "AddressUnavailable");
    balancers.ambiguous_objects = Some(2);
    balancers.orphans = Some(1);
    facts.status.routes.as_mut().unwrap().held = held("worker-1", "NoNextHop");
    let expected = [Warning, Warning, Failed, Failed].map(|status| (CheckId::X07, status));
    assert_only("held", &facts, &expected);
    let results = nsx(Some(&facts), time(), false);
    let service = results.iter().find(|result| result.subject == "Service shop/web").unwrap();
    assert_eq!(service.message, "held for 6 m 12 s: AddressUnavailable");
    assert_eq!(service.remedy, ["see docs/reasons.md#addressunavailable"]);
    let unused = NsxFacts { has_load_balancers: false, has_routes: false, ..healthy() };
    assert_only("unused", &unused, &[(CheckId::X07, Skipped)]);
}

#[test]
fn nsx_that_stopped_answering_after_the_login_passes_neither_reachability_nor_login() {
    use CheckId::{X01, X02, X07};
    use CheckStatus::{Failed, Skipped};
    let failure = || Some("connection refused".to_owned());
    let mut of_balancers = healthy();
    of_balancers.status.load_balancers.as_mut().unwrap().list_failure = failure();
    let mut of_routes = healthy();
    of_routes.status.routes.as_mut().unwrap().failure = failure();
    for facts in [of_balancers, of_routes] {
        assert_only("not listed", &facts, &[(X01, Skipped), (X02, Skipped), (X07, Failed)]);
        let objects = nsx(Some(&facts), time(), false).pop().unwrap();
        assert_eq!(objects.message, "the objects in NSX cannot be listed: connection refused");
        assert_eq!(objects.commands, ["nc -vz nsx 443"]);
    }
    let reach = nsx(Some(&healthy()), time(), false).remove(2);
    assert_eq!(reach.message, "answers, and the certificate is verified; its objects were listed 12 m ago");
}

/// A change of a healthy status, with its name.
type Change = (&'static str, fn(&mut NsxStatus));

#[test]
fn objects_that_were_not_listed_or_not_tried_yet_are_not_known() {
    let cases: [Change; 5] = [
        ("routes not listed", |status| status.routes.as_mut().unwrap().are_listed = false),
        ("routes not tried", |status| status.routes.as_mut().unwrap().pending = 1),
        ("balancers not listed", |status| status.load_balancers.as_mut().unwrap().orphans = None),
        ("Services wait", |status| status.load_balancers.as_mut().unwrap().waiting = 2),
        ("no load balancers known", |status| status.load_balancers = None),
    ];
    for (case, change) in cases {
        let mut facts = healthy();
        change(&mut facts.status);
        assert_only(case, &facts, &[(CheckId::X07, CheckStatus::Incomplete)]);
    }
}

#[test]
fn without_a_daemon_held_objects_and_leftovers_come_from_the_plan_of_a_new_leader() {
    use CheckStatus::{Failed, Incomplete, Skipped, Warning};
    let mut object = ObjectPlan::new("shop/web");
    object.add(PlannedChange::new(ChangeKind::Hold, "load balancer").with_reason("LoadBalancerClassUnknown"));
    let mut held = PlanPartBuilder::default();
    held.add(object);
    let none = || PlanPartBuilder::default().build();
    let plan = |load_balancers: PlanPart, orphans| NsxFacts {
        plan: Some(NsxPlanFacts { load_balancers, routes: none(), ambiguous_objects: Some(0), orphans: Some(orphans) }),
        ..detached()
    };
    let mut unanswered = plan(none(), 0);
    unanswered.status.is_logged_in = false;
    unanswered.status.failure = Some("connection refused".to_owned());
    for (case, facts, expected) in [
        ("nothing held", plan(none(), 0), vec![]),
        ("held", plan(held.build(), 0), vec![(CheckId::X07, Failed)]),
        ("orphan", plan(none(), 1), vec![(CheckId::X07, Warning)]),
        ("not listed", plan(PlanPart::unknown("no answer"), 0), vec![(CheckId::X07, Incomplete)]),
        ("no login", unanswered, vec![(CheckId::X01, Skipped), (CheckId::X02, Failed), (CheckId::X07, Skipped)]),
    ] {
        assert_only(case, &facts, &expected);
    }
}

/// Returns the facts of a command without a daemon, which knows no term of leadership.
fn detached() -> NsxFacts {
    let mut facts = healthy();
    facts.status.load_balancers = None;
    facts.status.routes = None;
    facts
}
