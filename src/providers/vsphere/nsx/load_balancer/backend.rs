//! The interface between load balancers and the API of NSX: a reading of all objects, and one change at a time.
//!
//! NSX's own load balancer is deprecated by its vendor. Another product gets another implementation of [`Backend`].

mod nsx;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;

use super::layout::{ClusterLayout, ObjectKind, Owner, Protocol};
use super::members::Member;
use super::objects::{Allocation, LbService, OwnerTags};
use super::plan::Step;
use crate::clients::nsx::Object;
use crate::clients::nsx::realization::{Reservation, RevisionStatus};
use crate::cloud::{Error, LeaderToken};
use crate::providers::vsphere::config::address_rules::IpFamily;

pub use nsx::NsxBackend;

/// What is known of an object after a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectChange {
    /// It is there, as it is here.
    Entered(ObjectKind, Object),
    /// It is gone.
    Gone(String),
    /// It was not deleted, because another object refers to it.
    Referenced(String),
    /// The allocation of this path has this address.
    Reserved {
        /// The path of the allocation.
        path: String,
        /// The address.
        address: IpAddr,
    },
}

/// Takes what a call shows. It may come before a failure of the same call.
pub type Record<'a> = &'a (dyn Fn(ObjectChange) + Send + Sync);

/// The change of a load balancer.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The permission of the caller.
    pub permit: &'a LeaderToken,
    /// What all objects have in common.
    pub layout: &'a ClusterLayout,
    /// The Service.
    pub owner: Owner<'a>,
    /// What a load balancer that is created or changed is made of; none for a deletion.
    pub parts: Option<&'a LoadBalancerSpec>,
}

/// What a load balancer is made of, beside its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerSpec {
    /// The class.
    pub class: String,
    /// The id of the pool of addresses.
    pub address_pool: String,
    /// The nodes.
    pub members: Vec<Member>,
    /// The size of a load balancer service that is created.
    pub size: &'static str,
    /// The gateway of one that is created.
    pub tier1: Option<String>,
}

/// What a reading includes, beside the lists of load balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The ids of pools whose allocations are read in any case.
    pub pools: BTreeSet<Box<str>>,
    /// The names of pools whose ids are read.
    pub pool_names: BTreeSet<String>,
    /// The names of application profiles whose paths are read.
    pub profile_names: BTreeSet<(Protocol, String)>,
}

/// Takes the objects of lists.
pub type Each<'a> = &'a mut (dyn FnMut(ObjectKind, Object) + Send);

/// What has the names of a [`Scope`]: the ids of pools, and the paths of application profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeNames {
    /// The ids of the pools of each name.
    pub pools: BTreeMap<String, Vec<String>>,
    /// The paths of the profiles of each protocol and name.
    pub profiles: BTreeMap<(Protocol, String), Vec<String>>,
}

/// What the configuration names by its id or path, and NSX is to have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfiguredObject {
    /// The IP pool of this id.
    AddressPool(String),
    /// The application profile of this path.
    Profile(String),
    /// The tier-1 gateway of this path.
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

/// Whether NSX has what the configuration names, and whether load balancers can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suitability {
    /// It does not exist.
    Missing,
    /// The gateway has no edge cluster: no load balancer runs on it.
    NoEdgeCluster,
    /// The gateway does not advertise the addresses of load balancers.
    NotAdvertised,
    /// It exists, and nothing speaks against it.
    Usable,
}

/// The nodes that a pool is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUpdate {
    /// Whose the pool is.
    pub marks: OwnerTags,
    /// The nodes, shared by all pools.
    pub members: Arc<[Member]>,
    /// The UID of the Service.
    pub service_uid: String,
}

/// What a load balancer service has, or a Service needs of it: virtual servers, pools and members, each with how many there
/// may be. Where that is 0, it is not known: a distributed load balancer has no size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage([(usize, usize); 3]);

/// What a load balancer service has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Such as virtual servers.
    pub what: &'static str,
    /// How many there are.
    pub used: usize,
    /// How many there may be.
    pub allowed: usize,
}

impl Usage {
    const WHAT: [&str; 3] = ["virtual servers", "pools", "pool members"];

    /// Each with how many there may be.
    pub fn new(servers: (usize, usize), pools: (usize, usize), members: (usize, usize)) -> Self {
        Self([servers, pools, members])
    }

    /// What so many new ports with so many members each need.
    pub fn of_ports(ports: usize, members: usize) -> Self {
        Self([(ports, 0), (ports, 0), (ports.saturating_mul(members), 0)])
    }

    /// Adds what is used of each.
    pub fn add(&mut self, more: &Self) {
        self.0.iter_mut().zip(more.0).for_each(|((used, _), (more, _))| *used += more);
    }

    /// What is needed beyond what was taken before.
    pub fn beyond(&self, taken: &Self) -> Self {
        let mut more = self.clone();
        more.0.iter_mut().zip(taken.0).for_each(|((needed, _), (taken, _))| *needed = needed.saturating_sub(taken));
        more
    }

