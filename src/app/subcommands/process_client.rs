//! Asks the running process over its local socket or, for a detached command, an observer in this process.

use super::arguments::{AnswerSource, CommonOptions};
use super::{CommandOutput, USAGE_ERROR};
use crate::app::inquiries;
use crate::app::inquiries::protocol::{self, Answer, DeletionsRequest, Question, Request, ResponseError, version};
use crate::app::observer::{Observer, ObserverError};
use crate::app::options::PROGRAM;
use crate::app::reports::Verdict;
use crate::app::reports::text::clean;
use crate::base::addresses::parse_ip;
use crate::base::error_chain::chain;
use crate::base::go_duration::spelled;
use crate::runtime::local_socket::{self, AskError};
use crate::runtime::shutdown;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time after which a command that still waits says so on standard error.
const PROGRESS: Duration = Duration::from_secs(1);

/// Pause before a question is repeated with `--wait`.
const REPEAT: Duration = Duration::from_secs(1);

/// Number of threads of an observer, as of the daemon.
const OBSERVER_THREADS: usize = 2;

/// As [`REPEAT`], after an answer for which the process called the API server and vCenter.
const REPEAT_WITH_CALLS: Duration = Duration::from_secs(10);

/// Maximum age of an answer that is shown in place of the error of the last attempt.
const RECENT: Duration = Duration::from_secs(20);

/// Asks until [`Answer::verdict`] is [`Verdict::Ok`] or `--timeout` has passed with `--wait`, and once without. Returns
/// what `read` takes from the last answer; `None` means that the answer is to another question.
///
/// # Errors
/// The output with the reason why there is no answer.
pub fn ask<T>(
    question: &Question,
    options: &CommonOptions,
    read: impl FnOnce(Answer) -> Option<T>,
) -> Result<T, CommandOutput> {
    let answer = last_answer(question, options)?;
    read(answer).ok_or_else(|| failure("the process answered another question", Verdict::Incomplete))
}

/// As [`ask`], for any answer: all commands share this code.
fn last_answer(question: &Question, options: &CommonOptions) -> Result<Answer, CommandOutput> {
    let end = Instant::now() + options.timeout;
    match &options.source {
        AnswerSource::Process { .. } => {
            let runtime = runtime(&mut Builder::new_current_thread())?;
            runtime.block_on(ask_within(&Respondent::Process, question, options, end))
        }
        AnswerSource::Observer(flags) => {
            let runtime = runtime(Builder::new_multi_thread().worker_threads(OBSERVER_THREADS))?;
            let answer = runtime.block_on(ask_observer(flags, question, options, end));
            // A look-up of a name may hang.
            runtime.shutdown_background();
            answer
        }
    }
}

fn runtime(builder: &mut Builder) -> Result<Runtime, CommandOutput> {
    let runtime = builder.enable_all().build();
    runtime.map_err(|error| failure(&format!("cannot wait for an answer: {error}"), Verdict::Incomplete))
}

/// The source of answers.
enum Respondent {
    /// The running process.
    Process,
    /// The parts of this process that read.
    Observer(Box<Observer>),
}

/// Starts an observer, asks it, and stops it, also after a signal: an open session would stay in vCenter, and a claimed
/// login would count as unanswered. The second signal leaves at once.
async fn ask_observer(
    flags: &[OsString],
    question: &Question,
    options: &CommonOptions,
    end: Instant,
) -> Result<Answer, CommandOutput> {
    let stop = CancellationToken::new();
    let second_signal = shutdown::watch_signals(stop.clone())
        .map_err(|error| failure(&format!("cannot listen for signals: {error}"), Verdict::Incomplete))?;
    let asked = async {
        // On the heap, because these futures are large: a thread of a test has a stack of 2 MiB.
        let observer = match Box::pin(Observer::start(flags, end)).await {
            Ok(observer) => observer,
            Err(ObserverError::Settings(errors)) if matches!(question, Question::Check { .. }) => {
                return Ok(inquiries::of_unusable_settings(&errors));
            }
            Err(error) => return Err(not_observed(&error, options)),
        };
        let respondent = Respondent::Observer(Box::new(observer));
        let answer = stop.run_until_cancelled(Box::pin(ask_within(&respondent, question, options, end))).await;
        if let Respondent::Observer(observer) = respondent {
            observer.stop().await;
        }
        answer.unwrap_or_else(|| Err(failure("stopped by a signal", Verdict::Incomplete)))
    };
    tokio::select! {
        answer = asked => answer,
        signal = second_signal => Err(failure(&signal.to_string(), Verdict::Incomplete)),
    }
}

