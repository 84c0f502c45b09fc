//! Tests of the text, the numbers and the result of `plan`.

use super::*;
use crate::app::reports::golden::assert_golden;

fn change(kind: ChangeKind, field: &str) -> PlannedChange {
    PlannedChange::new(kind, field)
}

fn object(name: &str, changes: Vec<PlannedChange>) -> ObjectPlan {
    ObjectPlan { changes, ..ObjectPlan::new(name) }
}

fn part(objects: Vec<ObjectPlan>) -> PlanPart {
    let mut part = PlanPartBuilder::default();
    objects.into_iter().for_each(|object| part.add(object));
    part.build()
}

fn report(nodes: PlanPart, load_balancers: PlanPart, routes: PlanPart) -> PlanReport {
    PlanReport {
        header: ReportHeader::of_test(),
        node: None,
        nodes,
        load_balancers,
        routes,
        counts: PlanCounts::default(),
    }
    .with_counts()
}

/// Returns a plan with changes of all kinds.
fn all_kinds() -> PlanReport {
    let taint = "taint node.cloudprovider.kubernetes.io/uninitialized";
    let joining = object(
        "worker-7",
        vec![
            PlannedChange::update("address InternalIP", None, Some("10.1.0.7")),
            PlannedChange::update(taint, Some("NoSchedule"), None),
        ],
    );
    let message = "no VM of vc.example.com:443 has the UUID 4211a1b2-c3d4-4e5f-8a9b-000000000008";
    let unknown =
        object("worker-8", vec![change(ChangeKind::Unknown, "VM").with_reason("VMNotFound").with_message(message)]);
    let kept = change(ChangeKind::Keep, "label topology.kubernetes.io/zone").with_present("zone-a");
    let kept = kept.with_planned("zone-a").with_reason("ZoneLabelsDiffer").with_message("the cloud says \"zone-b\"");
    let deleted = object("worker-9", vec![change(ChangeKind::Delete, "Node").with_present("UID 7c")]);
    let nodes = part(vec![ObjectPlan::new("cp-1"), joining, unknown, object("worker-2", vec![kept]), deleted]);
    let adopted = change(ChangeKind::Adopt, "next step").with_message("tag /infra/lb-pools/p");
    let services = part(vec![object("shop/web", vec![adopted]), ObjectPlan::new("shop/api")]);
    let hold = change(ChangeKind::Hold, "route to worker-3").with_reason("PodNetworkForeign");
    let created = change(ChangeKind::Create, "route to worker-7").with_planned("10.244.7.0/24");
    let routes = part(vec![
        object("10.9.1.0/24", vec![hold.with_message("it is not within --cluster-cidr")]),
        object("10.244.7.0/24", vec![created]),
    ]);
    report(nodes, services, routes)
}

fn text(report: &PlanReport) -> Vec<String> {
    report.lines().iter().map(|line| line.text().to_owned()).collect()
}

#[test]
fn the_text_has_the_objects_that_need_something_and_ends_with_the_verdict() {
    let report = all_kinds();
    assert_eq!(
        text(&report),
        [
            "leader cp-1   2026-11-24T03:12:40Z",
            "",
            "Nodes: 5 Nodes, 2 need nothing",
            "  Node worker-7",
            "    update   address InternalIP: none -> 10.1.0.7",
            "    update   taint node.cloudprovider.kubernetes.io/uninitialized: NoSchedule -> none",
            "  Node worker-8",
            "    unknown  VM: VMNotFound: no VM of vc.example.com:443 has the UUID",
            "               4211a1b2-c3d4-4e5f-8a9b-000000000008",
            "  Node worker-2",
            "    keep     label topology.kubernetes.io/zone: zone-a -> zone-a; ZoneLabelsDiffer: the cloud says",
            "               \"zone-b\"",
            "  Node worker-9",
            "    delete   Node: UID 7c -> none",
            "",
            "Load balancers: 2 Services, 1 need nothing",
            "  Service shop/web",
            "    adopt    next step: tag /infra/lb-pools/p",
            "",
            "Routes: 2 networks, 0 need nothing",
            "  network 10.9.1.0/24",
            "    hold     route to worker-3: PodNetworkForeign: it is not within --cluster-cidr",
            "  network 10.244.7.0/24",
            "    create   route to worker-7: none -> 10.244.7.0/24",
            "",
            "changes: 1 created, 1 updated, 1 deleted, 1 adopted, 1 held, 1 unknown, 3 need nothing",
        ]
    );
    assert_eq!(report.verdict(), Verdict::Findings);
}

