//! Tests of the ledger with a store in memory.

use tokio::time::Instant;

use self::memory::MemoryStore;
use super::*;
use crate::cloud::login_ledger::SecretVersion;
use crate::kubernetes::login_ledger::record::EntryState;

#[path = "../../../tests/doubles/src/login_store.rs"]
mod memory;

const WINDOW: Duration = Duration::from_secs(200);

/// The login policy of vSphere. Its record names have no scope.
const POLICY: LoginPolicy = LoginPolicy { scope: "", window: WINDOW, budget: 3, budget_alone: 1 };

#[test]
fn the_name_of_a_record_tells_servers_and_users_apart_and_shows_neither() {
    let name = record_name("", "vc.example.com:443", "ccm@vsphere.local");
    assert_eq!(name.len(), "vsphere-ccm-logins-".len() + 32);
    assert_eq!(
        name, "vsphere-ccm-logins-40b8a9c1e5f793b97eb6f4602a6d2293",
        "replicas of another version read the same record"
    );
    assert_ne!(name, record_name("nsx", "vc.example.com:443", "ccm@vsphere.local"));
    assert_eq!(name, record_name("", "VC.example.com:443", "CCM@vsphere.local"), "as vCenter compares them");
    assert_ne!(name, record_name("", "vc.example.com:444", "ccm@vsphere.local"));
    assert_ne!(name, record_name("", "vc.example.com:443", "ccm@vsphere.loca"));
    assert_ne!(record_name("", "a", "bc"), record_name("", "ab", "c"));
}

/// Returns a ledger on this store. Its wall clock follows the paused clock, with an error of `skew` seconds.
fn ledger(store: &MemoryStore, began: Instant, skew: i64) -> Ledger {
    let clock = move || 1_900_000_000 + i64::try_from(began.elapsed().as_secs()).unwrap_or(0) + skew;
    Ledger::with_clock(store.clone(), Arc::new(clock))
}

fn attempt(is_known: bool) -> PlannedLogin {
    let (server, user) = ("vc.test:443".to_owned(), "ccm@vsphere.local".to_owned());
    PlannedLogin { policy: POLICY, server, user, version: None, was_accepted: is_known, is_new: !is_known }
}

/// Makes one login with this outcome. Returns an error if the login must wait.
async fn one(ledger: &Ledger, attempt: &PlannedLogin, outcome: Outcome) -> Result<(), LoginRefusal> {
    let claim = ledger.claim(attempt).await?;
    ledger.record_outcome(claim, outcome).await;
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
        // A claim writes the local entries of the replica to the store, also when it is refused.
        for replica in &replicas {
            let _ = one(replica, &attempt(true), Outcome::Harmless).await;
        }
        let other = self::ledger(&store, began, 60);
        for (who, replica) in [("one of them", &replicas[0]), ("another replica", &other)] {
            let refused = one(replica, &attempt(false), outcome).await.unwrap_err();
            assert!(refused.pause > WINDOW.mul_f64(0.9), "{outcome:?}: {who}: {refused}");
        }
        // After an administrator emptied the record, the replicas do not write their old entries again.
        let name = record_name("", "vc.test:443", "ccm@vsphere.local");
        let version = store.read(&name).await.unwrap().stored.unwrap().version;
        store.write(&name, Some(&version), "").await.unwrap();
        assert_eq!(one(&replicas[0], &attempt(false), Outcome::Harmless).await, Ok(()), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_did_not_reach_the_store_is_written_by_the_next_review() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let ledger = self::ledger(&store, began, 0);
    let claim = ledger.claim(&attempt(false)).await.unwrap();
    store.fail(Some("the API server is down"));
    ledger.record_outcome(claim, Outcome::Rejected).await;
    store.fail(None);
    let name = record_name("", "vc.test:443", "ccm@vsphere.local");
    let stored =
        async || Record::from_text(&store.read(&name).await.unwrap().stored.unwrap().text).entries.remove(0).state;
    assert_eq!(stored().await, EntryState::Claimed);
    assert!(!ledger.can_retry(&attempt(false), true).await);
    assert_eq!(stored().await, EntryState::Rejected);
}

/// The rejected request was a failed login for the account, although no login would have been allowed.
#[tokio::test(start_paused = true)]
async fn a_rejection_that_follows_no_claim_counts_also_when_the_budget_is_used_up() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let [counting, other] = [(); 2].map(|()| ledger(&store, began, 0));
    for _ in 0..3 {
        assert_eq!(one(&other, &attempt(false), Outcome::Rejected).await, Ok(()));
    }
    tokio::time::sleep(Duration::from_secs(150)).await;
    counting.count_rejection(&attempt(true)).await;
    let text = store.texts().into_values().next().unwrap();
    assert_eq!(text.matches("rejected").count(), 4, "{text}");
    // Of the window after the first three, one place is taken.
    tokio::time::sleep(Duration::from_secs(90)).await;
    for _ in 0..2 {
        assert_eq!(one(&other, &attempt(true), Outcome::Rejected).await, Ok(()));
    }
    assert!(other.claim(&attempt(true)).await.unwrap_err().is_lockout);
    // While the store is out of reach, the rejection takes the attempt of its process.
    store.fail(Some("the API server is down"));
    let alone = ledger(&store, began, 0);
    alone.count_rejection(&attempt(true)).await;
    assert!(alone.claim(&attempt(true)).await.unwrap_err().is_lockout);
}

