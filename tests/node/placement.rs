//! The placement of pods by the scheduler and the DaemonSet controller: affinity and tolerations, with all taints in
//! the life of a cluster. The Node is never ready, because it has no pod network.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use support::real_node::KubeletSettings;
use support::sandbox;

use crate::cluster::{Cluster, LIMIT, NODE, TEST_LIMIT, eventually};
use crate::install_forms::{assert_initialized_without_a_network, delete, shell};
use crate::nodes::{ControlPlaneMarks, KUBEADM, MASTER, RKE2, condition, label, register, restart_kubelet, taints};
use crate::pod::{name, restarts};

/// A Node of the data plane that accepts any pod.
const WORKER: &str = "
apiVersion: v1
kind: Node
metadata: { name: worker-1, labels: { kubernetes.io/hostname: worker-1 } }
status:
  allocatable: { cpu: '2', memory: 4Gi, pods: '110' }
  capacity: { cpu: '2', memory: 4Gi, pods: '110' }
  conditions: [{ type: Ready, status: 'True', reason: KubeletReady }]
";

/// Taints of a Node whose kubelet has stopped reporting.
const UNREACHABLE: [&str; 2] =
    ["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"];

/// The header of this file has the instructions for a single control-plane node.
const COMPONENT: &str = include_str!("../../manifests/components/deployment/kustomization.yaml");

#[test]
fn a_pod_of_the_daemon_set_is_placed_on_its_node_whatever_taints_come() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::without_kubelet(sandbox).await;
        cluster.configure();
        run_worker(&cluster).await;
        register(&mut cluster, &MASTER).await;
        shell(&cluster, "kubectl apply -k manifests/base");
        wait_until_no_pod_is_wanted(&cluster).await;
        label(&cluster, &MASTER);
        let first = assert_initialized_without_a_network(&cluster, "base", &MASTER).await;

        add_pressure_taints(&mut cluster, &MASTER).await;
        cluster.kubectl(&["cordon", NODE]);
        wait_for_taints(&cluster, &["node.kubernetes.io/unschedulable:NoSchedule"]).await;
        cluster.kubectl(&["-n", "kube-system", "delete", "pod", name(&first)]);
        let second = next_at_once(&cluster, &first).await;

        lose_kubelet(&mut cluster).await;
        delete_by_force(&cluster, &second);
        wait_until_no_pod_is_wanted(&cluster).await;
        assert!(cluster.pods().is_empty(), "no pod is placed where no kubelet can start it");
        has_taints(&cluster, &UNREACHABLE).unwrap();
        restart_kubelet(&mut cluster, &MASTER, &[]);
        let third = cluster.wait_until_next_is_ready(&second).await;
        assert_eq!(third["spec"]["nodeName"], NODE);
        assert_waited_for_the_port(&cluster, &third);
    });
}

#[test]
fn a_pod_of_the_deployment_is_placed_on_the_control_plane_whatever_taints_come() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::without_kubelet(sandbox).await;
        cluster.configure();
        run_worker(&cluster).await;
        register(&mut cluster, &KUBEADM).await;
        shell(&cluster, "kubectl apply -k manifests/deployment");
        wait_for_waiting_pods(&cluster, 2, "2 node(s) didn't match Pod's node affinity/selector").await;
        label(&cluster, &KUBEADM);
        let first = assert_initialized_without_a_network(&cluster, "Deployment", &KUBEADM).await;
        // There is no second node for the other replica.
        wait_for_waiting_pods(&cluster, 1, "1 node(s) didn't match Pod's node affinity/selector").await;

        add_pressure_taints(&mut cluster, &KUBEADM).await;
        cluster.kubectl(&["-n", "kube-system", "delete", "pod", name(&first)]);
        let second = next_at_once(&cluster, &first).await;

        lose_kubelet(&mut cluster).await;
        delete_by_force(&cluster, &second);
        wait_for_waiting_pods(&cluster, 2, "1 node(s) had untolerated taint(s)").await;
        has_taints(&cluster, &UNREACHABLE).unwrap();
        restart_kubelet(&mut cluster, &KUBEADM, &[]);
        let third = cluster.wait_until_next_is_ready(&second).await;
        assert_waited_for_the_port(&cluster, &third);

        one_node_takes_one_replica(&cluster, &third).await;
        delete(&cluster, "manifests/deployment").await;

        register(&mut cluster, &RKE2).await;
        label(&cluster, &RKE2);
        cluster.kustomization("my-ccm", "overlays/rke2", &["deployment"], "");
        shell(&cluster, "kubectl apply -k my-ccm");
        assert_initialized_without_a_network(&cluster, "Deployment on RKE2", &RKE2).await;
    });
}

