//! Kubelets that stop, with the controllers of Kubernetes: the effects on their Nodes, and on the product's pod.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use support::{AuditEvent, Vm, sandbox};

use crate::cluster::{LIMIT, NODE, TEST_LIMIT, eventually};
use crate::nodes::{addresses, condition, readiness, taints};
use crate::two_nodes::{ADDRESS, GUEST, TwoNodes, UUID, VM, settings};

/// Default of `--node-deletion-grace`.
const DELETION_GRACE: Duration = Duration::from_secs(30);
/// Tolerance for all other steps, on a busy machine.
const SLACK: Duration = Duration::from_secs(60);

const WORKER: &str = "worker-1";
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule";
const UNREACHABLE: [&str; 2] =
    ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"];

#[test]
fn a_node_whose_kubelet_stops_is_kept_tainted_or_deleted_as_its_vm_says() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut nodes = TwoNodes::start(sandbox, &UUID.to_string()).await;
        nodes.start_kubelet(WORKER, &[]);
        nodes.until_addresses_are(WORKER, &of(ADDRESS)).await;
        nodes.until_ready_is(NODE, "True").await;
        let before = nodes.until_ready_is(WORKER, "True").await;
        println!("both nodes are ready");

        the_pod_works_on_below_a_kubelet_that_stops(&mut nodes).await;
        a_vm_that_is_off_has_its_node_tainted(&mut nodes, &before).await;
        a_vm_that_is_destroyed_has_its_node_deleted(&mut nodes, &before).await;
    });
}

/// On the only node of the control plane the controllers keep the pod, and its process works.
async fn the_pod_works_on_below_a_kubelet_that_stops(nodes: &mut TwoNodes) {
    drop(nodes.cluster.kubelet.take());
    nodes.until_ready_is(NODE, "Unknown").await;
    let is_unreachable = |node: &Value| UNREACHABLE.iter().all(|taint| taints(node).iter().any(|one| one == taint));
    nodes.until("has the taints of unreachable nodes", NODE, is_unreachable).await;
    let unready = eventually("controllers report the pod as not ready", LIMIT, async || {
        let pod = nodes.pod.get(&nodes.cluster);
        if readiness(&pod) == "False" { Ok(pod) } else { Err(pod["status"].to_string()) }
    })
    .await;
    nodes.cluster.vcenter.set_ip(VM, "192.0.2.12").await;
    nodes.until_addresses_are(WORKER, &of("192.0.2.12")).await;
    nodes.cluster.vcenter.set_ip(VM, ADDRESS).await;
    nodes.until_addresses_are(WORKER, &of(ADDRESS)).await;
    assert!(unready["metadata"]["deletionTimestamp"].is_null(), "{unready}");

    nodes.cluster.start_kubelet(&settings(&[])).await;
    nodes.until_ready_is(NODE, "True").await;
    let after = nodes.cluster.wait_until_ready().await;
    assert_eq!(identity(&after), identity(&nodes.pod.object), "the pod and its container are the same");
    println!("the pod worked on");
}

async fn a_vm_that_is_off_has_its_node_tainted(nodes: &mut TwoNodes, before: &Value) {
    drop(nodes.kubelet.take());
    let unresponsive = nodes.until_ready_is(WORKER, "Unknown").await;
    assert!(!is_shut_down(&unresponsive), "its VM runs");
    let off = Instant::now();
    nodes.cluster.vcenter.change_vm(VM, &Vm::change().powered_off()).await;
    nodes.until("has the shutdown taint", WORKER, is_shut_down).await;
    println!("the taint came {:?} after the VM was off", off.elapsed());
    let on = Instant::now();
    nodes.cluster.vcenter.change_vm(VM, &Vm::change().powered_on()).await;
    let booting = nodes.until("has no shutdown taint", WORKER, |node| !is_shut_down(node)).await;
    println!("the taint went {:?} after the VM was on", on.elapsed());
    assert_eq!(readiness(&booting), "Unknown", "its kubelet has not started");

    nodes.start_kubelet(WORKER, &[]);
    let back =
        nodes.until("is ready without taints", WORKER, |node| readiness(node) == "True" && taints(node).is_empty());
    assert_eq!(facts(&back.await), facts(before));
}

/// The Node whose VM is off stays over the same time. It is also the whole control plane.
async fn a_vm_that_is_destroyed_has_its_node_deleted(nodes: &mut TwoNodes, before: &Value) {
    let control_plane = nodes.until_ready_is(NODE, "True").await;
    drop((nodes.kubelet.take(), nodes.cluster.kubelet.take()));
    nodes.cluster.vcenter.destroy_vm(VM).await;
    nodes.cluster.vcenter.change_vm(NODE, &Vm::change().powered_off()).await;
    let unknown = nodes.until_ready_is(WORKER, "Unknown").await;
    let unknown = condition(&unknown, "Ready")["lastTransitionTime"].as_str().unwrap().parse::<Timestamp>().unwrap();
    nodes.until("has the shutdown taint", NODE, is_shut_down).await;
    eventually("the Node of the destroyed VM is deleted", LIMIT, async || {
        let is_there = nodes.get(WORKER).await["metadata"]["uid"] == before["metadata"]["uid"];
        if is_there { Err(nodes.logs()) } else { Ok(()) }
    })
    .await;
    let audit = nodes.cluster.server.audit();
    let is_deletion = |event: &&AuditEvent| {
        let about = (event.verb.as_str(), event.object_ref.resource.as_str(), event.object_ref.name.as_str());
        about == ("delete", "nodes", WORKER) && event.is_accepted()
    };
    let deletion = audit.iter().find(is_deletion).unwrap();
    // The transition time is in whole seconds, and never later than the change.
    let took = Duration::try_from(deletion.received.duration_since(unknown)).unwrap();
    println!("the Node was deleted {took:?} after it was Unknown; {}", nodes.event(WORKER, "DeletingNode").await);
    assert!(took >= DELETION_GRACE && took <= DELETION_GRACE + SLACK, "it was deleted after {took:?}");
    let off = nodes.get(NODE).await;
    assert_eq!(facts(&off), facts(&control_plane));
    assert!(is_shut_down(&off));

    nodes.cluster.vcenter.destroy_vm(NODE).await;
    println!("{}", nodes.event(NODE, "DeletionControlPlaneMajority").await);
    let pod = nodes.pod.get(&nodes.cluster);
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    assert_eq!(facts(&nodes.get(NODE).await), facts(&control_plane));
}

/// Returns the addresses of the worker, with this one.
fn of(address: &str) -> [String; 3] {
    [format!("ExternalIP={address}"), format!("Hostname={GUEST}"), format!("InternalIP={address}")]
}

fn is_shut_down(node: &Value) -> bool {
    taints(node).iter().any(|taint| taint == SHUTDOWN)
}

/// Returns UID, addresses and provider ID, which never change.
fn facts(node: &Value) -> (&Value, Vec<String>, &Value) {
    (&node["metadata"]["uid"], addresses(node), &node["spec"]["providerID"])
}

/// Returns the UID of the pod, the id of its container, and the container's number of restarts.
fn identity(pod: &Value) -> [&Value; 3] {
    let container = &pod["status"]["containerStatuses"][0];
    [&pod["metadata"]["uid"], &container["containerID"], &container["restartCount"]]
}
