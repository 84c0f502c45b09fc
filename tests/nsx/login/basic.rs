//! Without session support each request is a login. The requests must not lock the account.

use std::sync::Arc;
use std::time::Duration;

use ccm::clients::nsx::{Client, Kind, Pace, Scheme, Timeouts};
use ccm::kubernetes::login_ledger::Ledger;
use ccm::providers::vsphere::nsx::{AnyLeader, LoginSource, NsxSession};
use doubles::login_store::MemoryStore;
use futures::future::join_all;
use support::LoginOutcome;
use support::fake_nsx::{Model, Sessions, Trouble};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::memory::MemoryNsx;
use crate::world::{GATEWAY, World, advance, offer};

const RIGHT: &str = "Correct-Horse-7";

// vectors: W-01
#[tokio::test]
async fn w_01_each_request_has_the_password_where_no_session_can_be_opened() {
    let model = || Model::small().user("admin", "secret");
    let cases = [
        (model().sessions(Sessions::NotFound), 1),
        (model().sessions(Sessions::NotAllowed), 1),
        (model().prefix("/vmc/reverse-proxy/api"), 0),
    ];
    for (model, session_requests) in cases {
        let world = World::start(model).await;
        for _ in 0..5 {
            world.get(GATEWAY).await.unwrap();
        }
        world.patch("r").await.unwrap();
        let requests = world.nsx.requests();
        assert_eq!(usize::try_from(world.logins()).unwrap(), session_requests);
        assert_eq!(requests.len(), session_requests + 1 + 6, "one request tries the password");
        for request in requests.iter().skip(session_requests) {
            assert_eq!(request.header("authorization"), Some("Basic YWRtaW46c2VjcmV0"));
            assert_eq!(request.header("cookie"), None);
        }
        let nsx = world.stop().await;
        assert_eq!(nsx.counts().of("session destroy"), 0);
    }
}

#[tokio::test]
async fn an_answer_of_a_portal_is_no_proof_of_the_password() {
    let world = World::start(Model::small().prefix("/proxy")).await;
    world.nsx.every("*", Trouble::portal());
    assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::Unavailable);
    assert!(world.client.login().is_none() && !world.gate.facts().is_logged_in);
    world.nsx.clear();
    advance(Duration::from_secs(60)).await;
    world.get(GATEWAY).await.unwrap();
}

#[tokio::test]
async fn an_account_that_may_not_read_what_the_login_reads_is_logged_in() {
    let world = World::start(Model::small().sessions(Sessions::NotFound)).await;
    world.nsx.deny("admin", "sites");
    world.get(GATEWAY).await.unwrap();
    assert!(world.nsx.login_attempts().iter().all(|attempt| attempt.outcome != LoginOutcome::Rejected));
}

/// Starts a client of an NSX in memory, with the task that logs it in and the sender of credentials.
fn start(
    nsx: &MemoryNsx,
    password: &str,
) -> (Client, Arc<NsxSession>, watch::Sender<Arc<ccm::providers::vsphere::login::credentials::CredentialState>>) {
    let offers = watch::Sender::new(offer("admin", password, 1));
    let source = LoginSource::Pairs { offers: offers.subscribe(), scheme: Scheme::Basic };
    let leads = AnyLeader::new(vec![watch::Sender::new(true).subscribe()]);
    let ledger = Arc::new(Ledger::new(MemoryStore::default()));
    let gate = Arc::new(NsxSession::new("nsx.test:443", source, ledger, leads));
    let pace = Arc::new(Pace::new(80));
    let client = Client::new(nsx.server.http(), "", pace, Arc::clone(&gate) as _, Timeouts::default());
    let (runs, logs_in) = (Arc::clone(&gate), client.clone());
    tokio::spawn(async move { runs.run(&logs_in, CancellationToken::new()).await });
    (client, gate, offers)
}

