//! Time limits of one connection: for the wait for a request, and for the wait until the client reads an answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::connections::{ConnectionSlot, Phase};

/// Time limit from the handshake to the end of the header of the first request.
const FIRST_LIMIT: Duration = Duration::from_secs(10);

/// Time limit for the header of a further request, as in the Go program.
const HEADER_LIMIT: Duration = Duration::from_secs(32);

/// Maximum idle time between two requests, as in the Go program.
const IDLE_LIMIT: Duration = Duration::from_secs(90);

/// Maximum time for which a write makes no progress, because the client does not read the answer.
const WRITE_LIMIT: Duration = Duration::from_secs(15);

/// Activity of a connection. Clones share the state.
#[derive(Clone)]
pub(super) struct Activity {
    shared: Arc<ConnectionActivity>,
}

struct ConnectionActivity {
    place: ConnectionSlot,
    counts_headers: bool,
    state: Mutex<StreamState>,
}

struct StreamState {
    under_way: usize,
    is_used: bool,
    quiet_since: Instant,
    heard_since: Option<Instant>,
}

/// Guard of a request in progress. The request ends when the guard is dropped.
pub(super) struct UnderWay(Activity);

impl Activity {
    /// Creates the activity of a connection after its handshake. On HTTP/1, bytes between requests begin a header.
    pub(super) fn new(slot: ConnectionSlot, is_http1: bool) -> Self {
        slot.reached(Phase::Unused);
        let state = StreamState { under_way: 0, is_used: false, quiet_since: Instant::now(), heard_since: None };
        Self {
            shared: Arc::new(ConnectionActivity { place: slot, counts_headers: is_http1, state: Mutex::new(state) }),
        }
    }

    /// Waits until the connection must make room for another connection.
    pub(super) async fn closed(&self) {
        self.shared.place.closed.cancelled().await;
    }

    /// Records the start of a request.
    pub(super) fn begin(&self) -> UnderWay {
        let mut state = self.shared.state.lock();
        (state.under_way, state.is_used, state.heard_since) = (state.under_way + 1, true, None);
        drop(state);
        self.shared.place.reached(Phase::Busy);
        UnderWay(self.clone())
    }

    /// Waits until the client has exceeded a time limit.
    pub(super) async fn waited_too_long(&self) {
        loop {
            match self.deadline() {
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                // A request in progress has its own time limits, so the connection is checked again later.
                None => sleep(FIRST_LIMIT).await,
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let state = self.shared.state.lock();
        let idle = state.quiet_since + if state.is_used { IDLE_LIMIT } else { FIRST_LIMIT };
        match (state.under_way, state.heard_since) {
            (0, Some(since)) => Some(idle.min(since + HEADER_LIMIT)),
            (0, None) => Some(idle),
            _ => None,
        }
    }

    fn mark_heard(&self) {
        let mut state = self.shared.state.lock();
        if self.shared.counts_headers && state.under_way == 0 && state.heard_since.is_none() {
            state.heard_since = Some(Instant::now());
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.shared.state.lock();
        state.under_way = state.under_way.saturating_sub(1);
        let is_last = state.under_way == 0;
        if is_last {
            state.quiet_since = Instant::now();
        }
        drop(state);
        if is_last {
            self.0.shared.place.reached(Phase::Idle);
        }
    }
}

/// A stream that records when bytes arrive, and fails if the client does not read an answer.
pub(super) struct MonitoredStream<S> {
    inner: S,
    activity: Activity,
    unread: Option<Pin<Box<Sleep>>>,
}

impl<S> MonitoredStream<S> {
    pub(super) fn new(inner: S, activity: Activity) -> Self {
        Self { inner, activity, unread: None }
    }

    /// Returns the outcome of a write, or an error if nothing could be written for `WRITE_LIMIT`.
    fn limited<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.unread = None;
            return outcome;
        }
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep(WRITE_LIMIT)));
        ready!(unread.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the answer is not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.activity.mark_heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.limited(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(context);
        self.limited(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(context);
        self.limited(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.limited(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::admin::connections::Connections;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn activity(is_http1: bool) -> Activity {
        Activity::new(Connections::new(1).admit([192, 0, 2, 1].into()), is_http1)
    }

    #[tokio::test(start_paused = true)]
    async fn each_kind_of_waiting_has_its_limit() {
        let waited = async |activity: &Activity| {
            let start = Instant::now();
            activity.waited_too_long().await;
            start.elapsed().as_secs()
        };
        let unused = activity(true);
        unused.mark_heard();
        assert_eq!(waited(&unused).await, 10, "half a header is no request");
        let idle = activity(true);
        drop(idle.begin());
        assert_eq!(waited(&idle).await, 90);
        let slow = activity(true);
        drop(slow.begin());
        slow.mark_heard();
        assert_eq!(waited(&slow).await, 32, "a header that comes slowly");
        let pings = activity(false);
        drop(pings.begin());
        pings.mark_heard();
        assert_eq!(waited(&pings).await, 90, "what HTTP/2 sends between requests is no header");
        let busy = activity(true);
        let under_way = busy.begin();
        assert!(tokio::time::timeout(IDLE_LIMIT * 2, busy.waited_too_long()).await.is_err());
        drop(under_way);
        // The idle time is checked every 10 s while a request is in progress.
        assert!((90..=100).contains(&waited(&busy).await));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_ends_the_connection() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = MonitoredStream::new(near, activity(true));
        let start = Instant::now();
        let error = near.write_all(&[7; 64]).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE_LIMIT));
        let mut read = [0; 16];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(read, [7; 16]);
    }
}
