//! The interface between load balancers and the API of NSX.
//!
//! The vendor has deprecated the NSX load balancer. Another product needs another [`Backend`].

mod nsx;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;

use super::layout::{ClusterLayout, ObjectKind, Owner, Protocol};
use super::members::Member;
use super::plan::Action;
use super::resource::{LoadBalancerSpec, OwnerTags, Resource};
use crate::clients::nsx::Object;
use crate::clients::nsx::realization::{Reservation, RevisionStatus};
use crate::cloud::{Error, LeaderToken};
pub use crate::providers::vsphere::config::address_rules::IpFamily;

pub use nsx::NsxBackend;

/// State of an object after a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectChange {
    /// The object exists in this version.
    Present(ObjectKind, Object),
    /// The object at this path does not exist.
    Gone(String),
    /// The object at this path cannot be deleted yet: another object refers to it, or a call in flight may create such
    /// an object.
    Referenced(String),
    /// The allocation at this path has this address.
    Reserved {
        /// The path of the allocation.
        path: String,
        /// The address.
        address: IpAddr,
    },
}

/// Callback for the object states that a call observes, even if the call fails later.
pub type Record<'a> = &'a (dyn Fn(ObjectChange) + Send + Sync);

/// Context of a change of a load balancer.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The caller's permit to write.
    pub permit: &'a LeaderToken,
    /// Properties that all objects of the load balancer share.
    pub layout: &'a ClusterLayout,
    /// The Service of the load balancer.
    pub owner: Owner<'a>,
    /// Properties of the load balancer to create or change; `None` for a deletion.
    pub spec: Option<&'a LoadBalancerSpec>,
}

/// Configured objects to include in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The ids of IP pools whose allocations are always listed.
    pub pools: BTreeSet<Box<str>>,
    /// The names of IP pools to resolve to ids.
    pub pool_names: BTreeSet<String>,
    /// The names of application profiles to resolve to paths.
    pub profile_names: BTreeSet<(Protocol, String)>,
}

/// Callback for the objects of lists.
pub type Each<'a> = &'a mut (dyn FnMut(ObjectKind, Object) + Send);

/// Objects that were found by the names of a [`Scope`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeNames {
    /// The ids of the IP pools, by name.
    pub pools: BTreeMap<String, Vec<String>>,
    /// The paths of the profiles, by protocol and name.
    pub profiles: BTreeMap<(Protocol, String), Vec<String>>,
}

/// An object that the configuration names by id or path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfiguredObject {
    /// The IP pool with this id.
    AddressPool(String),
    /// The application profile at this path.
    Profile(String),
    /// The tier-1 gateway at this path.
    Gateway(String),
}

impl fmt::Display for ConfiguredObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressPool(id) => write!(f, "the IP pool {id}"),
            Self::Profile(path) => write!(f, "the application profile {path}"),
            Self::Gateway(path) => write!(f, "the tier-1 gateway {path}"),
        }
    }
}

/// Usability of a configured object for load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suitability {
    /// The configured object does not exist.
    Missing,
    /// The gateway has no edge cluster, so no load balancer runs on it.
    NoEdgeCluster,
    /// The gateway does not advertise the addresses of load balancers.
    NotAdvertised,
    /// The configured object exists and is usable.
    Usable,
}

/// New members of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUpdate {
    /// Identity and tags of the pool.
    pub tags: OwnerTags,
    /// The new members. Pools of one family share this list.
    pub members: Arc<[Member]>,
    /// The UID of the Service.
    pub service_uid: String,
}

/// Numbers of virtual servers, pools and pool members, each with its limit: the usage of a load balancer service or the
/// demand of a Service. A limit of 0 means that there is none: in a demand, or for a distributed load balancer, which
/// has no size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage([(usize, usize); 3]);

/// Exhausted capacity of a load balancer service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityExceeded {
    /// The exhausted kind of object, such as virtual servers.
    pub object: &'static str,
    /// Number in use.
    pub used: usize,
    /// Maximum number.
    pub allowed: usize,
}

impl Usage {
    const WHAT: [&str; 3] = ["virtual servers", "pools", "pool members"];

    /// Creates the usage from pairs of a used and an allowed number.
    pub fn new(servers: (usize, usize), pools: (usize, usize), members: (usize, usize)) -> Self {
        Self([servers, pools, members])
    }

    /// Returns the demand of `ports` new ports with `members` members each.
    pub fn of_ports(ports: usize, members: usize) -> Self {
        Self([(ports, 0), (ports, 0), (ports.saturating_mul(members), 0)])
    }

    /// Returns the kinds, each with the used number and the limit.
    pub fn parts(&self) -> Vec<(&'static str, usize, usize)> {
        Self::WHAT.into_iter().zip(self.0).map(|(kind, (used, allowed))| (kind, used, allowed)).collect()
    }

    /// Adds a demand to the used numbers, or to another demand.
    pub fn add(&mut self, demand: &Self) {
        self.0.iter_mut().zip(demand.0).for_each(|((used, _), (more, _))| *used = used.saturating_add(more));
    }

