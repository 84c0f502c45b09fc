//! Pure: the checks of the workloads that run cloud controller managers.

use super::CheckResult;
use super::catalogue::CheckId;
use crate::app::reports::text::count;
use crate::kubernetes::workloads::{PodFault, Workload, WorkloadsError};
use std::collections::BTreeSet;

/// The provider of this program.
const VSPHERE: &str = "vsphere";

/// Providers of the controllers inside RKE2 and K3s, which initialize every Node.
const EMBEDDED: [&str; 2] = ["rke2", "k3s"];

/// Values of `--cloud-provider` with which no cloud controller manager runs: other programs have the flag, too.
const NO_PROVIDER: [&str; 2] = ["external", ""];

/// Images of vSphere's cloud controller managers, which may run without `--cloud-provider`.
const VSPHERE_IMAGES: [&str; 2] = ["cloud-provider-vsphere", "vsphere-cloud-controller-manager"];

/// Maximum number of Pods that are named.
const NAMED: usize = 20;

/// A cloud controller manager.
struct ControllerManager<'a> {
    workload: &'a Workload,
    provider: &'a str,
    /// Namespace and name of the Lease; `None` without an election.
    lease: Option<String>,
}

impl ControllerManager<'_> {
    fn subject(&self) -> String {
        let Workload { kind, namespace, name, .. } = self.workload;
        format!("{kind} {namespace}/{name}")
    }

    fn lease_text(&self) -> String {
        self.lease.as_ref().map_or_else(|| "no Lease".to_owned(), |lease| format!("the Lease {lease}"))
    }

    /// Adds the step that removes this manager.
    fn with_removal(&self, result: CheckResult) -> CheckResult {
        let Workload { kind, namespace, name, .. } = self.workload;
        match *kind {
            "Pod" => result.with_remedy("remove its file from the folder of static Pods of the kubelet"),
            kind => result
                .with_remedy("if it is the one too many:")
                .with_command(format!("kubectl -n {namespace} delete {} {name}", kind.to_lowercase())),
        }
    }
}

/// Returns the result of both checks for a process that asks no such question: its role does not allow it.
pub fn of_process() -> Vec<CheckResult> {
    let reason = "the role of the process does not allow to read DaemonSets and Pods: use --detached with the \
                  kubeconfig of an administrator";
    [CheckId::K05, CheckId::K07].map(|id| CheckResult::skipped(id, "", reason)).into()
}

/// Checks the workloads. Before an installation there need not be one.
pub fn workloads(workloads: Result<&[Workload], &WorkloadsError>, is_preflight: bool) -> Vec<CheckResult> {
    const IDS: [CheckId; 2] = [CheckId::K05, CheckId::K07];
    match workloads {
        Ok(workloads) => {
            let managers: Vec<ControllerManager<'_>> = workloads.iter().filter_map(manager).collect();
            let mut results = rivals(&managers);
            results.extend(pods(&managers, is_preflight));
            results
        }
        Err(WorkloadsError::Forbidden(reason)) => {
            let reason = format!("the credentials do not allow it; use the kubeconfig of an administrator: {reason}");
            IDS.map(|id| CheckResult::skipped(id, "", &reason)).into()
        }
        Err(WorkloadsError::Unavailable(reason)) => IDS.map(|id| CheckResult::incomplete(id, "", reason)).into(),
    }
}

fn manager(workload: &Workload) -> Option<ControllerManager<'_>> {
    let is_of_vsphere = |image: &String| VSPHERE_IMAGES.iter().any(|part| image.contains(part));
    let provider = match flag(workload, "cloud-provider") {
        Some(provider) => provider,
        None if workload.images.iter().any(is_of_vsphere) => VSPHERE,
        None => "unknown",
    };
    if NO_PROVIDER.contains(&provider) {
        return None;
    }
    let has_election = flag(workload, "leader-elect") != Some("false");
    let namespace = flag(workload, "leader-elect-resource-namespace").unwrap_or("kube-system");
    let name = flag(workload, "leader-elect-resource-name").unwrap_or("cloud-controller-manager");
    Some(ControllerManager { workload, provider, lease: has_election.then(|| format!("{namespace}/{name}")) })
}

/// Returns the value of a flag, in the form `--name=value` or `--name value`.
fn flag<'a>(workload: &'a Workload, name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut arguments = workload.arguments.iter().peekable();
    while let Some(argument) = arguments.next() {
        let Some(rest) = argument.strip_prefix("--").and_then(|rest| rest.strip_prefix(name)) else { continue };
        match rest.strip_prefix('=') {
            Some(value) => found = Some(value),
            None if rest.is_empty() => found = arguments.peek().map(|value| value.as_str()),
            None => {}
        }
    }
    found
}

