//! Logins after failures: the entries that stay counted, the processes that wait for them, and the events that end the
//! wait.

use super::*;
use ccm::kubernetes::login_ledger::LedgerStore as _;

const SECOND: Duration = Duration::from_secs(1);

/// Window in which lockout policies count rejections.
const LOCKOUT: Duration = Duration::from_secs(180);

/// Returns the ledger of one pod. All processes of the pod have this name.
fn ledger_on(store: &MemoryStore, began: Instant, skew: i64, pod: &str) -> Arc<Ledger> {
    Arc::new(counting(store, began, skew).in_pod(pod))
}

/// Three pods with the errors of their clocks in seconds.
const PODS: [(&str, i64); 3] = [("pod-a", 0), ("pod-b", -20), ("pod-c", 540)];

fn start_all(
    server: &MemoryVcenter,
    offers: &watch::Sender<Arc<CredentialState>>,
    store: &MemoryStore,
    began: Instant,
) -> Vec<Replica> {
    let start = |(pod, skew)| Replica::start(server, offers.subscribe(), ledger_on(store, began, skew, pod));
    PODS.into_iter().map(start).collect()
}

/// Deletes the record of the account, as `kubectl delete lease` does.
async fn delete_records(store: &MemoryStore) {
    for name in store.texts().into_keys() {
        let version = store.read(&name).await.unwrap().stored.unwrap().version;
        store.write(&name, Some(&version), "").await.unwrap();
    }
}

