//! Sessions of a cluster of managers. Each session is valid at the manager that created it only.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ccm::clients::nsx::{Kind, Scheme};
use futures::future::join_all;
use support::LoginOutcome;
use support::fake_nsx::{Balance, Behaviour, DeadSession, Model, Trouble};
use support::log::Log;

use super::SHORT;
use crate::world::{GATEWAY, Proof, World, advance};

/// Header of a request with the password.
const BASIC: &str = "Basic YWRtaW46Q29ycmVjdC1Ib3JzZS03";

/// Number of the next written object.
static WRITES: AtomicUsize = AtomicUsize::new(0);

/// Period in which an account must not get three rejections.
const CLOSE: Duration = Duration::from_secs(200);

fn with(outcome: LoginOutcome, world: &World) -> usize {
    world.nsx.login_attempts().iter().filter(|attempt| attempt.outcome == outcome).count()
}

fn has_session(world: &World) -> bool {
    world.client.login().is_some_and(|login| format!("{login:?}") == "session")
}

/// Makes reads and writes concurrently. Returns the number of failures.
async fn calls(world: &World, count: usize) -> usize {
    let call = |number: usize| async move {
        match number % 2 {
            0 => world.get(GATEWAY).await.map(drop),
            // Each write has another id, because some managers reject a write without the revision.
            _ => world.patch(&format!("r{}", WRITES.fetch_add(1, Ordering::Relaxed))).await,
        }
    };
    join_all((0..count).map(call)).await.into_iter().filter(Result::is_err).count()
}

#[tokio::test]
async fn without_affinity_user_and_password_go_with_each_request_and_no_login_is_rejected() {
    for (name, behaviour) in Behaviour::ALL {
        for managers in [2, 3] {
            let name = format!("{name}, {managers} managers");
            let log = Log::keep();
            let world = World::start(Model::small().managers(managers).behaviour(behaviour)).await;
            world.get(GATEWAY).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(calls(&world, 30).await, 0, "{name}");
            for _ in 0..10 {
                advance(CLOSE / 10).await;
                assert_eq!(calls(&world, 4).await, 0, "{name}");
            }
            let request = world.nsx.requests().pop().unwrap();
            assert_eq!((request.header("authorization"), request.header("cookie")), (Some(BASIC), None), "{name}");
            let rejected = with(LoginOutcome::Rejected, &world);
            println!("{name}: {} sessions were created, {rejected} logins were rejected", world.logins());
            assert_eq!((rejected, world.logins()), (0, 2), "{name}");
            assert!(world.gate.facts().is_logged_in && !world.nsx.is_locked("admin"), "{name}");
            assert_eq!(log.lines("has no session affinity").len(), 1, "{name}: {:?}", log.lines("WARN"));
        }
    }
}

#[tokio::test]
async fn another_term_finds_out_again_whether_sessions_serve() {
    let world = World::start(Model::small().managers(2)).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.logins(), 2);
    // The load balancer is repaired. Until then the client tries nothing.
    world.nsx.balance(Balance::To(0));
    advance(Duration::from_secs(3600)).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.logins(), 2);
    world.leads.send_replace(false);
    world.until("the login is left", |world| world.client.login().is_none()).await;
    world.leads.send_replace(true);
    world.get(GATEWAY).await.unwrap();
    assert!(has_session(&world));
    assert_eq!(world.logins(), 3);
    // Without affinity the daemon again needs two sessions.
    world.nsx.balance(Balance::InTurn);
    for _ in 0..3 {
        world.get(GATEWAY).await.unwrap();
    }
    assert!(!has_session(&world));
    assert_eq!((world.logins(), with(LoginOutcome::Rejected, &world)), (4, 0));
}

#[tokio::test]
async fn where_a_request_may_not_have_the_password_sessions_are_opened_with_pauses() {
    for (name, behaviour) in Behaviour::ALL {
        let log = Log::keep();
        let world = World::start(Model::small().managers(2).behaviour(behaviour)).await;
        // As a gateway that accepts sessions only.
        world.nsx.every("LIST sites", Trouble::rejected());
        let error = world.get(GATEWAY).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable, "{name}: {error}");
        assert!(error.to_string().contains("to the same manager"), "{name}: {error}");
        let mut failed = 0;
        for _ in 0..40 {
            advance(CLOSE / 40).await;
            failed += calls(&world, 4).await;
        }
        let rejected = with(LoginOutcome::Rejected, &world);
        println!(
            "{name}: {} sessions in 200 s, {rejected} logins rejected, {failed} of 160 calls failed",
            world.logins()
        );
        assert_eq!(rejected, 1, "{name}: the password is sent with one request");
        assert!((10..=80).contains(&world.logins()), "{name}: {}", world.logins());
        assert_eq!(log.lines("WARN").len(), 2, "{name}: {:?}", log.lines("WARN"));
        world.nsx.balance(Balance::To(1));
        advance(Duration::from_secs(15)).await;
        for _ in 0..10 {
            world.get(GATEWAY).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert!(has_session(&world), "{name}");
    }
}

