//! The files that flags and `vsphere.conf` name, read within a limit into buffers that are wiped.

mod noted;

pub use noted::{Noted, Noting};

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use zeroize::Zeroizing;

/// The largest file that is read. A ConfigMap or a Secret holds no more either.
pub const MAX_FILE: usize = 1 << 20;

/// What the settings ask of the file system; in tests, one that is made up.
pub trait Files {
    /// The content of a file; it may be a password, so the buffer is wiped when it is dropped.
    ///
    /// # Errors
    /// Those of the file system, and a file larger than [`MAX_FILE`].
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>>;

    /// Whether the path is a directory that can be looked at.
    fn is_directory(&self, path: &Path) -> bool;
}

/// The file system of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemFiles;

impl Files for SystemFiles {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        read_limited(File::open(path)?, MAX_FILE)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }
}

/// The buffer has its full size from the start: one that grows would leave copies behind.
fn read_limited(source: impl Read, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut buffer = Zeroizing::new(vec![0; limit + 1]);
    let mut length = 0;
    let mut source = source;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if length > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("the file is larger than {limit} bytes")));
    }
    buffer.truncate(length);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time, and is interrupted in between.
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
        let read = |text: &str, limit| read_limited(Slow(text.as_bytes(), false), limit);
        assert_eq!(read("", 4).unwrap().as_slice(), b"");
        assert_eq!(read("abcd", 4).unwrap().as_slice(), b"abcd");
        let error = read("abcde", 4).unwrap_err();
        assert_eq!(error.to_string(), "the file is larger than 4 bytes");
        assert!(read_limited(io::repeat(b'x'), 1000).is_err(), "a file without an end");
    }

    #[test]
    fn the_buffer_is_one_that_is_wiped() {
        fn is_wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        is_wiped(&read_limited(io::empty(), 1).unwrap());
    }

    #[test]
    fn directories_and_files_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        std::fs::write(&file, "text").unwrap();
        assert!(SystemFiles.is_directory(directory.path()) && !SystemFiles.is_directory(&file));
        assert_eq!(SystemFiles.read(&file).unwrap().as_slice(), b"text");
        assert!(SystemFiles.read(directory.path()).is_err());
    }
}
