//! Pure: the group of source ranges and the persistence profile of a Service, which its virtual servers refer to.
//!
//! Most lists do not include these objects, so the plan uses reads by path and the writes of this program. A create
//! needs no read, because a create returns an existing object.

use super::port_states::{PortState, PortStates};
use super::{Action, CurrentState, DesiredLoadBalancer};
use crate::providers::vsphere::nsx::load_balancer::layout::{ObjectKind, has_own_form};
use crate::providers::vsphere::nsx::load_balancer::resource::{Resource, ServiceResources};
use crate::providers::vsphere::nsx::load_balancer::service_request::Features;

const KINDS: [ObjectKind; 2] = [ObjectKind::Group, ObjectKind::PersistenceProfile];

/// The group and the persistence profile of a Service.
pub struct References<'a>([ReferenceState<'a>; 2]);

struct ReferenceState<'a> {
    kind: ObjectKind,
    /// The existing object.
    found: Option<&'a Resource>,
    /// The object to create, or the properties to enforce; `None` if the Service does not need the object.
    desired: Option<Resource>,
}

impl<'a> ReferenceState<'a> {
    /// Returns the path of the existing object, if the Service needs it.
    fn path(&self) -> Option<&'a str> {
        self.found.filter(|_| self.desired.is_some()).map(|one| &*one.tags.path)
    }
}

impl<'a> References<'a> {
    /// Finds the group and the persistence profile. Prefers those that virtual servers refer to.
    pub fn find(rows: &PortStates<'a>, desired: &DesiredLoadBalancer, current: &CurrentState<'a>) -> Self {
        let is_used = |one: &Resource| rows.all().filter_map(|row| row.server).any(|of| of.refers_to(&one.tags.path));
        let is_needed = rows.all().any(|row| row.is_compared);
        Self(KINDS.map(|kind| ReferenceState {
            kind,
            found: current.ours.of_kind(kind).min_by_key(|one| !is_used(one)),
            desired:
                (is_needed && has_reference(&desired.features, kind)).then(|| with_features(kind, &desired.features)),
        }))
    }

    /// Whether the Service needs this object.
    pub fn need(&self, resource: &Resource) -> bool {
        self.0.iter().any(|one| one.path() == Some(&*resource.tags.path))
    }

    /// Whether a required group or profile is unknown although the virtual server of this port refers to one.
    pub fn are_missing(&self, row: &PortState<'_>) -> bool {
        row.server.filter(|_| row.is_compared).is_some_and(|server| {
            let is_missing = |one: &ReferenceState<'_>| one.desired.is_some() && one.found.is_none();
            self.0.iter().any(|one| is_missing(one) && !server.reference(one.kind).is_empty())
        })
    }

    /// Sets the references of a new virtual server.
    pub fn refer(&self, server: &mut Resource) {
        for one in &self.0 {
            if let Some(path) = one.path() {
                refer(server, one.kind, path);
            }
        }
    }

    /// Sets the references of an existing virtual server. A reference stays while the required object is unknown; both
    /// references stay while an object that the virtual server refers to is unknown, or if `is_compared` is false.
    pub fn apply(&self, row: &PortState<'_>, current: &CurrentState<'_>, desired: &mut Resource) {
        if !row.is_compared || KINDS.iter().any(|kind| is_unread(desired.reference(*kind), current)) {
            return;
        }
        for one in &self.0 {
            if one.desired.is_none() && !desired.reference(one.kind).is_empty() {
                refer(desired, one.kind, "");
            }
        }
        self.refer(desired);
    }

