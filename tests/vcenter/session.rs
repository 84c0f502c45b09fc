//! Connection, login, logout, and sessions that end.

use std::time::Duration;

use ccm::clients::vim;
use secrecy::SecretString;
use support::{Vcenter, eventually};

use super::{UUID, https, password, pinned, scenario, soap, user_of};

const LIMIT: Duration = Duration::from_secs(20);

/// Without `sessions.go`, one in about 150 rounds fails.
const ROUNDS: u32 = 300;

#[tokio::test]
async fn a_session_begins_with_a_login_and_ends_with_the_logout() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = vim::Client::new(https(&vcenter));
    let content = client.connect().await.unwrap();
    assert_eq!(content.about.instance_uuid.as_deref(), Some(vcenter.instance_uuid()));
    assert!(content.about.is_api_at_least([8, 0, 3, 0]), "{:?}", content.about);
    assert!(!client.is_logged_in().await.unwrap());
    assert!(client.find_all_by_uuid(UUID).await.unwrap_err().is_not_authenticated());
    client.login(vcenter.user(), &password(&vcenter)).await.unwrap();
    assert_eq!(user_of(&client).await, vcenter.user());
    assert!(client.is_logged_in().await.unwrap());
    // A second login over a live session creates a new session, without an error.
    client.login(vcenter.user(), &password(&vcenter)).await.unwrap();
    client.logout().await.unwrap();
    assert!(!client.is_logged_in().await.unwrap());
    assert_eq!(vcenter.counts().await.soap_logins, 2);
}

#[tokio::test]
async fn a_wrong_password_is_an_invalid_login_and_asked_once() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = vim::Client::new(https(&vcenter));
    client.connect().await.unwrap();
    let wrong = SecretString::from("Wrong-Horse-8".to_owned());
    let error = client.login(vcenter.user(), &wrong).await.unwrap_err();
    assert!(error.is_invalid_login() && !error.is_transient(), "{error}");
    assert!(!format!("{error} {error:?}").contains("Wrong-Horse"), "{error:?}");
    assert_eq!(vcenter.counts().await.of("Login"), 1);
}

#[tokio::test]
async fn a_thumbprint_of_either_kind_is_enough_and_a_wrong_one_is_shown_beside_the_real_one() {
    let vcenter = Vcenter::start(&scenario()).await;
    for thumbprint in [vcenter.sha1_thumbprint(), vcenter.sha256_thumbprint()] {
        vim::Client::new(pinned(&vcenter, thumbprint)).connect().await.unwrap();
    }
    let wrong = "00".repeat(32);
    let error = vim::Client::new(pinned(&vcenter, &wrong)).connect().await.unwrap_err();
    assert_eq!(error.reason(), "Tls");
    let text = error.to_string();
    for part in [vcenter.sha1_thumbprint(), vcenter.sha256_thumbprint(), "00:00:00", "127.0.0.1", "govc about.cert"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

/// The simulator of govmomi neither ends the waits of a session at its logout, nor keeps a session ended while other
/// calls of it are under way. `sessions.go` in front of it does both.
#[tokio::test]
async fn a_session_stays_ended_when_a_pending_wait_is_dropped_beside_its_logout() {
    let vcenter = Vcenter::start(&scenario()).await;
    for round in 0..ROUNDS {
        let client = soap(&vcenter).await;
        let collector = client.create_property_collector().await.unwrap();
        // The first answer comes at once, and is empty.
        let first = client.wait_for_updates(&collector, "", LIMIT, 100).await.unwrap().unwrap();
        let pending = client.wait_for_updates(&collector, &first.version, LIMIT, 100);
        let is_pending =
            eventually("the wait is pending", LIMIT, async || match vcenter.counts().await.pending_waits {
                1 => Ok(()),
                waits => Err(waits),
            });
        tokio::select! {
            ended = pending => panic!("the wait ended by itself: {ended:?}"),
            () = is_pending => {}
        }
        client.logout().await.unwrap();
        eventually("the wait has ended", LIMIT, async || match vcenter.counts().await.pending_waits {
            0 => Ok(()),
            waits => Err(waits),
        })
        .await;
        let counts = vcenter.counts().await;
        assert_eq!(counts.soap_sessions, 0, "round {round}: {counts:?}");
    }
}
