//! Tests of the text of explanations of Nodes.

use super::*;
use crate::app::reports::explain::ExplainReport;
use crate::app::reports::explain::Fact;
use crate::app::reports::golden::assert_golden;
use crate::clients::vim::MoRef;
use crate::cloud::InstanceMetadata;
use crate::cloud::node::addresses::EXTERNAL_IP;
use crate::controllers::driver::Requeue;
use crate::controllers::node::plan::NodePlan;
use crate::controllers::node::reason;
use crate::providers::vsphere::nodes::absence::last_place::LastObservation;
use crate::providers::vsphere::nodes::lookup::instance_cache::CachedInstance;
use crate::providers::vsphere::reason as vsphere;
use crate::providers::vsphere::vcenter::VmKey;
use crate::providers::vsphere::vcenter::zone_tags::{Tag, ZoneCategories};
use k8s_openapi::api::core::v1::{NodeAddress, Taint};
use std::time::Duration;
use tokio::time::Instant;

const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";
const SWAPPED: &str = "56492e42-22ad-3911-6d72-59cc8f26bc90";

fn object(kind: &str, id: &str, name: &str, path: &str) -> ObjectName {
    ObjectName { object: MoRef::new(kind, id), name: name.to_owned(), path: Some(path.to_owned()) }
}

fn vm() -> VmReport {
    VmReport {
        key: VmKey { vcenter: 7.into(), id: "vm-142".into() },
        server: "vc.example.com:443".to_owned(),
        name: "prod-worker-7".to_owned(),
        path: Some("/dc-1/vm/k8s/prod-worker-7".to_owned()),
        uuid: UUID.parse().ok(),
        power_state: Some(PowerState::PoweredOn),
        connection_state: Some("connected".to_owned()),
        is_template: false,
        tools: "guestToolsRunning".to_owned(),
        host_name: "worker-7".to_owned(),
        host: Some(object("HostSystem", "host-18", "esx-07", "/dc-1/host/cluster-1/esx-07")),
        lag: None,
    }
}

fn zone() -> ZoneReport {
    let above_host = object("ClusterComputeResource", "domain-c8", "cluster-1", "/dc-1/host/cluster-1");
    ZoneReport {
        categories: Some(ZoneCategories { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() }),
        found: Ok(Some(FoundZone {
            zone: "zone-a".to_owned(),
            zone_object: above_host.clone(),
            region: "region-1".to_owned(),
            region_object: object("Datacenter", "datacenter-2", "dc-1", "/dc-1"),
        })),
        above_host: Some(above_host),
    }
}

fn node() -> Node {
    let mut node = Node::default();
    node.metadata.name = Some("worker-7".to_owned());
    let taint = Taint { key: TAINT_UNINITIALIZED.to_owned(), ..Taint::default() };
    node.spec.get_or_insert_default().taints = Some(vec![taint]);
    let status = node.status.get_or_insert_default();
    status.node_info.get_or_insert_default().system_uuid = SWAPPED.to_owned();
    node
}

fn pick(type_: &str, basis: AddressBasis) -> AddressPick {
    let address = NodeAddress { type_: type_.to_owned(), address: "10.20.0.17".to_owned() };
    AddressPick { address, basis }
}

fn decision(text: &str, outcome: AddressOutcome) -> AddressDecision {
    AddressDecision { text: text.to_owned(), network: "K8S-Prod".to_owned(), outcome }
}

fn report() -> NodeVmReport {
    let metadata = InstanceMetadata { found_by: FoundBy::SystemUuid, ..InstanceMetadata::default() };
    let picks = vec![pick(INTERNAL_IP, AddressBasis::Cidr), pick(EXTERNAL_IP, AddressBasis::AnyAllowed)];
    NodeVmReport {
        entry: None,
        metadata: Presence::Exists(metadata),
        facts: None,
        vm: Some(vm()),
        matches: Vec::new(),
        addresses: vec![
            decision("10.20.0.17", AddressOutcome::Chosen(picks)),
            decision("10.20.0.10", AddressOutcome::Demoted),
            decision("fe80::1", AddressOutcome::Refused("link-local".to_owned())),
        ],
        zone: Some(zone()),
    }
}

