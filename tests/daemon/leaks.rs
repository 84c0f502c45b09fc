//! Random changes of Services, Nodes, objects in NSX, NSX itself and the replicas. Every version of every object in NSX
//! meets the rules. At the end NSX has exactly the required objects.
//!
//! `SOAK_SECONDS` is the duration. `SOAK_SEED` is `random` or a number that repeats the actions of a run.

mod action;
mod calm;
mod nsx;
mod world;

use std::ops::Range;
use std::time::{Duration, Instant};

use support::{ApiServer, Heavy, environment};
use tokio::time::{MissedTickBehavior, interval};

use crate::invariants::nsx::load_balancers::Seen;
use action::{Action, Script};
use world::World;

/// Duration of the actions if `SOAK_SECONDS` is not set.
const SECONDS: u64 = 20;
/// The default seed. Its actions include all kinds of faults within [`SECONDS`].
const SEED: u64 = 1_586;
/// Interval between two actions.
const PACE: Duration = Duration::from_millis(50);
/// Minimum number of periods with faults, and of periods without, even on the slowest machine.
const LEAST_ROUNDS: usize = 2;
/// Number of Services. The first Services never change. The next ones keep their type and ports.
const SERVICES: usize = 14;
const UNCHANGED_SERVICES: usize = 3;
const LASTING_SERVICES: usize = 6;
/// Numbers of the Nodes that come and leave. Nodes with lower numbers never leave.
const NODES: Range<usize> = 2..7;
/// Numbers of the Nodes that actions change. The Node of [`NODES`] that is not in this range changes only in periods
/// without faults. A Node with more than five changes in a minute leaves or joins load balancers late.
const ACTION_NODES: Range<usize> = 3..7;
/// After this time without a write to NSX the world counts as stable.
const QUIET: Duration = Duration::from_secs(2);
/// Limit for the replicas to complete all work, with all lists that this requires.
const RECOVERY: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_load_balancers_keep_what_services_need_and_nothing_is_left_over() {
    let _alone = Heavy::alone();
    let seconds = environment::number("SOAK_SECONDS").unwrap_or(SECONDS);
    let seed = environment::seed("SOAK_SEED").unwrap_or(SEED);
    println!("SOAK_SEED={seed} SOAK_SECONDS={seconds}");
    let began = Instant::now();
    let mut world = World::start(ApiServer::audited().await).await;
    println!("{:.1?}: the lasting Services have their load balancers", began.elapsed());

    let mut script = Script::new(seed, SERVICES, ACTION_NODES);
    let (until, mut pace) = (Instant::now() + Duration::from_secs(seconds), interval(PACE));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < until || world.completed < LEAST_ROUNDS {
        for action in script.trouble() {
            pace.tick().await;
            world.act(action).await;
        }
        world.complete_one().await;
        world.act(Action::Thaw).await;
        println!("{:.1?}: {} rounds, {} actions", began.elapsed(), world.completed, world.story.count);
        for action in script.calm() {
            pace.tick().await;
            world.act(action).await;
        }
    }

    world.repair().await;
    world.settle().await;
    println!("{:.1?}: everything is settled after {} actions", began.elapsed(), world.story.count);
    world.stop().await;
    let seen = world.services.rules.seen;
    println!("{seen:?}");
    world.check_leadership().await;
    let least = least(seconds);
    let is_enough = [
        (seen.created, least.created),
        (seen.deleted, least.deleted),
        (seen.members, least.members),
        (seen.released, least.released),
    ];
    assert!(is_enough.iter().all(|(seen, least)| seen >= least), "too little happened: {seen:?}, expected {least:?}");
    world.assert_settled_for_a_fresh_daemon().await;
    println!("{:.1?}: a fresh daemon writes nothing", began.elapsed());
    world.assert_nothing_is_left_after_an_hour().await;
    println!("{:.1?}: nothing is left over", began.elapsed());
}

/// Returns the minimum counts for a run of this many seconds, with any seed.
fn least(seconds: u64) -> Seen {
    let in_a_minute = |count: u64| usize::try_from(count * seconds.min(60) / 60).unwrap_or_default();
    Seen { created: in_a_minute(20), deleted: in_a_minute(8), members: in_a_minute(20), released: in_a_minute(4) }
}
