//! Routes of the pod network on one NSX router: implements `cloud::Routes`.
//!
//! Lists the routes of the router directly and not through the NSX search of the Go program, which lags by seconds.
//! Before each change, reads the route by id and checks its owner ([`ownership`]), so that no write changes a route of
//! another owner. Rewrites a route with an old next hop in place.
//!
//! Mirrors `pkg/cloudprovider/vsphere/route`.

pub mod fresh_read;
pub mod ownership;
mod realization;
pub mod static_route;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::base::addresses::{parse_ip, parse_network_sloppy};
use crate::base::error_chain::chain;
use crate::clients::nsx::{self, Client, Kind, Object};
use crate::cloud::node::{self, addresses};
use crate::cloud::{ClusterReads, Error, LeaderToken, LiveReads, Route, UsableAddresses};
use crate::providers::vsphere::nsx::UsableAddressesOf;
use crate::providers::vsphere::nsx::cluster_uid::ClusterUid;
use crate::providers::vsphere::nsx::ownership::{CLUSTER_UID, OfCluster, by_cluster_uid};
use crate::providers::vsphere::nsx::{failed, permit as permit_of};
use crate::providers::vsphere::reason;
use ownership::{Cluster, Ownership, ownership_of};
use static_route::{ListedRoute, StaticRoute};

/// Maximum number of attempts for a change while other clients modify the same route.
const ATTEMPTS: u32 = 5;

const WITHOUT_UID: &str = "routes get no tag with the UID of this cluster, so only their Nodes distinguish them from \
                           those of another cluster of the same name";

/// Time for which a written route that lists miss stays cached as unrealized.
const ROUTE_MEMORY: Duration = Duration::from_secs(600);

/// Time for which a Node stays cached after it last existed or a listed route last referred to it.
const NODE_MEMORY: Duration = Duration::from_secs(3600);

const PAGE: usize = 1000;

/// The kept fields of a listed route.
const READ: &[&str] = &["id", "path", "display_name", "network", "next_hops", "tags", "marked_for_delete"];

/// Handling of routes and load balancers of this cluster that the Go program created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adoption {
    /// A route gets the tags of this program with the next write that is necessary for another reason. A load balancer
    /// does not get the features that the Go program ignores.
    #[default]
    AsIs,
    /// A route is rewritten once to get the tags. A load balancer gets all features.
    Full,
}

/// The routes of one router.
pub struct RouterRoutes {
    client: Client,
    /// The path of the router, such as `/infra/tier-1s/a`.
    router: String,
    adoption: Adoption,
    nodes: Arc<dyn ClusterReads>,
    usable_addresses: UsableAddressesOf,
    uid: ClusterUid,
    cache: Mutex<RouteCache>,
    ambiguous: AtomicUsize,
}

/// Cached state of the routes. No task keeps its lock across an `await`.
#[derive(Default)]
struct RouteCache {
    /// Current and recent Nodes, by UID.
    nodes: BTreeMap<String, SeenNode>,
    /// The ids of our routes, by Node and network. An id may differ from the id that this program generates.
    ids: BTreeMap<(String, IpNet), String>,
    /// Written routes that are not realized yet, by id.
    unrealized: BTreeMap<String, LastWrite>,
    /// Number of objects that the last list skipped.
    skipped: usize,
    /// Ids of ambiguous routes that were already reported.
    reported: BTreeSet<String>,
}

struct SeenNode {
    name: String,
    last_seen: Instant,
}

#[derive(Clone, Copy)]
struct LastWrite {
    written_at: Instant,
    /// Whether the write changed an existing route. After a rewrite, NSX may still report the state of the previous
    /// revision.
    is_rewrite: bool,
}

impl LastWrite {
    fn now(is_rewrite: bool) -> Self {
        Self { written_at: Instant::now(), is_rewrite }
    }
}

/// The route of one Node to one network, as this process knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownRoute {
    /// The path of the router.
    pub router: String,
    /// The id of the route below the router, if the last list or write showed a route of this cluster.
    pub id: Option<String>,
    /// The address that a route leads to, or the reason why there is none.
    pub next_hop: Result<IpAddr, String>,
    /// Whether the route was written, and NSX has not reported it as realized since.
    pub is_unrealized: bool,
}

struct FoundRoute {
    object: Object,
    listed: ListedRoute,
    ownership: Ownership,
}

