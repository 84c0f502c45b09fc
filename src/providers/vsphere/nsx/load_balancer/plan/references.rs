//! Pure: the group of source ranges and the persistence profile of a Service, which its virtual servers refer to.
//!
//! Most lists do not include these objects, so the plan uses reads by path and the writes of this program. A create
//! needs no read, because a create returns an existing object.

use super::port_states::{PortState, PortStates};
use super::{CurrentState, DesiredLoadBalancer, Step};
use crate::providers::vsphere::nsx::load_balancer::layout::{GROUPS, ObjectKind, PERSISTENCE_PROFILES, has_own_form};
use crate::providers::vsphere::nsx::load_balancer::objects::{
    Group, PersistenceProfile, ServiceResources, VirtualServer,
};
use crate::providers::vsphere::nsx::load_balancer::service_request::SourceRanges;

/// Change of a reference in a virtual server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// Keeps the current reference.
    Unchanged,
    /// Removes the reference.
    Unset,
    /// Refers to the object at this path.
    Path(&'a str),
}

/// The group and the persistence profile of a Service.
#[derive(Clone, Copy)]
pub struct References<'a> {
    pub group: Option<&'a Group>,
    pub persistence: Option<&'a PersistenceProfile>,
    is_group_needed: bool,
    is_persistence_needed: bool,
}

impl<'a> References<'a> {
    /// Finds the group and the persistence profile. Prefers those that virtual servers refer to.
    pub fn find(rows: &PortStates<'a>, wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Self {
        let servers = || rows.all().filter_map(|row| row.server);
        let groups = known.ours.groups.iter();
        let profiles = known.ours.persistence_profiles.iter();
        let is_needed = rows.all().any(|row| row.is_compared);
        Self {
            group: groups.min_by_key(|one| !servers().any(|server| server.group == one.tags.path)),
            persistence: profiles.min_by_key(|one| !servers().any(|server| server.persistence == one.tags.path)),
            is_group_needed: is_needed && wanted.features.source_ranges.is_some(),
            is_persistence_needed: is_needed && wanted.features.affinity.is_some(),
        }
    }

    /// Returns the path of the group for a new virtual server.
    pub fn group_path(&self) -> Option<&'a str> {
        self.group.filter(|_| self.is_group_needed).map(|group| &*group.tags.path)
    }

    /// Returns the path of the persistence profile for a new virtual server.
    pub fn persistence_path(&self) -> Option<&'a str> {
        self.persistence.filter(|_| self.is_persistence_needed).map(|profile| &*profile.tags.path)
    }

    /// Whether a required group or profile is unknown although the virtual server of this port refers to one.
    pub fn are_missing(&self, row: &PortState<'_>) -> bool {
        row.server.filter(|_| row.is_compared).is_some_and(|server| {
            let lacks_group = self.is_group_needed && self.group.is_none() && !server.group.is_empty();
            let lacks_profile = self.is_persistence_needed && self.persistence.is_none();
            lacks_group || (lacks_profile && !server.persistence.is_empty())
        })
    }

    /// Returns the changes of the group and profile references of a virtual server. A reference stays while the
    /// required object is unknown; both references stay while an object that the virtual server refers to is unknown,
    /// or if `is_compared` is false.
    pub fn of(&self, row: &PortState<'_>, known: &CurrentState<'_>) -> (Reference<'a>, Reference<'a>) {
        let is_read =
            |server: &&VirtualServer| !is_unread(&server.group, known) && !is_unread(&server.persistence, known);
        let Some(server) = row.server.filter(|_| row.is_compared).filter(is_read) else {
            return (Reference::Unchanged, Reference::Unchanged);
        };
        let group = match (self.is_group_needed, self.group_path()) {
            (false, _) if server.group.is_empty() => Reference::Unchanged,
            (false, _) => Reference::Unset,
            (true, None) => Reference::Unchanged,
            (true, Some(path)) if *server.group == *path && server.is_restricted => Reference::Unchanged,
            (true, Some(path)) => Reference::Path(path),
        };
        let persistence = match (self.is_persistence_needed, self.persistence_path()) {
            (false, _) if server.persistence.is_empty() => Reference::Unchanged,
            (false, _) => Reference::Unset,
            (true, None) => Reference::Unchanged,
            (true, Some(path)) if *server.persistence == *path => Reference::Unchanged,
            (true, Some(path)) => Reference::Path(path),
        };
        (group, persistence)
    }

    /// Returns the next read or change of an existing group or persistence profile.
    pub fn change(
        &self,
        rows: &PortStates<'a>,
        wanted: &'a DesiredLoadBalancer,
        known: &CurrentState<'a>,
    ) -> Option<Step<'a>> {
        let mut compared = rows.all().filter(|row| row.is_compared).filter_map(|row| row.server);
        if let Some(read) = compared.find_map(|server| read_of(server, known)) {
            return Some(read);
        }
        let ranges = wanted.features.source_ranges.as_ref().filter(|_| self.is_group_needed);
        let is_other = |(group, ranges): &(&Group, &SourceRanges)| !has_ranges(group, ranges);
        if let Some((group, ranges)) = self.group.zip(ranges).filter(is_other) {
            return Some(Step::ChangeGroup { group, ranges: ranges.networks() });
        }
        let timeout = wanted.features.affinity.filter(|_| self.is_persistence_needed);
        let (profile, timeout) = self.persistence.zip(timeout)?;
        (profile.timeout != Some(timeout)).then_some(Step::ChangePersistenceProfile { profile, timeout })
    }

    /// Returns the step that creates a missing group or persistence profile.
    pub fn creation(&self, wanted: &'a DesiredLoadBalancer) -> Option<Step<'a>> {
        let ranges = wanted.features.source_ranges.as_ref().filter(|_| self.is_group_needed && self.group.is_none());
        let is_missing = self.is_persistence_needed && self.persistence.is_none();
        let timeout = wanted.features.affinity.filter(|_| is_missing);
        let group = ranges.map(|ranges| Step::CreateGroup { ranges: ranges.networks() });
        group.or_else(|| timeout.map(|timeout| Step::CreatePersistenceProfile { timeout }))
    }

    /// Returns the step that deletes a group or persistence profile that is neither needed nor referenced.
    pub fn surplus(&self, known: &CurrentState<'a>) -> Option<Step<'a>> {
        deletion(known, self.group_path(), self.persistence_path())
    }
}

/// Whether a group admits exactly the clients of these ranges.
pub fn has_ranges(group: &Group, ranges: &SourceRanges) -> bool {
    group.ranges.as_ref().is_some_and(|known| ranges.are_in(known))
}

/// Returns the next read of a deletion: the objects that virtual servers refer to or, without virtual servers,
/// leftovers of an interrupted create or deletion. Objects that the Service does not request are only read if
/// `may_have_references` is true.
pub fn read_for_deletion<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let ServiceResources { servers, groups, persistence_profiles, .. } = known.ours;
    if !servers.is_empty() {
        return servers.iter().find_map(|server| read_of(server, known));
    }
    let uid = wanted.service_uid.as_deref()?;
    let path = |kind, parent| format!("{parent}/{}", known.layout.id(kind, uid, None, 0));
    let is_left = |path: &String| !known.read_paths.contains(path.as_str());
    let may_be = |is_asked_for| is_asked_for || wanted.may_have_references;
    let group = may_be(wanted.features.source_ranges.is_some()) && groups.is_empty();
    let group = group.then(|| path(ObjectKind::Group, GROUPS)).filter(is_left);
    let profile = may_be(wanted.features.affinity.is_some()) && persistence_profiles.is_empty();
    let profile = profile.then(|| path(ObjectKind::PersistenceProfile, PERSISTENCE_PROFILES)).filter(is_left);
    let read = |kind| move |path| Step::Read { kind, path };
    group.map(read(ObjectKind::Group)).or_else(|| profile.map(read(ObjectKind::PersistenceProfile)))
}