    /// Returns the next read or change of an existing group or persistence profile.
    pub fn change(
        &self,
        rows: &PortStates<'a>,
        desired: &DesiredLoadBalancer,
        current: &CurrentState<'a>,
    ) -> Option<Action<'a>> {
        let mut compared = rows.all().filter(|row| row.is_compared).filter_map(|row| row.server);
        if let Some(read) = compared.find_map(|server| read_of(server, current)) {
            return Some(read);
        }
        self.0.iter().find_map(|one| {
            let (found, enforced) = one.found.zip(one.desired.as_ref())?;
            let changed = Resource { spec: enforced.spec.clone(), ..found.clone() };
            (!has_features(found, &desired.features)).then(|| Action::update(found, changed))
        })
    }

    /// Returns the step that creates a missing group or persistence profile.
    pub fn creation(&self) -> Option<Action<'a>> {
        let missing = self.0.iter().find_map(|one| one.desired.as_ref().filter(|_| one.found.is_none()))?;
        Some(Action::Create(Box::new(missing.clone())))
    }
}

/// Makes a virtual server refer to a group, which restricts access, or to a persistence profile; to none if `path` is
/// empty.
fn refer(server: &mut Resource, kind: ObjectKind, path: &str) {
    server.set_reference(kind, path);
    if kind == ObjectKind::Group {
        server.spec.is_restricted = !path.is_empty();
    }
}

/// Whether features need an object of this kind.
pub fn has_reference(features: &Features, kind: ObjectKind) -> bool {
    match kind {
        ObjectKind::Group => features.source_ranges.is_some(),
        ObjectKind::PersistenceProfile => features.affinity.is_some(),
        _ => false,
    }
}

/// Returns the object to create for features.
fn with_features(kind: ObjectKind, features: &Features) -> Resource {
    let mut new = Resource::new(kind, None);
    match kind {
        ObjectKind::Group => new.spec.ranges = features.source_ranges.as_ref().map(|ranges| ranges.networks().clone()),
        _ => new.spec.timeout = features.affinity,
    }
    new
}

/// Whether a group admits exactly the requested clients, or a persistence profile has the requested timeout.
pub fn has_features(resource: &Resource, features: &Features) -> bool {
    match (resource.kind, &features.source_ranges, &resource.spec.ranges) {
        (ObjectKind::Group, Some(wanted), Some(ranges)) => wanted.are_in(ranges),
        (ObjectKind::Group, ..) => false,
        _ => resource.spec.timeout == features.affinity,
    }
}

/// Returns the next read of a deletion: the objects that virtual servers refer to or, without virtual servers,
/// leftovers of an interrupted create or deletion. Objects that the Service does not request are only read if
/// `may_have_references` is true.
pub fn read_for_deletion<'a>(desired: &DesiredLoadBalancer, current: &CurrentState<'a>) -> Option<Action<'a>> {
    if current.ours.has(ObjectKind::VirtualServer) {
        return current.ours.servers().find_map(|server| read_of(server, current));
    }
    let uid = desired.service_uid.as_deref()?;
    let may_be = |kind| desired.may_have_references || has_reference(&desired.features, kind);
    let kinds = KINDS.into_iter().filter(|kind| may_be(*kind) && !current.ours.has(*kind));
    let mut all = kinds.map(|kind| (kind, format!("{}/{}", kind.parent(), current.layout.id(kind, uid, None, 0))));
    let (kind, path) = all.find(|(_, path)| !current.settled_paths.contains(path.as_str()))?;
    Some(Action::Read { kind, path })
}

/// Returns the read of an object of this program that a virtual server refers to and whose state is unknown.
fn read_of<'a>(server: &Resource, current: &CurrentState<'_>) -> Option<Action<'a>> {
    let kind = KINDS.into_iter().find(|kind| is_unread(server.reference(*kind), current))?;
    Some(Action::Read { kind, path: server.reference(kind).to_owned() })
}

/// Whether to read the object at this path: its id has the form of this program, it is neither owned nor ambiguous, and
/// this sync has not read, written or deleted it.
fn is_unread(path: &str, current: &CurrentState<'_>) -> bool {
    let has_own_form = path.rsplit('/').next().is_some_and(has_own_form);
    let is_known = |objects: &ServiceResources| objects.at(path).is_some();
    has_own_form && !current.settled_paths.contains(path) && !is_known(current.ours) && !is_known(current.ambiguous)
}
