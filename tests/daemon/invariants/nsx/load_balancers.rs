//! The load balancers of a cluster: rules for every version of every object, and for the final state. Pure: versions,
//! Services and addresses are parameters.

pub mod addresses;
mod fixtures;
mod foreign;
pub mod intents;
pub mod pools;
pub mod results;
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use serde_json::{Value, json};
use support::fake_nsx::ObjectVersion;

use super::routes::{CLUSTER_UID, tag};
use intents::Intents;

/// Scopes of the tags for the cluster, the Service and the port.
pub const CLUSTER: &str = "cluster";
pub const SERVICE: &str = "service";
pub const PORT: &str = "port";

/// The kinds of objects that a load balancer consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    LbService,
    Server,
    Pool,
    Monitor,
    Allocation,
    Group,
    Profile,
}

impl Kind {
    /// Returns the kind of the object at this path, or `None` for other kinds.
    pub fn of(path: &str) -> Option<Self> {
        match path.rsplit('/').nth(1)? {
            "lb-services" => Some(Self::LbService),
            "lb-virtual-servers" => Some(Self::Server),
            "lb-pools" => Some(Self::Pool),
            "lb-monitor-profiles" => Some(Self::Monitor),
            "ip-allocations" => Some(Self::Allocation),
            "groups" => Some(Self::Group),
            "lb-persistence-profiles" => Some(Self::Profile),
            _ => None,
        }
    }
}

/// Identity of the checked cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Name of the cluster.
    pub name: String,
    /// UID of the cluster's namespace `kube-system`.
    pub uid: String,
}

impl Cluster {
    /// Whether the tags of an object name this cluster. Replicas with the UID write it into every object.
    pub fn owns(&self, object: &Value) -> bool {
        tag(object, CLUSTER).as_ref() == Some(&self.name) && tag(object, CLUSTER_UID).as_ref() == Some(&self.uid)
    }
}

/// State at one moment.
struct State {
    cluster: Cluster,
    /// Objects by path, without those that are marked for deletion.
    objects: BTreeMap<String, Value>,
    /// Ports that Services ask for.
    intents: Intents,
    /// Addresses of allocations, by path.
    allocated: BTreeMap<String, IpAddr>,
    /// Addresses of Nodes that never leave.
    lasting: BTreeSet<String>,
}

impl State {
    /// Returns the objects of this kind with their paths.
    fn all(&self, kind: Kind) -> impl Iterator<Item = (&String, &Value)> {
        self.objects.iter().filter(move |(path, _)| Kind::of(path) == Some(kind))
    }
}

/// A change of one object by a replica.
struct Change<'a> {
    at: Instant,
    path: &'a str,
    kind: Kind,
    before: Option<&'a Value>,
    after: Option<&'a Value>,
}

impl Change<'_> {
    /// Returns the Service and the port in the tags before the change, or `None` for a new object.
    fn served(&self) -> Option<(String, String)> {
        let before = self.before?;
        Some((tag(before, SERVICE)?, tag(before, PORT)?))
    }
}

/// Counts of the replicas' writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Virtual servers that replicas created.
    pub created: usize,
    /// Virtual servers that replicas deleted.
    pub deleted: usize,
    /// Pools whose members replicas changed.
    pub members: usize,
    /// Addresses that replicas released.
    pub released: usize,
}

/// The rules for every version of every object.
pub struct Rules {
    replicas: Vec<String>,
    state: State,
    /// Counts of the replicas' writes so far.
    pub seen: Seen,
}

impl Rules {
    /// Creates the rules for these accounts of replicas and this cluster. Nodes with the addresses in `lasting` never
    /// leave.
    pub fn new(replicas: Vec<String>, cluster: Cluster, lasting: BTreeSet<String>) -> Self {
        let (objects, intents, allocated) = (BTreeMap::new(), Intents::default(), BTreeMap::new());
        let state = State { cluster, objects, intents, allocated, lasting };
        Self { replicas, state, seen: Seen::default() }
    }

    /// Records that from `at` on a Service asks for these ports, or for no load balancer.
    pub fn intend(&mut self, at: Instant, service: &str, ports: Option<BTreeSet<String>>) {
        self.state.intents.note(at, service, ports);
    }

    /// Records the address of the allocation at this path.
    pub fn allocated(&mut self, path: &str, address: IpAddr) {
        self.state.allocated.insert(path.to_owned(), address);
    }

    /// Returns the paths of allocations without a recorded address.
    pub fn unknown_allocations(&self) -> Vec<String> {
        let all = self.state.all(Kind::Allocation).map(|(path, _)| path);
        all.filter(|path| !self.state.allocated.contains_key(*path)).cloned().collect()
    }

    /// Applies the rules to the next version of an object.
    pub fn take(&mut self, version: &ObjectVersion) -> Result<(), String> {
        let ObjectVersion { at, user, path, object, .. } = version;
        let Some(kind) = Kind::of(path) else {
            // Other rules cover routes.
            return match self.replicas.contains(user) && !path.contains("/static-routes/") {
                true => Err(format!("{user} wrote what is of no load balancer: {path}\n{object:?}")),
                false => Ok(()),
            };
        };
        let after = object.as_ref().filter(|object| object["marked_for_delete"] != json!(true));
        let before = self.state.objects.remove(path);
        if self.replicas.contains(user) {
            let change = Change { at: *at, path, kind, before: before.as_ref(), after };
            let rules = [foreign::check, servers::check, pools::check, addresses::check];
            let broken = rules.iter().find_map(|rule| rule(&change, &self.state).err());
            if let Some(broken) = broken {
                return Err(format!("{user} {broken}: {path}\nbefore {before:?}\nafter {after:?}"));
            }
            self.seen.count(&change);
        }
        match after {
            Some(after) => drop(self.state.objects.insert(path.clone(), after.clone())),
            None => drop(self.state.allocated.remove(path)),
        }
        Ok(())
    }
}

impl Seen {
    fn count(&mut self, change: &Change<'_>) {
        match (change.kind, change.before, change.after) {
            (Kind::Server, None, Some(_)) => self.created += 1,
            (Kind::Server, Some(_), None) => self.deleted += 1,
            (Kind::Pool, Some(before), Some(after)) if pools::members(before) != pools::members(after) => {
                self.members += 1;
            }
            (Kind::Allocation, Some(_), None) => self.released += 1,
            _ => {}
        }
    }
}
