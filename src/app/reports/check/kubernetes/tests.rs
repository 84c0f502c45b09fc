//! Tests of the checks of the Lease and of kubelets, on given facts.

use super::*;
use crate::app::reports::check::CheckStatus;

pub(in crate::app::reports::check) fn election(holder: Option<&str>) -> ElectionStatus {
    ElectionStatus {
        namespace: "kube-system".to_owned(),
        name: "cloud-controller-manager".to_owned(),
        holder: holder.map(str::to_owned),
        since: None,
        read_age_seconds: Some(2),
        renewal_age_seconds: Some(2),
        lease_duration_seconds: Some(15),
    }
}

pub(in crate::app::reports::check) fn node(owner: NodeOwner, vm: VmCheckFacts) -> NodeCheckFacts {
    NodeCheckFacts {
        name: "worker-1".to_owned(),
        owner,
        is_initialized: false,
        contradicting_uuids: None,
        uuids: Vec::new(),
        user: None,
        vm,
    }
}

pub(in crate::app::reports::check) fn pending() -> VmCheckFacts {
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
fn on_a_standby_a_holder_that_does_not_renew_fails_and_a_lease_that_was_not_read_is_not_known() {
    let table = [
        (Some(15), Some(15), CheckStatus::Passed, "held by cp-2_x"),
        (
            Some(2),
            Some(16),
            CheckStatus::Failed,
            "held by cp-2_x, which has not renewed it for 16 s, so no process writes to Nodes",
        ),
        (Some(70), Some(70), CheckStatus::Incomplete, "this process has not read it for 1 m 10 s"),
        (None, None, CheckStatus::Incomplete, "this process has not read it yet"),
    ];
    for (read, renewal, status, message) in table {
        let (read_age_seconds, renewal_age_seconds) = (read, renewal);
        let election = ElectionStatus { read_age_seconds, renewal_age_seconds, ..election(Some("cp-2_x")) };
        let result = lease(Some(&election), false, None);
        assert_eq!((result.status, result.message.as_str()), (status, message));
        assert_eq!(
            lease(Some(&election), true, None).status,
            CheckStatus::Passed,
            "the leader checks its own renewals"
        );
    }
    let released = ElectionStatus { read_age_seconds: Some(4), lease_duration_seconds: Some(1), ..election(None) };
    assert_eq!(lease(Some(&released), false, None).status, CheckStatus::Failed, "it has no holder");
    let unread = ElectionStatus { read_age_seconds: None, ..election(None) };
    assert_eq!(lease(Some(&unread), false, None).status, CheckStatus::Incomplete, "a holder may not be known yet");
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
    let taint = "kubectl taint node worker-1 node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule";
    assert_eq!(failed[0].commands, [taint]);
}

#[test]
fn a_node_of_another_cloud_provider_is_a_warning_and_one_of_k3s_a_failure() {
    let foreign = |provider_id: &str| NodeOwner::Foreign { provider_id: provider_id.to_owned() };
    let table = [
        (NodeOwner::Vsphere, CheckStatus::Passed),
        (foreign("aws:///zone/i-1"), CheckStatus::Warning),
        (foreign("k3s://worker-1"), CheckStatus::Failed),
        (foreign("rke2://worker-1"), CheckStatus::Failed),
    ];
    for (owner, status) in table {
        let results = foreign_nodes(&[node(owner, pending())], false);
        assert_eq!((results.len(), results[0].status), (1, status), "{results:?}");
    }
}
