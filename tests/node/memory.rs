//! The memory of a pod with the limit of the manifests: with many Nodes, and with the largest Nodes and Services that
//! the API server accepts.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, NodeCondition, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use support::fake_nsx::{FakeNsx, Model};
use support::nodes::NodeView;
use support::process::Usage;
use support::real_node::{KubeletSettings, add_pod_network};
use support::sandbox::Sandbox;
use support::{KubeletNode, Vm, eventually, sandbox};

use crate::cluster::{Cluster, LIMIT, TEST_LIMIT};
use crate::control_group::MemoryGroup;
use crate::pod::Pod;

/// The memory limit in the manifests.
const MEMORY_LIMIT: u64 = 512 << 20;

/// Limit for the peak. It is a quarter of the memory limit, and more than twice the use with 5,000 Nodes.
const WELL_BELOW: u64 = MEMORY_LIMIT / 4;

/// Limit of a wait behind many objects. With 1,000 VMs the simulator answers a search by UUID slowly.
const MANY_LIMIT: Duration = LIMIT.saturating_mul(4);

/// Number of concurrent requests.
const AT_ONCE: usize = 8;

/// Length of an annotation close to the API server's limit for one object. Its JSON form is six times as long.
const ANNOTATION: usize = 250 << 10;

/// Length of a text close to the API server's limit for one request. Its JSON form is six times as long. Three of
/// them are close to etcd's limit for one object.
const TEXT: usize = 480 << 10;

/// The finalizer of Services with a load balancer.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Numbers of Nodes, of large Nodes and of large Services.
struct Counts {
    nodes: usize,
    large_nodes: usize,
    large_services: usize,
}

#[test]
fn large_nodes_and_services_leave_the_process_far_below_its_limit() {
    let counts = Counts { nodes: 100, large_nodes: 12, large_services: 40 };
    sandbox::run(TEST_LIMIT, async |sandbox| measure(start(sandbox).await, &counts).await);
}

mod nightly {
    use super::{Counts, Duration, measure, sandbox, start};

    #[test]
    fn a_thousand_nodes_and_hundreds_of_large_services_leave_the_process_far_below_its_limit() {
        let (limit, counts) = (Duration::from_secs(3600), Counts { nodes: 1000, large_nodes: 12, large_services: 300 });
        sandbox::run(limit, async |sandbox| measure(start(sandbox).await, &counts).await);
    }
}

/// Starts a cluster in which no Node becomes `Unknown`. Most Nodes have no kubelet, and otherwise
/// kube-controller-manager would write the large ones repeatedly.
async fn start(sandbox: Sandbox) -> Cluster {
    let mut cluster = Cluster::with_grace(sandbox, Duration::from_secs(3600)).await;
    add_pod_network();
    cluster.start_kubelet(&KubeletSettings::default()).await;
    cluster
}

/// Measures a pod while the objects are created, and its successor, which reads all of them at its start.
async fn measure(cluster: Cluster, counts: &Counts) {
    let client = cluster.server.client().await;
    let _nsx = install(&cluster, &client).await;
    let pod = Pod::current(&cluster).await;
    assert_eq!(pod.object["spec"]["containers"][0]["resources"]["limits"]["memory"], "512Mi");
    let mut measured = MeasuredCluster { services: Api::namespaced(client.clone(), "default"), cluster, client, pod };
    measured.check_memory("idle, with one Node").await;
    measured.join("many", counts.nodes).await;
    measured.check_memory(&format!("{} Nodes more", counts.nodes)).await;
    for_each(counts.large_nodes, async |number| measured.create_large_node(number).await).await;
    measured.join("after-large-nodes", 1).await;
    measured.check_memory(&format!("{} large Nodes more", counts.large_nodes)).await;
    let log = measured.pod.log();
    let passes_over = |line: &String| line.contains("an object is passed over") && line.contains("name=\"large-0\"");
    assert!(log.iter().any(passes_over), "{}", measured.state());
    let parameters = PostParams::default();
    for_each(counts.large_services, async |number| {
        drop(measured.services.create(&parameters, &large(number)).await.unwrap())
    })
    .await;
    measured.serve("first").await;
    measured.check_memory(&format!("{} large Services more", counts.large_services)).await;
    measured.cluster.kubectl(&["-n", "kube-system", "delete", "pod", "-l", "name=vsphere-cloud-controller-manager"]);
    measured.pod = Pod::current(&measured.cluster).await;
    measured.join("after-restart", 1).await;
    measured.serve("second").await;
    measured.check_memory("started with all of them").await;
}

