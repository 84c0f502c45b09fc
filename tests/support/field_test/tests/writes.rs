//! Tests of the writing part of the field test against the fake NSX: its findings, and that it leaves nothing and
//! touches nothing else, whatever fails and wherever it is interrupted. The history and the requests of the fake NSX
//! prove this.

use std::time::Duration;

use field_test::{
    Interrupts, Limits, Outcome, Report, RunSettings, ServerReport, Servers, WriteRequest, announcement, run,
};
use futures::future::join_all;
use serde_json::{Value, json};
use support::FakeNsx;
use support::fake_nsx::{Behaviour, Deletion, Model, Realization, Sessions, Side, Trouble};
use tokio::sync::watch;

const PREFIX: &str = "secret-prefix";

const SERVICE: &str = "/infra/lb-services/secret-service";

/// Paths of all created objects.
const MADE: [&str; 5] = [
    "/infra/lb-monitor-profiles/secret-prefix-field-test-monitor",
    "/infra/lb-pools/secret-prefix-field-test-pool",
    "/infra/domains/default/groups/secret-prefix-field-test-group",
    "/infra/ip-pools/p1/ip-allocations/secret-prefix-field-test-address",
    "/infra/lb-virtual-servers/secret-prefix-field-test-server",
];

/// Makes a manager with a load balancer service, and with objects that the test must not touch.
async fn manager(behaviour: Behaviour, sessions: Sessions) -> FakeNsx {
    let deletion = match behaviour.deletion {
        Deletion::Marked { .. } => {
            Deletion::Marked { realized_for: Duration::from_secs(2), purged_after: Duration::from_secs(4) }
        }
        Deletion::AtOnce => Deletion::AtOnce,
    };
    let model = Model::small().behaviour(Behaviour { deletion, ..behaviour }).sessions(sessions);
    let nsx = FakeNsx::start(
        model
            .object(SERVICE, json!({"size": "SMALL", "connectivity_path": "/infra/tier-1s/t1"}))
            .object("/infra/lb-pools/secret-pool", json!({"members": []})),
    )
    .await;
    nsx.put_by_hand("somebody", "/infra/lb-pools/secret-prefix-pool", json!({"members": []}));
    nsx
}

/// Limits below the defaults: a wait for a state that never comes ends after 12 s.
fn limits() -> Limits {
    let (state, removal, late) = (Duration::from_secs(12), Duration::from_secs(40), Duration::from_secs(1));
    Limits { state, removal, late, ..Limits::default() }
}

fn settings(service: Option<&str>) -> RunSettings {
    let write = WriteRequest { prefix: PREFIX.to_owned(), service: service.map(str::to_owned) };
    RunSettings { write: Some(write), limits: limits(), ..RunSettings::default() }
}

/// Writes a file with this manager and a vCenter on a closed port.
fn file(nsx: &FakeNsx) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vsphere.conf");
    let text = format!(
        "[VirtualCenter \"127.0.0.1\"]\nport = \"9\"\nuser = \"u\"\npassword = \"p\"\ndatacenters = \"dc\"\n\
         insecure-flag = true\n{}[LoadBalancer]\nsize = \"SMALL\"\ntier1-gateway-path = \"/infra/tier-1s/t1\"\n\
         ip-pool-name = \"pool1\"\ntcp-app-profile-name = \"default-tcp-lb-app-profile\"\n\
         udp-app-profile-name = \"default-udp-lb-app-profile\"\n",
        nsx.ini_section(folder.path())
    );
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// The objects that a run must not change.
struct Before {
    others: Vec<Value>,
    versions: usize,
}

fn is_of_run(path: &str) -> bool {
    path.contains("/secret-prefix-field-test-")
}

/// Returns all other objects, without the usage of the pools.
fn others(nsx: &FakeNsx) -> Vec<Value> {
    let others = nsx.objects().into_iter().filter(|one| !is_of_run(one["path"].as_str().unwrap()));
    others
        .map(|mut one| {
            one.as_object_mut().unwrap().remove("pool_usage");
            one
        })
        .collect()
}

impl Before {
    fn of(nsx: &FakeNsx) -> Self {
        Self { others: others(nsx), versions: nsx.versions() }
    }