async fn ask_within(
    respondent: &Respondent,
    question: &Question,
    options: &CommonOptions,
    end: Instant,
) -> Result<Answer, CommandOutput> {
    let request = Request { version: version(), question: question.clone(), masks_users: options.masks_users };
    let mut progress = Progress::new(respondent, question, options.timeout);
    let mut last = None;
    loop {
        let answer = progress.during(respondent.ask_once(options, &request, end)).await;
        let answer = answer.and_then(|answer| match answer {
            Answer::NotFound { kind, name, nearest } => Err(respondent.not_found(&kind, &name, &nearest)),
            answer => Ok(answer),
        });
        let pause = repeat_pause(question, answer.is_ok());
        let is_last_attempt = !options.waits || end <= Instant::now() + pause;
        match answer {
            // The same question will not find what does not exist.
            Ok(answer) if matches!(answer.verdict(), Verdict::Ok | Verdict::NotFound) => return Ok(answer),
            Ok(answer) if is_last_attempt => return Ok(answer),
            Ok(answer) => last = Some((answer, Instant::now())),
            // The same question will not do better.
            Err(error) if error.exit_code == USAGE_ERROR && !error.messages.contains(WHERE) => return Err(error),
            // With `--wait`, the process may have ended, and its successor may not have begun yet.
            Err(error) if is_last_attempt => return recent_answer(last, Instant::now()).ok_or(error),
            Err(_) => {}
        }
        progress.during(sleep(pause)).await;
    }
}

/// Returns the last answer, unless it is so old that it may be wrong: the process may have ended since then.
fn recent_answer(last: Option<(Answer, Instant)>, now: Instant) -> Option<Answer> {
    last.filter(|(_, time)| now.saturating_duration_since(*time) <= RECENT).map(|(answer, _)| answer)
}

/// Returns the pause before the question is repeated. Without an answer, the process has made no call.
fn repeat_pause(question: &Question, is_answered: bool) -> Duration {
    match question {
        Question::Check { .. } | Question::Explain { fresh: Some(_), .. } if is_answered => REPEAT_WITH_CALLS,
        _ => REPEAT,
    }
}

/// Reports once on standard error that the command waits, if it has not ended at the time `at`.
///
/// Without a terminal, a command that asks no process reports nothing: it may run in a Job, whose log mixes standard
/// error into the report.
struct Progress {
    at: Instant,
    /// Whether nothing is left to report.
    is_done: bool,
    limit: Duration,
    activity: &'static str,
}

impl Progress {
    fn new(respondent: &Respondent, question: &Question, limit: Duration) -> Self {
        let activity = match respondent {
            Respondent::Process if matches!(question, Question::Deletions(DeletionsRequest::Pause { .. })) => {
                "waiting 12 s, so that no deletion is under way when the command ends"
            }
            Respondent::Process => "waiting for the process",
            Respondent::Observer(_) => "reading the API server, vCenter and NSX",
        };
        let is_silent = matches!(respondent, Respondent::Observer(_)) && !std::io::stderr().is_terminal();
        Self { at: Instant::now() + PROGRESS, is_done: is_silent, limit, activity }
    }

    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        if self.is_done {
            return work.await;
        }
        match timeout_at(self.at, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                self.is_done = true;
                let (activity, seconds) = (self.activity, self.limit.as_secs());
                // Nobody reads the message if standard error is closed.
                let _ = writeln!(std::io::stderr(), "{activity}, at most {seconds} s");
                work.await
            }
        }
    }
}

impl Respondent {
    async fn ask_once(
        &self,
        options: &CommonOptions,
        request: &Request,
        end: Instant,
    ) -> Result<Answer, CommandOutput> {
        let bytes = match self {
            Respondent::Process => {
                let limit = end.saturating_duration_since(Instant::now());
                let request = serde_json::to_vec(request).unwrap_or_default();
                let answer = local_socket::ask(PROGRAM, options.process, &request, limit).await;
                answer.map_err(|error| no_answer(&error, options))?
            }
            Respondent::Observer(observer) => match timeout_at(end, observer.respond(request.clone(), end)).await {
                Ok(answer) => answer.map_err(|error| not_observed(&error, options))?,
                Err(_) => return Err(failure(&late(options), Verdict::Incomplete)),
            },
        };
        let response = protocol::parse_response(&bytes).map_err(|error| match error {
            ResponseError::OtherVersion(_) => CommandOutput::failure(&clean(&error.to_string()), USAGE_ERROR),
            ResponseError::Unreadable(_) => failure(&clean(&chain(&error)), Verdict::Incomplete),
        })?;
        response.answer.map_err(|reason| CommandOutput::failure(&clean(&reason), USAGE_ERROR))
    }

