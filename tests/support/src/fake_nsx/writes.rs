//! PUT, PATCH and DELETE of objects (rules S2 to S8, S11, S14).

use std::net::IpAddr;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::behaviour::{Conflict, Deletion};
use super::call::{Call, Method};
use super::kinds::Kind;
use super::pools;
use super::refusal::Refusal;
use super::schema::{self, Checked, Reference};
use super::server_fields;
use super::store::{Author, Mark, ObjectContent, Stored, parent};
use super::world::World;

#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) user: String,
    pub(super) is_principal: bool,
    /// Whether the request has `X-Allow-Overwrite: true`.
    pub(super) overrides: bool,
    pub(super) request: u64,
}

impl Caller {
    fn author(&self) -> Author<'_> {
        Author { user: &self.user, is_principal: self.is_principal, request: Some(self.request) }
    }
}

/// Rule about the revision of a write, and whether the write may merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteRule {
    /// An existing object needs its revision. The body replaces it.
    Put,
    /// The switches of [`super::Behaviour`] for PATCH apply.
    Patch,
    /// A child of a PATCH of `/infra`. Its revision is ignored.
    Child,
    /// A child of a PATCH of `/infra` with `enforce_revision_check`. Its revision is checked as in a PUT.
    CheckedChild,
}

impl World {
    /// Serves PUT, which returns the object, and PATCH, which returns nothing.
    pub(super) fn put(
        &mut self,
        kind: &'static Kind,
        path: &str,
        call: &Call,
        caller: &Caller,
    ) -> Result<Option<Value>, Refusal> {
        if kind.is_read_only {
            return Err(Refusal::method_not_allowed());
        }
        let above = parent(path);
        if above != "/infra" && self.store.get(above).is_none() {
            return Err(Refusal::not_found(above));
        }
        let sent = call.object()?;
        let existing = self.store.find(path).filter(|stored| !stored.is_marked());
        let is_patch = call.method == Method::Patch;
        if kind.collection() == "ip-allocations" && existing.is_some() {
            schema::check(kind, call.id(), &sent, existing.map(|stored| &stored.body))?;
            return Ok(existing.filter(|_| !is_patch).map(|stored| self.read(stored, &caller.user)));
        }
        let is_swallowed = is_patch && self.behaviour.swallows_marked_allocation;
        if kind.collection() == "ip-allocations" && is_swallowed && self.store.find(path).is_some() {
            return Ok(None);
        }
        let rule = if is_patch { WriteRule::Patch } else { WriteRule::Put };
        let checked = self.check_write(kind, path, &sent, rule, caller)?;
        self.check_capacity(&[(path, &checked.body)])?;
        self.commit(kind, path, checked, caller);
        let stored = self.store.find(path).filter(|_| !is_patch);
        Ok(stored.map(|stored| self.read(stored, &caller.user)))
    }

    /// Makes all checks of a write except for capacity.
    pub(super) fn check_write(
        &self,
        kind: &'static Kind,
        path: &str,
        sent: &Map<String, Value>,
        rule: WriteRule,
        caller: &Caller,
    ) -> Result<Checked, Refusal> {
        let existing = self.store.find(path);
        if existing.is_some_and(Stored::is_marked) {
            return Err(Refusal::is_marked(path));
        }
        let body = match existing {
            Some(stored) if rule != WriteRule::Put && self.behaviour.patch_merges => merged(stored, sent),
            _ => sent.clone(),
        };
        let id = path.rsplit('/').next().unwrap_or_default();
        let checked = schema::check(kind, id, &body, existing.map(|stored| &stored.body))?;
        if let Some(stored) = existing.filter(|stored| stored.resource_type != checked.variant.name) {
            return Err(Refusal::invalid(format!("\"resource_type\": {path} is a {}", stored.resource_type)));
        }
        check_owner(existing, path, caller)?;
        self.check_revision(existing, path, sent, rule)?;
        self.check_references(&checked.references)?;
        self.check_constraints(kind, path, &checked)?;
        Ok(checked)
    }

    /// Writes the checked object.
    pub(super) fn commit(&mut self, kind: &'static Kind, path: &str, mut checked: Checked, caller: &Caller) {
        self.place(path, &mut checked.body);
        let wish = checked.body.get("allocation_ip").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let mut body = checked.body;
        if self.behaviour.fills_in {
            server_fields::fill_in(kind, path, &mut body);
        }
        let (resource_type, references) = (checked.variant.name, checked.references);
        let content = ObjectContent { kind, resource_type, body, references };
        self.note_realized(path);
        self.store.write(path, content, caller.author());
        self.allocate(kind, path, wish);
    }

    /// Sets the first address of a subnet of a block.
    pub(super) fn place(&self, path: &str, body: &mut Map<String, Value>) {
        if let Some(start) = pools::carve(&self.store, path, body) {
            body.insert("start_ip".to_owned(), start.to_string().into());
        }
    }

