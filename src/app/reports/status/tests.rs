//! Tests of the text and the result of `status`.

use super::*;
use crate::app::reports::golden::assert_golden;

const NOW: &str = "2026-11-24T03:13:21Z";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn held(name: &str, reason: &str, for_seconds: u64) -> HeldObject {
    HeldObject { name: name.to_owned(), reason: reason.to_owned(), for_seconds, is_expected: false }
}

fn controller(name: &str, state: ControllerState, reason: Option<&str>) -> ControllerStatus {
    ControllerStatus { name: name.to_owned(), state, reason: reason.map(str::to_owned) }
}

/// Returns a report in which everything is as it should be.
fn report() -> StatusReport {
    let vcenter = VcenterStatus {
        server: "vc.example.com:443".to_owned(),
        inventory_age_seconds: Some(0),
        failure: None,
        virtual_machines: 12,
        session_age_seconds: Some(259_200),
        rejected_credentials: None,
        is_certificate_verified: true,
        certificate_expiry: Some(time("2027-06-23T03:13:21Z")),
        tags_age_seconds: Some(41),
        next_tag_poll_seconds: Some(19),
        tag_failure: None,
        login_pause: None,
    };
    let balancers = BalancerCounts {
        ensured: 14,
        waiting: 0,
        held: vec![],
        ambiguous_objects: Some(0),
        orphans: Some(0),
        list_age_seconds: Some(720),
        list_failure: None,
    };
    let nsx = NsxStatus {
        server: "nsx.example.com:443".to_owned(),
        is_in_use: true,
        is_logged_in: true,
        failure: None,
        is_certificate_verified: true,
        certificate_expiry: None,
        login_pause: None,
        load_balancers: Some(balancers),
        routes: Some(RouteCounts { are_listed: true, failure: None, ready: 12, pending: 0, held: vec![] }),
    };
    let last = DeletedNodeStatus {
        name: "worker-2".to_owned(),
        uid: "7c".to_owned(),
        time: time("2026-11-20T02:10:04Z"),
        proof: "no VM".to_owned(),
        replica: "cp-1".to_owned(),
    };
    StatusReport {
        version: "0.1.0".to_owned(),
        time: time(NOW),
        host: "cp-1".to_owned(),
        leads: true,
        is_detached: false,
        election: Some(ElectionStatus {
            namespace: "kube-system".to_owned(),
            name: "cloud-controller-manager".to_owned(),
            holder: Some("cp-1_8a7e".to_owned()),
            since: Some(time("2026-11-20T23:13:21Z")),
            read_age_seconds: Some(1),
            renewal_age_seconds: Some(1),
            lease_duration_seconds: Some(15),
        }),
        controllers: vec![controller("cloud-node-controller", ControllerState::Working, None)],
        configuration: ConfigurationStatus { generation: 6, read: time("2026-11-24T03:12:40Z"), refused: None },
        vcenters: vec![vcenter],
        nsx: Some(nsx),
        nodes: Some(NodeCounts { nodes: 12, settled: 12, waiting: 0, held: vec![], selected: None }),
        deletion: Some(DeletionStatus {
            mode: "enforce".to_owned(),
            allowance: 5,
            limit: 5,
            is_mass_held: false,
            unanswered: 0,
            pending: vec![],
            last: Some(last),
        }),
        deletion_pause: Some(DeletionPauseStatus {
            namespace: "kube-system".to_owned(),
            is_paused: Some(false),
            ..DeletionPauseStatus::default()
        }),
        notes: vec![],
    }
}

fn text(report: &StatusReport) -> Vec<String> {
    report.lines().iter().map(|line| line.text().to_owned()).collect()
}

fn findings(report: &StatusReport) -> Vec<String> {
    let findings = report.lines().into_iter().filter(|line| line.emphasis == Emphasis::Finding);
    findings.map(|line| line.text().to_owned()).collect()
}

#[test]
fn one_screen_has_all_that_is_as_it_should_be() {
    let report = report();
    assert_eq!(
        text(&report),
        [
            "leader cp-1 for 3 d 4 h, this process   standbys are not known here",
            "  configuration generation 6, read 03:12:40Z",
            "vCenter vc.example.com:443   connected, current   12 VMs   session 3 d   certificate 211 d",
            "  tags 41 s ago",
            "NSX nsx.example.com:443   connected   14 load balancers, 0 held, 0 orphans   12 routes Ready",
            "nodes 12   settled 12",
            "deletion enforce   allowance 5 of 5   pending none   last: worker-2 at 2026-11-20T02:10:04Z",
            "logins not paused   next: tag poll in 19 s",
        ]
    );
    assert_eq!(report.verdict(), Verdict::Ok);
}

