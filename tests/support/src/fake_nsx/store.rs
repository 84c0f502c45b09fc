//! The objects of a manager, and all their versions.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::kinds::Kind;
use super::refusal::Refusal;
use super::schema::Reference;

/// User name in the versions that a purge makes.
pub(super) const PURGE: &str = "purge";

/// One version of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectVersion {
    /// Time of the write.
    pub at: std::time::Instant,
    /// User of the write. For a change by hand it is the user in the argument.
    pub user: String,
    /// Number of the request, as in `Recorded`. `None` for a change by hand and for a purge.
    pub request: Option<u64>,
    /// Path of the object.
    pub path: String,
    /// The object as other users read it. `None` once it is deleted.
    pub object: Option<Value>,
}

/// The user and the request of a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Author<'a> {
    pub(super) user: &'a str,
    /// Whether the objects that it creates are protected from other users.
    pub(super) is_principal: bool,
    pub(super) request: Option<u64>,
}

/// An object. Clients write its body; the manager sets all other fields.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) kind: &'static Kind,
    pub(super) resource_type: &'static str,
    pub(super) path: String,
    pub(super) body: Map<String, Value>,
    pub(super) references: Vec<Reference>,
    pub(super) revision: i64,
    /// Number in the order of creation.
    pub(super) number: u64,
    pub(super) changed: Instant,
    pub(super) unique_id: String,
    pub(super) created: (String, u64),
    pub(super) modified: (String, u64),
    pub(super) is_system_owned: bool,
    /// The principal that protects the object: other users need `X-Allow-Overwrite`.
    pub(super) owner: Option<String>,
    /// Set once it is marked for deletion.
    pub(super) mark: Option<Mark>,
}

/// Times of an object that is marked for deletion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) realized_until: Instant,
    pub(super) purged_at: Instant,
}

impl Stored {
    pub(super) fn id(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn display_name(&self) -> &str {
        self.body.get("display_name").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.body.get(field).and_then(Value::as_str)
    }

    pub(super) fn is_marked(&self) -> bool {
        self.mark.is_some()
    }

    /// Returns true while the network implements the object, which continues for some time after it is marked for
    /// deletion.
    pub(super) fn is_in_effect(&self) -> bool {
        self.mark.is_none_or(|mark| Instant::now() < mark.realized_until)
    }

    /// Returns the object as this user reads it.
    pub(super) fn render(&self, reader: &str) -> Value {
        let is_protected = self.owner.as_deref().is_some_and(|owner| owner != reader);
        let mut object = self.body.clone();
        let manager = json!({
            "resource_type": self.resource_type,
            "id": self.id(),
            "path": self.path,
            "relative_path": self.id(),
            "parent_path": parent(&self.path),
            "unique_id": self.unique_id,
            "realization_id": self.unique_id,
            "marked_for_delete": self.is_marked(),
            "overridden": false,
            "_create_user": self.created.0,
            "_create_time": self.created.1,
            "_last_modified_user": self.modified.0,
            "_last_modified_time": self.modified.1,
            "_system_owned": self.is_system_owned,
            "_protection": if is_protected { "REQUIRE_OVERRIDE" } else { "NOT_PROTECTED" },
            "_revision": self.revision,
        });
        if let Value::Object(manager) = manager {
            object.extend(manager);
        }
        Value::Object(object)
    }
}

/// Returns the path of the parent object, or `/infra`.
pub(super) fn parent(path: &str) -> &str {
    let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
    collection.rsplit_once('/').map_or("", |(parent, _)| parent)
}

#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<String, Stored>,
    history: Vec<ObjectVersion>,
    /// Number of older versions that were dropped.
    forgotten: usize,
    created: u64,
    /// Paths of objects that are marked for deletion, with the time of their purge.
    marks: Vec<(Instant, String)>,
}

#[derive(Debug)]
pub(super) struct ObjectContent {
    pub(super) kind: &'static Kind,
    pub(super) resource_type: &'static str,
    pub(super) body: Map<String, Value>,
    pub(super) references: Vec<Reference>,
}

impl Store {
    /// Returns the object, even if it is marked for deletion.
    pub(super) fn find(&self, path: &str) -> Option<&Stored> {
        self.objects.get(path)
    }

    /// Returns the object, if it is not marked for deletion.
    pub(super) fn get(&self, path: &str) -> Option<&Stored> {
        self.find(path).filter(|stored| !stored.is_marked())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Stored> {
        self.objects.values()
    }

    /// Returns the objects below this path, at any depth.
    pub(super) fn below<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a Stored> + use<'a> {
        let prefix = format!("{path}/");
        let range = self.objects.range(prefix.clone()..);
        range.take_while(move |(path, _)| path.starts_with(&prefix)).map(|(_, stored)| stored)
    }

