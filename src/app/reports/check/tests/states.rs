//! Facts with which each check passes, warns and fails, and what holds for all of these results.

use super::*;
use crate::app::reports::check::catalogue::CHECKS;
use crate::app::reports::check::configuration::CredentialSourceState::{Missing, Ready, Unreadable};
use crate::app::reports::check::configuration::tests as of_configuration;
use crate::app::reports::check::configuration::{CredentialFacts, SecretFacts, address_rules, credentials, file};
use crate::app::reports::check::connections::tests as of_connections;
use crate::app::reports::check::connections::{VcenterFacts, vcenter};
use crate::app::reports::check::kubernetes::tests as of_kubernetes;
use crate::app::reports::check::kubernetes::{external_kubelets, foreign_nodes, lease};
use crate::app::reports::check::nodes::tests as of_nodes;
use crate::app::reports::check::nodes::{FoundVm, NodeCheckFacts, NodeOwner, VmCheckFacts, deletion};
use crate::app::reports::check::nsx::tests as of_nsx;
use crate::app::reports::check::nsx::{NsxFacts, nsx};
use crate::app::reports::check::nsx_resources::tests as of_resources;
use crate::app::reports::check::observation::{self, LeaseFacts};
use crate::app::reports::check::permissions::tests as of_permissions;
use crate::app::reports::check::permissions::{PermissionAnswer, permissions};
use crate::app::reports::check::workloads::tests as of_workloads;
use crate::app::reports::check::workloads::workloads;
use crate::app::reports::status::{DeletionStatus, PauseStatus};
use crate::kubernetes::workloads::Workload;
use crate::providers::vsphere::nodes::metadata::addresses::rule_matches::UnmatchedRules;
use crate::providers::vsphere::nsx::inspection::{
    ConfiguredObjectFacts, ConfiguredObjectState, ListFacts, PoolFacts, PoolUsage, ReadFailure,
};
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::AccountReads;
use crate::providers::vsphere::vcenter::snapshot::ConnectionStep;
use CheckStatus::{Failed, Passed, Warning};

/// Results of checks on some facts, and the check that these facts are about.
struct State {
    id: CheckId,
    status: CheckStatus,
    results: Vec<CheckResult>,
}

fn state(id: CheckId, status: CheckStatus, results: Vec<CheckResult>) -> State {
    State { id, status, results }
}

fn states() -> Vec<State> {
    let mut all = kubernetes();
    all.extend(configuration());
    all.extend(connections());
    all.extend(accounts());
    all.extend(nodes());
    all.extend(deletions());
    all.extend(nsx_connection());
    all.extend(nsx_objects());
    all
}

fn kubernetes() -> Vec<State> {
    use CheckId::{K02, K04, K05, K07, K09, K10};
    let permission = |consequence, answer| permissions(&[of_permissions::fact("patch", consequence, answer)]);
    let held_by = |holder: Option<&str>| vec![lease(Some(&of_kubernetes::election(holder)), false, None)];
    let ended = Some("2026-11-24T03:00:00Z".parse().unwrap());
    let old = LeaseFacts {
        namespace: "kube-system".to_owned(),
        name: "ccm".to_owned(),
        holder: Ok(Some(("cp-1_x".to_owned(), ended))),
    };
    let preflight = observation::lease(Some(&old), of_connections::time(), true);
    let of = |found: Vec<_>| workloads(Ok(&found), false);
    let ours = || of_workloads::workload("DaemonSet", "ccm", &["--cloud-provider=vsphere"]);
    let rival = |lease: &str| {
        let lease = format!("--leader-elect-resource-name={lease}");
        of_workloads::workload("Deployment", "cpi", &["--cloud-provider=vsphere", &lease])
    };
    let silent = Workload { ready: 2, ..ours() };
    let unscheduled = Workload { desired: 0, ..ours() };
    let no_match = || VmCheckFacts::NoMatch { message: String::new() };
    let node = |owner, vm| [of_kubernetes::node(owner, vm)];
    let kubelet = |owner, vm| external_kubelets(&node(owner, vm), false, false);
    let foreign = |id: &str| {
        let owner = NodeOwner::Foreign { provider_id: id.to_owned() };
        foreign_nodes(&node(owner, of_kubernetes::pending()), false)
    };
    vec![
        state(K02, Passed, permission(None, PermissionAnswer::Allowed)),
        state(K02, Warning, permission(Some("Events are missing"), PermissionAnswer::Denied)),
        state(K02, Failed, permission(None, PermissionAnswer::Denied)),
        state(K04, Passed, held_by(Some("cp-2_x"))),
        state(K04, Warning, vec![preflight]),
        state(K04, Failed, held_by(None)),
        state(K05, Passed, of(vec![ours()])),
        state(K05, Warning, of(vec![ours(), rival("cloud-controller-manager")])),
        state(K05, Failed, of(vec![ours(), rival("rancher")])),
        state(K07, Passed, of(vec![ours()])),
        state(K07, Warning, of(vec![silent])),
        state(K07, Failed, of(vec![unscheduled])),
        state(K09, Passed, kubelet(NodeOwner::Vsphere, of_kubernetes::pending())),
        state(K09, Warning, kubelet(NodeOwner::Adoptable, no_match())),
        state(K09, Failed, kubelet(NodeOwner::Adoptable, of_kubernetes::pending())),
        state(K10, Passed, foreign_nodes(&node(NodeOwner::Vsphere, of_kubernetes::pending()), false)),
        state(K10, Warning, foreign("aws:///zone/i-1")),
        state(K10, Failed, foreign("k3s://worker-1")),
    ]
}