/// Name, change of the report, line that the text has then, and result.
type Case = (&'static str, fn(&mut StatusReport), &'static str, Verdict);

#[test]
fn each_fault_is_a_line_and_a_finding() {
    let cases: [Case; 33] = [
        (
            "a held Node",
            |report| {
                report.nodes = Some(NodeCounts {
                    nodes: 12,
                    settled: 11,
                    waiting: 0,
                    held: vec![held("worker-7", "NoZoneTags", 372)],
                    selected: None,
                })
            },
            "nodes 12   settled 11   held 1: NoZoneTags worker-7 (6 m 12 s)",
            Verdict::Findings,
        ),
        (
            "many held Nodes",
            |report| {
                let held: Vec<_> = (0..7).map(|number| held(&format!("n{number}"), "VMNotFound", 60)).collect();
                report.nodes = Some(NodeCounts { nodes: 7, settled: 0, waiting: 0, held, selected: None });
            },
            "  VMNotFound n4 (1 m), and 2 more",
            Verdict::Findings,
        ),
        (
            "Nodes before their first reconcile",
            |report| {
                report.nodes = Some(NodeCounts { nodes: 12, settled: 2, waiting: 10, held: vec![], selected: None })
            },
            "nodes 12   settled 2   not checked yet 10",
            Verdict::Incomplete,
        ),
        (
            "a vCenter that is down",
            |report| {
                report.vcenters[0].failure = Some("connection refused".to_owned());
                report.vcenters[0].inventory_age_seconds = Some(90);
            },
            "vCenter vc.example.com:443: not current: connection refused",
            Verdict::Findings,
        ),
        (
            "a vCenter that never answered",
            |report| {
                report.vcenters[0].failure = Some("not connected yet".to_owned());
                report.vcenters[0].inventory_age_seconds = None;
            },
            "  certificate 211 d   tags 41 s ago",
            Verdict::Findings,
        ),
        (
            "rejected credentials",
            |report| report.vcenters[0].rejected_credentials = Some("InvalidLogin".to_owned()),
            "vCenter vc.example.com:443: new credentials are rejected: InvalidLogin",
            Verdict::Findings,
        ),
        (
            "tags",
            |report| report.vcenters[0].tag_failure = Some("no category".to_owned()),
            "vCenter vc.example.com:443: zones and regions stay as they are: no category",
            Verdict::Findings,
        ),
        (
            "insecure-flag",
            |report| report.vcenters[0].is_certificate_verified = false,
            "vCenter vc.example.com:443: insecure-flag is on, so its certificate is not verified: set thumbprint",
            Verdict::Findings,
        ),
        (
            "insecure-flag of NSX",
            |report| report.nsx.as_mut().unwrap().is_certificate_verified = false,
            "NSX nsx.example.com:443: insecure-flag is on, so its certificate is not verified: set thumbprint or",
            Verdict::Findings,
        ),
        (
            "paused logins",
            |report| {
                let pause = PauseStatus {
                    until: time("2026-11-24T03:20:00Z"),
                    cause: "three rejections".to_owned(),
                    reset_command: None,
                };
                report.vcenters[0].login_pause = Some(pause);
            },
            "logins to vCenter vc.example.com:443 are paused until 2026-11-24T03:20:00Z: three rejections",
            Verdict::Findings,
        ),
        (
            "NSX without a login",
            |report| {
                let nsx = report.nsx.as_mut().unwrap();
                (nsx.is_logged_in, nsx.failure) = (false, Some("403".to_owned()));
            },
            "NSX nsx.example.com:443: 403",
            Verdict::Findings,
        ),
        (
            "load balancers that cannot be listed",
            |report| {
                let balancers = report.nsx.as_mut().unwrap().load_balancers.as_mut().unwrap();
                balancers.list_failure = Some("no route to host".to_owned());
            },
            "NSX nsx.example.com:443: load balancers cannot be listed: no route to host",
            Verdict::Findings,
        ),
        (
            "a held Service",
            |report| {
                let balancers = report.nsx.as_mut().unwrap().load_balancers.as_mut().unwrap();
                balancers.held = vec![held("default/web", "NSXFull", 5)];
            },
            "NSX nsx.example.com:443: load balancers held 1: NSXFull default/web (5 s)",
            Verdict::Findings,
        ),
        (
            "objects that are not known to be ours",
            |report| report.nsx.as_mut().unwrap().load_balancers.as_mut().unwrap().ambiguous_objects = Some(2),
            "NSX nsx.example.com:443: 2 objects name this cluster and are not known to be its objects, so they",
            Verdict::Findings,
        ),
        (
            "routes that wait",
            |report| report.nsx.as_mut().unwrap().routes.as_mut().unwrap().pending = 3,
            "  12 routes Ready, 3 pending",
            Verdict::Incomplete,
        ),
        (
            "a Node that may be deleted later",
            |report| {
                let held = held("w", "DeletionGracePeriod", 7);
                report.deletion.as_mut().unwrap().pending = vec![HeldObject { is_expected: true, ..held }];
            },
            "deletion enforce   allowance 5 of 5   pending 1: DeletionGracePeriod w (7 s)",
            Verdict::Ok,
        ),
        (
            "a Node that is not deleted",
            |report| report.deletion.as_mut().unwrap().pending = vec![held("w", "NeverSeen", 7)],
            "deletion enforce   allowance 5 of 5   pending none   held 1: NeverSeen w (7 s)",
            Verdict::Findings,
        ),
        (
            "many absent VMs",
            |report| report.deletion.as_mut().unwrap().is_mass_held = true,
            "deletion: deletions pause, because many VMs are absent at the same time",
            Verdict::Findings,
        ),
        (
            "a pause of deletions",
            |report| {
                let pause = report.deletion_pause.as_mut().unwrap();
                (pause.is_paused, pause.until) = (Some(true), Some(time("2026-11-24T07:13:21Z")));
                pause.cause = Some("vCenter upgrade".to_owned());
            },
            "deletions are paused until 2026-11-24T07:13:21Z, for 4 h: vCenter upgrade",
            Verdict::Ok,
        ),
        (
            "a pause that is not read yet",
            |report| report.deletion_pause.as_mut().unwrap().is_paused = None,
            "deletions: it is not known yet whether they pause",
            Verdict::Incomplete,
        ),
        (
            "a pause that cannot be read",
            |report| report.deletion_pause.as_mut().unwrap().message = Some("an annotation is odd".to_owned()),
            "deletions are paused, because an annotation is odd",
            Verdict::Findings,
        ),
        (
            "a refused file",
            |report| report.configuration.refused = Some("line 9".to_owned()),
            "configuration: the changed vsphere.conf is refused, the one before is in use: line 9",
            Verdict::Findings,
        ),
        (
            "a failed check",
            |report| {
                report.notes = vec![StatusNote {
                    is_finding: true,
                    subject: "nodes".to_owned(),
                    message: "the nodes have not been listed yet".to_owned(),
                }]
            },
            "nodes: the nodes have not been listed yet",
            Verdict::Findings,
        ),
        (
            "a selected Node",
            |report| {
                let nodes =
                    NodeCounts { nodes: 1, settled: 1, waiting: 0, held: vec![], selected: Some("w".to_owned()) };
                report.nodes = Some(nodes);
            },
            "Node w   settled",
            Verdict::Ok,
        ),
        (
            "a Node about which vCenter has not answered",
            |report| report.deletion.as_mut().unwrap().unanswered = 2,
            "deletion enforce   allowance 5 of 5   pending none   not checked yet 2",
            Verdict::Incomplete,
        ),
        (
            "no deletion",
            |report| report.deletion.as_mut().unwrap().mode = "off".to_owned(),
            "deletion off   pending none   last: worker-2 at 2026-11-20T02:10:04Z",
            Verdict::Ok,
        ),
        (
            "Services that wait",
            |report| report.nsx.as_mut().unwrap().load_balancers.as_mut().unwrap().waiting = 3,
            "NSX nsx.example.com:443   connected   14 load balancers, 3 waiting, 0 held, 0 orphans",
            Verdict::Incomplete,
        ),
        (
            "objects in NSX that were not listed",
            |report| report.nsx.as_mut().unwrap().load_balancers.as_mut().unwrap().orphans = None,
            "NSX nsx.example.com:443   connected   14 load balancers, 0 held   12 routes Ready",
            Verdict::Incomplete,
        ),
        (
            "routes that were not listed",
            |report| report.nsx.as_mut().unwrap().routes.as_mut().unwrap().are_listed = false,
            "NSX nsx.example.com:443   connected   14 load balancers, 0 held, 0 orphans   routes not listed yet",
            Verdict::Incomplete,
        ),
        (
            "routes that cannot be listed",
            |report| report.nsx.as_mut().unwrap().routes.as_mut().unwrap().failure = Some("500".to_owned()),
            "NSX nsx.example.com:443: routes cannot be listed: 500",
            Verdict::Findings,
        ),
        (
            "NSX before its login",
            |report| report.nsx.as_mut().unwrap().is_logged_in = false,
            "NSX nsx.example.com:443   no login   14 load balancers, 0 held, 0 orphans   12 routes Ready",
            Verdict::Incomplete,
        ),
        (
            "a controller that has not begun",
            |report| report.controllers.push(controller("route", ControllerState::Starting, None)),
            "route: begins soon",
            Verdict::Incomplete,
        ),
        (
            "a missing permission",
            |report| report.controllers.push(controller("service", ControllerState::Refused, Some("may not list"))),
            "service: may not list",
            Verdict::Findings,
        ),
    ];
    for (name, change, line, verdict) in cases {
        let mut report = report();
        change(&mut report);
        let text = text(&report);
        assert!(text.iter().any(|shown| shown == line), "{name}: no line {line:?} in {text:#?}");
        assert_eq!(report.verdict(), verdict, "{name}: {:#?}", findings(&report));
        let widest = text.iter().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 100, "{name}: {text:#?}");
    }
}

