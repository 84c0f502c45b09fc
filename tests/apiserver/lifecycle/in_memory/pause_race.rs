//! Pauses at random times, while Nodes are lost, requests take random times, and two processes take themselves for the
//! leader: between the acknowledgement of a pause and its end no Node is deleted.

use std::time::Duration;

use ccm::controllers::node_lifecycle::{LifecycleSettings, Limit};
use fastrand::Rng;
use tokio::time::Instant;

use super::server::Delays;
use super::world::{World, pass, seconds, settings};

/// Number of random runs.
const RUNS: u64 = 40;
/// Number of pauses in a run.
const PAUSES: usize = 4;
/// Longer than the controllers wait for an answer.
const LONGEST_REQUEST: Duration = Duration::from_secs(13);
/// Length of a pause that is ended by a command.
const LENGTH: Duration = Duration::from_secs(3600);

/// What one run has shown.
#[derive(Default)]
struct Seen {
    /// Acknowledged pauses, each with the beginning of its end.
    pauses: Vec<(Instant, Instant)>,
    refused: usize,
    deletions: Vec<Instant>,
}

async fn run(seed: u64) -> Seen {
    let limit = Limit { nodes: 1000, percent: 100, window: seconds(10) };
    let settings = LifecycleSettings { grace: seconds(1), mass_hold: Duration::ZERO, limit, ..settings() };
    let world = World::start(settings.clone()).await;
    let other = World::on(world.server.clone(), world.cloud.clone(), settings).await;
    world.server.with(|state| state.delays = Some(Delays::new(seed, LONGEST_REQUEST)));
    let mut random = Rng::with_seed(seed + 1);
    let mut seen = Seen::default();
    let losses = async {
        let mut random = Rng::with_seed(seed + 2);
        for number in 0.. {
            world.lose(&format!("n-{number}"));
            pass(Duration::from_millis(random.u64(100..3000))).await;
        }
    };
    let pauses = async {
        for _ in 0..PAUSES {
            pass(Duration::from_millis(random.u64(1000..30_000))).await;
            match other.pauses.start_pause(LENGTH, "x").await {
                Ok(_) => {
                    let acknowledged = Instant::now();
                    pass(Duration::from_millis(random.u64(1000..40_000))).await;
                    seen.pauses.push((acknowledged, Instant::now()));
                }
                // The API server was too slow. Nothing was promised.
                Err(_) => seen.refused += 1,
            }
            while world.pauses.end_pause().await.is_err() {}
        }
        // The last losses are deleted.
        pass(seconds(60)).await;
    };
    tokio::select! {
        () = pauses => {}
        () = losses => {}
    }
    seen.deletions = world.server.with(|state| std::mem::take(&mut state.deleted_at));
    seen
}

#[tokio::test(start_paused = true)]
async fn after_the_acknowledgement_of_a_pause_no_node_is_deleted() {
    let (mut pauses, mut deletions) = (0, 0);
    for seed in 0..RUNS {
        let seen = run(seed).await;
        for (acknowledged, ended) in &seen.pauses {
            let late: Vec<_> = seen.deletions.iter().filter(|at| *at >= acknowledged && *at <= ended).collect();
            assert!(late.is_empty(), "seed {seed}: {late:?} between {acknowledged:?} and {ended:?}");
        }
        pauses += seen.pauses.len();
        deletions += seen.deletions.len();
    }
    assert!(pauses > 20 && deletions > 400, "too little happened: {pauses} pauses, {deletions} deletions");
}
