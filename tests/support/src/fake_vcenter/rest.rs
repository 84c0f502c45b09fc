//! REST in the `/rest` framing: sessions, tags, and errors as JSON.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::World;
use super::fault::Trouble;
use super::inventory::Ref;
use crate::fake_server::http::{Reply, Request};

/// Categories, tags and their attachments.
#[derive(Clone, Debug, Default)]
pub(super) struct Tagging {
    /// Names by id.
    categories: BTreeMap<String, String>,
    tags: BTreeMap<String, Tag>,
    /// Categories that the account may not see.
    pub(super) hidden_categories: BTreeSet<String>,
    /// Whether every list of attachments is empty, as for an account that may not read the tags of any object.
    pub(super) hides_attachments: bool,
}

#[derive(Clone, Debug)]
struct Tag {
    name: String,
    category: String,
    objects: Vec<Ref>,
}

impl Tagging {
    pub(super) fn add(&mut self, category: &str, name: &str, objects: Vec<Ref>) {
        let category_id = format!("urn:vmomi:InventoryServiceCategory:{category}:GLOBAL");
        self.categories.insert(category_id.clone(), category.to_owned());
        let id = format!("urn:vmomi:InventoryServiceTag:{category}-{name}:GLOBAL");
        self.tags.insert(id, Tag { name: name.to_owned(), category: category_id, objects });
    }

    fn named(&mut self, category: &str, name: &str) -> &mut Tag {
        let id = format!("urn:vmomi:InventoryServiceTag:{category}-{name}:GLOBAL");
        self.tags.get_mut(&id).unwrap_or_else(|| panic!("the fake has no tag {name} of {category}"))
    }

    /// Renames a tag. Its id keeps the original name.
    pub(super) fn rename(&mut self, category: &str, name: &str, to: &str) {
        to.clone_into(&mut self.named(category, name).name);
    }

    pub(super) fn delete(&mut self, category: &str, name: &str) {
        self.tags.remove(&format!("urn:vmomi:InventoryServiceTag:{category}-{name}:GLOBAL"));
    }

    pub(super) fn attach(&mut self, category: &str, name: &str, object: Ref) {
        self.named(category, name).objects.push(object);
    }

    fn is_visible(&self, category_id: &str) -> bool {
        self.categories.get(category_id).is_some_and(|name| !self.hidden_categories.contains(name))
    }

    fn visible_tags(&self) -> impl Iterator<Item = (&String, &Tag)> {
        self.tags.iter().filter(|(_, tag)| self.is_visible(&tag.category))
    }

    fn attached(&self) -> impl Iterator<Item = (&String, &Tag)> {
        self.visible_tags().filter(|_| !self.hides_attachments)
    }
}

/// Returns the operation name under which a request is counted, as in the simulator.
pub(super) fn operation(request: &Request) -> String {
    let path = request.path.trim_start_matches("/rest/com/vmware/cis/");
    let (path, action) = path.split_once("?~action=").unwrap_or((path, ""));
    let name = match (request.method.as_str(), path.split_once("/id:").map_or(path, |(path, _)| path)) {
        ("POST", "session") => "session-login",
        ("DELETE", "session") => "session-logout",
        ("GET", "tagging/category") if path.contains("/id:") => "get-category",
        ("GET", "tagging/category") => "list-categories",
        ("GET", "tagging/tag") => "get-tag",
        _ => action,
    };
    format!("REST:{name}")
}

fn error(status: u16, kind: &str) -> Reply {
    match Trouble::rest(status, kind, &format!("fake.{kind}")) {
        Trouble::Status(status, media_type, body) => Reply::new(status, media_type, body),
        other => unreachable!("{other:?} is no status"),
    }
}

fn value(value: &Value) -> Reply {
    Reply::new(200, "application/json", json!({ "value": value }).to_string())
}

fn reference(object: &Value) -> Ref {
    Ref::new(object["type"].as_str().unwrap_or_default(), object["id"].as_str().unwrap_or_default())
}

impl World {
    pub(super) fn rest(&mut self, operation: &str, request: &Request) -> Reply {
        let operation = operation.trim_start_matches("REST:");
        if operation == "session-login" {
            return self.rest_login(request);
        }
        let session = request.header("vmware-api-session-id").unwrap_or_default();
        if !self.rest_sessions.contains(session) {
            return error(401, "unauthenticated");
        }
        if operation == "session-logout" {
            self.rest_sessions.remove(session);
            return value(&json!({}));
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let id = path.split_once("/id:").map_or("", |(_, id)| id);
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        let asked = |name: &str| body[name].as_array().cloned().unwrap_or_default();
        let tagging = &self.tagging;
        match operation {
            "list-categories" => {
                value(&tagging.categories.keys().filter(|id| tagging.is_visible(id)).cloned().collect())
            }
            "get-category" => match tagging.categories.get(id).filter(|_| tagging.is_visible(id)) {
                Some(name) => value(&json!({"id": id, "name": name, "description": "", "cardinality": "SINGLE",
                    "associable_types": [], "used_by": []})),
                None => error(404, "not_found"),
            },
            "get-tag" => match tagging.visible_tags().find(|(known, _)| *known == id) {
                Some((id, tag)) => value(&json!({"id": id, "name": tag.name, "description": "",
                    "category_id": tag.category, "used_by": []})),
                None => error(404, "not_found"),
            },
            "list-tags-for-category" if !tagging.is_visible(id) => error(404, "not_found"),
            "list-tags-for-category" => {
                let of_category = tagging.visible_tags().filter(|(_, tag)| tag.category == id);
                value(&of_category.map(|(id, _)| id.clone()).collect())
            }
            "list-attached-objects-on-tags" => {
                let wanted = asked("tag_ids");
                let tags = tagging.attached().filter(|(id, _)| wanted.iter().any(|wanted| wanted == *id));
                let object = |object: &Ref| json!({"id": object.id, "type": object.kind});
                let row = |(id, tag): (&String, &Tag)| json!({"tag_id": id, "object_ids": tag.objects.iter().map(object).collect::<Vec<_>>()});
                value(&tags.filter(|(_, tag)| !tag.objects.is_empty()).map(row).collect())
            }
            "list-attached-tags-on-objects" => {
                let tags_of = |object: &Value| {
                    let on = reference(object);
                    let tags = tagging.attached().filter(|(_, tag)| tag.objects.contains(&on));
                    tags.map(|(id, _)| id.clone()).collect::<Vec<_>>()
                };
                let rows = asked("object_ids").into_iter().map(|object| (tags_of(&object), object));
                let rows = rows.filter(|(tags, _)| !tags.is_empty());
                value(&rows.map(|(tags, object)| json!({"object_id": object, "tag_ids": tags})).collect())
            }
            _ => error(404, "operation_not_found"),
        }
    }

    fn rest_login(&mut self, request: &Request) -> Reply {
        let expected = format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)));
        if request.header("authorization") != Some(&expected) {
            self.counts.rest_refusals += 1;
            return error(401, "unauthenticated");
        }
        let id = self.next_id();
        self.rest_sessions.insert(id.clone());
        self.counts.rest_logins += 1;
        self.counts.most_rest_sessions = self.counts.most_rest_sessions.max(self.rest_sessions.len());
        value(&json!(id))
    }

    /// Updates the attachments after objects got other ids.
    pub(super) fn renumber(&mut self) {
        self.inventory.renumber();
        let objects = self.tagging.tags.values_mut().flat_map(|tag| &mut tag.objects);
        objects.for_each(|object| object.id.push_str("-9"));
    }
}
