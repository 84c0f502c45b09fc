//! Runs the field test against the vCenter simulator, the fake vCenter, and the fake NSX in each of its modes: it
//! passes, or reports which belief differs. Also tests its requests: one login, no more calls than announced, and no
//! write.

use std::path::PathBuf;
use std::time::Duration;

use field_test::{Limits, Outcome, Report, RunSettings, ServerReport, Servers, announcement, run};
use serde_json::json;
use support::fake_nsx::{Behaviour, Deletion, Model, Sessions};
use support::fake_vcenter;
use support::vcenter::{Object, Scenario, Vcenter, Vm};
use support::{FakeNsx, FakeVcenter};

/// Number of VMs; it is larger than one page of the product.
const MACHINES: usize = 130;

fn uuid(number: usize) -> String {
    format!("420a1b2c-3d4e-5f60-7182-93a4b5c6{number:04x}")
}

/// Writes a file with these sections, in a folder that lives as long as the test.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vsphere.conf");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// Runs the test on a file with this text.
async fn tested(text: &str) -> Report {
    let (_folder, path) = file(text);
    run(Servers::read(&path).unwrap(), &RunSettings::default()).await
}

fn outcome<'a>(server: &'a ServerReport, id: &str) -> &'a Outcome {
    &server.findings.iter().find(|finding| finding.belief.id == id).unwrap().outcome
}

/// Returns the beliefs that were not checked, with the reason, except for those that need writes.
fn not_tried(server: &ServerReport) -> Vec<(&'static str, String)> {
    let all = server.findings.iter();
    all.filter_map(|finding| match &finding.outcome {
        Outcome::NotTried(why) if why != "it needs --write PREFIX" => Some((finding.belief.id, why.clone())),
        _ => None,
    })
    .collect()
}

fn scenario() -> Scenario {
    let mut scenario = Scenario::small();
    for number in 0..MACHINES {
        let name = format!("secret-name-{number}");
        scenario = scenario.vm(Vm::new(&name, &uuid(number)).guest_host_name(&name).ip("10.0.0.11").host("host-1"));
    }
    scenario.tag("k8s-zone", "zone-a", [Object::host("host-1")]).tag(
        "k8s-region",
        "region-a",
        [Object::datacenter("dc-1")],
    )
}

/// The simulator differs in two points. When a ListView changes, it sends all objects of the filter again and omits
/// `leave`. And it accepts a filter on an object that does not exist.
#[tokio::test]
async fn what_differs_at_the_simulator_is_what_it_is_known_to_do_otherwise() {
    let (old, new) = (scenario().api_version("7.0.3.0"), scenario().api_version("8.0.3.0").shares_sessions());
    for (scenario, shares) in [(old, false), (new, true)] {
        let vcenter = Vcenter::start(&scenario).await;
        let report = tested(&vcenter.ini_section("vc", "dc-1")).await;
        let [server] = report.servers.as_slice() else { panic!("{report:?}") };
        assert_eq!(server.ended_early, None, "{}", report.table());
        assert_eq!((server.differing(), not_tried(server)), (vec!["V19", "V20"], vec![]), "{}", report.table());
        assert_eq!(report.exit_code(), 1);
        let counts = vcenter.counts().await;
        let expected = (1, u32::from(!shares), 0, 0);
        let seen = (counts.soap_logins, counts.rest_logins, counts.soap_sessions, counts.rest_sessions);
        assert_eq!(seen, expected, "logins and sessions that are left: {counts:?}");
        let written = ["Destroy_Task", "ReconfigVM_Task", "CreateVM_Task", "REST:create-tag", "REST:attach"];
        assert!(written.iter().all(|operation| counts.of(operation) == 0), "{counts:?}");
        assert!(counts.total as usize <= field_test::vcenter::MOST_CALLS, "{counts:?}");
        for name in ["secret-name", "127.0.0.1", vcenter.user(), vcenter.password(), "420a1b2c", "zone-a", "dc-1"] {
            assert!(!report.table().contains(name), "{name} is in\n{}", report.table());
        }
    }
}

#[tokio::test]
async fn an_empty_vcenter_says_what_could_not_be_tried() {
    let vcenter = Vcenter::start(&Scenario::empty()).await;
    let report = tested(&vcenter.ini_section("vc", "dc-1")).await;
    let server = &report.servers[0];
    assert_eq!(outcome(server, "V09"), &Outcome::NotTried("no VM with a UUID is visible".to_owned()));
    assert_eq!(outcome(server, "V25"), &Outcome::NotTried("no tag is visible".to_owned()));
    assert!(matches!(outcome(server, "V15"), Outcome::Holds(_)), "{}", report.table());
    assert_eq!(server.ended_early, None, "{}", report.table());
}