async fn call(client: Client) -> Result<(), ccm::clients::nsx::Error> {
    client.get(GATEWAY, "test.get").await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_first_answer_and_nothing_after_a_rejection() {
    let nsx = MemoryNsx::new(RIGHT, false, Duration::from_secs(5));
    let (client, ..) = start(&nsx, "wrong");
    let results = join_all((0..50).map(|_| call(client.clone()))).await;
    for result in results {
        assert_eq!(result.unwrap_err().kind, Kind::Rejected);
    }
    // One request asks for a session, without a check of the password, and one tries the password.
    let arrivals = nsx.server.arrivals();
    assert_eq!((arrivals.len(), nsx.attempts().len(), nsx.rejections()), (2, 1, 1), "{arrivals:?}");
    // With the right password only one trial request is sent before its answer.
    let nsx = MemoryNsx::new(RIGHT, false, Duration::from_secs(5));
    let (client, ..) = start(&nsx, RIGHT);
    for result in join_all((0..10).map(|_| call(client.clone()))).await {
        result.unwrap();
    }
    let arrivals = nsx.server.arrivals();
    assert!(arrivals[2].at >= arrivals[1].at + Duration::from_secs(5), "{arrivals:?}");
    for window in arrivals[2..].windows(3) {
        assert!(window[2].at >= window[0].at + Duration::from_secs(5), "at most two are under way");
    }
}

#[tokio::test(start_paused = true)]
async fn a_password_that_changes_while_100_requests_wait_costs_two_rejections_at_most() {
    let nsx = MemoryNsx::new(RIGHT, false, Duration::from_millis(100));
    let (client, gate, offers) = start(&nsx, RIGHT);
    call(client.clone()).await.unwrap();
    let calls: Vec<_> = (0..100).map(|_| tokio::spawn(call(client.clone()))).collect();
    while nsx.attempts().len() < 10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    nsx.set_password("Another-Horse-8");
    let (mut done, mut refused) = (0, 0);
    for result in join_all(calls).await {
        match result.unwrap() {
            Ok(()) => done += 1,
            Err(error) => {
                assert_eq!(error.kind, Kind::Rejected, "{error}");
                refused += 1;
            }
        }
    }
    println!("{done} calls were done, {refused} were not, {} rejections", nsx.rejections());
    assert!(
        done >= 8 && refused >= 80 && (1..=2).contains(&nsx.rejections()),
        "{done}, {refused}, {}",
        nsx.rejections()
    );
    assert!(!gate.facts().is_logged_in);
    for _ in 0..20 {
        assert_eq!(call(client.clone()).await.unwrap_err().kind, Kind::Rejected);
    }
    assert!(nsx.rejections() <= 2, "calls after it are not sent");
    offers.send_replace(offer("admin", "Another-Horse-8", 2));
    call(client.clone()).await.unwrap();
    assert!(nsx.rejections() <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_rotation_that_comes_in_time_costs_no_rejection() {
    let nsx = MemoryNsx::new(RIGHT, false, Duration::from_millis(100));
    let (client, _, offers) = start(&nsx, RIGHT);
    call(client.clone()).await.unwrap();
    nsx.set_password("Another-Horse-8");
    offers.send_replace(offer("admin", "Another-Horse-8", 2));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for result in join_all((0..20).map(|_| call(client.clone()))).await {
        result.unwrap();
    }
    assert_eq!(nsx.rejections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_rejection_is_charged_to_the_password_that_was_sent() {
    let nsx = MemoryNsx::new(RIGHT, false, Duration::from_secs(5));
    let (client, gate, offers) = start(&nsx, RIGHT);
    call(client.clone()).await.unwrap();
    nsx.set_password("Another-Horse-8");
    offers.send_replace(offer("admin", "Another-Horse-8", 2));
    // The login takes 10 s. A request that was sent before it is answered after it.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(call(client.clone()).await.unwrap_err().kind, Kind::Rejected);
    assert_eq!(nsx.rejections(), 1);
    assert!(gate.facts().is_logged_in, "the new password was not rejected");
    call(client.clone()).await.unwrap();
    // The next rotation is observed.
    nsx.set_password("Third-Horse-9");
    offers.send_replace(offer("admin", "Third-Horse-9", 3));
    tokio::time::sleep(Duration::from_secs(15)).await;
    call(client.clone()).await.unwrap();
    assert_eq!(nsx.rejections(), 1);
}
