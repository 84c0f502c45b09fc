//! Tests of the checks of Nodes, on given facts.

use super::*;

pub(in crate::app::reports::check) fn vm() -> FoundVm {
    FoundVm {
        name: "worker-1 (vm-7)".to_owned(),
        server: "vc:443".to_owned(),
        is_current: true,
        is_powered_on: true,
        has_running_tools: true,
        tools: "guestToolsRunning".to_owned(),
        unreadable: Vec::new(),
        addresses: 2,
        address_difference: AddressDifference::None,
        zone: "zone-a".to_owned(),
        region: "region-1".to_owned(),
        pending: None,
        differing_zone_labels: Vec::new(),
        zone_command: String::new(),
        notes: Vec::new(),
    }
}

pub(in crate::app::reports::check) fn with(vm: FoundVm) -> NodeCheckFacts {
    NodeCheckFacts {
        name: "worker-1".to_owned(),
        owner: NodeOwner::Vsphere,
        is_initialized: true,
        contradicting_uuids: None,
        uuids: vec!["4211".to_owned(), "1142".to_owned()],
        user: Some("ccm@vsphere.local".to_owned()),
        vm: VmCheckFacts::Found(Box::new(vm)),
    }
}

pub(in crate::app::reports::check) fn without(vm: VmCheckFacts) -> NodeCheckFacts {
    NodeCheckFacts { vm, is_initialized: false, ..with(self::vm()) }
}

pub(in crate::app::reports::check) fn unresolved(reason: Reason) -> NodeCheckFacts {
    without(VmCheckFacts::Unresolved { reason, message: "the text".to_owned() })
}

pub(in crate::app::reports::check) fn run(nodes: &[NodeCheckFacts], is_deep: bool) -> Vec<CheckResult> {
    vms(&NodeChecksInput { nodes, has_zones: true, is_deep })
}

/// Asserts that these checks have this status, and that all others pass.
fn assert_only(case: &str, node: NodeCheckFacts, expected: &[(CheckId, CheckStatus)]) {
    let others = run(&[node], false).into_iter().map(|result| (result.id, result.status));
    let others: Vec<_> = others.filter(|(_, status)| *status != CheckStatus::Passed).collect();
    assert_eq!(others, expected, "{case}");
}

/// All checks of VMs in their order, with the status of V01.
fn all_but_v01(status: CheckStatus) -> [(CheckId, CheckStatus); 6] {
    [CheckId::P02, CheckId::V01, CheckId::V02, CheckId::V05, CheckId::V06, CheckId::Z02].map(|id| match id {
        CheckId::V01 => (id, status),
        _ => (id, CheckStatus::Skipped),
    })
}

#[test]
fn a_node_with_its_vm_passes_all_checks() {
    assert_only("healthy", with(vm()), &[]);
    let messages: Vec<String> =
        run(&[with(vm()), with(vm())], false).into_iter().map(|result| result.message).collect();
    assert_eq!(messages.len(), 6);
    assert_eq!(messages[1], "2 Nodes with their VM");
}

#[test]
fn without_the_vm_only_the_check_of_the_cause_fails() {
    use CheckStatus::{Failed, Incomplete, Skipped};
    let no_match = VmCheckFacts::NoMatch { message: "no vCenter has it".to_owned() };
    assert_only("no match", without(no_match), &all_but_v01(Failed));
    let pending = VmCheckFacts::Pending { message: String::new() };
    assert_only("pending", without(pending), &all_but_v01(Incomplete));
    assert_only("vCenter down", unresolved(reason::VCenterUnavailable), &all_but_v01(Skipped));
    assert_only("stale", with(FoundVm { is_current: false, ..vm() }), &all_but_v01(Skipped));
    assert_only("several", unresolved(reason::SeveralVMsMatch), &all_but_v01(Failed));
    let mut mismatch = all_but_v01(Skipped);
    mismatch[2] = (CheckId::V02, Failed);
    assert_only("mismatch", unresolved(reason::ProviderIDMismatch), &mismatch);
    let mut unreadable = all_but_v01(Failed);
    unreadable[0] = (CheckId::P02, Failed);
    assert_only("not readable", unresolved(reason::VMNotReadable), &unreadable);
    let stale = run(&[with(FoundVm { is_current: false, ..vm() })], false);
    assert!(stale.iter().all(|result| result.message == "needs A03" && result.subject == "1 Node"), "{stale:?}");
}

