//! Tests of the elector with a scripted API server and a paused clock.

mod machines;
mod schedules;
mod seam;
mod server;
mod two_leases;
mod vacant;

use super::*;
use server::{LEASE, Server, SharedServer, Trouble, client, node_writer};

fn config(identity: &str) -> LeaseConfig {
    LeaseConfig {
        namespace: "kube-system".into(),
        name: LEASE.into(),
        identity: identity.into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

struct Candidate {
    leadership: Leadership,
    metrics: crate::runtime::metrics::Registry,
    wall_clock: WallClock,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), BoxError>>,
}

fn candidate(identity: &str, server: &SharedServer) -> Candidate {
    let wall_clock = WallClock::default();
    let (elector, leadership) = LeaderElector::by_clock(client(server), config(identity), wall_clock.clone()).unwrap();
    let metrics = crate::runtime::metrics::Registry::default();
    elector.register(&metrics).unwrap();
    let stop = CancellationToken::new();
    Candidate { leadership, metrics, wall_clock, stop: stop.clone(), task: tokio::spawn(elector.run(stop)) }
}

async fn soon(what: &str, future: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    tokio::time::timeout(Duration::from_secs(120), future)
        .await
        .unwrap_or_else(|_| panic!("{what} within two minutes"));
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn one_works_and_a_clean_stop_hands_over() {
    let server = Server::shared();
    let first = candidate("a_1", &server);
    soon("the first leads", first.leadership.wait_until_leader()).await;
    let second = candidate("b_2", &server);
    let both = soon("never", async { second.leadership.wait_until_leader().await });
    assert!(tokio::time::timeout(Duration::from_secs(100), both).await.is_err(), "renewals keep the other away");
    assert!(first.leadership.is_leader());
    {
        let server = server.lock().unwrap();
        let puts = server.verbs.iter().filter(|verb| *verb == "PUT").count();
        assert!((48..=51).contains(&puts), "renewed every two seconds: {puts}");
        assert_eq!(server.spec(LEASE)["leaseTransitions"], 0);
    }

    first.stop.cancel();
    first.task.await.unwrap().unwrap();
    assert!(!first.leadership.is_leader());
    let took = soon("the second leads", second.leadership.wait_until_leader()).await;
    assert!(took <= Duration::from_millis(4400), "polling alone takes one jittered period: {took:?}");
    assert_eq!(server.lock().unwrap().holder(LEASE), "b_2");
    assert_eq!(server.lock().unwrap().spec(LEASE)["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_ends_the_term_at_the_deadline_and_the_process_stands_by() {
    let server = Server::shared();
    let first = candidate("a_1", &server);
    soon("it leads", first.leadership.wait_until_leader()).await;
    tokio::time::sleep(Duration::from_millis(8500)).await;
    server.lock().unwrap().trouble = Trouble::Silent;
    let lasted = soon("it stops", first.leadership.wait_until_lost()).await;
    // The last renewal was sent 0.5 s before the server stopped answering.
    assert!(lasted > Duration::from_secs(9) && lasted < Duration::from_secs(10), "{lasted:?}");
    assert!(!first.task.is_finished(), "it competes on");

    server.lock().unwrap().trouble = Trouble::None;
    soon("it leads again", first.leadership.wait_until_leader()).await;
}

#[tokio::test(start_paused = true)]
async fn a_vanished_leader_is_followed_after_its_lease_duration_and_not_earlier() {
    let server = Server::shared();
    let first = candidate("a_1", &server);
    soon("the first leads", first.leadership.wait_until_leader()).await;
    let second = candidate("b_2", &server);
    tokio::time::sleep(Duration::from_secs(9)).await;
    first.task.abort();
    let took = soon("the second leads", second.leadership.wait_until_leader()).await;
    assert!(took > Duration::from_secs(13) && took < Duration::from_secs(20), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_at_once() {
    let server = Server::shared();
    let first = candidate("a_1", &server);
    soon("it leads", first.leadership.wait_until_leader()).await;
    server.lock().unwrap().give_to(LEASE, "thief");
    let took = soon("it stops", first.leadership.wait_until_lost()).await;
    assert!(took <= Duration::from_secs(2), "{took:?}");
    assert_eq!(server.lock().unwrap().holder(LEASE), "thief");
    let slow = first.metrics.gather().into_iter().find(|family| family.name() == "leader_election_slowpath_total");
    assert_eq!(slow.unwrap().get_metric()[0].get_counter().get_value(), 1.0, "the record in memory was out of date");
    first.stop.cancel();
    first.task.await.unwrap().unwrap();
    assert_eq!(server.lock().unwrap().holder(LEASE), "thief", "nothing of ours to give up");
}

#[tokio::test(start_paused = true)]
async fn a_standby_shows_when_it_last_saw_a_renewal_and_when_it_last_read_the_lease() {
    let server = Server::shared();
    let first = candidate("a_1", &server);
    soon("the first leads", first.leadership.wait_until_leader()).await;
    let (elector, _leadership) = LeaderElector::by_clock(client(&server), config("b_2"), WallClock::default()).unwrap();
    let status = elector.status();
    assert_eq!(*status.borrow(), LeaseStatus::default());
    let stop = CancellationToken::new();
    let standby = tokio::spawn(elector.run(stop.clone()));
    // Returns the ages of the last renewal and of the last read, in seconds.
    let ages = || {
        let status = status.borrow().clone();
        assert_eq!((status.holder.as_deref(), status.duration), (Some("a_1"), Some(Duration::from_secs(15))));
        [status.renewed, status.read].map(|time| time.unwrap().elapsed().as_secs())
    };
    tokio::time::sleep(Duration::from_secs(30)).await;
    let [renewed, read] = ages();
    assert!(renewed <= 7 && read <= 4, "{renewed} {read}");
    first.task.abort();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let [renewed, read] = ages();
    assert!((8..=15).contains(&renewed) && read <= 4, "the holder has died: {renewed} {read}");
    server.lock().unwrap().trouble = Trouble::Silent;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let [renewed, read] = ages();
    assert!(renewed >= 68 && read >= 60, "the API server does not answer: {renewed} {read}");
    standby.abort();
}

#[test]
fn times_that_do_not_fit_are_refused() {
    let second = Duration::from_secs(1);
    let cases = [
        ("defaults", [15, 10, 2], ""),
        ("deadline as long as the lease", [10, 10, 2], "the lease duration must be longer than the renew deadline"),
        ("no room for a retry", [15, 2, 2], "the renew deadline must be longer than 1.2 times the retry period"),
        ("no pause", [15, 10, 0], "the retry period must be longer than zero"),
    ];
    for (case, [lease, deadline, retry], expected) in cases {
        let config = LeaseConfig {
            lease_duration: second * lease,
            renew_deadline: second * deadline,
            retry_period: second * retry,
            ..config("a")
        };
        let complaint = config.validate().err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(complaint, expected, "{case}");
    }
    assert!(identity("host").starts_with("host_") && identity("host") != identity("host"));
}
