//! Table tests: what is known of a Service, and the text.

use super::*;
use crate::app::reports::explain::ExplainReport;
use crate::app::reports::explain::SubjectState;
use crate::app::reports::golden::assert_golden;
use crate::controllers::service::explanation::{BackendNodes, BlockedService};
use crate::controllers::service::reason as controller;
use crate::providers::vsphere::nsx::load_balancer::explanation::{ObjectFacts, ObjectState, RequestFacts};
use crate::providers::vsphere::nsx::load_balancer::ownership::{ObjectOwner, OwnershipProof};
use crate::providers::vsphere::nsx::load_balancer::service_request::Features;
use crate::providers::vsphere::nsx::load_balancer::{LastStep, ListStatus, PlannedStep};
use crate::providers::vsphere::reason;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const NSX: &str = "nsx.example.com:443";

fn cached(spec: Value, ingress: &[&str]) -> Arc<Service> {
    let ingress: Vec<Value> = ingress.iter().map(|ip| json!({"ip": ip})).collect();
    let service = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "finalizers": [service::FINALIZER]},
        "spec": spec,
        "status": {"loadBalancer": {"ingress": ingress}},
    });
    Arc::new(serde_json::from_value(service).unwrap())
}

fn balanced() -> Value {
    json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]})
}

fn object(kind: &'static str, path: &str, owner: ObjectOwner) -> ObjectFacts {
    ObjectFacts { kind, path: path.to_owned(), port: None, address: None, members: None, owner }
}

fn ours(kind: &'static str, path: &str, proof: OwnershipProof) -> ObjectFacts {
    object(kind, path, ObjectOwner::ThisCluster(proof))
}

/// Returns a Service that is served at 192.0.2.5.
fn served() -> BalancedService {
    let now = Instant::now();
    let address = "192.0.2.5".parse().ok();
    let server = ObjectFacts {
        port: Some("TCP/80".to_owned()),
        address,
        ..ours("virtual server", "/infra/lb-virtual-servers/v", OwnershipProof::ClusterUid)
    };
    let pool = ObjectFacts { members: Some(3), ..ours("pool", "/infra/lb-pools/p", OwnershipProof::Reference) };
    let facts = ServiceFacts {
        service: None,
        has_record: true,
        plan: Some(ServicePlan::LeaveAlone),
        is_synced: true,
        was_ensured: true,
        nodes: BackendNodes { written: Some(3), is_certain: true, ..BackendNodes::default() },
        ..ServiceFacts::default()
    };
    let balancer = LoadBalancerFacts {
        request: RequestFacts {
            class: "default".to_owned(),
            ports: vec!["TCP/80 to node port 30080".to_owned()],
            families: vec!["IPv4"],
            features: Some(Features::default()),
            ..RequestFacts::default()
        },
        list: ListStatus { last: Some(now), failure: None },
        knows_cluster_uid: true,
        state: Some(ObjectState {
            lb_service: Ok(Some("/infra/lb-services/l".to_owned())),
            objects: vec![server, pool],
            next: Ok(PlannedStep {
                desired_members: Some(3),
                addresses: address.into_iter().collect(),
                ..PlannedStep::default()
            }),
        }),
        last_step: Some(LastStep {
            at: now,
            steps: BTreeMap::new(),
            desired_servers: 1,
            desired_members: 3,
            owned: 2,
            ambiguous: 0,
            outcome: Some(Ok(())),
        }),
        ..LoadBalancerFacts::default()
    };
    BalancedService {
        key: "shop/web".to_owned(),
        service: Some(cached(balanced(), &["192.0.2.5"])),
        similar: Vec::new(),
        term: TermFacts::Current(Box::new(facts)),
        balancer: Some(balancer),
        nsx: Some(NSX.to_owned()),
        is_detached: false,
        now,
    }
}

/// Returns [`served`] after changes of what the controller and the provider know.
fn with(change: impl FnOnce(&mut ServiceFacts, &mut LoadBalancerFacts)) -> BalancedService {
    let mut known = served();
    let TermFacts::Current(facts) = &mut known.term else { panic!("the term is current") };
    change(facts, known.balancer.as_mut().unwrap());
    known
}

impl BalancedService {
    /// Returns the Service after a failed list of NSX.
    fn with_failed_list(mut self) -> Self {
        self.balancer.as_mut().unwrap().list.failure = Some("NSX does not answer".to_owned());
        self
    }

    /// Returns the Service without a record of the controller.
    fn forgotten(mut self) -> Self {
        let TermFacts::Current(facts) = &mut self.term else { panic!("the term is current") };
        facts.has_record = false;
        self
    }
}

