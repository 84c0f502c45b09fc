//! Tests of logins other than user and password, and of logins without a session. Each login is made once, and not
//! again after a rejection.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ccm::clients::http::{Client, Method, Request, Settings, TlsSettings, TlsTrust};
use ccm::clients::vim;
use field_test::recording::record;
use field_test::{Outcome, Report, RunSettings, ServerReport, Servers, announcement, run};
use secrecy::{ExposeSecret as _, SecretString};
use support::FakeNsx;
use support::fake_nsx::{Model, Sessions, Trouble};
use support::vcenter::{Object, Scenario, Vcenter, Vm};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const CERTIFICATE: &str = include_str!("../../../golden/sts/holder.crt");
const KEY: &str = include_str!("../../../golden/sts/holder.key");

const REJECTED: &str = "the login was rejected; it is not tried again";

const MANAGER_TOKEN: &str = "hunter-token";

/// Runs the test on a file with this text. Returns the announcement and the report.
async fn tested(text: &str) -> (String, Report) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vsphere.conf");
    std::fs::write(&path, text).unwrap();
    let servers = Servers::read(&path).unwrap();
    let announced = announcement::announcement(&servers, None);
    (announced, run(servers, &RunSettings::default()).await)
}

fn outcome<'a>(server: &'a ServerReport, id: &str) -> &'a Outcome {
    &server.findings.iter().find(|finding| finding.belief.id == id).unwrap().outcome
}

fn scenario() -> Scenario {
    let machine = |number: usize| {
        Vm::new(&format!("n-{number}"), &format!("420a1b2c-3d4e-5f60-7182-93a4b5c6{number:04x}")).ip("10.0.0.11")
    };
    let machines = (0..5).fold(Scenario::small(), |scenario, number| scenario.vm(machine(number)));
    machines.tag("k8s-zone", "zone-a", [Object::host("host-1")])
}

/// Returns the section of a vCenter without user and password. They are in the directory of [`secrets`].
fn section(vcenter: &Vcenter, name: &str) -> String {
    let text = vcenter.ini_section(name, "dc-1");
    let lines = text.lines().filter(|line| !line.starts_with("user") && !line.starts_with("password"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Makes a directory with these values for the server 127.0.0.1. Returns it and the section that names it.
fn secrets(values: &[(&str, &str)]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    for (suffix, value) in values {
        std::fs::write(folder.path().join(format!("127.0.0.1.{suffix}")), value).unwrap();
    }
    let section = format!("[Global]\nsecrets-directory = \"{}\"\n", folder.path().display());
    (folder, section)
}

#[tokio::test]
async fn a_certificate_is_exchanged_for_a_token_once_and_logs_in_to_both_interfaces() {
    let (_folder, global) = secrets(&[("username", CERTIFICATE), ("password", KEY)]);
    let (old, new) = (scenario().api_version("7.0.3.0"), scenario().api_version("8.0.3.0").shares_sessions());
    for (scenario, rest_logins) in [(old, 1), (new, 0)] {
        let vcenter = Vcenter::start(&scenario.solution_user(CERTIFICATE)).await;
        let (announced, report) = tested(&format!("{global}{}", section(&vcenter, "vc"))).await;
        assert!(announced.contains("its token service (STS) issues one token"), "{announced}");
        let server = &report.servers[0];
        assert_eq!(server.ended_early, None, "{}", report.table());
        assert_eq!(outcome(server, "V04"), &Outcome::Holds("logged in by a token for the certificate".to_owned()));
        assert!(matches!(outcome(server, "V23"), Outcome::Holds(_)), "{}", report.table());
        let counts = vcenter.counts().await;
        assert_eq!((counts.of("STS:Issue"), counts.soap_logins, counts.rest_logins), (1, 1, rest_logins), "{counts:?}");
        assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "{counts:?}");
        assert!(counts.total as usize <= field_test::vcenter::MOST_CALLS, "{counts:?}");
        for secret in ["BEGIN", "127.0.0.1", KEY.lines().nth(1).unwrap()] {
            assert!(!report.table().contains(secret), "{secret} is in\n{}", report.table());
        }
    }
}

#[tokio::test]
async fn a_certificate_that_is_rejected_is_shown_to_no_other_vcenter() {
    let (_folder, global) = secrets(&[("username", CERTIFICATE), ("password", KEY)]);
    let (one, other) = (Vcenter::start(&Scenario::small()).await, Vcenter::start(&Scenario::small()).await);
    let (_, report) = tested(&format!("{global}{}{}", section(&one, "a"), section(&other, "b"))).await;
    let ended: Vec<_> = report.servers.iter().map(|server| server.ended_early.as_deref().unwrap()).collect();
    assert_eq!(ended, [REJECTED, "another vCenter rejected the same credentials"], "{}", report.table());
    let counts = one.counts().await;
    assert_eq!((counts.of("STS:Issue"), counts.soap_logins, other.counts().await.total), (1, 0, 0), "{counts:?}");
    assert_eq!(report.exit_code(), 2);
}

/// Starts a session manager that issues this ticket for [`MANAGER_TOKEN`]. Returns its address and the number of its
/// requests. It ends with the test.
async fn manager(ticket: SecretString) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            count.fetch_add(1, Ordering::Relaxed);
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let (status, body) = match head.contains(&format!("authorization: bearer {MANAGER_TOKEN}\r\n")) {
                true => ("200 OK", format!("{{\"token\": \"{}\"}}", ticket.expose_secret())),
                false => ("401 Unauthorized", String::new()),
            };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, asked)
}

