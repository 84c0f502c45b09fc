//! Tests that keep the machine busy run one after the other, also those of test programs that run side by side.

use std::fs::File;

/// Held by a test for as long as it keeps the machine busy: beside another such test its times say nothing.
#[derive(Debug)]
pub struct Heavy {
    // Unlocked when it is closed, also at the end of a process that is killed.
    _file: File,
}

impl Heavy {
    /// Waits for its turn, and blocks the thread meanwhile: a test calls this before anything else.
    ///
    /// # Panics
    ///
    /// When the file of the lock, beside the test program, cannot be written.
    #[must_use]
    pub fn alone() -> Self {
        let path = std::env::current_exe().unwrap().with_file_name("heavy-tests.lock");
        let file = File::create(&path).unwrap_or_else(|error| panic!("failed to write {}: {error}", path.display()));
        file.lock().unwrap_or_else(|error| panic!("failed to lock {}: {error}", path.display()));
        Self { _file: file }
    }
}