fn both_origins() -> [(&'static str, Arc<Credential>); 2] {
    [("file", from_file(RIGHT)), ("secret", from_secret(RIGHT, "7"))]
}

/// Returns the maximum number of rejected logins in a window of this length.
fn most_in(server: &MemoryVcenter, window: Duration) -> usize {
    let logins: Vec<_> = server.logins().into_iter().filter(|login| !login.is_accepted).collect();
    let within = |first: Instant| logins.iter().filter(|login| login.at >= first && login.at < first + window).count();
    logins.iter().map(|login| within(login.at)).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn three_replicas_without_a_shared_ledger_never_make_five_rejected_logins_in_three_minutes() {
    for (origin, credential) in [("file", from_file("wrong")), ("secret", from_secret("wrong", "7"))] {
        let began = Instant::now();
        let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
        let offers = watch::Sender::new(offer(&credential));
        let replicas: Vec<Replica> = PODS
            .into_iter()
            .map(|(pod, skew)| {
                let store = MemoryStore::default();
                store.fail(Some("403"));
                Replica::start(&server, offers.subscribe(), ledger_on(&store, began, skew, pod))
            })
            .collect();
        pass(2 * MINUTE).await;
        assert_eq!(server.logins().len(), 3, "{origin}: the first pause is 200 s");
        pass(118 * MINUTE).await;
        let most = most_in(&server, LOCKOUT);
        println!("{origin}: {} logins of three in two hours, at most {most} in any 180 s", server.logins().len());
        assert!(most < 5, "{origin}: {most}");
        assert!(server.logins().len() >= 6, "{origin}: they go on trying");
        for replica in replicas {
            replica.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_lost_answers_that_ended_with_an_accepted_login_a_rolling_restart_is_quick() {
    for lasts in [2 * MINUTE, 10 * MINUTE] {
        for (origin, credential) in both_origins() {
            let (store, began) = (MemoryStore::default(), Instant::now());
            let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
            server.set_loses_logins(true);
            let offers = watch::Sender::new(offer(&credential));
            let mut replicas = start_all(&server, &offers, &store, began);
            pass(lasts).await;
            server.set_loses_logins(false);
            for replica in &replicas {
                replica.until_live(10 * MINUTE).await;
            }
            pass(2 * MINUTE).await;
            for (pod, skew) in PODS {
                replicas.remove(0).stop().await;
                let ledger = ledger_on(&store, began, skew, pod);
                replicas.push(Replica::start(&server, offers.subscribe(), ledger));
                pass(15 * SECOND).await;
                let live = replicas.iter().filter(|one| one.vcenter.snapshot().freshness == Freshness::Live).count();
                assert_eq!((live, server.sessions().1), (3, 3), "{origin}, trouble for {lasts:?}: {pod}");
            }
            for replica in replicas {
                replica.stop().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_process_that_was_killed_holds_up_nobody_who_takes_its_place() {
    for (origin, credential) in both_origins() {
        let (store, began) = (MemoryStore::default(), Instant::now());
        let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
        let offers = watch::Sender::new(offer(&credential));
        for round in 0..3 {
            let killed = Replica::start(&server, offers.subscribe(), ledger_on(&store, began, 0, "pod-a"));
            let before = server.logins().len();
            while !format!("{:?}", store.texts()).contains("claimed") {
                pass(Duration::from_millis(10)).await;
            }
            killed.task.abort();
            assert_eq!(server.logins().len(), before, "{origin}, round {round}: its login was under way");
            let next = Replica::start(&server, offers.subscribe(), ledger_on(&store, began, 0, "pod-a"));
            next.until_live(3 * SECOND).await;
            next.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_is_no_rejection_is_not_counted() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    server.set_login_fault(Some("SystemError"));
    let offers = watch::Sender::new(offer(&from_file(RIGHT)));
    let replicas = start_all(&server, &offers, &store, began);
    pass(5 * MINUTE).await;
    let left: Vec<String> = store.texts().into_values().collect();
    assert!(left.iter().all(|text| !text.contains("unanswered")), "{left:?}");
    server.set_login_fault(None);
    for replica in replicas {
        // The longest pause of the backoff.
        replica.until_live(MINUTE + 5 * SECOND).await;
        replica.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_the_lease_ends_the_wait_of_every_running_process_within_a_minute() {
    for (origin, credential) in both_origins() {
        let (store, began) = (MemoryStore::default(), Instant::now());
        let server = MemoryVcenter::new("another one", "8.0.2.0");
        let offers = watch::Sender::new(offer(&credential));
        let replicas = start_all(&server, &offers, &store, began);
        pass(60 * MINUTE).await;
        server.set_password(RIGHT);
        let rejected = server.logins().len();
        pass(SECOND).await;
        assert_eq!(server.logins().len(), rejected, "{origin}: everybody waits");
        delete_records(&store).await;
        pass(MINUTE).await;
        for replica in &replicas {
            assert_eq!(replica.vcenter.snapshot().freshness, Freshness::Live, "{origin}");
        }
        for replica in replicas {
            replica.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_of_another_replica_that_is_accepted_ends_the_wait_within_a_minute() {
    for (origin, credential) in both_origins() {
        let (store, began) = (MemoryStore::default(), Instant::now());
        let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
        let offers = watch::Sender::new(offer(&credential));
        let replicas = start_all(&server, &offers, &store, began);
        for replica in &replicas {
            replica.until_live(MINUTE).await;
        }
        // The directory service is down, and vCenter was restarted.
        server.set_password("nobody's");
        server.kill_soap_sessions();
        pass(90 * MINUTE).await;
        server.set_password(RIGHT);
        let mut changes: Vec<_> = replicas.iter().map(|replica| replica.vcenter.changes()).collect();
        let live = changes.iter_mut().map(|one| Box::pin(one.wait_for(|now| now.freshness == Freshness::Live)));
        let first = timeout(40 * MINUTE, futures::future::select_all(live)).await;
        assert!(first.is_ok(), "{origin}: nobody got in");
        drop(first);
        pass(MINUTE).await;
        for (number, replica) in replicas.iter().enumerate() {
            let now = replica.vcenter.snapshot();
            assert_eq!(now.freshness, Freshness::Live, "{origin}: {number}");
        }
        assert!(most_in(&server, LOCKOUT) < 5, "{origin}");
        for replica in replicas {
            replica.stop().await;
        }
    }
}
