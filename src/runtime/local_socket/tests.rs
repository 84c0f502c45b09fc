//! Tests with real sockets of this process, and with connections in memory on a paused clock. `tests/node` has other
//! users and PID namespaces.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::client::ask_checked;
use super::frame::Reply;
use super::server::{
    CONNECTION_LIMIT, ExchangeError, MAX_CONNECTIONS, REPLY_LIMIT, REQUEST_LIMIT, SocketServer, bind_first, exchange,
    serve_connection,
};
use super::*;

const LIMIT: Duration = Duration::from_secs(60);

/// Requests with another answer than their echo.
const PANIC: &[u8] = b"panic";
const HANG: &[u8] = b"hang";
const TOO_LARGE: &[u8] = b"too large";
const LARGE: &[u8] = b"large";

/// Returns the request.
#[derive(Default)]
struct Echo {
    begun: AtomicUsize,
    running: Arc<AtomicUsize>,
}

/// Counts a call until it is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl RequestHandler for Echo {
    async fn handle(&self, request: Vec<u8>) -> Vec<u8> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        let _running = Running(Arc::clone(&self.running));
        match request.as_slice() {
            PANIC => panic!("a panic of the test"),
            HANG => std::future::pending().await,
            TOO_LARGE => vec![0; frame::MAX_ANSWER + 1],
            LARGE => vec![0; frame::MAX_ANSWER],
            _ => request,
        }
    }
}

/// A server of this test.
struct Fixture {
    program: String,
    name: String,
    handler: Arc<Echo>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Returns a program name that no other test has.
fn unique_program() -> String {
    format!("ccm-test-{}", Uuid::new_v4().as_fields().0)
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Fixture {
    fn start() -> Self {
        Self::start_as(&unique_program(), own_peer_check())
    }

    fn start_as(program: &str, check_peer: Box<PeerCheck>) -> Self {
        let listener = bind(program).unwrap();
        let name = listener.name().to_owned();
        let handler = Arc::new(Echo::default());
        let server = SocketServer::new(Arc::<Echo>::clone(&handler), check_peer);
        let stop = CancellationToken::new();
        let until = stop.clone();
        let task = tokio::spawn(async move { server.run(listener, until).await });
        Self { program: program.to_owned(), name, handler, stop, task }
    }

    async fn ask(&self, request: &[u8]) -> Result<Vec<u8>, AskError> {
        ask(&self.program, None, request, LIMIT).await
    }

    /// Connects, also while the queue of the socket is full.
    async fn connect(&self) -> UnixStream {
        loop {
            match UnixStream::connect(format!("\0{}", self.name)).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::task::yield_now().await,
                outcome => return outcome.unwrap(),
            }
        }
    }

    /// Sends a request that is never answered, and waits until the handler has it.
    async fn hang(&self) -> UnixStream {
        let begun = self.handler.begun.load(Ordering::SeqCst);
        let mut stream = self.connect().await;
        frame::write_request(&mut stream, HANG).await.unwrap();
        until(|| self.handler.begun.load(Ordering::SeqCst) > begun).await;
        stream
    }
}

/// Waits for a condition.
async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("the condition holds in time");
}

/// Reads until the connection is closed. Closing with unread bytes is an error of the connection.
async fn read_all(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match tokio::time::timeout(LIMIT, stream.read_to_end(&mut bytes)).await.expect("it is closed in time") {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

/// Allows this process the files that many connections need.
fn allow_open_files(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let allowed = setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum: limit.maximum });
        allowed.unwrap_or_else(|error| panic!("this test needs {count} open files (ulimit -Hn): {error}"));
    }
}

#[tokio::test]
async fn a_process_answers_the_requests_of_its_own_user_and_namespace() {
    let server = Fixture::start();
    for request in [&b""[..], b"status", &vec![7; frame::MAX_REQUEST]] {
        assert_eq!(server.ask(request).await.unwrap(), request);
    }
    assert_eq!(server.ask(LARGE).await.unwrap().len(), frame::MAX_ANSWER);

    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!(ask(&server.program, Some(own), b"status", LIMIT).await.unwrap(), b"status");
    let other = ask(&server.program, Some(own + 1), b"status", LIMIT).await;
    assert!(matches!(other, Err(AskError::NoProcess)), "{other:?}");

    let too_large = server.ask(&vec![7; frame::MAX_REQUEST + 1]).await.unwrap_err();
    assert_eq!(too_large.to_string(), "the request has 65537 bytes, at most 65536 are allowed");
    assert!(matches!(server.ask(TOO_LARGE).await, Err(AskError::AnswerTooLarge)));
    let slow = ask(&server.program, None, HANG, Duration::from_millis(50)).await;
    assert!(matches!(slow, Err(AskError::Timeout(_))), "{slow:?}");
    until(|| server.handler.running.load(Ordering::SeqCst) == 0).await;

    let other = ask(&unique_program(), None, b"status", LIMIT).await;
    assert!(matches!(other, Err(AskError::NoProcess)), "another program: {other:?}");
}

