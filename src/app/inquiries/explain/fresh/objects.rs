//! Reads a Node or a Service again, from the API server.

use super::differences::{lasting, of_object};
use crate::app::inquiries::Inquiries;
use crate::app::reports::explain::fresh::FreshObject;
use crate::cloud::{LiveReads as _, Presence};
use crate::kubernetes::cluster::LiveApi;
use crate::kubernetes::stores::{CachedObject, cached_form};
use k8s_openapi::api::core::v1::Service;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// Reads the Node with this name.
pub(super) async fn node(process: &Inquiries, name: &str) -> FreshObject {
    let before = process.nodes.get(name);
    let read = LiveApi::new(process.api_server.clone()).node(name).await;
    compared("Node", name, before, read, process.nodes.get(name))
}

/// Reads the Service with this namespace and name.
pub(super) async fn service(process: &Inquiries, key: &str) -> FreshObject {
    let Some((namespace, name)) = key.split_once('/') else {
        return FreshObject::failed("Service", key, "expected NAMESPACE/NAME");
    };
    let cached = || process.services.as_ref().and_then(|services| services.get(key));
    let before = cached();
    let read: Presence<Service> = LiveApi::new(process.api_server.clone()).service(namespace, name).await;
    compared("Service", key, before, read, cached())
}

/// Compares a read with the cached object before and after the read.
fn compared<K: CachedObject>(
    kind: &str,
    name: &str,
    before: Option<Arc<K>>,
    read: Presence<K>,
    after: Option<Arc<K>>,
) -> FreshObject {
    let read = match read {
        Presence::Exists(object) => match cached_form(&object) {
            Ok(read) => read,
            Err(error) => return FreshObject::failed(kind, name, error.to_string()),
        },
        Presence::Absent(_) => None,
        Presence::Unknown(unknown) => return FreshObject::failed(kind, name, unknown.message),
    };
    let read = value(read);
    let compare = |known: Option<Arc<K>>| of_object(value(known).as_ref(), read.as_ref());
    FreshObject::read(kind, name, lasting(compare(before), compare(after)))
}

fn value(object: Option<Arc<impl Serialize>>) -> Option<Value> {
    // Cannot fail: all keys of an object are texts.
    object.map(|object| serde_json::to_value(&*object).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{AbsenceProof, Unknown, reason};
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    fn node(provider_id: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"providerID": provider_id}})).unwrap()
    }

    #[test]
    fn a_read_is_compared_with_the_cache_and_a_failed_read_says_nothing_about_the_object() {
        let cached = |id: &str| Some(Arc::new(node(id)));
        let differing = |read, after| compared("Node", "a", cached("p"), read, after).differences;
        assert_eq!(differing(Presence::Exists(node("p")), cached("p")), []);
        assert_eq!(differing(Presence::Exists(node("q")), cached("q")), [], "the watch has reported it meanwhile");
        assert_eq!(differing(Presence::Exists(node("q")), cached("p"))[0].field, "spec.providerID");
        let absent = || Presence::Absent(AbsenceProof::new("no node a".to_owned(), []));
        assert_eq!(differing(absent(), cached("p"))[0].read, "does not exist");
        assert_eq!(differing(absent(), None), []);
        let unknown = Presence::Unknown(Unknown::new(reason::APIServerUnavailable, "no answer"));
        let failed = compared("Node", "a", cached("p"), unknown, None);
        assert_eq!((failed.failure.as_deref(), failed.differences.len()), (Some("no answer"), 0));
        let unneeded: Service = serde_json::from_value(json!({"spec": {"type": "ClusterIP"}})).unwrap();
        let object = compared("Service", "s/a", None, Presence::Exists(unneeded), None);
        assert_eq!(object, FreshObject::read("Service", "s/a", Vec::new()), "the cache keeps no such Service");
    }
}