fn secret() -> SecretFacts {
    SecretFacts {
        namespace: "kube-system".to_owned(),
        name: "vsphere-cloud-secret".to_owned(),
        user_key: "vc.example.com.username".to_owned(),
        password_key: "vc.example.com.password".to_owned(),
    }
}

fn configuration() -> Vec<State> {
    use CheckId::{C01, C02, C03, C05, C08};
    let facts = of_configuration::facts;
    let mut refused = facts();
    refused.status.refused = Some("vsphere.conf:4: expected a number".to_owned());
    let mut unknown_key = facts();
    unknown_key.notices = vec!["vsphere.conf:9: unknown key".to_owned()];
    let of_server =
        |state, secret| vec![credentials(&CredentialFacts { subject: "vCenter a:443".to_owned(), state, secret })];
    let rules = |unmatched: UnmatchedRules| address_rules(&UnmatchedRules { vms: 3, ..unmatched }, true);
    let names = vec![("internal", "k8s-net".to_owned())];
    let subnets = vec![("external", "10.30.0.0/16".parse().unwrap())];
    vec![
        state(C01, Passed, file(&facts())),
        state(C01, Failed, file(&refused)),
        state(C02, Passed, file(&facts())),
        state(C02, Failed, file(&refused)),
        state(C03, Passed, file(&facts())),
        state(C03, Warning, file(&unknown_key)),
        state(C05, Passed, of_server(Ready(vec!["password of the cloud config".to_owned()]), None)),
        state(C05, Failed, of_server(Missing("no key".to_owned()), Some(secret()))),
        state(C05, Failed, of_server(Unreadable("EACCES".to_owned()), None)),
        state(C08, Passed, rules(UnmatchedRules::default())),
        state(C08, Warning, rules(UnmatchedRules { subnets, ..UnmatchedRules::default() })),
        state(C08, Failed, rules(UnmatchedRules { network_names: names, ..UnmatchedRules::default() })),
    ]
}

fn of_vcenter(change: impl FnOnce(&mut VcenterFacts)) -> Vec<CheckResult> {
    let mut facts = of_connections::healthy();
    change(&mut facts);
    vcenter(&facts, of_connections::time())
}

fn connections() -> Vec<State> {
    use CheckId::{A02, A03, C07, N01, N02, N03, N04, N05, P01, P04};
    let healthy = || of_vcenter(|_| {});
    let mut all: Vec<State> =
        [C07, N01, N02, N03, N04, N05, A02, A03, P01, P04].map(|id| state(id, Passed, healthy())).into();
    let steps = [
        (N01, ConnectionStep::Resolution),
        (N02, ConnectionStep::Network),
        (N03, ConnectionStep::Certificate),
        (N05, ConnectionStep::Product),
        (A03, ConnectionStep::Login),
        (A03, ConnectionStep::Reads),
    ];
    let failed = |step| vcenter(&of_connections::failed(step), of_connections::time());
    all.extend(steps.map(|(id, step)| state(id, Failed, failed(step))));
    let expires = |text: &str| of_vcenter(|facts| facts.status.certificate_expiry = Some(text.parse().unwrap()));
    all.push(state(N03, Warning, of_vcenter(|facts| facts.status.is_certificate_verified = false)));
    all.push(state(N04, Warning, expires("2026-12-20T00:00:00Z")));
    all.push(state(N04, Failed, expires("2026-11-25T00:00:00Z")));
    all
}

