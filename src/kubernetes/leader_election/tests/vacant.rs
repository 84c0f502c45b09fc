//! Tests with a Lease that an administrator deletes or empties while it has a holder. The holder stays the leader, and
//! no other candidate leads before the Lease would have expired.

use super::*;

type Vacate = fn(&mut Server);

/// Changes that an administrator makes to a Lease.
const VACATED: [(&str, Vacate); 2] =
    [("deleted", |server| server.delete(LEASE)), ("emptied", |server| server.empty(LEASE))];

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_vacated_under_its_holder_has_no_second_leader() {
    // The pauses of the candidates come from the same generator, so `SEED=7` repeats the whole run with that seed.
    let given = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    fastrand::seed(seed);
    for (how, vacate) in VACATED {
        let mut two = 0;
        for _ in 0..20 {
            let server = Server::shared();
            let first = candidate("a_1", &server);
            soon("the first leads", first.leadership.wait_until_leader()).await;
            let second = candidate("b_2", &server);
            tokio::time::sleep(Duration::from_millis(fastrand::u64(10_000..20_000))).await;
            // A change right after a renewal is noticed as late as possible.
            let renewals = server.lock().unwrap().verbs.len();
            while server.lock().unwrap().verbs.iter().skip(renewals).all(|verb| verb != "PUT") {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            vacate(&mut server.lock().unwrap());
            let end = Instant::now() + Duration::from_secs(60);
            while Instant::now() < end {
                if first.leadership.is_leader() && second.leadership.is_leader() {
                    two += 1;
                    break;
                }
                assert!(two > 0 || first.leadership.is_leader(), "{how}: the holder leads on");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            first.task.abort();
            second.task.abort();
        }
        assert_eq!(two, 0, "{how}: two leaders in so many of 20 rounds");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_vacated_after_its_holder_died_is_taken_when_it_would_have_ended() {
    for (how, vacate) in VACATED {
        let server = Server::shared();
        let first = candidate("a_1", &server);
        soon("the first leads", first.leadership.wait_until_leader()).await;
        let second = candidate("b_2", &server);
        tokio::time::sleep(Duration::from_secs(9)).await;
        first.task.abort();
        vacate(&mut server.lock().unwrap());
        let took = soon("the second leads", second.leadership.wait_until_leader()).await;
        // The candidate polls every 2 s to 4 s.
        assert!((Duration::from_secs(10)..Duration::from_secs(20)).contains(&took), "{how}: {took:?}");
        second.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn who_never_saw_the_lease_creates_it_at_once_and_waits_for_one_that_is_emptied() {
    for (how, vacate, least) in [("deleted", VACATED[0].1, 0), ("emptied", VACATED[1].1, 15)] {
        let server = Server::shared();
        let first = candidate("a_1", &server);
        soon("the first leads", first.leadership.wait_until_leader()).await;
        first.task.abort();
        vacate(&mut server.lock().unwrap());
        let other = candidate("b_2", &server);
        let took = soon("it leads", other.leadership.wait_until_leader()).await.as_secs();
        assert!((least..least + 5).contains(&took), "{how}: {took} s");
        other.task.abort();
    }
}
