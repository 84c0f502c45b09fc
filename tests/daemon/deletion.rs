//! No Node is deleted whose machine may exist, and those whose machine is destroyed are.
//!
//! Each row takes a cluster of its own through one trouble: one node whose machine is there and goes wrong, one whose
//! machine is truly destroyed, one that is well, and one that is ready though its machine is destroyed. "Not deleted" is
//! not looked at too early: a node that must stay is told with the expected reason where one is due, and was looked at
//! again and again after its grace period. When the trouble is mended, the node of the destroyed machine is deleted, and
//! the others stay.

mod back;
mod evidence;
mod kubelets;
mod leaders;
mod nodes;
mod rows;
mod thousand;
mod world;

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _};

use evidence::ABSENT;
use rows::{Fate, Moment, Row};
use support::Model;
use world::{NOT_READY, PROMPT, Role, World};

use crate::cluster::LIMIT;

/// Rows that run side by side: most of their time is waiting.
const AT_ONCE: usize = 10;

/// The time limit of a call. Where a fault hangs the next search, it is chance whether that belongs to the proof for the
/// destroyed machine, whose deletion then waits for it.
const HUNG: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_is_deleted_that_should_not_be() {
    prove_all(|row| row.moments).await;
}

mod nightly {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_node_is_deleted_that_should_not_be_in_any_other_row() {
        super::prove_all(|row| row.nightly).await;
    }
}

/// Proves all rows at these of their moments.
async fn prove_all(moments: fn(&Row) -> &'static [Moment]) {
    support::api_server::install_crypto();
    let only = std::env::var("CCM_DELETION").unwrap_or_default();
    let began = Instant::now();
    let rows = rows::all().into_iter().filter(|row| row.name.contains(&only)).collect::<Vec<_>>();
    assert!(!rows.is_empty(), "no row is called {only}");
    let cases = rows.iter().flat_map(|row| moments(row).iter().map(move |moment| (row, *moment)));
    let proofs = cases.map(|(row, moment)| async move {
        let began = Instant::now();
        let proof = AssertUnwindSafe(prove(row, moment)).catch_unwind().await;
        let failure = proof.err().map(|panic| panic_text(&*panic));
        let verdict = if failure.is_none() { "holds" } else { "FAILS" };
        println!("{verdict} after {:4.1} s: {}, {moment:?}", began.elapsed().as_secs_f32(), row.name);
        (format!("{}, {moment:?}", row.name), failure)
    });
    let results: Vec<(String, Option<String>)> =
        futures::stream::iter(proofs).buffer_unordered(AT_ONCE).collect().await;
    println!("{} rows in {:.1} s", results.len(), began.elapsed().as_secs_f32());
    assert!(!results.is_empty() || !only.is_empty(), "nothing was proved");
    let failures: Vec<String> =
        results.iter().filter_map(|(name, why)| why.as_ref().map(|why| format!("{name}: {why}"))).collect();
    assert!(failures.is_empty(), "{} of {} rows fail:\n{}", failures.len(), results.len(), failures.join("\n\n"));
}

async fn prove(row: &Row, moment: Moment) {
    let models = (0..row.vcenters).map(|_| (row.model)(Model::small())).collect();
    let mut world = World::start(models, row.homes).await;
    if moment == Moment::AfterRestart {
        world.kill_daemon().await;
    }
    for role in [Role::Doomed, Role::Live] {
        world.destroy(role);
    }
    (row.begin)(&mut world).await;
    if moment == Moment::AfterRestart {
        world.start_daemon();
    }
    let mut since = Instant::now();
    world.turn_not_ready().await;
    if moment == Moment::AfterRestart && row.fates.contains(&Fate::Deleted) {
        // The process has to start and to log in before it is told anything. That waits for no call that hangs either.
        world.daemon().wait_for_line(" starts", LIMIT).await;
        let starts = Instant::now();
        world.until_told(Role::Doomed.number(), "").await;
        since = Instant::now();
        assert!(since - starts <= PROMPT, "it was told something after {:?}", since - starts);
    }
    let hung = if row.may_hang { HUNG } else { Duration::ZERO };
    meet(&mut world, row.fates, Some((since, PROMPT + hung))).await;
    if row.fates != row.mended {
        (row.end)(&mut world).await;
        meet(&mut world, row.mended, None).await;
    }
}

/// Waits until each node has met its fate, and those that stay have been looked at often enough. `soon` is from when on
/// the daemon could be told of a machine that is gone, and what each of the two proofs may take.
async fn meet(world: &mut World, fates: [Fate; 3], soon: Option<(Instant, Duration)>) {
    let fates = NOT_READY.map(Role::number).into_iter().zip(fates);
    // First, because their time is taken.
    for (number, _) in fates.clone().filter(|(_, fate)| *fate == Fate::Deleted) {
        match soon {
            Some((since, limit)) => world.until_deleted_soon(number, since, limit).await,
            None => world.until_deleted(number, Instant::now()).await,
        };
    }
    let mut stay = Vec::new();
    for (number, fate) in fates {
        match fate {
            Fate::Deleted => continue,
            Fate::Held(words) => drop(world.until_held(number, words).await),
            Fate::Exists | Fate::Stays => {}
        }
        stay.push(number);
    }
    world.stay(&stay, &[Role::Live.number()]).await;
    for number in stay {
        let answers = world.answers(number);
        let is_absent = answers.iter().any(|line| line.contains(ABSENT));
        assert!(!is_absent, "node {number} was taken for gone: {answers:#?}");
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "a panic".to_owned())
}
