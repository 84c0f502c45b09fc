//! After the end of a vCenter outage the daemon repeats the failed proofs soon, and does not wait for the end of their
//! backoff.

use std::time::{Duration, Instant};

use support::{ApiServer, Fault, Model, Trouble, eventually};

use super::evidence::ABSENT;
use super::world::{PROMPT, Role, SHORT, World};
use crate::cluster::{ANSWERS, LIMIT};

/// Number of consecutive failed proofs before the end of the outage.
const FAILED: usize = 6;
/// Minimum pause between the last of these failures and the next proof, without the end of the outage.
const OLD_PAUSE: Duration = Duration::from_secs(24);
/// Limit for this many failures: half a minute, and the time of the daemon's other work.
const FAILING: Duration = Duration::from_secs(120);

async fn world() -> World {
    World::start_on(ApiServer::shared().await, vec![Model::small()], [0; 4], &SHORT).await
}

/// Waits for this many inconclusive answers about the machine of this node. The daemon answers that the machine exists
/// until it observes the destruction. After that its answers are inconclusive.
async fn until_failed(world: &World, role: Role, times: usize) {
    eventually(&format!("{times} proofs about {role:?} have failed"), FAILING, async || {
        let answers = world.answers(role.number());
        let failed: Vec<_> = answers.iter().skip_while(|line| line.contains("it does")).collect();
        let said = failed.iter().find(|line| line.contains("it does") || line.contains(ABSENT));
        assert_eq!(said, None, "nobody could say that");
        if failed.len() >= times { Ok(()) } else { Err(format!("{answers:#?}")) }
    })
    .await;
}

mod nightly {
    use super::*;

    #[tokio::test]
    async fn a_node_whose_machine_went_while_its_vcenter_was_away_is_deleted_soon_after_that_is_back() {
        let mut world = world().await;
        world.fakes[0].stop_listening().await;
        world.destroy(Role::Doomed);
        world.turn_not_ready().await;
        until_failed(&world, Role::Doomed, FAILED).await;
        let output = world.daemon().output().clone();
        let connections = || output.count(ANSWERS);
        let before = connections();
        world.fakes[0].resume_listening().await;
        eventually("the daemon hears of its vCenter again", LIMIT, async || match connections() {
            now if now > before => Ok(()),
            now => Err(format!("{now} times so far")),
        })
        .await;
        let took = world.until_deleted_soon(Role::Doomed.number(), Instant::now(), PROMPT).await;
        println!("the Node is deleted {took:?} after that is back");
        world.stay(&[Role::Kept.number(), Role::Beside.number()], &[Role::Live.number()]).await;
    }

    /// The session stays valid, so that no event announces the end of the fault. The successful proof of the next node
    /// reveals it.
    #[tokio::test]
    async fn a_proof_that_can_be_made_again_lets_those_be_made_that_wait() {
        let world = world().await;
        world.fakes[0].every("FindAllByUuid", Trouble::Fault(Fault::new("SystemError")));
        let (waits, tells) = (Role::Doomed, Role::Kept);
        world.destroy(waits);
        world.set_ready(waits.number(), "Unknown").await;
        until_failed(&world, waits, FAILED).await;
        let last = Instant::now();
        world.destroy(tells);
        world.set_ready(tells.number(), "Unknown").await;
        until_failed(&world, tells, 2).await;
        world.fakes[0].clear();
        let took = world.until_deleted(waits.number(), last).await;
        println!("the Node is deleted {took:?} after its last proof that failed");
        assert!(took < OLD_PAUSE, "{took:?}: {:#?}", world.answers(waits.number()));
        world.until_deleted(tells.number(), last).await;
    }
}
