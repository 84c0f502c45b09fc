//! Child processes that cannot outlive the test.
//!
//! A child runs under the `supervise` program, which ends it when its own standard input closes. This process has the
//! other end of that pipe. When this process ends in any way, the kernel closes the pipe.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::components::Component;
use crate::eventually::eventually;

/// Number of lines kept of each child. Older ones are dropped.
const KEPT_LINES: usize = 50_000;

/// The output of a child so far, from standard output and standard error.
#[derive(Clone, Default)]
pub struct Output(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    /// The last lines.
    lines: VecDeque<String>,
    /// Number of dropped lines.
    dropped: usize,
}

impl Output {
    /// Returns all lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().lines.iter().cloned().collect()
    }

    /// Passes each new line since the last call with this `position` to `take`. The position is zero at first.
    pub fn read_on(&self, position: &mut usize, take: impl FnMut(&String)) {
        let written = self.0.lock().unwrap();
        written.lines.iter().skip(position.saturating_sub(written.dropped)).for_each(take);
        *position = written.dropped + written.lines.len();
    }

    /// Returns true if there is no other reference: the program has ended, and no line is added any more.
    #[must_use]
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Returns the first line that contains this text.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<String> {
        self.0.lock().unwrap().lines.iter().find(|line| line.contains(text)).cloned()
    }

    /// Counts the lines that contain this text.
    #[must_use]
    pub fn count(&self, text: &str) -> usize {
        self.0.lock().unwrap().lines.iter().filter(|line| line.contains(text)).count()
    }

    /// Returns the last lines, joined, for failure messages.
    #[must_use]
    pub fn tail(&self, count: usize) -> String {
        let written = self.0.lock().unwrap();
        let last = written.lines.len().saturating_sub(count);
        written.lines.iter().skip(last).map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    fn collect(&self, stream: impl Read + Send + 'static) -> JoinHandle<()> {
        let written = Arc::clone(&self.0);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n') {
                let Ok(line) = line else { return };
                let mut written = written.lock().unwrap();
                if written.lines.len() == KEPT_LINES {
                    written.lines.pop_front();
                    written.dropped += 1;
                }
                written.lines.push_back(String::from_utf8_lossy(&line).into_owned());
            }
        })
    }
}

/// A running program and its output. Dropping it ends the program with SIGTERM, and with SIGKILL three seconds later.
pub struct Supervised {
    name: String,
    supervisor: Child,
    stdin: Option<ChildStdin>,
    pid_file: PathBuf,
    /// Threads that read one of its outputs to the end.
    readers: [JoinHandle<()>; 2],
    /// Output of the program.
    pub output: Output,
}

impl Supervised {
    /// Starts the program. The file with its process id is in `folder`.
    pub fn start(name: &str, program: &Path, arguments: &[String], folder: &Path) -> Self {
        Self::start_with(name, program, arguments, folder, &[])
    }

    /// Like [`Supervised::start`], with environment variables.
    pub fn start_with(
        name: &str,
        program: &Path,
        arguments: &[String],
        folder: &Path,
        variables: &[(String, String)],
    ) -> Self {
        let pid_file = folder.join(format!("{}.pid", crate::unique(name)));
        let mut command = Command::new(Component::Supervise.path());
        command.arg("-pid").arg(&pid_file);
        command.arg("--").arg(program).args(arguments).envs(variables.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut supervisor =
            command.spawn().unwrap_or_else(|error| panic!("failed to start {name} ({}): {error}", program.display()));
        let output = Output::default();
        let readers =
            [output.collect(supervisor.stdout.take().unwrap()), output.collect(supervisor.stderr.take().unwrap())];
        let stdin = supervisor.stdin.take();
        Self { name: name.to_owned(), supervisor, stdin, pid_file, readers, output }
    }

    /// Returns the program's process id, or `None` until it has started.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(&self.pid_file).ok()?.trim().parse().ok()
    }

    /// Returns the exit status, if the program has ended. If a signal ended it, the code is 128 plus the signal's
    /// number.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.supervisor.try_wait().unwrap()
    }

    /// Sends a signal, named without `SIG` as for `kill -s`, to the program itself.
    pub async fn signal(&self, signal: &str) {
        let pid = eventually(&format!("{} has a process id", self.name), Duration::from_secs(10), async || {
            std::fs::read_to_string(&self.pid_file).map_err(|error| error.to_string())
        })
        .await;
        let status = Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        assert!(status.success(), "failed to send SIG{signal} to {} (process {pid})", self.name);
    }

    /// Waits until the program has ended and all of its output was read.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        let status = self.wait_for_end(limit).await;
        eventually(&format!("the outputs of {} end", self.name), Duration::from_secs(10), async || {
            match self.readers.iter().all(JoinHandle::is_finished) {
                true => Ok(()),
                false => Err("it has ended, and somebody has them open"),
            }
        })
        .await;
        status
    }

    async fn wait_for_end(&mut self, limit: Duration) -> ExitStatus {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{} is still running after {limit:?}; its last lines:\n{}",
                self.name,
                self.output.tail(40)
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills the program, like a crash or a lost machine.
    pub async fn kill(&mut self) {
        if self.ended().is_none() {
            self.signal("KILL").await;
            self.wait(Duration::from_secs(10)).await;
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // The wait is bounded, because the supervisor kills after three seconds.
        drop(self.supervisor.wait());
    }
}

/// A folder that is removed at the end, even if this process is killed.
pub struct TemporaryFolder {
    path: PathBuf,
    remover: Child,
    stdin: Option<ChildStdin>,
}

impl TemporaryFolder {
    /// Creates an empty folder.
    ///
    /// # Panics
    ///
    /// If the system's folder for temporary files cannot be written.
    #[must_use]
    pub fn create() -> Self {
        // This comes first, because it can panic, and nothing would remove the folder then.
        let program = Component::Supervise.path();
        let path = tempfile::Builder::new().prefix("ccm-test-").tempdir().unwrap().keep();
        let mut remover = Command::new(program)
            .arg("-remove")
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start the remover of {}: {error}", path.display()));
        let stdin = remover.stdin.take();
        Self { path, remover, stdin }
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        drop(self.stdin.take());
        drop(self.remover.wait());
    }
}
