//! The end that sends a request. It looks for the process among all sockets with a suitable name.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::frame::{self, FrameError, Reply};
use super::peer::PeerRefusal;
use super::{PeerCheck, name, own_peer_check, own_prefix};

/// The kernel's list of the Unix sockets in the network namespace of this process.
const SOCKETS: &str = "/proc/net/unix";

/// Size of one read of the list, in bytes. A host can have thousands of sockets.
const READ_SIZE: usize = 64 * 1024;

/// Time limit of one connect. The kernel answers at once.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// Maximum time in which the search is repeated because the queue of a socket is full.
const SEARCH_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two searches.
const SEARCH_PAUSE: Duration = Duration::from_millis(20);

/// Reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process of the same user and PID namespace listens.
    #[error(
        "no running process was found in this container: no socket of this user and PID namespace accepts requests"
    )]
    NoProcess,
    /// The process that listens in this PID namespace has another user.
    #[error(
        "the running process belongs to user {process}, this command to user {own}: run the command as user {process}"
    )]
    OtherUser {
        /// User id of the process.
        process: u32,
        /// User id of this process.
        own: u32,
    },
    /// Several processes of the same user and PID namespace listen, with these ids.
    #[error("several processes of this program run here: select one by {}", selections(.0))]
    SeveralProcesses(Vec<i32>),
    /// The queue of a socket stays full, so its process is unknown.
    #[error("the queue of a socket is full, so the running process cannot be reached: try again later")]
    QueueFull,
    /// The process answers as many requests as it can.
    #[error("the running process is busy with other requests: try again later")]
    Busy,
    /// The time limit of the caller.
    #[error("the running process did not answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The request is too large. Sizes are in bytes.
    #[error("the request has {0} bytes, at most {limit} are allowed", limit = frame::MAX_REQUEST)]
    RequestTooLarge(usize),
    /// The answer is too large.
    #[error("the answer has more than {limit} bytes: ask for less", limit = frame::MAX_ANSWER)]
    AnswerTooLarge,
    /// The handler of the process panicked.
    #[error("the running process failed to make the answer: its log has the cause")]
    Failed,
    /// The process closed the connection.
    #[error("the running process closed the connection without an answer: it may be stopping, try again")]
    Closed,
    /// The reply is not one of this protocol.
    #[error("the reply of the running process is not understood: use the command of the same version")]
    UnknownReply(#[source] FrameError),
    /// The sockets or the PID namespace cannot be read.
    #[error("cannot search for the running process")]
    Search(#[source] io::Error),
    /// The connection failed.
    #[error("the connection to the running process failed")]
    Io(#[source] io::Error),
}

/// Returns the options that select one of the processes.
fn selections(processes: &[i32]) -> String {
    processes.iter().map(|process| format!("--pid={process}")).collect::<Vec<_>>().join(" or ")
}

/// Sends a request to the process of this program in the PID namespace of this process, and returns the answer. If
/// several processes listen, `process` is the id of the one to ask. `limit` is the time limit of everything.
///
/// # Errors
///
/// If the request is too large, no process is found, several are found and none is selected, or there is no answer in
/// time.
pub async fn ask(program: &str, process: Option<i32>, request: &[u8], limit: Duration) -> Result<Vec<u8>, AskError> {
    let check_user = own_peer_check();
    let check_process = move |stream: &UnixStream| {
        check_user(stream)?;
        let other = stream.peer_cred().map_err(|_| PeerRefusal::NoCredentials)?.pid();
        if process.is_some() && other != process { Err(PeerRefusal::OtherProcess) } else { Ok(()) }
    };
    ask_checked(program, request, limit, &check_process).await
}

/// Sends a request to the only process that passes the check.
pub(super) async fn ask_checked(
    program: &str,
    request: &[u8],
    limit: Duration,
    check_peer: &PeerCheck,
) -> Result<Vec<u8>, AskError> {
    if request.len() > frame::MAX_REQUEST {
        return Err(AskError::RequestTooLarge(request.len()));
    }
    let exchange = async {
        let mut stream = connect(program, check_peer).await?;
        exchange(&mut stream, request).await
    };
    timeout(limit, exchange).await.unwrap_or(Err(AskError::Timeout(limit)))
}

/// Outcome of one pass over all sockets.
enum SearchOutcome {
    Connected(UnixStream),
    /// Several processes passed the check. Contains their ids.
    Several(Vec<i32>),
    /// The queue of at least one socket is full. Another pass may be successful.
    QueueFull,
    /// No process passed the check. Contains the user of a visible process.
    Nothing {
        other_user: Option<u32>,
    },
}

/// Connects to a process that passes the check.
async fn connect(program: &str, check_peer: &PeerCheck) -> Result<UnixStream, AskError> {
    let prefix = own_prefix(program).map_err(AskError::Search)?;
    let start = Instant::now();
    loop {
        match search(&prefix, check_peer).await.map_err(AskError::Search)? {
            SearchOutcome::Connected(stream) => return Ok(stream),
            SearchOutcome::Several(processes) => return Err(AskError::SeveralProcesses(processes)),
            SearchOutcome::QueueFull if start.elapsed() < SEARCH_LIMIT => sleep(SEARCH_PAUSE).await,
            SearchOutcome::QueueFull => return Err(AskError::QueueFull),
            SearchOutcome::Nothing { other_user: None } => return Err(AskError::NoProcess),
            SearchOutcome::Nothing { other_user: Some(process) } => {
                return Err(AskError::OtherUser { process, own: rustix::process::geteuid().as_raw() });
            }
        }
    }
}

/// Tries the listed names with the prefix. Other processes may have listened on any number of such names, so the names
/// are tried while the list is read: neither their number nor one of them keeps the right one from being tried. All
/// names are tried, because the answer of an arbitrary process misleads where several run, such as leader and standby.
async fn search(prefix: &str, check_peer: &PeerCheck) -> io::Result<SearchOutcome> {
    let mut is_queue_full = false;
    let mut other_user = None;
    let mut first = None;
    let mut processes = BTreeSet::new();
    let mut lines = BufReader::with_capacity(READ_SIZE, File::open(SOCKETS).await?).split(b'\n');
    while let Some(line) = lines.next_segment().await? {
        let Some(name) = name::listed_name(&line, prefix) else { continue };
        let stream = match timeout(CONNECT_LIMIT, UnixStream::connect(format!("\0{name}"))).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                is_queue_full |= error.kind() == io::ErrorKind::WouldBlock;
                continue;
            }
            Err(_) => continue,
        };
        match check_peer(&stream) {
            Ok(()) => {
                processes.extend(stream.peer_cred().ok().and_then(|credentials| credentials.pid()));
                first.get_or_insert(stream);
            }
            Err(PeerRefusal::OtherUser(user)) => other_user = Some(user),
            Err(PeerRefusal::NoCredentials | PeerRefusal::OtherNamespace | PeerRefusal::OtherProcess) => {}
        }
    }
    if processes.len() > 1 {
        return Ok(SearchOutcome::Several(processes.into_iter().collect()));
    }
    if let Some(stream) = first {
        return Ok(SearchOutcome::Connected(stream));
    }
    Ok(if is_queue_full { SearchOutcome::QueueFull } else { SearchOutcome::Nothing { other_user } })
}

/// Sends the request and reads the reply.
async fn exchange(stream: &mut UnixStream, request: &[u8]) -> Result<Vec<u8>, AskError> {
    let sent = frame::write_request(stream, request).await;
    // A process that is busy replies and closes the connection without reading, so the reply counts before the error.
    match (frame::read_reply(stream).await, sent) {
        (Ok(Reply::Answer(answer)), Ok(())) => Ok(answer),
        (Ok(Reply::Busy), _) => Err(AskError::Busy),
        (Ok(Reply::TooLarge), _) => Err(AskError::AnswerTooLarge),
        (Ok(Reply::Failed), _) => Err(AskError::Failed),
        (Ok(Reply::Answer(_)) | Err(_), Err(error)) => Err(stream_error(error)),
        (Err(FrameError::Incomplete), Ok(())) => Err(AskError::Closed),
        (Err(FrameError::Io(error)), Ok(())) => Err(stream_error(error)),
        (Err(error @ (FrameError::TooLarge { .. } | FrameError::UnknownStatus(_))), Ok(())) => {
            Err(AskError::UnknownReply(error))
        }
    }
}

fn stream_error(error: io::Error) -> AskError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AskError::Closed,
        _ => AskError::Io(error),
    }
}
