//! Tests of credentials, sessions, tokens, certificates, roles (S1).

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Identity, Method, RequestBuilder};
use serde_json::{Value, json};
use support::LoginOutcome;
use support::fake_nsx::{Balance, Behaviour, DeadSession, FakeNsx, Model, Sessions, Trouble, client_identity};

use super::{DENIED, Manager, answer, assert_refused, client, refusal, route};

const PROBE: &str = "/infra/tier-1s/t1";

fn plain(manager: &Manager) -> RequestBuilder {
    manager.http.get(format!("{}{PROBE}", manager.fake.url()))
}

fn creation(manager: &Manager, user: &str, password: &str) -> RequestBuilder {
    manager
        .http
        .post(format!("https://{}/api/session/create", manager.fake.address()))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("j_username={user}&j_password={password}"))
}

/// Opens a session. Returns its cookie and token.
async fn create_session(manager: &Manager) -> (String, String) {
    let answer = creation(manager, &manager.user, &manager.password).send().await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
    session_of(answer.headers())
}

fn session_of(headers: &HeaderMap) -> (String, String) {
    let cookie = headers["set-cookie"].to_str().unwrap();
    assert!(cookie.ends_with("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    assert!(cookie.starts_with("JSESSIONID="), "{cookie}");
    (cookie, headers["x-xsrf-token"].to_str().unwrap().to_owned())
}

fn in_session(request: RequestBuilder, (cookie, token): &(String, String)) -> RequestBuilder {
    request.header("cookie", cookie).header("x-xsrf-token", token)
}

#[tokio::test]
async fn passwords_are_accepted_in_the_scheme_of_the_user() {
    let manager = Manager::start(Model::small().remote_user("ccm@corp.local", "p+a%s&s")).await;
    assert_eq!(manager.user, "ccm@corp.local");
    // W-02.
    let remote = "Remote Y2NtQGNvcnAubG9jYWw6cCthJXMmcw==";
    assert_eq!(answer(plain(&manager).header("authorization", remote)).await.0, 200);
    assert_refused(&manager.get(PROBE).await, 403, 403, "credentials");
    let created = creation(&manager, "ccm%40corp.local", "p%2Ba%25s%26s").header("authorization", remote);
    let session = session_of(created.send().await.unwrap().headers());
    assert_eq!(answer(in_session(plain(&manager), &session)).await.0, 200);
    let without = answer(creation(&manager, "ccm%40corp.local", "p%2Ba%25s%26s")).await;
    assert_refused(&without, 403, 403, "credentials");
    let manager = manager.with_user("admin", "Correct-Horse-7");
    assert_eq!(manager.get(PROBE).await.0, 200);
    let attempts = manager.fake.login_attempts();
    let outcomes: Vec<LoginOutcome> = attempts.iter().map(|attempt| attempt.outcome).collect();
    use LoginOutcome::{Accepted, Rejected};
    assert_eq!(outcomes, [Accepted, Rejected, Accepted, Rejected, Accepted]);
    manager.fake.next("LIST tier-1s", Trouble::throttled());
    manager.get("/infra/tier-1s").await;
    assert_eq!(manager.fake.login_attempts().last().unwrap().outcome, LoginOutcome::TurnedAway);
}

#[tokio::test]
async fn a_session_needs_its_token_and_ends() {
    let rejected = (403, 403, "credentials");
    let bad_token = (403, 98, "XSRF");
    for (behaviour, expired, without_token) in [
        (Behaviour::USUAL, (403, Some(403)), rejected),
        (Behaviour::OPPOSITE, (403, Some(98)), bad_token),
        (Behaviour::THIRD, (401, Some(401)), bad_token),
    ] {
        let manager = Manager::behaving(behaviour).await;
        let session = create_session(&manager).await;
        let probe = || plain(&manager);
        assert_eq!(answer(in_session(probe(), &session)).await.0, 200);
        let (status, code, text) = without_token;
        assert_refused(&answer(probe().header("cookie", &session.0)).await, status, code, text);
        let wrong = (session.0.clone(), "wrong".to_owned());
        assert_refused(&answer(in_session(probe(), &wrong)).await, status, code, text);
        let destroy = manager.http.post(format!("https://{}/api/session/destroy", manager.fake.address()));
        assert_eq!(answer(in_session(destroy, &session)).await.0, 200);
        assert_eq!(refusal(&answer(in_session(probe(), &session)).await), expired);
        let killed = create_session(&manager).await;
        manager.fake.kill_sessions_of("somebody");
        assert_eq!((manager.fake.counts().sessions, answer(in_session(probe(), &killed)).await.0), (1, 200));
        manager.fake.kill_sessions_of("admin");
        assert_eq!(refusal(&answer(in_session(probe(), &killed)).await), expired);
        let idle = create_session(&manager).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1800)).await;
        tokio::time::resume();
        assert_eq!(refusal(&answer(in_session(probe(), &idle)).await), expired);
        let ended = create_session(&manager).await;
        for _ in 0..2 {
            manager.fake.next("GET tier-1s", Trouble::EndSession);
        }
        assert_eq!(refusal(&answer(in_session(probe(), &ended)).await), expired);
        assert_eq!((manager.fake.counts().sessions, manager.get(PROBE).await.0), (0, 200), "a call without a session");
        assert_eq!(manager.fake.counts().of("session create"), 4);
    }
}

