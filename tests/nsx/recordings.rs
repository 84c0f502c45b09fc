//! A recording of the field test in place of an NSX Manager. The client reads the manager's answers from the recording.
//!
//! `RECORDING=file` replays the manager of another recording. `UPDATE_GOLDEN=1` records the fake manager again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm::clients::http;
use ccm::clients::nsx::realization::{Realization, RevisionStatus};
use ccm::clients::nsx::{Client, Kind, LogIn, Login, NoLogin, Pace, Scheme, Timeouts};
use field_test::recording::{Product, Recording, Replay, record, replay};
use field_test::{RunSettings, Server, Servers};
use secrecy::SecretString;
use serde_json::json;
use support::FakeNsx;
use support::fake_nsx::{Behaviour, Deletion, Model, Sessions};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/recordings/nsx.json");

/// Maximum size of a recording, so that a person can read it.
const LARGEST: usize = 100_000;

/// Title of the only server in the golden recording.
const TITLE: &str = "NSX";

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn virtual_server(address: &str) -> serde_json::Value {
    json!({
        "display_name": "web of the shop", "description": "a note of bob", "tags": [{"scope": "team", "tag": "shop"}],
        "ip_address": address, "ports": ["443"], "lb_service_path": "/infra/lb-services/shop-service",
        "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
    })
}

/// Starts a manager with one virtual server, and one that is marked for deletion.
async fn manager() -> FakeNsx {
    let deletion = Deletion::Marked { realized_for: Duration::from_secs(1), purged_after: Duration::from_secs(300) };
    let service = json!({"size": "SMALL", "connectivity_path": "/infra/tier-1s/t1"});
    let model = Model::small()
        .behaviour(Behaviour { deletion, ..Behaviour::USUAL })
        .sessions(Sessions::Served)
        .object("/infra/lb-services/shop-service", service)
        .object("/infra/lb-virtual-servers/shop-web", virtual_server("10.1.2.3"));
    let nsx = FakeNsx::start(model).await;
    nsx.put_by_hand("bob", "/infra/lb-virtual-servers/shop-old", virtual_server("10.1.2.4"));
    assert!(nsx.force_delete_by_hand("bob", "/infra/lb-virtual-servers/shop-old"), "it is marked");
    nsx
}

/// Returns the recording in the repository, or records it again if `UPDATE_GOLDEN` is set.
async fn golden() -> String {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let nsx = manager().await;
        let folder = tempfile::tempdir().unwrap();
        let (file, recorded) = (folder.path().join("vsphere.conf"), folder.path().join("recording"));
        let vcenter = "[VirtualCenter \"vc\"]\nuser = \"u\"\npassword = \"p\"\ndatacenters = \"dc\"\n";
        std::fs::write(&file, format!("{vcenter}{}", nsx.ini_section(folder.path()))).unwrap();
        let mut servers = Servers::read(&file).unwrap();
        servers.all.retain(|server| matches!(server, Server::Nsx(_)));
        record(&recorded, servers, &RunSettings::default()).await.unwrap().1.unwrap();
        std::fs::write(GOLDEN, text_of(&recorded)).unwrap();
    }
    text_of(Path::new(GOLDEN))
}

fn parsed(text: &str) -> Recording {
    Recording::parse(text).unwrap_or_else(|why| panic!("the recording: {why}"))
}

