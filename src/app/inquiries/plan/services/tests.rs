//! Tests of the plan for a Service, as tables of rows.

use super::*;
use crate::controllers::service::explanation::BlockedService;
use crate::controllers::service::reason;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Returns a Service of type `LoadBalancer` with this address in its status.
fn service(address: Option<&str>, finalizers: &[&str]) -> Service {
    let ingress: Vec<_> = address.iter().map(|address| json!({"ip": address})).collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "finalizers": finalizers},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": ingress}},
    }))
    .unwrap()
}

fn served() -> Service {
    service(Some("192.0.2.5"), &[FINALIZER])
}

fn facts(service: Option<Service>, plan: Option<ServicePlan>) -> ServiceFacts {
    ServiceFacts { service: service.map(Arc::new), has_record: true, plan, ..ServiceFacts::default() }
}

fn nothing() -> PlannedStep {
    PlannedStep { addresses: vec!["192.0.2.5".parse().unwrap()], ..PlannedStep::default() }
}

fn step(kind: StepKind, text: &str) -> PlannedStep {
    PlannedStep { step: Some(text.to_owned()), kind: Some(kind), ..PlannedStep::default() }
}

fn rows(object: &ObjectPlan) -> String {
    let row = |change: &PlannedChange| {
        let values = match (&change.present, &change.planned) {
            (None, None) => String::new(),
            (present, planned) => {
                let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
                format!(" {} -> {}", text(present), text(planned))
            }
        };
        let why: Vec<&str> = [&change.reason, &change.message].into_iter().flatten().map(String::as_str).collect();
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(": ")) };
        format!("{} {}{values}{why}", change.kind.as_str(), change.field)
    };
    object.changes.iter().map(row).collect::<Vec<_>>().join("; ")
}

fn planned(term: &ServiceFacts, step: Option<FirstStep>) -> ObjectPlan {
    service_plan(&ServicePlanFacts { key: "shop/web", term, step, is_listed: true, hold_of_targets: None })
}

#[test]
fn the_first_step_is_announced_with_its_kind() {
    let ensure = |adds_finalizer| Some(ServicePlan::Ensure { adds_finalizer });
    let leave = || Some(ServicePlan::LeaveAlone);
    let changed =
        PlannedStep { changes: vec!["lacks the members 10.0.0.9".to_owned()], ..step(StepKind::Update, "change /p") };
    let create = step(StepKind::Create, "create the pool of port TCP/80");
    for (case, term, planned_step, expected) in [
        (
            "new",
            facts(Some(service(None, &[])), ensure(true)),
            create.clone(),
            "update finalizer none -> service.kubernetes.io/load-balancer-cleanup; \
             create next step (create the pool of port TCP/80)",
        ),
        ("a new term", facts(Some(served()), ensure(false)), nothing(), ""),
        ("served", facts(Some(served()), leave()), nothing(), ""),
        (
            "no address yet",
            facts(Some(service(None, &[FINALIZER])), ensure(false)),
            nothing(),
            "update status.loadBalancer none -> 192.0.2.5",
        ),
        (
            "another member",
            facts(Some(served()), leave()),
            changed,
            "update next step (change /p; lacks the members 10.0.0.9)",
        ),
        (
            "of the Go program",
            facts(Some(served()), ensure(false)),
            step(StepKind::Adopt, "tag /p"),
            "adopt next step (tag /p)",
        ),
        (
            "of the Go program, as it is",
            facts(Some(served()), leave()),
            PlannedStep { adopted_as_is: Some("not applied: spec.sessionAffinity".to_owned()), ..nothing() },
            "keep load balancer (LoadBalancerAdoptedAsIs: not applied: spec.sessionAffinity)",
        ),
        (
            "an address has to be read",
            facts(Some(served()), ensure(false)),
            step(StepKind::Read, "read the address of /a"),
            "unknown next step (read the address of /a)",
        ),
        (
            "a port is taken",
            facts(Some(served()), leave()),
            step(StepKind::Hold, "leave /s as it is"),
            "hold port (leave /s as it is)",
        ),
        (
            "deleted",
            facts(Some(served()), Some(ServicePlan::Delete)),
            step(StepKind::Delete, "delete /s"),
            "delete next step (delete /s)",
        ),
        (
            "its objects are deleted",
            facts(Some(served()), Some(ServicePlan::Delete)),
            PlannedStep::default(),
            "update finalizer service.kubernetes.io/load-balancer-cleanup -> none; \
             update status.loadBalancer 192.0.2.5 -> none",
        ),
        ("vanished", facts(None, None), step(StepKind::Delete, "delete /s"), "delete next step (delete /s)"),
    ] {
        assert_eq!(rows(&planned(&term, Some(Ok(planned_step)))), expected, "{case}");
    }
    let replaced = ServiceFacts { is_replaced: true, ..facts(Some(served()), ensure(false)) };
    let expected = "delete load balancer (the load balancer of the former Service of this name is deleted first); ";
    assert!(rows(&planned(&replaced, Some(Ok(create)))).starts_with(expected));
}