#[tokio::test]
async fn a_session_belongs_to_the_manager_of_the_cluster_that_made_it() {
    let manager = Manager::start(Model::small().managers(3)).await;
    let (fake, probe) = (&manager.fake, || plain(&manager));
    let session = create_session(&manager).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(answer(in_session(probe(), &session)).await.0);
    }
    assert_eq!(statuses, [403, 403, 200, 403, 403, 200], "each manager in turn");
    let managers: Vec<usize> = fake.requests().iter().map(|request| request.manager).collect();
    assert_eq!(managers, [0, 1, 2, 0, 1, 2, 0]);
    // The managers of a cluster share passwords and objects.
    let path = format!("{PROBE}/static-routes/r");
    assert_eq!(manager.put(&path, &route("10.0.0.0/8", "10.1.0.1")).await.0, 200);
    for _ in 0..3 {
        assert_eq!(manager.get(&path).await.0, 200);
    }
    // A virtual IP belongs to one manager at a time.
    for (at, status) in [(0, 200), (2, 403), (0, 200)] {
        fake.balance(Balance::To(at));
        assert_eq!(answer(in_session(probe(), &session)).await.0, status, "at {at}");
    }
    fake.set_failing(0, true);
    assert_refused(&answer(in_session(probe(), &session)).await, 503, 101, "appliance components");
    fake.balance(Balance::To(1));
    assert_eq!(manager.get(&path).await.0, 200, "the others work");
    let second = create_session(&manager).await;
    fake.balance(Balance::To(0));
    fake.set_failing(0, false);
    assert_eq!(answer(in_session(probe(), &session)).await.0, 200);
    fake.kill_sessions_at(0);
    assert_eq!(answer(in_session(probe(), &session)).await.0, 403);
    fake.balance(Balance::To(1));
    assert_eq!((answer(in_session(probe(), &second)).await.0, fake.counts().sessions), (200, 1));
}

