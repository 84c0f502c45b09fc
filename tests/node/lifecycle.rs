//! Kubelets that stop, with the controllers of Kubernetes: what becomes of their Nodes, and of the pod that does the work.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use support::nodes::ready_of;
use support::{AuditEvent, Vm, sandbox};

use crate::cluster::{LIMIT, NODE, TEST_LIMIT, eventually};
use crate::two_nodes::{ADDRESS, GUEST, TwoNodes, UUID, VM, ready, settings, sorted_addresses, taints};

/// `--node-deletion-grace`, as by default.
const DELETION_GRACE: Duration = Duration::from_secs(30);
/// What everything else takes, on a busy machine.
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
        nodes.until_addresses_are(WORKER, &addresses(ADDRESS)).await;
        nodes.until_ready_is(NODE, "True").await;
        let before = nodes.until_ready_is(WORKER, "True").await;
        println!("both nodes are ready");

        the_pod_works_on_below_a_kubelet_that_stops(&mut nodes).await;
        a_vm_that_is_off_has_its_node_tainted(&mut nodes, &before).await;
        a_vm_that_is_destroyed_has_its_node_deleted(&mut nodes, &before).await;
    });
}

/// The only node of the control plane: controllers keep its pod, and the process in it works.
async fn the_pod_works_on_below_a_kubelet_that_stops(nodes: &mut TwoNodes) {
    let pod = nodes.pod().await;
    drop(nodes.cluster.kubelet.take());
    nodes.until_ready_is(NODE, "Unknown").await;
    let is_unreachable = |node: &Node| UNREACHABLE.iter().all(|taint| taints(node).iter().any(|one| one == taint));
    nodes.until("has the taints of unreachable nodes", NODE, is_unreachable).await;
    let silent = eventually("controllers report the pod as not ready", LIMIT, async || {
        let pod = nodes.pod().await;
        if is_ready(&pod) { Err("it is ready") } else { Ok(pod) }
    })
    .await;
    nodes.cluster.vcenter.set_ip(VM, "192.0.2.12").await;
    nodes.until_addresses_are(WORKER, &addresses("192.0.2.12")).await;
    nodes.cluster.vcenter.set_ip(VM, ADDRESS).await;
    nodes.until_addresses_are(WORKER, &addresses(ADDRESS)).await;
    assert_eq!(silent.metadata.deletion_timestamp, None);

    nodes.cluster.start_kubelet(&settings(&[])).await;
    nodes.until_ready_is(NODE, "True").await;
    let after = eventually("the pod is ready again", LIMIT, async || {
        let pod = nodes.pod().await;
        if is_ready(&pod) { Ok(pod) } else { Err(format!("{:?}", pod.status)) }
    })
    .await;
    assert_eq!(identity(&after), identity(&pod), "the pod and its container are the same");
    println!("the pod worked on");
}

async fn a_vm_that_is_off_has_its_node_tainted(nodes: &mut TwoNodes, before: &Node) {
    drop(nodes.kubelet.take());
    let silent = nodes.until_ready_is(WORKER, "Unknown").await;
    assert!(!is_shut_down(&silent), "its VM runs");
    let off = Instant::now();
    nodes.cluster.vcenter.change_vm(VM, &Vm::change().powered_off()).await;
    nodes.until("has the shutdown taint", WORKER, is_shut_down).await;
    println!("the taint came {:?} after the VM was off", off.elapsed());
    let on = Instant::now();
    nodes.cluster.vcenter.change_vm(VM, &Vm::change().powered_on()).await;
    let booting = nodes.until("has no shutdown taint", WORKER, |node| !is_shut_down(node)).await;
    println!("the taint went {:?} after the VM was on", on.elapsed());
    assert_eq!(ready(&booting), "Unknown", "its kubelet has not started");

    nodes.start_kubelet(WORKER, &[]);
    let back = nodes.until("is ready without taints", WORKER, |node| ready(node) == "True" && taints(node).is_empty());
    assert_eq!(facts(&back.await), facts(before));
}

/// The one whose VM is off stays over the same time; it is the whole control plane, too.
async fn a_vm_that_is_destroyed_has_its_node_deleted(nodes: &mut TwoNodes, before: &Node) {
    let control_plane = nodes.until_ready_is(NODE, "True").await;
    drop((nodes.kubelet.take(), nodes.cluster.kubelet.take()));
    nodes.cluster.vcenter.destroy_vm(VM).await;
    nodes.cluster.vcenter.change_vm(NODE, &Vm::change().powered_off()).await;
    let unknown = nodes.until_ready_is(WORKER, "Unknown").await;
    let unknown = ready_of(&unknown).unwrap().last_transition_time.clone().unwrap().0;
    nodes.until("has the shutdown taint", NODE, is_shut_down).await;
    eventually("the Node of the destroyed VM is deleted", LIMIT, async || {
        match nodes.nodes.get_opt(WORKER).await.unwrap() {
            Some(node) if node.metadata.uid == before.metadata.uid => Err(nodes.logs()),
            _ => Ok(()),
        }
    })
    .await;
    let audit = nodes.cluster.server.audit();
    let is_deletion = |event: &&AuditEvent| {
        let about = (event.verb.as_str(), event.object_ref.resource.as_str(), event.object_ref.name.as_str());
        about == ("delete", "nodes", WORKER) && event.is_accepted()
    };
    let deletion = audit.iter().find(is_deletion).unwrap();
    // The transition has whole seconds, and is never later than the change.
    let took = Duration::try_from(deletion.received.duration_since(unknown)).unwrap();
    println!("the Node was deleted {took:?} after it was Unknown; {}", nodes.event(WORKER, "DeletingNode").await);
    assert!(took >= DELETION_GRACE && took <= DELETION_GRACE + SLACK, "it was deleted after {took:?}");
    let off = nodes.nodes.get(NODE).await.unwrap();
    assert_eq!(facts(&off), facts(&control_plane));
    assert!(is_shut_down(&off));

    nodes.cluster.vcenter.destroy_vm(NODE).await;
    println!("{}", nodes.event(NODE, "DeletionControlPlaneMajority").await);
    let pod = nodes.pod().await;
    assert_eq!(pod.metadata.deletion_timestamp, None);
    assert_eq!(facts(&nodes.nodes.get(NODE).await.unwrap()), facts(&control_plane));
}

/// Those of the worker.
fn addresses(address: &str) -> [String; 3] {
    [format!("ExternalIP={address}"), format!("Hostname={GUEST}"), format!("InternalIP={address}")]
}

fn is_shut_down(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint == SHUTDOWN)
}

/// What stays over all of this.
fn facts(node: &Node) -> (Option<&str>, Vec<String>, Option<&str>) {
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    (node.metadata.uid.as_deref(), sorted_addresses(node), provider_id)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The pod, its container, and how often that was restarted.
fn identity(pod: &Pod) -> (Option<&str>, Vec<(Option<&str>, i32)>) {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    let containers = statuses.map(|status| (status.container_id.as_deref(), status.restart_count)).collect();
    (pod.metadata.uid.as_deref(), containers)
}
