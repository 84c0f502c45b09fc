//! Credentials from a program that the kubeconfig names (`exec`). As in client-go, the program runs for the first
//! request, before the credentials expire, and after the API server rejects them. Messages never show the program's
//! output.

use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::config::{ExecConfig, ExecInteractiveMode};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::identity;
use super::proof::{CredentialsError, RequestCredentials, bearer};
use crate::base::yaml::{self, Aliases, Node, Value};
use crate::runtime::tasks::detach;

const LIMIT: Duration = Duration::from_secs(30);

/// Credentials are renewed this long before they expire.
const MARGIN: SignedDuration = SignedDuration::from_secs(60);

/// Minimum interval between two runs of a program.
const PAUSE: Duration = Duration::from_secs(10);

/// Maximum size of the program's output, in bytes.
const MAX_OUTPUT: u64 = 1 << 20;

static PROGRAMS: Mutex<Vec<Weak<Exec>>> = Mutex::new(Vec::new());

pub(super) struct Exec {
    config: ExecConfig,
    /// The whole configuration, which identifies the program within this process.
    key: serde_json::Value,
    last: Mutex<Option<Run>>,
    /// Locked while the program runs.
    run_lock: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Run {
    started: Instant,
    outcome: Result<Arc<RequestCredentials>, CredentialsError>,
    expires: Option<Timestamp>,
    /// Whether the API server rejected the credentials of this run.
    is_refused: bool,
}

/// Returns the error in the `exec` part of a kubeconfig, if any.
pub(super) fn problem(config: &ExecConfig) -> Option<&'static str> {
    if config.command.as_ref().is_none_or(|command| command.is_empty()) {
        return Some("exec: the command is missing");
    }
    if config.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Some("exec: interactiveMode: Always cannot work, since this process has no terminal");
    }
    match config.api_version.as_deref() {
        Some("client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1") => None,
        _ => Some("exec: apiVersion: expected client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1"),
    }
}

impl Exec {
    /// Returns the program of `config`. As in client-go, clients with the same configuration share the program.
    pub(super) fn shared(config: &ExecConfig) -> Result<Arc<Self>, CredentialsError> {
        if let Some(reason) = problem(config) {
            return Err(CredentialsError(reason.to_owned()));
        }
        let key = serde_json::to_value((config, &config.cluster))
            .map_err(|_| failed("the configuration cannot be read".to_owned()))?;
        let mut programs = PROGRAMS.lock();
        programs.retain(|program| program.strong_count() > 0);
        if let Some(program) = programs.iter().filter_map(Weak::upgrade).find(|program| program.key == key) {
            return Ok(program);
        }
        let program = Arc::new(Self {
            config: config.clone(),
            key,
            last: Mutex::default(),
            run_lock: tokio::sync::Mutex::default(),
        });
        programs.push(Arc::downgrade(&program));
        Ok(program)
    }

    /// Returns the program's credentials. The program runs in its own task, so a cancelled caller does not stop it. If
    /// the cached credentials are still valid, the caller does not wait for a renewal.
    pub(super) async fn proof(self: &Arc<Self>) -> Result<Arc<RequestCredentials>, CredentialsError> {
        let last = self.last.lock().clone();
        let renewal = match last {
            Some(run) if !run.is_due() => return run.outcome,
            Some(run) if run.is_good() => {
                if self.run_lock.try_lock().is_ok() {
                    drop(detach(Arc::clone(self).renew()));
                }
                return run.outcome;
            }
            _ => detach(Arc::clone(self).renew()),
        };
        renewal.await.unwrap_or_else(|_| Err(failed("the program was not run".to_owned())))
    }

    /// Runs the program, unless another caller has run it meanwhile.
    async fn renew(self: Arc<Self>) -> Result<Arc<RequestCredentials>, CredentialsError> {
        let _turn = self.run_lock.lock().await;
        if let Some(run) = self.last.lock().as_ref().filter(|run| !run.is_due()) {
            return run.outcome.clone();
        }
        let supplied = self.run().await;
        // Reads `last` after the run, because the API server may have rejected the previous credentials meanwhile.
        let before = self.last.lock().clone();
        let run = match (supplied, before) {
            (Ok((proof, expires)), _) => {
                Run { started: Instant::now(), outcome: Ok(Arc::new(proof)), expires, is_refused: false }
            }
            // If the run fails, the previous credentials are used until they expire.
            (Err(_), Some(before)) if before.is_good() => Run { started: Instant::now(), ..before },
            (Err(error), _) => Run { started: Instant::now(), outcome: Err(error), expires: None, is_refused: false },
        };
        let outcome = run.outcome.clone();
        *self.last.lock() = Some(run);
        outcome
    }

    /// Records that the API server rejected these credentials. Ignores the credentials of an earlier run.
    pub(super) fn refused(&self, proof: &Arc<RequestCredentials>) {
        let mut last = self.last.lock();
        let is_of = |run: &&mut Run| run.outcome.as_ref().is_ok_and(|supplied| Arc::ptr_eq(supplied, proof));
        if let Some(run) = last.as_mut().filter(is_of) {
            run.is_refused = true;
        }
    }

