//! `explain deletion`: a Node that stays, one in its grace period, and one that the process has deleted.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use support::nodes::set_ready;
use support::{Vcenter, eventually};

use super::screen::{rewrapped, without_times};
use super::{CommandResult, ask, compare_with_page, json, normalised, start_candidate};
use crate::cluster::{Cluster, LIMIT};

#[tokio::test]
async fn explain_deletion_shows_what_holds_a_node_until_its_remedy_is_applied() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let leader = start_candidate(&cluster, &vcenter).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &leader).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let (stays, silent, gone) = (cluster.name(0), cluster.name(1), cluster.name(2));
    let explain = async |name: &str| ask(&leader, &["explain", "deletion", name]).await;

    let CommandResult { code, output, messages } = explain(&stays).await;
    let summary = format!("deletion of Node {stays}   not a candidate for deletion: Ready=False, ");
    assert!(code == Some(0) && output.starts_with(&summary), "{code:?} {output}{messages}");
    let unknown = explain(&format!("{stays}0")).await;
    assert_eq!((unknown.code, unknown.output.as_str()), (Some(2), ""));
    assert!(unknown.messages.contains(&format!("the nearest names are {stays}, ")), "{}", unknown.messages);

    set_ready(&nodes, &silent, "Unknown", "").await.unwrap();
    wait_for(&leader, &silent, 0, "not a candidate for deletion: its VM exists").await;

    set_ready(&nodes, &gone, "Unknown", "").await.unwrap();
    vcenter.destroy_vm(&gone).await;
    wait_for(&leader, &gone, 1, "not deleted for ").await;
    // After a look-up, the time of the next one is known.
    let held = wait_for(&leader, &gone, 1, "at an event of the VM").await;
    let uid = nodes.get(&gone).await.unwrap().metadata.uid.unwrap();
    let (_, age) = held.split_once("not deleted for ").unwrap();
    let (age, _) = age.split_once(':').unwrap();
    let shown = held.replacen(age, "7 s", 1).replace(vcenter.instance_uuid(), "8dd040d2-54ab-4ef5-a571-f757d253ca17");
    let shown = shown.replace(&uid, "5a0f6f5e-5a53-4d2c-9c0b-1f6a3d7e2b10").replace(&gone, "worker-2");
    compare_with_page("explain deletion NAME", &rewrapped(&normalised(&without_times(&shown), &vcenter)));
    let (code, report) = json(&leader, &["explain", "deletion", &gone]).await;
    assert_eq!((code, &report["kind"], &report["state"]), (Some(1), &"Explanation".into(), &"held".into()));

    // The command of the remedy.
    let allowed = json!({"metadata": {"annotations": {"vsphere-ccm.dev/allow-deletion": "true"}}});
    nodes.patch(&gone, &PatchParams::default(), &Patch::Merge(allowed)).await.unwrap();
    let deleted = wait_for(&leader, &gone, 0, "deleted by this process at ").await;
    assert!(deleted.contains(&uid) && deleted.contains("Proof that the VM is deleted"), "{deleted}");
    assert!(nodes.get_opt(&gone).await.unwrap().is_none());
    let (_, report) = json(&leader, &["explain", "deletion", &gone]).await;
    let history = decisions_of(&report);
    assert!(history.len() <= 20 && history.iter().any(|text| text.contains("Z DeletionGracePeriod: ")), "{history:?}");
    assert!(history[0].contains("Z Deleted: UID ") && history[0].contains(&uid), "{history:?}");
    assert!(history[1].contains("Z Permitted: ") && history[1].contains(", allowed by annotation, "), "{history:?}");
    let CommandResult { code, output, .. } = ask(&leader, &["explain", "node", &gone]).await;
    assert!(code == Some(2) && output.contains("does not exist: ") && output.contains("Z Initialized: "), "{output}");

    let standby = start_candidate(&cluster, &vcenter).await;
    let CommandResult { code, output, .. } = ask(&standby, &["explain", "deletion", &stays]).await;
    assert!(code == Some(3) && output.lines().next().unwrap().contains("does not lead"), "{code:?} {output}");
    eventually("another replica knows the deletion from the Lease", LIMIT, async || {
        let CommandResult { code, output, .. } = ask(&standby, &["explain", "node", &gone]).await;
        let is_known = code == Some(2) && output.contains("does not exist: deleted by the replica on ");
        if is_known { Ok(()) } else { Err(format!("{code:?} {output}")) }
    })
    .await;
    for output in [output, deleted, held] {
        assert!(!output.contains(vcenter.password()), "{output}");
    }
}

/// Returns the facts of the section with the last decisions.
fn decisions_of(report: &Value) -> Vec<String> {
    let sections = report["sections"].as_array().unwrap();
    let history = sections.iter().find(|section| section["title"] == "History").unwrap();
    history["facts"].as_array().unwrap().iter().map(|fact| fact["text"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the explanation of this Node has this exit code and text. Returns the explanation.
async fn wait_for(daemon: &support::Daemon, name: &str, expected: i32, text: &str) -> String {
    eventually(&format!("{name}: {text}"), LIMIT, async || {
        let CommandResult { code, output, messages } = ask(daemon, &["explain", "deletion", name]).await;
        match code == Some(expected) && output.contains(text) {
            true => Ok(output),
            false => Err(format!("{code:?} {output}{messages}\n{}", daemon.output().tail(20))),
        }
    })
    .await
}
