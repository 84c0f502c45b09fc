//! No sessions, property collectors or views stay on vCenter.

use std::time::Duration;

use futures::future::join_all;
use support::{Fault, Model, Trouble};

use super::{SOON, Watched, ids, is_live, tags};

/// Duration of a delayed answer that the client still waits for.
const LATE: Duration = Duration::from_millis(500);

#[tokio::test]
async fn subscriptions_that_fail_half_way_are_taken_off_again() {
    let refusal = || Trouble::Fault(Fault::new("InvalidProperty").field("name", "guest.net"));
    let cases = [
        ("a filter that is refused", "CreateFilter", refusal()),
        ("a collector that is not made", "CreatePropertyCollector", Trouble::unavailable()),
        ("a view that cannot be filled", "ModifyListView", Trouble::portal()),
        ("updates that are never told", "WaitForUpdatesEx", refusal()),
    ];
    let cases = cases.into_iter().map(|(name, operation, trouble)| async move {
        let (fake, vcenter) = Watched::prepare(Model::small().vms(1), ids(1..=1), None).await;
        fake.every(operation, trouble);
        let watched = Watched::run(fake, vcenter);
        watched.until_counted(name, |counts| counts.of(operation) >= 4).await;
        let counts = watched.fake.counts();
        assert!(counts.collectors <= 1 && counts.views <= 1, "{name}: {counts:?}");
        assert_eq!((counts.soap_logins, counts.most_soap_sessions), (1, 1), "{name}: {counts:?}");
        watched.fake.clear();
        watched.until(name, |now| is_live(now) && now.vms.len() == 1).await;
        let counts = watched.fake.counts();
        assert_eq!((counts.collectors, counts.views), (1, 1), "{name}: {counts:?}");
        watched.stop().await;
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_stop_in_the_middle_of_a_login_leaves_no_session_behind() {
    let (fake, vcenter) = Watched::prepare(Model::small().vms(1), ids(1..=1), None).await;
    fake.next("Login", Trouble::Late(LATE));
    let watched = Watched::run(fake, vcenter);
    watched.until_counted("a session that is not named yet", |counts| counts.soap_sessions == 1).await;
    watched.stop().await;
}

#[tokio::test]
async fn a_rest_login_under_way_is_not_abandoned_when_the_subscription_breaks_or_all_stops() {
    let (fake, vcenter) = tags::prepare().await;
    fake.next("REST:session-login", Trouble::Late(LATE));
    let watched = Watched::run(fake, vcenter);
    watched.until_counted("a wait", |counts| counts.rest_sessions == 1 && counts.pending_waits == 1).await;
    watched.fake.interrupt_waits(Trouble::Fault(Fault::new("InvalidCollectorVersion")));
    watched.until("stale", |now| !is_live(now)).await;
    watched.until("tags, over that session", |now| is_live(now) && tags::has_zones(now)).await;
    let counts = watched.fake.counts();
    assert_eq!((counts.rest_logins, counts.most_rest_sessions), (1, 1), "{counts:?}");
    watched.stop().await;

    let (fake, vcenter) = tags::prepare().await;
    fake.next("REST:session-login", Trouble::Late(LATE));
    let watched = Watched::run(fake, vcenter);
    watched.until_counted("a session that is not named yet", |counts| counts.rest_sessions == 1).await;
    watched.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_a_logout_holds_nobody_up() {
    for (name, trouble) in [("hangs", Trouble::Hang), ("503", Trouble::unavailable()), ("drops", Trouble::Drop)] {
        let watched = Watched::synced(1).await;
        watched.fake.every("Logout", trouble);
        watched.stop.cancel();
        let ended = tokio::time::timeout(SOON.min(Duration::from_secs(5)), watched.task).await;
        assert!(ended.is_ok(), "{name}");
        assert_eq!(watched.fake.counts().of("Logout"), 1, "{name}");
    }
}