#[tokio::test]
async fn a_name_that_is_taken_is_replaced_by_another_one() {
    let prefix = own_prefix(&unique_program()).unwrap();
    let names = |randoms: &[u128]| randoms.iter().map(|random| name::full_name(&prefix, *random)).collect::<Vec<_>>();
    let first = bind_first(names(&[1]).into_iter()).unwrap();
    let second = bind_first(names(&[1, 2]).into_iter()).unwrap();
    assert!(first.name() != second.name());
    assert_eq!([second.name()], *names(&[2]));
    let error = bind_first(names(&[1, 2]).into_iter()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_client_that_fails_the_check_gets_no_byte_and_no_place() {
    let program = unique_program();
    let server = Fixture::start_as(&program, peer_check(own_user() + 1));
    for _ in 0..2 * MAX_CONNECTIONS {
        let mut client = server.connect().await;
        let _ = frame::write_request(&mut client, b"status").await;
        assert_eq!(read_all(&mut client).await, b"");
    }
    let outcome = server.ask(b"status").await;
    assert!(matches!(outcome, Err(AskError::Closed)), "{outcome:?}");
    assert_eq!(server.handler.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_server_that_fails_the_check_gets_no_byte() {
    let program = unique_program();
    let prefix = own_prefix(&program).unwrap();
    let listener = UnixListener::bind(format!("\0{}", name::full_name(&prefix, 1))).unwrap();
    let outcome = ask_checked(&program, b"status", LIMIT, &*peer_check(own_user() + 1)).await;
    assert!(matches!(outcome, Err(AskError::OtherUser { process, .. }) if process == own_user()), "{outcome:?}");
    let (mut connection, _) = listener.accept().await.unwrap();
    assert_eq!(read_all(&mut connection).await, b"");
}

/// Listens on names of the program, as another process of the host can. Every other one sends garbage.
struct Squatters {
    names: HashSet<String>,
    received: Arc<AtomicUsize>,
}

impl Squatters {
    fn new() -> Self {
        Self { names: HashSet::new(), received: Arc::default() }
    }

    /// Listens on names that are all over the list of the kernel, whose order depends on a hash of the name.
    fn listen(&mut self, prefix: &str, count: usize) {
        for index in 0..count {
            let name = name::full_name(prefix, Uuid::new_v4().as_u128());
            let listener = UnixListener::bind(format!("\0{name}")).unwrap();
            self.names.insert(name);
            let received = Arc::clone(&self.received);
            tokio::spawn(async move {
                while let Ok((mut connection, _)) = listener.accept().await {
                    if index % 2 == 0 {
                        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\n\r\nall is well").await;
                    }
                    received.fetch_add(read_all(&mut connection).await.len(), Ordering::SeqCst);
                }
            });
        }
    }

    /// Returns the check of a client to which these are in another PID namespace.
    fn check(&self) -> Box<PeerCheck> {
        let names = self.names.clone();
        let check = own_peer_check();
        Box::new(move |stream| {
            let address = stream.peer_addr().unwrap();
            let name = String::from_utf8(address.as_abstract_name().unwrap().to_vec()).unwrap();
            if names.contains(&name) { Err(PeerRefusal::OtherNamespace) } else { check(stream) }
        })
    }
}

#[tokio::test]
async fn processes_that_take_names_keep_no_client_from_the_server() {
    let program = unique_program();
    let prefix = own_prefix(&program).unwrap();
    let mut squatters = Squatters::new();
    squatters.listen(&prefix, 300);
    let nobody = ask_checked(&program, b"status", LIMIT, &*squatters.check()).await;
    assert!(matches!(nobody, Err(AskError::NoProcess)), "{nobody:?}");

    let server = Fixture::start_as(&program, own_peer_check());
    squatters.listen(&prefix, 300);
    let answer = ask_checked(&program, b"status", LIMIT, &*squatters.check()).await;
    assert_eq!(answer.unwrap(), b"status");
    assert_eq!(squatters.received.load(Ordering::SeqCst), 0, "bytes that the others have got");
    server.stop.cancel();
}

#[tokio::test]
async fn a_socket_with_a_full_queue_is_tried_again() {
    // tokio asks for a queue of 4,096 connections. A setting of the kernel can make it shorter.
    let setting: u64 = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    allow_open_files(setting.min(4096) + 1024);
    let program = unique_program();
    let listener = bind(&program).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match UnixStream::connect(format!("\0{}", listener.name())).await {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "after {} connections", waiting.len());

    let mut asked = pin!(ask(&program, None, b"status", LIMIT));
    assert!(futures::poll!(asked.as_mut()).is_pending());
    let server = SocketServer::new(Arc::new(Echo::default()), own_peer_check());
    let stop = CancellationToken::new();
    let mut serving = pin!(server.run(listener, stop.clone()));
    drop(waiting);
    let answer = tokio::select! {
        answer = asked => answer,
        () = serving.as_mut() => panic!("the server ended"),
    };
    // The connections that wait take the places for a moment, although their clients are gone.
    assert!(matches!(answer, Ok(_) | Err(AskError::Busy)), "{answer:?}");
}

#[tokio::test]
async fn a_ninth_client_is_told_that_the_process_is_busy() {
    let server = Fixture::start();
    let mut hanging = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        hanging.push(server.hang().await);
    }
    let ninth = server.ask(b"status").await;
    assert!(matches!(ninth, Err(AskError::Busy)), "{ninth:?}");
    let largest = server.ask(&vec![7; frame::MAX_REQUEST]).await;
    assert!(matches!(largest, Err(AskError::Busy)), "{largest:?}");

    // A client that goes away gives its place back, although the handler would go on.
    drop(hanging.pop());
    until(|| server.handler.running.load(Ordering::SeqCst) < MAX_CONNECTIONS).await;
    until_answered(&server).await;
}

/// Asks until there is a free place.
async fn until_answered(server: &Fixture) {
    let answered = async {
        loop {
            match server.ask(b"status").await {
                Ok(answer) => return answer,
                Err(AskError::Busy) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, answered).await.expect("answered in time"), b"status");
}

#[tokio::test]
async fn two_thousand_connections_end_nothing_and_take_no_more_places() {
    const CONNECTIONS: usize = 2_000;
    allow_open_files(3 * CONNECTIONS as u64);
    let is_trusted = Arc::new(AtomicBool::new(false));
    let check: Box<PeerCheck> = {
        let (is_trusted, check) = (Arc::clone(&is_trusted), own_peer_check());
        Box::new(move |stream| match is_trusted.load(Ordering::SeqCst) {
            true => check(stream),
            false => Err(PeerRefusal::OtherNamespace),
        })
    };
    let server = Fixture::start_as(&unique_program(), check);

    let mut strangers = Vec::new();
    for _ in 0..CONNECTIONS {
        strangers.push(server.connect().await);
    }
    for stranger in &mut strangers {
        assert_eq!(read_all(stranger).await, b"");
    }
    is_trusted.store(true, Ordering::SeqCst);
    assert_eq!(server.ask(b"status").await.unwrap(), b"status");

    let mut hanging = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        hanging.push(server.hang().await);
    }
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(server.connect().await);
    }
    for client in &mut clients {
        assert_eq!(frame::read_reply(client).await.unwrap(), Reply::Busy);
        assert_eq!(read_all(client).await, b"");
    }
    assert_eq!(server.handler.running.load(Ordering::SeqCst), MAX_CONNECTIONS);
    drop((strangers, hanging, clients));
    for _ in 0..100 {
        until_answered(&server).await;
    }
}

#[tokio::test]
async fn a_panic_of_the_handler_is_a_reply_and_does_not_end_the_server() {
    let server = Fixture::start();
    for _ in 0..2 * MAX_CONNECTIONS {
        loop {
            match server.ask(PANIC).await {
                Err(AskError::Failed) => break,
                Err(AskError::Busy) => tokio::task::yield_now().await,
                outcome => panic!("{outcome:?}"),
            }
        }
    }
    until_answered(&server).await;
}

#[tokio::test]
async fn a_stop_ends_the_server_and_its_connections() {
    let server = Fixture::start();
    let mut hanging = server.hang().await;
    server.stop.cancel();
    tokio::time::timeout(LIMIT, server.task).await.expect("the server ends in time").unwrap();
    assert_eq!(read_all(&mut hanging).await, b"");
    until(|| server.handler.running.load(Ordering::SeqCst) == 0).await;
    let outcome = ask(&server.program, None, b"status", LIMIT).await;
    assert!(matches!(outcome, Err(AskError::NoProcess)), "{outcome:?}");
}

/// The end of a connection and the time until then.
type Serving = JoinHandle<(Result<(), ExchangeError>, Duration)>;

/// Serves a connection in memory with a small buffer. Returns the client's end, and the end of the connection.
fn in_memory() -> (DuplexStream, Serving) {
    let (client, mut stream) = tokio::io::duplex(1024);
    let serving = tokio::spawn(async move {
        let start = Instant::now();
        let outcome = exchange(Arc::new(Echo::default()), &mut stream).await;
        (outcome, start.elapsed())
    });
    (client, serving)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_slow_is_cut_off() {
    let (_silent, serving) = in_memory();
    let (outcome, time) = serving.await.unwrap();
    assert!(matches!(outcome, Err(ExchangeError::SlowRequest)), "no request: {outcome:?}");
    assert_eq!(time.as_secs(), REQUEST_LIMIT.as_secs());

    let (mut slow, serving) = in_memory();
    slow.write_all(&[0, 0, 0, 9, b's', b't']).await.unwrap();
    let (outcome, time) = serving.await.unwrap();
    assert!(matches!(outcome, Err(ExchangeError::SlowRequest)), "half a request: {outcome:?}");
    assert_eq!(time.as_secs(), REQUEST_LIMIT.as_secs());

    let (mut trickle, serving) = in_memory();
    let drip = async {
        while trickle.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let ((outcome, time), ()) = tokio::join!(async { serving.await.unwrap() }, drip);
    assert!(matches!(outcome, Err(ExchangeError::SlowRequest)), "a byte every 2 s: {outcome:?}");
    assert_eq!(time.as_secs(), REQUEST_LIMIT.as_secs());

    let (mut deaf, serving) = in_memory();
    frame::write_request(&mut deaf, LARGE).await.unwrap();
    let (outcome, time) = serving.await.unwrap();
    assert!(matches!(outcome, Err(ExchangeError::SlowReader)), "the answer is not read: {outcome:?}");
    assert_eq!(time.as_secs(), REPLY_LIMIT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_wrong_is_not_answered() {
    let (mut huge, serving) = in_memory();
    huge.write_all(&[0xff; 4]).await.unwrap();
    let (outcome, time) = serving.await.unwrap();
    assert!(matches!(outcome, Err(ExchangeError::Request(frame::FrameError::TooLarge { .. }))), "{outcome:?}");
    assert_eq!(time, Duration::ZERO);

    let (mut half, serving) = in_memory();
    half.write_all(&[0, 0, 0, 9, b's']).await.unwrap();
    drop(half);
    let (outcome, _) = serving.await.unwrap();
    assert!(matches!(outcome, Err(ExchangeError::Request(frame::FrameError::Incomplete))), "{outcome:?}");

    let (mut twice, serving) = in_memory();
    frame::write_request(&mut twice, HANG).await.unwrap();
    frame::write_request(&mut twice, HANG).await.unwrap();
    let (outcome, _) = serving.await.unwrap();
    assert!(matches!(outcome, Err(ExchangeError::ClientClosed)), "a second request: {outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_without_limit_is_dropped_with_its_connection() {
    let (mut client, stream) = tokio::io::duplex(1024);
    let places = Arc::new(tokio::sync::Semaphore::new(1));
    let permit = Arc::clone(&places).try_acquire_owned().unwrap();
    let handler = Arc::new(Echo::default());
    let running = Arc::clone(&handler.running);
    let start = Instant::now();
    let serving = tokio::spawn(serve_connection(handler, stream, permit));
    frame::write_request(&mut client, HANG).await.unwrap();
    serving.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), CONNECTION_LIMIT.as_secs());
    assert_eq!(places.available_permits(), 1);
    until(|| running.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_reply_that_is_none_is_an_error_of_the_client() {
    let cases: [(&str, &[u8], &str); 4] = [
        ("nothing", b"", "the running process closed the connection without an answer: it may be stopping, try again"),
        (
            "half a reply",
            &[0, 0, 0, 0, 9, b'a'],
            "the running process closed the connection without an answer: it may be stopping, try again",
        ),
        (
            "another status",
            &[77, 0, 0, 0, 0],
            "the reply of the running process is not understood: use the command of the same version",
        ),
        (
            "an answer above the limit",
            &[0, 0xff, 0, 0, 0],
            "the reply of the running process is not understood: use the command of the same version",
        ),
    ];
    for (case, reply, expected) in cases {
        let program = unique_program();
        let prefix = own_prefix(&program).unwrap();
        let listener = UnixListener::bind(format!("\0{}", name::full_name(&prefix, 1))).unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            frame::read_request(&mut stream).await.unwrap();
            stream.write_all(reply).await.unwrap();
        };
        let (outcome, ()) = tokio::join!(ask(&program, None, b"status", LIMIT), serve);
        assert_eq!(outcome.unwrap_err().to_string(), expected, "{case}");
    }
}

/// The daemon disables core dumps, so the kernel gives the files of the process below `/proc` to root.
#[test]
fn the_names_are_known_to_a_process_that_is_not_dumpable() {
    crate::runtime::core_dumps::turn_off().unwrap();
    assert!(own_prefix("ccm").unwrap().starts_with("ccm."));
}
