//! The leader changes during a grace period.

use std::time::{Duration, Instant};

use support::{ApiServer, Daemon, Machine, Model, eventually, unique};

use super::evidence::ABSENT;
use super::world::{PROMPT, Role, SHORT, World};
use crate::cluster::{LIMIT, ip, until_passed, uuid};

const GRACE: Duration = Duration::from_secs(6);
/// Grace period of a leader that is disturbed before the period is over.
const LONG_GRACE: Duration = Duration::from_secs(12);
/// A limit of two deletions in ten seconds permits one more every five seconds.
const REFILL: Duration = Duration::from_secs(5);

async fn world(more: &[&str]) -> World {
    let lease = format!("--leader-elect-resource-name={}", unique("lease"));
    // Long enough that an API server on a busy machine answers in time. Otherwise the wrong replica would lead.
    let election = [
        "--leader-elect=true",
        &lease,
        "--leader-elect-lease-duration=8s",
        "--leader-elect-renew-deadline=6s",
        "--leader-elect-retry-period=500ms",
        "--node-deletion-grace=12s",
    ];
    let flags = [&SHORT[..], &election, more].concat();
    let mut world = World::start_on(ApiServer::shared().await, vec![Model::small()], [0; 4], &flags).await;
    world.grace = LONG_GRACE;
    world.daemon().wait_for_line("became leader", LIMIT).await;
    world
}

/// Starts a second replica as the daemon of the world, and returns the first.
async fn with_second(world: &mut World) -> Daemon {
    let first = world.take_daemon();
    world.start_daemon();
    world.daemon().wait_for_line("standing by", LIMIT).await;
    first
}

#[tokio::test]
async fn a_new_leader_begins_the_grace_period_anew_with_an_allowance_of_one() {
    let mut world = world(&["--node-deletion-limit=2,0%,10s"]).await;
    // Flags of the second replica, which alone deletes nodes.
    world.flags.push(format!("--node-deletion-grace={}s", GRACE.as_secs()));
    world.grace = GRACE;
    let mut first = with_second(&mut world).await;
    let gone = [Role::Kept, Role::Doomed, Role::Beside].map(Role::number);
    for role in [Role::Kept, Role::Doomed, Role::Beside, Role::Live] {
        world.destroy(role);
    }
    world.turn_not_ready().await;
    for number in gone {
        world.until_event(number, "DeletionGracePeriod").await;
    }
    first.kill().await;
    world.daemon().wait_for_line("became leader", LIMIT).await;
    let leads = Instant::now();
    for number in gone {
        world.until_told(number, ABSENT).await;
    }
    let proved = leads.elapsed();
    let mut deleted = Vec::new();
    for count in 1..=gone.len() {
        eventually(&format!("{count} nodes are deleted"), LIMIT, async || {
            let mut left = 0;
            for number in gone {
                left += usize::from(world.is_there(number).await);
            }
            if gone.len() - left >= count { Ok(()) } else { Err(format!("{left} are left")) }
        })
        .await;
        deleted.push(leads.elapsed());
    }
    println!("a new leader deleted three Nodes after {deleted:?}, proved absent after {proved:?}");
    assert!(proved <= PROMPT, "{proved:?}");
    // The test may read the line some time after the daemon has written it.
    let early = Duration::from_secs(1);
    assert!(deleted[0] + early >= GRACE && deleted[0] <= proved + GRACE + PROMPT, "{deleted:?}");
    assert!(deleted[2] + early >= 2 * REFILL, "one, and one more every {REFILL:?}: {deleted:?}");
    world.stay(&[], &[Role::Live.number()]).await;
}

