//! Pure: selects the Services that the cache keeps, and the fields that it drops because no code reads them. New code
//! that needs a field must accept it in [`is_read`] and [`without_unread`], or read the Service live.
//!
//! The API server accepts Services of up to 1.5 MiB. If a Service is too large, the cache keeps only a part of it, of
//! limited size.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service, ServiceSpec, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{ANNOTATION_SOURCE_RANGES, FINALIZER, LOAD_BALANCER, has_finalizer, ingress};
use crate::cloud::object_size;

/// Prefixes of the annotations that the cache keeps. Providers read no other annotations: see `annotation_prefixes`.
pub const ANNOTATIONS: &[&str] =
    &["loadbalancer.vmware.io/", "loadbalancer.vsphere-ccm.dev/", ANNOTATION_SOURCE_RANGES];

/// The annotation in which `kubectl apply` stores a copy of the object.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The annotation on a reduced Service with the reason why the Service is too large. An annotation of this name on the
/// original Service is dropped.
const TOO_LARGE: &str = "too-large";

/// Maximum size of a kept annotation in bytes. Does not apply to the annotation with source ranges.
const MAX_ANNOTATION_BYTES: usize = 4 << 10;

/// Number of source ranges that are kept for a deletion. A deletion only checks whether there are any.
const RANGES: usize = 8;

/// Number of addresses that are kept of a Service that is too large, enough for one address of each family.
const ADDRESSES: usize = 2;

/// Returns true if type, finalizer or ingress show that the Service may need or have a load balancer. Most Services of
/// a cluster need no load balancer and are not cached.
pub fn is_needed(service: &Value) -> bool {
    let has = |pointer: &str, is_it: &dyn Fn(&Value) -> bool| service.pointer(pointer).is_some_and(is_it);
    let lists = |pointer: &str, is_it: &dyn Fn(&Value) -> bool| {
        has(pointer, &|list| list.as_array().is_some_and(|list| list.iter().any(is_it)))
    };
    has("/spec/type", &|kind| kind == LOAD_BALANCER)
        || lists("/metadata/finalizers", &|finalizer| finalizer == FINALIZER)
        || lists("/status/loadBalancer/ingress", &|_| true)
}

/// Returns true if the field at this path is decoded.
pub fn is_read(path: &[&str]) -> bool {
    match path {
        ["metadata", "labels" | "managedFields" | "ownerReferences"] | ["spec", "selector"] => false,
        ["metadata", "annotations", key] => keeps_annotation(key),
        _ => true,
    }
}

/// Returns true if the cache keeps an annotation with this key.
pub fn keeps_annotation(key: &str) -> bool {
    ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix))
}

/// If a Service is too large, reduces it to a part of limited size.
pub fn prune(service: &mut Service) {
    if let Some(reason) = excess(service) {
        *service = rest(std::mem::take(service), reason);
    }
}

/// Reduces a live Service to the content that the cache keeps.
pub fn reduced(service: Service) -> Service {
    let mut service = without_unread(service);
    prune(&mut service);
    service
}

/// Removes unread fields and annotations from a live Service. Does not limit the size.
pub fn without_unread(mut service: Service) -> Service {
    let metadata = &mut service.metadata;
    metadata.labels = None;
    metadata.managed_fields = None;
    metadata.owner_references = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| keeps_annotation(key));
    }
    if let Some(spec) = &mut service.spec {
        spec.selector = None;
    }
    service
}

/// Returns a copy of a Service for the later deletion of its load balancer. Keeps at most 8 source ranges, because
/// there may be many.
pub fn for_deletion(service: &Service) -> Service {
    let mut service = service.clone();
    if let Some(ranges) = service.spec.as_mut().and_then(|spec| spec.load_balancer_source_ranges.as_mut()) {
        ranges.truncate(RANGES);
    }
    service
}

/// Returns the reason why a Service from the cache or from [`reduced`] is too large; `None` if the Service is not too
/// large. A Service that is too large has only identity, type, class, families, addresses, our finalizer and the
/// deletion timestamp.
pub fn too_large(service: &Service) -> Option<&str> {
    service.metadata.annotations.as_ref()?.get(TOO_LARGE).map(String::as_str)
}

/// Describes the part that is too large, if any.
fn excess(service: &Service) -> Option<String> {
    let large = service
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(key, value)| *key != ANNOTATION_SOURCE_RANGES && key.len() + value.len() > MAX_ANNOTATION_BYTES);
    if let Some((key, value)) = large {
        let length = value.len();
        return Some(format!("the annotation {key} has {length} bytes; expected at most {MAX_ANNOTATION_BYTES}"));
    }
    let (size, limit) = object_size::excess(service)?;
    Some(format!("spec, status, finalizers and annotations of load balancers have {size}; expected at most {limit}"))
}

