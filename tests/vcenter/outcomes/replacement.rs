//! Another vCenter replaces one under the same address. Its ids are small numbers, as usual, and most of them had
//! another meaning in the old one: another machine, another host.

use ccm::cloud::Presence;
use support::{Fault, Machine, Model, Trouble, eventually};

use super::{OTHER, SOON, Scene, one};

/// The inventory of the new vCenter may fail to load at first.
const LOADING: [bool; 2] = [false, true];

async fn replace(scene: &Scene, model: Model, is_loading: bool) {
    if is_loading {
        scene.fake().every("WaitForUpdatesEx", Trouble::Fault(Fault::new("SystemError")));
    }
    let before = scene.fake().counts();
    scene.fake().replace(model).await;
    let waits =
        |counts: &support::fake_vcenter::FakeCounts| counts.of("WaitForUpdatesEx") - before.of("WaitForUpdatesEx");
    eventually("the new one is asked", SOON, async || match scene.fake().counts() {
        counts if counts.soap_logins > before.soap_logins && waits(&counts) >= 2 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    scene.fake().clear();
}

/// The first state of the new vCenter: hosts, folders and pools have the ids of the old one, and there is no machine
/// yet.
#[tokio::test]
async fn a_machine_that_was_in_the_vcenter_before_is_not_gone_because_the_new_one_does_not_have_it() {
    for is_loading in LOADING {
        let mut scene = Scene::start(vec![one()]).await;
        let node = scene.initialized("n").await;
        let old = scene.fake().instance_uuid();
        replace(&scene, Model::small(), is_loading).await;
        let message = scene.told(&node, "VCenterNotConfigured").await;
        assert!(message.contains(&old), "it is still known where the machine was: {message}");
        scene.restart(&node).await;
        scene.told(&node, "VCenterNotConfigured").await;
        scene.running.stop().await;
    }
}

#[tokio::test]
async fn another_machine_that_has_the_id_in_the_new_vcenter_is_not_the_nodes_and_its_end_proves_nothing() {
    let other = || Machine::new("o", OTHER).ip("10.9.9.9");
    let nameless = || other().without("config.uuid").without("summary.config.uuid");
    for (is_loading, other) in LOADING.into_iter().flat_map(|loading| [(loading, other()), (loading, nameless())]) {
        let scene = Scene::start(vec![one()]).await;
        let node = scene.initialized("n").await;
        let old = scene.fake().instance_uuid();
        replace(&scene, Model::small().vm(other), is_loading).await;
        scene.told(&node, "VCenterNotConfigured").await;
        scene.fake().destroy_vm("o");
        eventually("the new inventory is known, and nothing of it is the node's", SOON, async || {
            match scene.instances().instance_metadata(&node).await {
                Presence::Unknown(unknown) if unknown.reason == "VMNotFound" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        let message = scene.told(&node, "VCenterNotConfigured").await;
        assert!(message.contains(&old), "{message}");
        scene.running.stop().await;
    }
}