/// As after the resume of a suspended virtual machine. The process resumes with a stale state: it still acts as the
/// leader, and its grace period is over.
#[tokio::test]
async fn a_leader_that_was_frozen_in_the_grace_period_deletes_nothing() {
    let mut world = world(&[]).await;
    // The second replica never deletes nodes. Every deletion would come from the first.
    world.flags.push("--node-deletion=off".to_owned());
    let mut first = with_second(&mut world).await;
    let (back, gone) = (Role::Kept.number(), Role::Doomed.number());
    for role in [Role::Kept, Role::Doomed] {
        world.destroy(role);
    }
    let since = Instant::now();
    world.turn_not_ready().await;
    for number in [back, gone] {
        world.until_event(number, "DeletionGracePeriod").await;
    }
    first.signal("STOP").await;
    world.daemon().wait_for_line("became leader", LIMIT).await;
    // One machine exists again in the meantime.
    let name = world.name(Role::Kept);
    world.fakes[0].create_vm(Machine::new(&name, &uuid(back)).ip(&ip(back)));
    until_passed(since, LONG_GRACE + Duration::from_secs(1)).await;
    first.signal("CONT").await;
    first.wait_for_line("this process is now a standby", LIMIT).await;
    world.stay(&[back, Role::Beside.number()], &[gone, Role::Live.number()]).await;

    // The first replica leads again, and starts a new grace period.
    let stops = Instant::now();
    assert_eq!(world.take_daemon().stop(LIMIT).await.code(), Some(0));
    let took = world.until_deleted(gone, stops).await;
    println!("a leader that leads again deleted a Node after {took:?}");
    assert!(took >= LONG_GRACE, "{took:?}");
    for number in [back, Role::Beside.number(), Role::Live.number()] {
        assert!(world.is_there(number).await, "{}", world.story(number).await);
    }
}

/// Each replica is a cold standby while the other leads. The place where the first replica saw a machine is invalid
/// once the second has recorded a newer place.
#[tokio::test]
async fn who_leads_again_proves_absence_where_the_other_leader_saw_the_machine() {
    let grace = format!("--node-deletion-grace={}s", GRACE.as_secs());
    let mut world = world(&["--standby=cold", &grace]).await;
    world.grace = GRACE;
    let mut first = with_second(&mut world).await;
    let (moved, gone) = (Role::Kept, Role::Doomed);
    let seen_on = world.recorded_host(moved).await;
    first.signal("STOP").await;
    world.daemon().wait_for_line("became leader", LIMIT).await;
    first.signal("CONT").await;
    first.wait_for_line("this process is now a standby", LIMIT).await;
    eventually("who lost the Lease logs out", LIMIT, async || match world.fakes[0].counts().soap_sessions {
        1 => Ok(()),
        sessions => Err(format!("{sessions} sessions")),
    })
    .await;

    let moved_to = if seen_on == "host-1" { "host-2" } else { "host-1" };
    world.fakes[0].migrate_vm(&world.name(moved), moved_to);
    world.until_recorded(moved, moved_to).await;
    // The host and its machines leave vCenter, as when an administrator removes the host.
    world.fakes[0].remove_host(moved_to);
    world.destroy(gone);
    assert_eq!(world.take_daemon().stop(LIMIT).await.code(), Some(0));
    world.go_on_with(first);
    world.daemon().wait_for_line("became leader", LIMIT).await;

    for role in [moved, gone] {
        world.set_ready(role.number(), "Unknown").await;
    }
    world.until_told(moved.number(), "HostGone").await;
    world.until_told(gone.number(), ABSENT).await;
    world.until_deleted(gone.number(), Instant::now()).await;
    world.stay(&[moved.number()], &[Role::Live.number()]).await;
    assert!(!world.answers(moved.number()).iter().any(|line| line.contains(ABSENT)));
}

/// A leader records the new host of a moved machine before that host is removed. Otherwise a new leader would search at
/// the former host, which answers, and would conclude absence.
#[tokio::test]
async fn a_machine_whose_host_goes_soon_after_it_moved_there_is_not_absent_for_a_new_leader() {
    let mut world = world(&[]).await;
    let (off, left) = (Role::Kept, Role::Beside);
    for (role, last) in [(off, "host-3"), (left, "host-2")] {
        let before = world.recorded_host(role).await;
        let next = ["host-1", "host-2", "host-3"].into_iter().find(|host| *host != before && *host != last).unwrap();
        world.fakes[0].migrate_vm(&world.name(role), next);
        world.until_recorded(role, next).await;
        // Without other changes this place is recorded only after ten minutes.
        world.fakes[0].migrate_vm(&world.name(role), last);
    }
    world.fakes[0].set_maintenance("host-3", true);
    world.until_recorded(off, "host-3").await;
    world.fakes[0].remove_host("host-2");
    world.until_recorded(left, "host-2").await;
    world.fakes[0].remove_host("host-3");
    world.kill_daemon().await;
    world.start_daemon();
    world.daemon().wait_for_line("became leader", LIMIT).await;

    for role in [off, left] {
        world.set_ready(role.number(), "Unknown").await;
        world.until_told(role.number(), "HostGone").await;
    }
    world.stay(&[off.number(), left.number()], &[]).await;
    for role in [off, left] {
        assert!(!world.answers(role.number()).iter().any(|line| line.contains(ABSENT)));
    }
}
