//! The ways to log in, on a fake NSX: with a session, with each request, with a token, with a certificate. Also
//! rotations, leadership and shutdown.

mod basic;
mod rotation;
mod sessions;

use std::time::Duration;

use ccm::clients::nsx::{Kind, LogIn as _, Scheme};
use ccm::providers::vsphere::nsx::NsxSessionStatus;
use futures::future::join_all;
use support::LoginOutcome;
use support::fake_nsx::{Behaviour, Model, Sessions, Trouble, client_identity};

use crate::world::{GATEWAY, Proof, SOON, World, advance, identity, trust};

const TOKEN: &str = "token authorize";

/// A session that ends earlier than this counts as unusable.
pub const SHORT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn one_session_serves_all_calls_and_the_end_logs_out() {
    for (name, behaviour) in Behaviour::ALL {
        let world = World::start(Model::small().behaviour(behaviour)).await;
        assert_eq!(world.nsx.counts().total(), 0, "{name}: nothing is sent before a call");
        for result in join_all((0..30).map(|_| world.get(GATEWAY))).await {
            assert_eq!(result.unwrap().path(), GATEWAY, "{name}");
        }
        assert_eq!((world.logins(), world.sessions()), (1, 1), "{name}");
        let request = world.nsx.requests().pop().unwrap();
        assert!(
            request.header("cookie").unwrap().starts_with("JSESSIONID=") && request.header("x-xsrf-token").is_some()
        );
        assert_eq!(request.header("authorization"), None, "{name}");
        assert!(world.gate.facts().is_logged_in);
        let nsx = world.stop().await;
        assert_eq!((nsx.counts().sessions, nsx.counts().of("session destroy")), (0, 1), "{name}");
    }
}

// vectors: W-02
#[tokio::test]
async fn w_02_a_remote_user_logs_in_by_its_own_scheme() {
    let expected = Some("Remote YWRtaW46c2VjcmV0");
    let model = Model::small().remote_user("admin", "secret");
    let world = World::start_as(model, Proof::Password(Scheme::Remote)).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.nsx.requests().first().unwrap().header("authorization"), expected);
    assert_eq!(world.nsx.requests().last().unwrap().header("authorization"), None, "the session is enough");
    assert_eq!(world.stop().await.counts().sessions, 0);
    let model = Model::small().remote_user("ccm@corp.local", "p+a%s&s=ö").sessions(Sessions::Served);
    let world = World::start_as(model, Proof::Password(Scheme::Remote)).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.sessions(), 1);
    let model = Model::small().remote_user("admin", "secret").sessions(Sessions::NotFound);
    let world = World::start_as(model, Proof::Password(Scheme::Remote)).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.nsx.requests().last().unwrap().header("authorization"), expected);
}