#[tokio::test]
async fn a_difference_is_told_with_what_was_seen() {
    let model = fake_vcenter::Model::small().vms(150);
    let fake = FakeVcenter::start(model).await;
    let folder = tempfile::tempdir().unwrap();
    let text = fake.ini_section("vc", "dc-1", folder.path());
    let report = tested(&text).await;
    assert_eq!(report.servers[0].ended_early, None, "{}", report.table());
    assert!(matches!(outcome(&report.servers[0], "V15"), Outcome::Holds(_)), "{}", report.table());
    let found = fake_vcenter::Fault::new("NotFound");
    fake.every("RetrievePropertiesEx", fake_vcenter::Trouble::Fault(found));
    let report = tested(&text).await;
    let server = &report.servers[0];
    assert_eq!(outcome(server, "V15"), &Outcome::Differs("refused: NotFound".to_owned()));
    assert_eq!(report.exit_code(), 1, "{}", report.table());
}

#[tokio::test]
async fn a_rejected_login_ends_the_test_of_that_server_and_is_made_once() {
    let (vcenter, nsx) = (Vcenter::start(&Scenario::small()).await, FakeNsx::start(Model::small()).await);
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{}{}", vcenter.ini_section("vc", "dc-1"), nsx.ini_section(folder.path()));
    vcenter.set_login(vcenter.user(), "another").await;
    nsx.set_password("admin", "another");
    let report = tested(&text).await;
    for server in &report.servers {
        assert_eq!(server.ended_early.as_deref(), Some("the login was rejected; it is not tried again"));
        assert_eq!(server.differing(), Vec::<&str>::new(), "{}", report.table());
    }
    assert_eq!(report.exit_code(), 2);
    let calls = vcenter.counts().await;
    assert_eq!((calls.of("Login"), calls.of("REST:session-login")), (1, 0));
    assert_eq!(nsx.login_attempts().len(), 1);
    assert_eq!(nsx.counts().total(), 1);
}

#[tokio::test]
async fn an_account_that_one_vcenter_rejected_is_not_tried_at_another_and_one_server_is_tried_once() {
    let (one, other) = (Vcenter::start(&Scenario::small()).await, Vcenter::start(&Scenario::small()).await);
    assert_eq!((one.user(), one.password()), (other.user(), other.password()), "one account for both");
    let sections = [one.ini_section("a", "dc-1"), one.ini_section("b", "dc-2"), other.ini_section("c", "dc-1")];
    for vcenter in [&one, &other] {
        vcenter.set_login(vcenter.user(), "another").await;
    }
    let report = tested(&sections.concat()).await;
    let ended: Vec<_> = report.servers.iter().map(|server| server.ended_early.as_deref().unwrap()).collect();
    let expected = ["the login was rejected; it is not tried again", "another vCenter rejected the same credentials"];
    assert_eq!(ended, expected);
    assert_eq!((one.counts().await.of("Login"), other.counts().await.total), (1, 0));
}

#[tokio::test]
async fn of_a_server_that_does_not_answer_nothing_differs() {
    let text = "[VirtualCenter \"127.0.0.1\"]\nport = \"9\"\nuser = \"u\"\npassword = \"p\"\ninsecure-flag = true\n\
                [NSXT]\nhost = \"127.0.0.1:9\"\nuser = \"u\"\npassword = \"p\"\ninsecure-flag = true\n";
    let report = tested(text).await;
    assert_eq!(report.servers.len(), 2);
    for server in &report.servers {
        assert_eq!(server.differing(), Vec::<&str>::new(), "{}", report.table());
        assert!(server.ended_early.is_some(), "{}", report.table());
    }
    assert_eq!(report.exit_code(), 2);
}

/// Only the announcement names the server.
#[tokio::test]
async fn a_server_without_credentials_is_not_named_in_the_table() {
    let secrets = tempfile::tempdir().unwrap();
    std::fs::write(secrets.path().join("secret-name-2.username"), "user\n").unwrap();
    std::fs::write(secrets.path().join("secret-name-2.password"), "hunter2\n").unwrap();
    let folder = secrets.path().display().to_string();
    let text = format!("[Global]\nsecrets-directory = \"{folder}\"\n[VirtualCenter \"secret-name-1\"]\n");
    let (_folder, path) = file(&text);
    let servers = Servers::read(&path).unwrap();
    let said = announcement::announcement(&servers, None);
    assert!(said.contains("secret-name-2") && said.contains(&folder), "{said}");
    let report = run(servers, &RunSettings::default()).await;
    let table = report.table();
    assert_eq!(report.exit_code(), 2);
    assert!(table.contains("there are no credentials for it"), "{table}");
    assert!(!table.contains("secret-name") && !table.contains(&folder), "{table}");
}

