//! The first pod of a cluster: the information for an operator before its Node has addresses, and the kubelet's
//! behaviour while vCenter is unavailable.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use support::real_node::KubeletSettings;
use support::sandbox;

use crate::cluster::{Cluster, LIMIT, NODE, TAG, TEST_LIMIT, eventually};
use crate::nodes::condition;
use crate::pod::{CONTAINER, Pod, install_kubeadm, restarts};

const TROUBLESHOOTING: &str = include_str!("../../docs/operate/troubleshooting.md");

/// Commands of the page, for the host of the Node.
const READ_LOG: &str = "tail -n 50 /var/log/pods/kube-system_vsphere-*/*/*.log";
const READ_CHECKS: &str = "curl -k 'https://127.0.0.1:10258/readyz?verbose'";

#[test]
fn while_vcenter_is_away_the_first_pod_is_ready_and_its_log_is_on_its_node() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::without_kubelet(sandbox).await;
        cluster.vcenter.stop_listening().await;
        cluster.start_kubelet(&KubeletSettings::default()).await;
        let pod = install_kubeadm(&cluster).await;
        without_addresses(&cluster, &pod).await;

        cluster.vcenter.resume_listening().await;
        cluster.wait_until_initialized().await;
        let initialized = Instant::now();
        with_addresses(&cluster, &pod);

        cluster.vcenter.stop_listening().await;
        stays_ready(&cluster, &pod).await;
        cluster.vcenter.resume_listening().await;
        // The kubelet writes the address of the pod at a later sync than the address of the Node.
        eventually("the pod is reached through the API server, and uses vCenter again", LIMIT, async || {
            let checks = readyz(&cluster, &pod)?;
            if checks.contains("[+]vcenter vcenter.example.com:443 ok") { Ok(()) } else { Err(checks) }
        })
        .await;
        println!("the proxy of the pod works {:?} after the first address", initialized.elapsed());
    });
}

/// Without an address the API server delivers neither the log nor a command. The host of the Node has the log.
async fn without_addresses(cluster: &Cluster, pod: &Pod) {
    let node = cluster.get(&["node", NODE]);
    assert_eq!(node["status"]["addresses"], json!([{ "type": "Hostname", "address": NODE }]));
    assert!(node["spec"]["taints"].to_string().contains("uninitialized"), "{}", node["spec"]);
    let status = &pod.get(cluster)["status"];
    assert!(status["podIP"].is_null() && status["hostIP"].is_null(), "{status}");

    let refused = [
        (log(cluster, pod), "lookup node-a"),
        (version(cluster, pod), "lookup node-a"),
        (readyz(cluster, pod), "address not allowed"),
    ];
    for (answer, expected) in refused {
        let error = answer.unwrap_err();
        println!("{error}");
        assert!(error.contains(expected), "{error}");
    }
    for (command, expected) in
        [(READ_LOG, "the last known state stays in use"), (READ_CHECKS, "vcenter vcenter.example.com:443")]
    {
        assert!(TROUBLESHOOTING.contains(command), "the page does not name this command: {command}");
        let text = eventually(command, LIMIT, async || {
            let text = on_node(command);
            if text.contains(expected) { Ok(text) } else { Err(text) }
        });
        println!("{}", text.await);
    }
}

/// The API server delivers the log and a command immediately.
fn with_addresses(cluster: &Cluster, pod: &Pod) {
    let log = log(cluster, pod).unwrap();
    assert!(log.contains("vcenter.example.com"), "{log}");
    let version = version(cluster, pod).unwrap();
    assert!(version.contains(TAG.trim_start_matches('v')), "{version}");
    let status = status(cluster, pod);
    assert_eq!((&status["kind"], &status["leads"]), (&json!("Status"), &json!(true)), "{status}");
}

/// Runs a command on the host of the Node, and returns its output.
fn on_node(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn log(cluster: &Cluster, pod: &Pod) -> Result<String, String> {
    cluster.try_kubectl(&["-n", "kube-system", "logs", &pod.name])
}

/// Requests `/readyz?verbose` through the API server, as the page for operations does.
fn readyz(cluster: &Cluster, pod: &Pod) -> Result<String, String> {
    let path = format!("/api/v1/namespaces/kube-system/pods/https:{}:10258/proxy/readyz?verbose", pod.name);
    cluster.try_kubectl(&["get", "--raw", &path])
}

fn version(cluster: &Cluster, pod: &Pod) -> Result<String, String> {
    let program = format!("/bin/{CONTAINER}");
    cluster.try_kubectl(&["-n", "kube-system", "exec", &pod.name, "--", &program, "--version"])
}

/// Asks the process in its container, and waits until everything is as it should be.
fn status(cluster: &Cluster, pod: &Pod) -> Value {
    let program = format!("/bin/{CONTAINER}");
    let exec = ["-n", "kube-system", "exec", &pod.name, "--", &program];
    let report = cluster.kubectl(&[&exec[..], &["status", "--wait", "--timeout=60s", "--output=json"]].concat());
    serde_json::from_str(&report).unwrap()
}

/// Checks that no liveness probe fails, over more probes than the failure threshold.
async fn stays_ready(cluster: &Cluster, pod: &Pod) {
    let threshold = pod.object["spec"]["containers"][0]["livenessProbe"]["failureThreshold"].as_u64().unwrap();
    let ready = condition(&pod.get(cluster), "Ready");
    assert_eq!(ready["status"], "True", "{ready}");
    let before = pod.liveness_probes(cluster);
    let line = eventually("the loss of vCenter is noticed", LIMIT, async || {
        let checks = on_node(READ_CHECKS);
        let line = checks.lines().find(|line| line.contains("vcenter vcenter.example.com:443 "));
        let line = line.filter(|line| !line.ends_with(" ok"));
        line.map(str::to_owned).ok_or(checks)
    })
    .await;
    println!("{line}");
    eventually("the kubelet probes on", LIMIT, async || {
        let now = pod.liveness_probes(cluster);
        if now.successful > before.successful + threshold { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    assert_eq!(pod.liveness_probes(cluster).failed, before.failed);
    let now = pod.get(cluster);
    assert_eq!((condition(&now, "Ready"), restarts(&now)), (ready, 0));
    let checks = on_node(READ_CHECKS);
    assert!(checks.contains(&line) && checks.contains("readyz check passed"), "{checks}");
}
