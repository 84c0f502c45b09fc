//! No replica changes an object of another cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use support::fake_nsx::ObjectVersion;

use super::routes::{CLUSTER_NAME, CLUSTER_UID, tag};

/// Owners of the objects so far.
pub struct Ownership {
    /// Accounts of the replicas.
    accounts: Vec<String>,
    cluster: String,
    uid: String,
    objects: BTreeMap<String, Value>,
    /// Paths of the objects that replicas created.
    created: BTreeSet<String>,
}

impl Ownership {
    /// Creates the rules for the cluster with this name and UID.
    pub fn new(accounts: Vec<String>, cluster: &str, uid: &str) -> Self {
        let (cluster, uid) = (cluster.to_owned(), uid.to_owned());
        Self { accounts, cluster, uid, objects: BTreeMap::new(), created: BTreeSet::new() }
    }

    /// Applies the rules to the next version of an object.
    pub fn take(&mut self, version: &ObjectVersion) -> Result<(), String> {
        let ObjectVersion { user, path, object, .. } = version;
        let is_of_replica = self.accounts.contains(user);
        let before = self.objects.remove(path);
        match &before {
            Some(before) if is_of_replica && !self.is_ours(path, before) => {
                return Err(format!("{user} changed {path}, which is not of its cluster: {before}\n{object:?}"));
            }
            None if is_of_replica => drop(self.created.insert(path.clone())),
            None => drop(self.created.remove(path)),
            Some(_) => {}
        }
        if let Some(object) = object {
            if is_of_replica && !self.is_ours(path, object) {
                return Err(format!("{user} wrote {path} without what shows that it is of its cluster: {object}"));
            }
            self.objects.insert(path.clone(), object.clone());
        }
        Ok(())
    }

    /// Whether the object belongs to this cluster. An object without UID does so only if a replica created it.
    fn is_ours(&self, path: &str, object: &Value) -> bool {
        let is_its = match tag(object, CLUSTER_UID) {
            Some(uid) => uid == self.uid,
            None => self.created.contains(path),
        };
        tag(object, CLUSTER_NAME).as_ref() == Some(&self.cluster) && is_its
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    fn object(cluster: &str, uid: Option<&str>) -> Option<Value> {
        let uid = uid.map(|uid| json!({"scope": CLUSTER_UID, "tag": uid}));
        let tags: Vec<_> = [json!({"scope": CLUSTER_NAME, "tag": cluster})].into_iter().chain(uid).collect();
        Some(json!({"tags": tags}))
    }

    #[test]
    fn a_change_of_a_foreign_object_is_reported() {
        type Step<'a> = (&'a str, Option<Value>);
        let (ours, untagged, theirs) = (object("c", Some("u")), object("c", None), object("c", Some("v")));
        let other = object("d", None);
        let cases: [(&str, Vec<Step<'_>>, bool); 10] = [
            ("our own", vec![("r", ours.clone()), ("r", ours.clone()), ("r", None)], true),
            ("our own without a UID", vec![("r", untagged.clone()), ("r", ours.clone()), ("r", None)], true),
            ("after a deletion by hand", vec![("r", ours.clone()), ("x", None), ("r", ours.clone())], true),
            ("another user's by that user", vec![("x", other.clone()), ("x", None)], true),
            ("of a former process", vec![("x", ours.clone()), ("r", None)], true),
            ("of another name", vec![("x", other.clone()), ("r", ours.clone())], false),
            ("of another UID", vec![("x", theirs.clone()), ("r", None)], false),
            ("of the name alone", vec![("x", untagged.clone()), ("r", ours.clone())], false),
            (
                "put there by hand after ours",
                vec![("r", untagged.clone()), ("x", None), ("x", untagged), ("r", None)],
                false,
            ),
            ("written as another's", vec![("r", theirs)], false),
        ];
        for (case, steps, expected) in cases {
            let mut ownership = Ownership::new(vec!["r".to_owned()], "c", "u");
            let judged = steps.into_iter().try_for_each(|(user, object)| {
                let (user, path) = (user.to_owned(), "/p".to_owned());
                ownership.take(&ObjectVersion { at: Instant::now(), user, request: None, path, object })
            });
            assert_eq!(judged.is_ok(), expected, "{case}: {judged:?}");
        }
    }
}
