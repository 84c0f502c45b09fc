//! Pure: the parts of a Service that its load balancer may depend on. Replaces the field list of `needsUpdate` in
//! `controllers/service/controller.go`. Includes all fields of `spec` except a few, so that fields of later Kubernetes
//! versions are included, too.

use crate::cloud::service::cache_filter::LAST_APPLIED;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use sha2::{Digest as _, Sha256};

/// Digest for comparison. Equal inputs need no new cloud call. The full inputs may be large, so they are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs([u8; 32]);

impl Inputs {
    /// Returns the inputs of `service`, including the annotations that begin with one of `prefixes`.
    pub fn of(service: &Service, prefixes: &[&str]) -> Self {
        // The cache drops the annotation `LAST_APPLIED`, but a live read returns it.
        let is_read = |key: &str| key != LAST_APPLIED && prefixes.iter().any(|prefix| key.starts_with(prefix));
        let annotations = service.metadata.annotations.iter().flatten().filter(|(key, _)| is_read(key));
        // The last two fields are omitted because their effects are compared: node ports and IP families.
        let spec = service.spec.clone().map(|spec| ServiceSpec {
            selector: None,
            internal_traffic_policy: None,
            publish_not_ready_addresses: None,
            traffic_distribution: None,
            allocate_load_balancer_node_ports: None,
            ip_family_policy: None,
            ..spec
        });
        let metadata = (&service.metadata.uid, &service.metadata.deletion_timestamp);
        let all = (metadata, spec, annotations.collect::<Vec<_>>());
        Self(Sha256::digest(serde_json::to_vec(&all).expect("a Service is JSON")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn base() -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "annotations": {"ours/a": "1", "other": "1"}},
            "spec": {
                "type": "LoadBalancer", "ipFamilies": ["IPv4"], "externalIPs": ["192.0.2.1"],
                "ports": [{"name": "a", "port": 8000, "targetPort": 20, "nodePort": 30001}],
            },
        })
    }

    fn is_noticed(path: &str, value: Value) -> bool {
        let mut changed = base();
        let (parent, field) = path.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[field] = value;
        let of = |service: Value| Inputs::of(&serde_json::from_value(service).unwrap(), &["ours/"]);
        of(base()) != of(changed)
    }

    // vectors: S-20–S-27, S-29, S-31, S-32
    #[test]
    fn a_change_that_matters_is_noticed_as_in_the_go_program() {
        for (id, path, value) in [
            ("S-20", "/spec/type", json!("ClusterIP")),
            ("S-21", "/spec/ports", json!([{"name": "a", "port": 8001, "targetPort": 20, "nodePort": 30001}])),
            ("S-22", "/spec/externalIPs", json!(["192.0.2.1", "192.0.2.2"])),
            ("S-23", "/spec/externalIPs", json!(["192.0.2.2"])),
            ("S-24", "/metadata/uid", json!("v")),
            ("S-25", "/spec/externalTrafficPolicy", json!("Local")),
            ("S-26", "/spec/healthCheckNodePort", json!(30123)),
            ("S-27", "/spec/ports", json!([{"name": "a", "port": 8000, "targetPort": 21, "nodePort": 30001}])),
            ("S-27", "/spec/ports", json!([{"name": "a", "port": 8000, "targetPort": "dns", "nodePort": 30001}])),
            ("S-29", "/spec/ipFamilies", json!(["IPv4", "IPv6"])),
            ("W-65", "/spec/ipFamilies", json!(["IPv6"])),
            (
                "S-31",
                "/spec/ports",
                json!([{"name": "a", "port": 8000, "targetPort": 20, "nodePort": 30001, "appProtocol": "http"}]),
            ),
            ("S-32", "/metadata/annotations", json!({"ours/a": "1", "ours/b": "1"})),
            ("S-32", "/spec/loadBalancerSourceRanges", json!(["192.0.2.0/24"])),
            ("S-32", "/spec/sessionAffinity", json!("ClientIP")),
            ("S-32", "/spec/sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 60}})),
            ("S-32", "/spec/loadBalancerIP", json!("192.0.2.7")),
            ("S-32", "/spec/ports", json!([{"name": "b", "port": 8000, "targetPort": 20, "nodePort": 30001}])),
            ("S-32", "/spec/ports", json!([{"name": "a", "port": 8000, "targetPort": 20, "nodePort": 30002}])),
            ("its deletion", "/metadata/deletionTimestamp", json!("2025-01-01T00:00:00Z")),
            ("a class", "/spec/loadBalancerClass", json!("x")),
        ] {
            assert!(is_noticed(path, value.clone()), "{id}: {path} {value}");
        }
    }

    // vectors: S-28, S-30, S-33
    #[test]
    fn a_change_that_does_not_matter_is_none() {
        for (id, path, value) in [
            ("S-28", "/metadata/name", json!("a")),
            ("S-30", "/spec/ipFamilies", json!(["IPv4"])),
            ("S-33", "/metadata/labels", json!({"a": "b"})),
            ("S-33", "/spec/selector", json!({"a": "b"})),
            ("S-33", "/spec/allocateLoadBalancerNodePorts", json!(false)),
            ("S-33", "/spec/ipFamilyPolicy", json!("PreferDualStack")),
            ("S-33", "/status", json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}})),
            ("W-66", "/metadata/annotations", json!({"ours/a": "1", "other": "2"})),
            ("W-66", "/metadata/annotations", json!({"ours/a": "1"})),
            ("our finalizer", "/metadata/finalizers", json!(["service.kubernetes.io/load-balancer-cleanup"])),
            ("a version", "/metadata/resourceVersion", json!("8")),
        ] {
            assert!(!is_noticed(path, value.clone()), "{id}: {path} {value}");
        }
        let service = serde_json::from_value(base()).unwrap();
        let mut other = base();
        other["metadata"]["annotations"]["other"] = json!("2");
        let other = serde_json::from_value(other).unwrap();
        assert_ne!(
            Inputs::of(&service, &[""]),
            Inputs::of(&other, &[""]),
            "S-32: a provider may read every annotation"
        );
    }
}