/// Returns the deletion of a persistence profile or group that no virtual server refers to, except at the given paths.
pub fn deletion<'a>(known: &CurrentState<'a>, group: Option<&str>, persistence: Option<&str>) -> Option<Step<'a>> {
    let is_free = |path: &str, of: fn(&VirtualServer) -> &str| {
        known.ours.servers.iter().chain(&known.ambiguous.servers).all(|server| of(server) != path)
    };
    let is_surplus = |profile: &&PersistenceProfile| {
        let path = &*profile.tags.path;
        persistence != Some(path) && is_free(path, |server| &server.persistence)
    };
    let profile = known.ours.persistence_profiles.iter().find(is_surplus);
    let groups = || {
        let is_surplus =
            |one: &&Group| group != Some(&*one.tags.path) && is_free(&one.tags.path, |server| &server.group);
        known.ours.groups.iter().find(is_surplus)
    };
    profile.map(Step::DeletePersistenceProfile).or_else(|| groups().map(Step::DeleteGroup))
}

/// Returns the read of an object of this program that a virtual server refers to and whose state is unknown.
fn read_of<'a>(server: &VirtualServer, known: &CurrentState<'_>) -> Option<Step<'a>> {
    let all = [(ObjectKind::Group, &server.group), (ObjectKind::PersistenceProfile, &server.persistence)];
    let unread = all.into_iter().find(|(_, path)| is_unread(path, known));
    unread.map(|(kind, path)| Step::Read { kind, path: path.to_string() })
}

/// Whether to read the object at this path: its id has the form of this program, it is neither owned nor ambiguous, and
/// this sync has not read, written or deleted it.
fn is_unread(path: &str, known: &CurrentState<'_>) -> bool {
    let has_own_form = path.rsplit('/').next().is_some_and(has_own_form);
    let is_known = |objects: &ServiceResources| {
        let groups = objects.groups.iter().map(|group| &group.tags.path);
        let profiles = objects.persistence_profiles.iter().map(|profile| &profile.tags.path);
        groups.chain(profiles).any(|known| **known == *path)
    };
    has_own_form && !known.read_paths.contains(path) && !is_known(known.ours) && !is_known(known.ambiguous)
}
