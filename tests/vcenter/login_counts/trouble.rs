//! Logins after trouble: what stays counted, who waits for it, and what ends the wait.

use super::*;

/// Lockout policies count rejections in this time.
const LOCKOUT: Duration = Duration::from_secs(180);

/// The ledger of one pod, whose processes have this name one after the other.
fn ledger_on(store: &MemoryStore, began: Instant, skew: i64, _pod: &str) -> Arc<Ledger> {
    ledger(store, began, skew)
}

/// Three pods.
const PODS: [(&str, i64); 3] = [("pod-a", 0), ("pod-b", -20), ("pod-c", 540)];

/// The most logins in any such time.
fn most_in(server: &MemoryVcenter, window: Duration) -> usize {
    let logins = server.logins();
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
