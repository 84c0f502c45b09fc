//! A Node that is recreated during the grace period, and the default grace period.

use std::time::{Duration, Instant};

use support::{ApiServer, KubeletNode, Machine, Model};

use super::world::{PROMPT, Role, SHORT, World};
use crate::cluster::{swapped, uuid};

/// Long enough for actions in the middle of the grace period.
const LONG_GRACE: Duration = Duration::from_secs(6);

async fn patient_world() -> World {
    let flags = [&SHORT[..], &["--node-deletion-grace=6s"]].concat();
    let mut world = World::start_on(ApiServer::shared().await, vec![Model::small()], [0; 4], &flags).await;
    world.grace = LONG_GRACE;
    world
}

#[tokio::test]
async fn a_node_recreated_under_the_same_name_is_not_deleted_for_the_old_one() {
    let mut world = patient_world().await;
    // The second Node has a destroyed machine and is not recreated.
    let (again, tainted, gone) = (Role::Kept.number(), Role::Beside.number(), Role::Doomed.number());
    for role in [Role::Kept, Role::Doomed, Role::Beside] {
        world.destroy(role);
    }
    let since = Instant::now();
    world.turn_not_ready().await;
    for number in [again, tainted, gone] {
        world.until_event(number, "DeletionGracePeriod").await;
    }
    let proved = Instant::now();
    // One Node comes back with a new machine. Another is registered by a kubelet with an unknown machine.
    let fresh = uuid(70);
    let name = world.name(Role::Kept);
    world.fakes[0].create_vm(Machine::new(&name, &fresh).ip("10.1.9.9"));
    let node = world.cluster.marked(KubeletNode::new(&name, &swapped(&fresh)));
    world.recreate(again, node).await;
    let node = world.cluster.kubelet(tainted);
    world.recreate(tainted, node).await;
    for number in [again, tainted] {
        world.set_ready(number, "Unknown").await;
    }
    let took = world.until_deleted(gone, proved).await;
    assert!(proved - since + took >= LONG_GRACE && took <= LONG_GRACE + PROMPT, "{took:?}");
    world.until_initialized(again).await;
    world.stay(&[again, tainted], &[Role::Live.number()]).await;
}

mod nightly {
    use super::*;

    /// Uses default values for all flags, as in a cluster.
    #[tokio::test]
    async fn a_destroyed_machine_is_told_within_the_default_grace_period_and_ten_seconds() {
        const DEFAULT_GRACE: Duration = Duration::from_secs(30);
        let mut world = World::start_on(ApiServer::shared().await, vec![Model::small()], [0; 4], &[]).await;
        world.grace = DEFAULT_GRACE;
        for role in [Role::Doomed, Role::Live] {
            world.destroy(role);
        }
        let since = Instant::now();
        world.turn_not_ready().await;
        let took = world.until_deleted(Role::Doomed.number(), since).await;
        println!("by default, the Node of a destroyed machine is deleted {took:?} after it is not ready");
        assert!(took >= DEFAULT_GRACE && took <= DEFAULT_GRACE + PROMPT, "{took:?}");
        world.stay(&[Role::Kept.number(), Role::Beside.number()], &[Role::Live.number()]).await;
    }
}
