//! Where the binaries of the test environment are.
//!
//! Those who know are `tests/testenv/build.sh` and the scripts of that name in folders beside it: they build into folders
//! named by a hash of what they are built from, and say which folders those are. `KUBERNETES_MINOR` asks for another minor
//! release of Kubernetes than the one of most runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A program that the test environment starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The Kubernetes API server.
    KubeApiserver,
    /// The controllers of Kubernetes.
    KubeControllerManager,
    /// What finds a Node for each pod.
    KubeScheduler,
    /// What runs the pods of a node.
    Kubelet,
    /// The process of the pods' sandboxes.
    Pause,
    /// The database of the API server.
    Etcd,
    /// The Kubernetes command line.
    Kubectl,
    /// What sets up a cluster, and checks its configuration files.
    Kubeadm,
    /// The vCenter simulator.
    Vcsim,
    /// Ends what it runs when its standard input is closed.
    Supervise,
    /// Renders the Helm chart, faster than `helm`.
    Chart,
    /// The Helm command line.
    Helm,
    /// The vSphere command line.
    Govc,
    /// Prometheus's own readers of metrics, alerts and expressions.
    Metrics,
}

impl Component {
    fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::Pause => "pause",
            Self::Etcd => "etcd",
            Self::Kubectl => "kubectl",
            Self::Kubeadm => "kubeadm",
            Self::Vcsim => "vcsim",
            Self::Supervise => "supervise",
            Self::Chart => "chart",
            Self::Helm => "helm",
            Self::Govc => "govc",
            Self::Metrics => "metrics",
        }
    }

    /// The binary.
    ///
    /// # Panics
    ///
    /// When it has not been built; the message is one sentence that names the command which builds it.
    #[must_use]
    pub fn path(self) -> PathBuf {
        let folders = folders();
        let folder = match self {
            Self::KubeApiserver | Self::Etcd | Self::Kubectl => &folders.kubernetes,
            Self::KubeControllerManager => &folders.kube_controller_manager,
            Self::KubeScheduler | Self::Kubelet | Self::Pause => &folders.node,
            Self::Kubeadm => &folders.kubeadm,
            Self::Vcsim | Self::Supervise => &folders.tools,
            Self::Chart | Self::Helm => &folders.charts,
            Self::Govc => &folders.govc,
            Self::Metrics => &folders.metrics,
        };
        let path = folder.join(self.name());
        let target = if folder == &folders.node { "node-components" } else { "testenv" };
        assert!(path.is_file(), "{} is missing ({}): build it with `make {target}`", self.name(), path.display());
        path
    }
}

/// The release of the API server, such as "1.34.4".
///
/// # Panics
///
/// When the API server has not been built, or does not run.
#[must_use]
pub fn kubernetes_release() -> String {
    let output = Command::new(Component::KubeApiserver.path()).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("kube-apiserver --version: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let release = text.trim().strip_prefix("Kubernetes v");
    release.unwrap_or_else(|| panic!("kube-apiserver --version printed {text:?}")).to_owned()
}

/// The static binary that `make release` builds. Tests of the main package pass
/// `env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager")`, in whose target folder it is.
///
/// # Panics
///
/// When it has not been built.
#[must_use]
pub fn release_binary(built: &str) -> PathBuf {
    let folder = Path::new(built).ancestors().nth(2).unwrap();
    let binary = folder
        .join(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .join("release/vsphere-cloud-controller-manager");
    assert!(binary.is_file(), "the static binary is missing ({}): build it with `make release`", binary.display());
    binary
}

/// Folders as the scripts print them with `--where`.
struct Folders {
    kubernetes: PathBuf,
    kube_controller_manager: PathBuf,
    node: PathBuf,
    kubeadm: PathBuf,
    tools: PathBuf,
    charts: PathBuf,
    govc: PathBuf,
    metrics: PathBuf,
}

fn folders() -> &'static Folders {
    static FOLDERS: OnceLock<Folders> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        // The first one prints the folders of the release that KUBERNETES_MINOR names, or nothing; they go before those of
        // the same names.
        let scripts = ["minors/", "", "kube-controller-manager/", "node/", "helm/", "govc/", "metrics/"];
        let told = scripts.map(|folder| told_by(&format!("{folder}build.sh"))).concat();
        let folder = |name: &str| {
            told.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
                .map(PathBuf::from)
                .unwrap_or_else(|| panic!("no {name} folder is told: {told}"))
        };
        Folders {
            kubernetes: folder("kubernetes"),
            kube_controller_manager: folder("kube-controller-manager"),
            node: folder("node"),
            kubeadm: folder("kubeadm"),
            tools: folder("tools"),
            charts: folder("charts"),
            govc: folder("govc"),
            metrics: folder("metrics"),
        }
    })
}

/// What this script below `tests/testenv` prints with `--where`.
fn told_by(script: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testenv").join(script);
    let output = Command::new("sh").arg(&script).arg("--where").output();
    let output = output.unwrap_or_else(|error| panic!("failed to run {}: {error}", script.display()));
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8_lossy(&output.stdout).into_owned()
}
