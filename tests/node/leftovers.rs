//! Leftovers of an interrupted or failed run: there must be no process, mount, namespace, control group or folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::sandbox::{self, control_groups};

use crate::cluster::{Cluster, LIMIT, TEST_LIMIT, eventually};

/// Environment variable that marks the run to interrupt.
const INTERRUPTED: &str = "CCM_TEST_INTERRUPTED";

/// File that a run creates once a pod is ready.
const READY: &str = "all-runs";

/// The file that makes a run fail.
const FAIL: &str = "fail";

/// Folders outside of the sandbox that containerd and the kubelet create if they are not configured.
const DEFAULT_FOLDERS: [&str; 2] = ["/opt/containerd", "/usr/libexec/kubernetes"];

#[test]
fn a_run_that_is_killed_leaves_nothing() {
    end_a_run("leftovers::a_run_that_is_killed_leaves_nothing", |run, _| kill("KILL", &run.to_string()));
}

/// A terminal sends the signal to all processes of the group.
#[test]
fn a_run_that_ends_by_ctrl_c_leaves_nothing() {
    end_a_run("leftovers::a_run_that_ends_by_ctrl_c_leaves_nothing", |run, _| kill("INT", &format!("-{run}")));
}

#[test]
fn a_run_that_fails_leaves_nothing() {
    end_a_run("leftovers::a_run_that_fails_leaves_nothing", |_, folder| fs::write(folder.join(FAIL), "").unwrap());
}

/// Runs this test in another process, which leads a process group, until a pod is ready. `end` gets the process and the
/// folder of the run.
fn end_a_run(test: &str, end: impl FnOnce(u32, &Path)) {
    if std::env::var_os(INTERRUPTED).is_some() {
        return sandbox::run(TEST_LIMIT, async |sandbox| {
            let cluster = Cluster::start(sandbox).await;
            cluster.configure();
            let overlay = cluster.manifests().join("overlays/kubeadm");
            cluster.kubectl(&["apply", "--kustomize", overlay.to_str().unwrap()]);
            cluster.wait_until_ready().await;
            let folder = cluster.sandbox.folder();
            fs::write(folder.join(READY), "").unwrap();
            let is_told = async || if folder.join(FAIL).exists() { Ok(()) } else { Err("the run goes on") };
            eventually("the run is to fail", TEST_LIMIT, is_told).await;
            panic!("a run that fails");
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let before = DEFAULT_FOLDERS.map(|folder| Path::new(folder).exists());
        let files = tempfile::tempdir().unwrap();
        // The log contains a failed test, so it is kept out of this program's output.
        let log = tempfile::NamedTempFile::new().unwrap();
        let append = || fs::File::options().append(true).open(log.path()).unwrap();
        // In a background job of a shell SIGINT is ignored.
        let mut run = tokio::process::Command::new("env")
            .arg("--default-signal=INT")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--test-threads=2", "--nocapture"])
            .envs([(INTERRUPTED, Path::new("1")), ("TMPDIR", files.path())])
            .process_group(0)
            .stdout(append())
            .stderr(append())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let folder = eventually("a pod is ready", 2 * LIMIT, async || {
            let folders = fs::read_dir(files.path()).unwrap().map(|entry| entry.unwrap().path());
            let ready = folders.into_iter().find(|folder| folder.join(READY).exists());
            ready.ok_or_else(|| fs::read_to_string(log.path()).unwrap())
        })
        .await;
        let name = folder.file_name().unwrap().to_str().unwrap();
        for program in ["etcd", "kube-apiserver", "containerd", "kubelet", "/bin/vsphere-cloud-controller-manager"] {
            let running = processes(name);
            assert!(running.iter().any(|one| one.contains(program)), "{program} is not among {running:?}");
        }
        assert!(!control_groups(name).is_empty());

        end(run.id().unwrap(), &folder);
        let status = tokio::time::timeout(LIMIT, run.wait()).await.expect("the run ends").unwrap();
        assert!(!status.success(), "{status}");
        eventually("nothing is left", LIMIT, async || {
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let left = (processes(name), control_groups(name), folder.exists(), mounts.contains(name));
            if left == (Vec::new(), Vec::new(), false, false) { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        assert_eq!(DEFAULT_FOLDERS.map(|folder| Path::new(folder).exists()), before, "{DEFAULT_FOLDERS:?}");
    });
}

/// Sends a signal to a process, or to a process group if the number is negative.
fn kill(signal: &str, process: &str) {
    let status = Command::new("kill").args(["-s", signal, "--", process]).status().unwrap();
    assert!(status.success(), "kill -s {signal} -- {process}: {status}");
}

/// Returns the command lines of the processes in control groups with this name. Namespaces exist as long as their
/// processes.
fn processes(name: &str) -> Vec<String> {
    let ids = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let in_group = |process: &PathBuf| fs::read_to_string(process.join("cgroup")).is_ok_and(|text| text.contains(name));
    let command_line = |process: PathBuf| fs::read_to_string(process.join("cmdline")).ok();
    ids.filter(in_group).filter_map(command_line).map(|text| text.replace('\0', " ")).collect()
}
