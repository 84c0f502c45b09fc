//! Pure: the checks of `vsphere.conf` and of the sources of credentials.

use super::catalogue::CheckId;
use super::{CheckResult, IN_POD};
use crate::app::reports::status::ConfigurationStatus;
use crate::app::reports::text::count;
use crate::app::reports::text::shell_word;
use crate::providers::vsphere::nodes::metadata::addresses::rule_matches::UnmatchedRules;

/// Maximum number of warnings about the file that are named.
const NAMED: usize = 20;

/// The configuration of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigurationFacts {
    /// The state of the file.
    pub status: ConfigurationStatus,
    /// The parts that are turned off because of errors, each with its error.
    pub rejected_parts: Vec<(String, String)>,
    /// The warnings about the content of the file in effect.
    pub notices: Vec<String>,
}

/// The credentials for one vCenter or NSX Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFacts {
    /// The product and the server, such as `vCenter vc.example.com:443`.
    pub subject: String,
    /// The state of the sources.
    pub state: CredentialSourceState,
    /// The Secret that may have the credentials; `None` if they are elsewhere.
    pub secret: Option<SecretFacts>,
}

/// A Secret with the credentials for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFacts {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The key of the user name, such as `vc.example.com.username`.
    pub user_key: String,
    /// The key of the password.
    pub password_key: String,
}

/// The state of the sources of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSourceState {
    /// There are credentials. The texts name the kind and the source of each.
    Ready(Vec<String>),
    /// A source was not read yet.
    Pending(String),
    /// A source cannot be read.
    Unreadable(String),
    /// All sources were read, and none has credentials for the server.
    Missing(String),
}

/// Checks the file and whether it is in effect.
pub fn file(facts: &ConfigurationFacts) -> Vec<CheckResult> {
    let mut results = Vec::new();
    let ConfigurationFacts { status, rejected_parts, notices } = facts;
    for (part, error) in rejected_parts {
        let message = format!("this part of vsphere.conf is turned off: {error}");
        results.push(with_lint(CheckResult::failed(CheckId::C01, part, message)));
    }
    if let Some(errors) = &status.refused {
        results.push(with_lint(CheckResult::failed(CheckId::C01, "vsphere.conf", errors)));
    }
    if results.is_empty() {
        results.push(CheckResult::passed(CheckId::C01, "", "vsphere.conf has no errors"));
    }
    let generation = format!("generation {} is in effect, read at {}", status.generation, status.read);
    results.push(match &status.refused {
        None if !rejected_parts.is_empty() => CheckResult::needs(CheckId::C02, "", CheckId::C01),
        None => CheckResult::passed(CheckId::C02, "", generation),
        Some(_) => {
            let message = format!("the changed vsphere.conf is refused, and {generation}");
            CheckResult::failed(CheckId::C02, "", message)
                .with_remedy("correct the errors of C01; the file is read again")
        }
    });
    results.extend(notices.iter().take(NAMED).map(|notice| unused_key(notice)));
    if notices.len() > NAMED {
        let message = format!("and {} more warnings, which config-lint lists", notices.len() - NAMED);
        results.push(with_lint(CheckResult::warning(CheckId::C03, "", message)));
    }
    if notices.is_empty() {
        results.push(CheckResult::passed(CheckId::C03, "", "there are no warnings about vsphere.conf"));
    }
    results
}

/// Adds the command that lists the errors and warnings of a file.
fn with_lint(result: CheckResult) -> CheckResult {
    result
        .with_remedy("correct the file; this lists all errors and warnings:")
        .with_command(format!("{IN_POD} config-lint FILE"))
}

/// Returns the warning about a key of the file that has no effect.
pub(super) fn unused_key(notice: &str) -> CheckResult {
    CheckResult::warning(CheckId::C03, "", notice)
        .with_remedy("rename or remove the key: docs/configuration.md has all keys")
}

/// The command that asks for the login. The password is in no history of a shell.
const ENTER_LOGIN: &str = "read -rp 'User name: ' ACCOUNT; read -rsp 'Password: ' PASSWORD";

impl SecretFacts {
    /// Returns the command that creates the Secret with the login that was entered.
    fn creation(&self) -> String {
        let Self { namespace, name, user_key, password_key } = self;
        let (namespace, name) = (shell_word(namespace), shell_word(name));
        format!(
            "printf %s \"$PASSWORD\" | kubectl -n {namespace} create secret generic {name} \
             --from-literal={user_key}=\"$ACCOUNT\" --from-file={password_key}=/dev/stdin"
        )
    }

