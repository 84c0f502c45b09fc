//! The form of a request and of a reply on the socket. A request is its length (32 bits, big endian) and its bytes. A
//! reply is a status byte, the length and the bytes. This form never changes, so that programs of different versions
//! understand each other far enough to report the difference; versions are part of the content.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Maximum size of a request, in bytes.
pub const MAX_REQUEST: usize = 64 * 1024;

/// Maximum size of an answer, in bytes.
pub const MAX_ANSWER: usize = 8 * 1024 * 1024;

const ANSWER: u8 = 0;
const BUSY: u8 = 1;
const TOO_LARGE: u8 = 2;
const FAILED: u8 = 3;

/// A reply of the process that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer of the handler.
    Answer(Vec<u8>),
    /// All connections are in use. The request was not read.
    Busy,
    /// The answer is larger than [`MAX_ANSWER`].
    TooLarge,
    /// The handler panicked.
    Failed,
}

/// Reason why a request or a reply cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The announced size is above the limit. Both are in bytes.
    #[error("the message has {size} bytes, at most {limit} are allowed")]
    TooLarge {
        /// The announced size.
        size: u32,
        /// The limit.
        limit: usize,
    },
    /// The connection was closed before the end of the message.
    #[error("the connection was closed before the end of the message")]
    Incomplete,
    /// The status of a reply is unknown.
    #[error("the reply has the unknown status {0}")]
    UnknownStatus(u8),
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[source] io::Error),
}

