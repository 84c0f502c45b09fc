//! Tests of a recording of the simulator and of the fake NSX. The recording contains none of their names and secrets,
//! but everything that the clients read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ccm::clients::http::{Client, Endpoint, Failure, Request, Response, Settings, Transport};
use field_test::recording::{Recording, record, replay};
use field_test::{Report, RunSettings, Server, Servers};
use secrecy::ExposeSecret as _;
use serde_json::json;
use support::fake_nsx::{Behaviour, Deletion, Model, Sessions, Trouble};
use support::vcenter::{Nic, Object, Scenario, Vcenter, Vm};
use support::{FakeNsx, FakeVcenter, fake_vcenter};

/// Text in every name and secret, except for those in [`OTHERS`].
const SEED: &str = "seed";

/// Names and secrets of other forms.
const OTHERS: [&str; 12] = [
    "10.77.",
    "fd77:",
    "00:50:56",
    "4211a1b2",
    "b2a11142",
    "5be1d5e3",
    "eyJhbGci",
    "BEGIN",
    "MIIB",
    "Correct-Horse",
    "127.0.0.1:",
    "U0VFRA",
];

/// A certificate and a JSON web token that a user could put into a description.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUseed\n-----END CERTIFICATE-----";
const JWT: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzZWVkIn0.c2VlZA";

fn seeded_vcenter() -> Scenario {
    Scenario::empty()
        .login("seed-user@seed.local", "Correct-Horse-seed")
        .instance_uuid("5be1d5e3-0000-4000-8000-000000000007")
        .api_version("7.0.3.0")
        .datacenter_in("seed-dc", "seed-folder-of-dcs")
        .cluster("seed-dc", "seed-cluster", &["seed-host-1", "seed-host-2"])
        .vm(Vm::new("seed-vm one", "4211a1b2-1111-4222-8333-000000000001")
            .instance_uuid("5be1d5e3-0000-4000-8000-000000000001")
            .datacenter("seed-dc")
            .folder("seed-folder/inner-seed")
            .host("seed-host-1")
            .guest_host_name("vm-one.seed.example.com")
            .nic(Nic::new("seed network", &["10.77.0.11", "fd77::11"]).mac("00:50:56:77:00:11"))
            .extra_config("guestinfo.metadata", "U0VFRA=="))
        .vm(Vm::new(JWT, "4211a1b2-1111-4222-8333-000000000002")
            .datacenter("seed-dc")
            .host("seed-host-2")
            .guest_host_name("10.77.0.12 seed"))
        .category("seed-category", "SINGLE")
        .tag("seed-category", "seed-tag", [Object::vm("seed-vm one"), Object::host("seed-host-1")])
}

fn virtual_server(address: &str) -> serde_json::Value {
    json!({
        "display_name": "seed web", "description": format!("{CERTIFICATE} {JWT} 10.77.1.1"),
        "tags": [
            {"scope": "seed-scope", "tag": "seed-value"},
            {"scope": "10.77.9.9", "tag": "5be1d5e3-0000-4000-8000-000000000009"},
        ],
        "ip_address": address, "ports": ["443"], "lb_service_path": "/infra/lb-services/seed-service",
        "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
        "pool_path": "/infra/lb-pools/seed pool",
    })
}

async fn seeded_nsx() -> FakeNsx {
    let deletion = Deletion::Marked { realized_for: Duration::from_secs(1), purged_after: Duration::from_secs(300) };
    let pool =
        json!({"display_name": "seed pool", "members": [{"ip_address": "10.77.2.2", "display_name": "seed-member"}]});
    let model = Model::small()
        .behaviour(Behaviour { deletion, ..Behaviour::USUAL })
        .sessions(Sessions::Served)
        .user("seed-admin", "Correct-Horse-seed")
        .tier1("seed-gateway")
        .object("/infra/lb-services/seed-service", json!({"connectivity_path": "/infra/tier-1s/seed-gateway"}))
        .object("/infra/lb-pools/seed pool", pool)
        .object("/infra/lb-virtual-servers/seed-web", virtual_server("10.77.3.3"));
    let nsx = FakeNsx::start(model).await;
    nsx.put_by_hand("seed-bob", "/infra/lb-virtual-servers/seed-old", virtual_server("fd77::3"));
    assert!(nsx.force_delete_by_hand("seed-bob", "/infra/lb-virtual-servers/seed-old"), "it is marked");
    nsx
}

