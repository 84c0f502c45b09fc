//! Updates the Nodes behind the load balancers of many Services.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;

use super::backend::{ObjectChange, PoolUpdate};
use super::families::RequestedFamilies;
use super::layout::{ClusterLayout, ObjectKind};
use super::members::Member;
use super::resource::Resource;
use super::resource_cache::RequiredFreshness;
use super::service_call::{AnswerRecorder, ServiceCall, shows_change};
use super::service_request::families_of;
use super::{NsxLoadBalancers, members, repeated};
use crate::cloud::{Error, LeaderToken};
use crate::providers::vsphere::config::address_rules::IpFamily;

struct DesiredMembers {
    of_ipv4: Arc<[Member]>,
    of_ipv6: Arc<[Member]>,
}

/// Updates the pool members of these Services. Returns one result per Service, in the same order.
pub(super) async fn update(
    of: &NsxLoadBalancers,
    permit: &LeaderToken,
    services: &[Arc<Service>],
    nodes: &[Arc<Node>],
) -> Vec<Result<(), Error>> {
    of.resources.begin(permit);
    of.node_addresses.begin(permit);
    let layout = match of.uid.read().await {
        Ok(uid) => of.layout(uid),
        Err(error) => return services.iter().map(|_| Err(repeated(&error))).collect(),
    };
    let wanted = {
        let members = |family| of.node_addresses.members(nodes, family).into();
        DesiredMembers { of_ipv4: members(IpFamily::V4), of_ipv6: members(IpFamily::V6) }
    };
    let mut results = Vec::new();
    let mut updates = BTreeMap::new();
    let mut positions = BTreeMap::new();
    for (position, service) in services.iter().enumerate() {
        let call = ServiceCall::new(of, service, layout.clone());
        let planned = planned(&call, &wanted);
        results.push(planned.map(|all| {
            positions.extend(all.keys().map(|path| (path.clone(), position)));
            updates.extend(all);
        }));
    }
    if !updates.is_empty() {
        for (path, error) in write(of, permit, &layout, updates).await {
            if let Some(result) = positions.get(&path).and_then(|position| results.get_mut(*position)) {
                *result = Err(error);
            }
        }
    }
    results
}

fn planned(call: &ServiceCall<'_>, wanted: &DesiredMembers) -> Result<BTreeMap<Box<str>, PoolUpdate>, Error> {
    call.require_fresh(RequiredFreshness::AnyList)?;
    let observation = call.observe();
    if !observation.classified.owned.has(ObjectKind::Pool) && observation.classified.ambiguous.has(ObjectKind::Pool) {
        call.check_lb_service(&observation)?;
    }
    let ours = observation.classified.owned;
    if ours.is_empty() {
        // A sync creates the load balancer if the Service needs one.
        call.cache().request_resync_of(&call.key);
        return Err(Error::other(format!(
            "Service {} has no load balancer in NSX yet; it gets its Nodes when it is created",
            call.key
        )));
    }
    // The IP pool for IPv6 matters only for new load balancers, and none is created here.
    let asked = RequestedFamilies { families: &families_of(call.service), has_ipv6_pool: false };
    let balancers = asked.balancers(&ours);
    let members_of = |pool: &Resource| {
        let balancer = balancers.iter().find(|one| one.secondary == pool.tags.secondary);
        match balancer.map(|balancer| balancer.family) {
            Some(IpFamily::V6) => &wanted.of_ipv6,
            Some(IpFamily::V4) | None => &wanted.of_ipv4,
        }
    };
    let service_uid = call.uid().unwrap_or_default();
    let update = |pool: &Resource| {
        let path = pool.tags.path.clone();
        let service_uid = service_uid.to_owned();
        let members = Arc::clone(members_of(pool));
        (path, PoolUpdate { tags: pool.tags.clone(), members, service_uid })
    };
    let is_changed = |pool: &&Resource| !members::are_equal(&pool.spec.members, members_of(pool));
    Ok(ours.pools().filter(is_changed).map(update).collect())
}

async fn write(
    of: &NsxLoadBalancers,
    permit: &LeaderToken,
    layout: &ClusterLayout,
    updates: BTreeMap<Box<str>, PoolUpdate>,
) -> BTreeMap<Box<str>, Error> {
    let wanted: Vec<_> = updates
        .iter()
        .map(|(path, update)| (path.clone(), update.tags.service.clone(), Arc::clone(&update.members)))
        .collect();
    let _answers: Vec<AnswerRecorder<'_>> =
        wanted.iter().map(|(_, key, _)| AnswerRecorder { cache: &of.resources, key }).collect();
    let keys: BTreeMap<&str, &str> = wanted.iter().map(|(path, key, _)| (&**path, &**key)).collect();
    let created_again: Mutex<Vec<&str>> = Mutex::default();
    let record = |change: ObjectChange| {
        // The batch has recreated a pool that this process deleted meanwhile. A sync decides whether the pool stays.
        if let ObjectChange::Present(ObjectKind::Pool, pool) = &change
            && let Some(key) = keys.get(pool.path())
            && of.resources.of_service(key).at(pool.path()).is_none()
        {
            created_again.lock().push(key);
        }
        of.resources.record(&change, layout);
    };
    let failed = of.backend.update_pools(permit, layout, updates, &record).await;
    if failed.values().any(|error| shows_change(error.reason())) {
        of.resources.request_relist_after_refusal();
    }
    created_again.into_inner().into_iter().for_each(|key| of.resources.request_resync_of(key));
    for (path, key, members) in wanted.iter().filter(|(path, ..)| !failed.contains_key(path)) {
        let has_nodes = |pool: &Resource| members::are_equal(&pool.spec.members, members);
        if !of.resources.of_service(key).at(path).is_some_and(has_nodes) {
            // The pool was deleted, or another client has changed its owner tags.
            of.resources.request_resync_of(key);
        }
    }
    failed
}
