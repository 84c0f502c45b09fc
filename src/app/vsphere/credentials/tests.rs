//! Tests with entries and sources that appear and disappear. The API server is a fake; `tests/apiserver/secrets.rs`
//! uses a real one.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::client::Body;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::*;
use crate::providers::vsphere::config::{self, Config};
use crate::providers::vsphere::login::credentials::Credentials as Configured;

/// An upper limit for all waits. The clock is paused.
const LIMIT: Duration = Duration::from_secs(600);

/// Numbers of requests that the API server received.
#[derive(Default)]
struct ApiRequests {
    gets: AtomicUsize,
    watches: AtomicUsize,
}

impl ApiRequests {
    fn counts(&self) -> (usize, usize) {
        (self.gets.load(Ordering::SeqCst), self.watches.load(Ordering::SeqCst))
    }
}

/// An API server with one Secret, `ns/n`. Its watches never send an event.
fn api_server(entries: &[(&str, &str)]) -> (kube::Client, Arc<ApiRequests>) {
    let data: BTreeMap<_, _> = entries.iter().map(|(key, value)| (*key, STANDARD.encode(value))).collect();
    let metadata = json!({"namespace": "ns", "name": "n", "uid": "uid", "resourceVersion": "7"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    let asked = Arc::new(ApiRequests::default());
    let counted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (secret, counted) = (secret.clone(), Arc::clone(&counted));
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                counted.watches.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            counted.gets.fetch_add(1, Ordering::SeqCst);
            let is_known = request.uri().path() == "/api/v1/namespaces/ns/secrets/n";
            let (code, body) = if is_known { (200, secret) } else { (404, not_found()) };
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    (kube::Client::new(service, "default"), asked)
}

fn not_found() -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "no"})
}

fn config(text: &str) -> Config {
    config::parse(text, "vsphere.conf").unwrap().config
}

fn with_secret(key: &str, server: &str, name: &str) -> String {
    format!("[VirtualCenter \"{key}\"]\nserver = {server}\nsecret-name = {name}\nsecret-namespace = ns\n")
}

struct World {
    config: Config,
    credentials: Arc<Credentials>,
    asked: Arc<ApiRequests>,
    default_directory: tempfile::TempDir,
    _work: tokio::task::JoinHandle<()>,
}

impl World {
    fn new(text: &str, entries: &[(&str, &str)]) -> Self {
        let (client, asked) = api_server(entries);
        let default_directory = tempfile::tempdir().unwrap();
        let directory = default_directory.path().to_owned();
        let token = directory.join("session-manager-token");
        let (credentials, work) = Credentials::new(client, BTreeSet::new(), token, directory);
        Self { config: config(text), credentials, asked, default_directory, _work: tokio::spawn(work) }
    }

    fn offers(&self, key: &str) -> Offers {
        let entry = self.config.vcenters.iter().find(|entry| entry.key == key).unwrap();
        self.credentials.offers(entry.credential_settings())
    }

    fn followed(&self) -> Vec<String> {
        self.credentials.known.lock().sources.keys().map(|(location, _)| location.to_string()).collect()
    }
}

/// Returns the user of each credential, or the reason why there is none.
fn shown(offer: &CredentialState) -> String {
    match offer {
        CredentialState::Pending { reason: why } => format!("pending: {why}"),
        CredentialState::Unreadable { reason: why } => format!("unreadable: {why}"),
        CredentialState::Missing { reason: why } => format!("missing: {why}"),
        CredentialState::Ready(ready) => {
            let user = |credential: &Arc<Credential>| match &credential.login {
                Login::Password { user, .. } => user.clone(),
                other => other.kind().to_owned(),
            };
            ready.iter().map(user).collect::<Vec<_>>().join(", ")
        }
    }
}

async fn until(offers: &mut Offers, expected: &str) {
    let found = tokio::time::timeout(LIMIT, offers.wait_for(|offer| shown(offer) == expected)).await.map(drop);
    assert!(found.is_ok(), "{expected}: the last offer: {}", shown(&offers.borrow()));
}

const WITHOUT_C: &str = "missing: Secret ns/n has no entry for server \"c\"; expected the keys c.username and \
                         c.password; servers it has: a, b";

const VC: [(&str, &str); 4] = [("a.username", "ua"), ("a.password", "p"), ("b.username", "ub"), ("b.password", "p")];

