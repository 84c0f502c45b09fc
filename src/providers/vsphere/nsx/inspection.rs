//! Reads what the account sees of NSX, for checks: the kinds of objects, and the objects that the configuration names.
//! Only reads. Whether the account may write shows only at a write.

use std::collections::BTreeMap;

use crate::base::error_chain::chain;
use crate::clients::nsx::{Client, Error, Kind, Object};
use crate::providers::vsphere::config::{Class, Config, IpPool, LoadBalancerConfig, Profile};
use crate::providers::vsphere::nsx::load_balancer::backend::{
    Backend as _, ConfiguredObject, NsxBackend, Suitability, Usage,
};
use crate::providers::vsphere::nsx::load_balancer::layout::{ADDRESS_POOLS, ObjectKind};
use crate::providers::vsphere::reason;

/// Path of the application profiles.
const PROFILES: &str = "/infra/lb-app-profiles";

/// The members of listed objects that the inspection reads.
const READ: &[&str] = &["id", "path", "display_name", "resource_type"];

const PAGE: usize = 1000;

/// The kinds of objects of load balancers, each with the name of the call that lists it.
const KINDS: [(ObjectKind, &str); 6] = [
    (ObjectKind::LbService, "lb-services.list"),
    (ObjectKind::VirtualServer, "lb-virtual-servers.list"),
    (ObjectKind::Pool, "lb-pools.list"),
    (ObjectKind::Monitor, "lb-monitor-profiles.list"),
    (ObjectKind::Group, "groups.list"),
    (ObjectKind::PersistenceProfile, "lb-persistence-profiles.list"),
];

/// What the account sees of NSX.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NsxInspection {
    /// The lists of the kinds of objects that load balancers and routes need.
    pub lists: Vec<ListFacts>,
    /// The objects that the configuration names.
    pub configured: Vec<ConfiguredObjectFacts>,
    /// The addresses of the configured IP pools that exist.
    pub pools: Vec<PoolFacts>,
    /// The load balancer service of this cluster; `None` if there is none yet, or no load balancers are configured.
    pub capacity: Option<CapacityFacts>,
}

/// The list of one kind of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFacts {
    /// The kind, such as `virtual server`.
    pub kind: &'static str,
    /// The path of the list.
    pub path: String,
    /// The result of reading a page.
    pub result: Result<(), ReadFailure>,
}

/// An object that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredObjectFacts {
    /// The object as the configuration names it, such as `IP pool "k8s" (by name)`.
    pub object: String,
    /// The state of the object.
    pub state: Result<ConfiguredObjectState, ReadFailure>,
}

/// The state of an object that the configuration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfiguredObjectState {
    /// It exists once, and is usable.
    Usable,
    /// It does not exist.
    Missing,
    /// Several objects have the name.
    Several(usize),
    /// A gateway has no edge cluster, so no load balancer runs on it.
    NoEdgeCluster,
    /// A gateway does not advertise the addresses of load balancers.
    NotAdvertised,
}

/// The addresses of an IP pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// The id of the IP pool.
    pub pool: String,
    /// The usage; `None` if this version of NSX does not tell it.
    pub usage: Result<Option<PoolUsage>, ReadFailure>,
}

/// Usage of an IP pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Number of addresses of the IP pool.
    pub total: u64,
    /// Number of free addresses.
    pub available: u64,
}

/// Usage of a load balancer service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityFacts {
    /// The path of the load balancer service.
    pub lb_service: String,
    /// The usage; `None` if the account may not read it, or NSX has not counted yet.
    pub usage: Result<Option<Usage>, ReadFailure>,
}

/// Reason why something was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// The role of the account does not allow it.
    NoPermission(String),
    /// NSX did not answer, for this reason.
    Failed(String),
}

impl ReadFailure {
    fn of_call(error: &Error) -> Self {
        match error.kind {
            Kind::NoPermission => Self::NoPermission(chain(error)),
            _ => Self::Failed(chain(error)),
        }
    }

    fn of_backend(error: &crate::cloud::Error) -> Self {
        match error.reason() == reason::NSXNoPermission {
            true => Self::NoPermission(chain(error)),
            false => Self::Failed(chain(error)),
        }
    }
}

/// Reads NSX with a client that may log in. `lb_service` is the path of this cluster's load balancer service, if known.
/// Makes some twenty calls, one after the other; the caller limits the time.
pub async fn inspect(client: &Client, config: &Config, lb_service: Option<String>) -> NsxInspection {
    let mut inspection = NsxInspection::default();
    if let Some(routes) = config.routes.used() {
        let router = routes.router.as_str();
        let path = format!("{router}/static-routes");
        let result = first_page(client, &path, "static-routes.list").await;
        inspection.lists.push(ListFacts { kind: "static route", path, result });
        let state = existence(client.get(router, "routers.get").await);
        inspection.configured.push(ConfiguredObjectFacts { object: format!("router {router}"), state });
    }
    if let Some(balancers) = config.load_balancers.used() {
        inspect_load_balancers(client, balancers, lb_service, &mut inspection).await;
    }
    inspection
}