#[test]
fn what_is_not_known_is_never_unchanged() {
    let nothing = || part(vec![ObjectPlan::new("a")]);
    let of = |kind| part(vec![ObjectPlan::new("a"), object("b", vec![change(kind, "x")])]);
    let cases = [
        ("nothing to do", nothing(), Verdict::Ok, "no change: "),
        ("a label stays by a setting", of(ChangeKind::Keep), Verdict::Ok, "no change: "),
        ("no such controller", PlanPart::off("it does not run"), Verdict::Ok, "no change: "),
        ("not known here", PlanPart::unknown("a standby"), Verdict::Incomplete, "incomplete: "),
        ("unknown", of(ChangeKind::Unknown), Verdict::Incomplete, "incomplete: "),
        ("create", of(ChangeKind::Create), Verdict::Findings, "changes: "),
        ("update", of(ChangeKind::Update), Verdict::Findings, "changes: "),
        ("delete", of(ChangeKind::Delete), Verdict::Findings, "changes: "),
        ("adopt", of(ChangeKind::Adopt), Verdict::Findings, "changes: "),
        ("hold", of(ChangeKind::Hold), Verdict::Findings, "changes: "),
    ];
    for (case, part, verdict, last) in cases {
        let both = [
            report(part.clone(), nothing(), nothing()),
            report(nothing(), part.clone(), nothing()),
            report(nothing(), nothing(), part),
        ];
        for report in both {
            assert_eq!(report.verdict(), verdict, "{case}");
            let text = text(&report);
            assert!(text.last().unwrap().starts_with(last), "{case}: {text:?}");
        }
    }
    let unknown = report(PlanPart::unknown("a standby"), nothing(), PlanPart::unknown("a standby"));
    let text = text(&unknown);
    assert!(text.contains(&"Nodes: not known: a standby".to_owned()), "{text:?}");
    assert_eq!(text[text.len() - 2], "not known: Nodes, Routes");
}

#[test]
fn a_standby_prints_the_command_that_finds_the_leader() {
    let unknown = || PlanPart::unknown("this process does not lead");
    let standby = PlanReport { header: ReportHeader::of_standby(), ..report(unknown(), unknown(), unknown()) };
    let text = text(&standby);
    assert_eq!(text[0], "standby cp-1   2026-11-24T03:12:40Z");
    assert_eq!(text[2], "  kubectl -n kube-system get pods -o wide | grep -w cp-2");
}

#[test]
fn a_plan_without_a_daemon_says_where_it_was_read() {
    let header = ReportHeader { leads: false, is_detached: true, ..ReportHeader::of_test() };
    let detached = PlanReport { header, ..all_kinds() };
    assert_eq!(text(&detached)[0], "read from cp-1   2026-11-24T03:12:40Z");
}

#[test]
fn a_long_list_is_cut_and_its_counts_stay_exact() {
    let update = || PlannedChange::update("label a", None, Some("b"));
    let numbered = |number: usize, changes| object(&format!("worker-{number}"), changes);
    let many = part((0..5000).map(|number| numbered(number, vec![update()])).collect());
    assert_eq!((many.objects.len(), many.omitted), (MAX_OBJECTS, 5000 - MAX_OBJECTS));
    assert_eq!((many.counts.objects, many.counts.updated), (5000, 5000));
    let report = report(many, PlanPart::off(""), PlanPart::off(""));
    assert!(text(&report).contains(&format!("  and {} more", 5000 - MAX_OBJECTS)));
    assert!(text(&report).last().unwrap().starts_with("changes: 0 created, 5000 updated, "));

    let wide = part(vec![numbered(0, (0..100).map(|_| update()).collect())]);
    let of_wide = &wide.objects[0];
    assert_eq!((of_wide.changes.len(), of_wide.omitted), (MAX_CHANGES, 100 - MAX_CHANGES));
}

#[test]
fn the_largest_answer_fits_into_the_socket() {
    let long = "\"".repeat(2 * MAX_CHARS);
    let change = PlannedChange::update(&long, Some(&long), Some(&long)).with_message(&long);
    let largest = object(&long, vec![change; MAX_CHANGES]);
    let whole = || {
        let mut part = PlanPartBuilder::default();
        // A part takes seven of them.
        (0..20).for_each(|_| part.add(largest.clone()));
        part.build()
    };
    let report = report(whole(), whole(), whole());
    assert!(report.nodes.omitted > 0 && report.counts.objects == 60, "{:?}", report.counts);
    let bytes = serde_json::to_vec(&report).unwrap().len();
    assert!(bytes < 8 * 1024 * 1024, "{bytes}");
}

#[test]
fn texts_from_outside_are_cut_and_have_no_control_characters() {
    let long = format!("a\u{1b}[31m{}", "x".repeat(2 * MAX_CHARS));
    let change = PlannedChange::update("label a", Some(&long), None);
    let present = change.present.unwrap();
    assert!(present.starts_with("a [31mx") && present.ends_with('…'), "{present}");
    assert_eq!(present.chars().count(), MAX_CHARS + 1);
    assert_eq!(ObjectPlan::new("a\nb").name, "a b");
}

/// The fields are part of the interface: scripts read them.
#[test]
fn the_document_is_the_golden_file() {
    let mut report = all_kinds();
    for part in [&mut report.load_balancers, &mut report.routes] {
        let kept = change(ChangeKind::Keep, "field").with_present("a").with_planned("a");
        part.objects[0].add(kept.with_reason("Reason").with_message("the cloud says \"b\""));
    }
    assert_golden("plan", PlanReport::KIND, report.verdict(), &report);
    let unknown = || PlanPart::unknown("this process does not lead");
    let standby = PlanReport {
        header: ReportHeader::of_standby(),
        node: Some("worker-7".to_owned()),
        ..self::report(unknown(), unknown(), unknown())
    };
    assert_golden("plan-standby", PlanReport::KIND, standby.verdict(), &standby);
    for report in [report, standby] {
        let read: PlanReport = serde_json::from_value(serde_json::to_value(&report).unwrap()).unwrap();
        assert_eq!(read, report);
    }
}