/// Returns a ticket for a session of this vCenter, as a session manager has it.
async fn ticket(vcenter: &Vcenter) -> SecretString {
    let pem = std::fs::read(vcenter.ca_file()).unwrap();
    let tls = TlsSettings { trust: TlsTrust::Ca { pem, path: "ca.pem".to_owned() }, ..TlsSettings::default() };
    let http = Client::new(Settings::new(vcenter.host(), vcenter.port(), tls, "test")).unwrap();
    let owner = vim::Client::new(http.clone());
    owner.connect().await.unwrap();
    owner.login(vcenter.user(), &vcenter.password().into()).await.unwrap();
    let mut request = Request::new(Method::POST, "/sdk", "AcquireCloneTicket", Duration::from_secs(20));
    let cookie = owner.session_secret().unwrap();
    request.headers.push(("Cookie", format!("vmware_soap_session={}", cookie.expose_secret())));
    request.body = "<e:Envelope xmlns:e=\"http://schemas.xmlsoap.org/soap/envelope/\"><e:Body><AcquireCloneTicket \
        xmlns=\"urn:vim25\"><_this type=\"SessionManager\">SessionManager</_this></AcquireCloneTicket></e:Body></e:Envelope>"
        .to_owned()
        .into();
    let text = String::from_utf8(http.send(request).await.unwrap().body).unwrap();
    let (_, rest) = text.split_once("<returnval>").unwrap();
    rest.split_once("</returnval>").unwrap().0.into()
}

#[tokio::test]
async fn a_session_manager_is_asked_once_and_its_ticket_clones_a_session() {
    let (old, new) = (scenario().api_version("7.0.3.0"), scenario().api_version("8.0.3.0").shares_sessions());
    for (scenario, shares) in [(old, false), (new, true)] {
        let vcenter = Vcenter::start(&scenario).await;
        let (address, asked) = manager(ticket(&vcenter).await).await;
        let url = format!("http://{address}/session");
        let (_folder, global) =
            secrets(&[("vc-session-manager-url", &url), ("vc-session-manager-token", MANAGER_TOKEN)]);
        let (announced, report) = tested(&format!("{global}{}", section(&vcenter, "vc"))).await;
        assert!(announced.contains(&format!("one call to the session manager {address}")), "{announced}");
        assert!(!format!("{announced}{}", report.table()).contains(MANAGER_TOKEN));
        let server = &report.servers[0];
        assert_eq!(server.ended_early, None, "{}", report.table());
        let by = Outcome::Holds("logged in by a ticket of the session manager".to_owned());
        assert_eq!(outcome(server, "V04"), &by, "{}", report.table());
        let has_tags = matches!(outcome(server, "V23"), Outcome::Holds(_));
        assert_eq!(has_tags, shares, "its REST session is that of SOAP:\n{}", report.table());
        let counts = vcenter.counts().await;
        assert_eq!((asked.load(Ordering::Relaxed), counts.of("CloneSession")), (1, 1), "{counts:?}");
        // The one login is that of the owner.
        assert_eq!((counts.of("Login"), counts.of("REST:session-login")), (1, 0), "{counts:?}");
    }
}

#[tokio::test]
async fn a_recorded_run_sends_the_token_to_the_session_manager_alone() {
    let vcenter = Vcenter::start(&scenario().api_version("8.0.3.0").shares_sessions()).await;
    let (address, asked) = manager(ticket(&vcenter).await).await;
    let url = format!("http://{address}/session");
    let (folder, global) = secrets(&[("vc-session-manager-url", &url), ("vc-session-manager-token", MANAGER_TOKEN)]);
    let path = folder.path().join("vsphere.conf");
    std::fs::write(&path, format!("{global}{}", section(&vcenter, "vc"))).unwrap();
    let recording = folder.path().join("recording.json");
    let servers = Servers::read(&path).unwrap();
    let (report, _) = record(&recording, servers, &RunSettings::default()).await.unwrap();
    assert_eq!(report.servers[0].ended_early, None, "{}", report.table());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert!(!std::fs::read_to_string(&recording).unwrap().contains(MANAGER_TOKEN));
}

