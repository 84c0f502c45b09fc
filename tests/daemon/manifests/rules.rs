//! Single rights: those that roles and bindings grant, and those that an audit log shows in use.

use serde_json::Value;
use support::AuditEvent;

/// One verb on one resource, granted by a rule or used by a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// `None` in a rule: all namespaces. `None` in a request: an object without namespace, or a list over all
    /// namespaces.
    pub namespace: Option<String>,
    /// The API group; empty for the core.
    pub group: String,
    /// Plural name, with the subresource, such as `nodes/status`.
    pub resource: String,
    /// `None` in a rule: every name. `None` in a request: a list.
    pub name: Option<String>,
    pub verb: String,
}

impl Right {
    /// Whether a rule with this right permits the request `used`.
    pub fn covers(&self, used: &Self) -> bool {
        let within = |limit: &Option<String>, of: &Option<String>| limit.is_none() || limit == of;
        (self.verb == used.verb || self.verb == "*")
            && (&self.group, &self.resource) == (&used.group, &used.resource)
            && within(&self.namespace, &used.namespace)
            && within(&self.name, &used.name)
    }

    /// Returns the right that this request for a resource needs.
    pub fn used_by(event: &AuditEvent) -> Option<Self> {
        let about = &event.object_ref;
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let resource = match about.subresource.as_str() {
            "" => about.resource.clone(),
            subresource => format!("{}/{subresource}", about.resource),
        };
        // The authorizer does not get the name in a creation.
        let name = some(&about.name).filter(|_| event.verb != "create");
        let (namespace, group, verb) = (some(&about.namespace), about.api_group.clone(), event.verb.clone());
        (!resource.is_empty()).then_some(Self { namespace, group, resource, name, verb })
    }
}

/// Returns the rights that the bindings among these objects grant. A role of Kubernetes itself, which is not among the
/// objects, counts as one right: the verb `bind` on the role.
pub fn rules(objects: &[Value]) -> Vec<Right> {
    let bindings = objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("RoleBinding"));
    let mut rights: Vec<Right> = bindings.flat_map(|binding| given(binding, objects)).collect();
    rights.sort();
    rights
}

fn given(binding: &Value, objects: &[Value]) -> Vec<Right> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (role, namespace) = (&binding["roleRef"], text(&binding["metadata"]["namespace"]));
    let is_it = |object: &&Value| {
        let is_named = object["kind"] == role["kind"] && object["metadata"]["name"] == role["name"];
        is_named && (role["kind"] == "ClusterRole" || text(&object["metadata"]["namespace"]) == namespace)
    };
    let Some(found) = objects.iter().find(is_it) else {
        let (group, resource, name) =
            ("rbac.authorization.k8s.io".into(), text(&role["kind"]).unwrap(), text(&role["name"]));
        return vec![Right { namespace, group, resource, name, verb: "bind".to_owned() }];
    };
    found["rules"].as_array().unwrap().iter().flat_map(|rule| of_rule(rule, namespace.as_deref())).collect()
}

fn of_rule(rule: &Value, namespace: Option<&str>) -> Vec<Right> {
    let items = |key: &str| -> Vec<String> {
        rule[key].as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let names: Vec<Option<String>> = match items("resourceNames") {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(Some).collect(),
    };
    let mut rights = Vec::new();
    for group in items("apiGroups") {
        for resource in items("resources") {
            for name in &names {
                rights.extend(items("verbs").into_iter().map(|verb| Right {
                    namespace: namespace.map(str::to_owned),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb,
                }));
            }
        }
    }
    rights
}

#[test]
fn a_rule_covers_what_it_says_and_no_more() {
    let right = |namespace: Option<&str>, resource: &str, name: Option<&str>, verb: &str| Right {
        namespace: namespace.map(str::to_owned),
        group: String::new(),
        resource: resource.to_owned(),
        name: name.map(str::to_owned),
        verb: verb.to_owned(),
    };
    let rule = right(Some("kube-system"), "secrets", Some("a"), "get");
    for (used, is_covered) in [
        (right(Some("kube-system"), "secrets", Some("a"), "get"), true),
        (right(Some("kube-system"), "secrets", Some("b"), "get"), false),
        (right(Some("kube-system"), "secrets", None, "get"), false),
        (right(Some("default"), "secrets", Some("a"), "get"), false),
        (right(None, "secrets", Some("a"), "get"), false),
        (right(Some("kube-system"), "secrets/status", Some("a"), "get"), false),
        (right(Some("kube-system"), "secrets", Some("a"), "watch"), false),
    ] {
        assert_eq!(rule.covers(&used), is_covered, "{used:?}");
    }
    let everywhere = right(None, "nodes", None, "*");
    assert!(everywhere.covers(&right(None, "nodes", Some("a"), "delete")));
    assert!(!everywhere.covers(&right(None, "nodes/status", Some("a"), "patch")));
}
