//! Rights that the account loses: for one machine, a folder, a datacenter, all objects.

use std::sync::Arc;

use futures::future::join_all;
use support::{Denial, Fault, Trouble, Unreadable, eventually};

use super::{Scene, address, one, without_record};
use crate::world::SOON;

#[tokio::test]
async fn a_lost_right_makes_unknown_with_object_and_privilege_also_after_a_restart() {
    let denials = [Denial::LeftOut, Denial::MissingSet, Denial::Fault, Denial::FaultOf8];
    let scopes = [("VirtualMachine", "n"), ("Folder", "vm"), ("Datacenter", "dc-1"), ("Folder", "Datacenters")];
    // Denied reads, with views that drop unreadable objects. Then the other kinds of views.
    let reads = denials.map(|denial| (denial, Unreadable::Dropped));
    let views = [(Denial::MissingSet, Unreadable::Refused), (Denial::Fault, Unreadable::Kept)];
    let cases = reads.into_iter().chain(views).flat_map(|server| scopes.map(|scope| (server, scope)));
    join_all(cases.map(|((denial, view), (kind, name))| async move {
        let case = format!("{denial:?}, {view:?}, {kind} {name}");
        let mut scene = Scene::start(vec![one().denial(denial).unreadable(view)]).await;
        let node = scene.initialized("n").await;
        for restarted in [false, true] {
            scene.fake().set_tree_readable(kind, name, false);
            if restarted {
                scene.restart(&node).await;
            }
            for message in [scene.unknown(&node, "NoPermission").await, scene.told(&node, "NoPermission").await] {
                let names_it = message.contains("VirtualMachine:vm-1") && message.contains("System.Read");
                assert!(names_it, "{case}, restarted {restarted}: {message}");
            }
            scene.fake().set_tree_readable(kind, name, true);
            assert_eq!(address(&scene.found(&node).await), "10.0.0.1", "{case}, restarted {restarted}");
            scene.told(&node, "exists").await;
        }
        // Without a record there is no object to read. The machine is not found, and never absent.
        scene.fake().set_tree_readable(kind, name, false);
        let unseen = without_record(node);
        scene.restart(&unseen).await;
        scene.unknown(&unseen, "VMNotFound").await;
        scene.told(&unseen, "NeverSeen").await;
        scene.running.stop().await;
    }))
    .await;
}

#[tokio::test]
async fn an_account_without_any_role_makes_unknown_with_object_and_privilege_also_after_a_restart() {
    let mut scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    let refusal = Trouble::Fault(Fault::no_permission("Folder", "group-d1"));
    for operation in ["FindAllByUuid", "RetrievePropertiesEx", "ModifyListView", "CreateListView", "Login"] {
        scene.fake().every(operation, refusal.clone());
    }
    scene.fake().set_tree_readable("Folder", "Datacenters", false);
    let message = scene.told(&node, "NoPermission").await;
    assert!(message.contains("Folder:group-d1") && message.contains("System.Read"), "{message}");
    scene.restart(&node).await;
    // Without a session there is no look-up. The vCenter itself reports the reason.
    let provider = Arc::clone(&scene.running.provider);
    eventually("the refusal is known", SOON, async || {
        let states: Vec<_> =
            provider.inventories().iter().map(|vcenter| vcenter.snapshot().freshness.clone()).collect();
        let is_told = states.iter().any(|state| state.failure().is_some_and(|why| why.contains("System.Read")));
        if is_told { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
    for message in [scene.unknown(&node, "VCenterUnavailable").await, scene.told(&node, "VCenterUnavailable").await] {
        assert!(message.contains("Folder:group-d1") && message.contains("System.Read"), "{message}");
    }
    scene.fake().clear();
    scene.fake().set_tree_readable("Folder", "Datacenters", true);
    scene.found(&node).await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_login_that_is_refused_is_the_reason_for_known_and_for_new_nodes() {
    let scene = Scene::start(vec![one()]).await;
    let node = scene.initialized("n").await;
    scene.fake().set_password("another one");
    scene.fake().kill_soap_sessions(Fault::not_authenticated());
    let message = scene.told(&node, "CredentialsRejected").await;
    assert!(message.contains("InvalidLogin") && message.contains("ccm@vsphere.local"), "{message}");
    let fresh = crate::world::node("fresh", super::OTHER);
    scene.running.cluster.put(fresh.clone());
    scene.unknown(&fresh, "CredentialsRejected").await;
    assert_eq!(scene.fake().counts().soap_refusals, 1, "asking tries nothing");
}
