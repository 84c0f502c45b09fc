//! Services of type LoadBalancer with one port each, and the times of their addresses from a watch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::{
    ApiResource, DeleteParams, ListParams, Object, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

/// Number of concurrent requests.
const AT_ONCE: usize = 32;
/// Duration of a watch, short enough that the server does not end it first.
const WATCH_SECONDS: u32 = 290;

/// A Service with only the relevant fields.
type Seen = Object<Nothing, SeenStatus>;

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Nothing {}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenStatus {
    load_balancer: SeenLoadBalancer,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct SeenLoadBalancer {
    ingress: Vec<SeenIngress>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct SeenIngress {
    ip: String,
}

/// Cached state of one Service.
#[derive(Clone, Debug)]
struct Known {
    /// Address of the Service, with the time of its observation.
    address: Option<(String, Instant)>,
}

/// The existing Services, from a watch.
pub struct Watched {
    api: Api<Seen>,
    version: String,
    known: BTreeMap<String, Known>,
}

impl Watched {
    /// Lists the Services and starts the watch.
    pub async fn start(client: &Client) -> Self {
        let api: Api<Seen> = Api::namespaced_with(client.clone(), "default", &ApiResource::erase::<Service>(&()));
        let mut watched = Self { api, version: String::new(), known: BTreeMap::new() };
        watched.list().await;
        watched
    }

    /// Lists the Services.
    async fn list(&mut self) {
        let list = self.api.list(&ListParams::default()).await.unwrap();
        self.version = list.metadata.resource_version.clone().unwrap_or_default();
        let there: BTreeSet<String> = list.items.iter().map(|service| service.name_any()).collect();
        self.known.retain(|name, _| there.contains(name));
        list.items.iter().for_each(|service| self.see(service));
    }

    fn see(&mut self, service: &Seen) {
        if !service.name_any().starts_with("service-") {
            return;
        }
        let status = service.status.clone().unwrap_or_default();
        let address = status.load_balancer.ingress.first().map(|ingress| ingress.ip.clone());
        let known = self.known.entry(service.name_any()).or_insert(Known { address: None });
        known.address = match (known.address.take(), address) {
            (Some((before, at)), Some(address)) if before == address => Some((before, at)),
            (_, address) => address.map(|address| (address, Instant::now())),
        };
    }

    /// Returns the times at which the existing Services got their addresses, sorted.
    pub fn times(&self) -> Vec<Instant> {
        let mut times: Vec<_> = self.known.values().filter_map(|known| Some(known.address.as_ref()?.1)).collect();
        times.sort_unstable();
        times
    }

    /// Returns the addresses of the existing Services.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        let address = |(name, known): (&String, &Known)| Some((name.clone(), known.address.as_ref()?.0.clone()));
        self.known.iter().filter_map(address).collect()
    }

    /// Returns the number of existing Services with addresses.
    fn served(&self) -> usize {
        self.known.values().filter(|known| known.address.is_some()).count()
    }

    /// Waits until this many Services have addresses.
    pub async fn until_served(&mut self, count: usize, limit: Duration) {
        self.until("Services have addresses", limit, |watched| watched.served() == count).await;
    }

    /// Waits until there is no Service.
    pub async fn until_gone(&mut self, limit: Duration) {
        self.until("all Services are gone", limit, |watched| watched.known.is_empty()).await;
    }

    async fn until(&mut self, what: &str, limit: Duration, is_it: impl Fn(&Self) -> bool) {
        if timeout(limit, self.follow(&is_it)).await.is_err() {
            let (count, served) = (self.known.len(), self.served());
            panic!("not within {limit:?}: {what}; of {count} Services, {served} have addresses");
        }
    }

    async fn follow(&mut self, is_it: &impl Fn(&Self) -> bool) {
        let parameters = WatchParams::default().timeout(WATCH_SECONDS);
        while !is_it(self) {
            let mut events = self.api.watch(&parameters, &self.version).await.unwrap().boxed();
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    WatchEvent::Added(service) | WatchEvent::Modified(service) => {
                        self.version = service.resource_version().unwrap_or_default();
                        self.see(&service);
                    }
                    WatchEvent::Deleted(service) => {
                        self.version = service.resource_version().unwrap_or_default();
                        self.known.remove(&service.name_any());
                    }
                    WatchEvent::Bookmark(bookmark) => self.version = bookmark.metadata.resource_version,
                    // The version is too old for the server, because there were too many changes since then.
                    WatchEvent::Error(status) if status.code == 410 => self.list().await,
                    WatchEvent::Error(status) => panic!("the watch of Services was refused: {}", status.message),
                }
                if is_it(self) {
                    return;
                }
            }
        }
    }
}

/// Returns the name of the Service with this number.
pub fn name(number: usize) -> String {
    format!("service-{number}")
}

/// Creates the Services with these numbers.
pub async fn create(client: &Client, numbers: impl IntoIterator<Item = usize>) {
    let api = Api::<Service>::namespaced(client.clone(), "default");
    let create = async |number: usize| {
        let instance = format!("web-{number}");
        let service = json!({
            "metadata": {
                "name": name(number),
                "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": instance},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(600)},
            },
            "spec": {
                "type": "LoadBalancer", "selector": {"app.kubernetes.io/instance": instance},
                "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
            },
        });
        api.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.map(drop)
    };
    let all = stream::iter(numbers.into_iter().map(Ok));
    all.try_for_each_concurrent(AT_ONCE, create).await.unwrap();
}

/// Deletes the Services with these numbers.
pub async fn delete(client: &Client, numbers: impl IntoIterator<Item = usize>) {
    let api = Api::<Service>::namespaced(client.clone(), "default");
    let delete = async |number: usize| api.delete(&name(number), &DeleteParams::default()).await.map(drop);
    let all = stream::iter(numbers.into_iter().map(Ok));
    all.try_for_each_concurrent(AT_ONCE, delete).await.unwrap();
}

/// Gives a Service another node port, from the range that the API server uses last.
pub async fn change_node_port(client: &Client, number: usize, node_port: usize) {
    let api = Api::<Service>::namespaced(client.clone(), "default");
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080, "nodePort": node_port}]);
    let patch = Patch::Merge(json!({"spec": {"ports": ports}}));
    api.patch(&name(number), &PatchParams::default(), &patch).await.unwrap();
}