    /// Returns the command that writes the login that was entered into the existing Secret. Its other keys stay.
    fn change(&self) -> String {
        let (namespace, name) = (shell_word(&self.namespace), shell_word(&self.name));
        let patch = format!("kubectl -n {namespace} patch secret {name} --patch-file=/dev/stdin");
        format!("{} --dry-run=client -o json | {patch}", self.creation())
    }
}

/// Adds the steps that store a login in a Secret that may not exist.
fn with_secret(result: CheckResult, secret: &SecretFacts) -> CheckResult {
    result
        .with_remedy("enter the user name and the password of the server:")
        .with_command(ENTER_LOGIN)
        .with_remedy("if the Secret does not exist:")
        .with_command(secret.creation())
        .with_remedy("if it exists, so that its other keys stay:")
        .with_command(secret.change())
}

/// Adds the steps that correct a rejected login. `secret` is the only place of the credentials.
pub(super) fn with_other_login(result: CheckResult, secret: Option<&SecretFacts>) -> CheckResult {
    match secret {
        Some(secret) => result
            .with_remedy("enter the user name and the password that the server accepts:")
            .with_command(ENTER_LOGIN)
            .with_command(secret.change()),
        None => result.with_remedy("correct user name and password in the source that C05 names"),
    }
}

/// Checks the sources of credentials of one server.
pub fn credentials(facts: &CredentialFacts) -> CheckResult {
    const ID: CheckId = CheckId::C05;
    let CredentialFacts { subject, state, secret } = facts;
    match state {
        CredentialSourceState::Ready(origins) => CheckResult::passed(ID, subject, origins.join(", then ")),
        CredentialSourceState::Pending(reason) => CheckResult::incomplete(ID, subject, reason),
        CredentialSourceState::Unreadable(reason) => CheckResult::failed(ID, subject, reason).with_remedy(
            "a Secret: let the service account get and watch it; a directory: let the user of the process read it",
        ),
        CredentialSourceState::Missing(reason) => {
            let result = CheckResult::failed(ID, subject, reason);
            match secret {
                Some(secret) => with_secret(result, secret),
                None => result
                    .with_remedy("add user name and password of the server, spelled as in vsphere.conf, to the source"),
            }
        }
    }
}