/// Checks that a restarted process has logged a port in use. The kubelet starts this pod while it still stops the
/// container of a force-deleted pod with the same port.
fn assert_waited_for_the_port(cluster: &Cluster, pod: &Value) {
    if restarts(pod) > 0 {
        let log = cluster.kubectl(&["-n", "kube-system", "logs", "--previous", name(pod)]);
        println!("{log}");
        assert!(log.contains("Address already in use"), "{log}");
    }
    assert!(restarts(pod) <= 2, "{pod}");
}

/// With two replicas and one node neither an update nor a drain completes. Each waits for the replica without a node.
async fn one_node_takes_one_replica(cluster: &Cluster, pod: &Value) {
    shell(cluster, "kubectl -n kube-system rollout restart deployment/vsphere-cloud-controller-manager");
    eventually("a pod of the next revision waits for the node", LIMIT, async || {
        let pods = cluster.pods();
        let hash = |pod: &Value| pod["metadata"]["labels"]["pod-template-hash"].to_string();
        let is_next = |one: &Value| hash(one) != hash(pod) && condition(one, "PodScheduled")["status"] == "False";
        if pods.len() == 2 && pods.iter().any(is_next) { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;
    // `grep` ends after the first match. The drain ends at its next write to the closed pipe.
    let drain = format!("kubectl drain {NODE} --ignore-daemonsets --timeout=120s 2>&1");
    shell(cluster, &format!("{drain} | grep --max-count=1 \"would violate the pod's disruption budget\""));
    cluster.kubectl(&["uncordon", NODE]);

    let lines = COMPONENT.lines().take_while(|line| line.starts_with('#')).filter_map(|line| line.strip_prefix("#   "));
    let replicas: String = lines.map(|line| format!("{line}\n")).collect();
    cluster.kustomization("my-ccm", "deployment", &[], &replicas);
    shell(cluster, "kubectl apply -k my-ccm");
    shell(cluster, "kubectl -n kube-system rollout status deployment/vsphere-cloud-controller-manager --timeout=120s");
    let updated = next_at_once(cluster, pod).await;
    cluster.kubectl(&["drain", NODE, "--ignore-daemonsets", "--timeout=120s"]);
    wait_for_waiting_pods(cluster, 1, "1 node(s) were unschedulable").await;
    cluster.kubectl(&["uncordon", NODE]);
    next_at_once(cluster, &updated).await;
}

mod nightly {
    use super::*;

    #[test]
    fn a_pod_of_the_deployment_that_waits_for_a_network_is_replaced_every_five_minutes() {
        sandbox::run(TEST_LIMIT, async |sandbox| {
            let mut cluster = Cluster::without_kubelet(sandbox).await;
            cluster.configure();
            run_worker(&cluster).await;
            cluster.start_kubelet(&KubeletSettings::default()).await;
            shell(&cluster, "kubectl apply -k manifests/deployment");
            let first = assert_initialized_without_a_network(&cluster, "Deployment", &KUBEADM).await;
            let uid = &first["metadata"]["uid"];
            eventually("the pod is evicted", 4 * LIMIT, async || {
                let is_there = cluster.pods().iter().any(|pod| pod["metadata"]["uid"] == *uid);
                if is_there { Err("it is there") } else { Ok(()) }
            })
            .await;
            next_at_once(&cluster, &first).await;
        });
    }
}

/// Waits until the next pod is ready. Checks that it was not restarted.
async fn next_at_once(cluster: &Cluster, before: &Value) -> Value {
    let pod = cluster.wait_until_next_is_ready(before).await;
    assert_eq!(restarts(&pod), 0, "{pod}");
    pod
}

/// Waits until this many pods have no node, with this reason of the scheduler.
async fn wait_for_waiting_pods(cluster: &Cluster, count: usize, reason: &str) {
    eventually(&format!("{count} pods wait: {reason}"), LIMIT, async || {
        let pods = cluster.pods();
        let conditions = pods.iter().map(|pod| condition(pod, "PodScheduled"));
        let waiting: Vec<_> = conditions.filter(|one| one["status"] == "False").collect();
        let all = waiting.len() == count && waiting.iter().all(|one| one["message"].to_string().contains(reason));
        if all { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
}

/// Runs a worker that stays ready. Without a ready Node, Kubernetes evicts no pods.
async fn run_worker(cluster: &Cluster) {
    cluster.apply("worker", WORKER);
    let leases: Api<Lease> = Api::namespaced(cluster.server.client().await, "kube-node-lease");
    tokio::spawn(async move {
        loop {
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
            let spec = json!({ "holderIdentity": "worker-1", "leaseDurationSeconds": 40, "renewTime": now });
            let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": "worker-1" }, "spec": spec });
            let apply = PatchParams::apply("worker-1").force();
            leases.patch("worker-1", &apply, &Patch::Apply(lease)).await.unwrap();
            // A kubelet renews its Lease every 10 s.
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    });
}

/// Adds the taints of a missing route, and of too little memory, disk and process ids.
async fn add_pressure_taints(cluster: &mut Cluster, marks: &ControlPlaneMarks) {
    // A kubelet that has reported once does not overwrite these conditions.
    let heartbeat = |cluster: &Cluster| condition(&cluster.get(&["node", NODE]), "Ready")["lastHeartbeatTime"].clone();
    let before = heartbeat(cluster);
    let never = json!("1h");
    let fields = [("nodeStatusUpdateFrequency", never.clone()), ("nodeStatusReportFrequency", never)];
    restart_kubelet(cluster, marks, &fields);
    eventually("the kubelet has reported", LIMIT, async || {
        if heartbeat(cluster) == before { Err(before.to_string()) } else { Ok(()) }
    })
    .await;
    let conditions = ["NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure"];
    let conditions = conditions.map(|name| json!({ "type": name, "status": "True", "reason": "Written" }));
    let patch = json!({ "status": { "conditions": conditions } }).to_string();
    cluster.kubectl(&["patch", "node", NODE, "--subresource=status", "--patch", &patch]);
    let keys = ["network-unavailable", "memory-pressure", "disk-pressure", "pid-pressure", "not-ready"];
    let taints = keys.map(|key| format!("node.kubernetes.io/{key}:NoSchedule"));
    wait_for_taints(cluster, &taints.each_ref().map(String::as_str)).await;
    wait_for_taints(cluster, &["node.kubernetes.io/not-ready:NoExecute"]).await;
}

/// Stops the kubelet, and waits until the Node is unreachable.
async fn lose_kubelet(cluster: &mut Cluster) {
    cluster.kubelet = None;
    wait_for_taints(cluster, &UNREACHABLE).await;
}

/// Waits until the DaemonSet controller has processed the DaemonSet, and has no Node for a pod.
async fn wait_until_no_pod_is_wanted(cluster: &Cluster) {
    eventually("the DaemonSet controller has no Node for a pod", LIMIT, async || {
        let status = &cluster.get(&["daemonset", "-n", "kube-system", "vsphere-cloud-controller-manager"])["status"];
        let is_seen = status["observedGeneration"] == 1 && status["desiredNumberScheduled"] == 0;
        if is_seen { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Deletes a pod whose kubelet cannot confirm the end of the container.
fn delete_by_force(cluster: &Cluster, pod: &Value) {
    cluster.kubectl(&["-n", "kube-system", "delete", "pod", name(pod), "--force", "--grace-period=0"]);
}

async fn wait_for_taints(cluster: &Cluster, expected: &[&str]) {
    let name = format!("the Node has the taints {expected:?}");
    eventually(&name, LIMIT, async || has_taints(cluster, expected)).await;
}

/// Returns the Node's taints and conditions as an error if one of these taints is missing.
fn has_taints(cluster: &Cluster, expected: &[&str]) -> Result<(), String> {
    let node = cluster.get(&["node", NODE]);
    let taints = taints(&node);
    let all = expected.iter().all(|taint| taints.iter().any(|one| one == taint));
    if all { Ok(()) } else { Err(format!("taints {taints:?}, conditions {}", node["status"]["conditions"])) }
}
