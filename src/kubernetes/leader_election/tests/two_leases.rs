//! The second Lease of a leader migration: competed for only while the main one is held.

use super::*;

const SECOND: &str = "migration";

struct Both {
    main: Candidate,
    second: Leadership,
    task: tokio::task::JoinHandle<Result<(), BoxError>>,
}

fn both(identity: &str, server: &Shared) -> Both {
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

    // Somebody takes the main Lease: the second one is given up, and nobody here competes for it.
    server.lock().unwrap().give_to(LEASE, "thief");
    soon("the main term ends", first.main.leadership.wait_until_lost()).await;
    soon("the second term ends", first.second.wait_until_lost()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.lock().unwrap().holder(SECOND), "");
    // The thief never renews. Whoever follows has both.
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
        loop {
            server.lock().unwrap().give_to(SECOND, "kube-controller-manager");
            tokio::time::sleep(Duration::from_secs(2)).await;
            // Renewed: the record changes each time.
            server.lock().unwrap().give_to(SECOND, "another");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), keeps).await.is_err());
    assert!(first.main.leadership.is_leader() && !first.second.is_leader());
    soon("it is competed for on", first.second.wait_until_leader()).await;
}
