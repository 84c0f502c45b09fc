//! Pure: the check of the permissions at the API server.

use super::CheckResult;
use super::catalogue::CheckId;
use crate::app::reports::text::count;

/// A permission, and whether this process has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionFacts {
    /// The permission, such as `patch nodes/status`.
    pub permission: String,
    /// What does not work without it; `None` if Nodes cannot be managed without it.
    pub consequence: Option<&'static str>,
    /// The answer of the API server.
    pub answer: PermissionAnswer,
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

const REMEDY: &str = "kubectl apply -k manifests/rbac; docs/install.md names the Role of each permission";

/// Checks the permissions.
pub fn permissions(facts: &[PermissionFacts]) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::K02;
    let denied: Vec<&PermissionFacts> = facts.iter().filter(|one| one.answer == PermissionAnswer::Denied).collect();
    let required: Vec<&str> =
        denied.iter().filter(|one| one.consequence.is_none()).map(|one| one.permission.as_str()).collect();
    let mut results = Vec::new();
    if !required.is_empty() {
        results.push(CheckResult::failed(ID, "", format!("missing: {}", required.join("; "))).with_remedy(REMEDY));
    }
    for one in denied {
        if let Some(consequence) = one.consequence {
            let message = format!("missing: {}. Without it, {consequence}", one.permission);
            results.push(CheckResult::warning(ID, "", message).with_remedy(REMEDY));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::check::CheckStatus;

    fn fact(permission: &str, consequence: Option<&'static str>, answer: PermissionAnswer) -> PermissionFacts {
        PermissionFacts { permission: permission.to_owned(), consequence, answer }
    }

    #[test]
    fn missing_permissions_fail_or_warn_and_missing_answers_are_not_known() {
        let allowed = || fact("get nodes", None, PermissionAnswer::Allowed);
        let required = |answer| fact("patch nodes", None, answer);
        let optional = |answer| fact("create events in default", Some("Events are missing"), answer);
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
        assert_eq!(failed[1].message, "missing: create events in default. Without it, Events are missing");
        assert_eq!(permissions(&[allowed(), allowed()])[0].message, "all 2 permissions are granted");
    }
}