    /// Returns the objects of a collection below a parent, including those that are marked for deletion.
    pub(super) fn collection<'a>(
        &'a self,
        kind: &'static Kind,
        parent: &str,
    ) -> impl Iterator<Item = &'a Stored> + use<'a> {
        let folder = format!("{parent}/{}", kind.collection());
        self.below(&folder).filter(move |stored| std::ptr::eq(stored.kind, kind))
    }

    /// Returns the versions after the first `seen` ones, without those that were dropped.
    pub(super) fn history(&self, seen: usize) -> &[ObjectVersion] {
        self.history.get(seen.saturating_sub(self.forgotten)..).unwrap_or_default()
    }

    pub(super) fn versions(&self) -> usize {
        self.forgotten + self.history.len()
    }

    /// Drops the first `seen` versions.
    pub(super) fn forget(&mut self, seen: usize) {
        let count = seen.saturating_sub(self.forgotten).min(self.history.len());
        self.history.drain(..count);
        self.forgotten += count;
    }

    /// Creates an object, or replaces its content.
    pub(super) fn write(&mut self, path: &str, content: ObjectContent, author: Author<'_>) -> &Stored {
        let ObjectContent { kind, resource_type, mut body, references } = content;
        let id = path.rsplit('/').next().unwrap_or_default();
        body.entry("display_name").or_insert_with(|| json!(id));
        let now = (author.user.to_owned(), milliseconds());
        let (before, created) = (self.objects.remove(path), self.created);
        let stored = match before {
            Some(before) => {
                let revision = before.revision + 1;
                Stored {
                    resource_type,
                    body,
                    references,
                    revision,
                    changed: Instant::now(),
                    modified: now,
                    mark: None,
                    ..before
                }
            }
            None => Stored {
                kind,
                resource_type,
                path: path.to_owned(),
                body,
                references,
                revision: 0,
                number: created,
                changed: Instant::now(),
                unique_id: uuid::Uuid::new_v4().to_string(),
                created: now.clone(),
                modified: now,
                is_system_owned: false,
                owner: author.is_principal.then(|| author.user.to_owned()),
                mark: None,
            },
        };
        self.created += 1;
        self.note(path, Some(&stored), author);
        self.objects.entry(path.to_owned()).or_insert(stored)
    }

    /// Makes an object system-owned.
    pub(super) fn set_system_owned(&mut self, path: &str) {
        if let Some(stored) = self.objects.get_mut(path) {
            stored.is_system_owned = true;
        }
    }

    /// Returns the error for a path without an object. If a parent is missing, it names the parent.
    pub(super) fn not_found(&self, path: &str) -> Refusal {
        let above = parent(path);
        Refusal::not_found(if above != "/infra" && self.get(above).is_none() { above } else { path })
    }

    pub(super) fn remove(&mut self, path: &str, author: Author<'_>) -> Option<Stored> {
        let removed = self.objects.remove(path)?;
        self.note(path, None, author);
        Some(removed)
    }

    pub(super) fn mark(&mut self, path: &str, mark: Mark, author: Author<'_>) {
        let Some(mut stored) = self.objects.remove(path) else { return };
        stored.mark = Some(mark);
        self.marks.push((mark.purged_at, path.to_owned()));
        self.note(path, Some(&stored), author);
        self.objects.insert(path.to_owned(), stored);
    }

    /// Removes the marked objects whose purge is due.
    pub(super) fn purge(&mut self) {
        let now = Instant::now();
        let (over, marks): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.marks).into_iter().partition(|(at, _)| *at <= now);
        self.marks = marks;
        let is_over = |path: &String| self.find(path).is_some_and(Stored::is_marked);
        let over: Vec<String> = over.into_iter().map(|(_, path)| path).filter(is_over).collect();
        for path in over {
            self.remove(&path, Author { user: PURGE, is_principal: false, request: None });
        }
    }

    fn note(&mut self, path: &str, stored: Option<&Stored>, author: Author<'_>) {
        self.history.push(ObjectVersion {
            at: Instant::now().into_std(),
            user: author.user.to_owned(),
            request: author.request,
            path: path.to_owned(),
            object: stored.map(|stored| stored.render("")),
        });
    }
}

/// Returns the Unix time in milliseconds.
fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