#[tokio::test]
async fn wrong_credentials_are_refused() {
    for (behaviour, status) in [(Behaviour::USUAL, 403), (Behaviour::OPPOSITE, 401)] {
        let manager = Manager::behaving(behaviour).await;
        assert_refused(&answer(plain(&manager)).await, 401, 401, "no credentials");
        assert_refused(&answer(creation(&manager, "admin", "wrong")).await, status, 403, "credentials");
        assert_refused(&answer(creation(&manager, "nobody", "Correct-Horse-7")).await, status, 403, "credentials");
        for header in ["Basic ???", "Bearer x", "Remote YWRtaW46Q29ycmVjdC1Ib3JzZS03"] {
            assert_refused(&answer(plain(&manager).header("authorization", header)).await, status, 403, "credentials");
        }
        let with_token = answer(plain(&manager).header("csp-auth-token", "x")).await;
        match status {
            403 => assert_refused(&with_token, 403, 403, "credentials"),
            _ => assert_refused(&with_token, 401, 401, "token"),
        }
        let text = manager.http.post(format!("https://{}/api/session/create", manager.fake.address())).body("x");
        assert_refused(&answer(text).await, 415, None, "form");
        manager.fake.set_password("admin", "Another-Horse-8");
        assert_refused(&manager.get(PROBE).await, status, 403, "credentials");
        let manager = manager.with_user("admin", "Another-Horse-8");
        assert_eq!(manager.get(PROBE).await.0, 200);
    }
}

#[tokio::test]
async fn sessions_may_not_be_served_and_paths_may_have_a_prefix() {
    for (sessions, status) in [(Sessions::NotFound, 404), (Sessions::NotAllowed, 405)] {
        let manager = Manager::start(Model::small().sessions(sessions).prefix("/vmc/reverse-proxy")).await;
        assert_eq!(answer(creation(&manager, "admin", "Correct-Horse-7")).await.0, status);
        assert!(manager.fake.address().ends_with("/vmc/reverse-proxy"));
        assert_eq!(manager.get(PROBE).await.0, 200);
        let outside = format!("https://127.0.0.1:{}/policy/api/v1{PROBE}", manager.fake.port());
        assert_eq!(answer(manager.http.get(outside)).await.0, 404);
    }
}

#[tokio::test]
async fn five_rejected_logins_lock_an_account_and_tries_prolong_it() {
    let manager = Manager::start(Model::small().user("other", "Correct-Horse-9")).await;
    let advance = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    let create = async |password: &str| answer(creation(&manager, "admin", password)).await.0;
    for _ in 0..4 {
        assert_eq!(create("wrong").await, 403);
    }
    assert_eq!(create("Correct-Horse-7").await, 200, "four in a row do not lock");
    for _ in 0..5 {
        assert_eq!((create("wrong").await, create("wrong").await).0, 403);
    }
    assert!(manager.fake.is_locked("admin"));
    assert_eq!(create("Correct-Horse-7").await, 403);
    assert_eq!(manager.get(PROBE).await.0, 200, "the other user is not locked");
    advance(899).await;
    assert_eq!(create("Correct-Horse-7").await, 403);
    advance(899).await;
    assert_eq!(create("Correct-Horse-7").await, 403, "prolonged by the try");
    advance(900).await;
    assert_eq!(create("Correct-Horse-7").await, 200);
    manager.fake.set_locking(false);
    for _ in 0..6 {
        assert_eq!(create("wrong").await, 403);
    }
    assert_eq!(create("Correct-Horse-7").await, 200);
}

#[tokio::test]
async fn a_cloud_user_exchanges_a_token() {
    for (behaviour, expires_in) in [(Behaviour::USUAL, json!(1799)), (Behaviour::OPPOSITE, json!("1799"))] {
        let manager = Manager::start(Model::small().cloud_user("cloud", "refresh-1").behaviour(behaviour)).await;
        let ca = reqwest::Certificate::from_pem(manager.fake.token_ca_pem().as_bytes()).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().unwrap();
        let exchange = async |refresh: &str| {
            let request = http.post(format!("https://{}", manager.fake.token_address()));
            answer(request.body(format!("refresh_token={refresh}"))).await
        };
        assert_eq!(exchange("wrong").await.0, 400);
        let (status, token) = exchange("refresh-1").await;
        assert_eq!((status, &token["expires_in"], &token["id_token"]), (200, &expires_in, &Value::Null));
        let probe = || plain(&manager).header("csp-auth-token", token["access_token"].as_str().unwrap());
        assert_eq!(answer(probe()).await.0, 200);
        assert_eq!(manager.fake.counts().of_user("cloud", "GET tier-1s"), 1);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1799)).await;
        tokio::time::resume();
        let is_rejected = behaviour.dead_session == DeadSession::Rejected;
        let ended = if is_rejected { (403, Some(403)) } else { (401, Some(401)) };
        assert_eq!(refusal(&answer(probe()).await), ended);
        manager.fake.set_refresh_token("cloud", "refresh-2");
        assert_eq!((exchange("refresh-1").await.0, exchange("refresh-2").await.0), (400, 200));
        manager.fake.next("token authorize", Trouble::unavailable());
        assert_eq!(exchange("refresh-2").await.0, 503);
    }
}

