//! Answers about a machine right after a refresh of the inventory.

use std::time::{Duration, Instant};

use ccm::cloud::Presence;
use futures::future::join_all;
use support::{Machine, Model, Trouble, eventually};

use super::Scene;
use crate::world::{SOON, node};

const MACHINES: usize = 200;

fn name(number: usize) -> String {
    format!("n-{number}")
}

fn uuid(number: usize) -> String {
    format!("422e4956-ad22-1139-6d72-{number:012}")
}

#[tokio::test]
async fn after_a_wait_was_lost_nobody_is_told_what_was() {
    let machine = |model: Model, number: usize| {
        model.vm(Machine::new(&name(number), &uuid(number)).ip(&format!("10.1.0.{number}")))
    };
    let scene = Scene::start(vec![(1..=MACHINES).fold(Model::small(), machine)]).await;
    let nodes: Vec<_> = (1..=MACHINES).map(|number| node(&name(number), &uuid(number))).collect();
    join_all(nodes.iter().map(|node| scene.found(node))).await;
    let fake = scene.fake();
    // The current wait reports one machine. The answer of the next wait never arrives.
    eventually("a pending wait", SOON, async || match fake.counts().pending_waits {
        1 => Ok(()),
        count => Err(count),
    })
    .await;
    let before = fake.counts().of("WaitForUpdatesEx");
    fake.next("WaitForUpdatesEx", Trouble::Hang);
    fake.change_vm(&name(1), |vm| vm.ip("10.2.0.1"));
    scene.found_with(&nodes[0], |metadata| metadata.node_addresses.iter().any(|at| at.address == "10.2.0.1")).await;
    eventually("a lost wait", SOON, async || match fake.counts() {
        counts if counts.of("WaitForUpdatesEx") > before && counts.pending_waits == 0 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    (1..=MACHINES).for_each(|number| fake.change_vm(&name(number), |vm| vm.ip(&format!("10.3.0.{number}"))));
    let instances = scene.instances();
    instances.refresh().await;
    for number in (1..=MACHINES).rev() {
        let Presence::Exists(metadata) = instances.instance_metadata(&nodes[number - 1]).await else {
            panic!("it was found")
        };
        let is_now = metadata.node_addresses.iter().any(|at| at.address == format!("10.3.0.{number}"));
        assert!(is_now, "{number}: {metadata:?}");
    }
    scene.running.stop().await;
}

/// Time limit of a confirmation for the application of the inventory to all nodes.
const APPLY_LIMIT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn what_was_read_is_applied_before_it_counts_as_confirmed() {
    let mut scene = Scene::start(vec![Model::small().vm(Machine::new(&name(1), &uuid(1)).ip("10.1.0.1"))]).await;
    scene.found(&node(&name(1), &uuid(1))).await;
    scene.running.end_tracker().await;
    let vcenter = scene.running.provider.inventories().remove(0);
    let before = vcenter.snapshot().number;
    scene.fake().change_vm(&name(1), |vm| vm.ip("10.2.0.1"));
    eventually("a newer snapshot", SOON, async || match vcenter.snapshot().number {
        number if number > before => Ok(()),
        number => Err(number),
    })
    .await;
    let began = Instant::now();
    scene.instances().refresh().await;
    assert!(
        began.elapsed() >= APPLY_LIMIT,
        "nothing applies the snapshot, but this was waited for: {:?}",
        began.elapsed()
    );
    scene.running.stop().await;
}
