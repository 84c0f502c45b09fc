//! Pure: the checks that a command without a daemon answers in another way: it reads the Lease instead of holding it,
//! and knows no term of leadership.

use super::catalogue::CheckId;
use super::configuration::unused_key;
use super::nodes::{NodeCheckFacts, NodeOwner, VmCheckFacts};
use super::{CheckResult, CheckStatus, SHOW_PODS};
use crate::app::reports::text::count;
use jiff::{SignedDuration, Timestamp};

/// Tolerance for the clocks of this host and of the holder.
const CLOCK_MARGIN: SignedDuration = SignedDuration::from_secs(30);

/// The checks about the state of a running daemon. Before an installation there is none.
const OF_DAEMON: [CheckId; 2] = [CheckId::C02, CheckId::D01];

/// The Lease of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The holder and the end of its term, by its clock; `None` if the Lease does not exist or has no holder.
    ///
    /// # Errors
    /// The Lease could not be read, for this reason.
    pub holder: Result<Option<(String, Option<Timestamp>)>, String>,
}

/// Checks the Lease at this time; `None` without an election. Before an installation, a Lease without a holder is fine.
pub fn lease(facts: Option<&LeaseFacts>, time: Timestamp, is_preflight: bool) -> CheckResult {
    const ID: CheckId = CheckId::K04;
    let Some(LeaseFacts { namespace, name, holder }) = facts else {
        return CheckResult::skipped(ID, "", "the flags turn the election off (--leader-elect=false)");
    };
    let subject = format!("Lease {namespace}/{name}");
    let show = format!("kubectl -n {namespace} get lease {name} -o yaml");
    let is_over = |expiry: Timestamp| expiry.checked_add(CLOCK_MARGIN).is_ok_and(|end| end < time);
    match holder {
        Err(reason) => CheckResult::incomplete(ID, &subject, reason),
        Ok(None) if is_preflight => CheckResult::skipped(ID, &subject, "no process holds it yet"),
        Ok(None) => {
            CheckResult::failed(ID, &subject, "it has no holder, so no process writes to Nodes").with_command(SHOW_PODS)
        }
        Ok(Some((holder, Some(expiry)))) if is_over(*expiry) => {
            let message = format!("{holder} has not renewed it: it ended at {expiry}, by the clock of the holder");
            match is_preflight {
                true => CheckResult::warning(ID, &subject, message).with_command(show),
                false => CheckResult::failed(ID, &subject, message).with_command(show),
            }
        }
        Ok(Some((holder, _))) => CheckResult::passed(ID, &subject, format!("held by {holder}")),
    }
}

/// Returns the result of the check whether the file is in effect, which only a running process knows.
pub fn in_effect() -> CheckResult {
    CheckResult::skipped(CheckId::C02, "", "only a running process knows which configuration is in effect there")
}

/// Checks the deletion of Nodes. `mode` is `--node-deletion`. Clocks and limits are known to the leader only, so this
/// passes only if no Node may have to be deleted. `None` for Nodes that were not read.
pub fn deletion(mode: &str, nodes: Option<&[NodeCheckFacts]>) -> CheckResult {
    const ID: CheckId = CheckId::D01;
    let within = format!("--node-deletion={mode}");
    let Some(nodes) = nodes else { return CheckResult::incomplete(ID, "", "the Nodes were not read") };
    if mode != "enforce" {
        return CheckResult::warning(ID, "", format!("{within}: Nodes whose VMs are gone stay"))
            .with_remedy("if this is not meant: --node-deletion=enforce");
    }
    let own: Vec<&VmCheckFacts> =
        nodes.iter().filter(|node| node.owner == NodeOwner::Vsphere).map(|node| &node.vm).collect();
    let gone = own.iter().filter(|vm| matches!(vm, VmCheckFacts::NoMatch { .. })).count();
    let unknown = own.iter().filter(|vm| matches!(vm, VmCheckFacts::Pending { .. } | VmCheckFacts::Unresolved { .. }));
    match (gone, unknown.count()) {
        (0, 0) => CheckResult::passed(ID, "", format!("{within}, and the VM of each Node exists")),
        (0, unknown) => {
            let message = format!("{within}; the VMs of {} were not found out", count(unknown, "Node"));
            CheckResult::incomplete(ID, "", message)
        }
        (gone, _) => {
            let message = format!(
                "{within}; no vCenter has a VM of {}. Only the leader knows whether and when they are deleted",
                count(gone, "Node")
            );
            CheckResult::incomplete(ID, "", message)
        }
    }
}

/// Returns the results of a check before an installation: what only a running daemon knows does not apply.
pub fn before_installation(results: Vec<CheckResult>) -> Vec<CheckResult> {
    let skipped = |result: CheckResult| match result.status {
        CheckStatus::Incomplete if OF_DAEMON.contains(&result.id) => {
            let message = format!("needs a running daemon: {}", result.message);
            CheckResult::skipped(result.id, &result.subject, message)
        }
        _ => result,
    };
    results.into_iter().map(skipped).collect()
}