#[test]
fn a_standby_says_so_first_and_names_the_command_that_finds_the_leader() {
    let mut report = report();
    (report.leads, report.host, report.nodes, report.deletion) = (false, "cp-2".to_owned(), None, None);
    report.nsx.as_mut().unwrap().is_in_use = false;
    report.controllers = vec![controller("cloud-node-controller", ControllerState::Standby, None)];
    let shown = text(&report);
    assert_eq!(
        shown[..3],
        [
            "standby cp-2, this process   leader cp-1 for 3 d 4 h   configuration generation 6, read 03:12:40Z",
            "only the leader knows what it decided about Nodes and deletions; find its Pod with",
            "  kubectl -n kube-system get pods -o wide | grep -w cp-1",
        ]
    );
    assert_eq!(report.verdict(), Verdict::Incomplete, "what was not looked at is not well");
    report.election.as_mut().unwrap().read_age_seconds = Some(16);
    assert_eq!(
        findings(&report),
        [
            "Lease kube-system/cloud-controller-manager: last read 16 s ago, so another process may lead: the API",
            "  server does not answer this process",
        ]
    );
    report.election.as_mut().unwrap().read_age_seconds = Some(15);
    assert_eq!(report.verdict(), Verdict::Incomplete);
    // Anybody who may write the Lease chooses the name of the holder.
    for holder in ["$(reboot)_1", "a;b_1", "-v_1", "\u{1b}[31mcp_1", "a b_1"] {
        report.election.as_mut().unwrap().holder = Some(holder.to_owned());
        let lease = "  kubectl -n kube-system get lease cloud-controller-manager -o yaml".to_owned();
        assert!(text(&report).contains(&lease), "{holder}: {:#?}", text(&report));
        assert!(!text(&report).concat().chars().any(char::is_control), "{holder}");
    }
    report.election.as_mut().unwrap().holder = None;
    assert_eq!(text(&report)[0], "standby cp-2, this process   no leader   configuration generation 6, read 03:12:40Z");
    assert!(text(&report).contains(&"  kubectl -n kube-system get lease cloud-controller-manager -o yaml".to_owned()));
    (report.leads, report.election) = (true, None);
    assert!(text(&report)[0].starts_with("leader cp-2, without an election   "), "{:#?}", text(&report));
}

