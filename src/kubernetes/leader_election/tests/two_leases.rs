//! Tests of the second Lease of a leader migration. A process competes for it only while it holds the main Lease.

use super::*;

const SECOND: &str = "migration";

struct Both {
    main: Candidate,
    second: Leadership,
    task: tokio::task::JoinHandle<Result<(), BoxError>>,
}

fn both(identity: &str, server: &SharedServer) -> Both {
    let main = candidate(identity, server);
    let config = LeaseConfig { name: SECOND.to_owned(), ..config(identity) };
    let (elector, second) = LeaderElector::new(client(server), config).unwrap();
    let task = tokio::spawn(elector.run_under(main.leadership.clone(), main.stop.clone()));
    Both { main, second, task }
}

#[tokio::test(start_paused = true)]
async fn the_second_lease_follows_the_main_one_and_is_given_up_with_it() {
    let server = Server::shared();
    let first = both("a_1", &server);
    soon("it has both", first.second.wait_until_leader()).await;
    assert!(first.main.leadership.is_leader());
    let other = both("b_2", &server);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!other.main.leadership.is_leader() && !other.second.is_leader());

    // Another process takes the main Lease. The candidate releases the second Lease, and no candidate competes for it.
    server.lock().unwrap().give_to(LEASE, "thief");
    soon("the main term ends", first.main.leadership.wait_until_lost()).await;
    soon("the second term ends", first.second.wait_until_lost()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.lock().unwrap().holder(SECOND), "");
    // The other process never renews. The next leader holds both Leases.
    soon("somebody has the second again", async {
        tokio::select! {
            () = first.second.wait_until_leader() => {}
            () = other.second.wait_until_leader() => {}
        }
    })
    .await;
    for candidate in [&first, &other] {
        assert_eq!(candidate.main.leadership.is_leader(), candidate.second.is_leader());
    }
    for candidate in [first, other] {
        candidate.main.stop.cancel();
        candidate.main.task.await.unwrap().unwrap();
        candidate.task.await.unwrap().unwrap();
    }
    let server = server.lock().unwrap();
    assert_eq!((server.holder(LEASE), server.holder(SECOND)), (String::new(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_second_lease_that_another_program_holds_costs_nothing_of_the_main_one() {
    let server = Server::shared();
    let first = both("a_1", &server);
    soon("it has both", first.second.wait_until_leader()).await;
    server.lock().unwrap().give_to(SECOND, "kube-controller-manager");
    soon("the second term ends", first.second.wait_until_lost()).await;
    assert!(first.main.leadership.is_leader());
    let keeps = async {
        for renewal in 0.. {
            // Each renewal writes a different record. With two alternating records, a candidate that polls every few
            // seconds could see the same record for a whole lease duration and acquire the Lease.
            server.lock().unwrap().give_to(SECOND, &format!("kube-controller-manager-{renewal}"));
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), keeps).await.is_err());
    assert!(first.main.leadership.is_leader() && !first.second.is_leader());
    soon("it is competed for on", first.second.wait_until_leader()).await;
}

/// The way in which a Lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The Lease cannot be renewed.
    Unreachable,
    /// Another process takes the Lease and never renews it.
    Taken,
}

/// Some controllers of the process work under the main Lease, others under the second Lease.
#[tokio::test(start_paused = true)]
async fn without_the_second_lease_those_under_it_rest_and_without_the_main_one_all() {
    for (lease, loss) in
        [SECOND, LEASE].into_iter().flat_map(|lease| [Loss::Unreachable, Loss::Taken].map(|loss| (lease, loss)))
    {
        let server = Server::shared();
        let first = both("a_1", &server);
        let leaderships = [(LEASE, &first.main.leadership), (SECOND, &first.second)];
        let workers = leaderships
            .map(|(lease, under)| tokio::spawn(node_writer(server.clone(), "a_1".to_owned(), lease, under.clone())));
        let writes = || leaderships.map(|(lease, _)| server.lock().unwrap().writes(lease));
        // Returns for each Lease whether a controller writes under it within the next 5 s.
        let works = async || {
            let before = writes();
            tokio::time::sleep(Duration::from_secs(5)).await;
            let after = writes();
            [after[0] > before[0], after[1] > before[1]]
        };
        soon("it has both", first.second.wait_until_leader()).await;
        assert_eq!(works().await, [true, true], "{lease} {loss:?}");

        match loss {
            Loss::Unreachable => server.lock().unwrap().unreachable = Some(lease),
            Loss::Taken => server.lock().unwrap().give_to(lease, "somebody"),
        }
        soon("the second term ends", first.second.wait_until_lost()).await;
        if lease == LEASE {
            soon("the main term ends", first.main.leadership.wait_until_lost()).await;
        }
        let keeps_main = lease == SECOND;
        assert_eq!(works().await, [keeps_main, false], "{lease} {loss:?}");
        assert_eq!(
            (first.main.leadership.is_leader(), first.second.is_leader()),
            (keeps_main, false),
            "{lease} {loss:?}"
        );

        server.lock().unwrap().unreachable = None;
        soon("it has both again", first.second.wait_until_leader()).await;
        assert_eq!(works().await, [true, true], "{lease} {loss:?}");
        // If another process takes the Lease, the holder still writes until it notices the change.
        let intruders = server.lock().unwrap().intruders.clone();
        assert!(loss == Loss::Taken || intruders.is_empty(), "{lease} {loss:?}: {intruders:?}");
        workers.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