#[test]
fn each_finding_about_a_vm_warns_or_fails_in_its_own_check() {
    use CheckStatus::{Failed, Skipped, Warning};
    let joining = |vm: FoundVm| NodeCheckFacts { is_initialized: false, ..with(vm) };
    let hidden = FoundVm { unreadable: vec!["HostSystem host-18".to_owned()], ..vm() };
    assert_only("hidden host", with(hidden), &[(CheckId::P02, Failed)]);
    let contradicting_uuids = Some(("4211".to_owned(), ["5622".to_owned(), "2256".to_owned()]));
    assert_only("restored", NodeCheckFacts { contradicting_uuids, ..with(vm()) }, &[(CheckId::V02, Warning)]);
    let refused_ip = AddressDifference::RefusedNodeIp("10.0.0.9 is not reported".to_owned());
    let refused_ip = FoundVm { address_difference: refused_ip, ..vm() };
    assert_only("refused node IP", with(refused_ip.clone()), &[(CheckId::V06, Warning)]);
    assert_only("refused node IP of a joining Node", joining(refused_ip), &[(CheckId::V06, Failed)]);
    let changed = AddressDifference::Changed(vec!["InternalIP 10.0.0.7".to_owned()]);
    let changed = FoundVm { address_difference: changed, ..vm() };
    assert_only("other addresses", with(changed.clone()), &[(CheckId::V06, Warning)]);
    assert_only("addresses of a joining Node", joining(changed), &[]);
    let silent = FoundVm {
        has_running_tools: false,
        tools: "guestToolsNotRunning".to_owned(),
        addresses: 0,
        pending: Some((reason::ToolsNotRunning, "reports no host name".to_owned())),
        ..vm()
    };
    assert_only("tools", with(silent.clone()), &[(CheckId::V05, Warning), (CheckId::V06, Skipped)]);
    assert_only("tools of a joining Node", joining(silent), &[(CheckId::V05, Failed), (CheckId::V06, Skipped)]);
    let off = FoundVm { is_powered_on: false, has_running_tools: false, ..vm() };
    assert_only("off", with(off), &[(CheckId::V05, Skipped), (CheckId::V06, Skipped)]);
    let refused = FoundVm { addresses: 0, pending: Some((reason::NoNetworkMatches, "none".to_owned())), ..vm() };
    assert_only("addresses", with(refused.clone()), &[(CheckId::V06, Warning)]);
    assert_only("addresses of a joining Node", joining(refused), &[(CheckId::V06, Failed)]);
    let noted = FoundVm { notes: vec!["the provided node IP 10.0.0.9 is not taken".to_owned()], ..vm() };
    assert_only("node IP", with(noted), &[(CheckId::V06, Warning)]);
    let untagged = FoundVm { zone: String::new(), pending: Some((reason::NoZoneTags, "no tag".to_owned())), ..vm() };
    assert_only("zone", with(untagged.clone()), &[(CheckId::Z02, Warning)]);
    assert_only("zone of a joining Node", joining(untagged), &[(CheckId::Z02, Failed)]);
    let moved = FoundVm { differing_zone_labels: vec!["zone b instead of a".to_owned()], ..vm() };
    assert_only("moved", with(moved.clone()), &[(CheckId::Z02, Warning)]);
    assert_only("labels of a joining Node", joining(moved), &[]);
    let unknown = FoundVm { zone: String::new(), pending: Some((reason::ZoneUnknown, "no".to_owned())), ..vm() };
    assert_only("tags", with(unknown), &[(CheckId::Z02, Skipped)]);
}

#[test]
fn a_second_vm_never_gets_the_uuid_of_a_vm_that_exists() {
    let contradicting_uuids = Some(("4211".to_owned(), ["5622".to_owned(), "2256".to_owned()]));
    let commands = |vm: VmCheckFacts| {
        let node = NodeCheckFacts { vm, contradicting_uuids: contradicting_uuids.clone(), ..with(self::vm()) };
        let results = run(&[node], false);
        results.into_iter().find(|result| result.id == CheckId::V02).unwrap().commands
    };
    let search = |uuid: &str| format!("govc find / -type m -config.uuid {uuid}");
    let found = commands(VmCheckFacts::Found(Box::new(vm())));
    let drain = "kubectl drain worker-1 --ignore-daemonsets --delete-emptydir-data".to_owned();
    assert_eq!(found, [search("5622"), search("2256"), drain, "kubectl delete node worker-1".to_owned()]);
    let unknown = commands(VmCheckFacts::Unresolved { reason: reason::SeveralVMsMatch, message: String::new() });
    assert_eq!(unknown, ["4211", "5622", "2256"].map(search));
    let absent = commands(VmCheckFacts::NoMatch { message: String::new() });
    assert_eq!(absent, [search("5622"), search("2256"), "govc vm.change -vm VM -uuid 4211".to_owned()]);
}

#[test]
fn nodes_of_other_providers_are_not_checked_and_without_zones_there_is_no_check_of_zones() {
    let foreign = NodeCheckFacts { owner: NodeOwner::Foreign { provider_id: "aws:///i".to_owned() }, ..with(vm()) };
    let results = run(&[foreign], false);
    assert!(results.iter().all(|result| result.status == CheckStatus::Skipped), "{results:?}");
    let results = vms(&NodeChecksInput { nodes: &[with(vm())], has_zones: false, is_deep: false });
    assert_eq!(results.last().map(|result| (result.id, result.status)), Some((CheckId::Z02, CheckStatus::Skipped)));
}

