//! Writes log lines through a bounded queue, which a separate thread empties. A task that logs never waits for the
//! reader of the log. While the queue is full, lines are dropped and counted. klog writes under a lock, so that a full
//! pipe stops the whole process.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use crate::runtime::tasks;

/// Maximum number of waiting bytes. A line that does not fit is dropped.
const MAX_WAITING: usize = 1 << 20;
/// Approximate memory of a waiting line in addition to its text, in bytes.
const OVERHEAD: usize = 64;
/// Maximum time that the process waits for the last lines at its end.
const LAST_LINES: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Output,
    Error,
}

enum OutputTask {
    Line(Stream, String),
    Flush(SyncSender<()>),
}

/// The queue of lines. Clones share the queue.
#[derive(Clone)]
pub struct LineQueue {
    work: Sender<OutputTask>,
    state: Arc<OutputState>,
}

#[derive(Default)]
struct OutputState {
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

/// Guard that waits on drop for the queued lines, for at most 1 s.
#[must_use = "the last lines are lost when it is not held until the end"]
pub struct FlushGuard(LineQueue);

impl Drop for FlushGuard {
    fn drop(&mut self) {
        let (done, is_done) = sync_channel(1);
        if self.0.work.send(OutputTask::Flush(done)).is_ok() {
            // After a timeout, the remaining lines are lost: the reader of the log is too slow.
            let _ = is_done.recv_timeout(LAST_LINES);
        }
    }
}

impl LineQueue {
    /// Starts the thread that writes the lines. `lost` formats the line that reports the number of dropped lines.
    pub fn start(
        write: impl FnMut(Stream, &str) + Send + 'static,
        lost: impl Fn(u64) -> String + Send + 'static,
    ) -> std::io::Result<(Self, FlushGuard)> {
        let (work, todo) = channel();
        let state = Arc::new(OutputState::default());
        let queue = Self { work, state: Arc::clone(&state) };
        tasks::thread("log", move || write_all(&todo, &state, write, lost))?;
        Ok((queue.clone(), FlushGuard(queue)))
    }

    /// Queues a line, including its line break. If the queue is full, counts the line as dropped.
    pub fn push(&self, stream: Stream, line: String) {
        let size = line.len() + OVERHEAD;
        let is_room = |waiting: usize| waiting.checked_add(size).filter(|waiting| *waiting <= MAX_WAITING);
        let taken = self.state.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_room);
        if taken.is_err() || self.work.send(OutputTask::Line(stream, line)).is_err() {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_all(
    todo: &Receiver<OutputTask>,
    state: &OutputState,
    mut write: impl FnMut(Stream, &str),
    lost: impl Fn(u64) -> String,
) {
    while let Ok(work) = todo.recv() {
        match work {
            OutputTask::Line(stream, line) => {
                write(stream, &line);
                state.waiting.fetch_sub(line.len() + OVERHEAD, Ordering::Relaxed);
            }
            // The caller may have stopped waiting.
            OutputTask::Flush(done) => drop(done.try_send(())),
        }
        match state.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            count => write(Stream::Error, &lost(count)),
        }
    }
}

/// Writes a line to a stream of this process. Ignores errors, because a closed stream has no reader.
pub fn to_process(stream: Stream, line: &str) {
    let _ = match stream {
        Stream::Output => std::io::stdout().lock().write_all(line.as_bytes()).and_then(|()| std::io::stdout().flush()),
        Stream::Error => std::io::stderr().lock().write_all(line.as_bytes()),
    };
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn nobody_waits_for_a_reader_and_what_is_lost_is_counted() {
        let (permit, wait) = mpsc::channel::<()>();
        let written = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&written);
        let write = move |stream, line: &str| {
            // Blocks until the test drops `permit`; from then on every line is written.
            let _ = wait.recv();
            seen.lock().unwrap().push((stream, line.to_owned()));
        };
        let (queue, last) = LineQueue::start(write, |count| format!("lost {count}\n")).unwrap();
        let line = |number: usize| format!("{number:>1000}\n");
        let fits = MAX_WAITING / (line(0).len() + OVERHEAD);
        for number in 0..fits + 7 {
            queue.push(Stream::Output, line(number));
        }
        drop(permit);
        drop(last);
        let written = written.lock().unwrap();
        assert_eq!(written[0], (Stream::Output, line(0)));
        let lost: Vec<_> = written.iter().filter(|(_, line)| line.starts_with("lost")).collect();
        assert_eq!(lost, [&(Stream::Error, "lost 7\n".to_owned())]);
        assert_eq!(written.len(), fits + 1);
    }

    #[test]
    fn what_was_pushed_is_written_when_the_end_has_been_waited_for() {
        let written = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&written);
        let (queue, last) =
            LineQueue::start(move |_, line| seen.lock().unwrap().push_str(line), |_| String::new()).unwrap();
        for number in 0..100 {
            queue.push(Stream::Error, format!("{number}\n"));
        }
        drop(last);
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(*written.lock().unwrap(), expected);
    }
}
