//! The next step of a call, without the call: from the cached objects alone, with the plan that a call makes. Changes
//! nothing, and sends nothing to NSX.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::steps::{MembersOf, ignored_settings};
use super::{CallObservation, FamilyTarget, ServiceCall, next};
use crate::cloud::Error;
use crate::providers::vsphere::nsx::load_balancer::families::RequestedFamilies;
use crate::providers::vsphere::nsx::load_balancer::layout::{MonitorType, ObjectKind, has_own_form};
use crate::providers::vsphere::nsx::load_balancer::members::Member;
use crate::providers::vsphere::nsx::load_balancer::plan::Action;
use crate::providers::vsphere::nsx::load_balancer::resource::{REQUEST_VERSION, Resource, ResourceSpec};
use crate::providers::vsphere::nsx::load_balancer::service_request;

/// Maximum number of addresses in one difference.
const MAX_ADDRESSES: usize = 5;

/// The next step of a sync or deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedStep {
    /// The step, such as `create the pool of port TCP/80`; `None` if nothing is left to do.
    pub step: Option<String>,
    /// The kind of the step.
    pub kind: Option<StepKind>,
    /// The properties that the step changes, each with the present and the desired value.
    pub changes: Vec<String>,
    /// Number of desired pool members in all load balancers of the Service; `None` if the plan was not reached.
    pub desired_members: Option<usize>,
    /// The addresses of the load balancers of the Service, as its status has to show them.
    pub addresses: Vec<IpAddr>,
    /// Message about the settings of the Service that are not applied, because another program made the load balancer.
    /// `None` without such settings, and while a step is left.
    pub adopted_as_is: Option<String>,
}

/// What a step does with its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Creates the object.
    Create,
    /// Changes an object of this program.
    Update,
    /// Changes an object that another program created, or tags it as an object of this cluster.
    Adopt,
    /// Deletes the object.
    Delete,
    /// Reads the object. The next step depends on it.
    Read,
    /// Leaves an object of another owner as it is, so that a port has no virtual server.
    Hold,
}

impl StepKind {
    fn of(step: &Action<'_>) -> Self {
        match step {
            Action::Create(_) | Action::Allocate(_) | Action::Reserve(_) => Self::Create,
            Action::Update { resource, .. } if has_own_form(&resource.tags.id) => Self::Update,
            Action::Update { .. } | Action::Tag { .. } => Self::Adopt,
            Action::Delete(_) => Self::Delete,
            Action::Read { .. } | Action::ReadAddress(_) => Self::Read,
            Action::PortConflict { .. } => Self::Hold,
        }
    }
}

impl ServiceCall<'_> {
    /// Returns the first step of a sync. `members` returns the pool members of a family.
    ///
    /// # Errors
    /// The refusal with which the sync would end before its plan.
    pub fn preview_of_sync(&self, members: MembersOf<'_>) -> Result<PlannedStep, Error> {
        service_request::check(self.service, &self.provider.config, self.provider.rules)?;
        let ports = service_request::ports_of(self.service)?;
        let asked = RequestedFamilies {
            families: &service_request::families_of(self.service),
            has_ipv6_pool: self.has_ipv6_pool(),
        };
        let observation = self.observe_for_preview()?;
        self.check_lb_service(&observation)?;
        let (allocations, _) = self.open_allocations(&observation);
        if let Some(allocation) = allocations.first() {
            return Ok(PlannedStep::of(&Action::ReadAddress(allocation), &[]));
        }
        Ok(planned(&self.targets(&observation, &asked, &ports, members)?))
    }

    /// Returns the first step of a deletion.
    ///
    /// # Errors
    /// The refusal with which the deletion would end before its plan.
    pub fn preview_of_deletion(&self) -> Result<PlannedStep, Error> {
        let asked = RequestedFamilies { families: &service_request::families_of(self.service), has_ipv6_pool: false };
        let observation = self.observe_for_preview()?;
        if let Some(allocation) = self.undecided(&observation).first() {
            return Ok(PlannedStep::of(&Action::ReadAddress(allocation), &[]));
        }
        Ok(planned(&self.targets_of_deletion(&observation, &asked)))
    }

    /// Observes as a call that writes does, and reports nothing.
    fn observe_for_preview(&self) -> Result<CallObservation, Error> {
        let observation = self.observe_by(&self.nodes);
        self.check_nodes_are_known(&observation)?;
        Ok(observation)
    }
}

