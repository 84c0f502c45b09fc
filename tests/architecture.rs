//! The rules of the tree, checked by machine.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

use std::path::{Path, PathBuf};

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bare: Vec<_> = ["src", "tests"]
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
        .filter(|path| !std::fs::read_to_string(path).unwrap().starts_with("//! "))
        .collect();
    assert!(bare.is_empty(), "files without a header: {bare:?}");
}
