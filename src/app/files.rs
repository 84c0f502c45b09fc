//! Reads files with a size limit into buffers that are wiped, and detects changes by fingerprints.

use crate::base::limited_read::{MAX_FILE, read_limited};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Access to the file system for the settings; tests use a fake.
pub trait FileSystem {
    /// Returns the content of a file. The buffer is wiped when it is dropped, since the content may include a password.
    ///
    /// # Errors
    /// Errors of the file system, and a file larger than [`MAX_FILE`].
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>>;

    /// Returns true if the path is a directory.
    fn is_directory(&self, path: &Path) -> bool;
}

/// The file system of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemFiles;

impl FileSystem for SystemFiles {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let file = File::open(path)?;
        let expected = file.metadata().map_or(0, |about| usize::try_from(about.len()).unwrap_or(MAX_FILE));
        read_limited(file, expected, MAX_FILE)
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }
}

/// Fingerprints of paths at their last read: for a file, the hash of its content or the kind of error; for a directory
/// check, its result.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FileFingerprints {
    files: BTreeMap<PathBuf, Result<u64, io::ErrorKind>>,
    directories: BTreeMap<PathBuf, bool>,
}

/// A [`FileSystem`] that reads from another file system and records fingerprints.
pub struct RecordingFiles<'a> {
    files: &'a dyn FileSystem,
    fingerprints: Mutex<FileFingerprints>,
}

impl FileFingerprints {
    /// Returns true if any path in `files` differs from its fingerprint. Reads the paths again and can block.
    pub fn differs(&self, files: &dyn FileSystem) -> bool {
        self.directories.iter().any(|(path, known)| files.is_directory(path) != *known)
            || self.files.iter().any(|(path, known)| trace(&files.read(path)) != *known)
    }
}

impl<'a> RecordingFiles<'a> {
    /// Wraps `files`, with no fingerprints yet.
    pub fn new(files: &'a dyn FileSystem) -> Self {
        Self { files, fingerprints: Mutex::default() }
    }

    /// Returns the fingerprints so far.
    pub fn noted(&self) -> FileFingerprints {
        self.fingerprints.lock().clone()
    }
}

impl FileSystem for RecordingFiles<'_> {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let read = self.files.read(path);
        let mut fingerprints = self.fingerprints.lock();
        fingerprints.files.insert(path.to_owned(), trace(&read));
        read
    }

    fn is_directory(&self, path: &Path) -> bool {
        let is_directory = self.files.is_directory(path);
        let mut fingerprints = self.fingerprints.lock();
        fingerprints.directories.insert(path.to_owned(), is_directory);
        is_directory
    }
}

fn trace(read: &io::Result<Zeroizing<Vec<u8>>>) -> Result<u64, io::ErrorKind> {
    match read {
        Ok(content) => {
            let mut hasher = DefaultHasher::new();
            hasher.write(content);
            Ok(hasher.finish())
        }
        Err(error) => Err(error.kind()),
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

    #[test]
    fn content_counts_and_time_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write("a", "text");
        let files = RecordingFiles::new(&SystemFiles);
        assert!(files.read(&path("a")).is_ok() && files.read(&path("gone")).is_err());
        assert!(!files.is_directory(&path("folder")));
        let fingerprints = files.noted();
        type Case<'a> = (&'a str, &'a dyn Fn(), &'a dyn Fn(), bool);
        let cases: &[Case<'_>] = &[
            ("nothing", &|| {}, &|| {}, false),
            ("written again", &|| write("a", "text"), &|| {}, false),
            ("another file", &|| write("b", "text"), &|| {}, false),
            ("content", &|| write("a", "tex!"), &|| write("a", "text"), true),
            ("removed", &|| std::fs::remove_file(path("a")).unwrap(), &|| write("a", "text"), true),
            ("there now", &|| write("gone", ""), &|| std::fs::remove_file(path("gone")).unwrap(), true),
            (
                "a directory now",
                &|| std::fs::create_dir(path("folder")).unwrap(),
                &|| std::fs::remove_dir(path("folder")).unwrap(),
                true,
            ),
        ];
        for (case, change, undo, differs) in cases {
            change();
            assert_eq!(fingerprints.differs(&SystemFiles), *differs, "{case}");
            undo();
            assert!(!fingerprints.differs(&SystemFiles), "{case}, undone");
        }
    }
}
