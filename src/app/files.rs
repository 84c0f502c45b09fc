//! The files that flags and `vsphere.conf` name, read within a limit into buffers that are wiped.

mod noted;

pub use noted::{Noted, Noting};

use crate::base::limited_read::{MAX_FILE, read_limited};
use std::fs::File;
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

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
        let file = File::open(path)?;
        let expected = file.metadata().map_or(0, |about| usize::try_from(about.len()).unwrap_or(MAX_FILE));
        read_limited(file, expected, MAX_FILE)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