/// Reads a request of at most [`MAX_REQUEST`] bytes. Has no time limit.
///
/// # Errors
///
/// If the request is too large or incomplete, or the connection fails.
pub async fn read_request(reader: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, FrameError> {
    read_content(reader, MAX_REQUEST).await
}

/// Writes a request. The caller has checked its size.
///
/// # Errors
///
/// If the connection fails, or the request is larger than 4 GiB.
pub async fn write_request(writer: &mut (impl AsyncWrite + Unpin), request: &[u8]) -> io::Result<()> {
    writer.write_all(&length(request)?).await?;
    writer.write_all(request).await?;
    writer.flush().await
}

/// Reads a reply. Has no time limit.
///
/// # Errors
///
/// If the reply is too large, incomplete or unknown, or the connection fails.
pub async fn read_reply(reader: &mut (impl AsyncRead + Unpin)) -> Result<Reply, FrameError> {
    let status = reader.read_u8().await.map_err(read_error)?;
    let limit = if status == ANSWER { MAX_ANSWER } else { 0 };
    let content = read_content(reader, limit).await?;
    match status {
        ANSWER => Ok(Reply::Answer(content)),
        BUSY => Ok(Reply::Busy),
        TOO_LARGE => Ok(Reply::TooLarge),
        FAILED => Ok(Reply::Failed),
        _ => Err(FrameError::UnknownStatus(status)),
    }
}

/// Writes a reply. An answer that is larger than [`MAX_ANSWER`] becomes [`Reply::TooLarge`].
///
/// # Errors
///
/// If the connection fails.
pub async fn write_reply(writer: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> io::Result<()> {
    let (status, content): (u8, &[u8]) = match reply {
        Reply::Answer(answer) if answer.len() > MAX_ANSWER => (TOO_LARGE, &[]),
        Reply::Answer(answer) => (ANSWER, answer),
        Reply::Busy => (BUSY, &[]),
        Reply::TooLarge => (TOO_LARGE, &[]),
        Reply::Failed => (FAILED, &[]),
    };
    writer.write_all(&[status]).await?;
    writer.write_all(&length(content)?).await?;
    writer.write_all(content).await?;
    writer.flush().await
}

/// The bytes of [`Reply::Busy`].
pub(super) const BUSY_REPLY: [u8; 5] = [BUSY, 0, 0, 0, 0];

fn length(content: &[u8]) -> io::Result<[u8; 4]> {
    let length = u32::try_from(content.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(length.to_be_bytes())
}

/// Reads length and content. Memory grows with the received bytes, not with the announced length.
async fn read_content(reader: &mut (impl AsyncRead + Unpin), limit: usize) -> Result<Vec<u8>, FrameError> {
    let size = reader.read_u32().await.map_err(read_error)?;
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    if length > limit {
        return Err(FrameError::TooLarge { size, limit });
    }
    let mut content = Vec::new();
    reader.take(size.into()).read_to_end(&mut content).await.map_err(read_error)?;
    if content.len() < length {
        return Err(FrameError::Incomplete);
    }
    Ok(content)
}

fn read_error(error: io::Error) -> FrameError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => FrameError::Incomplete,
        _ => FrameError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_bytes(size: u32, content: &[u8]) -> Vec<u8> {
        [&size.to_be_bytes(), content].concat()
    }

    #[tokio::test]
    async fn a_request_is_read_whole_or_not_at_all() {
        let largest = vec![7; MAX_REQUEST];
        for content in [&b""[..], b"status", &largest] {
            let mut bytes = Vec::new();
            write_request(&mut bytes, content).await.unwrap();
            assert_eq!(read_request(&mut bytes.as_slice()).await.unwrap(), content);

            for end in [0, 3, bytes.len() - 1] {
                let outcome = read_request(&mut &bytes[..end]).await;
                assert!(matches!(outcome, Err(FrameError::Incomplete)), "{end} bytes of {}: {outcome:?}", bytes.len());
            }
        }
        let more = request_bytes(1, b"ab");
        let mut reader = more.as_slice();
        assert_eq!(read_request(&mut reader).await.unwrap(), b"a");
        assert_eq!(reader, b"b", "no byte after the request is read");
    }

    #[tokio::test]
    async fn a_request_above_the_limit_is_refused_by_its_length() {
        for size in [65_537, u32::MAX] {
            let bytes = request_bytes(size, b"");
            let outcome = read_request(&mut bytes.as_slice()).await;
            let is_refused =
                matches!(outcome, Err(FrameError::TooLarge { size: told, limit: MAX_REQUEST }) if told == size);
            assert!(is_refused, "{outcome:?}");
        }
    }

    #[tokio::test]
    async fn a_request_in_single_bytes_is_the_same() {
        let bytes = request_bytes(3, b"abc");
        let (mut client, mut server) = tokio::io::duplex(1);
        let send = async {
            for byte in &bytes {
                client.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let (request, ()) = tokio::join!(read_request(&mut server), send);
        assert_eq!(request.unwrap(), b"abc");
    }

    #[tokio::test]
    async fn a_reply_is_read_as_it_was_written() {
        let largest = Reply::Answer(vec![1; MAX_ANSWER]);
        let replies = [Reply::Answer(Vec::new()), Reply::Answer(b"fine".to_vec()), largest, Reply::Busy, Reply::Failed];
        for reply in replies {
            let mut bytes = Vec::new();
            write_reply(&mut bytes, &reply).await.unwrap();
            assert_eq!(read_reply(&mut bytes.as_slice()).await.unwrap(), reply);
            let outcome = read_reply(&mut &bytes[..bytes.len() - 1]).await;
            assert!(matches!(outcome, Err(FrameError::Incomplete)));
        }
        let mut bytes = Vec::new();
        write_reply(&mut bytes, &Reply::Answer(vec![1; MAX_ANSWER + 1])).await.unwrap();
        assert_eq!(read_reply(&mut bytes.as_slice()).await.unwrap(), Reply::TooLarge);
        assert_eq!(read_reply(&mut BUSY_REPLY.as_slice()).await.unwrap(), Reply::Busy);
    }

    #[tokio::test]
    async fn a_reply_that_is_not_understood_is_an_error() {
        let read = async |bytes: &[u8]| read_reply(&mut &*bytes).await.unwrap_err();
        assert!(matches!(read(b"").await, FrameError::Incomplete));
        assert!(matches!(read(&[0]).await, FrameError::Incomplete));
        assert!(matches!(read(&[9, 0, 0, 0, 0]).await, FrameError::UnknownStatus(9)));
        assert!(matches!(read(&[1, 0, 0, 0, 1, b'x']).await, FrameError::TooLarge { size: 1, limit: 0 }));
        assert!(matches!(read(b"HTTP/1.1 400 Bad Request").await, FrameError::TooLarge { limit: 0, .. }));
        assert!(matches!(read(&[0, 0xff, 0xff, 0xff, 0xff]).await, FrameError::TooLarge { limit: MAX_ANSWER, .. }));
    }
}