    /// Checks that nothing else was touched and that the created objects are gone, except for these.
    fn check(&self, nsx: &FakeNsx, what: &str, left: &[&str]) {
        assert_eq!(others(nsx), self.others, "{what}: other objects");
        for version in nsx.written_from(self.versions).iter().filter(|version| version.request.is_some()) {
            assert!(MADE.contains(&version.path.as_str()), "{what}: {} was written", version.path);
        }
        for request in nsx.requests() {
            let is_read = request.method == "GET" || request.path.starts_with("/api/session/");
            assert!(is_read || is_of_run(&request.path), "{what}: {} {}", request.method, request.path);
        }
        let there: Vec<_> = MADE.into_iter().filter(|path| nsx.object(path).is_some()).collect();
        assert_eq!(there, left, "{what}: is left");
    }
}

async fn tested(nsx: &FakeNsx, settings: &RunSettings) -> Report {
    let (_folder, path) = file(nsx);
    // On the heap, because several of these futures overflow a stack.
    Box::pin(run(Servers::read(&path).unwrap(), settings)).await
}

fn of_nsx(report: &Report) -> &ServerReport {
    report.servers.last().unwrap()
}

fn outcome<'a>(server: &'a ServerReport, id: &str) -> &'a Outcome {
    &server.findings.iter().find(|finding| finding.belief.id == id).unwrap().outcome
}

/// Returns the outcomes of the writing checks as words.
fn words(server: &ServerReport) -> Vec<(&'static str, &'static str)> {
    let written = server.findings.iter().filter(|finding| finding.belief.id >= "N20");
    written.map(|finding| (finding.belief.id, finding.outcome.word())).collect()
}

#[tokio::test]
async fn what_differs_at_a_manager_is_what_its_mode_does_otherwise_and_nothing_is_left() {
    let tried = async |name: &'static str, behaviour: Behaviour| {
        let nsx = manager(behaviour, Sessions::Served).await;
        let before = Before::of(&nsx);
        let settings = settings(Some("secret-service"));
        let report = tested(&nsx, &settings).await;
        let (server, table) = (of_nsx(&report), report.table());
        assert_eq!(server.ended_early, None, "{name}: {table}");
        let differing: Vec<_> = server.differing().into_iter().filter(|id| *id >= "N20").collect();
        // In this mode the status names no revision.
        let expected: &[&str] = if name == "opposite" { &["N24"] } else { &[] };
        assert_eq!(differing, expected, "{name}:\n{table}");
        assert!(words(server).iter().all(|(_, word)| *word != "not tried"), "{name}:\n{table}");
        assert!(outcome(server, "N29").text().starts_with("virtual server: NotFound"), "{name}:\n{table}");
        assert_eq!(report.cleanup(), "", "{name}");
        before.check(&nsx, name, &[]);
        let written: Vec<_> = nsx.written_from(before.versions).into_iter().map(|version| version.path).collect();
        assert!(MADE.iter().all(|path| written.iter().any(|written| written == path)), "{name}: {written:?}");
        assert_eq!((nsx.counts().sessions, nsx.login_attempts().len()), (0, 1), "{name}");
        let most = field_test::nsx::most_calls(settings.write.as_ref()) / 2;
        assert!(nsx.requests().len() < most, "{name}: {} calls", nsx.requests().len());
        for secret in ["secret", "127.0.0.1", "admin", &nsx.password(), "192.0.2"] {
            assert!(!table.contains(secret), "{name}: {secret} is in\n{table}");
        }
    };
    let [one, two, three] = Behaviour::ALL;
    tokio::join!(tried(one.0, one.1), tried(two.0, two.1), tried(three.0, three.1));
}

#[tokio::test]
async fn without_a_service_no_virtual_server_is_made_and_the_pool_is_deleted_in_its_place() {
    let nsx = manager(Behaviour::USUAL, Sessions::NotFound).await;
    let before = Before::of(&nsx);
    let report = tested(&nsx, &settings(None)).await;
    let (server, table) = (of_nsx(&report), report.table());
    assert_eq!((server.ended_early.as_deref(), server.differing()), (None, vec![]), "{table}");
    assert_eq!(outcome(server, "N22"), &Outcome::NotTried("it needs --service ID".to_owned()));
    assert!(outcome(server, "N31").text().starts_with("the pool no longer"), "{table}");
    assert_eq!(nsx.counts().of("PUT lb-virtual-servers"), 0);
    before.check(&nsx, "no service", &[]);
}

