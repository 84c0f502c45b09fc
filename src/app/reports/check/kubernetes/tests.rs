//! Tests of the checks of the Lease and of kubelets, on given facts.

use super::*;
use crate::app::reports::check::CheckStatus;

fn election(holder: Option<&str>) -> ElectionStatus {
    ElectionStatus {
        namespace: "kube-system".to_owned(),
        name: "cloud-controller-manager".to_owned(),
        holder: holder.map(str::to_owned),
        since: None,
    }
}

fn node(owner: NodeOwner, vm: VmCheckFacts) -> NodeCheckFacts {
    NodeCheckFacts { name: "worker-1".to_owned(), owner, is_initialized: false, contradicting_uuids: None, vm }
}

fn pending() -> VmCheckFacts {
    VmCheckFacts::Pending { message: String::new() }
}

#[test]
fn the_lease_is_held_and_renewed_or_the_check_fails() {
    let table = [
        (Some("cp-1_x"), true, None, CheckStatus::Passed, "this process holds and renews it"),
        (Some("cp-2_x"), false, None, CheckStatus::Passed, "held by cp-2_x"),
        (Some("cp-1_x"), true, Some("not renewed since 9 s"), CheckStatus::Failed, "not renewed since 9 s"),
        (None, false, None, CheckStatus::Failed, "it has no holder, so no process writes to Nodes"),
    ];
    for (holder, leads, failure, status, message) in table {
        let result = lease(Some(&election(holder)), leads, failure);
        assert_eq!((result.status, result.message.as_str()), (status, message));
        assert_eq!(result.subject, "Lease kube-system/cloud-controller-manager");
    }
    assert_eq!(lease(None, true, None).status, CheckStatus::Skipped);
}

#[test]
fn a_node_without_taint_and_provider_id_fails_unless_it_is_no_vm() {
    let no_match = VmCheckFacts::NoMatch { message: String::new() };
    let table = [
        (NodeOwner::Vsphere, pending(), false, CheckStatus::Passed),
        (NodeOwner::Adoptable, pending(), false, CheckStatus::Failed),
        (NodeOwner::Adoptable, no_match, false, CheckStatus::Warning),
        (NodeOwner::Adoptable, pending(), true, CheckStatus::Passed),
    ];
    for (owner, vm, adopts, status) in table {
        let results = external_kubelets(&[node(owner.clone(), vm)], adopts, false);
        assert_eq!(results.iter().map(|result| result.status).collect::<Vec<_>>(), [status], "{owner:?} {adopts}");
    }
    let failed = external_kubelets(&[node(NodeOwner::Adoptable, pending())], false, false);
    assert!(failed[0].remedy[0].ends_with("kubectl delete node worker-1"), "{failed:?}");
}

#[test]
fn a_node_of_another_cloud_provider_is_a_warning_and_one_of_k3s_a_failure() {
    let foreign = |provider_id: &str| NodeOwner::Foreign { provider_id: provider_id.to_owned() };
    let table = [
        (NodeOwner::Vsphere, CheckStatus::Passed),
        (foreign("aws:///zone/i-1"), CheckStatus::Warning),
        (foreign("k3s://worker-1"), CheckStatus::Failed),
    ];
    for (owner, status) in table {
        let results = foreign_nodes(&[node(owner, pending())], false);
        assert_eq!((results.len(), results[0].status), (1, status), "{results:?}");
    }
}