#[tokio::test]
async fn the_golden_recording_is_whole_and_small() {
    let text = golden().await;
    assert!(text.len() <= LARGEST, "{} bytes", text.len());
    let end = parsed(&text).end.unwrap();
    assert_eq!((end.cut, end.exchanges), (None, parsed(&text).exchanges.len()));
    for name in ["shop", "bob", "team", "10.1.2", "admin", "Correct-Horse", "default-tcp"] {
        assert!(!text.contains(name), "{name} is in {GOLDEN}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_checks_find_in_a_recording_what_they_found_at_the_manager() {
    let path = std::env::var_os("RECORDING").map_or_else(|| GOLDEN.into(), PathBuf::from);
    let recording = parsed(&text_of(&path));
    let managers: Vec<_> = recording.servers.iter().filter(|server| server.product == Product::Nsx).collect();
    assert!(!managers.is_empty(), "{} has no NSX Manager", path.display());
    for server in managers {
        let replayed = replay(&recording, &server.title).await.unwrap();
        println!("{}", field_test::Report { servers: vec![replayed.report] }.table());
        assert_eq!(replayed.differences, Vec::<String>::new(), "{}", server.title);
    }
}

#[tokio::test(start_paused = true)]
async fn a_recording_with_another_answer_is_read_otherwise() {
    let text = text_of(Path::new(GOLDEN));
    for (what, with, expected) in [
        ("\"error_code\": 403", "\"error_code\": 404", "N16: DIFFERS, recorded: holds"),
        ("\"error_code\": 600", "\"error_code\": 601", "N14: DIFFERS, recorded: holds"),
        ("\"state\": \"REALIZED\"", "\"status\": \"REALIZED\"", "N11: DIFFERS, recorded: holds"),
        ("\"result_count\"", "\"other_count\"", "N03: DIFFERS, recorded: holds"),
        ("\"x-xsrf-token\": \"removed\"", "\"accept\": \"removed\"", "N01: DIFFERS, recorded: holds"),
    ] {
        assert!(text.contains(what), "{what} is not in {GOLDEN}");
        let found = replay(&parsed(&text.replace(what, with)), TITLE).await.unwrap().differences;
        assert!(found.contains(&expected.to_owned()), "{what}: {found:?}");
    }
    let mut recording = parsed(&text);
    let list = recording.exchanges.iter().position(|one| one.request.path.contains("cursor=")).unwrap();
    recording.exchanges.remove(list);
    let found = replay(&recording, TITLE).await.unwrap().differences;
    assert!(found.iter().any(|one| one.starts_with("not recorded: field-test.list GET")), "{found:?}");
}

/// A login that never succeeds.
struct NoLogIn;

#[async_trait]
impl LogIn for NoLogIn {
    async fn log_in(&self, _client: &Client, _over: Option<&Login>) -> Result<(), NoLogin> {
        Err(NoLogin { kind: Kind::SessionOver, reason: "over".to_owned() })
    }

    fn rejected(&self, _login: &Login) {}
}

#[tokio::test(start_paused = true)]
async fn the_client_reads_the_answers_of_the_stand_in() {
    let recording = parsed(&text_of(Path::new(GOLDEN)));
    let replay = Replay::of(&recording, TITLE).unwrap();
    let http = http::Client::new(replay.settings()).unwrap();
    let client = Client::new(http, "", Arc::new(Pace::new(80)), Arc::new(NoLogIn), Timeouts::default());
    let password = SecretString::from("anything");
    let login = client.open_session(Scheme::Basic, "anybody", &password).await.unwrap().unwrap();
    client.adopt(login.clone());

    let mut pages = client.pages("/infra/lb-app-profiles", "test", 2);
    let mut sizes = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        assert!(page.iter().all(|profile| profile.path().starts_with("/infra/lb-app-profiles/")), "{page:?}");
        sizes.push(page.len());
    }
    assert_eq!(sizes, [2, 1]);
    let servers = client.pages("/infra/lb-virtual-servers", "test", 1000).all().await.unwrap().objects;
    let [server] = servers.as_slice() else { panic!("{servers:?}") };
    assert_eq!(server.path(), format!("/infra/lb-virtual-servers/{}", server.id()));
    assert!(server.text("ip_address").starts_with("192.0.2."), "{}", server.text("ip_address"));
    assert_eq!(server.tags().count(), 1);
    assert_eq!(client.realization(server.path(), "test").await.unwrap(), Realization::Realized);
    let status = client.revision_status(server.path(), server.revision().unwrap(), "test").await.unwrap();
    assert_eq!(status, RevisionStatus::Known(Realization::Realized));

    let never = "/infra/lb-virtual-servers/field-test-f1e1-never-was";
    let error = client.get(never, "test").await.unwrap_err();
    assert_eq!((&error.kind, error.status(), error.code()), (&Kind::NotFound, Some(404), Some(600)), "{error}");
    assert!(!client.is_in_effect(never, "test").await.unwrap());

    client.take();
    client.end(login.clone()).await.unwrap();
    // The first answer comes from the session while it was valid.
    client.adopt(login.clone());
    client.get("/infra/sites", "test").await.unwrap();
    let error = client.get("/infra/sites", "test").await.unwrap_err();
    assert_eq!(error.kind, Kind::SessionOver, "{error}");
    assert_eq!(replay.unanswered(), Vec::<String>::new());
}