#[tokio::test]
async fn an_object_that_exists_already_is_not_touched_and_nothing_is_written() {
    for path in MADE {
        let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
        let body = match path {
            _ if path.contains("monitor") => json!({"resource_type": "LBTcpMonitorProfile"}),
            _ if path.contains("virtual") => json!({
                "ip_address": "192.0.2.9", "ports": ["80"],
                "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
            }),
            _ => json!({}),
        };
        nsx.put_by_hand("somebody", path, body);
        let before = Before::of(&nsx);
        let report = tested(&nsx, &settings(Some("secret-service"))).await;
        let (server, table) = (of_nsx(&report), report.table());
        let why = "1 of the ids with this prefix are in use; nothing was written";
        assert_eq!(server.ended_early.as_deref(), Some(why), "{table}");
        assert!(nsx.written_from(before.versions).is_empty(), "{path}");
        before.check(&nsx, path, &[path]);
        let cleanup = report.cleanup();
        assert!(cleanup.contains("were there before this run") && cleanup.contains(path), "{cleanup}");
        assert!(!cleanup.contains("may still be there") && !table.contains("secret"), "{cleanup}\n{table}");
        assert!(matches!(outcome(server, "N19"), Outcome::Holds(_)), "the other checks are made: {table}");
        assert_eq!(report.exit_code(), 2);
    }
}

/// Nothing shows who owns the object.
#[tokio::test]
async fn an_object_without_tags_whose_write_got_no_answer_is_listed_and_not_deleted() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    let before = Before::of(&nsx);
    nsx.next("PATCH ip-allocations", Trouble::Afterwards(Trouble::error(503, None)));
    // The second write of the pool comes after the allocation.
    let hold = nsx.hold_operation("PUT lb-pools", 2, Side::Request);
    let settings = settings(None);
    let stripped = async {
        hold.wait().await;
        nsx.change_by_hand("somebody", MADE[3], |allocation| drop(allocation.as_object_mut().unwrap().remove("tags")));
        hold.release();
    };
    let (report, ()) = tokio::join!(tested(&nsx, &settings), stripped);
    before.check(&nsx, "the allocation", &[MADE[3]]);
    let cleanup = report.cleanup();
    assert!(cleanup.contains("may still be there") && cleanup.contains(MADE[3]), "{cleanup}");
    assert!(MADE.iter().all(|path| *path == MADE[3] || !cleanup.contains(path)), "{cleanup}");
    assert_eq!((report.exit_code(), nsx.counts().of("DELETE ip-allocations")), (2, 0), "{}", report.table());
}

/// The objects are as an earlier run left them.
#[tokio::test]
async fn objects_that_exist_are_listed_in_the_order_in_which_they_can_be_removed() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    nsx.put_by_hand("somebody", MADE[0], json!({"resource_type": "LBTcpMonitorProfile"}));
    nsx.put_by_hand("somebody", MADE[1], json!({"active_monitor_paths": [MADE[0]]}));
    let cleanup = tested(&nsx, &settings(None)).await.cleanup();
    let [monitor, pool] = [MADE[0], MADE[1]].map(|path| cleanup.find(path).unwrap_or_else(|| panic!("{cleanup}")));
    assert!(pool < monitor, "the pool refers to the monitor: {cleanup}");
}

/// Another client creates an object with this id between the read and the write.
#[tokio::test]
async fn an_object_of_another_client_with_this_id_is_not_removed() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    let hold = nsx.hold_operation("PUT lb-pools", 1, Side::Request);
    let settings = settings(None);
    let tested = tested(&nsx, &settings);
    let meanwhile = async {
        hold.wait().await;
        nsx.put_by_hand("somebody", MADE[1], json!({"members": [], "tags": [{"scope": "field-test", "tag": PREFIX}]}));
        hold.release();
    };
    let (report, ()) = tokio::join!(tested, meanwhile);
    assert_eq!(
        outcome(of_nsx(&report), "N20"),
        &Outcome::Differs("refused: Conflict, status 412, code 206".to_owned())
    );
    assert_eq!(nsx.object(MADE[1]).unwrap()["_create_user"], "somebody");
    assert_eq!(nsx.counts().of("DELETE lb-pools"), 0);
    assert!(nsx.object(MADE[0]).is_none(), "the monitor was made, and is removed");
}