fn with_next(next: Result<PlannedStep, (crate::cloud::Reason, String)>, plan: ServicePlan) -> BalancedService {
    with(|facts, balancer| {
        facts.plan = Some(plan);
        balancer.state.as_mut().unwrap().next = next;
    })
}

fn step(step: &str) -> PlannedStep {
    PlannedStep { step: Some(step.to_owned()), ..PlannedStep::default() }
}

fn blocked(reason: crate::cloud::Reason, next_attempt: Option<u64>) -> BlockedService {
    BlockedService {
        reason,
        message: "why".to_owned(),
        blocked_for: Duration::from_secs(372),
        is_of_nodes: false,
        next_attempt: next_attempt.map(Duration::from_secs),
    }
}

/// Returns the facts as `label: text`, with `!` before findings.
fn lines(known: &BalancedService) -> Vec<String> {
    let mut lines = Vec::new();
    for section in explanation(known).sections {
        for fact in section.facts {
            let mark = if fact.is_finding { "!" } else { "" };
            lines.push(format!("{mark}{}: {}", fact.label, fact.text));
        }
    }
    lines
}

#[test]
fn the_facts_of_a_service_that_is_served_are_complete_and_in_order() {
    let known = served();
    let Explanation { subject, summary, state, .. } = explanation(&known);
    assert_eq!((subject.as_str(), summary.as_str()), ("Service shop/web", "served at 192.0.2.5"));
    assert_eq!(state, SubjectState::Settled);
    let expected = [
        "type: LoadBalancer",
        "class: default",
        "ports: TCP/80 to node port 30080",
        "families: IPv4",
        "source ranges: every client",
        "health check: TCP to the node port; none for UDP ports",
        "SNAT: automap",
        "traffic policy: Cluster",
        "finalizer: set",
        "addresses: 192.0.2.5 in the status, 192.0.2.5 in NSX",
        "decision: leave alone: this term has ensured exactly this",
        "next step: none: NSX matches the Service",
        "last step: none needed, 0 s ago",
        "last result: as desired",
        "listed: 0 s ago, and later reads and writes",
        "LB service: /infra/lb-services/l",
        "virtual server: /infra/lb-virtual-servers/v",
        ": TCP/80, 192.0.2.5, ours by the tag cluster-uid",
        "pool: /infra/lb-pools/p",
        ": 3 members, ours by the reference of another object of ours",
        "targets: 0 Nodes",
        "written: 3 Nodes",
        "members: 3 expected for each port",
    ];
    assert_eq!(lines(&known), expected);
}

