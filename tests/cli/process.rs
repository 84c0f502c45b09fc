//! Commands and a process that is slow, busy, of another version, or starts again. The process is this test: it listens
//! as a daemon does, and the commands find it by its id.

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ccm::app::options::PROGRAM;
use ccm::runtime::local_socket::{self, RequestHandler, SocketListener};
use serde_json::{Value, json};
use support::eventually;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The tests have one process id, and a command asks the first socket of the process, so they take turns.
static TURN: Mutex<()> = Mutex::const_new(());

/// Time limit of a test's own steps.
const LIMIT: Duration = Duration::from_secs(30);

/// The number of connections that a process serves at the same time.
const CONNECTIONS: usize = 8;

/// Answers as the test says.
struct StandIn {
    answer: StandInAnswer,
    /// Number of requests so far.
    requests: AtomicUsize,
}

#[derive(Clone)]
enum StandInAnswer {
    /// This text, whatever the version of the command is.
    Text(String),
    /// An explanation with this state, in the version of the command.
    Explanation(&'static str),
    /// None.
    Silence,
}

#[async_trait]
impl RequestHandler for StandIn {
    async fn handle(&self, request: Vec<u8>) -> Vec<u8> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        match &self.answer {
            StandInAnswer::Text(text) => text.clone().into_bytes(),
            StandInAnswer::Silence => std::future::pending().await,
            StandInAnswer::Explanation(state) => {
                let request: Value = serde_json::from_slice(&request).unwrap();
                let explanation = json!({
                    "version": "0", "time": "2026-11-24T03:12:40Z", "host": "cp-1", "leads": true,
                    "isDetached": false, "findLeader": null, "subject": "Node a", "summary": state, "state": state,
                    "sections": [],
                });
                let answer = json!({"Ok": {"Explain": explanation}});
                json!({"version": request["version"], "answer": answer}).to_string().into_bytes()
            }
        }
    }
}

/// A process that listens until it is stopped.
struct Process {
    stand_in: Arc<StandIn>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Process {
    fn start(answer: StandInAnswer) -> Self {
        Self::on(local_socket::bind(PROGRAM).unwrap(), answer)
    }

    fn on(listener: SocketListener, answer: StandInAnswer) -> Self {
        let stand_in = Arc::new(StandIn { answer, requests: AtomicUsize::new(0) });
        let stop = CancellationToken::new();
        let (handler, until) = (Arc::clone(&stand_in), stop.clone());
        let serving = tokio::spawn(async move { local_socket::serve(listener, handler, until).await.unwrap() });
        Self { stand_in, stop, serving }
    }

    async fn wait_for_request(&self) {
        eventually("the process is asked", LIMIT, async || match self.stand_in.requests.load(Ordering::SeqCst) {
            0 => Err("no request"),
            _ => Ok(()),
        })
        .await;
    }

    async fn end(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager"));
    let (name, rest) = arguments.split_first().unwrap();
    command.arg(name).arg(format!("--pid={}", std::process::id())).args(rest).env_clear().kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn run(arguments: &[&str]) -> Output {
    tokio::time::timeout(LIMIT, command(arguments).output()).await.unwrap().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the next line of standard error.
async fn next_message(child: &mut Child) -> String {
    let mut line = String::new();
    let mut messages = BufReader::new(child.stderr.as_mut().unwrap());
    tokio::time::timeout(LIMIT, messages.read_line(&mut line)).await.unwrap().unwrap();
    line
}

#[tokio::test]
async fn a_process_that_does_not_answer_in_time_is_exit_code_3() {
    let _turn = TURN.lock().await;
    let process = Process::start(StandInAnswer::Silence);
    for arguments in [&["status", "--timeout=2s"][..], &["check", "-q", "--timeout=2s"], &["plan", "--timeout=2s"]] {
        let output = run(arguments).await;
        let messages = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), String::new()), "{arguments:?} {messages}");
        let expected = "waiting for the process, at most 2 s\nerror: the running process did not answer within 2s\n";
        assert_eq!(messages, expected, "{arguments:?}");
    }
    let waiting = run(&["status", "--wait", "--timeout=2s"]).await;
    assert_eq!(waiting.status.code(), Some(3), "{}", text(&waiting.stderr));
    process.end().await;
}

#[tokio::test]
async fn a_process_that_serves_as_many_commands_as_it_can_is_exit_code_3() {
    let _turn = TURN.lock().await;
    let listener = local_socket::bind(PROGRAM).unwrap();
    let address = format!("\0{}", listener.name());
    let process = Process::on(listener, StandInAnswer::Explanation("settled"));
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = UnixStream::connect(&address).await.unwrap();
        // Half of a request, so that the process waits for the rest.
        stream.write_all(&[0, 0]).await.unwrap();
        open.push(stream);
    }
    let busy = run(&["explain", "node", "a"]).await;
    let messages = text(&busy.stderr);
    assert_eq!((busy.status.code(), text(&busy.stdout)), (Some(3), String::new()), "{messages}");
    assert_eq!(messages, "error: the running process is busy with other requests: try again later\n");
    drop(open);
    let waited = run(&["explain", "node", "a", "--wait"]).await;
    assert_eq!(waited.status.code(), Some(0), "{}", text(&waited.stderr));
    process.end().await;
}