#[tokio::test]
async fn what_was_made_is_removed_whatever_is_answered_to_a_write() {
    let substitute = |status, code| Trouble::Afterwards(Trouble::error(status, code));
    let page = |_: &str| "<html></html>".to_owned();
    let cases: Vec<(&str, Trouble)> = vec![
        ("PUT lb-monitor-profiles", substitute(500, None)),
        ("PUT lb-monitor-profiles", Trouble::Lose),
        ("PUT lb-pools", substitute(400, Some(255))),
        ("PUT lb-pools", Trouble::Cut(10)),
        ("PUT groups", substitute(403, Some(401))),
        ("PUT groups", Trouble::Rewrite(page)),
        ("PATCH ip-allocations", substitute(503, Some(101))),
        ("PATCH ip-allocations", Trouble::Lose),
        ("PUT lb-virtual-servers", substitute(409, None)),
        ("PUT lb-virtual-servers", Trouble::Lose),
        ("PUT lb-virtual-servers", Trouble::error(400, Some(23_527)).into()),
        ("DELETE lb-virtual-servers", Trouble::Lose),
        ("DELETE lb-virtual-servers", Trouble::error(400, Some(500_030)).into()),
        ("DELETE lb-pools", Trouble::aborted().into()),
        ("DELETE ip-allocations", Trouble::overloaded().into()),
        ("DELETE lb-monitor-profiles", substitute(500, Some(99))),
        ("GET realized-status", Trouble::Drop),
    ];
    let tried = async |(operation, trouble): (&'static str, Trouble)| {
        let what = format!("{operation}: {trouble:?}");
        let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
        let before = Before::of(&nsx);
        nsx.next(operation, trouble);
        let report = tested(&nsx, &settings(Some("secret-service"))).await;
        before.check(&nsx, &what, &[]);
        assert_eq!(report.cleanup(), "", "{what}\n{}", report.table());
        assert_eq!((nsx.counts().sessions, nsx.login_attempts().len()), (0, 1), "{what}");
    };
    for some in cases.chunks(6) {
        let all: Vec<_> = some.iter().cloned().map(tried).collect();
        join_all(all).await;
    }
}

/// Also covers runs in which the checks have used all their calls.
#[tokio::test]
async fn what_was_made_is_removed_wherever_the_checks_end() {
    let tried = async |calls: usize| {
        let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
        let before = Before::of(&nsx);
        let mut settings = settings(Some("secret-service"));
        settings.limits.calls = calls;
        let report = tested(&nsx, &settings).await;
        before.check(&nsx, &format!("{calls} calls"), &[]);
        assert_eq!(report.cleanup(), "", "{calls}");
        assert_eq!((nsx.counts().sessions, nsx.login_attempts().len()), (0, 1), "{calls}");
        let is_cut = of_nsx(&report).ended_early.as_deref() == Some("the announced number of calls is used up");
        (nsx.written_from(before.versions).len(), is_cut)
    };
    let mut runs = Vec::new();
    for some in [[22, 24, 26, 27, 28], [29, 30, 31, 32, 33], [34, 36, 40, 44, 50]] {
        runs.extend(join_all(some.map(tried)).await);
    }
    let cut = || runs.iter().filter(|(_, is_cut)| *is_cut).map(|(written, _)| *written);
    assert!(cut().count() >= 12 && cut().min() == Some(0) && cut().max() >= Some(10), "{runs:?}");
}

#[tokio::test]
async fn an_interruption_waits_for_the_write_under_way_and_removes_it() {
    let tried = async |(n, side): (u32, Side)| {
        let what = format!("write {n}, {side:?}");
        let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
        let before = Before::of(&nsx);
        let hold = nsx.hold(n, side);
        let (signals, count) = watch::channel(0);
        let settings = RunSettings { interrupts: Interrupts::counted(count), ..settings(Some("secret-service")) };
        let interrupted = async {
            hold.wait().await;
            signals.send_replace(1);
            // A removal that does not wait would have ended by now.
            tokio::time::sleep(Duration::from_secs(2)).await;
            hold.release();
        };
        let (report, ()) = tokio::join!(tested(&nsx, &settings), interrupted);
        // The cancelled write takes effect now.
        let is_done = async {
            while nsx.counts().in_flight > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), is_done).await.unwrap();
        before.check(&nsx, &what, &[]);
        assert_eq!(of_nsx(&report).ended_early.as_deref(), Some("it was interrupted"), "{what}");
        assert_eq!((report.exit_code(), report.cleanup().as_str()), (2, ""), "{what}");
        assert_eq!((nsx.counts().sessions, nsx.login_attempts().len()), (0, 1), "{what}");
    };
    // The last two writes are deletions.
    let writes = || [1, 2, 3, 4, 5, 6, 8, 10, 11];
    join_all(writes().map(|n| Box::pin(tried((n, Side::Request))))).await;
    join_all(writes().map(|n| Box::pin(tried((n, Side::Answer))))).await;
}