    /// Checks that the demanded capacity is free.
    ///
    /// # Errors
    /// Returns the first exhausted kind: virtual servers, pools or members.
    pub fn check(&self, needed: &Self) -> Result<(), CapacityExceeded> {
        for ((what, (used, allowed)), (needed, _)) in Self::WHAT.into_iter().zip(self.0).zip(needed.0) {
            if allowed > 0 && needed > 0 && used.saturating_add(needed) > allowed {
                return Err(CapacityExceeded { object: what, used, allowed });
            }
        }
        Ok(())
    }
}

/// A product with load balancers.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Lists the objects of load balancers of all owners, except allocations, groups and persistence profiles. Returns
    /// the objects with the names in `scope`.
    ///
    /// # Errors
    /// A list failed. `each` has then received an incomplete list.
    async fn read(&self, scope: &Scope, each: Each<'_>) -> Result<ScopeNames, Error>;

    /// Lists all groups and persistence profiles.
    ///
    /// # Errors
    /// As [`Backend::read`].
    async fn read_references(&self, each: Each<'_>) -> Result<(), Error>;

    /// Lists the allocations of the IP pool with this id; none if the pool does not exist.
    ///
    /// # Errors
    /// As [`Backend::read`].
    async fn read_allocations(&self, pool: &str, each: Each<'_>) -> Result<(), Error>;

    /// Lists the ids of all IP pools, including those that the configuration does not name.
    ///
    /// # Errors
    /// The list failed.
    async fn address_pools(&self) -> Result<BTreeSet<Box<str>>, Error>;

    /// Reads the object at this path; `None` if it does not exist.
    ///
    /// # Errors
    /// The read failed.
    async fn read_object(&self, kind: ObjectKind, path: &str) -> Result<Option<Object>, Error>;

    /// Checks whether a configured object exists and is usable.
    ///
    /// # Errors
    /// A read failed.
    async fn suitability(&self, object: &ConfiguredObject) -> Result<Suitability, Error>;

    /// Performs a step. If another client has deleted the object or changed its tags, only records the new state, so
    /// that the caller plans again.
    ///
    /// # Errors
    /// The step failed. [`Action::PortConflict`] always fails. A load balancer service in use causes no error: `record`
    /// receives [`ObjectChange::Referenced`].
    async fn perform(&self, request: &Request<'_>, step: &Action<'_>, record: Record<'_>) -> Result<(), Error>;

    /// Reads the state of an allocation.
    ///
    /// # Errors
    /// The read failed.
    async fn reservation(&self, allocation: &Resource) -> Result<Reservation, Error>;

    /// Reads whether NSX has realized a written object. `revision` is the revision that the write produced; `None` if
    /// the write created the object.
    ///
    /// # Errors
    /// The read failed.
    async fn realization(&self, path: &str, revision: Option<i64>) -> Result<RevisionStatus, Error>;

    /// Whether NSX still realizes a deleted object.
    ///
    /// # Errors
    /// The read failed.
    async fn is_in_effect(&self, path: &str) -> Result<bool, Error>;

    /// Reads the usage of the load balancer service at this path; `None` if this account may not read the usage, if the
    /// answer has no counters, or if NSX has no object at this path, so that it refuses creations there.
    ///
    /// # Errors
    /// The read failed.
    async fn usage(&self, lb_service: &str) -> Result<Option<Usage>, Error>;

    /// Whether the IP pool with this id may have addresses of a family.
    ///
    /// # Errors
    /// The subnets of the IP pool cannot be read.
    async fn has_family(&self, pool: &str, family: IpFamily) -> Result<bool, Error>;

    /// Checks that an IP pool can reserve a requested address. Called before objects are created for the address.
    ///
    /// # Errors
    /// The address is outside of the pool or allocated to another owner, or the check failed.
    async fn check_address(&self, request: &Request<'_>, pool: &str, address: IpAddr) -> Result<(), Error>;

    /// Sets the members of pools, by path. Returns the errors, by path.
    async fn update_pools(
        &self,
        permit: &LeaderToken,
        layout: &ClusterLayout,
        updates: BTreeMap<Box<str>, PoolUpdate>,
        record: Record<'_>,
    ) -> BTreeMap<Box<str>, Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_room_for_all_or_there_is_none() {
        let usage = Usage::new((19, 20), (10, 60), (299, 300));
        let full = CapacityExceeded { object: "pool members", used: 299, allowed: 300 };
        assert_eq!(usage.check(&Usage::of_ports(1, 2)), Err(full));
        assert_eq!(usage.check(&Usage::of_ports(1, 1)), Ok(()));
        assert_eq!(Usage::new((21, 20), (0, 9), (0, 9)).check(&Usage::of_ports(0, 7)), Ok(()), "nothing is needed");
        assert_eq!(Usage::new((1, 0), (1, 0), (9, 0)).check(&Usage::of_ports(1, 9)), Ok(()), "no capacity is stated");
        assert_eq!(
            usage.check(&Usage::of_ports(2, 0)),
            Err(CapacityExceeded { object: "virtual servers", used: 19, allowed: 20 })
        );
    }

    #[test]
    fn numbers_beyond_all_limits_are_a_full_service() {
        let mut usage = Usage::new((usize::MAX, 20), (10, 60), (0, 300));
        usage.add(&Usage::of_ports(2, 1));
        let full = CapacityExceeded { object: "virtual servers", used: usize::MAX, allowed: 20 };
        assert_eq!(usage.check(&Usage::of_ports(1, 1)), Err(full));
    }
}
