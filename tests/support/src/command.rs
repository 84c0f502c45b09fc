//! Runs a command until it exits.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Timeout of a command on a busy machine, including one that waits for a rollout.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command with this input until it exits.
///
/// # Panics
///
/// If it cannot be started, or takes too long.
pub async fn output(mut command: Command, input: &str) -> Output {
    let shown = format!("{:?}", command.as_std());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let written = async move {
        // A program that does not read its input reports that with its exit code.
        let _ = stdin.write_all(input.as_bytes()).await;
    };
    let (output, ()) = tokio::time::timeout(LIMIT, async { tokio::join!(child.wait_with_output(), written) })
        .await
        .unwrap_or_else(|_| panic!("{shown} takes too long"));
    output.unwrap()
}
