//! Asks the running process over its local socket.

use super::arguments::CommonOptions;
use super::{CommandOutput, USAGE_ERROR};
use crate::app::inquiries::protocol::{Answer, Question, Request, Response, version};
use crate::app::options::PROGRAM;
use crate::app::reports::Verdict;
use crate::base::error_chain::chain;
use crate::base::go_duration::spelled;
use crate::runtime::local_socket::{self, AskError};
use std::io::Write as _;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Time after which a command that still waits says so on standard error.
const PROGRESS: Duration = Duration::from_secs(1);

/// Pause before a question is repeated with `--wait`.
const REPEAT: Duration = Duration::from_secs(1);

/// Asks until `verdict` of the answer is [`Verdict::Ok`] or `--timeout` has passed with `--wait`, and once without.
/// Returns the last answer.
///
/// # Errors
/// The output with the reason why there is no answer.
pub fn ask<T>(
    question: &Question,
    options: &CommonOptions,
    read: impl Fn(Answer) -> Option<(Verdict, T)>,
) -> Result<T, CommandOutput> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| failure(&format!("cannot wait for an answer: {error}"), Verdict::Incomplete))?;
    runtime.block_on(ask_within(question, options, read))
}

async fn ask_within<T>(
    question: &Question,
    options: &CommonOptions,
    read: impl Fn(Answer) -> Option<(Verdict, T)>,
) -> Result<T, CommandOutput> {
    let end = Instant::now() + options.timeout;
    let request = Request { version: version(), question: question.clone(), masks_users: options.masks_users };
    let request = serde_json::to_vec(&request).unwrap_or_default();
    let mut progress = Progress { at: Instant::now() + PROGRESS, is_reported: false, limit: options.timeout };
    let mut last = None;
    loop {
        let limit = end.saturating_duration_since(Instant::now());
        let answer = progress.during(ask_once(options, &request, limit)).await;
        let answer = answer.and_then(|answer| match answer {
            Answer::NotFound { kind, name, nearest } => Err(not_found(&kind, &name, &nearest)),
            answer => read(answer).ok_or_else(|| failure(WRONG_ANSWER, Verdict::Incomplete)),
        });
        let is_last_attempt = !options.waits || end <= Instant::now() + REPEAT;
        match answer {
            Ok((verdict, answer)) if is_last_attempt || verdict == Verdict::Ok => return Ok(answer),
            Ok((_, answer)) => last = Some(answer),
            // The same question will not do better.
            Err(error) if error.exit_code == USAGE_ERROR && !error.messages.contains(WHERE) => return Err(error),
            // With `--wait`, the process may have ended, and its successor may not have begun yet.
            Err(error) if is_last_attempt => return last.ok_or(error),
            Err(_) => {}
        }
        progress.during(sleep(REPEAT)).await;
    }
}

const WRONG_ANSWER: &str = "the process answered another question";

/// Reports once on standard error that the command waits, if it has not ended at the time `at`.
struct Progress {
    at: Instant,
    is_reported: bool,
    limit: Duration,
}

impl Progress {
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        if self.is_reported {
            return work.await;
        }
        match timeout_at(self.at, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                self.is_reported = true;
                let seconds = self.limit.as_secs();
                // Nobody reads the message if standard error is closed.
                let _ = writeln!(std::io::stderr(), "waiting for the process, at most {seconds} s");
                work.await
            }
        }
    }
}

async fn ask_once(options: &CommonOptions, request: &[u8], limit: Duration) -> Result<Answer, CommandOutput> {
    let answer = local_socket::ask(PROGRAM, options.process, request, limit).await;
    let bytes = answer.map_err(|error| no_answer(&error, options))?;
    let response: Response = serde_json::from_slice(&bytes)
        .map_err(|error| failure(&format!("the answer of the process cannot be read: {error}"), Verdict::Incomplete))?;
    response.answer.map_err(|reason| CommandOutput::failure(&reason, USAGE_ERROR))
}

/// Returns the error for a name that the process does not know.
fn not_found(kind: &str, name: &str, nearest: &[String]) -> CommandOutput {
    let near = match nearest {
        [] => String::new(),
        names => format!("; the nearest names are {}", names.join(", ")),
    };
    CommandOutput::failure(&format!("the process knows no {kind} {name:?}{near}"), USAGE_ERROR)
}

/// Without a process there is nothing to ask, which is wrong usage. A process without an answer is incomplete.
fn no_answer(error: &AskError, options: &CommonOptions) -> CommandOutput {
    match error {
        AskError::NoProcess => CommandOutput::failure(&format!("{error}. {WHERE}"), USAGE_ERROR),
        AskError::OtherUser { .. } | AskError::RequestTooLarge(_) => {
            CommandOutput::failure(&error.to_string(), USAGE_ERROR)
        }
        AskError::Timeout(_) => {
            let limit = spelled(options.timeout);
            failure(&format!("the running process did not answer within {limit}"), Verdict::Incomplete)
        }
        _ => failure(&chain(error), Verdict::Incomplete),
    }
}

const WHERE: &str = "Run the command in the container of the process: \
                     kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager COMMAND";

fn failure(message: &str, verdict: Verdict) -> CommandOutput {
    CommandOutput::failure(message, verdict.exit_code())
}
