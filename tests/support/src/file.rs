//! Replaces files while other programs read them, and copies folders.

use std::path::Path;

/// Replaces a file in one step, as `kubectl edit` and the kubelet do.
///
/// # Panics
///
/// If it cannot be written.
pub fn replace_file(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, path).unwrap();
}

/// Copies the content of one folder into another, which is created if it is missing.
///
/// # Panics
///
/// If a file cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).unwrap();
        }
    }
}