fn preview() -> NodePreview {
    NodePreview {
        blocked: None,
        is_settled: true,
        waiting_time: Duration::ZERO,
        plan: Some(NodePlan::default()),
        defers_record: false,
        defers_labels: false,
    }
}

fn inquiry() -> NodeInquiry {
    NodeInquiry {
        node: Arc::new(node()),
        report: Some(report()),
        preview: Some(preview()),
        next: Some(NextAttempt::WithEvent),
        decided_seconds_ago: None,
        tag_poll_in_seconds: Some(23),
        rivals: Vec::new(),
        sharers: BTreeMap::from([("10.20.0.10".parse().unwrap(), vec!["cp-1".to_owned(), "cp-2".to_owned()])]),
        api_server: Vec::new(),
        is_detached: false,
    }
}

fn lines(inquiry: &NodeInquiry) -> Vec<String> {
    let report = inquiry.explanation().report_of_test();
    report.lines().into_iter().map(|line| line.text().to_owned()).collect()
}

fn facts(inquiry: &NodeInquiry, title: &str) -> Vec<(String, String)> {
    let sections = inquiry.explanation().sections;
    let facts = sections.into_iter().filter(|section| section.title == title).flat_map(|section| section.facts);
    facts.map(|Fact { label, text, .. }| (label, text)).collect()
}

#[test]
fn a_settled_node_shows_its_vm_and_the_rules_of_its_addresses_and_zone() {
    let mut inquiry = inquiry();
    inquiry.node = initialized();
    let expected = "\
Node worker-7   initialized, up to date

VM
  name              prod-worker-7 (vm-142) on vc.example.com:443, powered on, connected
  path              /dc-1/vm/k8s/prod-worker-7
  UUID              422e4956-ad22-1139-6d72-59cc8f26bc90
  host              /dc-1/host/cluster-1/esx-07 (host-18)
  guest             VMware Tools guestToolsRunning, host name \"worker-7\"

Look-up
  found by          the systemUUID of the Node, in the byte order of the guest, of no other VM
  provider ID       vsphere://422e4956-ad22-1139-6d72-59cc8f26bc90
  systemUUID        56492e42-22ad-3911-6d72-59cc8f26bc90

Addresses
  chosen            10.20.0.17 on \"K8S-Prod\": InternalIP, in internal-network-subnet-cidr;
                    ExternalIP, usable, and no rule names an address
  gives way         10.20.0.10 on \"K8S-Prod\": the VMs of cp-1, cp-2 report it, too, so it may be a
                    virtual IP (--demote-virtual-ips)
  refused           fe80::1 on \"K8S-Prod\": link-local

Zone
  zone              zone-a, tag of category \"k8s-zone\" on /dc-1/host/cluster-1 (domain-c8)
  region            region-1, tag of category \"k8s-region\" on /dc-1 (datacenter-2)

Written next
                    nothing

Next attempt
  reconcile         with the next change, or with the next periodic resync
  poll of tags      in 23 s";
    assert_eq!(lines(&inquiry).join("\n"), expected);
}

