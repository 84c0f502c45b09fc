//! Pure: reads a source up to a limit. The caller opens the file.

use std::io::{self, Read};

use zeroize::Zeroizing;

/// The largest file that is read. A ConfigMap or a Secret cannot be larger either.
pub const MAX_FILE: usize = 1 << 20;
/// The smallest buffer: files without a size, such as those of `/proc`, report that they are empty.
const SMALLEST_BUFFER: usize = 1_023;

/// Reads all of `source`, whose announced size is `expected` bytes, into a buffer that is wiped on drop.
///
/// # Errors
/// The errors of the source, and `FileTooLarge` for more than `limit` bytes.
pub fn read_limited(mut source: impl Read, expected: usize, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    // The buffer has one byte more than expected, which stays free if the source ends there. It is no larger, because
    // files are read every few seconds and unused bytes would be wiped each time. A longer source continues in a second
    // buffer and the first one is wiped: a buffer that grows by itself leaves copies behind.
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

    /// Returns one byte at a time, and is interrupted in between.
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