#[tokio::test]
async fn a_session_that_the_manager_ended_costs_one_more_and_the_call_is_repeated_once() {
    for (name, behaviour) in Behaviour::ALL {
        let world = World::start(Model::small().behaviour(behaviour)).await;
        world.get(GATEWAY).await.unwrap();
        world.nsx.kill_sessions();
        world.nsx.reset_counts();
        let results = join_all((0..20).map(|number| {
            let world = &world;
            async move {
                if number % 2 == 0 {
                    world.get(GATEWAY).await.map(drop)
                } else {
                    world.patch(&format!("r{number}")).await
                }
            }
        }));
        for result in results.await {
            result.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert_eq!((world.logins(), world.sessions()), (1, 1), "{name}");
        // The second refusal is final. It does not count against the account, because the login was accepted.
        for refusal in [Trouble::expired(), Trouble::rejected(), Trouble::error(403, Some(98))] {
            advance(SHORT).await;
            world.nsx.every("GET tier-1s", refusal);
            world.nsx.reset_counts();
            let error = world.get(GATEWAY).await.unwrap_err();
            assert_eq!(error.kind, Kind::SessionOver, "{name}: {error}");
            let text = error.to_string();
            assert!(text.contains("accepts the login") && text.matches(GATEWAY).count() == 1, "{name}: {text}");
            assert_eq!((world.nsx.counts().of("GET tier-1s"), world.logins()), (2, 1), "{name}");
            world.nsx.clear();
            world.get(GATEWAY).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let attempts = world.nsx.login_attempts();
        assert!(attempts.iter().all(|attempt| attempt.outcome == LoginOutcome::Accepted), "{name}: {attempts:?}");
    }
}

// vectors: W-03
#[tokio::test]
async fn w_03_a_token_is_exchanged_renewed_at_85_percent_and_replaced_once_when_it_is_refused() {
    for (name, behaviour) in Behaviour::ALL {
        let model = Model::small().cloud_user("ccm", "a+b&c=d").behaviour(behaviour);
        let world = World::start_as(model, Proof::Token("a+b&c=d")).await;
        world.nsx.set_token_life(Duration::from_secs(1000));
        world.get(GATEWAY).await.unwrap();
        let exchange = world.nsx.requests().first().unwrap().clone();
        let expected = (TOKEN, "refresh_token=a%2Bb%26c%3Dd");
        assert_eq!((exchange.operation.as_str(), exchange.body.as_str()), expected, "{name}");
        let token = |world: &World| {
            let request = world.nsx.requests().pop().unwrap();
            assert_eq!((request.header("authorization"), request.header("cookie")), (None, None), "{name}");
            request.header("csp-auth-token").unwrap().to_owned()
        };
        let first = token(&world);
        advance(Duration::from_secs(840)).await;
        world.get(GATEWAY).await.unwrap();
        assert_eq!((token(&world), world.nsx.counts().of(TOKEN)), (first.clone(), 1), "{name}");
        advance(Duration::from_secs(11)).await;
        world.until("the token is renewed", |world| world.nsx.counts().of(TOKEN) == 2).await;
        // The rest of the first token's validity covers a renewal in flight.
        advance(Duration::from_secs(1)).await;
        world.get(GATEWAY).await.unwrap();
        world.nsx.revoke_tokens();
        world.get(GATEWAY).await.unwrap();
        assert_eq!(world.nsx.counts().of(TOKEN), 3, "{name}");
        assert_ne!(token(&world), first, "{name}");
        // A rejected refresh token leaves the access token valid.
        world.nsx.set_refresh_token("ccm", "another");
        advance(Duration::from_secs(851)).await;
        world.until("the renewal is refused", |world| world.gate.facts().rejected_credentials.is_some()).await;
        world.get(GATEWAY).await.unwrap();
        assert_eq!(world.sessions(), 0, "{name}");
    }
}

#[tokio::test]
async fn a_fresh_token_that_nsx_refuses_is_a_rejected_login_and_pauses_the_exchange() {
    for refusal in [Trouble::expired(), Trouble::rejected()] {
        let model = Model::small().cloud_user("ccm", "refresh");
        let world = World::start_as(model, Proof::Token("refresh")).await;
        world.get(GATEWAY).await.unwrap();
        world.nsx.every("GET tier-1s", refusal);
        world.nsx.reset_counts();
        let error = world.get(GATEWAY).await.unwrap_err();
        assert!(error.kind == Kind::Rejected && error.to_string().contains("fresh"), "{error}");
        assert_eq!((world.nsx.counts().of("GET tier-1s"), world.nsx.counts().of(TOKEN)), (2, 1));
        for _ in 0..5 {
            let error = world.get(GATEWAY).await.unwrap_err();
            assert_eq!(error.kind, Kind::Rejected, "{error}");
        }
        assert!(world.nsx.counts().of(TOKEN) <= 2, "{:?}", world.nsx.counts());
        assert!(!world.gate.facts().is_logged_in);
        world.nsx.clear();
        advance(Duration::from_secs(120)).await;
        world.get(GATEWAY).await.unwrap();
    }
}

#[tokio::test]
async fn a_portal_in_place_of_the_token_service_is_no_answer_and_pauses_the_exchange() {
    let model = Model::small().cloud_user("ccm", "refresh");
    let world = World::start_as(model, Proof::Token("refresh")).await;
    world.nsx.every(TOKEN, Trouble::portal());
    let error = world.get(GATEWAY).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    assert!(!format!("{error} {error:?}").contains("refresh"), "{error}");
    // Calls do not exchange tokens more often than the backoff permits.
    for _ in 0..5 {
        world.get(GATEWAY).await.unwrap_err();
    }
    assert!(world.nsx.counts().of(TOKEN) <= 2, "{:?}", world.nsx.counts());
    world.nsx.clear();
    advance(Duration::from_secs(120)).await;
    world.get(GATEWAY).await.unwrap();
}

#[tokio::test]
async fn a_client_certificate_is_all_there_is_and_another_one_is_taken_without_a_restart() {
    for (name, behaviour) in Behaviour::ALL {
        let (certificate, key) = client_identity("ccm");
        let model = Model::small().principal("ccm", &certificate).behaviour(behaviour);
        let world = World::start_as(model, Proof::Certificate(certificate, key)).await;
        world.get(GATEWAY).await.unwrap();
        let request = world.nsx.requests().pop().unwrap();
        for header in ["authorization", "cookie", "x-xsrf-token", "csp-auth-token"] {
            assert_eq!(request.header(header), None, "{name}");
        }
        let (certificate, key) = client_identity("ccm");
        world.nsx.set_principal("ccm", &certificate);
        let error = world.get(GATEWAY).await.unwrap_err();
        let expected = if behaviour.distrusts_with_99 { Kind::Unavailable } else { Kind::Rejected };
        assert_eq!(error.kind, expected, "{name}: {error}");
        let mut tls = trust(world.nsx.ca_pem());
        tls.identity = Some(identity(&certificate, &key));
        world.http.set_tls(tls).unwrap();
        world.get(GATEWAY).await.unwrap();
        world.patch("r").await.unwrap();
        assert_eq!((world.logins(), world.sessions()), (0, 0), "{name}");
        // A token that is never accepted causes no constant retries.
        for refusal in [Trouble::expired(), Trouble::rejected()] {
            world.nsx.every("GET tier-1s", refusal);
            world.nsx.reset_counts();
            assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::Rejected, "{name}");
            assert_eq!(world.nsx.counts().total(), 1, "{name}");
            let NsxSessionStatus { is_logged_in, failure, .. } = world.gate.facts();
            assert!(!is_logged_in && failure.is_some_and(|why| why.contains("certificate")), "{name}");
            world.nsx.clear();
        }
        world.get(GATEWAY).await.unwrap();
        assert_eq!(
            world.gate.facts(),
            NsxSessionStatus { is_logged_in: true, ..NsxSessionStatus::default() },
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_late_refusal_of_a_certificate_or_token_leaves_the_next_login_as_it_is() {
    let (certificate, key) = client_identity("ccm");
    let model = || Model::small().principal("ccm", &certificate).cloud_user("ccm", "refresh");
    for proof in [Proof::Certificate(certificate.clone(), key), Proof::Token("refresh")] {
        let world = World::start_as(model(), proof).await;
        world.get(GATEWAY).await.unwrap();
        let first = world.client.login().unwrap();
        for _ in 0..2 {
            world.nsx.next("GET tier-1s", Trouble::rejected());
        }
        world.get(GATEWAY).await.unwrap_err();
        assert!(!world.gate.facts().is_logged_in);
        advance(Duration::from_secs(120)).await;
        world.nsx.clear();
        world.get(GATEWAY).await.unwrap();
        // Another call used the first login, and its answer arrives last.
        let refused = world.gate.log_in_otherwise(&world.client, &first).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Rejected);
        assert_eq!(world.gate.facts(), NsxSessionStatus { is_logged_in: true, ..NsxSessionStatus::default() });
    }
}

#[tokio::test]
async fn a_connection_that_the_certificate_is_not_trusted_on_is_replaced_once() {
    let distrusted = || Trouble::error(500, Some(99));
    let (certificate, key) = client_identity("ccm");
    let model = Model::small().principal("ccm", &certificate);
    let world = World::start_as(model, Proof::Certificate(certificate, key)).await;
    world.get(GATEWAY).await.unwrap();
    for operation in ["GET tier-1s", "PATCH static-routes"] {
        world.nsx.reset_counts();
        world.nsx.next(operation, distrusted());
        match operation {
            "GET tier-1s" => world.get(GATEWAY).await.map(drop),
            _ => world.patch("r").await,
        }
        .unwrap();
        let connections: Vec<u16> = world.nsx.requests().iter().map(|request| request.client_port).collect();
        assert!(connections.len() == 2 && connections[0] != connections[1], "{operation}: {connections:?}");
    }
    world.nsx.reset_counts();
    world.nsx.every("GET tier-1s", distrusted());
    assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::Unavailable);
    assert_eq!(world.nsx.counts().total(), 2);
    // For a session the code has no meaning.
    let world = World::start(Model::small()).await;
    world.get(GATEWAY).await.unwrap();
    world.nsx.reset_counts();
    world.nsx.every("GET tier-1s", distrusted());
    assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::Unavailable);
    assert_eq!(world.nsx.counts().total(), 1);
}

#[tokio::test]
async fn a_standby_makes_no_request_and_who_loses_the_lead_logs_out() {
    let world = World::start(Model::small()).await;
    world.leads.send_replace(false);
    for _ in 0..3 {
        assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::NotPermitted);
    }
    world.offer("Another-Horse-8", 2);
    assert_eq!(world.patch("r").await.unwrap_err().kind, Kind::NotPermitted);
    assert_eq!(world.nsx.counts().total(), 0);
    world.offer("Correct-Horse-7", 3);
    world.leads.send_replace(true);
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.sessions(), 1);
    world.leads.send_replace(false);
    world.until("the session is ended", |world| world.sessions() == 0).await;
    world.until("the login is left", |world| world.client.login().is_none()).await;
    // A former leader does not try new credentials.
    let before = world.nsx.counts().total();
    world.nsx.set_password("admin", "Another-Horse-8");
    world.offer("Another-Horse-8", 4);
    for _ in 0..3 {
        assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::NotPermitted);
    }
    advance(Duration::from_secs(60)).await;
    assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::NotPermitted);
    assert_eq!(world.nsx.counts().total(), before);
    // The process leads again, and logs in with the current password.
    world.leads.send_replace(true);
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.stop().await.counts().sessions, 0);
}

