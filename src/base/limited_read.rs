//! Reads a source up to a limit. Opens no files: the caller passes the open source.

use std::io::{self, Read};

use zeroize::Zeroizing;

/// Maximum size of a file in bytes. A ConfigMap or a Secret cannot be larger either.
pub const MAX_FILE: usize = 1 << 20;
/// Minimum for the expected size, in bytes. Files such as those in `/proc` report the size 0 although they have
/// content.
const SMALLEST_BUFFER: usize = 1_023;

/// Reads all of `source` into a buffer that is wiped on drop. `expected` is the announced size in bytes. Fails with
/// `FileTooLarge` if the source has more than `limit` bytes.
pub fn read_limited(mut source: impl Read, expected: usize, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    // The buffer is one byte larger than expected, so that a source of the expected size does not fill it. A larger
    // buffer would cost time: files are read every few seconds, and each read wipes unused bytes. A longer source is
    // copied to a larger buffer and the old one is wiped, because a vector that grows would leave copies.
    let mut buffer = Zeroizing::new(vec![0; expected.clamp(SMALLEST_BUFFER, limit.max(SMALLEST_BUFFER)) + 1]);
    let mut length = 0;
    while length <= limit {
        if length == buffer.len() {
            let mut larger = Zeroizing::new(vec![0; length.saturating_mul(2)]);
            larger.iter_mut().zip(buffer.iter()).for_each(|(to, from)| *to = *from);
            buffer = larger;
        }
        match source.read(buffer.get_mut(length..).unwrap_or_default()) {
            Ok(0) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("the file is larger than {limit} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns one byte at a time, with `Interrupted` errors between the bytes.
    struct Slow<'a>(&'a [u8], bool);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.0.read(&mut buffer[..1])
        }
    }

    #[test]
    fn a_file_is_read_up_to_the_limit_and_no_further() {
        let limit = 3 * SMALLEST_BUFFER;
        for expected in [0, 1, SMALLEST_BUFFER, limit, 10 * limit] {
            for length in [0, 1, SMALLEST_BUFFER, SMALLEST_BUFFER + 1, 2 * SMALLEST_BUFFER + 2, limit] {
                let text: Vec<u8> = (0..length).map(|index| index as u8).collect();
                let read = read_limited(Slow(&text, false), expected, limit).unwrap();
                assert_eq!(read.as_slice(), text, "{length} bytes, {expected} expected");
            }
            let error = read_limited(Slow(&vec![b'x'; limit + 1], false), expected, limit).unwrap_err();
            assert_eq!(error.to_string(), "the file is larger than 3069 bytes");
            assert!(read_limited(io::repeat(b'x'), expected, limit).is_err(), "a file without an end");
        }
        assert!(read_limited(io::repeat(b'x'), 0, 4).is_err(), "a limit below the smallest buffer");
        assert_eq!(read_limited(&b"abcd"[..], 0, 4).unwrap().as_slice(), b"abcd");
    }

    #[test]
    fn the_buffer_is_one_that_is_wiped_and_no_larger_than_it_must_be() {
        fn is_wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let buffer = read_limited(io::empty(), 5_000, MAX_FILE).unwrap();
        is_wiped(&buffer);
        assert!(buffer.capacity() <= 5_001, "{}", buffer.capacity());
    }
}
