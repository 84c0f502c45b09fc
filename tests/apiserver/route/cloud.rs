//! The memory provider with additions for tests of routes: failures of one route, the times of lists, and a process
//! that stops at a chosen step.

use async_trait::async_trait;
use ccm::cloud::{CloudProvider, Error, LeaderToken, Route, Routes};
use doubles::memory::Memory;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::NodeAddress;
use kube::Client;
use kube::client::Body;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

use crate::lifecycle::in_memory::world::pass;

pub const CLUSTER: &str = "my-k8s";

type Failure = Box<dyn Fn() -> Error + Send>;

/// The memory provider with additions. Clones share all state.
#[derive(Clone, Default)]
pub struct Cloud {
    pub memory: Memory,
    pub steps: Steps,
    listings: Arc<Mutex<Vec<Instant>>>,
    /// Times of the attempts to create a route, by destination.
    tries: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
    /// Failures by destination.
    failures: Arc<Mutex<BTreeMap<String, Failure>>>,
    /// Destination whose creation never ends.
    hanging: Arc<Mutex<String>>,
    delays: Arc<Mutex<Delays>>,
    permit: Arc<Mutex<Option<LeaderToken>>>,
    rewrites: Arc<AtomicBool>,
    held: Arc<AtomicUsize>,
    deletions: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Default)]
struct Delays {
    listing: Duration,
    creation: Duration,
}

impl Cloud {
    /// Returns the same routes for another process.
    pub fn for_next_process(&self) -> Self {
        Self { memory: self.memory.clone(), ..Self::default() }
    }

    /// Makes creations of a route to this destination fail from now on.
    pub fn fail(&self, destination: &str, failure: impl Fn() -> Error + Send + 'static) {
        self.failures.lock().unwrap().insert(destination.to_owned(), Box::new(failure));
    }

    pub fn end_failure(&self, destination: &str) {
        self.failures.lock().unwrap().remove(destination);
    }

    /// Makes creations of a route to this destination hang.
    pub fn hang(&self, destination: &str) {
        *self.hanging.lock().unwrap() = destination.to_owned();
    }

    /// Sets the delay of a list after the cloud has read its routes, and the delay of a creation before the cloud has
    /// the route.
    pub fn set_delays(&self, listing: Duration, creation: Duration) {
        *self.delays.lock().unwrap() = Delays { listing, creation };
    }

    /// Makes routes have addresses from now on. A creation replaces the route of the Node to this destination.
    pub fn set_rewrites(&self) {
        self.rewrites.store(true, Ordering::SeqCst);
    }

    /// Sets the number of routes that each list leaves out from now on.
    pub fn set_held(&self, held: usize) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// Returns the number of requested deletions.
    pub fn deletions(&self) -> usize {
        self.deletions.load(Ordering::SeqCst)
    }

    /// Returns the permit of the last creation.
    pub fn permit(&self) -> LeaderToken {
        self.permit.lock().unwrap().clone().expect("a creation")
    }

    /// Returns the start times of the lists.
    pub fn listings(&self) -> Vec<Instant> {
        self.listings.lock().unwrap().clone()
    }

    /// Returns the times of the attempts to create a route to this destination.
    pub fn tries(&self, destination: &str) -> Vec<Instant> {
        self.tries.lock().unwrap().get(destination).cloned().unwrap_or_default()
    }

    /// Returns the cluster's routes as `target destination addresses`, in order.
    pub fn routes(&self) -> Vec<String> {
        let own = self.memory.all_routes().into_iter().filter(|(cluster, _)| cluster == CLUSTER);
        let mut routes: Vec<_> = own.map(|(_, route)| shown(&route)).collect();
        routes.sort();
        routes
    }
}

/// Returns the compared fields of a route.
pub fn shown(route: &Route) -> String {
    let mut addresses: Vec<_> = route.target_node_addresses.iter().map(|address| address.address.as_str()).collect();
    addresses.sort();
    let blackhole = if route.blackhole { " blackhole" } else { "" };
    format!("{} {} {}{blackhole}", route.target_node, route.destination_cidr, addresses.join(","))
}