#[tokio::test]
async fn a_password_that_changes_while_requests_have_it_is_rejected_twice_at_most() {
    let world = World::start(Model::small().managers(2)).await;
    world.get(GATEWAY).await.unwrap();
    world.nsx.set_password("admin", "Another-Horse-8");
    assert_eq!(calls(&world, 30).await, 30);
    for _ in 0..10 {
        advance(CLOSE / 10).await;
        calls(&world, 4).await;
    }
    let rejected = with(LoginOutcome::Rejected, &world);
    assert!((1..=2).contains(&rejected), "{rejected}");
    world.offer("Another-Horse-8", 2);
    advance(Duration::from_secs(1)).await;
    // The load balancer in front of the managers is unchanged.
    assert!(calls(&world, 40).await <= 3);
    advance(SHORT).await;
    assert_eq!(calls(&world, 40).await, 0);
    assert_eq!(with(LoginOutcome::Rejected, &world), rejected);
}

#[tokio::test]
async fn a_virtual_address_that_moves_costs_one_session_each_time_and_no_call() {
    for (name, behaviour) in Behaviour::ALL {
        let world = World::start(Model::small().managers(3).behaviour(behaviour)).await;
        for manager in [0, 1, 2, 0] {
            world.nsx.balance(Balance::To(manager));
            world.nsx.reset_counts();
            assert_eq!(calls(&world, 20).await, 0, "{name}");
            assert_eq!(world.logins(), 1, "{name}: {manager}");
            advance(SHORT).await;
        }
        assert_eq!(with(LoginOutcome::Rejected, &world), 0, "{name}");
        assert!(has_session(&world), "{name}");
    }
}

#[tokio::test]
async fn a_session_that_has_served_begins_the_count_of_short_ones_again() {
    let world = World::start(Model::small()).await;
    for _ in 0..4 {
        world.get(GATEWAY).await.unwrap();
        world.nsx.kill_sessions();
        world.get(GATEWAY).await.unwrap();
        // The second session is valid for a while.
        advance(SHORT).await;
        world.nsx.kill_sessions();
        world.get(GATEWAY).await.unwrap();
        advance(SHORT).await;
    }
    assert!(has_session(&world));
    assert_eq!((world.logins(), with(LoginOutcome::Rejected, &world)), (9, 0));
}

#[tokio::test]
async fn one_manager_that_does_not_work_costs_reads_nothing_and_its_sessions_come_back() {
    let world = World::start(Model::small().managers(2)).await;
    world.nsx.balance(Balance::To(0));
    world.get(GATEWAY).await.unwrap();
    world.nsx.set_failing(0, true);
    assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::Busy);
    world.nsx.set_failing(0, false);
    advance(SHORT).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.logins(), 1);
    // Without affinity the other manager serves, after two consecutive sessions have ended immediately.
    world.nsx.balance(Balance::InTurn);
    for _ in 0..3 {
        let _ = world.get(GATEWAY).await;
    }
    assert!(!has_session(&world));
    world.nsx.set_failing(1, true);
    for _ in 0..10 {
        world.get(GATEWAY).await.unwrap();
    }
    assert_eq!(with(LoginOutcome::Rejected, &world), 0);
}

#[tokio::test]
async fn a_remote_user_keeps_its_scheme_without_sessions() {
    let model = Model::small().remote_user("ccm@corp.local", "Correct-Horse-9").managers(2);
    let world = World::start_as(model, Proof::Password(Scheme::Remote)).await;
    assert_eq!(calls(&world, 6).await, 0);
    let request = world.nsx.requests().pop().unwrap();
    assert!(request.header("authorization").is_some_and(|value| value.starts_with("Remote ")), "{request:?}");
    assert_eq!((world.logins(), with(LoginOutcome::Rejected, &world)), (2, 0));
}

#[tokio::test]
async fn a_login_page_in_place_of_an_answer_may_mean_that_the_session_has_ended() {
    for dead_session in [DeadSession::LoginPage, DeadSession::LoginRedirect] {
        let behaviour = Behaviour { dead_session, ..Behaviour::USUAL };
        let world = World::start(Model::small().behaviour(behaviour)).await;
        world.get(GATEWAY).await.unwrap();
        advance(SHORT).await;
        world.nsx.kill_sessions();
        world.nsx.reset_counts();
        world.get(GATEWAY).await.unwrap_or_else(|error| panic!("{dead_session:?}: {error}"));
        assert_eq!((world.logins(), world.sessions()), (1, 1), "{dead_session:?}");
        // A write that got an HTML page may have been executed. The client reads the object before it repeats the
        // write.
        advance(Duration::from_secs(15 * 60)).await;
        world.nsx.kill_sessions();
        let written = world.patch("first").await;
        assert_eq!(written.is_err(), dead_session == DeadSession::LoginPage, "{dead_session:?}: {written:?}");
        world.patch("second").await.unwrap_or_else(|error| panic!("{dead_session:?}: {error}"));
        assert_eq!((world.logins(), with(LoginOutcome::Rejected, &world)), (2, 0), "{dead_session:?}");
    }
}

#[tokio::test]
async fn a_portal_before_the_manager_costs_one_login_in_15_minutes_and_the_session_stays() {
    for portal in [Trouble::portal(), Trouble::login_redirect()] {
        let world = World::start(Model::small()).await;
        world.get(GATEWAY).await.unwrap();
        advance(SHORT).await;
        world.nsx.every("*", portal);
        for _ in 0..40 {
            advance(Duration::from_secs(20)).await;
            assert_eq!(calls(&world, 4).await, 4);
        }
        assert_eq!((world.logins(), with(LoginOutcome::Rejected, &world)), (2, 0), "one before it, and one in it");
        world.nsx.clear();
        assert_eq!(calls(&world, 4).await, 0);
        assert_eq!((world.logins(), world.sessions()), (2, 1), "the session of before serves");
    }
}
