//! The ledger over a store in memory.

use super::record::WINDOW;
use super::*;

#[test]
fn the_name_of_a_record_tells_servers_and_users_apart_and_shows_neither() {
    let name = record_name("vc.example.com:443", "ccm@vsphere.local");
    assert_eq!(name.len(), "vsphere-ccm-logins-".len() + 32);
    assert_eq!(name, record_name("VC.example.com:443", "CCM@vsphere.local"), "as vCenter compares them");
    assert_ne!(name, record_name("vc.example.com:444", "ccm@vsphere.local"));
    assert_ne!(name, record_name("vc.example.com:443", "ccm@vsphere.loca"));
    assert_ne!(record_name("a", "bc"), record_name("ab", "c"));
}

/// A ledger on this store, by a clock that goes with the paused one and is off by some seconds.
fn ledger(store: &MemoryStore, began: Instant, skew: i64) -> Ledger {
    let clock = move || 1_900_000_000 + i64::try_from(began.elapsed().as_secs()).unwrap_or(0) + skew;
    Ledger::with_clock(Some(Box::new(store.clone())), Arc::new(clock))
}

fn attempt(is_known: bool) -> Attempt {
    let (server, user) = ("vc.test:443".to_owned(), "ccm@vsphere.local".to_owned());
    Attempt { server, user, version: None, is_known, is_new: !is_known }
}

/// One login that ends so; nothing when it has to wait.
async fn one(ledger: &Ledger, attempt: &Attempt, outcome: Outcome) -> Result<(), Refused> {
    let claim = ledger.claim(attempt).await?;
    ledger.settle(claim, outcome).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_was_counted_while_the_store_was_out_of_reach_counts_when_it_is_back_and_for_others_too() {
    for outcome in [Outcome::Rejected, Outcome::Unanswered] {
        let (store, began) = (MemoryStore::default(), Instant::now());
        let replicas = [0, 60, -60, 10].map(|skew| self::ledger(&store, began, skew));
        store.fail(Some("the API server is down"));
        for replica in &replicas {
            assert_eq!(one(replica, &attempt(false), outcome).await, Ok(()));
            assert!(one(replica, &attempt(false), outcome).await.is_err(), "{outcome:?}: alone, one is all");
        }
        store.fail(None);
        // A pair that was accepted before is tried all the same, and whoever claims tells the others what he counted.
        for replica in &replicas {
            let _ = one(replica, &attempt(true), Outcome::Harmless).await;
        }
        let other = self::ledger(&store, began, 60);
        for (who, replica) in [("one of them", &replicas[0]), ("another replica", &other)] {
            let refused = one(replica, &attempt(false), outcome).await.unwrap_err();
            assert!(refused.pause > WINDOW.mul_f64(0.9), "{outcome:?}: {who}: {refused}");
        }
        // Whoever empties the record lets the account go: it is told once and not again.
        let name = record_name("vc.test:443", "ccm@vsphere.local");
        let version = store.read(&name).await.unwrap().unwrap().version;
        store.write(&name, Some(&version), "").await.unwrap();
        assert_eq!(one(&replicas[0], &attempt(false), Outcome::Harmless).await, Ok(()), "{outcome:?}");
    }
}

/// As sessions do: again when the pause is over.
#[tokio::test(start_paused = true)]
async fn three_processes_without_the_store_never_make_five_rejected_logins_in_three_minutes() {
    let began = Instant::now();
    let replicas = [0, 60, -60].map(|skew| {
        let store = MemoryStore::default();
        store.fail(Some("403"));
        (self::ledger(&store, began, skew), std::cell::Cell::new(Instant::now()))
    });
    let mut rejected: Vec<Instant> = Vec::new();
    while began.elapsed() < Duration::from_secs(7200) {
        for (replica, not_before) in &replicas {
            // Its session was accepted before, and again, until the password changed.
            let is_known = rejected.len() < replicas.len();
            if not_before.get() > Instant::now() {
                continue;
            }
            let pause = match replica.claim(&attempt(is_known)).await {
                Ok(claim) => {
                    rejected.push(Instant::now());
                    let pause = claim.pause_if_rejected;
                    assert_eq!(pause, WINDOW);
                    replica.settle(claim, Outcome::Rejected).await;
                    pause
                }
                Err(refused) => refused.pause,
            };
            not_before.set(Instant::now() + pause);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let within = |first: &Instant| {
        let end = *first + Duration::from_secs(180);
        rejected.iter().filter(|at| *at >= first && **at < end).count()
    };
    assert!(rejected.iter().map(within).max() <= Some(3) && rejected.len() >= 9, "{}", rejected.len());
}

#[tokio::test(start_paused = true)]
async fn a_pair_that_was_accepted_does_not_wait_for_rejections_that_are_over() {
    for skew in [0, 240, -240] {
        let (store, began) = (MemoryStore::default(), Instant::now());
        let (ledger, other) = (self::ledger(&store, began, 0), self::ledger(&store, began, skew));
        assert_eq!(one(&ledger, &attempt(false), Outcome::Harmless).await, Ok(()));
        // Another replica with the same pair meets an hour in which everything is rejected, while this one looks away.
        let mut is_known = true;
        for _ in 0..60 {
            if one(&other, &attempt(is_known), Outcome::Rejected).await.is_ok() {
                is_known = false;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(one(&ledger, &attempt(true), Outcome::Harmless).await, Ok(()), "{skew}");
    }
    // While it is young it casts doubt, and no longer.
    let (store, began) = (MemoryStore::default(), Instant::now());
    let (ledger, other) = (self::ledger(&store, began, 0), self::ledger(&store, began, 60));
    for _ in 0..3 {
        let claims = [other.claim(&attempt(true)).await, ledger.claim(&attempt(true)).await];
        for (claim, ledger) in claims.into_iter().zip([&other, &ledger]) {
            ledger.settle(claim.unwrap(), Outcome::Rejected).await;
        }
        tokio::time::sleep(WINDOW + Duration::from_secs(61)).await;
    }
    assert_eq!(one(&other, &attempt(true), Outcome::Rejected).await, Ok(()));
    let refused = one(&ledger, &attempt(true), Outcome::Rejected).await.unwrap_err();
    assert!(refused.pause <= WINDOW.mul_f64(1.25), "{refused}");
}

/// A store that answers, but takes its time.
struct Slow(MemoryStore, Duration);

#[async_trait]
impl Store for Slow {
    async fn read(&self, name: &str) -> Result<Option<Stored>, StoreError> {
        tokio::time::sleep(self.1).await;
        self.0.read(name).await
    }

    async fn write(&self, name: &str, version: Option<&str>, text: &str) -> Result<(), StoreError> {
        tokio::time::sleep(self.1).await;
        self.0.write(name, version, text).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_given_back_through_a_slow_api_server() {
    let store = MemoryStore::default();
    let slow = Slow(store.clone(), Duration::from_millis(700));
    let ledger = Ledger::with_clock(Some(Box::new(slow)), Arc::new(|| 1_900_000_000));
    assert_eq!(one(&ledger, &attempt(false), Outcome::Harmless).await, Ok(()));
    assert_eq!(store.texts().into_values().collect::<Vec<_>>(), ["{\"entries\":[]}"]);
}