/// Returns a route with one address, as the cloud lists it.
pub fn route(target: &str, destination: &str, address: &str) -> Route {
    let address = NodeAddress { type_: "InternalIP".into(), address: address.into() };
    Route {
        name: format!("{target}-{destination}"),
        target_node: target.into(),
        destination_cidr: destination.into(),
        target_node_addresses: vec![address],
        ..Route::default()
    }
}

impl CloudProvider for Cloud {
    fn provider_name(&self) -> &'static str {
        "memory"
    }

    fn owns_provider_id(&self, provider_id: &str) -> bool {
        provider_id.starts_with("memory://")
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        self.memory.routes().map(|_| Arc::new(self.clone()) as Arc<dyn Routes>)
    }

    fn routes_are_off(&self) -> bool {
        self.memory.routes_are_off()
    }

    fn capability_changes(&self) -> BoxStream<'static, ()> {
        self.memory.capability_changes()
    }
}

#[async_trait]
impl Routes for Cloud {
    async fn list_routes(&self, cluster_name: &str) -> Result<Vec<Route>, Error> {
        self.listings.lock().unwrap().push(Instant::now());
        let delay = self.delays.lock().unwrap().listing;
        let routes = self.steps.around(self.memory.list_routes(cluster_name)).await;
        pass(delay).await;
        routes
    }

    async fn create_route(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        name_hint: &str,
        route: &Route,
    ) -> Result<(), Error> {
        let destination = &route.destination_cidr;
        *self.permit.lock().unwrap() = Some(permit.clone());
        let delay = self.delays.lock().unwrap().creation;
        pass(delay).await;
        self.tries.lock().unwrap().entry(destination.clone()).or_default().push(Instant::now());
        let hangs = *self.hanging.lock().unwrap() == *destination;
        if hangs {
            std::future::pending::<()>().await;
        }
        let failure = self.failures.lock().unwrap().get(destination).map(|failure| failure());
        match failure {
            Some(error) => Err(error),
            None => {
                let route = Route { enable_node_addresses: self.rewrites_in_place(), ..route.clone() };
                self.steps.around(self.memory.create_route(permit, cluster_name, name_hint, &route)).await
            }
        }
    }

    async fn delete_route(&self, permit: &LeaderToken, cluster_name: &str, route: &Route) -> Result<(), Error> {
        self.deletions.fetch_add(1, Ordering::SeqCst);
        self.steps.around(self.memory.delete_route(permit, cluster_name, route)).await
    }

    fn rewrites_in_place(&self) -> bool {
        self.rewrites.load(Ordering::SeqCst)
    }

    fn ambiguous_routes(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

/// The steps of a process: one before and one after each call. The process hangs forever at a chosen step.
#[derive(Clone, Default)]
pub struct Steps {
    taken: Arc<AtomicUsize>,
    /// Number of permitted steps. Zero means no limit.
    allowed: Arc<AtomicUsize>,
}

impl Steps {
    /// Stops the process after this many more steps.
    pub fn stop_after(&self, more: usize) {
        self.allowed.store(self.taken.load(Ordering::SeqCst) + more + 1, Ordering::SeqCst);
    }

    /// Whether the process has stopped.
    pub fn are_over(&self) -> bool {
        let allowed = self.allowed.load(Ordering::SeqCst);
        allowed > 0 && self.taken.load(Ordering::SeqCst) >= allowed
    }

    async fn take(&self) {
        self.taken.fetch_add(1, Ordering::SeqCst);
        if self.are_over() {
            std::future::pending::<()>().await;
        }
    }

    async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        self.take().await;
        let answer = call.await;
        self.take().await;
        answer
    }

    /// Returns a client whose calls count as steps.
    pub fn client(&self, client: Client) -> Client {
        let steps = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (steps, client) = (steps.clone(), client.clone());
            async move { steps.around(client.send(request)).await }
        });
        Client::new(service, "default")
    }
}