/// Returns the next step for these load balancers of one Service.
pub(in crate::providers::vsphere::nsx::load_balancer) fn planned(targets: &[FamilyTarget<'_>]) -> PlannedStep {
    let planned = match next(targets) {
        Some((target, step)) => PlannedStep::of(&step, &target.desired.members),
        None => PlannedStep::default(),
    };
    let wanted = || targets.iter().filter(|target| target.balancer.is_wanted && target.spec.is_some());
    let is_done = planned.step.is_none();
    PlannedStep {
        desired_members: Some(targets.iter().map(|target| target.desired.members.len()).sum()),
        addresses: wanted().filter_map(FamilyTarget::address).collect(),
        adopted_as_is: is_done.then(|| ignored_settings(wanted())).flatten(),
        ..planned
    }
}

impl PlannedStep {
    fn of(step: &Action<'_>, members: &[Member]) -> Self {
        let changes = match step {
            Action::Update { resource, desired } => changes(resource, desired, members),
            Action::PortConflict { port, server } => {
                vec![format!("port {} is taken by {}", port.port, server.tags.path)]
            }
            _ => Vec::new(),
        };
        Self { step: Some(step.to_string()), kind: Some(StepKind::of(step)), changes, ..Self::default() }
    }
}

/// Returns the properties that differ between an object and its desired state. The desired state of a pool does not
/// have the desired `members`.
fn changes(resource: &Resource, desired: &Resource, members: &[Member]) -> Vec<String> {
    let mut changes = Vec::new();
    let mut compare = |name: &str, present: String, wanted: String| {
        if present != wanted {
            changes.push(format!("{name}: {present}, expected {wanted}"));
        }
    };
    let (present, wanted) = (&resource.spec, &desired.spec);
    compare("port", text(resource.tags.port), text(desired.tags.port));
    compare("address", text(resource.address), text(desired.address));
    compare("number of the port", text(present.number), text(wanted.number));
    compare("node port", text(present.node_port), text(wanted.node_port));
    compare("application profile", path(&present.profile), path(&wanted.profile));
    compare("restricted to source ranges", present.is_restricted.to_string(), wanted.is_restricted.to_string());
    // The SNAT of an object of another program is not compared, and stays.
    if wanted.is_snat_disabled.is_some() {
        compare("SNAT disabled", text(present.is_snat_disabled), text(wanted.is_snat_disabled));
    }
    let monitor_type = |one: &ResourceSpec| text(one.monitor_type.map(MonitorType::resource_type));
    compare("type", monitor_type(present), monitor_type(wanted));
    compare("HTTP version", version(present), version(wanted));
    compare("source ranges", ranges(resource), ranges(desired));
    let timeout = |one: &ResourceSpec| text(one.timeout.map(|timeout| format!("{} s", timeout.as_secs())));
    compare("timeout", timeout(present), timeout(wanted));
    for kind in [ObjectKind::Pool, ObjectKind::Monitor, ObjectKind::Group, ObjectKind::PersistenceProfile] {
        compare(kind.name(), path(resource.reference(kind)), path(desired.reference(kind)));
    }
    if resource.kind == ObjectKind::Pool {
        // A pool keeps unconfirmed addresses but never gains them.
        let confirmed: BTreeSet<IpAddr> =
            members.iter().filter(|one| one.is_confirmed).map(|one| one.address).collect();
        let all: BTreeSet<IpAddr> = members.iter().map(|one| one.address).collect();
        changes.extend(addresses("lacks", confirmed.difference(&present.members)));
        changes.extend(addresses("has besides", present.members.difference(&all)));
    }
    changes
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// Returns the version of the requests of a monitor.
fn version(spec: &ResourceSpec) -> String {
    if spec.has_other_version { "another one".to_owned() } else { REQUEST_VERSION.to_owned() }
}

fn path(path: &str) -> String {
    if path.is_empty() { "none".to_owned() } else { path.to_owned() }
}

fn ranges(resource: &Resource) -> String {
    let ranges = resource.spec.ranges.iter().flatten();
    let ranges: Vec<String> = ranges.map(ToString::to_string).collect();
    if ranges.is_empty() { "none".to_owned() } else { ranges.join(", ") }
}

/// Returns the first of these addresses, and the number of the others; `None` without any.
fn addresses<'a>(relation: &str, addresses: impl Iterator<Item = &'a IpAddr>) -> Option<String> {
    let all: Vec<String> = addresses.map(ToString::to_string).collect();
    let shown = all.get(..MAX_ADDRESSES).unwrap_or(&all).join(", ");
    let more = match all.len().saturating_sub(MAX_ADDRESSES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!all.is_empty()).then(|| format!("{relation} the members {shown}{more}"))
}
