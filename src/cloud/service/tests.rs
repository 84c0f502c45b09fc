//! Tests with the Services of the upstream test vectors.

use super::*;
use serde_json::{Value, json};

fn service(text: Value) -> Service {
    serde_json::from_value(text).unwrap()
}

fn of_type(kind: &str, policy: Option<&str>) -> Service {
    service(json!({"spec": {"type": kind, "externalTrafficPolicy": policy, "healthCheckNodePort": 30123}}))
}

#[test]
fn a_class_names_another_program() {
    for (spec, expected) in [
        (json!({"type": "LoadBalancer"}), true),
        (json!({"type": "LoadBalancer", "loadBalancerClass": "custom-loadbalancer"}), false),
        (json!({"type": "NodePort"}), false),
        (json!({}), false),
    ] {
        assert_eq!(wants_load_balancer(&service(json!({"spec": spec}))), expected, "{spec}");
    }
    assert!(!wants_load_balancer(&Service::default()));
}

// vectors: S-10–S-13
#[test]
fn a_service_needs_cleanup_as_in_the_go_program() {
    let gone = "2025-01-01T00:00:00Z";
    for (id, finalizers, deleted, kind, expected) in [
        ("S-10", json!([]), Some(gone), "NodePort", false),
        ("S-10", json!([]), None, "LoadBalancer", false),
        ("S-11", json!([FINALIZER]), None, "NodePort", true),
        ("S-12", json!([FINALIZER]), None, "LoadBalancer", false),
        ("S-13", json!([FINALIZER]), Some(gone), "LoadBalancer", true),
        ("S-13", json!([FINALIZER]), Some(gone), "ClusterIP", true),
    ] {
        let metadata = json!({"finalizers": finalizers, "deletionTimestamp": deleted});
        let service = service(json!({"metadata": metadata, "spec": {"type": kind}}));
        assert_eq!(needs_cleanup(&service), expected, "{id}: {service:?}");
    }
    // A user may set a class on a Service that has a load balancer. The load balancer stays.
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "x"});
    assert!(!needs_cleanup(&service(json!({"metadata": {"finalizers": [FINALIZER]}, "spec": spec}))));
}

// vectors: S-130–S-134
#[test]
fn source_ranges_are_read_as_in_the_go_program() {
    let field = |ranges: &[&str]| service(json!({"spec": {"loadBalancerSourceRanges": ranges}}));
    let annotated = |text: &str| service(json!({"metadata": {"annotations": {ANNOTATION_SOURCE_RANGES: text}}}));
    for wrong in ["10.0.0.1/33", "foo.bar", "10.0.0.1/32,*", "10.0.0.1/32,", "10.0.0.1/32, ", "10.0.0.1"] {
        let entries: Vec<&str> = wrong.split(',').collect();
        assert!(source_ranges(&field(&entries)).is_err(), "S-130: {entries:?}");
        assert!(source_ranges(&annotated(wrong)).is_err(), "S-130: {wrong}");
    }
    for (id, text, expected) in [
        ("S-131", "192.168.0.1/32", &["192.168.0.1/32"][..]),
        ("S-131", "192.168.0.1/32,192.168.0.1/32", &["192.168.0.1/32"]),
        ("S-132", "192.168.0.1/32,192.168.0.2/32", &["192.168.0.1/32", "192.168.0.2/32"]),
        ("S-132", "  192.168.0.1/32 , 192.168.0.2/32  ", &["192.168.0.1/32", "192.168.0.2/32"]),
        ("host bits are dropped", "192.168.7.7/16,fd00::7/64", &["192.168.0.0/16", "fd00::/64"]),
    ] {
        let expected: BTreeSet<IpNet> = expected.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(source_ranges(&annotated(text)).as_ref(), Ok(&expected), "{id}");
        assert_eq!(source_ranges(&field(&text.split(',').collect::<Vec<_>>())), Ok(expected), "{id}");
    }
    for (id, service) in [("S-133", Service::default()), ("S-133", annotated("")), ("S-133", annotated("  "))] {
        assert!(allows_everything(&source_ranges(&service).unwrap()), "{id}");
    }
    let both = json!({"metadata": {"annotations": {ANNOTATION_SOURCE_RANGES: "*"}},
        "spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}});
    assert_eq!(source_ranges(&service(both)).unwrap().len(), 1, "the field comes first");
    for (id, ranges, expected) in [
        ("S-134", &["10.0.0.1/32"][..], false),
        ("S-134", &["0.0.0.0/0"], true),
        ("S-134", &["192.168.0.0/0"], true),
        ("S-134", &["192.168.0.1/32", "0.0.0.0/0"], true),
        ("as upstream", &["::/0"], false),
    ] {
        assert_eq!(allows_everything(&source_ranges(&field(ranges)).unwrap()), expected, "{id}: {ranges:?}");
    }
}

// vectors: S-135, S-136
#[test]
fn only_local_traffic_of_a_load_balancer_needs_a_health_check() {
    for (id, service, is_local, expected) in [
        ("S-135", Service::default(), false, None),
        ("S-135", of_type("ClusterIP", None), false, None),
        ("S-135", of_type("NodePort", None), false, None),
        ("S-135", of_type("NodePort", Some("Cluster")), false, None),
        ("S-135", of_type("LoadBalancer", Some("Cluster")), false, None),
        ("S-135, S-136", of_type("NodePort", Some("Local")), true, None),
        ("S-135, S-136", of_type("LoadBalancer", Some("Local")), true, Some(30123)),
    ] {
        assert_eq!((is_only_local(&service), health_check_port(&service)), (is_local, expected), "{id}");
    }
}

// vectors: S-137
#[test]
fn the_finalizer_is_found_among_others() {
    for (id, finalizers, expected) in [
        ("S-137", &[][..], false),
        ("S-137", &["unrelated"], false),
        ("S-137", &[FINALIZER], true),
        ("S-137", &[FINALIZER, "unrelated"], true),
    ] {
        assert_eq!(has_finalizer(&service(json!({"metadata": {"finalizers": finalizers}}))), expected, "{id}");
    }
    assert!(!has_finalizer(&Service::default()));
}

#[test]
fn the_ingress_is_what_the_status_reports() {
    assert_eq!(ingress(&Service::default()), []);
    let reported = service(json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}));
    assert_eq!(ingress(&reported).len(), 1);
}
