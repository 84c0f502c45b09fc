//! The client counts rejected logins, because vCenter counts them, too.

use std::time::Duration;

use futures::future::join_all;
use support::{Fault, Model, Trouble};

use super::{ReadAnswer, Watched, ids, is_live, search, tags};

#[tokio::test]
async fn a_rejected_login_is_told_with_server_and_user_and_is_not_repeated_soon() {
    let (fake, vcenter) = Watched::prepare(Model::small().vms(1), ids(1..=1), None).await;
    fake.set_password("another one");
    let watched = Watched::run(fake, vcenter);
    let now = watched.until("the rejection is told", |now| now.freshness.failure() != Some("not connected yet")).await;
    let reason = now.freshness.failure().unwrap();
    let port = format!("127.0.0.1:{}", watched.fake.port());
    for part in [&port, "ccm@vsphere.local", "InvalidLogin", "[VirtualCenter] or [Global] of the cloud config"] {
        assert!(reason.contains(part), "{part} is not in {reason}");
    }
    let everything = format!("{now:?} {:?}", watched.vcenter.settings());
    assert!(!everything.contains("Correct-Horse-7") && !everything.contains("another one"), "{everything}");

    // Searches and requested machines do not cause another login.
    assert!(matches!(search(&watched.vcenter, 1).await, ReadAnswer::Silent(_)));
    watched.vcenter.want(ids(2..=2));
    let mut changes = watched.vcenter.changes();
    let quiet = tokio::time::timeout(Duration::from_secs(4), changes.changed()).await;
    assert!(quiet.is_err(), "nothing happens for a while");
    let counts = watched.fake.counts();
    assert_eq!((counts.of("Login"), counts.soap_refusals, counts.soap_sessions), (1, 1, 0), "{counts:?}");
    watched.stop().await;
}

#[tokio::test]
async fn a_password_that_expired_counts_as_rejected() {
    let (fake, vcenter) = Watched::prepare(Model::small().vms(1), ids(1..=1), None).await;
    fake.every("Login", Trouble::Fault(Fault::new("PasswordExpired")));
    let watched = Watched::run(fake, vcenter);
    let is_told = |reason: &str| reason.contains("PasswordExpired");
    watched.until("it is told", |now| now.freshness.failure().is_some_and(is_told)).await;
    let mut changes = watched.vcenter.changes();
    assert!(tokio::time::timeout(Duration::from_secs(3), changes.changed()).await.is_err());
    assert_eq!(watched.fake.counts().of("Login"), 1);
    watched.stop().await;
}

#[tokio::test]
async fn trouble_of_the_server_during_a_login_is_no_rejection() {
    join_all(
        [
            ("503", Trouble::unavailable()),
            ("dropped", Trouble::Drop),
            ("SystemError", Trouble::Fault(Fault::new("SystemError").field("reason", "SSO is starting"))),
            ("no role yet", Trouble::Fault(Fault::no_permission("Folder", "group-d1"))),
        ]
        .into_iter()
        .map(|(name, trouble)| async move {
            let (fake, vcenter) = Watched::prepare(Model::small().vms(1), ids(1..=1), None).await;
            fake.next("Login", trouble);
            let watched = Watched::run(fake, vcenter);
            watched.until(name, |now| is_live(now) && now.vms.len() == 1).await;
            let counts = watched.fake.counts();
            assert_eq!((counts.of("Login"), counts.soap_logins, counts.soap_sessions), (2, 1, 1), "{name}");
            watched.stop().await;
        }),
    )
    .await;
}

#[tokio::test]
async fn a_rest_login_that_is_refused_is_not_repeated_soon_whatever_happens_to_the_subscription() {
    let (fake, vcenter) = tags::prepare().await;
    let watched = Watched::run(fake, vcenter);
    watched.until("zones", |now| is_live(now) && tags::has_zones(now)).await;
    // The SOAP session stays valid, as after a password change.
    watched.fake.set_password("another one");
    watched.fake.kill_rest_sessions();
    let is_told = |trouble: &String| trouble.contains("tags cannot be read") && trouble.contains("401");
    watched.until_always("told", tags::has_zones, |now| now.tags.error.as_ref().is_some_and(is_told)).await;
    for _ in 0..3 {
        watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
        watched.fake.interrupt_waits(Trouble::Fault(Fault::new("InvalidCollectorVersion")));
        watched.until_always("stale", tags::has_zones, |now| !is_live(now)).await;
        watched.until_always("live again", tags::has_zones, is_live).await;
    }
    let counts = watched.fake.counts();
    assert_eq!((counts.rest_refusals, counts.soap_logins), (1, 1), "{counts:?}");
    watched.stop().await;
}