async fn inspect_load_balancers(
    client: &Client,
    config: &LoadBalancerConfig,
    lb_service: Option<String>,
    inspection: &mut NsxInspection,
) {
    for (kind, operation) in KINDS {
        let path = kind.parent().to_owned();
        let result = first_page(client, &path, operation).await;
        inspection.lists.push(ListFacts { kind: kind.name(), path, result });
    }
    let pools = list(client, ADDRESS_POOLS, "ip-pools.list").await;
    let profiles = list(client, PROFILES, "lb-app-profiles.list").await;
    for (kind, path, listed) in [("IP pool", ADDRESS_POOLS, &pools), ("application profile", PROFILES, &profiles)] {
        let result = listed.as_ref().map(drop).map_err(Clone::clone);
        inspection.lists.push(ListFacts { kind, path: path.to_owned(), result });
    }
    let named = ConfiguredNames::of(config);
    let backend = NsxBackend::new(client.clone(), false);
    let mut pool_ids: Vec<String> = Vec::new();
    for pool in &named.pools {
        let (object, found) = match pool {
            IpPool::Id(id) => (format!("IP pool {id:?} (by id)"), with_text(&pools, "id", id, |_| true)),
            IpPool::Name(name) => {
                (format!("IP pool {name:?} (by name)"), with_text(&pools, "display_name", name, |_| true))
            }
        };
        if let Ok([id]) = found.as_deref() {
            pool_ids.push(id.clone());
        }
        inspection.configured.push(ConfiguredObjectFacts { object, state: found.map(|ids| state_of(ids.len())) });
    }
    for (profile, resource_type) in &named.profiles {
        let is_of_type = |object: &Object| object.text("resource_type") == *resource_type;
        inspection.configured.push(match profile {
            Profile::Name(name) => ConfiguredObjectFacts {
                object: format!("application profile {name:?} (by name, {resource_type})"),
                state: with_text(&profiles, "display_name", name, is_of_type).map(|found| state_of(found.len())),
            },
            Profile::Path(path) => suitability(&backend, &ConfiguredObject::Profile(path.clone())).await,
        });
    }
    if let Some(gateway) = &config.tier1 {
        inspection.configured.push(suitability(&backend, &ConfiguredObject::Gateway(gateway.clone())).await);
    }
    if let Some(id) = &config.lb_service_id {
        let path = format!("{}/{id}", ObjectKind::LbService.parent());
        let state = existence(client.get(&path, "lb-services.get").await);
        inspection
            .configured
            .push(ConfiguredObjectFacts { object: format!("load balancer service {id:?} (by id)"), state });
    }
    pool_ids.sort();
    pool_ids.dedup();
    for pool in pool_ids {
        // A role may allow the list of IP pools and not what is below one of them.
        let path = format!("{ADDRESS_POOLS}/{pool}/ip-allocations");
        let result = first_page(client, &path, "ip-allocations.list").await;
        inspection.lists.push(ListFacts { kind: ObjectKind::Allocation.name(), path, result });
        let usage = pool_usage(client, &pool).await;
        inspection.pools.push(PoolFacts { pool, usage });
    }
    if let Some(lb_service) = lb_service {
        let usage = backend.usage(&lb_service).await.map_err(|error| ReadFailure::of_backend(&error));
        inspection.capacity = Some(CapacityFacts { lb_service, usage });
    }
}

