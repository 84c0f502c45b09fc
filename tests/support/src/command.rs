//! Runs a command to its end.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long a command may take on a busy machine, also one that waits for a rollout.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command with this input to its end.
///
/// # Panics
///
/// When it cannot be started, or takes too long.
pub async fn output(mut command: Command, input: &str) -> Output {
    let shown = format!("{:?}", command.as_std());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let written = async move {
        // A program that does not read says so by its exit code.
        let _ = stdin.write_all(input.as_bytes()).await;
    };
    let (output, ()) = tokio::time::timeout(LIMIT, async { tokio::join!(child.wait_with_output(), written) })
        .await
        .unwrap_or_else(|_| panic!("{shown} takes too long"));
    output.unwrap()
}
