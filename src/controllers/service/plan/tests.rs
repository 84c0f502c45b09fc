//! Tests of decisions and patches with the upstream vectors, and properties over random Services.

use super::*;
use crate::controllers::reason;
use proptest::prelude::*;

fn service(metadata: Value, spec: Value, ingress: Value) -> Service {
    let mut all = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"});
    all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": all, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}}))
        .unwrap()
}

fn of_type(kind: &str) -> Value {
    json!({"type": kind, "ports": [{"port": 80, "protocol": "TCP"}]})
}

fn ingress(ingress: Value) -> Vec<LoadBalancerIngress> {
    serde_json::from_value(ingress).unwrap()
}

fn decide(service: &Service, handling: &Handling, record: &ServiceRecord) -> ServicePlan {
    plan(service, handling, &Inputs::of(service, &[""]), record)
}

/// Returns the record after the load balancer was ensured.
fn ensured(service: &Service) -> ServiceRecord {
    ServiceRecord { ensured: Some(Inputs::of(service, &[""])), rejection: None }
}

// vectors: S-01–S-08
#[test]
fn a_sync_decides_as_in_the_go_program() {
    let (fin, gone) = (json!({"finalizers": [FINALIZER]}), "2025-01-01T00:00:00Z");
    let deleted = json!({"finalizers": [FINALIZER], "deletionTimestamp": gone});
    let one = json!([{"ip": "8.8.8.8"}]);
    let port = |protocol: &str| json!({"type": "LoadBalancer", "ports": [{"port": 80, "protocol": protocol}]});
    let class = json!({"type": "LoadBalancer", "loadBalancerClass": "custom-loadbalancer"});
    for (id, service, expected) in [
        ("S-01", service(json!({}), of_type("ClusterIP"), json!([])), ServicePlan::LeaveAlone),
        ("S-02", service(json!({}), port("UDP"), json!([])), ServicePlan::Ensure { adds_finalizer: true }),
        ("S-03", service(json!({}), port("TCP"), json!([])), ServicePlan::Ensure { adds_finalizer: true }),
        ("S-04", service(json!({}), port("SCTP"), json!([])), ServicePlan::Ensure { adds_finalizer: true }),
        ("S-05", service(json!({}), class.clone(), json!([])), ServicePlan::LeaveAlone),
        ("S-06", service(fin.clone(), of_type("ClusterIP"), one.clone()), ServicePlan::Delete),
        ("S-07", service(deleted.clone(), of_type("LoadBalancer"), one), ServicePlan::Delete),
        (
            "S-08",
            service(fin.clone(), of_type("LoadBalancer"), json!([])),
            ServicePlan::Ensure { adds_finalizer: false },
        ),
        ("a class with the finalizer", service(fin, class, json!([])), ServicePlan::LeaveAlone),
        (
            "deleted, held by another finalizer",
            service(json!({"finalizers": ["foo"], "deletionTimestamp": gone}), of_type("LoadBalancer"), json!([])),
            ServicePlan::LeaveAlone,
        ),
    ] {
        assert_eq!(decide(&service, &Handling::Handled, &ServiceRecord::default()), expected, "{id}");
    }
}

#[test]
fn what_is_declined_or_wrong_is_never_ensured_and_always_deleted() {
    let (reason, message) = (reason::CloudError, "no such pool".to_owned());
    let invalid = Handling::Invalid { reason, message: message.clone() };
    let wanted = service(json!({}), of_type("LoadBalancer"), json!([]));
    assert_eq!(decide(&wanted, &Handling::Declined, &ServiceRecord::default()), ServicePlan::LeaveAlone);
    let blocked = ServicePlan::Hold { reason, message: message.clone() };
    assert_eq!(decide(&wanted, &invalid, &ServiceRecord::default()), blocked);
    let left = service(json!({"finalizers": [FINALIZER]}), of_type("ClusterIP"), json!([]));
    for handling in [&Handling::Declined, &invalid, &Handling::Handled] {
        assert_eq!(decide(&left, handling, &ServiceRecord::default()), ServicePlan::Delete, "{handling:?}");
    }
    // After the cloud rejected a Service, it is called again only if the Service changes.
    let rejection = Rejection { inputs: Inputs::of(&wanted, &[""]), reason, message };
    let record = ServiceRecord { ensured: None, rejection: Some(rejection) };
    assert_eq!(decide(&wanted, &Handling::Handled, &record), blocked);
    let mut changed = wanted;
    changed.spec.as_mut().unwrap().load_balancer_ip = Some("192.0.2.1".into());
    assert_eq!(decide(&changed, &Handling::Handled, &record), ServicePlan::Ensure { adds_finalizer: true });
}