/// Returns the results if the daemon would not start with its flags and files, each with its error.
pub fn unusable_settings(errors: &[String], warnings: &[String]) -> Vec<CheckResult> {
    let failed = |error: &String| {
        CheckResult::failed(CheckId::C01, "", error)
            .with_remedy("correct the flag or the file; this checks the file:")
            .with_command("vsphere-cloud-controller-manager config-lint FILE")
    };
    let mut results: Vec<CheckResult> = errors.iter().map(failed).collect();
    results.extend(warnings.iter().map(|warning| unused_key(warning)));
    let has_result = |id: CheckId| id == CheckId::C01 || id == CheckId::C03 && !warnings.is_empty();
    let others = super::catalogue::CHECKS.iter().map(|(id, ..)| *id).filter(|id| !has_result(*id));
    results.extend(others.map(|id| CheckResult::needs(id, "", CheckId::C01)));
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::check::nodes::NodeOwner;

    #[test]
    fn the_lease_passes_while_a_holder_renews_it_and_before_an_installation_without_a_holder() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = time("2026-11-24T03:12:40Z");
        let held = |expiry: Option<Timestamp>| Ok(Some(("cp-1_x".to_owned(), expiry)));
        let fresh = Some(time("2026-11-24T03:12:50Z"));
        let tolerated = Some(time("2026-11-24T03:12:15Z"));
        let old = Some(time("2026-11-24T03:12:00Z"));
        use CheckStatus::{Failed, Incomplete, Passed, Skipped, Warning};
        for (holder, of_daemon, of_preflight) in [
            (held(fresh), Passed, Passed),
            (held(tolerated), Passed, Passed),
            (held(None), Passed, Passed),
            (held(old), Failed, Warning),
            (Ok(None), Failed, Skipped),
            (Err("no answer".to_owned()), Incomplete, Incomplete),
        ] {
            let facts = LeaseFacts { namespace: "kube-system".to_owned(), name: "ccm".to_owned(), holder };
            for (is_preflight, expected) in [(false, of_daemon), (true, of_preflight)] {
                let result = lease(Some(&facts), now, is_preflight);
                assert_eq!(result.status, expected, "{facts:?} {is_preflight}");
                assert_eq!(result.subject, "Lease kube-system/ccm");
            }
        }
        assert_eq!(lease(None, now, false).status, Skipped);
    }

    fn node(owner: NodeOwner, vm: VmCheckFacts) -> NodeCheckFacts {
        NodeCheckFacts {
            name: "worker-1".to_owned(),
            owner,
            is_initialized: true,
            contradicting_uuids: None,
            uuids: Vec::new(),
            user: None,
            vm,
        }
    }

    #[test]
    fn the_deletion_passes_only_if_no_vm_may_be_gone() {
        let pending = || VmCheckFacts::Pending { message: String::new() };
        let no_match = || VmCheckFacts::NoMatch { message: String::new() };
        let foreign = || NodeOwner::Foreign { provider_id: "k3s://a".to_owned() };
        let table = [
            ("enforce", vec![node(foreign(), pending())], CheckStatus::Passed),
            ("enforce", vec![node(NodeOwner::Vsphere, pending())], CheckStatus::Incomplete),
            ("enforce", vec![node(NodeOwner::Vsphere, no_match())], CheckStatus::Incomplete),
            ("dry-run", vec![node(NodeOwner::Vsphere, no_match())], CheckStatus::Warning),
            ("off", Vec::new(), CheckStatus::Warning),
        ];
        for (mode, nodes, expected) in table {
            assert_eq!(deletion(mode, Some(&nodes)).status, expected, "{mode} {nodes:?}");
        }
        assert_eq!(deletion("enforce", None).status, CheckStatus::Incomplete);
    }

    #[test]
    fn before_an_installation_only_the_state_of_a_daemon_is_skipped() {
        let results = before_installation(vec![
            CheckResult::incomplete(CheckId::D01, "", "not known"),
            CheckResult::incomplete(CheckId::V01, "", "not known"),
            CheckResult::failed(CheckId::X07, "", "held"),
        ]);
        let statuses: Vec<CheckStatus> = results.iter().map(|result| result.status).collect();
        assert_eq!(statuses, [CheckStatus::Skipped, CheckStatus::Incomplete, CheckStatus::Failed]);
        assert_eq!(results[0].message, "needs a running daemon: not known");
    }

    #[test]
    fn settings_with_errors_fail_and_all_other_checks_are_skipped() {
        let results = unusable_settings(&["--v=x: no number".to_owned()], &[]);
        let failed: Vec<&CheckResult> = results.iter().filter(|result| result.status == CheckStatus::Failed).collect();
        assert_eq!((failed.len(), failed[0].id, failed[0].message.as_str()), (1, CheckId::C01, "--v=x: no number"));
        assert!(results.iter().all(|result| matches!(result.status, CheckStatus::Failed | CheckStatus::Skipped)));
        assert_eq!(results.len(), super::super::catalogue::CHECKS.len());
        let warned = unusable_settings(&["a".to_owned()], &["b".to_owned()]);
        assert_eq!(warned.iter().filter(|result| result.id == CheckId::C03).count(), 1);
    }
}
