//! Injects random faults into three replicas, two vCenters and NSX with 200 nodes, and checks the invariants. The seed
//! determines the faults. Afterwards all objects must become equal to the objects that a fresh daemon writes.
//! `docs/chaos.md` describes the campaign.
//!
//! `CHAOS_SECONDS` is the duration. `CHAOS_SEED` is a number or `random`.

mod fault;
mod invariants;
mod nsx;
mod script;
mod services;
mod site;
mod things;
mod trouble;
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use support::{Daemon, Heavy, environment, eventually};
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{Admin, token_of};
use crate::invariants::audit::terms;
use crate::invariants::daemons::until_looked;
use crate::invariants::observations::Seen;
use crate::invariants::results::{assert_alike, assert_untouched};
use crate::services::story_of;
use script::{Action, Script, Step};
use services::is_lasting;
use world::World;

/// Number of machines and of nodes.
const MACHINES: usize = 200;
/// Duration of the faults if `CHAOS_SECONDS` is not set.
const SECONDS: u64 = 40;
/// The default seed. Its script has every fault within [`SECONDS`], and labels follow the machines.
const SEED: u64 = 1_795_042;
/// Services of type LoadBalancer. The first of them never change.
const SERVICES: usize = 40;
const LASTING_SERVICES: usize = 10;
/// Load balancer class of all Services.
const CLASS: &str = "default";
/// Number of nodes that lose their machines at the end.
const LOST: usize = 10;
/// Minimum number of the 60 routes that replicas must write. Some nodes are deleted before they are initialized.
const ROUTES: usize = 30;
/// Interval between two checks of the invariants.
const LOOK: Duration = Duration::from_millis(50);
/// Grace period for the deletion of a node that is not ready.
const GRACE: Duration = Duration::from_secs(2);
/// Longest pause between two reconciliations of a node.
const PERIOD: Duration = Duration::from_secs(5);
/// After this time without a write the world counts as stable.
const QUIET: Duration = Duration::from_secs(8);
/// Limit for all writes after the last fault.
const RECOVERY: Duration = Duration::from_secs(60);
/// Limit for a fresh daemon to reconcile every node twice. The daemon has to log in first, and logins are delayed after
/// a campaign.
const FRESH: Duration = Duration::from_secs(500);
/// Short periods, and a deletion limit that permits every proved deletion.
const FLAGS: [&str; 6] = [
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=3s",
    "--node-deletion-limit=200,100%,1s",
    "--cluster-cidr=10.244.0.0/16",
    // No event announces a route that was deleted by hand.
    "--route-reconciliation-period=10s",
    "-v=2",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_all_faults_what_must_hold_holds_and_all_ends_as_a_fresh_daemon_writes_it() {
    let alone = Heavy::alone();
    let seconds = environment::number("CHAOS_SECONDS").unwrap_or(SECONDS);
    let seed = environment::seed("CHAOS_SEED").unwrap_or(SEED);
    println!("CHAOS_SEED={seed} CHAOS_SECONDS={seconds}");
    // The seed decides if labels follow the machines.
    let follows = seed.is_multiple_of(2);
    let script = Script::new(seed, seconds, MACHINES);

    let mut world = World::start(follows).await;
    run(&mut world, &script, follows).await;
    // From here the test mostly waits, up to minutes for failed logins to expire.
    drop(alone);
    world.start_those_due(follows);
    world.make_clear().await;
    let over = Instant::now();
    // Failed logins count for minutes, so that no account is locked.
    let excused = invariants::excused(&world.records().await, &world.logins());
    let longer = world.let_nsx_go(follows).await;
    let recovered = until_nodes_are_as_machines(&mut world, RECOVERY + excused).await - over;
    let limit = RECOVERY + excused + invariants::PROOFS;
    let settled = settle(&mut world, limit + QUIET).await.saturating_duration_since(over);
    println!(
        "after the last fault, all nodes were as their machines {recovered:.1?} later, and the last write came {settled:.1?} \
         later; excused for lost logins: {excused:.1?}"
    );
    assert!(settled <= limit, "{settled:?} instead of {limit:?}");
    let changed = world.judged.last_change.saturating_duration_since(over);
    assert!(changed <= RECOVERY + excused, "Nodes of machines that exist were written {changed:?} later");
    // Routes of the Nodes that were deleted last are deleted after their Nodes. Other routes may not be missing that
    // long.
    let routed = world.until_routes_are_as_nodes(RECOVERY + longer).await;
    println!("{routed:.1?} later all routes were as their Nodes; excused for lost logins at NSX: {longer:.1?}");
    let balanced = world.until_load_balancers_are_as_services(RECOVERY + longer).await;
    println!("{balanced:.1?} later all load balancers were as their Services");
    lose_some(&mut world).await;
    world.until_routes_are_as_nodes(RECOVERY).await;
    world.until_load_balancers_are_as_services(RECOVERY).await;
    world.stop().await;
    told(&world, &script);
    assert_eq!(world.judged.rules.seen.lacks(&least(seconds)), [""; 0], "too little happened");
    as_a_fresh_daemon(&mut world, follows).await;
}

/// Executes the steps at their times. A long step, such as a start of the API server, delays all later steps.
async fn run(world: &mut World, script: &Script, follows: bool) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (began, mut late) = (Instant::now(), Duration::ZERO);
    for (at, step) in &script.steps {
        while began.elapsed() < *at + late {
            looks.tick().await;
            world.start_those_due(follows);
            world.check();
        }
        world.start_those_due(follows);
        match step {
            Step::Begin(number) => world.begin(*number, &script.faults[*number], follows).await,
            Step::End(number) => world.end(*number, &script.faults[*number], follows).await,
            Step::Act(action) => {
                if world.act(*action).await {
                    world.tell(format!("{action:?}"));
                }
            }
        }
        world.check();
        late = late.max(began.elapsed().saturating_sub(*at));
    }
}