impl RouterRoutes {
    /// Creates the handler of the static routes of `router`, a path such as `/infra/tier-1s/a`. Sends no request. Next
    /// hops are the Node addresses that `usable_addresses` returns.
    pub fn new(
        client: Client,
        router: impl Into<String>,
        adoption: Adoption,
        nodes: Arc<dyn ClusterReads>,
        live: Arc<dyn LiveReads>,
        usable_addresses: UsableAddressesOf,
    ) -> Self {
        let (router, uid) = (router.into(), ClusterUid::new(live, WITHOUT_UID));
        let (cache, ambiguous) = (Mutex::default(), AtomicUsize::new(0));
        Self { client, router, adoption, nodes, usable_addresses, uid, cache, ambiguous }
    }

    fn addresses_of(&self, node: &Node) -> Vec<NodeAddress> {
        let usable = (self.usable_addresses)(node);
        usable.of(node).filter(|one| one.is_confirmed).map(|one| one.entry.clone()).collect()
    }

    fn is_unknown(&self, name: &str) -> bool {
        self.nodes.node(name).is_some_and(|node| {
            matches!((self.usable_addresses)(&node), UsableAddresses::Unknown | UsableAddresses::Pending)
        })
    }

    /// Returns what is known about the route of this Node to this network. Sends no request.
    pub fn known_route(&self, node: &Node, network: &IpNet) -> KnownRoute {
        let next_hop = self.next_hop(node, network).map_err(|error| chain(&error));
        let cache = self.cache.lock();
        let id = cache.ids.get(&(node::name(node).to_owned(), *network)).cloned();
        let is_unrealized = id.as_ref().is_some_and(|id| cache.unrealized.contains_key(id));
        drop(cache);
        KnownRoute { router: self.router.clone(), id, next_hop, is_unrealized }
    }

    fn path(&self, id: &str) -> String {
        format!("{}/static-routes/{id}", self.router)
    }

    /// Caches the current Nodes. Drops a Node if, for `NODE_MEMORY`, neither the Node nor a listed route to it has
    /// existed.
    fn record_nodes(&self, listed: &[Object]) {
        let now = Instant::now();
        let here: Vec<Arc<Node>> = self.nodes.nodes().collect();
        let nodes = &mut self.cache.lock().nodes;
        for hint in listed.iter().map(|object| static_route::name_hint(object.id())) {
            if let Some(node) = nodes.get_mut(hint) {
                node.last_seen = now;
            }
        }
        nodes.extend(here.iter().filter_map(|node| seen(node, now)));
        nodes.retain(|_, node| now.saturating_duration_since(node.last_seen) < NODE_MEMORY);
    }

    /// Returns the Node that a route of ours leads to: from its tag, otherwise from the UID in its id, otherwise from
    /// its display name.
    fn target(&self, cluster_name: &str, object: &Object, listed: &ListedRoute) -> Option<String> {
        if !listed.node.is_empty() {
            return Some(listed.node.clone());
        }
        let by_uid = self.cache.lock().nodes.get(static_route::name_hint(&listed.id)).map(|node| node.name.clone());
        by_uid.or_else(|| static_route::node_of_display_name(object, cluster_name).map(str::to_owned))
    }

    fn ownership_of(&self, cluster_name: &str, uid: Option<&str>, object: &Object, listed: &ListedRoute) -> Ownership {
        let of_node = |name: &str| self.nodes.node(name).map(|node| ips(&self.addresses_of(&node))).unwrap_or_default();
        let known = self.cache.lock();
        let is_node = |uid: &str| known.nodes.contains_key(uid);
        let cluster = Cluster { name: cluster_name, uid, is_node: &is_node, addresses: &of_node };
        ownership_of(object, listed, &cluster)
    }

    async fn read(&self, cluster_name: &str, id: &str, doing: &str) -> Result<Option<FoundRoute>, Error> {
        let uid = self.uid.read().await?;
        let object = match self.client.get(&self.path(id), "static-routes.get").await {
            Ok(object) => object,
            Err(error) if error.kind == Kind::NotFound => return Ok(None),
            Err(error) => return Err(failed(doing, None, &error)),
        };
        if object.id() != id {
            let message = format!("{doing}: the answer is not the requested object");
            return Err(Error::Failed { reason: reason::NSXUnavailable, message, after: None });
        }
        let Some(listed) = ListedRoute::read(&object) else {
            let message = format!("{doing}: NSX has an object of this id that is no route");
            return Err(Error::Failed { reason: reason::RouteNotOurs, message, after: None });
        };
        if let Some(node) = self.nodes.node(&listed.node) {
            self.cache.lock().nodes.extend(seen(&node, Instant::now()));
        }
        let ownership = self.ownership_of(cluster_name, uid.as_deref(), &object, &listed);
        Ok(Some(FoundRoute { object, listed, ownership }))
    }

