//! The daemon deletes the Nodes of destroyed machines, and no Node whose machine may exist.
//!
//! Each row exposes a cluster to one fault. The cluster has four nodes: the machine of the first exists and has the
//! fault, the machine of the second is destroyed, the third is healthy, and the fourth is ready although its machine is
//! destroyed. The test does not check too early that a node stays. Such a node must have the expected reason, if there
//! is one, and must be checked several times after its grace period. After the end of the fault the node of the
//! destroyed machine is deleted, and the others stay.

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

/// Number of concurrent rows. Rows mostly wait.
const AT_ONCE: usize = 10;

/// Time limit of a call. If a fault hangs the next search, that search may belong to the proof for the destroyed
/// machine. Then the deletion waits for it.
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

/// Runs all rows with these moments.
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
        // The process must start and log in before it can receive an answer. Neither waits for a call that hangs.
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

/// Waits until each node has the expected fate, and until the nodes that stay were checked often enough. `soon` is the
/// earliest time at which the daemon could observe that a machine is absent, with the time limit of each of the two
/// proofs.
async fn meet(world: &mut World, fates: [Fate; 3], soon: Option<(Instant, Duration)>) {
    let fates = NOT_READY.map(Role::number).into_iter().zip(fates);
    // Deletions come first, because their time is measured.
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