fn with_certificate(fake: &FakeNsx, (certificate, key): &(String, String)) -> reqwest::Client {
    let identity = Identity::from_pem(format!("{key}{certificate}").as_bytes()).unwrap();
    client(fake).identity(identity).build().unwrap()
}

#[tokio::test]
async fn a_principal_shows_its_certificate() {
    for (behaviour, unknown) in [(Behaviour::USUAL, (403, 403)), (Behaviour::OPPOSITE, (500, 99))] {
        let (first, second) = (client_identity("ccm"), client_identity("ccm"));
        let manager = Manager::start(Model::small().principal("ccm", &first.0).behaviour(behaviour)).await;
        let http = with_certificate(&manager.fake, &first);
        let url = format!("{}{PROBE}/static-routes/r", manager.fake.url());
        assert_eq!(answer(http.put(&url).json(&route("10.0.0.0/8", "10.1.0.1"))).await.0, 200);
        let (_, own) = answer(http.get(&url)).await;
        assert_eq!((&own["_create_user"], &own["_protection"]), (&json!("ccm"), &json!("NOT_PROTECTED")));
        let created = http.post(format!("https://{}/api/session/create", manager.fake.address())).send().await.unwrap();
        let session = session_of(created.headers());
        assert_eq!(answer(in_session(plain(&manager), &session)).await.0, 200, "a session of the principal");
        let stranger = with_certificate(&manager.fake, &second);
        let refused = answer(stranger.get(&url)).await;
        assert_eq!(refusal(&refused), (unknown.0, Some(unknown.1)));
        manager.fake.set_principal("ccm", &second.0);
        assert_eq!(answer(stranger.get(&url)).await.0, 200);
        assert_eq!(refusal(&answer(http.get(&url)).await).0, unknown.0);
    }
}

#[tokio::test]
async fn a_role_may_lack_a_permission() {
    let manager = Manager::small().await;
    let routes = format!("{PROBE}/static-routes");
    let body = route("10.0.0.0/8", "10.1.0.1");
    let path = format!("{routes}/r");
    manager.fake.set_auditor("admin", true);
    assert_refused(&manager.put(&path, &body).await, 403, 401, DENIED);
    assert_eq!(manager.get(&routes).await.0, 200);
    manager.fake.set_auditor("admin", false);
    for what in ["static-routes", PROBE, &routes] {
        manager.fake.deny("admin", what);
        assert_refused(&manager.get(&routes).await, 403, 401, DENIED);
        assert_refused(&manager.patch(&path, &body).await, 403, 401, DENIED);
        assert_eq!(manager.get("/infra/ip-pools").await.0, 200);
        manager.fake.allow("admin", what);
    }
    manager.fake.deny_writes("admin", "static-routes");
    assert_eq!((manager.get(&routes).await.0, manager.delete(&path).await.0), (200, 403));
    manager.fake.allow("admin", "static-routes");
    assert_eq!(manager.patch(&path, &body).await.0, 200);
    manager.fake.deny("admin", "GET tier-1s");
    assert_refused(&manager.get(PROBE).await, 403, 401, DENIED);
    let version = manager.http.request(Method::GET, format!("https://{}/api/v1/node/version", manager.fake.address()));
    let (status, version) = answer(version.basic_auth(&manager.user, Some(&manager.password))).await;
    assert!(status == 200 && version["node_version"].is_string(), "{version}");
}
