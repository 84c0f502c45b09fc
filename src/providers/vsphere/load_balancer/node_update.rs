//! Other nodes behind the load balancers of many Services.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};

use super::backend::PoolUpdate;
use super::inventory::Need;
use super::service_call::{Answer, ServiceCall, key_of};
use super::{LoadBalancers, members, repeated};
use crate::cloud::{Error, WritePermit};

/// One result for each of `services`.
pub(super) async fn update(
    of: &LoadBalancers,
    permit: &WritePermit,
    services: &[Arc<Service>],
    nodes: &[Arc<Node>],
) -> Vec<Result<(), Error>> {
    of.inventory.begin(permit);
    let layout = match of.uid.read().await {
        Ok(uid) => of.layout(uid),
        Err(error) => return services.iter().map(|_| Err(repeated(&error))).collect(),
    };
    let keys: Vec<String> = services.iter().map(|service| key_of(service)).collect();
    let (mut results, mut updates, mut positions) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let (of_ipv4, of_ipv6) = (members::of_nodes(nodes, true), members::of_nodes(nodes, false));
    for (position, service) in services.iter().enumerate() {
        let call = ServiceCall::new(of, permit, service, layout.clone());
        results.push(call.check(Need::Any));
        if results.last().is_some_and(Result::is_err) {
            continue;
        }
        let ours = call.observe().judged.ours;
        let is_ipv4 = ours.servers.iter().find_map(|server| server.address).is_none_or(|address| address.is_ipv4());
        let members = if is_ipv4 { &of_ipv4 } else { &of_ipv6 };
        for pool in ours.pools.into_iter().filter(|pool| !members::are_equal(&pool.members, members)) {
            let path = pool.marks.path.clone();
            let service_uid = call.uid().unwrap_or_default().to_owned();
            positions.insert(path.clone(), position);
            updates.insert(path, PoolUpdate { marks: pool.marks, members: members.clone(), service_uid });
        }
    }
    if updates.is_empty() {
        return results;
    }
    let written = positions.values().filter_map(|position| keys.get(*position));
    let _answers: Vec<Answer<'_>> = written.map(|key| Answer { inventory: &of.inventory, key }).collect();
    let record = |change| of.inventory.enter(&change, &layout);
    let failed = of.backend.update_pools(permit, &layout, updates, &record).await;
    for (path, error) in failed {
        if let Some(result) = positions.get(&path).and_then(|position| results.get_mut(*position)) {
            *result = Err(error);
        }
    }
    results
}
