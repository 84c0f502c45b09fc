//! The program of a kubeconfig that supplies credentials (`exec`), as client-go runs it: when the first request needs them,
//! again before they expire, and again when the API server does not accept them. Its output is in no message.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde_json::json;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::identity;
use super::proof::{CredentialsError, Proof, bearer};
use crate::base::yaml::{self, Aliases, Node, Value};

/// How long the program may run.
const LIMIT: Duration = Duration::from_secs(30);

/// So long before they expire credentials are replaced.
const MARGIN: SignedDuration = SignedDuration::from_secs(60);

/// The least time between two runs, whatever the program or the API server says.
const PAUSE: Duration = Duration::from_secs(10);

/// What the program may print at most, in bytes.
const MAX_OUTPUT: usize = 1 << 20;

/// The program, and what it supplied last.
pub(super) struct Exec {
    config: ExecConfig,
    last: Mutex<Option<Run>>,
    is_refused: AtomicBool,
}

/// What a run came to.
struct Run {
    at: Instant,
    outcome: Result<Proof, CredentialsError>,
    expires: Option<Timestamp>,
}

/// What is wrong with this part of a kubeconfig.
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
    pub(super) fn new(config: &ExecConfig) -> Result<Self, CredentialsError> {
        match problem(config) {
            Some(why) => Err(CredentialsError(why.to_owned())),
            None => Ok(Self { config: config.clone(), last: Mutex::default(), is_refused: AtomicBool::new(false) }),
        }
    }

    /// What the program supplies; it runs for one caller at a time.
    pub(super) async fn proof(&self) -> Result<Proof, CredentialsError> {
        let mut last = self.last.lock().await;
        if let Some(run) = &*last
            && !(run.at.elapsed() >= PAUSE && self.is_over(run))
        {
            return run.outcome.clone();
        }
        self.is_refused.store(false, Ordering::Relaxed);
        let (outcome, expires) = match self.run().await {
            Ok((proof, expires)) => (Ok(proof), expires),
            Err(error) => (Err(error), None),
        };
        *last = Some(Run { at: Instant::now(), outcome: outcome.clone(), expires });
        outcome
    }

    fn is_over(&self, run: &Run) -> bool {
        let is_expiring = run.expires.is_some_and(|expires| Timestamp::now() + MARGIN >= expires);
        run.outcome.is_err() || is_expiring || self.is_refused.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    async fn run(&self) -> Result<(Proof, Option<Timestamp>), CredentialsError> {
        let config = &self.config;
        let mut command = Command::new(config.command.as_deref().unwrap_or_default());
        command.args(config.args.iter().flatten());
        for variable in config.env.iter().flatten() {
            if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
                command.env(name, value);
            }
        }
        command.env("KUBERNETES_EXEC_INFO", info(config)?);
        // Never interactive: nobody is at the terminal of this process. Its messages may have what it was given.
        command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = match tokio::time::timeout(LIMIT, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(failed(format!("the program cannot be started: {error}"))),
            Err(_) => return Err(failed(format!("the program did not end within {} s", LIMIT.as_secs()))),
        };
        let stdout = Zeroizing::new(output.stdout);
        if !output.status.success() {
            return Err(failed(format!("the program failed: {}", output.status)));
        }
        read(&stdout)
    }
}

fn failed(why: String) -> CredentialsError {
    CredentialsError(format!("exec: {why}"))
}

/// What the program learns of its caller.
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
fn read(output: &[u8]) -> Result<(Proof, Option<Timestamp>), CredentialsError> {
    let not_one = || failed("the output of the program is not an ExecCredential with a status".to_owned());
    if output.len() > MAX_OUTPUT {
        return Err(not_one());
    }
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
    Ok((Proof { header, identity }, expires))
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

    #[test]
    fn the_program_runs_again_when_it_failed_when_its_credentials_expire_and_when_they_are_refused() {
        let config: ExecConfig = serde_json::from_value(json!({
            "command": "/bin/true", "apiVersion": "client.authentication.k8s.io/v1",
        }))
        .unwrap();
        let exec = Exec::new(&config).unwrap();
        let from_now = |seconds| Some(Timestamp::now() + SignedDuration::from_secs(seconds));
        for (case, outcome, expires, is_over) in [
            ("without an end", Ok(Proof::default()), None, false),
            ("good for an hour", Ok(Proof::default()), from_now(3600), false),
            ("about to expire", Ok(Proof::default()), from_now(59), true),
            ("expired", Ok(Proof::default()), from_now(-1), true),
            ("failed", Err(failed("the program failed".to_owned())), None, true),
        ] {
            let run = Run { at: Instant::now(), outcome, expires };
            assert_eq!(exec.is_over(&run), is_over, "{case}");
        }
        exec.refused();
        assert!(exec.is_over(&Run { at: Instant::now(), outcome: Ok(Proof::default()), expires: None }), "refused");
    }
}
