//! The number of logins, counted by the server: the real session and the real ledger, a vCenter in memory, and a paused
//! clock.

mod comeback;
mod memory;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use ccm::clients::vim::Timeouts;
use ccm::cloud::login_ledger::SecretVersion;
use ccm::kubernetes::login_ledger::Ledger;
use ccm::providers::vsphere::login::credentials::source::SourceLocation;
use ccm::providers::vsphere::login::credentials::{Credential, CredentialState, Login, Origin, SessionToken};
use ccm::providers::vsphere::vcenter::snapshot::{Freshness, Snapshot};
use ccm::providers::vsphere::vcenter::zone_tags::ZoneCategories;
use ccm::providers::vsphere::vcenter::{Session, TagSettings, Vcenter};
use doubles::login_store::MemoryStore;
use memory::{Interface, MemoryVcenter};
use secrecy::SecretString;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const RIGHT: &str = "Correct-Horse-7";
const WINDOW: Duration = Duration::from_secs(200);
const MINUTE: Duration = Duration::from_secs(60);

fn from_file(password: &str) -> Arc<Credential> {
    let login = Login::Password { user: "ccm@vsphere.local".to_owned(), password: SecretString::from(password) };
    Arc::new(Credential { login, origin: Origin::Config })
}

fn from_secret(password: &str, resource_version: &str) -> Arc<Credential> {
    let location = SourceLocation::Secret { namespace: "kube-system".to_owned(), name: "vc".to_owned() };
    let version = SecretVersion { uid: "u-1".to_owned(), resource_version: resource_version.to_owned() };
    let origin = Origin::Source { location, version: Some(version) };
    let login = from_file(password).login.clone();
    Arc::new(Credential { login, origin })
}

fn offer(credential: &Arc<Credential>) -> Arc<CredentialState> {
    Arc::new(CredentialState::Ready(vec![Arc::clone(credential)]))
}

/// Advances the clock.
async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}

/// Returns the ledger of one process, whose clock is wrong by `skew` seconds.
fn ledger(store: &MemoryStore, began: Instant, skew: i64) -> Arc<Ledger> {
    Arc::new(counting(store, began, skew))
}

fn counting(store: &MemoryStore, began: Instant, skew: i64) -> Ledger {
    let clock = move || 1_900_000_000 + i64::try_from(began.elapsed().as_secs()).unwrap() + skew;
    Ledger::with_clock(store.clone(), Arc::new(clock))
}

/// One process with a session.
struct Replica {
    vcenter: Arc<Vcenter>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(server: &MemoryVcenter, offers: watch::Receiver<Arc<CredentialState>>, ledger: Arc<Ledger>) -> Self {
        Self::with_probes(server, offers, ledger, None)
    }