    /// Rejects a change of a route that is not ours, or that NSX has marked for deletion.
    fn check_ours(&self, found: &FoundRoute, doing: &str) -> Result<(), Error> {
        let message = match found.ownership {
            Ownership::Ours if found.object.is_marked_for_delete() => {
                let message = format!("{doing}: NSX has it marked for deletion, and removes it within minutes");
                return Err(Error::Failed { reason: reason::NSXRefused, message, after: None });
            }
            Ownership::Ours => return Ok(()),
            Ownership::Foreign => {
                "it is a route of another cluster or program; clusters that share a router need different values of \
                 --cluster-name"
            }
            Ownership::Ambiguous => {
                "it has the name of this cluster, and nothing shows that it is this cluster's; if nothing needs it, delete \
                 it in NSX"
            }
        };
        let (router, user) = (&self.router, found.object.created_by());
        let message = format!("{doing} of {router}: {message}; it was made by user {user:?}");
        Err(Error::Failed { reason: reason::RouteNotOurs, message, after: None })
    }

    fn record_write(&self, id: &str, is_rewrite: bool) {
        self.cache.lock().unrealized.insert(id.to_owned(), LastWrite::now(is_rewrite));
    }

    /// Writes the route unless it has the desired state. Returns the revision of the route; `None` for a new route.
    async fn ensure(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        id: &str,
        route: &Route,
        hop: IpAddr,
    ) -> Result<Option<i64>, Error> {
        let (doing, permit) = (format!("write the route {id}"), permit_of(permit));
        let mut attempt = 1;
        loop {
            let found = self.read(cluster_name, id, &doing).await?;
            let uid = self.uid.known();
            let wanted = StaticRoute {
                cluster_name,
                cluster_uid: uid.as_deref(),
                node: &route.target_node,
                network: &route.destination_cidr,
                next_hop: hop,
            };
            let (path, owner) = (self.path(id), found.as_ref().and_then(|found| protected_by(&found.object)));
            let written = match found {
                None => {
                    self.record_write(id, false);
                    self.client.patch(&permit, &path, "static-routes.create", &wanted.object()).await.map(|()| None)
                }
                Some(found) => {
                    self.check_ours(&found, &doing)?;
                    let is_tagged = self.adoption == Adoption::AsIs || wanted.tags().are_on(&found.object);
                    if wanted.is_led_by(&found.listed) && is_tagged {
                        return Ok(found.object.revision());
                    }
                    let mut object = found.object;
                    wanted.write_into(&mut object);
                    self.record_write(id, true);
                    let stored = self.client.put(&permit, &path, "static-routes.rewrite", &object).await;
                    stored.map(|stored| stored.revision())
                }
            };
            match written {
                Ok(revision) => return Ok(revision),
                // Another client changed the route, or the outcome of the write is unknown: read, check and plan again.
                Err(error) if is_to_be_read(&error.kind) && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(failed(&doing, owner.as_deref(), &error)),
            }
        }
    }

    fn next_hop(&self, node: &Node, network: &IpNet) -> Result<IpAddr, Error> {
        if let Some(hop) = static_route::next_hop(&self.addresses_of(node), network) {
            return Ok(hop);
        }
        let (name, family) = (node::name(node), if network.addr().is_ipv4() { "IPv4" } else { "IPv6" });
        let available: Vec<String> = ips(addresses::of(node)).iter().map(IpAddr::to_string).collect();
        let available = available.join(", ");
        if static_route::next_hop(addresses::of(node), network).is_none() {
            return Err(Error::Invalid {
                reason: reason::NoNextHop,
                message: format!(
                    "Node {name} has no {family} address that others can reach (its addresses: {available})"
                ),
            });
        }
        // Retried, because the provider may confirm an address later, which changes no Node and triggers no sync.
        Err(Error::Failed {
            reason: reason::NoNextHop,
            message: format!(
                "no {family} address of Node {name} is confirmed by vCenter (the addresses in its status: \
                 {available}); a route needs an address that vCenter reports for the VM"
            ),
            after: None,
        })
    }