/// A transport that collects the secrets no recording may contain: cookies, tokens, session ids.
struct Spy {
    client: Client,
    secrets: Arc<Mutex<Vec<String>>>,
}

/// Returns the secrets in a text that are long enough to search for.
fn secrets_in(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|character: char| " ;,=\"<>{}&".contains(character));
    parts.filter(|part| part.len() >= 12 && part.chars().any(|one| one.is_ascii_digit())).map(str::to_owned)
}

#[async_trait]
impl Transport for Spy {
    async fn exchange(&self, _endpoint: &Endpoint, request: Request) -> Result<Response, Failure> {
        let mut found = Vec::new();
        for (_, text) in &request.secret_headers {
            found.extend(secrets_in(text.expose_secret()));
        }
        let is_login = ["Login", "session.create"].contains(&request.operation);
        let answer = self.client.send(request).await.map_err(Failure::Final)?;
        for name in ["set-cookie", "x-xsrf-token", "vmware-api-session-id"] {
            let all = answer.headers.get_all(name).iter().filter_map(|text| text.to_str().ok());
            found.extend(all.flat_map(secrets_in));
        }
        if is_login {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let key =
                text.split_once("<key>").and_then(|(_, rest)| rest.split_once("</key>")).map(|(key, _)| key.to_owned());
            let id = serde_json::from_slice::<serde_json::Value>(&answer.body).ok();
            let id = id.and_then(|json| json["value"].as_str().map(str::to_owned));
            found.extend(key.into_iter().chain(id));
        }
        self.secrets.lock().unwrap().extend(found);
        Ok(answer)
    }
}

struct Recorded {
    report: Report,
    text: String,
    secrets: Vec<String>,
    said: Result<String, String>,
}

async fn recorded(text: &str, change: impl FnOnce(&mut Servers)) -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    let (file, recording) = (folder.path().join("vsphere.conf"), folder.path().join("recording.json"));
    std::fs::write(&file, text).unwrap();
    let mut servers = Servers::read(&file).unwrap();
    change(&mut servers);
    let secrets = Arc::new(Mutex::new(Vec::new()));
    for server in &mut servers.all {
        let settings = match server {
            Server::Vcenter(vcenter) => &mut vcenter.http,
            Server::Nsx(nsx) => &mut nsx.http,
        };
        let spy = Spy { client: Client::new(settings.clone()).unwrap(), secrets: Arc::clone(&secrets) };
        *settings = Settings { transport: Some(Arc::new(spy)), ..settings.clone() };
    }
    let (report, said) = record(&recording, servers, &RunSettings::default()).await.unwrap();
    let said = said.map(|said| said.replace(&recording.display().to_string(), "FILE"));
    let secrets = secrets.lock().unwrap().clone();
    Recorded { report, text: std::fs::read_to_string(&recording).unwrap(), secrets, said }
}

/// Returns the names and secrets that the recording contains.
fn found(recorded: &Recorded) -> Vec<String> {
    let lower = recorded.text.to_lowercase();
    let (mut secrets, own) = (recorded.secrets.clone(), "0000000000000000000000000000F1E1");
    secrets.retain(|secret| secret != own);
    assert!(secrets.len() > 3, "cookies and tokens were seen: {secrets:?}");
    let others = OTHERS.iter().map(|other| (*other).to_owned()).chain([SEED.to_owned()]).chain(secrets);
    others.filter(|text| lower.contains(&text.to_lowercase())).collect()
}