/// Each process retries after its pause, as sessions do.
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
            // The first attempt of each process has a pair that was accepted before the password changed.
            let is_known = rejected.len() < replicas.len();
            if not_before.get() > Instant::now() {
                continue;
            }
            let pause = match replica.claim(&attempt(is_known)).await {
                Ok(claim) => {
                    rejected.push(Instant::now());
                    let pause = claim.pause_if_rejected;
                    assert_eq!(pause, WINDOW);
                    replica.record_outcome(claim, Outcome::Rejected).await;
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
        // For an hour all logins of another replica with the same pair are rejected. This replica makes no login.
        let mut is_known = true;
        for _ in 0..60 {
            if one(&other, &attempt(is_known), Outcome::Rejected).await.is_ok() {
                is_known = false;
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        assert_eq!(one(&ledger, &attempt(true), Outcome::Harmless).await, Ok(()), "{skew}");
    }
    // Only recent rejections delay a login with an accepted pair.
    let (store, began) = (MemoryStore::default(), Instant::now());
    let (ledger, other) = (self::ledger(&store, began, 0), self::ledger(&store, began, 60));
    for _ in 0..3 {
        for ledger in [&other, &ledger, &other] {
            assert_eq!(one(ledger, &attempt(true), Outcome::Rejected).await, Ok(()));
        }
        for ledger in [&other, &ledger] {
            let refused = one(ledger, &attempt(true), Outcome::Rejected).await.unwrap_err();
            assert!(refused.is_lockout && refused.pause <= WINDOW.mul_f64(1.25), "{refused:?}");
        }
        tokio::time::sleep(WINDOW + Duration::from_secs(61)).await;
    }
}

/// The rejections of a version lengthen the pauses of all replicas, until one of them logs in.
#[tokio::test(start_paused = true)]
async fn an_accepted_login_ends_the_growing_pauses_of_other_replicas() {
    let version = SecretVersion { uid: "u-1".to_owned(), resource_version: "7".to_owned() };
    for version in [None, Some(version)] {
        let of = |is_known| PlannedLogin { version: version.clone(), is_new: false, ..attempt(is_known) };
        let (store, began) = (MemoryStore::default(), Instant::now());
        let [one, other] = [(); 2].map(|()| self::ledger(&store, began, 0));
        for _ in 0..8 {
            while self::one(&one, &of(false), Outcome::Rejected).await.is_err() {
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
        }
        tokio::time::sleep(WINDOW + MARGIN).await;
        assert!(other.claim(&of(false)).await.unwrap_err().pause > Duration::from_secs(600), "{version:?}");
        assert!(!other.can_retry(&of(false), false).await, "{version:?}");
        assert_eq!(self::one(&one, &of(true), Outcome::Accepted).await, Ok(()), "{version:?}");
        tokio::time::sleep(SERVES_FOR).await;
        assert!(other.can_retry(&of(false), false).await, "{version:?}");
        assert_eq!(self::one(&other, &of(false), Outcome::Accepted).await, Ok(()), "{version:?}");
    }
}

/// A store that answers after a delay.
struct Slow(MemoryStore, Duration);

#[async_trait]
impl LedgerStore for Slow {
    async fn read(&self, name: &str) -> Result<StoreReading, StoreError> {
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
    let ledger = Ledger::with_clock(slow, Arc::new(|| 1_900_000_000));
    assert_eq!(one(&ledger, &attempt(false), Outcome::Harmless).await, Ok(()));
    assert_eq!(store.texts().into_values().collect::<Vec<_>>(), ["{\"entries\":[]}"]);
}

#[tokio::test(start_paused = true)]
async fn lost_answers_that_ended_with_an_accepted_login_hold_up_no_process_that_starts_later() {
    for hides_time in [false, true] {
        let (store, began) = (MemoryStore::default(), Instant::now());
        if hides_time {
            store.hide_time();
        }
        let old = self::ledger(&store, began, 0);
        for _ in 0..6 {
            assert_eq!(one(&old, &attempt(false), Outcome::Unanswered).await, Ok(()));
            tokio::time::sleep(Duration::from_secs(100) * 4).await;
        }
        assert_eq!(one(&old, &attempt(false), Outcome::Accepted).await, Ok(()));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(one(&self::ledger(&store, began, 0), &attempt(false), Outcome::Accepted).await, Ok(()));
        let left = store.texts().into_values().collect::<String>();
        assert_eq!(left, "{\"entries\":[]}");
    }
}

/// The clock of the process is wrong by up to 50 minutes, so the process uses the clock of the store.
#[tokio::test(start_paused = true)]
async fn the_dates_of_entries_are_believed_to_half_a_minute_by_a_process_that_has_just_started() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let old = self::ledger(&store, began, 500);
    for _ in 0..3 {
        assert_eq!(one(&old, &attempt(false), Outcome::Rejected).await, Ok(()));
    }
    tokio::time::sleep(Duration::from_secs(150)).await;
    for skew in [0, 3_000, -3_000] {
        let refused = self::ledger(&store, began, skew).claim(&attempt(false)).await.unwrap_err();
        // The rest of the window is 50 s. A margin and jitter are added.
        assert!((80..=100).contains(&refused.pause.as_secs()), "{skew}: {refused:?}");
    }
    // The store gives no time, and the clocks of the replicas differ by 500 s, so the pause is the whole window.
    store.hide_time();
    let refused = self::ledger(&store, began, 0).claim(&attempt(false)).await.unwrap_err();
    assert!((200..=250).contains(&refused.pause.as_secs()), "{refused:?}");
}

/// A process whose clock is behind claims a login and is killed.
#[tokio::test(start_paused = true)]
async fn a_claim_is_dated_by_the_clock_of_the_store() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    self::ledger(&store, began, -3_000).claim(&attempt(false)).await.unwrap();
    let refused = self::ledger(&store, began, 0).claim(&attempt(false)).await.unwrap_err();
    assert!(!refused.is_lockout && refused.pause < Duration::from_secs(2), "it is under way: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_running_process_sees_between_two_looks_is_as_old_as_its_date_says() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let (ledger, other) = (self::ledger(&store, began, 0), self::ledger(&store, began, 0));
    assert_eq!(one(&ledger, &attempt(false), Outcome::Harmless).await, Ok(()));
    for _ in 0..3 {
        assert_eq!(one(&other, &attempt(false), Outcome::Rejected).await, Ok(()));
    }
    tokio::time::sleep(Duration::from_secs(150)).await;
    let refused = ledger.claim(&attempt(false)).await.unwrap_err();
    assert!((80..=100).contains(&refused.pause.as_secs()), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_killed_process_is_lost_for_its_successor_and_under_way_for_others() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let of_pod = |pod: &str| self::ledger(&store, began, 0).in_pod(pod);
    let (killed, same_pod) = (of_pod("a"), of_pod("a"));
    let kept = same_pod.claim(&attempt(false)).await.unwrap();
    same_pod.record_outcome(kept, Outcome::Harmless).await;
    let claim = killed.claim(&attempt(false)).await.unwrap();
    assert!(store.texts().into_values().any(|text| text.contains(r#""pod":"a","start":""#)), "{:?}", store.texts());
    // A process that ran before the claim was made cannot be the successor of the killed process.
    for (who, ledger, may) in
        [("another pod", of_pod("b"), false), ("it ran before", same_pod, false), ("successor", of_pod("a"), true)]
    {
        let claimed = ledger.claim(&attempt(false)).await;
        assert_eq!(claimed.is_ok(), may, "{who}: {claimed:?}");
        if let Ok(claim) = claimed {
            ledger.record_outcome(claim, Outcome::Accepted).await;
        }
    }
    assert!(store.texts().into_values().all(|text| text.starts_with("{\"entries\":[]")), "the lost one is forgotten");
    // The killed process was still alive, and its login is rejected.
    killed.record_outcome(claim, Outcome::Rejected).await;
    let text = store.texts().into_values().collect::<String>();
    assert!(text.contains("rejected") && !text.contains("pod"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn claims_of_killed_processes_count_as_lost_answers() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    for _ in 0..4 {
        // The process ends without the outcome of its claim.
        assert!(self::ledger(&store, began, 0).in_pod("a").claim(&attempt(false)).await.is_ok());
    }
    let refused = self::ledger(&store, began, 0).in_pod("a").claim(&attempt(false)).await.unwrap_err();
    assert!(refused.is_lockout && refused.pause >= WINDOW, "{refused:?}");
}

/// The API server does not answer at the claim of the login, and answers again when the outcome is recorded.
#[tokio::test(start_paused = true)]
async fn an_accepted_login_that_was_claimed_alone_clears_the_lost_answers_in_the_store() {
    let version = SecretVersion { uid: "u-1".to_owned(), resource_version: "7".to_owned() };
    for version in [None, Some(version)] {
        let of = |is_known| PlannedLogin { version: version.clone(), ..attempt(is_known) };
        let (store, began) = (MemoryStore::default(), Instant::now());
        let (old, running) = (self::ledger(&store, began, 0), self::ledger(&store, began, 0));
        for _ in 0..4 {
            assert_eq!(one(&old, &of(false), Outcome::Unanswered).await, Ok(()));
        }
        assert!(self::ledger(&store, began, 0).claim(&of(false)).await.is_err(), "{version:?}: four use the budget up");
        store.fail(Some("no answer within 1 s"));
        let claim = running.claim(&of(true)).await.unwrap();
        store.fail(None);
        running.record_outcome(claim, Outcome::Accepted).await;
        let started = self::ledger(&store, began, 0);
        assert_eq!(one(&started, &of(false), Outcome::Accepted).await, Ok(()), "{version:?}");
    }
}

fn at(server: &str) -> PlannedLogin {
    PlannedLogin { server: server.to_owned(), ..attempt(false) }
}

#[tokio::test(start_paused = true)]
async fn the_command_that_ends_a_pause_deletes_the_rejections_of_the_account_at_every_server() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let ledger = self::ledger(&store, began, 0);
    for server in ["vc-a.test:443", "vc-b.test:443"] {
        ledger.register_server(POLICY, server);
    }
    for _ in 0..3 {
        assert_eq!(one(&ledger, &at("vc-a.test:443"), Outcome::Rejected).await, Ok(()));
    }
    let elsewhere = at("vc-b.test:443");
    assert!(ledger.claim(&elsewhere).await.unwrap_err().is_lockout);
    assert!(!ledger.can_retry(&elsewhere, false).await);
    let command = ledger.reset_command(POLICY, &elsewhere.server, &elsewhere.user).unwrap();
    let named: Vec<String> = store.texts().into_keys().filter(|name| command.contains(name.as_str())).collect();
    store.clear(&named);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(ledger.can_retry(&elsewhere, false).await, "{command}");
}

/// The login policy of NSX.
const NSX: LoginPolicy = LoginPolicy { scope: "nsx", window: Duration::from_secs(15 * 60), budget: 3, budget_alone: 1 };

fn at_nsx() -> PlannedLogin {
    PlannedLogin { policy: NSX, ..at("nsx.test:443") }
}

/// Returns a ledger with a vCenter and an NSX Manager.
fn ledger_of_both(store: &MemoryStore, began: Instant) -> Ledger {
    let ledger = self::ledger(store, began, 0);
    ledger.register_server(POLICY, "vc.test:443");
    ledger.register_server(NSX, "nsx.test:443");
    ledger
}

#[tokio::test(start_paused = true)]
async fn rejections_of_one_name_are_added_up_over_both_products_each_with_its_own_window() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let [one, other] = [(); 2].map(|()| ledger_of_both(&store, began));
    assert_eq!(self::one(&one, &at_nsx(), Outcome::Rejected).await, Ok(()));
    assert_eq!(self::one(&other, &attempt(false), Outcome::Rejected).await, Ok(()));
    assert_eq!(self::one(&one, &attempt(false), Outcome::Rejected).await, Ok(()));
    for (name, made, seconds) in [("nsx", at_nsx(), 900), ("vcenter", attempt(false), 200)] {
        let refused = other.claim(&made).await.unwrap_err();
        let most = seconds * 5 / 4 + 38;
        assert!(refused.is_lockout && (seconds..=most).contains(&refused.pause.as_secs()), "{name}: {refused:?}");
        assert!(!one.can_retry(&made, false).await, "{name}");
    }
    tokio::time::sleep(Duration::from_secs(240)).await;
    assert!(other.claim(&at_nsx()).await.unwrap_err().is_lockout, "15 min are not over");
    // The rejection at NSX is outside the window of vCenter, also for a process that has just started.
    assert_eq!(self::one(&ledger_of_both(&store, began), &attempt(false), Outcome::Harmless).await, Ok(()));
    tokio::time::sleep(Duration::from_secs(15 * 60 - 230)).await;
    assert_eq!(self::one(&other, &at_nsx(), Outcome::Harmless).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn another_name_and_lost_answers_at_another_product_do_not_count() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let ledger = ledger_of_both(&store, began);
    for _ in 0..4 {
        assert_eq!(one(&ledger, &attempt(false), Outcome::Unanswered).await, Ok(()));
    }
    let other_name = PlannedLogin { user: "other@vsphere.local".to_owned(), ..attempt(false) };
    for _ in 0..3 {
        assert_eq!(one(&ledger, &other_name, Outcome::Rejected).await, Ok(()));
    }
    assert!(ledger.claim(&attempt(false)).await.is_err() && ledger.claim(&other_name).await.is_err());
    for _ in 0..3 {
        assert_eq!(one(&ledger, &at_nsx(), Outcome::Rejected).await, Ok(()));
    }
    assert!(ledger.claim(&at_nsx()).await.unwrap_err().is_lockout);
}

#[tokio::test(start_paused = true)]
async fn the_command_that_ends_a_pause_names_the_leases_of_both_products() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let ledger = ledger_of_both(&store, began);
    for _ in 0..3 {
        assert_eq!(one(&ledger, &attempt(false), Outcome::Rejected).await, Ok(()));
    }
    assert!(ledger.claim(&at_nsx()).await.unwrap_err().is_lockout);
    let user = "ccm@vsphere.local";
    let names = [record_name("", "vc.test:443", user), record_name("nsx", "nsx.test:443", user)];
    for (policy, server) in [(POLICY, "vc.test:443"), (NSX, "nsx.test:443")] {
        let command = ledger.reset_command(policy, server, user).unwrap();
        assert!(names.iter().all(|name| command.contains(name.as_str())), "{command}");
    }
    store.clear(&names);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(ledger.can_retry(&at_nsx(), false).await);
}

/// Makes attempts with a wrong password for an hour. Each process retries after its pause, as sessions do, and is
/// replaced by a new process once. Returns the times of the attempts.
async fn an_hour_with_a_wrong_password(processes: u64, make: impl Fn() -> Ledger) -> Vec<Duration> {
    let began = Instant::now();
    let mut running: Vec<(Ledger, Duration)> = (0..processes).map(|_| (make(), Duration::ZERO)).collect();
    let mut attempts = Vec::new();
    while began.elapsed() < Duration::from_secs(3600) {
        for (number, (ledger, not_before)) in (0u64..).zip(&mut running) {
            let now = began.elapsed();
            if now.as_secs() == 420 * (number + 1) {
                (*ledger, *not_before) = (make(), now);
            }
            if *not_before > now {
                continue;
            }
            let pause = match ledger.claim(&at_nsx()).await {
                Ok(claim) => {
                    attempts.push(began.elapsed());
                    let pause = claim.pause_if_rejected;
                    ledger.record_outcome(claim, Outcome::Rejected).await;
                    pause
                }
                Err(refused) => refused.pause,
            };
            *not_before = now + pause;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    attempts
}

fn most_in(window: Duration, attempts: &[Duration]) -> usize {
    let of = |first: &Duration| attempts.iter().filter(|at| *at >= first && **at - *first < window).count();
    attempts.iter().map(of).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn five_replicas_that_restart_make_three_attempts_at_nsx_in_any_15_minutes() {
    for hides_time in [false, true] {
        let (store, began) = (MemoryStore::default(), Instant::now());
        if hides_time {
            store.hide_time();
        }
        let attempts = an_hour_with_a_wrong_password(5, || ledger_of_both(&store, began)).await;
        assert_eq!(most_in(NSX.window, &attempts), 3, "{attempts:?}");
        assert!(attempts.last() > Some(&Duration::from_secs(1800)), "they go on: {attempts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_without_the_store_makes_one_attempt_at_nsx_in_15_minutes() {
    let began = Instant::now();
    let make = || {
        let store = MemoryStore::default();
        store.fail(Some("403"));
        ledger_of_both(&store, began)
    };
    // The new process makes one further attempt.
    let attempts = an_hour_with_a_wrong_password(1, make).await;
    assert_eq!(most_in(NSX.window, &attempts), 2, "the restart adds one: {attempts:?}");
    let later: Vec<Duration> = attempts.into_iter().filter(|at| at.as_secs() >= 420).collect();
    assert_eq!((most_in(NSX.window, &later), later.len()), (1, 4), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_process_without_the_store_was_refused_at_vcenter_counts_at_nsx() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    store.fail(Some("403"));
    let ledger = ledger_of_both(&store, began);
    assert_eq!(one(&ledger, &attempt(false), Outcome::Rejected).await, Ok(()));
    tokio::time::sleep(Duration::from_secs(300)).await;
    let refused = ledger.claim(&at_nsx()).await.unwrap_err();
    assert!(refused.is_lockout && (600..=750).contains(&refused.pause.as_secs()), "{refused:?}");
    assert_eq!(one(&ledger, &attempt(false), Outcome::Harmless).await, Ok(()), "200 s are over");
    assert_eq!(ledger.reset_command(NSX, "nsx.test:443", "ccm@vsphere.local"), None);
}

/// The record is in the format of the previous version, which had no entries of other products.
#[tokio::test(start_paused = true)]
async fn a_record_of_the_version_before_counts_at_nsx_and_is_written_in_the_same_form() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let name = record_name("", "vc.test:443", "ccm@vsphere.local");
    let entry = |number: i64| {
        let at = 1_900_000_000 - 100 * number;
        format!(r#"{{"id":"id-{number}","at":{at},"state":"rejected","uid":"u-1","resourceVersion":"7"}}"#)
    };
    let text = format!(r#"{{"entries":[{},{},{}]}}"#, entry(3), entry(2), entry(1));
    store.write(&name, None, &text).await.unwrap();
    let ledger = ledger_of_both(&store, began);
    assert!(ledger.claim(&at_nsx()).await.unwrap_err().is_lockout);
    let version = Some(SecretVersion { uid: "u-1".to_owned(), resource_version: "8".to_owned() });
    let newer = PlannedLogin { version, ..attempt(false) };
    assert_eq!(one(&ledger, &newer, Outcome::Harmless).await, Ok(()), "two of them are in the 200 s");
    assert_eq!(store.texts().get(&name), Some(&text), "nothing is added that the version before does not know");
}

/// A store that counts reads and answers them after a delay.
struct CountingStore {
    store: MemoryStore,
    reads: Arc<std::sync::atomic::AtomicUsize>,
}

#[async_trait]
impl LedgerStore for CountingStore {
    async fn read(&self, name: &str) -> Result<StoreReading, StoreError> {
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.store.read(name).await
    }

    async fn write(&self, name: &str, version: Option<&str>, text: &str) -> Result<(), StoreError> {
        self.store.write(name, version, text).await
    }
}

/// An account of 20 vCenters is locked. The login at each is paused, and each vCenter has its own review.
#[tokio::test(start_paused = true)]
async fn a_review_of_many_paused_logins_reads_each_record_once() {
    let (store, reads) = (MemoryStore::default(), Arc::default());
    let counted = CountingStore { store: store.clone(), reads: Arc::clone(&reads) };
    let ledger = Ledger::with_clock(counted, Arc::new(|| 1_900_000_000));
    let servers: Vec<String> = (0..20).map(|number| format!("vc-{number}.test:443")).collect();
    servers.iter().for_each(|server| ledger.register_server(POLICY, server));
    for _ in 0..3 {
        assert_eq!(one(&ledger, &at(&servers[0]), Outcome::Rejected).await, Ok(()));
    }
    let review = async || {
        let before = reads.load(std::sync::atomic::Ordering::Relaxed);
        let reviews = servers.iter().map(async |server| ledger.can_retry(&at(server), false).await);
        let answers = futures::future::join_all(reviews).await;
        (answers.into_iter().filter(|may| *may).count(), reads.load(std::sync::atomic::Ordering::Relaxed) - before)
    };
    assert_eq!(review().await, (0, servers.len()));
    store.clear(&store.texts().into_keys().collect::<Vec<_>>());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(review().await, (servers.len(), servers.len()));
}

#[tokio::test(start_paused = true)]
async fn a_review_does_not_take_a_rejection_for_deleted_that_is_younger_than_its_reading() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let ledger = self::ledger(&store, began, 0);
    assert!(!ledger.can_retry(&attempt(false), true).await);
    assert_eq!(one(&ledger, &attempt(false), Outcome::Rejected).await, Ok(()));
    assert!(!ledger.can_retry(&attempt(false), true).await);
}

/// A process may run for months while user names change, for example with generated accounts.
#[tokio::test(start_paused = true)]
async fn accounts_that_are_not_used_any_more_are_forgotten() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let ledger = self::ledger(&store, began, 0);
    for number in 0..100 {
        let attempt = PlannedLogin { user: format!("ccm-{number}"), ..attempt(false) };
        assert_eq!(one(&ledger, &attempt, Outcome::Accepted).await, Ok(()));
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let (own, seen) = ledger.local.lock().remembered();
    assert!(own == 0 && seen <= 25, "{own} records of its own, {seen} seen");
}