#[test]
fn a_blocked_node_shows_its_reason_who_acts_and_a_command_with_its_names() {
    let blocked = BlockedObject {
        key: "worker-7".to_owned(),
        reason: vsphere::NoZoneTags,
        blocked_for: Duration::from_secs(372),
        message: "none of category".to_owned(),
    };
    let mut inquiry = inquiry();
    let checked = |name: &str, tags: &[&str]| CheckedObject {
        object: MoRef::new("Object", "object-1"),
        name: name.to_owned(),
        tags: tags.iter().map(|tag| Tag { name: (*tag).to_owned(), category: "k8s-region".to_owned() }).collect(),
    };
    let objects = vec![checked("esx-07", &[]), checked("dc-1", &["region-1"]), checked("", &[])];
    let chain = MissingTags { objects, categories: vec!["k8s-zone".to_owned()] };
    if let Some(zone) = inquiry.report.as_mut().and_then(|report| report.zone.as_mut()) {
        zone.found = Err(ZoneProblem::NoTags { chains: vec![chain] });
    }
    let missing = "no tag of category \"k8s-zone\" on esx-07, dc-1 [region-1], object-1";
    assert_eq!(facts(&inquiry, "Zone"), [("none".to_owned(), missing.to_owned())]);
    let plan_blocked = NodeBlocked::new(vsphere::NoZoneTags, "none of category".to_owned(), Requeue::BACKOFF);
    let plan = NodePlan { outcome: NextStep::Blocked(plan_blocked), ..NodePlan::default() };
    inquiry.preview = Some(NodePreview { blocked: Some(blocked), is_settled: false, plan: Some(plan), ..preview() });
    inquiry.next = Some(NextAttempt::Later { seconds: 23, failures: 4 });
    let explanation = inquiry.explanation();
    assert_eq!(explanation.state, SubjectState::Held);
    assert_eq!(explanation.summary, "not initialized for 6 m 12 s: NoZoneTags");
    let expected = [
        ("reason", "NoZoneTags: none of category"),
        ("who acts", "the administrator of vSphere"),
        ("fix", "govc tags.attach -c k8s-zone ZONE /dc-1/host/cluster-1"),
        ("page", "docs/reasons.md#nozonetags"),
    ];
    let expected = expected.map(|(label, text)| (label.to_owned(), text.to_owned()));
    assert_eq!(facts(&inquiry, "Reason for the block"), expected);
    let next = facts(&inquiry, "Next attempt");
    assert_eq!(next[0].1, "the next poll of the tags");
    assert_eq!(next[1].1, "in 23 s, after 4 failures");

    if let Some(preview) = &mut inquiry.preview {
        preview.plan = Some(NodePlan::default());
    }
    let now = facts(&inquiry, "Reason for the block").into_iter().find(|(label, _)| label == "now");
    assert_eq!(now.map(|(_, text)| text), Some("the reason is gone, and the Node waits for its next reconcile".into()));
}

#[test]
fn without_a_vm_the_answers_and_the_matches_are_shown() {
    let answers = vec![
        ("a:443".to_owned(), SearchAnswer::Matches { query: SearchKey::Uuid, ids: vec!["vm-1".into(), "vm-2".into()] }),
        ("b:443".to_owned(), SearchAnswer::Matches { query: SearchKey::Name, ids: Vec::new() }),
        ("c:443".to_owned(), SearchAnswer::Silent("x".repeat(2_900))),
    ];
    let location = Location {
        vcenter: "4cb1".into(),
        vm: "vm-9".into(),
        host: Some(MoRef::new("HostSystem", "host-18")),
        pool: Some(MoRef::new("ResourcePool", "resgroup-8")),
        ..Location::default()
    };
    let observation = LastObservation { location: Arc::new(location), recorded: None, is_watched_to_end: true };
    let inputs = LookupInputs { at: Instant::now(), uuid: UUID.parse().ok(), asked_by_name: true, answers };
    let presence = Presence::Unknown(Unknown::new(reason::SeveralVMsMatch, "several"));
    let entry = CachedInstance {
        uid: "u".into(),
        presence,
        has_no_match: false,
        last_observation: Some(observation),
        inputs: Some(Arc::new(inputs)),
        shared_addresses: Vec::new(),
    };
    let metadata = Presence::Unknown(Unknown::new(reason::SeveralVMsMatch, "several"));
    let mut inquiry = inquiry();
    inquiry.decided_seconds_ago = Some(41);
    inquiry.report = Some(NodeVmReport {
        entry: Some(Arc::new(entry)),
        metadata,
        vm: None,
        matches: vec![vm()],
        addresses: Vec::new(),
        zone: None,
        ..report()
    });
    let of_vm = facts(&inquiry, "VM");
    assert_eq!(of_vm[0], ("none".to_owned(), "SeveralVMsMatch: several".to_owned()));
    assert_eq!(of_vm[1].1, vm_title(&vm()));
    assert_eq!(of_vm[2].1, "host name \"worker-7\"");
    assert_eq!(of_vm[3].1, "/dc-1/vm/k8s/prod-worker-7");
    assert_eq!(of_vm[4].1, "vm-9, host host-18, pool resgroup-8 of the vCenter 4cb1");
    let look_up = facts(&inquiry, "Look-up");
    assert_eq!(look_up[1].1, format!("by UUID {UUID} and by guest host name, decided 41 s ago"));
    assert_eq!(look_up[2].1, "a:443: matches by UUID: vm-1, vm-2");
    assert_eq!(look_up[3].1, "b:443: no match");
    assert!(look_up[4].1.chars().count() < 2_050 && look_up[4].1.ends_with('…'), "{}", look_up[4].1);
}

