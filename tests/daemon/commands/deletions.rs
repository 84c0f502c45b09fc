//! `deletions`: a pause that a standby takes, the list, and the permission for one Node.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use support::nodes::set_ready;
use support::{Daemon, Vcenter, eventually};

use super::screen::without_times;
use super::{CommandResult, ask, compare_with_page, json, lease_namespace, normalised, start_candidate_in};
use crate::cluster::{Cluster, LIMIT};

const PAUSE: [&str; 4] = ["deletions", "pause", "--for=4h", "--because=vCenter upgrade"];
/// A pause is not acknowledged before.
const ACKNOWLEDGED_AFTER: Duration = Duration::from_secs(12);

/// Short periods.
const FLAGS: [&str; 2] = ["--node-deletion-grace=1s", "--node-monitor-period=1s"];

#[tokio::test]
async fn a_pause_holds_every_deletion_until_it_is_ended_and_allow_needs_a_proof() {
    let cluster = Cluster::new().await;
    let namespace = lease_namespace(&cluster).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let leader = start_candidate_in(&namespace, &cluster, &vcenter, &FLAGS).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &leader).await;
    let standby = start_candidate_in(&namespace, &cluster, &vcenter, &FLAGS).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let (stays, gone) = (cluster.name(1), cluster.name(2));

    let began = Instant::now();
    let paused = ask(&standby, &PAUSE).await;
    assert_eq!(paused.code, Some(0), "{}{}", paused.output, paused.messages);
    assert!(began.elapsed() >= ACKNOWLEDGED_AFTER, "{:?}", began.elapsed());
    assert!(paused.output.starts_with("no replica deletes a Node before "), "{}", paused.output);
    let lease =
        Api::<Lease>::namespaced(cluster.client.clone(), &namespace).get("vsphere-ccm-deletions").await.unwrap();
    assert_eq!(lease.metadata.annotations.unwrap()["vsphere-ccm.dev/deletions-paused-because"], "vCenter upgrade");

    set_ready(&nodes, &gone, "Unknown", "").await.unwrap();
    vcenter.destroy_vm(&gone).await;
    let list = wait_for(&leader, &["deletions", "list"], 0, "   DeletionPaused   ").await;
    let shown = without_times(&list).replace(&gone, "worker-2");
    compare_with_page("deletions", &normalised(&shown, &vcenter));
    // The leader also has a Node whose VM it does not find.
    wait_for(&leader, &["status"], 1, ": vCenter upgrade").await;
    wait_for(&standby, &["status"], 3, ": vCenter upgrade").await;
    let (code, status) = json(&standby, &["deletions", "list"]).await;
    assert_eq!((code, &status["pause"]["isPaused"]), (Some(3), &true.into()), "{status:#}");

    let refused = ask(&leader, &["deletions", "allow", &gone]).await;
    assert!(refused.code == Some(2) && refused.messages.contains("--yes"), "{}", refused.messages);
    let unproved = ask(&leader, &["deletions", "allow", &stays, "--yes"]).await;
    assert!(unproved.code == Some(1) && unproved.output.contains("there is no proof"), "{}", unproved.output);
    let elsewhere = ask(&standby, &["deletions", "allow", &gone, "--yes"]).await;
    assert!(elsewhere.code == Some(3) && elsewhere.output.contains("kubectl -n "), "{}", elsewhere.output);
    let unknown = ask(&leader, &["deletions", "allow", "elsewhere", "--yes"]).await;
    assert_eq!(unknown.code, Some(2), "{}", unknown.messages);
    let allowed = ask(&leader, &["deletions", "allow", &gone, "--yes"]).await;
    assert_eq!(allowed.code, Some(0), "{}{}", allowed.output, allowed.messages);
    assert!(allowed.output.contains("Proof that the VM is deleted"), "{}", allowed.output);
    let annotation = |node: Node| node.metadata.annotations.unwrap().remove("vsphere-ccm.dev/allow-deletion");
    assert_eq!(annotation(nodes.get(&gone).await.unwrap()).as_deref(), Some("true"));
    assert_eq!(annotation(nodes.get(&stays).await.unwrap()), None);
    // The pause holds the deletion that is allowed, too.
    wait_for(&leader, &["explain", "deletion", &gone], 1, "by the annotation vsphere-ccm.dev/allow-deletion").await;
    wait_for(&leader, &["explain", "deletion", &gone], 1, "  holds             DeletionPaused").await;

    let resumed = ask(&leader, &["deletions", "resume"]).await;
    assert_eq!(resumed.code, Some(0), "{}{}", resumed.output, resumed.messages);
    eventually("the Node is deleted", LIMIT, async || match nodes.get_opt(&gone).await.unwrap() {
        None => Ok(()),
        Some(_) => Err(leader.output().tail(20)),
    })
    .await;
    wait_for(&leader, &["deletions", "list"], 0, "deletions are not paused").await;
    assert!(nodes.get_opt(&stays).await.unwrap().is_some());
}

/// Waits until the command has this exit code and text. Returns its output.
async fn wait_for(daemon: &Daemon, arguments: &[&str], expected: i32, text: &str) -> String {
    eventually(&format!("{arguments:?}: {text}"), LIMIT, async || {
        let CommandResult { code, output, messages } = ask(daemon, arguments).await;
        match code == Some(expected) && output.contains(text) {
            true => Ok(output),
            false => Err(format!("{code:?} {output}{messages}\n{}", daemon.output().tail(20))),
        }
    })
    .await
}
