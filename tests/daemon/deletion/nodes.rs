//! Changes of the Node itself: recreated, ready again, never initialised, or with an unusable provider ID.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use support::{ApiServer, KubeletNode, Machine, Model, eventually};

use super::world::{PROMPT, Role, SHORT, World};
use crate::cluster::{LIMIT, swapped, uuid};

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
    world.until_initialised(again).await;
    world.stay(&[again, tainted], &[Role::Live.number()]).await;
}

#[tokio::test]
async fn a_node_that_is_ready_again_during_the_grace_period_begins_it_anew() {
    let world = patient_world().await;
    let (flaps, gone) = (Role::Kept.number(), Role::Doomed.number());
    for role in [Role::Kept, Role::Doomed] {
        world.destroy(role);
    }
    let since = Instant::now();
    world.turn_not_ready().await;
    world.until_event(flaps, "DeletionGracePeriod").await;
    world.set_ready(flaps, "True").await;
    world.until_deleted(gone, since).await;
    world.stay(&[Role::Beside.number()], &[flaps, Role::Live.number()]).await;
    let before = world.answers(flaps).len();
    let since = Instant::now();
    world.set_ready(flaps, "Unknown").await;
    eventually("its machine is asked about again", LIMIT, async || match world.answers(flaps).len() {
        answers if answers > before => Ok(()),
        answers => Err(format!("{answers} answers")),
    })
    .await;
    let proved = since.elapsed();
    let took = world.until_deleted(flaps, since).await;
    assert!(proved <= PROMPT, "its machine is asked about again after {proved:?}");
    let longest = proved + LONG_GRACE + PROMPT;
    assert!(took >= LONG_GRACE && took <= longest, "it is not ready again for {took:?}, proved after {proved:?}");
}

#[tokio::test]
async fn a_node_whose_provider_id_names_no_machine_of_ours_is_never_deleted() {
    let mut world = World::start(vec![Model::small()], [0; 4]).await;
    // The Nodes lack the taint, as if another program had initialised them.
    let ids = [
        ("vsphere://not-a-uuid", Some("MalformedProviderID")),
        ("vsphere://", Some("MalformedProviderID")),
        ("vsphere:///dc-1/vm/node-1", Some("MalformedProviderID")),
        ("", None),
        ("aws:///eu-central-1a/i-0a1b2c3d4e5f", None),
    ];
    let mut added = Vec::new();
    for (id, word) in ids {
        let kubelet = |name: String| world.cluster.marked(KubeletNode::new(&name, &uuid(71))).build();
        let number = world.uids.len();
        let node = with_provider_id(kubelet(world.cluster.name(number)), id);
        added.push((world.add(node).await, word));
        world.set_ready(number, "Unknown").await;
    }
    world.destroy(Role::Doomed);
    let since = Instant::now();
    world.turn_not_ready().await;
    world.until_deleted_soon(Role::Doomed.number(), since, PROMPT).await;
    for (number, word) in &added {
        if let Some(word) = word {
            world.until_held(*number, &[word]).await;
        }
    }
    // The daemon asks no vCenter about a machine of another provider.
    let foreign = added.pop().unwrap().0;
    let asked = added.iter().map(|(number, _)| *number).chain([Role::Kept.number()]);
    world.stay(&asked.collect::<Vec<_>>(), &[foreign, Role::Live.number()]).await;
}

/// Returns a node that does not wait for initialisation.
fn with_provider_id(mut node: Node, id: &str) -> Node {
    let spec = node.spec.get_or_insert_default();
    spec.taints = None;
    spec.provider_id = (!id.is_empty()).then(|| id.to_owned());
    node
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