#[tokio::test]
async fn a_second_interruption_ends_the_removal_and_lists_what_is_left() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    let before = Before::of(&nsx);
    let (made, removed) =
        (nsx.hold_operation("PUT groups", 1, Side::Answer), nsx.hold_operation("DELETE groups", 1, Side::Request));
    let (signals, count) = watch::channel(0);
    let settings = RunSettings { interrupts: Interrupts::counted(count), ..settings(None) };
    let interrupted = async {
        made.wait().await;
        signals.send_replace(1);
        made.release();
        removed.wait().await;
        signals.send_replace(2);
    };
    let (report, ()) = tokio::join!(tested(&nsx, &settings), interrupted);
    let cleanup = report.cleanup();
    before.check(&nsx, "interrupted twice", &[MADE[0], MADE[1], MADE[2]]);
    let positions: Vec<_> = MADE.iter().map(|path| cleanup.find(path)).collect();
    let [monitor, pool, group, None, None] = positions.as_slice() else { panic!("{cleanup}") };
    assert!(group < pool && pool < monitor && group.is_some(), "the last one is removed first: {cleanup}");
    let command = format!("curl --request DELETE --user USER 'https://{}/policy/api/v1{}'", nsx.address(), MADE[1]);
    assert!(cleanup.contains(&command), "{cleanup}");
    assert!(!cleanup.contains(&nsx.password()) && !cleanup.contains("admin"), "{cleanup}");
    assert_eq!(report.exit_code(), 2);
}

#[tokio::test]
async fn what_another_client_uses_cannot_be_removed_and_is_listed() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    let hold = nsx.hold_operation("PUT lb-virtual-servers", 1, Side::Answer);
    let mut settings = settings(Some("secret-service"));
    settings.limits.removal = Duration::from_secs(8);
    let others = "/infra/lb-virtual-servers/of-somebody";
    let meanwhile = async {
        hold.wait().await;
        let profile = "/infra/lb-app-profiles/default-tcp-lb-app-profile";
        nsx.put_by_hand(
            "somebody",
            others,
            json!({
                "ip_address": "192.0.2.99", "ports": ["80"], "pool_path": MADE[1], "application_profile_path": profile,
            }),
        );
        hold.release();
    };
    let (report, ()) = tokio::join!(tested(&nsx, &settings), meanwhile);
    let there: Vec<_> = MADE.into_iter().filter(|path| nsx.object(path).is_some()).collect();
    assert_eq!(there, [MADE[0], MADE[1]], "the pool is in use, and the monitor by the pool");
    assert!(nsx.object(others).is_some());
    let server = of_nsx(&report);
    assert_eq!(server.cleanup.leftovers.len(), 2, "{}", report.cleanup());
    assert!(report.table().contains("may still be there: 2"), "{}", report.table());
    assert_eq!((report.exit_code(), nsx.counts().sessions), (2, 0));
}

/// The address is not released while NSX still has a virtual server with it.
#[tokio::test]
async fn an_address_is_released_when_the_virtual_server_is_no_longer_realized() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    let (realized_for, purged_after) = (Duration::from_secs(6), Duration::from_secs(8));
    nsx.set_behaviour(Behaviour { deletion: Deletion::Marked { realized_for, purged_after }, ..nsx.behaviour() });
    let mut settings = settings(Some("secret-service"));
    settings.limits.state = Duration::from_secs(1);
    let report = tested(&nsx, &settings).await;
    assert_eq!(outcome(of_nsx(&report), "N31").word(), "DIFFERS", "{}", report.table());
    let ended = |path: &str| {
        let history = nsx.history();
        let mut versions = history.iter().filter(|version| version.path == path && version.request.is_some());
        versions.next_back().unwrap().at
    };
    assert!(ended(MADE[3]).duration_since(ended(MADE[4])) >= realized_for);
    assert_eq!(report.cleanup(), "");
}

