//! A cached object, without the fields that no reader uses. A Node with 50 images is 15 KB on the wire, and 5 KB in
//! memory without the images.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Resource;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::cloud::{node, object_size, service};

/// A kind that a [`Store`](super::Store) can cache. Its readers declare the fields to keep.
pub trait CachedObject:
    Resource<DynamicType = ()> + DeserializeOwned + Serialize + Clone + PartialEq + Send + Sync + 'static
{
    /// Maximum number of objects in a page of a list. The whole page is in memory at one time.
    const PAGE: u32;

    /// Explanation of the permission to list this kind, logged once if the permission is missing. `None` if this
    /// program requires the permission.
    const NEEDED_BY: Option<&'static str>;

    /// Whether the field at this path is decoded. Other fields are skipped and never in memory.
    fn is_read(path: &[&str]) -> bool;

    /// Whether any reader needs the object. Other objects are not cached.
    fn is_needed(object: &Value) -> bool;

    /// Drops further fields that no reader uses.
    fn prune(&mut self);
}

impl CachedObject for Node {
    /// Larger pages fragment the heap permanently.
    const PAGE: u32 = 50;
    const NEEDED_BY: Option<&'static str> = None;

    fn is_read(path: &[&str]) -> bool {
        node::cache_filter::is_read(path)
    }

    fn is_needed(_: &Value) -> bool {
        true
    }

    fn prune(&mut self) {
        node::cache_filter::prune(self);
    }
}

impl CachedObject for Service {
    /// Each Service may have 256 KiB of annotations, and control characters make this six times as long in JSON.
    const PAGE: u32 = 10;
    const NEEDED_BY: Option<&'static str> = Some(
        "only clusters with load balancers need it, and manifests/components/services (Helm: rbac.services) grants it",
    );

    fn is_read(path: &[&str]) -> bool {
        service::cache_filter::is_read(path)
    }

    fn is_needed(service: &Value) -> bool {
        service::cache_filter::is_needed(service)
    }

    fn prune(&mut self) {
        service::cache_filter::prune(self);
    }
}

/// An object in an answer of the API server.
#[derive(Clone)]
pub(super) struct ListedObject<K> {
    /// Name of the object, or `namespace/name`.
    pub(super) key: String,
    /// `metadata.resourceVersion`
    pub(super) version: Option<String>,
    pub(super) object: CacheAction<K>,
}

/// Action of the cache for an object.
#[derive(Clone)]
pub(super) enum CacheAction<K> {
    /// Cache this object.
    Needed(Arc<K>),
    /// Remove this object.
    Unneeded,
    /// Keep the previous version: the object exists, but cannot be decoded or is too large.
    Unreadable(Arc<serde_json::Error>),
}

impl<'de, K: CachedObject> Deserialize<'de> for ListedObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Item(seen) = Item::deserialize(deserializer)?;
        seen.ok_or_else(|| D::Error::custom("an object without a name"))
    }
}

/// An item of a list; `None` if it has no name. An item without a name does not make its page unreadable.
pub(super) struct Item<K>(pub(super) Option<ListedObject<K>>);

impl<'de, K: CachedObject> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tree = Tree { path: &[], is_read: K::is_read };
        Ok(Self(ListedObject::of(tree.deserialize(deserializer)?)))
    }
}

