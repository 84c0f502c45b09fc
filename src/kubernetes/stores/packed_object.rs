//! A cached object: its JSON, without fields that no reader uses. A Node with 50 images is 15 KB on the wire, 5 KB in
//! memory without the images, and about 1 KB packed. All readers of the same event share one unpacked object.

use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Resource;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::cloud::{node, service};

/// Maximum size of a cached object, in bytes of JSON. Nodes can be larger: the API server accepts 1.5 MiB, and control
/// characters make this six times as long in JSON. [`CachedObject::prune`] keeps Services below this limit.
const MAX_BYTES: usize = 128 << 10;

/// A kind that a [`Store`](super::Store) can cache. Its readers declare the fields to keep.
pub trait CachedObject: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + Sync + 'static {
    /// Paths of fields that are skipped while decoding.
    const UNREAD: &'static [&'static [&'static str]];

    /// Maximum number of objects in a page of a list. The whole page is in memory at one time.
    const PAGE: u32;

    /// Explanation of the permission to list this kind, logged once if the permission is missing. `None` if this
    /// program requires the permission.
    const NEEDED_BY: Option<&'static str>;

    /// Whether any reader needs the object. Other objects are not cached.
    fn is_needed(object: &Value) -> bool;

    /// Whether the annotation with this key is kept while decoding.
    fn keeps_annotation(key: &str) -> bool;

    /// Drops further fields that no reader uses.
    fn prune(object: &mut Value);

    /// Whether the object counts in [`Store::count_marked`](super::Store::count_marked).
    fn is_marked(&self) -> bool;
}

impl CachedObject for Node {
    const UNREAD: &'static [&'static [&'static str]] = node::cache_filter::UNREAD;
    /// Larger pages fragment the heap permanently.
    const PAGE: u32 = 50;
    const NEEDED_BY: Option<&'static str> = None;

    fn is_needed(_: &Value) -> bool {
        true
    }

    fn keeps_annotation(key: &str) -> bool {
        node::cache_filter::keeps_annotation(key)
    }

    fn prune(node: &mut Value) {
        node::cache_filter::prune(node);
    }

    /// Whether the Node waits for initialisation.
    fn is_marked(&self) -> bool {
        node::is_uninitialized(self)
    }
}

impl CachedObject for Service {
    const UNREAD: &'static [&'static [&'static str]] = service::cache_filter::UNREAD;
    /// Each Service may have 256 KiB of annotations, and control characters make this six times as long in JSON.
    const PAGE: u32 = 10;
    const NEEDED_BY: Option<&'static str> = Some(
        "only clusters with load balancers need it, and manifests/components/services (Helm: rbac.services) grants it",
    );

    fn is_needed(service: &Value) -> bool {
        service::cache_filter::is_needed(service)
    }

    fn keeps_annotation(key: &str) -> bool {
        service::cache_filter::keeps_annotation(key)
    }

    fn prune(service: &mut Value) {
        service::cache_filter::prune(service);
    }

    fn is_marked(&self) -> bool {
        false
    }
}

/// A cached object; see the module documentation. Cheap to clone.
#[derive(Clone)]
pub(super) struct PackedObject<K> {
    pub(super) json: Arc<str>,
    pub(super) is_marked: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: CachedObject> PackedObject<K> {
    /// Packs an object. Fails if the object cannot be unpacked again or is too large.
    pub(super) fn of(object: &Value) -> Result<Self, serde_json::Error> {
        let json = pass(|| serde_json::to_string(object))?;
        if json.len() > MAX_BYTES {
            let size = json.len();
            let what = "bytes of JSON, without the fields that this program does not read";
            return Err(serde_json::Error::custom(format!("{size} {what}; expected at most {MAX_BYTES}")));
        }
        let json: Arc<str> = json.into();
        // Decodes from text, as the client does. Another source would add a copy of the type's decoder to the binary.
        let is_marked = pass(|| serde_json::from_str::<K>(&json))?.is_marked();
        Ok(Self { json, is_marked, kind: PhantomData })
    }

    pub(super) fn unpacked(&self) -> Arc<K> {
        Arc::new(pass(|| serde_json::from_str(&self.json)).expect("it was read once when it was packed"))
    }
}

/// Runs one walk over the whole JSON of an object. All walks of the cache use it, so that a test can count them.
fn pass<T>(walk: impl FnOnce() -> T) -> T {
    #[cfg(test)]
    PASSES.set(PASSES.get() + 1);
    walk()
}

#[cfg(test)]
thread_local! {
    /// Number of walks in this thread.
    pub(super) static PASSES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
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
    Needed(PackedObject<K>),
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
        let annotations: &[&str] = &["metadata", "annotations"];
        let (unread, keeps) = (K::UNREAD.to_vec(), K::keeps_annotation);
        let tree = Tree { unread, filtered: Some((annotations, keeps)) };
        Ok(Self(ListedObject::of(pass(|| tree.deserialize(deserializer))?)))
    }
}

impl<K: CachedObject> ListedObject<K> {
    fn of(mut tree: Value) -> Option<Self> {
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
        K::prune(&mut tree);
        let object =
            PackedObject::of(&tree).map_or_else(|error| CacheAction::Unreadable(Arc::new(error)), CacheAction::Needed);
        Some(Self { key, version, object })
    }
}

/// Decodes JSON. Skips the fields at the paths `unread`. At the path of `filtered`, also skips the members that the
/// function of `filtered` rejects. Skipped values are never in memory.
struct Tree {
    unread: Vec<&'static [&'static str]>,
    filtered: Option<FilteredPath>,
}