#[test]
fn each_state_of_a_service_has_its_sentence_and_its_exit_code() {
    use SubjectState::{Held, Settled, Unknown};
    let of_service =
        |spec: Value, ingress: &[&str]| BalancedService { service: Some(cached(spec, ingress)), ..served() };
    let in_term = |term: TermFacts| BalancedService { term, ..served() };
    let cluster_ip = || json!({"type": "ClusterIP"});
    let without_objects = |mut known: BalancedService| {
        known.balancer.as_mut().unwrap().state.as_mut().unwrap().objects.clear();
        known
    };
    let pool_of_port = "create the pool of port TCP/80";
    let capacity = (reason::LoadBalancerCapacity, "full".to_owned());
    for (known, state, summary) in [
        (in_term(TermFacts::Standby), Unknown, "not known: only the leader lists NSX"),
        (in_term(TermFacts::NoController), Unknown, "not known: the service controller does not run here"),
        (in_term(TermFacts::NotBegun), Unknown, "not known: the term of leadership has begun just now"),
        (in_term(TermFacts::NotConfigured), Held, "no load balancer: LoadBalancerNotConfigured"),
        (
            with(|_, balancer| balancer.state = None),
            Unknown,
            "not known: the objects in NSX are not listed yet in this term of leadership",
        ),
        (
            with(|facts, balancer| {
                facts.blocked = Some(blocked(reason::NSXUnavailable, Some(41)));
                balancer.state = None;
            }),
            Held,
            "not up to date for 6 m 12 s: NSXUnavailable",
        ),
        (
            with(|facts, _| {
                facts.blocked = Some(BlockedService { is_of_nodes: true, ..blocked(reason::NSXRefused, None) })
            }),
            Held,
            "its Nodes are not up to date for 6 m 12 s: NSXRefused",
        ),
        (
            with_next(Ok(step(pool_of_port)), ServicePlan::Ensure { adds_finalizer: false }),
            Held,
            "the load balancer is not complete: next, create the pool of port TCP/80",
        ),
        (
            with_next(Ok(PlannedStep::default()), ServicePlan::Ensure { adds_finalizer: false }),
            Held,
            "the load balancer is not complete: NSX has to confirm the last step",
        ),
        (
            with_next(Err(capacity.clone()), ServicePlan::Ensure { adds_finalizer: true }),
            Held,
            "not up to date: LoadBalancerCapacity",
        ),
        (with_next(Err(capacity), ServicePlan::LeaveAlone), Held, "not up to date: LoadBalancerCapacity"),
        (
            with_next(Ok(step("change /infra/lb-pools/p")), ServicePlan::LeaveAlone),
            Held,
            "NSX does not match the Service: next, change /infra/lb-pools/p",
        ),
        (
            with_next(Ok(step("delete /infra/lb-pools/p")), ServicePlan::Delete),
            Held,
            "the load balancer is to be deleted: next, delete /infra/lb-pools/p",
        ),
        (
            with(|facts, _| {
                facts.plan =
                    Some(ServicePlan::Hold { reason: reason::LoadBalancerNotPossible, message: "why".to_owned() });
            }),
            Held,
            "not up to date: LoadBalancerNotPossible",
        ),
        (
            with(|facts, _| facts.nodes.differing = vec!["worker-7".to_owned()]),
            Held,
            "changes of 1 Node are about to be written",
        ),
        (with(|facts, _| facts.nodes.is_certain = false), Held, "the Nodes behind the load balancer are being written"),
        (
            with(|facts, _| facts.nodes.pausing = vec![("worker-7".to_owned(), Duration::from_secs(30))]),
            Held,
            "served, without the last change of a Node: NodeFlapping",
        ),
        (of_service(balanced(), &[]), Held, "no address in the status yet"),
        (without_objects(of_service(cluster_ip(), &[])), Settled, "has the type ClusterIP and no load balancer"),
        (of_service(cluster_ip(), &[]), Held, "has the type ClusterIP, and NSX still has 2 objects of it"),
        (
            of_service(json!({"type": "LoadBalancer", "loadBalancerClass": "x/y"}), &[]),
            Settled,
            "the class \"x/y\" in spec.loadBalancerClass belongs to another program",
        ),
        (
            BalancedService { service: None, ..served() },
            Held,
            "does not exist, or needs no load balancer; NSX has 2 objects of it",
        ),
    ] {
        let Explanation { summary: shown, state: found, .. } = explanation(&known);
        assert_eq!((found, shown.as_str()), (state, summary));
    }
}

#[test]
fn nothing_is_settled_by_a_list_of_nsx_that_has_failed_since() {
    let of_service =
        |spec: Value, ingress: &[&str]| BalancedService { service: Some(cached(spec, ingress)), ..served() };
    let without_objects = |mut known: BalancedService| {
        known.balancer.as_mut().unwrap().state.as_mut().unwrap().objects.clear();
        known
    };
    let absent = BalancedService { service: None, ..without_objects(served()) }.forgotten();
    let mut held = BalancedService { service: None, ..without_objects(served()) }.forgotten();
    let objects = &mut held.balancer.as_mut().unwrap().state.as_mut().unwrap().objects;
    objects.push(object("pool", "/infra/lb-pools/p", ObjectOwner::Ambiguous));
    let cluster_ip = without_objects(of_service(json!({"type": "ClusterIP"}), &[]));
    for (known, settled) in [
        (served(), "served at 192.0.2.5"),
        (cluster_ip, "has the type ClusterIP and no load balancer"),
        (absent, "does not exist, or needs no load balancer; NSX has no object of it"),
        (held, "does not exist, or needs no load balancer; 1 object with its name may be of another cluster"),
    ] {
        let Explanation { summary, state, .. } = explanation(&known);
        assert_eq!((state, summary.as_str()), (SubjectState::Settled, settled));
        let Explanation { summary, state, .. } = explanation(&known.with_failed_list());
        let expected = format!("not known: {settled}, as of the list 0 s ago: NSX does not answer");
        assert_eq!((state, summary), (SubjectState::Unknown, expected));
    }
    let of_others = of_service(json!({"type": "LoadBalancer", "loadBalancerClass": "x/y"}), &[]).with_failed_list();
    assert_eq!(explanation(&of_others).state, SubjectState::Settled, "NSX does not decide about it");
}