    /// Returns the error for a name that is not known.
    fn not_found(&self, kind: &str, name: &str, nearest: &[String]) -> CommandOutput {
        let near = match nearest {
            [] if is_misspelled(kind, name) => format!("; expected {}", spelling(kind)),
            [] => String::new(),
            [only] => format!("; the nearest name is {}", clean(only)),
            names => format!("; the nearest names are {}", clean(&names.join(", "))),
        };
        let message = match self {
            Respondent::Process if kind == "vm" => {
                format!("the process knows no VM {name:?} that backs or matches a Node{near}")
            }
            Respondent::Process => format!("the process knows no {} {name:?}{near}", noun(kind)),
            Respondent::Observer(_) => format!("there is no {} {name:?}{near}", noun(kind)),
        };
        CommandOutput::failure(&message, USAGE_ERROR)
    }
}

/// Returns the word for the object that a question about this kind names.
fn noun(kind: &str) -> &str {
    match kind {
        "node" | "deletion" | "route" => "Node",
        "service" => "Service",
        "vcenter" => "vCenter",
        "vm" => "VM",
        "ip" => "IP address",
        other => other,
    }
}

/// Whether no object of this kind can have the name.
fn is_misspelled(kind: &str, name: &str) -> bool {
    match kind {
        "service" => !name.contains('/'),
        "ip" => parse_ip(name).is_none(),
        _ => false,
    }
}

fn spelling(kind: &str) -> &'static str {
    if kind == "service" { "NAMESPACE/NAME" } else { "an address such as 10.0.0.7 or fd00::7" }
}

/// Without a process there is nothing to ask, which is wrong usage. A process without an answer is incomplete.
fn no_answer(error: &AskError, options: &CommonOptions) -> CommandOutput {
    match error {
        AskError::NoProcess => {
            let alternative = match options.source {
                AnswerSource::Process { may_detach: true } => DETACHED,
                _ => "",
            };
            let process = options.process.map(|process| format!("--pid={process}: ")).unwrap_or_default();
            CommandOutput::failure(&format!("{process}{error}. {WHERE}{alternative}"), USAGE_ERROR)
        }
        AskError::OtherUser { .. } | AskError::SeveralProcesses(_) | AskError::RequestTooLarge(_) => {
            CommandOutput::failure(&error.to_string(), USAGE_ERROR)
        }
        AskError::Timeout(_) => failure(&late(options), Verdict::Incomplete),
        _ => failure(&chain(error), Verdict::Incomplete),
    }
}

fn late(options: &CommonOptions) -> String {
    let limit = spelled(options.timeout);
    match options.source {
        AnswerSource::Process { .. } => format!("the running process did not answer within {limit}"),
        AnswerSource::Observer(_) => format!("no answer was complete within {limit}"),
    }
}

/// Flags and files that cannot be used are wrong usage. Paused logins and a late answer are incomplete.
fn not_observed(error: &ObserverError, options: &CommonOptions) -> CommandOutput {
    match error {
        ObserverError::Late => failure(&format!("{}: {error}", late(options)), Verdict::Incomplete),
        ObserverError::LoginsPaused(_) => failure(&error.to_string(), Verdict::Incomplete),
        ObserverError::Usage(_) | ObserverError::Settings(_) | ObserverError::Start(_) => {
            CommandOutput::failure(&chain(error), USAGE_ERROR)
        }
    }
}

const WHERE: &str = "Run the command in the container of the process: \
                     kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager COMMAND";

const DETACHED: &str = "\nWithout a process: --detached logs in, and reads the API server, vCenter and NSX itself";