/// Returns the part of limited size, with the reason why the rest is dropped.
fn rest(service: Service, reason: String) -> Service {
    let finalizers = has_finalizer(&service).then(|| vec![FINALIZER.to_owned()]);
    let address = |LoadBalancerIngress { hostname, ip, .. }: &LoadBalancerIngress| LoadBalancerIngress {
        hostname: hostname.clone(),
        ip: ip.clone(),
        ..LoadBalancerIngress::default()
    };
    let addresses = ingress(&service).iter().take(ADDRESSES).map(address).collect();
    let Service { metadata, spec, .. } = service;
    let spec = spec.unwrap_or_default();
    Service {
        metadata: ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            deletion_timestamp: metadata.deletion_timestamp,
            finalizers,
            annotations: Some([(TOO_LARGE.to_owned(), reason)].into()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            type_: spec.type_,
            load_balancer_class: spec.load_balancer_class,
            ip_families: spec.ip_families,
            ..ServiceSpec::default()
        }),
        status: Some(ServiceStatus {
            load_balancer: Some(LoadBalancerStatus { ingress: Some(addresses) }),
            ..ServiceStatus::default()
        }),
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
    fn only_annotations_of_load_balancers_are_kept() {
        let read = "loadbalancer.vmware.io/class";
        let all = ["a/b", LAST_APPLIED, TOO_LARGE, "loadbalancer.vmware.io", read];
        assert_eq!(all.into_iter().filter(|key| keeps_annotation(key)).collect::<Vec<_>>(), [read]);
        let service: Service =
            serde_json::from_value(json!({"metadata": {"annotations": {"a/b": "c", read: "web"}}})).unwrap();
        let kept = reduced(service).metadata.annotations.unwrap();
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(read.to_owned(), "web".to_owned())]);
    }

    #[test]
    fn a_live_service_loses_what_is_read_over_on_the_wire() {
        let mut service: Service = serde_json::from_value(large()).unwrap();
        service.metadata.managed_fields = Some(vec![Default::default()]);
        service.metadata.owner_references = Some(vec![Default::default()]);
        let before = serde_json::to_value(&service).unwrap();
        let after = serde_json::to_value(without_unread(service.clone())).unwrap();
        for path in [
            ["metadata", "labels"],
            ["metadata", "managedFields"],
            ["metadata", "ownerReferences"],
            ["spec", "selector"],
        ] {
            let pointer = format!("/{}", path.join("/"));
            assert!(before.pointer(&pointer).is_some() && after.pointer(&pointer).is_none(), "{pointer}");
            assert!(!is_read(&path), "{pointer}");
        }
        let kept = for_deletion(&service).spec.unwrap().load_balancer_source_ranges.unwrap();
        assert_eq!(kept.len(), RANGES);
    }

    fn large() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["other", FINALIZER], "labels": {"a": "b"}, "annotations": {"a/b": "c"},
            },
            "spec": {
                "type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"], "selector": {"a": "b"}, "ports": [{"port": 80}],
                "loadBalancerSourceRanges": vec!["192.0.2.0/24"; 10_000],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ports": [{"port": 80}]}, {"ip": "192.0.2.2"}, {"ip": "192.0.2.3"}]}},
        })
    }

    #[test]
    fn of_a_service_that_is_too_large_the_rest_is_small_and_says_what_it_is() {
        let mut rest: Service = serde_json::from_value(large()).unwrap();
        prune(&mut rest);
        let text = serde_json::to_string(&rest).unwrap();
        assert!(text.len() < 1000, "{text}");
        let reason = too_large(&rest).unwrap();
        assert!(reason.ends_with("bytes of JSON; expected at most 131072"), "{reason}");
        assert!(super::super::is_load_balancer(&rest) && super::super::needs_cleanup(&rest));
        assert_eq!(super::super::ingress(&rest).len(), 2);
        assert_eq!(rest.metadata.resource_version.as_deref(), Some("7"));
        let mut at_hand: Service = serde_json::from_value(large()).unwrap();
        assert_eq!(too_large(&at_hand), None, "as it came");
        let of_live = reduced(at_hand.clone());
        assert!(too_large(&of_live).is_some());
        let unmarked = |service: &Service| {
            let metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                annotations: None,
                ..service.metadata.clone()
            };
            Service { metadata, ..service.clone() }
        };
        assert_eq!(unmarked(&of_live), unmarked(&rest), "read live, but for the size");
        at_hand.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["::/0".to_owned(); 8000]);
        let reason = too_large(&reduced(at_hand.clone())).map(str::to_owned).unwrap();
        assert!(reason.ends_with("bytes of memory; expected at most 393216"), "{reason}");
        at_hand.spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned(); 4000]);
        let reduced = reduced(at_hand);
        assert_eq!(too_large(&reduced), None, "as many as NSX takes");
        assert_eq!((reduced.metadata.labels, reduced.metadata.finalizers.map(|all| all.len())), (None, Some(2)));
    }

    /// The items of a list have no `kind` and no `apiVersion`.
    #[test]
    fn an_item_of_a_list_that_is_too_large_can_be_read() {
        let mut item = large();
        for key in ["apiVersion", "kind"] {
            item.as_object_mut().unwrap().remove(key);
        }
        let mut rest: Service = serde_json::from_value(item).unwrap();
        prune(&mut rest);
        assert!(too_large(&rest).is_some() && super::super::needs_cleanup(&rest));
    }

    #[test]
    fn an_annotation_that_is_read_has_a_limit_and_others_have_none() {
        let with = |key: &str, length: usize| {
            let service = json!({
                "metadata": {"name": "a", "annotations": {key: "\u{1}".repeat(length)}}, "spec": {"type": "LoadBalancer"},
            });
            let service: Service = serde_json::from_value(service).unwrap();
            too_large(&reduced(service)).map(str::to_owned)
        };
        let class = "loadbalancer.vmware.io/class";
        assert_eq!(with(class, 4096 - class.len()), None);
        let expected = "the annotation loadbalancer.vmware.io/class has 4069 bytes; expected at most 4096";
        assert_eq!(with(class, 4097 - class.len()).as_deref(), Some(expected));
        assert_eq!(with("example.com/a", 200 << 10), None);
        assert_eq!(with(ANNOTATION_SOURCE_RANGES, 20_000), None, "4,000 networks in an annotation");
        assert!(with(ANNOTATION_SOURCE_RANGES, 30_000).is_some(), "six times as long in JSON");
    }
}
