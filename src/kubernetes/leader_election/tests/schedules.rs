//! Property over random schedules: two or three candidates, late or lost requests and answers, frozen processes, and
//! wall clocks that jump. There are never two leaders, and no candidate writes while the Lease has another holder.
//! After the failures a candidate leads.

use super::server::Fate;
use super::*;
use proptest::prelude::*;
use std::future::poll_fn;
use std::sync::Arc;

/// Duration of the failures in virtual seconds.
const TROUBLE: u64 = 150;

/// Interruptions of one candidate.
#[derive(Clone, Debug)]
struct Life {
    /// Periods in which the tasks do not run: start and duration in milliseconds.
    frozen: Vec<(u64, u64)>,
    /// Jumps of the wall clock: time in milliseconds, distance in seconds.
    jumps: Vec<(u64, u64)>,
    /// Time in milliseconds at which the candidate is stopped and releases the Lease.
    stops: Option<u64>,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let time = prop_oneof![6 => 0..50u64, 2 => 50..4_000u64, 1 => 4_000..25_000u64];
    let fate = (time.clone(), prop::bool::weighted(0.85), prop::option::weighted(0.85, time)).prop_map(
        |(there, arrives, back)| Fate {
            there: Duration::from_millis(there),
            arrives,
            back: back.map(Duration::from_millis),
        },
    );
    prop::collection::vec(fate, 20..80)
}

fn life() -> impl Strategy<Value = Life> {
    let moment = 0..TROUBLE * 1000;
    let frozen = prop::collection::vec((moment.clone(), 100..40_000u64), 0..4);
    let jumps = prop::collection::vec((moment.clone(), 1..3600u64), 0..3);
    (frozen, jumps, prop::option::weighted(0.2, moment)).prop_map(|(frozen, jumps, stops)| Life {
        frozen,
        jumps,
        stops,
    })
}

/// Runs `future` without polling it in these periods.
async fn freezable<F: Future>(frozen: Arc<Vec<(Instant, Instant)>>, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut thaw = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(move |context| {
        let now = Instant::now();
        if let Some((_, until)) = frozen.iter().find(|(from, until)| *from <= now && now < *until) {
            thaw.as_mut().reset(*until);
            let _ = thaw.as_mut().poll(context);
            return std::task::Poll::Pending;
        }
        future.as_mut().poll(context)
    })
    .await
}

async fn play(fates: Vec<Fate>, lives: Vec<Life>) {
    let server = Server::shared();
    server.lock().unwrap().trouble = Trouble::Fates(fates);
    let start = Instant::now();
    let mut leaderships = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    for (number, life) in lives.into_iter().enumerate() {
        let identity = format!("host_{number}");
        let wall_clock = WallClock::default();
        let (elector, leadership) =
            LeaderElector::by_clock(client(&server), config(&identity), wall_clock.clone()).unwrap();
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        let frozen = Arc::new(life.frozen.iter().map(|(from, time)| (at(*from), at(from + time))).collect::<Vec<_>>());
        let stop = CancellationToken::new();
        let elect = elector.run(stop.clone());
        tasks.spawn(freezable(frozen.clone(), async move { drop(elect.await) }));
        tasks.spawn(freezable(frozen, node_writer(server.clone(), identity, LEASE, leadership.clone())));
        for (moment, ahead) in life.jumps {
            let wall_clock = wall_clock.clone();
            tasks.spawn(async move {
                tokio::time::sleep(Duration::from_millis(moment)).await;
                wall_clock.jump(Duration::from_secs(ahead));
            });
        }
        // The first candidate is never stopped.
        if let Some(moment) = life.stops.filter(|_| number > 0) {
            tasks.spawn(async move {
                tokio::time::sleep(Duration::from_millis(moment)).await;
                stop.cancel();
            });
        }
        leaderships.push(leadership);
    }
    let leaders = || leaderships.iter().filter(|leadership| leadership.is_leader()).count();
    while start.elapsed() < Duration::from_secs(TROUBLE) {
        assert!(leaders() < 2, "two leaders {:?} after the start", start.elapsed());
        tokio::time::sleep(Duration::from_millis(70)).await;
    }
    server.lock().unwrap().trouble = Trouble::None;
    let (calm, mut followed) = (Instant::now(), None);
    // Time for frozen processes to continue, late messages to arrive, a Lease to expire, and a retry period.
    while calm.elapsed() < Duration::from_secs(100) {
        assert!(leaders() < 2, "two leaders {:?} after the start", start.elapsed());
        if leaders() == 1 {
            followed.get_or_insert(calm.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(70)).await;
    }
    assert_eq!(leaders(), 1, "somebody leads when all is well");
    let server = server.lock().unwrap();
    assert_eq!(server.intruders.first(), None, "{} in all", server.intruders.len());
    assert!(server.writes(LEASE) > 0 && followed.is_some());
    drop(server);
    tasks.abort_all();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_has_two_leaders_or_a_write_after_the_term(
        fates in fates(),
        lives in prop::collection::vec(life(), 2..=3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(fates, lives));
    }
}
