//! Pure: the checks of the Lease and of the kubelets of the Nodes.

use super::catalogue::CheckId;
use super::nodes::{NodeCheckFacts, NodeOwner, VmCheckFacts, summarized};
use super::{CheckResult, SHOW_PODS};
use crate::app::reports::status::{DEFAULT_LEASE_DURATION, ElectionStatus};
use crate::app::reports::text::{count, duration};

/// Prefixes of the provider IDs that the controllers inside K3s and RKE2 write.
const EMBEDDED: [&str; 2] = ["k3s://", "rke2://"];

/// Name of the taint that starts an initialization.
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Checks the Lease. `failure` is the reason why this process does not renew it in time, if it leads.
pub fn lease(election: Option<&ElectionStatus>, leads: bool, failure: Option<&str>) -> CheckResult {
    const ID: CheckId = CheckId::K04;
    let Some(election) = election else {
        return CheckResult::skipped(ID, "", "this process runs without an election (--leader-elect=false)");
    };
    let ElectionStatus { namespace, name, holder, .. } = election;
    let subject = format!("Lease {namespace}/{name}");
    let show = format!("kubectl -n {namespace} get lease {name} -o yaml");
    let limit = election.lease_duration_seconds.unwrap_or(DEFAULT_LEASE_DURATION);
    let is_renewed = election.renewal_age_seconds.is_some_and(|age| age <= limit);
    // The record of a released Lease has a duration of one second.
    let is_read = election.read_age_seconds.is_some_and(|age| age <= limit.max(DEFAULT_LEASE_DURATION));
    match (holder, failure) {
        (_, Some(failure)) => CheckResult::failed(ID, &subject, failure).with_command(show),
        (Some(_), None) if leads => CheckResult::passed(ID, &subject, "this process holds and renews it"),
        (_, None) if !is_read => {
            let message = match election.read_age_seconds {
                Some(age) => format!("this process has not read it for {}", duration(age)),
                None => "this process has not read it yet".to_owned(),
            };
            CheckResult::incomplete(ID, &subject, message)
        }
        (None, None) => {
            let message = "it has no holder, so no process writes to Nodes";
            CheckResult::failed(ID, &subject, message).with_command(SHOW_PODS)
        }
        (Some(holder), None) if !is_renewed => {
            let age = duration(election.renewal_age_seconds.unwrap_or_default());
            let message =
                format!("held by {holder}, which has not renewed it for {age}, so no process writes to Nodes");
            CheckResult::failed(ID, &subject, message).with_command(show)
        }
        (Some(holder), None) => CheckResult::passed(ID, &subject, format!("held by {holder}")),
    }
}

/// Checks that kubelets register their Nodes for an external cloud provider. `adopts` is `--adopt-untainted-nodes`.
pub fn external_kubelets(nodes: &[NodeCheckFacts], adopts: bool, is_deep: bool) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::K09;
    if adopts {
        let message = "--adopt-untainted-nodes initializes Nodes without the taint, too";
        return vec![CheckResult::passed(ID, "", message)];
    }
    let adoptable = nodes.iter().filter(|node| node.owner == NodeOwner::Adoptable);
    let findings: Vec<CheckResult> = adoptable.map(untainted).collect();
    let passed = format!("{} with the taint or a provider ID", count(nodes.len() - findings.len(), "Node"));
    summarized(ID, findings, &passed, is_deep)
}

fn untainted(node: &NodeCheckFacts) -> CheckResult {
    let name = &node.name;
    let subject = format!("Node {name}");
    let message = format!(
        "it was registered without the taint {TAINT} and has no provider ID, so it is never initialized: its kubelet \
         runs without --cloud-provider=external"
    );
    if matches!(node.vm, VmCheckFacts::NoMatch { .. }) {
        let message =
            format!("{message}. No vCenter has a VM of this Node; if it is no VM of vSphere, nothing is wrong");
        return CheckResult::warning(CheckId::K09, &subject, message)
            .with_remedy("if it is a VM of vSphere: see docs/reasons.md#vmnotfound");
    }
    CheckResult::failed(CheckId::K09, &subject, message)
        .with_remedy("set --cloud-provider=external for the kubelet and restart it; then start the initialization:")
        .with_command(format!("kubectl taint node {name} {TAINT}=true:NoSchedule"))
        .with_remedy("or use --adopt-untainted-nodes")
}

/// Checks for Nodes that another cloud provider initialized.
pub fn foreign_nodes(nodes: &[NodeCheckFacts], is_deep: bool) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::K10;
    let finding = |node: &NodeCheckFacts| {
        let NodeOwner::Foreign { provider_id } = &node.owner else { return None };
        let (name, subject) = (&node.name, format!("Node {}", node.name));
        let message = format!("it has provider ID {provider_id} of another cloud provider and is left alone");
        Some(match EMBEDDED.iter().any(|prefix| provider_id.starts_with(prefix)) {
            true => CheckResult::failed(ID, &subject, message)
                .with_remedy(
                    "start K3s or RKE2 with --disable-cloud-controller and --kubelet-arg=cloud-provider=external. Do not \
                     delete the Node of a server, which removes its etcd member (docs/migrate/rke2-k3s.md). Register the \
                     Node of an agent again:",
                )
                .with_registration(name),
            false => CheckResult::warning(ID, &subject, message)
                .with_remedy(
                    "if it is a VM of vSphere: turn off the other cloud controller manager, then register the Node \
                     again:",
                )
                .with_registration(name),
        })
    };
    let findings: Vec<CheckResult> = nodes.iter().filter_map(finding).collect();
    let passed = format!("{} of vSphere or without a provider ID", count(nodes.len() - findings.len(), "Node"));
    summarized(ID, findings, &passed, is_deep)
}

#[cfg(test)]
pub(super) mod tests;
