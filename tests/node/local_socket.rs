//! The local socket among real users and PID namespaces of one network namespace, as pods in the host network have
//! them. This test needs no node, only root, `setpriv` and `unshare`.
//!
//! The test program starts itself again as another user, and in another PID namespace, in one of the roles below. All
//! processes are not dumpable, like the daemon.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ccm::runtime::local_socket::{RequestHandler, ask, bind, frame, serve};
use support::eventually::unique;
use support::supervisor::TemporaryFolder;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Environment variables of a process of this test: its role, the program and the name of the socket.
const ROLE: &str = "CCM_TEST_SOCKET_ROLE";
const PROGRAM: &str = "CCM_TEST_SOCKET_PROGRAM";
const NAME: &str = "CCM_TEST_SOCKET_NAME";

/// Beginning of the lines that a process prints for the test.
const MARK: &str = "socket: ";

const LIMIT: Duration = Duration::from_secs(60);

/// The user of the image, and other ones.
const USER: u32 = 1001;
const OTHER_USER: u32 = 1002;
const SQUATTER: u32 = 1003;

const REQUEST: &[u8] = b"status";

#[test]
fn another_user_and_another_pid_namespace_get_nothing() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match std::env::var(ROLE) {
        Ok(role) => runtime.block_on(play(&role)),
        Err(_) => runtime.block_on(try_all()),
    }
}

/// PID namespace of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// That of the server, as `kubectl exec` enters it.
    Container,
    /// Another one beside it, as another pod has.
    OtherContainer,
    /// That of this test, of which the others are a part, as that of the host.
    Host,
}

async fn try_all() {
    assert!(rustix::process::geteuid().is_root(), "this test needs root, which starts processes of several users");
    let mut stage = Stage::create();
    let mut holder = stage.start("hold", 0, Place::Container, "").await;
    holder.next("waits").await;
    stage.container = Some(holder.only_child());
    let mut server = stage.start("serve", USER, Place::Container, "").await;
    let name = server.next("name ").await;
    let (prefix, _) = name.rsplit_once('.').unwrap();

    let mut squatters = Vec::new();
    let taken = [
        (SQUATTER, Place::Container),
        (0, Place::Container),
        (USER, Place::OtherContainer),
        (0, Place::OtherContainer),
        (USER, Place::Host),
        (0, Place::Host),
    ];
    for (digit, (user, place)) in taken.into_iter().enumerate() {
        let name = format!("{prefix}.{}", digit.to_string().repeat(32));
        let mut squatter = stage.start("squat", user, place, &name).await;
        squatter.next("listens").await;
        squatters.push(squatter);
    }

    let answer = stage.outcome("ask", USER, Place::Container, "").await;
    assert_eq!(answer, "answer: status", "same user and namespace");
    let other = stage.outcome("ask", OTHER_USER, Place::Container, "").await;
    assert!(other.starts_with("error: the running process belongs to user "), "{other}");
    for place in [Place::OtherContainer, Place::Host] {
        let outcome = stage.outcome("ask", USER, place, "").await;
        assert!(outcome.starts_with("error: no running process was found in this container"), "{place:?}: {outcome}");
    }
    // These send a complete request, although they have not checked the other end.
    for place in [Place::Container, Place::OtherContainer, Place::Host] {
        for user in [USER, OTHER_USER, 0] {
            if (user, place) != (USER, Place::Container) {
                let received = stage.outcome("intrude", user, place, &name).await;
                assert_eq!(received, "received 0 bytes", "user {user} in {place:?}");
            }
        }
    }
    let received = stage.outcome("intrude", USER, Place::Container, &name).await;
    assert_eq!(received, "received 11 bytes", "the same requests are complete");

    assert_eq!(server.finish("handled ").await, "2");
    let alone = stage.outcome("ask", USER, Place::Container, "").await;
    assert!(alone.starts_with("error: the running process belongs to user "), "only squatters listen: {alone}");
    for squatter in squatters {
        assert_eq!(squatter.finish("received ").await, "0", "bytes of requests");
    }
}

/// A copy of this program that every user may run.
struct Stage {
    folder: TemporaryFolder,
    program: String,
    test: String,
    /// The first process of the container.
    container: Option<String>,
}

