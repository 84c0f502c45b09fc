//! Facts about a run other than its numbers: machine, programs, revision, settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::components::Component;

/// File that pins the simulator's version.
const GO_MODULE: &str = include_str!("../../../testenv/go.mod");

/// The facts. A fact that could not be determined is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Command that repeats the run.
    pub command: String,
    /// Start time: RFC 3339, in UTC.
    pub date: String,
    /// Git revision of the source.
    pub revision: String,
    /// Whether the source has no changes since the revision.
    pub is_clean: bool,
    /// Number of cores of all processors.
    pub cores: usize,
    /// Model name of the first processor.
    pub cpu: String,
    /// Memory in MiB.
    pub memory: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Versions of the programs in the run.
    pub versions: BTreeMap<String, String>,
    /// Settings of the run other than the command's arguments.
    pub settings: BTreeMap<String, String>,
}

impl Facts {
    /// Gathers the current facts of this machine and this source. `programs` are run for their versions.
    #[must_use]
    pub fn gather(command: String, programs: &[(&str, &Path)], settings: BTreeMap<String, String>) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mut versions = BTreeMap::from([("vCenter simulator".to_owned(), simulator(GO_MODULE))]);
        for (name, component) in [("kube-apiserver", Component::KubeApiserver), ("etcd", Component::Etcd)] {
            versions.insert(name.to_owned(), version(&component.path()));
        }
        versions.extend(programs.iter().map(|&(name, path)| (name.to_owned(), version(path))));
        let revision = told("git", &["rev-parse", "HEAD"]);
        Self {
            command,
            date: format!("{:.0}", Timestamp::now()),
            is_clean: !revision.is_empty() && told("git", &["status", "--porcelain"]).is_empty(),
            revision,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu(&read("/proc/cpuinfo")),
            memory: memory(&read("/proc/meminfo")),
            kernel: told("uname", &["-sr"]),
            versions,
            settings,
        }
    }
}

/// Returns the first line of this program's output for `--version`.
fn version(path: &Path) -> String {
    let text = told(path.as_os_str(), &["--version"]);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Returns the output of a program, if it exits with success.
fn told(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn simulator(module: &str) -> String {
    let name = "github.com/vmware/govmomi ";
    let version = module.lines().find_map(|line| line.split_once(name)?.1.split_whitespace().next());
    version.map(|version| format!("govmomi {version}")).unwrap_or_default()
}

fn cpu(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned()).unwrap_or_default()
}

fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or_default() / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A Chip @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: B\n";
        assert_eq!((cpu(cpuinfo), cpu("")), ("A Chip @ 2.00GHz".to_owned(), String::new()));
        assert_eq!((memory("MemTotal:        8388608 kB\nMemFree: 1 kB\n"), memory("")), (8_192, 0));
    }

    #[test]
    fn the_simulators_version_is_the_one_that_is_pinned() {
        assert_eq!(simulator("// govmomi\nrequire github.com/vmware/govmomi v1.2.3 // indirect\n"), "govmomi v1.2.3");
        assert_ne!(simulator(GO_MODULE), "");
    }

    #[test]
    fn a_program_that_has_no_version_has_none() {
        assert_eq!(version(Path::new("/nowhere/at/all")), "");
    }
}
