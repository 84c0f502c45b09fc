//! Pure: matches datacenters against the `datacenters` of a vCenter entry.
//!
//! A search covers the whole vCenter, and its results are filtered here. Mirrors
//! `pkg/common/vclib/datacenter.go:GetAllDatacenter`: an item is a name (glob), an inventory path, or a managed object
//! id.

use std::sync::Arc;

use super::snapshot::{Datacenter, Entity, Snapshot};
use crate::base::glob;
use crate::clients::vim::{ObjectContent, Value, decode_name};

/// Whether `datacenter` matches one of `items`. Blank items are ignored. Without items, every datacenter matches.
pub fn covers(items: &[String], datacenter: &Datacenter) -> bool {
    let mut items = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty()).peekable();
    items.peek().is_none() || items.any(|item| matches(item, datacenter))
}

/// Returns the items (except blank items) that match none of `datacenters`, which must be the complete list.
pub fn without_datacenter<'i>(items: &'i [String], datacenters: &[Datacenter]) -> Vec<&'i str> {
    let items = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty());
    items.filter(|item| !datacenters.iter().any(|datacenter| matches(item, datacenter))).collect()
}

/// Returns the datacenters among `objects`, sorted by path. The objects need `name` and `parent`, and must include the
/// folders above the datacenters.
pub fn datacenters(objects: &[ObjectContent]) -> Vec<Datacenter> {
    let entity = |content: &ObjectContent| Entity {
        name: content.property("name").and_then(Value::as_str).map(decode_name).unwrap_or_default(),
        parent: content.property("parent").and_then(Value::as_ref).cloned(),
        ..Entity::default()
    };
    let entities = objects.iter().map(|content| (content.object.clone(), entity(content))).collect();
    let above = Snapshot { entities: Arc::new(entities), ..Snapshot::default() };
    let all = objects.iter().map(|content| &content.object).filter(|object| object.kind() == "Datacenter");
    let mut found: Vec<Datacenter> = all.map(|object| above.datacenter_at(&above.chain(object))).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn matches(item: &str, datacenter: &Datacenter) -> bool {
    if item == datacenter.id || item.strip_prefix("Datacenter:") == Some(datacenter.id.as_str()) {
        return true;
    }
    if item.contains('/') {
        let wanted: Vec<&str> = item.split('/').filter(|part| !part.is_empty()).collect();
        // The item may begin with the root folder, which the path of a datacenter omits.
        let wanted = match wanted.split_first() {
            Some((&"Datacenters", rest)) if rest.len() == datacenter.path.len() => rest.to_vec(),
            _ => wanted,
        };
        return wanted.len() == datacenter.path.len()
            && wanted.iter().zip(&datacenter.path).all(|(pattern, name)| matches_name(pattern, name));
    }
    datacenter.path.last().is_some_and(|name| matches_name(item, name))
}

/// Whether a name matches a pattern. A `/` in a name is matched as `%2f`, because vCenter stores it in this form.
fn matches_name(pattern: &str, name: &str) -> bool {
    glob::matches(pattern, &name.replace('/', "%2f"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::vim::MoRef;

    #[test]
    fn an_item_is_a_name_a_pattern_a_path_or_an_id() {
        let in_folder = Datacenter { id: "datacenter-3".into(), path: vec!["F0".into(), "DC1".into()] };
        for (case, items, expected) in [
            ("no item covers all", vec![], true),
            ("blank items are none", vec![" ", ""], true),
            ("name", vec!["DC1"], true),
            ("name with blanks around", vec![" DC1 "], true),
            ("name is case-sensitive", vec!["dc1"], false),
            ("pattern", vec!["DC*"], true),
            ("pattern of one character", vec!["DC?"], true),
            ("pattern with a class", vec!["DC[0-2]"], true),
            ("pattern with a negated class", vec!["DC[^0-2]"], false),
            ("escaped star", vec!["DC\\*"], false),
            ("class that never ends", vec!["DC[0-2"], false),
            ("everything", vec!["*"], true),
            ("absolute path", vec!["/F0/DC1"], true),
            ("path with the root folder", vec!["/Datacenters/F0/DC1"], true),
            ("relative path", vec!["F0/DC1"], true),
            ("path that stops short", vec!["/DC1"], false),
            ("id", vec!["datacenter-3"], true),
            ("type and id", vec!["Datacenter:datacenter-3"], true),
            ("another id", vec!["datacenter-4"], false),
            ("one of several", vec!["DC7", "DC1"], true),
        ] {
            let items: Vec<String> = items.into_iter().map(String::from).collect();
            assert_eq!(covers(&items, &in_folder), expected, "{case}");
        }
    }

    #[test]
    fn a_name_with_a_slash_is_matched_as_vcenter_stores_it() {
        let datacenter = Datacenter { id: "datacenter-9".into(), path: vec!["F0".into(), "a/b".into()] };
        for (item, expected) in [("*", true), ("a*b", true), ("a%2fb", true), ("/F0/a%2fb", true), ("a?b", false)] {
            assert_eq!(covers(&[item.into()], &datacenter), expected, "{item}");
        }
    }

    #[test]
    fn the_datacenters_of_a_vcenter_have_the_path_below_the_root_folder() {
        let object = |kind: &str, id: &str, name: &str, parent: Option<&str>| {
            let text = Value::Text(name.to_owned());
            let above = parent.map(|id| ("parent".to_owned(), Value::Ref(MoRef::new("Folder", id))));
            let properties = std::iter::once(("name".to_owned(), text)).chain(above).collect();
            ObjectContent { object: MoRef::new(kind, id), properties, missing: Vec::new() }
        };
        let objects = [
            object("Folder", "group-d1", "Datacenters", None),
            object("Datacenter", "datacenter-9", "a%2fb", Some("group-d3")),
            object("Folder", "group-d3", "F0", Some("group-d1")),
            object("Datacenter", "datacenter-2", "dc-1", Some("group-d1")),
        ];
        let found: Vec<_> =
            datacenters(&objects).into_iter().map(|found| format!("{} {:?}", found.id, found.path)).collect();
        assert_eq!(found, ["datacenter-9 [\"F0\", \"a/b\"]", "datacenter-2 [\"dc-1\"]"]);
    }

    #[test]
    fn a_name_with_a_comma_is_matched_by_a_pattern() {
        let datacenter = Datacenter { id: "datacenter-9".into(), path: vec!["dc, east".into()] };
        assert!(covers(&["dc? east".into()], &datacenter) && !covers(&["dc".into(), "east".into()], &datacenter));
    }

    #[test]
    fn w36_a_datacenter_named_like_an_id_is_found_by_name() {
        let datacenter = Datacenter { id: "datacenter-9".into(), path: vec!["vm-dc1".into()] };
        assert!(covers(&["vm-dc1".into()], &datacenter));
    }
}