#[test]
fn the_changes_of_the_plan_are_listed_with_their_values() {
    let labels = BTreeMap::from([("zone".to_owned(), Some("a".to_owned())), ("old".to_owned(), None)]);
    let annotations = BTreeMap::from([("vsphere-ccm.dev/vm".to_owned(), "x".repeat(900))]);
    let metadata = Metadata { labels, annotations, ..Metadata::default() };
    let address = NodeAddress { type_: INTERNAL_IP.to_owned(), address: "10.20.0.17".to_owned() };
    let actions = vec![
        NodeAction::WriteAddresses(vec![address]),
        NodeAction::Initialize { provider_id: Some(format!("vsphere://{UUID}")), metadata },
    ];
    let mut inquiry = inquiry();
    let plan = Some(NodePlan { actions, ..NodePlan::default() });
    inquiry.preview = Some(NodePreview { plan, defers_record: true, ..preview() });
    let written = facts(&inquiry, "Written next");
    let labels: Vec<&str> = written.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(labels, ["address", "provider ID", "label", "label", "annotation", "taint", "later"]);
    let texts: Vec<&str> = written.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts[..4], ["InternalIP 10.20.0.17", &format!("vsphere://{UUID}"), "old is removed", "zone=a"]);
    assert!(texts[4].chars().count() == 301 && texts[4].ends_with('…'), "{}", texts[4]);
}

#[test]
fn without_a_term_and_before_the_first_reconcile_the_state_is_unknown() {
    let mut inquiry = inquiry();
    inquiry.preview = Some(NodePreview { is_settled: false, ..preview() });
    assert_eq!(inquiry.explanation().state, SubjectState::Unknown);
    (inquiry.preview, inquiry.next) = (None, None);
    let explanation = inquiry.explanation();
    assert_eq!(explanation.state, SubjectState::Unknown);
    let attempts = "only the leader knows its attempts and what is written next";
    assert_eq!(explanation.summary, format!("not initialized: {attempts}"));
    inquiry.node = initialized();
    assert_eq!(inquiry.explanation().summary, format!("initialized: {attempts}"));
    inquiry.preview = Some(NodePreview { plan: None, ..preview() });
    assert_eq!(inquiry.explanation().summary, "belongs to another cloud provider, and is left alone");
}

/// Returns a Node with provider ID and without taint.
fn initialized() -> Arc<Node> {
    let mut initialized = node();
    let spec = initialized.spec.get_or_insert_default();
    spec.taints = None;
    spec.provider_id = Some(format!("vsphere://{UUID}"));
    Arc::new(initialized)
}

fn blocked_plan(reason: Reason) -> Option<NodePlan> {
    let blocked = NodeBlocked::new(reason, "why".to_owned(), Requeue::PERIOD);
    Some(NodePlan { outcome: NextStep::Blocked(blocked), ..NodePlan::default() })
}

