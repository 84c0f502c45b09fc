//! The replacement of a pod: deleted, restarted by `kubectl rollout`, and with another image tag.

use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use support::{KubeletNode, Vm, eventually, sandbox};

use crate::cluster::{Cluster, LIMIT, TEST_LIMIT};
use crate::images;
use crate::pod::{CONTAINER, Pod, install_kubeadm, restarts};

/// The workload that users restart and update.
const DAEMON_SET: &str = "daemonset/vsphere-cloud-controller-manager";

/// A tag that is not in the manifests.
const OTHER_TAG: &str = "v0.1.0-other";

#[test]
fn a_replaced_pod_gives_up_the_lease_and_the_next_one_goes_on() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let cluster = Cluster::start(sandbox).await;
        install_kubeadm(&cluster).await;
        cluster.wait_until_initialized().await;
        cluster.containerd.import(&images::product(cluster.sandbox.folder(), OTHER_TAG));
        let client = cluster.server.client().await;
        let image = format!("{}:{OTHER_TAG}", images::IMAGE);
        let set_image = format!("{CONTAINER}={image}");
        let delete = ["delete", "pod", "--wait=false", "-l", "name=vsphere-cloud-controller-manager"];
        replace(&cluster, &client, "deleted", &delete).await;
        replace(&cluster, &client, "restarted", &["rollout", "restart", DAEMON_SET]).await;
        replace(&cluster, &client, "updated", &["set", "image", DAEMON_SET, &set_image]).await;
        cluster.kubectl(&["-n", "kube-system", "rollout", "status", DAEMON_SET, "--timeout=120s"]);
        let current = cluster.wait_until_ready().await;
        assert_eq!(current["spec"]["containers"][0]["image"], image);
        let events = cluster.kubectl(&["get", "events", "-A"]);
        // A kubelet reports `SystemOOM` for every process of the machine, also for one that ended before this test. The
        // exit codes and restarts above show that no container was killed.
        let is_bad = |line: &&str| ["Liveness", "BackOff"].iter().any(|word| line.contains(word));
        assert_eq!(events.lines().find(is_bad), None, "{events}");
    });
}

/// Replaces the pod with this command. A Node joins after the old leader has released the Lease.
async fn replace(cluster: &Cluster, client: &Client, name: &str, command: &[&str]) {
    let old = Pod::current(cluster).await;
    let leader = holder(client).await;
    let began = Instant::now();
    cluster.kubectl(&[&["-n", "kube-system"], command].concat());
    let free = wait_for_holder(client, |holder| holder != leader).await;
    let released = began.elapsed();
    assert_eq!(free, "", "another one leads before the old pod is gone");
    let uuid = uuid::Uuid::new_v4().to_string();
    cluster.vcenter.create_vm(&Vm::new(name, &uuid).ip("192.0.2.30")).await;
    KubeletNode::new(name, &uuid).register(client).await;
    let ended = old.wait_until_deleted(cluster).await;
    let gone = began.elapsed();
    let next = wait_for_holder(client, |holder| !holder.is_empty()).await;
    let led = began.elapsed();
    assert_ne!(next, leader);
    let node = cluster.wait_until_node_is_initialized(name).await;
    assert_eq!(node["spec"]["providerID"], format!("vsphere://{uuid}"));
    let initialized = began.elapsed();
    let new = Pod::current(cluster).await;
    let ready = began.elapsed();
    println!(
        "{name}: after the command the Lease was free in {released:.1?}, the old pod gone in {gone:.1?}, the next one leading in \
         {led:.1?}, the Node initialized in {initialized:.1?}, the next one ready in {ready:.1?}"
    );
    let exit_code = &ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
    assert_eq!((exit_code.as_u64(), restarts(&ended)), (Some(0), 0), "{}", ended["status"]);
    assert_eq!(new.restarts(cluster), 0);
    assert!(old.log().iter().any(|line| line.contains("\"the lease is given up\"")), "{:#?}", old.log());
    for pod in [&old, &new] {
        let log = pod.log();
        assert_eq!(pod.errors(), Vec::<String>::new(), "{log:#?}");
        assert!(log.iter().any(|line| line.contains("\"became leader\"")), "{log:#?}");
    }
    // The old pod has logged out.
    eventually("one session is open", LIMIT, async || {
        let counts = cluster.vcenter.counts().await;
        if counts.soap_sessions == 1 { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

async fn holder(client: &Client) -> String {
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    leases.get("cloud-controller-manager").await.unwrap().spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

/// Waits until the holder of the Lease meets `is_wanted`, and returns it.
async fn wait_for_holder(client: &Client, is_wanted: impl Fn(&str) -> bool) -> String {
    eventually("the Lease changes hands", LIMIT, async || {
        let holder = holder(client).await;
        if is_wanted(&holder) { Ok(holder) } else { Err(holder) }
    })
    .await
}