/// Checks that no second cloud controller manager runs.
fn rivals(managers: &[ControllerManager<'_>]) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::K05;
    let (own, others): (Vec<&ControllerManager<'_>>, Vec<&ControllerManager<'_>>) =
        managers.iter().partition(|manager| manager.provider == VSPHERE);
    let mut results = Vec::new();
    for other in others {
        let subject = other.subject();
        let message = format!("a cloud controller manager of another provider ({}) runs, too", other.provider);
        results.push(match EMBEDDED.contains(&other.provider) {
            true => CheckResult::failed(ID, &subject, format!("{message}, and initializes Nodes before this one"))
                .with_remedy("RKE2 and K3s: disable-cloud-controller: true in the configuration of each server"),
            false => other.with_removal(CheckResult::warning(ID, &subject, message)),
        });
    }
    // Pods of one static Pod have one name for each host.
    let leases: BTreeSet<&Option<String>> = own.iter().map(|manager| &manager.lease).collect();
    let is_same_pod = own.iter().all(|manager| manager.workload.kind == "Pod");
    for manager in own.iter().filter(|_| own.len() > 1 && !(is_same_pod && leases.len() == 1)) {
        let subject = manager.subject();
        let lease = manager.lease_text();
        results.push(match leases.len() {
            1 => {
                let message = format!("it is one of {} that run for vSphere, in turns under {lease}", own.len());
                manager.with_removal(CheckResult::warning(ID, &subject, message))
            }
            _ => {
                let message =
                    format!("it is one of {} that run for vSphere at the same time, under {lease}", own.len());
                manager.with_removal(CheckResult::failed(ID, &subject, message))
            }
        });
    }
    if results.is_empty() {
        let message = match own.first() {
            Some(manager) => format!("only {} runs a cloud controller manager", manager.subject()),
            None => "no cloud controller manager runs".to_owned(),
        };
        results.push(CheckResult::passed(ID, "", message));
    }
    results
}

/// Checks that the Pods of this program's workloads run.
fn pods(managers: &[ControllerManager<'_>], is_preflight: bool) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::K07;
    let own: Vec<&ControllerManager<'_>> = managers.iter().filter(|manager| manager.provider == VSPHERE).collect();
    match (own.as_slice(), is_preflight) {
        ([], true) => return vec![CheckResult::skipped(ID, "", "nothing is installed yet")],
        ([], false) => {
            let message =
                "no DaemonSet, Deployment or static Pod with the label component=cloud-controller-manager runs it";
            return vec![
                CheckResult::warning(ID, "", message).with_remedy("docs/install/kubeadm.md describes the installation"),
            ];
        }
        _ => {}
    }
    own.into_iter().flat_map(pods_of).collect()
}

fn pods_of(manager: &ControllerManager<'_>) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::K07;
    let subject = manager.subject();
    let Workload { kind, namespace, name, desired, ready, faults, .. } = manager.workload;
    let show = format!("kubectl -n {namespace} describe {} {name}", kind.to_lowercase());
    if *desired == 0 {
        let message = "it selects no Node or has no replicas, so no Pod runs";
        return vec![CheckResult::failed(ID, &subject, message).with_command(show)];
    }
    let fault = |fault: &PodFault| {
        let PodFault { pod, reason, message } = fault;
        let text = if message.is_empty() { reason.clone() } else { format!("{reason}: {message}") };
        CheckResult::failed(ID, &format!("Pod {namespace}/{pod}"), text)
            .with_command(format!("kubectl -n {namespace} describe pod {pod}"))
    };
    let mut results: Vec<CheckResult> = faults.iter().take(NAMED).map(fault).collect();
    let desired = usize::try_from(*desired).unwrap_or_default();
    let of_desired = format!("{ready} of {} ready", count(desired, "Pod"));
    if results.is_empty() && manager.workload.ready < manager.workload.desired {
        results.push(CheckResult::warning(ID, &subject, of_desired).with_command(show));
    } else if results.is_empty() {
        results.push(CheckResult::passed(ID, &subject, of_desired));
    }
    results
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::app::reports::check::CheckStatus;

    pub(in crate::app::reports::check) fn workload(kind: &'static str, name: &str, arguments: &[&str]) -> Workload {
        Workload {
            kind,
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            images: vec!["a".to_owned()],
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            desired: 3,
            ready: 3,
            faults: Vec::new(),
        }
    }

    fn statuses(id: CheckId, found: &[Workload], is_preflight: bool) -> Vec<CheckStatus> {
        let results = workloads(Ok(found), is_preflight);
        results.into_iter().filter(|result| result.id == id).map(|result| result.status).collect()
    }

    #[test]
    fn a_second_manager_warns_under_the_same_lease_and_fails_beside_it() {
        const OWN: &[&str] = &["--v=2", "--cloud-provider=vsphere"];
        let ours = || workload("DaemonSet", "vsphere-cloud-controller-manager", OWN);
        let other_lease = ["--cloud-provider", "vsphere", "--leader-elect-resource-name=rancher"];
        use CheckStatus::{Failed, Passed, Warning};
        for (case, found, expected) in [
            ("none", vec![], vec![Passed]),
            ("one", vec![ours()], vec![Passed]),
            ("no manager", vec![ours(), workload("Deployment", "kcm", &["--cloud-provider=external"])], vec![Passed]),
            ("same Lease", vec![ours(), workload("Deployment", "cpi", OWN)], vec![Warning, Warning]),
            ("other Lease", vec![ours(), workload("DaemonSet", "cpi", &other_lease)], vec![Failed, Failed]),
            (
                "no election",
                vec![ours(), workload("Pod", "a", &[OWN[1], "--leader-elect=false"])],
                vec![Failed, Failed],
            ),
            ("static Pods", vec![workload("Pod", "a-1", OWN), workload("Pod", "a-2", OWN)], vec![Passed]),
            ("embedded", vec![ours(), workload("Pod", "ccm", &["--cloud-provider=rke2"])], vec![Failed]),
            ("another", vec![ours(), workload("Pod", "ccm", &["--cloud-provider=aws"])], vec![Warning]),
        ] {
            assert_eq!(statuses(CheckId::K05, &found, false), expected, "{case}");
        }
        let failed = &workloads(Ok(&[ours(), workload("DaemonSet", "cpi", &other_lease)]), false)[1];
        assert!(failed.message.contains("kube-system/rancher"), "{failed:?}");
        assert_eq!(failed.commands, ["kubectl -n kube-system delete daemonset cpi"]);
    }

    #[test]
    fn a_manager_without_the_flag_is_known_by_its_image() {
        let image = "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.33.0".to_owned();
        let go = Workload { images: vec![image], ..workload("DaemonSet", "cpi", &[]) };
        assert_eq!(manager(&go).unwrap().provider, VSPHERE);
        assert_eq!(manager(&workload("DaemonSet", "x", &[])).unwrap().provider, "unknown");
    }

    #[test]
    fn pods_that_are_not_ready_fail_with_their_cause() {
        let ours = |desired, ready, faults: Vec<PodFault>| Workload {
            desired,
            ready,
            faults,
            ..workload("DaemonSet", "ccm", &["--cloud-provider=vsphere"])
        };
        let fault = || PodFault {
            pod: "ccm-1".to_owned(),
            reason: "Unschedulable".to_owned(),
            message: "no free ports".to_owned(),
        };
        use CheckStatus::{Failed, Passed, Skipped, Warning};
        for (found, is_preflight, expected) in [
            (vec![ours(3, 3, vec![])], false, vec![Passed]),
            (vec![ours(3, 2, vec![])], false, vec![Warning]),
            (vec![ours(3, 1, vec![fault(), fault()])], false, vec![Failed, Failed]),
            (vec![ours(0, 0, vec![])], false, vec![Failed]),
            (vec![], false, vec![Warning]),
            (vec![], true, vec![Skipped]),
        ] {
            assert_eq!(statuses(CheckId::K07, &found, is_preflight), expected, "{found:?}");
        }
        let results = workloads(Ok(&[ours(3, 2, vec![fault()])]), false);
        let failed = results.iter().find(|result| result.id == CheckId::K07).unwrap();
        assert_eq!(
            (failed.subject.as_str(), failed.message.as_str()),
            ("Pod kube-system/ccm-1", "Unschedulable: no free ports")
        );
        assert_eq!(failed.remedy, ["kubectl -n kube-system describe pod ccm-1"]);
    }

    #[test]
    fn without_the_permission_both_are_skipped_and_without_an_answer_not_known() {
        let of = |error| workloads(Err(&error), false).into_iter().map(|result| result.status).collect::<Vec<_>>();
        assert_eq!(of(WorkloadsError::Forbidden("no".to_owned())), [CheckStatus::Skipped; 2]);
        assert_eq!(of(WorkloadsError::Unavailable("no".to_owned())), [CheckStatus::Incomplete; 2]);
        assert!(of_process().iter().all(|result| result.status == CheckStatus::Skipped));
    }
}
