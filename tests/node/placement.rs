//! Where the DaemonSet controller and the scheduler place the pods: by affinity and tolerations, also after the taints that
//! come in the life of a cluster. The Node is not ready throughout, for want of a network for pods.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use support::{eventually, sandbox};

use crate::cluster::{Cluster, LIMIT, NODE, TEST_LIMIT};
use crate::forms::{
    MASTER, Marks, PODS, assert_initialised_without_a_network, condition, label, register, restart_kubelet, restarts,
    shell, taints,
};

/// A Node of the data plane that would take any pod.
const WORKER: &str = "
apiVersion: v1
kind: Node
metadata: { name: worker-1, labels: { kubernetes.io/hostname: worker-1 } }
status:
  allocatable: { cpu: '2', memory: 4Gi, pods: '110' }
  capacity: { cpu: '2', memory: 4Gi, pods: '110' }
  conditions: [{ type: Ready, status: 'True', reason: KubeletReady }]
";

#[test]
fn a_pod_of_the_daemon_set_is_placed_on_its_node_whatever_taints_come() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::without_kubelet(sandbox).await;
        cluster.configure();
        run_worker(&cluster).await;
        register(&mut cluster, &MASTER).await;
        shell(&cluster, "kubectl apply -k manifests/base");
        eventually("the DaemonSet controller sees no Node for it", LIMIT, async || {
            let status =
                &cluster.get(&["daemonset", "-n", "kube-system", "vsphere-cloud-controller-manager"])["status"];
            let is_seen = status["observedGeneration"] == 1 && status["desiredNumberScheduled"] == 0;
            if is_seen { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        label(&cluster, &MASTER);
        let first = assert_initialised_without_a_network(&cluster, "base", &MASTER).await;

        burden(&mut cluster, &MASTER).await;
        cluster.kubectl(&["cordon", NODE]);
        wait_for_taints(&cluster, &["node.kubernetes.io/unschedulable:NoSchedule"]).await;
        cluster.kubectl(&["-n", "kube-system", "delete", "pod", name(&first)]);
        let second = next(&cluster, &first).await;

        lose_kubelet(&mut cluster).await;
        cluster.kubectl(&["-n", "kube-system", "delete", "pod", name(&second), "--wait=false"]);
        restart_kubelet(&mut cluster, &MASTER, &[]);
        let third = next(&cluster, &second).await;
        assert_eq!(third["spec"]["nodeName"], NODE);
    });
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap()
}

/// Waits until a pod after this one is ready, which was never started again.
async fn next(cluster: &Cluster, before: &Value) -> Value {
    eventually("the next pod is ready", LIMIT, async || {
        let pods = cluster.get(&PODS);
        let is_next = |pod: &&Value| name(pod) != name(before) && condition(pod, "Ready")["status"] == "True";
        let pod = pods["items"].as_array().unwrap().iter().find(is_next);
        let pod = pod.ok_or_else(|| cluster.state())?;
        assert_eq!(restarts(pod), 0, "{}", cluster.state());
        Ok::<_, String>(pod.clone())
    })
    .await
}

/// A worker that stays ready: where no Node is ready, Kubernetes evicts from none.
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
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    });
}

/// Brings the Node under the taints of a missing route, and of too little memory, disk and process ids.
async fn burden(cluster: &mut Cluster, marks: &Marks) {
    // A kubelet that has reported once leaves the conditions as they are written then.
    let heartbeat = |cluster: &Cluster| condition(&cluster.get(&["node", NODE]), "Ready")["lastHeartbeatTime"].clone();
    let before = heartbeat(cluster);
    let never = json!("1h");
    let fields = [("nodeStatusUpdateFrequency", never.clone()), ("nodeStatusReportFrequency", never)];
    restart_kubelet(cluster, marks, &fields);
    eventually("the kubelet has reported", LIMIT, async || {
        if heartbeat(cluster) == before { Err(cluster.state()) } else { Ok(()) }
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

/// Stops the kubelet, and waits until the Node counts as lost.
async fn lose_kubelet(cluster: &mut Cluster) {
    cluster.kubelet = None;
    wait_for_taints(
        cluster,
        &["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"],
    )
    .await;
}

async fn wait_for_taints(cluster: &Cluster, expected: &[&str]) {
    eventually(&format!("the Node has the taints {expected:?}"), LIMIT, async || {
        let node = cluster.get(&["node", NODE]);
        let taints = taints(&node);
        let all = expected.iter().all(|taint| taints.iter().any(|one| one == taint));
        if all { Ok(()) } else { Err(format!("taints {taints:?}, conditions {}", node["status"]["conditions"])) }
    })
    .await;
}