#[test]
fn a_load_balancer_is_ensured_once_and_again_when_something_changed() {
    let service = service(json!({"finalizers": [FINALIZER]}), of_type("LoadBalancer"), json!([]));
    let record = ensured(&service);
    assert_eq!(decide(&service, &Handling::Handled, &record), ServicePlan::LeaveAlone);
    let mut changed = service.clone();
    changed.spec.as_mut().unwrap().load_balancer_ip = Some("192.168.1.11".into());
    assert_eq!(decide(&changed, &Handling::Handled, &record), ServicePlan::Ensure { adds_finalizer: false });
    let mut unguarded = service.clone();
    unguarded.metadata.finalizers = None;
    assert_eq!(decide(&unguarded, &Handling::Handled, &record), ServicePlan::Ensure { adds_finalizer: true });
}

#[test]
fn the_finalizer_of_another_program_stays() {
    let owned = |manager: &str, finalizer: &str| {
        let fields = json!({"f:metadata": {"f:finalizers": {".": {}, format!("v:\"{finalizer}\""): {}}}});
        json!([
            {"manager": "kubectl", "fieldsV1": {"f:spec": {}}},
            {"manager": manager, "fieldsV1": fields},
        ])
    };
    let with = |fields: Value, spec: Value| {
        service(json!({"finalizers": [FINALIZER], "managedFields": fields}), spec, json!([]))
    };
    let cluster_ip = || of_type("ClusterIP");
    let class = json!({"type": "LoadBalancer", "loadBalancerClass": "x"});
    let handled = Handling::Handled;
    for (case, service, handling, had_objects, expected) in [
        ("ours by type", with(json!([]), of_type("LoadBalancer")), &handled, false, true),
        ("declined", with(json!([]), of_type("LoadBalancer")), &Handling::Declined, false, false),
        ("declined, but with objects here", with(json!([]), of_type("LoadBalancer")), &Handling::Declined, true, true),
        ("of another class", with(owned("other", FINALIZER), class), &handled, false, false),
        ("another type, no owner", with(json!([]), cluster_ip()), &handled, false, false),
        ("another type, with objects here", with(json!([]), cluster_ip()), &handled, true, true),
        (
            "another type, set by us or by the Go program",
            with(owned(FIELD_MANAGER, FINALIZER), cluster_ip()),
            &handled,
            false,
            true,
        ),
        (
            "another type, set by another program",
            with(owned("other-ccm", FINALIZER), cluster_ip()),
            &handled,
            false,
            false,
        ),
        ("we set another finalizer", with(owned(FIELD_MANAGER, "foo"), cluster_ip()), &handled, false, false),
    ] {
        assert_eq!(may_release(&service, handling, had_objects), expected, "{case}");
    }
}

// vectors: S-120–S-123, S-139
#[test]
fn patches_have_the_wire_format_of_the_go_program_and_preconditions() {
    let with = |finalizers: Value, ingress: Value| {
        service(json!({"finalizers": finalizers}), of_type("LoadBalancer"), ingress)
    };
    let one = || json!([{"ip": "8.8.8.8"}]);
    let patch = |mut metadata: Value, status: Option<Value>| {
        let own = json!({"uid": "u", "resourceVersion": "7"});
        metadata.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let mut patch = json!({"metadata": metadata});
        if let Some(ingress) = status {
            patch["status"] = json!({"loadBalancer": {"ingress": ingress}});
        }
        patch
    };
    let set = patch(json!({"finalizers": [FINALIZER]}), None);
    assert_eq!(finalizer_patch(&with(Value::Null, json!([]))), set, "S-120");
    let beside = patch(json!({"finalizers": [FINALIZER], "$setElementOrder/finalizers": ["foo", FINALIZER]}), None);
    assert_eq!(finalizer_patch(&with(json!(["foo"]), json!([]))), beside, "S-139 differs: with preconditions");

    assert_eq!(release_patch(&with(Value::Null, json!([]))), None, "S-121");
    assert_eq!(release_patch(&with(json!(["foo"]), json!([]))), None, "S-121");
    let only = patch(json!({"finalizers": null}), Some(Value::Null));
    assert_eq!(release_patch(&with(json!([FINALIZER]), one())), Some(only), "S-06, S-07 differ: one patch");
    let rest = json!({"$deleteFromPrimitiveList/finalizers": [FINALIZER], "$setElementOrder/finalizers": ["foo"]});
    assert_eq!(release_patch(&with(json!(["foo", FINALIZER]), json!([]))), Some(patch(rest, None)), "S-121");
    assert_eq!(release_patch(&with(Value::Null, one())), Some(patch(json!({}), Some(Value::Null))), "S-123");

    let none = with(Value::Null, json!([]));
    assert_eq!(status_patch(&none, &[]), None, "S-122");
    assert_eq!(status_patch(&with(Value::Null, one()), &ingress(one())), None, "S-122");
    assert_eq!(status_patch(&none, &ingress(one())), Some(patch(json!({}), Some(one()))), "S-123");
    assert_eq!(status_patch(&with(Value::Null, one()), &[]), Some(patch(json!({}), Some(Value::Null))), "S-123");
}