#[test]
fn an_obstacle_says_who_acts_with_a_command_and_its_page_and_when_it_is_tried_again() {
    for (reason, next_attempt, actor, command, attempt) in [
        (
            reason::LoadBalancerNotPossible,
            None,
            "the owner of the Service",
            "kubectl edit service -n shop web",
            "when the Service, the Nodes or vsphere.conf change",
        ),
        (
            reason::LoadBalancerCapacity,
            Some(301),
            "the administrator of NSX",
            "curl -s --cacert CA_FILE -u USER https://nsx.example.com:443/policy/api/v1/infra/lb-services/l/service-usage",
            "in 5 m 1 s, or when the Service changes",
        ),
        (
            reason::AddressUnavailable,
            Some(0),
            "the administrator of NSX",
            "curl -s --cacert CA_FILE -u USER https://nsx.example.com:443/policy/api/v1/infra/ip-pools | jq '.results[] | \
             {path, pool_usage}' shows the free addresses",
            "now",
        ),
        (
            controller::NoSelectedNodes,
            None,
            "the administrator of the cluster",
            "kubectl get nodes --show-labels",
            "when the Service, the Nodes or vsphere.conf change",
        ),
        (
            controller::WriteConflict,
            Some(5),
            "no one: it passes by itself",
            "kubectl describe service -n shop web",
            "in 5 s, or when the Service changes",
        ),
    ] {
        let known = with(|facts, _| facts.blocked = Some(blocked(reason, next_attempt)));
        let shown = lines(&known);
        let page = format!("page: docs/reasons.md#{}", reason.as_str().to_lowercase());
        let expected = [format!("!{reason}: why"), format!("who acts: {actor}"), format!("command: {command}"), page];
        assert_eq!(shown.get(..4).unwrap(), expected);
        assert!(shown.contains(&format!("next attempt: {attempt}")), "{shown:#?}");
    }
}

#[test]
fn refusals_changes_and_objects_of_others_are_shown() {
    let known = with(|facts, balancer| {
        facts.plan = Some(ServicePlan::Ensure { adds_finalizer: true });
        facts.is_replaced = true;
        balancer.waits_for_list = true;
        balancer.knows_cluster_uid = false;
        balancer.list.failure = Some("NSX does not answer".to_owned());
        balancer.request.refusals = vec![(reason::LoadBalancerNotPossible, "port SCTP/1".to_owned())];
        balancer.request.address = "192.0.2.7".parse().ok();
        balancer.request.source_ranges = vec!["198.51.100.0/24".to_owned()];
        balancer.remarks = vec![(reason::LoadBalancerAdoptedAsIs, "as it is".to_owned())];
        let last = balancer.last_step.as_mut().unwrap();
        last.steps = [(None, "reserve an address".to_owned())].into();
        last.outcome = Some(Err("no address".to_owned()));
        let state = balancer.state.as_mut().unwrap();
        state.next = Ok(PlannedStep { changes: vec!["lacks the members 10.0.0.9".to_owned()], ..step("change /p") });
        state.lb_service = Err("no load balancer service found with id x".to_owned());
        state.objects = vec![
            object("pool", "/foreign", ObjectOwner::AnotherCluster),
            object("group of source ranges", "/ambiguous", ObjectOwner::Ambiguous),
            object("allocation", "/unread", ObjectOwner::Unresolved),
            ours("persistence profile", "/own", OwnershipProof::Id),
        ];
    });
    let shown = lines(&known);
    for line in [
        "!refused: port SCTP/1: LoadBalancerNotPossible",
        "address: 192.0.2.7, and no other one",
        "source ranges: 198.51.100.0/24",
        "decision: delete the load balancer of the former Service of this name; then set the finalizer, then ensure the \
         load balancer",
        "next step: change /p",
        ": lacks the members 10.0.0.9",
        "last step: 0 s ago: reserve an address",
        "last result: no address",
        "next attempt: after the next list of NSX",
        "remark: LoadBalancerAdoptedAsIs: as it is",
        "!list: failed: NSX does not answer",
        "cluster: its UID is not known, so tags with a cluster UID prove nothing",
        "!LB service: no load balancer service found with id x",
        ": of another cluster by the tag cluster-uid: never changed",
        "source ranges: /ambiguous",
        ": of this or another cluster: never changed (docs/nsx/how-it-works.md)",
        ": decided when its address is read",
        "persistence: /own",
        ": ours by its id",
    ] {
        assert!(shown.iter().any(|known| known == line), "{line}: {shown:#?}");
    }
}

