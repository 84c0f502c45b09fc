//! Tests with a suspended machine, a cut connection and a slow API server. There are never two leaders and no write
//! after a term, and at the end a candidate leads again.

use super::*;

/// Two candidates that write to a Node as long as they are allowed to.
struct Pair {
    server: SharedServer,
    candidates: [Candidate; 2],
    writers: [tokio::task::JoinHandle<()>; 2],
}

impl Pair {
    /// Starts both candidates. The first one is the leader.
    async fn start() -> Self {
        let server = Server::shared();
        let start = |identity: &str| {
            let candidate = candidate(identity, &server);
            let writer = node_writer(server.clone(), identity.to_owned(), LEASE, candidate.leadership.clone());
            (candidate, tokio::spawn(writer))
        };
        let (first, first_writer) = start("a_1");
        soon("the first leads", first.leadership.wait_until_leader()).await;
        let (second, second_writer) = start("b_2");
        Self { server, candidates: [first, second], writers: [first_writer, second_writer] }
    }

    fn leaders(&self) -> usize {
        self.candidates.iter().filter(|candidate| candidate.leadership.is_leader()).count()
    }

    /// Counts the leaders ten times a second for this time. Checks that there are never two.
    async fn watch(&self, time: Duration) -> Vec<usize> {
        let mut seen = Vec::new();
        let end = Instant::now() + time;
        while Instant::now() < end {
            seen.push(self.leaders());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(seen.iter().all(|leaders| *leaders < 2), "{seen:?}");
        seen
    }

    fn assert_safe(self) {
        for writer in self.writers {
            assert!(!writer.is_finished());
            writer.abort();
        }
        let server = self.server.lock().unwrap();
        assert_eq!(server.intruders.first(), None, "{} in all", server.intruders.len());
        assert!(server.writes(LEASE) > 10, "somebody wrote: {}", server.writes(LEASE));
    }

    fn writes(&self) -> u32 {
        self.server.lock().unwrap().writes(LEASE)
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// After a suspension the monotonic clock of a process has stood still, and the wall clock has continued.
#[tokio::test(start_paused = true)]
async fn a_suspended_machine_wakes_up_as_a_standby_although_its_own_clock_stood_still() {
    let pair = Pair::start().await;
    let [first, second] = &pair.candidates;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = pair.writes();
    let lost = first.leadership.wait_until_lost();
    // During the suspension another candidate became the leader.
    first.wall_clock.jump(HOUR);
    pair.server.lock().unwrap().give_to(LEASE, "b_2");
    assert!(!first.leadership.is_leader(), "at once, before any task ran");
    soon("a write in hand is given up", lost).await;
    soon("the other leads", second.leadership.wait_until_leader()).await;
    assert!(!first.leadership.is_leader());
    pair.watch(Duration::from_secs(60)).await;
    assert!(pair.writes() > before, "the other works");
    pair.assert_safe();
}

#[tokio::test(start_paused = true)]
async fn a_suspended_machine_that_nobody_followed_leads_again_in_a_new_term() {
    let pair = Pair::start().await;
    let first = &pair.candidates[0];
    let lost = first.leadership.wait_until_lost();
    first.wall_clock.jump(HOUR);
    assert!(!first.leadership.is_leader());
    let took = soon("it leads again", first.leadership.wait_until_leader()).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    soon("what was in hand stays given up", lost).await;
    pair.watch(Duration::from_secs(30)).await;
    pair.assert_safe();
}

/// All answers are lost, but renewals take effect. The Lease has a holder that has no valid term.
#[tokio::test(start_paused = true)]
async fn a_cut_connection_ends_the_term_in_time_and_leadership_is_regained() {
    let pair = Pair::start().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    pair.server.lock().unwrap().trouble = Trouble::LosesAnswers;
    let cut = Instant::now();
    soon("the term ends", pair.candidates[0].leadership.wait_until_lost()).await;
    assert!(cut.elapsed() <= Duration::from_secs(10), "{:?}", cut.elapsed());
    let during = pair.watch(Duration::from_secs(60)).await;
    assert!(during.iter().all(|leaders| *leaders == 0), "nobody knows that he leads");
    pair.server.lock().unwrap().trouble = Trouble::None;
    let after = pair.watch(Duration::from_secs(60)).await;
    assert_eq!(after.last(), Some(&1));
    pair.assert_safe();
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_the_first_write_may_be_lost() {
    let server = Server::shared();
    server.lock().unwrap().trouble = Trouble::LosesAnswersToWrites;
    let only = candidate("a_1", &server);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!only.leadership.is_leader());
    {
        let server = server.lock().unwrap();
        assert!(server.verbs.iter().any(|verb| verb == "POST"), "it was made: {:?}", server.verbs);
        assert!(server.verbs.iter().any(|verb| verb == "PUT"), "and found, and renewed: {:?}", server.verbs);
        assert_eq!(server.holder(LEASE), "a_1", "and it does not know");
    }
    server.lock().unwrap().trouble = Trouble::None;
    soon("it finds its own name", only.leadership.wait_until_leader()).await;
    assert_eq!(server.lock().unwrap().spec(LEASE)["leaseTransitions"], 0);
}

/// Only answers to writes are lost. Reads show the renewed Lease, but the term still ends: a read of the own record
/// does not replace the answer to a renewal.
#[tokio::test(start_paused = true)]
async fn answers_of_renewals_alone_may_be_lost() {
    let pair = Pair::start().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    pair.server.lock().unwrap().trouble = Trouble::LosesAnswersToWrites;
    let cut = Instant::now();
    soon("the term ends", pair.candidates[0].leadership.wait_until_lost()).await;
    assert!(cut.elapsed() <= Duration::from_secs(10), "{:?}", cut.elapsed());
    let during = pair.watch(Duration::from_secs(60)).await;
    assert!(during.iter().all(|leaders| *leaders == 0), "nobody knows that he leads");
    pair.server.lock().unwrap().trouble = Trouble::None;
    let after = pair.watch(Duration::from_secs(60)).await;
    assert_eq!(after.last(), Some(&1));
    pair.assert_safe();
}

/// A process releases the Lease when it stops, even if it is not sure that it is the holder.
#[tokio::test(start_paused = true)]
async fn what_may_be_held_is_given_up() {
    let server = Server::shared();
    let only = candidate("a_1", &server);
    soon("it leads", only.leadership.wait_until_leader()).await;
    server.lock().unwrap().trouble = Trouble::LosesAnswers;
    soon("the term ends", only.leadership.wait_until_lost()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.lock().unwrap().trouble = Trouble::None;
    // The process does not lead any more. The answer to its attempt to lead again was lost too.
    only.stop.cancel();
    soon("it stops", async { only.task.await.unwrap().unwrap() }).await;
    assert_eq!(server.lock().unwrap().holder(LEASE), "");
}

/// Every answer arrives after the request timeout.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_too_slow_has_no_leader_and_no_two() {
    let pair = Pair::start().await;
    pair.server.lock().unwrap().trouble = Trouble::Slow(Duration::from_millis(5_500));
    let slow = pair.watch(Duration::from_secs(120)).await;
    assert_eq!(slow.last(), Some(&0));
    pair.server.lock().unwrap().trouble = Trouble::None;
    let after = pair.watch(Duration::from_secs(60)).await;
    assert_eq!(after.last(), Some(&1));
    pair.assert_safe();
}

/// Every answer is slow, but arrives in time. A renewal counts from the time before it was sent.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_and_in_time_keeps_its_leader() {
    let pair = Pair::start().await;
    pair.server.lock().unwrap().trouble = Trouble::Slow(Duration::from_secs(4));
    let seen = pair.watch(Duration::from_secs(120)).await;
    assert!(seen.iter().all(|leaders| *leaders == 1) && pair.candidates[0].leadership.is_leader());
    pair.assert_safe();
}
