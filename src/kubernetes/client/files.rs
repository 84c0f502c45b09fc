//! Reads a kubeconfig, the files that it names, and the files of a pod's service account.

use std::fs::File;
use std::io;
use std::path::Path;

use zeroize::Zeroizing;

use crate::base::limited_read::{MAX_FILE, read_limited};

/// Function that reads a file into a buffer. The buffer is wiped on drop.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Zeroizing<Vec<u8>>>;

pub(super) fn read_file(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let expected = file.metadata().map_or(0, |about| usize::try_from(about.len()).unwrap_or(MAX_FILE));
    read_limited(file, expected, MAX_FILE)
}