/// Makes a manager with every object that is read, and with one that is marked for deletion.
async fn manager(behaviour: Behaviour, sessions: Sessions) -> FakeNsx {
    let service = "/infra/lb-services/secret-service";
    let server = "/infra/lb-virtual-servers/secret-server";
    // The object must exist until the test has read it.
    let deletion = match behaviour.deletion {
        Deletion::Marked { realized_for, .. } => {
            Deletion::Marked { realized_for, purged_after: Duration::from_secs(300) }
        }
        Deletion::AtOnce => Deletion::AtOnce,
    };
    let model = Model::small().behaviour(Behaviour { deletion, ..behaviour }).sessions(sessions);
    let model = model.object(service, json!({"size": "SMALL", "connectivity_path": "/infra/tier-1s/t1"})).object(
        server,
        json!({
            "ip_address": "192.0.2.9", "ports": ["80"], "lb_service_path": service,
            "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
        }),
    );
    let nsx = FakeNsx::start(model).await;
    let other = format!("{server}-2");
    nsx.put_by_hand(
        "somebody",
        &other,
        json!({
            "ip_address": "192.0.2.10", "ports": ["80"], "lb_service_path": service,
            "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
        }),
    );
    assert!(nsx.force_delete_by_hand("somebody", &other), "it is marked");
    nsx
}

#[tokio::test]
async fn what_differs_at_a_manager_is_what_its_mode_does_otherwise() {
    for (name, behaviour) in Behaviour::ALL {
        let nsx = manager(behaviour, Sessions::Served).await;
        let folder = tempfile::tempdir().unwrap();
        let (text, versions) = (with_vcenter(&nsx.ini_section(folder.path())), nsx.versions());
        let report = tested(&text).await;
        let server = report.servers.last().unwrap();
        assert_eq!(server.ended_early, None, "{name}: {}", report.table());
        let expected: &[&str] = match name {
            "usual" => &[],
            "opposite" => &["N01", "N03", "N05", "N10", "N12", "N13"],
            "third" => &["N03"],
            other => panic!("{other} is a new mode"),
        };
        assert_eq!(server.differing(), expected, "{name}:\n{}", report.table());
        // If a deletion takes effect at once, no object is marked.
        let is_marked = name != "opposite";
        let expected = [("N07", "no virtual server is marked for deletion".to_owned())];
        assert_eq!(not_tried(server), if is_marked { &[][..] } else { &expected }, "{name}");
        let seen = "0 of 1 marked without it, 1 of 2 with it".to_owned();
        assert_eq!(outcome(server, "N07") == &Outcome::Holds(seen), is_marked, "{name}:\n{}", report.table());
        let requests = nsx.requests();
        assert_eq!(nsx.login_attempts().len(), 1, "{name}");
        assert_eq!(nsx.counts().sessions, 0, "{name}: the session is ended");
        assert!(requests.len() <= field_test::nsx::MOST_CALLS, "{name}: {}", requests.len());
        let is_write = |method: &str, path: &str| method != "GET" && !path.starts_with("/api/session/");
        let writes = requests.iter().filter(|one| is_write(&one.method, &one.path)).count();
        assert_eq!(writes, 0, "{name}");
        assert!(nsx.written_from(versions).is_empty(), "{name}");
        for secret in ["secret-", "127.0.0.1", "admin", &nsx.password(), "192.0.2", "t1"] {
            assert!(!table_of(server).contains(secret), "{secret} is in\n{}", table_of(server));
        }
    }
}

#[tokio::test]
async fn a_manager_without_sessions_is_tested_with_basic() {
    let nsx = manager(Behaviour::USUAL, Sessions::NotFound).await;
    let folder = tempfile::tempdir().unwrap();
    let report = tested(&with_vcenter(&nsx.ini_section(folder.path()))).await;
    let server = report.servers.last().unwrap();
    assert_eq!((server.ended_early.as_deref(), server.differing()), (None, vec![]), "{}", report.table());
    let skipped: Vec<_> = not_tried(server).into_iter().map(|(id, _)| id).collect();
    assert_eq!(skipped, ["N01", "N02", "N16", "N17", "N18", "N19"]);
}