#[tokio::test]
async fn a_command_and_a_process_of_other_versions_say_so() {
    let _turn = TURN.lock().await;
    // Another version may have other answers, and answers to another version with a reason.
    for answer in [json!({"Ok": {"Weather": {"rain": true}}}), json!({"Err": "no such question"}), json!(7)] {
        let response = json!({"version": "99.9.9 (abc\u{1b}[31m)", "answer": answer});
        let process = Process::start(StandInAnswer::Text(response.to_string()));
        for arguments in [&["status"][..], &["explain", "node", "a", "--wait"], &["check", "-o", "json"]] {
            let output = run(arguments).await;
            let messages = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{messages}");
            let own = format!("error: the command has version \"{}", env!("CARGO_PKG_VERSION"));
            assert!(messages.starts_with(&own) && messages.contains("process has version \"99.9.9 (abc"), "{messages}");
            assert!(messages.contains("in the container of the process") && !messages.contains('\u{1b}'), "{messages}");
        }
        process.end().await;
    }
    let process = Process::start(StandInAnswer::Text("<html>".to_owned()));
    let output = run(&["status"]).await;
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).starts_with("error: the answer of the process cannot be read"), "{output:?}");
    process.end().await;
}

#[tokio::test]
async fn wait_continues_while_the_process_starts_again_and_ends_when_all_is_right() {
    let _turn = TURN.lock().await;
    let mut child = command(&["explain", "node", "a", "--wait", "--timeout=60s"]).spawn().unwrap();
    // No process answers yet: without `--wait`, this is exit code 2.
    assert_eq!(next_message(&mut child).await, "waiting for the process, at most 60 s\n");
    let process = Process::start(StandInAnswer::Explanation("held"));
    process.wait_for_request().await;
    process.end().await;
    // The process ends while it makes the answer.
    let ending = Process::start(StandInAnswer::Silence);
    ending.wait_for_request().await;
    ending.end().await;
    let restarted = Process::start(StandInAnswer::Explanation("settled"));
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "Node a   settled\n");
    restarted.end().await;

    let none = run(&["explain", "node", "a", "--wait", "--timeout=2s"]).await;
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    assert!(text(&none.stderr).contains("no running process was found"), "{none:?}");
    let gone = Process::start(StandInAnswer::Explanation("gone"));
    let output = run(&["explain", "node", "a", "--wait", "--timeout=60s"]).await;
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), "Node a   gone\n"), "{output:?}");
    gone.end().await;
}