    /// Converts a listed route for the controller. The controller rewrites a route without target addresses, so these
    /// are empty if the route does not have the desired state or is not realized yet.
    fn shown(&self, target: &str, listed: &ListedRoute, object: &Object, cluster_name: &str) -> Route {
        let uid = self.uid.known();
        let known = self.cache.lock();
        let node = self.nodes.node(target);
        let network = parse_network_sloppy(&listed.network);
        let hop = node
            .as_ref()
            .zip(network)
            .and_then(|(node, network)| static_route::next_hop(&self.addresses_of(node), &network));
        let leads_there = match hop {
            // Without a usable address the route keeps its next hop.
            None => true,
            Some(hop) => {
                let wanted = StaticRoute {
                    cluster_name,
                    cluster_uid: uid.as_deref(),
                    node: target,
                    network: &listed.network,
                    next_hop: hop,
                };
                let is_tagged = self.adoption == Adoption::AsIs || wanted.tags().are_on(object);
                wanted.is_led_by(listed) && is_tagged && !known.unrealized.contains_key(&listed.id)
            }
        };
        let target_node_addresses = match (&node, leads_there) {
            (Some(node), true) => addresses::of(node).to_vec(),
            (Some(_), false) | (None, _) => Vec::new(),
        };
        Route {
            name: listed.id.clone(),
            target_node: target.to_owned(),
            enable_node_addresses: true,
            target_node_addresses,
            destination_cidr: listed.network.clone(),
            blackhole: false,
        }
    }

    fn report_ambiguous(&self, ambiguous: BTreeSet<String>) {
        let mut known = self.cache.lock();
        for id in ambiguous.difference(&known.reported) {
            warn!(
                route = id,
                "route {}/static-routes/{id} is neither changed nor deleted: it has the name of this cluster, and nothing \
                 shows that it is this cluster's, or which Node it leads to; if nothing needs it, delete it in NSX",
                self.router
            );
        }
        self.ambiguous.store(ambiguous.len(), Ordering::Relaxed);
        known.reported = ambiguous;
    }
}

#[async_trait]
impl crate::cloud::Routes for RouterRoutes {
    async fn list_routes(&self, cluster_name: &str) -> Result<Vec<Route>, Error> {
        let uid = self.uid.read().await?;
        let path = format!("{}/static-routes", self.router);
        let listing = self.client.pages(&path, "static-routes.list", PAGE).keeping(READ).all().await;
        let listing = listing.map_err(|error| not_listed(&self.router, &error))?;
        self.record_nodes(&listing.objects);
        let mut routes = Vec::new();
        let mut ids = BTreeMap::new();
        let mut ambiguous = BTreeSet::new();
        let mut skipped = listing.skipped;
        for object in listing.objects.iter().filter(|object| !object.is_marked_for_delete()) {
            let Some(listed) = ListedRoute::read(object) else {
                if is_foreign(object, cluster_name, uid.as_deref()) {
                    skipped += 1;
                    continue;
                }
                let message = format!("list the routes of {}: {object:?} cannot be understood", self.router);
                return Err(Error::Failed { reason: reason::NSXUnavailable, message, after: None });
            };
            match self.ownership_of(cluster_name, uid.as_deref(), object, &listed) {
                Ownership::Foreign => {}
                // Later, when the usable addresses of the Node are read, the next hop may prove the ownership. Until
                // then, the route is returned, so that the controller creates no duplicate. Each change checks the
                // ownership.
                Ownership::Ambiguous if self.is_unknown(&listed.node) => {
                    routes.push(self.shown(&listed.node, &listed, object, cluster_name));
                }
                Ownership::Ambiguous => drop(ambiguous.insert(listed.id)),
                Ownership::Ours => {
                    let Some(target) = self.target(cluster_name, object, &listed) else {
                        ambiguous.insert(listed.id);
                        continue;
                    };
                    routes.push(self.shown(&target, &listed, object, cluster_name));
                    if let Some(network) = parse_network_sloppy(&listed.network) {
                        ids.insert((target, network), listed.id);
                    }
                }
            }
        }
        self.report_ambiguous(ambiguous);
        let mut known = self.cache.lock();
        if std::mem::replace(&mut known.skipped, skipped) != skipped && skipped > 0 {
            warn!(skipped, "objects of {path} that are no routes, and are not of this cluster, are left out");
        }
        let listed: BTreeSet<&str> = routes.iter().map(|route| route.name.as_str()).collect();
        // A list may miss a route that is being written. A route that stays away is deleted.
        known.unrealized.retain(|id, last| listed.contains(id.as_str()) || last.written_at.elapsed() < ROUTE_MEMORY);
        // Ids that this list lacks stay while their Node exists, because a single list may miss a route.
        known.ids.retain(|(node, _), _| self.nodes.node(node).is_some());
        known.ids.extend(ids);
        Ok(routes)
    }

