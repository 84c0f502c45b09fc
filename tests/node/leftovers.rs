//! What is left of a run that is interrupted: no process, mount, namespace, control group or folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::{eventually, sandbox};

use crate::cluster::{Cluster, LIMIT, TEST_LIMIT};

/// Is set for the run that is interrupted.
const INTERRUPTED: &str = "CCM_TEST_INTERRUPTED";

/// Tells that all runs.
const READY: &str = "all-runs";

#[test]
fn a_run_that_is_killed_leaves_nothing() {
    interrupt_by("KILL", "leftovers::a_run_that_is_killed_leaves_nothing");
}

#[test]
fn a_run_that_ends_by_ctrl_c_leaves_nothing() {
    interrupt_by("INT", "leftovers::a_run_that_ends_by_ctrl_c_leaves_nothing");
}

/// Runs this test in another program, up to a pod that is ready, and sends that program the signal.
fn interrupt_by(signal: &str, test: &str) {
    if std::env::var_os(INTERRUPTED).is_some() {
        return sandbox::run(TEST_LIMIT, async |sandbox| {
            let cluster = Cluster::start(sandbox).await;
            cluster.configure();
            let overlay = cluster.manifests().join("overlays/kubeadm");
            cluster.kubectl(&["apply", "--kustomize", overlay.to_str().unwrap()]);
            cluster.wait_until_ready().await;
            fs::write(cluster.sandbox.folder().join(READY), "").unwrap();
            std::future::pending::<()>().await;
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let files = tempfile::tempdir().unwrap();
        let mut run = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--test-threads=2", "--nocapture"])
            .envs([(INTERRUPTED, Path::new("1")), ("TMPDIR", files.path())])
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let folder = eventually("a pod is ready", LIMIT, async || {
            let folders = fs::read_dir(files.path()).unwrap().map(|entry| entry.unwrap().path());
            folders.into_iter().find(|folder| folder.join(READY).exists()).ok_or("no run is ready")
        })
        .await;
        let name = folder.file_name().unwrap().to_str().unwrap();
        for program in ["etcd", "kube-apiserver", "containerd", "kubelet", "/bin/vsphere-cloud-controller-manager"] {
            let running = processes(name);
            assert!(running.iter().any(|one| one.contains(program)), "{program} is not among {running:?}");
        }
        assert!(!groups(name).is_empty());

        let status = Command::new("kill").args(["-s", signal, &run.id().unwrap().to_string()]).status().unwrap();
        assert!(status.success());
        run.wait().await.unwrap();
        eventually("nothing is left", Duration::from_secs(60), async || {
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let left = (processes(name), groups(name), folder.exists(), mounts.contains(name));
            if left == (Vec::new(), Vec::new(), false, false) { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    });
}

/// The command lines of the processes in control groups of this name. Namespaces live as long as their processes.
fn processes(name: &str) -> Vec<String> {
    let ids = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let in_group = |process: &PathBuf| fs::read_to_string(process.join("cgroup")).is_ok_and(|text| text.contains(name));
    let command_line = |process: PathBuf| fs::read_to_string(process.join("cmdline")).ok();
    ids.filter(in_group).filter_map(command_line).map(|text| text.replace('\0', " ")).collect()
}

fn groups(name: &str) -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).chain([root.clone()]);
    hierarchies.map(|hierarchy| hierarchy.join(name)).filter(|group| group.exists()).collect()
}
