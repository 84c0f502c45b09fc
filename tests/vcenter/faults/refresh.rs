//! The refresh of the inventory on demand. A wait that was lost on the network looks like a wait without changes.

use std::time::{Duration, Instant};

use support::Trouble;
use support::fake_vcenter::FakeCounts;

use super::{Watched, address, is_live, told};

/// A wait that was cancelled and has not ended is cancelled again after this time, and then with increasing pauses.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);

/// Returns the minimum time to end this many waits with this many cancellations.
fn shortest(waits: u32, cancellations: u32) -> Duration {
    CANCEL_AGAIN * cancellations.saturating_sub(waits)
}

fn waits(counts: &FakeCounts) -> u32 {
    counts.of("WaitForUpdatesEx")
}

async fn until_waiting(watched: &Watched) {
    watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
}

/// The current wait reports `n-1`. The next wait is the last one, and its answer never arrives.
async fn deaf(watched: &Watched, trouble: impl FnOnce(&Watched)) {
    until_waiting(watched).await;
    let before = waits(&watched.fake.counts());
    trouble(watched);
    watched.fake.change_vm("n-1", |vm| vm.ip("192.0.2.1"));
    watched.until("the last it hears", |now| address(now.vms.get("vm-1").unwrap()) == "192.0.2.1").await;
    watched.until_counted("a lost wait", |counts| waits(counts) > before && counts.pending_waits == 0).await;
    watched.fake.change_vm("n-2", |vm| vm.ip("192.0.2.2"));
}

#[tokio::test]
async fn a_wait_that_was_lost_is_found_out_and_what_it_missed_is_read() {
    let watched = Watched::synced(2).await;
    deaf(&watched, |watched| watched.fake.next("WaitForUpdatesEx", Trouble::Hang)).await;
    assert!(is_live(&watched.vcenter.snapshot()), "nobody can know");
    watched.vcenter.refresh().await;
    let now = watched.vcenter.snapshot();
    assert!(is_live(&now) && address(now.vms.get("vm-2").unwrap()) == "192.0.2.2", "{}", told(&now));
    let counts = watched.fake.counts();
    assert_eq!(
        (counts.soap_logins, counts.of("CreatePropertyCollector")),
        (1, 1),
        "on the same subscription: {counts:?}"
    );
    watched.stop().await;
}

#[tokio::test]
async fn an_answer_that_was_on_its_way_when_the_wait_was_ended_is_not_lost() {
    let watched = Watched::synced(2).await;
    until_waiting(&watched).await;
    watched.fake.next("WaitForUpdatesEx", Trouble::Late(Duration::from_millis(700)));
    // No later wait answers, so this wait must have delivered the change.
    watched.fake.every("WaitForUpdatesEx", Trouble::Hang);
    watched.fake.change_vm("n-2", |vm| vm.ip("192.0.2.2"));
    watched.until_counted("an answer on its way", |counts| counts.pending_waits == 0).await;
    watched.vcenter.refresh().await;
    let now = watched.vcenter.snapshot();
    assert_eq!(address(now.vms.get("vm-2").unwrap()), "192.0.2.2", "{}", told(&now));
    assert!(!is_live(&now), "whether that is all nobody has said: {}", told(&now));
    let counts = watched.fake.counts();
    assert!(counts.of("CancelWaitForUpdates") > 0, "it was ended: {counts:?}");
    watched.stop().await;
}

#[tokio::test]
async fn a_vcenter_that_does_not_say_is_live_no_more_until_it_answers() {
    let watched = Watched::synced(2).await;
    deaf(&watched, |watched| watched.fake.every("*", Trouble::Hang)).await;
    watched.vcenter.refresh().await;
    let now = watched.vcenter.snapshot();
    assert!(!is_live(&now) && now.vms.len() == 2, "{}", told(&now));
    watched.vcenter.refresh().await;
    assert!(!is_live(&watched.vcenter.snapshot()), "whom nobody hears nobody asks");
    watched.fake.clear();
    watched.until("live again", |now| is_live(now) && address(now.vms.get("vm-2").unwrap()) == "192.0.2.2").await;
    watched.stop().await;
}

#[tokio::test]
async fn what_is_as_known_costs_two_calls_and_is_live_all_the_time() {
    let watched = Watched::synced(2).await;
    until_waiting(&watched).await;
    let before = watched.fake.counts();
    let mut changes = watched.vcenter.changes();
    changes.mark_unchanged();
    let began = Instant::now();
    watched.vcenter.refresh().await;
    let took = began.elapsed();
    assert!(!changes.has_changed().unwrap(), "nothing was published");
    until_waiting(&watched).await;
    let after = watched.fake.counts();
    let cancelled = |counts: &FakeCounts| counts.of("CancelWaitForUpdates");
    let others = |counts: &FakeCounts| counts.operations.values().sum::<u32>() - waits(counts) - cancelled(counts);
    // The next wait is the one that was outstanding before.
    assert_eq!((waits(&after) - waits(&before), others(&after) - others(&before)), (2, 0), "{before:?} {after:?}");
    let cancelled = cancelled(&after) - cancelled(&before);
    assert!(cancelled >= 1 && took >= shortest(1, cancelled), "{cancelled} within {took:?}: {before:?} {after:?}");
    watched.stop().await;
}

#[tokio::test]
async fn two_who_ask_at_once_cost_little_more_and_leave_nothing_behind() {
    let watched = Watched::synced(2).await;
    until_waiting(&watched).await;
    let mut changes = watched.vcenter.changes();
    changes.mark_unchanged();
    let before = waits(&watched.fake.counts());
    let began = Instant::now();
    tokio::join!(watched.vcenter.refresh(), watched.vcenter.refresh());
    // Before the next wait is sent, which then returns immediately.
    watched.vcenter.refresh().await;
    let took = began.elapsed();
    until_waiting(&watched).await;
    let counts = watched.fake.counts();
    assert!(!changes.has_changed().unwrap(), "it was live all the time: {}", told(&watched.vcenter.snapshot()));
    assert!(waits(&counts) - before <= 4, "an answer for each, and the wait that follows: {counts:?}");
    let cancelled = counts.of("CancelWaitForUpdates");
    assert!(took >= shortest(3, cancelled), "{cancelled} for three waits within {took:?}: {counts:?}");
    watched.stop().await;
}

#[tokio::test]
async fn a_vcenter_that_was_never_reached_is_not_waited_for() {
    let (_fake, vcenter) = Watched::prepare(support::Model::small(), Vec::new(), None).await;
    vcenter.refresh().await;
    assert!(!is_live(&vcenter.snapshot()));
}