#[test]
fn a_detached_report_names_its_host_and_is_never_complete() {
    let mut report = report();
    (report.leads, report.is_detached) = (false, true);
    (report.host, report.nodes, report.deletion) = ("cp-2".to_owned(), None, None);
    report.controllers = Vec::new();
    assert_eq!(
        text(&report)[..3],
        [
            "read from cp-2   leader cp-1 for 3 d 4 h   configuration generation 6, read 03:12:40Z",
            "only the leader knows what it decided about Nodes and deletions; find its Pod with",
            "  kubectl -n kube-system get pods -o wide | grep -w cp-1",
        ]
    );
    assert_eq!(report.verdict(), Verdict::Incomplete);
    report.election = None;
    assert!(text(&report)[0].starts_with("read from cp-2   no election   "), "{:#?}", text(&report));
    assert_eq!(report.verdict(), Verdict::Incomplete);
}

#[test]
fn a_remark_is_no_finding() {
    let mut report = report();
    let idle = controller("node-route-controller", ControllerState::Idle, Some("idle: no routes"));
    report.controllers.push(idle);
    let (subject, message) = ("cluster-name".to_owned(), "the default".to_owned());
    report.notes = vec![StatusNote { is_finding: false, subject, message }];
    let lines = report.lines();
    let last: Vec<_> = lines.iter().skip(lines.len() - 2).map(|line| (line.emphasis, line.text())).collect();
    let remarks = ["node-route-controller: idle: no routes", "cluster-name: the default"];
    assert_eq!(last, remarks.map(|text| (Emphasis::Notice, text)));
    assert_eq!(report.verdict(), Verdict::Ok);
}

