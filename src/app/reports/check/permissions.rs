//! Pure: the check of the permissions at the API server.

use super::CheckResult;
use super::catalogue::CheckId;
use crate::app::reports::text::{count, shell_word};
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
    /// The account.
    pub account: ReviewedAccount,
    /// The answer of the API server.
    pub answer: PermissionAnswer,
}

/// The account that has or lacks a permission.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReviewedAccount {
    /// The flag with the kubeconfig of the account; `None` for the account of the process.
    pub kubeconfig_flag: Option<&'static str>,
    /// The user name, such as `system:serviceaccount:kube-system:cloud-controller-manager`; `None` if it is not known.
    pub user: Option<String>,
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
                      upgrade, or kubectl apply -k); docs/reference/permissions.md has the Role of each permission. \
                      Or grant only what is missing:";

/// Prefix of the names of Roles and bindings in commands.
const PREFIX: &str = "vsphere-ccm";

/// Prefix of the user names of service accounts.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Checks the permissions.
pub fn permissions(facts: &[PermissionFacts]) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::K02;
    let denied: Vec<&PermissionFacts> = facts.iter().filter(|one| one.answer == PermissionAnswer::Denied).collect();
    let required: Vec<&PermissionFacts> = denied.iter().copied().filter(|one| one.consequence.is_none()).collect();
    let mut results = Vec::new();
    if !required.is_empty() {
        let names: Vec<String> = required.iter().map(|one| one.text()).collect();
        let result = CheckResult::failed(ID, "", format!("missing: {}", names.join("; ")));
        results.push(with_rules(result, &required));
    }
    for one in denied {
        if let Some(consequence) = one.consequence {
            let message = format!("missing: {}. Without it, {consequence}", one.text());
            results.push(with_rules(CheckResult::warning(ID, "", message), &[one]));
        }
    }
    let unknown = facts.iter().filter_map(|one| match &one.answer {
        PermissionAnswer::Unknown(reason) => Some(format!("{}: {reason}", one.text())),
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

impl PermissionFacts {
    fn text(&self) -> String {
        let PermissionFacts { permission, account, .. } = self;
        let of_kubeconfig = account.kubeconfig_flag.map(|flag| format!(" (with the kubeconfig of {flag})"));
        format!("{permission}{}", of_kubeconfig.unwrap_or_default())
    }
}

/// Adds the remedies for missing permissions: the commands that grant them.
fn with_rules(result: CheckResult, missing: &[&PermissionFacts]) -> CheckResult {
    let mut verbs: BTreeMap<(&ReviewedAccount, &RuleObjects), Vec<&str>> = BTreeMap::new();
    for one in missing {
        verbs.entry((&one.account, &one.objects)).or_default().push(&one.verb);
    }
    let mut result = result.with_remedy(REMEDY);
    let mut shown = None;
    for ((account, objects), verbs) in verbs {
        if account.kubeconfig_flag != shown {
            let flag = account.kubeconfig_flag.unwrap_or_default();
            result = result.with_remedy(format!("in the cluster of the kubeconfig of {flag}:"));
            shown = account.kubeconfig_flag;
        }
        let [role, binding] = grant(account, objects, &verbs);
        result = result.with_command(role).with_command(binding);
    }
    result
}

/// Returns the commands that create a Role with these verbs, and bind the account to it.
fn grant(account: &ReviewedAccount, objects: &RuleObjects, verbs: &[&str]) -> [String; 2] {
    let RuleObjects { group, resource, namespace, name } = objects;
    let role = role_name(objects, verbs);
    let verbs = verbs.join(",");
    let resource = match (group.as_str(), resource.split_once('/')) {
        ("", _) => resource.clone(),
        (group, Some((resource, subresource))) => format!("{resource}.{group}/{subresource}"),
        (group, None) => format!("{resource}.{group}"),
    };
    let object = name.as_ref().map(|name| format!(" --resource-name={}", shell_word(name))).unwrap_or_default();
    let rule = format!("--verb={verbs} --resource={resource}{object}");
    let subject = subject(account);
    match namespace {
        Some(namespace) => {
            let kubectl = format!("kubectl -n {} create", shell_word(namespace));
            [format!("{kubectl} role {role} {rule}"), format!("{kubectl} rolebinding {role} --role={role} {subject}")]
        }
        None => {
            let binding = format!("kubectl create clusterrolebinding {role} --clusterrole={role} {subject}");
            [format!("kubectl create clusterrole {role} {rule}"), binding]
        }
    }
}

/// Returns a name that only Roles with the same rule have.
fn role_name(RuleObjects { resource, name, .. }: &RuleObjects, verbs: &[&str]) -> String {
    let mut parts = vec![PREFIX.to_owned(), verbs.join("-"), resource.replace('/', "-")];
    parts.extend(name.clone());
    parts.join("-")
}

/// Returns the flag with the subject of a binding.
fn subject(account: &ReviewedAccount) -> String {
    let Some(user) = &account.user else { return "--serviceaccount=NAMESPACE:ACCOUNT".to_owned() };
    match user.strip_prefix(SERVICE_ACCOUNT) {
        Some(account) => format!("--serviceaccount={}", shell_word(account)),
        None => format!("--user={}", shell_word(user)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::app::reports::check::CheckStatus;

    pub(in crate::app::reports::check) fn fact(
        verb: &str,
        consequence: Option<&'static str>,
        answer: PermissionAnswer,
    ) -> PermissionFacts {
        let (permission, verb) = (format!("{verb} nodes"), verb.to_owned());
        let objects = RuleObjects { resource: "nodes".to_owned(), ..RuleObjects::default() };
        PermissionFacts { permission, verb, objects, consequence, account: ReviewedAccount::default(), answer }
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
    fn the_remedy_for_missing_permissions_has_the_commands_that_grant_them() {
        let denied = |verb: &str, subresource: Option<&str>, of: Option<(&str, &str)>| {
            let mut facts = fact(verb, None, PermissionAnswer::Denied);
            facts.objects.resource.push_str(subresource.unwrap_or_default());
            facts.objects.namespace = of.map(|(namespace, _)| namespace.to_owned());
            facts.objects.name = of.map(|(_, name)| name.to_owned());
            facts.account.user = Some("system:serviceaccount:kube-system:ccm".to_owned());
            facts
        };
        let secret = Some(("kube-system", "vc"));
        let facts =
            [denied("get", None, secret), denied("patch", Some("/status"), None), denied("watch", None, secret)];
        let commands = [
            "kubectl -n kube-system create role vsphere-ccm-get-watch-nodes-vc --verb=get,watch --resource=nodes \
             --resource-name=vc",
            "kubectl -n kube-system create rolebinding vsphere-ccm-get-watch-nodes-vc \
             --role=vsphere-ccm-get-watch-nodes-vc --serviceaccount=kube-system:ccm",
            "kubectl create clusterrole vsphere-ccm-patch-nodes-status --verb=patch --resource=nodes/status",
            "kubectl create clusterrolebinding vsphere-ccm-patch-nodes-status \
             --clusterrole=vsphere-ccm-patch-nodes-status --serviceaccount=kube-system:ccm",
        ];
        assert_eq!(permissions(&facts).remove(0).commands, commands);
    }

    #[test]
    fn a_permission_of_another_kubeconfig_is_granted_to_its_user_in_its_cluster() {
        let mut facts = fact("create", Some("tokens are not accepted"), PermissionAnswer::Denied);
        facts.objects.resource = "tokenreviews".to_owned();
        facts.objects.group = "authentication.k8s.io".to_owned();
        facts.account =
            ReviewedAccount { kubeconfig_flag: Some("--authentication-kubeconfig"), user: Some("a b".to_owned()) };
        let result = permissions(&[facts]).remove(0);
        assert!(result.message.contains("nodes (with the kubeconfig of --authentication-kubeconfig)"), "{result:?}");
        let told = "in the cluster of the kubeconfig of --authentication-kubeconfig:";
        assert!(result.remedy.iter().any(|step| step == told), "{result:?}");
        assert!(result.commands[0].ends_with("--verb=create --resource=tokenreviews.authentication.k8s.io"));
        assert!(result.commands[1].ends_with("--user='a b'"), "{result:?}");
        let unknown = subject(&ReviewedAccount::default());
        assert_eq!(unknown, "--serviceaccount=NAMESPACE:ACCOUNT");
    }
}
