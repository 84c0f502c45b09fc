//! Runs the built binary, with access to its log and signals.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use crate::eventually::eventually;
use crate::supervisor::{Output, Supervised, TemporaryFolder};

/// A running cloud-controller-manager. Dropping it ends it.
pub struct Daemon {
    process: Supervised,
    _folder: TemporaryFolder,
}

impl Daemon {
    /// Starts the binary. Tests of the main package pass `env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager")`.
    #[must_use]
    pub fn start<F: AsRef<str>>(binary: impl AsRef<Path>, flags: impl IntoIterator<Item = F>) -> Self {
        Self::start_with(binary, flags, &[])
    }

    /// Like [`Daemon::start`], with environment variables.
    pub fn start_with<F: AsRef<str>>(
        binary: impl AsRef<Path>,
        flags: impl IntoIterator<Item = F>,
        variables: &[(&str, &str)],
    ) -> Self {
        let folder = TemporaryFolder::create();
        let flags: Vec<String> = flags.into_iter().map(|flag| flag.as_ref().to_owned()).collect();
        let variables: Vec<(String, String)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let process = Supervised::start_with("daemon", binary.as_ref(), &flags, folder.path(), &variables);
        Self { process, _folder: folder }
    }

    /// Returns its process id, once it has started.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Returns its log.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.process.output
    }

    /// Waits for a line that contains this text. Returns the line.
    pub async fn wait_for_line(&mut self, text: &str, limit: Duration) -> String {
        let output = self.process.output.clone();
        eventually(&format!("the daemon logs {text:?}"), limit, async || {
            output.find(text).ok_or_else(|| format!("its last lines:\n{}", output.tail(40)))
        })
        .await
    }

    /// Sends a signal, named without `SIG`: `TERM`, `KILL`, `STOP`, `CONT`.
    pub async fn signal(&self, signal: &str) {
        self.process.signal(signal).await;
    }

    /// Returns the exit status, if it has exited: 128 plus the signal's number if a signal ended it.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Waits until it exits.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        self.process.wait(limit).await
    }

    /// Sends SIGTERM, and returns the exit status.
    pub async fn stop(&mut self, limit: Duration) -> ExitStatus {
        self.signal("TERM").await;
        self.wait(limit).await
    }

    /// Sends SIGKILL, and waits until it has exited.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }
}