#[test]
fn a_long_text_and_many_objects_are_clipped() {
    let known = with(|facts, balancer| {
        facts.blocked = Some(BlockedService { message: "m".repeat(5000), ..blocked(reason::NSXRefused, None) });
        let state = balancer.state.as_mut().unwrap();
        state.objects = (0..100).map(|number| object("pool", &format!("/{number}"), ObjectOwner::Ambiguous)).collect();
        facts.nodes.differing = (0..5000).map(|number| format!("worker-{number}")).collect();
    });
    let shown = lines(&known);
    assert!(shown.iter().all(|line| line.chars().count() < 2_050), "{shown:#?}");
    assert!(shown.contains(&"objects: 40 more".to_owned()) && shown.contains(&": 4980 more".to_owned()));
    assert!(shown.len() < 200, "{}", shown.len());
}

#[test]
fn a_service_that_a_standby_does_not_have_is_not_known_and_similar_names_are_shown() {
    let known = BalancedService {
        key: "shop/wep".to_owned(),
        service: None,
        similar: vec!["shop/web".to_owned()],
        term: TermFacts::Standby,
        balancer: Some(LoadBalancerFacts::default()),
        ..served()
    };
    assert_eq!(explanation(&known).state, SubjectState::Unknown);
    let expected = [
        "Service: the cache has no Service of this name that needs or has a load balancer",
        "similar names: shop/web",
        "listed: never in this term: the objects are not known",
    ];
    assert_eq!(lines(&known), expected);
}

#[tokio::test(start_paused = true)]
async fn the_document_is_the_golden_file() {
    let known = with(|facts, balancer| {
        facts.plan = Some(ServicePlan::Ensure { adds_finalizer: false });
        facts.blocked = Some(blocked(reason::NSXRefused, Some(30)));
        let state = balancer.state.as_mut().unwrap();
        state.next = Ok(PlannedStep { changes: vec!["lacks the members 10.0.0.9".to_owned()], ..step("change /p") });
        state.objects.push(object("pool", "/foreign", ObjectOwner::AnotherCluster));
    });
    let report = explanation(&known).report_of_test();
    assert_golden("explain-service", ExplainReport::KIND, report.verdict(), &report);
}

#[test]
fn without_a_process_a_service_is_as_a_new_leader_would_find_it() {
    use SubjectState::{Held, Settled, Unknown};
    let first = |ingress: &[&str], adds_finalizer: bool, next: PlannedStep| {
        let mut known = BalancedService {
            service: Some(cached(balanced(), ingress)),
            is_detached: true,
            ..with_next(Ok(next), ServicePlan::Ensure { adds_finalizer })
        };
        let (TermFacts::Current(facts), Some(balancer)) = (&mut known.term, &mut known.balancer) else {
            panic!("the term is current")
        };
        facts.nodes = BackendNodes::default();
        facts.was_ensured = false;
        balancer.last_step = None;
        facts.service = known.service.clone();
        settle(facts, balancer);
        known
    };
    let served = || PlannedStep { addresses: vec!["192.0.2.5".parse().unwrap()], ..PlannedStep::default() };
    let unlisted = |mut known: BalancedService| {
        let balancer = known.balancer.as_mut().unwrap();
        (balancer.state, balancer.list) = (None, ListStatus::default());
        known
    };
    for (known, state, summary) in [
        (first(&["192.0.2.5"], false, served()), Settled, "served at 192.0.2.5"),
        (first(&[], false, served()), Held, "NSX matches the Service, and the status has another address: none"),
        (first(&["192.0.2.5"], true, served()), Held, "not complete: next, the finalizer is set"),
        (first(&["192.0.2.5"], false, step("change /p")), Held, "NSX does not match the Service: next, change /p"),
        (
            unlisted(first(&["192.0.2.5"], false, served())),
            Unknown,
            "not known: the objects in NSX could not be listed",
        ),
        (
            BalancedService { term: TermFacts::Unread, ..first(&[], false, served()) },
            Unknown,
            "not known: the Services or Nodes could not be read",
        ),
    ] {
        let explanation = explanation(&known);
        assert_eq!((explanation.state, explanation.summary.as_str()), (state, summary));
        let is_current = matches!(known.term, TermFacts::Current(_));
        let facts: Vec<_> = explanation.sections.into_iter().flat_map(|section| section.facts).collect();
        let has = |text: &str| facts.iter().any(|fact| fact.text == text);
        assert_eq!(has("not known: only the leader knows when it syncs the Service"), is_current, "{facts:?}");
        assert!(!has("nothing in this term"), "{facts:?}");
    }
}