#[test]
fn a_settled_node_is_held_again_once_its_plan_has_something_to_do() {
    let label = Metadata { labels: BTreeMap::from([("zone".to_owned(), None)]), ..Metadata::default() };
    let writing = NodePlan { actions: vec![NodeAction::SetMetadata(label)], ..NodePlan::default() };
    let superseded = NodePlan { outcome: NextStep::Superseded, ..NodePlan::default() };
    for (plan, state, summary) in [
        (blocked_plan(reason::NoAddresses), SubjectState::Held, "has changed since the last reconcile: NoAddresses"),
        (Some(writing), SubjectState::Held, "has changed since the last reconcile, and is written next"),
        (Some(NodePlan::default()), SubjectState::Settled, "initialized, up to date"),
        (Some(superseded), SubjectState::Settled, "initialized, up to date"),
    ] {
        let preview = Some(NodePreview { plan, defers_record: true, ..preview() });
        let inquiry = NodeInquiry { node: initialized(), preview, ..inquiry() };
        let explanation = inquiry.explanation();
        assert_eq!((explanation.state, explanation.summary.as_str()), (state, summary));
    }
    let preview = Some(NodePreview { plan: blocked_plan(reason::NoAddresses), ..preview() });
    let inquiry = NodeInquiry { node: initialized(), preview, ..inquiry() };
    let shown = facts(&inquiry, "Reason for the block");
    assert_eq!(shown[0], ("reason".to_owned(), "NoAddresses: why".to_owned()));
    assert!(shown.iter().any(|(label, text)| label == "page" && text == "docs/reasons.md#noaddresses"), "{shown:?}");
}

#[test]
fn after_a_write_that_the_cache_does_not_have_yet_nothing_is_announced() {
    let plan = Some(NodePlan { outcome: NextStep::Superseded, ..NodePlan::default() });
    let inquiry = NodeInquiry { preview: Some(NodePreview { plan, ..preview() }), ..inquiry() };
    let written = facts(&inquiry, "Written next");
    assert_eq!(written.len(), 1);
    assert!(written[0].1.contains("the cache does not have the last write"), "{written:?}");
}

#[test]
fn a_node_on_a_vcenter_that_does_not_answer_is_not_up_to_date_for_certain() {
    let stale = Some(Unknown::new(vsphere::VCenterUnavailable, "vc does not answer"));
    let metadata = InstanceMetadata { stale, found_by: FoundBy::SystemUuid, ..InstanceMetadata::default() };
    let lag = InventoryLag { age: Some(Duration::from_secs(10_800)), failure: "vc does not answer".to_owned() };
    let vm = Some(VmReport { lag: Some(lag), ..vm() });
    let report = Some(NodeVmReport { metadata: Presence::Exists(metadata), vm, ..report() });
    let inquiry = NodeInquiry { node: initialized(), report, ..inquiry() };
    let explanation = inquiry.explanation();
    let summary = "not known, the VM was last seen 3 h ago: VCenterUnavailable";
    assert_eq!((explanation.state, explanation.summary.as_str()), (SubjectState::Unknown, summary));
    let of_vm = facts(&inquiry, "VM");
    assert_eq!(of_vm.last(), Some(&("as of".to_owned(), "3 h ago: vc does not answer".to_owned())));
}

#[test]
fn a_node_that_is_never_initialized_is_held_with_the_command_that_starts_it() {
    let mut untainted = node();
    untainted.spec.get_or_insert_default().taints = None;
    let inquiry = NodeInquiry { node: Arc::new(untainted), ..inquiry() };
    let explanation = inquiry.explanation();
    let summary = "has no provider ID and no taint, so it is never initialized";
    assert_eq!((explanation.state, explanation.summary.as_str()), (SubjectState::Held, summary));
    let shown = facts(&inquiry, "Reason for the block");
    let fix = shown.iter().find(|(label, _)| label == "fix").map(|(_, text)| text.as_str());
    assert_eq!(fix, Some("kubectl taint node worker-7 node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"));
}