fn accounts() -> Vec<State> {
    use CheckId::{A02, A03, C07, P01, P04};
    let account = |datacenters: usize, missing: Option<&str>, reads_root: bool| {
        let missing_datacenters = missing.map(str::to_owned);
        let account =
            AccountReads { datacenters: Ok(datacenters), missing_datacenters, reads_root: Ok(Some(reads_root)) };
        of_vcenter(|facts| facts.account = Some(account))
    };
    let pause = PauseStatus {
        until: of_connections::time(),
        cause: "3 rejected".to_owned(),
        reset_command: Some("kubectl -n kube-system delete lease vsphere-ccm-logins-1f3a".to_owned()),
    };
    let rejected = VcenterFacts { secret: Some(secret()), ..of_connections::failed(ConnectionStep::Login) };
    let no_tags = || Some("the account cannot see the category k8s-zone".to_owned());
    vec![
        state(A02, Failed, of_vcenter(|facts| facts.status.login_pause = Some(pause))),
        state(A03, Warning, of_vcenter(|facts| facts.status.rejected_credentials = Some("InvalidLogin".to_owned()))),
        state(A03, Failed, vcenter(&rejected, of_connections::time())),
        state(C07, Failed, account(2, Some("dc-3 does not exist"), true)),
        state(P01, Warning, account(2, None, false)),
        state(P01, Failed, account(0, None, false)),
        state(P04, Failed, of_vcenter(|facts| facts.status.tag_failure = no_tags())),
    ]
}

fn of_node(node: NodeCheckFacts) -> Vec<CheckResult> {
    of_nodes::run(&[node], false)
}

fn nodes() -> Vec<State> {
    use CheckId::{P02, V01, V02, V05, V06, Z02};
    let settled = |vm: FoundVm| of_node(of_nodes::with(vm));
    let joining = |vm: FoundVm| of_node(NodeCheckFacts { is_initialized: false, ..of_nodes::with(vm) });
    let vm = of_nodes::vm;
    let healthy = || settled(vm());
    let mut all: Vec<State> = [P02, V01, V02, V05, V06, Z02].map(|id| state(id, Passed, healthy())).into();
    let hidden = FoundVm { unreadable: vec!["HostSystem host-18".to_owned()], ..vm() };
    let no_match = || VmCheckFacts::NoMatch { message: "no vCenter has it".to_owned() };
    let restored = NodeCheckFacts {
        contradicting_uuids: Some(("4211".to_owned(), ["5622".to_owned(), "2256".to_owned()])),
        ..of_nodes::with(vm())
    };
    let tools = || FoundVm { has_running_tools: false, ..vm() };
    let refused = || FoundVm { addresses: 0, pending: Some((reason::NoNetworkMatches, "none".to_owned())), ..vm() };
    let untagged = || FoundVm {
        zone: String::new(),
        pending: Some((reason::NoZoneTags, "no tag".to_owned())),
        zone_command: "govc tags.attach -c k8s-zone ZONE /dc-1/host/cluster-1".to_owned(),
        ..vm()
    };
    all.extend([
        state(P02, Failed, settled(hidden)),
        state(P02, Failed, of_node(of_nodes::unresolved(reason::VMNotReadable))),
        state(V01, Failed, of_node(of_nodes::without(no_match()))),
        state(V01, Failed, of_node(NodeCheckFacts { uuids: Vec::new(), ..of_nodes::without(no_match()) })),
        state(V02, Warning, of_node(restored.clone())),
        state(V02, Warning, of_node(NodeCheckFacts { vm: no_match(), ..restored })),
        state(V02, Failed, of_node(of_nodes::unresolved(reason::ProviderIDMismatch))),
        state(V05, Warning, settled(tools())),
        state(V05, Failed, joining(tools())),
        state(V06, Warning, settled(refused())),
        state(V06, Failed, joining(refused())),
        state(Z02, Warning, settled(untagged())),
        state(Z02, Failed, joining(untagged())),
    ]);
    all
}

fn deletions() -> Vec<State> {
    let status = |mode: &str, allowance: usize| DeletionStatus { allowance, ..of_nodes::deletion_status(mode) };
    let held = DeletionStatus { pending: of_nodes::pending("NeverSeen"), ..status("enforce", 5) };
    vec![
        state(CheckId::D01, Passed, vec![deletion(Some(&status("enforce", 5)), false)]),
        state(CheckId::D01, Warning, vec![deletion(Some(&status("enforce", 0)), false)]),
        state(CheckId::D01, Warning, vec![deletion(Some(&status("off", 5)), false)]),
        state(CheckId::D01, Failed, vec![deletion(Some(&held), false)]),
    ]
}

fn of_manager(change: impl FnOnce(&mut NsxFacts)) -> Vec<CheckResult> {
    let mut facts = of_nsx::healthy();
    change(&mut facts);
    nsx(Some(&facts), of_connections::time(), false)
}