    /// Takes what is needed, if there is room for all of it.
    ///
    /// # Errors
    /// What there is no room for.
    pub fn take(&mut self, needed: &Self) -> Result<(), Full> {
        for ((what, (used, allowed)), (needed, _)) in Self::WHAT.into_iter().zip(self.0).zip(needed.0) {
            if allowed > 0 && needed > 0 && used.saturating_add(needed) > allowed {
                return Err(Full { what, used, allowed });
            }
        }
        self.add(needed);
        Ok(())
    }
}

/// A product with load balancers.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Reads all objects that load balancers consist of, but addresses, groups and persistence profiles; `each` gets every one, also those of others.
    ///
    /// # Errors
    /// A list that could not be read. What was given to `each` is not complete then.
    async fn read(&self, scope: &Scope, each: Each<'_>) -> Result<ScopeNames, Error>;

    /// Reads all groups and persistence profiles.
    ///
    /// # Errors
    /// As [`Backend::read`].
    async fn read_references(&self, each: Each<'_>) -> Result<(), Error>;

    /// Reads the allocations of the pool of this id. One that does not exist has none.
    ///
    /// # Errors
    /// As [`Backend::read`].
    async fn read_allocations(&self, pool: &str, each: Each<'_>) -> Result<(), Error>;

    /// The ids of all pools of addresses, also of those that the configuration does not name.
    ///
    /// # Errors
    /// As [`Backend::read`].
    async fn address_pools(&self) -> Result<BTreeSet<Box<str>>, Error>;

    /// Whether there is what the configuration names, and whether load balancers can use it.
    ///
    /// # Errors
    /// As [`Backend::read`].
    async fn suitability(&self, what: &ConfiguredObject) -> Result<Suitability, Error>;

    /// Makes a change. An object that another client has changed meanwhile is recorded as it is now instead: plan again.
    ///
    /// # Errors
    /// Why the change could not be made.
    async fn perform(&self, request: &Request<'_>, step: &Step<'_>, record: Record<'_>) -> Result<(), Error>;

    /// What has become of an allocation, which is not changed.
    ///
    /// # Errors
    /// Why that could not be read.
    async fn reservation(&self, allocation: &Allocation) -> Result<Reservation, Error>;

    /// How far an object that was written has come. Of one that existed before, this revision is meant.
    ///
    /// # Errors
    /// Why that could not be read.
    async fn realization(&self, path: &str, revision: Option<i64>) -> Result<RevisionStatus, Error>;

    /// Whether an object that was deleted is still in effect.
    ///
    /// # Errors
    /// Why that could not be read.
    async fn is_in_effect(&self, path: &str) -> Result<bool, Error>;

    /// How full the load balancer service of this path is.
    ///
    /// # Errors
    /// Why that is not known.
    async fn usage(&self, lb_service: &str) -> Result<Usage, Error>;

    /// Whether the pool of addresses of this id may have addresses of a family.
    ///
    /// # Errors
    /// Why that is not known.
    async fn has_family(&self, pool: &str, family: IpFamily) -> Result<bool, Error>;

    /// Whether an address that a Service asks for can be reserved in its pool, before anything is created for it.
    ///
    /// # Errors
    /// It is outside of the pool or in use, or that is not known.
    async fn check_address(&self, request: &Request<'_>, pool: &str, address: IpAddr) -> Result<(), Error>;

    /// Deletes the load balancer service of this cluster, unless something uses it.
    ///
    /// # Errors
    /// Why it could not be deleted. That something uses it is no error, and is recorded.
    async fn delete_lb_service(
        &self,
        permit: &LeaderToken,
        layout: &ClusterLayout,
        lb_service: &LbService,
        record: Record<'_>,
    ) -> Result<(), Error>;

    /// Gives pools, by their paths, other nodes. What failed, by the path of the pool.
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
    fn room_is_taken_for_all_or_nothing() {
        let mut usage = Usage::new((18, 20), (10, 60), (290, 300));
        assert_eq!(usage.take(&Usage::of_ports(1, 9)), Ok(()));
        let full = Full { what: "pool members", used: 299, allowed: 300 };
        assert_eq!(usage.take(&Usage::of_ports(1, 2)), Err(full));
        assert_eq!(usage.take(&Usage::of_ports(1, 1)), Ok(()));
        assert_eq!(Usage::new((21, 20), (0, 9), (0, 9)).take(&Usage::of_ports(0, 7)), Ok(()), "nothing is needed");
        assert_eq!(Usage::new((1, 0), (1, 0), (9, 0)).take(&Usage::of_ports(1, 9)), Ok(()), "no capacity is stated");
        assert_eq!(usage.take(&Usage::of_ports(1, 0)), Err(Full { what: "virtual servers", used: 20, allowed: 20 }));
    }
}