/// A path, and a function that returns true for the members to keep.
type FilteredPath = (&'static [&'static str], fn(&str) -> bool);

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let mut object = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let rest = |way: &&'static [&'static str]| {
                way.split_first().filter(|(first, _)| **first == key).map(|(_, rest)| rest)
            };
            let unread: Vec<_> = self.unread.iter().filter_map(rest).collect();
            let filtered = self.filtered.as_ref().and_then(|(way, keeps)| Some((rest(way)?, *keeps)));
            let is_dropped = self.filtered.is_some_and(|(way, keeps)| way.is_empty() && !keeps(&key));
            if is_dropped || unread.iter().any(|way| way.is_empty()) {
                map.next_value::<IgnoredAny>()?;
            } else {
                let is_plain = unread.is_empty() && filtered.is_none();
                let value = if is_plain { map.next_value()? } else { map.next_value_seed(Tree { unread, filtered })? };
                object.insert(key, value);
            }
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
                    condition("Ready"), condition("VSphereInitialized"),
                    {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"},
                ],
                "nodeInfo": {"systemUUID": "s"},
            },
        });
        let mut whole = kept.clone();
        for way in Node::UNREAD {
            let (last, above) = way.split_last().unwrap();
            above.iter().fold(&mut whole, |object, field| &mut object[*field])[*last] = json!([{"any": "thing"}]);
        }
        whole["metadata"]["annotations"]["other"] = json!("x");
        whole["status"]["conditions"].as_array_mut().unwrap().insert(0, condition("MemoryPressure"));
        whole["status"]["conditions"][3]["lastTransitionTime"] = json!("2025-01-01T00:00:00Z");
        whole["status"]["conditions"][3]["message"] = json!("a route exists");
        let seen: ListedObject<Node> = serde_json::from_value(whole).unwrap();
        assert_eq!((seen.key.as_str(), seen.version.as_deref()), ("a", Some("7")));
        let CacheAction::Needed(packed) = seen.object else { panic!("every Node is needed") };
        assert_eq!(serde_json::from_str::<Value>(&packed.json).unwrap(), kept);
        // The unpacked object is the same as one that arrived with all required fields.
        kept["status"]["nodeInfo"] =
            json!(k8s_openapi::api::core::v1::NodeSystemInfo { system_uuid: "s".into(), ..Default::default() });
        assert_eq!(*packed.unpacked(), serde_json::from_value(kept.clone()).unwrap());
        assert!(!packed.is_marked);
        kept["spec"]["taints"][0]["key"] = json!(node::TAINT_UNINITIALIZED);
        let seen: ListedObject<Node> = serde_json::from_value(kept).unwrap();
        assert!(matches!(seen.object, CacheAction::Needed(packed) if packed.is_marked), "it waits");
    }

    #[test]
    fn a_node_that_is_too_large_is_known_by_name() {
        let condition = |length| json!({"type": "example.com/a", "status": "True", "message": "\u{1}".repeat(length)});
        for (name, length, is_kept) in [("large", 20_000, true), ("too large", 22_000, false)] {
            let node = json!({"metadata": {"name": "a"}, "status": {"conditions": [condition(length)]}});
            let seen: ListedObject<Node> = serde_json::from_value(node).unwrap();
            assert_eq!(seen.key, "a", "{name}");
            match seen.object {
                CacheAction::Needed(_) => assert!(is_kept, "{name}"),
                CacheAction::Unreadable(error) => {
                    let text = error.to_string();
                    assert!(!is_kept && text.ends_with("does not read; expected at most 131072"), "{name}: {text}");
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
        let CacheAction::Needed(packed) = seen.object else { panic!("it has a load balancer") };
        assert_eq!(serde_json::from_str::<Value>(&packed.json).unwrap(), kept);
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