// vectors: S-140
#[test]
fn statuses_are_compared_as_the_api_server_stores_them() {
    let port = |protocol: &str| json!([{"port": 80, "protocol": protocol}]);
    for (case, have, wanted, expected) in [
        ("S-140: empty", json!([]), json!([]), true),
        ("S-140: same", json!([{"ip": "1.1.1.1"}]), json!([{"ip": "1.1.1.1"}]), true),
        (
            "S-140: same mode",
            json!([{"ip": "1.1.1.1", "ipMode": "VIP"}]),
            json!([{"ip": "1.1.1.1", "ipMode": "VIP"}]),
            true,
        ),
        (
            "S-140: same ports",
            json!([{"ip": "1.1.1.1", "ports": port("TCP")}]),
            json!([{"ip": "1.1.1.1", "ports": port("TCP")}]),
            true,
        ),
        (
            "S-140 differs: no mode is VIP",
            json!([{"ip": "1.1.1.1", "ipMode": "VIP"}]),
            json!([{"ip": "1.1.1.1"}]),
            true,
        ),
        ("S-140: another", json!([{"ip": "1.1.1.1"}]), json!([{"ip": "1.1.1.2"}]), false),
        (
            "S-140: another mode",
            json!([{"ip": "1.1.1.1", "ipMode": "VIP"}]),
            json!([{"ip": "1.1.1.1", "ipMode": "Proxy"}]),
            false,
        ),
        ("S-140: Proxy on one side", json!([{"ip": "1.1.1.1"}]), json!([{"ip": "1.1.1.1", "ipMode": "Proxy"}]), false),
        (
            "S-140: another protocol",
            json!([{"ip": "1.1.1.1", "ports": port("TCP")}]),
            json!([{"ip": "1.1.1.1", "ports": port("UDP")}]),
            false,
        ),
        ("S-140: no ports", json!([{"ip": "1.1.1.1", "ports": port("TCP")}]), json!([{"ip": "1.1.1.1"}]), false),
        (
            "another order",
            json!([{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}]),
            json!([{"ip": "1.1.1.2"}, {"ip": "1.1.1.1"}]),
            false,
        ),
        ("a name has no mode", json!([{"hostname": "a"}]), json!([{"hostname": "a", "ipMode": "VIP"}]), false),
    ] {
        assert_eq!(is_equal(&ingress(have), &ingress(wanted)), expected, "{case}");
    }
}

prop_compose! {
    fn any_service()(
        kind in prop::sample::select(vec!["LoadBalancer", "ClusterIP", "NodePort"]),
        finalizers in prop::sample::subsequence(vec!["foo", FINALIZER, "bar"], 0..=3),
        is_deleted: bool,
        has_class: bool,
        has_ingress: bool,
    ) -> Service {
        let deleted = is_deleted.then_some("2025-01-01T00:00:00Z");
        let class = has_class.then_some("x");
        let ingress = if has_ingress { json!([{"ip": "192.0.2.1"}]) } else { json!([]) };
        let metadata = json!({"finalizers": finalizers, "deletionTimestamp": deleted});
        service(metadata, json!({"type": kind, "loadBalancerClass": class}), ingress)
    }
}