impl Stage {
    fn create() -> Self {
        let folder = TemporaryFolder::create();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), permissions).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), folder.path().join("peer")).unwrap();
        let thread = std::thread::current();
        let test = thread.name().filter(|name| *name != "main");
        let test = test.expect("a test has its name as that of its thread: RUST_TEST_THREADS must be above 1");
        Self { folder, program: unique("ccm-test"), test: test.to_owned(), container: None }
    }

    /// Returns the words that start a program in this PID namespace.
    fn enter(&self, place: Place) -> Vec<&str> {
        match (place, &self.container) {
            (Place::Host, _) => Vec::new(),
            (Place::Container, Some(process)) => vec!["nsenter", "--pid", "--mount", "--target", process, "--"],
            (Place::Container, None) | (Place::OtherContainer, _) => {
                vec!["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
            }
        }
    }

    /// Starts a process as this user in this PID namespace.
    async fn start(&self, role: &str, user: u32, place: Place, name: &str) -> Peer {
        let (user_flag, group_flag) = (format!("--reuid={user}"), format!("--regid={user}"));
        let peer = self.folder.path().join("peer");
        let mut words = self.enter(place);
        words.extend(["setpriv", "--clear-groups", &user_flag, &group_flag, "--", peer.to_str().unwrap()]);
        words.extend(["--exact", &self.test, "--nocapture", "--test-threads=2"]);
        let (program, arguments) = words.split_first().unwrap();
        let mut command = Command::new(program);
        command.args(arguments).envs([(ROLE, role), (PROGRAM, self.program.as_str()), (NAME, name)]);
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{program} of util-linux: {error}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Peer { what: format!("{role} as user {user} in {place:?}"), child, lines }
    }

    /// Runs a process that ends by itself. Returns what it prints.
    async fn outcome(&self, role: &str, user: u32, place: Place, name: &str) -> String {
        self.start(role, user, place, name).await.finish("").await
    }
}

/// A process in one of the roles.
struct Peer {
    what: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Returns the rest of the next line that begins with the mark and this word.
    async fn next(&mut self, word: &str) -> String {
        let beginning = format!("{MARK}{word}");
        let wait = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                // The test harness prints the name of the test without an end of the line.
                if let Some((_, rest)) = line.split_once(&beginning) {
                    return rest.to_owned();
                }
            }
            panic!("{} ended without {beginning:?}", self.what);
        };
        timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("{} did not print {beginning:?} in time", self.what))
    }

    /// Lets the process end. Returns the rest of the line that begins with the mark and this word.
    async fn finish(mut self, word: &str) -> String {
        drop(self.child.stdin.take());
        let rest = self.next(word).await;
        let end = async { while self.lines.next_line().await.unwrap().is_some() {} };
        timeout(LIMIT, end).await.unwrap_or_else(|_| panic!("{} did not end in time", self.what));
        rest
    }

    /// Returns the id of the process that `unshare` has started.
    fn only_child(&self) -> String {
        let process = self.child.id().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
        children.trim().to_owned()
    }
}

/// Acts as one of the processes. A process that waits ends when its standard input is closed.
async fn play(role: &str) {
    ccm::runtime::core_dumps::turn_off().unwrap();
    let program = std::env::var(PROGRAM).unwrap();
    let name = std::env::var(NAME).unwrap();
    match role {
        "hold" => {
            println!("{MARK}waits");
            end_of_input().await;
        }
        "serve" => serve_requests(&program).await,
        "ask" => match ask(&program, None, REQUEST, LIMIT).await {
            Ok(answer) => println!("{MARK}answer: {}", String::from_utf8(answer).unwrap()),
            Err(error) => println!("{MARK}error: {error}"),
        },
        "intrude" => {
            let mut stream = UnixStream::connect(format!("\0{name}")).await.unwrap();
            // The server may have closed the connection.
            let _ = frame::write_request(&mut stream, REQUEST).await;
            println!("{MARK}received {} bytes", read_all(stream).await);
        }
        "squat" => squat(&name).await,
        other => panic!("the role {other} is unknown"),
    }
}

/// Returns the request, and counts the calls.
#[derive(Default)]
struct Echo(AtomicUsize);

#[async_trait::async_trait]
impl RequestHandler for Echo {
    async fn handle(&self, request: Vec<u8>) -> Vec<u8> {
        self.0.fetch_add(1, Ordering::SeqCst);
        request
    }
}

async fn serve_requests(program: &str) {
    let listener = bind(program).unwrap();
    println!("{MARK}name {}", listener.name());
    let handler = Arc::new(Echo::default());
    let stop = CancellationToken::new();
    let serving = serve(listener, Arc::<Echo>::clone(&handler), stop.clone());
    let end = async {
        end_of_input().await;
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(serving, end);
    outcome.unwrap();
    println!("{MARK}handled {}", handler.0.load(Ordering::SeqCst));
}

/// Listens on the name, answers each connection at once, and counts the bytes that clients send.
async fn squat(name: &str) {
    let listener = UnixListener::bind(format!("\0{name}")).unwrap();
    println!("{MARK}listens");
    let mut received = 0;
    let accept = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let forged = frame::Reply::Answer(b"forged".to_vec());
            // The client may have closed the connection.
            let _ = frame::write_reply(&mut stream, &forged).await;
            received += read_all(stream).await;
        }
    };
    tokio::select! {
        () = accept => {}
        () = end_of_input() => {}
    }
    println!("{MARK}received {received}");
}

/// Reads until the other end closes the connection, and returns the number of bytes.
async fn read_all(mut stream: UnixStream) -> usize {
    let mut bytes = Vec::new();
    match timeout(LIMIT, stream.read_to_end(&mut bytes)).await.expect("the connection is closed in time") {
        // The other end closes without reading what was sent.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes.len(),
    }
}

/// Waits until the test closes the standard input of this process, or ends.
async fn end_of_input() {
    let read = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::task::spawn_blocking(read).await.unwrap().unwrap();
}
