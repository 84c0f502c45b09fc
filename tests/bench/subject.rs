//! The measured programs: the released daemon, and its peer.
//!
//! Both have the command line of the Go program, so that they are started in the same way. The benchmark observes a
//! peer only from outside: by its secure port, its Lease, the API server's audit log and the counts of vCenter. A peer
//! is measured twice: with the flags that it is shipped with, and with flags for large clusters.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use support::api_server::free_port;
use support::process::Usage;
use support::report::{OURS, PEER, TUNED};
use support::{Daemon, eventually};

use crate::cluster::LIMIT;

/// Limit of one probe.
const PROBE: Duration = Duration::from_secs(5);

/// Default flags of a tuned peer: 20 workers for nodes, and 500 requests a second to the API server.
const TUNED_FLAGS: &str = "--concurrent-node-syncs=20 --kube-api-qps=500 --kube-api-burst=1000";

/// A program to measure.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Name as in [`support::report::Measure::subject`].
    pub name: &'static str,
    binary: PathBuf,
    /// Additional flags of this program.
    flags: Vec<String>,
}

/// One process of a [`Subject`]. It ends when this is dropped.
pub struct Running {
    pub daemon: Daemon,
    /// Secure port on loopback.
    pub port: u16,
}

impl Subject {
    /// Returns this program as a subject.
    pub fn ours(binary: PathBuf) -> Self {
        Self { name: OURS, binary, flags: Vec::new() }
    }

    /// Returns the peer as it is shipped, and then the tuned one. `PEER` is the path of another binary. `PEER_FLAGS`
    /// are flags that it needs in both cases, and `PEER_TUNED_FLAGS` replace the default flags of the tuned one. Flags
    /// are separated by spaces. Without `PEER` there is no peer.
    ///
    /// Returns a message if there is no such file, or if it cannot be stripped.
    pub fn peers() -> Result<Vec<Self>, String> {
        let Some(binary) = std::env::var_os("PEER").filter(|path| !path.is_empty()).map(PathBuf::from) else {
            return Ok(Vec::new());
        };
        if !binary.is_file() {
            return Err(format!("PEER is {}, which is no file; the path of a binary is expected", binary.display()));
        }
        let binary = stripped(&binary)?;
        let flags = std::env::var("PEER_FLAGS").unwrap_or_default();
        let tuned = format!("{flags} {}", tuned_flags());
        let of = |name, flags: &str| Self {
            name,
            binary: binary.clone(),
            flags: flags.split_whitespace().map(str::to_owned).collect(),
        };
        Ok(vec![of(PEER, &flags), of(TUNED, &tuned)])
    }

    /// Returns the path of the measured file.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Starts the program with all default values, without a wait.
    pub fn start(&self, config: &Path, kubeconfig: &Path) -> Running {
        self.start_with(config, kubeconfig, &[])
    }

    /// As [`Subject::start`], with flags that both programs support.
    pub fn start_with(&self, config: &Path, kubeconfig: &Path, more: &[&str]) -> Running {
        let port = free_port();
        let mut flags = vec![
            "--cloud-provider=vsphere".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
        ];
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        flags.extend(self.flags.iter().cloned());
        Running { daemon: Daemon::start(&self.binary, flags), port }
    }
}

/// Returns the additional flags of the tuned peer. An empty variable counts as not set.
pub fn tuned_flags() -> String {
    let flags = std::env::var("PEER_TUNED_FLAGS").ok().filter(|flags| !flags.trim().is_empty());
    flags.unwrap_or_else(|| TUNED_FLAGS.to_owned())
}

/// Returns a copy of the file without symbols, as programs are shipped. The size and the resident memory of a peer
/// would otherwise include data that its users do not get.
fn stripped(binary: &Path) -> Result<PathBuf, String> {
    let failed = |why: String| format!("PEER is {}, which cannot be stripped: {why}", binary.display());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peer");
    std::fs::create_dir_all(&folder).map_err(|error| failed(error.to_string()))?;
    let copy = folder.join(binary.file_name().unwrap_or_default());
    let output = Command::new("strip").arg("-o").arg(&copy).arg(binary).output();
    let output = output.map_err(|error| failed(format!("strip (binutils): {error}")))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(copy)
}

impl Running {
    /// Waits until the secure port reports a healthy process.
    pub async fn until_healthy(&mut self) {
        self.until_ok("healthz").await;
    }

    /// Waits until the answer for this path of the secure port is a success.
    pub async fn until_ok(&mut self, path: &str) {
        let builder = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().timeout(PROBE);
        let (client, url) = (builder.build().unwrap(), format!("https://127.0.0.1:{}/{path}", self.port));
        eventually(&format!("{path} is answered"), LIMIT, async || {
            if let Some(status) = self.daemon.ended() {
                panic!("it ended with {status}; its last lines:\n{}", self.daemon.output().tail(25));
            }
            match client.get(&url).send().await {
                Ok(answer) if answer.status().is_success() => Ok(()),
                Ok(answer) => Err(format!("it answers {}", answer.status())),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    /// Waits until the process is healthy and the Lease has a holder. A single process is the leader then.
    pub async fn until_leading(&mut self, client: &Client) {
        self.until_healthy().await;
        let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
        eventually("the Lease is held", LIMIT, async || {
            let lease = leases.get_opt("cloud-controller-manager").await.map_err(|error| error.to_string())?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            if holder.is_empty() { Err("nobody holds it".to_owned()) } else { Ok(()) }
        })
        .await;
    }

    /// Returns the resources that the process has used so far.
    pub fn usage(&self) -> Usage {
        self.daemon.pid().and_then(Usage::of).expect("it has ended while it was measured")
    }

    /// As [`Running::usage`], or zero for a process that has ended.
    pub fn usage_or_nothing(&self) -> Usage {
        self.daemon.pid().and_then(Usage::of).unwrap_or_default()
    }
}
