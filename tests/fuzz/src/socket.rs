//! Fuzz target for the bytes that a process sends over the local socket.

use std::pin::Pin;
use std::task::{Context, Poll};

use ccm::runtime::local_socket::frame::{
    FrameError, MAX_ANSWER, MAX_REQUEST, Reply, read_reply, read_request, write_reply, write_request,
};
use tokio::io::{AsyncRead, ReadBuf};

use crate::laws::is_told_well;
use crate::memory::run;

/// Hands out the bytes one by one, as a slow process sends them.
struct SingleBytes<'a>(&'a [u8]);

impl AsyncRead for SingleBytes<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if let Some((first, rest)) = self.0.split_first().filter(|_| buffer.remaining() > 0) {
            buffer.put_slice(&[*first]);
            self.0 = rest;
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads the bytes as a request and as a reply. A message is read whole or not at all, whatever the size of the pieces
/// in which it arrives.
pub fn frame(bytes: &[u8]) {
    run(async {
        request(bytes).await;
        reply(bytes).await;
    });
}

async fn request(bytes: &[u8]) {
    let mut rest = bytes;
    let outcome = read_request(&mut rest).await;
    let slow = read_request(&mut SingleBytes(bytes)).await;
    match (&outcome, slow) {
        (Ok(content), Ok(slow)) => {
            assert!(content.len() <= MAX_REQUEST, "{} bytes", content.len());
            assert_eq!(*content, slow);
            let mut sent = Vec::new();
            write_request(&mut sent, content).await.expect("memory takes all");
            assert_eq!([&sent, rest].concat(), bytes, "the request is the beginning of the bytes");
        }
        (Err(error), Err(slow)) => same_error(error, &slow),
        (one, other) => panic!("{one:?} and in single bytes {other:?}"),
    }
}

async fn reply(bytes: &[u8]) {
    let mut rest = bytes;
    let outcome = read_reply(&mut rest).await;
    let slow = read_reply(&mut SingleBytes(bytes)).await;
    match (&outcome, slow) {
        (Ok(reply), Ok(slow)) => {
            assert!(!matches!(reply, Reply::Answer(answer) if answer.len() > MAX_ANSWER));
            assert_eq!(*reply, slow);
            let mut sent = Vec::new();
            write_reply(&mut sent, reply).await.expect("memory takes all");
            assert_eq!([&sent, rest].concat(), bytes, "the reply is the beginning of the bytes");
        }
        (Err(error), Err(slow)) => same_error(error, &slow),
        (one, other) => panic!("{one:?} and in single bytes {other:?}"),
    }
}

fn same_error(error: &FrameError, slow: &FrameError) {
    is_told_well(error);
    assert_eq!(error.to_string(), slow.to_string());
}
