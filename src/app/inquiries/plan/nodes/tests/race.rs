//! A race of both controllers for Nodes with random changes of machines and Nodes, in a paused clock. At random moments
//! `plan` and `explain` announce what comes next. It must be what the controllers then write, unless an input changed
//! meanwhile.

mod cloud;
mod script;
mod verdicts;
mod world;

#[path = "../../../../../../tests/apiserver/lifecycle/in_memory/leases.rs"]
#[expect(dead_code, reason = "the suites of the controllers use the rest")]
mod leases;
#[path = "../../../../../../tests/apiserver/lifecycle/in_memory/server.rs"]
#[expect(dead_code, reason = "the suites of the controllers use the rest")]
mod server;

use std::time::Duration;

use self::script::{Changed, Script};
use self::verdicts::{Judge, Seen};
use self::world::World;

/// Number of random worlds.
const WORLDS: u64 = 100;
/// Number of Nodes of a world.
const NODES: usize = 6;
/// Number of times that many changes are followed by none.
const ROUNDS: usize = 3;
/// Number of changes in a round.
const CHANGES: usize = 14;
/// Longest time between two changes.
const CHANGE_PAUSE: Duration = Duration::from_secs(3);
/// Longest time in which the caches get a change.
const CACHE_PAUSE: Duration = Duration::from_millis(40);
/// Number of announcements about each Node while nothing changes.
const QUIET_ANNOUNCEMENTS: usize = 10;
/// Longest time between two of these announcements.
const QUIET_PAUSE: Duration = Duration::from_secs(9);

/// Returns the comparisons of a world, and its faults.
async fn race(seed: u64) -> (Seen, Vec<String>) {
    // The controllers draw their pauses from this source.
    fastrand::seed(seed);
    let names: Vec<String> = (0..NODES).map(|number| format!("n-{number}")).collect();
    let world = World::start(seed).await;
    let mut judge = Judge::default();
    let mut script = Script::new(seed, seed % 2 == 1);
    for name in &names {
        world.cloud.put(name, script.machine(name));
        script.register(&world, name);
        judge.node_changed(&world, name, None);
    }
    for _ in 0..ROUNDS {
        for _ in 0..CHANGES {
            tokio::time::sleep(script.pause(CHANGE_PAUSE)).await;
            judge.check(&world);
            let name = script.any(&names);
            change(&world, &mut judge, name, || script.act(&world, name));
            announce(&world, &mut judge, name);
            tokio::time::sleep(script.pause(CACHE_PAUSE)).await;
            announce(&world, &mut judge, name);
        }
        // Most deletions need a time without other changes.
        let name = script.any(&names);
        change(&world, &mut judge, name, || script.lose(&world, name));
        for _ in 0..QUIET_ANNOUNCEMENTS {
            tokio::time::sleep(script.pause(QUIET_PAUSE)).await;
            names.iter().for_each(|name| announce(&world, &mut judge, name));
        }
    }
    judge.check(&world);
    let faults: Vec<_> = judge.faults.iter().map(|(kind, text)| format!("seed {seed}: {kind}: {text}")).collect();
    (judge.seen, faults)
}

/// Makes a change that concerns this Node, and reports to the judge which inputs it has changed.
fn change(world: &World, judge: &mut Judge, name: &str, act: impl FnOnce() -> Changed) {
    let before = world.live(name);
    match act() {
        Changed::Node => judge.node_changed(world, name, before.as_ref()),
        Changed::Machine => judge.machine_changed(name),
        Changed::Both => {
            judge.node_changed(world, name, before.as_ref());
            judge.machine_changed(name);
        }
        Changed::Pause => judge.pause_changed(),
        Changed::Requests | Changed::Nothing => {}
    }
}

fn announce(world: &World, judge: &mut Judge, name: &str) {
    judge.check(world);
    if let Some(announcement) = world.announcement(name) {
        judge.announce(world, announcement);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_announced_is_written_next_or_an_input_changed_meanwhile() {
    let mut seen = Seen::default();
    let mut faults = Vec::new();
    for seed in 0..WORLDS {
        let (of_world, faults_of_world) = race(seed).await;
        seen.add(of_world);
        faults.extend(faults_of_world);
    }
    println!("{seen:?}");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n\n"));
    let least = Seen {
        announcements: 20_000,
        writes: 2000,
        deletions: 20,
        held: 50,
        completed: 250,
        unchanged: 6000,
        unknown: 3000,
    };
    assert!(seen.has(&least), "too little was compared: {seen:?} instead of {least:?}");
}