#[test]
fn a_reason_that_holds_a_service_is_named_once() {
    let reason = reason::LoadBalancerNotPossible;
    let held = Some(ServicePlan::Hold { reason, message: "the class is unknown".to_owned() });
    let blocked = |reason, message: &str| {
        Some(BlockedService {
            reason,
            message: message.to_owned(),
            blocked_for: Duration::ZERO,
            is_of_nodes: false,
            next_attempt: None,
        })
    };
    let ensure = Some(ServicePlan::Ensure { adds_finalizer: false });
    let both = ServiceFacts { blocked: blocked(reason, "the same"), ..facts(Some(served()), held) };
    let expected = "hold load balancer (LoadBalancerNotPossible: the class is unknown)";
    assert_eq!(rows(&planned(&both, None)), expected);

    let refused = Some(Err((reason, "the class is fixed".to_owned())));
    let other = ServiceFacts { blocked: blocked(reason::WriteConflict, "twice"), ..facts(Some(served()), ensure) };
    let expected = "hold load balancer (LoadBalancerNotPossible: the class is fixed); \
                    hold load balancer (WriteConflict: twice)";
    assert_eq!(rows(&planned(&other, refused)), expected);

    let hold = (reason::NoSelectedNodes, "no Node".to_owned());
    let term = ServiceFacts { blocked: None, ..other };
    let plan = service_plan(&ServicePlanFacts {
        key: "shop/web",
        term: &term,
        step: Some(Ok(nothing())),
        is_listed: true,
        hold_of_targets: Some(&hold),
    });
    assert_eq!(rows(&plan), "hold load balancer (NoSelectedNodes: no Node)");
}

#[test]
fn before_the_first_list_nothing_is_known_of_a_service_with_a_load_balancer() {
    let mut other = served();
    other.spec.get_or_insert_default().type_ = Some("ClusterIP".to_owned());
    for (service, expected) in [(served(), true), (other, false)] {
        let term = facts(Some(service), Some(ServicePlan::LeaveAlone));
        let plan = service_plan(&ServicePlanFacts {
            key: "shop/web",
            term: &term,
            step: None,
            is_listed: false,
            hold_of_targets: None,
        });
        assert_eq!(rows(&plan).starts_with("unknown load balancer (the objects in NSX are not listed"), expected);
    }
}

#[test]
fn an_orphan_is_deleted_when_it_is_confirmed() {
    let orphan = |policy, is_confirmed, is_paused| OrphanPreview {
        service: "shop/gone".to_owned(),
        is_confirmed,
        is_paused,
        policy,
        step: Ok(step(StepKind::Delete, "delete /s")),
    };
    let refused = OrphanPreview {
        step: Err((reason::WriteConflict, "two objects have the tag".to_owned())),
        ..orphan(Policy::Delete, true, false)
    };
    for (orphan, expected) in [
        (refused, "hold orphan (WriteConflict: its Service does not exist; two objects have the tag"),
        (orphan(Policy::Delete, true, false), "delete next step (delete /s)"),
        (orphan(Policy::Delete, true, true), "hold orphan (its Service does not exist; deletions pause"),
        (orphan(Policy::Delete, false, false), "hold orphan (the cache has no such Service;"),
        (orphan(Policy::Report, true, false), "hold orphan (its Service does not exist; --nsx-orphans only"),
    ] {
        let shown = rows(&orphan_plan(&orphan));
        assert!(shown.starts_with(expected), "{shown}");
    }
}
