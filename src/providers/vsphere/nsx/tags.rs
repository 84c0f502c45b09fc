//! Pure: the tags that this program writes on an object, one per scope.
//!
//! Mirrors `pkg/cloudprovider/vsphere/loadbalancer/tag.go`.

use std::collections::BTreeMap;

use crate::clients::nsx::{Object, ObjectTag};

/// Tags sorted by scope, as in the Go program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopedTags(BTreeMap<String, String>);

impl ScopedTags {
    /// Adds a tag, and replaces a tag with the same scope.
    #[must_use]
    pub fn with(mut self, scope: &str, tag: impl Into<String>) -> Self {
        self.0.insert(scope.to_owned(), tag.into());
        self
    }

    /// Iterates over the tags in the order of the scopes.
    pub fn iter(&self) -> impl Iterator<Item = ObjectTag<'_>> {
        self.0.iter().map(|(scope, tag)| ObjectTag { scope, tag })
    }

    /// Whether an object has all tags. The first of several tags with the same scope decides, as in the Go program.
    pub fn are_on(&self, object: &Object) -> bool {
        self.iter().all(|wanted| object.tag(wanted.scope) == Some(wanted.tag))
    }

    /// Writes the tags. Tags of other scopes stay, existing tags keep their order, and missing tags are appended.
    pub fn write_into(&self, object: &mut Object) {
        if self.are_on(object) {
            return;
        }
        let before = object.clone();
        let mut missing = self.0.clone();
        let mut tags: Vec<ObjectTag<'_>> = Vec::new();
        for tag in before.tags() {
            let wanted = missing.remove(tag.scope).and_then(|_| self.0.get(tag.scope));
            tags.push(wanted.map_or(tag, |wanted| ObjectTag { scope: tag.scope, tag: wanted }));
        }
        tags.extend(missing.iter().map(|(scope, tag)| ObjectTag { scope, tag }));
        object.set_tags(tags);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Object, ScopedTags};

    fn tags(pairs: &[(&str, &str)]) -> ScopedTags {
        pairs.iter().fold(ScopedTags::default(), |tags, (scope, tag)| tags.with(scope, *tag))
    }

    fn sent(tags: &ScopedTags) -> Vec<(String, String)> {
        let mut object = Object::default();
        tags.write_into(&mut object);
        object.tags().map(|tag| (tag.scope.to_owned(), tag.tag.to_owned())).collect()
    }

    // vectors: TAG-01, TAG-02, TAG-03
    #[test]
    fn tag_01_to_03_another_tag_leaves_the_tags_of_before_as_they_are() {
        let two = [("t1", "v1"), ("t2", "v2")];
        for (id, before, (scope, tag), expected) in [
            ("TAG-01", &[("t2", "v2")][..], ("t1", "v1"), &two[..]),
            ("TAG-02", &two[..], ("t1", "v1a"), &[("t1", "v1a"), ("t2", "v2")][..]),
            ("TAG-03", &two[..], ("t3", "v3"), &[("t1", "v1"), ("t2", "v2"), ("t3", "v3")][..]),
        ] {
            let before = tags(before);
            let original = before.clone();
            assert_eq!(before.clone().with(scope, tag), tags(expected), "{id}");
            assert_eq!(before, original, "{id}");
        }
        let empty = ScopedTags::default();
        assert_eq!(empty.clone().with("t1", "v1").with("t2", "v2"), tags(&two));
        assert_eq!(sent(&empty), []);
    }

    // vectors: TAG-04
    #[test]
    fn tag_04_tags_are_sent_in_the_order_of_their_scopes() {
        let expected = ["t1", "t2", "t3"].map(|scope| (scope.to_owned(), format!("of {scope}")));
        for order in [["t1", "t2", "t3"], ["t3", "t1", "t2"], ["t2", "t3", "t1"], ["t3", "t2", "t1"]] {
            let tags = order.iter().fold(ScopedTags::default(), |tags, scope| tags.with(scope, format!("of {scope}")));
            assert_eq!(sent(&tags), expected, "{order:?}");
        }
    }

    // vectors: TAG-05
    #[test]
    fn tag_05_the_first_tag_of_a_scope_decides_and_others_stay() {
        let value =
            json!({"tags": [{"scope": "a", "tag": "1"}, {"scope": "x", "tag": "y"}, {"scope": "a", "tag": "2"}]});
        let mut object = Object(serde_json::from_value(value).unwrap());
        assert!(tags(&[("a", "1")]).are_on(&object));
        let wanted = tags(&[("a", "2")]);
        assert!(!wanted.are_on(&object));
        wanted.write_into(&mut object);
        assert!(wanted.are_on(&object));
        let all: Vec<_> = object.tags().map(|tag| (tag.scope, tag.tag)).collect();
        assert_eq!(all, [("a", "2"), ("x", "y"), ("a", "2")]);
    }
}