    async fn run(&self) -> Result<(RequestCredentials, Option<Timestamp>), CredentialsError> {
        let config = &self.config;
        let mut command = Command::new(config.command.as_deref().unwrap_or_default());
        command.args(config.args.iter().flatten());
        for variable in config.env.iter().flatten() {
            if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
                command.env(name, value);
            }
        }
        command.env("KUBERNETES_EXEC_INFO", info(config)?);
        // The program has no terminal. Its error output is discarded, because it may contain the program's input.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let started = command.process_group(0).spawn();
        let mut child = started.map_err(|error| failed(format!("the program cannot be started: {error}")))?;
        let mut group = ProcessGroup::of(&child);
        let mut stdout = Zeroizing::new(Vec::new());
        let ended = async {
            if let Some(pipe) = child.stdout.take() {
                // Reads one byte more than allowed, to detect a longer output without waiting for its end.
                pipe.take(MAX_OUTPUT + 1).read_to_end(&mut stdout).await?;
            }
            if stdout.len() as u64 > MAX_OUTPUT { Ok(None) } else { child.wait().await.map(Some) }
        };
        let status = match tokio::time::timeout(LIMIT, ended).await {
            Ok(Ok(Some(status))) => status,
            Ok(Ok(None)) => return Err(failed(format!("the program printed more than {MAX_OUTPUT} bytes"))),
            Ok(Err(error)) => return Err(failed(format!("the output of the program cannot be read: {error}"))),
            Err(_) => return Err(failed(format!("the program did not end within {} s", LIMIT.as_secs()))),
        };
        group.0 = None;
        if !status.success() {
            return Err(failed(format!("the program failed: {status}")));
        }
        read(&stdout)
    }
}

impl Run {
    fn is_due(&self) -> bool {
        let is_expiring = self.expires.is_some_and(|expires| Timestamp::now() + MARGIN >= expires);
        self.started.elapsed() >= PAUSE && (is_expiring || !self.is_good())
    }

    /// Whether this run returned credentials that the API server may still accept.
    fn is_good(&self) -> bool {
        let has_expired = self.expires.is_some_and(|expires| Timestamp::now() >= expires);
        self.outcome.is_ok() && !has_expired && !self.is_refused
    }
}

/// The process group of a running program; `None` after the program has ended. Dropping this value kills the program
/// and its children.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails if all processes of the group have exited.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn failed(reason: String) -> CredentialsError {
    CredentialsError(format!("exec: {reason}"))
}

fn info(config: &ExecConfig) -> Result<String, CredentialsError> {
    let mut spec = json!({ "interactive": false });
    if config.provide_cluster_info {
        let cluster =
            serde_json::to_value(&config.cluster).map_err(|_| failed("the cluster cannot be given".to_owned()))?;
        spec.as_object_mut().map(|spec| spec.insert("cluster".to_owned(), cluster));
    }
    Ok(json!({ "apiVersion": config.api_version, "kind": "ExecCredential", "spec": spec }).to_string())
}

/// Reads an ExecCredential, which may be JSON or YAML.
fn read(output: &[u8]) -> Result<(RequestCredentials, Option<Timestamp>), CredentialsError> {
    let not_one = || failed("the output of the program is not an ExecCredential with a status".to_owned());
    let text = std::str::from_utf8(output).map_err(|_| not_one())?;
    let output = yaml::parse_document(text, Aliases::Copied).map_err(|_| not_one())?;
    let (_, status) = output.entry("status").filter(|(_, status)| status.entries().is_some()).ok_or_else(not_one)?;
    let expires = text_of(status, "expirationTimestamp").map(str::parse).transpose();
    let expires =
        expires.map_err(|_| failed("expirationTimestamp is not a time such as 2030-01-01T00:00:00Z".to_owned()))?;
    let header = match text_of(status, "token") {
        Some(token) => Some(bearer(token).map_err(|error| failed(error.0))?),
        None => None,
    };
    let identity = match (text_of(status, "clientCertificateData"), text_of(status, "clientKeyData")) {
        (Some(certificate), Some(key)) => {
            Some(Arc::new(identity::of_program(certificate, key).map_err(|error| failed(error.to_string()))?))
        }
        (None, None) => None,
        _ => return Err(failed("clientCertificateData and clientKeyData: one of them is missing".to_owned())),
    };
    if header.is_none() && identity.is_none() {
        return Err(failed("the program returned neither a token nor a client certificate".to_owned()));
    }
    Ok((RequestCredentials { header, identity }, expires))
}