#[tokio::test]
async fn a_session_that_ends_is_renewed_once_for_the_removal() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    let before = Before::of(&nsx);
    nsx.next("PUT lb-virtual-servers", Trouble::EndSession);
    let report = tested(&nsx, &settings(Some("secret-service"))).await;
    before.check(&nsx, "ended session", &[]);
    let why = of_nsx(&report).ended_early.as_deref();
    assert_eq!(why, Some("the session was over; this program logs in only once"), "{}", report.table());
    assert_eq!((nsx.login_attempts().len(), nsx.counts().sessions), (2, 0));
    assert_eq!(report.cleanup(), "");
}

#[tokio::test]
async fn credentials_that_are_rejected_are_not_tried_again_for_the_removal() {
    for sessions in [Sessions::Served, Sessions::NotFound] {
        let nsx = manager(Behaviour::USUAL, sessions).await;
        let hold = nsx.hold_operation("PUT groups", 1, Side::Answer);
        let meanwhile = async {
            hold.wait().await;
            nsx.set_password("admin", "another");
            nsx.kill_sessions();
            hold.release();
        };
        let settings = settings(Some("secret-service"));
        let (report, ()) = tokio::join!(tested(&nsx, &settings), meanwhile);
        assert_eq!(of_nsx(&report).cleanup.leftovers.len(), 3, "{}", report.cleanup());
        let rejected = nsx.requests().iter().filter(|request| matches!(request.status, Some(401 | 403))).count();
        // The call that finds the session expired, the first call of the removal, and its login.
        let expected = if sessions == Sessions::Served { 3 } else { 1 };
        assert_eq!(rejected, expected, "{:?}", nsx.counts());
        assert!(!nsx.is_locked("admin"));
        assert_eq!(report.exit_code(), 2);
    }
}

#[tokio::test]
async fn what_never_gets_realized_differs_and_is_removed() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    let before = Before::of(&nsx);
    nsx.set_realization("lb-pools", Realization::Never);
    nsx.set_realization("lb-virtual-servers", Realization::Error(Duration::ZERO, 23_501, "secret".to_owned()));
    let mut settings = settings(Some("secret-service"));
    settings.limits.state = Duration::from_secs(3);
    let report = tested(&nsx, &settings).await;
    let (server, table) = (of_nsx(&report), report.table());
    assert_eq!(server.differing(), ["N22", "N23", "N24"], "{table}");
    assert!(outcome(server, "N22").text().starts_with("failed after"), "{table}");
    assert!(outcome(server, "N23").text().contains("pool pending after"), "{table}");
    assert!(!table.contains("secret"), "{table}");
    before.check(&nsx, "never", &[]);
}

#[tokio::test]
async fn a_pool_without_addresses_or_an_account_that_may_not_write_is_told() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    nsx.set_auditor("admin", true);
    let report = tested(&nsx, &settings(Some("secret-service"))).await;
    let refused = Outcome::Differs("refused: NoPermission, status 403, code 401".to_owned());
    assert_eq!(outcome(of_nsx(&report), "N20"), &refused, "{}", report.table());
    assert_eq!(report.cleanup(), "");
    nsx.set_auditor("admin", false);
    nsx.set_realization("ip-allocations", Realization::Error(Duration::ZERO, 8212, "no address".to_owned()));
    let report = tested(&nsx, &settings(Some("secret-service"))).await;
    let server = of_nsx(&report);
    assert!(outcome(server, "N21").text().starts_with("the pool has no free address"), "{}", report.table());
    assert_eq!(outcome(server, "N22"), &Outcome::NotTried("there is no address for it".to_owned()));
    let report = tested(&nsx, &settings(Some("another-service"))).await;
    let why = of_nsx(&report).ended_early.clone().unwrap();
    assert!(why.starts_with("the load balancer service of --service cannot be read: NotFound"), "{why}");
}

#[tokio::test]
async fn what_is_written_is_announced() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    let (_folder, path) = file(&nsx);
    let servers = Servers::read(&path).unwrap();
    let write = settings(Some("secret-service")).write;
    let told = announcement::announcement(&servers, write.as_ref());
    let most = field_test::nsx::most_calls(write.as_ref());
    let tidying = field_test::nsx::tidying_calls(write.as_ref());
    for part in [
        "writes to NSX:",
        &format!("at most {most} calls, and {tidying} to tidy up"),
        MADE[0],
        MADE[1],
        MADE[2],
        "/ip-allocations/secret-prefix-field-test-address",
        MADE[4],
        "on the load balancer service secret-service",
        "removes all of them, also after an error or Ctrl-C",
    ] {
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    assert!(!told.contains(&nsx.password()) && !announcement::announcement(&servers, None).contains("field-test-pool"));
}
