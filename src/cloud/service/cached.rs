//! Pure: which Services the cache keeps, and what it drops of them, because neither controllers nor providers read it. A
//! reader that needs more takes it out of this list, or reads the Service live.

use serde_json::Value;

use super::{FINALIZER, LOAD_BALANCER};

/// The fields that are not kept, as ways from the root.
pub const UNREAD: &[&[&str]] = &[&["metadata", "managedFields"], &["spec", "selector"]];

/// The annotation with a copy of the object for `kubectl apply`.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether a load balancer is wanted or may exist: the type, the finalizer or an ingress says so. Most Services of a cluster
/// have none of them.
pub fn is_needed(service: &Value) -> bool {
    let has = |pointer: &str, is_it: &dyn Fn(&Value) -> bool| service.pointer(pointer).is_some_and(is_it);
    let lists = |pointer: &str, is_it: &dyn Fn(&Value) -> bool| {
        has(pointer, &|list| list.as_array().is_some_and(|list| list.iter().any(is_it)))
    };
    has("/spec/type", &|kind| kind == LOAD_BALANCER)
        || lists("/metadata/finalizers", &|finalizer| finalizer == FINALIZER)
        || lists("/status/loadBalancer/ingress", &|_| true)
}

/// Drops what else nobody reads.
pub fn prune(service: &mut Value) {
    if let Some(annotations) = service.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_is_kept_that_has_or_may_have_a_load_balancer() {
        let ingress = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        for (case, service, expected) in [
            ("of the type", json!({"spec": {"type": "LoadBalancer"}}), true),
            ("of a class", json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "x"}}), true),
            ("with the finalizer", json!({"metadata": {"finalizers": ["a", FINALIZER]}}), true),
            ("with an ingress", json!({"spec": {"type": "ClusterIP"}, "status": ingress}), true),
            ("of another type", json!({"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": {}}}), false),
            ("with another finalizer", json!({"metadata": {"finalizers": ["a"]}, "spec": {"type": "NodePort"}}), false),
            ("odd", json!({"metadata": {"finalizers": FINALIZER}, "spec": 7, "status": []}), false),
        ] {
            assert_eq!(is_needed(&service), expected, "{case}");
        }
    }

    #[test]
    fn only_the_copy_for_apply_is_dropped_of_the_annotations() {
        let mut service = json!({"metadata": {"annotations": {"a/b": "c", LAST_APPLIED: "{}"}}});
        prune(&mut service);
        assert_eq!(service, json!({"metadata": {"annotations": {"a/b": "c"}}}));
        let mut odd = json!([1]);
        prune(&mut odd);
        assert_eq!(odd, json!([1]));
    }
}
