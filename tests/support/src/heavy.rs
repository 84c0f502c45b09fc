//! A lock for tests that keep the machine busy. They run one after the other, even across parallel test programs.

use std::fs::File;

/// The lock of a test that keeps the machine busy. Its measurements would be useless next to another such test.
#[derive(Debug)]
pub struct Heavy {
    // Closing the file releases the lock, also when the process is killed.
    _file: File,
}

impl Heavy {
    /// Waits for the lock, and blocks the thread until then. A test calls this before anything else.
    ///
    /// # Panics
    ///
    /// If the lock file, next to the test program, cannot be written.
    #[must_use]
    pub fn alone() -> Self {
        let path = std::env::current_exe().unwrap().with_file_name("heavy-tests.lock");
        let file = File::create(&path).unwrap_or_else(|error| panic!("failed to write {}: {error}", path.display()));
        file.lock().unwrap_or_else(|error| panic!("failed to lock {}: {error}", path.display()));
        Self { _file: file }
    }
}