fn text_of<'a>(status: &'a Node, key: &str) -> Option<&'a str> {
    match &status.entry(key)?.1.value {
        Value::Scalar { text, .. } => Some(text.as_str()).filter(|text| !text.is_empty()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(script: &str) -> Arc<Exec> {
        let config = serde_json::from_value(json!({
            "command": "sh", "args": ["-c", script], "apiVersion": "client.authentication.k8s.io/v1",
        }));
        Exec::shared(&config.unwrap()).unwrap()
    }

    fn from_now(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp::now() + SignedDuration::from_secs(seconds))
    }

    #[tokio::test(start_paused = true)]
    async fn the_program_runs_again_when_it_failed_when_its_credentials_expire_and_when_they_are_refused() {
        let error = || Err(failed("the program failed".to_owned()));
        let runs = [
            ("without an end", Ok(Arc::default()), None, false, false),
            ("good for an hour", Ok(Arc::default()), from_now(3600), false, false),
            ("about to expire", Ok(Arc::default()), from_now(59), false, true),
            ("expired", Ok(Arc::default()), from_now(-1), false, true),
            ("failed", error(), None, false, true),
            ("refused", Ok(Arc::default()), None, true, true),
        ];
        let started = Instant::now();
        let runs = runs.map(|(case, outcome, expires, is_refused, is_due)| {
            (case, Run { started, outcome, expires, is_refused }, is_due)
        });
        assert!(runs.iter().all(|(_, run, _)| !run.is_due()), "not twice in ten seconds");
        tokio::time::advance(PAUSE).await;
        for (case, run, is_due) in &runs {
            assert_eq!(run.is_due(), *is_due, "{case}");
        }
    }

    #[tokio::test]
    async fn a_late_answer_to_earlier_credentials_does_not_take_new_ones_for_refused() {
        let exec = exec("exit 2");
        let (earlier, new) = (Arc::new(RequestCredentials::default()), Arc::new(RequestCredentials::default()));
        *exec.last.lock() =
            Some(Run { started: Instant::now(), outcome: Ok(Arc::clone(&new)), expires: None, is_refused: false });
        for (proof, is_refused) in [(&earlier, false), (&new, true)] {
            exec.refused(proof);
            assert_eq!(exec.last.lock().as_ref().unwrap().is_refused, is_refused);
        }
    }

    const TOKEN: &str = "echo '{\"status\": {\"token\": \"t\"}}'";

    /// The first caller is cancelled before the program ends. The next caller gets the credentials of the same run.
    #[tokio::test]
    async fn a_caller_that_gives_up_does_not_end_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let (gate, runs) = (folder.path().join("gate"), folder.path().join("runs"));
        let script =
            format!("echo run >>{}; until [ -e {} ]; do sleep 0.05; done; {TOKEN}", runs.display(), gate.display());
        let exec = exec(&script);
        let started = async {
            while !runs.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            _ = exec.proof() => panic!("the program has not ended"),
            () = started => {}
        }
        std::fs::write(&gate, "").unwrap();
        assert!(exec.proof().await.is_ok_and(|proof| proof.header.is_some()));
        assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n");
    }

    #[tokio::test]
    async fn credentials_are_used_until_they_expire_while_the_program_fails() {
        let exec = exec("exit 1");
        let good =
            Run { started: Instant::now(), outcome: Ok(Arc::default()), expires: from_now(30), is_refused: false };
        // The interval between two runs has passed.
        let due = Run { started: Instant::now().checked_sub(PAUSE).unwrap(), ..good };
        *exec.last.lock() = Some(due.clone());
        assert!(exec.proof().await.is_ok());
        assert!(Arc::clone(&exec).renew().await.is_ok(), "a failed run takes nothing away");
        *exec.last.lock() = Some(Run { expires: from_now(-1), ..due });
        assert!(exec.proof().await.is_err_and(|error| error.0.contains("exit status: 1")));
    }

    /// The children of the program are killed with it.
    #[tokio::test]
    async fn a_program_that_prints_without_an_end_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let child = folder.path().join("child");
        let script = format!("sleep 600 & echo $! >{}; exec yes", child.display());
        let error = exec(&script).proof().await.err().unwrap();
        assert_eq!(error.0, "exec: the program printed more than 1048576 bytes");
        let child = std::fs::read_to_string(&child).unwrap();
        support::eventually("the child has ended", Duration::from_secs(30), async || {
            // A zombie process has exited too.
            match std::fs::read_to_string(format!("/proc/{}/stat", child.trim())) {
                Ok(about) if !about.contains(") Z ") => Err(about),
                _ => Ok(()),
            }
        })
        .await;
    }

    #[tokio::test]
    async fn clients_with_the_same_program_share_what_it_supplies() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let user = |argument: &str| {
            let script = format!("echo run >>{}; {TOKEN}", runs.display());
            let exec = serde_json::from_value(json!({
                "command": "sh", "args": ["-c", script, argument], "apiVersion": "client.authentication.k8s.io/v1",
            }));
            kube::config::AuthInfo { exec: Some(exec.unwrap()), ..Default::default() }
        };
        let clients =
            ["a", "a", "b"].map(|argument| super::super::credentials::Credentials::of(&user(argument)).unwrap());
        for (client, expected) in clients.iter().zip(["run\n", "run\n", "run\nrun\n"]) {
            assert!(client.proof().await.is_ok());
            assert_eq!(std::fs::read_to_string(&runs).unwrap(), expected);
        }
    }
}