#[tokio::test]
async fn no_name_and_no_secret_of_the_servers_is_in_a_recording_and_the_clients_read_it_as_the_servers() {
    let (vcenter, nsx) = (Vcenter::start(&seeded_vcenter()).await, seeded_nsx().await);
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{}{}", vcenter.ini_section("seed-vc", "seed-dc"), nsx.ini_section(folder.path()));
    let recorded = recorded(&text, |servers| {
        for server in &mut servers.all {
            if let Server::Nsx(nsx) = server {
                nsx.gateway = Some("/infra/tier-1s/seed-gateway".to_owned());
                nsx.lb_service = Some("/infra/lb-services/seed-service".to_owned());
            }
        }
    })
    .await;
    assert_eq!(found(&recorded), Vec::<String>::new(), "{}", recorded.text);
    let ended: Vec<_> = recorded.report.servers.iter().map(|server| server.ended_early.as_deref()).collect();
    assert_eq!(ended, [None, None], "{}", recorded.report.table());
    let recording = Recording::parse(&recorded.text).unwrap();
    let end = recording.end.clone().unwrap();
    let said = format!("recorded in FILE: {} exchanges. Read it before you send it", end.exchanges);
    assert_eq!(recorded.said, Ok(said));
    for kind in
        ["credentials", "texts", "ids", "UUIDs", "IPv4 addresses", "IPv6 addresses", "times", "headers left out"]
    {
        assert!(end.replaced.get(kind).is_some_and(|count| *count > 0), "{kind}: {:?}", end.replaced);
    }
    assert_eq!(recording.servers[1].gateway.as_deref().map(|path| path.starts_with("/infra/tier-1s/id-")), Some(true));
    for server in &recorded.report.servers {
        let replayed = replay(&recording, &server.title).await.unwrap();
        assert_eq!(replayed.differences, Vec::<String>::new(), "{}", server.title);
    }
}

#[tokio::test]
async fn messages_of_refusals_keep_no_name() {
    let (fake, nsx) = (FakeVcenter::start(fake_vcenter::Model::small().vms(3)).await, seeded_nsx().await);
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{}{}", fake.ini_section("seed-vc", "dc-1", folder.path()), nsx.ini_section(folder.path()));
    let fault = fake_vcenter::Fault::new("NotFound");
    fake.every("RetrievePropertiesEx", fake_vcenter::Trouble::Fault(fault));
    let message = json!({
        "httpStatus": "FORBIDDEN", "error_code": 289, "module_name": "seed", "seed_field": "seed",
        "error_message": "Principal 'seed-bob@seed.local' attempts to delete or modify an object /infra/lb-pools/seed pool \
                          it doesn't own. (createUser=seed-ann, allowOverwrite=null) by seed-host.example.com at 10.77.4.4",
        "related_errors": [{"error_message": "seed 4211a1b2-1111-4222-8333-000000000001", "details": "seed seed"}],
    });
    nsx.every("LIST lb-services", Trouble::answer(403, "application/json", &message.to_string()));
    nsx.every(
        "LIST tier-1s",
        Trouble::answer(502, "text/html", "<html><body>seed proxy seed.example.com</body></html>"),
    );
    let recorded = recorded(&text, |_| ()).await;
    assert_eq!(found(&recorded), Vec::<String>::new(), "{}", recorded.text);
    for kept in
        ["attempts to delete or modify an object", "\"error_code\": 289", "NotFoundFault", "allowOverwrite=null"]
    {
        assert!(recorded.text.contains(kept), "{kept} is not in {}", recorded.text);
    }
    let recording = Recording::parse(&recorded.text).unwrap();
    for server in &recorded.report.servers {
        let replayed = replay(&recording, &server.title).await.unwrap();
        assert_eq!(replayed.differences, Vec::<String>::new(), "{}", server.title);
    }
}