#[tokio::test]
async fn two_leads_share_one_session_which_ends_with_the_last_of_them() {
    let world = World::start(Model::small()).await;
    let counts = |world: &World| (world.logins(), world.sessions(), world.nsx.counts().of("session destroy"));
    world.get(GATEWAY).await.unwrap();
    // Routes and load balancers may run under different Leases.
    for (lead, leading) in
        [(&world.other_leads, true), (&world.leads, false), (&world.leads, true), (&world.other_leads, false)]
    {
        lead.send_replace(leading);
        for _ in 0..3 {
            world.get(GATEWAY).await.unwrap();
        }
        assert_eq!(counts(&world), (1, 1, 0));
    }
    world.leads.send_replace(false);
    world.until("the session is ended", |world| counts(world) == (1, 0, 1)).await;
    assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::NotPermitted);
    // Leadership of the other controller alone also keeps a session.
    world.other_leads.send_replace(true);
    world.get(GATEWAY).await.unwrap();
    assert_eq!(counts(&world), (2, 1, 1));
}

#[tokio::test]
async fn a_login_that_is_under_way_at_the_end_is_logged_out_too_and_calls_fail_at_once_after_it() {
    for is_stop in [true, false] {
        let mut world = World::start(Model::small()).await;
        world.nsx.next("session create", Trouble::Late(Duration::from_millis(300)));
        let call = {
            let client = world.client.clone();
            tokio::spawn(async move { client.get(GATEWAY, "test.get").await })
        };
        world.until("the login has come", |world| world.logins() == 1).await;
        if is_stop {
            world.end().await;
            assert_eq!(world.sessions(), 0);
            for _ in 0..3 {
                let result = tokio::time::timeout(SOON / 6, world.get(GATEWAY)).await.expect("it fails at once");
                assert_eq!(result.unwrap_err().kind, Kind::Unavailable);
            }
        } else {
            world.leads.send_replace(false);
            world.until("the session is ended", |world| world.nsx.counts().of("session destroy") == 1).await;
            assert_eq!(world.sessions(), 0);
        }
        drop(call.await.unwrap());
        assert_eq!(world.logins(), 1);
    }
}

#[tokio::test]
async fn a_manager_that_names_a_time_gets_no_login_before_it() {
    let world = World::start(Model::small()).await;
    world.nsx.every("session create", Trouble::overloaded().header("Retry-After", "120"));
    assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::Busy);
    advance(Duration::from_secs(60)).await;
    world.get(GATEWAY).await.unwrap_err();
    assert_eq!(world.logins(), 1);
    world.nsx.clear();
    advance(Duration::from_secs(61)).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.logins(), 2);
}