impl<K: CachedObject> ListedObject<K> {
    fn of(tree: Value) -> Option<Self> {
        let text = |field: &str| Some(tree.get("metadata")?.get(field)?.as_str()?.to_owned());
        let name = text("name")?;
        let key = match text("namespace") {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        let version = text("resourceVersion");
        if !K::is_needed(&tree) {
            return Some(Self { key, version, object: CacheAction::Unneeded });
        }
        let object = cached(tree).map_or_else(|error| CacheAction::Unreadable(Arc::new(error)), CacheAction::Needed);
        Some(Self { key, version, object })
    }
}

/// Returns the form in which the cache would keep this complete object; `None` if the cache would not keep it.
///
/// # Errors
/// The object is too large for the cache.
pub fn cached_form<K: CachedObject>(object: &K) -> Result<Option<Arc<K>>, serde_json::Error> {
    let complete = serde_json::to_value(object)?;
    let tree = Tree { path: &[], is_read: K::is_read }.deserialize(complete)?;
    if !K::is_needed(&tree) {
        return Ok(None);
    }
    cached(tree).map(Some)
}

/// Converts an object into its cached form. Fails if the object is not of this kind or is too large.
fn cached<K: CachedObject>(tree: Value) -> Result<Arc<K>, serde_json::Error> {
    let mut object: K = serde_json::from_value(tree)?;
    object.prune();
    // Only a Node can be too large here, because `prune` reduces a Service.
    if let Some((size, limit)) = object_size::excess(&object) {
        let what = "without the fields that this program does not read";
        return Err(serde_json::Error::custom(format!("{size}, {what}; expected at most {limit}")));
    }
    Ok(Arc::new(object))
}

/// Decodes the JSON at a path. Skips the fields that `is_read` rejects, so that they are never in memory.
struct Tree<'a> {
    path: &'a [&'a str],
    is_read: fn(&[&str]) -> bool,
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let mut object = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = [self.path, &[&key]].concat();
            if !(self.is_read)(&path) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value_seed(Tree { path: &path, is_read: self.is_read })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Value, S::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cached_form_of_a_complete_object_is_what_the_watch_decodes() {
        let node = json!({
            "metadata": {"name": "a", "resourceVersion": "7", "annotations": {"other.example.com/x": "y"}},
            "spec": {"providerID": "vsphere://a"},
            "status": {
                "images": [{"names": ["x"]}],
                "conditions": [
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": "2025-01-01T00:00:00Z"},
                    {"type": "MemoryPressure", "status": "False"},
                ],
            },
        });
        let complete: Node = serde_json::from_value(node.clone()).unwrap();
        let watched: ListedObject<Node> = serde_json::from_value(node).unwrap();
        let CacheAction::Needed(watched) = watched.object else { panic!("the cache needs every Node") };
        assert_ne!(complete, *watched);
        assert_eq!(cached_form(&complete).unwrap(), Some(watched));
        let internal: Service = serde_json::from_value(json!({"spec": {"type": "ClusterIP"}})).unwrap();
        assert_eq!(cached_form(&internal).unwrap(), None, "it has no load balancer");
    }

    #[test]
    fn what_is_read_of_a_node_stays_and_the_rest_goes() {
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"});
        let mut kept = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7", "labels": {"x/y": "z"},
                "creationTimestamp": "2025-01-01T00:00:00Z", "deletionTimestamp": "2025-01-01T00:00:00Z",
                "annotations": {
                    "vsphere-ccm.dev/vm": "{\"vm\":\"1\"}", "vsphere-ccm.dev/allow-deletion": "true",
                    "alpha.kubernetes.io/provided-node-ip": "10.0.0.1",
                },
            },
            "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": "p", "taints": [{"key": "t", "effect": "NoSchedule"}], "unschedulable": true},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [
                    condition("Ready"),
                    {"type": "VSphereInitialized", "status": "False", "reason": "NoZoneTags", "message": "m"},
                    {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"},
                ],
                "nodeInfo": {"systemUUID": "s"},
            },
        });
        let mut whole = kept.clone();
        whole["metadata"]["managedFields"] = json!([{"any": "thing"}]);
        let unread = [
            "allocatable",
            "capacity",
            "config",
            "daemonEndpoints",
            "images",
            "runtimeHandlers",
            "volumesAttached",
            "volumesInUse",
        ];
        for field in unread {
            whole["status"][field] = json!([{"any": "thing"}]);
        }
        let unread = [
            "architecture",
            "bootID",
            "containerRuntimeVersion",
            "kernelVersion",
            "kubeProxyVersion",
            "kubeletVersion",
            "machineID",
            "operatingSystem",
            "osImage",
        ];
        for field in unread {
            whole["status"]["nodeInfo"][field] = json!([{"any": "thing"}]);
        }
        whole["metadata"]["annotations"]["other"] = json!("x");
        let conditions = whole["status"]["conditions"].as_array_mut().unwrap();
        conditions.extend([condition("MemoryPressure"), condition("KernelDeadlock")]);
        for (index, field) in [(0, "reason"), (0, "message"), (2, "message")] {
            conditions[index][field] = json!("a text");
        }
        conditions[0]["lastHeartbeatTime"] = json!("2025-01-01T00:05:00Z");
        conditions[2]["lastTransitionTime"] = json!("2025-01-01T00:00:00Z");
        let seen: ListedObject<Node> = serde_json::from_value(whole).unwrap();
        assert_eq!((seen.key.as_str(), seen.version.as_deref()), ("a", Some("7")));
        let CacheAction::Needed(object) = seen.object else { panic!("every Node is needed") };
        kept["status"]["nodeInfo"] =
            json!(k8s_openapi::api::core::v1::NodeSystemInfo { system_uuid: "s".into(), ..Default::default() });
        assert_eq!(*object, serde_json::from_value(kept).unwrap());
    }

    #[test]
    fn a_node_that_is_too_large_is_known_by_name() {
        let long = |length| json!({"type": "VSphereInitialized", "status": "True", "message": "\u{1}".repeat(length)});
        let conditions = |length| json!({"metadata": {"name": "a"}, "status": {"conditions": [long(length)]}});
        let labels = |count: usize| {
            let labels: Value = (0..count).map(|number| (format!("{number:04}"), json!(""))).collect();
            json!({"metadata": {"name": "a", "labels": labels}})
        };
        let (of_json, of_memory) = (" bytes of JSON, ", " bytes of memory, ");
        for (name, node, too_large) in [
            ("large", conditions(20_000), None),
            ("too large", conditions(22_000), Some((of_json, 131_072))),
            ("many labels", labels(2_900), None),
            ("too many labels", labels(3_000), Some((of_memory, 393_216))),
        ] {
            let seen: ListedObject<Node> = serde_json::from_value(node).unwrap();
            assert_eq!(seen.key, "a", "{name}");
            match seen.object {
                CacheAction::Needed(_) => assert_eq!(too_large, None, "{name}"),
                CacheAction::Unreadable(error) => {
                    let ((unit, limit), text) = (too_large.unwrap(), error.to_string());
                    let end = format!("does not read; expected at most {limit}");
                    assert!(text.contains(unit) && text.ends_with(&end), "{name}: {text}");
                }
                CacheAction::Unneeded => panic!("{name}: every Node is needed"),
            }
        }
    }

    #[test]
    fn of_a_service_all_stays_but_what_is_large_and_not_read() {
        let kept = json!({
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "annotations": {"loadbalancer.vmware.io/class": "c"}, "finalizers": ["a", "b"],
            },
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "clusterIPs": ["10.0.0.1"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        });
        let mut whole = kept.clone();
        whole["metadata"]["managedFields"] = json!([{"manager": "m"}]);
        whole["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!("{}");
        whole["metadata"]["annotations"]["a/b"] = json!("c");
        whole["metadata"]["labels"] = json!({"x": "y"});
        whole["metadata"]["ownerReferences"] = json!([{"name": "o"}]);
        whole["spec"]["selector"] = json!({"app": "a"});
        let seen: ListedObject<Service> = serde_json::from_value(whole.clone()).unwrap();
        let CacheAction::Needed(object) = seen.object else { panic!("it has a load balancer") };
        assert_eq!(*object, serde_json::from_value(kept).unwrap());
        // An undecodable object that is not needed causes no warning.
        (whole["spec"], whole["status"]) = (json!({"type": "ClusterIP", "ports": 7}), json!({}));
        let seen: ListedObject<Service> = serde_json::from_value(whole).unwrap();
        assert!(seen.key == "n/a" && matches!(seen.object, CacheAction::Unneeded));
    }

    #[test]
    fn a_namespace_is_part_of_the_key_and_what_is_no_node_is_known_by_name() {
        let bad = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": 7, "status": [1.5, -1, true, null]});
        let seen: ListedObject<Node> = serde_json::from_value(bad).unwrap();
        assert!(seen.key == "n/a" && matches!(seen.object, CacheAction::Unreadable(_)));
        assert!(serde_json::from_value::<ListedObject<Node>>(json!({"metadata": 7})).is_err());
        assert!(serde_json::from_value::<ListedObject<Node>>(json!({"metadata": {}})).is_err());
    }
}
