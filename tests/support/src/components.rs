//! Where the binaries of the test environment are.
//!
//! Those who know are `tests/testenv/build.sh` and the scripts of that name in folders beside it: they build into folders
//! named by a hash of what they are built from, and say which folders those are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A program that the test environment starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The Kubernetes API server.
    KubeApiserver,
    /// The database of the API server.
    Etcd,
    /// The Kubernetes command line.
    Kubectl,
    /// The vCenter simulator.
    Vcsim,
    /// Ends what it runs when its standard input is closed.
    Supervise,
    /// Renders the Helm chart.
    Chart,
    /// Prometheus's own readers of metrics, alerts and expressions.
    Metrics,
}

impl Component {
    fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::Etcd => "etcd",
            Self::Kubectl => "kubectl",
            Self::Vcsim => "vcsim",
            Self::Supervise => "supervise",
            Self::Chart => "chart",
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
            Self::Vcsim | Self::Supervise => &folders.tools,
            Self::Chart => &folders.charts,
            Self::Metrics => &folders.metrics,
        };
        let path = folder.join(self.name());
        assert!(path.is_file(), "{} is missing ({}): build it with `make testenv`", self.name(), path.display());
        path
    }
}

/// Folders as the scripts print them with `--where`.
struct Folders {
    kubernetes: PathBuf,
    tools: PathBuf,
    charts: PathBuf,
    metrics: PathBuf,
}

fn folders() -> &'static Folders {
    static FOLDERS: OnceLock<Folders> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let scripts = ["../testenv/build.sh", "../testenv/helm/build.sh", "../testenv/metrics/build.sh"];
        let told: String = scripts.map(told_by).concat();
        let folder = |name: &str| {
            told.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
                .map(PathBuf::from)
                .unwrap_or_else(|| panic!("no {name} folder is told: {told}"))
        };
        let [kubernetes, tools, charts, metrics] = ["kubernetes", "tools", "charts", "metrics"].map(folder);
        Folders { kubernetes, tools, charts, metrics }
    })
}

/// What the script at this path answers to `--where`.
fn told_by(script: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new("sh").arg(&script).arg("--where").output();
    let output = output.unwrap_or_else(|error| panic!("failed to run {}: {error}", script.display()));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
