//! Whose work is measured: the daemon as it is shipped, and the one it is compared with.
//!
//! Both have the command line of the Go program, so that they are started alike. Nothing else is known of a peer: it is
//! looked at from outside, by its secure port, its Lease, the API server's audit log and what vCenter counts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use support::api_server::free_port;
use support::process::Usage;
use support::{Daemon, eventually};

use crate::cluster::LIMIT;

/// How long one probe may take.
const PROBE: Duration = Duration::from_secs(5);

/// A program to be measured.
#[derive(Clone, Debug)]
pub struct Subject {
    /// As in [`support::report::Measure::subject`].
    pub name: &'static str,
    binary: PathBuf,
    /// Flags of its own.
    flags: Vec<String>,
}

/// One process of a [`Subject`]. Dropping it ends it.
pub struct Running {
    pub daemon: Daemon,
    /// Of its secure port on loopback.
    pub port: u16,
}

impl Subject {
    /// This program.
    pub fn ours(binary: PathBuf) -> Self {
        Self { name: "ours", binary, flags: Vec::new() }
    }

    /// `PEER` is the path of another binary, `PEER_FLAGS` are flags for it, separated by spaces.
    ///
    /// # Errors
    ///
    /// A sentence, when there is no such file.
    pub fn peer() -> Result<Option<Self>, String> {
        let Some(binary) = std::env::var_os("PEER").filter(|path| !path.is_empty()).map(PathBuf::from) else {
            return Ok(None);
        };
        if !binary.is_file() {
            return Err(format!("PEER is {}, which is no file; the path of a binary is expected", binary.display()));
        }
        let flags = std::env::var("PEER_FLAGS").unwrap_or_default();
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        Ok(Some(Self { name: "peer", binary, flags }))
    }

    /// The file that is measured.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Starts it with all defaults, and gives it back at once.
    pub fn start(&self, config: &Path, kubeconfig: &Path) -> Running {
        self.start_with(config, kubeconfig, &[])
    }

    /// As [`Subject::start`], with flags that both know.
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

impl Running {
    /// Waits until its secure port says that it is well.
    pub async fn until_healthy(&mut self) {
        self.until_ok("healthz").await;
    }

    /// Waits until this path of its secure port is answered with success.
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

    /// Waits until it is well, and somebody holds the Lease: whoever runs alone, leads then.
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

    /// What it has cost so far.
    pub fn usage(&self) -> Usage {
        self.daemon.pid().and_then(Usage::of).expect("it has ended while it was measured")
    }

    /// As [`Running::usage`]; of one that has ended, nothing.
    pub fn usage_or_nothing(&self) -> Usage {
        self.daemon.pid().and_then(Usage::of).unwrap_or_default()
    }
}