    /// Assigns an address to a new allocation.
    pub(super) fn allocate(&mut self, kind: &Kind, path: &str, wish: Option<IpAddr>) {
        if kind.collection() == "ip-allocations" && self.pools.assigned(path).is_none() {
            self.pools.assign(&self.store, path, wish, self.behaviour.accepts_any_wish);
        }
    }

    fn check_revision(
        &self,
        existing: Option<&Stored>,
        path: &str,
        sent: &Map<String, Value>,
        rule: WriteRule,
    ) -> Result<(), Refusal> {
        if rule == WriteRule::Child {
            return Ok(());
        }
        let is_patch = rule == WriteRule::Patch;
        let revision = sent.get("_revision").and_then(Value::as_i64);
        let Some(stored) = existing else {
            // An update of an object that no longer exists.
            return match revision {
                Some(_) if rule == WriteRule::CheckedChild && self.behaviour.creates_absent_children => Ok(()),
                Some(revision) if !is_patch => {
                    Err(Refusal::new(404, 500_090, format!("The object {path} with revision {revision} is unknown.")))
                }
                _ => Ok(()),
            };
        };
        let is_stale = match revision {
            Some(revision) if is_patch => self.behaviour.refuses_stale_patch && revision != stored.revision,
            Some(revision) => revision != stored.revision,
            None => !is_patch || self.behaviour.patch_needs_revision,
        };
        if !is_stale {
            return Ok(());
        }
        let message = format!("The object {path} was modified by somebody else: its revision is {}.", stored.revision);
        Err(match self.behaviour.conflict {
            _ if revision.is_none() && (is_patch || self.behaviour.exists_with_500127) => {
                Refusal::new(400, 500_127, message)
            }
            Conflict::PreconditionFailed => Refusal::new(412, 206, message),
            Conflict::ConcurrentChange => Refusal::new(409, None, message),
            Conflict::BadRequest(_) if revision.is_none() => Refusal::new(400, 500_127, message),
            Conflict::BadRequest(code) => Refusal::new(400, code, message),
        })
    }

    fn check_references(&self, references: &[Reference]) -> Result<(), Refusal> {
        let is_there = |(path, collections): &&Reference| {
            self.store.get(path).is_some_and(|stored| collections.contains(&stored.kind.collection()))
        };
        references
            .iter()
            .find(|reference| !is_there(reference))
            .map_or(Ok(()), |(path, _)| Err(Refusal::missing_reference(path, self.behaviour.missing_with_500012)))
    }

    /// Deletes an object, or marks it for deletion.
    pub(super) fn delete(
        &mut self,
        kind: &'static Kind,
        path: &str,
        call: &Call,
        caller: &Caller,
    ) -> Result<(), Refusal> {
        if kind.is_read_only {
            return Err(Refusal::method_not_allowed());
        }
        if self.behaviour.refuses_second_delete && self.store.find(path).is_some_and(Stored::is_marked) {
            return Err(Refusal::is_marked(path));
        }
        let stored = self.store.get(path).ok_or_else(|| self.store.not_found(path))?;
        check_owner(Some(stored), path, caller)?;
        let users = self.users_of(stored);
        let is_forced = kind.is_forcible && call.parameter("force") == Some("true");
        if !users.is_empty() && !is_forced {
            return Err(Refusal::is_referenced(path, &users));
        }
        self.end(path, caller.author());
        Ok(())
    }

    /// Removes or marks an object, and releases its address.
    pub(super) fn end(&mut self, path: &str, author: Author<'_>) {
        self.over_capacity.remove(path);
        match self.behaviour.deletion {
            Deletion::AtOnce => drop(self.store.remove(path, author)),
            Deletion::Marked { realized_for, purged_after } => {
                let now = Instant::now();
                let mark = Mark { realized_until: now + realized_for, purged_at: now + purged_after };
                self.store.mark(path, mark, author);
            }
        }
        self.pools.release(&self.store, path);
    }

    /// Returns the children of the object and the objects that refer to it.
    fn users_of(&self, stored: &Stored) -> Vec<String> {
        let counts = |other: &&Stored| self.behaviour.marked_objects_refer || !other.is_marked();
        let children = self.store.below(&stored.path).filter(counts);
        let refers = |other: &&Stored| other.references.iter().any(|(path, _)| *path == stored.path);
        let referring = self.store.all().filter(counts).filter(refers);
        let mut users: Vec<String> = children.chain(referring).map(|user| user.path.clone()).collect();
        if stored.kind.collection() == "ip-subnets" {
            users.extend(self.pools.users_of(stored));
        }
        users
    }
}

/// Returns the object with the fields of a PATCH.
fn merged(stored: &Stored, sent: &Map<String, Value>) -> Map<String, Value> {
    let mut body = stored.body.clone();
    body.insert("resource_type".to_owned(), stored.resource_type.into());
    body.extend(sent.clone());
    body
}

fn check_owner(existing: Option<&Stored>, path: &str, caller: &Caller) -> Result<(), Refusal> {
    match existing.and_then(|stored| stored.owner.as_deref()) {
        Some(owner) if owner != caller.user && !caller.overrides => Err(Refusal::protected(&caller.user, path, owner)),
        _ => Ok(()),
    }
}
