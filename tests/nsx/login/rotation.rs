//! Credentials that change during calls.

use std::sync::Arc;
use std::time::Duration;

use ccm::clients::nsx::Kind;
use ccm::providers::vsphere::login::credentials::CredentialState;
use support::fake_nsx::{Model, Sessions, Side, Trouble};

use crate::world::{GATEWAY, Proof, World, advance};

const NEW: &str = "Another-Horse-8";

#[tokio::test]
async fn a_rotation_makes_one_login_and_the_old_session_is_ended_30_s_later() {
    let world = World::start(Model::small()).await;
    world.get(GATEWAY).await.unwrap();
    // A call in flight keeps its session.
    let hold = world.nsx.hold(1, Side::Request);
    let (written, ()) = tokio::join!(world.patch("r"), async {
        hold.wait().await;
        world.nsx.set_password("admin", NEW);
        world.offer(NEW, 2);
        world.until("the login is made", |world| world.sessions() == 2).await;
        hold.release();
    });
    written.unwrap();
    world.get(GATEWAY).await.unwrap();
    assert_eq!((world.logins(), world.sessions()), (2, 2));
    advance(Duration::from_secs(31)).await;
    world.until("the old session is ended", |world| world.sessions() == 1).await;
    world.get(GATEWAY).await.unwrap();
    // The same credentials with another version cause no new login.
    world.offer(NEW, 3);
    world.get(GATEWAY).await.unwrap();
    advance(Duration::from_secs(31)).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!((world.logins(), world.sessions()), (2, 1));
    assert_eq!(world.stop().await.counts().sessions, 0);
}

#[tokio::test]
async fn the_end_does_not_wait_for_the_old_session_and_ends_both() {
    let world = World::start(Model::small()).await;
    world.get(GATEWAY).await.unwrap();
    world.nsx.set_password("admin", NEW);
    world.offer(NEW, 2);
    world.until("the login is made", |world| world.sessions() == 2).await;
    assert_eq!(world.stop().await.counts().sessions, 0);
}

#[tokio::test]
async fn new_credentials_that_are_refused_leave_the_session_and_the_next_ones_are_taken() {
    let world = World::start(Model::small()).await;
    world.get(GATEWAY).await.unwrap();
    world.offer("a typing mistake", 2);
    world.until("the refusal is shown", |world| world.gate.facts().rejected_credentials.is_some()).await;
    world.get(GATEWAY).await.unwrap();
    let facts = world.gate.facts();
    assert!(facts.is_logged_in && !format!("{facts:?}").contains("typing"), "{facts:?}");
    assert_eq!((world.logins(), world.sessions()), (2, 1));
    advance(Duration::from_secs(60)).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.logins(), 2, "what was refused is not tried again within a minute");
    world.nsx.set_password("admin", NEW);
    world.offer(NEW, 3);
    world
        .until("the login is made", |world| world.logins() == 3 && world.gate.facts().rejected_credentials.is_none())
        .await;
    world.get(GATEWAY).await.unwrap();
}

#[tokio::test]
async fn a_rotation_that_the_manager_does_not_answer_leaves_the_session() {
    let world = World::start(Model::small()).await;
    world.get(GATEWAY).await.unwrap();
    world.nsx.every("session create", Trouble::overloaded());
    world.nsx.set_password("admin", NEW);
    world.offer(NEW, 2);
    world.until("the try is shown", |world| world.gate.facts().rejected_credentials.is_some()).await;
    world.get(GATEWAY).await.unwrap();
    world.nsx.clear();
    advance(Duration::from_secs(2)).await;
    world.until("the login is made", |world| world.gate.facts().rejected_credentials.is_none()).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.sessions(), 2);
}

#[tokio::test]
async fn a_rotation_while_the_session_is_over_makes_one_login() {
    let world = World::start(Model::small()).await;
    world.get(GATEWAY).await.unwrap();
    world.nsx.reset_counts();
    world.nsx.delay_calls(Duration::from_millis(200));
    world.nsx.set_password("admin", NEW);
    world.offer(NEW, 2);
    world.until("the login has come", |world| world.logins() == 1).await;
    // As a call does that finds an expired session.
    world.client.take();
    world.get(GATEWAY).await.unwrap();
    world.get(GATEWAY).await.unwrap();
    assert_eq!(world.logins(), 1);
}

#[tokio::test]
async fn credentials_that_are_missing_are_said_and_taken_when_they_come() {
    for sessions in [Sessions::Served, Sessions::NotAllowed] {
        let world = World::start(Model::small().sessions(sessions)).await;
        let reason = "the Secret kube-system/nsx does not exist".to_owned();
        let ready = world.offers.send_replace(Arc::new(CredentialState::Missing { reason }));
        let error = world.get(GATEWAY).await.unwrap_err();
        assert!(error.kind == Kind::Unavailable && error.to_string().contains("kube-system/nsx"), "{error}");
        assert_eq!(world.nsx.counts().total(), 0);
        world.offers.send_replace(ready);
        world.get(GATEWAY).await.unwrap();
    }
}

#[tokio::test]
async fn another_token_is_tried_beside_the_one_in_use_and_a_rejected_one_leaves_it() {
    let model = Model::small().cloud_user("ccm", "first");
    let world = World::start_as(model, Proof::Token("first")).await;
    world.nsx.set_token_life(Duration::from_secs(1000));
    world.get(GATEWAY).await.unwrap();
    let exchanges = |world: &World| world.nsx.counts().of("token authorize");
    world.offer_token("wrong");
    world.until("the token is refused", |world| world.gate.facts().rejected_credentials.is_some()).await;
    assert_eq!((exchanges(&world), world.gate.facts().is_logged_in), (3, true), "the first, the wrong, the first");
    world.get(GATEWAY).await.unwrap();
    // The daemon renews the accepted token.
    advance(Duration::from_secs(851)).await;
    world.until("the token is renewed", |world| exchanges(world) == 5).await;
    world.get(GATEWAY).await.unwrap();
    world.nsx.set_refresh_token("ccm", "second");
    world.offer_token("second");
    world.until("the new token is used", |world| world.gate.facts().rejected_credentials.is_none()).await;
    world.get(GATEWAY).await.unwrap();
    assert_eq!(exchanges(&world), 6);
}