    fn with_probes(
        server: &MemoryVcenter,
        offers: watch::Receiver<Arc<CredentialState>>,
        ledger: Arc<Ledger>,
        probes: Option<Arc<Semaphore>>,
    ) -> Self {
        let settings = TagSettings {
            categories: Some(ZoneCategories { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() }),
            tag_poll: MINUTE,
        };
        let session = Session::new(server.client(), offers, ledger, "vc.test:443".to_owned(), Timeouts::default());
        let session = match probes {
            Some(probes) => session.with_probes(probes),
            None => session,
        };
        let vcenter = Vcenter::new(settings, session);
        let stop = CancellationToken::new();
        let task = tokio::spawn(Arc::clone(&vcenter).run(stop.clone()));
        Self { vcenter, stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    async fn until_live(&self, within: Duration) {
        self.until(within, |now| now.freshness == Freshness::Live).await;
    }

    async fn until(&self, within: Duration, fits: impl Fn(&Snapshot) -> bool) {
        let mut changes = self.vcenter.changes();
        let is_there = timeout(within, changes.wait_for(|now| fits(now))).await.is_ok();
        let now = self.vcenter.snapshot();
        assert!(is_there, "not within {within:?}: {:?}, tags {:?}", now.freshness, now.tags.error);
    }
}

/// Returns the maximum number of logins in a window.
fn most_in_a_window(server: &MemoryVcenter) -> usize {
    most_within(&server.logins())
}

fn most_within(logins: &[memory::Login]) -> usize {
    let within = |first: Instant| logins.iter().filter(|login| login.at >= first && login.at < first + WINDOW).count();
    logins.iter().map(|login| within(login.at)).max().unwrap_or(0)
}

/// Runs five replicas for an hour. They start together and restart once each, and every login fails. The server counts
/// the logins.
async fn an_hour_with_a_wrong_password(
    credential: Arc<Credential>,
    ledger_of: impl Fn(usize) -> Arc<Ledger>,
) -> MemoryVcenter {
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let offers = watch::Sender::new(offer(&credential));
    let mut replicas = Vec::new();
    for number in 0..5 {
        replicas.push(Replica::start(&server, offers.subscribe(), ledger_of(number)));
    }
    for number in 0..5 {
        pass(6 * MINUTE).await;
        replicas.remove(0).stop().await;
        replicas.push(Replica::start(&server, offers.subscribe(), ledger_of(5 + number)));
    }
    pass(30 * MINUTE).await;
    for replica in replicas {
        replica.stop().await;
    }
    assert!(server.logins().iter().all(|login| !login.is_accepted && login.interface == Interface::Soap));
    server
}

/// Clock errors of up to several minutes, in both directions.
const SKEWS: [i64; 5] = [0, -300, 240, -7, 540];

#[tokio::test(start_paused = true)]
async fn a_wrong_password_for_an_hour_in_five_replicas_makes_three_attempts_in_200_s_at_most() {
    for (name, credential) in [("file", from_file("wrong")), ("secret", from_secret("wrong", "7"))] {
        let (store, began) = (MemoryStore::default(), Instant::now());
        let server = an_hour_with_a_wrong_password(credential, |number| ledger(&store, began, SKEWS[number % 5])).await;
        let (attempts, most) = (server.logins().len(), most_in_a_window(&server));
        println!("{name}: {attempts} attempts in an hour, at most {most} in any 200 s");
        assert!(most <= 3, "{name}: {most} in 200 s");
        assert!((3..=30).contains(&attempts), "{name}: {attempts} in an hour");
        let stored = format!("{:?}", store.texts());
        assert!(!stored.contains("wrong") && !stored.contains("ccm@"), "nothing of the pair is stored: {stored}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_ledger_every_process_makes_one_attempt_in_200_s() {
    let store = MemoryStore::default();
    store.fail(Some("403"));
    let began = Instant::now();
    let server =
        an_hour_with_a_wrong_password(from_file("wrong"), |number| ledger(&store, began, SKEWS[number % 5])).await;
    let (attempts, most) = (server.logins().len(), most_in_a_window(&server));
    println!("ledger out of reach: {attempts} attempts of five replicas in an hour, at most {most} in any 200 s");
    // Five replicas run, and at most one of them restarts in a window.
    assert!(most <= 6, "{most}");
    // A single replica.
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let offers = watch::Sender::new(offer(&from_file("wrong")));
    let replica = Replica::start(&server, offers.subscribe(), ledger(&store, began, 0));
    pass(60 * MINUTE).await;
    replica.stop().await;
    let most = most_in_a_window(&server);
    println!("one of them alone: {} attempts, at most {most} in any 200 s", server.logins().len());
    assert_eq!(most, 1);
}

#[tokio::test(start_paused = true)]
async fn a_rotation_makes_one_login_per_replica_and_interface_and_no_call_fails() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let offers = watch::Sender::new(offer(&from_secret(RIGHT, "1")));
    let replicas: Vec<Replica> =
        SKEWS.iter().map(|skew| Replica::start(&server, offers.subscribe(), ledger(&store, began, *skew))).collect();
    for replica in &replicas {
        replica.until_live(2 * MINUTE).await;
    }
    pass(3 * MINUTE).await;
    assert_eq!((server.accepted(Interface::Soap), server.accepted(Interface::Rest)), (5, 5));
    assert_eq!(server.sessions(), (5, 5));
    for rotation in 2..=3 {
        let password = format!("Correct-Horse-{rotation}");
        server.set_password(&password);
        pass(MINUTE).await;
        let mut watched: Vec<_> = replicas.iter().map(|replica| replica.vcenter.changes()).collect();
        offers.send_replace(offer(&from_secret(&password, &rotation.to_string())));
        let all_live = async {
            let stale =
                watched.iter_mut().map(|changes| Box::pin(changes.wait_for(|now| now.freshness != Freshness::Live)));
            futures::future::select_all(stale).await
        };
        assert!(timeout(5 * MINUTE, all_live).await.is_err(), "a snapshot was stale");
        let counts = (server.accepted(Interface::Soap), server.accepted(Interface::Rest));
        println!("after rotation {}: {counts:?} logins over SOAP and REST", rotation - 1);
        assert_eq!(counts, (5 * rotation, 5 * rotation));
        assert_eq!(server.sessions(), (5, 5), "the old ones are ended");
    }
    assert_eq!(server.logins().len(), 30, "none was rejected");
    assert_eq!(server.failed(), Vec::<String>::new());
    for replica in replicas {
        replica.stop().await;
    }
    assert_eq!(server.sessions(), (0, 0));
    let left: Vec<String> = store.texts().into_values().collect();
    assert!(left.iter().all(|text| text == "{\"entries\":[]}"), "every claim was given back: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_new_pair_leaves_the_old_session_and_is_told_and_a_right_one_is_taken_at_once() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let offers = watch::Sender::new(offer(&from_secret(RIGHT, "1")));
    let replicas: Vec<Replica> =
        SKEWS.iter().map(|skew| Replica::start(&server, offers.subscribe(), ledger(&store, began, *skew))).collect();
    for replica in &replicas {
        replica.until_live(2 * MINUTE).await;
    }
    pass(MINUTE).await;
    offers.send_replace(offer(&from_secret("a typing mistake", "2")));
    pass(10 * MINUTE).await;
    let rejected: Vec<_> = server.logins().into_iter().filter(|login| !login.is_accepted).collect();
    let most = most_within(&rejected);
    let rejected = rejected.len();
    println!("a wrong pair for ten minutes: {rejected} rejections of five replicas, at most {most} in any 200 s");
    assert!(most <= 3, "{most}");
    assert!((1..=9).contains(&rejected), "{rejected}");
    for replica in &replicas {
        let now = replica.vcenter.snapshot();
        assert_eq!(now.freshness, Freshness::Live);
        let trouble = now.credential_failure.clone().unwrap();
        assert!(trouble.contains("InvalidLogin") || trouble.contains("is locked") || trouble.contains("not locked"));
        assert!(!trouble.contains("typing"), "{trouble}");
    }
    assert_eq!(server.sessions(), (5, 5));
    // The old pair is offered again, so there is no work.
    offers.send_replace(offer(&from_secret(RIGHT, "3")));
    pass(MINUTE).await;
    assert_eq!(server.accepted(Interface::Soap), 5, "the session in use is that pair's");
    assert!(replicas.iter().all(|replica| replica.vcenter.snapshot().credential_failure.is_none()));
    assert_eq!(server.failed(), Vec::<String>::new());
    for replica in replicas {
        replica.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_pair_that_is_accepted_and_of_no_use_is_left_for_the_next_one() {
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let offers = watch::Sender::new(offer(&from_secret(RIGHT, "1")));
    let replica = Replica::start(&server, offers.subscribe(), Arc::new(Ledger::new(MemoryStore::default())));
    replica.until_live(MINUTE).await;
    pass(MINUTE).await;
    server.set_refuses_views(true);
    for (number, password) in [(2, "Right-2"), (3, "Right-3")] {
        server.set_password(password);
        offers.send_replace(offer(&from_secret(password, &number.to_string())));
        pass(5 * MINUTE).await;
        assert_eq!((server.accepted(Interface::Soap), server.sessions()), (number, (2, 1)), "the old one, and this");
        let now = replica.vcenter.snapshot();
        assert_eq!(now.freshness, Freshness::Live);
        assert!(
            now.credential_failure.as_ref().is_some_and(|why| why.contains("NoPermission")),
            "{:?}",
            now.credential_failure
        );
    }
    server.set_refuses_views(false);
    pass(5 * MINUTE).await;
    assert_eq!((server.accepted(Interface::Soap), server.sessions()), (3, (1, 1)));
    assert_eq!(replica.vcenter.snapshot().credential_failure, None);
    replica.stop().await;
    assert_eq!(server.sessions(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn accepted_logins_wait_for_rejections_of_others_within_the_window_at_most() {
    for ledger_fails in [false, true] {
        let (store, began) = (MemoryStore::default(), Instant::now());
        let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
        let good = watch::Sender::new(offer(&from_file(RIGHT)));
        let replica = Replica::start(&server, good.subscribe(), ledger(&store, began, 0));
        replica.until_live(MINUTE).await;
        // Other replicas use up the budget, for as long as it takes.
        let bad = watch::Sender::new(offer(&from_file("wrong")));
        let others: Vec<Replica> = (1..5)
            .map(|number| Replica::start(&server, bad.subscribe(), ledger(&store, began, SKEWS[number])))
            .collect();
        pass(10 * MINUTE).await;
        store.fail(ledger_fails.then_some("the API server is down"));
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let before = Instant::now();
            server.kill_soap_sessions();
            let mut changes = replica.vcenter.changes();
            changes.wait_for(|now| now.freshness != Freshness::Live).await.unwrap();
            replica.until_live(2 * WINDOW).await;
            slowest = slowest.max(before.elapsed());
            pass(Duration::from_secs(5)).await;
        }
        println!("ten sessions lost, ledger out of reach: {ledger_fails}; the slowest came back after {slowest:?}");
        // Without the store, the rejections of others do not count. With it, their dates are believed to 30 s, and jitter
        // adds up to a quarter.
        let limit = if ledger_fails { Duration::from_secs(5) } else { WINDOW.mul_f64(1.25) + Duration::from_secs(30) };
        assert!(slowest < limit, "{slowest:?}");
        assert_eq!(server.accepted(Interface::Soap), 11);
        for replica in others {
            replica.stop().await;
        }
        replica.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn logins_whose_answer_is_lost_count_and_the_first_that_is_answered_ends_it() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    server.set_loses_logins(true);
    let offers = watch::Sender::new(offer(&from_file(RIGHT)));
    let replicas: Vec<Replica> =
        SKEWS.iter().map(|skew| Replica::start(&server, offers.subscribe(), ledger(&store, began, *skew))).collect();
    pass(30 * MINUTE).await;
    let (lost, most) = (server.logins().len(), most_in_a_window(&server));
    println!("answers lost for half an hour: {lost} logins of five replicas, at most {most} in any 200 s");
    assert!(most <= 4 && lost >= 5, "{lost}, {most}");
    assert_eq!(replicas.iter().map(|replica| replica.vcenter.session().facts().unanswered).sum::<u64>(), lost as u64);
    server.set_loses_logins(false);
    for replica in &replicas {
        replica.until_live(10 * MINUTE).await;
    }
    for replica in replicas {
        replica.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_login_was_answered_with_something_else_is_not_left_behind() {
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    server.set_garbles_logins(true);
    let offers = watch::Sender::new(offer(&from_file(RIGHT)));
    let replica = Replica::start(&server, offers.subscribe(), Arc::new(Ledger::new(MemoryStore::default())));
    pass(30 * MINUTE).await;
    assert!(server.accepted(Interface::Soap) >= 4 && most_in_a_window(&server) <= 4);
    assert_eq!(server.sessions(), (0, 0));
    server.set_garbles_logins(false);
    replica.until_live(10 * MINUTE).await;
    replica.stop().await;
    assert_eq!(server.sessions(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn from_8_0_3_0_on_the_soap_session_is_the_rest_session_and_a_server_that_refuses_is_asked_once() {
    for (takes_loans, rest_logins) in [(true, 0), (false, 1)] {
        let server = MemoryVcenter::new(RIGHT, "8.0.3.0");
        server.set_takes_loans(takes_loans);
        let offers = watch::Sender::new(offer(&from_file(RIGHT)));
        let replica = Replica::start(&server, offers.subscribe(), Arc::new(Ledger::new(MemoryStore::default())));
        replica.until_live(MINUTE).await;
        pass(10 * MINUTE).await;
        assert_eq!((server.accepted(Interface::Soap), server.accepted(Interface::Rest)), (1, rest_logins));
        let refused = server.failed().len();
        assert_eq!(refused, rest_logins, "one refused loan");
        for round in 2..=4 {
            server.kill_soap_sessions();
            let mut changes = replica.vcenter.changes();
            changes.wait_for(|now| now.freshness != Freshness::Live).await.unwrap();
            replica.until_live(MINUTE).await;
            pass(5 * MINUTE).await;
            assert_eq!(server.accepted(Interface::Soap), round);
        }
        assert_eq!(server.accepted(Interface::Rest), rest_logins, "a REST session of its own outlives that of SOAP");
        replica.stop().await;
        assert_eq!(server.sessions(), (0, 0));
    }
}

/// On this server a SOAP session is not valid for REST.
#[tokio::test(start_paused = true)]
async fn rest_logs_in_with_the_pair_that_soap_accepted() {
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let both = CredentialState::Ready(vec![from_file("wrong"), from_secret(RIGHT, "1")]);
    let offers = watch::Sender::new(Arc::new(both));
    let replica = Replica::start(&server, offers.subscribe(), Arc::new(Ledger::new(MemoryStore::default())));
    replica.until_live(10 * MINUTE).await;
    pass(10 * MINUTE).await;
    assert_eq!((server.accepted(Interface::Soap), server.accepted(Interface::Rest)), (1, 1));
    let logins = server.logins();
    let rejected: Vec<_> = logins.iter().filter(|login| !login.is_accepted).map(|login| login.interface).collect();
    assert_eq!(rejected, [Interface::Soap]);
    replica.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_credentials_no_login_is_made_and_the_state_says_what_is_missing() {
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let offers = watch::Sender::new(Arc::new(CredentialState::Pending {
        reason: "the Secret kube-system/vc was not read yet".into(),
    }));
    let replica = Replica::start(&server, offers.subscribe(), Arc::new(Ledger::new(MemoryStore::default())));
    let trouble = || replica.vcenter.snapshot().freshness.failure().unwrap().to_owned();
    pass(10 * MINUTE).await;
    assert!(trouble().contains("was not read yet"), "{}", trouble());
    let word = || replica.vcenter.snapshot().freshness.check().unwrap_err().reason.as_str();
    assert_eq!(word(), "VCenterUnavailable", "nobody knows yet what the Secret has");
    offers.send_replace(Arc::new(CredentialState::Missing {
        reason: "the Secret kube-system/vc has no vc.test.username".into(),
    }));
    pass(10 * MINUTE).await;
    assert!(trouble().contains("has no vc.test.username"), "{}", trouble());
    assert_eq!(word(), "CredentialsMissing");
    assert_eq!(server.logins().len(), 0);
    offers.send_replace(offer(&from_secret(RIGHT, "2")));
    replica.until_live(Duration::from_secs(5)).await;
    // The Secret is deleted. The working session continues, and credentials stay usable after its end.
    offers.send_replace(Arc::new(CredentialState::Missing { reason: "there is no Secret kube-system/vc".into() }));
    pass(MINUTE).await;
    assert!(
        replica.vcenter.snapshot().credential_failure.as_ref().is_some_and(|why| why.contains("there is no Secret"))
    );
    server.kill_soap_sessions();
    let mut changes = replica.vcenter.changes();
    changes.wait_for(|now| now.freshness != Freshness::Live).await.unwrap();
    replica.until_live(MINUTE).await;
    assert_eq!(server.logins().iter().filter(|login| !login.is_accepted).count(), 0);
    replica.stop().await;
}

fn shared(token: &str, resource_version: &str) -> Arc<Credential> {
    let origin = from_secret("", resource_version).origin.clone();
    let url = "https://manager.test/session".to_owned();
    let token = SessionToken::Given(SecretString::from(token));
    Arc::new(Credential { login: Login::SharedSession { url, token }, origin })
}

#[tokio::test(start_paused = true)]
async fn w22_a_shared_session_needs_no_rest_login_and_is_shared_anew_with_the_token_of_the_moment() {
    // This server accepts SOAP sessions for REST, although its version does not imply that.
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    server.set_takes_loans(true);
    server.set_manager_token("one");
    let offers = watch::Sender::new(offer(&shared("one", "1")));
    let replica = Replica::start(&server, offers.subscribe(), Arc::new(Ledger::new(MemoryStore::default())));
    replica.until_live(MINUTE).await;
    pass(5 * MINUTE).await;
    assert_eq!((server.accepted(Interface::Soap), server.logins().len(), server.failed().len()), (1, 1, 0));
    // The manager requires another token. The client notices that only at the end of the session, and reports it.
    server.set_manager_token("two");
    pass(5 * MINUTE).await;
    assert_eq!(replica.vcenter.snapshot().freshness, Freshness::Live);
    server.kill_soap_sessions();
    let mut changes = replica.vcenter.changes();
    let is_told = |why: &str| why.contains("session manager") && why.contains("401");
    let told = changes.wait_for(|now| now.freshness.failure().is_some_and(is_told));
    assert!(timeout(MINUTE, told).await.is_ok(), "{:?}", replica.vcenter.snapshot().freshness);
    pass(10 * MINUTE).await;
    // The Secret changes, and is tried immediately.
    offers.send_replace(offer(&shared("two", "2")));
    replica.until_live(Duration::from_secs(5)).await;
    assert_eq!((server.accepted(Interface::Soap), server.accepted(Interface::Rest)), (2, 0));
    // A new token while a session is in use: one more clone, and the old session is ended.
    server.set_manager_token("three");
    offers.send_replace(offer(&shared("three", "3")));
    pass(MINUTE).await;
    assert_eq!((server.accepted(Interface::Soap), server.sessions()), (3, (1, 0)));
    replica.stop().await;
    assert_eq!(server.sessions(), (0, 0), "the clone is logged out; the manager's own session is not ours");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_between_two_waits_is_replaced_by_one_within_seconds() {
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let offers = watch::Sender::new(offer(&from_file(RIGHT)));
    let replica = Replica::start(&server, offers.subscribe(), Arc::new(Ledger::new(MemoryStore::default())));
    replica.until_live(MINUTE).await;
    for round in 2..=5 {
        while server.pending_waits() == 0 {
            pass(Duration::from_millis(10)).await;
        }
        while server.pending_waits() > 0 {
            pass(Duration::from_millis(10)).await;
        }
        let before = Instant::now();
        server.kill_soap_sessions();
        let mut changes = replica.vcenter.changes();
        changes.wait_for(|now| now.freshness != Freshness::Live).await.unwrap();
        replica.until_live(MINUTE).await;
        assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
        assert_eq!((server.accepted(Interface::Soap), server.sessions()), (round, (1, 1)));
    }
    assert_eq!(server.accepted(Interface::Rest), 1, "REST is not concerned");
    replica.stop().await;
}