#[test]
fn a_command_names_a_match_only_if_it_is_the_only_one() {
    let other = || VmReport { path: Some("/dc-1/vm/copy".to_owned()), ..vm() };
    for (matches, is_named) in [(vec![other()], true), (vec![other(), vm()], false)] {
        let report = Some(NodeVmReport { vm: None, matches, ..report() });
        let preview = Some(NodePreview { plan: blocked_plan(vsphere::VMNotReadable), ..preview() });
        let shown = facts(&NodeInquiry { report, preview, ..inquiry() }, "Reason for the block");
        let fix = shown.iter().find(|(label, _)| label == "fix").map(|(_, text)| text.clone()).unwrap();
        assert_eq!(fix.contains("/dc-1/vm/"), is_named, "{fix}");
    }
}

#[test]
fn an_address_that_may_be_virtual_names_the_api_server_or_the_other_nodes() {
    let demoted = decision("10.20.0.10", AddressOutcome::Demoted);
    let ip: IpAddr = "10.20.0.10".parse().unwrap();
    let sharers = BTreeMap::from([(ip, vec!["cp-1".to_owned()])]);
    for (api_server, sharers, part) in [
        (vec![ip], BTreeMap::new(), ": the API server is reached there, so it may be a virtual IP"),
        (vec![], sharers, ": the VMs of cp-1 report it, too, so"),
        (vec![], BTreeMap::new(), ": VMs of other Nodes report it, too, so"),
    ] {
        let (label, text) = address_text(&demoted, &api_server, &sharers);
        assert!(label == "gives way" && text.contains(part), "{text}");
    }
}

#[test]
fn the_document_is_the_golden_file() {
    let blocked = BlockedObject {
        key: "worker-7".to_owned(),
        reason: vsphere::NoZoneTags,
        blocked_for: Duration::from_secs(372),
        message: "no tag of category \"k8s-zone\"".to_owned(),
    };
    let label = Metadata { labels: BTreeMap::from([("zone".to_owned(), None)]), ..Metadata::default() };
    let plan = NodePlan { actions: vec![NodeAction::SetMetadata(label)], ..blocked_plan(blocked.reason).unwrap() };
    let preview = NodePreview { blocked: Some(blocked), is_settled: false, plan: Some(plan), ..preview() };
    let next = Some(NextAttempt::Later { seconds: 23, failures: 4 });
    let report = NodeInquiry { preview: Some(preview), next, ..inquiry() }.explanation().report_of_test();
    assert_golden("explain-node", ExplainReport::KIND, report.verdict(), &report);
}

#[test]
fn without_a_process_the_plan_of_a_new_leader_is_shown_and_no_attempt() {
    use SubjectState::{Held, Settled, Unknown};
    let detached = |node: Arc<Node>, plan: Option<NodePlan>| {
        let preview = plan.map(|plan| NodePreview { plan: Some(plan), is_settled: false, ..preview() });
        NodeInquiry { node, preview, next: None, is_detached: true, ..inquiry() }
    };
    let actions =
        vec![NodeAction::Initialize { provider_id: Some("vsphere://u".to_owned()), metadata: Metadata::default() }];
    let written = NodePlan { actions, ..NodePlan::default() };
    for (inquiry, state, summary) in [
        (detached(initialized(), Some(NodePlan::default())), Settled, "initialized, up to date"),
        (detached(Arc::new(node()), blocked_plan(vsphere::NoZoneTags)), Held, "not initialized: NoZoneTags"),
        (detached(Arc::new(node()), Some(written)), Held, "not initialized: a new leader would write to it"),
        (detached(initialized(), None), Unknown, "the node controller does not run with these flags"),
    ] {
        assert_eq!(inquiry.state(), (state, summary.to_owned()));
        let next = facts(&inquiry, "Next attempt");
        let expected = "not known: only the leader knows when it reconciles the Node again";
        assert_eq!(next.last().unwrap(), &("reconcile".to_owned(), expected.to_owned()), "{next:?}");
    }
}
