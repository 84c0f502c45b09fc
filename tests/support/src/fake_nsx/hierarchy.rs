//! PATCH of `/infra` with children, the hierarchical API (rule S17): either all children are written, or none.
//!
//! The children are pools: `ChildLBPool` with the whole object. Every other type of child, and a child to delete
//! (`marked_for_delete`), is rejected with 400, because this program sends none.
//!
//! With `enforce_revision_check=true` the revision of each child is checked as in a PUT. Otherwise revisions are
//! ignored. Schema, permission, owner and references of each child are checked as in a PUT. Capacity is checked for all
//! children together.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::call::Call;
use super::kinds::Kind;
use super::refusal::Refusal;
use super::schema::Checked;
use super::world::World;
use super::writes::{Caller, WriteRule};

/// Types of children: the name, the field with the object, and the collection below `/infra`.
const CHILDREN: [(&str, &str, &str); 1] = [("ChildLBPool", "LBPool", "lb-pools")];

struct Child<'a> {
    kind: &'static Kind,
    path: String,
    object: &'a Map<String, Value>,
}

impl World {
    /// Writes all children in the body, or none.
    pub(super) fn patch_infra(&mut self, call: &Call, caller: &Caller) -> Result<(), Refusal> {
        let rule = if is_revision_enforced(call)? { WriteRule::CheckedChild } else { WriteRule::Child };
        let body = call.object()?;
        let children = children(&body)?;
        let mut checked: Vec<(&Child<'_>, Checked)> = Vec::new();
        for child in &children {
            let operation = format!("PATCH {}", child.kind.collection());
            self.access.authorize_operation(&caller.user, &operation, true, &child.path)?;
            checked.push((child, self.check_write(child.kind, &child.path, child.object, rule, caller)?));
        }
        let changes: Vec<_> = checked.iter().map(|(child, checked)| (child.path.as_str(), &checked.body)).collect();
        self.check_capacity(&changes)?;
        for (child, checked) in checked {
            self.commit(child.kind, &child.path, checked, caller);
        }
        Ok(())
    }
}

fn is_revision_enforced(call: &Call) -> Result<bool, Refusal> {
    if let Some((name, _)) = call.query.iter().find(|(name, _)| name != "enforce_revision_check") {
        return Err(Refusal::invalid(format!("{name:?} is no parameter of this request")));
    }
    match call.parameter("enforce_revision_check") {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(Refusal::invalid(format!("\"enforce_revision_check\": {other:?} is no boolean"))),
    }
}

/// Returns the children in the body. Each object may occur once.
fn children(body: &Map<String, Value>) -> Result<Vec<Child<'_>>, Refusal> {
    if body.get("resource_type").is_none_or(|named| named != "Infra") {
        return Err(Refusal::invalid("\"resource_type\": \"Infra\" is expected"));
    }
    if let Some(name) = body.keys().find(|name| !matches!(name.as_str(), "resource_type" | "children")) {
        return Err(unrecognized(name));
    }
    let Some(sent) = body.get("children").and_then(Value::as_array) else {
        return Err(Refusal::invalid("\"children\": a list is expected"));
    };
    let children = sent.iter().enumerate().map(|(index, value)| child(&format!("children[{index}]"), value));
    let children: Vec<Child<'_>> = children.collect::<Result<_, _>>()?;
    let mut paths = BTreeSet::new();
    match children.iter().find(|child| !paths.insert(&child.path)) {
        Some(child) => Err(Refusal::invalid(format!("\"children\": {} occurs twice", child.path))),
        None => Ok(children),
    }
}

fn child<'a>(at: &str, value: &'a Value) -> Result<Child<'a>, Refusal> {
    let Some(fields) = value.as_object() else {
        return Err(Refusal::invalid(format!("\"{at}\": an object is expected")));
    };
    let named = fields.get("resource_type").and_then(Value::as_str).unwrap_or_default();
    let Some((_, field, collection)) = CHILDREN.iter().find(|(name, ..)| *name == named) else {
        return Err(Refusal::invalid(format!("\"{at}.resource_type\": {named:?} is no child that this manager takes")));
    };
    if let Some(name) = fields.keys().find(|name| *name != "resource_type" && name != field) {
        return Err(unrecognized(&format!("{at}.{name}")));
    }
    let Some(object) = fields.get(*field).and_then(Value::as_object) else {
        return Err(Refusal::invalid(format!("\"{at}.{field}\": an object is expected")));
    };
    if object.get("marked_for_delete").is_some_and(|marked| *marked != Value::Bool(false)) {
        return Err(Refusal::invalid(format!("\"{at}.{field}.marked_for_delete\": this manager deletes no children")));
    }
    let id = object.get("id").and_then(Value::as_str).filter(|id| !id.is_empty() && !id.contains('/'));
    let (Some(id), Some(kind)) = (id, Kind::of(&[collection])) else {
        return Err(Refusal::invalid(format!("\"{at}.{field}.id\": is required")));
    };
    Ok(Child { kind, path: format!("/infra/{collection}/{id}"), object })
}

fn unrecognized(field: &str) -> Refusal {
    Refusal::new(400, 220, format!("Json parse error: Unrecognized field \"{field}\""))
}