/// Installs the overlay with the component for NSX, as described on the page, and starts a manager.
async fn install(cluster: &Cluster, client: &Client) -> FakeNsx {
    let nsx = FakeNsx::start(Model::small()).await;
    cluster.configure();
    let sections = format!(
        "nsxt:\n  host: {}\n  caFile: /etc/cloud/nsx-ca.pem\n  secretName: vsphere-nsx-secret\n  \
         secretNamespace: kube-system\nloadBalancer:\n  size: LARGE\n  tier1GatewayPath: /infra/tier-1s/t1\n  ipPoolId: p1\n  \
         tcpAppProfileName: default-tcp-lb-app-profile\n  udpAppProfileName: default-udp-lb-app-profile\n",
        nsx.address()
    );
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let name = "vsphere-cloud-config";
    let config = maps.get(name).await.unwrap().data.unwrap()["vsphere.conf"].clone() + &sections;
    let data = json!({"data": {"vsphere.conf": config, "nsx-ca.pem": nsx.ca_pem()}});
    maps.patch(name, &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
    let (user, password) =
        (format!("--from-literal=username={}", nsx.user()), format!("--from-literal=password={}", nsx.password()));
    let secret = ["create", "secret", "generic", "vsphere-nsx-secret", &user, &password];
    cluster.kubectl(&[&["-n", "kube-system"], &secret[..]].concat());
    let flag = "patches:\n- target: {kind: DaemonSet}\n  patch: |\n    \
                - {op: add, path: /spec/template/spec/containers/0/args/-, value: --cluster-name=site}\n";
    let overlay = cluster.kustomization("with-nsx", "overlays/kubeadm", &["nsx"], flag);
    cluster.kubectl(&["apply", "--kustomize", overlay.to_str().unwrap()]);
    cluster.wait_until_initialized().await;
    nsx
}

/// The cluster with the measured pod.
struct MeasuredCluster {
    cluster: Cluster,
    client: Client,
    services: Api<Service>,
    pod: Pod,
}

impl MeasuredCluster {
    /// Registers this many Nodes at once, and waits until all are initialized.
    async fn join(&self, prefix: &str, count: usize) {
        let began = Instant::now();
        let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
        for_each(count, async |number| self.create_node(&names[number], Vec::new()).await).await;
        let nodes = Api::<Node>::all(self.client.clone());
        for name in &names {
            eventually("the Node is initialized", MANY_LIMIT, async || {
                let view = NodeView::of(&nodes.get(name).await.unwrap());
                if view.uninitialized { Err(format!("{view:?}\n{}", self.state())) } else { Ok(()) }
            })
            .await;
        }
        println!("{count} Nodes {prefix} have joined in {:.1?}", began.elapsed());
    }

    async fn create_node(&self, name: &str, conditions: Vec<NodeCondition>) {
        let uuid = uuid::Uuid::new_v4().to_string();
        self.cluster.vcenter.create_vm(&Vm::new(name, &uuid).ip("192.0.2.30")).await;
        let mut node = KubeletNode::new(name, &uuid).build();
        node.status.get_or_insert_default().conditions.get_or_insert_default().extend(conditions);
        Api::<Node>::all(self.client.clone()).create(&PostParams::default(), &node).await.unwrap();
    }

    /// Creates a Node with conditions of maximum length, as a kubelet would write them. The product reads the reason of
    /// the first one, and no other long field.
    async fn create_large_node(&self, number: usize) {
        let name = format!("large-{number}");
        let text = "\u{1}".repeat(TEXT);
        let unavailable = NodeCondition {
            type_: "NetworkUnavailable".to_owned(),
            status: "True".to_owned(),
            reason: Some(text.clone()),
            ..NodeCondition::default()
        };
        self.create_node(&name, vec![unavailable]).await;
        let nodes = Api::<Node>::all(self.client.clone());
        for number in 1..3 {
            let unread = json!({"type": format!("example.com/{number}"), "status": "True", "message": text});
            let patch = Patch::Strategic(json!({"status": {"conditions": [unread]}}));
            nodes.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Creates a Service of usual size and waits for its load balancer. Then the leader has processed all earlier
    /// Services.
    async fn serve(&self, name: &str) {
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        let service = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.services.create(&PostParams::default(), &service).await.unwrap();
        eventually("the Service has an address", MANY_LIMIT, async || {
            let status = self.services.get(name).await.unwrap().status;
            let ingress = status.and_then(|status| status.load_balancer?.ingress);
            if ingress.is_some() { Ok(()) } else { Err(self.state()) }
        })
        .await;
    }

    /// Returns the last lines of the log and the memory, for messages.
    fn state(&self) -> String {
        let log = self.pod.log();
        let lines = log.iter().rev().take(20).map(|line| line.chars().take(300).collect::<String>());
        let text: Vec<String> = lines.collect();
        let group = MemoryGroup::of(self.pod.process());
        format!("peak {}, kills {}; its last lines, backwards:\n{}", group.peak(), group.kills(), text.join("\n"))
    }

    /// Prints the memory of the pod. Checks that it is far below the limit of the manifests, and that the container was
    /// not restarted.
    async fn check_memory(&self, state: &str) {
        let process = self.pod.process();
        let (usage, group) = (Usage::of(process).unwrap(), MemoryGroup::of(process));
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (resident, most) = (mib(usage.resident << 10), mib(usage.peak << 10));
        let (peak, limit) = (mib(group.peak()), mib(group.limit()));
        println!("{state}: resident {resident:.1} MiB, at most {most:.1}; the container at most {peak:.1} of {limit}");
        assert_eq!(group.limit(), MEMORY_LIMIT);
        assert_eq!((self.pod.restarts(&self.cluster), group.kills()), (0, 0));
        assert!(group.peak() < WELL_BELOW, "{} bytes", group.peak());
        assert_eq!(self.pod.errors(), Vec::<String>::new());
    }
}

/// Returns a Service with a long annotation: one that the product reads, or another one. There are four kinds.
fn large(number: usize) -> Service {
    let (kind, class, finalizers, key) = match number % 4 {
        0 => ("LoadBalancer", None, json!([]), "loadbalancer.vmware.io/class"),
        1 => ("LoadBalancer", Some("example.com/other"), json!([]), "example.com/note"),
        2 => ("ClusterIP", None, json!([FINALIZER]), "example.com/note"),
        _ => ("NodePort", None, json!(["example.com/one", FINALIZER]), "example.com/note"),
    };
    let annotations = json!({key: "\u{1}".repeat(ANNOTATION)});
    let metadata = json!({"name": format!("large-{number}"), "finalizers": finalizers, "annotations": annotations});
    let spec = json!({"type": kind, "loadBalancerClass": class, "ports": [{"port": 80}]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

async fn for_each(count: usize, work: impl AsyncFn(usize)) {
    futures::stream::iter(0..count).for_each_concurrent(AT_ONCE, async |number| work(number).await).await;
}
