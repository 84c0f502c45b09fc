//! Paths of the binaries of the test environment.
//!
//! `tests/testenv/build.sh` and the scripts of that name in its subfolders build them into folders whose names contain
//! a hash of the inputs, and print these folders. `KUBERNETES_MINOR` selects another minor release of Kubernetes than
//! the default.

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
    /// The scheduler.
    KubeScheduler,
    /// The kubelet.
    Kubelet,
    /// The process that keeps the sandbox of a pod.
    Pause,
    /// The database of the API server.
    Etcd,
    /// The Kubernetes command line.
    Kubectl,
    /// The tool that sets up a cluster and checks its configuration files.
    Kubeadm,
    /// The vCenter simulator.
    Vcsim,
    /// A program that ends its child process when its standard input closes.
    Supervise,
    /// A program that renders the Helm chart faster than `helm`.
    Chart,
    /// The Helm command line.
    Helm,
    /// The vSphere command line.
    Govc,
    /// Prometheus's own parsers of metrics, alerts and expressions.
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

    /// Returns the path of the binary.
    ///
    /// # Panics
    ///
    /// If it has not been built. The message names the command that builds it.
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

/// Returns the release of the API server, such as "1.34.4".
///
/// # Panics
///
/// If the API server has not been built, or does not run.
#[must_use]
pub fn kubernetes_release() -> String {
    let output = Command::new(Component::KubeApiserver.path()).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("kube-apiserver --version: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let release = text.trim().strip_prefix("Kubernetes v");
    release.unwrap_or_else(|| panic!("kube-apiserver --version printed {text:?}")).to_owned()
}

/// Returns the static binary that `make release` builds. Tests of the main package pass
/// `env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager")`, which is in the same target folder.
///
/// # Panics
///
/// If it has not been built.
#[must_use]
pub fn release_binary(built: &str) -> PathBuf {
    let folder = Path::new(built).ancestors().nth(2).unwrap();
    let binary = folder
        .join(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .join("release/vsphere-cloud-controller-manager");
    assert!(binary.is_file(), "the static binary is missing ({}): build it with `make release`", binary.display());
    binary
}

/// The folders that the scripts print with `--where`.
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
        // The first script prints the folders of the release in `KUBERNETES_MINOR`, or nothing. They come first, so
        // that they replace those of the same names.
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

/// Returns the output of this script below `tests/testenv` with `--where`.
fn told_by(script: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testenv").join(script);
    let output = Command::new("sh").arg(&script).arg("--where").output();
    let output = output.unwrap_or_else(|error| panic!("failed to run {}: {error}", script.display()));
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8_lossy(&output.stdout).into_owned()
}