/// Returns the Service after the API server applied the patch.
fn patched(service: &Service, patch: &Value) -> Service {
    let mut service = service.clone();
    let metadata = &patch["metadata"];
    assert_eq!((&metadata["uid"], &metadata["resourceVersion"]), (&json!("u"), &json!("7")));
    let finalizers = service.metadata.finalizers.get_or_insert_default();
    if let Some(added) = metadata["finalizers"].as_array() {
        finalizers.extend(added.iter().map(|added| added.as_str().unwrap().to_owned()));
    }
    if metadata.get("finalizers").is_some_and(Value::is_null) {
        finalizers.clear();
    }
    for removed in metadata["$deleteFromPrimitiveList/finalizers"].as_array().into_iter().flatten() {
        finalizers.retain(|finalizer| finalizer != removed.as_str().unwrap());
    }
    if let Some(order) = metadata["$setElementOrder/finalizers"].as_array() {
        let mut order: Vec<&str> = order.iter().map(|item| item.as_str().unwrap()).collect();
        order.sort_unstable();
        let mut have: Vec<&str> = finalizers.iter().map(String::as_str).collect();
        have.sort_unstable();
        assert_eq!(have, order, "the order names what is there afterwards");
    }
    if let Some(status) = patch.get("status") {
        service.status = serde_json::from_value(status.clone()).unwrap();
    }
    service
}

proptest! {
    /// After the actions of a plan, the next plan is empty.
    #[test]
    fn a_plan_is_idempotent(service in any_service(), declines: bool) {
        let handling = if declines { Handling::Declined } else { Handling::Handled };
        let addresses = ingress(json!([{"ip": "192.0.2.7"}]));
        let after = match decide(&service, &handling, &ServiceRecord::default()) {
            ServicePlan::LeaveAlone | ServicePlan::Hold { .. } => return Ok(()),
            ServicePlan::Ensure { adds_finalizer } => {
                let guarded = if adds_finalizer { patched(&service, &finalizer_patch(&service)) } else { service };
                prop_assert!(service::has_finalizer(&guarded));
                let after = status_patch(&guarded, &addresses).map_or(guarded.clone(), |patch| patched(&guarded, &patch));
                prop_assert_eq!(status_patch(&after, &addresses), None);
                after
            }
            ServicePlan::Delete => {
                let after = patched(&service, &release_patch(&service).unwrap());
                prop_assert_eq!(release_patch(&after), None);
                after
            }
        };
        let others = |service: &Service| {
            let others = finalizers(service).into_iter().filter(|other| *other != FINALIZER);
            others.map(str::to_owned).collect::<Vec<_>>()
        };
        let record = ensured(&after);
        prop_assert_eq!(decide(&after, &handling, &record), ServicePlan::LeaveAlone);
        prop_assert!(others(&after).iter().all(|other| ["foo", "bar"].contains(&other.as_str())));
    }

    /// A plan deletes a load balancer only if the Service has the finalizer. It adds no finalizer to a Service in
    /// deletion.
    #[test]
    fn only_a_service_with_the_finalizer_is_cleaned_up(service in any_service()) {
        let planned = decide(&service, &Handling::Handled, &ServiceRecord::default());
        prop_assert_eq!(planned == ServicePlan::Delete, service::needs_cleanup(&service));
        if let ServicePlan::Ensure { .. } = planned {
            prop_assert!(service.metadata.deletion_timestamp.is_none() && service::wants_load_balancer(&service));
        }
    }
}

#[test]
fn a_service_that_is_too_large_is_held_until_it_is_deleted() {
    let ranges = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": vec!["192.0.2.0/24"; 10_000]});
    let large = |metadata: Value, spec: &Value| cache_filter::reduced(service(metadata, spec.clone(), json!([])));
    let wanted = large(json!({}), &ranges);
    let expected = |plan: ServicePlan| {
        let ServicePlan::Hold { reason, message } = plan else { panic!("{plan:?}") };
        assert_eq!(reason, reason::LoadBalancerNotPossible);
        assert!(message.starts_with("the Service is too large: ") && message.len() < 300, "{message}");
    };
    expected(decide(&wanted, &Handling::Handled, &ServiceRecord::default()));
    expected(decide(&wanted, &Handling::Handled, &ensured(&wanted)));
    assert_eq!(decide(&wanted, &Handling::Declined, &ServiceRecord::default()), ServicePlan::LeaveAlone);
    let deleted = json!({"finalizers": [FINALIZER], "deletionTimestamp": "2025-01-01T00:00:00Z"});
    assert_eq!(decide(&large(deleted, &ranges), &Handling::Handled, &ServiceRecord::default()), ServicePlan::Delete);
    let class = json!({"loadBalancerClass": "other", "type": "LoadBalancer", "loadBalancerSourceRanges": vec!["192.0.2.0/24"; 10_000]});
    assert_eq!(
        decide(&large(json!({}), &class), &Handling::Handled, &ServiceRecord::default()),
        ServicePlan::LeaveAlone
    );
}