fn nsx_connection() -> Vec<State> {
    use CheckId::{X01, X02, X06, X07};
    let healthy = || of_manager(|_| {});
    let mut all: Vec<State> = [X01, X02, X06, X07].map(|id| state(id, Passed, healthy())).into();
    let refused = || Some("connection refused".to_owned());
    let unreachable = |facts: &mut NsxFacts| {
        facts.status.is_logged_in = false;
        facts.status.failure = refused();
        facts.status.certificate_expiry = None;
    };
    let rejected = |facts: &mut NsxFacts| {
        facts.status.is_logged_in = false;
        facts.status.failure = refused();
    };
    let unlisted = |facts: &mut NsxFacts| facts.status.routes.as_mut().unwrap().failure = refused();
    all.extend([
        state(X01, Warning, of_manager(|facts| facts.status.is_certificate_verified = false)),
        state(X01, Failed, of_manager(unreachable)),
        state(X02, Warning, of_manager(|facts| facts.status.failure = refused())),
        state(X02, Failed, of_manager(rejected)),
        state(X06, Warning, of_manager(|facts| facts.name_problem = Some("--cluster-name=kubernetes".to_owned()))),
        state(X06, Failed, of_manager(|facts| facts.objects_of_other_clusters = Some(2))),
        state(X07, Warning, of_manager(|facts| facts.status.load_balancers.as_mut().unwrap().orphans = Some(1))),
        state(X07, Failed, of_manager(unlisted)),
    ]);
    all
}

fn nsx_objects() -> Vec<State> {
    use CheckId::{X03, X04, X05};
    let list = |result| {
        let lists = vec![ListFacts { kind: "pool", path: "/infra/lb-pools".to_owned(), result }];
        of_resources::read(|inspection| inspection.lists = lists)
    };
    let object = |state| {
        let configured =
            vec![ConfiguredObjectFacts { object: "IP pool \"k8s\" (by name)".to_owned(), state: Ok(state) }];
        of_resources::read(|inspection| inspection.configured = configured)
    };
    let free = |available| {
        let usage = Ok(Some(PoolUsage { total: 10, available }));
        of_resources::read(|inspection| inspection.pools = vec![PoolFacts { pool: "p".to_owned(), usage }])
    };
    vec![
        state(X03, Passed, list(Ok(()))),
        state(X03, Failed, list(Err(ReadFailure::NoPermission("403".to_owned())))),
        state(X04, Passed, object(ConfiguredObjectState::Usable)),
        state(X04, Warning, object(ConfiguredObjectState::NotAdvertised)),
        state(X04, Failed, object(ConfiguredObjectState::Missing)),
        state(X05, Passed, free(3)),
        state(X05, Warning, free(2)),
        state(X05, Failed, free(0)),
    ]
}

#[test]
fn each_check_has_exactly_the_results_that_the_catalogue_says() {
    let mut found = BTreeSet::new();
    for State { id, status, results } in states() {
        let is_there = results.iter().any(|result| (result.id, result.status) == (id, status));
        assert!(is_there, "{id} {status:?}: {results:#?}");
        found.extend(results.iter().map(|result| (result.id, format!("{:?}", result.status))));
    }
    found.retain(|(_, status)| status != "Skipped" && status != "Incomplete");
    let declared = CHECKS
        .iter()
        .flat_map(|(id, _, findings, _)| [Passed].iter().chain(*findings).map(|status| (*id, format!("{status:?}"))));
    assert_eq!(found, declared.collect());
}

/// The programs with which a command may begin.
const PROGRAMS: [&str; 7] =
    ["kubectl ", "govc ", "getent ", "nc ", "read ", "printf ", "vsphere-cloud-controller-manager "];

#[test]
fn each_finding_has_a_remedy_and_its_commands_run_in_a_shell_as_they_are() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/checks.md"));
    let (placeholders, _) = page.split_once("\n## ").unwrap();
    for State { results, .. } in states() {
        for result in results {
            let is_finding = matches!(result.status, Warning | Failed);
            assert_eq!(is_finding, !result.remedy.is_empty(), "{result:#?}");
            for command in &result.commands {
                let is_known = PROGRAMS.iter().any(|program| command.starts_with(program));
                assert!(is_known && !command.contains('\n'), "{command}");
                let words = command.split(|char: char| !char.is_ascii_uppercase());
                for word in words.filter(|word| word.len() > 1) {
                    assert!(placeholders.contains(&format!("`{word}`")), "{word} is not explained: {command}");
                }
            }
            let sentences = result.remedy.iter().filter(|step| !result.commands.contains(step));
            for sentence in sentences {
                let has_command = ["kubectl ", "govc "].iter().any(|program| sentence.starts_with(program));
                assert!(!has_command, "a command is a step of its own: {sentence}");
            }
        }
    }
}

#[test]
fn a_command_is_never_broken() {
    let command = format!("kubectl -n kube-system patch secret {}", "word ".repeat(40).trim_end());
    let result = CheckResult::failed(CheckId::C05, "", "no").with_remedy("word ".repeat(40)).with_command(&command);
    let lines = report(vec![result]).lines();
    assert!(lines.iter().any(|line| line.text == format!("          {command}")), "{lines:#?}");
    assert!(lines.iter().filter(|line| !line.text.contains("kubectl")).all(|line| line.text.chars().count() <= 100));
}
