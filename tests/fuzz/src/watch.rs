//! Fuzz targets for Nodes and Services from the API server: lines of a watch, and pages of a list.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm::cloud::service::cache_filter::is_needed;
use ccm::kubernetes::stores::{CachedObject, Store, watch_nodes, watch_services};
use serde_json::{Value, json};

use crate::memory::run;

/// Longer than the first round of list and watch takes, and shorter than the pause before the second round.
const FIRST_ROUND: Duration = Duration::from_millis(500);
/// First line of an input that is a page.
const PAGE: &[u8] = b"page\n";
/// The annotation of the bookmark that ends a streaming list.
const END: &str = "k8s.io/initial-events-end";

/// Checks Nodes. The cache keeps all of them.
pub fn nodes(bytes: &[u8]) {
    check(bytes, watch_nodes, |_| true);
}

/// Checks Services. The cache keeps those that have, or could have, a load balancer.
pub fn services(bytes: &[u8]) {
    check(bytes, watch_services, is_needed);
}

/// Reads the lines of a streaming list. After a first line `page` it reads a page of a list. The cache contains no
/// object that the input does not name. It contains every needed object that could be read whole. A list that ends too
/// early does not fill it.
fn check<K, T>(
    bytes: &[u8],
    watch: impl FnOnce(kube::Client, Option<String>) -> (Store<K>, T) + Send + 'static,
    is_needed: fn(&Value) -> bool,
) where
    K: CachedObject,
    T: Future + Send + 'static,
{
    let (page, lines) = match bytes.strip_prefix(PAGE) {
        Some(page) => (Some(page.to_vec()), Vec::new()),
        None => (None, bytes.to_vec()),
    };
    let is_page = page.is_some();
    let body = page.unwrap_or_else(|| lines.clone());
    let (keys, named, is_ready) = run(async move {
        let (store, task) = watch(server(is_page, body), None);
        // The task never ends.
        let _ = tokio::time::timeout(FIRST_ROUND, task).await;
        let is_named =
            |key: &String| store.get(key).is_some_and(|object| key_of(&json!(object.meta())) == Some(key.clone()));
        (store.keys(), store.keys().iter().all(is_named), store.is_ready())
    });
    assert!(named, "an object is kept under another name: {keys:?}");
    assert!(is_ready || keys.is_empty(), "objects of a list that was not whole: {keys:?}");
    let reader = Reader { is_object: |object| serde_json::from_value::<K>(object).is_ok(), is_needed };
    let said = match is_page {
        true => reader.of_page(bytes.strip_prefix(PAGE).unwrap_or_default()),
        false => reader.of_lines(&lines),
    };
    let keys: BTreeSet<String> = keys.into_iter().collect();
    assert!(keys.is_subset(&said.may), "made up: {:?}", keys.difference(&said.may));
    if is_ready {
        assert!(said.is_whole, "a list that does not end is whole");
        assert!(said.must.is_subset(&keys), "missing: {:?}", said.must.difference(&keys));
    }
}

/// Returns `name`, or `namespace/name`.
fn key_of(metadata: &Value) -> Option<String> {
    let name = metadata["name"].as_str()?;
    let namespace = metadata["namespace"].as_str().filter(|namespace| !namespace.is_empty());
    Some(namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}")))
}

/// Content of an input, as an independent reader finds it.
#[derive(Default)]
struct Said {
    /// Objects that the cache may contain.
    may: BTreeSet<String>,
    /// Objects that the cache must contain: they were read whole and are needed.
    must: BTreeSet<String>,
    /// Whether the list is complete.
    is_whole: bool,
}

/// Reads the objects of one kind in an input.
struct Reader {
    is_object: fn(Value) -> bool,
    is_needed: fn(&Value) -> bool,
}

impl Reader {
    fn put(&self, said: &mut Said, object: &Value, is_read: bool) {
        let Some(key) = key_of(&object["metadata"]) else { return };
        said.may.insert(key.clone());
        // An object that is not needed any more leaves the cache.
        said.must.remove(&key);
        if is_read && (self.is_object)(object.clone()) && (self.is_needed)(object) && object["metadata"]["name"] != "" {
            said.must.insert(key);
        }
    }

    fn of_page(&self, page: &[u8]) -> Said {
        let mut said = Said { is_whole: true, ..Said::default() };
        let Ok(page) = serde_json::from_slice::<Value>(page) else { return said };
        page["items"].as_array().into_iter().flatten().for_each(|item| self.put(&mut said, item, true));
        said
    }

    fn of_lines(&self, lines: &[u8]) -> Said {
        let (mut said, mut is_read) = (Said::default(), true);
        for line in lines.split(|byte| *byte == b'\n') {
            let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
            let object = &event["object"];
            match event["type"].as_str() {
                Some("ADDED" | "MODIFIED") => self.put(&mut said, object, is_read),
                Some("DELETED") => {
                    // If two objects with this key cannot be read whole, either may be in the cache.
                    if let Some(key) = key_of(&object["metadata"]) {
                        said.must.remove(&key);
                    }
                }
                Some("BOOKMARK") => said.is_whole |= object["metadata"]["annotations"].get(END).is_some(),
                // The watch may stop at an error, so later objects are optional.
                Some("ERROR") => is_read = false,
                _ => {}
            }
        }
        said
    }
}

/// Makes an API server that answers only the first list, with the body.
fn server(is_page: bool, body: Vec<u8>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = body.clone();
        async move {
            let (status, body) = match (query.contains("sendInitialEvents=true"), query.contains("limit=")) {
                (true, _) if is_page => {
                    (422, br#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":422}"#.to_vec())
                }
                (true, _) => (200, body),
                (false, true) if is_page && !query.contains("continue=") => (200, body),
                _ => std::future::pending().await,
            };
            Ok::<_, tower::BoxError>(http::Response::builder().status(status).body(kube::client::Body::from(body))?)
        }
    });
    kube::Client::new(service, "default")
}
