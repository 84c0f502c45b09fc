//! The parts of a plan, and what both collections of plans share: the one of a running process and that of an observer.

use super::services::{SyncPurpose, orphan_plan};
use crate::app::inquiries::Inquiries;
use crate::app::reports::plan::{ObjectPlan, PlanPart, PlanPartBuilder};
use crate::providers::vsphere::nsx::load_balancer::NsxLoadBalancers;
use crate::providers::vsphere::nsx::load_balancer::preview::{FirstStep, StepPurpose, TargetMembers};
use k8s_openapi::api::core::v1::{Node, Service};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time after which the collection lets other tasks run.
const SLICE: Duration = Duration::from_millis(1);

/// The reason why a plan for one Node has no load balancers.
pub(super) const ONE_NODE: &str = "--node selects a Node";

/// The parts of a plan.
pub(super) struct PlanParts {
    pub(super) nodes: PlanPart,
    pub(super) load_balancers: PlanPart,
    pub(super) routes: PlanPart,
}

/// Divides a long computation.
pub(in crate::app::inquiries) struct Slices {
    /// Time at which the current slice began.
    began: Instant,
}

impl Slices {
    /// Begins the first slice.
    pub(in crate::app::inquiries) fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// Lets other tasks run if the current slice is over.
    pub(super) async fn next(&mut self) {
        if self.began.elapsed() >= SLICE {
            tokio::task::yield_now().await;
            self.began = Instant::now();
        }
    }
}

/// Returns the cached Nodes, or only the selected one, ordered by name.
pub(super) fn selected_nodes(process: &Inquiries, selected: Option<&str>) -> Vec<Arc<Node>> {
    match selected {
        Some(name) => process.nodes.get(name).into_iter().collect(),
        None => process.nodes.list().collect(),
    }
}

/// Returns the part with these Services, and with the load balancers of Services that do not exist.
pub(super) fn part_with_orphans(mut objects: BTreeMap<String, ObjectPlan>, balancers: &NsxLoadBalancers) -> PlanPart {
    for orphan in balancers.orphan_previews() {
        objects.entry(orphan.service.clone()).or_insert_with(|| orphan_plan(&orphan));
    }
    let mut part = PlanPartBuilder::default();
    objects.into_values().for_each(|object| part.add(object));
    part.build()
}

/// Returns the first step of the next call for a Service; `None` if no call is made, or before the first list.
pub(super) fn first_step(
    balancers: &NsxLoadBalancers,
    members: &TargetMembers,
    key: &str,
    (purpose, service): (SyncPurpose, Option<&Service>),
) -> Option<FirstStep> {
    match (purpose, service) {
        (SyncPurpose::Nothing, _) => None,
        (SyncPurpose::Ensure, Some(service)) => balancers.first_step(service, StepPurpose::Sync(members)),
        (SyncPurpose::Delete, Some(service)) => balancers.first_step(service, StepPurpose::Deletion),
        (_, None) => balancers.first_step_of_remainder(key),
    }
}

/// Returns the next hop with which the route of a Node to a network is rewritten; `None` if there is no route yet.
pub(super) fn next_hop_of_rewrite(process: &Inquiries, node: &str, network: &str) -> Option<String> {
    let node = process.nodes.get(node)?;
    let known = process.vsphere.known_route(&node, &network.parse().ok()?)?;
    known.id.as_ref()?;
    known.next_hop.ok().map(|next_hop| next_hop.to_string())
}
