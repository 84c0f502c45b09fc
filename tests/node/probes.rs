//! The kubelet's probes, as the manifests configure them.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::api_server::NODE_ADDRESS;
use support::real_node::KubeletSettings;
use support::sandbox;

use crate::cluster::{Cluster, NODE, TEST_LIMIT, eventually};
use crate::nodes::condition;
use crate::pod::{Pod, install_kubeadm};

/// Tolerance for a busy machine, in addition to the times of the manifest.
const SLACK: Duration = Duration::from_secs(60);

#[test]
fn a_process_that_hangs_is_restarted_within_the_times_of_the_manifest() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::without_kubelet(sandbox).await;
        cluster.vcenter.stop_listening().await;
        let node_ip = KubeletSettings { flags: vec![format!("--node-ip={NODE_ADDRESS}")], ..Default::default() };
        cluster.start_kubelet(&node_ip).await;
        let pod = install_kubeadm(&cluster).await;
        the_log_is_read_before_the_node_is_initialized(&cluster, &pod);
        cluster.vcenter.resume_listening().await;
        cluster.wait_until_initialized().await;
        pod.wait_for_line("became leader").await;

        let times = Times::of(&pod.object);
        signal("STOP", pod.process());
        let begin = Instant::now();
        eventually("the pod is not ready", times.unready + SLACK, async || {
            let ready = condition(&pod.get(&cluster), "Ready");
            if ready["status"] == "False" { Ok(()) } else { Err(ready.to_string()) }
        })
        .await;
        println!("not ready after {:?}; expected at most {:?}", begin.elapsed(), times.unready);
        eventually("the container is restarted", times.latest + SLACK, async || match pod.restarts(&cluster) {
            0 => Err("it is not"),
            _ => Ok(()),
        })
        .await;
        let elapsed = begin.elapsed();
        println!("restarted after {elapsed:?}; expected from {:?} to {:?}", times.earliest, times.latest);
        assert!(elapsed >= times.earliest && elapsed <= times.latest + SLACK, "{elapsed:?}");

        shows_why(&cluster, &pod);
        let next = Pod::current(&cluster).await;
        next.wait_for_line("became leader").await;
        assert_eq!((&next.name, next.restarts(&cluster)), (&pod.name, 1));
    });
}

/// With `--node-ip` the kubelet writes an address before the cloud provider does.
fn the_log_is_read_before_the_node_is_initialized(cluster: &Cluster, pod: &Pod) {
    let node = cluster.get(&["node", NODE]);
    assert!(node["spec"]["taints"].to_string().contains("uninitialized"), "{}", node["spec"]);
    let log = cluster.kubectl(&["-n", "kube-system", "logs", &pod.name]);
    assert!(log.contains("vcenter.example.com"), "{log}");
}

/// Checks that an operator can find the reason for the restart afterwards.
fn shows_why(cluster: &Cluster, pod: &Pod) {
    let status = &pod.get(cluster)["status"];
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 137, "{status}");
    let description = cluster.kubectl(&["-n", "kube-system", "describe", "pod", &pod.name]);
    println!("{description}");
    assert!(description.contains("failed liveness probe, will be restarted"), "{description}");
    let previous = cluster.kubectl(&["-n", "kube-system", "logs", "--previous", &pod.name]);
    assert!(previous.contains("became leader"), "{previous}");
}

fn signal(name: &str, process: u32) {
    let status = Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap();
    assert!(status.success(), "failed to send SIG{name} to process {process}");
}

/// Times until the reactions to a process that stops responding, from the probes of a pod.
struct Times {
    /// Latest time at which the pod becomes not ready.
    unready: Duration,
    /// Latest time of the container's restart. The process does not react to SIGTERM, so it must also be killed.
    latest: Duration,
    /// Earliest time of the container's restart.
    earliest: Duration,
}

impl Times {
    fn of(pod: &Value) -> Self {
        let container = &pod["spec"]["containers"][0];
        let number = |probe: &str, name: &str| u32::try_from(container[probe][name].as_u64().unwrap()).unwrap();
        let second = Duration::from_secs(1);
        let failed = |probe| {
            second
                * (number(probe, "periodSeconds") * number(probe, "failureThreshold") + number(probe, "timeoutSeconds"))
        };
        let grace = Duration::from_secs(pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap());
        let period = second * number("livenessProbe", "periodSeconds");
        // The first failed probe is in flight when the process stops, or begins a whole period later.
        let latest = failed("livenessProbe") + grace;
        Self { unready: failed("readinessProbe"), latest, earliest: latest - period - second }
    }
}