#[tokio::test]
async fn a_session_manager_that_rejects_the_token_ends_the_test_before_the_login() {
    let vcenter = Vcenter::start(&Scenario::small()).await;
    let (address, asked) = manager("no-ticket".into()).await;
    let url = format!("http://{address}/session");
    let (_folder, global) = secrets(&[("vc-session-manager-url", &url), ("vc-session-manager-token", "another")]);
    let (_, report) = tested(&format!("{global}{}", section(&vcenter, "vc"))).await;
    assert_eq!(report.servers[0].ended_early.as_deref(), Some(REJECTED), "{}", report.table());
    let counts = vcenter.counts().await;
    let logins = (counts.of("CloneSession"), counts.of("Login"));
    assert_eq!((asked.load(Ordering::Relaxed), logins), (1, (0, 0)), "{counts:?}");
}

/// Returns a file with this NSX and a vCenter on a closed port, because a file needs one. The file also trusts the CA
/// of the token service.
fn with_nsx(nsx: &FakeNsx, login: &str, folder: &Path) -> String {
    let ca_file = folder.join("nsx.pem");
    std::fs::write(&ca_file, format!("{}{}", nsx.ca_pem(), nsx.token_ca_pem())).unwrap();
    format!(
        "[VirtualCenter \"127.0.0.1\"]\nport = \"9\"\nuser = \"u\"\npassword = \"p\"\ndatacenters = \"dc\"\n\
         insecure-flag = true\n[NSXT]\nhost = \"{}\"\nca-file = \"{}\"\n{login}",
        nsx.address(),
        ca_file.display()
    )
}

#[tokio::test]
async fn a_token_of_vmware_cloud_is_exchanged_once_and_sent_with_each_call() {
    for (refresh, ended) in [("refresh-1", None), ("refresh-2", Some(REJECTED))] {
        let nsx = FakeNsx::start(Model::small().cloud_user("cloud-user", "refresh-1")).await;
        let folder = tempfile::tempdir().unwrap();
        let login = format!("vmc-access-token = \"{refresh}\"\nvmc-auth-host = \"{}\"\n", nsx.token_address());
        let (announced, report) = tested(&with_nsx(&nsx, &login, folder.path())).await;
        let service = nsx.token_address().split('/').next().unwrap().to_owned();
        assert!(announced.contains(&format!("one call to the token service {service}")), "{announced}");
        assert!(!format!("{announced}{}", report.table()).contains(refresh));
        let server = report.servers.last().unwrap();
        assert_eq!(server.ended_early.as_deref(), ended, "{}", report.table());
        let requests = nsx.requests();
        let (exchanges, calls): (Vec<_>, Vec<_>) = requests.iter().partition(|one| one.operation == "token authorize");
        assert_eq!(exchanges.len(), 1, "{refresh}");
        assert!(calls.iter().all(|one| one.header("csp-auth-token").is_some() && one.method == "GET"));
        assert_eq!((calls.is_empty(), server.differing()), (ended.is_some(), vec![]), "{}", report.table());
        let reason = if ended.is_some() { REJECTED } else { "there is no session" };
        assert_eq!(outcome(server, "N01"), &Outcome::NotTried(reason.to_owned()), "{}", report.table());
    }
}

/// Without sessions each call is a login.
#[tokio::test]
async fn a_manager_without_sessions_that_rejects_user_and_password_gets_no_further_call() {
    for (name, is_rejected_later) in [("the first one", false), ("a later one", true)] {
        let nsx = FakeNsx::start(Model::small().sessions(Sessions::NotFound)).await;
        let folder = tempfile::tempdir().unwrap();
        let login = format!("user = \"{}\"\npassword = \"{}\"\n", nsx.user(), nsx.password());
        match is_rejected_later {
            true => nsx.every("LIST lb-app-profiles", Trouble::rejected()),
            false => nsx.set_password(nsx.user(), "another"),
        }
        let (announced, report) = tested(&with_nsx(&nsx, &login, folder.path())).await;
        assert!(
            announced.contains("Where the manager has no sessions, each call carries user and password"),
            "{announced}"
        );
        let server = report.servers.last().unwrap();
        assert!(
            server.ended_early.as_deref().is_some_and(|why| why.contains("rejected")),
            "{name}: {}",
            report.table()
        );
        assert_eq!(server.differing(), Vec::<&str>::new(), "{name}: {}", report.table());
        let requests = nsx.requests();
        let refused: Vec<_> =
            requests.iter().filter(|one| one.status == Some(403) || one.status == Some(401)).collect();
        assert_eq!(refused.len(), 1, "{name}: {:?}", requests.iter().map(|one| &one.operation).collect::<Vec<_>>());
        assert_eq!(requests.last().map(|one| one.status), Some(refused[0].status), "{name}: it is the last one");
    }
}