#[test]
fn at_most_50_findings_are_named_and_no_failure_is_hidden_by_warnings() {
    let silent = FoundVm { has_running_tools: false, ..vm() };
    let named = |number: usize, is_initialized: bool| NodeCheckFacts {
        name: format!("n-{number}"),
        is_initialized,
        ..with(silent.clone())
    };
    let mut nodes: Vec<NodeCheckFacts> = (0..70).map(|number| named(number, true)).collect();
    nodes.push(named(70, false));
    let of_tools = |is_deep: bool| {
        let results = run(&nodes, is_deep).into_iter().filter(|result| result.id == CheckId::V05);
        results.collect::<Vec<_>>()
    };
    let some = of_tools(false);
    assert_eq!(some.len(), 51);
    assert_eq!((some[0].subject.as_str(), some[0].status), ("Node n-70", CheckStatus::Failed));
    let last = some.last().unwrap();
    assert_eq!((last.subject.as_str(), last.status), ("21 more", CheckStatus::Warning));
    assert_eq!(last.message, "with findings, which --deep names");
    assert_eq!(of_tools(true).len(), 71);
}

/// Returns the status of deletions in this mode, with nothing pending.
pub(in crate::app::reports::check) fn deletion_status(mode: &str) -> DeletionStatus {
    DeletionStatus {
        mode: mode.to_owned(),
        allowance: 5,
        limit: 5,
        is_mass_held: false,
        unanswered: 0,
        pending: Vec::new(),
        last: None,
    }
}

/// Returns a Node that is not deleted, for this reason.
pub(in crate::app::reports::check) fn pending(reason: &str) -> Vec<HeldObject> {
    vec![HeldObject { name: "worker-3".to_owned(), reason: reason.to_owned(), for_seconds: 10, is_expected: false }]
}

#[test]
fn a_pause_and_a_node_that_is_not_initialized_are_no_failure() {
    let paused = pending(lifecycle_reason::DeletionPaused.as_str());
    let result = deletion(Some(&DeletionStatus { allowance: 0, pending: paused, ..deletion_status("enforce") }), true);
    let expected = "--node-deletion=enforce, deletions are paused; 1 Node will be deleted afterwards: \
                    worker-3 (DeletionPaused)";
    assert_eq!((result.status, result.message.as_str()), (CheckStatus::Warning, expected));
    assert!(result.commands[0].ends_with(" deletions resume"), "{result:?}");
    let result = deletion(Some(&DeletionStatus { allowance: 0, ..deletion_status("enforce") }), true);
    let expected = "--node-deletion=enforce, deletions are paused, none pending";
    assert_eq!((result.status, result.message.as_str()), (CheckStatus::Passed, expected));
    let new = pending(lifecycle_reason::Uninitialized.as_str());
    let result = deletion(Some(&DeletionStatus { pending: new, ..deletion_status("enforce") }), false);
    assert_eq!(result.status, CheckStatus::Passed, "{result:?}");
    let held = pending("NeverSeen");
    let result = deletion(Some(&DeletionStatus { pending: held, ..deletion_status("enforce") }), true);
    assert_eq!(result.status, CheckStatus::Failed, "{result:?}");
}

#[test]
fn the_deletion_passes_warns_fails_or_is_not_known() {
    let status = deletion_status;
    let table = [
        (Some(status("enforce")), CheckStatus::Passed),
        (Some(status("off")), CheckStatus::Warning),
        (Some(status("dry-run")), CheckStatus::Warning),
        (Some(DeletionStatus { allowance: 0, ..status("enforce") }), CheckStatus::Warning),
        (
            Some(DeletionStatus {
                pending: pending(lifecycle_reason::DeletionGracePeriod.as_str()),
                ..status("enforce")
            }),
            CheckStatus::Warning,
        ),
        (Some(DeletionStatus { pending: pending("NeverSeen"), ..status("enforce") }), CheckStatus::Failed),
        (Some(DeletionStatus { is_mass_held: true, ..status("enforce") }), CheckStatus::Failed),
        (Some(DeletionStatus { unanswered: 2, ..status("enforce") }), CheckStatus::Incomplete),
        (Some(DeletionStatus { unanswered: 2, ..status("dry-run") }), CheckStatus::Incomplete),
        (Some(DeletionStatus { unanswered: 2, allowance: 0, ..status("enforce") }), CheckStatus::Incomplete),
        (Some(DeletionStatus { unanswered: 2, ..status("off") }), CheckStatus::Warning),
        (
            Some(DeletionStatus { unanswered: 2, pending: pending("NeverSeen"), ..status("enforce") }),
            CheckStatus::Failed,
        ),
        (Some(DeletionStatus { unanswered: 2, is_mass_held: true, ..status("enforce") }), CheckStatus::Failed),
        (None, CheckStatus::Incomplete),
    ];
    for (status, expected) in table {
        let result = deletion(status.as_ref(), false);
        assert_eq!(result.status, expected, "{status:?}: {result:?}");
    }
}
