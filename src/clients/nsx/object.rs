//! Objects of the Policy API as received. A write preserves fields that are unknown to this program.

use std::fmt;

use serde_json::{Map, Value};

/// One object. Every accessor treats a member of an unexpected type as missing.
#[derive(Clone, Default, PartialEq)]
pub struct Object(pub Map<String, Value>);

/// One tag. Both parts may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectTag<'a> {
    /// The scope, at most 128 characters.
    pub scope: &'a str,
    /// The value, at most 256 characters.
    pub tag: &'a str,
}

impl Object {
    /// Returns the approximate memory use, in bytes.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + size_of_members(&self.0)
    }

    /// Returns this member if it is text; otherwise an empty text.
    pub fn text(&self, member: &str) -> &str {
        self.0.get(member).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the entries of this member if it is a list; otherwise an empty list.
    pub fn list(&self, member: &str) -> &[Value] {
        self.0.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the id, which is unique among the objects with the same parent.
    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// Returns the path, such as `/infra/tier-1s/a`.
    pub fn path(&self) -> &str {
        self.text("path")
    }

    /// Returns `_revision`, which a PUT of an existing object must contain.
    pub fn revision(&self) -> Option<i64> {
        self.0.get("_revision").and_then(Value::as_i64)
    }

    /// Whether the object is marked for deletion and NSX has yet to purge it.
    pub fn is_marked_for_delete(&self) -> bool {
        self.0.get("marked_for_delete").and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns the user that created the object, or an empty text if the user is unknown.
    pub fn created_by(&self) -> &str {
        self.text("_create_user")
    }

    /// Returns the tags of the object in the order received. Entries that are not JSON objects are omitted.
    pub fn tags(&self) -> impl Iterator<Item = ObjectTag<'_>> {
        self.list("tags").iter().filter_map(Value::as_object).map(|tag| {
            let part = |name| tag.get(name).and_then(Value::as_str).unwrap_or_default();
            ObjectTag { scope: part("scope"), tag: part("tag") }
        })
    }

    /// Returns the value of the first tag with this scope.
    pub fn tag(&self, scope: &str) -> Option<&str> {
        self.tags().find(|tag| tag.scope == scope).map(|tag| tag.tag)
    }

    /// Replaces the tags.
    pub fn set_tags<'a>(&mut self, tags: impl IntoIterator<Item = ObjectTag<'a>>) {
        let value = |ObjectTag { scope, tag }: ObjectTag<'_>| {
            let mut map = Map::new();
            map.insert("scope".to_owned(), scope.into());
            map.insert("tag".to_owned(), tag.into());
            Value::Object(map)
        };
        let mut all = Vec::new();
        all.extend(tags.into_iter().map(value));
        self.0.insert("tags".to_owned(), Value::Array(all));
    }
}

/// Bytes of a B-tree node of `serde_json`'s map. A node always has eleven slots, even if only about half of them are in
/// use.
const TREE_NODE: usize = 640;

fn size_of_members(members: &Map<String, Value>) -> usize {
    let values: usize = members.iter().map(|(name, value)| name.len() + size_of_value(value)).sum();
    // An empty map also has a node if it had members before.
    values + TREE_NODE * members.len().div_ceil(6).max(1)
}

/// Returns the bytes that a value refers to, without the value itself.
fn size_of_value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(|value| size_of::<Value>() + size_of_value(value)).sum(),
        Value::Object(members) => size_of_members(members),
    }
}

/// Prints only the path or id, because a whole object is long.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.path().is_empty() { self.id() } else { self.path() };
        f.debug_tuple("Object").field(&shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Object, ObjectTag};

    fn object(value: serde_json::Value) -> Object {
        Object(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn l_13_what_has_another_form_than_expected_is_missing() {
        let odd =
            object(json!({"id": 5, "_revision": "1", "tags": [{}, 7, {"scope": "a"}, {"tag": "b"}], "path": null}));
        assert_eq!((odd.id(), odd.path(), odd.revision()), ("", "", None));
        let tags: Vec<_> = odd.tags().collect();
        assert_eq!(
            tags,
            [ObjectTag { scope: "", tag: "" }, ObjectTag { scope: "a", tag: "" }, ObjectTag { scope: "", tag: "b" }]
        );
        assert_eq!(object(json!({"tags": "x"})).tags().count(), 0);
        assert!(!odd.is_marked_for_delete());
    }

    #[test]
    fn tags_are_replaced_and_all_else_stays() {
        let mut one = object(json!({"id": "r", "new_member": [1], "tags": [{"scope": "a", "tag": "b"}]}));
        assert_eq!((one.tag("a"), one.tag("b")), (Some("b"), None));
        one.set_tags([ObjectTag { scope: "c", tag: "d" }]);
        let expected = json!({"id": "r", "new_member": [1], "tags": [{"scope": "c", "tag": "d"}]});
        assert_eq!(one, object(expected));
        assert_eq!(format!("{one:?}"), "Object(\"r\")");
    }
}