fn failure(message: &str, verdict: Verdict) -> CommandOutput {
    CommandOutput::failure(message, verdict.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::inquiries::protocol::ExplainSubject;
    use crate::app::subcommands::arguments::OutputForm;

    fn options(source: AnswerSource) -> CommonOptions {
        CommonOptions {
            form: OutputForm::Text,
            timeout: Duration::from_secs(60),
            waits: false,
            is_quiet: false,
            masks_users: false,
            process: None,
            source,
        }
    }

    #[test]
    fn an_old_answer_does_not_hide_that_the_process_is_gone() {
        let answer = || Answer::NotFound { kind: "node".to_owned(), name: "n".to_owned(), nearest: Vec::new() };
        let time = Instant::now();
        assert_eq!(recent_answer(Some((answer(), time)), time + RECENT), Some(answer()));
        assert_eq!(recent_answer(Some((answer(), time)), time + RECENT + Duration::from_secs(1)), None);
        assert_eq!(recent_answer(None, time), None);
    }

    #[test]
    fn without_a_process_the_message_names_detached_if_the_command_has_it() {
        for may_detach in [true, false] {
            let output = no_answer(&AskError::NoProcess, &options(AnswerSource::Process { may_detach }));
            assert_eq!(output.exit_code, 2);
            assert_eq!(output.messages.contains("--detached"), may_detach, "{output:?}");
        }
    }

    #[test]
    fn paused_logins_are_incomplete_and_wrong_flags_are_wrong_usage() {
        let check = Question::Check { node: None, vcenter: None, is_deep: false, is_preflight: true };
        let error = ObserverError::LoginsPaused(vec!["logins to vc:443 are paused".to_owned()]);
        let paused = not_observed(&error, &options(AnswerSource::Observer(Vec::new())));
        assert!(paused.exit_code == 3 && paused.messages.contains("logins to vc:443 are paused"), "{paused:?}");
        let ask = |flag: &str| {
            let options = options(AnswerSource::Observer(vec![OsString::from(flag)]));
            super::ask(&check, &options, |answer| match answer {
                Answer::Check(report) => Some(report.verdict()),
                _ => None,
            })
        };
        assert_eq!(ask("--cloud-confg=x").unwrap_err().exit_code, 2);
        // The daemon would not start either, which is a finding.
        assert_eq!(ask("--cloud-config=/nonexistent/vsphere.conf"), Ok(Verdict::Findings));
    }

    #[test]
    fn a_question_that_makes_calls_is_repeated_less_often() {
        let check = Question::Check { node: None, vcenter: None, is_deep: false, is_preflight: false };
        let status = Question::Status { vcenter: None, node: None };
        let explain = |fresh| Question::Explain { subject: ExplainSubject::Node, name: "a".to_owned(), fresh };
        let fresh = explain(Some(Duration::from_secs(7)));
        let known = explain(None);
        let pauses =
            [(&check, true), (&check, false), (&status, true), (&fresh, true), (&fresh, false), (&known, true)]
                .map(|(question, is_answered)| repeat_pause(question, is_answered).as_secs());
        assert_eq!(pauses, [10, 1, 1, 10, 1, 1]);
    }

    #[test]
    fn the_nearest_names_cannot_control_the_terminal() {
        let names = ["a\u{1b}[31m".to_owned(), "b\u{202e}".to_owned()];
        let output = Respondent::Process.not_found("vm", "x\u{1b}", &names);
        let expected = "error: the process knows no VM \"x\\u{1b}\" that backs or matches a Node; the nearest names are \
                        a [31m, b \n";
        assert_eq!((output.messages.as_str(), output.exit_code), (expected, USAGE_ERROR));
    }

    #[test]
    fn a_name_that_is_not_found_is_named_with_its_kind_and_a_wrong_spelling_with_the_right_one() {
        let near = ["vc:443".to_owned()];
        let cases: [(&str, &str, &[String], &str); 6] = [
            ("deletion", "a", &[], "the process knows no Node \"a\""),
            ("vcenter", "vc", &near, "the process knows no vCenter \"vc\"; the nearest name is vc:443"),
            ("service", "shop/web", &[], "the process knows no Service \"shop/web\""),
            ("service", "web", &[], "the process knows no Service \"web\"; expected NAMESPACE/NAME"),
            ("ip", "10.0.0.7", &[], "the process knows no IP address \"10.0.0.7\""),
            (
                "ip",
                "10.0.0",
                &[],
                "the process knows no IP address \"10.0.0\"; expected an address such as 10.0.0.7 or fd00::7",
            ),
        ];
        for (kind, name, nearest, expected) in cases {
            let output = Respondent::Process.not_found(kind, name, nearest);
            assert_eq!((output.messages, output.exit_code), (format!("error: {expected}\n"), USAGE_ERROR));
        }
    }

    #[test]
    fn an_id_without_a_process_is_named_and_several_processes_are_wrong_usage() {
        let options = CommonOptions { process: Some(7), ..options(AnswerSource::Process { may_detach: false }) };
        let output = no_answer(&AskError::NoProcess, &options);
        assert!(output.messages.starts_with("error: --pid=7: no running process was found"), "{output:?}");
        let output = no_answer(&AskError::SeveralProcesses(vec![7, 12]), &options);
        let expected = "error: several processes of this program run here: select one by --pid=7 or --pid=12\n";
        assert_eq!((output.messages.as_str(), output.exit_code), (expected, USAGE_ERROR));
    }
}
