//! Tests of the rules for how a Node finds its VM, case by case.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::clients::vim::{GuestNic, MoRef};
use crate::providers::vsphere::nodes::absence::location::Location;
use crate::providers::vsphere::vcenter::snapshot::{Entity, Freshness, VcenterFailure};

const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";
const OTHER_UUID: &str = "11111111-2222-3333-4444-555555555555";

fn node() -> NodeFacts {
    NodeFacts {
        name: "node-1".into(),
        uid: "uid-1".into(),
        system_uuid: Some(UUID.parse().unwrap()),
        ..NodeFacts::default()
    }
}

/// A powered-on VM. Its guest has the name of the Node.
fn machine(name: &str) -> VmRecord {
    VmRecord {
        name: name.into(),
        bios_uuid: Some(UUID.parse().unwrap()),
        parent: Some(MoRef::new("Folder", "group-v3")),
        power_state: Some(PowerState::PoweredOn),
        connection_state: Some("connected".into()),
        host_name: "node-1".into(),
        ..VmRecord::default()
    }
}

/// A VM that matches the Node only by its UUID.
fn stranger(name: &str) -> VmRecord {
    VmRecord { host_name: "someone-else".into(), ..machine(name) }
}

struct Vc {
    answer: SearchAnswer,
    vms: Vec<(&'static str, VmRecord)>,
    freshness: Freshness,
    instance_uuid: &'static str,
    datacenters: Vec<String>,
    unresolved: Vec<Arc<str>>,
}

impl Vc {
    fn with(vms: Vec<(&'static str, VmRecord)>) -> Self {
        Self {
            answer: SearchAnswer::Matches {
                query: SearchKey::Uuid,
                ids: vms.iter().map(|(id, _)| (*id).into()).collect(),
            },
            vms,
            freshness: Freshness::Live,
            instance_uuid: "vc",
            datacenters: Vec::new(),
            unresolved: Vec::new(),
        }
    }

    fn none() -> Self {
        Self { instance_uuid: "other-vc", ..Self::with(Vec::new()) }
    }

    fn silent() -> Self {
        let answer = SearchAnswer::Silent("connection refused".into());
        let trouble = VcenterFailure::unavailable("connection refused");
        Self { answer, freshness: Freshness::Unreachable(trouble), ..Self::none() }
    }

    /// A vCenter that rejects the login.
    fn refused() -> Self {
        let trouble =
            VcenterFailure { reason: reason::CredentialsRejected, ..VcenterFailure::unavailable("InvalidLogin") };
        Self { freshness: Freshness::Unreachable(trouble), ..Self::asked() }
    }

    /// A vCenter without credentials.
    fn without_credentials() -> Self {
        let missing = VcenterFailure::unavailable("Secret ns/n: it does not exist");
        let trouble = VcenterFailure { reason: reason::CredentialsMissing, ..missing };
        Self { freshness: Freshness::Unreachable(trouble), ..Self::asked() }
    }

    /// A vCenter with a certificate that is not accepted. The long text is for the log, the brief one for the Node.
    fn with_a_private_certificate() -> Self {
        let trouble = VcenterFailure {
            reason: reason::VCenterCertificateRejected,
            summary: "its certificate is not accepted".into(),
            ..VcenterFailure::unavailable("presented: [0] subject CN=vc.example.com")
        };
        Self { freshness: Freshness::Unreachable(trouble), ..Self::asked() }
    }

    fn asked() -> Self {
        Self { answer: SearchAnswer::Pending, ..Self::none() }
    }

    fn by_name(mut self) -> Self {
        if let SearchAnswer::Matches { query: by, .. } = &mut self.answer {
            *by = SearchKey::Name;
        }
        self
    }

    fn snapshot(&self) -> Snapshot {
        let entity = |name: &str, parent: Option<(&str, &str)>| Entity {
            name: name.into(),
            parent: parent.map(|(kind, id)| MoRef::new(kind, id)),
            ..Entity::default()
        };
        Snapshot {
            freshness: self.freshness.clone(),
            instance_uuid: self.instance_uuid.into(),
            vms: self.vms.iter().map(|(id, vm)| ((*id).into(), Arc::new(vm.clone()))).collect(),
            unresolved: Arc::new(self.unresolved.clone()),
            entities: Arc::new(HashMap::from([
                (MoRef::new("Folder", "group-v3"), entity("vm", Some(("Datacenter", "datacenter-2")))),
                (MoRef::new("Datacenter", "datacenter-2"), entity("DC0", Some(("Folder", "group-d1")))),
                (MoRef::new("Folder", "group-d1"), entity("Datacenters", None)),
            ])),
            ..Snapshot::default()
        }
    }
}

#[derive(Default)]
struct Extra {
    node: Option<NodeFacts>,
    waited: u64,
    asked_by_name: bool,
    allow_name_match: bool,
    taken: bool,
    is_incomplete: bool,
}

fn decide(vcenters: &[Vc], extra: &Extra) -> LookupDecision {
    let snapshots: Vec<Snapshot> = vcenters.iter().map(Vc::snapshot).collect();
    let queried: Vec<VcenterAnswer<'_>> = vcenters
        .iter()
        .zip(&snapshots)
        .zip(0_u64..)
        .map(|((vcenter, snapshot), slot)| VcenterAnswer {
            vcenter: slot.into(),
            server: "vc.example",
            datacenters: &vcenter.datacenters,
            snapshot,
            answer: &vcenter.answer,
        })
        .collect();
    let node = extra.node.clone().unwrap_or_else(node);
    resolve(&Question {
        node: &node,
        asked_by_name: extra.asked_by_name,
        vcenters: &queried,
        unqueried: extra.is_incomplete.then(|| Unknown::new(reason::VCenterNotConfigured, "vCenter b is turned off")),
        waiting_time: Duration::from_secs(extra.waited),
        owner_clause: &|_| extra.taken.then(|| "already backs Node node-7".to_string()),
        allow_name_match: extra.allow_name_match,
    })
}

/// Returns the decision in one line: the bound VM, or the reason.
fn told(decision: &LookupDecision) -> String {
    match decision {
        LookupDecision::Bind { vm, duplicates: others } => {
            format!("bind {} at {}{}", vm.id, vm.vcenter, if others.is_empty() { "" } else { ", twins told" })
        }
        LookupDecision::Reading(unknown) => format!("reading {}", unknown.reason),
        LookupDecision::Wait(unknown) => format!("wait {}", unknown.reason),
        LookupDecision::SearchByName => "by name".to_string(),
        LookupDecision::Unresolved(unknown) => unknown.reason.to_string(),
        LookupDecision::NoMatch(unknown) => format!("{}, no match", unknown.reason),
    }
}

#[test]
fn a_match_by_uuid_is_taken_by_the_rules() {
    let off = |name: &str| VmRecord { power_state: Some(PowerState::PoweredOff), ..stranger(name) };
    let template = |name: &str| VmRecord { is_template: true, ..off(name) };
    let recorded = NodeFacts {
        recorded: Some(Arc::new(Location { vcenter: "vc".into(), vm: "vm-2".into(), ..Location::default() })),
        ..node()
    };
    let with_ip = |name: &str| VmRecord {
        nics: vec![GuestNic { ip_addresses: vec!["10.0.0.5".into()], ..GuestNic::default() }],
        ..stranger(name)
    };
    let knows_ip = NodeFacts { addresses: vec!["10.0.0.5".parse().unwrap()], ..node() };
    let extra = Extra::default;
    let cases: Vec<(&str, Vec<Vc>, Extra, &str)> = vec![
        ("one match, all answered", vec![Vc::with(vec![("vm-1", stranger("a"))])], extra(), "bind vm-1 at 0"),
        ("one match that is off, all answered", vec![Vc::with(vec![("vm-1", off("a"))])], extra(), "bind vm-1 at 0"),
        ("only a template", vec![Vc::with(vec![("vm-1", template("a"))])], extra(), "VMNotFound"),
        (
            "a template and a machine",
            vec![Vc::with(vec![("vm-1", template("a")), ("vm-2", off("b"))])],
            extra(),
            "bind vm-2 at 0, twins told",
        ),
        (
            "the recorded id wins over the powered-on twin",
            vec![Vc::with(vec![("vm-1", machine("a")), ("vm-2", off("b"))])],
            Extra { node: Some(recorded.clone()), ..extra() },
            "bind vm-2 at 0, twins told",
        ),
        (
            "the only one powered on",
            vec![Vc::with(vec![("vm-1", off("a")), ("vm-2", stranger("b"))])],
            extra(),
            "bind vm-2 at 0, twins told",
        ),
        (
            "both on, one called like the node",
            vec![Vc::with(vec![("vm-1", stranger("a")), ("vm-2", machine("b"))])],
            extra(),
            "bind vm-2 at 0, twins told",
        ),
        (
            "both on, both called like the node",
            vec![Vc::with(vec![("vm-1", machine("a")), ("vm-2", machine("b"))])],
            extra(),
            "SeveralVMsMatch",
        ),
        (
            "both off, none called like the node",
            vec![Vc::with(vec![("vm-1", off("a")), ("vm-2", off("b"))])],
            extra(),
            "SeveralVMsMatch",
        ),
        (
            "the same vCenter configured twice",
            vec![Vc::with(vec![("vm-1", stranger("a"))]), Vc::with(vec![("vm-1", stranger("a"))])],
            extra(),
            "bind vm-1 at 0",
        ),
        (
            "the second vCenter has it",
            vec![Vc::none(), Vc::with(vec![("vm-1", stranger("a"))])],
            extra(),
            "bind vm-1 at 1",
        ),
        (
            "silent vCenter, called like the node",
            vec![Vc::with(vec![("vm-1", machine("a"))]), Vc::silent()],
            extra(),
            "bind vm-1 at 0",
        ),
        (
            "vCenter still asked, first label matches",
            vec![
                Vc::with(vec![("vm-1", VmRecord { host_name: "NODE-1.example.org".into(), ..machine("a") })]),
                Vc::asked(),
            ],
            extra(),
            "bind vm-1 at 0",
        ),
        (
            "silent vCenter, the node's address is the guest's",
            vec![Vc::with(vec![("vm-1", with_ip("a"))]), Vc::silent()],
            Extra { node: Some(knows_ip), ..extra() },
            "bind vm-1 at 0",
        ),
        (
            "silent vCenter, recorded",
            vec![Vc::with(vec![("vm-2", off("a"))]), Vc::silent()],
            Extra { node: Some(recorded), ..extra() },
            "bind vm-2 at 0",
        ),
        (
            "silent vCenter, nothing but the UUID",
            vec![Vc::with(vec![("vm-1", stranger("a"))]), Vc::silent()],
            Extra { waited: 29, ..extra() },
            "wait VCenterUnavailable",
        ),
        (
            "silent vCenter, waited long enough",
            vec![Vc::with(vec![("vm-1", stranger("a"))]), Vc::silent()],
            Extra { waited: 30, ..extra() },
            "bind vm-1 at 0",
        ),
        (
            "silent vCenter, called like the node but off",
            vec![
                Vc::with(vec![("vm-1", VmRecord { power_state: Some(PowerState::PoweredOff), ..machine("a") })]),
                Vc::silent(),
            ],
            Extra { waited: 60, ..extra() },
            "wait VCenterUnavailable",
        ),
    ];
    for (name, vcenters, extra, expected) in cases {
        assert_eq!(told(&decide(&vcenters, &extra)), expected, "{name}");
    }
}

#[test]
fn a_vcenter_that_is_turned_off_may_have_the_machine() {
    let home = Location { vcenter: "home".into(), vm: "vm-9".into(), ..Location::default() };
    let initialized = NodeFacts {
        is_initialized: true,
        recorded: Some(Arc::new(home)),
        provider_id: Some(UUID.parse().unwrap()),
        ..node()
    };
    let extra = || Extra { is_incomplete: true, waited: 3600, ..Extra::default() };
    let named = || Extra { asked_by_name: true, allow_name_match: true, ..extra() };
    let cases: Vec<(&str, Vc, Extra, &str)> = vec![
        ("its guest vouches for it", Vc::with(vec![("vm-1", machine("a"))]), extra(), "bind vm-1 at 0"),
        ("nothing but the UUID", Vc::with(vec![("vm-1", stranger("a"))]), extra(), "VCenterNotConfigured"),
        ("only the name", Vc::with(vec![("vm-1", machine("a"))]).by_name(), named(), "VCenterNotConfigured"),
        ("no match", Vc::none(), extra(), "VCenterNotConfigured"),
        (
            "a copy of a machine that is recorded elsewhere",
            Vc::with(vec![("vm-1", machine("a"))]),
            Extra { node: Some(initialized), ..extra() },
            "wait VCenterNotConfigured",
        ),
    ];
    for (case, vcenter, extra, expected) in cases {
        assert_eq!(told(&decide(std::slice::from_ref(&vcenter), &extra)), expected, "{case}");
        let complete = Extra { is_incomplete: false, ..extra };
        assert!(!told(&decide(&[vcenter], &complete)).contains("NotConfigured"), "{case}");
    }
}

#[test]
fn a5_an_initialized_node_gets_no_other_machine_while_its_recorded_vcenter_may_have_its_own() {
    let home = Location { vcenter: "home".into(), vm: "vm-9".into(), ..Location::default() };
    let initialized = NodeFacts {
        is_initialized: true,
        recorded: Some(Arc::new(home)),
        provider_id: Some(UUID.parse().unwrap()),
        ..node()
    };
    let copy = || Vc::with(vec![("vm-1", machine("a"))]);
    let at_home = |vc: Vc| Vc { instance_uuid: "home", ..vc };
    let never_reached = |vc: Vc| Vc { instance_uuid: "", ..vc };
    let gone_silent = || Vc {
        freshness: Freshness::Stale { since: std::time::Instant::now(), failure: VcenterFailure::unavailable("gone") },
        ..Vc::none()
    };
    let denied = || Vc { answer: SearchAnswer::Denied("refused".into()), ..Vc::none() };
    let gone = || Vc { answer: SearchAnswer::Gone("vm-9".into()), ..Vc::none() };
    let cases: Vec<(&str, Vec<Vc>, NodeFacts, &str)> = vec![
        ("home is silent", vec![copy(), at_home(Vc::silent())], initialized.clone(), "wait VCenterUnavailable"),
        (
            "home refuses the login",
            vec![copy(), at_home(Vc::refused())],
            initialized.clone(),
            "wait CredentialsRejected",
        ),
        ("home was not asked yet", vec![copy(), at_home(Vc::asked())], initialized.clone(), "wait LookupPending"),
        (
            "home answered and went away",
            vec![copy(), at_home(gone_silent())],
            initialized.clone(),
            "wait VCenterUnavailable",
        ),
        ("home may not tell", vec![copy(), at_home(denied())], initialized.clone(), "wait NoPermission"),
        (
            "home may not tell one account, and is silent to another",
            vec![copy(), at_home(denied()), at_home(Vc::silent())],
            initialized.clone(),
            "wait VCenterUnavailable",
        ),
        ("home does not have it", vec![copy(), at_home(gone())], initialized.clone(), "bind vm-1 at 0"),
        (
            "home is configured twice, and silent once",
            vec![copy(), at_home(gone()), at_home(Vc::silent())],
            initialized.clone(),
            "wait VCenterUnavailable",
        ),
        (
            "one that was never reached may be home",
            vec![copy(), never_reached(Vc::silent())],
            initialized.clone(),
            "wait VCenterUnavailable",
        ),
        (
            "another one is silent, and home is known",
            vec![copy(), at_home(gone()), Vc::silent()],
            initialized.clone(),
            "bind vm-1 at 0",
        ),
        (
            "home is not configured, and all were reached",
            vec![copy(), Vc::silent()],
            initialized.clone(),
            "bind vm-1 at 0",
        ),
        (
            "it is the recorded one",
            vec![at_home(Vc::with(vec![("vm-9", stranger("a"))])), Vc::silent()],
            initialized.clone(),
            "bind vm-9 at 0",
        ),
        (
            "registered anew at home",
            vec![at_home(Vc::with(vec![("vm-1", machine("a"))]))],
            initialized.clone(),
            "bind vm-1 at 0",
        ),
        (
            "not initialized",
            vec![copy(), at_home(Vc::silent())],
            NodeFacts { is_initialized: false, ..initialized.clone() },
            "bind vm-1 at 0",
        ),
        (
            "no record",
            vec![copy(), at_home(Vc::silent())],
            NodeFacts { recorded: None, ..initialized },
            "bind vm-1 at 0",
        ),
    ];
    for (name, vcenters, node, expected) in cases {
        // The decision does not depend on the waiting time.
        for waited in [0, 600] {
            let decision = decide(&vcenters, &Extra { node: Some(node.clone()), waited, ..Extra::default() });
            assert_eq!(told(&decision), expected, "{name}: {decision:?}");
        }
    }
}

#[test]
fn a_match_that_was_not_read_yet_is_waited_for() {
    let mut unread = Vc::with(vec![("vm-1", machine("a"))]);
    unread.vms.clear();
    assert_eq!(told(&decide(&[unread], &Extra::default())), "reading LookupPending");

    let mut lost = Vc::with(vec![("vm-1", machine("a"))]);
    lost.vms.clear();
    lost.freshness = Freshness::Unreachable(VcenterFailure::unavailable("gone"));
    assert_eq!(told(&decide(&[lost], &Extra::default())), "VCenterUnavailable", "a vCenter that is lost meanwhile");

    let mut refused = Vc::with(vec![("vm-1", machine("a"))]);
    refused.vms.clear();
    refused.unresolved.push("vm-1".into());
    let decision = decide(&[refused], &Extra::default());
    assert_eq!(told(&decision), "VMNotFound", "a machine that may not be read");
    let LookupDecision::Unresolved(unknown) = decision else { panic!("unresolved") };
    assert!(unknown.message.contains("cannot be read by this account"), "{}", unknown.message);
}

#[test]
fn a_machine_outside_the_configured_datacenters_does_not_count() {
    for (items, expected) in
        [(vec!["DC0"], "bind vm-1 at 0"), (vec!["DC1"], "VMNotFound"), (vec!["/DC0"], "bind vm-1 at 0")]
    {
        let mut vcenter = Vc::with(vec![("vm-1", machine("a"))]);
        vcenter.datacenters = items.iter().map(ToString::to_string).collect();
        assert_eq!(told(&decide(&[vcenter], &Extra::default())), expected, "{items:?}");
    }
    let mut unreadable = Vc::with(vec![("vm-1", VmRecord { parent: None, ..machine("a") })]);
    unreadable.datacenters = vec!["DC0".into()];
    assert_eq!(told(&decide(&[unreadable], &Extra::default())), "VMNotFound", "its datacenter is not known");
}

#[test]
fn an_id_that_names_another_machine_by_now_does_not_count() {
    let other = VmRecord { bios_uuid: Some(OTHER_UUID.parse().unwrap()), ..machine("a") };
    let unknown = VmRecord { bios_uuid: None, ..machine("a") };
    assert_eq!(told(&decide(&[Vc::with(vec![("vm-1", other)])], &Extra::default())), "VMNotFound");
    assert_eq!(told(&decide(&[Vc::with(vec![("vm-1", unknown)])], &Extra::default())), "bind vm-1 at 0");
}

#[test]
fn the_name_is_asked_for_only_when_every_vcenter_said_none() {
    let with_provider_id = NodeFacts { has_provider_id: true, provider_id: Some(UUID.parse().unwrap()), ..node() };
    let extra = Extra::default;
    for (name, vcenters, extra, expected) in [
        ("all said none", vec![Vc::none(), Vc::none()], extra(), "by name"),
        ("one is silent", vec![Vc::none(), Vc::silent()], extra(), "VCenterUnavailable"),
        ("one refuses the login", vec![Vc::none(), Vc::refused()], extra(), "CredentialsRejected"),
        ("one is silent, one refuses the login", vec![Vc::silent(), Vc::refused()], extra(), "CredentialsRejected"),
        ("one has no credentials", vec![Vc::none(), Vc::without_credentials()], extra(), "CredentialsMissing"),
        (
            "one has no credentials, one refuses the login",
            vec![Vc::without_credentials(), Vc::refused()],
            extra(),
            "CredentialsRejected",
        ),
        (
            "one is silent, one has no credentials",
            vec![Vc::silent(), Vc::without_credentials()],
            extra(),
            "CredentialsMissing",
        ),
        (
            "the certificate of one is not accepted",
            vec![Vc::silent(), Vc::with_a_private_certificate()],
            extra(),
            "VCenterCertificateRejected",
        ),
        ("one is asked", vec![Vc::none(), Vc::asked()], extra(), "LookupPending"),
        (
            "one is being connected to",
            vec![Vc { freshness: Freshness::Never, ..Vc::asked() }],
            extra(),
            "LookupPending",
        ),
        (
            "one is being connected to, another is silent",
            vec![Vc { freshness: Freshness::Never, ..Vc::asked() }, Vc::silent()],
            extra(),
            "VCenterUnavailable",
        ),
        ("asked by name, none", vec![Vc::none()], Extra { asked_by_name: true, ..extra() }, "VMNotFound, no match"),
        (
            "a node with a provider ID is never matched by name",
            vec![Vc::none()],
            Extra { node: Some(with_provider_id), ..extra() },
            "VMNotFound, no match",
        ),
    ] {
        assert_eq!(told(&decide(&vcenters, &extra)), expected, "{name}");
    }
}

#[test]
fn a_node_that_waits_for_vcenters_says_for_which_and_why_in_a_few_words() {
    let private = Vc::with_a_private_certificate;
    for (case, vcenters, expected) in [
        ("the only one", vec![private()], "waiting for vCenter vc.example: its certificate is not accepted"),
        (
            "another has it not",
            vec![Vc::none(), Vc::silent()],
            "not found in the vCenters that answered; waiting for vCenter vc.example: connection refused",
        ),
        (
            "two",
            vec![private(), Vc::silent()],
            "waiting for 2 vCenters: vc.example (its certificate is not accepted), vc.example (connection refused)",
        ),
    ] {
        let LookupDecision::Unresolved(unknown) = decide(&vcenters, &Extra::default()) else { panic!("{case}") };
        assert_eq!(unknown.message, expected, "{case}");
    }
}

#[test]
fn what_was_read_of_the_machine_the_node_had_says_more_than_a_search_that_finds_nothing() {
    let answers = |answer: SearchAnswer| Vc { answer, ..Vc::none() };
    let denied = || answers(SearchAnswer::Denied("reading vm-3: NoPermission on VirtualMachine:vm-3".into()));
    let gone = || answers(SearchAnswer::Gone("vm-3".into()));
    let changed = || answers(SearchAnswer::Changed { id: "vm-3".into(), uuid: OTHER_UUID.parse().unwrap() });
    let initialized = || NodeFacts { has_provider_id: true, provider_id: Some(UUID.parse().unwrap()), ..node() };
    let known = || Extra { node: Some(initialized()), ..Extra::default() };
    let matches = |record: VmRecord| Vc::with(vec![("vm-1", record)]);
    for (name, vcenters, extra, expected, part) in [
        ("denied", vec![Vc::none(), denied()], known(), "NoPermission", "NoPermission on VirtualMachine:vm-3"),
        ("denied, another silent", vec![Vc::silent(), denied()], known(), "NoPermission", "connection refused"),
        ("a denial is no reason to ask by name", vec![denied()], Extra::default(), "NoPermission", ""),
        ("gone", vec![gone()], known(), "VMNotFound", "VM vm-3, which backed the Node, no longer exists on vc.example"),
        ("gone, one silent", vec![gone(), Vc::silent()], known(), "VCenterUnavailable", "connection refused"),
        ("gone, without a provider ID", vec![gone()], Extra::default(), "by name", ""),
        ("another UUID under the same id", vec![changed()], known(), "ProviderIDMismatch", OTHER_UUID),
        ("a changed machine is no reason to ask by name", vec![changed()], Extra::default(), "VMNotFound", OTHER_UUID),
        ("a match elsewhere", vec![matches(machine("a")), gone()], known(), "bind vm-1 at 0", ""),
        ("a named match beside a denial", vec![matches(machine("a")), denied()], known(), "bind vm-1 at 0", ""),
        ("any match beside a denial", vec![matches(stranger("a")), denied()], known(), "wait NoPermission", "vm-3"),
    ] {
        let decision = decide(&vcenters, &extra);
        assert_eq!(told(&decision), expected, "{name}");
        assert!(format!("{decision:?}").contains(part), "{name}: {decision:?}");
    }
}

#[test]
fn a_match_by_name_is_refused_when_something_contradicts_it() {
    let named = |record: VmRecord| vec![Vc::with(vec![("vm-1", record)]).by_name()];
    let other = VmRecord { bios_uuid: Some(OTHER_UUID.parse().unwrap()), ..machine("a") };
    let unnamed = NodeFacts { system_uuid: None, ..node() };
    let extra = || Extra { asked_by_name: true, ..Extra::default() };
    for (name, vcenters, extra, expected) in [
        ("another BIOS UUID", named(other.clone()), extra(), "NameMatchRefused"),
        (
            "another BIOS UUID, allowed",
            named(other.clone()),
            Extra { allow_name_match: true, ..extra() },
            "bind vm-1 at 0",
        ),
        ("no systemUUID to contradict", named(other), Extra { node: Some(unnamed), ..extra() }, "bind vm-1 at 0"),
        ("backs another node", named(machine("a")), Extra { taken: true, ..extra() }, "NameMatchRefused"),
        ("the same UUID", named(machine("a")), extra(), "bind vm-1 at 0"),
    ] {
        assert_eq!(told(&decide(&vcenters, &extra)), expected, "{name}");
    }
}

#[test]
fn the_other_byte_order_does_not_contradict_a_name() {
    let swapped = NodeFacts { system_uuid: Some(UUID.parse::<BiosUuid>().unwrap().byte_swapped()), ..node() };
    let vcenters = [Vc::with(vec![("vm-1", machine("a"))]).by_name()];
    let extra = Extra { node: Some(swapped), asked_by_name: true, ..Extra::default() };
    assert_eq!(told(&decide(&vcenters, &extra)), "bind vm-1 at 0");
}

#[test]
fn a_machine_backs_one_node_and_an_initialized_node_keeps_its_own() {
    let provider_id = || NodeFacts { has_provider_id: true, provider_id: Some(UUID.parse().unwrap()), ..node() };
    let initialized = || NodeFacts { is_initialized: true, ..provider_id() };
    let recorded = || NodeFacts {
        recorded: Some(Arc::new(Location { vcenter: "vc".into(), vm: "vm-1".into(), ..Location::default() })),
        ..node()
    };
    let one = || vec![Vc::with(vec![("vm-1", machine("a"))])];
    let extra = |node: NodeFacts, taken: bool| Extra { node: Some(node), taken, ..Extra::default() };
    for (name, vcenters, extra, expected) in [
        ("nobody's", one(), extra(node(), false), "bind vm-1 at 0"),
        ("another's", one(), extra(node(), true), "VMBacksAnotherNode"),
        ("another's, though recorded here", one(), extra(recorded(), true), "VMBacksAnotherNode"),
        ("another's, with a provider ID of the kubelet", one(), extra(provider_id(), true), "VMBacksAnotherNode"),
        ("another's, and this node is initialized", one(), extra(initialized(), true), "bind vm-1 at 0"),
        (
            "another's, beside a silent vCenter",
            vec![one().remove(0), Vc::silent()],
            extra(node(), true),
            "VMBacksAnotherNode",
        ),
        (
            "another's, however names are matched",
            one(),
            Extra { allow_name_match: true, ..extra(node(), true) },
            "VMBacksAnotherNode",
        ),
        (
            "several, of which one is left",
            vec![Vc::with(vec![("vm-1", machine("a")), ("vm-2", stranger("b"))])],
            extra(node(), true),
            "VMBacksAnotherNode",
        ),
    ] {
        let decision = decide(&vcenters, &extra);
        assert_eq!(told(&decision), expected, "{name}");
        if expected == "VMBacksAnotherNode" {
            let message = format!("{decision:?}");
            for part in ["VM a (vm-1 on vc.example, powered on) already backs Node node-7", "delete it", "uuid.bios"] {
                assert!(message.contains(part), "{name}: {part:?} is missing in {message}");
            }
        }
    }
}

#[test]
fn a_provider_id_that_names_no_machine_is_told_with_the_nodes_own_machine_and_the_repair() {
    let facts = || NodeFacts {
        has_provider_id: true,
        provider_id: Some(UUID.parse().unwrap()),
        system_uuid: Some(OTHER_UUID.parse().unwrap()),
        is_initialized: true,
        ..node()
    };
    let answers = |answer: SearchAnswer| Vc { answer, ..Vc::none() };
    let changed = || answers(SearchAnswer::Changed { id: "vm-3".into(), uuid: OTHER_UUID.parse().unwrap() });
    let elsewhere = || answers(SearchAnswer::Elsewhere(vec!["vm-7".into()]));
    let extra = || Extra { node: Some(facts()), ..Extra::default() };
    let repair = format!("delete the Node and restart its kubelet, or set uuid.bios of the VM back to {UUID}");
    for (name, vcenters, extra, expected, parts) in [
        (
            "the machine it had has another UUID",
            vec![changed()],
            extra(),
            "ProviderIDMismatch",
            vec![UUID, "VM vm-3 on vc.example, which backed the Node", OTHER_UUID, repair.as_str()],
        ),
        (
            "another machine has its system UUID",
            vec![Vc::none(), elsewhere()],
            extra(),
            "ProviderIDMismatch",
            vec![UUID, "VM vm-7 on vc.example has the Node's systemUUID", OTHER_UUID, repair.as_str()],
        ),
        (
            "the provider ID's machine is found",
            vec![elsewhere(), Vc::with(vec![("vm-1", machine("a"))])],
            extra(),
            "bind vm-1 at 1",
            vec![],
        ),
        (
            "a vCenter is silent",
            vec![elsewhere(), Vc::silent()],
            extra(),
            "VCenterUnavailable",
            vec!["connection refused"],
        ),
        (
            "a vCenter may not tell",
            vec![elsewhere(), answers(SearchAnswer::Denied("NoPermission on Folder:group-v3".into()))],
            extra(),
            "NoPermission",
            vec!["Folder:group-v3"],
        ),
        ("neither is there", vec![Vc::none()], extra(), "VMNotFound, no match", vec![UUID]),
    ] {
        let decision = decide(&vcenters, &extra);
        assert_eq!(told(&decision), expected, "{name}");
        for part in parts {
            assert!(format!("{decision:?}").contains(part), "{name}: {part:?} is missing in {decision:?}");
        }
    }
}

/// Returns the message of a Node without a VM.
fn message(decision: LookupDecision) -> String {
    match decision {
        LookupDecision::Unresolved(unknown) | LookupDecision::NoMatch(unknown) => unknown.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_names_every_match_and_every_place_but_no_more_than_ten_of_a_kind() {
    let ids: [&'static str; 12] =
        ["vm-1", "vm-2", "vm-3", "vm-4", "vm-5", "vm-6", "vm-7", "vm-8", "vm-9", "vm-10", "vm-11", "vm-12"];
    let matches = |count: usize| vec![Vc::with(ids.iter().take(count).map(|id| (*id, machine("twin"))).collect())];
    let few = message(decide(&matches(10), &Extra::default()));
    for id in ids.iter().take(10) {
        assert!(few.contains(&format!("VM twin ({id} on vc.example, powered on)")), "{id} is missing in {few}");
    }
    let many = message(decide(&matches(12), &Extra::default()));
    assert_eq!(many.matches("twin (").count(), 10, "{many}");
    assert!(many.contains(" and 2 more; give each its own BIOS UUID"), "{many}");

    let asked_by_name = || Extra { asked_by_name: true, ..Extra::default() };
    let listed = Vc { datacenters: vec!["dc-1".into(), "dc-2".into()], ..Vc::none() };
    let reported = message(decide(&[Vc::none(), listed], &asked_by_name()));
    assert!(
        reported.contains("vc.example (every datacenter), vc.example (datacenters \"dc-1\", \"dc-2\")"),
        "{reported}"
    );
    let crowd: Vec<Vc> = std::iter::repeat_with(Vc::none).take(1_000).collect();
    let told = message(decide(&crowd, &asked_by_name()));
    assert!(told.contains(" and 990 more; check that") && told.len() < 1_024, "{told}");
    let silent: Vec<Vc> = std::iter::repeat_with(Vc::silent).take(1_000).collect();
    let told = message(decide(&silent, &Extra::default()));
    assert!(told.contains(" and 990 more") && told.len() < 1_024, "{told}");
}

#[test]
fn w47_a_reason_names_what_was_looked_at_and_what_helps() {
    let LookupDecision::NoMatch(unknown) = decide(&[Vc::none()], &Extra { asked_by_name: true, ..Extra::default() })
    else {
        panic!("in no vCenter")
    };
    for part in [
        UUID,
        "in the other byte order, 56492e42-22ad-3911-6d72-59cc8f26bc90",
        "guest host name node-1",
        "vc.example (every datacenter)",
        "`datacenters` covers it",
    ] {
        assert!(unknown.message.contains(part), "{part:?} is missing in {:?}", unknown.message);
    }
}

#[test]
fn a_node_without_a_system_uuid_that_is_not_found_says_that_it_reports_none() {
    let node = NodeFacts { system_uuid: None, ..node() };
    let extra = Extra { node: Some(node), asked_by_name: true, ..Extra::default() };
    let LookupDecision::NoMatch(unknown) = decide(&[Vc::none()], &extra) else { panic!("in no vCenter") };
    let expected = "no virtual machine with guest host name node-1 (the Node reports no valid systemUUID to search for) in \
                    vc.example (every datacenter);";
    assert!(unknown.message.starts_with(expected), "{}", unknown.message);
}

#[test]
fn a_machine_joined_again_where_both_nodes_report_it_and_the_guest_has_the_new_name() {
    let old =
        || NodeFacts { name: "old".into(), is_initialized: true, is_not_ready: true, is_unreachable: true, ..node() };
    let vm = || machine("a");
    let swapped = || Some(UUID.parse::<BiosUuid>().unwrap().byte_swapped());
    let fqdn = || NodeFacts { name: "node-1.b".into(), ..node() };
    let guest = |name: &str| VmRecord { host_name: name.into(), ..vm() };
    let other = || "11111111-2222-3333-4444-555555555555".parse().ok();
    let by_machine_id = |node: NodeFacts| NodeFacts { machine_id: node.system_uuid.clone(), system_uuid: None, ..node };
    let cases = [
        ("both report it", old(), node(), vm(), true),
        ("in the other byte order", NodeFacts { system_uuid: swapped(), ..old() }, node(), vm(), true),
        ("as a machine id", by_machine_id(old()), by_machine_id(node()), vm(), true),
        ("a kubelet reports as the old one", NodeFacts { is_unreachable: false, ..old() }, node(), vm(), false),
        ("the old one is not initialized", NodeFacts { is_initialized: false, ..old() }, node(), vm(), false),
        ("the old one reports another", NodeFacts { system_uuid: other(), ..old() }, node(), vm(), false),
        ("the old one reports none", NodeFacts { system_uuid: None, ..old() }, node(), vm(), false),
        ("the new one reports another", old(), NodeFacts { system_uuid: other(), ..node() }, vm(), false),
        ("the guest has the old name", old(), node(), guest("old"), false),
        ("the guest says no name", old(), node(), guest(""), false),
        ("it has no UUID", old(), node(), VmRecord { bios_uuid: None, ..vm() }, false),
        ("one name in two domains", NodeFacts { name: "node-1.b".into(), ..old() }, node(), vm(), false),
        // Many guests report their name with the domain, even if the name of the Node has none.
        ("the old name with a domain", NodeFacts { name: "node-1".into(), ..old() }, fqdn(), guest("node-1.b"), false),
    ];
    for (case, old, new, vm, expected) in cases {
        assert_eq!(is_renamed(&old, &new, &vm), expected, "{case}");
    }
}