/// Waits until every Node agrees with its machine, if it has one. Returns the time of that observation.
async fn until_nodes_are_as_machines(world: &mut World, limit: Duration) -> Instant {
    eventually("all nodes are as their machines", limit, async || {
        world.check();
        match invariants::unsettled(&world.judged.machines, &world.all_nodes().await, &world.joined).there {
            open if open.is_empty() => Ok(Instant::now()),
            open => Err(format!("{} are left: {open:?}", open.len())),
        }
    })
    .await
}

/// Waits until every Node agrees with its machine and writes have stopped. Returns the time of the last write.
async fn settle(world: &mut World, limit: Duration) -> Instant {
    eventually("all that happened is on the Nodes", limit, async || {
        world.check();
        let nodes = world.all_nodes().await;
        let open = invariants::unsettled(&world.judged.machines, &nodes, &world.joined);
        match world.judged.last_version.elapsed() {
            quiet if quiet >= QUIET && open.there.is_empty() && open.gone.is_empty() => Ok(world.judged.last_version),
            quiet => Err(format!("quiet for {quiet:?}; left are {open:?}")),
        }
    })
    .await
}

/// Destroys the machines of nodes that record the current hosts, and waits until these Nodes are deleted. After a
/// campaign most Nodes record old ids, because their vCenters came back with other ids.
async fn lose_some(world: &mut World) {
    let numbers = world.join_anew(LOST).await;
    until_nodes_are_as_machines(world, RECOVERY).await;
    for &number in &numbers {
        assert!(world.act(Action::Lose(number)).await, "node {number} is lost");
    }
    eventually("the lost nodes are deleted", RECOVERY + invariants::PROOFS, async || {
        world.check();
        let nodes = world.all_nodes().await;
        match numbers.iter().filter(|number| nodes.contains_key(number)).collect::<Vec<_>>() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
}

/// Returns the minimum counts for any seed. For deletions it is [`LOST`]. Every node joins once in a campaign of any
/// length. The other counts are less than half of the counts that three seeds gave in 90 seconds.
fn least(seconds: u64) -> Seen {
    let scaled = |count: u64| usize::try_from(count * seconds.min(90) / 90).unwrap_or_default();
    Seen {
        writes: MACHINES,
        initialized: MACHINES / 2,
        deleted: LOST,
        proofs: LOST,
        readdressed: scaled(5),
        shutdowns: scaled(5),
        ..Seen::default()
    }
}

fn told(world: &World, script: &Script) {
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for planned in &script.faults {
        *faults.entry(planned.fault.name()).or_default() += 1;
    }
    assert!(world.watch.writes >= ROUTES, "{} writes to NSX", world.watch.writes);
    let unused = world.balanced.unused(&world.site.nsx);
    let terms = terms(&world.audit, world.cluster.pool()).len();
    println!("{terms} terms; {} groups and persistence profiles wait for their list", unused.len());
    let stories = || unused.iter().map(|path| story_of(&world.site.nsx, path)).collect::<Vec<_>>().join("\n");
    assert!(unused.len() <= terms, "{unused:#?}\n{}", stories());
    println!("writes to routes: {}; load balancers: {:?}", world.watch.writes, world.balanced.rules.seen);
    let seen = world.balanced.rules.seen;
    assert!(seen.created >= SERVICES && seen.deleted > 0 && seen.members >= SERVICES, "too little happened: {seen:?}");
    println!(
        "{:.0?}; {} faults: {faults:?}; {} actions; the replicas: {:?}; at most {} kB and {} lost logins in a window, {} \
         accepted writes to Nodes",
        world.elapsed(),
        script.faults.len(),
        world.count,
        world.judged.rules.seen,
        world.peaks.memory,
        world.peaks.logins,
        world.peaks.writes,
    );
}

/// Checks that a fresh daemon writes nothing to these Nodes, and that it writes the same to new Nodes of the same
/// machines.
async fn as_a_fresh_daemon(world: &mut World, follows: bool) {
    // This check covers Nodes and not the login delays.
    world.let_accounts_go().await;
    let left = world.cluster.nodes().await;
    let services = world.service_versions().await;
    let written = world.site.nsx.versions();
    let daemon = look_afresh(world, follows).await;
    assert_untouched(&world.cluster.nodes().await, &left, daemon.output());
    // Routes and load balancers.
    world.assert_nsx_untouched(&daemon, written).await;
    assert_eq!(world.service_versions().await, services, "a fresh daemon wrote Services");
    drop(daemon);

    let routes = world.delete_routes();
    world.begin_anew().await;
    world.check();
    let daemon = look_afresh(world, follows).await;
    assert_alike(&world.cluster.nodes().await, &left, follows, daemon.output());
    world.assert_routes_alike(&routes, &daemon).await;
    world.until_load_balancers_are_as_services(RECOVERY).await;
}

/// Starts a single fresh daemon, and waits until it has reconciled every node.
async fn look_afresh(world: &mut World, follows: bool) -> Daemon {
    let admin = Admin::new();
    let mut flags = world.flags(follows);
    flags.push(admin.flag());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut daemon = world.cluster.start_on(world.site.fresh_config(), &flags);
    world.judged.proofs.started(daemon.output());
    let token = token_of(&world.server).await;
    let nodes = world.all_nodes().await.len();
    until_looked(&mut daemon, nodes, (&admin, &token), FRESH).await;
    world.until_ensured(&mut daemon, (&admin, &token), FRESH).await;
    settle(world, RECOVERY).await;
    daemon
}