/// The IP pools and profiles that a configuration names, each once.
#[derive(Default)]
struct ConfiguredNames {
    pools: Vec<IpPool>,
    /// Each with its `resource_type` in NSX.
    profiles: Vec<(Profile, &'static str)>,
}

impl ConfiguredNames {
    fn of(config: &LoadBalancerConfig) -> Self {
        let mut names = Self::default();
        for Class { pool, tcp, udp } in std::iter::once(&config.common).chain(config.classes.values()) {
            names.pools.extend(pool.clone());
            names.profiles.extend(tcp.clone().map(|profile| (profile, "LBFastTcpProfile")));
            names.profiles.extend(udp.clone().map(|profile| (profile, "LBFastUdpProfile")));
        }
        names.pools.extend(config.ipv6_pools.values().cloned().map(IpPool::Id));
        // Classes inherit and repeat names. The key makes each name occur once, in a stable order.
        let pools: BTreeMap<String, IpPool> = names.pools.into_iter().map(|pool| (format!("{pool:?}"), pool)).collect();
        let profiles: BTreeMap<String, (Profile, &'static str)> =
            names.profiles.into_iter().map(|profile| (format!("{profile:?}"), profile)).collect();
        Self { pools: pools.into_values().collect(), profiles: profiles.into_values().collect() }
    }
}

async fn first_page(client: &Client, path: &str, operation: &'static str) -> Result<(), ReadFailure> {
    client.pages(path, operation, 1).next().await.map(drop).map_err(|error| ReadFailure::of_call(&error))
}

async fn list(client: &Client, path: &str, operation: &'static str) -> Result<Vec<Object>, ReadFailure> {
    let listing = client.pages(path, operation, PAGE).keeping(READ).all().await;
    listing.map(|listing| listing.objects).map_err(|error| ReadFailure::of_call(&error))
}

/// Returns the ids of the listed objects whose member has this text.
fn with_text(
    listed: &Result<Vec<Object>, ReadFailure>,
    member: &str,
    text: &str,
    is_wanted: impl Fn(&Object) -> bool,
) -> Result<Vec<String>, ReadFailure> {
    let objects = listed.as_ref().map_err(Clone::clone)?.iter();
    let found = objects.filter(|object| object.text(member) == text && is_wanted(object));
    Ok(found.map(|object| object.id().to_owned()).collect())
}

fn state_of(number: usize) -> ConfiguredObjectState {
    match number {
        0 => ConfiguredObjectState::Missing,
        1 => ConfiguredObjectState::Usable,
        number => ConfiguredObjectState::Several(number),
    }
}

fn existence(read: Result<Object, Error>) -> Result<ConfiguredObjectState, ReadFailure> {
    match read {
        Ok(_) => Ok(ConfiguredObjectState::Usable),
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::MissingReference(_)) => {
            Ok(ConfiguredObjectState::Missing)
        }
        Err(error) => Err(ReadFailure::of_call(&error)),
    }
}

async fn suitability(backend: &NsxBackend, object: &ConfiguredObject) -> ConfiguredObjectFacts {
    let state = backend.suitability(object).await.map(|suitability| match suitability {
        Suitability::Missing => ConfiguredObjectState::Missing,
        Suitability::NoEdgeCluster => ConfiguredObjectState::NoEdgeCluster,
        Suitability::NotAdvertised => ConfiguredObjectState::NotAdvertised,
        Suitability::Usable => ConfiguredObjectState::Usable,
    });
    let object = object.to_string().trim_start_matches("the ").to_owned();
    ConfiguredObjectFacts { object, state: state.map_err(|error| ReadFailure::of_backend(&error)) }
}

async fn pool_usage(client: &Client, pool: &str) -> Result<Option<PoolUsage>, ReadFailure> {
    let object = client.get(&format!("{ADDRESS_POOLS}/{pool}"), "ip-pools.get").await;
    object.map(|object| usage_of(&object)).map_err(|error| ReadFailure::of_call(&error))
}

fn usage_of(pool: &Object) -> Option<PoolUsage> {
    let usage = pool.0.get("pool_usage")?;
    let number = |member: &str| usage.get(member).and_then(serde_json::Value::as_u64);
    Some(PoolUsage { total: number("total_ips")?, available: number("available_ips")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(body: serde_json::Value) -> Object {
        Object(body.as_object().unwrap().clone())
    }

    #[test]
    fn a_name_has_to_be_that_of_exactly_one_object_of_the_type() {
        let tcp = |id: &str| object(json!({"id": id, "display_name": "p", "resource_type": "LBFastTcpProfile"}));
        let listed =
            Ok(vec![tcp("a"), object(json!({"id": "b", "display_name": "p", "resource_type": "LBHttpProfile"}))]);
        let of_type = |object: &Object| object.text("resource_type") == "LBFastTcpProfile";
        assert_eq!(with_text(&listed, "display_name", "p", of_type), Ok(vec!["a".to_owned()]));
        assert_eq!(with_text(&listed, "display_name", "q", of_type), Ok(vec![]));
        let unread: Result<Vec<Object>, ReadFailure> = Err(ReadFailure::Failed("no".to_owned()));
        assert_eq!(with_text(&unread, "id", "a", |_| true), Err(ReadFailure::Failed("no".to_owned())));
        let states = [0, 1, 2].map(state_of);
        assert_eq!(
            states,
            [ConfiguredObjectState::Missing, ConfiguredObjectState::Usable, ConfiguredObjectState::Several(2)]
        );
    }

    #[test]
    fn a_failure_says_whether_the_role_is_the_cause() {
        assert!(matches!(ReadFailure::of_call(&Error::of_kind(Kind::NoPermission)), ReadFailure::NoPermission(_)));
        assert!(matches!(ReadFailure::of_call(&Error::of_kind(Kind::Busy)), ReadFailure::Failed(_)));
        assert_eq!(existence(Err(Error::of_kind(Kind::NotFound))), Ok(ConfiguredObjectState::Missing));
        assert!(existence(Err(Error::of_kind(Kind::Unavailable))).is_err());
    }

    #[test]
    fn the_usage_of_a_pool_is_read_where_nsx_tells_it() {
        let pool = object(json!({"id": "p", "pool_usage": {"total_ips": 10, "available_ips": 3}}));
        assert_eq!(usage_of(&pool), Some(PoolUsage { total: 10, available: 3 }));
        assert_eq!(usage_of(&object(json!({"id": "p"}))), None);
    }
}
