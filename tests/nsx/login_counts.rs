//! The number of logins, counted by the server: the real login task and the real ledger, an NSX in memory, and a paused
//! clock.

use std::sync::Arc;
use std::time::Duration;

use ccm::clients::nsx::{Client, Pace, Scheme, Timeouts};
use ccm::kubernetes::login_ledger::Ledger;
use ccm::providers::vsphere::login::credentials::CredentialState;
use ccm::providers::vsphere::nsx::{AnyLeader, LoginSource, NsxSession};
use doubles::login_store::MemoryStore;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::memory::{Attempt, MemoryNsx};
use crate::world::{GATEWAY, offer};

const RIGHT: &str = "Correct-Horse-7";
const WINDOW: Duration = Duration::from_secs(15 * 60);
const MINUTE: Duration = Duration::from_secs(60);

/// A process that leads and makes a call every ten seconds.
struct Replica {
    stop: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

impl Replica {
    fn start(nsx: &MemoryNsx, offers: watch::Receiver<Arc<CredentialState>>, store: &MemoryStore) -> Self {
        let source = LoginSource::Pairs { offers, scheme: Scheme::Basic };
        let (began, lead) = (Instant::now(), watch::Sender::new(true));
        let clock = move || 1_900_000_000 + i64::try_from(began.elapsed().as_secs()).unwrap();
        let ledger = Arc::new(Ledger::with_clock(store.clone(), Arc::new(clock)));
        let gate = Arc::new(NsxSession::new("nsx.test:443", source, ledger, AnyLeader::new(vec![lead.subscribe()])));
        let http = nsx.server.http();
        let client = Client::new(http, "", Arc::new(Pace::new(80)), Arc::clone(&gate) as _, Timeouts::default());
        let stop = CancellationToken::new();
        let (logs_in, until) = (client.clone(), stop.clone());
        let runs = tokio::spawn(async move { gate.run(&logs_in, until).await });
        let until = stop.clone();
        let calls = tokio::spawn(async move {
            let _lead = lead;
            let forever = async {
                loop {
                    let call = || client.get(GATEWAY, "test.get");
                    let _ = tokio::join!(call(), call(), call());
                    sleep(Duration::from_secs(10)).await;
                }
            };
            tokio::select! {
                () = until.cancelled() => {}
                () = forever => {}
            }
        });
        Self { stop, tasks: [runs, calls] }
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Returns the maximum number of rejections in a window.
fn most_in_a_window(attempts: &[Attempt]) -> usize {
    let rejected: Vec<_> = attempts.iter().filter(|attempt| !attempt.is_accepted).collect();
    let within =
        |first: Instant| rejected.iter().filter(|attempt| attempt.at >= first && attempt.at < first + WINDOW).count();
    rejected.iter().map(|attempt| within(attempt.at)).max().unwrap_or(0)
}

/// Runs five replicas for an hour. They start together and restart once each.
async fn an_hour_of_five_replicas(nsx: &MemoryNsx, offers: &watch::Sender<Arc<CredentialState>>, store: &MemoryStore) {
    let start = || Replica::start(nsx, offers.subscribe(), store);
    let mut replicas: Vec<Replica> = (0..5).map(|_| start()).collect();
    for _ in 0..5 {
        sleep(6 * MINUTE).await;
        replicas.remove(0).stop().await;
        replicas.push(start());
    }
    sleep(30 * MINUTE).await;
    for replica in replicas {
        replica.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_for_an_hour_in_five_replicas_makes_three_attempts_in_15_minutes_at_most() {
    for has_sessions in [true, false] {
        let (nsx, store) = (MemoryNsx::new(RIGHT, has_sessions, Duration::from_millis(300)), MemoryStore::default());
        let offers = watch::Sender::new(offer("admin", "wrong", 1));
        an_hour_of_five_replicas(&nsx, &offers, &store).await;
        let (attempts, most) = (nsx.attempts(), most_in_a_window(&nsx.attempts()));
        println!("sessions {has_sessions}: {} attempts in an hour, at most {most} in 15 minutes", attempts.len());
        assert!(attempts.iter().all(|attempt| !attempt.is_accepted));
        assert!(most <= 3, "sessions {has_sessions}: {most}");
        assert!((3..=12).contains(&attempts.len()), "sessions {has_sessions}: {}", attempts.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_password_that_changes_in_a_running_cluster_does_not_lock_the_account() {
    for has_sessions in [true, false] {
        let (nsx, store) = (MemoryNsx::new(RIGHT, has_sessions, Duration::from_millis(300)), MemoryStore::default());
        let offers = watch::Sender::new(offer("admin", RIGHT, 1));
        let start = || Replica::start(&nsx, offers.subscribe(), &store);
        let mut leader = start();
        sleep(5 * MINUTE).await;
        assert!(nsx.rejections() == 0 && !nsx.attempts().is_empty());
        nsx.set_password("Another-Horse-8");
        // A session stays valid after a password change. The next leader needs the new password.
        for _ in 0..6 {
            sleep(6 * MINUTE).await;
            leader.stop().await;
            leader = start();
        }
        sleep(30 * MINUTE).await;
        leader.stop().await;
        let most = most_in_a_window(&nsx.attempts());
        println!("sessions {has_sessions}: {} rejections, at most {most} in 15 minutes", nsx.rejections());
        assert!((1..5).contains(&most), "NSX locks after five: {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_ledger_a_process_makes_one_attempt_in_15_minutes() {
    let (nsx, store) = (MemoryNsx::new(RIGHT, true, Duration::from_millis(300)), MemoryStore::default());
    store.fail(Some("403"));
    let offers = watch::Sender::new(offer("admin", "wrong", 1));
    let replica = Replica::start(&nsx, offers.subscribe(), &store);
    sleep(60 * MINUTE).await;
    replica.stop().await;
    assert_eq!(most_in_a_window(&nsx.attempts()), 1);
    assert!((2..=4).contains(&nsx.rejections()), "{}", nsx.rejections());
}

#[tokio::test(start_paused = true)]
async fn five_replicas_rotate_with_one_login_each() {
    let (nsx, store) = (MemoryNsx::new(RIGHT, true, Duration::from_millis(300)), MemoryStore::default());
    let offers = watch::Sender::new(offer("admin", RIGHT, 1));
    let replicas: Vec<Replica> = (0..5).map(|_| Replica::start(&nsx, offers.subscribe(), &store)).collect();
    sleep(5 * MINUTE).await;
    assert_eq!((nsx.attempts().len(), nsx.sessions()), (5, 5));
    for rotation in 2..=4 {
        let password = format!("Another-Horse-{rotation}");
        nsx.set_password(&password);
        offers.send_replace(offer("admin", &password, rotation));
        let began = Instant::now();
        while nsx.sessions() < 10 {
            assert!(began.elapsed() < 2 * MINUTE, "{} sessions", nsx.sessions());
            sleep(Duration::from_millis(10)).await;
        }
        sleep(Duration::from_secs(31)).await;
        assert_eq!((nsx.attempts().len(), nsx.sessions()), (5 * rotation as usize, 5));
        sleep(5 * MINUTE).await;
    }
    assert_eq!(nsx.rejections(), 0);
    for replica in replicas {
        replica.stop().await;
    }
    assert_eq!(nsx.sessions(), 0);
}