#[tokio::test(start_paused = true)]
async fn a_pair_in_the_file_is_offered_at_once_and_no_secret_is_asked_for() {
    let world = World::new("[Global]\nuser = u\npassword = p\n[VirtualCenter \"a\"]\n", &VC);
    assert_eq!(shown(&world.offers("a").borrow()), "u");
    tokio::time::sleep(LIMIT).await;
    assert_eq!(world.asked.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn w24_entries_of_one_secret_share_one_watch() {
    let text = [with_secret("a", "a", "n"), with_secret("b", "b", "n"), with_secret("c", "c", "n")].concat();
    let world = World::new(&text, &VC);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|key| world.offers(key));
    assert_eq!(shown(&a.borrow()), "pending: Secret ns/n has not been read yet", "W20 W25");
    until(&mut a, "ua").await;
    until(&mut b, "ub").await;
    until(&mut c, WITHOUT_C).await;
    assert_eq!(world.asked.counts(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_not_configured_any_more_is_followed_until_nobody_listens() {
    let mut world = World::new(&with_secret("a", "a", "n"), &VC);
    let mut old = world.offers("a");
    until(&mut old, "ua").await;
    world.config = config(&with_secret("b", "b", "other"));
    let mut new = world.offers("b");
    until(&mut new, "missing: Secret ns/other: it does not exist").await;
    assert!(world.followed().contains(&"Secret ns/n".to_owned()), "somebody still listens: {:?}", world.followed());
    drop(old);
    tokio::time::sleep(LINGER * 2).await;
    let default = format!("directory {}", world.default_directory.path().display());
    assert_eq!(world.followed(), ["Secret ns/other", &default]);
}

#[tokio::test(start_paused = true)]
async fn another_server_under_the_same_key_never_sees_the_credentials_of_the_one_before() {
    let mut world = World::new(&with_secret("key", "a", "n"), &VC);
    let mut old = world.offers("key");
    until(&mut old, "ua").await;
    world.config = config(&with_secret("key", "b", "n"));
    let mut new = world.offers("key");
    assert_eq!(shown(&new.borrow()), "ub");
    assert_eq!(shown(&old.borrow()), "ua");
    // A change of the credential source for the same server updates the existing offers.
    world.config = config("[VirtualCenter \"key\"]\nserver = b\nuser = inline\npassword = p\n");
    let again = world.offers("key");
    assert_eq!((shown(&again.borrow()), shown(&new.borrow_and_update())), ("inline".to_owned(), "inline".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn w16_the_default_directory_serves_where_the_secret_has_nothing() {
    let world = World::new(&with_secret("c", "c", "n"), &VC);
    let mut offers = world.offers("c");
    until(&mut offers, WITHOUT_C).await;
    for (name, content) in [("c.username", "from the directory\n"), ("c.password", "p\n")] {
        std::fs::write(world.default_directory.path().join(name), content).unwrap();
    }
    until(&mut offers, "from the directory").await;
}

#[tokio::test(start_paused = true)]
async fn w23_a_directory_of_the_configuration_is_found_when_it_appears() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secrets");
    let text = format!("[Global]\nsecrets-directory = {}\n[VirtualCenter \"a\"]\n", path.display());
    let world = World::new(&text, &VC);
    let mut offers = world.offers("a");
    until(&mut offers, &format!("missing: directory {}: it does not exist", path.display())).await;
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("a.username"), "u").unwrap();
    std::fs::write(path.join("a.password"), "p").unwrap();
    until(&mut offers, "u").await;
    std::fs::remove_dir_all(&path).unwrap();
    tokio::time::sleep(LIMIT).await;
    assert_eq!(shown(&offers.borrow()), "u", "S22 the last credentials stay");
}

const SHARED: [(&str, &str); 4] = [("a.username", "ua"), ("a.password", "p"), ("username", "un"), ("password", " p\n")];

fn nsx(server: &str, credentials: Configured) -> CredentialSettings {
    CredentialSettings { entry: None, server: server.into(), port: 443, credentials, fallback: None }
}

fn of_the_secret() -> Configured {
    Configured::Stored(SourceLocation::Secret { namespace: "ns".into(), name: "n".into() })
}

fn password(offers: &Offers) -> String {
    match &**offers.borrow() {
        CredentialState::Ready(ready) => match &ready[0].login {
            Login::Password { password, .. } => password.expose_secret().to_owned(),
            other => panic!("{}", other.kind()),
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_a_vcenter_and_of_nsx_is_watched_once_in_either_order() {
    for nsx_is_late in [false, true] {
        let world = World::new(&with_secret("a", "a", "n"), &SHARED);
        let mut a = world.offers("a");
        if nsx_is_late {
            until(&mut a, "ua").await;
        }
        let mut offers = world.credentials.offers(nsx("nsx", of_the_secret()));
        until(&mut offers, "un").await;
        until(&mut a, "ua").await;
        assert_eq!(password(&offers), " p\n", "as it is");
        let expected =
            Some(crate::cloud::login_ledger::SecretVersion { uid: "uid".into(), resource_version: "7".into() });
        let CredentialState::Ready(ready) = &**offers.borrow() else { panic!("it is ready") };
        assert_eq!(ready[0].origin.secret_version(), expected);
        assert_eq!(world.asked.counts(), (1, 1), "{nsx_is_late}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_nsx_alone_is_followed_while_somebody_listens() {
    let world = World::new("[Global]\nuser = u\npassword = p\n[VirtualCenter \"a\"]\n", &SHARED);
    let mut offers = world.credentials.offers(nsx("nsx", of_the_secret()));
    assert_eq!(shown(&offers.borrow()), "pending: Secret ns/n has not been read yet");
    until(&mut offers, "un").await;
    tokio::time::sleep(LINGER * 2).await;
    assert_eq!(world.followed(), ["Secret ns/n"]);
    drop(offers);
    tokio::time::sleep(LINGER * 2).await;
    let known = world.credentials.known.lock();
    assert!(known.sources.is_empty() && known.entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn other_credentials_in_the_file_reach_the_same_offers_and_no_other_manager() {
    let world = World::new("[Global]\nuser = u\npassword = p\n[VirtualCenter \"a\"]\n", &SHARED);
    let of = |server: &str, user: &str| nsx(server, Configured::Inline { user: user.into(), password: "p".into() });
    let mut offers = world.credentials.offers(of("nsx", "one"));
    assert_eq!(shown(&offers.borrow_and_update()), "one");
    let other = world.credentials.offers(of("other", "two"));
    assert_eq!((shown(&other.borrow()), offers.has_changed().unwrap()), ("two".to_owned(), false));
    let again = world.credentials.offers(of("nsx", "three"));
    assert_eq!((shown(&again.borrow()), shown(&offers.borrow())), ("three".to_owned(), "three".to_owned()));
    tokio::time::sleep(LIMIT).await;
    assert_eq!(world.asked.counts(), (0, 0));
    // From now on the credentials come from a Secret.
    drop(world.credentials.offers(nsx("nsx", of_the_secret())));
    until(&mut offers, "un").await;
    assert_eq!(shown(&other.borrow()), "two");
}

/// The warning names each session manager that gets the token of the service account.
#[test]
fn a_session_manager_is_named_if_the_service_accounts_token_is_sent_there() {
    let account = || SessionToken::ServiceAccount(Arc::new(AccountToken(PathBuf::from(TOKEN_PATH))));
    let shared = |url: &str, token| {
        let login = Login::SharedSession { url: url.to_owned(), token };
        Arc::new(Credential { login, origin: Origin::Config })
    };
    let offer = CredentialState::Ready(vec![
        shared("https://own-token.test/", SessionToken::Given("secret".into())),
        shared("http://plain.test/tickets", account()),
        shared("https://user:hunter2@first.test:8443/tickets?key=hunter2", account()),
        shared("http://127.0.0.1:8080/", account()),
        shared("https://second.test/", account()),
    ]);
    let named: Vec<String> = trusted_managers(&offer).into_keys().collect();
    assert_eq!(named, ["http://127.0.0.1:8080", "https://first.test:8443", "https://second.test:443"]);
    assert!(trusted_managers(&CredentialState::Pending { reason: String::new() }).is_empty());
}

#[tokio::test]
async fn a_session_manager_without_a_token_gets_that_of_the_file() {
    let url = ("a.vc-session-manager-url", "https://manager.test/");
    let world = World::new(&with_secret("a", "a", "n"), &[url]);
    std::fs::write(world.default_directory.path().join("session-manager-token"), "own").unwrap();
    let mut offers = world.offers("a");
    let offer = offers.wait_for(|offer| matches!(**offer, CredentialState::Ready(_))).await.unwrap().clone();
    let CredentialState::Ready(ready) = &*offer else { panic!("{}", shown(&offer)) };
    let Login::SharedSession { token: SessionToken::ServiceAccount(token), .. } = &ready[0].login else {
        panic!("{}", ready[0].login.kind())
    };
    assert_eq!(token.read().await.unwrap().expose_secret(), "own");
}

#[tokio::test]
async fn the_token_is_read_anew_at_each_use_and_a_failure_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let token = AccountToken(path.clone());
    let failed = |reason: &str| format!("the token for session managers {} cannot be read: {reason}", path.display());
    assert!(token.read().await.unwrap_err().starts_with(&failed("No such file")));
    for (content, expected) in [("one\n", "one"), ("another", "another")] {
        std::fs::write(&path, content).unwrap();
        assert_eq!(token.read().await.unwrap().expose_secret(), expected);
    }
    for (content, why) in [(&b"\n"[..], "it is empty"), (b"\xff", "it is not text")] {
        std::fs::write(&path, content).unwrap();
        assert_eq!(token.read().await.unwrap_err(), failed(why));
    }
}
