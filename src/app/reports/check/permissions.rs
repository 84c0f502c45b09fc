//! Pure: the check of the permissions at the API server.

use super::CheckResult;
use super::catalogue::CheckId;
use crate::app::reports::text::count;
use std::collections::BTreeMap;

/// A permission, and whether this process has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionFacts {
    /// The permission, such as `patch nodes/status`.
    pub permission: String,
    /// The verb, such as `patch`.
    pub verb: String,
    /// The objects of the permission.
    pub objects: RuleObjects,
    /// What does not work without it; `None` if Nodes cannot be managed without it.
    pub consequence: Option<&'static str>,
    /// The answer of the API server.
    pub answer: PermissionAnswer,
}

/// The objects of a rule in a Role or ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleObjects {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, with the subresource if there is one, such as `nodes/status`.
    pub resource: String,
    /// The namespace; `None` for a ClusterRole.
    pub namespace: Option<String>,
    /// The name of the object; `None` for all objects.
    pub name: Option<String>,
}

/// The answer of the API server about a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// Granted.
    Allowed,
    /// Not granted.
    Denied,
    /// There is no answer, for this reason.
    Unknown(String),
}

const REMEDY: &str = "use the chart or the manifests of this version with which the program was installed (helm \
                      upgrade, or kubectl apply -k), or add the rule. docs/install.md has the Role of each permission";

/// Checks the permissions.
pub fn permissions(facts: &[PermissionFacts]) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::K02;
    let denied: Vec<&PermissionFacts> = facts.iter().filter(|one| one.answer == PermissionAnswer::Denied).collect();
    let required: Vec<&PermissionFacts> = denied.iter().copied().filter(|one| one.consequence.is_none()).collect();
    let mut results = Vec::new();
    if !required.is_empty() {
        let names: Vec<&str> = required.iter().map(|one| one.permission.as_str()).collect();
        let result = CheckResult::failed(ID, "", format!("missing: {}", names.join("; ")));
        results.push(with_rules(result, &required));
    }
    for one in denied {
        if let Some(consequence) = one.consequence {
            let message = format!("missing: {}. Without it, {consequence}", one.permission);
            results.push(with_rules(CheckResult::warning(ID, "", message), &[one]));
        }
    }
    let unknown = facts.iter().filter_map(|one| match &one.answer {
        PermissionAnswer::Unknown(reason) => Some(format!("{}: {reason}", one.permission)),
        PermissionAnswer::Allowed | PermissionAnswer::Denied => None,
    });
    let unknown: Vec<String> = unknown.collect();
    if let Some(first) = unknown.first() {
        let message = format!("{} without an answer, the first is {first}", count(unknown.len(), "permission"));
        results.push(CheckResult::incomplete(ID, "", message));
    }
    if results.is_empty() {
        results.push(CheckResult::passed(ID, "", format!("all {} are granted", count(facts.len(), "permission"))));
    }
    results
}

/// Adds the remedies for missing permissions: the rules that grant them.
fn with_rules(result: CheckResult, missing: &[&PermissionFacts]) -> CheckResult {
    let mut verbs: BTreeMap<&RuleObjects, Vec<&str>> = BTreeMap::new();
    for one in missing {
        verbs.entry(&one.objects).or_default().push(&one.verb);
    }
    let mut result = result.with_remedy(REMEDY);
    for (objects, verbs) in verbs {
        result = result.with_remedy(rule(objects, &verbs));
    }
    result
}

/// Returns the rule that allows these verbs, and the kind of Role that needs it.
fn rule(objects: &RuleObjects, verbs: &[&str]) -> String {
    let RuleObjects { group, resource, namespace, name } = objects;
    let role = match namespace {
        Some(namespace) => format!("a Role in namespace {namespace}"),
        None => "a ClusterRole".to_owned(),
    };
    let names = name.as_ref().map(|name| format!(", resourceNames: [{name:?}]")).unwrap_or_default();
    format!("rule of {role}: {{apiGroups: [{group:?}], resources: [{resource:?}]{names}, verbs: {verbs:?}}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::check::CheckStatus;

    fn fact(verb: &str, consequence: Option<&'static str>, answer: PermissionAnswer) -> PermissionFacts {
        let (permission, verb) = (format!("{verb} nodes"), verb.to_owned());
        let objects = RuleObjects { resource: "nodes".to_owned(), ..RuleObjects::default() };
        PermissionFacts { permission, verb, objects, consequence, answer }
    }

    #[test]
    fn missing_permissions_fail_or_warn_and_missing_answers_are_not_known() {
        let allowed = || fact("get", None, PermissionAnswer::Allowed);
        let required = |answer| fact("patch", None, answer);
        let optional = |answer| fact("watch", Some("changes are seen late"), answer);
        let unknown = || PermissionAnswer::Unknown("no answer within 5 s".to_owned());
        let table = [
            (vec![allowed(), required(PermissionAnswer::Allowed)], vec![CheckStatus::Passed]),
            (vec![allowed(), required(PermissionAnswer::Denied)], vec![CheckStatus::Failed]),
            (vec![allowed(), optional(PermissionAnswer::Denied)], vec![CheckStatus::Warning]),
            (vec![required(unknown()), allowed()], vec![CheckStatus::Incomplete]),
            (
                vec![required(PermissionAnswer::Denied), optional(unknown())],
                vec![CheckStatus::Failed, CheckStatus::Incomplete],
            ),
        ];
        for (facts, expected) in table {
            let statuses: Vec<_> = permissions(&facts).into_iter().map(|result| result.status).collect();
            assert_eq!(statuses, expected, "{facts:?}");
        }
        let failed = permissions(&[required(PermissionAnswer::Denied), optional(PermissionAnswer::Denied)]);
        assert_eq!(failed[0].message, "missing: patch nodes");
        assert_eq!(failed[1].message, "missing: watch nodes. Without it, changes are seen late");
        assert_eq!(permissions(&[allowed(), allowed()])[0].message, "all 2 permissions are granted");
    }
    #[test]
    fn the_remedy_for_missing_permissions_has_their_rules() {
        let denied = |verb: &str, subresource: Option<&str>, of: Option<(&str, &str)>| {
            let mut facts = fact(verb, None, PermissionAnswer::Denied);
            facts.objects.resource.push_str(subresource.unwrap_or_default());
            facts.objects.namespace = of.map(|(namespace, _)| namespace.to_owned());
            facts.objects.name = of.map(|(_, name)| name.to_owned());
            facts
        };
        let secret = Some(("kube-system", "vc"));
        let facts =
            [denied("get", None, secret), denied("patch", Some("/status"), None), denied("watch", None, secret)];
        let remedy = permissions(&facts).remove(0).remedy;
        let rules = [
            "rule of a Role in namespace kube-system: {apiGroups: [\"\"], resources: [\"nodes\"], resourceNames: \
             [\"vc\"], verbs: [\"get\", \"watch\"]}",
            "rule of a ClusterRole: {apiGroups: [\"\"], resources: [\"nodes/status\"], verbs: [\"patch\"]}",
        ];
        assert_eq!(remedy.get(1..), Some(rules.map(str::to_owned).as_slice()));
    }
}