#[tokio::test]
async fn a_run_that_ends_early_is_recorded_until_there() {
    let vcenter = Vcenter::start(&seeded_vcenter()).await;
    vcenter.set_login("seed-user@seed.local", "another").await;
    let nobody =
        "[VirtualCenter \"127.0.0.2\"]\nport = \"9\"\nuser = \"seed\"\npassword = \"seed2\"\ndatacenters = \"d\"\n";
    let recorded = recorded(&format!("{}{nobody}", vcenter.ini_section("seed-vc", "seed-dc")), |_| ()).await;
    assert!(!recorded.text.to_lowercase().contains(SEED), "{}", recorded.text);
    let recording = Recording::parse(&recorded.text).unwrap();
    let operations: Vec<_> = recording.exchanges.iter().map(|one| one.operation.as_str()).collect();
    assert_eq!(operations, ["vimServiceVersions", "RetrieveServiceContent", "Login", "vimServiceVersions"]);
    assert_eq!(recording.exchanges[3].failed.as_deref(), Some("Connect"));
    for server in ["vCenter 1", "vCenter 2"] {
        assert_eq!(replay(&recording, server).await.unwrap().differences, Vec::<String>::new(), "{server}");
    }
}

/// Writes a file with a vCenter on a closed port.
fn file_of_nobody(folder: &Path) -> PathBuf {
    let path = folder.join("vsphere.conf");
    let text =
        "[VirtualCenter \"127.0.0.1\"]\nport = \"9\"\nuser = \"u\"\npassword = \"hunter1\"\ndatacenters = \"dc\"\n";
    std::fs::write(&path, text).unwrap();
    path
}

fn program(arguments: &[&str], folder: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_field-test"));
    let output = command.args(arguments).arg(file_of_nobody(folder)).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_file_is_its_owners_and_replaces_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording.json");
    let name = path.display().to_string();
    let (code, said) = program(&["--yes", "--record", &name], folder.path());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("recorded in ") && said.contains(": 1 exchanges. Read it"), "{said}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(Recording::parse(&text).unwrap().end.is_some() && !text.contains("hunter1"), "{text}");

    for taken in [name, folder.path().join("no/such/folder").display().to_string()] {
        let (code, said) = program(&["--yes", "--record", &taken], folder.path());
        let expected = format!("error: the recording {taken} cannot be written: ");
        assert!(code == Some(2) && said.contains(&expected), "{code:?} {said}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);

    let unasked = folder.path().join("unasked.json");
    let (_, said) = program(&["--record", &unasked.display().to_string()], folder.path());
    assert!(said.contains("nothing was sent") && !unasked.exists(), "{said}");
}

#[tokio::test]
async fn what_is_under_way_when_the_program_is_interrupted_is_recorded_as_given_up() {
    let nsx = seeded_nsx().await;
    nsx.every("*", Trouble::Hang);
    let folder = tempfile::tempdir().unwrap();
    let nobody = std::fs::read_to_string(file_of_nobody(folder.path())).unwrap();
    let (file, recording) = (folder.path().join("both.conf"), folder.path().join("recording.json"));
    std::fs::write(&file, format!("{nobody}{}", nsx.ini_section(folder.path()))).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_field-test"));
    command.args(["--yes", "--record"]).arg(&recording).arg(&file).kill_on_drop(true);
    let mut program = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let limit = Duration::from_secs(60);
    let arrived = async {
        while nsx.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(limit, arrived).await.expect("the login arrives");
    let pid = program.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let ended = tokio::time::timeout(limit, program.wait()).await.expect("the program ends").unwrap();
    assert_eq!(ended.code(), Some(2));
    let recording = Recording::parse(&std::fs::read_to_string(&recording).unwrap()).unwrap();
    let last = recording.exchanges.last().unwrap();
    assert_eq!((last.operation.as_str(), last.failed.as_deref()), ("session.create", Some("GivenUp")));
    assert_eq!(recording.outcomes_of("NSX").unwrap().ended_early.as_deref(), Some("it was interrupted"));
    assert!(recording.end.is_some());
}