#[test]
fn a_report_survives_the_way_over_the_socket() {
    let text = serde_json::to_string(&report()).unwrap();
    assert!(text.contains("\"inventoryAgeSeconds\":0") && text.contains("\"time\":\"2026-11-24T03:13:21Z\""), "{text}");
    assert_eq!(serde_json::from_str::<StatusReport>(&text).unwrap(), report());
    let full_text = serde_json::to_string(&full()).unwrap();
    assert_eq!(serde_json::from_str::<StatusReport>(&full_text).unwrap(), full());
}

/// Returns a report in which each field has a value.
fn full() -> StatusReport {
    let mut report = report();
    let pause = |reset_command: Option<&str>| PauseStatus {
        until: time("2026-11-24T03:20:00Z"),
        cause: "three rejections".to_owned(),
        reset_command: reset_command.map(str::to_owned),
    };
    report.controllers.push(controller("node-route-controller", ControllerState::Idle, Some("idle: no routes")));
    report.configuration.refused = Some("line 9".to_owned());
    let vcenter = &mut report.vcenters[0];
    vcenter.failure = Some("connection refused".to_owned());
    vcenter.inventory_age_seconds = Some(90);
    vcenter.rejected_credentials = Some("InvalidLogin".to_owned());
    vcenter.tag_failure = Some("no category".to_owned());
    vcenter.login_pause = Some(pause(Some("kubectl delete lease x")));
    let nsx = report.nsx.as_mut().unwrap();
    nsx.failure = Some("403".to_owned());
    nsx.certificate_expiry = Some(time("2027-06-23T03:13:21Z"));
    nsx.login_pause = Some(pause(Some("kubectl delete lease y")));
    let balancers = nsx.load_balancers.as_mut().unwrap();
    balancers.held = vec![held("shop/web", "NSXFull", 5)];
    balancers.list_failure = Some("no route to host".to_owned());
    let routes = nsx.routes.as_mut().unwrap();
    routes.failure = Some("500".to_owned());
    routes.held = vec![held("10.244.7.0/24", "CloudError", 60)];
    let nodes = report.nodes.as_mut().unwrap();
    nodes.held = vec![held("worker-7", "NoZoneTags", 372)];
    nodes.selected = Some("worker-7".to_owned());
    report.deletion.as_mut().unwrap().pending = vec![held("worker-9", "NeverSeen", 7)];
    report.deletion_pause = Some(DeletionPauseStatus {
        namespace: "kube-system".to_owned(),
        is_paused: Some(true),
        until: Some(time("2026-11-24T07:13:21Z")),
        cause: Some("vCenter upgrade".to_owned()),
        message: Some("the annotation is odd".to_owned()),
        failure: Some("no answer".to_owned()),
    });
    let (subject, message) = ("cluster-name".to_owned(), "the default".to_owned());
    report.notes = vec![StatusNote { is_finding: false, subject, message }];
    report
}

/// The fields are part of the interface: scripts read them.
#[test]
fn the_document_is_the_golden_file() {
    assert_golden("status", StatusReport::KIND, full().verdict(), &full());
}