    async fn create_route(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        name_hint: &str,
        route: &Route,
    ) -> Result<(), Error> {
        let Route { target_node, destination_cidr, .. } = route;
        let invalid = |message| Error::Invalid { reason: reason::NoNextHop, message };
        let network = parse_network_sloppy(destination_cidr)
            .ok_or_else(|| invalid(format!("{destination_cidr:?} is not a network")))?;
        let node = self.nodes.node(target_node).ok_or_else(|| invalid(format!("Node {target_node} does not exist")))?;
        let hop = self.next_hop(&node, &network)?;
        let (own, key) = (static_route::id(name_hint, destination_cidr), (target_node.clone(), network));
        let known = self.cache.lock().ids.get(&key).cloned().filter(|known| *known != own);
        let id = match known {
            // The route with the cached id may be deleted by now.
            Some(known) => {
                let found = self.read(cluster_name, &known, &format!("write the route {known}")).await?;
                found.map_or(own, |_| known)
            }
            None => own,
        };
        // The route stays unrealized if this call fails.
        self.cache.lock().unrealized.entry(id.clone()).or_insert_with(|| LastWrite::now(false));
        let revision = self.ensure(permit, cluster_name, &id, route, hop).await?;
        // A list that missed the route may have removed the entry meanwhile.
        let mark = |last: LastWrite| *self.cache.lock().unrealized.entry(id.clone()).or_insert(last);
        let last_write = mark(LastWrite::now(false));
        if let Err(error) = self.wait_until_realized(&id, revision, last_write).await {
            mark(last_write);
            return Err(error);
        }
        let mut known = self.cache.lock();
        known.unrealized.remove(&id);
        known.ids.insert((target_node.clone(), network), id);
        Ok(())
    }

    async fn delete_route(&self, permit: &LeaderToken, cluster_name: &str, route: &Route) -> Result<(), Error> {
        let (id, permit) = (&route.name, permit_of(permit));
        let doing = format!("delete the route {id}");
        let mut attempt = 1;
        loop {
            let Some(found) = self.read(cluster_name, id, &doing).await? else { break };
            if found.object.is_marked_for_delete() {
                break;
            }
            self.check_ours(&found, &doing)?;
            let target = self.target(cluster_name, &found.object, &found.listed);
            if found.listed.network != route.destination_cidr || target.as_deref() != Some(route.target_node.as_str()) {
                let message = format!("{doing}: it was changed since it was listed");
                return Err(Error::Failed { reason: reason::NSXRefused, message, after: None });
            }
            match self.client.delete(&permit, &self.path(id), "static-routes.delete").await {
                Ok(()) => break,
                Err(error) if is_to_be_read(&error.kind) && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(failed(&doing, protected_by(&found.object).as_deref(), &error)),
            }
        }
        let mut known = self.cache.lock();
        known.unrealized.remove(id);
        known.ids.retain(|_, known| known != id);
        info!(route = id, node = route.target_node, "route deleted");
        Ok(())
    }

    fn rewrites_in_place(&self) -> bool {
        true
    }

    fn ambiguous_routes(&self) -> usize {
        self.ambiguous.load(Ordering::Relaxed)
    }
}

/// Maps the failure of a list. The usual backoff applies even without permission, because no route changes without a
/// list.
fn not_listed(router: &str, error: &nsx::Error) -> Error {
    match failed(&format!("list the routes of {router}"), None, error) {
        Error::Failed { reason, message, .. } => Error::Failed { reason, message, after: None },
        other => other,
    }
}

/// Returns the user that created an object, if NSX may protect the object. Old versions of NSX do not report whether an
/// object is protected.
fn protected_by(object: &Object) -> Option<String> {
    (object.text("_protection") != "NOT_PROTECTED").then(|| object.created_by().to_owned())
}

fn seen(node: &Node, at: Instant) -> Option<(String, SeenNode)> {
    let uid = node.metadata.uid.clone()?;
    Some((uid, SeenNode { name: node::name(node).to_owned(), last_seen: at }))
}

/// Whether an object that is not a route belongs to another owner.
fn is_foreign(object: &Object, cluster_name: &str, uid: Option<&str>) -> bool {
    by_cluster_uid(uid, object.tag(CLUSTER_UID)) == OfCluster::Another
        || object.tag(static_route::CLUSTER_NAME) != Some(cluster_name)
}

fn is_to_be_read(kind: &Kind) -> bool {
    matches!(kind, Kind::Conflict | Kind::Unknown | Kind::NotFound)
}

fn ips(addresses: &[NodeAddress]) -> Vec<IpAddr> {
    addresses.iter().filter_map(|address| parse_ip(&address.address)).collect()
}