#[tokio::test]
async fn a_manager_that_may_not_be_read_differs_and_is_tested_to_its_end() {
    let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
    nsx.deny("admin", "lb-app-profiles");
    let folder = tempfile::tempdir().unwrap();
    let report = tested(&with_vcenter(&nsx.ini_section(folder.path()))).await;
    let server = report.servers.last().unwrap();
    assert_eq!(server.differing(), ["N03", "N04", "N05", "N06"], "{}", report.table());
    assert_eq!(outcome(server, "N03").text(), "refused: NoPermission, status 403, code 401");
    assert!(matches!(outcome(server, "N19"), Outcome::Holds(_)));
}

/// The calls of the logout are not counted with those of the checks.
#[tokio::test]
async fn sessions_are_ended_wherever_the_number_of_calls_is_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let vcenter = Vcenter::start(&scenario().api_version("7.0.3.0")).await;
    tested(&vcenter.ini_section("vc", "dc-1")).await;
    let all = vcenter.counts().await.total as usize;
    for calls in [4, 7, 20, all - 6, all - 5, all - 4, all - 3] {
        let vcenter = Vcenter::start(&scenario().api_version("7.0.3.0")).await;
        let nsx = manager(Behaviour::USUAL, Sessions::Served).await;
        let text = format!("{}{}", vcenter.ini_section("vc", "dc-1"), nsx.ini_section(folder.path()));
        let (_folder, path) = file(&text);
        let limits = Limits { calls, ..Limits::default() };
        let report = run(Servers::read(&path).unwrap(), &RunSettings { limits, ..RunSettings::default() }).await;
        let why = report.servers[0].ended_early.as_deref();
        let is_cut = why == Some("the announced number of calls is used up");
        assert_eq!(is_cut, calls < all - 3, "{calls} of {all}: {why:?}");
        let counts = vcenter.counts().await;
        let left = (counts.of("Login"), counts.soap_sessions, counts.rest_sessions, nsx.counts().sessions);
        assert_eq!(left, (1, 0, 0, 0), "{calls}: {counts:?}");
        assert_eq!(nsx.login_attempts().len(), 1);
    }
}

#[tokio::test]
async fn servers_calls_and_the_throttle_are_announced_without_secrets() {
    let text = "[VirtualCenter \"vc-1\"]\nuser = \"one\"\npassword = \"hunter1\"\ndatacenters = \"dc\"\n\
                [NSXT]\nhost = \"nsx\"\nsecret-name = \"s\"\nsecret-namespace = \"n\"\n";
    let (_folder, path) = file(text);
    let servers = Servers::read(&path).unwrap();
    let told = announcement::announcement(&servers, None);
    for part in [
        "vCenter 1 (vc-1:443): at most 60 calls, and 3 to tidy up.",
        "NSX (nsx:443): nothing, because this program does not read Secrets",
        "does not share the login throttle",
        "use another account",
    ] {
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    assert!(!told.contains("hunter1"));
}

#[test]
fn without_a_terminal_nothing_is_sent_unless_yes_is_given() {
    let (_folder, path) =
        file("[VirtualCenter \"127.0.0.1\"]\nuser = \"u\"\npassword = \"hunter1\"\ndatacenters = \"dc\"\nport = 9\n");
    let ran = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_field-test"));
        let output = command.args(arguments).arg(&path).stdin(std::process::Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, output, messages) = ran(&[]);
    assert_eq!((code, output.as_str()), (Some(2), ""));
    assert!(messages.contains("nothing was sent: there is no terminal to ask"), "{messages}");
    let (code, output, messages) = ran(&["--yes"]);
    assert_eq!(code, Some(2), "{output}\n{messages}");
    assert!(output.contains("ended early: the server gave no answer: Connect"), "{output}");
    assert!(!format!("{output}{messages}").contains("hunter1"));
}

/// Adds a vCenter on a closed port, because a file needs one.
fn with_vcenter(nsx: &str) -> String {
    let vcenter = "[VirtualCenter \"127.0.0.1\"]\nport = \"9\"\nuser = \"u\"\npassword = \"p\"\ndatacenters = \"dc\"\n\
                   insecure-flag = true\n";
    format!("{vcenter}{nsx}")
}

fn table_of(server: &ServerReport) -> String {
    let shown = server.findings.iter().map(|finding| format!("{}: {}\n", finding.belief.id, finding.outcome.text()));
    shown.collect()
}