/// Checks the rules for the addresses of Nodes. `has_rules` is whether there are any.
pub fn address_rules(unmatched: &UnmatchedRules, has_rules: bool) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::C08;
    if !has_rules {
        return vec![CheckResult::skipped(ID, "", "vsphere.conf has neither network names nor subnets")];
    }
    let UnmatchedRules { vms, network_names, subnets, attached_networks } = unmatched;
    if *vms == 0 {
        return vec![CheckResult::needs(ID, "", CheckId::V01)];
    }
    let attached: Vec<&str> = attached_networks.iter().take(NAMED).map(String::as_str).collect();
    let mut results = Vec::new();
    for (kind, name) in network_names {
        let attached = attached.join(", ");
        let message =
            format!("no VM of a Node is attached to {name:?}, the network of {kind} addresses; attached: {attached}");
        results.push(CheckResult::failed(ID, "", message).with_remedy("correct the network name in vsphere.conf"));
    }
    for (kind, subnet) in subnets.iter().take(NAMED) {
        let message = format!("no VM of a Node has an address in {subnet}, a subnet of {kind} addresses");
        results.push(CheckResult::warning(ID, "", message).with_remedy("correct or remove the subnet in vsphere.conf"));
    }
    if results.is_empty() {
        let message = format!("all networks and subnets match one of {}", count(*vms, "VM"));
        results.push(CheckResult::passed(ID, "", message));
    }
    results
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::app::reports::check::CheckStatus;

    pub(in crate::app::reports::check) fn facts() -> ConfigurationFacts {
        let status =
            ConfigurationStatus { generation: 6, read: "2026-11-24T03:12:40Z".parse().unwrap(), refused: None };
        ConfigurationFacts { status, rejected_parts: Vec::new(), notices: Vec::new() }
    }

    fn states(facts: &ConfigurationFacts) -> Vec<(CheckId, CheckStatus, String)> {
        file(facts).into_iter().map(|result| (result.id, result.status, result.message)).collect()
    }

    #[test]
    fn a_file_without_errors_and_warnings_that_is_in_effect_passes() {
        let passed = [
            (CheckId::C01, CheckStatus::Passed, "vsphere.conf has no errors".to_owned()),
            (CheckId::C02, CheckStatus::Passed, "generation 6 is in effect, read at 2026-11-24T03:12:40Z".to_owned()),
            (CheckId::C03, CheckStatus::Passed, "there are no warnings about vsphere.conf".to_owned()),
        ];
        assert_eq!(states(&facts()), passed);
    }

    #[test]
    fn a_part_that_is_turned_off_and_a_refused_file_are_failures() {
        let mut facts = facts();
        facts.rejected_parts = vec![("load balancers".to_owned(), "vsphere.conf:9: expected a pool".to_owned())];
        facts.status.refused = Some("vsphere.conf:4: expected a number".to_owned());
        let found = states(&facts);
        let ids: Vec<_> = found.iter().map(|(id, status, _)| (*id, *status)).collect();
        let expected = [
            (CheckId::C01, CheckStatus::Failed),
            (CheckId::C01, CheckStatus::Failed),
            (CheckId::C02, CheckStatus::Failed),
            (CheckId::C03, CheckStatus::Passed),
        ];
        assert_eq!(ids, expected);
        assert!(found[0].2.contains("vsphere.conf:9") && found[1].2.contains("vsphere.conf:4"), "{found:?}");
        assert!(found[2].2.contains("generation 6"), "{found:?}");
        facts.status.refused = None;
        let found = states(&facts);
        let in_effect = (found[1].0, found[1].1, found[1].2.as_str());
        assert_eq!(in_effect, (CheckId::C02, CheckStatus::Skipped, "needs C01"), "a part of the file is not in effect");
    }

    #[test]
    fn the_remedy_for_an_error_is_a_command_that_runs_in_the_pod() {
        let mut facts = facts();
        facts.status.refused = Some("vsphere.conf:4: expected a number".to_owned());
        let commands = file(&facts).remove(0).commands;
        let command = "kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager config-lint FILE";
        assert_eq!(commands, [command]);
    }

    #[test]
    fn each_unknown_key_is_a_warning_and_only_some_are_named() {
        let notices = (1..=30).map(|line| format!("vsphere.conf:{line}: unknown key"));
        let found = states(&ConfigurationFacts { notices: notices.collect(), ..facts() });
        let warnings: Vec<_> = found.iter().filter(|(id, ..)| *id == CheckId::C03).collect();
        assert!(warnings.iter().all(|(_, status, _)| *status == CheckStatus::Warning), "{found:?}");
        assert_eq!((warnings.len(), warnings[20].2.as_str()), (21, "and 10 more warnings, which config-lint lists"));
    }

    #[test]
    fn a_network_name_of_no_vm_fails_and_a_subnet_of_no_vm_warns() {
        let statuses = |unmatched: &UnmatchedRules, has_rules| {
            address_rules(unmatched, has_rules).into_iter().map(|result| result.status).collect::<Vec<_>>()
        };
        let matched = UnmatchedRules { vms: 3, ..UnmatchedRules::default() };
        assert_eq!(statuses(&matched, true), [CheckStatus::Passed]);
        assert_eq!(statuses(&matched, false), [CheckStatus::Skipped]);
        assert_eq!(statuses(&UnmatchedRules::default(), true), [CheckStatus::Skipped], "no VM is known");
        let unmatched = UnmatchedRules {
            network_names: vec![("internal", "k8s-net".to_owned())],
            subnets: vec![("external", "10.30.0.0/16".parse().unwrap())],
            attached_networks: ["Mgmt".to_owned()].into(),
            ..matched
        };
        assert_eq!(statuses(&unmatched, true), [CheckStatus::Failed, CheckStatus::Warning]);
        let message = &address_rules(&unmatched, true)[0].message;
        assert!(message.contains("\"k8s-net\"") && message.ends_with("attached: Mgmt"), "{message}");
    }

    #[test]
    fn credentials_are_ready_not_read_yet_unreadable_or_missing() {
        let table = [
            (CredentialSourceState::Ready(vec!["a".to_owned(), "b".to_owned()]), CheckStatus::Passed, "a, then b"),
            (CredentialSourceState::Pending("not read".to_owned()), CheckStatus::Incomplete, "not read"),
            (CredentialSourceState::Unreadable("EACCES".to_owned()), CheckStatus::Failed, "EACCES"),
            (CredentialSourceState::Missing("no key".to_owned()), CheckStatus::Failed, "no key"),
        ];
        for (state, status, message) in table {
            let result = credentials(&CredentialFacts { subject: "vCenter a:443".to_owned(), state, secret: None });
            assert_eq!((result.status, result.message.as_str()), (status, message));
            assert_eq!(result.remedy.is_empty(), status != CheckStatus::Failed);
        }
    }
}
